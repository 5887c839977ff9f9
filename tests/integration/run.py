#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that need several real processes.

Usage: run.py [--long] [--jobs N] [NAME ...]
Every function test_* of the test_*.py files beside this one is a test, and has a
process of its own. N of them run at a time (default: two more than cores, at most 4), most of
which wait; those of modules that say `ALONE = True` run by themselves, behind the
others. Prints `ok NAME (SECONDS s, SECONDS s of CPU)`, `not ok NAME` with the
reason, or `skip NAME: why`, and a last line `N passed, N failed, N skipped`.
"""
import glob
import importlib
import os
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

PASSED, FAILED, SKIPPED = range(3)
MOST_JOBS = 4  # more would be too many for the memory of small machines


def collect(wanted):
    """@return tests that may have company, and those that may not"""
    together, alone = [], []
    here = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(os.path.join(here, "test_*.py"))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        for name in dir(module):
            if name.startswith("test_") and (not wanted or any(w in name for w in wanted)):
                (alone if getattr(module, "ALONE", False) else together).append((name, getattr(module, name)))
    return together, alone


def run_one(test):
    """@return how it went, in this process"""
    try:
        test()
        return PASSED
    except harness.Skip as why:
        print(why)
        return SKIPPED
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc(file=sys.stdout)
        return FAILED


class Running:
    """A test in a process of its own."""

    def __init__(self, name, test, slot, slots):
        self.name, self.slot = name, slot
        self.output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.start = time.monotonic()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = FAILED
            try:
                os.dup2(self.output.fileno(), 1)
                harness.use_ports_of(slot, slots)
                status = run_one(test)
                sys.stdout.flush()
            finally:
                os._exit(status)

    def end(self, status, used):
        """Say how it went. @return that"""
        seconds = f"{time.monotonic() - self.start:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU"
        self.output.seek(0)
        said = self.output.read()
        self.output.close()
        code = os.waitstatus_to_exitcode(status)
        if code == SKIPPED:
            print(f"skip {self.name}: {said.strip()}", flush=True)
            return code
        print(said, end="")
        if code == PASSED:
            print(f"ok {self.name} ({seconds})", flush=True)
            return code
        if code < 0:
            print(f"it ended by signal {-code}")
        print(f"not ok {self.name} ({seconds})", flush=True)
        return FAILED


def run_all(tests, jobs, counts):
    """As many at a time as that; counts[how it went] are added up."""
    waiting, running = list(tests), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                taken = {one.slot for one in running.values()}
                one = Running(*waiting.pop(0), next(i for i in range(jobs) if i not in taken), jobs)
                running[one.pid] = one
            pid, status, used = os.wait4(-1, 0)
            if pid in running:
                counts[running.pop(pid).end(status, used)] += 1
    finally:
        for pid in running:  # after Ctrl-C: they stop their own
            os.kill(pid, signal.SIGINT)
            os.waitpid(pid, 0)


def main():
    args, names, jobs = sys.argv[1:], [], min((os.cpu_count() or 1) + 2, MOST_JOBS)
    while args:
        word = args.pop(0)
        if word == "--jobs" and args and args[0].isdecimal() and int(args[0]) > 0:
            jobs = int(args.pop(0))
        elif word == "--long":
            os.environ["BATON_LONG"] = "1"
        elif word.startswith("-"):
            print(__doc__)
            return 0 if word in ("-h", "--help") else 2
        else:
            names.append(word)
    os.environ.setdefault("BATON_LONG", "")
    counts = [0, 0, 0]
    together, alone = collect(names)
    if names and not together and not alone:
        print(f"no test's name has {' or '.join(names)}")
        return 2
    run_all(together, jobs, counts)
    run_all(alone, 1, counts)
    print(f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped")
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
