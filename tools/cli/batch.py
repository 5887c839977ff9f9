#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the requests of a file at a server when it has room, and write their answers.

  baton batch FILE           a line per request, as OpenAI's batches have them:
                             {"custom_id": "1", "method": "POST", "url":
                             "/v1/chat/completions", "body": {"model": ...}}
  cat FILE | baton batch     the same; the answers go to standard output
  baton batch --resume ID    wait for a batch that was begun, and write its results
  baton batch --cancel ID    end a batch; --resume ID has what was answered until then

Answers of NAME.jsonl come into NAME.output.jsonl, lines that failed into
NAME.errors.jsonl, in the order in which they were done: custom_id tells which is
which. -o names the first file, and the second is called like it; -o - is standard
output for both. Files that are there stay, unless --overwrite is given.

Ctrl-C ends the command and not the batch, which goes on at the server. It has 24
hours. The server keeps its files of a batch as long as others: --delete removes
them once the results are written.

The server needs --store. Its address is in BATON_URL or behind --url, and its key,
where it wants one, in BATON_API_KEY (or OPENAI_API_KEY), or behind --api-key.

Exit status: 0 if every line has succeeded, 1 after an error or if a line failed,
2 for a mistake in the options, 130 after Ctrl-C.
"""
import contextlib
import http.client
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time

import command
import endpoint as endpoints
import talk
from progress import Progress
from words import COMMAND, Parser, Trouble, in_a_line

ENDED = ("completed", "failed", "expired", "cancelled")
ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
LEAST_POLL_S, MOST_POLL_S = 0.1, 5
PATIENCE_S = 300  # without an answer: the server may be started again meanwhile
BUSY = (429, 500, 502, 503, 504)
MOST_LINE_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
STDOUT = "-"


def read_options(argv):
    parser = Parser(prog="baton batch", description=__doc__)
    parser.add_argument("words", metavar="FILE", nargs="*", help="the requests; - is standard input")
    parser.add_argument("-o", "--output", metavar="OUT", help="file of the answers; - is standard output")
    parser.add_argument("--overwrite", action="store_true", help="replace results that are there")
    parser.add_argument("--resume", metavar="ID", help="wait for this batch; FILE, if given, only names the results")
    parser.add_argument("--cancel", metavar="ID", help="end this batch")
    parser.add_argument("--delete", action="store_true", help="remove the batch's files from the server in the end")
    parser.add_argument("--url", metavar="URL", help="the server (default: BATON_URL, or BATON_HTTP, or 127.0.0.1:8000)")
    endpoints.add_key_option(parser)
    endpoints.add_tls_options(parser)
    options = parser.read(argv)
    check(parser, options)
    return options


def check(parser, options):
    options.file = options.words[0] if options.words else None
    if len(options.words) > 1:
        parser.error("one FILE at a time")
    if options.cancel is not None and (options.words or options.output or options.resume is not None or options.delete
                                       or options.overwrite):
        parser.error("--cancel ID stands alone")
    for name in (options.resume, options.cancel):
        if name is not None and not ID.match(name):
            parser.error(f"'{in_a_line(name)}' is no ID of a batch")
    if options.resume is None and options.cancel is None and options.file is None:
        if sys.stdin is None or sys.stdin.isatty():
            parser.error("which FILE has the requests?")
        options.file = STDOUT


# ---- the server ----


class Refusal(Trouble):
    """An answer that is none of 200."""

    def __init__(self, status, data):
        super().__init__(f"HTTP {status}: {endpoints.error_text(data)}")
        self.status = status


class Server:
    """Files and batches of one."""

    def __init__(self, where):
        self.where = where

    @contextlib.contextmanager
    def reply(self, method, path, body=None, head=None):
        connection = self.where.connect()
        try:
            with contextlib.suppress(BrokenPipeError):  # it wants no more of the body, and has perhaps said why
                connection.request(method, self.where.base + path, body, {**(head or {}), **endpoints.headers(self.where)})
            reply = connection.getresponse()
            if reply.status != 200:
                raise Refusal(reply.status, reply.read(endpoints.MOST_LINE_BYTES))
            yield reply
        finally:
            connection.close()

    def ask(self, method, path, body=None, head=None):
        """@return the object that comes back"""
        with self.reply(method, path, body, head) as reply:
            data = reply.read(endpoints.MOST_LINE_BYTES)
        try:
            found = json.loads(data)
        except RecursionError:
            found = None
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
        return found

    def upload(self, source):
        """@return the ID of the file"""
        mark = "baton-" + secrets.token_hex(16)
        name = re.sub(r'[^\w .()+-]', "_", os.path.basename(source.name))[:120]
        before = (f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{mark}\r\n'
                  f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n').encode()
        after = f"\r\n--{mark}--\r\n".encode()
        file = self.ask("POST", "/files", source.pieces(before, after),
                        {"Content-Type": f"multipart/form-data; boundary={mark}",
                         "Content-Length": str(len(before) + source.n_bytes + len(after))})
        return identity(file)

    def begin(self, file, path):
        body = json.dumps({"input_file_id": file, "endpoint": path, "completion_window": "24h"})
        return self.ask("POST", "/batches", body, {"Content-Type": "application/json"})

    def delete(self, file):
        self.ask("DELETE", "/files/" + file)

    def copy(self, file, out):
        """Writes the content of a file to `out`."""
        with self.reply("GET", f"/files/{file}/content") as reply:
            while piece := reply.read(PIECE_BYTES):
                out.write(piece)
            if reply.length:
                raise Trouble("the server ended a file in the middle")


def identity(found, key="id"):
    """An ID that a server has chosen, which becomes part of paths and of names of files."""
    name = found.get(key)
    if not isinstance(name, str) or not ID.match(name):
        raise ValueError(f"no {key}")
    return name


def counts_of(batch):
    """@return (lines, lines with an answer, lines that failed)"""
    found = batch.get("request_counts") or {}
    counts = tuple(found.get(key, 0) for key in ("total", "completed", "failed"))
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in counts):
        raise ValueError("request_counts are no counts")
    return counts


# ---- the requests ----


class Source:
    """Requests in an open file that can be read twice."""

    def __init__(self, file, name):
        self.file, self.name = file, name
        self.n_bytes = file.seek(0, os.SEEK_END)

    def endpoint(self):
        """What the first request is for: a batch has one endpoint, and the server looks at the others."""
        self.file.seek(0)
        number = 0
        while text := self.file.readline(MOST_LINE_BYTES):
            number += 1
            if not text.strip():
                continue
            try:
                url = json.loads(text)["url"]
            except (ValueError, KeyError, TypeError, RecursionError):
                url = None
            if not isinstance(url, str):
                raise Trouble(f"{self.name}:{number}: this is no request of a batch: {{\"custom_id\": ..., \"method\": \"POST\", "
                              "\"url\": \"/v1/chat/completions\", \"body\": {...}}")
            return url
        raise Trouble(f"{self.name} has no requests")

    def pieces(self, before, after):
        yield before
        self.file.seek(0)
        left = self.n_bytes
        while left:
            piece = self.file.read(min(left, PIECE_BYTES))
            if not piece:
                raise Trouble(f"{self.name} was made shorter while it was read")
            left -= len(piece)
            yield piece
        yield after


@contextlib.contextmanager
def opened(path):
    """@return the Source; what cannot be read twice is copied"""
    with contextlib.ExitStack() as stack:
        if path == STDOUT:
            file, name = sys.stdin.buffer, "standard input"
        else:
            try:
                file, name = stack.enter_context(open(path, "rb")), path
            except OSError as error:
                raise Trouble(f"{path}: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or (path == STDOUT and file.tell() != 0):
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, copy, PIECE_BYTES)
            file = copy
        yield Source(file, name)


# ---- the results ----


class Results:
    """Where they are written: two files beside each other, or standard output."""

    def __init__(self, output, source, batch, overwrite=False):
        """@param output  of -o; None: named by `source`, the path of the requests, or else by the batch"""
        self.overwrite = overwrite
        if output is None and source == STDOUT:
            output = STDOUT
        if output is None:
            root, suffix = os.path.splitext(source) if source else (batch, ".jsonl")
            output = f"{root}.output{suffix}"
        self.output = output
        root, suffix = os.path.splitext(output)
        self.errors = STDOUT if output == STDOUT else f"{root.removesuffix('.output')}.errors{suffix}"

    def check(self):
        """Before anything is asked."""
        if self.output == STDOUT:
            return
        for path in (self.output, self.errors):
            self._check_free(path)
        folder = os.path.dirname(self.output) or "."
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Trouble(f"no file can be made in {folder}")

    def _check_free(self, path):
        if os.path.lexists(path) and not (self.overwrite and os.path.isfile(path)):
            raise Trouble(f"{path} exists; --overwrite replaces it, -o names another file" if os.path.isfile(path)
                          else f"{path} exists and is no file")

    def write(self, server, batch):
        """@return [the paths that have lines], in which each is whole or missing"""
        made = []
        for path, key in ((self.output, "output_file_id"), (self.errors, "error_file_id")):
            if batch.get(key) is not None:
                self._write(path, lambda out, key=key: server.copy(identity(batch, key), out))
                made.append(path)
            elif self.overwrite and path != STDOUT and os.path.isfile(path):
                os.unlink(path)  # overwritten, by nothing
        return made

    def _write(self, path, fill):
        if path == STDOUT:
            fill(sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        beside = f"{path}.part-{os.getpid()}"
        try:
            with open(beside, "xb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            self._check_free(path)
            os.rename(beside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)


# ---- waiting ----


class Lines(Progress):
    """Of lines instead of bytes."""

    def amount(self, n):
        return f"{n} lines" if isinstance(n, int) else f"{n:.1f}"

    def share(self):
        return f"{self.done} of {self.total} lines"


class Waiter:
    """Asks how far a batch is until it has ended."""

    def __init__(self, server, clock=time.monotonic, sleep=time.sleep, stream=None):
        self.server, self.clock, self.sleep, self.stream = server, clock, sleep, stream
        self.bar = None
        self.is_known = False

    def look(self, name):
        """Once the server has shown the batch, what it says when it is started again, or busy, is no news."""
        since = self.clock()
        while True:
            try:
                return self.server.ask("GET", "/batches/" + name)
            except Refusal as error:
                if error.status not in BUSY:
                    raise
                last = error
            except (OSError, http.client.HTTPException) as error:
                last = error
            if not self.is_known or self.clock() - since > PATIENCE_S:
                raise last
            self.sleep(MOST_POLL_S)

    def show(self, batch):
        total, completed, failed = counts_of(batch)
        if total == 0:
            return
        if self.bar is None or self.bar.total != total:
            self.bar = Lines("", total, stream=self.stream, clock=self.clock)
        self.bar.label = in_a_line(batch.get("status")).replace("_", " ") + (f", {failed} failed" if failed else "")
        step = min(completed + failed, total) - self.bar.done
        if step >= 0:
            self.bar.add(step)
        else:
            self.bar.back(-step)

    def wait(self, name):
        """@return the batch, which has ended"""
        pause = LEAST_POLL_S
        try:
            while True:
                batch = self.look(name)
                self.is_known = True
                self.show(batch)
                if batch.get("status") in ENDED:
                    return batch
                self.sleep(pause)
                pause = min(1.5 * pause, MOST_POLL_S)
        finally:
            if self.bar is not None:
                self.bar.end()


@contextlib.contextmanager
def interrupt_later():
    """Ctrl-C waits for the end of the block; a second one does not."""
    came = []

    def note(*_arguments):
        if came:
            raise KeyboardInterrupt
        came.append(True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


# ---- the command ----


def say(text):
    print(in_a_line(text), file=sys.stderr, flush=True)


def begin(server, options):
    """@return the ID of a new batch, and whether Ctrl-C has come"""
    with opened(options.file) as source:
        path = source.endpoint()
        server.ask("GET", "/batches?limit=1")  # no batches, or a wrong key: said before a long upload
        file = server.upload(source)
    with interrupt_later() as came:
        try:
            batch = server.begin(file, path)
        except Refusal:
            with contextlib.suppress(*talk.TROUBLES):
                server.delete(file)
            raise
    return identity(batch), bool(came)


def how_to_go_on(name, options, results):
    words = [COMMAND, "batch", "--resume", name] + (["--url", options.url] if options.url else [])
    words += ["-o", results.output] + [f"--{flag}" for flag in ("overwrite", "delete") if getattr(options, flag)]
    return shlex.join(words)


def say_errors(batch, file):
    """Why a batch did not begin."""
    for error in ((batch.get("errors") or {}).get("data") or [])[:16]:
        line = error.get("line")
        say(f"baton: {file or batch['id']}{'' if line is None else f':{line}'}: {error.get('message')}")


def say_end(batch, paths):
    total, completed, failed = counts_of(batch)
    status = batch["status"]
    text = f"{batch['id']}: " if status == "completed" else f"{batch['id']} is {status}: "
    text += f"{completed} of {total} lines answered"
    if failed:
        text += f", {failed} failed"
    if paths and paths != [STDOUT] * len(paths):
        text += f"; see {' and '.join(paths)}"
    say(text)


def finish(server, batch, options, results):
    """@return the exit status"""
    paths = results.write(server, batch)
    total, completed, _ = counts_of(batch)
    source = options.file if options.file != STDOUT else "standard input"
    say_errors(batch, source)
    say_end(batch, paths)
    if options.delete:
        for key in ("input_file_id", "output_file_id", "error_file_id"):
            if batch.get(key) is not None:
                server.delete(identity(batch, key))
    return 0 if batch["status"] == "completed" and completed == total else 1


def wait_and_finish(server, name, options, results, is_new):
    waiter = Waiter(server)
    waiter.is_known = is_new
    try:
        batch = waiter.wait(name)
        return finish(server, {**batch, "id": name}, options, results)
    except KeyboardInterrupt:
        say("")
        say(f"{name} goes on at the server. Its results: {how_to_go_on(name, options, results)}")
        say(f"It ends with {COMMAND} batch --cancel {name}")
        return 130
    except BrokenPipeError:
        raise
    except Refusal as error:
        if error.status == 404:
            raise
        raise Trouble(f"{error}; once more: {how_to_go_on(name, options, results)}") from None
    except talk.TROUBLES as error:
        raise Trouble(f"{talk.describe(error, server.where, server.where.netloc)}; once more: "
                      + how_to_go_on(name, options, results)) from None


def run(options, where):
    server = Server(where)
    if options.cancel is not None:
        batch = server.ask("POST", f"/batches/{options.cancel}/cancel", "", {"Content-Length": "0"})
        total, completed, _ = counts_of(batch)
        say(f"{options.cancel} is {batch.get('status')}: {completed} of {total} lines answered; "
            f"{COMMAND} batch --resume {options.cancel} writes them")
        return 0
    results = Results(options.output, options.file, options.resume, options.overwrite)
    results.check()
    if options.resume is not None:
        return wait_and_finish(server, options.resume, options, results, False)
    name, interrupted = begin(server, options)
    say(f"{name} has begun")
    if interrupted:
        say(f"{name} goes on at the server. Its results: {how_to_go_on(name, options, results)}")
        return 130
    return wait_and_finish(server, name, options, results, True)


def main():
    options = read_options(sys.argv[1:])
    # Text is UTF-8 whatever the locale says.
    sys.stderr.reconfigure(encoding="utf-8", errors="replace")
    address, name = endpoints.named(options.url)
    return command.run(lambda where: run(options, where), options, address, name,
                       lambda text: print(f"baton: {text}", file=sys.stderr))


if __name__ == "__main__":
    sys.exit(main())
