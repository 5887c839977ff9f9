# SPDX-License-Identifier: Apache-2.0
"""One answer of a server of OpenAI's API, piece by piece."""
import http.client
import json
import socket
import ssl
import time

from endpoint import MOST_LINE_BYTES, error_text, headers, tls_trouble
from words import COMMAND, Trouble, near


# What a server, or what is between it and us, can cause.
TROUBLES = (Trouble, OSError, http.client.HTTPException, ValueError, KeyError, IndexError, TypeError, AttributeError)


class Answer:
    """What one call gave: `pieces()` yields its text as it comes, the rest is known when that is over."""

    def __init__(self, endpoint, path, body):
        self.endpoint, self.path, self.body = endpoint, path, body
        self.text = ""
        self.finish = None
        self.usage = None
        self.n_events = 0
        self.sent = self.first = self.last = None
        self.connection = None

    def pieces(self):
        self.sent = time.monotonic()
        self.connection = self.endpoint.connect()
        try:
            yield from self._pieces()
        finally:
            self.close()

    def close(self):
        """The server sees that nobody listens any more, and stops."""
        if self.connection is not None:
            self.connection.close()

    def n_tokens(self):
        """As the server counts them, else events that had text."""
        return self.usage["completion_tokens"] if self.usage else self.n_events

    def _pieces(self):
        try:
            self.connection.request("POST", self.endpoint.base + self.path, json.dumps(self.body),
                                    {"Content-Type": "application/json", **headers(self.endpoint)})
        except BrokenPipeError:
            pass  # it wants no more of the body; what it says to that may be there
        reply = self.connection.getresponse()
        if reply.status != 200:
            raise Trouble(f"HTTP {reply.status}: {error_text(reply.read(MOST_LINE_BYTES))}"
                          + other_models(self.endpoint, reply.status, self.body.get("model")))
        if (reply.getheader("Content-Type") or "").startswith("application/json"):
            yield from self._take(json.loads(reply.read()))  # a server that streams nothing
            return
        for data in events(reply):
            if data == b"[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                raise Trouble(error_text(data))
            yield from self._take(event)
        raise Trouble("the server ended the answer in the middle")

    def _take(self, event):
        if isinstance(event.get("usage"), dict) and isinstance(event["usage"].get("completion_tokens"), int):
            self.usage = event["usage"]
        for choice in event.get("choices", []):
            said = choice.get("delta") or choice.get("message") or choice
            piece = said.get("content") or said.get("text") or ""
            self.finish = choice.get("finish_reason") or self.finish
            if piece:
                self.last = time.monotonic()
                self.first = self.first or self.last
                self.n_events += 1
                self.text += piece
                yield piece


def events(reply):
    """The data of each server-sent event."""
    while line := reply.readline(MOST_LINE_BYTES):
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            yield line[5:].lstrip(b" ")


def models(endpoint):
    """@return the names of those that are served"""
    connection = endpoint.connect()
    try:
        connection.request("GET", endpoint.base + "/models", headers=headers(endpoint))
        reply = connection.getresponse()
        body = reply.read(MOST_LINE_BYTES)
    finally:
        connection.close()
    if reply.status != 200:
        raise Trouble(f"HTTP {reply.status}: {error_text(body)}")
    return [model["id"] for model in json.loads(body)["data"]]


def first_model(endpoint):
    names = models(endpoint)
    if not names:
        raise Trouble("the server has no model loaded")
    return names[0]


def other_models(endpoint, status, name):
    """Behind the complaint that there is no such model."""
    if status != 404 or not name:
        return ""
    try:
        names = models(endpoint)
    except (OSError, Trouble, ValueError, KeyError):
        return ""
    if not names or name in names:
        return ""
    meant = near(name, names)
    return f"; did you mean {meant}?" if meant else f"; it has {', '.join(names[:16])}"


def nobody(endpoint, error):
    """What to say where there is no connection, or None: it is something else."""
    start = f"; start a server with {COMMAND} serve, or name the one that runs in BATON_URL"
    if isinstance(error, ConnectionRefusedError):
        return f"nobody answers at {endpoint.netloc}{start}"
    if isinstance(error, socket.gaierror):
        return f"there is no host {endpoint.host}: {error.strerror}{start}"
    if isinstance(error, TimeoutError):
        return f"{endpoint.netloc} gives no answer in time"
    if isinstance(error, ConnectionResetError):
        return f"{endpoint.netloc} closed the connection"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{endpoint.netloc} cannot be reached: {error.strerror or error}"
    return None


def describe(error, where, address):
    """One sentence for any trouble with the server."""
    if isinstance(error, Trouble):
        return str(error)
    if isinstance(error, ssl.SSLError):
        return tls_trouble(address, error)
    return (nobody(where, error)
            or f"the server at {where.netloc} does not answer as a server of OpenAI's API does: {error!r}")
