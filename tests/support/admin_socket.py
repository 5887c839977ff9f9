# SPDX-License-Identifier: Apache-2.0
"""The launcher's control socket (common/admin/admin.h) for tests."""
import json
import socket

NAME = "admin.sock"


class Refused(Exception):
    """The error of the launcher."""


def command(words):
    """@return the JSON of a command that is written as on a command line, such as "load-model m=/m.gguf decode=2 wait=yes"."""
    verb, *rest = words.split(" ")
    out = {"command": verb}
    if rest:
        name, _, path = rest.pop(0).partition("=" if verb == "load-model" else "\0")
        out |= {"name": name} | ({"path": path} if path else {})
    if verb == "role" and rest:
        out["role"] = rest.pop(0)
    for key, _, value in (word.partition("=") for word in rest):
        out[key] = value == "yes" if key == "wait" else int(value)
    return json.dumps(out)


class Client:
    """A connection to a launcher."""

    def __init__(self, path, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r", encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()

    def send(self, words):
        self.socket.sendall(command(words).encode() + b"\n")

    def reply(self):
        """One line: an answer or a change."""
        return json.loads(self.lines.readline() or '{"ok": false, "error": "the connection ended"}')

    def answer(self):
        """The next answer; changes before it are dropped."""
        reply = self.reply()
        while "ok" not in reply:
            reply = self.reply()
        if not reply["ok"]:
            raise Refused(reply["error"])
        return reply

    def ask(self, words):
        self.send(words)
        return self.answer()


def ask(path, words, timeout=60):
    with Client(path, timeout) as client:
        return client.ask(words)
