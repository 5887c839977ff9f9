# SPDX-License-Identifier: Apache-2.0
"""The test of a source file is found by its path.

`router/core/attempt.c` is tested by a file of `tests/unit/router/core/`: `test_attempt.c`, `test_attempt_….c`, or, for a source
of several words, the test of its first ones (`kv_links.c`: `test_kv.c`). Tests of `launcher/` are in `tests/launch/`. Sources
from before this rule are in LIST, which only shrinks.
"""
import os

LIST = "tests/lint/sources_without_test.txt"
FOLDERS = {"tests/launch": "launcher"}
NOT_TESTED_SO = ("tests/", "bench/")


def tested_folder(path):
    folder = os.path.dirname(path)
    if folder.startswith("tests/unit/"):
        return folder[len("tests/unit/"):]
    return FOLDERS.get(folder)


def covers(test, source):
    return test == source or test.startswith(source + "_") or source.startswith(test + "_")


def without_test(paths):
    """Sources of `paths` whose test is not among them."""
    tests = {}
    for path in paths:
        name, ending = os.path.splitext(os.path.basename(path))
        folder = tested_folder(path)
        if folder and name.startswith("test_") and ending in (".c", ".cc", ".py"):
            tests.setdefault(folder, []).append(name[len("test_"):])
    found = []
    for path in paths:
        if path.endswith(".c") and not path.startswith(NOT_TESTED_SO):
            name = os.path.basename(path)[:-2]
            if not any(covers(test, name) for test in tests.get(os.path.dirname(path), [])):
                found.append(path)
    return found


def check(paths, listed):
    """Reasons: a source without a test that the list does not have, and a line of the list that is not needed any more."""
    listed = [line for line in listed.split("\n") if line and not line.startswith("#")]
    missing = without_test(paths)
    bad = [f"{path} has no test: tests/unit/{path[:-2].rpartition('/')[0]}/test_{os.path.basename(path)}"
           for path in missing if path not in listed]
    bad += [f"{LIST}: {path} is gone or has a test: remove the line" for path in listed if path not in missing]
    if listed != sorted(set(listed)):
        bad.append(f"{LIST} is not sorted")
    return bad
