#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far are the quantizer's files from the model, beside llama.cpp's of the same types?

Usage: ./baton bench quantizer [options]
  --model FILE         the model (default: the default model)
  --types LIST         Q4_0,Q4_1,Q4_K_M,Q5_K_M,Q6_K,Q8_0,MXFP4, or some of them
  --text FILE          to compare over (default: tests/golden/accuracy_text.txt)
  --imatrix-text FILE  quantizes with an importance matrix over this text, too: the same
                       file, made by ours, for both
  --off-grid SEED      move each number at random inside the step of its Q4_1 or Q8_0
                       block first: a file of these types suits quantizers that find
                       its grid again, which a model as it was trained has not
  --no-peer            ours alone
  --folder DIR         for the files (default: a temporary one); what is there is used
  --threads N          (default: as many as there are cores)
  --svg FILE           draw it, as SVG
  --out FILE           write all of it as JSON too
  --json               one JSON object instead of the table

The model as F32 is what all are compared with. llama.cpp (llama-cpp-python, compiled into
the cache the first time) quantizes that file with its own tool's settings; MXFP4, which
that makes of experts alone, with a type named for each matrix. Both files are read by
`./baton accuracy`, hundreds of tokens a second: minutes for each.

  MB           of the file
  perplexity   of the text
  lost         what log p of a token is less than with F32, mean and standard error
  KL           from F32, mean and standard error
  top-1        positions with the same likeliest token
"""
import contextlib
import os
import re
import subprocess
import sys
import tempfile

import _llama
from _shared import ROOT, Load, Progress, add_model_option, check_model, describe, finish, parser, show_machine
from charts import Bars

TYPES = ("Q4_0", "Q4_1", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "MXFP4")
FIGURES = {"perplexity": r"perplexity B +(\S+)", "lost": r"B lost +(\S+)", "lost_error": r"B lost .*\+- (\S+)",
           "kl": r"mean KL\S+ +(\S+)", "kl_error": r"mean KL.*\+- (\S+)", "top": r"same top-1 +(\S+)%",
           "positions": r"positions +(\S+)", "perplexity_f32": r"perplexity A +(\S+)"}


def call(argv, what):
    done = subprocess.run([str(x) for x in argv], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{what} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        build = os.environ.get("BATON_BUILD", os.path.join(ROOT, "build"))
        self.tools = {n: os.path.join(build, p) for n, p in (("convert", "tools/baton-convert"),
                                                            ("accuracy", "tools/baton-accuracy"))}
        for path in self.tools.values():
            if not os.path.exists(path):
                raise SystemExit(f"{path} is not there; ninja -C {build} makes it")
        self.python = None if args.no_peer and args.off_grid is None else _llama.install()
        self.threads = ["--threads", args.threads] if args.threads else []

    def at(self, name):
        return os.path.join(self.folder, name)

    @contextlib.contextmanager
    def new(self, name):
        """The file's name while it is made, unless it is there."""
        path = self.at(name)
        if os.path.exists(path):
            yield None
            return
        yield path + ".new"
        os.rename(path + ".new", path)

    def base(self):
        with self.new("f32.gguf") as path:
            if path:
                call([self.tools["convert"], self.args.model, path, "--type", "f32", *self.threads], "the F32 file")
                if self.args.off_grid is not None:
                    call([self.python, _llama.PEER, "scatter", self.args.model, path, self.args.off_grid], "--off-grid")
        return self.at("f32.gguf")

    def imatrix(self):
        """By a conversion that leaves nothing else."""
        with self.new("imatrix.gguf") as path:
            if path:
                call([self.tools["convert"], self.base(), self.at("none.gguf"), "--type", "q8_0", "--overwrite",
                      "--imatrix-text", self.args.imatrix_text, "--imatrix", path, *self.threads],
                     "the importance matrix")
                os.unlink(self.at("none.gguf"))
        return self.at("imatrix.gguf")

    def file(self, kind, who, with_imatrix):
        name = f"{kind}-{who}{'-imatrix' if with_imatrix else ''}.gguf"
        with self.new(name) as path:
            if path and who == "ours":
                more = ["--imatrix", self.imatrix()] if with_imatrix else []
                call([self.tools["convert"], self.base(), path, "--type", kind, *more, *self.threads], name)
            elif path:
                more = [self.imatrix()] if with_imatrix else []
                call([self.python, _llama.PEER, "quantize", self.base(), path, _llama.FILE_TYPES[kind], *more], name)
        return self.at(name)

    def measure(self, kind, who, with_imatrix):
        path = self.file(kind, who, with_imatrix)
        out = call([self.tools["accuracy"], self.base(), path, "--text", self.args.text, *self.threads], path)
        row = {name: float(re.search(pattern, out).group(1)) for name, pattern in FIGURES.items()}
        return dict(row, type=kind, who=who, imatrix=with_imatrix, bytes=os.path.getsize(path))


def show(out):
    show_machine(out)
    first = out["rows"][0]
    print(f"text      {first['positions']:.0f} positions; perplexity of F32 {first['perplexity_f32']:.3f}\n")
    print(f"{'type':8} {'by':18} {'MB':>6} {'perplexity':>10}  {'lost':>17}  {'KL':>17}  {'top-1':>6}")
    for r in out["rows"]:
        by = r["who"] + (", imatrix" if r["imatrix"] else "")
        print(f"{r['type']:8} {by:18} {r['bytes'] / 1e6:6.1f} {r['perplexity']:10.3f}"
              f"  {r['lost']:8.4f} ± {r['lost_error']:.4f}  {r['kl']:8.4f} ± {r['kl_error']:.4f}  {r['top']:5.1f}%")


def type_list(text):
    names = text.upper().split(",")
    if not set(names) <= set(TYPES):
        raise ValueError
    return names


type_list.__name__ = "list of types"


def panels(out):
    rows = {(r["type"], r["who"] + (", importance matrix" if r["imatrix"] else "")): r for r in out["rows"]}
    types, whose = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))

    def bars(title, unit, value):
        return Bars(title, unit, types, [(who, [value(rows[t, who]) if (t, who) in rows else None for t in types]) for who in whose])

    return [bars("Mean KL divergence from F32, and its standard error", "nats",
                 lambda r: (r["kl"], r["kl"] - r["kl_error"], r["kl"] + r["kl_error"])),
            bars("Size of the file", "MB", lambda r: r["bytes"] / 1e6),
            bars("Positions with the same likeliest token", "%", lambda r: r["top"])]


def parse():
    p = parser("quantizer", __doc__)
    add_model_option(p)
    p.add_argument("--types", type=type_list, default=list(TYPES))
    p.add_argument("--text", default=os.path.join(ROOT, "tests", "golden", "accuracy_text.txt"))
    p.add_argument("--imatrix-text")
    p.add_argument("--off-grid", type=int, metavar="SEED")
    p.add_argument("--no-peer", action="store_true")
    p.add_argument("--folder")
    p.add_argument("--threads", type=int)
    args = p.parse_args()
    check_model(p, args)
    return args


def main():
    args = parse()
    out = dict(describe(args, ("types", "text", "imatrix_text", "off_grid", "threads")), rows=[])
    whose = ["ours"] if args.no_peer else ["ours", "llama.cpp"]
    work = [(kind, who, with_imatrix) for kind in args.types for with_imatrix in ([False, True] if args.imatrix_text
            else [False]) for who in whose]
    progress = Progress(len(work), args.json)
    load = Load()
    with contextlib.ExitStack() as stack:
        if args.folder:
            os.makedirs(args.folder, exist_ok=True)
        bench = Bench(args, args.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-quantizer-")))
        with load.during():
            for step in work:
                out["rows"].append(bench.measure(*step))
                progress.step()
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    sys.exit(main())
