#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick is the model on this CPU, and how far from the machine's limits?

Usage: ./baton bench engine [options]
  --model PATH       GGUF file (default: the default model)
  --threads LIST     threads of each run (default 1,2, as far as there are cores)
  --prefill LIST     prompt lengths (default 128,512,2048; longer than the
                     model's context are left out)
  --batch LIST       sequences that decode together (default 1,4,8,16,32)
  --after N          tokens that each of them holds before (default 128)
  --steps N          tokens that each then gets (default 32)
  --chunk N          rows of one prefill pass (default 512)
  --kv-dtype TYPE     of the KV cache (default bf16)
  --weight-cache W   auto, off or a folder, as of the server (default auto)
  --rounds N         times that everything is measured (default 5)
  --peer llama.cpp   the same work by llama.cpp in the same run, in turns
  --peer-files LIST  types of the files that it runs (default own,Q4_0,Q4_K_M,
                     BF16; own is the file itself, others are made from it)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the tables

The forward pass runs in one process, with a paged KV cache, without sampling:
prefill is one sequence in chunks with the logits of its last token, decode is one
token for each sequence per step, with logits. Every round measures everything
once, the limits of the machine first, then each figure by all in turns, in the
opposite order in every second round.

  tok/s, best   median of all samples, and the quickest. What follows is of the
                quickest, against the best that the limits came to: what the code and
                the machine do undisturbed (--json has it of the medians too)
  GB/s          weights (as large as in the file) and KV that must be read; of read:
                weights alone against a read-only stream with as many threads;
                nearby: weights and KV of all samples, each against streams right before
                and after, in the middle of the rounds (memory that others use too
                changes its speed within seconds)
  GOPS          multiplications and additions that the result needs: 2 for each
                weight and row, 4 for each query element and position of attention;
                the last layer's only for rows with logits. of int8 (bf16, f32, by
                the type of the weights): against a loop of such multiply-adds in
                registers with as many threads
  of roof       the time that the slower of the two limits would take / the time
  ratio         to the peer: median over the rounds of tok/s / tok/s in that round;
                to best: against the quickest of its files in each round; bests: our
                quickest sample / the quickest of all its samples
"""
import os

import _llama
from _roofline import Roofline
from _shared import (BUSY_PERCENT, Half, Limits, Load, Progress, add_limit_options, add_model_option, build, check_model,
                     describe, finish_limits, median, number_list, parser, roof, show_machine, threads_title, timed)
from charts import Bars


def work_of(model, row, args):
    """@return what a sample of this row needs: operations, bytes read, bytes of weights, tokens it gives"""
    q = model["n_heads"] * model["head_dim"]
    kv = model["n_kv_heads"] * model["head_dim"]
    qkv = model["dim"] * (q + 2 * kv)
    rest = q * model["dim"] + 3 * model["dim"] * model["ffn_dim"]
    layers = model["n_layers"]

    def one_pass(seqs, logits):
        """seqs: (position, rows) of each; the last row of `logits` of them is wanted"""
        rows = sum(n for _, n in seqs)
        ops = 2 * rows * (layers * qkv + (layers - 1) * rest)
        ops += 2 * logits * (rest + model["dim"] * model["n_vocab"])
        for pos, n in seqs:
            ops += 4 * q * (layers - 1) * (n * pos + n * (n + 1) // 2)
            ops += 4 * q * (pos + n) if logits else 0
        weights = model["layer_bytes"] + (model["output_bytes"] if logits else 0)
        return ops, weights, model["kv_token_bytes"] * sum(pos + n for pos, n in seqs)

    n = row["n"]
    if row["kind"] == "prefill":
        chunks = [(pos, min(args.chunk, n - pos)) for pos in range(0, n, args.chunk)]
        passes = [one_pass([c], 1 if sum(c) == n else 0) for c in chunks]
        tokens = n
    else:
        passes = [one_pass([(args.after + s, 1)] * n, n) for s in range(args.steps)]
        tokens = n * args.steps
    ops, weights, cached = (sum(x) for x in zip(*passes))
    return {"ops": ops, "bytes": weights + cached, "weight_bytes": weights, "tokens": tokens}


class Contender:
    """Who runs the work: our process, or the peer's with one file."""

    def __init__(self, name, half):
        self.name, self.half = name, half

    def measure(self, row, min_ms):
        return timed(lambda: self.half.ask(row["kind"], row["n"]), min_ms)


def rows_for(args):
    return ([{"kind": "prefill", "n": n} for n in args.prefill] + [{"kind": "decode", "n": n} for n in args.batch])


def measure_threads(args, threads, program, peers, progress):
    ours = Half([program, args.model, threads, args.kv_dtype, args.chunk, max(args.prefill), max(args.batch), args.after,
                 args.steps, args.limit_mib, args.weight_cache])
    model = ours.read()
    contenders = [Contender("baton", ours)]
    for name, half in peers:
        half.ask("threads", threads)
        contenders.append(Contender(name, half))
    wanted = rows_for(args)
    rows = [r for r in wanted if r["kind"] == "decode" or r["n"] <= model["context_tokens"]]
    progress.total -= args.rounds * (len(wanted) - len(rows))
    for c in contenders:
        for kind in {r["kind"]: r for r in rows}.values():
            c.measure(kind, 0)
    limits = Limits()
    samples = {(i, c.name): [] for i in range(len(rows)) for c in contenders}
    reads = [[] for _ in rows]
    loads = [Load() for _ in rows]
    for r in range(args.rounds):
        limits.measure(ours, args.limit_ms)
        for i, row in enumerate(rows):
            with loads[i].during():
                for c in contenders if r % 2 == 0 else contenders[::-1]:
                    before = read_now(ours, args) if c.half is ours else 0
                    samples[i, c.name].append(c.measure(row, args.sample_ms))
                    if c.half is ours:
                        reads[i].append((before + read_now(ours, args)) / 2)
            progress.step()
    limits.measure(ours, args.limit_ms)
    ours.close()
    compute = limits.compute_for(model["types"])
    figures = []
    for i, row in enumerate(rows):
        work = work_of(model, row, args)
        f = dict(row, **rate_figures(samples[i, "baton"], work, limits, compute),
                 read_percent_nearby=median([100 * work["bytes"] / median(t) / rate
                                             for t, rate in zip(samples[i, "baton"], reads[i])]),
                 cpu_others_percent=loads[i].others_percent(), peers={})
        for name, _ in peers:
            f["peers"][name] = peer_figures(samples[i, "baton"], samples[i, name], work)
        if peers:
            f["ratio_to_best"] = median([
                min(median(samples[i, name][r]) for name, _ in peers) / median(samples[i, "baton"][r])
                for r in range(args.rounds)])
            f["ratio_of_bests"] = (f["best_tokens_per_s"]
                                   / max(p["best_tokens_per_s"] for p in f["peers"].values()))
        f["busy"] = f["cpu_others_percent"] > BUSY_PERCENT
        figures.append(f)
    return {"threads": threads, "model": model, "limits": limits.figures(), "compute_limit": compute, "rows": figures}


def read_now(half, args):
    """@return bytes per second of a read-only stream"""
    return half.ask("limit", "read", args.limit_ms)["median"]


def rate_figures(rounds, work, limits, compute):
    samples = [x for r in rounds for x in r]
    t, best = median(samples), min(samples)
    out = {"samples": len(samples), "tokens_per_s": work["tokens"] / t, "best_tokens_per_s": work["tokens"] / best,
           "ops": work["ops"], "bytes": work["bytes"], "weight_bytes": work["weight_bytes"],
           "ops_per_byte": work["ops"] / work["bytes"]}
    for name, seconds, rate in (("median", t, limits.rate), ("best", best, limits.best)):
        out[name] = {"seconds": seconds, "gb_per_s": work["bytes"] / seconds / 1e9, "gops": work["ops"] / seconds / 1e9,
                     "read_percent": 100 * work["weight_bytes"] / seconds / rate("read"),
                     "compute_percent": 100 * work["ops"] / seconds / rate(compute),
                     "roof_percent": 100 * roof(rate, compute, work) / seconds}
    return out


def peer_figures(ours, theirs, work):
    samples = [x for r in theirs for x in r]
    return {"tokens_per_s": work["tokens"] / median(samples), "best_tokens_per_s": work["tokens"] / min(samples),
            "ratio": median([median(b) / median(a) for a, b in zip(ours, theirs)])}


def show_threads(t, peer):
    f = t["limits"]
    peak = t["compute_limit"]
    print(f"\n{threads_title(t)}, {t['model']['backend']}")
    print(Limits.line(f))
    print(f"{'':14}{'tok/s':>9}{'best':>9}{'GB/s':>8}{'of read':>9}{'nearby':>9}{'GOPS':>9}{'of ' + peak:>9}{'of roof':>9}")
    for r in t["rows"]:
        b = r["best"]
        print(f"{r['kind'] + ' ' + str(r['n']):14}{r['tokens_per_s']:9.1f}{r['best_tokens_per_s']:9.1f}"
              f"{b['gb_per_s']:8.2f}{b['read_percent']:7.1f} %{r['read_percent_nearby']:7.1f} %{b['gops']:9.1f}{b['compute_percent']:7.1f} %"
              f"{b['roof_percent']:7.1f} %{' *' if r['busy'] else ''}")
    if not peer:
        return
    names = list(t["rows"][0]["peers"])
    print(f"{peer + ' tok/s':14}" + "".join(f"{n:>9}{'ratio':>8}" for n in names) + f"{'to best':>9}{'bests':>8}")
    for r in t["rows"]:
        print(f"{r['kind'] + ' ' + str(r['n']):14}"
              + "".join(f"{r['peers'][n]['tokens_per_s']:9.1f}{r['peers'][n]['ratio']:8.2f}" for n in names)
              + f"{r['ratio_to_best']:9.2f}{r['ratio_of_bests']:8.2f}{' *' if r['busy'] else ''}")


def show(out):
    show_machine(out)
    model = out["threads"][0]["model"]
    kinds = ", ".join(f"{n} {b / 1e6:.1f} MB" for n, b in sorted(model["types"].items(), key=lambda x: -x[1]))
    print(f"model     {out['model']}: {kinds} read by a pass with logits; loaded in "
          f"{model['load_seconds']:.2f} s (packed weights: {model['weights']})")
    if out["peer"]:
        print(f"peer      {out['peer']}")
    for t in out["threads"]:
        show_threads(t, out["peer"] and out["peer"].split()[0])


def panels(out):
    found = []
    theirs = f"{out['peer'].split()[0]}, best file" if out["peer"] else ""
    names = ["Baton prefill", "Baton decode"] + ([theirs] if theirs else [])
    for t in out["threads"]:
        points = []
        for r in t["rows"]:
            points.append({"label": f"{r['kind']} {r['n']}", "x": r["ops_per_byte"], "y": r["best"]["gops"],
                           "series": "Baton " + r["kind"]})
            if r["peers"]:
                points.append({"label": "", "x": r["ops_per_byte"], "y": r["best"]["gops"] / r["ratio_of_bests"],
                               "series": theirs})
        found.append(Roofline(threads_title(t), points, t["limits"]["read"]["best"],
                              [(n, t["limits"][n]["best"]) for n in dict.fromkeys((t["compute_limit"], "f32"))], names))
    for t in out["threads"]:
        rates = [("Baton", [(r["tokens_per_s"], None, r["best_tokens_per_s"]) for r in t["rows"]])]
        rates += [(f"{out['peer'].split()[0]} {name}", [(r["peers"][name]["tokens_per_s"], None, r["peers"][name]["best_tokens_per_s"])
                                                         for r in t["rows"]]) for name in t["rows"][0]["peers"]]
        found.append(Bars(f"{threads_title(t)}: median, up to the best", "tokens/s", [f"{r['kind']} {r['n']}" for r in t["rows"]], rates))
    return found


def parse():
    p = parser("engine", __doc__)
    add_model_option(p)
    add_limit_options(p, 120)
    p.add_argument("--prefill", type=number_list, default=[128, 512, 2048])
    p.add_argument("--batch", type=number_list, default=[1, 4, 8, 16, 32])
    p.add_argument("--after", type=int, default=128)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--chunk", type=int, default=512)
    p.add_argument("--kv-dtype", default="bf16")
    p.add_argument("--weight-cache", default="auto")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--peer", choices=("llama.cpp",))
    p.add_argument("--peer-files", type=lambda x: x.split(","), default=["own", "Q4_0", "Q4_K_M", "BF16"])
    p.add_argument("--sample-ms", type=int, default=100, help="a figure is repeated for so long per round")
    args = p.parse_args()
    if min(args.after, args.steps, args.chunk, args.rounds, args.limit_mib, args.limit_ms) < 1:
        p.error("counts must be at least 1")
    check_model(p, args)
    unknown = set(args.peer_files) - {"own", *_llama.FILE_TYPES}
    if unknown:
        p.error(f"--peer-files: {', '.join(unknown)}? known are own, {', '.join(_llama.FILE_TYPES)}")
    return args


def start_peers(args):
    """@return ([(file type, process)], what it is)"""
    if not args.peer:
        return [], None
    python = _llama.install()
    files = _llama.files(python, args.model, args.peer_files)
    peers = [(name, _llama.start(python, path, args)) for name, path in files]
    version = [half.read()["version"] for _, half in peers][0]
    return peers, f"llama.cpp of llama-cpp-python {version}"


def main():
    args = parse()
    program = build("engine-run", make=not args.no_build)
    peers, version = start_peers(args)
    out = dict(describe(args, ("threads", "prefill", "batch", "after", "steps", "chunk", "kv_dtype", "weight_cache", "rounds")
                        + (("peer", "peer_files") if args.peer else ())),
               model=os.path.basename(args.model), peer=version, threads=[])
    progress = Progress(len(args.threads) * args.rounds * len(rows_for(args)), args.json)
    whole = Load()
    with whole.during():
        for threads in args.threads:
            out["threads"].append(measure_threads(args, threads, program, peers, progress))
    for _, half in peers:
        half.close()
    finish_limits(args, out, whole, show, panels)


if __name__ == "__main__":
    main()
