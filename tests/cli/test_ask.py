#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./baton ask` against a server of the test's own on the loopback address."""
import http.server
import json
import os
import subprocess
import sys
import threading
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "cli"))

import ask  # noqa: E402


class ChatHandler(http.server.BaseHTTPRequestHandler):
    """Answers /v1/chat/completions with the pieces of server.stream."""

    def log_message(self, *_arguments):
        pass

    def send_body(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_body(200, json.dumps({"data": self.server.models}).encode())

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.asked = json.loads(self.rfile.read(length))
        if self.server.error:
            self.send_body(400, self.server.error)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.server.stream)
        self.close_connection = True


def delta(text):
    return ("data: " + json.dumps({"choices": [{"delta": {"content": text}}]})
            + "\n\n").encode()


class AskTest(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                                      ChatHandler)
        self.addCleanup(self.server.server_close)
        thread = threading.Thread(target=self.server.serve_forever,
                                  kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        self.server.error = None
        self.server.models = [{"id": "m"}, {"id": "b"}]
        self.server.stream = b""

    def ask(self, *arguments, port=None):
        env = dict(os.environ, LC_ALL="C",
                   BATON_HTTP=f"127.0.0.1:{port or self.server.server_port}")
        done = subprocess.run([sys.executable, ask.__file__, *arguments],
                              env=env, capture_output=True, timeout=60,
                              check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_the_answer_is_printed_piece_by_piece(self):
        self.server.stream = (
            b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
            + delta("Par") + delta("is \u00e9\U0001f600")
            + b'data: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n')
        self.assertEqual(self.ask("Where?", "--max-tokens", "5"),
                         (0, "Paris \u00e9\U0001f600\n", ""))
        self.assertEqual(self.server.asked, {
            "model": "m", "stream": True, "max_tokens": 5,
            "messages": [{"role": "user", "content": "Where?"}]})

    def test_one_of_several_models_is_asked(self):
        self.server.stream = delta("x") + b"data: [DONE]\n\n"
        self.assertEqual(self.ask("Where?", "--model", "b")[0], 0)
        self.assertEqual(self.server.asked["model"], "b")

    def test_a_server_without_models_is_named(self):
        self.server.models = []
        self.assertEqual(self.ask("Where?"), (
            1, "", "\nbaton: the server has no model loaded\n"))

    def test_an_error_is_shown(self):
        self.server.error = b'{"error": {"message": "too long: 9 > 8"}}'
        status, _, said = self.ask("Where?")
        self.assertEqual(status, 1)
        self.assertIn("HTTP 400: too long: 9 > 8\n", said)

    def test_an_answer_cut_off_is_an_error(self):
        self.server.stream = delta("Par")
        status, answer, said = self.ask("Where?")
        self.assertEqual((status, answer), (1, "Par"))
        self.assertIn("in the middle", said)

    def test_an_error_inside_the_stream_is_shown(self):
        self.server.stream = delta("P") + b'data: {"error": {"message": "w"}}\n'
        status, _, said = self.ask("Where?")
        self.assertEqual((status, said), (1, "\nbaton: w\n"))

    def test_a_server_that_is_not_there_is_named(self):
        with http.server.HTTPServer(("127.0.0.1", 0), ChatHandler) as closed:
            port = closed.server_port
        status, _, said = self.ask("Where?", port=port)
        self.assertEqual(status, 1)
        self.assertIn(f"nobody answers at 127.0.0.1:{port}; start the server "
                      "with ./baton serve\n", said)


if __name__ == "__main__":
    unittest.main()
