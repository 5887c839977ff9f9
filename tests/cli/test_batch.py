#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./baton batch` against a server of the test's own: what it sends, shows and writes, and servers that go away."""
import email
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serving import CLI, LIMIT_S, Handler, Server, closed_port

import batch as batch_command
from endpoint import find
from words import COMMAND

BATCH = os.path.join(CLI, "batch.py")
NO_STORE = "the server keeps no files: --store DIR gives it a folder for them"


def request(i, url="/v1/completions"):
    return json.dumps({"custom_id": str(i), "method": "POST", "url": url, "body": {"prompt": "x"}}) + "\n"


def state(status, total=0, completed=0, failed=0, **more):
    return dict({"id": "batch_7", "status": status, "errors": None, "output_file_id": None, "error_file_id": None,
                 "request_counts": {"total": total, "completed": completed, "failed": failed}}, **more)


class Batches(Handler):
    """States are given one after the other, the last again and again."""

    def say(self, found, status=200):
        self.send_body(status, json.dumps(found).encode())

    def refuse(self, status, why):
        self.say({"error": {"message": why}}, status)

    def note(self, body=None):
        with self.server.lock:
            self.server.calls.append((self.command, self.path.partition("?")[0], body))
        self.server.keys.append(self.headers.get("Authorization"))
        refusal = self.server.refusals.get((self.command, self.path.partition("?")[0]))
        if refusal:
            self.refuse(*refusal)
        return refusal is None

    def do_GET(self):
        server = self.server
        if not self.note():
            return
        if self.path.startswith("/v1/batches?"):
            self.say({"data": []})
        elif self.path == "/v1/batches/batch_7":
            server.looked.set()
            self.say(server.states.pop(0) if len(server.states) > 1 else server.states[0])
        elif match := re.fullmatch("/v1/files/(.*)/content", self.path):
            data = server.files[match[1]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data) + server.missing_bytes))
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True
        else:
            self.refuse(404, "no such batch")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/files":
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            parts = {part.get_param("name", header="Content-Disposition"): (part.get_filename(), part.get_payload(decode=True))
                     for part in email.message_from_bytes(head + body).get_payload()}
            if self.note(parts):
                self.say({"id": "file-in"})
        elif self.path == "/v1/batches":
            if self.note(json.loads(body)):
                self.say(state("validating"))
        elif self.note():
            self.say(state("cancelling", 5, 2))

    def do_DELETE(self):
        if self.note():
            self.say({"deleted": True})


class BatchBase(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.server.RequestHandlerClass = Batches
        self.server.calls, self.server.refusals, self.server.missing_bytes = [], {}, 0
        self.server.files = {"file-out": b'{"custom_id":"1"}\n', "file-err": b'{"custom_id":"2"}\n'}
        self.server.states = [state("completed", 1, 1, output_file_id="file-out")]
        self.server.looked = threading.Event()
        self.server.begin(self)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.file = self.path("in.jsonl")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write("\n" + request(1) + request(2))

    def path(self, name):
        return os.path.join(self.folder, name)

    def env(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("BATON_", "OPENAI_"))}
        env.update({"LC_ALL": "C", "BATON_HTTP": f"127.0.0.1:{self.server.server_port}"}, **more)
        return env

    def run_batch(self, *arguments, piped=b"", **env):
        done = subprocess.run([sys.executable, BATCH, *arguments], env=self.env(**env), capture_output=True, timeout=LIMIT_S,
                              check=False, input=piped, cwd=self.folder)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def files(self):
        """@return {name: bytes} of all but the requests"""
        found = {}
        for name in os.listdir(self.folder):
            if name != "in.jsonl":
                with open(self.path(name), "rb") as file:
                    found[name] = file.read()
        return found


class Batch(BatchBase):
    def test_file_is_uploaded_and_answers_stand_beside_it(self):
        status, text, said = self.run_batch("in.jsonl", BATON_API_KEY="secret")
        self.assertEqual((status, text, said), (
            0, "", "batch_7 has begun\ncompleted: 100 % of 1 lines\nbatch_7: 1 of 1 lines answered; see in.output.jsonl\n"))
        self.assertEqual(self.files(), {"in.output.jsonl": self.server.files["file-out"]})
        with open(self.file, "rb") as file:
            parts = {"purpose": (None, b"batch"), "file": ("in.jsonl", file.read())}
        self.assertEqual(self.server.calls, [
            ("GET", "/v1/batches", None), ("POST", "/v1/files", parts),
            ("POST", "/v1/batches", {"input_file_id": "file-in", "endpoint": "/v1/completions", "completion_window": "24h"}),
            ("GET", "/v1/batches/batch_7", None), ("GET", "/v1/files/file-out/content", None)])
        self.assertEqual(set(self.server.keys), {"Bearer secret"})

    def test_failed_lines_have_a_file_and_a_status(self):
        self.server.states = [state("completed", 2, 1, 1, output_file_id="file-out", error_file_id="file-err")]
        status, _, said = self.run_batch("in.jsonl", "-o", "answers")
        self.assertEqual(status, 1)
        self.assertIn("batch_7: 1 of 2 lines answered, 1 failed; see answers and answers.errors\n", said)
        self.assertEqual(self.files(), {"answers": self.server.files["file-out"], "answers.errors": self.server.files["file-err"]})

    def test_piped_requests_answer_on_standard_output(self):
        self.server.states = [state("completed", 2, 1, 1, output_file_id="file-out", error_file_id="file-err")]
        for words in ((), ("-",), ("-", "-o", "-")):
            status, text, said = self.run_batch(*words, piped=request(1).encode())
            self.assertEqual((status, text), (1, '{"custom_id":"1"}\n{"custom_id":"2"}\n'))
            self.assertNotIn("see", said)
        self.assertEqual(self.server.calls[1][2]["file"][1], request(1).encode())
        self.assertEqual(self.files(), {})

    def test_other_ends_of_a_batch_are_named(self):
        for end, said in ((state("expired", 2, 1, 1, output_file_id="file-out", error_file_id="file-err"),
                           "batch_7 is expired: 1 of 2 lines answered, 1 failed"),
                          (state("cancelled", 2, 2, output_file_id="file-out"), "batch_7 is cancelled: 2 of 2 lines answered;"),
                          (state("failed", errors={"data": [{"code": "c", "message": "bad line", "line": 3},
                                                            {"code": "c", "message": "worse", "line": None}]}),
                           "baton: in.jsonl:3: bad line\nbaton: in.jsonl: worse\nbatch_7 is failed: 0 of 0 lines answered\n")):
            self.server.states = [end]
            status, _, text = self.run_batch("in.jsonl", "--overwrite")
            self.assertEqual(status, 1)
            self.assertIn(said, text)
        self.assertEqual(self.files(), {})  # a batch without results leaves none of another's

    def test_results_that_exist_are_kept(self):
        for name in ("in.output.jsonl", "in.errors.jsonl"):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write("old")
            self.assertEqual(self.run_batch("in.jsonl"), (
                1, "", f"baton: {name} exists; --overwrite replaces it, -o names another file\n"))
            self.assertEqual(self.server.calls, [])
            os.rename(self.path(name), self.path("in.errors.jsonl"))
        self.assertEqual(self.run_batch("in.jsonl", "--overwrite")[0], 0)
        self.assertEqual(self.files(), {"in.output.jsonl": self.server.files["file-out"]})
        os.mkdir(self.path("folder"))
        self.assertIn("folder exists and is no file", self.run_batch("in.jsonl", "--overwrite", "-o", "folder")[2])

    def test_file_that_another_has_made_meanwhile_is_kept(self):
        self.server.states = [state("in_progress", 2, 1)]
        process = subprocess.Popen([sys.executable, BATCH, "in.jsonl"], env=self.env(), stdin=subprocess.DEVNULL, cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(self.server.looked.wait(LIMIT_S))
        with open(self.path("in.errors.jsonl"), "w", encoding="utf-8") as file:
            file.write("another's")
        self.server.states = [state("completed", 2, 2, output_file_id="file-out")]
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.files(), {"in.output.jsonl": self.server.files["file-out"], "in.errors.jsonl": b"another's"})

    def test_file_without_requests_is_not_uploaded(self):
        for data, said in ((b"", "standard input has no requests"), (b"\n \n", "standard input has no requests"),
                           (b"\n{\n", "standard input:2: this is no request of a batch"),
                           (b'{"url": 7}\n', "standard input:1: this is no request"), (b"[" * 100000, "standard input:1: this is no")):
            status, text, complaint = self.run_batch(piped=data)
            self.assertEqual((status, text), (1, ""))
            self.assertIn(said, complaint)
        self.assertEqual(self.run_batch("none.jsonl"), (1, "", "baton: none.jsonl: No such file or directory\n"))
        self.assertEqual(self.server.calls, [])

    def test_missing_store_is_said_before_the_upload(self):
        self.server.refusals["GET", "/v1/batches"] = (501, NO_STORE)
        self.assertEqual(self.run_batch("in.jsonl"), (1, "", f"baton: HTTP 501: {NO_STORE}\n"))
        self.assertEqual(len(self.server.calls), 1)

    def test_refused_batch_leaves_no_file_at_the_server(self):
        self.server.refusals["POST", "/v1/batches"] = (429, "too many")
        self.assertEqual(self.run_batch("in.jsonl"), (1, "", "baton: HTTP 429: too many\n"))
        self.assertEqual(self.server.calls[-1], ("DELETE", "/v1/files/file-in", None))

    def test_files_are_deleted_on_request(self):
        self.server.states = [state("completed", 2, 1, 1, input_file_id="file-in", output_file_id="file-out", error_file_id="file-err")]
        self.assertEqual(self.run_batch("in.jsonl", "--delete")[0], 1)
        self.assertEqual([path for method, path, _ in self.server.calls if method == "DELETE"],
                         ["/v1/files/file-in", "/v1/files/file-out", "/v1/files/file-err"])
        self.assertEqual(set(self.files()), {"in.output.jsonl", "in.errors.jsonl"})

    def test_cut_content_leaves_no_file(self):
        self.server.missing_bytes = 1
        status, _, said = self.run_batch("in.jsonl")
        self.assertEqual(status, 1)
        self.assertIn("once more: " + f"{COMMAND} batch --resume batch_7 -o in.output.jsonl\n", said)
        self.assertEqual(self.files(), {})

    def test_resumed_batch_is_named_by_its_id(self):
        status, _, said = self.run_batch("--resume", "batch_7")
        self.assertEqual((status, set(self.files())), (0, {"batch_7.output.jsonl"}))
        self.assertNotIn("begun", said)
        self.assertEqual([method for method, _, _ in self.server.calls], ["GET", "GET"])
        self.assertEqual(self.run_batch("--resume", "batch_8"), (1, "", "baton: HTTP 404: no such batch\n"))
        self.assertEqual(self.run_batch("in.jsonl", "--resume", "batch_7")[0], 0)
        self.assertIn("in.output.jsonl", self.files())

    def test_cancel_says_how_to_get_the_answers(self):
        self.assertEqual(self.run_batch("--cancel", "batch_7"), (
            0, "", f"batch_7 is cancelling: 2 of 5 lines answered; {COMMAND} batch --resume batch_7 writes them\n"))
        self.assertEqual(self.server.calls, [("POST", "/v1/batches/batch_7/cancel", None)])

    def test_mistakes_in_the_options(self):
        for words, said in ((("a", "b"), "one FILE at a time"), (("--cancel", "x", "-o", "y"), "--cancel ID stands alone"),
                            (("--resume", "../x"), "'../x' is no ID of a batch"), (("--overwrit", "x", "--resum"), "expected one"),
                            (("--deleet", "x"), "did you mean --delete?")):
            status, text, complaint = self.run_batch(*words)
            self.assertEqual((status, text), (2, ""), words)
            self.assertIn(said, complaint)
        self.assertEqual(self.server.calls, [])

    def test_evil_ids_name_no_files(self):
        for end in (state("completed", 1, 1, output_file_id="../../x"), state("completed", 1, 1, output_file_id=7),
                    state("completed", -1), state("completed", True), dict(state("completed"), request_counts=[1])):
            self.server.states = [end]
            status, _, said = self.run_batch("in.jsonl")
            self.assertEqual(status, 1, end)
            self.assertIn("does not answer as a server of OpenAI's API does", said)
        self.assertEqual(self.files(), {})

    def test_ctrl_c_leaves_the_batch(self):
        self.server.states = [state("in_progress", 10, 1)]
        process = subprocess.Popen([sys.executable, BATCH, "in.jsonl"], env=self.env(), stdin=subprocess.DEVNULL, cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(self.server.looked.wait(LIMIT_S))
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LIMIT_S)[1].decode()
        self.assertEqual(process.returncode, 130)
        line = re.search("^batch_7 goes on at the server. Its results: (.*)$", said, re.M)[1]
        self.assertEqual(line, f"{COMMAND} batch --resume batch_7 -o in.output.jsonl")
        self.assertIn(f"{COMMAND} batch --cancel batch_7\n", said)
        self.assertNotIn("POST", [method for method, path, _ in self.server.calls if path.endswith("cancel")])
        self.server.states = [state("completed", 10, 10, output_file_id="file-out")]
        self.assertEqual(self.run_batch(*line.split()[2:])[0], 0)
        self.assertEqual(set(self.files()), {"in.output.jsonl"})

    def test_terminal_shows_how_far_it_is(self):
        self.server.states = [state("in_progress", 10), state("in_progress", 10, 4, 1),
                              state("completed", 10, 9, 1, output_file_id="file-out", error_file_id="file-err")]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(sys.executable, [sys.executable, BATCH, "in.jsonl"], self.env(TERM="dumb", COLUMNS="200"))
        self.addCleanup(os.close, terminal)
        shown, deadline = "", time.monotonic() + LIMIT_S
        while "see in" not in shown:
            self.assertTrue(select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], shown)
            shown += os.read(terminal, 65536).decode()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)
        self.assertIn("] 100 %  10 of 10 lines", shown)
        self.assertIn("completed, 1 failed [", shown)


class Patience(BatchBase):
    """The waiting itself, with a clock of the test's."""

    def waiter(self, at=None):
        self.now = 0.0
        self.slept = []
        self.stream = io.StringIO()

        def sleep(seconds):
            self.slept.append(seconds)
            self.now += seconds

        where = find(at or f"127.0.0.1:{self.server.server_port}", "BATON_HTTP")
        waiter = batch_command.Waiter(batch_command.Server(where), lambda: self.now, sleep, self.stream)
        waiter.is_known = True
        return waiter

    def test_server_that_is_started_again_is_waited_for(self):
        waiter = self.waiter()
        self.server.refusals["GET", "/v1/batches/batch_7"] = (503, "stopping")
        sleep = waiter.sleep

        def sleep_once(seconds):
            sleep(seconds)
            if len(self.slept) == 3:
                self.server.refusals.clear()

        waiter.sleep = sleep_once
        self.assertEqual(waiter.wait("batch_7")["status"], "completed")
        self.assertEqual(self.slept, [batch_command.MOST_POLL_S] * 3)

    def test_server_that_stays_away_is_given_up(self):
        with self.assertRaises(ConnectionRefusedError):
            self.waiter(f"127.0.0.1:{closed_port()}").wait("batch_7")
        self.assertGreater(self.now, batch_command.PATIENCE_S)
        self.assertLess(self.now, batch_command.PATIENCE_S + 2 * batch_command.MOST_POLL_S)

    def test_server_that_never_had_the_batch_is_not_waited_for(self):
        waiter = self.waiter(f"127.0.0.1:{closed_port()}")
        waiter.is_known = False
        with self.assertRaises(ConnectionRefusedError):
            waiter.wait("batch_7")
        self.assertEqual(self.slept, [])

    def test_batch_that_is_gone_is_not_waited_for(self):
        with self.assertRaises(batch_command.Refusal):
            self.waiter().wait("batch_8")
        self.assertEqual(self.slept, [])

    def test_pauses_grow_and_tenths_are_told(self):
        self.server.states = [state("validating")] + [state("in_progress", 20, i) for i in (0, 1, 2, 1, 9)] * 3 + \
            [state("completed", 20, 19, 1)]
        self.waiter().wait("batch_7")
        self.assertEqual(self.slept[0], batch_command.LEAST_POLL_S)
        self.assertEqual(self.slept, sorted(self.slept))
        self.assertEqual(max(self.slept), batch_command.MOST_POLL_S)
        lines = self.stream.getvalue().splitlines()
        self.assertEqual(lines[:2], ["in progress: 10 % of 20 lines", "in progress: 40 % of 20 lines"])
        self.assertEqual(lines[-1], "completed, 1 failed: 100 % of 20 lines")


if __name__ == "__main__":
    unittest.main()
