#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/gpu-check.py, as its rehearsal on the machine of the tests, and bench/gpu-roofline.py.

Needs BATON_BUILD, a build with that machine.
"""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "bench")
sys.path[:0] = [BENCH, os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True
import _gpu  # noqa: E402
import _gpu_build  # noqa: E402
from test_charts import Figures  # noqa: E402

TENSOR = ["tensor attention", "tensor few rows", "tensor many rows"]
PARTS = ["machine", "build", "plugin", "kcheck", "tensor kcheck", "peer", "attention", "few rows", "many rows", "experts", *TENSOR,
         "hand-over", "graphs", "memcheck", "racecheck", "end to end"]
RUN = {"machine", "build", "kcheck", "tensor kcheck", "attention", "few rows", "many rows", "experts", *TENSOR, "hand-over",
       "graphs", "end to end"}


class GpuTest(Figures):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bt-gpu-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def bench(self, name, *options, status=0, env=None):
        done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, name + ".py"), "--no-build", "--folder", self.folder,
                               *options],
                              capture_output=True, text=True, timeout=240, env=dict(os.environ, **(env or {})))
        self.assertEqual(done.returncode, status, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout if status != 2 else done.stderr

    def test_rehearsal_runs_all_that_needs_no_gpu_and_tells_no_times(self):
        out = json.loads(self.bench("gpu-check", "--simt", "--json"))
        self.assertTrue(out["rehearsal"])
        self.assertEqual([p["part"] for p in out["parts"]], PARTS)
        self.assertEqual({p["part"] for p in out["parts"] if p["status"] == "ok"}, RUN)
        for part in out["parts"]:
            self.assertEqual(part["status"] == "skipped", "why" in part)
            for row in part.get("rows", []):
                self.assertFalse({"us", "gb_per_s", "tflops", "of_copy", "of_peer"} & set(row))
        with open(os.path.join(self.folder, "gpu-check.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f), out)

    def test_without_a_gpu_each_part_says_that_there_is_none(self):
        hidden = {"PATH": f"{self.folder}:/usr/bin:/bin"}
        with open(os.path.join(self.folder, "nvidia-smi"), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho no devices\nexit 6\n")
        os.chmod(os.path.join(self.folder, "nvidia-smi"), 0o755)
        out = json.loads(self.bench("gpu-check", "--json", status=77, env=hidden))
        why = {p["part"]: p.get("why", "") for p in out["parts"]}
        self.assertIn("no GPU: no devices", why["machine"])
        for name in RUN - {"machine", "build"}:
            self.assertIn("no GPU", why[name], name)

    def test_each_cluster_test_of_a_gpu_exists(self):
        tests = ""
        for path in glob.glob(os.path.join(ROOT, "tests/integration/test_*.py")):
            with open(path, encoding="utf-8") as f:
                tests += f.read()
        for name in _gpu.CLUSTER_TESTS:
            self.assertIn(f"def {name}():", tests)

    def test_rehearsal_is_not_written_into_the_page(self):
        self.assertIn("no GPU ran", self.bench("gpu-check", "--simt", "--write", status=2))

    def test_estimate_is_called_one_and_drawn(self):
        svg = os.path.join(self.folder, "roofline.svg")
        out = json.loads(self.bench("gpu-roofline", "--few", "--json", "--svg", svg))
        self.assertEqual(len(out["rows"]), len(_gpu.few_row_work()))
        for row in out["rows"]:
            for estimate in row["estimates"].values():
                self.assertTrue(math.isfinite(estimate["us"]) and estimate["us"] > 0)
                self.assertAlmostEqual(estimate["us"], max(estimate["parts_us"].values()))
        with open(svg, encoding="utf-8") as f:
            text = f.read()
        self.parse(text)
        self.assertIn("Estimates, not measured", text)
        self.assertIn("H100: an estimate", text)

    def test_bare_build_compiles_the_sources_of_meson(self):
        own = {f for f in os.listdir(os.path.join(ROOT, "kernels", "cuda")) if f.endswith(".cu")}
        self.assertEqual({os.path.basename(p) for p in _gpu_build.cuda_sources()}, own)
        lists = [_gpu_build.sources_of(m) for m in ("kernels", "common/base", "common/kv")]
        lists += [names for names, _ in _gpu_build.tiers().values()] + [_gpu_build.simt_sources()]
        for names in lists:
            self.assertGreater(len(names), 2)
            for name in names:
                self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)
        # Without these the bits are others.
        self.assertIn("-ffp-contract=off", _gpu_build.c_flags())
        self.assertIn("-ffp-contract=off", _gpu_build.simt_flags())
        self.assertIn("--fmad=false", _gpu_build.cuda_flags("90"))

    def test_bare_build_leaves_out_what_lacks_a_header_and_stops_at_mistakes(self):
        builder = _gpu_build.Bare(self.folder)
        for text, left_out in (('#include "absent/none.h"\n', ["no absent/none.h"]), ("no C\n", None)):
            path = os.path.join(self.folder, "a.c")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            if left_out:
                self.assertEqual(builder.compile([(["cc"], path)]), [])
                self.assertEqual([w.split(": ")[1] for w in builder.left_out], left_out)
            else:
                self.assertRaises(_gpu_build.BuildError, builder.compile, [(["cc"], path)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
