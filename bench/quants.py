#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick is each tensor type, beside other engines with the same file?

Usage: ./baton bench quants [options]
  --model PATH       GGUF file that the types are made of (default: the default model)
  --shapes LIST      135m (that model); of random weights some layers of an 8B model's
                     widths (8b), of Qwen3-30B-A3B's (30b-a3b: 128 experts, 8 of a row) or
                     of gpt-oss-20b's (gpt-oss: 32 experts, 4 of a row); default the first two
  --layers N         of random weights (default 2, 8 and 6)
  --types LIST       default Q4_0,Q4_K_M,Q6_K,Q8_0,IQ4_XS,MXFP4,BF16
  --peers LIST       llama.cpp, ik_llama.cpp (default: the former), or none ("")
  --prefill LIST     prompt lengths (default 512)
  --batch LIST       sequences that decode together (default 1,8,32)
  --threads N        of each (default: as many as there are cores)
  --after N          tokens that each sequence holds before (default 128)
  --steps N          tokens that each then gets (default 16)
  --rounds N         times that everything of a file is measured (default 3)
  --sample-ms N      a figure is repeated for so long per round (default 100)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the tables

All have the same file: of the model by ./baton convert, IQ4_XS by llama.cpp's quantizer;
random ones by the program that writes the tests' models. They take turns in each round,
in the opposite order in every second one. Files lie in the cache, beside the peers.

  tok/s   medians of the rounds; ratio: in the middle of the rounds, ours to theirs:
          below 1 we are behind
"""
import os
import subprocess

import _ik
import _llama
import _peers
import _random_models
from _shared import (BUSY_PERCENT, Half, Load, Progress, add_model_option, build, check_model, describe, finish, median,
                     number_list, parser, show_machine, timed)
from charts import Bars

# Types of ./baton convert, by their names in files' names.
CONVERTED = {"Q4_0": "q4_0", "Q4_K_M": "q4_k", "Q6_K": "q6_k", "Q8_0": "q8_0", "MXFP4": "mxfp4", "BF16": "bf16"}
PEERS = {"llama.cpp": _llama, "ik_llama.cpp": _ik}


def model_file(args, name):
    stem = os.path.splitext(os.path.basename(args.model))[0]
    if name not in CONVERTED:
        return _llama.files(args.llama_python, args.model, [name])[0][1]
    path = os.path.join(_peers.cache(), f"{stem}-{os.stat(args.model).st_size}-baton-{name}.gguf")
    convert = build(os.path.join("..", "tools", "baton-convert"), make=False)
    return _random_models.once(path, f"making {path}", [convert, args.model, None, "--type", CONVERTED[name], "--overwrite"])


def file_of(args, shape, name):
    return model_file(args, name) if shape == "135m" else _random_models.random_model(shape, name, args.layers)


SHAPES = ("135m", *_random_models.SHAPES)


def measure(args, shape, name, program, installed, progress):
    path = file_of(args, shape, name)
    engine = [program, path, args.threads, "bf16", max(args.prefill), max(args.prefill), max(args.batch), args.after,
              args.steps, 1, "off"]
    halves = {"baton": Half(engine)}
    halves["baton"].read()
    for peer, where in installed.items():
        halves[peer] = PEERS[peer].start(where, path, args)
        halves[peer].read()
        halves[peer].ask("threads", args.threads)
    rows = [("prefill", n) for n in args.prefill] + [("decode", n) for n in args.batch]
    for half in halves.values():
        for kind, n in {kind: n for kind, n in rows[::-1]}.items():
            half.ask(kind, n)
    figures = []
    samples = {(row, who): [] for row in rows for who in halves}
    loads = {row: Load() for row in rows}
    for r in range(args.rounds):
        for row in rows:
            with loads[row].during():
                for who in list(halves)[::1 if r % 2 == 0 else -1]:
                    samples[row, who].append(median(timed(lambda: halves[who].ask(*row), args.sample_ms)))
        progress.step()
    for half in halves.values():
        half.close()
    for kind, n in rows:
        ours = samples[(kind, n), "baton"]
        tokens = n if kind == "prefill" else n * args.steps
        figures.append({"kind": kind, "n": n, "tokens_per_s": tokens / median(ours),
                        "busy": loads[kind, n].others_percent() > BUSY_PERCENT,
                        "peers": {peer: {"tokens_per_s": tokens / median(samples[(kind, n), peer]),
                                         "ratio": median([b / a for a, b in zip(ours, samples[(kind, n), peer])])}
                                  for peer in installed}})
    return {"shape": shape, "type": name, "bytes": os.stat(path).st_size, "rows": figures}


def show(out):
    show_machine(out)
    peers = out["peers"]
    for shape in dict.fromkeys(f["shape"] for f in out["files"]):
        files = [f for f in out["files"] if f["shape"] == shape]
        print(f"\n{shape}, {out['threads']} threads: Baton's tok/s, and its ratio to " + " and to ".join(peers))
        print(f"{'':10}{'MB':>7}" + "".join(f"{r['kind'] + ' ' + str(r['n']):>{10 + 6 * len(peers)}}" for r in files[0]["rows"]))
        for f in files:
            print(f"{f['type']:10}{f['bytes'] / 1e6:7.0f}"
                  + "".join(f"{r['tokens_per_s']:9.1f}{'*' if r['busy'] else ' '}"
                            + "".join(f"{r['peers'][p]['ratio']:6.2f}" for p in peers) for r in f["rows"]))
    behind = [f"{f['shape']} {f['type']} {r['kind']} {r['n']} ({p} {r['peers'][p]['ratio']:.2f})"
              for f in out["files"] for r in f["rows"] for p in peers if r["peers"][p]["ratio"] < 1]
    if peers:
        print("\nbehind    " + (", ".join(behind) or "nowhere"))


def words(known):
    def parse(text):
        values = text.split(",")
        if set(values) - set(known):
            raise ValueError
        return values
    parse.__name__ = "list of " + ", ".join(known)
    return parse


def panels(out):
    found = []
    for shape in dict.fromkeys(f["shape"] for f in out["files"]):
        files = [f for f in out["files"] if f["shape"] == shape]
        for i, row in enumerate(files[0]["rows"]):
            rates = [("Baton", [f["rows"][i]["tokens_per_s"] for f in files])]
            rates += [(peer, [f["rows"][i]["peers"][peer]["tokens_per_s"] for f in files]) for peer in out["peers"]]
            found.append(Bars(f"{shape}, {row['kind']} {row['n']}", "tokens/s", [f["type"] for f in files], rates))
    return found


def parse():
    p = parser("quants", __doc__)
    add_model_option(p)
    p.add_argument("--shapes", type=words(SHAPES), default=["135m", "8b"])
    p.add_argument("--layers", type=int)
    p.add_argument("--types", type=words(_random_models.TYPES), default=list(_random_models.TYPES))
    p.add_argument("--peers", type=lambda x: words(PEERS)(x) if x else [], default=["llama.cpp"])
    p.add_argument("--prefill", type=number_list, default=[512])
    p.add_argument("--batch", type=number_list, default=[1, 8, 32])
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--after", type=int, default=128)
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--sample-ms", type=int, default=100)
    p.add_argument("--no-build", action="store_true", help="use the programs as they are built")
    args = p.parse_args()
    if min(args.layers or 1, args.threads, args.after, args.steps, args.rounds) < 1:
        p.error("counts must be at least 1")
    if "135m" in args.shapes:
        check_model(p, args, " or --shapes 8b")
    args.chunk = max(args.prefill)
    return args


def main():
    args = parse()
    program = build("engine-run", make=not args.no_build)
    if not args.no_build:
        folder = os.environ.get("BATON_BUILD", os.path.dirname(os.path.dirname(program)))
        subprocess.run(["ninja", "-C", folder, "bench/tiny-model", "tools/baton-convert"], check=True,
                       stdout=subprocess.DEVNULL)
    args.llama_python = _llama.install() if "llama.cpp" in args.peers or "IQ4_XS" in args.types else None
    installed = {peer: PEERS[peer].install() for peer in args.peers}
    out = dict(describe(args, ("shapes", "layers", "types", "peers", "prefill", "batch", "after", "steps", "rounds")),
               threads=args.threads, peers=args.peers, files=[])
    progress = Progress(len(args.shapes) * len(args.types) * args.rounds, args.json)
    whole = Load()
    with whole.during():
        for shape in args.shapes:
            for name in args.types:
                out["files"].append(measure(args, shape, name, program, installed, progress))
    out.update(whole.figures())
    out["busy"] = out["cpu_others_percent"] > BUSY_PERCENT or any(r["busy"] for f in out["files"] for r in f["rows"])
    finish(args, out, show, panels, 2)


if __name__ == "__main__":
    main()
