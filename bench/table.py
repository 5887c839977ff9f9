#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The default configuration under all loads at once asked of it, against the engine's own rates and a peer.

Usage: ./baton bench table [options]
  --turns N           times that everything is measured, in turns with the peer (default 1)
  --repeat N          requests of one client, of each length (default 7)
  --requests N        requests of the 32 clients (default 160)
  --seconds N         with long prompts; half as long without, before (default 40)
  --long N            prompt tokens of the long prompts (default 4096)
  --every SECONDS     a long prompt comes so often (default 8; more where the engine needs
                      half of that for one: the bounds are of a machine that keeps up)
  --peer ADDR:PORT    another server with OpenAI's API and the same model on this host,
                      idle while it is not asked; measured in turn
  --model PATH        another model
  --seed N            of the prompts (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Starts what `./baton serve` starts, with no option but the model and ports, and
measures, each turn: the engine alone with all cores, one client with prompts of
128, 512 and 2,048 tokens, 32 clients with 256 tokens in and 128 out, and 8 streams
of 128 in and 200 out, first alone, then beside long prompts.

The bounds are those of a server that keeps all cores busy with the engine's rates
and spends time on nothing else: of tokens/s, what is left when the long prompts have
their part; of a long prompt's TTFT, its time with all cores that the streams leave at
the rate at which they were served.
"""
import asyncio
import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import time
import types

from _cluster import BUILD, no_collector, ticks_within, wait_until
from _shared import (Half, Load, add_model_option, build, check_model, describe, finish, parser, percentile, ranged,
                     show_machine, timed)
from charts import Bars
from orders import Mixed, figures

SINGLE = (128, 512, 2048)
SHORT, ANSWER, STREAMS = 128, 200, 8
CROWD, CROWD_IN, CROWD_OUT = 32, 256, 128
ENGINE_CHUNK, ENGINE_STEPS, ENGINE_MS = 512, 32, 3000
START_S = 120


def get(address, path):
    conn = http.client.HTTPConnection(*address, timeout=10)
    try:
        conn.request("GET", path)
        response = conn.getresponse()
        return response.status, response.read()
    finally:
        conn.close()


def descendants(pid):
    out = [pid]
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            for child in f.read().split():
                out += descendants(int(child))
    except OSError:
        pass
    return out


def rest(address, process):
    """One request, and what workers do in idle moments of their own: their KV pools get memory."""
    body = json.dumps({"prompt": "warm up", "max_tokens": 8})
    conn = http.client.HTTPConnection(*address, timeout=60)
    conn.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    if conn.getresponse().status != 200:
        raise SystemExit("the first request fails")
    conn.close()
    wait_until("the cluster rests", lambda: ticks_within(descendants(process.pid), 0.5) <= 5, START_S)


@contextlib.contextmanager
def baton(args, options=()):
    """`baton serve`, as it is without options if there are none. @return its address, and its process, which has `ready_at`"""
    process = subprocess.Popen([os.path.join(BUILD, "launcher", "baton-launch"), "--model", args.model, "--http", "127.0.0.1:0",
                                "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = None
        for line in process.stdout:
            if "/v1" in line and "http://" in line:
                host, port = line.split("http://")[1].split("/")[0].split(":")
                address = (host, int(port))
            if "Ctrl-C" in line:
                break
        if address is None:
            raise SystemExit("baton serve does not start")
        deadline = time.monotonic() + START_S
        while get(address, "/v2/health/ready")[0] != 200:
            if time.monotonic() > deadline:
                raise SystemExit("baton serve does not get ready")
            time.sleep(0.1)
        process.ready_at = time.monotonic()
        rest(address, process)
        yield address, process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def engine_rates(args):
    """@return seconds: of a prompt of each length, and of a step of 8 and of 32 sequences; all cores"""
    lengths = sorted({*SINGLE, CROWD_IN, args.long})
    half = Half([build("engine-run"), args.model, len(os.sched_getaffinity(0)), "bf16", ENGINE_CHUNK, max(lengths), CROWD,
                 SHORT + ANSWER // 2, ENGINE_STEPS, 1, "auto"])
    half.read()
    out = {"prefill_s": {}, "step_s": {}}
    for n in lengths:
        half.ask("prefill", n)
        out["prefill_s"][n] = statistics.median(timed(lambda m=n: half.ask("prefill", m), ENGINE_MS if n <= 512 else 2 * ENGINE_MS))
    for n in (STREAMS, CROWD):
        half.ask("decode", n)
        out["step_s"][n] = statistics.median(timed(lambda m=n: half.ask("decode", m), ENGINE_MS)) / ENGINE_STEPS
    half.close()
    return out


class Named(Mixed):
    """A peer wants the model's name in each request."""

    def __init__(self, address, args, name, seed):
        super().__init__(address, args, "srpt")
        self.rng.seed(seed)
        self.name = name

    def request(self, n_prompt, **more):
        return super().request(n_prompt, model=self.name, **more)


def one_client(client, n_prompt, n):
    async def run():
        return [await client.send(client.request(n_prompt, max_tokens=64)) for _ in range(n)]
    with no_collector():
        answers = [a.read() for a in asyncio.run(run())]
    gaps = [b - a for s in answers for a, b in zip(s.times, s.times[1:-1])]
    return {"ttft_ms": 1e3 * percentile([a.times[0] - a.started for a in answers], 50), "itl_ms": 1e3 * percentile(gaps, 50)}


def measure(address, args, seed):
    status, body = get(address, "/v1/models")
    if status != 200:
        raise SystemExit(f"{address[0]}:{address[1]} has no /v1/models")
    client = Named(address, args, json.loads(body)["data"][0]["id"], seed)
    one_client(client, 512, 3)
    out = {"one": {n: one_client(client, n, args.repeat) for n in SINGLE}}
    client.output_tokens = CROWD_OUT
    answers, seconds = client.closed(CROWD_IN, args.requests, CROWD)
    ttft = [a.times[0] - a.started for a in answers]
    gaps = [b - a for s in answers for a, b in zip(s.times, s.times[1:-1])]
    out["crowd"] = {"tokens_per_s": args.requests * CROWD_OUT / seconds, "ttft_ms": {p: 1e3 * percentile(ttft, p) for p in (50, 99)},
                    "itl_ms": {p: 1e3 * percentile(gaps, p) for p in (50, 99)}}
    client.output_tokens = ANSWER
    out["undisturbed"] = figures(*client.mixed(args.seconds / 2, False))
    out["disturbed"] = figures(*client.mixed(args.seconds, True))
    return out


def ratios(own, peer, engine, args):
    """@return (what, figure, asked, is met) of each"""
    prefill, step = engine["prefill_s"], engine["step_s"]
    crowd_bound = CROWD_OUT / (prefill[CROWD_IN] + CROWD_OUT * step[CROWD] / CROWD)
    request_s = prefill[SHORT] + ANSWER * step[STREAMS] / STREAMS
    before, beside = own["undisturbed"], own["disturbed"]
    share = prefill[args.long] / args.every
    tokens_bound = max(1 - share, 0) * ANSWER / request_s
    left = 1 - beside["tokens_per_s"] / ANSWER * request_s
    long_bound_ms = 1e3 * prefill[args.long] / left if left > 0 else float("inf")
    rows = [(f"one client, TTFT of {n} tokens: engine's time to it", prefill[n] * 1e3 / own["one"][n]["ttft_ms"], ">=", 0.95) for n in SINGLE[1:]]
    rows += [("32 clients, tokens/s to the engine's bound", own["crowd"]["tokens_per_s"] / crowd_bound, ">=", 0.95),
             ("beside long prompts: ITL p99 to undisturbed", beside["itl_ms"]["p99"] / before["itl_ms"]["p99"], "<=", 1.3),
             ("  short prompts' TTFT p99 to undisturbed", beside["short_ttft_ms"]["p99"] / before["short_ttft_ms"]["p99"], "<=", 1.5),
             ("  tokens/s to the bound", beside["tokens_per_s"] / tokens_bound if tokens_bound > 0 else float("inf"), ">=", 0.9),
             ("  long prompts' TTFT p50 to the bound", beside["long_ttft_ms"]["p50"] / long_bound_ms, "<=", 1.3)]
    if peer:
        rows += [(f"one client, TTFT of {n} tokens to the peer's", own["one"][n]["ttft_ms"] / peer["one"][n]["ttft_ms"], "<=", 0.9) for n in SINGLE[1:]]
        rows += [("32 clients, TTFT p50 to the peer's", own["crowd"]["ttft_ms"][50] / peer["crowd"]["ttft_ms"][50], "<=", 0.6)]
    return [{"what": what, "figure": figure, "asked": f"{way} {limit}", "met": figure >= limit if way == ">=" else figure <= limit}
            for what, figure, way, limit in rows]


def side(name, f):
    before, beside = f["undisturbed"], f["disturbed"]
    print(f"{name:7} one client, TTFT / ITL ms: " + ", ".join(f"{n}: {x['ttft_ms']:.0f} / {x['itl_ms']:.1f}" for n, x in f["one"].items()))
    c = f["crowd"]
    print(f"{'':7} 32 clients: {c['tokens_per_s']:.0f} tokens/s; TTFT p50 {c['ttft_ms'][50]:.0f}, p99 {c['ttft_ms'][99]:.0f} ms; "
          f"ITL p50 {c['itl_ms'][50]:.1f}, p99 {c['itl_ms'][99]:.1f} ms")
    for what, x in (("8 streams", before), ("beside", beside)):
        print(f"{'':7} {what}: {x['tokens_per_s']:.0f} tokens/s; TTFT p50 {x['short_ttft_ms']['p50']:.0f}, p99 {x['short_ttft_ms']['p99']:.0f} ms; "
              f"ITL p50 {x['itl_ms']['p50']:.1f}, p99 {x['itl_ms']['p99']:.1f} ms" +
              (f"; long TTFT p50 {x['long_ttft_ms']['p50']:.0f}, p99 {x['long_ttft_ms']['p99']:.0f} ms" if "long_ttft_ms" in x else ""))


def show(out):
    show_machine(out)
    for i, turn in enumerate(out["turns_done"]):
        print(f"turn {i + 1}")
        for name in ("baton", "peer"):
            if turn[name]:
                side(name, turn[name])
        e = turn["engine"]
        print(f"{'engine':7} prompts " + ", ".join(f"{n}: {1e3 * s:.0f}" for n, s in e["prefill_s"].items()) + " ms; steps " +
              ", ".join(f"of {n}: {1e3 * s:.1f}" for n, s in e["step_s"].items()) + " ms")
        for row in turn["ratios"]:
            print(f"  {row['what']:58}{row['figure']:6.2f}  {row['asked']:8}{'' if row['met'] else 'not met'}")


def panels(out):
    names = {name: label for name, label in (("baton", "Baton"), ("peer", "the peer")) if out["turns_done"][0][name]}

    def bars(title, unit, parts):
        """parts: (label, figure of what a server got in a turn)"""
        return Bars(title, unit, [label for label, _ in parts],
                    [(label, [ranged([value(turn[name]) for turn in out["turns_done"]]) for _, value in parts]) for name, label in names.items()])

    return [bars("One client: time to the first token", "ms", [(f"{n} tokens in", lambda f, n=n: f["one"][str(n)]["ttft_ms"]) for n in SINGLE]),
            bars("Tokens a second", "tokens/s", [("32 clients", lambda f: f["crowd"]["tokens_per_s"]),
                                                 ("8 streams", lambda f: f["undisturbed"]["tokens_per_s"]),
                                                 ("8 streams beside long prompts", lambda f: f["disturbed"]["tokens_per_s"])]),
            bars("Time to the first token at the 99th percentile", "ms",
                 [("32 clients", lambda f: f["crowd"]["ttft_ms"]["99"]), ("8 streams", lambda f: f["undisturbed"]["short_ttft_ms"]["p99"]),
                  ("8 streams beside long prompts", lambda f: f["disturbed"]["short_ttft_ms"]["p99"])])]


def parse():
    p = parser("table", __doc__)
    p.add_argument("--turns", type=int, default=1)
    p.add_argument("--repeat", type=int, default=7)
    p.add_argument("--requests", type=int, default=160)
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--long", type=int, default=4096)
    p.add_argument("--every", type=float, default=8)
    p.add_argument("--peer", default="")
    add_model_option(p)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if min(args.turns, args.repeat, args.requests, args.seconds, args.long, args.every) <= 0:
        p.error("counts and times must be above 0")
    check_model(p, args)
    return args


def main():
    args = parse()
    # What Mixed reads of the options of `bench orders`.
    mixed = types.SimpleNamespace(**vars(args), output_tokens=ANSWER, short=SHORT, clients=STREAMS)
    out = describe(args, ("turns", "repeat", "requests", "seconds", "long", "every", "seed"))
    load, turns = Load(), []
    for i in range(args.turns):
        engine = engine_rates(args)
        with baton(args) as (address, process):
            with load.during(lambda p=process: [os.getpid()] + descendants(p.pid)):
                own = measure(address, mixed, args.seed + i)
        peer = None
        if args.peer:
            host, _, port = args.peer.rpartition(":")
            peer = measure((host, int(port)), mixed, args.seed + i)
        turns.append({"baton": own, "peer": peer, "engine": engine, "ratios": ratios(own, peer, engine, args)})
    out["turns_done"] = turns
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
