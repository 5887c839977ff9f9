# SPDX-License-Identifier: Apache-2.0
"""A server of OpenAI's API for the tests of cli/: what it says, and how badly, is the test's to choose."""
import http.server
import json
import os
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLI = os.path.join(ROOT, "tools", "cli")
sys.dont_write_bytecode = True
sys.path.insert(0, CLI)

DONE = b"data: [DONE]\n\n"
LIMIT_S = 60  # guards against hanging alone


def event(**more):
    return ("data: " + json.dumps(more) + "\n\n").encode()


def delta(text, finish=None):
    return event(choices=[{"delta": {"content": text}, "finish_reason": finish}])


def usage(completion, prompt=3):
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion,
                                    "total_tokens": prompt + completion})


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass

    def send_body(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.server.paths.append(self.path)
        self.send_body(200, json.dumps({"data": [{"id": name} for name in self.server.models]}).encode())

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.paths.append(self.path)
            server.asked.append(body)
            server.keys.append(self.headers.get("Authorization"))
            number = len(server.asked)
        self.close_connection = True
        try:
            server.answer(self, body, number)
        except (BrokenPipeError, ConnectionResetError):
            server.left.set()

    def begin(self, kind="text/event-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def stream(self, *pieces):
        self.begin()
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()

    def stream_for_ever(self):
        """Until the client leaves."""
        self.begin()
        while True:
            self.wfile.write(delta("x "))
            self.server.started.set()
            # Not a wait for anything: it keeps the test's output short.
            self.server.left.wait(0.005)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.models = ["m", "b"]
        self.asked, self.paths, self.keys = [], [], []
        self.lock = threading.Lock()
        self.started, self.left = threading.Event(), threading.Event()
        self.answer = lambda handler, body, number: handler.stream(delta("hello"), DONE)

    def begin(self, test):
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        test.addCleanup(self.server_close)
        test.addCleanup(thread.join)
        test.addCleanup(self.shutdown)
        return self

    def handle_error(self, *_arguments):
        pass


def closed_port():
    """One that nobody listens at."""
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        return server.server_port
