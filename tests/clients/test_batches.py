#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/v1/batches judged by the openai SDK: what OpenAI's guide to the Batch API does, at each endpoint.

Usage: test_batches.py [NAME ...]

Needs `pip install openai` and the variables of test_clients.py.
"""
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
from harness import wait_until  # noqa: E402
from test_clients import MODEL, expect, openai_client  # noqa: E402
from test_files import same  # noqa: E402

try:
    import openai
    from openai.types import Completion
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response
    MISSING = None
except ImportError as why:  # the runner says so
    MISSING = why

HI = [{"role": "user", "content": "Say hello."}]
BODIES = {"/v1/chat/completions": dict(messages=HI, max_tokens=8, temperature=0),
          "/v1/completions": dict(prompt="Once upon a time", max_tokens=8, temperature=0),
          "/v1/responses": dict(input="Say hello.", max_output_tokens=8, temperature=0)}


def run(client, endpoint, bodies, **more):
    """@return the batch at its end"""
    lines = [json.dumps({"custom_id": f"request-{i}", "method": "POST", "url": endpoint, "body": dict(body, model=MODEL)})
             for i, body in enumerate(bodies)]
    file = client.files.create(file=("batchinput.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more)
    same("what was asked", (batch.input_file_id, batch.endpoint, batch.completion_window), (file.id, endpoint, "24h"))
    wait_until("the batch ends", lambda: client.batches.retrieve(batch.id).status in ("completed", "failed", "expired", "cancelled"))
    return client.batches.retrieve(batch.id)


def rows(client, file_id):
    return {row["custom_id"]: row for row in map(json.loads, client.files.content(file_id).text.splitlines())}


def test_sdk_runs_batches_at_each_endpoint(c):
    client = openai_client(c)
    kinds = {"/v1/chat/completions": ChatCompletion, "/v1/completions": Completion, "/v1/responses": Response}
    alone = {"/v1/chat/completions": lambda b: client.chat.completions.create(model=MODEL, **b).choices[0].message.content,
             "/v1/completions": lambda b: client.completions.create(model=MODEL, **b).choices[0].text,
             "/v1/responses": lambda b: client.responses.create(model=MODEL, **b).output_text}
    for endpoint, body in BODIES.items():
        batch = run(client, endpoint, [body] * 5, metadata={"description": "nightly eval job"})
        same("the end", (batch.status, batch.errors, batch.error_file_id, batch.metadata["description"]),
             ("completed", None, None, "nightly eval job"))
        same("the counts", batch.request_counts.to_dict(), {"total": 5, "completed": 5, "failed": 0})
        found = rows(client, batch.output_file_id)
        same("the ids", set(found), {f"request-{i}" for i in range(5)})
        text = alone[endpoint](body)
        for row in found.values():
            same("the status", (row["response"]["status_code"], row["error"]), (200, None))
            answer = kinds[endpoint].model_validate(row["response"]["body"])
            said = {"chat.completion": lambda a: a.choices[0].message.content, "text_completion": lambda a: a.choices[0].text,
                    "response": lambda a: a.output_text}[answer.object](answer)
            same("the answer", said, text)


def test_sdk_gets_errors_of_lines_and_files(c):
    client = openai_client(c)
    good = BODIES["/v1/completions"]
    batch = run(client, "/v1/completions", [good, dict(good, temperature=-1), good])
    same("the counts", batch.request_counts.to_dict(), {"total": 3, "completed": 2, "failed": 1})
    row = rows(client, batch.error_file_id)["request-1"]
    same("the line at fault", (row["response"]["status_code"], row["response"]["body"]["error"]["param"]), (400, "temperature"))
    batch = run(client, "/v1/completions", [dict(good, stream=True)])
    same("the batch at fault", (batch.status, batch.errors.data[0].code, batch.errors.data[0].line), ("failed", "invalid_body", 1))
    error = expect(openai.NotFoundError, lambda: client.batches.create(
        input_file_id="file-none", endpoint="/v1/completions", completion_window="24h"))
    same("the field at fault", error.param, "input_file_id")
    error = expect(openai.BadRequestError, lambda: client.batches.create(
        input_file_id="file-none", endpoint="/v1/embeddings", completion_window="24h"))
    same("the field at fault", error.param, "endpoint")
    expect(openai.NotFoundError, lambda: client.batches.retrieve("batch_none"))


def test_sdk_lists_and_cancels(c):
    client = openai_client(c)
    made = [run(client, "/v1/completions", [BODIES["/v1/completions"]]).id for _ in range(3)]
    same("pages", [b.id for b in client.batches.list(limit=2)][:3], made[::-1])
    same("after one", next(iter(client.batches.list(after=made[1]))).id, made[0])
    expect(openai.BadRequestError, lambda: client.batches.cancel(made[0]))
    long = dict(BODIES["/v1/completions"], max_tokens=200, extra_body=None)
    long.pop("extra_body")
    lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": dict(long, model=MODEL, ignore_eos=True)})
             for i in range(500)]
    file = client.files.create(file=("lines.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    same("cancel", client.batches.cancel(batch.id).status, "cancelling")
    wait_until("the batch is cancelled", lambda: client.batches.retrieve(batch.id).status == "cancelled")
    c.wait_idle()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as store:
        code = client_tests.main(globals(), MISSING, router_args=["--store", os.path.join(store, "files")])
    sys.exit(code)
