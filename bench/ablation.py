#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does each policy give? The default configuration, and the same with one policy taken out.

Usage: ./baton bench ablation [options]
  --variants LIST     of those below (default: all)
  --turns N           times that each is measured, in turn (default 1)
  --seconds N         of each measurement (default 24)
  --long N            prompt tokens of the long prompts (default 4096)
  --every SECONDS     a long prompt comes so often (default 8)
  --crowd N           requests of the 32 clients (default 128)
  --model PATH        another model
  --seed N            of the prompts (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Two loads, each at a cluster that was started for it: 8 streams (128 tokens in, 200
out, one request at a time each) beside long prompts, and a crowd of 32 clients (256
in, 128 out). Targets are these, whatever is measured: of a request of the streams and
of the crowd 300 and 600 ms to the first token and 20 and 40 ms between two in the
mean; of a long prompt 8 s to the first. Goodput: requests per second that keep
theirs.

  default       as it is
  idle          cores are lent while they are idle, and not because a prompt waits
  own           no cores are lent
  fcfs          prompts in the order in which they came
  deadline      ... of their deadlines
  fixed         chunks of 512 tokens
  no-late       nobody joins an iteration that is under way
  local         decode workers take a share of queued prompts
  weighed       decode workers take prompts of which it is forecast to be quicker
  static        static batches (V1)
  max-util      sequences are begun without all of their blocks
"""
import json
import os
import types

from _shared import Load, add_model_option, check_model, describe, finish, median, parser, ranged, show_machine
from charts import Bars
from table import ANSWER, CROWD, CROWD_IN, CROWD_OUT, SHORT, STREAMS, Named, baton, descendants, get, one_client


VARIANTS = {
    "default": (),
    "idle": ("--share-idle-cores", "idle"),
    "own": ("--share-idle-cores", "off"),
    "fcfs": ("--prefill-order", "fcfs"),
    "deadline": ("--prefill-order", "deadline"),
    "fixed": ("--chunk-tokens", "512"),
    "no-late": ("--midstep-join", "off"),
    "local": ("--local-prefill", "on"),
    "weighed": ("--local-prefill", "auto"),
    "static": ("--batching-strategy", "V1"),
    "max-util": ("--scheduler-policy", "max_utilization"),
}
TARGETS_S = {"stream": (0.3, 0.02), "crowd": (0.6, 0.04), "long": (8.0, None)}  # to the first token, between two in the mean


def keeps(answer, kind):
    first, between = TARGETS_S[kind]
    mean = (answer.times[-2] - answer.times[0]) / max(1, len(answer.times) - 2)
    return answer.times[0] - answer.started <= first and (between is None or mean <= between)


def measure(variant, args, seed, load):
    with baton(args, VARIANTS[variant]) as (address, process):
        name = json.loads(get(address, "/v1/models")[1])["data"][0]["id"]
        client = Named(address, args, name, seed)
        one_client(client, 512, 3)
        with load.during(lambda: [os.getpid()] + descendants(process.pid)):
            client.output_tokens = ANSWER
            answers, longs, begin, end = client.mixed(args.seconds, True)
            client.output_tokens = CROWD_OUT
            crowd, seconds = client.closed(CROWD_IN, args.crowd, min(CROWD, args.crowd))
    streams = [a for a in answers if a.started >= begin]
    return {"streams_per_s": sum(keeps(a, "stream") for a in streams) / (end - begin), "streams_offered": len(streams),
            "streams_percent": 100 * sum(keeps(a, "stream") for a in streams) / max(1, len(streams)),
            "long_percent": 100 * sum(keeps(a, "long") for a in longs) / max(1, len(longs)),
            "streams_tokens_per_s": sum(begin <= t <= end for a in answers for t in a.times[:-1]) / (end - begin),
            "crowd_per_s": sum(keeps(a, "crowd") for a in crowd) / seconds,
            "crowd_percent": 100 * sum(keeps(a, "crowd") for a in crowd) / len(crowd),
            "crowd_tokens_per_s": len(crowd) * CROWD_OUT / seconds}


def show(out):
    show_machine(out)
    print(f"{'':10}{'8 streams beside long prompts':>44}{'32 clients':>34}")
    print(f"{'':10}{'kept/s':>10}{'kept':>8}{'long kept':>12}{'tokens/s':>14}{'kept/s':>14}{'kept':>8}{'tokens/s':>12}")
    for name, rows in out["variants"].items():
        f = {key: median([row[key] for row in rows]) for key in rows[0]}
        print(f"{name:10}{f['streams_per_s']:10.2f}{f['streams_percent']:7.0f}%{f['long_percent']:11.0f}%{f['streams_tokens_per_s']:14.0f}"
              f"{f['crowd_per_s']:14.2f}{f['crowd_percent']:7.0f}%{f['crowd_tokens_per_s']:12.0f}")


def panels(out):
    names, out = list(out["variants"]), out["variants"]

    def bars(title, unit, keys):
        return Bars(title, unit, names, [(label, [ranged([row[key] for row in out[name]]) for name in names]) for label, key in keys])

    return [bars("Answers a second that keep their targets", "answers/s",
                 (("8 streams beside long prompts", "streams_per_s"), ("32 clients", "crowd_per_s"))),
            bars("Tokens a second", "tokens/s", (("8 streams beside long prompts", "streams_tokens_per_s"), ("32 clients", "crowd_tokens_per_s")))]


def parse():
    p = parser("ablation", __doc__)
    p.add_argument("--variants", default=",".join(VARIANTS))
    p.add_argument("--turns", type=int, default=1)
    p.add_argument("--seconds", type=float, default=24)
    p.add_argument("--long", type=int, default=4096)
    p.add_argument("--every", type=float, default=8)
    p.add_argument("--crowd", type=int, default=4 * CROWD)
    add_model_option(p)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    args.variants = args.variants.split(",")
    if min(args.turns, args.seconds, args.long, args.every, args.crowd) <= 0:
        p.error("counts and times must be above 0")
    if not set(args.variants) <= set(VARIANTS):
        p.error("variants are " + ", ".join(VARIANTS))
    check_model(p, args)
    return args


def main():
    args = parse()
    mixed = types.SimpleNamespace(**vars(args), output_tokens=ANSWER, short=SHORT, clients=STREAMS)
    out = describe(args, ("turns", "seconds", "long", "every", "crowd", "seed"))
    load, found = Load(), {name: [] for name in args.variants}
    for i in range(args.turns):
        for name in args.variants:
            found[name].append(measure(name, mixed, args.seed + i, load))
    out["variants"] = found
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
