#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick is serving, as a client sees it?

Usage: ./baton bench serve [options]
  --prompt-tokens N   tokens of each prompt (default 256)
  --output-tokens N   tokens of each answer (default 128)
  --concurrency N     clients at a time (default 4)
  --requests N        requests in all (default 8 x concurrency)
  --http ADDR:PORT    a running server; without it a cluster is started with the
                      default model on free ports of this host
  --model PATH        another model for the cluster that is started
  --threads N         threads of each worker started (default: share the cores)
  --seed N            of the prompts (default 1)
  --json              one JSON object instead of the table

Prints time to first token (TTFT), inter-token latency (ITL) and tokens per
second. Prompts are different token sequences of exact length, answers have
exact length (ignore_eos), so equal options mean equal work. The load line tells
what else the machine was doing: figures of a busy machine are not to be quoted.
"""
import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "integration"))
from harness import Cluster, Stream  # noqa: E402


def percentile(values, p):
    values = sorted(values)
    if not values:
        return float("nan")
    at = (len(values) - 1) * p / 100
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def cpu_times():
    with open("/proc/stat", encoding="ascii") as f:
        fields = [int(x) for x in f.readline().split()[1:]]
    return sum(fields), sum(fields) - fields[3] - fields[4]


def own_cpu(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            rest = f.read().rsplit(")", 1)[1].split()
            ticks += int(rest[11]) + int(rest[12])
    return ticks


class Progress:
    def __init__(self, total, quiet):
        self.total, self.done = total, 0
        self.show = not quiet and sys.stderr.isatty()

    def step(self):
        self.done += 1
        if self.show:
            width = 40
            filled = width * self.done // self.total
            end = "\n" if self.done == self.total else ""
            print(f"\r[{'#' * filled}{'.' * (width - filled)}] {self.done}/{self.total}", end=end,
                  file=sys.stderr, flush=True)


async def measure(address, args, progress):
    rng = random.Random(args.seed)
    bodies = []
    for _ in range(args.requests):
        ids = [rng.randrange(1000, 20000) for _ in range(args.prompt_tokens)]
        bodies.append({"prompt": ids, "max_tokens": args.output_tokens, "temperature": 0, "ignore_eos": True,
                       "stream": True})
    results = []
    todo = iter(bodies)

    async def client():
        for body in todo:
            s = await Stream(address, "/v1/completions", body).run()
            if s.status != 200 or s.errors() or not s.done:
                raise SystemExit(f"a request failed: {s.status} {s.errors() or getattr(s, 'error', '')}")
            results.append(s)
            progress.step()

    start = time.monotonic()
    await asyncio.gather(*(client() for _ in range(args.concurrency)))
    return results, time.monotonic() - start


def figures(results, seconds, args):
    ttft = [1e3 * (s.times[0] - s.started) for s in results]
    itl = [1e3 * (b - a) for s in results for a, b in zip(s.times, s.times[1:-1])]
    whole = [1e3 * (s.times[-1] - s.started) for s in results]
    out = {"requests": len(results), "seconds": seconds,
           "output_tokens_per_s": len(results) * args.output_tokens / seconds,
           "prompt_tokens_per_s": len(results) * args.prompt_tokens / seconds}
    for name, values in (("ttft_ms", ttft), ("itl_ms", itl), ("request_ms", whole)):
        out[name] = {f"p{p}": percentile(values, p) for p in (50, 90, 99)}
    per_stream = [args.output_tokens / (s.times[-1] - s.started) for s in results]
    out["tokens_per_s_per_stream"] = {f"p{p}": percentile(per_stream, p) for p in (50, 99)}
    return out


def describe(args):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True)
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"machine": f"{model}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
            "commit": commit.stdout.strip() or "unknown", "seed": args.seed, "prompt_tokens": args.prompt_tokens,
            "output_tokens": args.output_tokens, "concurrency": args.concurrency}


def parse():
    p = argparse.ArgumentParser(prog="baton bench serve", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--prompt-tokens", type=int, default=256)
    p.add_argument("--output-tokens", type=int, default=128)
    p.add_argument("--concurrency", type=int, default=4)
    p.add_argument("--requests", type=int, default=0)
    p.add_argument("--http", default="")
    p.add_argument("--model", default=os.environ.get("BATON_TEST_MODEL", ""))
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    args.requests = args.requests or 8 * args.concurrency
    if min(args.prompt_tokens, args.output_tokens, args.concurrency, args.requests) < 1:
        p.error("counts must be at least 1")
    return args


def run(address, args, pids):
    """@return figures with the load of the machine during the run"""
    load = os.getloadavg()[0]
    total0, busy0 = cpu_times()
    own0 = own_cpu(pids + [os.getpid()])
    results, seconds = asyncio.run(measure(address, args, Progress(args.requests, args.json)))
    total1, busy1 = cpu_times()
    out = dict(describe(args), **figures(results, seconds, args))
    share = max(total1 - total0, 1)
    out["load_average_before"] = load
    out["cpu_busy_percent"] = 100.0 * (busy1 - busy0) / share
    if pids:
        others = (busy1 - busy0) - (own_cpu(pids + [os.getpid()]) - own0)
        out["cpu_others_percent"] = max(0.0, 100.0 * others / share)
    return out


def show(out):
    print(f"machine   {out['machine']}")
    print(f"commit    {out['commit']}   seed {out['seed']}")
    print(f"work      {out['requests']} requests, {out['concurrency']} at a time, {out['prompt_tokens']} tokens in, "
          f"{out['output_tokens']} out")
    print(f"load      {out['load_average_before']:.2f} before; cores {out['cpu_busy_percent']:.0f} % busy"
          + (f", of which other programs {out['cpu_others_percent']:.0f} %" if "cpu_others_percent" in out else ""))
    print(f"{'':24}{'p50':>10}{'p90':>10}{'p99':>10}")
    for name, label in (("ttft_ms", "TTFT ms"), ("itl_ms", "ITL ms"), ("request_ms", "whole request ms")):
        print(f"{label:24}" + "".join(f"{out[name][p]:10.1f}" for p in ("p50", "p90", "p99")))
    print(f"{'tokens/s per stream':24}{out['tokens_per_s_per_stream']['p50']:10.1f}{'':10}"
          f"{out['tokens_per_s_per_stream']['p99']:10.1f}")
    print(f"{'output tokens/s':24}{out['output_tokens_per_s']:10.1f}")
    print(f"{'prompt tokens/s':24}{out['prompt_tokens_per_s']:10.1f}")


def main():
    args = parse()
    if args.http:
        host, _, port = args.http.rpartition(":")
        out = run((host, int(port)), args, [])
    else:
        if not os.path.exists(args.model):
            raise SystemExit("no model: use --model PATH, or --http ADDR:PORT of a running server")
        cores = len(os.sched_getaffinity(0))
        threads = args.threads or max(1, cores // 2)
        seats = min(max(args.concurrency, 4), 256)
        with Cluster(args.model, kv_memory="1g", worker_args=["--threads", str(threads)],
                     decode_args=["--max-batch", str(seats)]) as c:
            c.complete("warm up", 8, temperature=0)
            out = run(c.http, args, [p.pid for p in c.processes])
    if args.json:
        print(json.dumps(out))
    else:
        show(out)


if __name__ == "__main__":
    main()
