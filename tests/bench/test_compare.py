#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/compare.py: two trees run a benchmark in turns, and what both have is compared."""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "bench")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True
import compare  # noqa: E402


class CompareTest(unittest.TestCase):
    def test_elements_of_lists_are_named_by_their_texts_and_descriptions_left_out(self):
        out = {"options": {"n": 1}, "commit": "x", "rows": [{"path": "shm", "ms": 2, "on": True}, {"ms": 3}], "total": 4.5}
        self.assertEqual(compare.figures(out), {"rows.0:shm.ms": 2, "rows.1.ms": 3, "total": 4.5})

    def test_the_ratio_is_the_median_of_the_rounds_of_what_all_have(self):
        pairs = [({"a": 2, "old": 1}, {"a": 3, "new": 1}), ({"a": 2, "old": 1}, {"a": 2, "new": 1}), ({"a": 4, "old": 1}, {"a": 5, "new": 1})]
        self.assertEqual(compare.compare(pairs, ""),
                         [{"figure": "a", "before": 2, "now": 3, "ratio": 1.25, "least": 1.0, "greatest": 1.5}])
        self.assertEqual(compare.compare(pairs, "b"), [])

    def test_trees_take_turns_with_their_own_program_and_the_options_of_the_benchmark(self):
        with tempfile.TemporaryDirectory() as d:
            log = os.path.join(d, "log")
            for name, ms in (("other", 2), ("this", 3)):
                os.mkdir(os.path.join(d, name))
                path = os.path.join(d, name, "baton")
                with open(path, "w", encoding="utf-8") as f:
                    f.write(f'#!/bin/sh\necho "{name} $*" >> {log}\necho building\necho \'{{"ms": {ms}}}\'\n')
                os.chmod(path, stat.S_IRWXU)
            code = f"import sys, compare\ncompare.ROOT = {os.path.join(d, 'this')!r}\ncompare.main()"
            done = subprocess.run([sys.executable, "-B", "-c", code, os.path.join(d, "other"), "serve", "--rounds", "2", "--json", "--",
                                   "--requests", "8"], env={**os.environ, "PYTHONPATH": BENCH}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["rows"][0]["ratio"], 1.5)
            done = subprocess.run([sys.executable, "-B", "-c", code, os.path.join(d, "other"), "serve", "--rounds", "1", "--figures", "no"],
                                  env={**os.environ, "PYTHONPATH": BENCH}, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("no figure is in every run and matches no", done.stderr)
            with open(log, encoding="utf-8") as f:
                said = "bench serve --requests 8 --json"
                self.assertEqual(f.read().splitlines()[:4], [f"{tree} {said}" for tree in ("other", "this", "this", "other")])

    def test_a_folder_that_is_no_work_tree_is_refused(self):
        done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, "compare.py"), "/proc", "serve"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/proc is no work tree of Baton", done.stderr)


if __name__ == "__main__":
    unittest.main()
