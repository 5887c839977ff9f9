# SPDX-License-Identifier: Apache-2.0
"""Asks baton-grammar-texts which texts a description of answers has, and for random texts of it."""
import collections
import os
import subprocess

JSON_OBJECT, JSON_SCHEMA, REGEX, CHOICE, EBNF = range(5)  # of common/grammar/compile.h

# why: of a refusal, else None; has: for each text, whether the description has it; walks: random texts, None for one
# that did not end
Answer = collections.namedtuple("Answer", "why has walks")


class GrammarTexts:
    """A running baton-grammar-texts; `with` ends it."""

    def __init__(self, build):
        program = os.path.join(build, "tests/support/baton-grammar-texts")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"baton-grammar-texts ended with {self.process.wait()}")
        return line

    def ask(self, kind, description, texts=(), walks=0, seed=1, compact=False, lenient=True):
        """@param description, texts  bytes"""
        parts = [b"%d %d %d %d %d %d %d\n" % (kind, compact, lenient, len(texts), walks, seed, len(description)), description]
        for text in texts:
            parts.append(b"%d\n" % len(text) + text)
        self.process.stdin.write(b"".join(parts))
        self.process.stdin.flush()
        head = self.line().split()
        if head[0] == b"refused":
            return Answer(self.process.stdout.read(int(head[2])).decode(), None, None)
        has = [bit == ord("1") for bit in self.line().strip()]
        found = []
        for _ in range(walks):
            n = int(self.line())
            found.append(self.process.stdout.read(n) if n >= 0 else None)
        return Answer(None, has, found)
