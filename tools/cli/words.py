# SPDX-License-Identifier: Apache-2.0
"""What the commands of cli/ share about their words: near misses, numbers, errors."""
import argparse
import difflib
import math
import os

# What a person types: in the source tree the script beside this folder.
COMMAND = "./baton" if os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../baton")) else "baton"


def typed(text):
    """A text that is written for the source tree."""
    return text.replace("./baton", COMMAND)


class Trouble(Exception):
    """Something a person should read; the command ends with status 1."""

    def __str__(self):
        return typed(super().__str__())


def shown(value, mark="?"):
    """What a stranger may have chosen, without what would be more than text to a terminal."""
    return "".join(c if c.isprintable() else mark for c in str(value))


def in_a_line(value):
    """What a stranger said, in one line that steers no terminal."""
    return shown(" ".join(str(value).splitlines()))


def near(word, known):
    """@return the one of `known` that was meant, or None"""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def suggestion(word, known):
    """@return "; did you mean X?", or nothing"""
    found = near(word, known)
    return f"; did you mean {found}?" if found else ""


def finite(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def at_least_0(text):
    value = finite(text)
    if value < 0:
        raise ValueError(text)
    return value


def above_0(text):
    value = finite(text)
    if value <= 0:
        raise ValueError(text)
    return value


def count(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


for kind, name in ((finite, "number"), (at_least_0, "number from 0"), (above_0, "number above 0"), (count, "count from 1")):
    kind.__name__ = name  # argparse says: invalid NAME value


class Parser(argparse.ArgumentParser):
    """Options in any order, between unquoted words too; a near miss is named."""

    def __init__(self, description="", **more):
        super().__init__(description=typed(description), formatter_class=argparse.RawDescriptionHelpFormatter, **more)

    def read(self, argv):
        # What stands behind -- is text; intermixed parsing would read it as options.
        end = argv.index("--") if "--" in argv else len(argv)
        arguments, unknown = self.parse_known_intermixed_args(argv[:end])
        if end < len(argv):
            arguments.words += argv[end + 1:]
        for word in unknown:
            name = word.partition("=")[0]
            options = [s for action in self._actions for s in action.option_strings if s.startswith("--")]
            self.error(f"unknown option {name}{suggestion(name, options)}"
                       + (" (a text that begins so stands behind --)" if self.takes_words() else ""))
        return arguments

    def takes_words(self):
        return any(not action.option_strings for action in self._actions)

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\nSee {self.prog} --help.\n")
