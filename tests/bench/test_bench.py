#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/engine.py and bench/kernels.py: that they run, and what they print; and
the load figures of all benchmarks.

Needs BATON_BUILD (a build with the benchmarks' C halves) and BATON_TINY_MODEL (the
program that writes the model).
"""
import argparse
import contextlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "bench")
sys.path[:0] = [BENCH, os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True
import _roofline  # noqa: E402
import _shared  # noqa: E402
import engine  # noqa: E402
import experts  # noqa: E402
import kernels  # noqa: E402
import serve  # noqa: E402
from test_charts import Figures  # noqa: E402

FAST = ["--no-build", "--limit-mib", "1", "--limit-ms", "1"]


class BenchTest(Figures):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="bt-bench-")
        cls.model = os.path.join(cls.folder, "tiny.gguf")
        subprocess.run([os.environ["BATON_TINY_MODEL"], cls.model, "--type", "q4_1", "--embedding-type", "q8_0",
                        "--tied"], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def bench(self, name, *options, status=0, fast=FAST):
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATON_") or k == "BATON_BUILD"}
        done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, name + ".py"), *fast, *options], env=env,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, status, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout if status == 0 else done.stderr

    def engine(self, *options):
        return self.bench("engine", "--model", self.model, "--prefill", "8,40", "--batch", "1,3", "--after", "16", "--steps",
                          "2", "--chunk", "16", "--rounds", "2", "--sample-ms", "1", "--weight-cache", "off", *options)

    def check_machine(self, out):
        for name in ("machine", "commit", "options"):
            self.assertTrue(out[name])
        self.assertGreaterEqual(out["load_average_before"], 0)
        for name in ("cpu_busy_percent", "cpu_others_percent"):
            self.assertTrue(0 <= out[name] <= 100.1, out[name])
        self.assertEqual(out["busy"], out["cpu_others_percent"] > 5 or any(r["busy"] for t in out["threads"]
                                                                         for r in t["rows"]))

    def check_limits(self, limits):
        self.assertEqual(list(limits), ["read", "int8", "bf16", "f32"])
        for name, limit in limits.items():
            if limit["isa"] or name != "bf16":
                self.assertTrue(0 < limit["median"] <= limit["best"], name)

    def check_figures(self, row):
        for name in ("median", "best"):
            for figure, value in row[name].items():
                self.assertTrue(math.isfinite(value) and value > 0, f"{name} {figure} {value}")
        self.assertAlmostEqual(row["ops_per_byte"], row["ops"] / row["bytes"])

    def check_svg(self, path, labels):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.parse(text)
        for label in labels:
            self.assertIn(f">{label}<", text)
        self.assertNotIn("nan", text)
        self.assertGreater(len(set(re.findall(r'class="bt-(c\d)', text))), 3)

    def test_quants_makes_a_file_of_each_type_and_prints_its_rates(self):
        env = dict({k: v for k, v in os.environ.items() if not k.startswith("BATON_") or k == "BATON_BUILD"},
                   XDG_CACHE_HOME=self.folder)
        done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, "quants.py"), "--no-build", "--json", "--model",
                               self.model, "--shapes", "135m", "--types", "Q8_0,BF16", "--peers", "", "--prefill", "8",
                               "--batch", "1,3", "--after", "16", "--steps", "2", "--rounds", "2", "--sample-ms", "1"],
                              env=env, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        out = json.loads(done.stdout)
        self.assertEqual([f["type"] for f in out["files"]], ["Q8_0", "BF16"])
        self.assertGreater(out["files"][1]["bytes"], out["files"][0]["bytes"])
        for f in out["files"]:
            self.assertEqual([(r["kind"], r["n"]) for r in f["rows"]], [("prefill", 8), ("decode", 1), ("decode", 3)])
            for r in f["rows"]:
                self.assertTrue(math.isfinite(r["tokens_per_s"]) and r["tokens_per_s"] > 0)
                self.assertEqual(r["peers"], {})

    def test_engine_prints_every_figure_as_json_and_a_diagram(self):
        svg = os.path.join(self.folder, "engine.svg")
        out = json.loads(self.engine("--threads", "1,2", "--json", "--svg", svg))
        self.check_machine(out)
        self.assertIsNone(out["peer"])
        self.assertEqual([t["threads"] for t in out["threads"]], [1, 2])
        for t in out["threads"]:
            self.check_limits(t["limits"])
            self.assertEqual(t["compute_limit"], "int8")
            self.assertEqual(t["model"]["weights"], "private")
            self.assertEqual([(r["kind"], r["n"]) for r in t["rows"]],
                             [("prefill", 8), ("prefill", 40), ("decode", 1), ("decode", 3)])
            for r in t["rows"]:
                self.check_figures(r)
                self.assertGreaterEqual(r["samples"], 2)
                self.assertTrue(0 < r["tokens_per_s"] <= r["best_tokens_per_s"])
                self.assertEqual(r["peers"], {})
        self.check_svg(svg, ["prefill 40", "decode 3", "2 threads"])

    def test_engine_keeps_packed_weights_where_it_is_told_and_prints_a_table(self):
        cache = os.path.join(self.folder, "weights")
        table = self.engine("--threads", "1", "--weight-cache", cache)
        for word in ("machine ", "commit ", "load ", "limits ", "prefill 40", "decode 3", "(packed weights: built)"):
            self.assertIn(word, table)
        self.assertIn("(packed weights: found)", self.engine("--threads", "1", "--weight-cache", cache))

    def test_prompts_longer_than_the_context_are_left_out_and_other_mistakes_named(self):
        out = json.loads(self.engine("--threads", "1", "--prefill", "8,100000", "--json"))
        self.assertEqual([r["n"] for r in out["threads"][0]["rows"] if r["kind"] == "prefill"], [8])
        self.assertIn("Q9_9", self.bench("engine", "--model", self.model, "--peer-files", "Q9_9", status=2))
        self.assertIn("no model", self.bench("engine", "--model", "/nowhere", status=2))
        self.assertIn("not a GGUF file", self.bench("engine", "--model", __file__, status=1))

    def test_operations_of_the_default_model_are_those_of_its_shape(self):
        # SmolLM2-135M: 30 layers of 576 x 960, 576 x 576, 576 x 3072 and 1536 x 576, output 576 x 49152.
        model = {"n_layers": 30, "dim": 576, "n_heads": 9, "n_kv_heads": 3, "head_dim": 64, "ffn_dim": 1536,
                 "n_vocab": 49152, "layer_bytes": 1000, "output_bytes": 100, "kv_token_bytes": 10}
        args = argparse.Namespace(chunk=512, after=128, steps=1)
        decode = engine.work_of(model, {"kind": "decode", "n": 2}, args)
        # 2 x 106,168,320 layer weights + 2 x 28,311,552 of the output, + 4 x 576 x 129 positions x 30 layers
        self.assertEqual(decode["ops"], 2 * (212336640 + 56623104 + 8916480))
        self.assertEqual((decode["weight_bytes"], decode["bytes"], decode["tokens"]), (1100, 1100 + 2 * 129 * 10, 2))
        prefill = engine.work_of(model, {"kind": "prefill", "n": 1024}, args)
        # Two chunks: 30 layers of 552,960 weights and 29 of the other 2,985,984 for each row, and those of the last
        # layer and of the output for one; 29 layers of 1024 x 1025 / 2 pairs of positions, and 1024 in the last.
        ops = 2 * 1024 * (30 * 552960 + 29 * 2985984) + 2 * (2985984 + 28311552) + 2304 * (29 * 524800 + 1024)
        self.assertEqual((prefill["ops"], prefill["tokens"]), (ops, 1024))
        self.assertEqual(prefill["bytes"], 1000 + 1100 + 10 * (512 + 1024))

    def test_kernels_prints_every_operation_as_json_and_a_diagram(self):
        svg = os.path.join(self.folder, "kernels.svg")
        options = ("--shapes", "tiny", "--rows", "1,4", "--ms", "1", "--copies-mib", "1", "--svg", svg)
        out = json.loads(self.bench("kernels", *options, "--threads", "2", "--json"))
        self.check_machine(out)
        for t in out["threads"]:
            self.check_limits(t["limits"])
            rows = t["rows"]
            for r in rows:
                self.check_figures(r)
                self.assertGreaterEqual(r["samples"], 3)
            self.assertEqual({r["op"] for r in rows},
                             {"matmul", "attention", "rope_store", "rmsnorm", "silu_mul", "add"})
            self.assertEqual({r["type"] for r in rows if r["op"] == "matmul"},
                             {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
                              "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS",
                              "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"})
            self.assertEqual({r["type"] for r in rows if r["op"] == "attention"}, {"bf16", "int8"})
            first = next(r for r in rows if r["op"] == "matmul" and r["rows"] == 4)
            self.assertEqual(first["ops"], 2 * 64 * 256 * 4)
            self.assertEqual(first["bytes"], 64 * 256 // 32 * 20 + 4 * 4 * (64 + 256))
            self.assertEqual([p["rows"] for p in t["passes"]], [1, 4])
        self.check_svg(svg, ["2 threads", "Q4_1 x 4"])
        table = self.bench("kernels", *options, "--threads", "1,2", "--tier", "plain", "--ops", "matmul,rows", "--types", "F32,Q4_1")
        for word in ("machine ", "cpu/plain", "matmul output", "silu_mul 256", "a pass "):
            self.assertIn(word, table)
        self.assertNotIn("attention", table)

    def test_engine_bound_uses_mean_times(self):
        # By hand: 256 x 2 ms + 128 x 2 ms for 128 tokens; of 1 / 6 a ms nine tenths are 150 a second.
        args = argparse.Namespace(prompt_tokens=256, output_tokens=128)
        got = serve.engine_figures([{"prefill": [0.001, 0.003], "decode": [0.002]},
                                    {"prefill": [0.002], "decode": [0.001, 0.003]}], args, 150.0)
        self.assertAlmostEqual(got["prefill_tokens_per_s"], 500.0)
        self.assertAlmostEqual(got["decode_tokens_per_s"], 500.0)
        self.assertAlmostEqual(got["bound_tokens_per_s"], 1000 / 6)
        self.assertAlmostEqual(got["served_percent"], 90.0)

    def test_progress_without_terminal_is_printed_periodically(self):
        now, said = [100.0], io.StringIO()
        with contextlib.redirect_stderr(said):
            progress = _shared.Progress(3, False, lambda: now[0])
            for seconds in (19, 2, 1):
                now[0] += seconds
                progress.step()
            _shared.Progress(1, True, lambda: now[0] + 99).step()
        self.assertEqual(said.getvalue(), "2 of 3 figures are measured\n")

    def test_prompts_that_are_left_out_do_not_keep_the_progress_bar_open(self):
        progress = _shared.Progress(2 * 3, True)
        args = argparse.Namespace(model=self.model, kv_dtype="f16", chunk=16, prefill=[8, 100000], batch=[1], after=1,
                                  steps=1, limit_mib=1, limit_ms=1, sample_ms=1, rounds=2, weight_cache="off")
        engine.measure_threads(args, 1, _shared.build("engine-run", make=False), [], progress)
        self.assertEqual((progress.done, progress.total), (4, 4))

    def test_router_is_measured_with_every_kind_of_request(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATON_") or k == "BATON_BUILD"}
        done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, "router.py"), "--json", "--only",
                               "mock,paced,tls,grpc", "--sizes", "1024", "--clients", "2", "--seconds", "0.2"], env=env, capture_output=True,
                              text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        out = json.loads(done.stdout)
        self.assertTrue(out["machine"] and out["commit"] and out["options"])
        now = out["builds"]["now"]
        self.assertEqual([(r["prompt"], r["answer"]) for r in now["mock"]],
                         [("ids", "whole"), ("ids", "stream"), ("text", "whole"), ("text", "stream")])
        for row in now["mock"]:
            for at in ("one", "load"):
                self.assertGreater(row[at]["requests"], 0)
                self.assertEqual(set(row[at]["cpu_us"]), {"router", "workers", "client"})
                self.assertLessEqual(row[at]["p50_us"], row[at]["p99_us"])
        self.assertGreater(now["paced"]["rate"], 0)
        self.assertGreater(now["paced"]["nothing_p99_us"], 0)
        self.assertEqual(list(now["tls"]["streams"]), ["at once", "one by one"])
        self.assertGreater(now["tls"]["handshake_cpu_us"], 0)
        self.assertEqual(list(now["grpc"]), ["at once", "one by one"])
        for got in now["grpc"].values():
            self.assertEqual(len(got["ratios"]), 5)
            self.assertGreater(min(got["triton_cpu_us"], got["grpc_cpu_us"]), 0)

    def test_quantizer_is_measured_with_and_without_an_importance_matrix(self):
        text, model = os.path.join(self.folder, "text"), os.path.join(self.folder, "wide.gguf")
        subprocess.run([os.environ["BATON_TINY_MODEL"], model, "--context", "512"], check=True)
        with open(text, "w", encoding="ascii") as f:
            f.write("".join(chr(33 + i * i % 89) for i in range(700)))
        out = json.loads(self.bench("quantizer", "--model", model, "--no-peer", "--types", "q4_0,q8_0", "--text", text,
                                    "--imatrix-text", text, "--json", fast=()))
        self.assertEqual([(r["type"], r["imatrix"]) for r in out["rows"]],
                         [("Q4_0", False), ("Q4_0", True), ("Q8_0", False), ("Q8_0", True)])
        for row in out["rows"]:
            self.assertGreater(row["positions"], 500)
            self.assertTrue(0 < row["kl_error"] < row["kl"] < 1, row)
        self.assertLess(out["rows"][2]["kl"], out["rows"][0]["kl"])

    def test_experts_have_a_row_for_each_product_type_and_number_of_rows(self):
        svg = os.path.join(self.folder, "experts.svg")
        out = json.loads(self.bench("experts", "--shapes", "tiny", "--types", "Q4_K,BF16", "--rows", "1,32", "--rounds", "1", "--ms", "1",
                                    "--threads", "1", "--limit-mib", "16", "--limit-ms", "5", "--svg", svg, "--json"))
        rows = out["threads"][0]["rows"]
        self.assertEqual([(r["name"], r["type"], r["rows"]) for r in rows],
                         [(n, t, k) for n in ("gate+up", "down") for t in ("Q4_K", "BF16") for k in (1, 32)])
        for row in rows:  # 2 of 8 experts: one row goes through 2, and 8 (1 - 0.75^32) = 7.9992 have some of 32
            self.assertAlmostEqual(row["experts_touched"], 2 if row["rows"] == 1 else 7.9992, 4)
            self.assertTrue(row["us"] > 0 and row["of_dense"] > 0, row)
        self.assertTrue(os.path.exists(svg))

    def test_types_of_experts_are_those_whose_blocks_divide_a_row(self):
        self.assertEqual([k for k in ("Q4_K", "IQ2_XS", "TQ1_0", "NVFP4", "MXFP4", "Q8_0", "BF16") if experts.fits(k, 2880)],
                         ["NVFP4", "MXFP4", "Q8_0", "BF16"])  # 2880 = 45 x 64
        self.assertTrue(experts.fits("Q4_K", 2048))

    def test_kernels_of_a_run_are_the_shapes_own_and_the_types_that_are_asked_for(self):
        args = argparse.Namespace(shapes=["tiny"], types=["F32", "Q4_1"], kv_types=["f16", "int8"],
                                  ops=["matmul", "attention", "rows"])
        work = kernels.work_of(args)
        self.assertEqual([w[0] for w in work], ["matmul"] * 3 + ["attention"] * 2 + ["row_ops"])
        self.assertEqual(work[2], ("matmul", "tiny", "down", "F32", 64, 256, 0))
        args.types, args.ops = ["F16"], ["matmul"]  # without the shape's own
        self.assertEqual([w[3] for w in kernels.work_of(args)], ["Q4_1", "Q8_0", "F16"])

    def test_diagram_has_its_points_where_the_axes_say(self):
        points = [{"label": "a & b", "x": 10.0, "y": 100.0, "series": "ours"}]
        text = _shared.charts.figure("x", "y", [_roofline.Roofline("t < 2", points, 10.0, [("int8", 400.0)], ["ours"])])
        self.parse(text)
        slope = re.search(r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)" class="bt-c4-line"', text)
        x1, y1, x2, y2 = map(float, slope.groups())
        x, y = map(float, re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5" class="bt-c0"', text)[0])
        # 100 GOPS at 10 operations per byte is what 10 GB/s allow: on the slope.
        self.assertAlmostEqual((y - y1) / (y2 - y1), (x - x1) / (x2 - x1), places=2)


# Says when it has used as much of a core as it is told, then waits.
BURN = """
import sys, time
for line in sys.stdin:
    while time.process_time() < float(line): pass
    print("done", flush=True)
"""


class LoadTest(unittest.TestCase):
    """Ticks of 10 ms are counted from CPU times, so a loaded machine changes nothing."""

    def start(self):
        child = _shared.Half([sys.executable, "-c", BURN], parse=str.split)
        self.addCleanup(lambda: child in _shared.Half.running and child.close())
        return child

    def own_seconds(self, load):
        return load.own / os.sysconf("SC_CLK_TCK")

    def test_own_cpu_counts_only_during_the_measurement(self):
        child = self.start()
        child.ask(1.0)
        load = _shared.Load()
        with load.during():
            child.ask(1.3)
        child.ask(2.0)
        self.assertAlmostEqual(self.own_seconds(load), 0.3, delta=0.2)
        self.assertGreaterEqual(load.busy + 20, load.own)
        self.assertLessEqual(load.busy, load.total)
        with load.during():
            child.ask(2.4)
        self.assertAlmostEqual(self.own_seconds(load), 0.7, delta=0.3)

    def test_only_processes_alive_during_the_measurement_count(self):
        first = self.start()
        first.ask(1.0)
        first.close()
        load = _shared.Load()
        with load.during():
            second = self.start()
            second.ask(0.3)
            second.close()
        self.assertAlmostEqual(self.own_seconds(load), 0.3, delta=0.2)

    def test_other_programs_are_those_not_started_by_the_benchmark(self):
        child = self.start()
        load = _shared.Load()
        with load.during(lambda: [os.getpid()]):
            child.ask(0.5)
        self.assertLess(self.own_seconds(load), 0.2)
        figures = load.figures()
        self.assertGreaterEqual(figures["cpu_others_percent"], 100 * 30 / load.total)
        self.assertGreaterEqual(figures["cpu_busy_percent"], figures["cpu_others_percent"])


if __name__ == "__main__":
    unittest.main()
