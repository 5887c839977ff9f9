#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick are answers that follow a schema, beside free text?

Usage: ./baton bench structured [options]
  --streams N         clients of the first load (default 32)
  --output-tokens N   tokens of an answer, the most for an object (default 128)
  --turns N           that all is measured (default 9), after one that is not
  --clients N         of the other load (default 1)
  --unnamed           prompts do not name the members of the object
  --model FILE        another model
  --gemma             Gemma 3 270M, fetched as ./baton test does (setup/fetch_gemma.py)
  --random            a model of the shape of Gemma 3 270M with random weights, made once
                      in the cache
  --threads N         threads of the worker (default: all cores)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

One worker computes prompts and answers. In turns, of which each begins with the other side:

  streams   as many clients as --streams; free text, and a JSON string without an end
            (the mask of a string has most of the vocabulary); no drafts
  object    --clients; free text, and an object of eight strings whose names the schema
            and the prompt give; with drafts and without

Rates are tokens per second of all clients together, prompts with them; a ratio is the
median over the turns of the ratio within a turn, held to free. Temperature 0.7. Earlier
answers are no drafts. Accepted: of the drafts of the grammar, over all turns.

  of cores  the ratio of tokens per second that the cluster computes on a core: other
            programs change it less
"""
import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import time

import _peers
from _cluster import Cluster, pids_of, warm_up
from _shared import (ROOT, Load, Progress, add_model_option, build, check_model, describe, finish, median, missing, own_ticks, parser,
                     ranged, show_machine)
from charts import Bars

ENDLESS = {"type": "string", "minLength": 100000}
NAMES = ("full_name", "date_of_birth", "postal_address", "telephone_number", "email_address", "nationality", "occupation", "annual_income")
OBJECT = {"type": "object", "properties": {name: {"type": "string", "maxLength": 24} for name in NAMES}, "required": list(NAMES),
          "additionalProperties": False}
# (load, with drafts): the ratio that is aimed at, and with the vocabulary of Gemma 3, of 262,144.
TARGETS = {("streams", False): (0.95, 0.95), ("object", True): (1.15, 1.4)}
SHAPE = ("--architecture", "gemma3", "--layers", 18, "--dim", 640, "--heads", 4, "--kv-heads", 1, "--head-dim", 256, "--ffn", 2048, "--vocab", 262144,
         "--context", 4096, "--window", 512, "--tied", "--type", "Q8_0", "--mixed-type", "Q8_0", "--embedding-type", "Q8_0")


def random_model():
    path = os.path.join(_peers.cache(), "gemma-3-270m-random-Q8_0.gguf")
    with _peers.lock():
        if not os.path.exists(path):
            _peers.run([build("tiny-model"), path + ".part", *SHAPE], path + ".log", f"making {path}")
            os.rename(path + ".part", path)
    return path


def fetched_gemma():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "setup", "fetch_gemma.py")], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        missing(f"Gemma 3 270M is not here: {done.stderr.strip()[-500:]}")
    return done.stdout.strip().splitlines()[-1]


def requests(args, load, held, drafts, turn, n_clients):
    """Of one side in one turn; no prompt and no seed comes twice."""
    more = {} if drafts else {"num_draft_tokens": 0}
    how = "as JSON" if held and load == "object" else "in a few sentences"
    if load == "object" and not args.unnamed:
        how += f" with {', '.join(NAMES)}"
    if held:
        more["guided_json"] = ENDLESS if load == "streams" else OBJECT
    else:
        more["ignore_eos"] = True
    return [{"prompt": f"Describe person {turn}-{i} {how}:", "max_tokens": args.output_tokens, "temperature": 0.7,
             "seed": 1000 * turn + i, **more} for i in range(n_clients)]


def fits(choice, load, held, n_tokens, n):
    """Whether an answer is what was asked for."""
    if not held or load == "streams":
        return n == n_tokens and (not held or choice["text"].startswith('"'))
    return choice["finish_reason"] == "length" or sorted(json.loads(choice["text"])) == sorted(NAMES)


def rates_of(cluster, bodies, load, held):
    """@return tokens per second, and per second of a core that the cluster computes"""
    pids = [p.pid for p in cluster.processes]
    ticks, started = own_ticks(pids), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: cluster.post("/v1/completions", body, timeout=900), bodies))
    seconds, ticks = time.monotonic() - started, own_ticks(pids) - ticks
    for (status, answer), body in zip(answers, bodies):
        if status != 200 or not fits(answer["choices"][0], load, held, body["max_tokens"], answer["usage"]["completion_tokens"]):
            raise SystemExit(f"an answer is not what was asked for: {status} {json.dumps(answer)[:500]}")
    n = sum(answer["usage"]["completion_tokens"] for _, answer in answers)
    return n / seconds, n * os.sysconf("SC_CLK_TCK") / max(ticks, 1)


def drafts_by_grammar(cluster):
    """@return (verified, accepted), when heartbeats bring nothing new"""
    def now():
        return [cluster.total(f"baton_spec_decode_{name}_total", source="grammar") for name in ("draft_tokens", "accepted_tokens")]
    counts, before = now(), None
    while counts != before:
        time.sleep(0.7)
        counts, before = now(), counts
    return counts


def row_of(load, drafts, n_clients, rates):
    """rates: of each turn, (free, held) of rates_of()"""
    row = {"load": load, "drafts": drafts, "clients": n_clients, "turns": len(rates), "free": median([f[0] for f, _ in rates]),
           "held": median([h[0] for _, h in rates])}
    for i, name in enumerate(("", "core_")):
        row[f"{name}ratios"] = [h[i] / f[i] for f, h in rates]
        row[f"{name}ratio"] = median(row[f"{name}ratios"])
    return row


def measure(args, cluster):
    loads = [("streams", False, args.streams), ("object", False, args.clients), ("object", True, args.clients)]
    rates = {(load, drafts): [] for load, drafts, _ in loads}
    progress = Progress(2 * len(loads) * (args.turns + 1), args.json)
    for turn in range(args.turns + 1):
        if turn == 1:
            before = drafts_by_grammar(cluster)
        for load, drafts, n_clients in loads:
            got = {}
            for held in (False, True) if turn % 2 == 0 else (True, False):
                got[held] = rates_of(cluster, requests(args, load, held, drafts, turn, n_clients), load, held)
                progress.step()
            if turn > 0:
                rates[load, drafts].append((got[False], got[True]))
    drafted, accepted = (b - a for a, b in zip(before, drafts_by_grammar(cluster)))
    return {"rows": [row_of(load, drafts, n, rates[load, drafts]) for load, drafts, n in loads], "drafted": drafted, "accepted": accepted}


def missed(rows, is_large):
    """is_large: the vocabulary. @return what is not as it is aimed at, in words"""
    words = []
    for r in rows:
        least = TARGETS.get((r["load"], r["drafts"]), (0, 0))[is_large]
        if r["ratio"] < least:
            words.append(f"{r['load']}{' with drafts' if r['drafts'] else ''}: {r['ratio']:.3f} of free text, aimed at {least}")
    return words


def show(out):
    show_machine(out)
    print(f"\n{'load':9}{'clients':>8}{'drafts':>8}{'free tokens/s':>15}{'held':>9}{'ratio':>8}{'least':>8}{'most':>7}{'of cores':>10}{'turns':>7}")
    for r in out["rows"]:
        print(f"{r['load']:9}{r['clients']:8}{'yes' if r['drafts'] else 'no':>8}{r['free']:15.1f}{r['held']:9.1f}{r['ratio']:8.3f}"
              f"{min(r['ratios']):8.2f}{max(r['ratios']):7.2f}{r['core_ratio']:10.3f}{r['turns']:7}")
    if out["drafted"]:
        print(f"drafts of the grammar: {out['accepted']:.0f} of {out['drafted']:.0f} accepted ({out['accepted'] / out['drafted']:.3f})")
    for words in out["missed"]:
        print(f"MISSED    {words}")


def panels(out):
    names = [f"{r['load']}{', drafts' if r['drafts'] else ''}" for r in out["rows"]]
    return [Bars("Tokens per second", "tokens/s", names, [(key, [r[key] for r in out["rows"]]) for key in ("free", "held")]),
            Bars("Held to free, with the range of the turns", "ratio", names, [("ratio", [ranged(r["ratios"]) for r in out["rows"]])])]


def parse():
    p = parser("structured", __doc__)
    add_model_option(p)
    p.add_argument("--streams", type=int, default=32)
    p.add_argument("--output-tokens", type=int, default=128)
    p.add_argument("--turns", type=int, default=9)
    p.add_argument("--clients", type=int, default=1)
    p.add_argument("--unnamed", action="store_true")
    p.add_argument("--gemma", action="store_true")
    p.add_argument("--random", action="store_true")
    p.add_argument("--threads", type=int)
    args = p.parse_args()
    if not 1 <= args.streams <= 256 or not 1 <= args.clients <= 256 or args.turns < 1 or not 8 <= args.output_tokens <= 1024:
        p.error("--streams and --clients must be 1 to 256, --turns at least 1, --output-tokens 8 to 1024")
    if args.gemma and args.random:
        p.error("--gemma and --random name two models")
    if args.gemma:
        args.model = fetched_gemma()
    elif args.random:
        args.model = random_model()
    check_model(p, args)
    args.threads = args.threads or len(os.sched_getaffinity(0))
    return args


def main():
    args = parse()
    out = describe(args, ("streams", "output_tokens", "turns", "clients", "unnamed", "gemma", "random", "threads"))
    out["model"] = os.path.basename(args.model)
    load = Load()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(args.model, prefill=0, kv_memory="512m", decode_args=[
            "--local-prefill", "--threads", str(args.threads), "--draft-corpus", "0"]))
        warm_up(cluster)
        with load.during(pids_of(cluster)):
            out.update(measure(args, cluster))
    out.update(load.figures())
    out["missed"] = missed(out["rows"], args.gemma or args.random)
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
