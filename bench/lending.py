#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do workers gain by computing on each other's idle cores?

Usage: ./baton bench lending [options]
  --prompts LIST      prompt tokens (default 512,2048)
  --output-tokens N   tokens of each answer (default 64)
  --rounds N          times that everything is measured (default 9)
  --hand-back-ms N    how long the hand-back is measured (default 20000; 0: not)
  --model PATH        another model
  --seed N            of the prompts (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

One client, one request at a time, at clusters of one prefill and one decode
worker that are all up, in turns within each round (the order turns round too):

  lent            each has half of the cores, and the other's while that has no work
  own             each has half of the cores and no others
  oversubscribed  each has as many threads as there are cores
  engine          the forward pass alone in one process with all cores: a prompt of
                  as many tokens, and the tokens of an answer behind it
  engine-lent     the same with half of the cores, the others lent

TTFT and ITL are medians over the rounds; a ratio is the median of the ratio within
a round: the engine's time to it, so 1.00 is as quick as all threads can be.

The hand-back: a thread is woken at random times on a core that is idle, or lent and
computing (see _handback.c): microseconds until its first instruction, and of these
how long the lent thread still ran.
"""
import asyncio
import contextlib
import os

from _cluster import Client, Cluster, brief, no_collector, pids_of, warm_up
from _shared import (Half, Load, Progress, add_model_option, build, check_model, describe, finish, median, missing, number_list,
                     parser, show_machine)
from charts import Bars

CLUSTERS = ("lent", "own", "oversubscribed")
NAMES = CLUSTERS + ("engine", "engine-lent")


def cluster_options(kind):
    cores = [str(c) for c in sorted(os.sched_getaffinity(0))]
    half = len(cores) // 2
    first, second = ",".join(cores[:half]), ",".join(cores[half:2 * half])
    if kind == "oversubscribed":
        return dict(worker_args=["--threads", str(len(cores))])
    lent = kind == "lent"
    return dict(worker_args=["--threads", str(half)],
                prefill_args=["--cores", first] + (["--borrowed-cores", second] if lent else []),
                decode_args=["--cores", second] + (["--borrowed-cores", first] if lent else []))


def ask(client, n_prompt):
    """@return seconds to the first token, and between tokens"""
    async def one():
        return await client.send(client.request(n_prompt))
    with no_collector():
        answer = asyncio.run(one()).read()
    gaps = [b - a for a, b in zip(answer.times, answer.times[1:])]
    return answer.times[0] - answer.started, sum(gaps) / len(gaps)


def measure(args, clusters, engines, progress):
    samples = {(n, p): [] for n in NAMES for p in args.prompts}
    clients = {name: Client(c.http, args.seed, args.output_tokens) for name, c in clusters.items()}
    for r in range(args.rounds):
        for prompt in args.prompts:
            for name in NAMES if r % 2 == 0 else NAMES[::-1]:
                if (name, prompt) in engines:
                    sample = (engines[name, prompt].ask("prefill", prompt)["seconds"],
                              engines[name, prompt].ask("decode", 1)["seconds"] / args.output_tokens)
                else:
                    sample = ask(clients[name], prompt)
                samples[name, prompt].append(sample)
        progress.step()
    rows = []
    for prompt in args.prompts:
        for name in NAMES:
            ours, best = samples[name, prompt], samples["engine", prompt]
            rows.append({"prompt_tokens": prompt, "name": name,
                         **{f"{what}_ms": 1e3 * median([s[i] for s in ours]) for i, what in enumerate(("ttft", "itl"))},
                         **{f"{what}_ratio": median([b[i] / s[i] for s, b in zip(ours, best)])
                            for i, what in enumerate(("ttft", "itl"))}})
    return rows


def open_engine(args, program, threads, prompt):
    engine = Half([program, args.model, threads, "bf16", 512, prompt, 1, prompt, args.output_tokens, 1, "auto"])
    engine.read()
    engine.ask("decode", 1)
    return engine


def lent_figures(cluster):
    return {role: {key: cluster.metric(f"baton_worker_borrowed_core_{name}_total", role=role)
                   for key, name in (("pieces", "tasks"), ("seconds", "cpu_seconds"), ("again", "task_retries"))}
            for role in ("prefill", "decode")}


def show(out):
    show_machine(out)
    print(f"{'':24}{'TTFT ms':>10}{'of engine':>11}{'ITL ms':>10}{'of engine':>11}")
    for r in out["rows"]:
        print(f"{str(r['prompt_tokens']) + ' ' + r['name']:24}{r['ttft_ms']:10.1f}{r['ttft_ratio']:11.2f}"
              f"{r['itl_ms']:10.2f}{r['itl_ratio']:11.2f}")
    for role, f in out["lent"].items():
        print(f"{role:10} {f['pieces']:.0f} pieces on lent cores in {f['seconds']:.1f} s, {f['again']:.0f} done again")
    for name, what in (("idle", "core idle"), ("lent", "core lent"), ("in_way", "lent thread in the way")):
        if "hand_back" in out:
            f = out["hand_back"][name]
            print(f"hand-back, {what + ':':24}p50 {f['p50_us']:.0f}, p90 {f['p90_us']:.0f}, p99 {f['p99_us']:.0f} us, "
                  f"at most {f['max_us']:.0f}, of {f['wakes']}")


def panels(out):
    prompts = list(dict.fromkeys(r["prompt_tokens"] for r in out["rows"]))
    rows = {(r["name"], r["prompt_tokens"]): r for r in out["rows"]}
    found = [Bars(title, "ms", NAMES, [(f"{n} tokens in", [rows[name, n][key] for name in NAMES]) for n in prompts])
             for title, key in (("Time to the first token", "ttft_ms"), ("Time between tokens behind the prompt", "itl_ms"))]
    if "hand_back" in out:
        names = {"idle": "core idle", "lent": "core lent", "in_way": "lent thread in the way"}
        found.append(Bars("A core is handed back: p50, up to p99", "us", names.values(), [("hand-back", [
            (out["hand_back"][name]["p50_us"], None, out["hand_back"][name]["p99_us"]) for name in names])]))
    return found


def parse():
    p = parser("lending", __doc__)
    p.add_argument("--prompts", type=number_list, default=[512, 2048])
    p.add_argument("--output-tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--hand-back-ms", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    add_model_option(p)
    args = p.parse_args()
    if min(args.output_tokens - 1, args.rounds) < 1:
        p.error("--output-tokens is at least 2, --rounds at least 1")
    if len(os.sched_getaffinity(0)) < 2:
        missing("there is one core: nobody has another to lend")
    check_model(p, args)
    return args


def main():
    args = parse()
    brief()
    cores = sorted(os.sched_getaffinity(0))
    program = build("engine-run")
    out = describe(args, ("prompts", "output_tokens", "rounds", "hand_back_ms", "seed"))
    load = Load()
    with contextlib.ExitStack() as stack:
        clusters = {}
        for name in CLUSTERS:
            clusters[name] = stack.enter_context(Cluster(args.model, kv_memory="256m", **cluster_options(name)))
            warm_up(clusters[name])
        engines = {(name, prompt): open_engine(args, program, threads, prompt) for prompt in args.prompts for name, threads
                   in (("engine", len(cores)), ("engine-lent", f"{len(cores) // 2}+{len(cores) // 2}"))}
        with load.during(pids_of(*clusters.values())):
            out["rows"] = measure(args, clusters, engines, Progress(args.rounds, args.json))
        for engine in engines.values():
            engine.close()
        out["lent"] = lent_figures(clusters["lent"])
    if args.hand_back_ms > 0:
        half = Half([build("handback"), cores[-1], cores[0], args.hand_back_ms])
        out["hand_back"] = half.read()
        half.close()
    out.update(load.figures())
    del out["cpu_others_percent"]  # the engine would be among them
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
