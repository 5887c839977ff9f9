#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does a tenant notice of another one that floods?

Usage: ./baton bench tenants [options]
  --floods LIST       kinds of flood (default open,closed)
  --times X           of its share that it floods with (default 10)
  --quiet-share X     that the quiet one uses of its own share (default 0.2)
  --prompt N          prompt tokens of the quiet one's requests (default 128)
  --flood-prompt N    of the other's (default 128)
  --output-tokens N   of all answers (default 32)
  --seconds N         of each phase (default 15)
  --turns N           times that all of it is measured (default 1)
  --routers LIST      more options of the router, separated by commas
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of prompts and arrivals (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Starts a cluster of one prefill and one decode worker, with keys of two tenants of the same
weight. First one of them alone, closed loop, says how many requests a second can be
sustained; half of them is a tenant's share. Then, in turn:

  alone     the quiet one, at a steady rate, has the machine for itself
  share     the other one is busy with just its share (open loop)
  open      it floods: so many times its share, whatever becomes of them
  closed    it floods: as many clients as the queue has places, and more; who is refused
            asks again at once

What the flood does to the quiet one is the ratio to `share`: another tenant that uses what
it may. Against `alone` stands what the other one's share costs: with it one has half of
the machine, and the cores that are lent to who is alone are in use.
"""
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from _cluster import Cluster, no_collector, pids_of, warm_up, worker_cores, worker_threads
from _shared import ROOT, Load, add_model_option, check_model, describe, finish, parser, percentile, ranged, show_machine
from charts import Bars

WARM_S = 3          # of each phase, not counted
CLOSED_CLIENTS = 96
REFUSED_PAUSE_S = 0.02
TENANTS = ("quiet", "other")


def make_keys(directory):
    """@return (the file, {tenant: key})"""
    path, keys = os.path.join(directory, "keys"), {}
    for tenant in TENANTS:
        run = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "cli", "key.py"), "new", tenant, "--file", path],
                             capture_output=True, text=True, check=True)
        keys[tenant] = run.stdout.strip()
    return path, keys


class Tenant:
    """Its requests, and what became of them."""

    def __init__(self, address, name, key, n_prompt, n_output, seed):
        self.address, self.name, self.key = address, name, key
        self.n_prompt, self.n_output, self.rng = n_prompt, n_output, random.Random(f"{name}{seed}")
        self.ttfts, self.refused, self.done, self.failed = [], [], [], []

    async def one(self):
        """Send one and wait for its end. @return False: it was refused"""
        body = json.dumps({"prompt": [self.rng.randrange(1000, 20000) for _ in range(self.n_prompt)],
                           "max_tokens": self.n_output, "temperature": 0, "ignore_eos": True, "stream": True})
        began = time.monotonic()
        try:
            reader, writer = await asyncio.open_connection(*self.address)
        except OSError:
            self.failed.append(began)
            return False
        with contextlib.closing(writer):
            try:
                writer.write((f"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
                              f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
                status = int((await reader.readline()).split()[1])
                if status != 200:
                    (self.refused if status in (429, 503) else self.failed).append(began)
                    return False
                await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"\n\n")
                first = time.monotonic()
                rest = await reader.read()
                while not rest.endswith(b"data: [DONE]\n\n"):
                    more = await reader.read()
                    if not more:
                        break
                    rest += more
                if b'"error"' in rest or not rest.endswith(b"data: [DONE]\n\n"):
                    self.failed.append(began)
                    return True
            except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
                self.failed.append(began)
                return False
        self.ttfts.append((began, first - began))
        self.done.append((began, time.monotonic()))
        return True

    def figures(self, begin, end):
        ttfts = [t for began, t in self.ttfts if begin <= began < end]
        n = sum(begin <= at < end for _, at in self.done)
        return {"n": len(ttfts), "requests_per_s": n / (end - begin), "tokens_per_s": n * self.n_output / (end - begin),
                "refused": sum(begin <= at < end for at in self.refused),
                "failed": sum(begin <= at < end for at in self.failed),
                "ttft_ms": {f"p{p}": 1e3 * percentile(ttfts, p) for p in (50, 99)}}


async def steady(tenant, rate, end):
    """Arrivals at a steady rate, each within its own slot. Nothing is waited for."""
    tasks, at = set(), time.monotonic()
    while at < end:
        await asyncio.sleep(max(0.0, at + tenant.rng.random() / rate - time.monotonic()))
        task = asyncio.create_task(tenant.one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        at += 1 / rate
    return tasks


async def closed(tenant, n_clients, end):
    async def client():
        while time.monotonic() < end:
            if not await tenant.one():
                await asyncio.sleep(REFUSED_PAUSE_S)
    tasks = [asyncio.create_task(client()) for _ in range(n_clients)]
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    return tasks


async def phase(loads, seconds):
    """@param loads: of functions that take the end. @return (begin, end)"""
    begin = time.monotonic() + WARM_S
    end = begin + seconds
    groups = await asyncio.gather(*(load(end) for load in loads))
    for task in [t for group in groups for t in group]:  # the rest of a flood is of no interest
        task.cancel()
    await asyncio.gather(*(t for group in groups for t in group), return_exceptions=True)
    return begin, end


def measure(args, load):
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    with tempfile.TemporaryDirectory() as directory:
        path, keys = make_keys(directory)
        router = ["--api-keys", path, *[x for x in args.routers.split(",") if x]]
        with Cluster(args.model, kv_memory="1g", worker_args=["--threads", str(threads)], prefill_args=prefill,
                     decode_args=decode, router_args=router) as c:
            warm_up(c, {"Authorization": "Bearer " + keys["quiet"]})
            with load.during(pids_of(c)), no_collector():
                return run_phases(args, c, keys)


def run_phases(args, c, keys):
    def tenants(name):  # prompts that nobody has cached
        return (Tenant(c.http, "quiet", keys["quiet"], args.prompt, args.output_tokens, f"{args.seed}{name}"),
                Tenant(c.http, "other", keys["other"], args.flood_prompt, args.output_tokens, f"{args.seed}{name}"))

    out = {}
    quiet, other = tenants("capacity")
    begin, end = asyncio.run(phase([lambda end: closed(other, CLOSED_CLIENTS, end)], args.seconds))
    whole = other.figures(begin, end)
    share = whole["requests_per_s"] / 2
    # The same work a second, in the quiet one's requests.
    rate = args.quiet_share * share * (args.flood_prompt + args.output_tokens) / (args.prompt + args.output_tokens)
    out["capacity"] = {"other": whole, "share_per_s": share, "quiet_per_s": rate}
    for name in ["alone", "share", *args.floods.split(",")]:
        c.wait_idle(120)
        quiet, other = tenants(name)
        loads = [lambda end, t=quiet: steady(t, rate, end)]
        if name == "closed":
            loads.append(lambda end, t=other: closed(t, int(args.times * CLOSED_CLIENTS), end))
        elif name != "alone":
            times = args.times if name == "open" else 1
            loads.append(lambda end, t=other: steady(t, share * times, end))
        begin, end = asyncio.run(phase(loads, args.seconds))
        out[name] = {"quiet": quiet.figures(begin, end), "other": other.figures(begin, end)}
    return out


def show(out):
    show_machine(out)
    for turn in out["turns"]:
        print(f"sustained {2 * turn['capacity']['share_per_s']:.1f} requests/s; a share is {turn['capacity']['share_per_s']:.1f}, "
              f"the quiet one asks {turn['capacity']['quiet_per_s']:.1f}/s")
        print(f"{'the other one':14}{'quiet TTFT ms p50 / p99':>26}{'x alone':>9}{'x share':>9}{'tokens/s quiet / other':>25}"
              f"{'refused quiet / other':>24}{'failed':>8}")
        for name, row in turn.items():
            if name == "capacity":
                continue
            q, o = row["quiet"], row["other"]
            ratio = [q["ttft_ms"]["p99"] / turn[base]["quiet"]["ttft_ms"]["p99"] for base in ("alone", "share")]
            print(f"{name:14}{'{p50:.0f} / {p99:.0f}'.format(**q['ttft_ms']):>26}{ratio[0]:9.2f}{ratio[1]:9.2f}"
                  f"{q['tokens_per_s']:16.0f} / {o['tokens_per_s']:<6.0f}{q['refused']:15d} / {o['refused']:<6d}{q['failed'] + o['failed']:8d}")


def panels(out):
    names = [name for name in out["turns"][0] if name != "capacity"]

    def bars(title, unit, series):
        return Bars(title, unit, [f"the other one: {name}" for name in names],
                    [(label, [ranged([value(turn[name]) for turn in out["turns"]]) for name in names]) for label, value in series])

    return [bars("Time to the first token of the quiet tenant", "ms",
                 [(p, lambda row, p=p: row["quiet"]["ttft_ms"][p]) for p in ("p50", "p99")]),
            bars("Tokens a second", "tokens/s", [(f"the {who} one", lambda row, who=who: row[who]["tokens_per_s"]) for who in TENANTS])]


def parse():
    p = parser("tenants", __doc__)
    p.add_argument("--floods", default="open,closed")
    for name, default in (("prompt", 128), ("flood-prompt", 128), ("output-tokens", 32), ("turns", 1)):
        p.add_argument("--" + name, type=int, default=default)
    for name, default in (("times", 10), ("quiet-share", 0.2), ("seconds", 15)):
        p.add_argument("--" + name, type=float, default=default)
    p.add_argument("--routers", default="")
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if min(args.prompt, args.flood_prompt, args.output_tokens, args.turns, args.times, args.quiet_share, args.seconds) <= 0:
        p.error("counts, times and shares must be above 0")
    if set(args.floods.split(",")) - {"open", "closed"}:
        p.error("--floods knows open and closed")
    check_model(p, args)
    return args


def main():
    args = parse()
    out = describe(args, ("floods", "times", "quiet_share", "prompt", "flood_prompt", "output_tokens", "seconds", "routers", "seed"))
    load = Load()
    out["turns"] = [measure(args, load) for _ in range(args.turns)]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
