#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quickly does one thread turn text into token ids?

Usage: ./baton bench tokenizer [options]
  --model FILE      the vocabulary (default: the default model)
  --seconds S       time for each text and round (default 0.3)
  --rounds N        rounds over all texts (default 5)
  --text NAME       only this text (may be given more than once)
  --against DIR     alternate with the program of another build directory
  --peer [PYTHON]   alternate with the Hugging Face tokenizers library in this
                    Python (default: the one that runs this); byte-level BPE only
  --svg FILE        draw it, as SVG
  --out FILE        write all of it as JSON too
  --json            one JSON object instead of the table

Ordinary English and code are this repository's own documents, comments and
sources, nothing of them repeated; the other texts are generated from fixed seeds
(bench/_tokenizer_texts.py). They are handed over in pieces of 4 KiB, as prompts
come; "one word" is a million letters in one piece.

  MiB/s     median over all passes of a text (each tokenizes all of it), with
            what earlier passes left in the cache of words
  cold      the same with that cache cleared before each pass
  best      the quickest pass
  tokens/s  at the median
  table, cache, merged
            of the words, and parts of words, of a pass: known since the load,
            known from before, merged. In a cold pass, in brackets.
  x old     median over the rounds of (this / the other build) in that round
  x peer    the same for the library, whose ids must be the same

Time is that of the core, not of the wall, so that waiting for a busy machine does
not count. The load line tells what else the machine was doing: others still share
its caches and clock, so quote ratios of a busy machine and figures of a quiet one.
"""
import os
import subprocess
import sys
import tempfile

import _tokenizer_texts
from _shared import (HERE, ROOT, Half, Load, add_model_option, build, check_model, describe, finish, median, parser,
                     show_machine)
from charts import Bars

PARSE_SPECIAL = 2
NO_PEER = """the Hugging Face tokenizers library cannot be used with {python}:
    {why}
Install it where Debian's Python is not disturbed, and name that one:
    python3 -m venv ~/peer && ~/peer/bin/pip install tokenizers
    ./baton bench tokenizer --peer ~/peer/bin/python"""


class Rater:
    """A process that tokenizes files: _tokenizer_rate.c or _tokenizer_peer.py."""

    def __init__(self, name, argv, env=None):
        self.name = name
        self.half = Half(argv, env, parse=str.split)

    def measure(self, seconds, piece, special, cold, path):
        """@return bytes, tokens, hash of the ids, [table, cache, merged], [seconds of a pass]"""
        values = self.half.ask(seconds, piece, PARSE_SPECIAL if special else 0, int(cold), path)
        return (int(values[0]), int(values[1]), values[2], [int(x) for x in values[3:6]],
                [int(x) / 1e9 for x in values[6:]])


def start_peer(python, model):
    """@return the library's process, once it has read the vocabulary, and what it is"""
    try:
        found = subprocess.run([python, "-c", "import tokenizers"], capture_output=True, text=True)
        why = found.stderr.strip().split("\n")[-1]
    except OSError as e:
        found, why = None, e
    if found is None or found.returncode != 0:
        raise SystemExit(NO_PEER.format(python=python, why=why))
    env = dict(os.environ, RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    rater = Rater("peer", [python, os.path.join(HERE, "_tokenizer_peer.py"), model], env)
    return rater, " ".join(rater.half.read())


def run_rounds(args, raters, texts):
    """rows: text -> {"bytes", "tokens", name of a rater or "cold": {"passes", "rounds", "words"}}"""
    rows = {}
    runs = [(r.name, r, False) for r in raters]
    runs.insert(1, ("cold", raters[0], True))
    for _ in range(args.rounds):
        for name, path, piece, special in texts:
            row = rows.setdefault(name, {"runs": {run: {"passes": [], "rounds": []} for run, _, _ in runs}})
            for run, r, cold in runs:
                n_bytes, n_tokens, ids, words, times = r.measure(args.seconds, piece, special, cold, path)
                if row.setdefault("ids", ids) != ids:
                    raise SystemExit(f"{name}: the ids of {r.name} are not those of {raters[0].name}")
                row.update(bytes=n_bytes, tokens=n_tokens)
                row["runs"][run]["words"] = words
                row["runs"][run]["passes"] += times
                row["runs"][run]["rounds"].append(median(times))
    return rows


def figures(name, row):
    out = {"text": name, "bytes": row["bytes"], "tokens": row["tokens"], "ids_fnv1a": row["ids"]}
    first = row["runs"]["this"]
    for run, values in row["runs"].items():
        seconds = median(values["passes"])
        out[run] = {"mib_per_s": row["bytes"] / seconds / (1 << 20),
                    "best_mib_per_s": row["bytes"] / min(values["passes"]) / (1 << 20),
                    "tokens_per_s": row["tokens"] / seconds}
        if run in ("this", "cold"):
            total = max(sum(values["words"]), 1)
            out[run].update(zip(("table", "cache", "merged"), (x / total for x in values["words"])))
        else:
            out[run]["ratio"] = median([b / a for a, b in zip(first["rounds"], values["rounds"])])
    return out


def show(out):
    show_machine(out)
    print(f"model     {out['vocabulary']}")
    if "peer" in out:
        print(f"peer      {out['peer']}")
    print(f"\n{'text':14}{'KiB':>5}{'B/token':>8}{'MiB/s':>8}{'cold':>8}{'best':>8}{'M tok/s':>8}"
          f"{'table':>7}{'cache (cold)':>14}{'merged (cold)':>14}"
          + "".join(f"{x + ' MiB/s':>12}{'x ' + x:>8}" for x in out["others"]))
    for r in out["rows"]:
        this, cold = r["this"], r["cold"]
        shares = "".join(f"{100 * this[x]:7.0f}{f'({100 * cold[x]:.0f}) %':>7}" for x in ("cache", "merged"))
        print(f"{r['text']:14}{r['bytes'] >> 10:5}{r['bytes'] / max(r['tokens'], 1):8.2f}{this['mib_per_s']:8.1f}"
              f"{cold['mib_per_s']:8.1f}{this['best_mib_per_s']:8.1f}{this['tokens_per_s'] / 1e6:8.2f}"
              f"{100 * this['table']:5.0f} %" + shares
              + "".join(f"{r[x]['mib_per_s']:12.1f}{r[x]['ratio']:8.2f}" for x in out["others"]))


def panels(out):
    series = [("median", [(r["this"]["mib_per_s"], None, r["this"]["best_mib_per_s"]) for r in out["rows"]]),
              ("cold", [r["cold"]["mib_per_s"] for r in out["rows"]])]
    series += [(f"the {name}", [r[name]["mib_per_s"] for r in out["rows"]]) for name in out["others"]]
    return [Bars("Text turned into token ids by one thread; the range is up to the best pass", "MiB/s", [r["text"] for r in out["rows"]], series)]


def parse():
    p = parser("tokenizer", __doc__)
    add_model_option(p)
    p.add_argument("--seconds", type=float, default=0.3)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--text", action="append")
    p.add_argument("--against")
    p.add_argument("--peer", nargs="?", const=sys.executable)
    args = p.parse_args()
    check_model(p, args)
    if not 0 < args.seconds <= 60 or not 1 <= args.rounds <= 1000:
        p.error("--seconds must be above 0 and at most 60, --rounds 1 to 1000")
    return args


def start_raters(args, out):
    raters = [Rater("this", [build("tokenizer-rate"), args.model])]
    if args.against:
        raters.append(Rater("old", [build("tokenizer-rate", args.against, make=False), args.model]))
    if args.peer:
        peer, out["peer"] = start_peer(args.peer, args.model)
        raters.append(peer)
    out["others"] = [r.name for r in raters[1:]]
    return raters


def write_texts(args, folder):
    texts = []
    for i, (name, text, piece, special) in enumerate(_tokenizer_texts.make(ROOT)):
        if not args.text or name in args.text:
            path = os.path.join(folder, f"{i}.txt")
            with open(path, "w", encoding="utf-8", newline="") as f:
                f.write(text)
            texts.append((name, path, piece, special))
    if not texts:
        raise SystemExit(f"no text is called {', '.join(args.text)}")
    return texts


def main():
    args = parse()
    out = dict(describe(args, ("seconds", "rounds", "text")), vocabulary=os.path.basename(args.model))
    with tempfile.TemporaryDirectory(prefix="baton-tokenizer-") as folder:
        texts = write_texts(args, folder)
        raters = start_raters(args, out)
        load = Load()
        with load.during():
            rows = run_rounds(args, raters, texts)
        for r in raters:
            r.half.close()
    out.update(load.figures(), rows=[figures(name, row) for name, row in rows.items()])
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
