#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do the ranks of an instance cost, where as many threads of one process could have computed?

Usage: ./baton bench ranks [options]
  --tp N             ranks, of one thread each, on cores of their own (default 2)
  --type TYPE        of the model's matrices: Q4_0, Q8_0 (default Q4_0)
  --layers N         default 16: with it some 1.1 billion weights, the shape of Llama 3.2 1B
  --prefill N        prompt tokens (default 512)
  --batch LIST       sequences that decode together (default 1,8,32): of stages 32 go in lots, one behind the other
  --steps N          tokens of each (default 16)
  --rounds N         times that everything is measured, in turns (default 5)
  --prompt N         prompt tokens whose KV is handed over (default 2048)
  --handovers N      of each pair of layouts (default 24)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the tables

The file is made once, of random weights, in the cache. First the forward pass alone: one
process of N threads, N ranks of one and N stages of one, in turns. Then clusters of one prefill and one
decode worker with a small model whose KV is as wide as the large one's, in turns: tp N to 1
and 1 to 1. Without overlap all KV of a prompt is sent when its last token is there.

  ratio   tok/s of the ranks, or of the stages / tok/s of the threads, median over the rounds
  hand-over  ms from the prompt's last chunk computed until the decode worker's first token is
          at the router, less the time of a step there: what a client waits for
  tail    ms from there until the prefill worker knows that all is there and proven (nobody
          waits for that; on few cores the first step of decoding comes between)
  ratio   time of 1 to 1 / time of tp N to 1, median over pairs
"""
import os
import tempfile

import _peers
from _cluster import Client, Cluster, brief, warm_up
from _shared import Half, Load, build, describe, finish, median, number_list, parser, show_machine
from charts import Bars
from handover import lines_of
from trace_lines import read

SHAPE = ("--dim", 2048, "--heads", 32, "--kv-heads", 8, "--ffn", 8192, "--vocab", 49152, "--context", 8192, "--tied")
# As much KV a token and layer, and next to nothing to compute.
SMALL = ("--dim", 64, "--heads", 8, "--kv-heads", 8, "--head-dim", 64, "--ffn", 256, "--vocab", 49152, "--context", 8192)
AFTER = 128
OUTPUT = 4


def model_file(args, name, shape):
    path = os.path.join(_peers.cache(), f"ranks-{name}.gguf")
    with _peers.lock():
        if not os.path.exists(path):
            _peers.run([build("tiny-model", make=not args.no_build), path + ".part", *shape], path + ".log", f"making {path}")
            os.rename(path + ".part", path)
    return path


def halves(args, program):
    """@return {name: process} of those that take turns"""
    model = model_file(args, f"{args.layers}-{args.type}", ("--layers", args.layers, *SHAPE, "--type", args.type))
    out = {}
    for name, threads in (("threads", args.tp), ("ranks", f"{args.tp}x1"), ("stages", f"1x{args.tp}x1")):
        out[name] = Half([program, model, threads, "bf16", args.prefill, args.prefill, max(args.batch), AFTER, args.steps,
                          1, "off"])
        out[name].read()
    return out


def compute(args, program):
    """@return [{"kind", "n", "threads", "ranks", "stages": tokens/s, "ratio", "stages_ratio"}]"""
    out = []
    contenders = halves(args, program)
    for kind, n in [("prefill", args.prefill)] + [("decode", n) for n in args.batch]:
        tokens = n if kind == "prefill" else n * args.steps
        rates = {name: [] for name in contenders}
        for half in contenders.values():
            half.ask(kind, n)
        for r in range(args.rounds):
            for name in list(contenders)[::1 if r % 2 == 0 else -1]:
                rates[name].append(tokens / contenders[name].ask(kind, n)["seconds"])
        out.append({"kind": kind, "n": n, **{name: median(values) for name, values in rates.items()},
                    "ratio": median([b / a for a, b in zip(rates["threads"], rates["ranks"])]),
                    "stages_ratio": median([b / a for a, b in zip(rates["threads"], rates["stages"])])})
    for half in contenders.values():
        half.close()
    return out


def cluster_of(args, model, directory, tp, overlap):
    trace = os.path.join(directory, f"{tp}-{overlap}.jsonl")
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:args.tp]))
    common = ["--prefix-cache", "off", "--reduction-parts", str(args.tp)]
    return Cluster(model, kv_memory="512m", router_args=["--trace-file", trace], worker_args=common, decode_args=["--threads", "1"],
                   prefill_args=["--tp", str(tp), "--kv-overlap", overlap, "--cores", cores]), trace


def compared(args, ms):
    return {"from_1_ms": median(ms[1]), "from_tp_ms": median(ms[args.tp]),
            "ratio": median([a / b for a, b in zip(ms[1], ms[args.tp])])}


def hand_overs(args, overlap):
    """@return {"overlap", "from_1_ms", "from_tp_ms", "ratio"} of the hand-over, and the same of the tail"""
    model = model_file(args, f"small-{args.layers}", ("--layers", args.layers, *SMALL))
    ms = {1: [], args.tp: []}
    tails = {1: [], args.tp: []}
    with tempfile.TemporaryDirectory() as d:
        (one, one_trace), (several, several_trace) = (cluster_of(args, model, d, tp, overlap) for tp in ms)
        with one, several:
            clients = {1: (Client(one.http, 1, OUTPUT), one_trace),
                       args.tp: (Client(several.http, 1, OUTPUT), several_trace)}
            for c in (one, several):
                warm_up(c)
            for i in range(args.handovers + 2):  # the first touch pages of the pools
                for tp in (1, args.tp) if i % 2 == 0 else (args.tp, 1):
                    client, trace = clients[tp]
                    seen = len(read(trace))
                    client.closed(args.prompt, 1, 1)
                    line, = lines_of(trace, seen, 1)
                    if i >= 2:
                        step_us = line.part_us("decode") / (OUTPUT - 2)
                        ms[tp].append((line.part_us("first_token") + line.part_us("handover") - step_us) / 1e3)
                        tails[tp].append(line.a["baton.kv.tail_us"] / 1e3)
    return {"overlap": overlap, **compared(args, ms), "tail": compared(args, tails)}


def show(out):
    show_machine(out)
    tp, n_prompt = out["tp"], out["prompt"]
    print(f"\n{'tok/s':14}{f'{tp} threads':>12}{f'{tp} ranks':>12}{'ratio':>8}{f'{tp} stages':>12}{'ratio':>8}")
    for r in out["compute"]:
        print(f"{r['kind'] + ' ' + str(r['n']):14}{r['threads']:12.1f}{r['ranks']:12.1f}{r['ratio']:8.2f}"
              f"{r['stages']:12.1f}{r['stages_ratio']:8.2f}")
    print(f"\n{f'KV of {n_prompt} tokens, ms':32}{'1 to 1':>10}{f'{tp} to 1':>10}{'ratio':>8}")
    for h in out["handover"]:
        for name, figures in (("hand-over", h), ("tail", h["tail"])):
            print(f"{name + ', --kv-overlap ' + h['overlap']:32}{figures['from_1_ms']:10.2f}{figures['from_tp_ms']:10.2f}"
                  f"{figures['ratio']:8.2f}")


def panels(out):
    rows, hand = out["compute"], out["handover"]
    tp = out["tp"]
    names = [f"{what}, --kv-overlap {h['overlap']}" for h in hand for what in ("hand-over", "tail")]
    parts = [part for h in hand for part in (h, h["tail"])]
    return [Bars("The forward pass", "tokens/s", [f"{r['kind']} {r['n']}" for r in rows],
                 [(f"{tp} {name}", [r[name] for r in rows]) for name in ("threads", "ranks", "stages")]),
            Bars(f"KV of {out['prompt']} tokens is handed over", "ms", names,
                 [("1 to 1", [part["from_1_ms"] for part in parts]), (f"{tp} to 1", [part["from_tp_ms"] for part in parts])])]


def main():
    p = parser("ranks", __doc__)
    p.add_argument("--tp", type=int, default=2)
    p.add_argument("--type", choices=("Q4_0", "Q8_0"), default="Q4_0")
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--batch", type=number_list, default=[1, 8, 32])
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt", type=int, default=2048)
    p.add_argument("--handovers", type=int, default=24)
    p.add_argument("--no-build", action="store_true", help="use the programs as they are built")
    args = p.parse_args()
    if args.tp not in (2, 4, 8) or min(args.layers, args.prefill, args.steps, args.rounds, args.prompt, args.handovers) < 1:
        p.error("--tp is 2, 4 or 8, and counts are at least 1")
    if args.tp > len(os.sched_getaffinity(0)):
        p.error(f"--tp {args.tp} takes as many cores, here are {len(os.sched_getaffinity(0))}")
    program = build("engine-run", make=not args.no_build)
    brief()
    out = describe(args, ("tp", "type", "layers", "prefill", "batch", "steps", "rounds", "prompt", "handovers"))
    out.update(tp=args.tp, prompt=args.prompt)
    load = Load()
    with load.during():
        out["compute"] = compute(args, program)
    out["handover"] = [hand_overs(args, overlap) for overlap in ("none", "layers")]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
