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
  --json              one JSON object instead of the table

Kinds: *off*, every worker packs the weights for itself; *build*, the folder of
packed weights is empty; *found*, it has them in the page cache; *disk*, it has
them, but the page cache has neither them nor the model file. Times are from the
exec of the first process to its readiness (all workers up), and to the first
token of a prompt at the client. Private: pages that are one worker's alone, with
the KV pool left out and with one prompt served.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "integration"))
sys.path.insert(0, HERE)
from harness import Cluster, wait_until  # noqa: E402
from serve import describe, percentile  # noqa: E402
from test_weight_cache import private_bytes, regions  # noqa: E402

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


def one(kind, cache, args):
    """@return {"ready", "token": seconds, "private", "shared": largest of the workers, bytes}"""
    cluster = Cluster(args.model, prefill=args.prefill, decode=args.decode, kv_memory=args.kv_memory,
                      worker_args=["--threads", str(args.threads)],
                      env={"BATON_WEIGHT_CACHE": "off" if kind == "off" else cache})
    prepare(kind, cache, args.model)
    start = time.monotonic()
    with cluster as c:
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


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], description=__doc__.split("\n")[0])
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--kv-memory", default="1g")
    p.add_argument("--prefill", type=int, default=1)
    p.add_argument("--decode", type=int, default=1)
    p.add_argument("--model", default=os.environ.get("BATON_TEST_MODEL", ""))
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    if not os.path.exists(args.model):
        p.error("no model file; name one with --model")
    args.threads = args.threads or max(1, len(os.sched_getaffinity(0)) // (args.prefill + args.decode))

    results = {kind: [] for kind in KINDS}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="baton-bench-start-") as cache:
        for _ in range(args.runs):
            for kind in KINDS:
                results[kind].append(one(kind, os.path.join(cache, "weights"), args))
    args.seed = args.prompt_tokens = args.output_tokens = args.concurrency = 1
    about = describe(args)
    line = f"{about['machine']}, commit {about['commit']}, KV pool {args.kv_memory}, load {load:.1f} at the beginning"
    if args.json:
        print(json.dumps({"about": line, "runs": results}))
        return 0
    print(line)
    print(f"{'weights':8} {'ready ms':>16} {'first token ms':>16} {'private MiB':>12} {'shared MiB':>11}")
    print(f"{'':8} {'p50      best':>16} {'p50      best':>16} {'worst worker':>12} {'':>11}")
    for kind in KINDS:
        runs = results[kind]
        times = ["%8.0f  %6.0f" % (1e3 * percentile([r[k] for r in runs], 50), 1e3 * min(r[k] for r in runs))
                 for k in ("ready", "token")]
        print(f"{kind:8} {times[0]:>16} {times[1]:>16} {max(r['private'] for r in runs) / 2**20:12.1f} "
              f"{max(r['shared'] for r in runs) / 2**20:11.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
