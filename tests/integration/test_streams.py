# SPDX-License-Identifier: Apache-2.0
"""Streamed answers before their first token: their heads, comments while nothing else is sent, and what has a status."""
import json
import socket
import tempfile
import time

from harness import Cluster, small_model, wait_until

TEXT = "word " * 44
ASKS = {
    "/v1/completions": {"prompt": TEXT, "max_tokens": 2, "stream": True},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 2, "stream": True},
    "/v1/responses": {"input": TEXT, "max_output_tokens": 2, "stream": True},
    "/v1/messages": {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 2, "stream": True},
    "/inference/v1/generate": {"token_ids": [5] * 220, "sampling_params": {"max_tokens": 2}, "stream": True},
    "/v2/models/ensemble/generate_stream": {"text_input": TEXT, "max_tokens": 2},
}
# The context phases take 18 s and more: no token comes until the worker is killed.
SLOW = ["--simulate-token-us", "100000", "--prefix-cache", "off"]


class Stream:
    """A request over a socket of its own, and what has come of its answer."""

    def __init__(self, c, path, body, version="1.1"):
        data = json.dumps(body).encode()
        self.socket = socket.create_connection(c.http)
        self.socket.settimeout(60)
        self.socket.sendall(f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        self.got = b""

    def read_until(self, part):
        while part not in self.got:
            piece = self.socket.recv(65536)
            assert piece, f"{part} did not come: {self.got}"
            self.got += piece

    def head(self):
        self.read_until(b"\r\n\r\n")
        status, *lines = self.got.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        return int(status.split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def body(self):
        return self.got.partition(b"\r\n\r\n")[2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def check_head(stream):
    status, fields = stream.head()
    assert (status, fields["content-type"], fields["cache-control"], fields["x-accel-buffering"]) == (
        200, "text/event-stream; charset=utf-8", "no-cache", "no"), (status, fields)


def check_refusal(stream, status, text):
    found, fields = stream.head()
    assert (found, fields["content-type"], fields["retry-after"]) == (status, "application/json", "1"), (found, fields)
    stream.read_until(text)


def test_stream_sends_headers_early_and_comments_while_silent():
    with tempfile.TemporaryDirectory() as d, Cluster(
            small_model(d), prefill_args=SLOW, kv_memory="128m",
            router_args=["--sse-keepalive-s", "1", "--max-concurrent-requests", str(len(ASKS) + 1), "--worker-wait-ms", "300"]) as c:
        began = time.monotonic()
        streams = [Stream(c, path, body) for path, body in ASKS.items()]
        streams.append(Stream(c, "/v1/completions", ASKS["/v1/completions"], "1.0"))
        for stream in streams:
            check_head(stream)
        assert c.total("baton_generation_tokens_total") == 0
        for stream in streams:
            stream.read_until(b": keep-alive\n\n")
        assert time.monotonic() - began > 0.9, "a comment came before its time"
        assert b"response.created" in streams[2].body() and b"data:" not in streams[0].body(), [s.got for s in streams]
        assert c.total("baton_generation_tokens_total") == 0

        # What is refused meanwhile has its status, and so has what finds no workers.
        with Stream(c, "/v1/completions", ASKS["/v1/completions"]) as stream:
            check_refusal(stream, 429, b"in flight")

        # What fails later is an event of the stream.
        c.prefills[0].kill()
        for stream in streams:
            stream.read_until(b"no other workers came")
            assert b"data: {" in stream.body() and b'"error"' in stream.body(), stream.got
            stream.socket.close()
        wait_until("their places are free", lambda: c.total("baton_requests_in_flight") == 0)
        for path, body in ASKS.items():
            with Stream(c, path, body) as stream:
                check_refusal(stream, 503, b"no prefill and decode worker came")


def test_stream_without_comments_sends_headers_early():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), router_args=["--sse-keepalive-s", "0"]) as c:
        with Stream(c, "/v1/completions", dict(ASKS["/v1/completions"], max_tokens=20)) as stream:
            check_head(stream)
            stream.read_until(b"data: [DONE]")
            assert b": keep-alive" not in stream.body(), stream.got
