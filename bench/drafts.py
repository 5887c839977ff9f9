#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much do drafts save at the widths of an 8B model, when so many of them are right?

Usage: ./baton bench drafts [options]
  --types LIST       of the model's weights, which are random: BF16, Q8_0, Q6_K, Q4_K_M,
                     Q4_0 (default BF16,Q8_0,Q4_K_M)
  --layers N         of an 8B model's widths (default 2)
  --model PATH       another model instead
  --draft-type TYPE  of the weights of the draft model, the model itself (default q4_0)
  --acceptance LIST  percentages of right drafts (default 70,90,97)
  --batch LIST       sequences that decode together (default 1,4,8)
  --after N          tokens of the prompt of each (default 128)
  --steps N          tokens that each gets (default 128)
  --threads N        (default: as many as there are cores)
  --rounds N         times that everything is measured (default 5)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the table

One process: the engine with its controller, without a server. A draft is right with the
given probability, whatever the weights are: random ones agree with no copy of them.
given: drafts that cost nothing, as those of n-grams; model: the draft model computes each
one. Every round asks for tokens without drafts, then with either, in turns.

  ratio   of the decode tokens/s to those without drafts, in the middle of the rounds
  rows    drafts that were verified for each token
"""
import os

import _random_models
import quants
from _shared import (BUSY_PERCENT, Half, Load, Progress, build, describe, finish, median, number_list, parser, show_machine)
from charts import Bars

SOURCES = ("given", "model")
SMALLER = ("q5_1", "q5_0", "q4_1", "q4_0", "q8_0", "none")


def measured(args, name, path, program, progress):
    rows = []
    for n in args.batch:
        for percent in args.acceptance:
            load = Load()
            half = Half([program, path, args.draft_type, args.threads, n, args.after, args.steps, percent, args.weight_cache])
            half.read()
            sources = SOURCES if args.draft_type != "none" else SOURCES[:1]
            samples = {source: [] for source in ("off", *sources)}
            for source in ("off", *sources, *sources):  # the controller learns what rows and rounds cost
                half.ask("run", source)
            with load.during():
                for _ in range(args.rounds):
                    for source, list_ in samples.items():
                        list_.append(half.ask("run", source))
            half.close()
            rates = {source: [s["tokens"] / s["seconds"] for s in list_] for source, list_ in samples.items()}
            for source in sources:
                tokens = sum(s["tokens"] for s in samples[source])
                rows.append({"type": name, "batch": n, "acceptance": percent, "source": source, "off": median(rates["off"]),
                             "on": median(rates[source]), "ratio": median([on / off for on, off in zip(rates[source], rates["off"])]),
                             "drafts_per_token": sum(s["drafts"] for s in samples[source]) / tokens,
                             "busy": load.others_percent() > BUSY_PERCENT})
            progress.step()
    return rows


def show(out):
    show_machine(out)
    print(f"\ntokens/s of all sequences, {out['threads']} threads, draft model {out['draft_type']}")
    print(f"{'':10}{'seqs':>5}{'right %':>9}{'drafts':>8}{'off':>9}{'on':>9}{'ratio':>7}{'rows':>7}")
    for r in out["rows"]:
        print(f"{r['type']:10}{r['batch']:5}{r['acceptance']:9}{r['source']:>8}{r['off']:9.1f}{r['on']:9.1f}{r['ratio']:7.2f}"
              f"{r['drafts_per_token']:7.2f}{'*' if r['busy'] else ''}")


def panels(out):
    found = []
    for source in dict.fromkeys(r["source"] for r in out["rows"]):
        rows = [r for r in out["rows"] if r["source"] == source]
        names = list(dict.fromkeys(f"{r['type']}, {r['batch']}" for r in rows))
        rights = list(dict.fromkeys(r["acceptance"] for r in rows))
        found.append(Bars(f"Drafts: {source}", "x without drafts", names, [
            (f"{right} % right", [next(r["ratio"] for r in rows if f"{r['type']}, {r['batch']}" == name and r["acceptance"] == right)
                                  for name in names]) for right in rights]))
    return found


def parse():
    p = parser("drafts", __doc__)
    p.add_argument("--types", type=quants.words(_random_models.TYPES), default=["BF16", "Q8_0", "Q4_K_M"])
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--model")
    p.add_argument("--draft-type", choices=SMALLER, default="q4_0")
    p.add_argument("--acceptance", type=number_list, default=[70, 90, 97])
    p.add_argument("--batch", type=number_list, default=[1, 4, 8])
    p.add_argument("--after", type=int, default=128)
    p.add_argument("--steps", type=int, default=128)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--weight-cache", default="auto")
    p.add_argument("--no-build", action="store_true", help="use the programs as they are built")
    args = p.parse_args()
    if min(args.layers, args.threads, args.after, args.rounds, *args.batch) < 1 or args.steps < 2:
        p.error("counts must be at least 1, and --steps 2")
    if max(args.acceptance) > 100:
        p.error("--acceptance has percentages")
    return args


def main():
    args = parse()
    program = build("draft-run", make=not args.no_build)
    build("tiny-model", make=not args.no_build)
    files = [("own", args.model)] if args.model else [(name, _random_models.random_model("8b", name, args.layers)) for name in args.types]
    out = dict(describe(args, ("types", "layers", "model", "draft_type", "acceptance", "batch", "after", "steps", "threads", "rounds")),
               threads=args.threads, draft_type=args.draft_type, rows=[])
    load = Load()
    progress = Progress(len(files) * len(args.acceptance) * len(args.batch), args.json)
    with load.during():
        for name, path in files:
            out["rows"] += measured(args, name, path, program, progress)
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
