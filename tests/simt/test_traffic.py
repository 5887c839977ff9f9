#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What operations of few rows, and attention of one, ask of memory at the shapes of an 8B model (bench/_gpu.py), as the
machine counts it: whatever makes it worse is told here, as no test on results tells it.

Needs BATON_GPU_RUN (the program) and BATON_PLUGIN_DIR (the folder of baton_cuda_sim.so).
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
sys.dont_write_bytecode = True
import _gpu  # noqa: E402

MOVED = 1.05  # of the bytes that must be moved: sectors, each but once in a launch
USED = 0.95   # of the bytes of sectors that the loads of hot loops ask for
# Of the bytes that must be moved: all sectors that warps ask for. What is more than 1 are the rows, which each panel
# asks for anew: a panel of 8 rows has 48 bytes of them for each group, beside 32 times the bits of a weight. They come
# from the second cache; blocks of more than one panel would ask less often.
ASKED = {1: 1.25, 4: 1.62, 8: 2.20}
ASKED_BY_ATTENTION = 1.03
# By tensor cores: rows once for each panel; what parts of a sequence leave and a second kernel reads, which is the more
# beside a cache of 8 bits. Beside weights of 8 bits rows weigh double.
ASKED_BY_TENSOR = {"tensor matmul": 1.26, "tensor attention": 1.35}
ASKED_BY_CODES = 1.48
MOVED_BY_TENSOR = {"tensor matmul": 1.02, "tensor attention": 1.13}


class TrafficTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        meter = _gpu.Meter(os.environ["BATON_GPU_RUN"], os.environ["BATON_PLUGIN_DIR"])
        cls.rows = _gpu.count_all(meter, _gpu.few_row_work() + _gpu.few_tensor_work())

    def each(self, check):
        for row in self.rows:
            with self.subTest(op=row["op"], type=row["type"], name=row["name"], rows=row["rows"]):
                check(row)

    def test_kernels_read_little_more_than_required(self):
        self.each(lambda row: self.assertLessEqual(row["ratio"], MOVED_BY_TENSOR.get(row["op"], MOVED)))

    def test_kernels_read_no_less_than_required(self):
        """Else what must be is wrong."""
        self.each(lambda row: self.assertGreaterEqual(row["ratio"], 1.0))

    def test_hot_loads_use_whole_sectors(self):
        self.each(lambda row: self.assertGreaterEqual(row["used"], USED))

    def test_hot_loops_have_no_conflicts_of_banks(self):
        self.each(lambda row: self.assertEqual(row["hot_conflicts"], 0))

    def test_repeated_reads_stay_in_bounds(self):
        self.each(lambda row: self.assertLessEqual(row["requested_bytes"] / row["must_bytes"],
                                                   ASKED_BY_ATTENTION if row["op"] == "attention" else
                                                   ASKED_BY_CODES if row["type"] == "E4M3" else
                                                   ASKED_BY_TENSOR.get(row["op"], ASKED[row["rows"]])))

    def test_attention_of_one_row_is_on_many_multiprocessors(self):
        """By tensor cores: a block for each part of 128 positions, for which there was scratch."""
        parts = {row["blocks"] for row in self.rows if row["op"] == "tensor attention"}
        self.assertEqual(parts, {_gpu.KV_HEADS * _gpu.CONTEXT // 128})

    def test_all_packs_and_all_caches_are_there(self):
        self.assertEqual({r["type"] for r in self.rows}, set(_gpu.TYPES) | set(_gpu.KV_TYPES) | set(_gpu.TENSOR_TYPES))


if __name__ == "__main__":
    unittest.main(verbosity=2)
