#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the CUDA back end do what it should on this machine's GPU, and how quick is it? From sources, in minutes.

Usage: ./baton bench gpu-check [options]
  --out FILE     where all of it goes as JSON (default gpu-check.json in --folder)
  --folder DIR   for what is compiled (default build/gpu-check)
  --bare         do not use the project's own build: compile what is needed by cc
                 and nvcc straight away, as where meson or libraries are missing
  --write        put the table into docs/GPU_STATUS.md
  --limit S      seconds for all parts together (default 520); a part that would
                 begin later is left out
  --simt         the rehearsal, without a GPU: the same on the machine of the tests
                 (tests/simt) with tiny sizes. It tells no times
  --svg FILE     draw it, as SVG
  --json         print the JSON instead of the table

Every part that does not run says so, with why. The status is 1 where one failed,
and 77 where there is no GPU. The parts:

  machine        the GPU, the driver, the toolkit
  build          programs and plugin
  kcheck         every operation, bit for bit the plain C reference
  tensor kcheck  the same of --numerics tensor: its own within their tolerance
  memcheck, racecheck
                 compute-sanitizer over a short kcheck
  peer           copies on the device, and products of bfloat16 by cuBLASLt
  attention      decode at 1024: GB/s that must be moved, and of the copy's
  few rows       the same of products with 1, 4 and 8 rows
  many rows      TFLOP/s of products, and of cuBLASLt's, whose sums depend on the batch:
                 what I1 costs, and sums in the order of the reference
  experts        products of a mixture of 128 experts, 8 of each row
  tensor attention, tensor few rows, tensor many rows
                 the same of --numerics tensor, and a chunk of a prompt; beside
                 what the exact ones took
  hand-over      KV into another process' memory of the same GPU, with checksums, its
                 check there, and the same through pinned memory
  graphs         a layer's launches with and without CUDA graphs
  end to end     a cluster whose workers share the GPU, tokens against the CPU's; how far
                 its log-probabilities are from the CPU's (accuracy), and what steps
                 that begin ahead gain
"""
import json
import os
import shutil
import subprocess
import sys
import time

import _gpu
import _gpu_build
from _shared import MISSING, ROOT, Half, describe, finish, median, parser, write
from charts import Bars

PAGE = os.path.join(ROOT, "docs", "GPU_STATUS.md")
SKIPPED = MISSING
SEED = 1
SLOT = 256 << 10  # of a pool that is staged
# Bytes of a weight: FP8 has a scale of 4 for 64.
TENSOR_TYPES, CHUNK = {"BF16": 2, "F16": 2, "E4M3": 68 / 64}, {"real": 512, "tiny": 16}
FEW_TYPES, MANY_TYPES = ("Q4_0", "Q4_K", "Q6_K", "Q8_0"), ("Q4_K", "Q8_0", "BF16")
PEER_ROWS = (512, 2048)
# heads, heads of keys, their size, position, layers; sequences; outputs, inputs, copies; rows; calls and samples;
# experts, those of a row, outputs, inputs, copies: of Qwen3 30B A3B
REAL = {"heads": (32, 8, 128), "pos": 1023, "layers": 4, "seqs": (1, 32), "matrix": (4096, 4096), "copies": 32, "few": (1, 4, 8),
        "many": PEER_ROWS, "times": (32, 10), "step": (1024, 32, 20), "pool": 256 << 20, "records": (1 << 20, 64 << 10),
        "experts": (128, 8, 768, 2048, 4), "expert_rows": (1, 8, 64, 2048)}
TINY = {"heads": (4, 2, 32), "pos": 31, "layers": 2, "seqs": (1, 2), "matrix": (64, 256), "copies": 2, "few": (1, 4),
        "many": (16,), "times": (2, 1), "step": (256, 2, 1), "pool": 1 << 20, "records": (64 << 10,),
        "experts": (4, 2, 32, 256, 1), "expert_rows": (1, 16)}


class Skip(Exception):
    """Why a part does not run."""


class Check:
    def __init__(self, args):
        self.args, self.parts, self.begin = args, [], time.monotonic()
        self.size = TINY if args.simt else REAL
        self.backend = "cuda_sim" if args.simt else "cuda"
        self.sm = self.builder = self.programs = self.plugins = self.peer = None

    def left(self):
        return self.args.limit - (time.monotonic() - self.begin)

    def part(self, name, run):
        begin, entry = time.monotonic(), {"part": name}
        try:
            if self.left() < 1:
                raise Skip(f"the {self.args.limit} seconds are over")
            entry.update(run(), status="ok")
        except Skip as why:
            entry.update(status="skipped", why=str(why))
        except subprocess.TimeoutExpired as late:
            entry.update(status="skipped", why=f"not done in {late.timeout:.0f} s")
        except (_gpu_build.BuildError, OSError, ValueError, SystemExit) as error:
            entry.update(status="failed", why=str(error))
        entry["took_s"] = round(time.monotonic() - begin, 1)
        self.parts.append(entry)
        if not self.args.json:
            print(f"{name:12} {entry['status']:8} {entry['took_s']:6.1f} s  {entry.get('why', '')}", flush=True)

    # ---- parts ----

    def machine(self):
        nvcc = _gpu_build.find_nvcc()
        version = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.split("release ")[-1] if nvcc else ""
        out = {"toolkit": version.split(",")[0] or "none"}
        if self.args.simt:
            return out | {"device": "none: a machine of the tests"}
        smi = shutil.which("nvidia-smi")
        if not smi:
            raise Skip("no GPU: nvidia-smi is not here")
        done = subprocess.run([smi, "--query-gpu=name,compute_cap,driver_version,memory.total", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0 or not done.stdout.strip():
            raise Skip(f"no GPU: {(done.stdout + done.stderr).strip()}")
        name, sm, driver, memory = (w.strip() for w in done.stdout.splitlines()[0].split(","))
        self.sm = sm.replace(".", "")
        return out | {"device": name, "sm": self.sm, "driver": driver, "memory": memory}

    def build(self):
        self.builder, self.programs, self.plugins, why = _gpu_build.choose(self.args.folder, self.args.bare, self.args.simt,
                                                                           self.sm, not self.args.no_build)
        out = {"how": str(self.builder), "not_by_meson": why}
        return out | {"left_out": self.builder.left_out}

    def plugin(self):
        """In the rehearsal: it compiles."""
        if not self.args.bare:
            raise Skip("the rehearsal compiles it with --bare alone: it takes minutes")
        if not _gpu_build.find_nvcc():
            raise Skip("no nvcc is here")
        self.builder.cuda("90")
        return {"compiled": "sm_90", "left_out": self.builder.left_out}

    def needs_device(self):
        if not self.plugins:
            raise Skip("no GPU, or the build failed")

    def env(self, **more):
        return dict(os.environ, BATON_PLUGIN_DIR=self.plugins, BATON_SIMT_RACES="0", **more)

    def kcheck_command(self, *options):
        self.needs_device()
        return [self.programs["kcheck"], "--backend", self.backend, "--seed", str(SEED), *options]

    def checked(self, command, limit):
        done = subprocess.run(command, capture_output=True, text=True, env=self.env(), timeout=min(limit, self.left()))
        said = (done.stdout + done.stderr).strip()
        if done.returncode == SKIPPED:
            raise Skip(said.splitlines()[-1])
        if done.returncode != 0:
            raise ValueError(f"status {done.returncode}: {said[-1500:]}")
        return said

    def tensor_kcheck(self):
        said = self.checked(self.kcheck_command("--numerics", "tensor", *(("--only", "ops") if self.args.simt else ())), 200)
        return {"said": said.splitlines()[-1]}

    def kcheck(self):
        said = self.checked(self.kcheck_command(*(("--only", "ops") if self.args.simt else ())), 200)
        return {"said": said.splitlines()[-1]}

    def sanitizer(self, tool):
        if self.args.simt:
            raise Skip("the machine of the tests looks for both itself")
        commands = [self.kcheck_command("--only", "attention" if tool == "racecheck" else "matmul"),
                    self.kcheck_command("--only", "experts", "--sample", "50")]
        sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=_gpu_build.CUDA_BIN)
        if not sanitizer:
            raise Skip("compute-sanitizer is not here")
        said = [self.checked([sanitizer, "--tool", tool, "--error-exitcode", "9", *command], 90) for command in commands]
        return {"said": ", ".join(text.splitlines()[-1] for text in said)}

    def measure_peer(self):
        if self.args.simt and not self.args.bare:
            raise Skip("the rehearsal compiles it with --bare alone")
        if not _gpu_build.find_nvcc():
            raise Skip("no nvcc is here")
        program = self.builder.peer(self.sm)
        if self.args.simt:
            return {"compiled": True}
        self.needs_device()
        done = subprocess.run([program, *map(str, PEER_ROWS)], capture_output=True, text=True, timeout=min(60, self.left()))
        if done.returncode != 0:
            raise ValueError(done.stderr.strip())
        self.peer = json.loads(done.stdout)
        return self.peer

    def half(self, *numerics, **env):
        self.needs_device()
        half = Half([self.programs["gpu-run"], self.backend, max(*self.size["many"], 64), *numerics], self.env(**env))
        half.read(60)
        return half

    def timed(self, half, row, *command):
        """Adds what it took to a row, but for a rehearsal, where that would be no GPU's."""
        answer = half.ask(*command)
        if not answer.get("right", True):
            raise ValueError(f"{row['type']}: other bytes came")
        seconds = median(answer["seconds"])
        if not self.args.simt:
            row["us"] = 1e6 * seconds
            if "bytes" in row:
                row["gb_per_s"] = row["bytes"] / seconds / 1e9
            if "bytes" in row and self.peer:
                row["of_copy"] = row["gb_per_s"] / self.peer["copy_gb_per_s"]
            if "ops" in row:
                row["tflops"] = row["ops"] / seconds / 1e12
        return row

    def attention(self):
        s, rows, half = self.size, [], self.half()
        heads, kv_heads, dim = s["heads"]
        for kind in _gpu.KV_TYPES:
            for seqs in s["seqs"]:
                token = half.ask("kv", kind, heads, kv_heads, dim, 1, s["pos"], seqs, s["layers"])["kv_token_bytes"]
                rows.append(self.timed(half, {"type": kind, "rows": seqs, "bytes": seqs * ((s["pos"] + 1) * token + 8 * heads * dim)},
                                       "attention", *s["times"]))
        half.close()
        return {"rows": rows}

    def few_rows(self):
        rows, half = [], self.half()
        n_out, n_in = self.size["matrix"]
        for kind in FEW_TYPES:
            packed = half.ask("weight", kind, n_out, n_in, self.size["copies"])["packed_bytes"]
            rows += [self.timed(half, {"type": kind, "rows": n, "bytes": packed + 4 * n * (n_in + n_out)}, "matmul", n,
                                *self.size["times"]) for n in self.size["few"]]
        half.close()
        return {"rows": rows}

    def many_rows(self):
        rows, half = [], self.half()
        n_out, n_in = self.size["matrix"]
        for kind in MANY_TYPES:
            half.ask("weight", kind, n_out, n_in, 2)
            for n in self.size["many"]:
                row = self.timed(half, {"type": kind, "rows": n, "ops": 2 * n * n_in * n_out}, "matmul", n, *self.size["times"])
                peers = [p["tflops"] for p in (self.peer or {}).get("products", []) if p["rows"] == n]
                if peers and "tflops" in row:
                    row["of_peer"] = row["tflops"] / peers[0]
                rows.append(row)
        half.close()
        return {"rows": rows}

    def experts(self):
        """Of one row the bytes of its experts, of more the products."""
        n, used, n_out, n_in, copies = self.size["experts"]
        rows = []
        for kind, numerics in (("Q4_K", ()), ("Q8_0", ()), ("BF16", ("tensor",))):
            half = self.half(*numerics)
            packed = half.ask("weight", kind, n * n_out, n_in, copies)["packed_bytes"] / n
            for n_rows in self.size["expert_rows"]:
                slots = n_rows * used
                work = {"bytes": int(slots * packed)} if n_rows == 1 else {"ops": 2 * slots * n_in * n_out}
                rows.append(self.timed(half, {"type": kind, "rows": n_rows} | work, "experts", n, used, n_rows, *self.size["times"]))
            half.close()
        return {"rows": rows}

    # ---- the tensor profile, each figure beside the exact one's ----

    def both(self, row, setup, *command):
        """By both numerics."""
        for numerics in ((), ("tensor",)):
            half = self.half(*numerics)
            half.ask(*setup)
            done = self.timed(half, dict(row), *command)
            half.close()
            if not numerics and "us" in done:
                row["exact_us"] = done["us"]
        return done

    def tensor_attention(self):
        s, rows = self.size, []
        heads, kv_heads, dim = s["heads"]
        chunk = CHUNK["tiny" if self.args.simt else "real"]
        for kind in _gpu.KV_TYPES:
            for n, seqs in [(1, seqs) for seqs in s["seqs"]] + [(chunk, 1)]:
                rows.append(self.both({"type": f"{kind}, chunk" if n > 1 else kind, "rows": n * seqs,
                                       "ops": 4 * n * seqs * heads * dim * (s["pos"] + 1 - n // 2)},
                                      ("kv", kind, heads, kv_heads, dim, n, s["pos"] + 1 - n, seqs, s["layers"]),
                                      "attention", *s["times"]))
        return {"rows": rows}

    def tensor_few_rows(self):
        n_out, n_in = self.size["matrix"]
        return {"rows": [self.both({"type": kind, "rows": n, "bytes": int(TENSOR_TYPES[kind] * n_in * n_out) + 4 * n * (n_in + n_out)},
                                   ("weight", kind, n_out, n_in, self.size["copies"]), "matmul", n, *self.size["times"])
                         for kind in TENSOR_TYPES for n in self.size["few"]]}

    def tensor_many_rows(self):
        n_out, n_in = self.size["matrix"]
        rows = [self.both({"type": kind, "rows": n, "ops": 2 * n * n_in * n_out}, ("weight", kind, n_out, n_in, 2), "matmul", n,
                          *self.size["times"]) for kind in TENSOR_TYPES for n in self.size["many"]]
        for row in rows:
            peers = [p["tflops"] for p in (self.peer or {}).get("products", []) if p["rows"] == row["rows"]]
            if peers and "tflops" in row:
                row["of_peer"] = row["tflops"] / peers[0]
        return {"rows": rows}

    def hand_over(self):
        """From one process to another, as workers do; copies of the same pool."""
        rows, owner, sender = [], self.half(), self.half()
        pool, samples = self.size["pool"], self.size["times"][1]
        handle = owner.ask("pool", pool)["handle"]
        if not handle:
            raise Skip("this device's memory cannot be shared")
        sender.ask("pool", pool)
        ways = [way for n in self.size["records"] for way in (("by IPC, with checksums", n, "across", handle), ("its check", n, "checked"),
                                                              ("through pinned memory", min(n, SLOT), "staged"))]
        for name, record, *command in ways:
            rows.append(self.timed(sender, {"type": f"{name}, {record >> 10} KiB", "rows": pool // record, "bytes": pool}, *command,
                                   record, samples))
        sender.close()
        owner.close()
        return {"rows": rows}

    def graphs(self):
        dim, layers, samples = self.size["step"]
        rows = []
        for graphs in ("1", "0"):
            half = self.half(BATON_CUDA_GRAPHS=graphs)
            half.ask("weight", "Q4_K", dim, dim, 1)
            rows.append(self.timed(half, {"type": "graphs" if graphs == "1" else "none", "rows": 1}, "step", layers, samples))
            half.close()
        return {"rows": rows}

    def end_to_end(self):
        """Router, prefill and decode worker, both workers on the one device, with a model of the tests."""
        if not self.plugins:
            raise Skip("no GPU")
        build = self.builder.cluster()
        if not build:
            raise Skip("a cluster needs the project's own build")
        # The rehearsal's plugin by the name of the GPU's: what asks for it by another one is found.
        plugins, real = self.plugins, {"BATON_TEST_GPU": "1"}
        if self.args.simt:
            plugins, real = os.path.join(self.args.folder, "as-cuda"), {}
            os.makedirs(plugins, exist_ok=True)
            link = os.path.join(plugins, "baton_cuda.so")
            if not os.path.lexists(link):
                os.symlink(os.path.join(self.plugins, "baton_cuda_sim.so"), link)
        tests = _gpu.CLUSTER_TESTS[:1] if self.args.simt else _gpu.CLUSTER_TESTS  # the suite runs the others on the simulated device
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tests/integration/run.py"), *tests], capture_output=True, text=True,
                              timeout=max(1, self.left()),
                              env=dict(os.environ, BATON_BUILD=build, BATON_TEST_DEVICE="cuda", BATON_PLUGIN_DIR=plugins, **real))
        last = (done.stdout.strip().splitlines() or [""])[-1]
        if done.returncode != 0 or last != f"{len(tests)} passed, 0 failed, 0 skipped":  # each name is a test's
            raise ValueError((done.stdout + done.stderr)[-2000:])
        notes = [line.strip() for line in done.stdout.splitlines() if line.startswith("    --")]
        return {"said": "; ".join([last + ": the tokens of the CPU, prefill, decode or both on the device, of --numerics tensor where "
                                   "they are sure", *notes])}

    def run(self):
        self.part("machine", self.machine)
        self.part("build", self.build)
        if self.args.simt:
            self.part("plugin", self.plugin)
        self.part("kcheck", self.kcheck)
        self.part("tensor kcheck", self.tensor_kcheck)
        self.part("peer", self.measure_peer)
        for name in ("attention", "few_rows", "many_rows", "experts", "tensor_attention", "tensor_few_rows", "tensor_many_rows", "hand_over",
                     "graphs"):
            self.part("hand-over" if name == "hand_over" else name.replace("_", " "), getattr(self, name))
        # Last, as they may take what time there is.
        for tool in ("memcheck", "racecheck"):
            self.part(tool, lambda t=tool: self.sanitizer(t))
        self.part("end to end", self.end_to_end)


def figures(row):
    parts = [f"{row['us']:.1f} us"] if "us" in row else ["ran"]
    for name, words, factor in (("gb_per_s", "GB/s", 1), ("of_copy", "% of the copy", 100), ("tflops", "TFLOP/s", 1),
                                ("of_peer", "% of cuBLASLt", 100), ("exact_us", "us exact", 1)):
        if name in row:
            parts.append(f"{factor * row[name]:.4g} {words}")
    return ", ".join(parts)


def table(out):
    """In Markdown."""
    lines = ["| part | of | figure |", "|---|---|---|"]
    for part in out["parts"]:
        what = part.get("why") or part.get("said") or part.get("device") or part.get("how") or ""
        if "copy_gb_per_s" in part:
            what = f"copy {part['copy_gb_per_s']} GB/s; cuBLASLt " + ", ".join(
                f"{p['rows']} rows {p['tflops']} TFLOP/s" for p in part["products"])
        lines.append(f"| {part['part']} | {part['status']} | {' '.join(what.split())} |")
        lines += [f"| {part['part']} | {r['type']}, {r['rows']} rows | {figures(r)} |" for r in part.get("rows", [])]
    return f"Commit {out['commit']}; {out['took_s']:.0f} s.\n\n" + "\n".join(lines)


def panels(out):
    """Of parts that have times; a rehearsal has none."""
    found = []
    for part in out["parts"]:
        for key, unit in (("gb_per_s", "GB/s"), ("tflops", "TFLOP/s"), ("us", "us")):
            rows = [r for r in part.get("rows", []) if key in r]
            if rows:
                found.append(Bars(part["part"], unit, [f"{r['type']}, {r['rows']} rows" for r in rows], [(key, [r[key] for r in rows])]))
                break
    return found


def parse():
    p = parser("gpu-check", __doc__)
    p.add_argument("--simt", action="store_true")
    p.add_argument("--bare", action="store_true")
    p.add_argument("--write", action="store_true")
    p.add_argument("--folder", default=os.path.join(ROOT, "build", "gpu-check"))
    p.add_argument("--no-build", action="store_true", help="use the project's own build as it is")
    p.add_argument("--limit", type=float, default=520)
    args = p.parse_args()
    args.folder = os.path.abspath(args.folder)
    if args.simt and args.write:
        p.error("a rehearsal has nothing to write: no GPU ran")
    return args


def main():
    args = parse()
    check = Check(args)
    check.run()
    out = describe(args, ("simt", "bare", "limit"))
    out.update(rehearsal=args.simt, took_s=time.monotonic() - check.begin, parts=check.parts)
    path = args.out or os.path.join(args.folder, "gpu-check.json")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    write(path, json.dumps(out, indent=1))
    args.out = ""  # written as it is read, by people
    finish(args, out, lambda out: print(f"\n{table(out)}\n\nall of it: {path}"), panels)
    has_device = args.simt or check.parts[0]["status"] == "ok"
    if args.write and has_device:
        _gpu.write_between(PAGE, "figures of a GPU", table(out))
    failed = any(part["status"] == "failed" for part in check.parts)
    if not has_device:
        print(f"baton: {check.parts[0].get('why', 'no GPU')}", file=sys.stderr)
    return 1 if failed else 0 if has_device else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
