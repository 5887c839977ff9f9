#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do well-behaved clients notice of hostile ones?

Usage: ./baton bench attack [options]
  --only NAME,...     attackers (default: all): bodies, readers, idle, drips, strangers, priority, samplers,
                      log, gone, waiting, texts, logits
  --clients N         well-behaved clients at a time (default 2)
  --requests N        their requests without and with each attacker (default 200)
  --rounds N          these are asked in so many rounds, without and with it in turn (default 4)
  --prompt-bytes N    text of each of their prompts (default 3000), all but 100 bytes of it the same
  --long-bytes N      text of the long prompts of one more client (default 100000)
  --http-memory SIZE  of the router (default 256m), whose memory is compared with what it allows
  --tenants           clients and attackers are two tenants at one address; without it two addresses where
                      the attack is one on the pool
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
choices drawn from the whole vocabulary, a reader of the access log that has stopped, 30 clients
that have 8 MB tokenized and leave, 20 that wait for that, 20 that ask for the text of a million ids,
and 4 that ask for the logits of short prompts as JSON, compared with 4 that ask for the same without
logits: workers compute for both. The well-behaved clients share a system prompt, as those of one
application do, and wait a fifth of a second between requests. Beside them one client has 100 kB
tokenized five times a second, which is the router's part of a prompt of that length. The figures are
the time to first token without and with the attacker, in turn; their ratio; and how many of the
clients' requests failed. Attackers stand for other machines: they run where
nobody else wants a core (SCHED_IDLE), so what is measured is what they cost the server. The router's memory is its peak without
files, and its bound: what it had before, four times --http-memory (requests, answers that are written,
unread ones of HTTP and of gRPC) and 64 MiB.
"""
import argparse
import asyncio
import contextlib
import json
import random
import re
import threading
import time

from _cluster import Attacker, Cluster, LogReader, NAMES, Network, POOL_NAMES, Stream, WITHOUT, free_port, pids_of, rest, warm_up, worker_cores, worker_threads
from _shared import (Load, Progress, add_model_option, check_model, describe, finish, parser, percentile,
                     show_machine)
from charts import Bars

PATIENCE_S = 20  # of a well-behaved client
PAUSE_S = 0.2    # between its requests
LONG_PAUSE_S = 0.2  # between long prompts
OWN_BYTES = 100  # of a prompt, the rest is the system prompt
WORDS = ("the of and to in is that it was for on are as with they at be this from have or by one had not but what all "
         "were when we there can an your which their said if do will each about how up out them then she many some so").split()
ALL = NAMES + POOL_NAMES
HEADER = "X-Tenant"
MOST_RATIO = 1.5  # of p99 beside an attacker to p99 without
SLACK = 64 << 20


def text_of(rng, n_bytes):
    return " ".join(rng.choice(WORDS) for _ in range(n_bytes))[:n_bytes]


def body(rng, args):
    """A question that nobody has asked before, behind a system prompt that all share; for any vocabulary."""
    own = min(OWN_BYTES, args.prompt_bytes)
    system, text = text_of(random.Random(args.seed), args.prompt_bytes - own), text_of(rng, own)
    out = ({"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]} if args.is_chat
           else {"prompt": system + text})
    return {**out, "max_tokens": args.output_tokens, "temperature": 0, "ignore_eos": True, "stream": True}


class Beside:
    """with Beside(cluster, args) as b: a client with long prompts, b.times, and the router's memory, b.peak"""

    def __init__(self, cluster, args):
        self.cluster, self.args, self.times, self.failed, self.peak, self.over = cluster, args, [], [], 0, False
        self.body = json.dumps({"prompt": text_of(random.Random(args.seed), args.long_bytes)})

    def ask(self):
        headers = {HEADER: "good"} if self.args.tenants else {}
        while not self.over:
            start = time.monotonic()
            try:
                status = self.cluster.request("POST", "/tokenize", self.body, headers, timeout=PATIENCE_S)[0]
            except OSError as why:
                status = repr(why)
            if status == 200:
                self.times.append(time.monotonic() - start)
            else:
                self.failed.append(f"long prompt: {status}")
            time.sleep(LONG_PAUSE_S)

    def look(self):
        while not self.over:
            self.peak = max(self.peak, private_bytes(self.cluster.router.pid))
            time.sleep(0.02)

    def __enter__(self):
        self.threads = [threading.Thread(target=run) for run in (self.ask, self.look)]
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, kind, value, trace):
        while kind is None and len(self.times) + len(self.failed) < 5:
            time.sleep(0.02)
        self.over = True
        for t in self.threads:
            t.join()


def private_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read())[1]) << 10


def allowed_bytes(cluster):
    """@return what the router says that requests may take, and answers, four times in all"""
    return 4 * float(re.search(r"([0-9]+) MiB for requests", cluster.router.log())[1]) * (1 << 20)


def serve(cluster, rng, args, step):
    """The well-behaved clients. @return (seconds to the first token of each request, what failed)"""
    times, failed = [], []

    async def one(todo):
        for request in todo:
            if len(failed) >= args.clients:
                failed.append("not sent: too many had failed")
                continue
            try:
                path = "/v1/chat/completions" if "messages" in request else "/v1/completions"
                s = await asyncio.wait_for(Stream(cluster.http, path, request, cluster.home).run(), PATIENCE_S)
                if s.status != 200 or s.errors() or not s.done:
                    failed.append(f"{s.status} {s.errors() or getattr(s, 'error', '')}")
                else:
                    times.append(s.times[0] - s.started)
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError) as why:
                failed.append(repr(why))
            step()
            await asyncio.sleep(PAUSE_S)

    async def run():
        todo = iter([body(rng, args) for _ in range(args.requests)])
        await asyncio.gather(*(one(todo) for _ in range(args.clients)))
    asyncio.run(run())
    return times, failed


class Side:
    """What well-behaved clients noticed, round after round: without the attacker, or beside it"""

    def __init__(self):
        self.times, self.long_times, self.failed, self.peak, self.attacks = [], [], [], 0, 0

    def measure(self, attacker, cluster, rng, args, step):
        rest(cluster)  # what the attacker before left is over
        with attacker or contextlib.nullcontext(), Beside(cluster, args) as beside:
            times, failed = serve(cluster, rng, args, step)
        self.times += times
        self.long_times += beside.times
        self.failed += failed + beside.failed
        self.peak = max(self.peak, beside.peak)
        self.attacks += attacker.done if attacker else 0


def split(n, parts):
    """@return counts that are n together, of at most so many parts"""
    return [part for part in (n // parts + (i < n % parts) for i in range(parts)) if part]


def measure(name, cluster, rng, reader, args, step):
    base = private_bytes(cluster.router.pid)
    headers = f"{HEADER}: bad\r\n" if args.tenants and name in POOL_NAMES else ""
    quiet, attacked = Side(), Side()
    for n in split(args.requests, args.rounds):
        some = argparse.Namespace(**{**vars(args), "requests": n})
        before = Attacker(WITHOUT[name], cluster, reader, cluster.home, headers, is_idle=True) if name in WITHOUT else None
        quiet.measure(before, cluster, rng, some, step)
        attacked.measure(Attacker(name, cluster, reader, cluster.strange if name == "strangers" else cluster.home,
                                  headers, is_idle=True), cluster, rng, some, step)
    ended = [p.name for p in cluster.processes if not p.alive()]
    out = {"attacker": name, "attacks": attacked.attacks, "failed": len(attacked.failed),
           "failed_before": len(quiet.failed), "why": attacked.failed[:3], "ended": ended,
           "n_long": len(quiet.long_times), "n_long_attacked": len(attacked.long_times)}
    for p in (50, 99):
        out[f"quiet_p{p}_ms"] = 1e3 * percentile(quiet.times, p)
        out[f"attacked_p{p}_ms"] = 1e3 * percentile(attacked.times, p)
        out[f"long_quiet_p{p}_ms"] = 1e3 * percentile(quiet.long_times, p)
        out[f"long_attacked_p{p}_ms"] = 1e3 * percentile(attacked.long_times, p)
    out["p99_ratio"] = out["attacked_p99_ms"] / out["quiet_p99_ms"]
    out["long_p99_ratio"] = out["long_attacked_p99_ms"] / out["long_quiet_p99_ms"]
    out["router_peak_bytes"] = attacked.peak
    out["router_bound_bytes"] = base + allowed_bytes(cluster) + SLACK
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
    p.add_argument("--only", default=",".join(ALL))
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--requests", type=int, default=200)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--prompt-bytes", type=int, default=3000)
    p.add_argument("--long-bytes", type=int, default=100000)
    p.add_argument("--http-memory", default="256m")
    p.add_argument("--tenants", action="store_true")
    p.add_argument("--output-tokens", type=int, default=16)
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--hosts", action="store_true")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    args.only = args.only.split(",")
    strange = [name for name in args.only if name not in ALL]
    if strange:
        p.error(f"no attacker {strange[0]}")
    if min(args.clients, args.requests, args.rounds, args.prompt_bytes, args.output_tokens) < 1:
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
        cluster = Cluster(args.model, kv_memory="512m", worker_args=["--threads", str(threads)], prefill_args=prefill,
                          decode_args=decode, hosts=hosts[:1])
        cluster.router_args += ["--http-memory", args.http_memory]
        if args.tenants:
            cluster.router_args += ["--tenant-header", HEADER]
        cluster.home, cluster.strange = hosts or (None, None)
        if not hosts:
            cluster.url = f"tcp://127.0.0.1:{free_port()}"  # for strangers, too
        reader = stack.enter_context(LogReader(cluster))
        stack.enter_context(cluster)
        warm_up(cluster)
        args.is_chat = cluster.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})[0] == 200
        rng = random.Random(args.seed + 1)
        for _ in range(2):  # the system prompt is in the caches of the workers from here
            serve(cluster, rng, argparse.Namespace(**{**vars(args), "requests": 1}), lambda: None)
        with load.during(pids_of(cluster)):
            rows = [measure(name, cluster, rng, reader, args, progress.step) for name in args.only]
    out = describe(args, ("only", "clients", "requests", "rounds", "prompt_bytes", "long_bytes", "http_memory", "tenants", "output_tokens", "threads", "hosts", "seed"))
    out.update(load.figures(), rows=rows)
    del out["cpu_others_percent"]  # the attackers would be among them
    return out


def show(out):
    show_machine(out)
    print(f"{'TTFT ms beside':16}{'attacks':>9}{'p50':>9}{'p99':>9}{'p50 with':>10}{'p99 with':>10}{'p99 ratio':>11}"
          f"{'long p99':>10}{'with':>9}{'ratio':>7}{'router MiB':>12}{'bound':>7}{'failed':>8}")
    for r in out["rows"]:
        print(f"{r['attacker']:16}{r['attacks']:9}{r['quiet_p50_ms']:9.1f}{r['quiet_p99_ms']:9.1f}"
              f"{r['attacked_p50_ms']:10.1f}{r['attacked_p99_ms']:10.1f}{r['p99_ratio']:11.2f}"
              f"{r['long_quiet_p99_ms']:10.1f}{r['long_attacked_p99_ms']:9.1f}{r['long_p99_ratio']:7.2f}"
              f"{r['router_peak_bytes'] / (1 << 20):12.0f}{r['router_bound_bytes'] / (1 << 20):7.0f}{r['failed']:8}")
        for what, ratio in (("TTFT", r["p99_ratio"]), ("long prompts", r["long_p99_ratio"])):
            if ratio > MOST_RATIO:
                print(f"    {what}: p99 is {ratio:.2f} times what it is without, wanted at most {MOST_RATIO}")
        if r["router_peak_bytes"] > r["router_bound_bytes"]:
            print("    the router took more memory than its bound")
        for line in r["why"] + [f"{name} ended" for name in r["ended"]]:
            print(f"    {line}")


if __name__ == "__main__":
    ARGS = parse()
    finish(ARGS, run(ARGS), show, panels)
