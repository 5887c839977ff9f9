#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/robustness.py, whose commands docs/ROBUSTNESS.md shows, on a small model: reused prefixes change no byte of an
answer, and clients that leave leave nothing held.

Needs BATON_BUILD and BATON_TINY_MODEL (the program that writes the model).
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "integration"), os.path.join(ROOT, "bench")]
sys.dont_write_bytecode = True
import harness  # noqa: E402

SMALL = ("--vocabulary", "288", "--long-tokens", "400", "--cancels", "4", "--rounds", "1", "--shared-tokens", "64", "--leaves", "40",
         "--threads", "1", "--kv-memory", "64m")
# Around each of the four boundaries of 16 tokens; whole blocks are reused.
CUTS = (1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64)


class RobustnessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="bt-bench-")
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([os.environ["BATON_TINY_MODEL"], cls.model, "--type", "q4_1", "--tied"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_bench(self, *options):
        done = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench", "robustness.py"), "--model", self.model, *SMALL,
                               *options], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout

    def check_cached(self, row):
        self.assertEqual((row["cuts"], row["unequal"]), (len(CUTS), 0))
        self.assertEqual(row["reused_tokens"], sum(k // 16 * 16 for k in CUTS))

    def test_every_part_is_measured_and_nothing_is_unequal_or_held(self):
        out = json.loads(self.run_bench("--json"))
        row, = out["cancelled"]
        self.assertEqual(len(row["first_ms"]), 1)
        self.assertLess(0, row["alone_p50_ms"])
        self.check_cached(out["cached"][0])
        row, = out["disconnected"]
        self.assertEqual(row["leaked"], {"blocks": 0, "seats": 0, "leases": 0, "descriptors": 0})
        self.assertEqual((row["leaves"], row["equal_after"], row["ended"]), (40, True, []))

    def test_peer_is_asked_the_same_and_one_part_can_be_had_alone(self):
        with harness.Cluster(self.model) as peer:
            told = self.run_bench("--only", "cached", "--peer", f"http://127.0.0.1:{peer.http[1]}", "--json")
        rows = json.loads(told)["cached"]
        self.assertEqual([r["server"] for r in rows], ["baton", "peer"])
        for row in rows:
            self.check_cached(row)
        self.assertNotIn("disconnected", json.loads(told))


if __name__ == "__main__":
    unittest.main()
