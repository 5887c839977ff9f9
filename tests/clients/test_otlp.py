#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces that go live to a collector (--otlp-traces-endpoint), read by OpenTelemetry's own messages.

Usage: test_otlp.py [NAME ...]

Needs BATON_BUILD, BATON_TEST_MODEL and opentelemetry-proto. The collector is the test's: it does what it is told, and
what it takes it reads with protobuf's JSON into ExportTraceServiceRequest. The file of --trace-file says what must come.
"""
import base64
import gzip
import http.server
import importlib.util
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from harness import Cluster, small_model, wait_until  # noqa: E402
from test_tls import make_identity  # noqa: E402

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"  # the example of W3C Trace Context
QUEUE = 65536
SPANS = "baton_otlp_spans_total"


def parsed(text, kind):
    """OTLP's JSON has ids as hexadecimal digits, where protobuf's has base64: put right. @return the message"""
    from google.protobuf import json_format
    message = json_format.Parse(text, kind())
    for span in spans_of(message):
        for name in ("trace_id", "span_id", "parent_span_id"):
            setattr(span, name, bytes.fromhex(base64.b64encode(getattr(span, name)).decode()))
    return message


def spans_of(message):
    return [s for r in message.resource_spans for scope in r.scope_spans for s in scope.spans]


class Collector:
    """Listens at one port; .mode says what it does with what comes."""

    def __init__(self, identity=None):
        """identity: (certificate, key), to speak TLS"""
        self.port, self.identity = harness.free_port(), identity
        self.messages, self.headers, self.times = [], [], []
        self.mode, self.extra = "take", {}
        self.released = threading.Event()
        self.server, self.connections = None, []

    def listen(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                collector.connections.append(self.connection)

            def do_POST(self):  # pylint: disable=invalid-name
                collector.take(self)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        http.server.ThreadingHTTPServer.allow_reuse_address = True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        if self.identity:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.identity)
            # Hands are shaken by the thread of the connection; one that is not trusted ends in a traceback, which nobody needs.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            self.server.handle_error = lambda *_: None
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.release()
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it ended before
        self.connections = []

    def release(self):
        """Who hangs goes on, and ends its connection."""
        self.released.set()

    def become(self, mode, **extra):
        self.release()
        self.released = threading.Event()
        self.mode, self.extra = mode, extra

    def take(self, handler):
        mode, released = self.mode, self.released
        self.times.append((mode, time.monotonic()))
        if mode == "hang":
            released.wait(300)
            handler.close_connection = True
        elif mode == "garbage":
            handler.wfile.write(b"220 mail.example ESMTP\r\n")
            handler.close_connection = True
        elif mode == "busy":
            self.body_of(handler)
            self.answer(handler, 503, b"", {"Retry-After": "1"})
        else:
            self.keep(handler)

    @staticmethod
    def body_of(handler):
        return handler.rfile.read(int(handler.headers["Content-Length"]))

    @staticmethod
    def answer(handler, status, body, headers=None):
        handler.send_response(status)
        for name, value in dict(headers or {}, **{"Content-Type": "application/json",
                                                  "Content-Length": str(len(body))}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def keep(self, handler):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
        assert handler.path == "/v1/traces" and handler.headers["Content-Type"] == "application/json"
        assert handler.headers["Content-Encoding"] == "gzip"
        text = gzip.decompress(self.body_of(handler))
        self.headers.append(handler.headers)
        self.messages.append(parsed(text, ExportTraceServiceRequest))
        self.answer(handler, 200, self.extra.get("body", b"{}"))

    def spans(self):
        return [s for m in list(self.messages) for s in spans_of(m)]


COLLECTOR = Collector()
FOLDER = tempfile.TemporaryDirectory(prefix="baton-test-")
TRACE, HEADERS = (os.path.join(FOLDER.name, name) for name in ("trace.jsonl", "headers"))


def write_headers(text, mode=0o600):
    with open(HEADERS, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(HEADERS, mode)


def in_file(path=TRACE):
    """@return the spans that the file of --trace-file has"""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
    with open(path, encoding="utf-8") as f:
        return [s for line in f.read().split("\n")[:-1] for s in spans_of(parsed(line, TracesData))]


def same(a, b):
    def key(spans):
        return sorted(s.SerializeToString(deterministic=True) for s in spans)
    return key(a) == key(b)


EXPECTED = {"lines": 0}  # of all requests so far that are traced; the file gets them a little later


def settle(c):
    """Until all requests are in the file, and each of their spans was sent, rejected or dropped. @return counts"""
    def settled():
        if lines_so_far() < EXPECTED["lines"]:
            return None
        counts = {how: int(c.metric(SPANS, result=how)) for how in ("sent", "rejected", "dropped")}
        return counts if sum(counts.values()) == len(in_file()) else None
    return wait_until("all spans have come to their end", settled)


def lines_so_far():
    with open(TRACE, encoding="utf-8") as f:
        return f.read().count("\n")


def ask(c, n, traced=True, **more):
    EXPECTED["lines"] += n if traced else 0
    for i in range(n):
        c.complete(f"Number {i} is", 2, temperature=0, ignore_eos=True, **more)


def test_every_span_of_every_request_arrives_as_the_file_has_it(c):
    COLLECTOR.become("take")
    before = EXPECTED["lines"]
    ask(c, 8)
    body = {"prompt": "child", "max_tokens": 3, "n": 2, "ignore_eos": True}
    assert c.request("POST", "/v1/completions", body, headers={"traceparent": PARENT})[0] == 200
    assert c.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2,
                                           "model": "ensemble"})[0] == 200
    assert c.post("/v1/completions", {"prompt": "x", "max_tokens": -1})[0] == 400  # no request began
    EXPECTED["lines"] += 3
    assert settle(c) == {"sent": len(in_file()), "rejected": 0, "dropped": 0}
    assert lines_so_far() == before + 11
    assert same(COLLECTOR.spans(), in_file())
    spans = COLLECTOR.spans()
    roots = [s for s in spans if s.kind == s.SPAN_KIND_SERVER]
    assert len(roots) == 11 and {len(s.trace_id) for s in spans} == {16} and {len(s.span_id) for s in spans} == {8}
    assert len({s.span_id for s in spans}) == len(spans)
    ours = [s for s in roots if s.parent_span_id]
    assert len(ours) == 2 and all((s.trace_id.hex(), s.parent_span_id.hex()) == (PARENT[3:35], PARENT[36:52])
                                  for s in ours), ours
    known = {s.span_id: s for s in roots}
    for span in spans:
        if span.kind != span.SPAN_KIND_SERVER:
            parent = known[span.parent_span_id]
            assert parent.trace_id == span.trace_id, span
            assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano
    resource, = {m.resource_spans[0].resource.SerializeToString(deterministic=True) for m in COLLECTOR.messages}
    assert b"baton-router" in resource and all(len(m.resource_spans) == 1 for m in COLLECTOR.messages)


def test_otlp_secret_file_is_read_again(c):
    COLLECTOR.become("take")
    ask(c, 1)
    settle(c)
    assert {h["Authorization"] for h in COLLECTOR.headers} == {"Bearer first"}
    write_headers("Authorization: Bearer second\n")
    c.router.kill(signal.SIGHUP)
    wait_until("the router read it", lambda: "SIGHUP: reopening" in c.router.log())

    def second():
        ask(c, 1)
        return COLLECTOR.headers[-1]["Authorization"] == "Bearer second"
    wait_until("the second key is used", second)
    settle(c)
    assert "Bearer" not in c.router.log()


def test_client_turns_otlp_off_and_on(c):
    COLLECTOR.become("take")
    before, n_lines = settle(c), lines_so_far()
    try:
        for level in ("OFF", "TIMESTAMPS"):
            status, answer = c.post("/v2/trace/setting", {"trace_level": [level]})
            assert status == 200 and answer["trace_level"] == [level], answer
            ask(c, 1, traced=level != "OFF")
            c.wait_idle()
    finally:
        c.post("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]})
    counts = settle(c)
    assert lines_so_far() == n_lines + 1 and counts["sent"] > before["sent"], counts


def test_hanging_otlp_collector_costs_only_its_queue(c):
    COLLECTOR.become("hang")
    before = c.metric(SPANS, result="dropped")
    n_asked = 0
    while c.metric(SPANS, result="dropped") == before:
        ask(c, 4)
        n_asked += 4
        assert c.metric("baton_otlp_queue_bytes") <= QUEUE
        assert n_asked < 400
    ask(c, 4)  # with a full queue
    COLLECTOR.become("take")
    counts = settle(c)
    assert counts["dropped"] > before and c.metric("baton_otlp_queue_bytes") == 0
    assert len(COLLECTOR.spans()) == counts["sent"]
    assert "spans are lost" in c.router.log()


def test_busy_otlp_collector_is_retried_after_its_delay(c):
    COLLECTOR.become("busy")
    before = settle(c)
    ask(c, 2)
    wait_until("it said that it is busy", lambda: COLLECTOR.times[-1][0] == "busy")
    COLLECTOR.become("take")
    counts = settle(c)
    assert counts["dropped"] == before["dropped"] and counts["sent"] > before["sent"]
    said = max(t for mode, t in COLLECTOR.times if mode == "busy")
    asked = min(t for _, t in COLLECTOR.times if t > said)
    assert asked - said >= 1.0, asked - said


def test_failed_otlp_batches_are_retried(c):
    for mode in ("garbage", "absent"):  # others are in tests/unit/router/otlp
        before = settle(c)
        failed = c.metric("baton_otlp_export_failures_total")
        if mode == "absent":
            COLLECTOR.close()
        else:
            COLLECTOR.become(mode)
        ask(c, 2)
        wait_until(f"{mode}: a try failed", lambda: c.metric("baton_otlp_export_failures_total") > failed)
        ask(c, 1)
        COLLECTOR.become("take")
        if mode == "absent":
            COLLECTOR.listen()
        counts = settle(c)
        assert counts["dropped"] == before["dropped"] and counts["sent"] > before["sent"], (mode, counts)
    assert "speaks no HTTP/1.1" in c.router.log() and "Connection refused" in c.router.log()


def test_rejected_otlp_spans_are_counted_and_logged_once(c):
    COLLECTOR.become("take", body=b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}')
    for n in (1, 2):
        ask(c, 1)
        wait_until("it was counted", lambda: c.metric(SPANS, result="rejected") >= n)
    settle(c)
    assert len(re.findall("were rejected: too old", c.router.log())) == 1


def test_otlp_queue_is_flushed_at_shutdown(_):
    with tempfile.TemporaryDirectory(prefix="baton-test-") as d:
        path = os.path.join(d, "trace.jsonl")
        for mode in ("take", "hang"):
            COLLECTOR.become(mode)
            before = len(COLLECTOR.spans())
            with Cluster(small_model(d), router_args=["--otlp-traces-endpoint", f"http://127.0.0.1:{COLLECTOR.port}",
                                                      "--trace-file", path]) as c:
                ask(c, 3, traced=False)  # not in the file of the others
                c.wait_idle()
                assert set(c.stop().values()) == {0}, c.logs()
                if mode == "take":
                    assert same(COLLECTOR.spans()[before:], in_file(path))
                else:
                    assert "spans are lost at the end" in c.router.log()
                    assert len(COLLECTOR.spans()) == before
    COLLECTOR.become("take")


def expired_identity(directory, authority):
    """As make_identity(), until yesterday."""
    request, cert, key, names = (os.path.join(directory, "late." + kind) for kind in ("csr", "cert", "key", "names"))
    with open(names, "w", encoding="ascii") as f:
        f.write("subjectAltName=IP:127.0.0.1\n")
    for command in (["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=late", "-out",
                     request, "-keyout", key],
                    ["x509", "-req", "-in", request, "-CA", authority[0], "-CAkey", authority[1], "-days", "-1", "-extfile", names,
                     "-out", cert]):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return cert, key


def test_otlp_over_tls_trusts_the_system_certificates(_):
    with tempfile.TemporaryDirectory(prefix="baton-test-") as d:
        authority, stranger = (make_identity(d, name) for name in ("authority", "stranger"))
        trusted = make_identity(d, "trusted", authority)
        path = os.path.join(d, "trace.jsonl")
        for identity, host, words in ((trusted, "127.0.0.1", None), (trusted, "localhost", "SSL: no alternative certificate subject name matches target host name 'localhost'"),
                                      (stranger, "127.0.0.1", "SSL certificate problem: self-signed certificate"),
                                      (expired_identity(d, authority), "127.0.0.1", "SSL certificate problem: certificate has expired")):
            collector = Collector(identity)
            collector.listen()
            with Cluster(small_model(d), router_args=["--otlp-traces-endpoint", f"https://{host}:{collector.port}", "--trace-file", path],
                         env={"SSL_CERT_FILE": authority[0], "SSL_CERT_DIR": d}) as c:
                ask(c, 3, traced=False)  # not in the file of the others
                if words is None:
                    spans = wait_until("all are there", lambda: len(in_file(path)) == len(collector.spans()) > 3 and collector.spans())
                    assert same(spans, in_file(path))
                else:
                    wait_until("a try failed", lambda: c.metric("baton_otlp_export_failures_total") > 0)
                    ask(c, 1, traced=False)  # nobody waits for it
                    wait_until("it is said", lambda: f"otlp {host}:{collector.port}: {words}; spans are kept" in c.router.log())
                    wait_until("its spans wait", lambda: c.metric("baton_otlp_queue_bytes") > 0)
                    assert not collector.messages
                assert set(c.stop().values()) == {0}, c.logs()
                assert ("spans are lost at the end" in c.router.log()) == (words is not None), c.router.log()
            collector.close()


def test_invalid_otlp_options_fail_the_start(_):
    write_headers("Authorization: Bearer third\n", 0o644)
    for arguments, word in ((["--otlp-traces-endpoint", "localhost:4318"], "http://"),
                            (["--otlp-traces-endpoint", "http://me:secret@c.example"], "--otlp-headers-file"),
                            (["--otlp-headers-file", HEADERS], "needs --otlp-traces-endpoint"),
                            (["--otlp-traces-endpoint", "http://c.example", "--otlp-headers-file", HEADERS], "0644")):
        run = subprocess.run([os.path.join(harness.BUILD, harness.PROGRAMS["router"]), "--model", harness.default_model(),
                              *(x for name in ("http", "grpc", "metrics") for x in ("--" + name, "127.0.0.1:0")),
                              *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                             check=False)
        assert run.returncode != 0 and word in run.stderr, (arguments, run.stderr)
        assert "secret" not in run.stderr and "third" not in run.stderr, run.stderr


if __name__ == "__main__":
    absent = importlib.util.find_spec("opentelemetry") is None
    write_headers("# of the test\nAuthorization: Bearer first\n")
    COLLECTOR.listen()
    sys.exit(client_tests.main(
        globals(), absent and "opentelemetry-proto of PyPI is not installed",
        router_args=["--trace-file", TRACE, "--otlp-traces-endpoint", f"http://127.0.0.1:{COLLECTOR.port}", "--otlp-headers-file", HEADERS,
                     "--otlp-queue-bytes", str(QUEUE)]))
