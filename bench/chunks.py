#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is a tuned chunk as good as the best fixed one?

Usage: ./baton bench chunks [options]
  --mixes LIST        of chat, long, both (default: all three)
  --chunks LIST       of --chunk-tokens; 0 is tuned (default 0,32,64,128,256,512,1024)
  --seconds N         of each measurement (default 16)
  --turns N           times that each is measured, in turn (default 1)
  --load PERCENT      of what the cluster can take, measured first (default 85)
  --rate N            requests per second instead, of every mix
  --ttft-ms N         target of time to first token, for 256 prompt tokens; those of
                      longer prompts have as much more as they are longer (default 300)
  --itl-ms N          target of the mean time between two tokens of an answer (default 20)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of prompts and arrivals (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Goodput: requests that keep both targets, of all that were offered, per second. They
arrive at random (Poisson), the same ones at the same times for each chunk.
  chat   256 prompt tokens, 64 to answer: one prefill and one decode worker
  long   the same, and one prompt in eight has 2,048 tokens
  both   256 prompt tokens, 64 to answer: one worker for both phases, all cores
"""
import asyncio
import os
import random
import time

from _cluster import Client, Cluster, no_collector, pids_of, warm_up, worker_cores, worker_threads
from _shared import Load, add_model_option, check_model, describe, finish, number_list, parser, percentile, show_machine
from charts import Bars

OUTPUT = 64
SHORT, LONG, LONG_EACH = 256, 2048, 8
FIRST_CHUNK = 256  # with which the load is found
FIRST_CLIENTS, FIRST_S = 12, 12
# What each mix is: whether one prompt in LONG_EACH is long, whether one worker does both phases.
MIXES = {"chat": (False, False), "long": (True, False), "both": (False, True)}


def cluster(mix, chunk, args):
    _, is_one = MIXES[mix]
    if is_one:
        cores = len(os.sched_getaffinity(0))
        more = dict(prefill=0, decode_args=["--local-prefill", "--threads", str(args.threads or cores)])
    else:
        threads = worker_threads(args)
        prefill, decode = worker_cores(threads)
        more = dict(worker_args=["--threads", str(threads)], prefill_args=prefill, decode_args=decode)
    more["worker_args"] = more.get("worker_args", []) + ["--chunk-tokens", str(chunk)]
    return Cluster(args.model, kv_memory="1g", **more)


def lengths(mix, n):
    return [LONG if MIXES[mix][0] and i % LONG_EACH == LONG_EACH // 2 else SHORT for i in range(n)]


def capacity(mix, args):
    """@return requests per second that are served to as many clients as help"""
    with cluster(mix, FIRST_CHUNK, args) as c:
        warm_up(c)
        client = Client(c.http, args.seed, OUTPUT)
        sizes = iter(lengths(mix, 100000))

        async def run():
            end = time.monotonic() + FIRST_S
            n = [0]

            async def one():
                while time.monotonic() < end:
                    await client.send(client.request(next(sizes)))
                    n[0] += time.monotonic() < end
            await asyncio.gather(*(one() for _ in range(FIRST_CLIENTS)))
            return n[0] / FIRST_S
        return asyncio.run(run())


def offer(mix, chunk, rate, args, load):
    """@return figures of one measurement"""
    with cluster(mix, chunk, args) as c:
        warm_up(c)
        client = Client(c.http, args.seed, OUTPUT)
        client.closed(SHORT, 8, 4)  # what a tuned one learns from
        rng = random.Random(args.seed)
        n = max(1, int(rate * args.seconds))
        todo = [(rng.expovariate(rate), size, client.request(size)) for size in lengths(mix, n)]

        async def run():
            tasks, at = [], time.monotonic()
            for wait, size, request in todo:
                at += wait
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                tasks.append(asyncio.create_task(client.send(request)))
            return await asyncio.gather(*tasks)

        with load.during(pids_of(c)), no_collector():
            answers = asyncio.run(run())
        spent = sum(wait for wait, _, _ in todo)
    answers = [a.read() for a in answers]
    ttft = [1e3 * (a.times[0] - a.started) for a in answers]
    itl = [1e3 * (a.times[-2] - a.times[0]) / (OUTPUT - 1) for a in answers]
    good = sum(t <= args.ttft_ms * size / SHORT and i <= args.itl_ms for t, i, (_, size, _) in zip(ttft, itl, todo))
    return {"chunk": chunk, "offered": n, "good": good, "goodput": good / spent, "ttft_ms": percentile(ttft, 50),
            "ttft_p99_ms": percentile(ttft, 99), "itl_ms": percentile(itl, 50), "itl_p99_ms": percentile(itl, 99)}


def measure(mix, args, load):
    rate = args.rate or capacity(mix, args) * args.load / 100
    rows = [offer(mix, chunk, rate, args, load) for _ in range(args.turns) for chunk in args.chunks]
    by_chunk = {chunk: [r for r in rows if r["chunk"] == chunk] for chunk in args.chunks}
    return {"mix": mix, "rate": rate, "rows": [
        {k: sum(r[k] for r in same) / len(same) for k in same[0]} for same in by_chunk.values()]}


def show(out):
    show_machine(out)
    for mix in out["mixes"]:
        fixed = [r for r in mix["rows"] if r["chunk"]]
        best = max((r["goodput"] for r in fixed), default=0)
        print(f"\n{mix['mix']}: {mix['rate']:.2f} requests/s offered")
        print(f"{'chunk':>8}{'goodput':>10}{'of best fixed':>15}{'TTFT p50 / p99 ms':>20}{'ITL p50 / p99 ms':>20}")
        for r in mix["rows"]:
            part = f"{100 * r['goodput'] / best:.0f} %" if best else ""
            print(f"{int(r['chunk']) or 'tuned':>8}{r['goodput']:10.2f}{part:>15}"
                  f"{r['ttft_ms']:10.0f} / {r['ttft_p99_ms']:<7.0f}{r['itl_ms']:10.1f} / {r['itl_p99_ms']:<7.1f}")


def panels(out):
    names = list(dict.fromkeys(int(r["chunk"]) for mix in out["mixes"] for r in mix["rows"]))
    rows = [(mix["mix"], {int(r["chunk"]): r for r in mix["rows"]}) for mix in out["mixes"]]

    def bars(title, unit, value):
        return Bars(title, unit, [f"{n} tokens" if n else "tuned" for n in names],
                    [(mix, [value(by[n]) if n in by else None for n in names]) for mix, by in rows])

    return [bars("Goodput by the size of chunks", "requests/s", lambda r: r["goodput"]),
            bars("Time to the first token: p50, up to p99", "ms", lambda r: (r["ttft_ms"], r["ttft_ms"], r["ttft_p99_ms"])),
            bars("Mean time between tokens of an answer: p50, up to p99", "ms", lambda r: (r["itl_ms"], r["itl_ms"], r["itl_p99_ms"]))]


def parse():
    p = parser("chunks", __doc__)
    p.add_argument("--mixes", default=",".join(MIXES))
    p.add_argument("--chunks", default="0,32,64,128,256,512,1024")
    p.add_argument("--seconds", type=float, default=16)
    p.add_argument("--turns", type=int, default=1)
    p.add_argument("--load", type=float, default=85)
    p.add_argument("--rate", type=float, default=0)
    p.add_argument("--ttft-ms", type=int, default=300)
    p.add_argument("--itl-ms", type=int, default=20)
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    args.chunks = [0 if x == "0" else number_list(x)[0] for x in args.chunks.split(",")]
    if min(args.seconds, args.turns, args.load, args.ttft_ms, args.itl_ms) <= 0 or args.rate < 0:
        p.error("counts and times must be above 0")
    if not set(args.mixes.split(",")) <= set(MIXES):
        p.error(f"mixes are {', '.join(MIXES)}")
    check_model(p, args)
    return args


def main():
    args = parse()
    out = describe(args, ("seconds", "turns", "load", "ttft_ms", "itl_ms", "seed"))
    load = Load()
    out["mixes"] = [measure(mix, args, load) for mix in args.mixes.split(",")]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
