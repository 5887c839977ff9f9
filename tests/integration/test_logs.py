# SPDX-License-Identifier: Apache-2.0
"""Logs that nobody reads: the processes serve, and who reads at last learns what was lost."""
import concurrent.futures
import contextlib
import fcntl
import json
import os
import re
import signal
import tempfile

from harness import ENDLESS, Cluster, endless_model, small_model, wait_until

PIPE_BYTES = 4096


class FullPipe:
    """A pipe in the place of a process's log file, full from the start. We hold both ends, so it opens at once."""

    def __init__(self, directory, name):
        self.path = os.path.join(directory, name + ".log")
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(self.fd, b"." * (PIPE_BYTES - 1) + b"\n")
        self.text = ""

    def read(self):
        """What has come so far."""
        try:
            while True:
                self.text += os.read(self.fd, 65536).decode()
        except BlockingIOError:
            return self.text


@contextlib.contextmanager
def unread(model, names=("router", "prefill-0", "decode-0"), options=()):
    """A cluster whose logs are full pipes, and files of these options of the router. @return it, and the pipes by
    name"""
    cluster = Cluster(model)
    pipes = {name: FullPipe(cluster.dir, name) for name in (*names, *options)}
    for option in options:
        cluster.router_args += ["--" + option, pipes[option].path]
    cluster.logs = lambda: "".join(pipes[name].read() for name in names)
    try:
        with cluster:
            yield cluster, pipes
    finally:
        for pipe in pipes.values():
            os.close(pipe.fd)


def test_unread_log_does_not_block_the_cluster():
    with tempfile.TemporaryDirectory() as d, unread(small_model(d)) as (c, pipes):
        c.complete("hello", 8)
        for _ in range(200):
            c.router.kill(signal.SIGHUP)  # a line each, unless two come at once
        c.complete("hello again", 8)
        assert c.request("GET", "/v2/health/ready")[0] == 200
        for pipe in pipes.values():
            wait_until("the log goes on", lambda pipe=pipe: "\n2" in pipe.read())
        wait_until("the router's too", lambda: "SIGHUP" in pipes["router"].read())
        assert "ready: " in pipes["decode-0"].text
        for pipe in pipes.values():
            assert all(re.match(r"2\S+\+00:00 (error|warn |info ) (router|prefill-0|decode-0): ", line)
                       for line in pipe.text.split("\n")[1:-1]), pipe.text  # none is torn
        assert c.metric("baton_log_lines_dropped_total") == 0
        assert c.metric("baton_worker_log_lines_dropped_total", worker="decode-0") == 0


def test_process_with_unread_log_ends_in_time():
    with tempfile.TemporaryDirectory() as d, unread(small_model(d)) as (c, _):
        c.complete("hello", 8)
        assert c.stop() == {"router": 0, "prefill-0": 0, "decode-0": 0}


def test_unread_trace_and_access_log_do_not_block_the_cluster():
    options = ("trace-file", "access-log")
    with tempfile.TemporaryDirectory() as d, unread(small_model(d), names=(), options=options) as (c, pipes):
        for _ in range(4):
            c.complete("hello", 8)
        assert c.request("GET", "/v2/health/ready")[0] == 200
        wait_until("the log says so", lambda: re.search(
            r"trace file .*: Resource temporarily unavailable; lines are buffered\n", c.router.log()))
        wait_until("every line comes once it is read", lambda: pipes["trace-file"].read().count("\n") == 5)
        wait_until("the access log's too", lambda: len(re.findall(r" route=/v1/completions .* status=200 ",
                                                                  pipes["access-log"].read())) == 4)
        for line in pipes["trace-file"].text.split("\n")[1:-1]:
            assert json.loads(line)["resourceSpans"]
        wait_until("and so does the log", lambda: re.search(r"trace file .*: written again\n", c.router.log()))
        assert c.metric("baton_trace_lines_dropped_total") == 0
        assert c.stop() == {"router": 0, "prefill-0": 0, "decode-0": 0}


def test_client_errors_do_not_flood_the_log():
    n = 50
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), router_args=["--request-timeout-ms", "500"]) as c:
            with concurrent.futures.ThreadPoolExecutor(n) as pool:
                for status, _ in pool.map(lambda _: c.post(
                        "/v1/completions", {"prompt": "hello", "max_tokens": ENDLESS, "ignore_eos": True}), range(n)):
                    assert status >= 500, status

            def told():
                more = re.findall(r"info  router: (\d+) more like \"request %lu failed: %s\"\n", c.router.log())
                return len(re.findall(r" request \d+ failed: ", c.router.log())), sum(map(int, more))

            wait_until("each is written or counted", lambda: sum(told()) == n)
            assert told()[0] < n, told()
