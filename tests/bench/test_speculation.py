#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/speculation.py on a small model: sides that are asked in turns give the same answers, and the figures are those of
the answers.

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
import speculation  # noqa: E402


class SpeculationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="bt-bench-")
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([os.environ["BATON_TINY_MODEL"], cls.model, "--type", "q4_1", "--tied", "--context", "4096"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_bench(self, *options, status=0):
        done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, "speculation.py"), "--model", self.model, "--threads", "1",
                               "--json", *options], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, status, done.stdout[-2000:] + done.stderr[-2000:])
        return json.loads(done.stdout) if status == 0 else done.stderr

    def test_automatic_number_is_held_against_fixed_ones_and_off(self):
        out = self.run_bench("--controller", "--quick", "--minutes", "0.01", "--output-tokens", "24", "--fixed", "2,8")
        self.assertEqual([(r["kind"], r["clients"]) for r in out["workloads"]], [("edit", 1), ("free", 4)])
        for r in out["workloads"]:
            self.assertEqual(list(r["rates"]), ["off", "auto", "2", "8"])
            self.assertEqual(r["different"], 0)
            self.assertEqual(r["best"], max("2", "8", key=lambda n, rates=r["rates"]: rates[n]))
            self.assertAlmostEqual(r["to_fixed"], r["rates"]["auto"] / r["rates"][r["best"]])
            self.assertAlmostEqual(r["to_off"], r["rates"]["auto"] / r["rates"]["off"])
            self.assertGreaterEqual(r["requests"], 2 * r["clients"])
        row, = out["never_worse"]
        self.assertEqual((row["kind"], row["clients"], row["different"]), ("copy", 4, 0))
        self.assertGreater(row["tokens_ratio"], 0)
        self.assertAlmostEqual(row["itl_p99_ratio"], row["itl_ms"]["auto"]["p99"] / row["itl_ms"]["off"]["p99"])

    def test_whole_run_has_twenty_workloads_and_both_temperatures_by_clients(self):
        args = argparse.Namespace(types=["own", "BF16"], quick=False, kinds=[*speculation.KINDS, "copy"])
        todo, worse = speculation.workloads(args), speculation.worse_workloads(args)
        self.assertEqual(len(set(todo)), 20)
        self.assertEqual({w.clients for w in worse}, {1, 4, 8, 32})
        self.assertEqual(len(set(worse)), 16)
        for w in todo + worse:
            self.assertTrue(speculation.prompts_of(w.kind), w)

    def test_kinds_choose_workloads_and_never_worse_rows(self):
        args = argparse.Namespace(types=["own"], quick=False, kinds=["edit", "copy"])
        self.assertEqual([(w.kind, w.clients) for w in speculation.workloads(args)], [("edit", 1), ("edit", 4)])
        self.assertEqual([(w.kind, w.clients) for w in speculation.worse_workloads(args)], [("copy", n) for n in (1, 4, 8, 32)])
        self.assertEqual(speculation.controller_panels({"workloads": []}), [])

    def test_kinds_that_nothing_would_take_are_refused(self):
        for options, why in ((("--controller", "--kinds", "edits"), "--kinds is of edit"), (("--kinds", "edit"), "--kinds chooses workloads"),
                             (("--controller", "--quick", "--kinds", "edit"), "--kinds chooses workloads")):
            self.assertIn(why, self.run_bench(*options, status=2))

    def test_more_drafts_than_a_worker_verifies_are_refused(self):
        self.assertIn("at most 16", self.run_bench("--controller", "--fixed", "17", status=2))

    def test_answers_that_drafts_change_are_counted_for_each_engine(self):
        def side(rate, answers):
            def ask(task):
                asked.append(rate)
                return answers[task["seed"]], speculation.Streamed("", 11, 10 / rate, 0.1, [])
            return ask

        asked = []
        sides = {("Baton", "off"): side(100, "abc"), ("Baton", "ngram"): side(150, "abc"),
                 ("llama.cpp", "off"): side(50, "xyz"), ("llama.cpp", "lookup 2"): side(40, "xzz")}
        rows = speculation.peer_rows(sides, [{"seed": i, "temperature": 0.7} for i in range(3)], lambda: None)
        self.assertEqual([(r["different"], round(r["ratio"], 2), r["requests"]) for r in rows],
                         [(0, 1.0, 3), (0, 1.5, 3), (0, 1.0, 3), (1, 0.8, 3)])
        self.assertEqual(asked, [100, 150, 50, 40, 150, 50, 40, 100, 50, 40, 100, 150])  # another one begins each turn

    def test_time_of_a_message_is_that_of_its_tokens(self):
        # Three tokens 30 ms after the first, one 10 ms later: 10 ms each; messages 30 and 10 ms.
        one = speculation.Streamed("", 5, 0.04, 0.1, [(0.03, 3), (0.01, 1)])
        got = speculation.side_figures([one], 1)
        self.assertAlmostEqual(got["itl_ms"]["p99"], 10)
        self.assertAlmostEqual(got["message_ms"]["p50"], 20)
        self.assertAlmostEqual(got["decode_tokens_per_s"], 100)
        self.assertAlmostEqual(got["tpot_ms"]["p50"], 10)


if __name__ == "__main__":
    unittest.main()
