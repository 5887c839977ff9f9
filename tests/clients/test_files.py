#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/v1/files judged by the openai SDK and by curl, which write their forms in their own ways.

Usage: test_files.py [NAME ...]

Needs `pip install openai` and the variables of test_clients.py.
"""
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
from harness import Skip  # noqa: E402
from test_clients import expect, openai_client, url  # noqa: E402

try:
    import openai
    import requests
    MISSING = None
except ImportError as why:  # the runner says so
    MISSING = why

LINES = b"".join(json.dumps({"custom_id": f"request-{i}", "method": "POST", "url": "/v1/chat/completions",
                             "body": {"model": "ensemble", "messages": [{"role": "user", "content": "Hi \u00e4"}]}}).encode() + b"\n"
                 for i in range(100))
NAMES = ["in.jsonl", "with space.txt", "\u00e4\u00f6\u4e2d.jsonl", "semi;colon=.x", "a'b.txt"]


def same(what, found, wanted):
    assert found == wanted, f"{what}: {str(found)[:300]}, not {str(wanted)[:300]}"


def remove_all(client):
    for file in client.files.list():
        client.files.delete(file.id)


def test_sdk_uploads_lists_reads_and_deletes(c):
    """As in OpenAI's guide to the Batch API and in the API reference of files."""
    client = openai_client(c)
    file = client.files.create(file=io.BytesIO(LINES), purpose="batch")
    same("an upload", (file.object, file.bytes, file.purpose, file.status), ("file", len(LINES), "batch", "processed"))
    same("retrieve", client.files.retrieve(file.id), file)
    same("content", client.files.content(file.id).read(), LINES)
    same("content's text", client.files.content(file.id).text, LINES.decode())
    with client.files.with_streaming_response.content(file.id) as response:
        same("a streamed content", b"".join(response.iter_bytes(1000)), LINES)
    same("wait", client.files.wait_for_processing(file.id).id, file.id)
    same("list", [f.id for f in client.files.list()], [file.id])
    deleted = client.files.delete(file.id)
    same("delete", (deleted.id, deleted.object, deleted.deleted), (file.id, "file", True))
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        error = expect(openai.NotFoundError, lambda call=call: call(file.id))
        assert file.id in str(error), error


def test_sdk_reads_all_pages(c):
    client = openai_client(c)
    remove_all(client)
    made = [client.files.create(file=("%d.jsonl" % i, b"%d" % i), purpose="batch" if i % 2 else "user_data").id for i in range(7)]
    same("newest first", [f.id for f in client.files.list(limit=2)], made[::-1])
    same("oldest first", [f.id for f in client.files.list(limit=3, order="asc")], made)
    same("of a purpose", [f.id for f in client.files.list(limit=1, purpose="batch", order="asc")], made[1::2])
    same("after one", [f.id for f in client.files.list(after=made[3])], made[2::-1])
    remove_all(client)
    same("none", list(client.files.list()), [])


def test_sdk_sets_life_and_gets_errors_by_name(c):
    client = openai_client(c)
    file = client.files.create(file=("x", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    same("life", file.expires_at - file.created_at, 3600)
    for more, param in ((dict(purpose="fine-tune"), "purpose"),
                        (dict(expires_after={"anchor": "created_at", "seconds": 60}), "expires_after")):
        fields = dict(dict(file=("x", b"x"), purpose="batch"), **more)
        error = expect(openai.BadRequestError, lambda fields=fields: client.files.create(**fields))
        same("the field at fault", error.param, param)
    remove_all(client)


def test_clients_forms_are_read(c):
    """The SDK (httpx), requests (urllib3) and curl: their boundaries, quoting and headers of parts."""
    client = openai_client(c)
    remove_all(client)
    data = bytes(range(256)) * 300 + b"\r\n--\r\n"
    for name in NAMES:
        file = client.files.create(file=(name, data), purpose="user_data")
        same("httpx: the name", file.filename, name)
        same("httpx: the bytes", client.files.content(file.id).read(), data)
        answer = requests.post(url(c) + "/v1/files", files={"file": (name, data, "application/jsonl")}, data={"purpose": "batch"},
                               timeout=60)
        same("requests: the status", answer.status_code, 200)
        same("requests: the name", answer.json()["filename"], name)
        same("requests: the bytes", client.files.content(answer.json()["id"]).read(), data)
    if shutil.which("curl") is None:
        raise Skip("there is no curl")
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            path = os.path.join(folder, name)
            with open(path, "wb") as f:
                f.write(data)
            done = subprocess.run(["curl", "-sS", url(c) + "/v1/files", "-F", "purpose=batch", "-F", f'file=@"{path}"'],
                                  capture_output=True, check=True)
            file = json.loads(done.stdout)
            same("curl: the name", file.get("filename"), name)
            same("curl: the bytes", client.files.content(file["id"]).read(), data)
    remove_all(client)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as store:
        code = client_tests.main(globals(), MISSING, router_args=["--store", os.path.join(store, "files")])
    sys.exit(code)
