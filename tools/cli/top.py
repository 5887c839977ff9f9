#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the cluster stands, live: what its router tells, in a terminal.

  baton top [--url URL]          until q
  baton top --once               one frame as plain text, for scripts

Shows the router and its queue, requests, tokens and latencies of the last step of 5
seconds and of the last 15 minutes, each model and each worker (seats, what its last
iteration had, KV blocks, leases), hand-overs of KV since it looks on, and what happened.
ACTIVE is requests of seats, BATCH sequences in the context phase + generating, BLOCKS
KV blocks in use of all, AGAIN how often a launcher started the worker again. Wider
terminals show more columns.

Keys: q ends it; arrows, page up and down scroll the workers. URL (or BATON_URL, or
BATON_HTTP, or 127.0.0.1:8000) is a router's HTTP port; where API keys are in force one
of a tenant that is `admin` is in BATON_API_KEY or behind --api-key. NO_COLOR, or
--no-color, leaves out colors.

Exit status: 0, 1 after an error, 2 for a mistake in the options, 130 after Ctrl-C.
"""
import curses
import json
import locale
import os
import queue
import shutil
import sys
import threading
import time

import command
import endpoint as endpoints
import talk
import top_frame
from words import Parser, Trouble

MOST_BYTES = 64 << 20
AGAIN_S = 2      # after a stream broke
QUIET_S = 30     # without a word on a stream: it is dead
POLL_S = 2       # where the router lets nobody else read its events
KEYS_MS = 100    # between two looks at the keyboard


def read_options(argv):
    parser = Parser(prog="baton top", description=__doc__)
    parser.add_argument("--url", metavar="URL", help="a router (default: BATON_URL, or BATON_HTTP, or 127.0.0.1:8000)")
    parser.add_argument("--once", action="store_true", help="print one frame and end")
    parser.add_argument("--no-color", action="store_true", help="without colors (also: NO_COLOR)")
    endpoints.add_key_option(parser)
    endpoints.add_tls_options(parser)
    return parser.read(argv)


class Router:
    """The HTTP port of one."""

    def __init__(self, where):
        self.where = where
        self.base = where.base.removesuffix("/v1")

    def begin(self, path, **headers):
        """@return the connection and its answer"""
        connection = self.where.connect()
        try:
            connection.request("GET", self.base + path, headers={**headers, **endpoints.headers(self.where)})
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def snapshot(self):
        connection, answer = self.begin("/v2/cluster")
        try:
            data = answer.read(MOST_BYTES)
        finally:
            connection.close()
        if answer.status == 404:
            raise Trouble(f"{self.where.netloc} is no router that tells how its cluster stands (GET /v2/cluster)")
        if answer.status != 200:
            raise Trouble(f"HTTP {answer.status}: {endpoints.error_text(data)}")
        return json.loads(data)


class Reader(threading.Thread):
    """Puts (name, data) into a queue: events of the router; ("snapshot", …) where those cannot be read; ("notice",
    text or None): what is wrong."""

    def __init__(self, router, last_id):
        super().__init__(daemon=True)
        self.router, self.last_id, self.told = router, last_id, queue.Queue()

    def run(self):
        while True:
            try:
                if self._follow():
                    time.sleep(POLL_S)
                    continue
                wrong = "the router ended the stream"
            except talk.TROUBLES as error:
                wrong = talk.describe(error, self.router.where, self.router.where.netloc)
            self.told.put(("notice", f"{wrong}; trying again"))
            time.sleep(AGAIN_S)

    def _follow(self):
        """@return True: a snapshot in place of a stream"""
        connection, answer = self.router.begin("/v2/cluster/events", **({"Last-Event-ID": self.last_id} if self.last_id else {}))
        try:
            if answer.status in (403, 503):  # there are as many readers as may be
                answer.read(MOST_BYTES)
                self.told.put(("snapshot", self.router.snapshot()))
                self.told.put(("notice", None))
                return True
            if answer.status != 200:
                raise Trouble(f"HTTP {answer.status}: {endpoints.error_text(answer.read(MOST_BYTES))}")
            connection.sock.settimeout(QUIET_S)
            self._read(answer)
            return False
        finally:
            connection.close()

    def _read(self, answer):
        fields, first = {}, True
        for line in iter(lambda: answer.readline(endpoints.MOST_LINE_BYTES), b""):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text:
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            if "data" in fields:
                self.last_id = fields.get("id", self.last_id)
                self.told.put((fields.get("event", ""), json.loads(fields["data"])))
                if first:
                    self.told.put(("notice", None))
                first = False
            fields = {}


class Screen:
    """curses: a frame each time that something is new."""

    STYLES = {top_frame.DIM: curses.A_DIM, top_frame.BOLD: curses.A_BOLD}
    COLORS = {top_frame.GOOD: curses.COLOR_GREEN, top_frame.WARN: curses.COLOR_YELLOW, top_frame.BAD: curses.COLOR_RED}

    def __init__(self, window, colors):
        self.window = window
        self.styles = dict(self.STYLES)
        window.timeout(KEYS_MS)
        window.keypad(True)
        try:
            curses.curs_set(0)
        except curses.error:
            pass
        if colors and curses.has_colors():
            curses.start_color()
            curses.use_default_colors()
            for i, (style, color) in enumerate(self.COLORS.items(), 1):
                curses.init_pair(i, color, -1)
                self.styles[style] = curses.color_pair(i)
        else:
            self.styles[top_frame.BAD] = curses.A_BOLD

    def size(self):
        height, width = self.window.getmaxyx()
        return width, height

    def draw(self, lines):
        self.window.erase()
        for y, line in enumerate(lines):
            x = 0
            for text, style in line:
                try:
                    self.window.addstr(y, x, text, self.styles.get(style, 0))
                except curses.error:
                    pass  # the last cell of the screen cannot be passed, or the terminal has just shrunk
                x += len(text)
        self.window.refresh()


def is_unicode():
    return (locale.getpreferredencoding(False) or "").lower().replace("-", "") == "utf8"


def take(view, reader, notice):
    """What was told since the last time. @return the view, the notice, and whether anything is new"""
    new = False
    while True:
        try:
            name, data = reader.told.get_nowait()
        except queue.Empty:
            return view, notice, new
        new = True
        if name == "notice":
            notice = data
        elif name == "snapshot":
            fresh = top_frame.View(data)
            fresh.handovers = view.handovers
            view = fresh
        else:
            view.take(name, data)


def with_terminal(work, *words):
    """As curses.wrapper(), which begins with colors whatever one wants."""
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        return work(window, *words)
    finally:
        window.keypad(False)
        curses.echo()
        curses.nocbreak()
        curses.endwin()


def show(window, router, snapshot, options):
    screen = Screen(window, not options.no_color and not os.environ.get("NO_COLOR"))
    view = top_frame.View(snapshot)
    reader = Reader(router, snapshot["events"][-1]["id"] if snapshot["events"] else None)
    reader.start()
    notice, scroll, new = None, 0, True
    moves = {curses.KEY_UP: -1, curses.KEY_DOWN: 1, curses.KEY_PPAGE: -10, curses.KEY_NPAGE: 10}
    while True:
        view, notice, told = take(view, reader, notice)
        if new or told:
            width, height = screen.size()
            lines, furthest = top_frame.frame(view, width, height, scroll, is_unicode(), notice)
            scroll = min(scroll, furthest)
            screen.draw(lines)
        key = window.getch()
        new = key != -1
        if key in (ord("q"), ord("Q")):
            return 0
        scroll = max(0, scroll + moves.get(key, 0))


def run(options, where):
    router = Router(where)
    snapshot = router.snapshot()
    if options.once:
        width = shutil.get_terminal_size((80, 24)).columns
        lines, _ = top_frame.frame(top_frame.View(snapshot), width, None, 0, is_unicode())
        sys.stdout.write(top_frame.plain(lines))
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Trouble("this is no terminal; baton top --once prints one frame")
    try:
        return with_terminal(show, router, snapshot, options)
    except curses.error as error:
        raise Trouble(f"the terminal ({os.environ.get('TERM', 'TERM is not set')}) cannot show it: {error}; "
                      "baton top --once prints one frame") from None


def main():
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        pass  # one that this machine does not have
    options = read_options(sys.argv[1:])
    address, name = endpoints.named(options.url)
    return command.run(lambda where: run(options, where), options, address, name,
                       lambda text: print(f"baton: {text}", file=sys.stderr))


if __name__ == "__main__":
    sys.exit(main())
