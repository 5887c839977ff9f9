#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must operations of the CUDA back end move, what do they move, and how long could that take? No GPU is needed.

Usage: ./baton bench gpu-roofline [options]
  --write        put the table into docs/GPU_STATUS.md
  --few          few rows and decode of one sequence alone
  --svg FILE     draw it, as SVG
  --out FILE     write all of it as JSON too
  --json         one JSON object instead of the table

The operations run on the machine of the tests (tests/simt), which counts accesses.
The shapes are those of an 8B model: 32 query heads, 8 of keys and values, of 128;
rows of 4096; a context of 1024. Of a matrix the panels of one block and of two are
run, which tell what each more costs; of many sequences one.

  moved         sectors of 32 bytes, each but once in a kernel's launch, over the
                bytes that must be moved: weights as they are packed, rows and
                outputs; keys, values, queries and outputs
  asked for     all sectors that warps ask for, over the same: what others have
                asked for before comes from a cache
  used          of the bytes of those sectors, in the hot loops' loads
  conflicts     wavefronts that shared memory loses to its banks, in hot loops

THE TIMES ARE ESTIMATES, by no GPU: the time of the slowest part at the least, of
memory (moved bytes by the card's bandwidth), of multiply-adds, of shared memory
(wavefronts, one for each clock of a multiprocessor), of sectors that are asked for
(64 bytes for each clock of one), where multiprocessors without a block do nothing.
Launches, waits and all that is not counted come on top.
"""
import os

import _gpu
import _gpu_build
from _roofline import Roofline
from _shared import ROOT, Load, Progress, describe, finish, parser

PAGE = os.path.join(ROOT, "docs", "GPU_STATUS.md")
SERIES = ("few rows", "many rows", "attention", "tensor profile")


def series(row):
    if row["op"].startswith("tensor"):
        return "tensor profile"
    return "attention" if row["op"] == "attention" else "few rows" if row["rows"] <= max(_gpu.FEW_ROWS) else "many rows"


def table(rows):
    """In Markdown."""
    cards = list(_gpu.CARDS)
    out = ["| operation | type | rows | moved | asked for | used | conflicts | " +
           " | ".join(f"{c}, estimate" for c in cards) + " |", "|---|---|---:|---:|---:|---:|---:|" + "---:|" * len(cards)]
    for r in rows:
        times = (f"{r['estimates'][c]['us']:.1f} us, {r['estimates'][c]['bound']}" for c in cards)
        out.append(f"| {r['op']}, {r['name']} | {r['type']} | {r['rows']} | {r['ratio']:.3f} | "
                   f"{r['requested_bytes'] / r['must_bytes']:.2f} | {100 * r['used']:.0f} % | {r['hot_conflicts']} | " +
                   " | ".join(times) + " |")
    return "\n".join(out)


def panels(out):
    found = []
    for name, card in _gpu.CARDS.items():
        dp4a = 64 * 8 * card["sms"] * card["clock"]
        points = []
        for r in out["rows"]:
            seconds = 1e-6 * r["estimates"][name]["us"]
            label = f"{r['type']} x {r['rows']}" if r["type"] in ("Q4_K", "f16") and r["name"] != "down" else ""
            points.append({"label": label, "x": r["ops"] / r["bytes"], "y": r["ops"] / seconds / 1e9, "series": series(r)})
        found.append(Roofline(f"{name}: an estimate", points, card["memory"] / 1e9,
                              [("int8", card["int8"] / 1e9), ("bf16", card["bf16"] / 1e9), ("dp4a", dp4a / 1e9)], SERIES, "memory"))
    return found


def show(out):
    print(f"commit    {out['commit']}\noptions   {out['options']}\n\n{table(out['rows'])}")


def main():
    p = parser("gpu-roofline", __doc__)
    p.add_argument("--write", action="store_true")
    p.add_argument("--few", action="store_true")
    p.add_argument("--no-build", action="store_true", help="use the project's own build as it is")
    p.add_argument("--folder", default=os.path.join(ROOT, "build", "gpu-check"), help="for what the project's build lacks")
    args = p.parse_args()
    _, programs, plugins, _ = _gpu_build.choose(os.path.abspath(args.folder), simt=True, changes=not args.no_build)
    work = _gpu.few_row_work() if args.few else _gpu.all_work()
    out, progress, load = describe(args, ("few",)), Progress(len(work), args.json), Load()
    with load.during():
        out["rows"] = _gpu.count_all(_gpu.Meter(programs["gpu-run"], plugins), work, progress.step)
    out.update(load.figures())
    for r in out["rows"]:
        r["estimates"] = {card: _gpu.estimate(card, r) for card in _gpu.CARDS}
    if args.write:
        _gpu.write_between(PAGE, "estimates", table(out["rows"]))
    finish(args, out, show, panels,
           title="Estimates, not measured: operations of the CUDA back end by what they are counted to move, data sheets of the cards")


if __name__ == "__main__":
    main()
