#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do those who are taken keep their targets when four times as many come as can be served?

Usage: ./baton bench overload [options]
  --ttft-ms N         target of the first token (default 2000)
  --itl-ms N          target of the mean time between tokens (default 40)
  --times LIST        of the sustainable rate, in this order (default 1,4)
  --prompt N          words of a prompt, about a token each (default 256)
  --output-tokens N   tokens of each answer (default 64)
  --clients N         of a closed loop (default 24)
  --seconds N         in which requests come, of each run (default 15)
  --rates LIST        of what the closed loop gets, tried in this order until 99 % of all keep
                      both targets: the sustainable rate (default 0.95,0.85,0.75,0.6,0.4)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of arrivals and prompts (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Starts a cluster of one prefill and one decode worker without targets, which a closed loop
of clients keeps busy, then one with targets: rates until one is sustainable, that many
times it, and the closed loop again (greedy), whose clients come again at once when they
were refused, whatever Retry-After says. The client is `./baton load-test`. The peak is the most
tokens a second of any run that offers no more than is sustainable, and of the closed loop
without targets.
"""
import itertools
import json
import os
import subprocess
import sys

from _cluster import Cluster, pids_of, warm_up, worker_cores, worker_threads
from _shared import ROOT, Load, add_model_option, check_model, describe, finish, parser, show_machine
from charts import Bars

SUSTAINED = 0.99  # of all that were offered keep both targets


def offer(cluster, args, how, seed):
    """@param seed  another one for each run: prompts of before are in the prefix cache
    @return what ./baton load-test says of a run"""
    command = [sys.executable, os.path.join(ROOT, "tools", "cli", "load.py"), "--json", "--quiet", "--ignore-eos",
               "--url", "http://{}:{}".format(*cluster.http), "--prompt-tokens", str(args.prompt),
               "--output-tokens", str(args.output_tokens), "--duration", str(args.seconds), "--seed", str(seed),
               "--ttft-ms", str(args.ttft_ms), "--tpot-ms", str(args.itl_ms), *how]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"the client gave up with {done.returncode}: {' '.join(how)}")
    return json.loads(done.stdout)


def row_of(name, out):
    if set(out["errors"]) - {"HTTP 429"}:
        raise SystemExit(f"{name}: {out['errors']}")
    row = {"run": name, "rate": out["rate"], "offered": out["requests"]["offered"], "refused": out["requests"]["refused"],
           "answered": out["requests"]["answered"], "tokens_per_s": out["tokens"]["out_per_s"],
           "good_of_offered": out["goodput"]["of_offered"]}
    row["good_of_answered"] = out["goodput"]["good"] / max(1, row["answered"])
    for what in ("ttft_ms", "tpot_ms", "itl_ms"):
        row[what] = {p: out[what][p] for p in ("p50", "p99")} if out[what] else None
    return row


def cluster_of(args, router):
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    return Cluster(args.model, kv_memory="1g", worker_args=["--threads", str(threads)], prefill_args=prefill,
                   decode_args=decode, router_args=router)


def measure(args, load):
    closed = ["--concurrency", str(args.clients)]
    seeds = itertools.count(args.seed).__next__
    with cluster_of(args, []) as c:
        warm_up(c)
        with load.during(pids_of(c)):
            rows = [row_of("closed loop, no targets", offer(c, args, closed, seeds()))]
    most = rows[0]["tokens_per_s"] / args.output_tokens
    sustainable = None
    with cluster_of(args, ["--ttft-target-ms", str(args.ttft_ms), "--itl-target-ms", str(args.itl_ms)]) as c:
        warm_up(c)
        with load.during(pids_of(c)):
            for part in args.rates:
                row = row_of(f"{part:g} of it", offer(c, args, ["--rate", f"{part * most:.2f}"], seeds()))
                rows.append(row)
                if row["good_of_offered"] >= SUSTAINED:
                    sustainable = row["rate"]
                    break
            peak = max(row["tokens_per_s"] for row in rows)
            for times in args.times if sustainable else []:
                how = ["--rate", f"{times * sustainable:.2f}"]
                rows.append(row_of(f"{times:g} x sustainable", offer(c, args, how, seeds())))
            rows.append(row_of("greedy closed loop", offer(c, args, closed, seeds())))
    for row in rows:
        row["of_peak"] = row["tokens_per_s"] / peak
    return {"sustainable_per_s": sustainable, "peak_tokens_per_s": peak, "runs": rows}


def show(out):
    def pair(values):
        return "{p50:,.0f} / {p99:,.0f}".format(**values) if values else "-"

    show_machine(out)
    rate = out["sustainable_per_s"]
    print(f"sustainable: {f'{rate:.2f} requests/s' if rate else 'none of the rates'}; "
          f"peak: {out['peak_tokens_per_s']:.0f} tokens/s; targets: {out['targets']}")
    print(f"{'':26}{'rate':>7}{'tokens/s':>10}{'of peak':>9}{'good of':>9}{'':>9}{'of accepted, ms, p50 / p99':>36}{'':>9}{'offered /':>9}")
    print(f"{'':26}{'':>7}{'':>10}{'':>9}{'offered':>9}{'accepted':>9}{'TTFT':>16}{'TPOT':>14}{'ITL':>15}{'refused':>15}")
    for row in out["runs"]:
        rate = f"{row['rate']:.1f}" if row["rate"] else "-"
        print(f"{row['run']:26}{rate:>7}{row['tokens_per_s']:10.0f}{100 * row['of_peak']:8.0f}%"
              f"{100 * row['good_of_offered']:8.1f}%{100 * row['good_of_answered']:8.1f}%{pair(row['ttft_ms']):>16}"
              f"{pair(row['tpot_ms']):>14}{pair(row['itl_ms']):>15}{row['offered']:>7} / {row['refused']}")


def numbers(text):
    return [float(x) for x in text.split(",")]


def panels(out):
    rows = out["runs"]
    names = [row["run"] for row in rows]
    targets = {"ttft_ms": None, "tpot_ms": None}
    return [Bars("Tokens a second", "tokens/s", names, [("tokens", [row["tokens_per_s"] for row in rows])],
                 mark=(out["peak_tokens_per_s"], "the peak")),
            Bars("Requests that keep both targets", "%", names,
                 [("of all that were offered", [100 * row["good_of_offered"] for row in rows]),
                  ("of those that were accepted", [100 * row["good_of_answered"] for row in rows])])] + [
            Bars(f"{label} of accepted requests: p50, up to p99", "ms", names,
                 [(label, [(row[key]["p50"], None, row[key]["p99"]) if row[key] else None for row in rows])])
            for key, label in zip(targets, ("Time to the first token", "Mean time between tokens"))]


def parse():
    p = parser("overload", __doc__)
    for name, default in (("ttft-ms", 2000), ("itl-ms", 40), ("prompt", 256), ("output-tokens", 64), ("clients", 24)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--seconds", type=float, default=15)
    p.add_argument("--times", type=numbers, default=[1, 4])
    p.add_argument("--rates", type=numbers, default=[0.95, 0.85, 0.75, 0.6, 0.4])
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if min(args.ttft_ms, args.itl_ms, args.prompt, args.output_tokens, args.clients, args.seconds, *args.times, *args.rates) <= 0:
        p.error("counts, times and rates must be above 0")
    check_model(p, args)
    return args


def main():
    args = parse()
    out = describe(args, ("ttft_ms", "itl_ms", "prompt", "output_tokens", "clients", "seconds", "seed"))
    out["targets"] = f"TTFT {args.ttft_ms} ms, TPOT {args.itl_ms} ms"
    load = Load()
    out.update(measure(args, load))
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
