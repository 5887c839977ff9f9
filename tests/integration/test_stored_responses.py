# SPDX-License-Identifier: Apache-2.0
"""Stored responses: a conversation goes on after the router was killed, is closed to other tenants, bounded, and part of
no log."""
import http.client
import json
import os
import random
import signal
import socket
import stat
import tempfile
import threading

from harness import Cluster, small_model, wait_until
from test_store import killed_router
from test_tenants import served

SECRET = "zanzibar"  # no word of the harness, its models or its options


def ask(c, method="POST", path="", body=None, headers=None):
    """@return (status, JSON)"""
    status, _, data = c.request(method, "/v1/responses" + path, body, headers)
    return status, json.loads(data)


def create(c, text, headers=None, **more):
    status, answer = ask(c, body=dict(dict(input=text, temperature=0, max_output_tokens=6), **more), headers=headers)
    assert status == 200, (status, answer)
    return answer


def text_of(response):
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def said(response):
    return {"role": "assistant", "content": text_of(response)}


def test_conversation_goes_on_after_a_kill():
    with tempfile.TemporaryDirectory() as d:
        folder, key = os.path.join(d, "store"), os.path.join(d, "key")
        with open(key, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write("a key of more than sixteen bytes")
        with Cluster(small_model(d), router_args=["--store", folder, "--store-key", key]) as c:
            first = create(c, "Once")
            assert first["store"] is True, first
            second = create(c, "upon", previous_response_id=first["id"])
            killed_router(c)
            assert ask(c, "GET", f"/{first['id']}") == (200, first)
            third = create(c, "a time", previous_response_id=second["id"])
            whole = create(c, [{"role": "user", "content": "Once"}, said(first), {"role": "user", "content": "upon"}, said(second),
                               {"role": "user", "content": "a time"}], store=False)
            assert text_of(third) == text_of(whole) and third["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
            assert whole["store"] is False
            assert ask(c, "DELETE", f"/{first['id']}")[0] == 200
            for text in ("x", "x" * 5000):  # parsed at once, and by the pool
                status, answer = ask(c, body=dict(input=text, previous_response_id=third["id"]))
                assert status == 400 and answer["error"]["code"] == "previous_response_not_found", answer
            names = sorted(n for n in os.listdir(os.path.join(folder, "responses")) if n != "lock")
            assert names == sorted([second["id"], third["id"]]), names


class Storing(threading.Thread):
    """Stores long responses, one after the other, until the router is gone; `kept` has those whose end came."""

    def __init__(self, c, n_bytes, stream):
        super().__init__(daemon=True)
        self.address, self.stream, self.kept, self.begun = c.http, stream, [], 0
        # Reasoning of another server's is kept with the input, and no part of the prompt.
        self.input = [{"type": "reasoning", "summary": [], "encrypted_content": "x" * n_bytes}, {"role": "user", "content": "Once"}]
        self.start()

    def post(self):
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            connection.request("POST", "/v1/responses", json.dumps(dict(
                input=self.input, max_output_tokens=2, temperature=0, stream=self.stream)))
            self.begun += 1
            answer = connection.getresponse()
            data = answer.read().decode()
            assert answer.status == 200, data
        finally:
            connection.close()
        if not self.stream:
            return json.loads(data)
        events = [json.loads(line[6:]) for line in data.split("\n") if line.startswith("data: {")]
        assert events[-1]["type"] in ("response.completed", "response.incomplete"), data
        return events[-1]["response"]

    def run(self):
        try:
            while True:
                self.kept.append(self.post())
        except (OSError, http.client.HTTPException, IndexError):
            pass  # the kill


def stops_while_writing(router, folder):
    """@return whether a file is being written, with the router stopped; else it runs on"""
    def is_stopped():
        states = []
        for task in os.listdir(f"/proc/{router.pid}/task"):
            with open(f"/proc/{router.pid}/task/{task}/stat", encoding="ascii", errors="replace") as f:
                states.append(f.read().rpartition(")")[2].split()[0])
        return set(states) == {"T"}

    router.kill(signal.SIGSTOP)
    wait_until("the router has stopped", is_stopped)
    if any(n.endswith(".part") for n in os.listdir(folder)):
        return True
    router.kill(signal.SIGCONT)
    return False


def test_responses_that_a_kill_interrupts_are_whole_or_gone():
    """kill -9 at any moment of the writing, which never ends: what was answered is there, and nothing is torn."""
    with tempfile.TemporaryDirectory() as d:
        folder, key = os.path.join(d, "store", "responses"), os.path.join(d, "key")
        with open(key, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write("a key of more than sixteen bytes")
        with Cluster(small_model(d), router_args=["--store", os.path.join(d, "store"), "--store-key", key, "--max-body-bytes", "8m",
                                                  "--response-store-limit", "2g"]) as c:
            kept, draw = [], random.Random(5)
            for round_ in range(8):
                storing = [Storing(c, n, stream) for n, stream in ((0, False), (300000, True), (2000000, False))]
                wait_until("all have stored one", lambda: all(s.kept for s in storing) or not all(s.is_alive() for s in storing))
                # Half of the kills meet a write, the others come at any time.
                wanted = sum(s.begun for s in storing) + draw.randrange(6)
                wait_until("it is time", lambda: sum(s.begun for s in storing) >= wanted if round_ % 2 else
                           stops_while_writing(c.router, folder))
                c.router.kill(signal.SIGKILL)
                c.router.popen.wait()
                for s in storing:
                    s.join()
                    kept += s.kept
                assert round_ % 2 or any(n.endswith(".part") for n in os.listdir(folder))
                killed_router(c)
                names = [n for n in os.listdir(folder) if n != "lock"]
                assert not [n for n in names if n.endswith(".part")], names
                assert {r["id"] for r in kept} <= set(names), (len(kept), len(names))
                assert c.metrics()['baton_store_objects{kind="response"}'] == len(names)
                for name in names:
                    assert ask(c, "GET", "/" + name)[0] == 200, name
                    assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600
            for response in kept:
                assert ask(c, "GET", "/" + response["id"]) == (200, response)
            longest = ask(c, "GET", f"/{kept[-1]['id']}/input_items?order=asc")[1]["data"]
            assert len(longest[0]["encrypted_content"]) == 2000000 and "xxxx" not in c.logs()
            # Nothing of them can be read from the disk, nor by a router with another key, which leaves them alone.
            for name in names:
                with open(os.path.join(folder, name), "rb") as f:
                    data = f.read()
                assert b"xxxx" not in data and b"Once" not in data, name
            with open(key, "w", encoding="ascii") as f:
                f.write("another key of more than sixteen bytes")
            killed_router(c)
            assert ask(c, "GET", "/" + kept[0]["id"])[0] == 404
            assert sorted(n for n in os.listdir(folder) if n != "lock") == sorted(names)
            assert c.metrics()['baton_store_objects{kind="response"}'] == 0


def test_responses_expire():
    with tempfile.TemporaryDirectory() as d:
        for args, is_default in ((["--store", os.path.join(d, "store")], True), ([], False)):
            with Cluster(small_model(d), router_args=[*args, "--response-store-ttl-s", "1"]) as c:
                one = create(c, SECRET, store=True)
                assert create(c, "y")["store"] is is_default
                wait_until("it is gone", lambda: ask(c, "GET", "/" + one["id"])[0] == 404)
                status, answer = ask(c, body=dict(input="x", previous_response_id=one["id"]))
                assert status == 400 and answer["error"]["code"] == "previous_response_not_found", answer
                wait_until("all are gone", lambda: c.metrics()['baton_store_objects{kind="response"}'] == 0)
                assert c.metrics()["baton_response_store_bytes"] == 0 == c.metrics()["baton_response_store_evictions_total"]
                if is_default:
                    wait_until("their files are gone", lambda: os.listdir(os.path.join(d, "store", "responses")) == ["lock"])


def test_responses_on_disk_are_within_their_limit():
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, "store", "responses")
        with Cluster(small_model(d), router_args=["--store", os.path.join(d, "store"), "--response-store-limit", "64k"]) as c:
            made = [create(c, f"{i}" + "y" * 200)["id"] for i in range(30)]
            wait_until("the files of those that made room are gone",
                       lambda: len(os.listdir(folder)) - 1 == c.metrics()['baton_store_objects{kind="response"}'])
            there = [ask(c, "GET", "/" + i)[0] for i in made]
            n = there.count(200)
            assert there == [404] * (30 - n) + [200] * n and 5 < n < 16, there
            assert sum(os.path.getsize(os.path.join(folder, i)) + 4096 for i in made[30 - n:]) <= 65536 + n * 200  # frames do not count
            assert c.metrics()["baton_response_store_evictions_total"] == 30 - n
            killed_router(c)
            assert [ask(c, "GET", "/" + i)[0] for i in made] == there
            # With less room at the next start, the newest stay as they are, and make room at the next response.
            c.router_args += ["--response-store-limit", "24k"]
            killed_router(c)
            last = create(c, "last")["id"]
            there = [ask(c, "GET", "/" + i)[0] for i in made]
            assert ask(c, "GET", "/" + last)[0] == 200 and 1 <= there.count(200) <= 4, there


def test_tenant_cannot_read_or_continue_responses_of_another():
    never = "resp_" + "0" * 32
    with served(small_model, dict(router_args=["--response-store-limit", "64k"]), a="", b="") as (c, keys):
        a, b = keys.of("a"), keys.of("b")
        mine = create(c, SECRET, a, store=True)

        def same(call):
            """What b reads of a's response is what it reads of one that never was."""
            got, other = call(mine["id"]), call(never)
            assert got[0] in (400, 404), got
            assert (got[0], json.dumps(got[1]).replace(mine["id"], never)) == (other[0], json.dumps(other[1])), (got, other)

        for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
            same(lambda i, m=method, e=end: ask(c, m, f"/{i}{e}", headers=b))
            assert ask(c, method, f"/{mine['id']}{end}")[0] == 401
        same(lambda i: ask(c, body=dict(input="x", previous_response_id=i), headers=b))
        same(lambda i: ask(c, path="/input_tokens", body=dict(input="x", previous_response_id=i), headers=b))
        # b fills its half and more: a keeps what it has, and b the newest.
        theirs = [create(c, "b", b, store=True)["id"] for _ in range(12)]
        assert ask(c, "GET", f"/{mine['id']}", headers=a) == (200, mine)
        there = [ask(c, "GET", f"/{i}", headers=b)[0] for i in theirs]
        assert there == sorted(there, reverse=True) and there[0] == 404 and there[-1] == 200, there


def test_no_log_has_texts_of_stored_responses():
    with tempfile.TemporaryDirectory() as d:
        access = os.path.join(d, "access")
        with Cluster(small_model(d), router_args=["--access-log", access, "--log-level", "debug"]) as c:
            one = create(c, SECRET, store=True, metadata={"k": SECRET}, instructions=SECRET)
            two = create(c, SECRET, store=True, previous_response_id=one["id"])
            assert SECRET in json.dumps(ask(c, "GET", f"/{two['id']}/input_items"))
            assert ask(c, "GET", f"/{two['id']}/input_items?after={SECRET}")[0] == 400
            assert ask(c, "DELETE", f"/{one['id']}")[0] == 200
            assert ask(c, body=dict(input=SECRET, previous_response_id=two["id"]))[0] == 400
            assert ask(c, body=dict(input=SECRET, previous_response_id=SECRET))[0] == 400

            def access_log():
                with open(access, encoding="utf-8") as f:
                    return f.read()

            wait_until("the access log has the last request", lambda: access_log().count("status=400") == 3)
            text = c.logs() + access_log()
        assert "/v1/responses" in text and SECRET not in text


def test_limits_of_stored_responses():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        with Cluster(model, router_args=["--response-store-limit", "0"]) as c:
            for more, param in ((dict(store=True), "store"), (dict(previous_response_id="resp_1"), "previous_response_id")):
                status, answer = ask(c, body=dict(input="x", **more))
                assert status == 400 and answer["error"]["param"] == param, answer
            status, answer = ask(c, "GET", "/resp_1")
            assert status == 501 and "--response-store-limit" in answer["error"]["message"], answer
            assert not [name for name in c.metrics() if "response_store" in name or 'kind="response"' in name]
        with Cluster(model, router_args=["--response-store-limit", "8k"]) as c:
            status, answer = ask(c, body=dict(input="x" * 9000, store=True))
            assert status == 413 and "--response-store-limit" in answer["error"]["message"], answer
            one = create(c, "a", store=True)
            two = create(c, "b", store=True)  # a page of 4 KiB counts for each
            assert ask(c, "GET", f"/{one['id']}")[0] == 404 and ask(c, "GET", f"/{two['id']}") == (200, two)
            # Without the word nothing is stored in memory.
            assert create(c, "c")["store"] is False
            metrics = c.metrics()
            assert metrics['baton_store_objects{kind="response"}'] == metrics["baton_response_store_evictions_total"] == 1, metrics
            assert 4096 < metrics["baton_response_store_bytes"] <= metrics["baton_response_store_limit_bytes"] == 8192, metrics
            assert "baton_store_bytes" not in metrics and 'baton_store_objects{kind="file"}' not in metrics


def raw(c, method, target, key):
    """A request whose target no client library would send. @return (status, body)"""
    with socket.create_connection(c.http, timeout=60) as s:
        s.sendall(method.encode() + b" " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n"
                  b"Authorization: " + key["Authorization"].encode() + b"\r\n\r\n")
        data = b""
        while piece := s.recv(65536):
            data += piece
    return int(data.split(b" ", 2)[1]), data.partition(b"\r\n\r\n")[2]


def variants(rid, other):
    """Ids that resemble one of a response."""
    hexes = rid.removeprefix("resp_")
    flipped = hexes[:-1] + format(int(hexes[-1], 16) ^ 1, "x")
    return [rid[:-1], rid[:20], "resp_", rid + "0", rid + "/", rid * 2, rid + "a" * 5000, rid.upper(), "resp_" + hexes.upper(), "RESP_" + hexes,
            "resp_" + flipped, rid.replace("resp_", "file-"), rid.replace("resp_", "batch_"), hexes, other, rid + "%00", rid + "%00" + "x",
            "%00" + rid, rid + "%20", "%20" + rid, rid + "%0a", rid + ".part", rid + "%2f", "..%2fresponses%2f" + rid, "./" + rid,
            rid.replace("_", "%5f"), "%72" + rid[1:], rid + "%ff", rid + "?", rid + "#", rid.replace("r", "\u0433", 1)]


def test_variants_of_an_id_are_nobodys():
    """For all that another tenant can give as an id it reads what it reads of one that never was: in memory and on disk."""
    other = "resp_" + "5" * 32
    never = "resp_" + "0" * 32
    for args in (["--response-store-limit", "1m"], ["--store"]):
        with tempfile.TemporaryDirectory() as d, served(
                small_model, dict(router_args=args + ([os.path.join(d, "store")] if args == ["--store"] else [])), a="", b="") as (c, keys):
            a, b = keys.of("a"), keys.of("b")
            mine = create(c, SECRET, a, store=True)
            rid = mine["id"]
            for given, like in zip(variants(rid, other), variants(never, other)):
                for method, end in (("GET", b""), ("DELETE", b""), ("GET", b"/input_items"), ("POST", b"/cancel")):
                    got, wanted = (raw(c, method, b"/v1/responses/" + g.encode() + end, b) for g in (given, like))
                    # What it says of an id has the id in it.
                    assert got[0] == wanted[0] and got[0] in (400, 404, 405), (given, method, end, got, wanted)
                    assert SECRET.encode() not in got[1], got
                    assert len(got[1]) == len(wanted[1]), (given, got, wanted)
                texts = (json.dumps(g.replace("%00", "\0").replace("%20", " ").replace("%0a", "\n").replace("%ff", "\xff")) for g in (given, like))
                got, wanted = (c.request("POST", "/v1/responses", '{"input":"x","previous_response_id":' + t + "}", b) for t in texts)
                assert got[0] == wanted[0] == 400 and len(got[2]) == len(wanted[2]), (given, got, wanted)
            # The owner's own variants are not the response either, but for one that is the same path, decoded.
            for given in variants(rid, other):
                status, data = raw(c, "GET", b"/v1/responses/" + given.encode(), a)
                same_path = (rid + "/", rid + "%2f", rid + "?", rid + "#", rid.replace("_", "%5f"), "%72" + rid[1:])
                assert (status == 200) == (given in same_path), (given, status, data)
            for method in ("GET", "DELETE", "PUT"):
                assert raw(c, method, b"/v1/responses", b)[0] in (404, 405), method  # there is no list
            assert raw(c, "GET", b"/v1/responses/", b)[0] in (404, 405)
            assert ask(c, "GET", "/" + rid, headers=a) == (200, mine)
            assert SECRET not in c.logs()


def test_hostile_ids_find_nothing():
    ids = ["..", "%2e%2e", "lock", "resp_", "resp_" + "0" * 31, "resp_" + "0" * 33, "resp_" + "G" * 32, "file-" + "0" * 32,
           "resp_" + "0" * 900, "%00", "resp_%00", "a%2fb", "'\"", "%ff"]
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), router_args=["--store", os.path.join(d, "store")]) as c:
            for i in ids:
                for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
                    status, _, _ = c.request(method, f"/v1/responses/{i}{end}")
                    assert status in (400, 404), (i, method, end, status)
                status, answer = ask(c, body=dict(input="x", previous_response_id=i))
                assert status == 400 and answer["error"]["param"] == "previous_response_id", (i, answer)
            assert create(c, "still there")["status"] in ("completed", "incomplete")
