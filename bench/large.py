#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model of some 3 billion random weights: its start, its memory, its speed, beside llama.cpp's.

Usage: ./baton bench large [options]
  --type TYPE        of its matrices: Q4_0, Q4_K (with Q6_K, as files Q4_K_M have it),
                     Q6_K, Q8_0 (default Q4_K)
  --layers N         default 28, 22 times as many weights as the default model
  --peer llama.cpp   the same file's prefill and decode there
  --prefill N        prompt tokens (default 512)
  --batch LIST       sequences that decode together (default 1,8)
  --steps N          tokens of an answer (default 32)
  --repeat N         of each figure (default 3)
  --svg FILE         draw it, as SVG
  --out FILE         write all of it as JSON too
  --json             one JSON object instead of the table

The file is made once, row by row, in the cache. `baton serve` is started with it and no
other option twice, without packed weights and with them. Then the engine alone and the peer,
each with all cores.

  ready     from the exec of the launcher to a ready server
  PSS       of the server's processes together, the pages that several map counted once,
            after an answer; KV pools included
"""
import asyncio
import json
import os
import shutil
import tempfile
import time
import types

import _llama
import _peers
from _cluster import no_collector
from _shared import Half, Load, build, describe, finish, median, number_list, parser, percentile, show_machine
from charts import Bars
from table import Named, baton, descendants, get

TYPES = {"Q4_0": ("Q4_0", "Q4_0", "Q6_K"), "Q4_K": ("Q4_K", "Q6_K", "Q6_K"), "Q6_K": ("Q6_K",) * 3, "Q8_0": ("Q8_0",) * 3}
SHAPE = ("--dim", 3072, "--heads", 24, "--kv-heads", 8, "--ffn", 8192, "--vocab", 49152, "--context", 8192, "--tied")


def model_file(args):
    path = os.path.join(_peers.cache(), f"large-{args.layers}-{args.type}.gguf")
    matrices, mixed, output = TYPES[args.type]
    with _peers.lock():
        if not os.path.exists(path):
            _peers.run([build("tiny-model", make=not args.no_build), path + ".part", "--layers", args.layers, *SHAPE,
                        "--type", matrices, "--mixed-type", mixed, "--embedding-type", output], path + ".log",
                       f"making {path}")
            os.rename(path + ".part", path)
    return path


def memory_of(pid):
    """@return bytes of the process by kind: Pss and others"""
    out = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        for line in f:
            name, *rest = line.split()
            out[name.rstrip(":")] = int(rest[0]) * 1024 if len(rest) == 2 else 0
    return out


def served(args, model, cache):
    """@return {"ready", "token": seconds, "pss": bytes, "ttft_ms", "itl_ms"} of one start"""
    os.environ["BATON_WEIGHT_CACHE"] = cache
    start = time.monotonic()
    with baton(types.SimpleNamespace(model=model)) as (address, process):
        ready = process.ready_at - start
        pids = descendants(process.pid)
        client = Named(address, types.SimpleNamespace(seed=1, output_tokens=args.steps),
                       json.loads(get(address, "/v1/models")[1])["data"][0]["id"], 1)

        def ask(n_prompt, n_out):
            async def run():
                return await client.send(client.request(n_prompt, max_tokens=n_out))
            with no_collector():
                return asyncio.run(run()).read()

        ask(1, 2)
        answers = [ask(args.prefill, args.steps) for _ in range(args.repeat)]
        gaps = [b - a for s in answers for a, b in zip(s.times, s.times[1:-1])]
        memory = [memory_of(pid) for pid in pids]
    return {"ready": ready, "pss": sum(m["Pss"] for m in memory), "ttft_ms": 1e3 * percentile([a.times[0] - a.started for a in answers], 50), "itl_ms": 1e3 * percentile(gaps, 50)}


def rates(half, args):
    """@return tokens/s of a prompt, and of each number of sequences"""
    out = {}
    for kind, n in [("prefill", args.prefill)] + [("decode", n) for n in args.batch]:
        half.ask(kind, n)
        seconds = median([half.ask(kind, n)["seconds"] for _ in range(args.repeat)])
        out[f"{kind} {n}"] = (n if kind == "prefill" else n * args.steps) / seconds
    half.close()
    return out


def show(out):
    show_machine(out)
    print(f"model     {out['model_bytes'] / 1e6:.0f} MB, {out['options']}")
    print(f"\n{'served':16}{'ready s':>9}{'PSS MB':>9}{'TTFT ms':>10}{'ITL ms':>9}")
    for kind, r in out["served"].items():
        print(f"{kind:16}{r['ready']:9.1f}{r['pss'] / 1e6:9.0f}{r['ttft_ms']:10.0f}{r['itl_ms']:9.1f}")
    rows = list(out["engines"]["Baton"])
    print(f"\n{'tok/s':16}" + "".join(f"{r:>13}" for r in rows) + f"{'loaded s':>10}")
    for name, figures in out["engines"].items():
        print(f"{name:16}" + "".join(f"{figures[r]:13.2f}" for r in rows) + f"{out['loaded'][name]:10.1f}")


def panels(out):
    kinds, engines = list(out["served"]), list(out["engines"])
    rows = list(out["engines"]["Baton"])

    def served(title, unit, key, by=1.0):
        return Bars(title, unit, [f"weights {kind}" for kind in kinds], [(key, [out["served"][kind][key] / by for kind in kinds])])

    return [served("From the start to a ready server", "s", "ready"), served("Memory of all processes together (PSS)", "GB", "pss", 1e9),
            Bars("The forward pass", "tokens/s", rows, [(name, [out["engines"][name][row] for row in rows]) for name in engines])]


def parse():
    p = parser("large", __doc__)
    p.add_argument("--type", choices=TYPES, default="Q4_K")
    p.add_argument("--layers", type=int, default=28)
    p.add_argument("--peer", choices=("llama.cpp",))
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--batch", type=number_list, default=[1, 8])
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--no-build", action="store_true", help="use the programs as they are built")
    args = p.parse_args()
    if min(args.layers, args.prefill, args.steps, args.repeat) < 1:
        p.error("counts must be at least 1")
    args.after, args.chunk = 128, args.prefill
    return args


def main():
    args = parse()
    engine = build("engine-run", make=not args.no_build)
    peer = _llama.install() if args.peer else None
    model = model_file(args)
    cores = len(os.sched_getaffinity(0))
    out = dict(describe(args, ("type", "layers", "peer", "prefill", "batch", "steps", "repeat")),
               model_bytes=os.stat(model).st_size, served={}, engines={}, loaded={})
    load = Load()
    cache = tempfile.mkdtemp(prefix="baton-bench-large-", dir=_peers.cache())
    try:
        with load.during():
            for kind in ("to be packed", "packed before"):
                out["served"][kind] = served(args, model, cache)
            start = time.monotonic()
            half = Half([engine, model, cores, "bf16", args.chunk, args.prefill, max(args.batch), args.after, args.steps, 1,
                         cache])
            half.read()
            out["loaded"]["Baton"] = time.monotonic() - start
            out["engines"]["Baton"] = rates(half, args)
            if peer:
                peer_args = types.SimpleNamespace(chunk=args.chunk, prefill=[args.prefill], batch=args.batch,
                                                  after=args.after, steps=args.steps)
                start = time.monotonic()
                half = _llama.start(peer, model, peer_args)
                half.read()
                out["loaded"][args.peer] = time.monotonic() - start
                half.ask("threads", cores)
                out["engines"][args.peer] = rates(half, args)
    finally:
        shutil.rmtree(cache)
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
