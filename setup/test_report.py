#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what meson knows about tests.

Usage: test_report.py results TESTLOG.json
       test_report.py targets BUILD_DIR [--suite SUITE ... | --no-suite SUITE ... | NAME...]
       test_report.py names BUILD_DIR [--suite SUITE ... | WORD...]
       test_report.py suites BUILD_DIR NAME...

results: a line per test case (`ok`, `not ok`, `skip`), the output of programs
that failed, and a last line `N passed, N failed, N skipped`. A program that
counts its own cases (cmocka, unittest, or a last line of that form) counts as
many, any other as one; one that failed counts at least one failure.
targets: what to build for these tests; with --no-suite all that is built by
default, but for programs of those suites' tests alone. names: tests whose name is a WORD or,
where none is, has the WORD in it; or tests of these suites. suites: of these
tests, by name.
"""
import json
import os
import re
import subprocess
import sys

TOTAL = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
CMOCKA = re.compile(r"^\[\s+(RUN|OK|FAILED|SKIPPED|ERROR)\s+\] (\w+)\s*$", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in [\d.]+s\n+(OK|FAILED)"
                      r"(?: \((.*)\))?\s*$", re.M)
ENDED_WELL = ("OK", "EXPECTEDFAIL", "SKIP")


class Counts:
    """Test cases of one program by outcome."""

    def __init__(self):
        self.passed, self.failed, self.skipped = [], [], []


def cmocka_cases(stdout):
    counts = Counts()
    running = None
    for word, name in CMOCKA.findall(stdout):
        if word == "RUN":
            running = name
        elif name == running:
            {"OK": counts.passed, "SKIPPED": counts.skipped}.get(
                word, counts.failed).append(name)
            running = None
    if running:
        counts.failed.append(running)  # it ended the program
    return counts


def unittest_cases(match):
    counts = Counts()
    n = int(match.group(1))
    extra = dict(re.findall(r"(\w+)=(\d+)", match.group(3) or ""))
    failed = sum(int(extra.get(key, 0)) for key in ("failures", "errors"))
    skipped = int(extra.get("skipped", 0))
    counts.failed = ["case"] * failed
    counts.skipped = ["case"] * skipped
    counts.passed = ["case"] * (n - failed - skipped)
    return counts


def cases(test):
    """The Counts of one entry of meson's log."""
    stdout, stderr = test.get("stdout") or "", test.get("stderr") or ""
    total = list(TOTAL.finditer(stdout))
    unit = list(UNITTEST.finditer(stderr)) + list(UNITTEST.finditer(stdout))
    if CMOCKA.search(stdout):
        counts = cmocka_cases(stdout)
    elif unit:
        counts = unittest_cases(unit[-1])
    elif total:
        counts = Counts()
        counts.passed, counts.failed, counts.skipped = (
            ["case"] * int(n) for n in total[-1].groups())
    else:
        counts = Counts()
        if test["result"] == "SKIP":
            counts.skipped.append("program")
        elif test["result"] in ENDED_WELL:
            counts.passed.append("program")
    if test["result"] not in ENDED_WELL and not counts.failed:
        counts.failed.append("program")
    return counts


def results(path):
    totals = [0, 0, 0]
    try:
        with open(path, encoding="utf-8") as file:
            tests = [json.loads(line) for line in file if line.strip()]
    except FileNotFoundError:
        tests = []
    for test in tests:
        name = test["name"].split(" / ")[-1]
        counts = cases(test)
        for i, (word, group) in enumerate((("ok", counts.passed),
                                           ("not ok", counts.failed),
                                           ("skip", counts.skipped))):
            totals[i] += len(group)
            for case in group:
                print(f"{word} {name}: {case}")
        if counts.failed:
            print(f"--- {name}: {test['result']}, exit status "
                  f"{test.get('returncode')}")
            for stream in ("stdout", "stderr"):
                text = (test.get(stream) or "").rstrip("\n").split("\n")
                print("\n".join(f"    {line}" for line in text[-60:]))
    if not tests:
        print(f"not ok: no test ran ({path})")
        totals[1] += 1
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 0 if totals[1] == 0 else 1


def introspect(build, what="--tests"):
    done = subprocess.run(["meson", "introspect", what, build],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def used_outputs(tests, outputs, build):
    """Which of these files the tests name, relative to the build folder.

    meson writes the program itself absolute, one that is an argument relative.
    """
    named = {os.path.normpath(os.path.join(build, word))
             for test in tests for word in test["cmd"]}
    return sorted(os.path.relpath(path, build) for path in named & outputs)


def of_suites(tests, suites):
    return [t for t in tests
            if any(s.split(":")[-1] in suites for s in t["suite"])]


def without_suites(build, tests, suites_without):
    """What is built by default, but for programs of tests of these suites alone."""
    built = [target for target in introspect(build, "--targets") if target["build_by_default"]]
    programs = {path for target in built if target["type"] == "executable" for path in target["filename"]}
    theirs = of_suites(tests, suites_without)
    own = set(used_outputs(theirs, programs, build)) - set(used_outputs([t for t in tests if t not in theirs], programs, build))
    return sorted({os.path.relpath(path, build) for target in built for path in target["filename"]} - own)


def targets(build, selectors):
    build = os.path.abspath(build)
    tests = introspect(build)
    if selectors[:1] == ["--no-suite"]:
        print("\n".join(without_suites(build, tests, selectors[1::2])))
        return 0
    if selectors[:1] == ["--suite"]:
        chosen = of_suites(tests, selectors[1::2])
    else:
        chosen = [t for t in tests if t["name"] in selectors]
        missing = set(selectors) - {t["name"] for t in chosen}
        if missing:
            sys.exit(f"no such tests: {' '.join(sorted(missing))}")
    built = introspect(build, "--targets")
    outputs = {path for target in built for path in target["filename"]}
    needed = {name for test in chosen for name in test.get("depends", ())}
    others = {os.path.relpath(path, build) for target in built if target["id"] in needed
              for path in target["filename"]}
    print("\n".join(sorted(others | set(used_outputs(chosen, outputs, build)))))
    return 0


def names(build, words):
    tests = introspect(build)
    if words[:1] == ["--suite"]:
        tests, words = of_suites(tests, words[1::2]), [""]
    known = [test["name"] for test in tests]
    words = [(word, word in known) for word in words]
    for name in known:
        if any(name == word if is_whole else word in name for word, is_whole in words):
            print(name)
    return 0


def suites(build, chosen):
    print("\n".join(sorted({suite.split(":")[-1] for test in introspect(build) if test["name"] in chosen
                            for suite in test["suite"]})))
    return 0


def main():
    command, path, *rest = sys.argv[1:]
    return {"results": lambda: results(path),
            "targets": lambda: targets(path, rest),
            "names": lambda: names(path, rest),
            "suites": lambda: suites(path, rest)}[command]()


if __name__ == "__main__":
    sys.exit(main())
