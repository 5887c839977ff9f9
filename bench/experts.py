#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick are the products of a mixture of experts, beside a dense product of the same work?

Usage: ./baton bench experts [options]
  --threads LIST     threads of each run (default: as many as there are cores)
  --shapes LIST      qwen3-30b-a3b (128 experts, 8 of a row), gpt-oss (32, 4),
                     mixtral (8, 2); default all
  --types LIST       weight types (default Q4_K,Q8_0,MXFP4,BF16; those whose blocks do
                     not divide a row are left out)
  --rows LIST        rows of a product (default 1,8,32,512)
  --rounds N         times that everything is measured (default 5)
  --ms N             time for each figure in a round (default 100)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the table

Experts are drawn at random, those of a row different ones, so that 512 rows of 8 among
128 experts give each some 32. The dense product has as many outputs as a row's experts
together have, and the same inputs: the same multiplications. Both take turns.

  us             median of the rounds' medians
  of dense       in the middle of the rounds, time of the dense product / time of the
                 experts': 1 means that nothing is lost
  of read        bytes of the weights of the experts that have rows, as large as in the
                 file, a second, against a read-only stream with as many threads
"""
import os

from _shared import (BUSY_PERCENT, Half, Limits, Load, Progress, add_limit_options, build, describe, finish_limits, median,
                     number_list, parser, show_machine, threads_title)
from charts import Bars
from kernels import TYPES, name_list

# Experts, how many of a row, outputs and inputs of one: gate and up together, and down.
SHAPES = {
    "qwen3-30b-a3b": (128, 8, {"gate+up": (1536, 2048), "down": (2048, 768)}),
    "gpt-oss": (32, 4, {"gate+up": (5760, 2880), "down": (2880, 2880)}),
    "mixtral": (8, 2, {"gate+up": (28672, 4096), "down": (4096, 14336)}),
    # For tests.
    "tiny": (8, 2, {"gate+up": (64, 256), "down": (256, 256)}),
}
COPIES_BYTES = 96 << 20  # of the dense matrix, as many copies as are larger together than the caches


def fits(kind, n_in):
    """@return whether rows of n_in weights are whole blocks of this type"""
    is_super = kind.endswith(("_K", "_S", "_M", "_XS", "_XXS")) or kind.startswith("TQ")
    return n_in % (256 if is_super else 64 if kind == "NVFP4" else 1 if kind in ("F32", "F16", "BF16") else 32) == 0


def n_touched(n_experts, n_used, rows):
    """@return how many experts have rows, expected of a uniform draw"""
    return n_experts * (1 - (1 - n_used / n_experts) ** rows)


class Pair:
    """Two processes with one product each."""

    def __init__(self, args, threads, program, shape, name, kind):
        self.args = args
        self.n_experts, self.n_used, matrices = SHAPES[shape]
        self.n_out, self.n_in = matrices[name]
        most = max(args.rows)
        self.experts = Half([program, threads, most, args.limit_mib])
        self.dense = Half([program, threads, most, args.limit_mib])
        self.backend = self.experts.read()["backend"]
        self.dense.read()
        self.bytes = self.experts.ask("weight", kind, self.n_experts * self.n_out, self.n_in, 1)["bytes"]
        dense = self.bytes // self.n_experts * self.n_used
        self.dense.ask("weight", kind, self.n_used * self.n_out, self.n_in, max(1, min(64, COPIES_BYTES // dense)))
        self.limits = Limits()

    def measure(self, n):
        """@return seconds of one product of experts, and of a dense one"""
        return [median(half.ask(*command, n, self.args.ms)["seconds"])
                for half, command in ((self.experts, ("experts", self.n_experts, self.n_used)), (self.dense, ("matmul",)))]

    def close(self):
        self.experts.close()
        self.dense.close()


def measure(args, threads, program, shape, name, kind, progress):
    """@return the back end, and a row for each number of rows"""
    pair = Pair(args, threads, program, shape, name, kind)
    rows = []
    samples = {n: [] for n in args.rows}
    loads = {n: Load() for n in args.rows}
    for _ in range(args.rounds):
        pair.limits.measure(pair.experts, args.limit_ms)
        for n in args.rows:
            with loads[n].during():
                samples[n].append(pair.measure(n))
        progress.step()
    pair.close()
    for n in args.rows:
        experts = median([e for e, _ in samples[n]])
        touched = n_touched(pair.n_experts, pair.n_used, n)
        rate = pair.bytes / pair.n_experts * touched / experts
        rows.append({"shape": shape, "name": name, "type": kind, "rows": n, "us": 1e6 * experts,
                     "of_dense": median([d / e for e, d in samples[n]]), "experts_touched": touched,
                     "gb_per_s": rate / 1e9, "read_percent": 100 * rate / pair.limits.rate("read"),
                     "busy": loads[n].others_percent() > BUSY_PERCENT})
    return pair.backend, rows


def show(out):
    show_machine(out)
    for t in out["threads"]:
        print(f"\n{threads_title(t)}, {t['backend']}")
        print(f"{'':32}{'rows':>5}{'experts':>9}{'us':>10}{'of dense':>10}{'GB/s':>8}{'of read':>9}")
        for r in t["rows"]:
            print(f"{r['shape'] + ' ' + r['name']:24}{r['type']:8}{r['rows']:5}{r['experts_touched']:9.1f}{r['us']:10.0f}"
                  f"{r['of_dense']:10.2f}{r['gb_per_s']:8.2f}{r['read_percent']:7.1f} %{' *' if r['busy'] else ''}")


def panels(out):
    drawn = []
    for t in out["threads"]:
        products = list(dict.fromkeys((r["shape"], r["name"], r["type"]) for r in t["rows"]))
        of_dense = {(r["shape"], r["name"], r["type"], r["rows"]): r["of_dense"] for r in t["rows"]}
        drawn.append(Bars(f"Products of experts, {threads_title(t)}", "time of a dense product of the same work / time",
                          [" ".join(p) for p in products],
                          [(f"{n} rows", [of_dense[(*p, n)] for p in products]) for n in dict.fromkeys(r["rows"] for r in t["rows"])]))
    return drawn


def parse():
    p = parser("experts", __doc__)
    add_limit_options(p, 60)
    p.set_defaults(threads=[len(os.sched_getaffinity(0))])
    p.add_argument("--shapes", type=name_list(SHAPES), default=[s for s in SHAPES if s != "tiny"])
    p.add_argument("--types", type=name_list(TYPES), default=["Q4_K", "Q8_0", "MXFP4", "BF16"])
    p.add_argument("--rows", type=number_list, default=[1, 8, 32, 512])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--ms", type=int, default=100)
    args = p.parse_args()
    if min(args.ms, args.rounds, args.limit_mib, args.limit_ms) < 1:
        p.error("counts must be at least 1")
    return args


def main():
    args = parse()
    program = build("kernels-run", make=not args.no_build)
    out = dict(describe(args, ("threads", "shapes", "types", "rows", "rounds", "ms")), threads=[])
    work = [(shape, name, kind) for shape in args.shapes for name, (_, n_in) in SHAPES[shape][2].items() for kind in args.types
            if fits(kind, n_in)]
    progress = Progress(len(args.threads) * len(work) * args.rounds, args.json)
    whole = Load()
    with whole.during():
        for threads in args.threads:
            measured = [measure(args, threads, program, *w, progress) for w in work]
            out["threads"].append({"threads": threads, "backend": measured[0][0], "rows": [r for _, rows in measured for r in rows]})
    finish_limits(args, out, whole, show, panels)


if __name__ == "__main__":
    main()
