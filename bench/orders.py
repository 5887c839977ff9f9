#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do short prompts and long ones wait for, under each order of prompts?

Usage: ./baton bench orders [options]
  --orders LIST       of --prefill-order, in this order (default fcfs,srpt,deadline)
  --chunk-tokens N    of the workers, as their option has it (default 0: tuned)
  --clients N         streams, each with one request at a time (default 8)
  --short N           prompt tokens of each of them (default 128)
  --output-tokens N   tokens of each answer (default 200)
  --long N            prompt tokens of the long prompts (default 4096)
  --every SECONDS     a long prompt comes so often (default 8)
  --seconds N         with long prompts; half as long without, before (default 40)
  --turns N           times that each order is measured, in turn (default 1)
  --local-prefill[=WAY]  the decode worker takes a share of queued prompts (on),
                      or those that cost less there (auto)
  --workers LIST      more options of both workers, separated by commas
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of prompts (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Starts a cluster of one prefill and one decode worker for each order. First one long
prompt has it for itself (alone); then come the streams, without the long prompts
(undisturbed) and with them (disturbed). With `deadline` the short ones may take
a minute in all, the long ones two.

A long prompt's bound is what it would take if its share of the work alone stood
before it: its time alone, and the context phase of as many short prompts as come
meanwhile. No order can give both kinds less without giving the other more.
"""
import asyncio
import time

from _cluster import Client, Cluster, no_collector, pids_of, warm_up, worker_cores, worker_threads
from _shared import Load, add_model_option, check_model, describe, finish, parser, percentile, show_machine
from charts import Bars

DEADLINES_MS = {"short": 60000, "long": 120000}
WARM_S = 2  # of each phase, not counted
LONG_OUTPUT = 8


class Mixed(Client):
    """Streams beside long prompts."""

    def __init__(self, address, args, order):
        super().__init__(address, args.seed, args.output_tokens)
        self.args = args
        self.more = {kind: {"timeout_ms": ms} if order == "deadline" else {} for kind, ms in DEADLINES_MS.items()}

    def long_request(self):
        return self.request(self.args.long, max_tokens=LONG_OUTPUT, **self.more["long"])

    def alone(self, n_prompt, n):
        """@return TTFTs of requests that have the cluster for themselves"""
        async def run():
            return [await self.send(self.request(n_prompt, max_tokens=2)) for _ in range(n)]
        with no_collector():
            answers = asyncio.run(run())
        return [a.read().times[0] - a.started for a in answers]

    def mixed(self, seconds, with_long):
        """@return (answers of the streams, of the long prompts, when it began, when it was over)"""
        async def run():
            start = time.monotonic()
            end = start + WARM_S + seconds
            answers, longs, tasks = [], [], []

            async def stream():
                while time.monotonic() < end:
                    answers.append(await self.send(self.request(self.args.short, **self.more["short"])))

            async def long():
                longs.append(await self.send(self.long_request()))

            async def arrivals():
                at = start + WARM_S
                while at < end - self.args.every / 2:
                    await asyncio.sleep(max(0.0, at - time.monotonic()))
                    tasks.append(asyncio.create_task(long()))
                    at += self.args.every

            await asyncio.gather(*(stream() for _ in range(self.args.clients)), *([arrivals()] if with_long else []))
            await asyncio.gather(*tasks)
            return answers, longs, start + WARM_S, end

        with no_collector():
            answers, longs, begin, end = asyncio.run(run())
        return [a.read() for a in answers], [a.read() for a in longs], begin, end


def spread(values):
    return {f"p{p}": 1e3 * percentile(values, p) for p in (50, 99)}


def figures(answers, longs, begin, end):
    shorts = [a for a in answers if a.started >= begin]
    gaps = [b - a for s in answers for a, b in zip(s.times, s.times[1:-1]) if a >= begin and b <= end]
    out = {"n_short": len(shorts), "n_long": len(longs),
           "short_ttft_ms": spread([a.times[0] - a.started for a in shorts]),
           "itl_ms": spread(gaps),
           "tokens_per_s": sum(begin <= t <= end for a in answers for t in a.times[:-1]) / (end - begin)}
    if longs:
        out["long_ttft_ms"] = spread([a.times[0] - a.started for a in longs])
    return out


def measure(order, args, load):
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    both = (["--threads", str(threads), "--prefill-order", order, "--chunk-tokens", str(args.chunk_tokens)] +
            [x for x in args.workers.split(",") if x])
    if args.local_prefill != "off":
        decode = decode + [f"--local-prefill={args.local_prefill}"]
    with Cluster(args.model, kv_memory="1g", worker_args=both, prefill_args=prefill, decode_args=decode,
                 router_args=["--prefill-order", order]) as c:
        warm_up(c)
        client = Mixed(c.http, args, order)
        with load.during(pids_of(c)):
            for n in (64, args.short, 512):
                client.alone(n, 4)
            long_s, short_s = client.alone(args.long, 2), client.alone(args.short, 8)
            before = figures(*client.mixed(args.seconds / 2, False))
            beside = figures(*client.mixed(args.seconds, True))
        learned = {work: {name: c.total(f"baton_cost_model_{metric}", worker=worker, work=work) for name, metric in (
                       ("step_seconds", "step_seconds"), ("item_seconds", "item_seconds"),
                       ("kilopair_seconds", "attention_per_1k_pairs_seconds"),
                       ("kiloread_seconds", "kv_read_per_1k_positions_seconds"), ("error_ratio", "error_ratio"))}
                   for worker, work in (("prefill-0", "prefill"), ("decode-0", "decode"), ("prefill-0", "transfer"))}
    out = {"order": order, "alone_long_ms": 1e3 * percentile(long_s, 50), "alone_short_ms": 1e3 * percentile(short_s, 50),
           "undisturbed": before, "disturbed": beside, "learned": learned}
    # In the time that a long prompt takes short ones come as often as they did.
    share = beside["n_short"] / args.seconds * out["alone_short_ms"] / 1e3
    out["long_bound_ms"] = out["alone_long_ms"] / (1 - share) if share < 1 else float("nan")
    return out


def show(out):
    show_machine(out)
    print(f"{'':10}{'short TTFT ms, p50 / p99':>34}{'':6}{'long TTFT ms':>20}{'ITL p99 ms':>18}{'tokens/s':>16}")
    print(f"{'order':10}{'undisturbed':>17}{'disturbed':>17}{'p99':>6}{'p50 / p99':>14}{'bound':>6}"
          f"{'before / beside':>18}{'before / beside':>16}")
    for row in out["orders"]:
        before, beside = row["undisturbed"], row["disturbed"]
        pair = [f"{x['short_ttft_ms']['p50']:.0f} / {x['short_ttft_ms']['p99']:.0f}" for x in (before, beside)]
        ratio = beside["short_ttft_ms"]["p99"] / before["short_ttft_ms"]["p99"]
        long = f"{beside['long_ttft_ms']['p50']:.0f} / {beside['long_ttft_ms']['p99']:.0f}"
        itl = f"{before['itl_ms']['p99']:.1f} / {beside['itl_ms']['p99']:.1f}"
        tokens = f"{before['tokens_per_s']:.0f} / {beside['tokens_per_s']:.0f}"
        print(f"{row['order']:10}{pair[0]:>17}{pair[1]:>17}{ratio:5.1f}x{long:>14}{row['long_bound_ms']:6.0f}{itl:>18}{tokens:>16}")
    for row in out["orders"]:
        print(f"{row['order']:10}alone: short {row['alone_short_ms']:.0f}, long {row['alone_long_ms']:.0f} ms; learned: " + "; ".join(
            f"{work} {1e3 * x['step_seconds']:.2f} + {1e3 * x['item_seconds']:.3f} each + {1e3 * x['kilopair_seconds']:.4f} "
            f"a kilopair + {1e3 * x['kiloread_seconds']:.4f} a kiloread ms, off by {100 * x['error_ratio']:.0f} %" for work, x in row["learned"].items()))


def panels(out):
    names = [row["order"] for row in out["orders"]]

    def bars(title, unit, value):
        return Bars(title, unit, names, [(label, [value(row[key]) for row in out["orders"]])
                                         for label, key in (("streams alone", "undisturbed"), ("beside long prompts", "disturbed"))])

    return [bars("Time to the first token of short prompts: p50, up to p99", "ms",
                 lambda f: (f["short_ttft_ms"]["p50"], None, f["short_ttft_ms"]["p99"])),
            Bars("Time to the first token of long prompts: p50, up to p99", "ms", names,
                 [("measured", [(x["p50"], None, x["p99"]) for x in (row["disturbed"]["long_ttft_ms"] for row in out["orders"])]),
                  ("bound", [row["long_bound_ms"] for row in out["orders"]])]),
            bars("Tokens a second", "tokens/s", lambda f: f["tokens_per_s"])]


def parse():
    p = parser("orders", __doc__)
    p.add_argument("--orders", default="fcfs,srpt,deadline")
    p.add_argument("--chunk-tokens", type=int, default=0)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--short", type=int, default=128)
    p.add_argument("--output-tokens", type=int, default=200)
    p.add_argument("--long", type=int, default=4096)
    p.add_argument("--every", type=float, default=8)
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--turns", type=int, default=1)
    p.add_argument("--local-prefill", nargs="?", choices=("on", "off", "auto"), const="on", default="off")
    p.add_argument("--workers", default="")
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if min(args.clients, args.short, args.output_tokens, args.long, args.every, args.seconds, args.turns) <= 0:
        p.error("counts and times must be above 0")
    check_model(p, args)
    return args


def main():
    args = parse()
    out = describe(args, ("chunk_tokens", "clients", "short", "output_tokens", "long", "every", "seconds", "local_prefill", "seed"))
    load = Load()
    out["orders"] = [measure(order, args, load) for _ in range(args.turns) for order in args.orders.split(",")]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
