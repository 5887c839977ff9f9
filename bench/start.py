#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long does a start take, and how much memory does each worker hold?

Usage: ./baton bench start [options]
  --runs N            starts of each kind, in turns (default 5)
  --kv-memory SIZE    KV pool of each worker (default 1g, the default of serve)
  --prefill N         prefill workers (default 1)
  --decode N          decode workers (default 1)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Kinds: *off*, every worker packs the weights for itself; *build*, the folder of
packed weights is empty; *found*, it has them in the page cache; *disk*, it has
them, but the page cache has neither them nor the model file. Times are from the
exec of the first process to its readiness (all workers up), and to the first
token of a prompt at the client. Private: pages that are one worker's alone, with
the KV pool left out and with one prompt served.
"""
import contextlib
import os
import shutil
import tempfile
import time

from _cluster import Cluster, pids_of, wait_until, worker_threads
from _shared import Load, add_model_option, check_model, describe, finish, parser, percentile, ranged, show_machine
from charts import Bars
from test_weight_cache import private_bytes, regions

KINDS = ("off", "build", "found", "disk")
PROMPT = "The capital of France is"


def forget(path):
    """Out of the page cache, where nobody has it mapped."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def prepare(kind, cache, model):
    if kind == "build":
        shutil.rmtree(cache, ignore_errors=True)
    if kind == "disk":
        forget(model)
        for name in os.listdir(cache):
            forget(os.path.join(cache, name))


def one(kind, cache, args, load):
    """@return {"ready", "token": seconds, "private", "shared": largest of the workers, bytes}"""
    cluster = Cluster(args.model, prefill=args.prefill, decode=args.decode, kv_memory=args.kv_memory,
                      worker_args=["--threads", str(args.threads)],
                      env={"BATON_WEIGHT_CACHE": "off" if kind == "off" else cache})
    prepare(kind, cache, args.model)
    with contextlib.ExitStack() as stack:
        with load.during(pids_of(cluster)):
            start = time.monotonic()
            c = stack.enter_context(cluster)
            workers = c.prefills + c.decodes
            wait_until("workers ready", lambda: all(p.is_ready() for p in workers), 120)
            ready = time.monotonic()
            c.complete(PROMPT, 1, temperature=0)
            token = time.monotonic()
        c.complete(PROMPT, 16, temperature=0)
        shared = max(sum(f["Rss"] for _, _, name, f in regions(p.pid) if name.endswith(".packed"))
                     for p in workers)
        private = max(private_bytes(p.pid) for p in workers)
        text = "".join(p.log() for p in workers)
        wanted = {"off": (0, 0), "build": (1, len(workers) - 1)}.get(kind, (0, len(workers)))
        counts = (text.count(": built in "), text.count(": found and verified in "))
        assert counts == wanted, f"{kind}: {counts} built and found"
    return {"ready": ready - start, "token": token - start, "private": private, "shared": shared}


def show(out):
    show_machine(out)
    print(f"{'weights':8} {'ready ms':>16} {'first token ms':>16} {'private MiB':>12} {'shared MiB':>11}")
    print(f"{'':8} {'p50      best':>16} {'p50      best':>16} {'worst worker':>12} {'':>11}")
    for kind, runs in out["runs"].items():
        times = ["%8.0f  %6.0f" % (1e3 * percentile([r[k] for r in runs], 50), 1e3 * min(r[k] for r in runs))
                 for k in ("ready", "token")]
        print(f"{kind:8} {times[0]:>16} {times[1]:>16} {max(r['private'] for r in runs) / 2**20:12.1f} "
              f"{max(r['shared'] for r in runs) / 2**20:11.1f}")


def panels(out):
    kinds = list(out["runs"])

    def bars(title, unit, keys, by):
        return Bars(title, unit, [f"weights: {kind}" for kind in kinds],
                    [(label, [ranged([by * r[key] for r in out["runs"][kind]]) for kind in kinds]) for label, key in keys])

    return [bars("From the start: median and range", "ms", (("ready", "ready"), ("first token", "token")), 1e3),
            bars("Memory of the largest worker beside its KV pool", "MiB", (("private", "private"), ("shared", "shared")), 1 / 2**20)]


def main():
    p = parser("start", __doc__)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--kv-memory", default="1g")
    p.add_argument("--prefill", type=int, default=1)
    p.add_argument("--decode", type=int, default=1)
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    args = p.parse_args()
    if min(args.runs, args.prefill, args.decode) < 1:
        p.error("counts must be at least 1")
    check_model(p, args)
    args.threads = worker_threads(args, args.prefill + args.decode)

    out = dict(describe(args, ("runs", "kv_memory", "prefill", "decode", "threads")), runs={kind: [] for kind in KINDS})
    load = Load()
    with tempfile.TemporaryDirectory(prefix="baton-bench-start-") as cache:
        for _ in range(args.runs):
            for kind in KINDS:
                out["runs"][kind].append(one(kind, os.path.join(cache, "weights"), args, load))
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
