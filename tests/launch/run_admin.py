#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Admin commands to a launcher with fake programs: run_admin.py LAUNCHER"""
import contextlib
import glob
import json
import os
import re
import signal
import socket
import stat
import subprocess
import unittest

from launched import DEADLINE_S, LauncherTest, admin_socket, launcher, main, poll

Client, Refused = admin_socket.Client, admin_socket.Refused

NOBODY = 65534


class AdminTest(LauncherTest):
    def launch(self, *arguments, **environment):
        launched = super().launch(*arguments, **environment)
        launched.wait_ready()
        return launched

    def socket_path(self):
        return os.path.join(self.folder, self.run_dirs()[0],
                            admin_socket.NAME)

    def client(self):
        client = Client(self.socket_path())
        self.addCleanup(client.__exit__)
        return client

    def refused(self, line):
        with self.assertRaises(Refused) as caught:
            self.ask(line)
        return str(caught.exception)

    def status(self, kind="processes"):
        """name -> entry, of what the status lists."""
        return {row["name"]: row for row in self.ask("status")[kind]}

    def line(self, client):
        """One change: "launcher", "models" or "processes", and its entry."""
        (kind, value), = client.reply().items()
        return kind, value if kind == "launcher" else value[0]

    def state(self, name):
        return self.status()[name]["state"]

    def wait_all_ready(self):
        poll(lambda: {row["state"] for row in self.status().values()} ==
             {"ready"}, "all to be ready")

    def wait_state(self, name, state):
        poll(lambda: self.state(name) == state, f"{name} to be {state}")

    def finish(self, name):
        open(os.path.join(self.folder, name + ".finish"), "w").close()

    def model_file(self, name):
        path = os.path.join(self.folder, name)
        open(path, "w").close()
        return path

    def test_the_status_lists_all_there_is(self):
        launched = self.launch("--prefill", "2")
        self.wait_all_ready()
        rows = self.status()
        self.assertEqual(list(rows), ["router", "prefill-0", "prefill-1",
                                      "decode-0"])
        self.assertEqual(rows["router"]["http"], "127.0.0.1:41000")
        self.assertEqual(rows["router"]["metrics"], "127.0.0.1:41002")
        self.assertIsNone(rows["router"]["model"])
        self.assertEqual(rows["decode-0"]["model"], "model")
        self.assertEqual(rows["decode-0"]["program"], "decode")
        self.assertEqual(rows["prefill-1"]["restarts"], 0)
        for _, name, pid in self.events("start"):
            self.assertEqual(rows[name]["pid"], pid)
        self.assertEqual(self.status("models"), {"model": {
            "name": "model", "loaded": True, "path": self.model,
            "prefill": 2, "decode": 1, "both": 0}})
        row = self.ask("status")["launcher"]
        self.assertEqual(row["pid"], launched.process.pid)
        self.assertEqual(row["state"], "running")
        self.assertEqual(row["run_dir"], os.path.dirname(
            self.socket_path()))
        self.assertEqual(stat.S_IMODE(os.stat(self.socket_path()).st_mode),
                         0o600)
        self.assertEqual(self.option("router", "launcher"),
                         self.socket_path())
        self.assertEqual(launched.stop(), 0)

    def test_what_is_stopped_stays_so_until_it_is_started(self):
        launched = self.launch()
        self.wait_state("decode-0", "ready")
        self.ask("stop decode-0")
        self.wait_state("decode-0", "stopped")
        self.assertEqual(self.status()["decode-0"]["pid"], 0)
        self.ask("stop decode-0 wait=yes")
        self.assertEqual(len(self.events("start", "decode-0")), 1)
        self.ask("start decode-0 wait=yes")
        self.assertEqual(self.state("decode-0"), "ready")
        self.ask("start decode-0")
        self.assertEqual(len(self.events("start", "decode-0")), 2)
        self.assertNotIn("restarting in", launched.stderr())
        self.assertEqual(launched.stop(), 0)

    def test_a_drain_is_answered_when_it_is_over(self):
        self.behave("decode-0", "drain")
        launched = self.launch()
        self.wait_state("decode-0", "ready")
        client = self.client()
        client.send("drain decode-0")
        poll(lambda: self.events("term", "decode-0"), "SIGTERM")
        self.assertEqual(self.state("decode-0"), "stopping")
        # Nothing has come on the connection that waits.
        client.socket.setblocking(False)
        with self.assertRaises(BlockingIOError):
            client.socket.recv(1)
        client.socket.settimeout(DEADLINE_S)
        self.finish("decode-0")
        client.answer()
        self.assertEqual(self.state("decode-0"), "stopped")
        self.assertEqual(launched.stop(), 0)

    def test_a_start_while_it_stops_follows_its_end(self):
        self.behave("decode-0", "drain")
        launched = self.launch()
        self.wait_state("decode-0", "ready")
        drain = self.client()
        drain.send("drain decode-0")
        poll(lambda: self.events("term", "decode-0"), "SIGTERM")
        start = self.client()
        start.send("start decode-0 wait=yes")
        with self.assertRaisesRegex(Refused,
                                    "another command started decode-0 again"):
            drain.answer()
        self.assertEqual(len(self.events("start", "decode-0")), 1)
        self.finish("decode-0")
        start.answer()
        self.assertEqual(len(self.events("start", "decode-0")), 2)
        self.assertEqual(len(self.events("term", "decode-0")), 1)
        self.assertEqual(launched.stop(), 0)

    def test_a_restart_is_no_crash(self):
        launched = self.launch()
        self.wait_state("prefill-0", "ready")
        before = self.status()["prefill-0"]
        self.ask("restart prefill-0 wait=yes")
        after = self.status()["prefill-0"]
        self.assertNotEqual(before["pid"], after["pid"])
        self.assertEqual(after["restarts"], 0)
        self.assertEqual(len(self.events("term", "prefill-0")), 1)
        self.assertEqual(launched.stderr().count("ended"), 0)
        self.assertEqual(launched.stop(), 0)

    def test_who_watches_is_told_each_change(self):
        launched = self.launch()
        self.wait_all_ready()
        client = self.client()
        self.assertEqual(client.ask("watch")["processes"],
                         self.ask("status")["processes"])
        pid = self.status()["decode-0"]["pid"]
        os.kill(pid, signal.SIGKILL)
        seen = [self.line(client) for _ in range(3)]
        self.assertEqual([word for word, _ in seen], ["processes"] * 3)
        self.assertEqual([v["name"] for _, v in seen], ["decode-0"] * 3)
        self.assertEqual([v["state"] for _, v in seen],
                         ["waiting", "starting", "ready"])
        self.assertEqual([v["restarts"] for _, v in seen], [0, 1, 1])
        # A command of the same client: its ok stands among the changes.
        client.send("stop decode-0 wait=yes")
        self.assertEqual(self.line(client)[1]["state"], "stopping")
        self.assertEqual(self.line(client)[1]["state"], "stopped")
        self.assertEqual(client.reply(), {"ok": True})
        launched.process.send_signal(signal.SIGTERM)
        states = [self.line(client) for _ in range(2)]
        self.assertEqual(states[0][1]["name"], "router")
        self.assertEqual(states[1][0], "launcher")
        self.assertEqual(states[1][1]["state"], "stopping")
        self.assertEqual(launched.wait(), 0)

    def test_a_model_comes_and_goes_while_the_others_run(self):
        logs = os.path.join(self.folder, "logs")
        launched = self.launch("--log-dir", logs)
        self.wait_all_ready()
        first = self.status()
        path = self.model_file("b=1%.gguf")
        client = self.client()
        client.ask("watch")
        self.ask(f"load-model b={path} decode=2 wait=yes")
        self.assertEqual(self.line(client), ("models", {
            "name": "b", "loaded": True, "path": path, "prefill": 1,
            "decode": 2, "both": 0}))
        rows = self.status()
        self.assertEqual(list(rows)[3:], ["b.prefill-0", "b.decode-0",
                                          "b.decode-1"])
        self.assertEqual({row["state"] for row in rows.values()}, {"ready"})
        self.assertEqual(self.option("b.decode-1", "model"), path)
        self.assertEqual(self.option("b.decode-1", "served-model-name"), "b")
        with open(os.path.join(logs, "b.decode-1.log")) as file:
            self.assertEqual(file.read(), "b.decode-1 says hello\n")

        self.ask("unload-model b wait=yes")
        self.assertFalse(self.status("models")["b"]["loaded"])
        self.assertEqual(self.state("b.decode-1"), "stopped")
        # With the same file's other path, or without any.
        other = os.path.join(self.folder, ".", "b=1%.gguf")
        self.ask(f"load-model b={other} wait=yes")
        self.ask("load-model b wait=yes")
        self.assertTrue(self.status("models")["b"]["loaded"])
        self.assertEqual(self.state("b.decode-1"), "ready")
        self.assertEqual(len(self.events("start", "b.decode-1")), 2)
        for name, row in first.items():
            self.assertEqual(self.status()[name], row)

        # A router that starts now serves what is loaded.
        self.ask("restart router wait=yes")
        self.assertIn(f"--model=b={path}", self.started("router"))
        self.ask("unload-model model")
        self.ask("restart router wait=yes")
        self.assertNotIn(f"--model={self.model}", self.started("router"))
        self.assertEqual(launched.stop(), 0)

    def test_a_model_of_the_folder_of_models_is_loaded_by_its_name(self):
        models = os.path.join(self.folder, "models")
        os.makedirs(os.path.join(models, "pulled"))
        path = self.model_file("models/pulled/Some-Q8_0.gguf")
        launched = self.launch("--models-dir", models)
        self.wait_all_ready()
        self.ask("load-model pulled wait=yes")
        self.assertEqual(self.status("models")["pulled"]["path"], path)
        self.assertEqual(self.option("pulled.decode-0", "model"), path)
        self.assertEqual(launched.stop(), 0)

    def test_a_model_that_cannot_be_loaded_is_named_with_the_reason(self):
        launched = self.launch()
        path = self.model_file("b.gguf")
        self.assertEqual(self.refused("load-model b"),
                         "no model 'b' yet: it is loaded with its path from / "
                         "on")
        self.assertEqual(self.refused("load-model b=b.gguf"),
                         "the path of b has to begin with /")
        self.assertEqual(self.refused("load-model b=/nowhere"),
                         "cannot open the model /nowhere: No such file or "
                         "directory; a model is a GGUF file, or a folder with "
                         "config.json, tokenizer.json and safetensors")
        self.assertEqual(self.refused(f"load-model b={self.folder}"),
                         f"the model {self.folder} is a folder without a "
                         "config.json, so not a model's")
        self.assertEqual(self.refused(f"load-model b={path} prefill=0"),
                         "prefill=0 leaves no worker to run prefill: "
                         "the launch has no --local-prefill on")
        self.assertEqual(self.refused(f"load-model b={path} decode=0"),
                         "decode=0 leaves no decode worker")
        self.assertEqual(self.refused(f"load-model a/b={path}"),
                         "'a/b' is no name: printable ASCII without space, "
                         "/ \" \\ , =")
        self.assertEqual(self.refused(f"load-model model={path}"),
                         f"model is the model {self.model} already; another "
                         "file needs another name")
        self.assertEqual(self.refused("load-model model prefill=0"),
                         "model has prefill=1 and decode=1: a command to stop "
                         "one names it")
        self.assertEqual(self.refused("unload-model b"),
                         "no model 'b'; there are: model")
        self.assertEqual(len(self.status("models")), 1)
        self.assertEqual(launched.stop(), 0)

    def test_a_loaded_model_that_cannot_start_fails_alone(self):
        self.behave("b.decode-0", "fail")
        launched = self.launch()
        self.wait_all_ready()
        path = self.model_file("b.gguf")
        self.assertEqual(self.refused(f"load-model b={path} wait=yes"),
                         "b.decode-0 could not start: it ended with exit "
                         "status 3; its last log lines: no newline")
        self.assertEqual(self.state("b.decode-0"), "stopped")
        self.assertEqual(self.status()["b.decode-0"]["restarts"], 4)
        self.assertEqual(self.state("decode-0"), "ready")
        self.behave("b.decode-0", "ready")
        self.ask("load-model b wait=yes")
        self.assertEqual(launched.stop(), 0)

    def test_a_loaded_model_that_cannot_get_better_is_refused_at_once(self):
        self.behave("b.decode-0", "hopeless")
        launched = self.launch()
        self.wait_all_ready()
        path = self.model_file("b.gguf")
        self.assertEqual(self.refused(f"load-model b={path} wait=yes"),
                         "b.decode-0 could not start: it ended with exit "
                         "status 78; its last log lines: memory: 3 MiB are missing")
        self.assertEqual(self.status()["b.decode-0"]["restarts"], 0)
        self.assertEqual(self.state("decode-0"), "ready")
        self.assertEqual(launched.stop(), 0)

    def test_a_router_started_again_that_cannot_bind_fails_alone(self):
        launched = self.launch("--routers", "2")
        self.ask("drain router-1")
        self.behave("router-1", "fail")
        self.assertIn("router-1 could not start",
                      self.refused("start router-1 wait=yes"))
        self.assertEqual(self.state("router-0"), "ready")
        self.assertEqual(launched.stop(), 0)

    def tell_role(self, name, role):
        """As a router would that heard of the command."""
        path = os.path.join(self.folder, name + ".role")
        with open(path + ".new", "w") as file:
            file.write(role)
        os.rename(path + ".new", path)

    def test_a_role_changes_while_the_worker_serves(self):
        launched = self.launch("--max-batch-size", "7", "--dead-ms", "60000")
        self.wait_all_ready()
        pid = self.status()["prefill-0"]["pid"]
        watch = self.client()
        watch.ask("watch")
        client = self.client()
        client.send("role prefill-0 both wait=yes")
        # The routers are told at once; the command waits for the worker's word.
        word, row = self.line(watch)
        self.assertEqual((word, row["name"], row["role"], row["state"]),
                         ("processes", "prefill-0", "both", "ready"))
        word, row = self.line(watch)
        self.assertEqual((word, row["prefill"], row["decode"], row["both"]),
                         ("models", 0, 1, 1))
        self.tell_role("prefill-0", "both")
        client.answer()
        row = self.status()["prefill-0"]
        self.assertEqual((row["program"], row["role"], row["state"],
                          row["pid"], row["restarts"]),
                         ("prefill", "both", "ready", pid, 0))
        self.ask("role prefill-0 both wait=yes")  # it is that already
        self.assertEqual(len(self.events("start", "prefill-0")), 1)
        # Who starts again is what it was last.
        self.ask("restart prefill-0 wait=yes")
        self.assertEqual(self.option("prefill-0", "role"), "both")
        self.assertEqual(self.option("prefill-0", "max-batch-size"), "7")
        self.assertEqual(self.started("prefill-0")[0], "baton-prefill-worker")

        self.assertEqual(self.refused("role router decode"),
                         "router is a router: only workers have a role")
        # A stopped one starts as what it was told to be.
        self.ask("drain prefill-0")
        self.ask("role prefill-0 decode wait=yes")
        self.assertEqual(self.option("prefill-0", "role"), "decode")
        self.assertEqual(launched.stop(), 0)

    def test_a_command_for_a_role_that_is_not_taken_says_so(self):
        launched = self.launch("--dead-ms", "60", "--suspect-ms", "40",
                               "--heartbeat-ms", "20")
        self.wait_state("prefill-0", "ready")
        self.assertEqual(self.refused("role prefill-0 both wait=yes"),
                         "prefill-0 is still prefill; it takes the role both "
                         "when a router reaches it")
        # Two who want different things of it.
        first, second = self.client(), self.client()
        first.send("role prefill-0 decode wait=yes")
        second.send("role prefill-0 both")
        second.answer()
        with self.assertRaisesRegex(Refused, "another command gave prefill-0 "
                                    "the role both|is still prefill"):
            first.answer()
        self.assertEqual(launched.stop(), 0)

    def test_each_model_has_workers_and_each_router_ports_of_its_own(self):
        a, b = self.model_file("a.gguf"), self.model_file("b.gguf")
        self.behave("router-1", "silent")
        launched = LauncherTest.launch(
            self, "--model", a, "--model", f"two={b}", "--routers", "2",
            "--http", "127.0.0.1:42000")
        poll(lambda: len(self.events("start")) == 6, "all processes")
        poll(lambda: self.run_dirs() and os.path.exists(self.socket_path()),
             "the socket")
        self.wait_state("router-0", "ready")
        # Not ready before both routers are.
        self.assertEqual(launched.stdout(), "")
        self.assertEqual(self.state("router-1"), "starting")
        self.behave("router-1", "ready")
        self.ask("restart router-1 wait=yes")
        launched.wait_ready()
        self.assertIn("  HTTP     http://127.0.0.1:42000\n"
                      "           http://127.0.0.1:42010\n",
                      launched.stdout())
        self.assertEqual(list(self.status()), [
            "router-0", "router-1", "a.prefill-0", "a.decode-0",
            "two.prefill-0", "two.decode-0"])
        self.assertEqual(self.status()["two.decode-0"]["model"], "two")
        run_dir = os.path.dirname(self.socket_path())
        self.assertEqual(self.option("two.decode-0", "join"),
                         f"ipc://{run_dir}/router-0.ipc,"
                         f"ipc://{run_dir}/router-1.ipc")
        self.assertEqual(self.option("router-1", "metrics"), "127.0.0.1:8012")
        self.assertIn(f"--model=two={b}", self.started("router-1"))

        # All routers are gone before any worker is told to stop.
        before = len(self.events("term"))
        self.assertEqual(launched.stop(), 0)
        names = [name for _, name, _ in self.events("term")[before:]]
        self.assertEqual(sorted(names[:2]), ["router-0", "router-1"])
        self.assertEqual(len(names), 6)

    def test_who_does_not_stop_is_killed_and_the_launch_goes_on(self):
        self.behave("decode-0", "stubborn")
        launched = self.launch("--drain-ms", "0")
        self.wait_state("decode-0", "ready")
        self.ask("drain decode-0")
        launched.wait_says("decode-0 did not stop in time and is killed\n")
        self.assertNotIn("while stopping", launched.stderr())
        self.ask("start decode-0 wait=yes")
        self.ask("unload-model model")
        self.behave("decode-0", "ready")
        self.wait_state("decode-0", "stopped")
        self.assertEqual(launched.stop(), 0)

    def test_no_orders_are_taken_while_everything_stops(self):
        self.behave("router", "drain")
        self.behave("decode-0", "drain")
        launched = self.launch()
        self.wait_state("decode-0", "ready")
        drain = self.client()
        drain.send("drain decode-0")
        poll(lambda: self.events("term", "decode-0"), "SIGTERM")
        launched.process.send_signal(signal.SIGTERM)
        with self.assertRaisesRegex(Refused, "the launcher is stopping"):
            drain.answer()
        self.assertEqual(self.refused("start decode-0"),
                         "the launcher is stopping")
        self.assertEqual(self.ask("status")["launcher"]["state"], "stopping")
        self.assertEqual(self.state("router"), "stopping")
        self.finish("router")
        self.finish("decode-0")
        self.assertEqual(launched.wait(), 0)
        self.assertEqual(len(self.events("term", "decode-0")), 1)
        self.assertEqual(self.run_dirs(), [])

    def test_unknown_names_and_commands_are_answered_with_what_there_is(self):
        launched = self.launch()
        self.assertEqual(self.refused("stop x"),
                         "no process 'x'; there are: router, prefill-0, "
                         "decode-0")
        self.assertIn("no command 'halt'; there are: status, watch, start",
                      self.refused("halt"))
        self.assertEqual(launched.stop(), 0)

    def test_hostile_lines_are_answered_and_hurt_nobody(self):
        launched = self.launch()
        for line, why in (("", "JSON"), ("[]", "not an object"), ("{}", "not an object"),
                          ('{"command":"stop","name":7}', "'' is not a name"),
                          ('{"command":"stop","name":"a","x":1}', "'x' does not belong to stop NAME"),
                          ('{"command":"stop"}', "usage: stop NAME"), ("\xff", "JSON")):
            with Client(self.socket_path()) as client:
                client.socket.sendall(line.encode("latin-1") + b"\n")
                with self.assertRaisesRegex(Refused, why):
                    client.answer()
        with Client(self.socket_path()) as client:
            # Both answers, then the end: it cannot be told where the next
            # line would begin.
            client.send("nonsense")
            client.socket.sendall(40000 * b"x")
            self.assertIn("no command 'nonsense'", client.reply()["error"])
            self.assertEqual(client.reply(),
                             {"ok": False, "error": "the line is too long"})
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(client.lines.readline(), "")
        with Client(self.socket_path()) as client, \
                contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.socket.sendall(os.urandom(100000).replace(b"\n", b""))
        # Half a line and away; a command and away; many at once.
        with Client(self.socket_path()) as client:
            client.socket.sendall(b"stop dec")
        with Client(self.socket_path()) as client:
            client.send("drain prefill-0")
        with Client(self.socket_path()) as client:
            client.socket.sendall(100 * b'{"command":"status"}\n')
            client.socket.shutdown(socket.SHUT_WR)
            for _ in range(100):
                self.assertTrue(client.answer())
            self.assertEqual(client.lines.readline(), "")
        self.wait_state("prefill-0", "stopped")
        self.wait_state("decode-0", "ready")
        self.assertEqual(launched.stop(), 0)

    def test_a_watcher_that_never_reads_keeps_nobody_waiting(self):
        launched = self.launch()
        deaf = self.client()
        deaf.send("watch")
        for _ in range(20):
            self.ask("restart decode-0 wait=yes")
        self.assertEqual(launched.stop(), 0)

    def test_more_clients_than_seats_are_told_so(self):
        launched = self.launch()
        clients = [self.client() for _ in range(32)]
        for client in clients:
            self.assertTrue(client.ask("status"))
        with Client(self.socket_path()) as client:
            self.assertEqual(client.reply(), {
                "ok": False, "error": "too many connections"})
        clients[7].__exit__()
        poll(lambda: self.try_status(), "a free seat")
        self.assertEqual(launched.stop(), 0)

    def try_status(self):
        try:
            return self.status()
        except (Refused, OSError):
            return None

    def admin(self, *words, **environment):
        """What `./baton WORDS...` runs: status, standard output and error.
        Meant for this test's launcher, where the words do not say more."""
        env = dict(os.environ, TMPDIR=self.folder)
        env.pop("XDG_RUNTIME_DIR", None)
        if "BATON_RUN_DIR" not in environment and self.run_dirs():
            env["BATON_RUN_DIR"] = os.path.dirname(self.socket_path())
        env.update(environment)
        done = subprocess.run([launcher(), "--admin", *words], env=env,
                              cwd=self.folder, capture_output=True, text=True,
                              check=False, timeout=DEADLINE_S)
        return done.returncode, done.stdout, done.stderr

    def test_a_person_reads_the_status_in_a_table(self):
        launched = self.launch("--prefill", "2")
        self.wait_all_ready()
        self.ask("stop prefill-1 wait=yes")
        status, table, errors = self.admin("status")
        self.assertEqual((status, errors), (0, ""))
        run_dir = os.path.dirname(self.socket_path())
        lines = table.splitlines()
        self.assertRegex(lines[0], f"^Baton [0-9.]+, launcher "
                         f"{launched.process.pid} in {run_dir}$")
        self.assertEqual(lines[2], "model model: loaded, 2 prefill, 1 decode, "
                         f"{self.model}")
        rows = [re.split("  +", line) for line in lines[4:]]
        self.assertEqual(rows[0], ["PROCESS", "ROLE", "MODEL", "STATE", "PID",
                                   "SINCE", "RESTARTS", "ADDRESS"])
        pid = self.status()["router"]["pid"]
        self.assertEqual(rows[1][:5], ["router", "router", "-", "ready",
                                       str(pid)])
        self.assertEqual(rows[1][7], "http://127.0.0.1:41000")
        self.assertEqual(rows[3][:5], ["prefill-1", "prefill", "model",
                                       "stopped", "-"])
        self.assertRegex(rows[3][5], "^[0-9]+s$")
        self.assertEqual(launched.stop(), 0)

    def test_a_program_reads_the_status_as_json(self):
        launched = self.launch()
        self.wait_all_ready()
        status, text, errors = self.admin("status", "--json", "--run-dir",
                                          os.path.dirname(self.socket_path()))
        self.assertEqual((status, errors), (0, ""))
        data = json.loads(text)
        self.assertEqual(data["launcher"]["pid"], launched.process.pid)
        self.assertEqual(data["launcher"]["state"], "running")
        answer = self.ask("status")
        self.assertEqual(data.keys(), answer.keys())
        for part in ("launcher", "models", "processes"):
            self.assertEqual(data[part], answer[part])
        self.assertEqual(launched.stop(), 0)

    def test_a_person_gives_commands(self):
        launched = self.launch()
        self.wait_all_ready()
        run_dir = os.path.dirname(self.socket_path())
        self.model_file("b 1.gguf")
        self.assertEqual(self.admin("drain", "decode-0"), (0, "", ""))
        self.assertEqual(self.state("decode-0"), "stopped")
        self.assertEqual(self.admin("start", "decode-0"), (0, "", ""))
        self.assertEqual(self.state("decode-0"), "ready")
        # The path is this command's, not the launcher's.
        self.assertEqual(self.admin("load-model", "b=b 1.gguf", "prefill=2",
                                    f"--run-dir={run_dir}"), (0, "", ""))
        self.assertEqual(self.status("models")["b"]["path"],
                         os.path.join(self.folder, "b 1.gguf"))
        self.assertEqual(self.state("b.prefill-1"), "ready")
        self.tell_role("b.prefill-1", "decode")
        self.assertEqual(self.admin("role", "b.prefill-1", "decode",
                                    BATON_RUN_DIR=run_dir), (0, "", ""))
        self.assertEqual(self.admin("load-model", "b", "prefill=3"), (0, "", ""))
        self.assertEqual(self.state("b.prefill-2"), "ready")
        self.assertEqual(self.admin("load-model", "b", "prefill=3", "decode=1"),
                         (0, "", ""))
        self.assertEqual(self.admin("load-model", "b", "prefill=2"), (
            1, "", "baton: b has prefill=3 and decode=1: a command to stop one "
            "names it\n"))
        self.assertEqual(self.admin("unload-model", "b"), (0, "", ""))
        self.assertEqual(self.state("b.prefill-2"), "stopped")
        self.assertEqual(self.state("b.decode-0"), "stopped")
        self.assertEqual(self.admin("restart", "--no-wait", "b.decode-0"),
                         (0, "", ""))
        self.assertEqual(self.admin("stop", "decode-1"), (
            1, "", "baton: no process 'decode-1'; there are: router, "
            "prefill-0, decode-0, b.prefill-0, b.prefill-1, b.decode-0, "
            "b.prefill-2\n"))
        self.assertEqual(launched.stop(), 0)

    def test_a_command_that_is_not_understood_is_explained(self):
        for words, why in (
                (("halt",), "no command 'halt'; there are: status, watch"),
                ((), "no command\n"),
                (("stop",), "usage: stop NAME\n"),
                (("role", "a", "neither"), "no role 'neither'; there are:"),
                (("restat", "a"), "no command 'restat' (did you mean restart?); "
                 "there are: status"),
                (("role", "a", "prefil"),
                 "no role 'prefil' (did you mean prefill?); there are:"),
                (("load-model", "a=/m", "decoed=2"), "did you mean decode=N?\n"),
                (("status", "--jsn"),
                 "unknown option --jsn; did you mean --json?\n"),
                (("stop", "a", "--run_dir=/x"),
                 "unknown option --run_dir; did you mean --run-dir?\n"),
                (("status", "--verbose"), "unknown option --verbose\n"),
                (("status", "--json=1"), "--json takes no value\n"),
                (("stop", "a", "--json"), "--json is an option of status\n"),
                (("drain", "a", "--no-wait"),
                 "--no-wait is no option of drain\n"),
                (("status", "--run-dir"), "--run-dir needs a value\n"),
                (("watch",), "watch is for programs"),
                (tuple("abcdefghi"), "too many words: 'i'\n")):
            status, out, errors = self.admin(*words)
            self.assertEqual((status, out), (2, ""), words)
            self.assertIn(why, errors)
        status, out, errors = self.admin("status", "--help")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("restart NAME", out)

    @staticmethod
    def another_runs():
        """A launcher where every search looks, which no test may speak to."""
        for path in glob.glob("/tmp/baton-??????/" + admin_socket.NAME):
            with contextlib.suppress(OSError), socket.socket(
                    socket.AF_UNIX) as other:
                other.connect(path)
                return True
        return False

    def test_the_launcher_that_is_meant_is_found(self):
        if self.another_runs():
            self.skipTest("a launcher of this user runs in /tmp")
        find = {"BATON_RUN_DIR": ""}
        self.assertEqual(self.admin("status", **find), (
            1, "", "baton: no launcher of this user runs; ./baton serve starts "
            "one\n"))
        self.assertEqual(self.admin("status", BATON_RUN_DIR="/nowhere"), (
            1, "", "baton: no launcher runs in /nowhere\n"))
        # One that was killed leaves its directory.
        launched = self.launch()
        launched.process.kill()
        launched.wait()
        dead = self.run_dirs()[0]
        self.assertEqual(self.admin("status", **find)[0], 1)
        first = LauncherTest.launch(self)
        first.wait_ready()
        self.assertEqual(self.admin("status", **find)[0], 0)
        second = LauncherTest.launch(self)
        second.wait_ready()
        # What all of them do; a command is for one.
        status, text, errors = self.admin("status", **find)
        self.assertEqual((status, errors), (0, ""))
        pids = {first.process.pid, second.process.pid}
        self.assertEqual({int(pid) for pid in re.findall(r"^Baton \S+, launcher (\d+) in ", text, re.M)}, pids)
        status, text, errors = self.admin("status", "--json", **find)
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual({one["launcher"]["pid"] for one in json.loads(text)}, pids)
        status, _, errors = self.admin("restart", "decode-0", **find)
        self.assertEqual(status, 1)
        self.assertIn("several launchers run; name one with --run-dir:\n",
                      errors)
        alive = sorted(set(self.run_dirs()) - {dead})
        self.assertEqual(sorted(errors.split()[-2:]),
                         [os.path.join(self.folder, name) for name in alive])
        # The same directory by two variables is one.
        self.assertEqual(first.stop(), 0)
        self.assertEqual(self.admin("status", XDG_RUNTIME_DIR=self.folder,
                                    **find)[0], 0)
        self.assertEqual(second.stop(), 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be another user")
    def test_a_stranger_is_not_listened_to(self):
        launched = self.launch()
        self.wait_all_ready()
        path = self.socket_path()
        code = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(b'{"command":"stop","name":"decode-0"}\\n')
except BrokenPipeError:
    pass  # closed already
print(s.makefile().readline(), end="")
"""

        def as_nobody():
            # The interpreter that everybody may execute.
            return subprocess.run(["/usr/bin/python3", "-c", code, path],
                                  user=NOBODY, group=NOBODY, extra_groups=[],
                                  capture_output=True, text=True, check=False,
                                  timeout=DEADLINE_S)
        # The directory keeps strangers out, and if it did not:
        self.assertIn("PermissionError", as_nobody().stderr)
        os.chmod(self.folder, 0o755)
        os.chmod(os.path.dirname(path), 0o755)
        os.chmod(path, 0o666)
        self.assertEqual(as_nobody().stdout,
                         '{"ok":false,"error":"this launcher takes commands '
                         'of its own user and root only"}\n')
        launched.wait_says(f"user {NOBODY}, process [0-9]+ is refused at the "
                           "launcher socket\n")
        self.assertEqual(self.state("decode-0"), "ready")
        self.assertEqual(launched.stop(), 0)


if __name__ == "__main__":
    main()
