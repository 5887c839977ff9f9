# SPDX-License-Identifier: Apache-2.0
"""What --store keeps on the disk: it outlives the router, is closed to others, encrypted if asked, and part of no log."""
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import stat
import subprocess
import tempfile

from harness import Cluster, free_port, small_model, tiny_model, wait_until
from launch import Launch
from test_tenants import served

BOUNDARY = "0123456789abcdef"


def form(data, name="in.jsonl", purpose="batch", **more):
    """@return the body of an upload."""
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
             for k, v in dict(more, purpose=purpose).items()]
    parts.append(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + data + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def call(c, method, path, body=None, headers=None):
    """@return (status, JSON or bytes)"""
    connection = http.client.HTTPConnection(*c.http, timeout=60)
    headers = dict(headers or {})
    if body is not None:
        headers["Content-Type"] = "multipart/form-data; boundary=" + BOUNDARY
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, json.loads(data) if response.getheader("Content-Type") == "application/json" else data


def upload(c, data, headers=None, **more):
    status, answer = call(c, "POST", "/v1/files", form(data, **more), headers)
    assert status == 200, (status, answer)
    return answer


def content(c, file, headers=None):
    status, data = call(c, "GET", f"/v1/files/{file['id']}/content", headers=headers)
    assert status == 200, (status, data)
    return data


def some_bytes(n, seed):
    return random.Random(seed).randbytes(n)


def killed_router(c):
    """kill -9, and another one in its place."""
    c.router.kill(signal.SIGKILL)
    c.router.popen.wait()
    c.router.close()
    c.processes.remove(c.router)
    c.router = c.start_router()
    wait_until("the new router listens", lambda: c.router.is_ready() or "grpc " in c.router.ready_text)
    c.read_addresses()


def test_files_outlive_a_router_that_is_killed():
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, "store")
        with Cluster(tiny_model(d), router_args=["--store", folder, "--max-body-bytes", "4m"]) as c:
            kept = {}
            for n in (0, 1, 65535, 65536, 65537, 1000000):
                data = some_bytes(n, n)
                file = upload(c, data, name=f"{n}.jsonl")
                assert file["bytes"] == n and file["filename"] == f"{n}.jsonl", file
                kept[file["id"]] = (file, hashlib.sha256(data).digest())
            gone = upload(c, b"gone")
            assert call(c, "DELETE", "/v1/files/" + gone["id"])[1]["deleted"] is True
            # An upload that ends half way is no file.
            with socket.create_connection(c.http) as s:
                body = form(some_bytes(500000, 9))
                s.sendall(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=" +
                          BOUNDARY.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:300000])
                killed_router(c)
            status, answer = call(c, "GET", "/v1/files?order=asc")
            assert status == 200 and [f["id"] for f in answer["data"]] == list(kept), answer
            assert answer["data"] == [file for file, _ in kept.values()]
            for file, digest in kept.values():
                assert hashlib.sha256(content(c, file)).digest() == digest, file
            assert call(c, "GET", "/v1/files/" + gone["id"])[0] == 404
            assert sorted(os.listdir(folder)) == sorted([*kept, "lock", "responses"])


def resident_bytes(c):
    with open(f"/proc/{c.router.popen.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_long_file_is_sent_in_pieces_however_slow_its_readers_are():
    """A file of more than 64 MiB, the most that an answer of one piece has."""
    size, n_readers = 100 << 20, 8
    data = some_bytes(1 << 20, 1) * (size >> 20)
    digest = hashlib.sha256(data).digest()
    with tempfile.TemporaryDirectory() as d, Cluster(tiny_model(d), router_args=[
            "--store", os.path.join(d, "store"), "--max-body-bytes", "128m"]) as c:
        file = upload(c, data)
        path = f"/v1/files/{file['id']}/content"
        assert hashlib.sha256(content(c, file)).digest() == digest
        connection = http.client.HTTPConnection(*c.http, timeout=60)
        connection.request("HEAD", path)
        assert connection.getresponse().getheader("Content-Length") == str(size)
        connection.close()
        before = resident_bytes(c)
        readers = []
        for _ in range(n_readers):
            connection = http.client.HTTPConnection(*c.http, timeout=60)
            connection.request("GET", path)
            response = connection.getresponse()
            readers.append((connection, response, hashlib.sha256(response.read(1))))
        # Another one is not held up; meanwhile the slow ones get what they take.
        assert hashlib.sha256(content(c, file)).digest() == digest
        more = resident_bytes(c) - before
        assert more < n_readers * (2 << 20), f"{more >> 20} MiB more for {n_readers} readers that do not read"
        for connection, response, hashed in readers:
            while piece := response.read(1 << 20):
                hashed.update(piece)
            assert hashed.digest() == digest
            connection.close()
        # One that is deleted ends early: the client sees that bytes are missing.
        connection = http.client.HTTPConnection(*c.http, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        assert call(c, "DELETE", "/v1/files/" + file["id"])[0] == 200
        try:
            assert len(response.read()) == size, "the answer has neither all bytes nor an error"
        except http.client.IncompleteRead:
            pass
        connection.close()
        assert call(c, "GET", path)[0] == 404


def test_uploads_that_a_kill_interrupts_leave_whole_files_or_none():
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, "store")
        with Cluster(tiny_model(d), router_args=["--store", folder, "--max-body-bytes", "8m"]) as c:
            for round_ in range(4):
                bodies = [form(some_bytes(3000000, 10 * round_ + i)) for i in range(3)]
                sockets = [socket.create_connection(c.http) for _ in bodies]
                for s, body in zip(sockets, bodies):
                    s.sendall(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=" +
                              BOUNDARY.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                wait_until("the first file is written", lambda: any(n.startswith("file-") for n in os.listdir(folder)))
                killed_router(c)
                for s in sockets:
                    s.close()
                assert not [n for n in os.listdir(folder) if n.endswith(".part")]
                whole = {some_bytes(3000000, 10 * round_ + i) for i in range(3)}
                files = call(c, "GET", "/v1/files")[1]["data"]
                assert len(files) + 2 == len(os.listdir(folder)), "a file that is there is not listed"
                for file in files:
                    assert content(c, file) in whole
                    assert call(c, "DELETE", "/v1/files/" + file["id"])[0] == 200


def test_tenants_have_files_and_room_of_their_own():
    with tempfile.TemporaryDirectory() as folder, served(
            tiny_model, dict(router_args=["--store", folder, "--store-limit", "1m", "--max-body-bytes", "1m"]), a="", b="") as (c, keys):
        a, b = keys.of("a"), keys.of("b")
        first = upload(c, b"x" * 300000, a)
        for path in (first["id"], first["id"] + "/content"):
            assert call(c, "GET", "/v1/files/" + path, headers=b)[0] == 404
            assert call(c, "GET", "/v1/files/" + path)[0] == 401
        assert call(c, "DELETE", "/v1/files/" + first["id"], headers=b)[0] == 404
        assert call(c, "GET", "/v1/files", headers=b)[1]["data"] == []
        status, answer = call(c, "POST", "/v1/files", form(b"x" * 300000), a)  # half of the limit is a tenant's
        assert status == 413 and "--store-tenant-limit" in answer["error"]["message"], answer
        upload(c, b"x" * 300000, b)
        assert content(c, first, a) == b"x" * 300000
        assert call(c, "DELETE", "/v1/files/" + first["id"], headers=a)[0] == 200
        upload(c, b"x" * 300000, a)


def test_no_log_has_names_or_contents_of_files():
    with tempfile.TemporaryDirectory() as d:
        folder, key, access = (os.path.join(d, n) for n in ("store", "key", "access"))
        with open(key, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write("a key of more than sixteen bytes")
        with Cluster(tiny_model(d), router_args=["--store", folder, "--store-key", key, "--access-log", access,
                                                 "--log-level", "debug"]) as c:
            file = upload(c, b"the-content" * 10000, name="the-name.jsonl")
            assert content(c, file) == b"the-content" * 10000
            assert call(c, "GET", "/v1/files")[1]["data"][0]["filename"] == "the-name.jsonl"
            path = os.path.join(folder, file["id"])
            with open(path, "rb") as f:
                sealed = f.read()
            assert b"the-content" not in sealed and b"the-name" not in sealed
            with open(path, "r+b") as f:  # one bit
                f.seek(50000)
                f.write(bytes([sealed[50000] ^ 1]))
            status, answer = call(c, "GET", f"/v1/files/{file['id']}/content")
            assert status == 503 and "damaged" in answer["error"]["message"], answer
            with open(path, "r+b") as f:
                f.seek(30)
                f.write(bytes([sealed[30] ^ 1]))
            killed_router(c)
            assert call(c, "GET", "/v1/files/" + file["id"])[0] == 404
            assert f"{file['id']} is left alone" in c.router.log()
            text = c.logs()
            wait_until("the access log has the last request", lambda: "status=404" in open(access, encoding="utf-8").read())
            with open(access, encoding="utf-8") as f:
                text += f.read()
            assert "the-content" not in text and "the-name" not in text
        for entry in [folder, *(os.path.join(folder, n) for n in os.listdir(folder))]:
            assert stat.S_IMODE(os.stat(entry).st_mode) == (0o700 if os.path.isdir(entry) else 0o600), entry


def test_folder_that_cannot_be_used_is_named_at_the_start():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d)
        program = os.path.join(os.environ["BATON_BUILD"], "router", "baton-router")
        folder = os.path.join(d, "store")
        os.mkdir(folder, 0o755)
        missing = os.path.join(d, "no", "store")
        cases = [(["--store", folder], "closed to others"), (["--store", model], "Not a directory"),
                 (["--store-key", model], "--store-key needs --store"),
                 (["--store", folder, "--store-key", missing], "--store-key")]
        for options, why in cases:
            done = subprocess.run([program, "--check", "--model", model, *options], capture_output=True, text=True, check=False)
            assert done.returncode != 0 and why in done.stderr, (options, done.stderr)
        os.chmod(folder, 0o700)
        done = subprocess.run([program, "--check", "--model", model, "--store", folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and os.listdir(folder) == [], done.stderr
        with Cluster(model, router_args=["--store", folder]) as c:
            done = subprocess.run([program, "--model", model, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics",
                                   "127.0.0.1:0", "--store", folder, "--insecure"], capture_output=True, text=True, check=False,
                                  timeout=60)
            assert done.returncode != 0 and "another router has it" in done.stderr, done.stderr
            upload(c, b"x")


def test_serve_passes_the_folder_on():
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, "store")
        address = f"127.0.0.1:{free_port()}"
        with Launch("--model", small_model(d), "--store", folder, http=address) as launch:
            assert launch.ask(address, "/v1/files") == (200, {"object": "list", "data": [], "first_id": None, "last_id": None,
                                                              "has_more": False})
            assert sorted(os.listdir(folder)) == ["lock", "responses"]
