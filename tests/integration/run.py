#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that need several real processes.

Usage: run.py [--long] [NAME ...]
Every function test_* of the test_*.py files beside this one is a test. Prints
`ok NAME`, `not ok NAME` with the reason, or `skip NAME: why`, and a last line
`N passed, N failed, N skipped`.
"""
import glob
import importlib
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402


def collect(wanted):
    tests = []
    here = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(os.path.join(here, "test_*.py"))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        for name in dir(module):
            if name.startswith("test_") and (not wanted or any(w in name for w in wanted)):
                tests.append((name, getattr(module, name)))
    return tests


def main():
    args = sys.argv[1:]
    strange = [a for a in args if a.startswith("-") and a != "--long"]
    if strange:
        print(__doc__)
        return 0 if strange in (["-h"], ["--help"]) else 2
    os.environ["BATON_LONG"] = "1" if "--long" in args else os.environ.get("BATON_LONG", "")
    passed = failed = skipped = 0
    for name, test in collect([a for a in args if not a.startswith("--")]):
        start = time.monotonic()
        try:
            test()
            passed += 1
            print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
        except harness.Skip as why:
            skipped += 1
            print(f"skip {name}: {why}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"not ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
