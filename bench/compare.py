#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is this work tree as fast as another one?

Usage: ./baton bench compare TREE NAME [options] [-- options of NAME]
  TREE               the other work tree, which is built as this one
  NAME               a benchmark that both have: engine, router, handover, kvtransfer, serve …
  --rounds N         times that each tree runs it, in turns (default 3)
  --figures REGEX    these alone, by their paths in the JSON of the benchmark
  --json             one JSON object instead of the table

Each tree runs its own benchmark with its own programs, so versions whose protocols differ can be
compared. A figure is a number that both have at one path of their JSON: the table has its median in
both trees, and the median of the ratios of the rounds, with the least and the greatest of them.
What both trees are told to do is one; what they say of themselves (options, seeds) is left out.
"""
import json
import os
import re
import statistics
import subprocess
import sys

from _shared import ROOT, argparse

NO_FIGURES = ("options", "commit", "machine", "seed")


def figures(value, path=()):
    """@return {path: number} of a JSON value. An element of a list is named by its texts, if it has any, else by its index."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return {}
    if isinstance(value, (int, float)):
        return {".".join(path): float(value)}
    if isinstance(value, list):
        steps = [(name_of(v, i), v) for i, v in enumerate(value)]
    else:
        steps = [(k, v) for k, v in value.items() if k not in NO_FIGURES]
    return {k: v for step, part in steps for k, v in figures(part, (*path, step)).items()}


def name_of(value, index):
    texts = [v for v in value.values() if isinstance(v, str)] if isinstance(value, dict) else []
    return f"{index}:{'/'.join(texts)}" if texts else str(index)


def run(tree, name, options):
    """@return the figures of one run"""
    env = {k: v for k, v in os.environ.items() if k != "BATON_BUILD"}
    done = subprocess.run([os.path.join(tree, "baton"), "bench", name, *options, "--json"], env=env, cwd=tree,
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        raise SystemExit(f"baton: {tree}: bench {name} ended with status {done.returncode}")
    return figures(json.loads(done.stdout.strip().split("\n")[-1]))


def compare(pairs, wanted):
    """pairs: of the figures of a round, the other tree's first. @return a row for each figure that all have"""
    common = set.intersection(*(set(run) for pair in pairs for run in pair))
    rows = []
    for path in [p for p in pairs[0][1] if p in common and re.search(wanted, p)]:
        before, now = ([pair[i][path] for pair in pairs] for i in (0, 1))
        ratios = [b / a for a, b in zip(before, now) if a > 0]
        if ratios:
            rows.append({"figure": path, "before": statistics.median(before), "now": statistics.median(now),
                         "ratio": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)})
    return rows


def main():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    p = argparse.ArgumentParser(prog="baton bench compare", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tree", metavar="TREE")
    p.add_argument("name", metavar="NAME")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--figures", default="")
    p.add_argument("--json", action="store_true")
    args = p.parse_args(words[:cut])
    trees = [os.path.abspath(args.tree), ROOT]
    if not os.path.exists(os.path.join(trees[0], "baton")):
        p.error(f"{args.tree} is no work tree of Baton")
    if args.rounds < 1:
        p.error("--rounds is at least 1")
    pairs = []
    for n in range(args.rounds):
        pair = [None, None]
        for i in (0, 1) if n % 2 == 0 else (1, 0):  # neither is always first
            print(f"round {n + 1} of {args.rounds}: {args.name} of {trees[i]}", file=sys.stderr, flush=True)
            pair[i] = run(trees[i], args.name, words[cut + 1:])
        pairs.append(pair)
    rows = compare(pairs, args.figures)
    if not rows:
        raise SystemExit("baton: no figure is in every run" + (f" and matches {args.figures}" if args.figures else ""))
    if args.json:
        print(json.dumps({"name": args.name, "rounds": args.rounds, "rows": rows}))
        return
    width = max([len(r["figure"]) for r in rows], default=6)
    print(f"{'figure':{width}} {'before':>12} {'now':>12} {'ratio':>7} {'least':>7} {'most':>7}")
    for r in rows:
        print(f"{r['figure']:{width}} {r['before']:12,.4g} {r['now']:12,.4g} {r['ratio']:7.3f} {r['least']:7.3f} {r['greatest']:7.3f}")


if __name__ == "__main__":
    main()
