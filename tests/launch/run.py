#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The launcher with fake programs: run.py LAUNCHER"""
import ctypes
import fcntl
import json
import os
import pty
import resource
import re
import signal
import socket
import stat
import subprocess
import termios
import time

from launched import DEADLINE_S, Launched, LauncherTest, is_alive, launcher, main, poll


class LaunchTest(LauncherTest):
    def test_says_the_addresses_when_the_router_is_ready(self):
        launched = self.launch("--prefill", "2", "--kv-memory", "1g")
        launched.wait_ready()
        self.assertIn("http://127.0.0.1:41000\n", launched.stdout())
        self.assertIn("127.0.0.1:41001\n", launched.stdout())
        self.assertIn("http://127.0.0.1:41002/metrics\n", launched.stdout())
        self.assertIn("curl -X POST 127.0.0.1:41000/v2/models/ensemble/"
                      "generate -d '{\"text_input\": \"The capital of France "
                      "is\", \"max_tokens\": 16}'\n", launched.stdout())
        poll(lambda: len(self.events("start")) == 4, "four processes")

        run_dir = self.option("router", "run-dir")
        self.assertEqual(self.option("router", "listen"),
                         f"ipc://{run_dir}/router.ipc")
        self.assertEqual(stat.S_IMODE(os.stat(run_dir).st_mode), 0o700)
        key = self.option("decode-0", "cluster-key-file")
        self.assertEqual(stat.S_IMODE(os.stat(key).st_mode), 0o600)
        for name in ("prefill-0", "prefill-1", "decode-0"):
            self.assertEqual(self.option(name, "join"),
                             f"ipc://{run_dir}/router.ipc")
            self.assertEqual(self.option(name, "cluster-key-file"), key)
            self.assertEqual(self.option(name, "kv-memory"), "1g")
            self.assertEqual(self.option(name, "model"), self.model)
        self.assertEqual(self.started("prefill-1")[0], "baton-prefill-worker")
        self.assertEqual(self.started("decode-0")[0], "baton-decode-worker")

        self.assertEqual(launched.stop(), 0)
        self.assertEqual(self.run_dirs(), [])

    def test_a_model_and_a_port_are_enough(self):
        launched = Launched(self.folder, self.model, "--port", "43001")
        self.launched.append(launched)
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        self.assertEqual(self.option("router", "http"), "127.0.0.1:43001")
        self.assertEqual(self.option("router", "port"), None)
        self.assertEqual(self.option("decode-0", "model"), self.model)
        said = launched.stdout()
        self.assertIn("\n  OpenAI   http://127.0.0.1:43001/v1\n", said)
        self.assertIn("\n  model    model\n", said)
        self.assertIn('\n  BATON_URL=127.0.0.1:43001 ./baton ask "Why is the '
                      'sky blue?"\n', said)
        self.assertEqual(launched.stop(), 0)

    def test_the_router_is_stopped_before_the_workers(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            launched = self.launch()
            launched.wait_ready()
            before = len(self.events("term"))
            poll(lambda: len(self.events("start")) % 3 == 0, "all processes")
            self.assertEqual(launched.stop(number), 0)
            names = [name for _, name, _ in self.events("term")[before:]]
            self.assertEqual(names[0], "router")
            self.assertEqual(sorted(names[1:]), ["decode-0", "prefill-0"])

    def test_a_dead_worker_is_started_again_and_said_so(self):
        launched = self.launch()
        launched.wait_ready()
        first = poll(lambda: self.events("start", "prefill-0"), "a start")[0]
        os.kill(first[2], signal.SIGKILL)
        poll(lambda: len(self.events("start", "prefill-0")) == 2, "a restart")
        launched.wait_says(r"prefill-0 ended by signal 9 \(Killed\); restarting in "
                           r"0\.5 s\n")
        self.assertEqual(len(self.events("start", "decode-0")), 1)
        self.assertEqual(launched.stdout().count("curl"), 1)
        self.assertEqual(launched.stop(), 0)

    # A process of the tests beats every 20 ms.
    WATCHED = ("--watchdog-ms", "1500")

    def check_hung(self, launched, name, pid):
        """It is killed for that, and comes back."""
        poll(lambda: not is_alive(pid), f"the end of {name}")
        poll(lambda: len(self.events("start", name)) == 2, "a restart")
        launched.wait_says(fr"{name} is hung \(stopped, blocked or spinning\): "
                           r"silent for 1\.5 s; killing it\n")
        launched.wait_says(fr"{name} ended by signal 9 \(Killed\); restarting in "
                           r"0\.5 s\n")
        poll(lambda: self.state_of(name)["state"] == "ready", f"{name} is back")
        self.assertEqual(self.state_of(name)["restarts"], 1)

    def test_a_stopped_process_is_killed_and_started_again(self):
        for name in ("decode-0", "router"):
            launched = self.launch(*self.WATCHED)
            launched.wait_ready()
            poll(lambda name=name: self.state_of(name)["state"] == "ready", name)
            pid = self.events("start", name)[0][2]
            os.kill(pid, signal.SIGSTOP)
            self.check_hung(launched, name, pid)
            self.assertEqual(launched.stderr().count("is hung"), 1)
            self.assertEqual(launched.stop(), 0)
            os.unlink(os.path.join(self.folder, "events"))

    def test_a_spinning_process_is_killed_and_started_again(self):
        self.behave("decode-0", "spin")
        launched = self.launch(*self.WATCHED)
        pid = poll(lambda: self.events("start", "decode-0"), "a start")[0][2]
        launched.wait_says("decode-0 says hello")
        self.behave("decode-0", "ready")  # the next one
        self.check_hung(launched, "decode-0", pid)
        self.assertEqual(launched.stop(), 0)

    def test_who_never_had_a_heartbeat_is_not_hung(self):
        self.behave("decode-0", "heartless")  # or loads a model for long
        self.behave("prefill-0", "silent")
        launched = self.launch(*self.WATCHED)
        launched.wait_ready()
        pid = poll(lambda: self.events("start", "router"), "a start")[0][2]
        os.kill(pid, signal.SIGSTOP)  # so that there were as many looks
        self.check_hung(launched, "router", pid)
        self.assertEqual(launched.stderr().count("is hung"), 1)
        self.assertEqual(len(self.events("start", "decode-0")), 1)
        self.assertEqual(launched.stop(), 0)

    def test_a_launcher_that_was_stopped_itself_kills_nobody(self):
        launched = self.launch(*self.WATCHED)
        launched.wait_ready()
        poll(lambda: self.state_of("decode-0")["state"] == "ready", "decode-0")
        pids = [pid for _, _, pid in self.events("start")]
        everybody = [launched.process.pid, *pids]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        since = time.monotonic()  # as when the machine sleeps
        poll(lambda: time.monotonic() - since > 3, "a sleep")
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        poll(lambda: self.state_of("decode-0")["state"] == "ready", "an answer")
        self.assertEqual(launched.stop(), 0)
        self.assertNotIn("is hung", launched.stderr())

    def test_without_a_watchdog_a_debugger_may_stop_a_process(self):
        launched = self.launch("--watchdog-ms", "0")
        launched.wait_ready()
        pid = poll(lambda: self.events("start", "decode-0"), "a start")[0][2]
        poll(lambda: self.state_of("decode-0")["state"] == "ready", "decode-0")
        os.kill(pid, signal.SIGSTOP)
        since = time.monotonic()
        poll(lambda: time.monotonic() - since > 0.7, "some time")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(launched.stop(), 0)
        self.assertNotIn("is hung", launched.stderr())

    def test_a_dead_router_is_started_again(self):
        launched = self.launch()
        launched.wait_ready()
        os.kill(self.events("start", "router")[0][2], signal.SIGKILL)
        poll(lambda: len(self.events("start", "router")) == 2, "a restart")
        self.assertEqual(launched.stop(), 0)

    def test_a_worker_that_cannot_start_is_given_up_with_its_last_words(self):
        self.behave("decode-0", "fail")
        self.behave("router", "silent")
        launched = self.launch()
        self.assertEqual(launched.wait(), 1)
        self.assertEqual(len(self.events("start", "decode-0")), 5)
        self.assertIn(
            "decode-0 could not start 5 times, the last time it ended with "
            "exit status 3; its last log lines:\n"
            "    decode-0 | decode-0 says hello\n"
            "    decode-0 | cannot bind 127.0.0.1:1: address in use\n"
            "    decode-0 | no newline\n", launched.stderr())
        for pause in ("0.5", "1.0", "2.0", "4.0"):
            self.assertIn(f"restarting in {pause} s\n", launched.stderr())
        self.assertRegex(launched.err[-1], "error baton: decode-0 could not "
                         "start: no newline\n$")
        self.assertEqual(launched.stdout(), "")
        self.assertEqual(self.run_dirs(), [])

    def test_a_router_that_cannot_bind_ends_everything_at_once(self):
        self.behave("router", "fail")
        launched = self.launch()
        self.assertEqual(launched.wait(), 1)
        self.assertEqual(len(self.events("start", "router")), 1)
        self.assertIn("router could not start: it ended with exit status 3; "
                      "its last log lines:\n    router | router says hello\n"
                      "    router | cannot bind 127.0.0.1:1: address in use\n",
                      launched.stderr())
        # The workers were to wait for its sockets.
        self.assertEqual([name for _, name, _ in self.events()], ["router"])

    def test_what_cannot_get_better_is_not_tried_again(self):
        self.behave("decode-0", "hopeless")
        for format in ("text", "json"):
            launched = self.launch("--log-format", format)
            self.assertEqual(launched.wait(), 78)
            self.assertNotIn("restarting in", launched.stderr())
            self.assertIn("decode-0 could not start: it ended with exit status "
                          "78; its last log lines:", launched.stderr())
            # The last line is the cause, in one sentence.
            self.assertIn("decode-0 could not start: memory: 3 MiB are missing",
                          launched.err[-1])
        self.assertEqual(len(self.events("start", "decode-0")), 2)

    def test_who_does_not_stop_then_changes_nothing_of_the_cause(self):
        self.behave("decode-0", "hopeless-later")
        self.behave("prefill-0", "stubborn")  # or loads a large model
        launched = self.launch("--drain-ms", "0")
        poll(lambda: self.events("start", "prefill-0"), "who does not stop")
        open(os.path.join(self.folder, "decode-0.finish"), "w").close()
        self.assertEqual(launched.wait(), 78)
        self.assertIn("prefill-0 did not stop in time and is killed\n",
                      launched.stderr())
        self.assertIn("decode-0 could not start: memory: 3 MiB are missing",
                      launched.err[-1])

    def test_what_was_there_once_may_come_back(self):
        launched = self.launch()
        launched.wait_ready()
        poll(lambda: self.events("start", "decode-0"), "a start")
        launched.wait_says("decode-0 says hello")
        self.behave("decode-0", "hopeless")
        poll(lambda: self.state_of("decode-0")["state"] == "ready", "decode-0 is ready")
        os.kill(self.events("start", "decode-0")[0][2], signal.SIGKILL)
        launched.wait_says("decode-0 ended with exit status 78; restarting in "
                           "1.0 s")
        self.behave("decode-0", "ready")
        poll(lambda: self.state_of("decode-0")["state"] == "ready", "decode-0 is back")
        self.assertEqual(launched.stop(), 0)

    def test_what_cannot_be_started_again_now_is_tried_later(self):
        launched = self.launch()
        launched.wait_ready()
        poll(lambda: self.state_of("decode-0")["state"] == "ready", "decode-0 is ready")
        pid = launched.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        # Fewer than it has: no pipe can be made, and poll() takes none.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, limits[1]))
        os.kill(self.events("start", "decode-0")[0][2], signal.SIGKILL)
        launched.wait_says("decode-0 could not be started: .*; retrying in "
                           "2.0 s")
        self.assertEqual(launched.stderr().count("cannot wait for"), 1)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        poll(lambda: self.state_of("decode-0")["state"] == "ready", "decode-0 is back")
        for name in ("router", "prefill-0"):
            self.assertEqual(len(self.events("start", name)), 1)
        self.assertEqual(launched.stop(), 0)

    def test_workers_wait_for_all_routers_sockets(self):
        self.behave("router-1", "unbound")
        launched = self.launch("--routers", "2")
        poll(lambda: self.events("start", "router-1"), "the routers")
        poll(lambda: self.state_of("router-0")["state"] == "ready", "the first one")
        for name in ("prefill-0", "decode-0"):
            self.assertEqual(self.state_of(name)["state"], "waiting")
        open(os.path.join(self.folder, "router-1.finish"), "w").close()
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 4, "the workers")
        self.assertNotIn("again", launched.stderr())
        for name in ("prefill-0", "decode-0"):
            poll(lambda: self.state_of(name)["state"] == "ready", f"{name} to be ready")
            self.assertEqual(self.state_of(name)["restarts"], 0)
        self.assertEqual(launched.stop(), 0)

    def test_a_worker_that_waits_for_the_routers_can_be_stopped(self):
        self.behave("router", "unbound")
        launched = self.launch()
        poll(lambda: self.events("start", "router"), "the router")
        self.ask("stop decode-0")
        open(os.path.join(self.folder, "router.finish"), "w").close()
        poll(lambda: self.events("start", "prefill-0"), "the other worker")
        self.assertEqual(self.state_of("decode-0")["state"], "stopped")
        self.assertEqual(launched.stop(), 0)
        self.assertEqual(self.events("start", "decode-0"), [])

    def test_a_router_that_had_bound_is_tried_again(self):
        self.behave("router", "fail-after")
        launched = self.launch()
        poll(lambda: len(self.events("start", "router")) >= 2, "a restart")
        self.behave("router", "ready")
        launched.wait_ready()
        self.assertEqual(launched.stop(), 0)

    def test_a_missing_program_is_named(self):
        os.unlink(os.path.join(self.folder, "baton-router"))
        launched = self.launch()
        self.assertEqual(launched.wait(), 78)
        self.assertIn(f"router | cannot execute {self.folder}/baton-router: "
                      "No such file or directory\n", launched.stderr())

    def test_a_second_signal_stops_at_once(self):
        self.behave("router", "stubborn")
        launched = self.launch("--drain-ms", "600000")
        launched.wait_ready()
        launched.process.send_signal(signal.SIGINT)
        poll(lambda: "stopping after" in launched.stderr(), "the message")
        self.assertIsNone(launched.process.poll())

        def ended():  # what comes within a second of the first is the same wish
            launched.process.send_signal(signal.SIGINT)
            return launched.process.poll() is not None

        poll(ended, "the end at once")
        self.assertEqual(launched.process.returncode, 0)

    def test_one_wish_may_come_as_several_signals(self):
        self.behave("router", "drain")
        launched = self.launch("--drain-ms", "600000")
        launched.wait_ready()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            launched.process.send_signal(number)
        poll(lambda: self.events("term", "router"), "SIGTERM")
        open(os.path.join(self.folder, "router.finish"), "w").close()
        self.assertEqual(launched.wait(), 0)
        self.assertTrue(self.events("drained", "router"))  # it was not killed

    def test_the_first_signal_ends_a_launcher_that_stops_by_itself(self):
        self.behave("decode-0", "fail")
        self.behave("router", "drain")
        launched = self.launch("--drain-ms", "600000")
        poll(lambda: self.events("term", "router"), "that it gives up")
        launched.process.send_signal(signal.SIGINT)
        self.assertNotEqual(launched.wait(), 0)
        self.assertFalse(self.events("drained", "router"))

    def test_who_does_not_stop_in_time_is_killed_and_named(self):
        self.behave("router", "stubborn")
        launched = self.launch("--drain-ms", "0")
        launched.wait_ready()
        self.assertEqual(launched.stop(), 1)
        self.assertIn("router did not stop in time and is killed\n",
                      launched.stderr())

    def test_nobody_outlives_a_killed_launcher(self):
        launched = self.launch()
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        launched.process.kill()
        for _event, name, pid in self.events("start"):
            poll(lambda pid=pid: not is_alive(pid), f"the end of {name}")
        launched.wait()

    def test_nobody_who_reads_stops_nothing(self):
        self.behave("decode-0", "chatty")
        self.behave("prefill-0", "chatty")
        launched = self.launch(reads=False)
        poll(lambda: len(self.events("wrote")) == 2, "what the workers write")
        os.kill(self.events("start", "prefill-0")[0][2], signal.SIGKILL)
        poll(lambda: len(self.events("wrote")) == 3, "a restart")
        launched.begin_to_read()
        launched.wait_says(r"baton: \d+ log lines were dropped here: nobody "
                           r"read them\n")
        launched.wait_ready()
        self.assertEqual(launched.stop(), 0)
        lines = launched.stderr().splitlines()
        seen = [line for line in lines if re.match(
            r"(prefill|decode)-0 line \d{5}, which .* have \.+$", line)]
        other = [line for line in lines if " baton: " in line
                 or line.endswith("-0 says hello")
                 or line == "router says hello"]
        # No line is torn, and each is there or counted.
        self.assertEqual(len(seen) + len(other), len(lines), lines[-9:])
        counts = [int(n) for n in re.findall(r"baton: (\d+) log lines were",
                                             launched.stderr())]
        self.assertGreaterEqual(len(seen) + sum(counts), 60000)

        launched = self.launch(reads=False)
        poll(lambda: len(self.events("wrote")) == 5, "what the workers write")
        self.assertEqual(launched.stop(), 0)  # still unread

    def test_a_run_directory_that_ends_with_the_session_is_warned_of(self):
        """Below /run/user/UID, unless the user lingers."""
        enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        mounts = "mount -t tmpfs none /run && mkdir -p /run/user/0 && mount -t tmpfs none /var/lib && mkdir -p /var/lib/systemd/linger"
        if subprocess.run(enter + [mounts], check=False, capture_output=True).returncode != 0:
            self.skipTest("this user may not mount in a namespace of its own")
        for more, is_warned in (("true", True), ("touch /var/lib/systemd/linger/root", False)):
            done = subprocess.run(enter + [f'{mounts} && {more} && exec "$@"', "sh", launcher(), "--model", self.model],
                                  env={**os.environ, "BATON_LIBEXEC": "/nowhere", "XDG_RUNTIME_DIR": "/run/user/0"}, check=False,
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(len(re.findall(r"/run/user/0/baton-\w{6} is removed when this user logs out.*loginctl enable-linger",
                                            done.stderr)), is_warned, done.stderr)

    def test_what_dead_launchers_left_is_removed_at_the_next_start(self):
        dead = self.launch()
        dead.wait_ready()
        left = self.run_dirs()
        self.assertEqual(len(left), 1)
        dead.process.kill()
        dead.wait()
        self.assertEqual(self.run_dirs(), left)  # with its key
        # Such a name may be anybody's: an empty folder's, a copy's of the cache (which has a lock that nobody
        # holds), and a copy's of a run directory.
        other = os.path.join(self.folder, "baton-d4e5f6")
        os.mkdir(other)
        cache = os.path.join(self.folder, "baton-backup")
        os.mkdir(cache)
        for name in ("lock", "model.gguf", "key"):
            with open(os.path.join(cache, name), "w", encoding="ascii") as f:
                f.write("mine")
        subprocess.run(["cp", "-r", os.path.join(self.folder, left[0]), os.path.join(self.folder, "baton-copied")],
                       check=False)  # it has sockets
        copied = os.path.join(self.folder, "baton-copied")
        self.assertIn("lock", os.listdir(copied))
        living = self.launch()
        living.wait_ready()
        living.wait_says(f"removed {self.folder}/{left[0]}, left by a dead "
                         "process\n")
        others = ["baton-backup", "baton-copied", "baton-d4e5f6"]
        mine = [entry for entry in self.run_dirs() if entry not in others]
        self.assertEqual(sorted(os.listdir(cache)), ["key", "lock", "model.gguf"])
        self.assertIn("key", os.listdir(copied))
        self.assertEqual(len(mine), 1)
        self.assertNotEqual(mine, left)
        # One that lives keeps its own, however many start.
        third = self.launch()
        third.wait_ready()
        self.assertIn(mine[0], self.run_dirs())
        self.assertNotIn("removed", third.stderr())
        self.assertEqual(third.stop(), 0)
        self.assertEqual(living.stop(), 0)
        self.assertEqual(sorted(self.run_dirs()), others)

    def core_limits(self, *arguments):
        """Of launcher and workers, where the system allows dumps."""
        before = resource.getrlimit(resource.RLIMIT_CORE)
        sanitizers = ":".join([os.environ.get("ASAN_OPTIONS", ""),
                               "disable_coredump=0"])
        resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
        try:
            launched = self.launch(*arguments, ASAN_OPTIONS=sanitizers)
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, before)
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        pids = [launched.process.pid,
                *(pid for _, _, pid in self.events("start"))]
        limits = {resource.prlimit(pid, resource.RLIMIT_CORE)[0]
                  for pid in pids}
        self.assertEqual(launched.stop(), 0)
        os.unlink(os.path.join(self.folder, "events"))
        return limits, before[1]

    def test_no_core_dump_unless_it_is_asked_for(self):
        limits, most = self.core_limits("--core-dumps")
        self.assertEqual(limits, {most})
        self.assertEqual(self.option("decode-0", "core-dumps"), "yes")
        limits, most = self.core_limits()
        self.assertEqual(limits, {0 if most == 0 else 1})

    def test_log_dir_gets_one_file_for_each_process(self):
        logs = os.path.join(self.folder, "logs")
        launched = self.launch("--log-dir", logs)
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        self.assertEqual(launched.stop(), 0)
        for name in ("router", "prefill-0", "decode-0"):
            with open(os.path.join(logs, name + ".log")) as file:
                self.assertEqual(file.read(), f"{name} says hello\n")
        self.assertNotIn("says hello", launched.stderr())
        # The launcher's own lines are in both places.
        with open(os.path.join(logs, "launcher.log")) as file:
            self.assertEqual(file.read(), launched.stderr())
        self.assertIn("starting 1 router, 1 prefill and 1 decode workers",
                      launched.stderr())

        self.behave("router", "fail")
        launched = self.launch("--log-dir", logs, "--log-format", "json")
        self.assertEqual(launched.wait(), 1)
        with open(os.path.join(logs, "launcher.log")) as file:
            lines = file.read().splitlines()
        self.assertIn("    router | router says hello", lines)
        self.assertEqual([json.loads(line)["message"] for line in lines[-2:]],
                         ["stopped", "router could not start: no newline"])
        self.assertEqual(self.option("router", "log-format"), "json")

    def test_sighup_opens_the_logs_anew(self):
        logs = os.path.join(self.folder, "logs")
        launched = self.launch("--log-dir", logs)
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        names = ("launcher", "router", "prefill-0", "decode-0")
        for name in names:
            os.rename(os.path.join(logs, name + ".log"),
                      os.path.join(logs, name + ".old"))
        launched.process.send_signal(signal.SIGHUP)
        for name in names:
            poll(lambda name=name: os.path.exists(
                os.path.join(logs, name + ".log")), f"a new {name}.log")
        poll(lambda: self.events("hup"), "the router's turn")
        self.assertEqual([who for _, who, _ in self.events("hup")],
                         ["router"])
        os.kill(self.events("start", "decode-0")[0][2], signal.SIGKILL)
        poll(lambda: len(self.events("start", "decode-0")) == 2, "a restart")
        self.assertEqual(launched.stop(), 0)

        def lines(name):
            with open(os.path.join(logs, name)) as file:
                return file.read()

        self.assertEqual(lines("decode-0.old"), "decode-0 says hello\n")
        self.assertEqual(lines("decode-0.log"), "decode-0 says hello\n")
        self.assertEqual(lines("router.log"), "")
        self.assertIn("SIGHUP: reopening log files", lines("launcher.old"))
        self.assertIn("decode-0 ended by signal 9", lines("launcher.log"))
        self.assertEqual(lines("launcher.old") + lines("launcher.log"),
                         launched.stderr())

    def test_sighup_without_log_files_goes_to_the_routers(self):
        launched = self.launch("--routers", "2")
        launched.wait_ready()
        launched.process.send_signal(signal.SIGHUP)
        poll(lambda: len(self.events("hup")) == 2, "both routers' turn")
        self.assertEqual(launched.stop(), 0)

    def test_a_terminal_that_hangs_up_stops_everything(self):
        ends, hidden = pty.openpty()

        def take_terminal():  # of a session of its own
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup runs us
            os.setsid()
            fcntl.ioctl(hidden, termios.TIOCSCTTY, 0)

        launched = self.launch(popen={"preexec_fn": take_terminal})
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        launched.process.send_signal(signal.SIGHUP)  # it is still there
        poll(lambda: self.events("hup"), "the router's turn")
        os.close(hidden)
        os.close(ends)
        self.assertEqual(launched.wait(), 0)
        self.assertEqual(len(self.events("term")), 3)

    def test_who_started_it_with_nohup_wants_it_to_stay(self):
        ends, hidden = pty.openpty()

        def take_terminal():
            os.setsid()
            fcntl.ioctl(hidden, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        launched = self.launch(popen={"preexec_fn": take_terminal})
        launched.wait_ready()
        os.close(hidden)
        os.close(ends)
        poll(lambda: self.events("hup"), "that it goes on")
        self.assertEqual(launched.stop(), 0)

    def test_a_log_file_that_is_full_is_moved_aside(self):
        logs = os.path.join(self.folder, "logs")
        self.behave("decode-0", "chatty")
        launched = self.launch("--log-dir", logs, "--log-max-bytes", "300000",
                               "--log-keep", "3")
        poll(lambda: self.events("wrote"), "what the worker writes")
        self.assertEqual(launched.stop(), 0)
        self.assertEqual(sorted(os.listdir(logs)), [
            "decode-0.log", "decode-0.log.1", "decode-0.log.2",
            "decode-0.log.3", "launcher.log", "prefill-0.log", "router.log"])
        seen = []
        for name in ("decode-0.log.3", "decode-0.log.2", "decode-0.log.1",
                     "decode-0.log"):
            path = os.path.join(logs, name)
            self.assertLessEqual(os.path.getsize(path), 300000)
            with open(path) as file:
                seen += re.findall(r"^decode-0 line (\d{5}), which .* \.+$",
                                   file.read(), re.M)
        self.assertEqual([int(n) for n in seen],
                         list(range(20000 - len(seen), 20000)))
        self.assertGreater(len(seen), 9000)

        # Where it cannot be moved it goes on.
        for name in os.listdir(logs):
            os.unlink(os.path.join(logs, name))
        os.makedirs(os.path.join(logs, "decode-0.log.1", "full"))
        launched = self.launch("--log-dir", logs, "--log-max-bytes", "300000",
                               "--log-keep", "1")
        poll(lambda: len(self.events("wrote")) == 2, "what the worker writes")
        self.assertEqual(launched.stop(), 0)
        self.assertIn(f"cannot rotate {logs}/decode-0.log: ",
                      launched.stderr())
        with open(os.path.join(logs, "decode-0.log")) as file:
            self.assertEqual(len(file.read().splitlines()), 20001)

    def test_a_full_disk_leaves_a_gap_that_is_told(self):
        logs = os.path.join(self.folder, "logs")
        path = os.path.join(logs, "prefill-0.log")
        launched = self.launch("--log-dir", logs)
        launched.wait_ready()
        poll(lambda: "hello" in self.read(path), "the first line")
        pid = launched.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        # As a disk does: the line that it ends in has its beginning alone.
        resource.prlimit(pid, resource.RLIMIT_FSIZE,
                         (os.path.getsize(path) + 10, limits[1]))
        for line in ("first second", "third", "fourth"):
            self.say("prefill-0", line)
        for _ in range(2): # by the second answer it has read all of them
            self.ask("status")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        self.say("prefill-0", "fifth")
        poll(lambda: "fifth" in self.read(path), "the line after the gap")
        self.assertRegex(self.read(path), (
            "\nfirst seco\n"
            "[^\n]* warn  baton: 3 log lines were dropped here: "
            "File too large\nfifth\n"))
        self.assertEqual(launched.stop(), 0)
        self.assertEqual(launched.stderr().count(
            f"cannot write {path}: File too large; lines are dropped\n"), 1)

    def test_a_log_that_cannot_be_written_is_named(self):
        launched = self.launch("--log-dir", "/dev/null/logs")
        self.assertEqual(launched.wait(), 78)
        self.assertIn("cannot make the directory /dev/null/logs: Not a "
                      "directory\n", launched.stderr())
        logs = os.path.join(self.folder, "logs")
        for name in ("launcher", "decode-0"):
            os.makedirs(os.path.join(logs, name + ".log"))
            launched = self.launch("--log-dir", logs)
            self.assertEqual(launched.wait(), 78)
            self.assertIn(f"cannot write {logs}/{name}.log: Is a directory\n",
                          launched.stderr())
            os.rmdir(os.path.join(logs, name + ".log"))
        self.assertEqual(self.events(), [])
        self.assertEqual(self.run_dirs(), [])

    def test_children_get_their_options_from_the_launcher_alone(self):
        launched = self.launch("--max-batch-size", "64", BATON_MAX_BATCH_SIZE="32",
                               BATON_CHUNK_TOKENS="128")
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        self.assertEqual(self.option("decode-0", "max-batch-size"), None)
        self.assertEqual(self.option("prefill-0", "chunk-tokens"), "128")
        variables = [line for line in self.started("decode-0")
                     if line.startswith("BATON_")]
        self.assertEqual(variables, ["BATON_BEAT_FD=4",
                                     f"BATON_LIBEXEC={self.folder}",
                                     "BATON_READY_FD=3",
                                     "BATON_READY_JOINED=1"])
        self.assertEqual(launched.stop(), 0)

    def test_a_host_name_of_64_characters_is_said_before_anything_starts(self):
        if os.geteuid() != 0 or subprocess.run(
                ["unshare", "--uts", "true"], capture_output=True,
                check=False).returncode != 0:
            self.skipTest("no UTS namespaces here, or not as root")

        def rename():
            if ctypes.CDLL(None).unshare(0x04000000) != 0:  # CLONE_NEWUTS
                raise OSError("unshare")
            socket.sethostname("n" * 64)

        launched = self.launch(popen={"preexec_fn": rename})
        self.assertEqual(launched.wait(), 78)
        self.assertIn("the name of this host has 64 characters (nnn",
                      launched.stderr())
        self.assertIn("hostname NAME, or hostnamectl set-hostname NAME, with "
                      "a shorter one\n", launched.stderr())
        self.assertEqual(self.events(), [])

    def test_a_missing_model_is_said_before_anything_starts(self):
        launched = self.launch("--model", "/nowhere/m.gguf")
        self.assertEqual(launched.wait(), 78)
        self.assertIn("cannot open the model /nowhere/m.gguf: No such file or "
                      "directory; a model is a GGUF file, or a folder with ",
                      launched.stderr())
        self.assertEqual(self.events(), [])
        launched = self.launch("--model", self.folder)
        self.assertEqual(launched.wait(), 78)
        self.assertIn("is a folder without a config.json, so not a model's\n",
                      launched.stderr())
        with open(os.path.join(self.folder, "near.gguf"), "w"):
            pass
        launched = self.launch("--model", os.path.join(self.folder, "naer.gguf"))
        self.assertEqual(launched.wait(), 78)
        self.assertIn("No such file or directory; is near.gguf meant, beside "
                      "it?\n", launched.stderr())
        launched = self.launch("--model", "owner/name")
        self.assertEqual(launched.wait(), 78)
        self.assertIn("fetched first: ./baton pull owner/name\n",
                      launched.stderr())
        launched = self.launch("--model", "")
        self.assertEqual(launched.wait(), 2)
        self.assertIn("name one with --model PATH, or --model NAME after "
                      "./baton pull NAME\n", launched.stderr())
        launched = self.launch("--model", "smol", "--models-dir", self.folder)
        self.assertEqual(launched.wait(), 78)
        self.assertIn("cannot open the model smol: No such file or directory; "
                      "a model is a GGUF file, or a folder with config.json, "
                      "tokenizer.json and safetensors; ./baton list shows the models that are here, ./baton "
                      "pull fetches others\n", launched.stderr())

    def test_a_watchdog_that_programs_cannot_meet_is_refused(self):
        launched = self.launch("--watchdog-ms", "499")
        self.assertEqual(launched.wait(), 2)
        self.assertIn("watchdog-ms 499 is too short: 0 for never, or at least "
                      "500\n", launched.err[-1])
        launched = self.launch("--watchdog-ms", "soon")
        self.assertEqual(launched.wait(), 2)
        self.assertEqual(self.events(), [])

    def test_a_closed_terminal_does_not_stop_the_service(self):
        launched = self.launch("--log-level", "debug")
        launched.wait_ready()
        poll(lambda: len(self.events("start")) == 3, "all processes")
        reader = launched.process.stderr
        # A second launcher whose output nobody reads any more.
        read_end, write_end = os.pipe()
        env = dict(os.environ, FAKE_DIR=self.folder, BATON_LIBEXEC=self.folder,
                   TMPDIR=self.folder)
        os.close(read_end)
        deaf = subprocess.Popen([launcher(), "--model", self.model], env=env,
                                stdout=write_end, stderr=write_end)
        os.close(write_end)
        poll(lambda: len(self.events("start")) == 6, "all processes")
        victim = self.events("start", "decode-0")[1][2]
        os.kill(victim, signal.SIGKILL)
        poll(lambda: len(self.events("start", "decode-0")) == 3, "a restart")
        deaf.send_signal(signal.SIGTERM)
        self.assertEqual(deaf.wait(DEADLINE_S), 0)
        self.assertFalse(reader.closed)
        self.assertEqual(launched.stop(), 0)


if __name__ == "__main__":
    main()
