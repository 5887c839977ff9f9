# SPDX-License-Identifier: Apache-2.0
"""Thousands of streams of OpenAI's API at a time on one thread.

A protocol of our own on asyncio's sockets: what comes is stamped once, when it is
read, and costs one JSON parse for each event and nothing else.
"""
import array
import asyncio
import json
import ssl
import time

from endpoint import error_text, headers, tls_trouble

MOST_HEAD_BYTES = 64 << 10
MOST_ERROR_BYTES = 64 << 10
MOST_LINE_BYTES = 16 << 20
CONNECT_S = 20


class Record:
    """One request that was offered. Times are of time.perf_counter()."""
    __slots__ = ("due", "begun", "first", "last", "end", "gaps", "n_events", "usage", "finish", "error", "why",
                 "streamed")

    def __init__(self, due):
        self.due = due
        self.begun = self.first = self.last = self.end = None
        self.gaps = array.array("d")
        self.n_events = 0
        self.usage = self.finish = self.error = None
        self.why = ""
        self.streamed = True

    def n_tokens(self):
        return self.usage[1] if self.usage else self.n_events

    def fail(self, error, why=""):
        if self.error is None:
            self.error, self.why = error, why


class BadAnswer(Exception):
    """It breaks HTTP or the API."""


def has_text(choice):
    said = choice.get("delta") or choice.get("message") or choice
    return bool(said.get("content") or said.get("text") or said.get("reasoning_content") or said.get("tool_calls"))


class Stream(asyncio.Protocol):
    """A connection, and the answer that is being read from it."""

    def __init__(self):
        self.transport = None
        self.over = None  # a future, while there is a request
        self.record = None
        self.reusable = self.used = False

    # ---- asyncio's ----

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        self.reusable = False
        if self.over is None or self.over.done():
            return
        if self.status is not None and self.left is None and not self.chunked:
            self.body_ended(time.perf_counter())  # the end of the connection is that of the body
        elif self.n_bytes == 0:
            self.settle("connection closed", str(error or "before an answer came"))
        else:
            self.settle("cut off", str(error or "the connection was closed in the middle of the answer"))

    def data_received(self, data):
        now = time.perf_counter()
        if self.over is None or self.over.done():
            self.reusable = False  # nobody asked for it
            self.transport.close()
            return
        self.n_bytes += len(data)
        self.buffer += data
        try:
            self.read(now)
        except (BadAnswer, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            self.reusable = False
            self.settle("bad answer", f"{type(error).__name__}: {error}"[:200])

    # ---- a request ----

    def send(self, request, record):
        """@return a future that is done when the record is"""
        self.record, self.used = record, True
        self.buffer, self.lines = bytearray(), bytearray()
        self.n_bytes = 0
        self.status = self.left = None
        self.chunked = self.is_stream = self.done = self.trailer = False
        self.over = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.over

    def settle(self, error=None, why=""):
        if error is not None:
            self.record.fail(error, why)
            self.reusable = False
        if not self.over.done():
            self.over.set_result(None)
        if not self.reusable:
            self.transport.close()

    # ---- HTTP ----

    def read(self, now):
        if self.status is None and not self.read_head():
            return
        if self.chunked:
            self.read_chunks(now)
            return
        if self.left is None:
            self.take(bytes(self.buffer), now)
            self.buffer.clear()
            return
        piece = bytes(self.buffer[:self.left])
        if len(self.buffer) > self.left:
            raise BadAnswer("more than its Content-Length")
        self.buffer.clear()
        self.left -= len(piece)
        self.take(piece, now)
        if self.left == 0:
            self.body_ended(now)

    def read_head(self):
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > MOST_HEAD_BYTES:
                raise BadAnswer("a head without end")
            return False
        first, *fields = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        del self.buffer[:end + 4]
        if not first.startswith("HTTP/1."):
            raise BadAnswer(f"it begins with {first[:20]!r}")
        status = int(first.split(" ", 2)[1])
        if status < 200:
            return self.read_head()
        found = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        self.status = status
        self.chunked = found.get("transfer-encoding", "").lower() == "chunked"
        self.left = int(found["content-length"]) if "content-length" in found and not self.chunked else None
        self.is_stream = status == 200 and not found.get("content-type", "").startswith("application/json")
        self.reusable = "close" not in found.get("connection", "").lower() and (self.chunked or self.left is not None)
        return True

    def read_chunks(self, now):
        buffer = self.buffer
        while buffer:
            if self.trailer:
                end = buffer.find(b"\r\n")
                if end < 0:
                    break
                del buffer[:end + 2]
                if end == 0:
                    if buffer:
                        raise BadAnswer("bytes behind the last chunk")
                    self.body_ended(now)
            elif self.left is None:
                end = buffer.find(b"\r\n")
                if end < 0:
                    break
                self.left = int(bytes(buffer[:end]).split(b";")[0], 16) + 2
                del buffer[:end + 2]
                if self.left == 2:
                    self.left, self.trailer = None, True
            else:
                piece = bytes(buffer[:self.left])
                del buffer[:len(piece)]
                # The line break behind the data is part of what is left.
                self.take(piece[:max(0, self.left - 2)], now)
                self.left = self.left - len(piece) or None
        if len(buffer) > MOST_HEAD_BYTES:
            raise BadAnswer("a chunk's size without end")

    # ---- the answer ----

    def take(self, piece, now):
        lines = self.lines
        lines += piece
        if not self.is_stream:
            if len(lines) > MOST_LINE_BYTES:
                raise BadAnswer("a very long answer")
            return
        end = lines.rfind(b"\n")
        if end < 0:
            if len(lines) > MOST_LINE_BYTES:
                raise BadAnswer("a very long line")
            return
        whole = bytes(lines[:end])
        del lines[:end + 1]
        for line in whole.split(b"\n"):
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == b"[DONE]":
                    self.done = True
                else:
                    self.event(json.loads(data), now)

    def event(self, event, now):
        record = self.record
        if "error" in event:
            record.fail("error in the stream", error_text(json.dumps(event).encode())[:200])
            return
        usage = event.get("usage")
        if usage and isinstance(usage.get("completion_tokens"), int):
            record.usage = (usage.get("prompt_tokens") or 0, usage["completion_tokens"])
        for choice in event["choices"]:
            record.finish = choice.get("finish_reason") or record.finish
            if has_text(choice):
                if record.first is None:
                    record.first = now
                else:
                    record.gaps.append(now - record.last)
                record.last = now
                record.n_events += 1

    def body_ended(self, now):
        record = self.record
        if self.status != 200:
            record.fail(f"HTTP {self.status}", error_text(bytes(self.lines[:MOST_ERROR_BYTES]))[:200])
        elif not self.is_stream:
            record.streamed = False
            self.event(json.loads(self.lines), now)
        elif not self.done and record.finish is None:
            record.fail("cut off", "the stream ended without a finish reason")
        record.end = now
        self.settle()


class Client:
    """Connections to one server: those that are free are used again."""

    def __init__(self, where, path, timeout_s):
        self.where, self.timeout_s = where, timeout_s
        fields = {"Host": where.netloc, "Content-Type": "application/json", "Accept": "text/event-stream",
                  **headers(where)}
        self.head = f"POST {where.base}{path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items())
        self.free = []
        self.n_now = self.n_most = 0

    async def connect(self):
        loop = asyncio.get_running_loop()
        name = {"server_hostname": self.where.host} if self.where.tls else {}
        made = loop.create_connection(Stream, self.where.host, self.where.port, ssl=self.where.tls, **name)
        return (await asyncio.wait_for(made, CONNECT_S))[1]

    async def ask(self, body, record):
        """Whatever happens stands in the record then."""
        request = (self.head + f"Content-Length: {len(body)}\r\n\r\n").encode() + body
        record.begun = time.perf_counter()
        self.n_now += 1
        self.n_most = max(self.n_most, self.n_now)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.exchange(request, record)
        except TimeoutError:
            record.fail("timed out", f"after {self.timeout_s:g} s")
        except ssl.SSLError as error:
            record.fail("TLS failed", tls_trouble(self.where.netloc, error))
        except ConnectionRefusedError:
            record.fail("connection refused", f"nobody listens at {self.where.netloc}")
        except OSError as error:
            record.fail("connection failed", error.strerror or str(error))
        finally:
            self.n_now -= 1
            if record.end is None:
                record.end = time.perf_counter()

    async def exchange(self, request, record):
        while self.free:
            stream = self.free.pop()
            if stream.reusable and not stream.transport.is_closing():
                await self.over(stream, request, record)
                if record.error != "connection closed":
                    return
                record.error = None  # it was closed while it was free: not this request's fault
        try:
            stream = await self.connect()
        except TimeoutError:
            record.fail("connection failed", f"no connection within {CONNECT_S} s")
            return
        await self.over(stream, request, record)

    async def over(self, stream, request, record):
        try:
            await stream.send(request, record)
        except asyncio.CancelledError:
            stream.reusable = False
            stream.transport.abort()  # the server sees that nobody listens
            raise
        if stream.reusable:
            self.free.append(stream)

    def close(self):
        for stream in self.free:
            stream.transport.close()
