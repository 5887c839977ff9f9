#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick is each operation of the CPU back end, and how far from the limits?

Usage: ./baton bench kernels [options]
  --threads LIST     threads of each run (default 1,2, as far as there are cores)
  --shapes LIST      135m (the default model), 8b (its class); default both
  --rows LIST        rows of an operation (default 1,4,8,32,128,512)
  --types LIST       weight types that the widest rows of the first shape ("down")
                     are measured with beside the shape's own (default all)
  --kv-types LIST    of attention (default bf16,int8)
  --ops LIST         matmul, attention, rows (rmsnorm, silu_mul, add, rope_store);
                     default all
  --tier NAME        plain, avx2 or avx512 at most (default: the best there is)
  --ms N             time for each figure (default 150)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the tables

A matmul goes round copies of its matrix that are larger together than the caches,
as in a pass over a model; making its rows 8-bit integers is part of it. Everything
else works on what the operation before it left in the caches, as in a pass too.
The limits are measured again between all of it.

  us, best      median of all calls, and the quickest. What follows is of the
                quickest, against the best that the limits came to: what the code and
                the machine do undisturbed (--json has it of the medians too)
  GB/s          bytes that must be read and written: weights as large as in the file,
                KV, rows in f32; of read: against a read-only stream from memory with
                as many threads (what lies in the caches can be quicker)
  GOPS          2 for each weight and row; attention 4 for each query element and
                position. of peak: against a loop of multiply-adds in registers with
                as many threads: int8 for quantized weights, bf16 for 16-bit ones where
                the CPU has it, f32 for the rest (column "peak")
  of roof       the time that the slower of the two limits would take / the time
  a pass        all matmuls of a pass over the default model, by their medians
"""
import argparse
import os

from _roofline import Roofline
from _shared import (BUSY_PERCENT, Half, Limits, Load, Progress, add_limit_options, build, describe, finish_limits, median,
                     number_list, parser, roof, show_machine, threads_title)
from charts import Lines

TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
         "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0",
         "MXFP4", "NVFP4")
KV_TYPES = ("bf16", "f16", "int8", "fp8")
KV_SCALED = ("int8", "fp8")
# (name, type, outputs, inputs, how many a pass has)
SHAPES = {
    "135m": {"matrices": [("qkv", "Q4_1", 960, 576, 30), ("attention out", "Q4_1", 576, 576, 30),
                          ("gate+up", "Q4_1", 3072, 576, 30), ("down", "Q4_1", 576, 1536, 30),
                          ("output", "Q8_0", 49152, 576, 1)],
             "heads": 9, "kv_heads": 3, "head_dim": 64, "dim": 576, "ffn_dim": 1536},
    "8b": {"matrices": [("qkv", "Q4_K", 6144, 4096, 32), ("attention out", "Q4_K", 4096, 4096, 32),
                        ("gate+up", "Q4_K", 28672, 4096, 32), ("down", "Q4_K", 4096, 14336, 32)],
           "heads": 32, "kv_heads": 8, "head_dim": 128, "dim": 4096, "ffn_dim": 14336},
    # For tests.
    "tiny": {"matrices": [("down", "Q4_1", 64, 256, 2), ("output", "Q8_0", 288, 64, 1)],
             "heads": 4, "kv_heads": 2, "head_dim": 16, "dim": 64, "ffn_dim": 256},
}
# (rows of one sequence, position of the first, sequences)
PREFILLS = ((128, 0), (512, 0), (512, 1536), (512, 3584))
DECODES = ((128, (1, 8, 32)), (1024, (1, 8, 32)), (4096, (1,)))


def work_of(args):
    """@return [(method of Bench, its arguments…)]"""
    work = []
    for i, shape in enumerate(args.shapes):
        s = SHAPES[shape]
        if "matmul" in args.ops:
            name, own, n_out, n_in, _ = max(s["matrices"], key=lambda m: m[3])
            others = [(name, kind, n_out, n_in, 0) for kind in args.types if kind != own]
            work += [("matmul", shape, *matrix) for matrix in s["matrices"] + (others if i == 0 else [])]
        if "attention" in args.ops:
            work += [("attention", shape, s, kv_type) for kv_type in args.kv_types]
        if "rows" in args.ops:
            work.append(("row_ops", shape, s))
    return work


class Bench:
    def __init__(self, args, threads, program):
        env = dict(os.environ, BATON_CPU_TIER=args.tier) if args.tier else None
        self.args = args
        self.threads = threads
        self.most = max(*args.rows, *(n for n, _ in PREFILLS))
        self.half = Half([program, threads, self.most, args.limit_mib], env)
        self.hello = self.half.read()
        self.limits = Limits()
        self.rows = []

    def measure(self, what, command, ops, n_bytes, peak):
        """what: {"op", "shape", "type", "rows"…}; peak: the name of a limit, or types of weights"""
        load = Load()
        with load.during():
            samples = self.half.ask(*command, self.args.ms)["seconds"]
        self.rows.append(dict(what, samples=samples, ops=ops, bytes=n_bytes, peak=peak,
                              cpu_others_percent=load.others_percent(), busy=load.others_percent() > BUSY_PERCENT))

    def measure_limits(self):
        self.limits.measure(self.half, self.args.limit_ms)

    def matmul(self, shape, name, kind, n_out, n_in, count):
        rough = max(1, n_out * n_in * (4 if kind == "F32" else 2 if kind in ("F16", "BF16") else 0.5))
        copies = min(1000, -(-(self.args.copies_mib << 20) // int(rough)))
        got = self.half.ask("weight", kind, n_out, n_in, copies)
        self.measure_limits()
        for n in self.args.rows:
            self.measure({"op": "matmul", "shape": shape, "name": name, "type": kind, "rows": n, "count": count,
                          "n_out": n_out, "n_in": n_in, "packed_bytes": got["packed_bytes"]}, ("matmul", n),
                         2 * n_out * n_in * n, got["bytes"] + 4 * n * (n_out + n_in), self.limits.compute_for({kind: 1}))

    def attention(self, shape, s, kv_type):
        element = 1 if kv_type in KV_SCALED else 2
        width = (s["heads"] + 2 * s["kv_heads"]) * s["head_dim"]
        token = 2 * s["kv_heads"] * (s["head_dim"] * element + (4 if kv_type in KV_SCALED else 0))
        cases = [("prefill", n, pos, 1) for n, pos in PREFILLS]
        cases += [("decode", 1, pos, seqs) for pos, many in DECODES for seqs in many]
        self.measure_limits()
        for name, n, pos, seqs in cases:
            if pos + n > self.args.max_context or max(n, seqs) > max(self.args.rows):
                continue
            self.half.ask("kv", kv_type, s["heads"], s["kv_heads"], s["head_dim"], n, pos, seqs)
            what = {"shape": shape, "type": kv_type, "rows": n * seqs, "pos": pos, "seqs": seqs, "count": 0}
            q = s["heads"] * s["head_dim"]
            self.measure(dict(what, op="attention", name=f"{name} at {pos}"), ("attention",),
                         4 * q * seqs * (n * pos + n * (n + 1) // 2), seqs * ((pos + n) * token + 8 * n * q), "f32")
            if pos == 0 or (name == "decode" and pos == DECODES[0][0]):
                self.measure(dict(what, op="rope_store", name=f"{name} at {pos}"), ("rope_store",),
                             3 * n * seqs * (q + s["kv_heads"] * s["head_dim"]), n * seqs * (4 * width + 4 * q + token),
                             "f32")

    def row_ops(self, shape, s):
        self.measure_limits()
        for n in self.args.rows:
            for op, width, ops, words in (("rmsnorm", s["dim"], 4, 2), ("silu_mul", s["ffn_dim"], 4, 3),
                                          ("add", s["dim"], 1, 3)):
                self.measure({"op": op, "shape": shape, "name": str(width), "type": "f32", "rows": n, "count": 0},
                             (op, width, n), ops * n * width, 4 * words * n * width, "f32")

    def run(self, work, progress):
        for name, *rest in work:
            getattr(self, name)(*rest)
            progress.step()
        self.measure_limits()
        self.half.close()
        for r in self.rows:
            self.finish(r)
        return {"threads": self.threads, **self.hello, "limits": self.limits.figures(), "rows": self.rows,
                "passes": passes(self.rows)}

    def finish(self, r):
        samples = r.pop("samples")
        r["samples"] = len(samples)
        r["ops_per_byte"] = r["ops"] / r["bytes"]
        for name, seconds, rate in (("median", median(samples), self.limits.rate), ("best", min(samples), self.limits.best)):
            r[name] = {"us": 1e6 * seconds, "gb_per_s": r["bytes"] / seconds / 1e9, "gops": r["ops"] / seconds / 1e9,
                       "read_percent": 100 * r["bytes"] / seconds / rate("read"),
                       "compute_percent": 100 * r["ops"] / seconds / rate(r["peak"]),
                       "roof_percent": 100 * roof(rate, r["peak"], r) / seconds}


def passes(rows):
    """All matmuls of a pass over each shape: {"shape", "rows", "ms", "tokens_per_s"}"""
    out = {}
    for r in rows:
        if r["op"] == "matmul" and r["count"] > 0:
            p = out.setdefault((r["shape"], r["rows"]), {"shape": r["shape"], "rows": r["rows"], "ms": 0.0})
            p["ms"] += r["count"] * r["median"]["us"] / 1e3
    for p in out.values():
        p["tokens_per_s"] = 1e3 * p["rows"] / p["ms"]
    return list(out.values())


def us(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"


def show_threads(t):
    print(f"\n{threads_title(t)}, {t['backend']}, profile {t['profile']}")
    print(Limits.line(t["limits"]))
    header = (f"{'':31}{'rows':>5}{'us':>10}{'best':>10}{'GB/s':>8}{'of read':>9}{'GOPS':>8}{'of peak':>9}{'of roof':>9}"
              "  peak")
    before = None
    for r in t["rows"]:
        group = (r["op"] if r["op"] in ("matmul", "attention") else "rows", r["shape"])
        if group != before and not (before and group[0] == "rows" and before[0] == "attention" and r["op"] == "rope_store"):
            print(f"\n{r['shape']}\n{header}")
            before = group
        b = r["best"]
        print(f"{r['op'] + ' ' + r['name']:26}{r['type']:5}{r['rows']:5}{us(r['median']['us']):>10}{us(b['us']):>10}"
              f"{b['gb_per_s']:8.2f}{b['read_percent']:7.1f} %{b['gops']:8.1f}{b['compute_percent']:7.1f} %"
              f"{b['roof_percent']:7.1f} %  {r['peak']}{' *' if r['busy'] else ''}")
    for p in t["passes"]:
        print(f"a pass    {p['shape']}, {p['rows']} rows: matmuls {p['ms']:.2f} ms, {p['tokens_per_s']:.0f} rows/s")


def show(out):
    show_machine(out)
    for t in out["threads"]:
        show_threads(t)


def panels(out):
    found = []
    names = list(dict.fromkeys(series(r) for t in out["threads"] for r in t["rows"] if series(r)))
    for t in out["threads"]:
        points = [{"label": f"{r['type']} x {r['rows']}" if r["op"] == "matmul" and r["name"] == "down" and r["count"] else "",
                   "x": r["ops_per_byte"], "y": r["best"]["gops"], "series": series(r)} for r in t["rows"] if series(r)]
        if points:
            found.append(Roofline(threads_title(t), points, t["limits"]["read"]["best"],
                                  [(n, t["limits"][n]["best"]) for n in ("int8", "f32")], names))
    rates = {}
    for t in out["threads"]:
        for p in t["passes"]:
            rates.setdefault(f"{p['shape']}, {threads_title(t)}", []).append((p["rows"], p["tokens_per_s"]))
    if rates:
        found.append(Lines("All matmuls of a pass", "rows of a pass", "rows/s", list(rates.items()), log_x=True, log_y=True))
    return found


def series(row):
    """@return what a row is drawn as, or None"""
    return f"matmul {row['shape']}" if row["op"] == "matmul" else "attention" if row["op"] == "attention" else None


def name_list(known):
    def parse_names(text):
        names = text.split(",")
        if not set(names) <= set(known):
            raise argparse.ArgumentTypeError(f"known are {', '.join(known)}")
        return names
    return parse_names


def parse():
    p = parser("kernels", __doc__)
    add_limit_options(p, 60)
    p.add_argument("--shapes", type=name_list(SHAPES), default=["135m", "8b"])
    p.add_argument("--rows", type=number_list, default=[1, 4, 8, 32, 128, 512])
    p.add_argument("--types", type=name_list(TYPES), default=list(TYPES))
    p.add_argument("--kv-types", type=name_list(KV_TYPES), default=["bf16", "int8"])
    p.add_argument("--ops", type=name_list(("matmul", "attention", "rows")), default=["matmul", "attention", "rows"])
    p.add_argument("--tier", choices=("plain", "avx2", "avx512"))
    p.add_argument("--ms", type=int, default=150)
    p.add_argument("--copies-mib", type=int, default=96, help="size of the copies of a matrix together")
    p.add_argument("--max-context", type=int, default=4608, help="longest context of attention")
    args = p.parse_args()
    if min(args.ms, args.limit_mib, args.limit_ms, args.copies_mib) < 1:
        p.error("counts must be at least 1")
    return args


def main():
    args = parse()
    program = build("kernels-run", make=not args.no_build)
    out = dict(describe(args, ("threads", "shapes", "rows", "types", "kv_types", "ops", "tier", "ms")), threads=[])
    work = work_of(args)
    progress = Progress(len(args.threads) * len(work), args.json)
    whole = Load()
    with whole.during():
        for threads in args.threads:
            out["threads"].append(Bench(args, threads, program).run(work, progress))
    finish_limits(args, out, whole, show, panels)


if __name__ == "__main__":
    main()
