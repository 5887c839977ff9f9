#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do well-behaved clients notice of hostile ones?

Usage: ./baton bench attack [options]
  --only NAME,...     attackers (default: all): bodies, readers, idle, drips, strangers, priority, samplers,
                      log
  --clients N         well-behaved clients at a time (default 8)
  --requests N        their requests without and with each attacker (default 96)
  --prompt-bytes N    text of each of their prompts (default 200)
  --output-tokens N   tokens of each answer (default 16)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --hosts             the cluster is on a host of its own, made of namespaces (needs root), and
                      strangers come from another one
  --seed N            of the prompts (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

One attacker at a time, beside the same clients: 20 that send bodies of 8 MiB, 20 that never
read their answers, 4,000 connections without a word, 200 that send byte by byte, strangers who
write rubbish to control links and KV, two clients of the highest priority, two that want 8
choices drawn from the whole vocabulary, and a reader of the access log that has stopped. The
figures are the time to first token without and, right after, with the attacker; their ratio;
and how many of the clients' requests failed. Attackers take turns on the same cores as
everything else, so a part of what they cost is their own work.
"""
import asyncio
import contextlib
import random

from _cluster import Attacker, Cluster, LogReader, NAMES, Network, Stream, free_port, pids_of, warm_up, worker_cores, worker_threads
from _shared import (Load, Progress, add_model_option, check_model, describe, finish, parser, percentile,
                     show_machine)
from charts import Bars

PATIENCE_S = 20  # of a well-behaved client


def body(rng, args):
    """A prompt that nobody has seen before, for any vocabulary."""
    text = "".join(rng.choice("abcdefghij klmnopqrst uvwxyz ") for _ in range(args.prompt_bytes))
    return {"prompt": text, "max_tokens": args.output_tokens, "temperature": 0, "ignore_eos": True, "stream": True}


def serve(cluster, rng, args, step):
    """The well-behaved clients. @return (seconds to the first token of each request, what failed)"""
    times, failed = [], []

    async def one(todo):
        for request in todo:
            if len(failed) >= args.clients:
                failed.append("not sent: too many had failed")
                continue
            try:
                s = await asyncio.wait_for(Stream(cluster.http, "/v1/completions", request, cluster.home).run(), PATIENCE_S)
                if s.status != 200 or s.errors() or not s.done:
                    failed.append(f"{s.status} {s.errors() or getattr(s, 'error', '')}")
                else:
                    times.append(s.times[0] - s.started)
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError) as why:
                failed.append(repr(why))
            step()

    async def run():
        todo = iter([body(rng, args) for _ in range(args.requests)])
        await asyncio.gather(*(one(todo) for _ in range(args.clients)))
    asyncio.run(run())
    return times, failed


def measure(name, cluster, rng, reader, args, step):
    quiet, failed_before = serve(cluster, rng, args, step)
    attacker = Attacker(name, cluster, reader, cluster.strange if name == "strangers" else cluster.home)
    with attacker:
        times, failed = serve(cluster, rng, args, step)
    ended = [p.name for p in cluster.processes if not p.alive()]
    out = {"attacker": name, "attacks": attacker.done, "failed": len(failed), "failed_before": len(failed_before),
           "why": failed[:3], "ended": ended}
    for p in (50, 99):
        out[f"quiet_p{p}_ms"] = 1e3 * percentile(quiet, p)
        out[f"attacked_p{p}_ms"] = 1e3 * percentile(times, p)
    out["p99_ratio"] = out["attacked_p99_ms"] / out["quiet_p99_ms"]
    return out


def panels(out):
    rows = out["rows"]
    return [Bars("Time to the first token of well-behaved clients: p50, up to p99", "ms", [r["attacker"] for r in rows],
                 [(label, [(r[f"{key}_p50_ms"], r[f"{key}_p50_ms"], r[f"{key}_p99_ms"]) for r in rows])
                  for label, key in (("without the attacker", "quiet"), ("beside it", "attacked"))]),
            Bars("Their requests that failed beside it", "requests", [r["attacker"] for r in rows],
                 [("failed", [r["failed"] for r in rows])])]


def parse():
    p = parser("attack", __doc__)
    p.add_argument("--only", default=",".join(NAMES))
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--requests", type=int, default=96)
    p.add_argument("--prompt-bytes", type=int, default=200)
    p.add_argument("--output-tokens", type=int, default=16)
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--hosts", action="store_true")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    args.only = args.only.split(",")
    strange = [name for name in args.only if name not in NAMES]
    if strange:
        p.error(f"no attacker {strange[0]}")
    if min(args.clients, args.requests, args.prompt_bytes, args.output_tokens) < 1:
        p.error("counts must be at least 1")
    check_model(p, args)
    return args


def run(args):
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    progress = Progress(2 * args.requests * len(args.only), args.json)
    load = Load()
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(Network("a", "b")).hosts if args.hosts else []
        cluster = Cluster(args.model, kv_memory="64m", worker_args=["--threads", str(threads)], prefill_args=prefill,
                          decode_args=decode, hosts=hosts[:1])
        cluster.home, cluster.strange = hosts or (None, None)
        if not hosts:
            cluster.url = f"tcp://127.0.0.1:{free_port()}"  # for strangers, too
        reader = stack.enter_context(LogReader(cluster))
        stack.enter_context(cluster)
        warm_up(cluster)
        rng = random.Random(args.seed)
        with load.during(pids_of(cluster)):
            rows = [measure(name, cluster, rng, reader, args, progress.step) for name in args.only]
    out = describe(args, ("only", "clients", "requests", "prompt_bytes", "output_tokens", "threads", "hosts", "seed"))
    out.update(load.figures(), rows=rows)
    del out["cpu_others_percent"]  # the attackers would be among them
    return out


def show(out):
    show_machine(out)
    print(f"{'TTFT ms beside':16}{'attacks':>9}{'p50':>9}{'p99':>9}{'p50 with':>10}{'p99 with':>10}{'p99 ratio':>11}{'failed':>8}")
    for r in out["rows"]:
        print(f"{r['attacker']:16}{r['attacks']:9}{r['quiet_p50_ms']:9.1f}{r['quiet_p99_ms']:9.1f}"
              f"{r['attacked_p50_ms']:10.1f}{r['attacked_p99_ms']:10.1f}{r['p99_ratio']:11.2f}{r['failed']:8}")
        for line in r["why"] + [f"{name} ended" for name in r["ended"]]:
            print(f"    {line}")


if __name__ == "__main__":
    ARGS = parse()
    finish(ARGS, run(ARGS), show, panels)
