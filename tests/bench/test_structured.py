#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/structured.py on a small model: both sides are what they are said to be, and its figures are those of the turns.

Needs BATON_BUILD and BATON_TINY_MODEL (the program that writes the model).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "bench")
sys.path[:0] = [BENCH]
sys.dont_write_bytecode = True
import structured  # noqa: E402


class StructuredTest(unittest.TestCase):
    def test_no_request_comes_twice_and_only_held_ones_have_a_schema(self):
        for unnamed in (False, True):
            args = argparse.Namespace(unnamed=unnamed, output_tokens=9)
            for load in ("streams", "object"):
                for drafts in (False, True):
                    made = {held: [r for turn in range(3) for r in structured.requests(args, load, held, drafts, turn, 4)] for held in (False, True)}
                    for held, some in made.items():
                        self.assertEqual(len({r["prompt"] for r in some}), 12)
                        self.assertEqual(len({r["seed"] for r in some}), 12)
                        self.assertTrue(all(("guided_json" in r, "ignore_eos" in r, "num_draft_tokens" in r) == (held, not held, not drafts) for r in some))
                    named = [all(name in r["prompt"] for name in structured.NAMES) for some in made.values() for r in some]
                    self.assertEqual(set(named), {load == "object" and not unnamed})

    def test_answer_that_is_not_what_was_asked_for_is_told(self):
        whole = json.dumps(dict.fromkeys(structured.NAMES, "x"))
        for text, finish, load, held, n, right in (
                (whole, "stop", "object", True, 50, True), ("{}", "stop", "object", True, 50, False), ('{"full', "length", "object", True, 128, True),
                ("some text", "length", "object", False, 128, True), ("some text", "stop", "object", False, 127, False),
                ('"abc', "length", "streams", True, 128, True), ("abc", "length", "streams", True, 128, False),
                ('"abc', "stop", "streams", True, 100, False)):
            self.assertEqual(structured.fits({"text": text, "finish_reason": finish}, load, held, 128, n), right, (text, load, held))

    def test_ratio_is_the_median_of_those_within_turns(self):
        row = structured.row_of("object", True, 1, [((10, 5), (20, 10)), ((100, 5), (100, 5)), ((10, 1), (50, 4))])
        self.assertEqual((row["ratios"], row["ratio"]), ([2, 1, 5], 2))
        self.assertEqual((row["core_ratios"], row["core_ratio"]), ([2, 1, 4], 2))
        self.assertEqual((row["free"], row["held"], row["turns"]), (10, 50, 3))

    def test_missed_targets_are_told(self):
        rows = [{"load": "streams", "drafts": False, "ratio": 0.95}, {"load": "object", "drafts": False, "ratio": 0.1},
                {"load": "object", "drafts": True, "ratio": 1.39}]
        self.assertEqual(structured.missed(rows, False), [])
        self.assertEqual([w.split(":")[0] for w in structured.missed(rows, True)], ["object with drafts"])
        rows[0]["ratio"] = 0.94
        self.assertEqual([w.split(":")[0] for w in structured.missed(rows, False)], ["streams"])

    def test_runs_on_a_small_model(self):
        with tempfile.TemporaryDirectory(prefix="bt-bench-") as folder:
            model = os.path.join(folder, "tiny.gguf")
            subprocess.run([os.environ["BATON_TINY_MODEL"], model, "--type", "q4_1", "--tied", "--context", "1024"], check=True)
            done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, "structured.py"), "--model", model, "--threads", "1", "--streams", "3",
                                   "--turns", "2", "--output-tokens", "200", "--json"], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        out = json.loads(done.stdout)
        self.assertEqual([(r["load"], r["drafts"], r["clients"], r["turns"]) for r in out["rows"]],
                         [("streams", False, 3, 2), ("object", False, 1, 2), ("object", True, 1, 2)])
        for r in out["rows"]:
            self.assertTrue(all(x > 0 for x in r["ratios"] + r["core_ratios"]) and len(r["ratios"]) == 2)
        self.assertTrue(0 < out["drafted"] and 0 <= out["accepted"] <= out["drafted"])


if __name__ == "__main__":
    unittest.main()
