#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick is the KV hand-over between two processes, beside UCX's own test?

Usage: ./baton bench kvtransfer [options]
  --path shm|tcp|both   transports (default both)
  --shape NAME          135m (30 layers, 3 KV heads of 64, the default model),
                        8b (32 layers, 8 KV heads of 128) or both (default)
  --mib N               KV of one transfer (default 64)
  --rounds N            alternations with ucx_perftest (default 7)
  --svg FILE            draw it, as SVG
  --out FILE            write all of it as JSON too
  --json                one JSON object instead of the table

A transfer is --mib of f16 KV in 16-token blocks that lie scattered in the pools
of both processes: window opened and granted, pieces posted, manifest sent and
verified, and the answer back at the sender, which is where the clock stops. The
pieces go out in the order in which a prefill finishes layers, so no two posts in
a row are neighbours and nothing is merged. "block" posts each block whole;
pieces larger than a block lie in blocks that are adjacent; "whole" is one post.

  GB/s        median over all transfers of the run, bytes / 1e9
  best        the quickest of them: what the code can do when undisturbed
  us/piece    median time of a transfer / pieces
  of ucx      median over the rounds of (Baton / ucx_perftest) in that round: one
              large message of --mib, the same transport (put through shared
              memory; over TCP active messages, as Baton sends), measured before
              and after each group of rows
  bytes only  the same without checksums, by a switch that only this benchmark
              has: what moving alone takes

Two processes, each on a core of its own, as ucx_perftest is. The load line tells
what else the machine was doing: figures of a busy machine are not to be quoted,
ratios can be.
"""
import os
import re
import shutil
import socket
import subprocess
import time

from _shared import Half, Load, Progress, build, describe, finish, median, missing, parser, show_machine
from charts import Bars

BLOCK_TOKENS = 16
# layers x (K, V) x KV heads x tokens x dimension x f16
SHAPES = {"135m": 30 * 2 * 3 * BLOCK_TOKENS * 64 * 2, "8b": 32 * 2 * 8 * BLOCK_TOKENS * 128 * 2}
PIECES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
# What Baton opens for the path: shared memory by POSIX, TCP on the loopback with
# longer segments. UCX's own segments are tried too, and the better one counts.
TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "UCX_TCP_PUT_ENABLE": "n"}
UCX = {
    "shm": ("ucp_put_bw", [{"UCX_TLS": "posix,self"}]),
    "tcp": ("ucp_am_bw", [TCP, dict(TCP, UCX_TCP_TX_SEG_SIZE="260K", UCX_TCP_RX_SEG_SIZE="260K")]),
}
TRANSFERS = {"shm": 5, "tcp": 2}
UCX_SECONDS = 0.35
LIMIT_S = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ucx_perftest(path, total, cores, iterations):
    """@return bytes per second of one large message, by settings"""
    test, settings = UCX[path]
    return [ucx_perftest_run(test, s, total, cores, iterations) for s in settings]


def ucx_perftest_run(test, settings, total, cores, iterations):
    env = {k: v for k, v in os.environ.items() if not k.startswith("UCX_")}
    env.update(settings, UCX_LOG_LEVEL="error", UCX_WARN_UNUSED_ENV_VARS="n")
    port = str(free_port())
    server = subprocess.Popen(["ucx_perftest", "-c", str(cores[1]), "-p", port], env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + LIMIT_S
        while True:
            client = subprocess.run(["ucx_perftest", "127.0.0.1", "-c", str(cores[0]), "-p", port, "-t", test,
                                     "-s", str(total), "-n", str(iterations), "-w", "2", "-f", "-v"],
                                    env=env, capture_output=True, text=True, timeout=LIMIT_S)
            # iterations, percentile, average and overall latency, average and overall bandwidth in MiB/s
            figures = [x for x in client.stdout.splitlines() if re.match(r"\s*\d+,", x)]
            if figures:
                return float(figures[-1].split(",")[5]) * (1 << 20)
            if time.monotonic() > limit or server.poll() is not None:
                raise SystemExit(f"ucx_perftest failed: {client.stdout}{client.stderr}")
            time.sleep(0.02)  # it does not listen yet
    finally:
        if server.poll() is None:
            try:
                server.wait(timeout=5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def groups_of(args, total):
    """Rows that are measured between two runs of ucx_perftest."""
    groups = []
    for shape in SHAPES if args.shape == "both" else (args.shape,):
        block = SHAPES[shape]
        for checksums in (True, False):
            rows = []
            for label, piece in [(f"{p >> 10} KiB" if p < 1 << 20 else "1 MiB", p) for p in PIECES]:
                blocks = -(-piece // block)
                rows.append({"pieces": label, "run_bytes": blocks * block, "piece_bytes": piece})
            rows.append({"pieces": "block", "run_bytes": block, "piece_bytes": 0})
            rows.append({"pieces": "whole", "run_bytes": total // block * block, "piece_bytes": 0})
            for r in rows:
                r.update(shape=shape, checksums=checksums, seconds=[], ratios=[])
            groups.append(rows)
    return groups


def measure_path(path, args, program, cores, progress):
    total = args.mib << 20
    groups = groups_of(args, total)
    iterations = max(4, int(max(ucx_perftest(path, total, cores, 4)) * UCX_SECONDS / total))
    ucx = []
    pair = Half([program, "shm" if path == "shm" else "network", total, *cores],
                parse=lambda line: [int(x) for x in line.split()])
    for _ in range(args.rounds):
        before = ucx_perftest(path, total, cores, iterations)
        ucx.append(before)
        for rows in groups:
            for r in rows:
                r["bytes"], r["n_pieces"], *times = pair.ask(r["run_bytes"], r["piece_bytes"], int(r["checksums"]),
                                                             TRANSFERS[path])
                r["now"] = [t / 1e6 for t in times]
                r["seconds"] += r["now"]
            after = ucx_perftest(path, total, cores, iterations)
            ucx.append(after)
            for r in rows:
                r["ratios"].append(r["bytes"] / median(r.pop("now")) / ((max(before) + max(after)) / 2))
            before = after
            progress.step()
    pair.close()
    return {"path": path,
            "ucx_perftest": [{"test": UCX[path][0], "settings": s, "gb_per_s": median(x) / 1e9,
                              "best_gb_per_s": max(x) / 1e9} for s, x in zip(UCX[path][1], zip(*ucx))],
            "rows": [figures(r, max(map(max, ucx))) for rows in groups for r in rows]}


def figures(r, ucx_best):
    seconds = median(r["seconds"])
    best = r["bytes"] / min(r["seconds"])
    return {"shape": r["shape"], "checksums": r["checksums"], "pieces": r["pieces"], "n_pieces": r["n_pieces"],
            "bytes": r["bytes"], "gb_per_s": r["bytes"] / seconds / 1e9, "best_gb_per_s": best / 1e9,
            "us_per_piece": 1e6 * seconds / r["n_pieces"], "ratio_to_ucx": median(r["ratios"]),
            "ratio_of_bests": best / ucx_best}


def show(out):
    show_machine(out)
    print(f"cores     {out['cores'][0]} and {out['cores'][1]}")
    for p in out["paths"]:
        print()
        for ucx in p["ucx_perftest"]:
            print(f"{p['path']}: ucx_perftest {ucx['test']}: {ucx['gb_per_s']:.2f} GB/s, best "
                  f"{ucx['best_gb_per_s']:.2f}, with " + " ".join(f"{k}={v}" for k, v in ucx["settings"].items()))
        print(f"{'':8}{'':8}{'':>7}  |{'with checksums':^36}|{'bytes only':^36}")
        print(f"{'shape':8}{'pieces':8}{'number':>7}  |" + f"{'GB/s':>8}{'best':>8}{'us/piece':>10}{'of ucx':>9} |" * 2)
        rows = {(r["shape"], r["pieces"], r["checksums"]): r for r in p["rows"]}
        for (shape, pieces, checksums), r in rows.items():
            if checksums:
                print(f"{shape:8}{pieces:8}{r['n_pieces']:>7}  |" + "".join(
                    f"{x['gb_per_s']:8.2f}{x['best_gb_per_s']:8.2f}{x['us_per_piece']:10.2f}"
                    f"{100 * x['ratio_to_ucx']:7.0f} % |" for x in (r, rows[shape, pieces, False])))


def panels(out):
    found = []
    for p in out["paths"]:
        rows = {(r["shape"], r["pieces"], r["checksums"]): r for r in p["rows"]}
        keys = list(dict.fromkeys((shape, pieces) for shape, pieces, _ in rows))
        ucx = max(u["gb_per_s"] for u in p["ucx_perftest"])
        found.append(Bars(f"{p['path']}: KV of one transfer by its pieces: median, up to the best", "GB/s",
                          [f"{shape}, {pieces}" for shape, pieces in keys],
                          [(label, [(rows[key + (sums,)]["gb_per_s"], None, rows[key + (sums,)]["best_gb_per_s"]) for key in keys])
                           for label, sums in (("with checksums", True), ("bytes only", False))],
                          mark=(ucx, f"ucx_perftest {ucx:.1f}")))
    return found


def parse():
    p = parser("kvtransfer", __doc__)
    p.add_argument("--path", choices=("shm", "tcp", "both"), default="both")
    p.add_argument("--shape", choices=(*SHAPES, "both"), default="both")
    p.add_argument("--mib", type=int, default=64)
    p.add_argument("--rounds", type=int, default=7)
    args = p.parse_args()
    if not 4 <= args.mib <= 4096 or not 1 <= args.rounds <= 1000:
        p.error("--mib must be 4 to 4096, --rounds 1 to 1000")
    return args


def main():
    args = parse()
    if shutil.which("ucx_perftest") is None:
        missing("ucx_perftest is not installed (Debian package ucx-utils)")
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        missing("two cores are needed, one for each process")
    program = build("kvtransfer-pair")
    paths = ("shm", "tcp") if args.path == "both" else (args.path,)
    progress = Progress(len(paths) * args.rounds * 2 * (2 if args.shape == "both" else 1), args.json)
    out = dict(describe(args, ("path", "shape", "mib", "rounds")), cores=cores, paths=[])
    load = Load()
    with load.during():
        for path in paths:
            out["paths"].append(measure_path(path, args, program, cores, progress))
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
