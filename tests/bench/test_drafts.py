#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/drafts.py on a small model: its drafts are as often right as they are to be.

Needs BATON_BUILD and BATON_TINY_MODEL (the program that writes the model).
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class DraftsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="bt-bench-")
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([os.environ["BATON_TINY_MODEL"], cls.model, "--type", "q8_0", "--tied", "--context", "4096"], check=True)
        cls.program = os.path.join(os.environ["BATON_BUILD"], "bench/draft-run")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ask(self, *commands, percent=100, draft_type="q4_0"):
        """@return exit status, what it said of each command, its errors"""
        done = subprocess.run([self.program, self.model, draft_type, "1", "2", "20", "60", str(percent), "off"], text=True,
                              input="".join(f"{c}\n" for c in commands), capture_output=True, timeout=120, check=False)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()[1:]], done.stderr

    def test_given_drafts_are_as_often_right_as_was_asked(self):
        status, (off, *given), errors = self.ask("run off", *["run given"] * 8)
        self.assertEqual((status, off["drafts"]), (0, 0), errors)
        for run in (off, *given):  # of 2 x 59; rounds in which one of the two has not begun do not count
            self.assertTrue(0 < run["tokens"] <= 118, run)
        self.assertGreater(sum(g["drafts"] for g in given), 0)
        for g in given:
            self.assertEqual(g["accepted"], g["drafts"])
        status, (off, *given), errors = self.ask("run off", *["run given"] * 8, percent=0)
        self.assertEqual(status, 0, errors)
        self.assertEqual(sum(g["accepted"] for g in given), 0)

    def test_commands_that_are_not_there_end_the_program(self):
        for commands, words in ((["run given"], "the first run is off"), (["run off", "run tree"], "no command run tree")):
            status, _, errors = self.ask(*commands)
            self.assertNotEqual(status, 0)
            self.assertIn(words, errors)
        status, _, errors = self.ask("run off", "run model", draft_type="none")
        self.assertNotEqual(status, 0)
        self.assertIn("no command run model", errors)

    def test_table_has_a_row_for_each_source_and_acceptance(self):
        done = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench/drafts.py"), "--model", self.model, "--threads", "1", "--json",
                               "--acceptance", "50,90", "--batch", "1,2", "--steps", "64", "--after", "16", "--rounds", "1", "--no-build"],
                              capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([(r["batch"], r["acceptance"], r["source"]) for r in rows],
                         [(n, a, s) for n in (1, 2) for a in (50, 90) for s in ("given", "model")])
        self.assertTrue(all(r["ratio"] > 0 and r["off"] > 0 for r in rows), rows)


if __name__ == "__main__":
    unittest.main()
