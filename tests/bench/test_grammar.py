#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/grammar.py: its own cases are answered right, and what it counts in a corpus is what is there.

Needs BATON_BUILD and BATON_TINY_MODEL (the program that writes the model).
"""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import _grammar_engines  # noqa: E402
import grammar  # noqa: E402


def said(*what, error=None, first=1000, masks=(1000, 3000)):
    """An engine's line: of each answer what came of it."""
    if error:
        return {"error": error}
    return {"first_ns": first, "runs": [{"what": w, "mask_ns": list(masks), "tokens": [1]} for w in what]}


class CountsTest(unittest.TestCase):
    def setUp(self):
        self.case = grammar.Case("c", "json_schema", "{}", ["a", "b"], [True, False])

    def test_outcome_of_a_schema(self):
        for got, outcome in ((said("whole", "refused 3"), grammar.RIGHT), (said("whole", "open"), grammar.RIGHT),
                             (said("refused 0", "refused 0"), grammar.OVER), (said("failed", "open"), grammar.OVER),
                             (said("whole", "whole"), grammar.WRONG), (said("refused 2", "whole"), grammar.WRONG),
                             (said(error="not supported: /a/not: x"), grammar.REFUSED), ({"lost": "no answer"}, grammar.LOST)):
            tally = grammar.Tally()
            self.assertEqual(tally.add(self.case, got, True)[0], outcome, got)
            self.assertEqual(tally.row("x")["outcomes"], {o: int(o == outcome) for o in grammar.OUTCOMES})

    def test_instances_are_counted_once_and_times_each_round(self):
        tally = grammar.Tally()
        for first in (True, False):
            tally.add(self.case, said("whole", "whole"), first)
        row = tally.row("x")
        self.assertEqual([row[k] for k in ("valid", "valid_written", "invalid", "invalid_written", "masks")], [1, 1, 1, 1, 8])
        self.assertEqual((row["mask_mean"], row["mask_max"], row["first_p50"]), (2, 3, 1))

    def test_reasons_name_the_keyword_and_no_member_of_the_schema(self):
        for error, words in (("not supported: /properties/secret/not: several", "not supported: not: several"),
                             ("not supported: /properties/secret: up to 64", "not supported: a member: up to N"),
                             ("not supported: /patternProperties/^(?!x).*$: regex, byte 1: look-ahead",
                              "not supported: patternProperties: regex, byte N: look-ahead"),
                             ("too large: it has more than 65536 bytes", "too large: it has more than N bytes")):
            self.assertEqual(grammar.reason(error), words)

    def test_ratio_is_over_cases_that_both_have(self):
        def times(first, *masks):
            return {"first": first, "masks": list(masks)}
        turns = [[{"Baton": times(10, 1, 1), "p": times(20, 2, 4)}, {"Baton": times(10, 100)}],
                 [{"Baton": times(10, 2), "p": times(40, 8)}, {"p": times(1, 1)}]]
        self.assertEqual(grammar.ratios(turns, "Baton", "p"), [3, 3.5])

    def test_missed_targets_are_told(self):
        row = {"engine": "Baton", **{name: most for name, most in grammar.TARGETS}, "outcomes": dict.fromkeys(grammar.OUTCOMES, 0)}
        peer = {"engine": "llguidance", "mask_ratio": 1.0}
        beside = {"case": "a", "beside": "b", "ratio": 1.2}
        self.assertEqual(grammar.missed({"rows": [row, peer], "beside": [beside]}), [])
        worse = dict(row, mask_p99=300.1, outcomes={**row["outcomes"], grammar.WRONG: 2})
        words = grammar.missed({"rows": [worse, dict(peer, mask_ratio=0.9)], "beside": [dict(beside, ratio=1.3)]})
        self.assertEqual([w.split(" ")[0] for w in words], ["mask", "a:", "llguidance", "2"])


class EngineTest(unittest.TestCase):
    def test_engine_that_ends_or_hangs_is_started_again(self):
        with tempfile.TemporaryDirectory(prefix="bt-bench-") as folder:
            path = os.path.join(folder, "engine")
            with open(path, "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\necho '{}'\nwhile read -r line; do case $line in\n*end*) exit 3;;\n*hang*) exec tail -f /dev/null;;\n"
                        "*) echo '{\"ok\": 1}';; esac; done\n")
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
            engine = _grammar_engines.Engine("x", [path], 0.2)
            self.assertEqual(engine.ask("end"), {"lost": "ended with status 3"})
            self.assertEqual(engine.ask("hang"), {"lost": "no answer within 0.2 s"})
            engine.limit_s = 60
            self.assertEqual(engine.ask("say"), {"ok": 1})
            engine.close()


class BenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="bt-bench-")
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([os.environ["BATON_TINY_MODEL"], cls.model, "--type", "q8_0", "--tied", "--context", "4096"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def bench(self, *options):
        return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench/grammar.py"), "--model", self.model, "--no-build", *options],
                              capture_output=True, text=True, timeout=240, check=False)

    def test_own_cases_are_answered_right(self):
        done = self.bench("--json", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        out = json.loads(done.stdout)
        (row,) = out["rows"]
        self.assertEqual(row["bad"], [])
        self.assertEqual(row["outcomes"][grammar.RIGHT], len(out["cases"]))
        self.assertGreaterEqual(len(out["cases"]), 30)
        self.assertEqual((row["valid_written"], row["invalid_written"]), (row["valid"], 0))
        self.assertGreater(row["invalid"], 25)
        self.assertEqual([b["case"] for b in out["beside"]], ["text up to 2^20"])

    def test_corpus_of_both_forms_is_counted(self):
        with tempfile.TemporaryDirectory(prefix="bt-bench-") as folder:
            os.mkdir(os.path.join(folder, "deep"))
            right = {"schema": {"type": "integer", "minimum": 3}, "tests": [{"data": 4, "valid": True}, {"data": 2, "valid": False}]}
            # An instance that is called invalid though it is valid is what an answer that is accepted wrongly looks like.
            wrong = {"schema": {"type": "integer"}, "tests": [{"data": 4, "valid": False}]}
            over = {"schema": {"type": "integer"}, "tests": [{"data": "x", "valid": True}, {"data": 1, "valid": True}]}
            plain = {"type": "object", "properties": {"schema": {"type": "string"}}}
            refused = {"type": "string", "pattern": "(a)\\1"}
            for name, value in (("right", right), ("wrong", wrong), ("deep/over", over), ("deep/plain", plain), ("refused", refused)):
                with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
                    json.dump(value, f)
            done = self.bench("--json", "--corpus", folder)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            out = json.loads(done.stdout)
            (row,) = out["rows"]
            self.assertEqual(row["outcomes"], {"right": 2, "not written": 1, "refused": 1, "accepted though invalid": 1, "lost": 0})
            self.assertEqual([(n, o) for n, o, _ in row["bad"]], [("over", "not written"), ("refused", "refused"), ("wrong", "accepted though invalid")])
            self.assertEqual([row[k] for k in ("valid", "valid_written", "invalid", "invalid_written")], [3, 2, 2, 1])
            self.assertIn("pattern", row["reasons"][0][0])
            self.assertTrue(any("accepted though" in words for words in out["missed"]))
            done = self.bench("--corpus", folder, "--wrong", "--sample", "4")
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            self.assertIn("not written: over: instance 0: refused 0", done.stdout)

    def test_wrong_options_are_told(self):
        for options, words in ((("--peers", "outlines"), "--peers is of"), (("--case", "no such"), "no case is called no such"),
                               (("--corpus", "/nonexistent"), "no folder"), (("--corpus", "/", "--case", "x"), "--case chooses")):
            done = self.bench(*options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
