#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The launcher under a service manager, which is a socket of the test's: run_service.py LAUNCHER"""
import os
import signal
import socket
import time

from launched import LauncherTest, is_alive, main, poll

WATCHDOG_MS = 600


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


class ServiceTest(LauncherTest):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "notify")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.bind(self.path)
        self.manager.setblocking(False)
        self.heard = []  # one list of lines for each datagram

    def hear(self):
        """@return the lines that have come since"""
        new = []
        while True:
            try:
                new += self.manager.recv(4096).decode().splitlines()
            except BlockingIOError:
                self.heard += new
                return new

    def wait_hears(self, start):
        poll(lambda: self.hear() is not None and any(line.startswith(start) for line in self.heard), start)

    def serve(self, *arguments, **environment):
        return self.launch(*arguments, NOTIFY_SOCKET=self.path, **environment)

    def test_ready_is_said_when_the_server_is_and_stopping_when_it_stops(self):
        self.behave("router", "unbound")
        self.behave("decode-0", "drain")
        launched = self.serve("--drain-ms", "20000", "--lame-duck-ms", "1000")
        self.wait_hears("STATUS=Starting: 0 of 3 processes are ready")
        self.assertNotIn("READY=1", self.heard)
        with open(os.path.join(self.folder, "router.finish"), "w", encoding="ascii"):
            pass
        self.wait_hears("READY=1")
        self.wait_hears("STATUS=Serving at 127.0.0.1:41000: 3 of 3 processes are ready")
        self.assertNotIn("WATCHDOG=1", self.heard)  # nobody asked for it
        launched.process.send_signal(signal.SIGTERM)
        self.wait_hears("STOPPING=1")
        # The drain, twice the grace of 2 and 5 s, and 5 s for the launcher itself.
        self.assertIn("EXTEND_TIMEOUT_USEC=33000000", self.heard)
        self.wait_hears("STATUS=Stopping: ")
        with open(os.path.join(self.folder, "decode-0.finish"), "w", encoding="ascii"):
            pass
        self.assertEqual(launched.wait(), 0)
        self.hear()
        self.assertEqual(self.heard.count("READY=1"), 1)
        self.assertEqual(self.heard.count("STOPPING=1"), 1)

    def test_heartbeats_come_while_the_loop_turns_and_end_where_it_hangs(self):
        launched = self.serve(WATCHDOG_USEC=str(WATCHDOG_MS * 1000))
        launched.wait_ready()
        pid = launched.process.pid
        for _ in range(3):
            poll(lambda: "WATCHDOG=1" in self.hear(), "a heartbeat")
        os.kill(pid, signal.SIGSTOP)
        poll(lambda: state_of(pid) == "T", "a stopped launcher")
        self.hear()
        since = time.monotonic()
        poll(lambda: time.monotonic() - since > 2 * WATCHDOG_MS / 1000, "the manager's patience to end")
        self.assertEqual(self.hear(), [])
        os.kill(pid, signal.SIGCONT)
        poll(lambda: "WATCHDOG=1" in self.hear(), "a heartbeat")
        self.assertEqual(launched.stop(), 0)

    def test_a_worker_that_dies_is_the_launchers_to_start_again(self):
        launched = self.serve(WATCHDOG_USEC=str(WATCHDOG_MS * 1000))
        self.wait_hears("STATUS=Serving at 127.0.0.1:41000: 3 of 3")
        os.kill(self.events("start", "decode-0")[0][2], signal.SIGKILL)
        self.wait_hears("STATUS=Serving at 127.0.0.1:41000: 2 of 3")
        self.heard.clear()
        self.wait_hears("STATUS=Serving at 127.0.0.1:41000: 3 of 3")
        os.kill(self.events("start", "router")[0][2], signal.SIGKILL)
        self.wait_hears("STATUS=No router is ready: 2 of 3 processes are")
        self.heard.clear()
        self.wait_hears("WATCHDOG=1")  # it sees to that itself
        self.wait_hears("STATUS=Serving at ")
        self.assertEqual(launched.stop(), 0)

    def test_a_start_that_fails_is_never_ready(self):
        self.behave("router", "hopeless")
        launched = self.serve()
        self.assertEqual(launched.wait(), 78)
        self.hear()
        self.assertNotIn("READY=1", self.heard)
        self.assertIn("STOPPING=1", self.heard)

    def test_children_have_nothing_of_the_managers_environment(self):
        pid = os.getpid()
        launched = self.serve(WATCHDOG_USEC="30000000", WATCHDOG_PID=str(pid))  # of another process
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "three processes")
        for _, name, child in self.events("start"):
            self.assertTrue(is_alive(child), name)
            with open(f"/proc/{child}/environ", encoding="utf-8") as file:
                names = {entry.split("=")[0] for entry in file.read().split("\0")}
            self.assertIn("FAKE_DIR", names)
            self.assertFalse(names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}, name)
        self.hear()
        self.assertNotIn("WATCHDOG=1", self.heard)
        self.assertEqual(launched.stop(), 0)

    def test_a_manager_that_cannot_be_told_stops_nothing(self):
        os.unlink(self.path)
        launched = self.serve()
        launched.wait_ready()
        launched.wait_says("cannot notify the service manager: No such file or directory")
        self.assertEqual(launched.stop(), 0)
        launched = self.launch(NOTIFY_SOCKET="notify")
        self.assertEqual(launched.wait(), 2)
        self.assertIn("NOTIFY_SOCKET is neither a path nor an abstract name", launched.stderr())


if __name__ == "__main__":
    main()
