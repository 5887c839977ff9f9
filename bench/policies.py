#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a worker get done on the same KV under each policy, where answers are shorter than they may be?

Usage: ./baton bench policies [options]
  --policies LIST     of --scheduler-policy, and of V1 (static batches) and V1-length (the same, sorted by length), in
                      this order (default guaranteed_no_evict,max_utilization,V1)
  --exact             answers ask for the tokens that they are to have and no more, so that lengths are known
  --clients N         each with one request at a time (default 24)
  --prompt N          prompt tokens (default 64)
  --max-tokens N      that each request may have (default 512)
  --short N           tokens of most answers (default 40)
  --long-percent N    of the answers have all that they may (default 10)
  --kv-tokens N       of the decode worker (default 2048)
  --seconds N         of load (default 30)
  --turns N           times that each policy is measured, in turn (default 1)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of prompts and lengths (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Starts a cluster of one prefill and one decode worker for each policy. A client reads its
stream until it has the tokens that its answer is to have (events: some hold two), and
leaves: an answer that ends by itself, as far as the worker can see. Whole answers a second
count, and the tokens in them.
"""
import asyncio
import random
import time

from _cluster import Cluster, Stream, no_collector, pids_of, warm_up, worker_cores, worker_threads
from _shared import Load, add_model_option, check_model, describe, finish, parser, percentile, ranged, show_machine
from charts import Bars

WARM_S = 3  # not counted


async def answer(c, rng, args):
    """@return (when it began, times of its tokens)"""
    n = args.max_tokens if rng.random() * 100 < args.long_percent else args.short
    body = dict(prompt=[rng.randrange(100, 30000) for _ in range(args.prompt)], max_tokens=n if args.exact else args.max_tokens,
                temperature=0, ignore_eos=True, stream=True)
    s = Stream(c.http, "/v1/completions", body)
    await s.run(abandon_after=None if args.exact else n)
    if s.status != 200 or s.errors() or (len(s.events) < n and not s.done):
        raise RuntimeError(f"an answer of {len(s.events)} events instead of {n}: {s.errors()}")
    return s.started, s.times[:n]


async def load_of(c, args):
    end = time.monotonic() + WARM_S + args.seconds
    done = []

    async def client(i):
        rng = random.Random(args.seed * 1000 + i)
        while time.monotonic() < end:
            done.append(await answer(c, rng, args))

    begin = end - args.seconds
    await asyncio.gather(*(client(i) for i in range(args.clients)))
    return done, begin, end


def options_of(policy):
    """@return (of all processes, of the decode worker)"""
    name, _, order = policy.partition("-")
    return ["--batching-strategy" if name == "V1" else "--scheduler-policy", name], ["--decode-order", order] if order else []


def measure(policy, args, load):
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    option, order = options_of(policy)
    with Cluster(args.model, kv_memory="1g", worker_args=["--threads", str(threads), *option], prefill_args=prefill,
                 decode_args=decode + ["--kv-tokens", str(args.kv_tokens), *order], router_args=option) as c:
        warm_up(c)
        with load.during(pids_of(c)), no_collector():
            done, begin, end = asyncio.run(load_of(c, args))
        counts = {name: c.total(f"baton_worker_{metric}_total", worker="decode-0") for name, metric in (
            ("pauses", "preemptions"), ("recomputed_tokens", "recomputed_tokens"), ("generation_tokens", "generation_tokens"))}
    times = [t for _, ts in done for t in ts if begin <= t <= end]
    whole = [(s, ts) for s, ts in done if begin <= ts[-1] <= end]
    gaps = [b - a for _, ts in done for a, b in zip(ts, ts[1:]) if a >= begin]
    return {"policy": policy, "answers_per_s": len(whole) / args.seconds, "tokens_per_s": len(times) / args.seconds,
            "ttft_ms": {f"p{p}": 1e3 * percentile([ts[0] - s for s, ts in whole], p) for p in (50, 99)},
            "itl_ms": {f"p{p}": 1e3 * percentile(gaps, p) for p in (50, 99)}, "longest_gap_ms": 1e3 * max(gaps), **counts}


def show(out):
    show_machine(out)
    print(f"{'policy':22}{'answers/s':>10}{'tokens/s':>10}{'TTFT ms p50 / p99':>20}{'ITL ms p50 / p99':>18}"
          f"{'longest gap':>13}{'pauses':>8}{'again / drawn':>16}")
    for row in out["policies"]:
        ttft, itl = ("{p50:.0f} / {p99:.0f}".format(**row[k]) for k in ("ttft_ms", "itl_ms"))
        again = f"{row['recomputed_tokens']:.0f} / {row['generation_tokens']:.0f}"
        print(f"{row['policy']:22}{row['answers_per_s']:10.2f}{row['tokens_per_s']:10.0f}{ttft:>20}{itl:>18}"
              f"{row['longest_gap_ms']:13.0f}{row['pauses']:8.0f}{again:>16}")


def panels(out):
    rows = out["policies"]
    names = list(dict.fromkeys(row["policy"] for row in rows))

    def bars(title, unit, value):
        return Bars(title, unit, names, [(title, [ranged([value(row) for row in rows if row["policy"] == name]) for name in names])])

    def pairs(title, key):
        last = {row["policy"]: row[key] for row in rows}
        return Bars(title + ": p50, up to p99", "ms", names, [(title, [(last[n]["p50"], None, last[n]["p99"]) for n in names])])

    return [bars("Whole answers a second", "answers/s", lambda row: row["answers_per_s"]),
            bars("Tokens a second", "tokens/s", lambda row: row["tokens_per_s"]),
            pairs("Time to the first token", "ttft_ms"), pairs("Time between tokens", "itl_ms")]


def parse():
    p = parser("policies", __doc__)
    p.add_argument("--policies", default="guaranteed_no_evict,max_utilization,V1")
    for name, default in (("clients", 24), ("prompt", 64), ("max-tokens", 512), ("short", 40), ("long-percent", 10),
                          ("kv-tokens", 2048), ("turns", 1)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--exact", action="store_true")
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if min(args.clients, args.prompt, args.max_tokens, args.short, args.kv_tokens, args.turns, args.seconds) <= 0:
        p.error("counts and times must be above 0")
    if args.short > args.max_tokens:
        p.error("--short is above --max-tokens")
    check_model(p, args)
    return args


def main():
    args = parse()
    out = describe(args, ("clients", "prompt", "max_tokens", "short", "long_percent", "kv_tokens", "exact", "seconds", "seed"))
    load = Load()
    out["policies"] = [measure(policy, args, load) for _ in range(args.turns) for policy in args.policies.split(",")]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
