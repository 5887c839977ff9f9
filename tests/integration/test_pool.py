# SPDX-License-Identifier: Apache-2.0
"""The pool between the sockets and the queue: who left is forgotten, nobody waits for another's long body, and
what is held is bounded."""
import contextlib
import gzip
import json
import socket
import tempfile
import threading

from harness import Cluster, small_model, wait_until

N_GONE = 20
N_OTHERS = 8
SPACES = b" " * 8_000_000  # one word: the longest that tokenizing takes for so many bytes
PACKED = gzip.compress(b'{"prompt":"' + SPACES + b'"}')  # a few kB, so that they all arrive at once


def send(c, path, body, packed=False, headers=""):
    """@return a connection on which a whole request was sent"""
    s = socket.create_connection(c.http, timeout=120)
    s.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
               f"{'Content-Encoding: gzip' if packed else 'X-Plain: 1'}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)
    return s


def canceled(c, when):
    return c.metric("baton_pool_jobs_canceled_total", state=when)


def check_clients_that_left(c):
    """Their work that waits is removed, what runs of it gives up, and memory and places are free."""
    with contextlib.ExitStack() as gone:
        for _ in range(N_GONE):
            gone.enter_context(send(c, "/tokenize", PACKED, packed=True))
        wait_until("all are at the pool", lambda: c.metric("baton_pool_jobs") >= N_GONE - 2)
        answered = c.total("baton_http_requests_total", route="/tokenize", code="200")
    wait_until("nothing of them is left", lambda: c.metric("baton_pool_jobs") == 0)
    assert answered < N_GONE / 2, answered
    assert canceled(c, "queued") >= N_GONE / 2, canceled(c, "queued")
    left = c.total("baton_http_requests_total", route="/tokenize", code="499")
    assert canceled(c, "queued") + canceled(c, "running") == left, (canceled(c, "queued"), canceled(c, "running"), left)
    assert c.post("/tokenize", {"prompt": "hello " * 17000})[0] == 200


def check_long_bodies_of_others(c):
    """A prompt of 100 kB, and one of a megabyte, come before the longer work of others that was there before, even where that
    has begun: the first in a lane of its own, the other inside."""
    inside = c.metric("baton_pool_jobs_nested_total")
    refused = c.total("baton_http_requests_total", route="/tokenize", code="400")
    with contextlib.ExitStack() as others:
        for _ in range(N_OTHERS):
            others.enter_context(send(c, "/tokenize", PACKED, packed=True))
        wait_until("all are at the pool", lambda: c.metric("baton_pool_jobs") >= N_OTHERS - 2)
        assert c.post("/tokenize", {"prompt": "hello " * 17000})[0] == 200
        answered = c.total("baton_http_requests_total", route="/tokenize", code="400") - refused
        assert answered <= N_OTHERS / 2, answered
        assert c.post("/tokenize", {"prompt": "hello " * 170_000})[0] in (200, 400)
        assert c.metric("baton_pool_jobs_nested_total") > inside
    wait_until("nothing of them is left", lambda: c.metric("baton_pool_jobs") == 0)


def test_kv_pool_is_fair_and_drops_clients_that_left():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        check_clients_that_left(c)
        check_long_bodies_of_others(c)
        c.wait_idle()


def at_once(c, path, body, n):
    """@return status and headers of each of n answers"""
    out = []
    threads = [threading.Thread(target=lambda: out.append(c.request("POST", path, body, timeout=120)[:2])) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(out) == n, out
    return out


def refused(c, cause):
    return c.metric("baton_memory_refused_total", reason=cause)


def check_large_request(c):
    """A million JSON values take more than a request may have: that is refused before it is taken."""
    status, answer = c.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "of_no_meaning": ["a"] * 1_000_000})
    assert status == 413 and "http-memory" in answer["error"]["message"], (status, str(answer)[:200])
    assert refused(c, "request") == 1
    assert c.post("/tokenize", {"prompt": "hello " * 17000})[0] == 200


def check_large_client(c):
    """Bodies of one client that are together more than its half: 429 for some, and the others are served."""
    answers = at_once(c, "/tokenize", json.dumps({"prompt": "word " * 200_000}), 20)
    statuses = {status for status, _ in answers}
    assert {200, 429} <= statuses <= {200, 429, 503}, answers
    assert all("Retry-After" in headers for status, headers in answers if status != 200), answers
    assert refused(c, "client") > 0
    wait_until("nothing is held", lambda: c.metric("baton_pool_jobs") == 0 and c.metric("baton_http_memory_bytes", kind="processing") == 0 and
               c.metric("baton_http_memory_bytes", kind="writing") == 0)


def test_kv_pool_memory_is_bounded():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), router_args=["--http-memory", "32m", "--max-body-bytes", "8m"]) as c:
            check_large_request(c)
            check_large_client(c)
            c.wait_idle()
        with Cluster(small_model(d), router_args=["--router-memory", "1m"]) as c:  # it has more from the start
            wait_until("large requests are refused", lambda: c.post("/tokenize", {"prompt": "hello " * 17000})[0] == 503)
            assert c.post("/tokenize", {"prompt": "hello"})[0] == 200
            assert "router-memory" in c.router.log(), c.router.log()
