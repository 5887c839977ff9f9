# SPDX-License-Identifier: Apache-2.0
"""How far a long thing is: a bar on a terminal, a line per tenth elsewhere."""
import shutil
import sys
import time

BAR = 24
DRAW_S = 0.1
RATE_S = 5  # the rate is of the last so many seconds


def size_text(n):
    """Bytes for people: 938 bytes, 98.4 MB."""
    if n < 1000:
        return f"{n} bytes"
    for unit in ("kB", "MB", "GB", "TB"):
        n /= 1000
        if n < 999.95 or unit == "TB":
            return f"{n:.1f} {unit}"
    return None


def time_text(seconds):
    """1:02:03, 2:03, 0:03"""
    seconds = int(seconds + 0.5)
    text = f"{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{seconds // 3600}:{text}" if seconds >= 3600 else text.lstrip("0") if seconds >= 600 else text[1:]


class Progress:
    """Of `total` bytes (None: nobody knows), of which `done` were there before."""

    def __init__(self, label, total, done=0, stream=None, clock=time.monotonic):
        self.label, self.total, self.done = label, total, done
        self.stream, self.clock = stream or sys.stderr, clock
        self.terminal = self.stream.isatty()
        self.drawn = None
        self.tenth = self._tenth()
        self.past = [(clock(), done)]

    def amount(self, n):
        """So much, for people; a rate is no whole number."""
        return size_text(int(n))

    def share(self):
        return f"{self.amount(self.done)} of {self.amount(self.total)}"

    def _tenth(self):
        return 10 * self.done // self.total if self.total else 0

    def add(self, n):
        self.done += n
        now = self.clock()
        if self.terminal:
            if self.drawn is None or now - self.drawn >= DRAW_S or self.done == self.total:
                self.drawn = now
                self.stream.write("\r\033[K" + self.line(now)[:shutil.get_terminal_size().columns - 1])
                self.stream.flush()
        elif self._tenth() > self.tenth:
            self.tenth = self._tenth()
            print(f"{self.label}: {10 * self.tenth} % of {self.amount(self.total)}", file=self.stream, flush=True)

    def back(self, n):
        """So many bytes are to come once more."""
        self.done -= n
        self.tenth = self._tenth()
        self.past = [(self.clock(), self.done)]

    def rate(self, now):
        """Bytes in a second, or None while that cannot be said."""
        if now - self.past[-1][0] >= DRAW_S:
            self.past.append((now, self.done))
        while len(self.past) > 2 and now - self.past[1][0] > RATE_S:
            self.past.pop(0)
        begin, done = self.past[0]
        return (self.done - done) / (now - begin) if now - begin >= DRAW_S else None

    def line(self, now):
        rate = self.rate(now)
        text = self.amount(self.done)
        if self.total:
            filled = BAR * self.done // self.total
            text = f"[{'#' * filled}{'.' * (BAR - filled)}] {100 * self.done // self.total:3d} %  {self.share()}"
        if rate:
            text += f", {self.amount(rate)}/s"
            if self.total and self.done < self.total:
                text += f", {time_text((self.total - self.done) / rate)} left"
        return f"{self.label} {text}"

    def end(self):
        """What is said next stands on a line of its own."""
        if self.drawn is not None:
            self.stream.write("\n")
            self.stream.flush()
            self.drawn = None
