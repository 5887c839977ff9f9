# SPDX-License-Identifier: Apache-2.0
"""Logs that nobody reads: the processes serve, and who reads at last learns what was lost."""
import contextlib
import fcntl
import os
import re
import signal
import tempfile

from harness import Cluster, small_model, wait_until

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
def unread(model):
    """A cluster whose logs are full pipes. @return it, and the pipes by name"""
    cluster = Cluster(model)
    pipes = {name: FullPipe(cluster.dir, name) for name in ("router", "prefill-0", "decode-0")}
    cluster.logs = lambda: "".join(pipe.read() for pipe in pipes.values())
    try:
        with cluster:
            yield cluster, pipes
    finally:
        for pipe in pipes.values():
            os.close(pipe.fd)


def test_a_log_that_nobody_reads_stops_nothing():
    with tempfile.TemporaryDirectory() as d, unread(small_model(d)) as (c, pipes):
        c.complete("hello", 8)
        while c.metric("baton_log_lines_dropped_total") == 0:
            for _ in range(200):
                c.router.kill(signal.SIGHUP)  # a line each, unless two come at once
        c.complete("hello again", 8)
        assert c.request("GET", "/v2/health/ready")[0] == 200
        for pipe in pipes.values():
            wait_until("the log goes on", lambda pipe=pipe: "\n2" in pipe.read())
        wait_until("the router says what was lost", lambda: "were dropped" in pipes["router"].read())
        c.router.kill(signal.SIGHUP)
        wait_until("and goes on", lambda: re.search(r"were dropped.*\n(.*\n)*.*SIGHUP", pipes["router"].read()))
        dropped = c.metric("baton_log_lines_dropped_total")
        for pipe in pipes.values():
            lines = pipe.read().split("\n")[1:-1]
            assert all(re.match(r"2\S+\+00:00 (error|warn |info |debug) (router|prefill-0|decode-0): ", line)
                       for line in lines), lines  # none is torn
        told = re.findall(r"warn  router: (\d+) log lines were dropped here: nobody read them\n", pipes["router"].text)
        assert sum(map(int, told)) == dropped, (told, dropped)
        assert "ready: " in pipes["decode-0"].text


def test_a_process_ends_in_time_where_nobody_reads_its_log():
    with tempfile.TemporaryDirectory() as d, unread(small_model(d)) as (c, _):
        c.complete("hello", 8)
        assert c.stop() == {"router": 0, "prefill-0": 0, "decode-0": 0}
