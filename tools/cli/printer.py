# SPDX-License-Identifier: Apache-2.0
"""Answers on standard output, what is said about them on standard error."""
import re
import sys

from words import in_a_line

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed


class Printer:
    """Pieces of answers on standard output. On a terminal nothing that a model says can steer it."""

    def __init__(self):
        self.safe = sys.stdout.isatty()
        self.in_line = False

    def piece(self, text):
        if self.safe:
            text = CONTROL.sub("\ufffd", text)
        sys.stdout.write(text)
        sys.stdout.flush()
        self.in_line = not text.endswith("\n")

    def end_line(self):
        if self.in_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self.in_line = False

    def complain(self, text):
        """On a line of its own, without a byte more for who reads standard output."""
        if self.in_line and self.safe:
            self.end_line()
        print(f"baton: {in_a_line(text)}", file=sys.stderr)


def say_end(answer, options):
    """What is to be known of an answer that is over."""
    if answer.finish == "length":
        print(f"[cut at {answer.n_tokens()} tokens]", file=sys.stderr)
    if options.stats:
        print(stats_line(answer), file=sys.stderr)


def stats_line(answer):
    if answer.first is None:
        return "[no tokens]"
    n = answer.n_tokens()
    span = answer.last - answer.first
    rate = f"{(n - 1) / span:.1f} tokens/s" if n > 1 and span > 0 else "no rate of one piece"
    unit = "tokens" if answer.usage else "pieces"
    return f"[{n} {unit}, {rate}, first token after {1e3 * (answer.first - answer.sent):.0f} ms]"
