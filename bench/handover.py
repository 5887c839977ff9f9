#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a request does the hand-over from prefill to decode cost?

Usage: ./baton bench handover [options]
  --short N           prompt tokens of the load (default 256)
  --long N            prompt tokens of the long prompts (default 2048)
  --output-tokens N   tokens of each answer (default 64)
  --requests N        requests of the load (default 64); a fifth as many long ones
  --load PERCENT      of what the cluster can take, measured first (default 80)
  --transport T       shm or network (default shm)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of prompts and arrivals (default 1)
  --json              one JSON object instead of the table

Starts clusters of one prefill and one decode worker. Requests arrive at random
(Poisson) at a share of the throughput that the same cluster just showed with as
many clients as help. From the requests' own ledgers (--trace):
  hand-over   last byte arrived -> may join: verifying and telling
  join wait   may join -> its first iteration: what is left of the running one
  tail        token #1's chunk done -> transfer over, that is what is left of it
From the client's clock: the gap between token #1 and #2 beside the inter-token
latency (ITL) of the same streams. Last, long prompts one at a time, with
--kv-overlap layers and none in turns: the tail of an overlapped transfer as a
part of one that begins when the prompt is computed.
"""
import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "integration"))
sys.path.insert(0, HERE)
from harness import Cluster, Stream, wait_until  # noqa: E402
from serve import cpu_times, describe, own_cpu, percentile  # noqa: E402
from trace_lines import read  # noqa: E402


def say(args, text):
    if not args.json:
        print(text, file=sys.stderr, flush=True)


class Load:
    """Prompts that nobody has seen before, sent as the caller says."""

    def __init__(self, cluster, args):
        self.cluster, self.args = cluster, args
        self.rng = random.Random(args.seed)

    async def one(self, n_prompt):
        body = {"prompt": [self.rng.randrange(1000, 20000) for _ in range(n_prompt)],
                "max_tokens": self.args.output_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        s = await Stream(self.cluster.http, "/v1/completions", body).run()
        if s.status != 200 or s.errors() or not s.done:
            raise SystemExit(f"a request failed: {s.status} {s.errors() or getattr(s, 'error', '')}")
        return s

    def closed(self, n_prompt, n_requests, n_clients):
        """@return (streams, requests per second)"""
        async def run():
            todo = iter(range(n_requests))
            out = []

            async def client():
                for _ in todo:
                    out.append(await self.one(n_prompt))

            start = time.monotonic()
            await asyncio.gather(*(client() for _ in range(n_clients)))
            return out, n_requests / (time.monotonic() - start)
        return asyncio.run(run())

    def open(self, n_prompt, n_requests, rate):
        async def run():
            tasks = []
            at = time.monotonic()
            for _ in range(n_requests):
                at += self.rng.expovariate(rate)
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                tasks.append(asyncio.create_task(self.one(n_prompt)))
            return await asyncio.gather(*tasks)
        return asyncio.run(run())


def spread(values):
    return {"p50": percentile(values, 50), "p90": percentile(values, 90), "p99": percentile(values, 99)}


def ledgers(path, seen, n):
    """The lines of the last n requests, of seen + n in all."""
    wait_until("the ledgers", lambda: len(read(path)) >= seen + n)
    return [line.a for line in read(path)[seen:seen + n]]


def under_load(load, trace, n_prompt, n_requests, n_clients, args):
    seen = len(read(trace))
    n_probe = max(2 * n_clients, n_requests // 2)
    say(args, f"capacity with prompts of {n_prompt} tokens...")
    _, capacity = load.closed(n_prompt, n_probe, n_clients)
    rate = capacity * args.load / 100
    say(args, f"{capacity:.2f} requests/s; {n_requests} at {rate:.2f}/s...")
    ledgers(trace, seen, n_probe)
    streams = load.open(n_prompt, n_requests, rate)
    lines = ledgers(trace, seen + n_probe, n_requests)
    gaps = [1e3 * (s.times[1] - s.times[0]) for s in streams]
    itl = [1e3 * (b - a) for s in streams for a, b in zip(s.times[1:], s.times[2:-1])]
    out = {"prompt_tokens": n_prompt, "requests": n_requests, "capacity_per_s": capacity, "rate_per_s": rate,
           "first_gap_ms": spread(gaps), "itl_ms": spread(itl)}
    out["first_gap_p99_by_itl_p50"] = out["first_gap_ms"]["p99"] / out["itl_ms"]["p50"]
    for name in ("handover", "join_wait", "tail", "grant_wait", "data"):
        out[name + "_ms"] = spread([a[f"baton.kv.{name}_us"] / 1e3 for a in lines])
    return out


def tails(clusters, args):
    """What is left when the prompt is computed: {overlap: spread of ms}"""
    out = {name: [] for name in clusters}
    for _ in range(args.long_requests):
        for name, (load, trace) in clusters.items():
            seen = len(read(trace))
            load.closed(args.long, 1, 1)
            out[name].append(ledgers(trace, seen, 1)[0]["baton.kv.tail_us"] / 1e3)
    return {name: spread(values) for name, values in out.items()}


def start(args, directory, overlap):
    trace = os.path.join(directory, f"{overlap}.jsonl")
    cores = len(os.sched_getaffinity(0))
    threads = args.threads or max(1, cores // 2)
    cluster = Cluster(args.model, kv_memory="1g", router_args=["--trace", trace],
                      worker_args=["--threads", str(threads), "--transport", args.transport, "--prefix-cache", "off"],
                      prefill_args=["--kv-overlap", overlap], decode_args=["--max-batch", "32"])
    return cluster, trace


def run(args):
    out = dict(describe(args), transport=args.transport, load_percent=args.load,
               load_average_before=os.getloadavg()[0])
    total0, busy0 = cpu_times()
    with tempfile.TemporaryDirectory() as d:
        cluster, trace = start(args, d, "layers")
        with cluster:
            load = Load(cluster, args)
            load.closed(32, 1, 1)
            ledgers(trace, 0, 1)
            pids = [p.pid for p in cluster.processes] + [os.getpid()]
            own0 = own_cpu(pids)
            out["short"] = under_load(load, trace, args.short, args.requests, 8, args)
            out["long"] = under_load(load, trace, args.long, args.long_requests, 2, args)
            total1, busy1 = cpu_times()
            others = (busy1 - busy0) - (own_cpu(pids) - own0)
            out["cpu_others_percent"] = max(0.0, 100.0 * others / max(total1 - total0, 1))
            other, other_trace = start(args, d, "none")
            say(args, f"{args.long_requests} prompts of {args.long} tokens, one at a time, with and without overlap...")
            with other:
                other_load = Load(other, args)
                other_load.closed(32, 1, 1)
                ledgers(other_trace, 0, 1)
                out["tail_ms"] = tails({"layers": (load, trace), "none": (other_load, other_trace)}, args)
    out["tail_percent"] = 100 * out["tail_ms"]["layers"]["p50"] / out["tail_ms"]["none"]["p50"]
    return out


def show(out):
    print(f"machine    {out['machine']}")
    print(f"commit     {out['commit']}   seed {out['seed']}   KV by {out['transport']}")
    print(f"load       {out['load_average_before']:.2f} before; other programs {out['cpu_others_percent']:.0f} % of the cores")
    for name in ("short", "long"):
        part = out[name]
        print(f"\n{part['requests']} requests, {part['prompt_tokens']} tokens in, {out['output_tokens']} out, "
              f"{part['rate_per_s']:.2f}/s of {part['capacity_per_s']:.2f}/s")
        print(f"{'ms':28}{'p50':>10}{'p90':>10}{'p99':>10}")
        for key, label in (("handover_ms", "hand-over"), ("join_wait_ms", "join wait"), ("tail_ms", "tail of the transfer"),
                           ("grant_wait_ms", "wait for the grant"), ("data_ms", "whole transfer"),
                           ("first_gap_ms", "token #1 to #2"), ("itl_ms", "ITL after that")):
            print(f"{label:28}" + "".join(f"{part[key][p]:10.2f}" for p in ("p50", "p90", "p99")))
        print(f"token #1 to #2, p99, is {part['first_gap_p99_by_itl_p50']:.2f} x the ITL's p50")
    tail = out["tail_ms"]
    print(f"\none at a time: left of the transfer when the prompt is computed, p50: {tail['layers']['p50']:.2f} ms "
          f"(p99 {tail['layers']['p99']:.2f}), of {tail['none']['p50']:.2f} ms (p99 {tail['none']['p99']:.2f}) without "
          f"overlap: {out['tail_percent']:.1f} %")


def main():
    p = argparse.ArgumentParser(prog="baton bench handover", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--short", type=int, default=256)
    p.add_argument("--long", type=int, default=2048)
    p.add_argument("--output-tokens", type=int, default=64)
    p.add_argument("--requests", type=int, default=64)
    p.add_argument("--load", type=int, default=80)
    p.add_argument("--transport", choices=("shm", "network"), default="shm")
    p.add_argument("--model", default=os.environ.get("BATON_TEST_MODEL", ""))
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    if min(args.short, args.long, args.requests, args.load) < 1 or args.output_tokens < 4:
        p.error("counts must be at least 1, output tokens at least 4")
    if not os.path.exists(args.model):
        raise SystemExit("no model: use --model PATH")
    args.long_requests = max(args.requests // 5, 3)
    args.prompt_tokens, args.concurrency = args.short, 0  # describe() names them
    out = run(args)
    if args.json:
        print(json.dumps(out))
    else:
        show(out)


if __name__ == "__main__":
    main()
