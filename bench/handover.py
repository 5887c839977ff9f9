#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a request does the hand-over from prefill to decode cost?

Usage: ./baton bench handover [options]
  --short N           prompt tokens of the load (default 256)
  --long N            prompt tokens of the long prompts (default 2048)
  --output-tokens N   tokens of each answer (default 64)
  --requests N        requests of the load (default 256); a fifth as many long ones
  --load PERCENT      of what the cluster can take, measured first (default 80)
  --kv-transport T       shm or network (default shm)
  --midstep-join J       on or off, of decode workers (default on)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of prompts and arrivals (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Starts clusters of one prefill and one decode worker. Requests arrive at random
(Poisson) at a share of the throughput that the same cluster just showed with as
many clients as help. From the requests' own ledgers (--trace-file):
  hand-over   last byte arrived -> may join: verifying and telling
  join wait   may join -> its first iteration: what is left of the running one
  tail        token #1's chunk done -> transfer over, that is what is left of it
From the client's clock: the gap between token #1 and #2 beside the inter-token
latency (ITL) of the same streams, and beside
that of a loop on each core that does nothing but compute for as long as an
iteration: nobody is steadier on this machine. Last, long prompts one at a time, with
--kv-overlap layers and none in turns: the tail of an overlapped transfer as a
part of one that begins when the prompt is computed.
"""
import json
import os
import subprocess
import sys
import tempfile

from _cluster import Client, Cluster, brief, pids_of, wait_until, warm_up, worker_cores, worker_threads
from _shared import Load, add_model_option, build, check_model, describe, finish, parser, percentile, show_machine
from charts import Bars
from trace_lines import read


STEADY_S = 10


def say(args, text):
    if not args.json:
        print(text, file=sys.stderr, flush=True)


def spread(values):
    return {"p50": percentile(values, 50), "p90": percentile(values, 90), "p99": percentile(values, 99)}


def lines_of(path, seen, n):
    """The lines of the last n requests, of seen + n in all."""
    return wait_until("the ledgers", lambda: read(path)[seen:seen + n] if len(read(path)) >= seen + n else None)


def ledgers(path, seen, n):
    return [line.a for line in lines_of(path, seen, n)]


def under_load(client, trace, n_prompt, n_requests, n_clients, args):
    seen = len(read(trace))
    n_probe = max(2 * n_clients, n_requests // 2)
    say(args, f"capacity with prompts of {n_prompt} tokens...")
    capacity = n_probe / client.closed(n_prompt, n_probe, n_clients)[1]
    rate = capacity * args.load / 100
    say(args, f"{capacity:.2f} requests/s; {n_requests} at {rate:.2f}/s...")
    ledgers(trace, seen, n_probe)
    streams = client.open(n_prompt, n_requests, rate)
    lines = ledgers(trace, seen + n_probe, n_requests)
    gaps = [1e3 * (s.times[1] - s.times[0]) for s in streams]
    itl = [1e3 * (b - a) for s in streams for a, b in zip(s.times[1:], s.times[2:-1])]
    out = {"prompt_tokens": n_prompt, "output_tokens": args.output_tokens, "requests": n_requests,
           "capacity_per_s": capacity, "rate_per_s": rate, "first_gap_ms": spread(gaps), "itl_ms": spread(itl)}
    out["first_gap_p99_by_itl_p50"] = out["first_gap_ms"]["p99"] / out["itl_ms"]["p50"]
    for name, key in (("handover", "verify"), ("join_wait", "join_wait"), ("tail", "tail"), ("grant_wait", "grant_wait"), ("data", "transfer")):
        out[name + "_ms"] = spread([a[f"baton.kv.{key}_us"] / 1e3 for a in lines])
    return out


def steadiness(ms, args):
    """@return p99 / p50 of work of so many ms, of each core"""
    say(args, f"what the machine does to a loop of {ms:.1f} ms...")
    lines = subprocess.run([build("steady"), f"{ms:.3f}", str(STEADY_S)], stdout=subprocess.PIPE, check=True, text=True).stdout
    return [core["p99"] / core["p50"] for core in map(json.loads, lines.splitlines())]


def tails(clients, args):
    """What is left when the prompt is computed: {overlap: spread of ms}"""
    out = {name: [] for name in clients}
    for _ in range(args.alone):
        for name, (client, trace) in clients.items():
            seen = len(read(trace))
            client.closed(args.long, 1, 1)
            out[name].append(ledgers(trace, seen, 1)[0]["baton.kv.tail_us"] / 1e3)
    return {name: spread(values) for name, values in out.items()}


def start(args, directory, overlap):
    trace = os.path.join(directory, f"{overlap}.jsonl")
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    cluster = Cluster(args.model, kv_memory="1g",
                      router_args=["--trace-file", trace],
                      worker_args=["--threads", str(threads), "--kv-transport", args.kv_transport, "--prefix-cache", "off"],
                      prefill_args=["--kv-overlap", overlap, *prefill], decode_args=["--max-batch-size", "32", "--midstep-join", args.midstep_join, *decode])
    return cluster, trace


def warm_client(cluster, trace, args):
    warm_up(cluster)
    ledgers(trace, 0, 1)
    return Client(cluster.http, args.seed, args.output_tokens)


def run(args):
    brief()
    build("steady")
    out = describe(args, ("short", "long", "output_tokens", "requests", "load", "kv_transport", "midstep_join", "seed"))
    load = Load()
    with tempfile.TemporaryDirectory() as d:
        cluster, trace = start(args, d, "layers")
        with cluster:
            client = warm_client(cluster, trace, args)
            with load.during(pids_of(cluster)):
                out["short"] = under_load(client, trace, args.short, args.requests, 8, args)
                out["long"] = under_load(client, trace, args.long, args.long_requests, 2, args)
            other, other_trace = start(args, d, "none")
            say(args, f"{args.alone} prompts of {args.long} tokens, one at a time, with and without overlap...")
            with other:
                other_client = warm_client(other, other_trace, args)
                with load.during(pids_of(cluster, other)):
                    out["tail_ms"] = tails({"layers": (client, trace), "none": (other_client, other_trace)}, args)
    for name in ("short", "long"):
        out[name]["steadiness"] = steadiness(out[name]["itl_ms"]["p50"], args)
    out.update(load.figures())
    out["tail_percent"] = 100 * out["tail_ms"]["layers"]["p50"] / out["tail_ms"]["none"]["p50"]
    return out


def show(out):
    show_machine(out)
    for name in ("short", "long"):
        part = out[name]
        print(f"\n{part['requests']} requests, {part['prompt_tokens']} tokens in, {part['output_tokens']} out, "
              f"{part['rate_per_s']:.2f}/s of {part['capacity_per_s']:.2f}/s")
        print(f"{'ms':28}{'p50':>10}{'p90':>10}{'p99':>10}")
        for key, label in (("handover_ms", "hand-over"), ("join_wait_ms", "join wait"), ("tail_ms", "tail of the transfer"),
                           ("grant_wait_ms", "wait for the grant"), ("data_ms", "whole transfer"),
                           ("first_gap_ms", "token #1 to #2"), ("itl_ms", "ITL after that")):
            print(f"{label:28}" + "".join(f"{part[key][p]:10.2f}" for p in ("p50", "p90", "p99")))
        print(f"token #1 to #2, p99, is {part['first_gap_p99_by_itl_p50']:.2f} x the ITL's p50; ITL's own p99 "
              f"{part['itl_ms']['p99'] / part['itl_ms']['p50']:.2f} x; a loop of as long on each core: "
              + ", ".join(f"{ratio:.2f}" for ratio in part["steadiness"]) + " x")
    tail = out["tail_ms"]
    print(f"\none at a time: left of the transfer when the prompt is computed, p50: {tail['layers']['p50']:.2f} ms "
          f"(p99 {tail['layers']['p99']:.2f}), of {tail['none']['p50']:.2f} ms (p99 {tail['none']['p99']:.2f}) without "
          f"overlap: {out['tail_percent']:.1f} %")


def panels(out):
    parts = (("handover_ms", "hand-over"), ("join_wait_ms", "join wait"), ("tail_ms", "tail of the transfer"),
             ("grant_wait_ms", "wait for the grant"), ("data_ms", "whole transfer"), ("first_gap_ms", "token #1 to #2"),
             ("itl_ms", "ITL after that"))

    def value(f):
        return f["p50"], f["p50"], f["p99"]

    return [Bars("Parts of a request: p50, up to p99", "ms", [label for _, label in parts],
                 [(f"{out[name]['prompt_tokens']} tokens in", [value(out[name][key]) for key, _ in parts]) for name in ("short", "long")]),
            Bars("Left of the transfer when the prompt is computed, one at a time: p50, up to p99", "ms",
                 ["--kv-overlap layers", "--kv-overlap none"], [("tail", [value(out["tail_ms"][name]) for name in ("layers", "none")])])]


def main():
    p = parser("handover", __doc__)
    p.add_argument("--short", type=int, default=256)
    p.add_argument("--long", type=int, default=2048)
    p.add_argument("--output-tokens", type=int, default=64)
    p.add_argument("--requests", type=int, default=256)
    p.add_argument("--load", type=int, default=80)
    p.add_argument("--kv-transport", choices=("shm", "network"), default="shm")
    p.add_argument("--midstep-join", choices=("on", "off"), default="on")
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if min(args.short, args.long, args.requests, args.load) < 1 or args.output_tokens < 4:
        p.error("counts must be at least 1, output tokens at least 4")
    check_model(p, args)
    args.long_requests = max(args.requests // 5, 3)
    args.alone = min(args.long_requests, 12)
    finish(args, run(args), show, panels)


if __name__ == "__main__":
    main()
