#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands against a server that answers with what steers a terminal: its words are shown, and nothing more."""
import json
import os
import re
import subprocess
import sys
import unittest

from serving import CLI, DONE, LIMIT_S, Server, delta, event

EVIL = "evil\x1b]0;title\x07\x1b[2J\x9b31m\r\u202ebaton: all is well\u2028x"
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
COMMANDS = {
    "ask": ("ask.py", "x"), "batch": ("batch.py", "--resume", "b", "-o", "-"), "load": ("load.py", "--requests", "2", "--warmup", "0", "--quiet"), "top": ("top.py", "--once"),
    "status": ("cluster.py", "status"), "drain": ("cluster.py", "drain", "w"), "role": ("cluster.py", "role", "w", "both"),
}
CLUSTER = {
    "now_unix_ms": 1, "router": {"name": EVIL, "version": EVIL, "state": EVIL},
    "models": [{"name": EVIL, "loaded": True, "ready": True, "running": EVIL}],
    "workers": [{key: EVIL for key in ("name", "id", "model", "role", "state", "active", "seats", "version")},
                {"name": EVIL, "model": EVIL, "role": EVIL, "state": "missing", "process": EVIL, "since_ms": 1, "why": EVIL}],
    "refused": [{"name": EVIL, "proven": False, "address": EVIL, "last_ms": 1, "times": EVIL, "why": EVIL}],
    "unreachable": [{"text": EVIL}],
}


class Hostile(unittest.TestCase):
    def setUp(self):
        self.server = Server().begin(self)

    def run_all(self, names=COMMANDS):
        """@return {name: (exit status, all that was printed)}"""
        out = {}
        env = {k: v for k, v in os.environ.items() if not k.startswith(("BATON_", "OPENAI_"))}
        env.update(BATON_URL=f"http://127.0.0.1:{self.server.server_port}/v1", PYTHONUTF8="1")
        for name in names:
            program, *words = COMMANDS[name]
            done = subprocess.run([sys.executable, os.path.join(CLI, program), *words], env=env, capture_output=True,
                                  timeout=5 * LIMIT_S, check=False, stdin=subprocess.DEVNULL)
            out[name] = done.returncode, (done.stdout + done.stderr).decode()
        return out

    def assert_plain(self, out, also="evil"):
        for name, (_, text) in out.items():
            self.assertIn(also, text, name)
            self.assertNotRegex(text, STEERS, name)
            self.assertFalse([line for line in text.splitlines() if line.startswith("baton: all is well")], name)

    def get(self, status, body):
        self.server.RequestHandlerClass = type("Evil", (self.server.RequestHandlerClass,), {
            "do_GET": lambda handler: handler.send_body(status, body)})

    def test_cluster_command_refusal_is_shown(self):
        for body, names in ((json.dumps({"error": {"message": EVIL}}).encode(), COMMANDS), (EVIL.encode(), ["ask"]),
                            (json.dumps({"error": [EVIL]}).encode(), ["status"])):
            self.get(503, body)
            out = self.run_all(names)
            self.assertEqual({status for status, _ in out.values()}, {1})
            self.assert_plain(out)

    def test_names_and_states(self):
        self.get(200, json.dumps(CLUSTER).encode())
        self.assert_plain(self.run_all(["status"]))

    def test_models_with_unusual_names_are_shown(self):
        self.server.models = [EVIL]
        self.server.answer = lambda handler, body, number: handler.send_body(400, json.dumps({"error": {"message": EVIL}}).encode())
        self.assert_plain(self.run_all(["ask", "load"]))
        self.server.answer = lambda handler, body, number: handler.stream(delta("a"), DONE)
        out = self.run_all(["load"])
        self.assertEqual(out["load"][0], 0)
        self.assert_plain(out)
        self.server.answer = lambda handler, body, number: handler.send_body(404, b'{"error": "no"}')
        COMMANDS["other"] = ("ask.py", "--model", "zzz", "x")
        self.addCleanup(COMMANDS.pop, "other")
        self.assert_plain(self.run_all(["other"]))

    def test_error_in_the_stream(self):
        self.server.answer = lambda handler, body, number: handler.stream(event(error={"message": EVIL}))
        self.assert_plain(self.run_all(["ask", "load"]))


if __name__ == "__main__":
    unittest.main()
