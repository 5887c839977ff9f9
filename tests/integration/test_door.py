# SPDX-License-Identifier: Apache-2.0
"""The door: whose requests it takes, and how much clients can take of it."""
import contextlib
import json
import re
import socket
import tempfile

from harness import Cluster, small_model, wait_until

CALLS = [("/v1/completions", {"prompt": "a", "max_tokens": 2}),
         ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}),
         ("/v2/models/ensemble/generate", {"text_input": "a", "max_tokens": 2})]


def message_of(data):
    error = json.loads(data)["error"]
    return error if isinstance(error, str) else error["message"]


def check_names(c):
    for path, body in CALLS:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"},
                        {"Origin": "http://203.0.113.5"}):
            status, answer, data = c.request("POST", path, body, headers)
            assert status == 403 and "--allowed-hosts" in message_of(data), (path, headers, status, data)
            assert isinstance(json.loads(data)["error"], str) == path.startswith("/v2"), data
            assert not any(name.lower().startswith("access-control") for name in answer), answer
        for headers in ({}, {"Host": "localhost"}, {"Host": socket.gethostname()}, {"Host": "api.example.com"},
                        {"Origin": "https://api.example.com"}, {"Origin": "http://localhost:3000"}):
            status, answer, data = c.request("POST", path, body, headers)
            assert status == 200, (path, headers, status, data)
            assert not any(name.lower().startswith("access-control") for name in answer), answer
    for at, path in ((c.metrics_at, "/metrics"), (c.http, "/metrics"), (c.http, "/v2/health/ready")):
        assert c.request("GET", path, headers={"Host": "evil.example"}, at=at)[0] == 403, path
        assert c.request("GET", path, headers={"Host": "api.example.com"}, at=at)[0] == 200, path


def check_quiet_connections(c):
    """Connections that say nothing, or not enough, do not keep others out."""
    with contextlib.ExitStack() as open_ones:
        for i in range(60):
            s = open_ones.enter_context(socket.create_connection(c.http))
            s.sendall((b"", b"GET / HTTP/1.1\r\nX: ", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Length: 99\r\n\r\n{")[i % 3])
        for _ in range(5):
            assert c.complete("a", 2)["text"] is not None
    assert c.metric("baton_http_limited_total", reason="idle_closed") > 0
    assert c.metric("baton_http_limited_total", reason="connections") == 0


def check_bodies(c):
    """Bodies that stay away hold no room; what has come does, and ordinary requests go on beside it."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
    with contextlib.ExitStack() as open_ones:
        for n in range(3):  # the room is 4 MiB, 3 of them for large bodies
            s = open_ones.enter_context(socket.create_connection(c.http, timeout=60))
            s.sendall(head + b"\r\n" + b" " * 900000)
            wait_until("the body is held", lambda least=900000 * (n + 1): c.metric(
                "baton_http_memory_bytes", kind="requests") > least)
        late = open_ones.enter_context(socket.create_connection(c.http, timeout=60))
        late.sendall(head + b"Expect: 100-continue\r\n\r\n")
        answer = late.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: 1\r\n" in answer, answer
        assert c.complete("a", 2)["text"] is not None
        assert 0 < c.metric("baton_http_memory_bytes", kind="requests") < 4 << 20
    assert c.metric("baton_http_limited_total", reason="bodies") > 0


def test_http_server_survives_hostile_clients():
    with tempfile.TemporaryDirectory() as d:
        options = ["--allowed-hosts", "api.example.com,*.corp.example", "--max-connections", "24", "--http-memory", "4m",
                   "--max-body-bytes", "1m", "--log-level", "info"]
        with Cluster(small_model(d), router_args=options) as c:
            assert re.search(r"clients may have 24 connections \(4096 from one address\)", c.router.log()), c.router.log()
            check_names(c)
            check_quiet_connections(c)
            check_bodies(c)
            c.wait_idle()


def test_http_server_options_are_checked():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        for option, value, words in (("--allowed-hosts", "a,http://b", "http://b"), ("--http-memory", "8m", "--http-memory")):
            c = Cluster(model, router_args=[option, value])
            try:
                router = c.start_router()
                assert router.popen.wait(60) == 2 and words in router.log(), (option, router.popen.returncode, router.log())
            finally:
                c.__exit__(None, None, None)
