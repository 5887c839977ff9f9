# SPDX-License-Identifier: Apache-2.0
"""Requests that wait, and where they are counted: at the worker that they wait for."""
import json
import os
import socket
import subprocess
import tempfile

from harness import ROOT, Cluster, small_model, wait_until

N = 12
PROMPT = [5] * 240
# An iteration of 32 prompt tokens takes 3 s, and a prompt 24: nothing moves while the figures are read.
SLOW = ["--chunk-tokens", "32", "--simulate-token-us", "100000", "--prefill-order", "fcfs", "--prefix-cache", "off"]


def send(c, body):
    data = json.dumps(body).encode()
    client = socket.create_connection(c.http)
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\n\r\n" % len(data) + data)
    return client


def of_metrics(c):
    """{worker: (active, waiting, waiting for KV)}"""
    return {p.name: tuple(int(c.metric(f"baton_worker_{name}_requests", worker=p.name))
                          for name in ("active", "queued", "waiting_for_kv")) for p in c.prefills + c.decodes}


def of_state(c):
    return {w["name"]: (w["active"], w["waiting"], w["waiting_for_kv"])
            for w in json.loads(c.request("GET", "/v2/cluster")[2])["workers"]}


def everywhere(c):
    seen = of_metrics(c)
    return seen if seen == of_state(c) else None


def test_prompts_that_wait_are_counted_at_the_prefill_worker():
    """One of twelve is in its context phase; the others wait for theirs, and the decode worker has room for all."""
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), prefill_args=SLOW, decode_args=["--max-batch-size", "16"]) as c:
        clients = [send(c, {"prompt": PROMPT, "max_tokens": 4, "stream": i % 2 == 0}) for i in range(N)]
        try:
            wait_until("all but one wait at the prefill worker",
                       lambda: everywhere(c) == {"prefill-0": (N, N - 1, 0), "decode-0": (N, 0, N)})
            waiting = c.metric("nv_trt_llm_request_metrics", request_type="waiting")
            pending = c.total("nv_inference_pending_request_count")
            assert (waiting, pending) == (N - 1, N - 1), (waiting, pending)
            shown = subprocess.run([os.path.join(ROOT, "baton"), "top", "--once", "--url", "http://%s:%d" % c.http],
                                   capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "COLUMNS": "100"}).stdout
            columns = next(line for line in shown.split("\n") if line.startswith("WORKER")).split()
            rows = {line.split()[0]: dict(zip(columns, line.split())) for line in shown.split("\n")
                    if line.startswith(("prefill-0 ", "decode-0 "))}
            assert {name: (row["WAIT"], row["KVWAIT"]) for name, row in rows.items()} == {
                "prefill-0": (str(N - 1), "0"), "decode-0": ("0", str(N))}, shown
        finally:
            for client in clients:
                client.close()


def test_requests_that_wait_for_a_seat_are_counted_at_the_decode_worker():
    """Two seats: two requests wait for their KV in them, the others for a seat."""
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), prefill_args=SLOW, decode_args=["--max-batch-size", "2"]) as c:
        clients = [send(c, {"prompt": PROMPT, "max_tokens": 4}) for _ in range(5)]
        try:
            wait_until("three wait for a seat",
                       lambda: everywhere(c) == {"prefill-0": (5, 4, 0), "decode-0": (5, 3, 2)})
        finally:
            for client in clients:
                client.close()


def test_locally_prefilled_prompts_wait_at_the_decode_worker():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), prefill=0, decode_args=SLOW + ["--local-prefill"]) as c:
        clients = [send(c, {"prompt": PROMPT, "max_tokens": 4}) for _ in range(4)]
        try:
            wait_until("three wait for the first", lambda: everywhere(c) == {"decode-0": (4, 3, 0)})
        finally:
            for client in clients:
                client.close()
