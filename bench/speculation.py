#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much faster are answers with speculative decoding, and are they the same?

Usage: ./baton bench speculation [options]
  --load NAME,...     copy: 40 prompts that ask for text of the prompt, changed (edit a
                      file, extract, repeat, JSON); prediction: these, with their own
                      answers as predictions; free: prompts that ask for new text; long:
                      as many streams of copy as there are clients, and beside them long
                      prompts, whose time to the first token is measured
                      (default: the first three)
  --concurrency N,... clients at a time (default 1,4)
  --output-tokens N   tokens of an answer (default 128; with --controller 64)
  --requests N        requests of each load and concurrency, on each side (default 40)
  --draft-tokens N    verify N drafts of a sequence, whatever they cost (default 0: those
                      that are expected to pay)
  --draft SOURCE      of the side with drafts, an option of the worker: ngram, self, self:TYPE,
                      mtp (default ngram), or the file or folder of a draft model
                      (--draft-model)
  --temperature T     of all requests (default 0)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --controller        20 workloads with the automatic number of drafts against each fixed
                      one and none, in place of the loads
  --fixed N,...       those numbers (default 1,2,4,8,16)
  --types TYPE,...    its model files: own, BF16 or another one of ./baton bench quants
                      (default own,BF16)
  --kinds KIND,...    its kinds of prompts: edit, extract, repeat, prediction and free of the
                      workloads, copy (as of --load) and free of the never-worse rows
                      (default: all)
  --minutes N         to share among the workloads (default 30); each has two turns at
                      least, and starts and conversions come on top
  --peer llama.cpp    copying by one client with prompt lookup of llama-cpp-python, beside, with
                      the same file and as many threads, in place of the loads
  --quick             two workloads and one never-worse row, for two minutes at most
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Two clusters of one build are asked in turns, request by request: one with --draft off,
one with drafts; the other one rests meanwhile. Prints decode tokens per second (of the
time between the first token and the last), time per output token of the slowest
requests, drafts verified and right, and how many answers differ.

With --controller a cluster for each number of drafts is asked in turns: one turn that is
not measured, then as many as the time allows, at least two. Workloads are kinds of prompts
x model files x (clients, temperature). Prints for each the decode tokens/s of all streams
together (of the time from the first token of a turn to its last: a fixed number gives the
first of several streams all drafts, which a mean over streams would reward) with the
automatic number, over those of the best fixed number (which is the best by luck,
too) and over those without drafts; then, for 1, 4, 8 and 32 clients, ratios of p99: ITL
(the time between two messages of a stream by the tokens of the second, of each token),
messages (that time itself, for a message with accepted drafts has several tokens) and TPOT.
Earlier answers are no drafts there (--draft-corpus 0): the prompts come again.
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import tempfile
import threading
import time
import types
import typing

import _llama
import quants
from _cluster import Cluster, pids_of, warm_up, worker_cores, worker_threads
from _shared import (Half, Load, Progress, add_model_option, check_model, describe, finish, number_list, parser, percentile,
                     show_machine)
from charts import Bars

PROMPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "speculation_prompts.json")
LONG_WORDS = 1000
LOADS = ("copy", "prediction", "free", "long")
FREE = ("Write a story about a lighthouse keeper.", "Explain how bread rises.", "Describe a market in the morning.",
        "Give advice to a new gardener.", "Write a letter to an old friend.", "Explain why the sky is blue.",
        "Tell a legend of a mountain.", "Describe the taste of a lemon.", "Plan a week in the country.",
        "Explain how a bicycle stays upright.")


class Streamed(typing.NamedTuple):
    text: str
    n: int           # tokens
    seconds: float   # from the first text to the last
    ttft: float      # seconds until the first
    gaps: list       # of messages behind the first: (seconds since the one before, tokens in it)


def stream(address, body, begun=lambda: None):
    """begun: called at the first token"""
    connection = http.client.HTTPConnection(*address, timeout=600)
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    started = time.monotonic()
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"a request fails: {answer.read().decode(errors='replace')}")
    text, times, counts = [], [], []
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        for choice in event["choices"]:
            text.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
            if choice.get("token_ids"):
                times.append(time.monotonic())
                counts.append(len(choice["token_ids"]))
                if len(times) == 1:
                    begun()
    connection.close()
    times = times or [started]
    return Streamed("".join(text), sum(counts), times[-1] - times[0], times[0] - started,
                    [(b - a, n) for a, b, n in zip(times, times[1:], counts[1:])])


def prompts_of(kind):
    """kind: a load, or a kind of its prompts"""
    if kind == "free":
        return list(FREE)
    with open(PROMPTS, encoding="utf-8") as f:
        rows = json.load(f)
    return [row["prompt"] for row in rows if kind in LOADS or row["kind"] == kind]


def bodies(args, kind):
    prompts = prompts_of(kind)
    return [{"messages": [{"role": "user", "content": prompts[i % len(prompts)]}], "max_tokens": args.output_tokens,
             "temperature": args.temperature, "seed": i, "stream": True, "ignore_eos": True,
             "return_token_ids": True} for i in range(args.requests)]


def predicted(job, text):
    return {**job, "prediction": {"type": "content", "content": text}}


def ask_all(cluster, jobs, n_clients, step):
    """@return results in order, seconds of all"""
    def one(body):
        out = stream(cluster.http, body)
        step()
        return out
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(n_clients) as pool:
        results = list(pool.map(one, jobs))
    return results, time.monotonic() - started


def drafter_options(args):
    return ["--draft-model" if os.path.exists(args.draft) else "--draft", args.draft]


def drafts_of(cluster):
    """@return times that a sequence had drafts, drafts, right ones"""
    return [cluster.total(f"baton_spec_decode_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")]


def decode_rate(results):
    """@return tokens per second of a stream behind its first"""
    return sum(r.n - 1 for r in results) / max(sum(r.seconds for r in results), 1e-9)


def side_figures(results, seconds):
    per_token = [1e3 * r.seconds / (r.n - 1) for r in results if r.n > 1]
    gaps = [(1e3 * seconds, n) for r in results for seconds, n in r.gaps]
    return {"decode_tokens_per_s": decode_rate(results), "tokens_per_s": sum(r.n for r in results) / seconds,
            "tpot_ms": {f"p{p}": percentile(per_token, p) for p in (50, 99)},
            "itl_ms": {f"p{p}": percentile([ms / n for ms, n in gaps for _ in range(n)], p) for p in (50, 99)},
            "message_ms": {f"p{p}": percentile([ms for ms, _ in gaps], p) for p in (50, 99)},
            "ttft_ms": {f"p{p}": percentile([1e3 * r.ttft for r in results], p) for p in (50, 99)}}


def long_prompt(seed):
    """Words that no other prompt has, so that no cached prefix helps."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdefghiklmnoprstuvw", k=rng.randint(2, 7))) for _ in range(LONG_WORDS))


def ask_beside(cluster, jobs, seed):
    """A long prompt while all jobs are streamed. @return results of the jobs, and of the long prompt"""
    waiting = threading.Semaphore(0)
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        streams = [pool.submit(stream, cluster.http, job, waiting.release) for job in jobs]
        for _ in jobs:
            waiting.acquire()
        one = stream(cluster.http, {**jobs[0], "messages": [{"role": "user", "content": long_prompt(seed)}], "max_tokens": 1})
        return [x.result() for x in streams], one


def long_row(args, off, on, n_clients, step):
    jobs = bodies(args, "copy")
    results, longs, seconds = {off: [], on: []}, {off: [], on: []}, {off: 0, on: 0}
    before = drafts_of(on)
    for turn in range(args.requests):
        part = [jobs[(turn * n_clients + i) % len(jobs)] for i in range(n_clients)]
        for side in (off, on) if turn % 2 == 0 else (on, off):
            started = time.monotonic()
            got, one = ask_beside(side, part, turn)
            seconds[side] += time.monotonic() - started
            results[side] += got
            longs[side].append(one)
            step()
    row = compared("long", n_clients, results, seconds, (off, on), counted(on, before))
    for side, cluster in (("off", off), ("on", on)):
        row[side]["ttft_ms"] = {f"p{p}": percentile([1e3 * r.ttft for r in longs[cluster]], p) for p in (50, 99)}
    row["ttft_p50_ratio"] = row["on"]["ttft_ms"]["p50"] / row["off"]["ttft_ms"]["p50"]
    return row


def counted(on, before):
    """@return what the counters of drafts have grown by; they come with the next heartbeat"""
    deadline = time.monotonic() + 5
    drafts = drafts_of(on)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = drafts_of(on)
        if now == drafts:
            break
        drafts = now
    return [b - a for a, b in zip(before, drafts)]


def compared(load, n_clients, results, seconds, sides, drafts):
    off, on = sides
    row = {"load": load, "concurrency": n_clients, "off": side_figures(results[off], seconds[off]),
           "on": side_figures(results[on], seconds[on]), "different": sum(a.text != b.text for a, b in zip(results[off], results[on])),
           "requests": len(results[on]), "draft_steps": drafts[0], "draft_tokens": drafts[1], "accepted_tokens": drafts[2]}
    row["decode_ratio"] = row["on"]["decode_tokens_per_s"] / row["off"]["decode_tokens_per_s"]
    row["tokens_ratio"] = row["on"]["tokens_per_s"] / row["off"]["tokens_per_s"]
    row["tpot_p99_ratio"] = row["on"]["tpot_ms"]["p99"] / row["off"]["tpot_ms"]["p99"]
    row["ttft_p50_ratio"] = row["on"]["ttft_ms"]["p50"] / row["off"]["ttft_ms"]["p50"]
    return row


def row_of(args, off, on, load, n_clients, step):
    """Parts of the jobs in turns: the machine is not the same all the time."""
    if load == "long":
        return long_row(args, off, on, n_clients, step)
    jobs = bodies(args, load)
    if load == "prediction":
        answers, _ = ask_all(off, jobs, 4, lambda: None)
        jobs = [predicted(job, answer.text) for job, answer in zip(jobs, answers) if answer.text]
    results, seconds = {off: [], on: []}, {off: 0, on: 0}
    before = drafts_of(on)
    part = max(1, n_clients)
    for turn, begin in enumerate(range(0, len(jobs), part)):
        for side in (off, on) if turn % 2 == 0 else (on, off):
            got, took = ask_all(side, jobs[begin:begin + part], n_clients, step)
            results[side] += got
            seconds[side] += took
    return compared(load, n_clients, results, seconds, (off, on), counted(on, before))


# --- the automatic number of drafts against fixed ones

KINDS = ("edit", "extract", "repeat", "prediction", "free")
CLIENTS = ((1, 0.0), (4, 0.7))  # and the temperature
WORSE = (("copy", 0.0), ("free", 0.7))  # kinds and temperatures of the never-worse rows
WORSE_CLIENTS = (1, 4, 8, 32)
MOST_TURNS = 12
AUTO, OFF = "auto", "off"


class Workload(typing.NamedTuple):
    kind: str
    type: str
    clients: int
    temperature: float


def workloads(args):
    if args.quick:
        return [Workload("edit", name, *CLIENTS[0]) for name in args.types[:1]] + [Workload("free", args.types[0], *CLIENTS[1])]
    return [Workload(kind, name, *more) for name in args.types for kind in KINDS for more in CLIENTS if kind in args.kinds]


def worse_workloads(args):
    if args.quick:
        return [Workload(*WORSE[0][:1], args.types[0], 4, 0.0)]
    return [Workload(kind, name, n, t) for name in args.types for kind, t in WORSE for n in WORSE_CLIENTS if kind in args.kinds]


def jobs_of(args, workload, off):
    """@return requests of a turn after the other, endlessly"""
    more = types.SimpleNamespace(output_tokens=args.output_tokens, temperature=workload.temperature, requests=workload.clients * MOST_TURNS)
    jobs = bodies(more, workload.kind)
    if workload.kind == "prediction":
        jobs = jobs[:max(16, workload.clients)]
        jobs = [predicted(job, answer.text or " ") for job, answer in zip(jobs, ask_all(off, jobs, 4, lambda: None)[0])]
    return [[jobs[(turn * workload.clients + i) % len(jobs)] for i in range(workload.clients)] for turn in range(MOST_TURNS)]


def in_turns(args, workload, sides, seconds):
    """sides: {name: cluster}. @return {name: results}, of as many turns as there is time for, but at least two; {name: tokens/s
    of all streams together}; and how many answers are not those without drafts"""
    turns = jobs_of(args, workload, sides[OFF])
    for cluster in sides.values():  # what iterations cost is learned
        ask_all(cluster, turns[-1], workload.clients, lambda: None)
    results, names, n_different = {name: [] for name in sides}, list(sides), 0
    decoding = dict.fromkeys(sides, 0)  # seconds from the first token of a turn to its end
    deadline = time.monotonic() + seconds
    for turn, jobs in enumerate(turns):
        if turn >= 2 and time.monotonic() > deadline:
            break
        texts = {}
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            got, took = ask_all(sides[name], jobs, workload.clients, lambda: None)
            results[name] += got
            decoding[name] += took - min(r.ttft for r in got)
            texts[name] = [r.text for r in got]
        n_different += sum(a != b for name in names for a, b in zip(texts[name], texts[OFF]))
    return results, {name: sum(r.n - 1 for r in got) / decoding[name] for name, got in results.items()}, n_different


def controller_row(args, workload, sides, seconds):
    results, rates, n_different = in_turns(args, workload, sides, seconds)
    best = max((name for name in sides if name not in (AUTO, OFF)), key=rates.get)
    return {**workload._asdict(), "rates": rates, "stream_rates": {name: decode_rate(got) for name, got in results.items()},
            "best": best, "requests": len(results[OFF]), "different": n_different,
            "to_fixed": rates[AUTO] / rates[best], "to_off": rates[AUTO] / rates[OFF]}


def worse_row(args, workload, sides, seconds):
    results, rates, n_different = in_turns(args, workload, {name: sides[name] for name in (OFF, AUTO)}, seconds)
    figures = {name: side_figures(got, 1) for name, got in results.items()}
    return {**workload._asdict(), "requests": len(results[OFF]), "different": n_different,
            "itl_ms": {name: f["itl_ms"] for name, f in figures.items()},
            **{f"{kind}_p99_ratio": figures[AUTO][f"{kind}_ms"]["p99"] / figures[OFF][f"{kind}_ms"]["p99"]
               for kind in ("itl", "message", "tpot")},
            "decode_ratio": figures[AUTO]["decode_tokens_per_s"] / figures[OFF]["decode_tokens_per_s"],
            "tokens_ratio": rates[AUTO] / rates[OFF]}


def sides_of(args, path, cache, stack):
    """@return {name: cluster}, started"""
    both = ["--threads", str(worker_threads(args)), "--draft-corpus", "0"]
    prefill, decode = worker_cores(worker_threads(args))
    sides = {}
    for name, options in [(OFF, ["--draft", "off"]), (AUTO, [])] + [(str(n), ["--draft-tokens", str(n)]) for n in args.fixed]:
        drafts = drafter_options(args) if name != OFF else []
        has_many = name in (OFF, AUTO) and not args.quick  # 32 clients
        cluster = Cluster(path, kv_memory="1g" if has_many else "128m", worker_args=both + drafts + options,
                          prefill_args=prefill, decode_args=decode, env={"BATON_WEIGHT_CACHE": cache})
        sides[name] = stack.enter_context(cluster)
        warm_up(cluster)
    return sides


def controller(args, out):
    todo, worse = workloads(args), worse_workloads(args)
    progress = Progress(len(todo) + len(worse), args.json)
    share = 60 * args.minutes / (len(todo) + len(worse))
    load = Load()
    out.update(workloads=[], never_worse=[])
    for name in args.types:
        path = args.model if name == "own" else quants.model_file(args, name)
        with contextlib.ExitStack() as stack:
            sides = sides_of(args, path, stack.enter_context(tempfile.TemporaryDirectory()), stack)
            with load.during(pids_of(*sides.values())):
                for rows, measure, of in ((out["workloads"], controller_row, todo), (out["never_worse"], worse_row, worse)):
                    for workload in of:
                        if workload.type == name:
                            rows.append(measure(args, workload, sides, share))
                            progress.step()
    out.update(load.figures())


def show_workloads(rows):
    names = list(rows[0]["rates"])
    print(f"{'workload':12}{'type':>7}{'clients':>8}{'T':>5}" + "".join(f"{name:>8}" for name in names)
          + f"{'best':>6}{'to best':>9}{'to off':>8}{'differ':>8}{'requests':>10}")
    for r in rows:
        print(f"{r['kind']:12}{r['type']:>7}{r['clients']:8}{r['temperature']:5.1f}" + "".join(f"{r['rates'][n]:8.1f}" for n in names)
              + f"{r['best']:>6}{r['to_fixed']:9.2f}{r['to_off']:8.2f}{r['different']:8}{r['requests']:10}")
    print("decode tokens/s of all streams: off, automatic, and by each fixed number of drafts")
    for key, to in (("to_fixed", "the best fixed number"), ("to_off", "off")):
        worst = min(rows, key=lambda r: r[key])
        print(f"worst to {to}: {worst[key]:.2f} ({worst['kind']}, {worst['type']}, {worst['clients']} clients, T {worst['temperature']})")


def show_never_worse(rows):
    print(f"\n{'never worse':12}{'type':>7}{'clients':>8}{'T':>5}{'ITL p99 off':>13}{'auto':>8}{'ratio':>7}{'messages':>10}{'TPOT':>7}"
          f"{'tokens/s':>10}{'stream':>8}{'differ':>8}{'requests':>10}")
    for r in rows:
        print(f"{r['kind']:12}{r['type']:>7}{r['clients']:8}{r['temperature']:5.1f}{r['itl_ms'][OFF]['p99']:13.1f}{r['itl_ms'][AUTO]['p99']:8.1f}"
              f"{r['itl_p99_ratio']:7.2f}{r['message_p99_ratio']:10.2f}{r['tpot_p99_ratio']:7.2f}"
              f"{r['tokens_ratio']:10.2f}{r['decode_ratio']:8.2f}{r['different']:8}{r['requests']:10}")
    print("ITL: ms a token; ratios of p99, of decode tokens/s of all streams, and of one, automatic to off")


def show_controller(out):
    show_machine(out)
    for rows, show in ((out["workloads"], show_workloads), (out["never_worse"], show_never_worse)):
        if rows:
            show(rows)


def controller_panels(out):
    if not out["workloads"]:
        return []
    names = [f"{r['kind']}, {r['type']}, {r['clients']}" for r in out["workloads"]]
    return [Bars("Automatic number of drafts, decode tokens/s", "ratio", names,
                 [(label, [r[key] for r in out["workloads"]]) for label, key in (("to the best fixed", "to_fixed"), ("to off", "to_off"))])]


# --- drafts of a peer

LLAMA_DRAFTS = (2, 10)


def peer_sides(args, cluster_off, cluster_on, half):
    """@return {(engine, drafts): function of a task that gives what is generated, and its times}"""
    def baton(cluster):
        def ask(task):
            got = stream(cluster.http, {"prompt": task["ids"], "max_tokens": task["n"], "temperature": task["temperature"], "top_p": 1,
                                        "seed": task["seed"], "stream": True, "ignore_eos": True, "return_token_ids": True})
            return got.text, got
        return ask

    def llama(n):
        def ask(task):
            got = half.ask(json.dumps({**task, "drafts": n}))
            return got["ids"], Streamed("", len(got["ids"]), got["seconds"], got["ttft"], [])
        return ask

    return {("Baton", OFF): baton(cluster_off), ("Baton", os.path.basename(args.draft)): baton(cluster_on),
            ("llama.cpp", OFF): llama(0), ("llama.cpp", "off again"): llama(0),
            **{("llama.cpp", f"lookup {n}"): llama(n) for n in LLAMA_DRAFTS}}


def tasks_of(args, cluster, temperature):
    """Prompts of the copying load as ids, by the model's chat template."""
    out = []
    for i, prompt in enumerate(prompts_of("copy")[:args.requests]):
        status, answer = cluster.post("/tokenize", {"messages": [{"role": "user", "content": prompt}]})
        if status != 200:
            raise SystemExit(f"a prompt has no tokens: {answer}")
        out.append({"ids": answer["tokens"], "n": args.output_tokens, "temperature": temperature, "seed": i + 1})
    return out


def peer_rows(sides, tasks, step):
    """Each task by all sides, in turns. @return a row for each side"""
    answers, times, names = {side: [] for side in sides}, {side: [] for side in sides}, list(sides)
    for turn, task in enumerate(tasks):
        for side in names[turn % len(names):] + names[:turn % len(names)]:
            answer, got = sides[side](task)
            answers[side].append(answer)
            times[side].append(got)
        step()
    rates = {side: decode_rate(got) for side, got in times.items()}
    return [{"engine": engine, "drafts": drafts, "temperature": tasks[0]["temperature"], "requests": len(tasks),
             "decode_tokens_per_s": rates[engine, drafts], "ratio": rates[engine, drafts] / rates[engine, OFF],
             "different": sum(a != b for a, b in zip(answers[engine, drafts], answers[engine, OFF]))} for engine, drafts in names]


def with_peer(args, out):
    threads = args.threads or len(os.sched_getaffinity(0))
    local = dict(prefill=0, decode_args=["--local-prefill"], kv_memory="512m")
    options = ["--threads", str(threads), "--draft-corpus", "0"]
    load, python = Load(), _llama.install()
    with Cluster(args.model, worker_args=options + ["--draft", "off"], **local) as off, \
            Cluster(args.model, worker_args=options + drafter_options(args) + ["--draft-tokens", str(args.draft_tokens)], **local) as on:
        for cluster in (off, on):
            warm_up(cluster)
        all_tasks = [tasks_of(args, off, t) for t in (0.0, args.temperature or 0.7)]
        longest = max(len(task["ids"]) for tasks in all_tasks for task in tasks) + args.output_tokens
        half = Half([python, _llama.PEER, "drafts", args.model, threads, -(-(longest + 16) // 256) * 256, ",".join(map(str, LLAMA_DRAFTS))])
        out["peer_version"] = half.read()["version"]
        sides = peer_sides(args, off, on, half)
        for ask in sides.values():  # once for nothing
            ask({**all_tasks[0][0], "n": 8})
        progress = Progress(sum(len(tasks) for tasks in all_tasks), args.json)
        with load.during(lambda: pids_of(off, on)() + [half.process.pid]):
            out["rows"] = [row for tasks in all_tasks for row in peer_rows(sides, tasks, progress.step)]
        half.close()
    out.update(load.figures())


def show_peer(out):
    show_machine(out)
    print(f"peer      llama-cpp-python {out['peer_version']}")
    print(f"{'engine':12}{'drafts':>12}{'T':>5}{'tokens/s':>10}{'to off':>8}{'requests':>10}{'differ':>8}")
    for r in out["rows"]:
        print(f"{r['engine']:12}{r['drafts']:>12}{r['temperature']:5.1f}{r['decode_tokens_per_s']:10.1f}{r['ratio']:8.2f}"
              f"{r['requests']:10}{r['different']:8}")
    print("decode tokens/s of a stream; differ: answers that are not those of the same engine without drafts")


def peer_panels(out):
    names = [f"{r['engine']}, {r['drafts']}, T {r['temperature']}" for r in out["rows"]]
    return [Bars("Copying, decode tokens/s", "tokens/s", names, [("tokens/s", [r["decode_tokens_per_s"] for r in out["rows"]])])]


# --- the loads


def show(out):
    show_machine(out)
    print(f"{'load':12}{'clients':>8}{'off':>9}{'on':>9}{'ratio':>8}{'p99 TPOT':>10}{'TTFT':>7}{'drafts':>9}{'right':>7}{'differ':>8}")
    for r in out["rows"]:
        right = r["accepted_tokens"] / r["draft_tokens"] if r["draft_tokens"] else 0
        print(f"{r['load']:12}{r['concurrency']:8}{r['off']['decode_tokens_per_s']:9.1f}{r['on']['decode_tokens_per_s']:9.1f}"
              f"{r['decode_ratio']:8.2f}{r['tpot_p99_ratio']:10.2f}{r['ttft_p50_ratio']:7.2f}{r['draft_tokens']:9.0f}{right:7.0%}"
              f"{r['different']:8}")
    print("off, on: decode tokens/s of a stream without and with drafts; ratios of on to off")


def panels(out):
    names = [f"{r['load']}, {r['concurrency']}" for r in out["rows"]]
    return [Bars("Decode tokens/s of a stream", "tokens/s", names,
                 [(side, [(r[side]["decode_tokens_per_s"], None, None) for r in out["rows"]]) for side in ("off", "on")])]


def main():
    p = parser("speculation", __doc__)
    p.add_argument("--load", default=",".join(LOADS[:3]))
    p.add_argument("--concurrency", type=number_list, default=[1, 4])
    p.add_argument("--output-tokens", type=int, default=0)
    p.add_argument("--requests", type=int, default=40)
    p.add_argument("--draft-tokens", type=int, default=0)
    p.add_argument("--draft", default="ngram")
    p.add_argument("--temperature", type=float, default=0.0)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--controller", action="store_true")
    p.add_argument("--fixed", type=number_list, default=[1, 2, 4, 8, 16])
    p.add_argument("--types", default="own,BF16")
    p.add_argument("--kinds", type=lambda text: text.split(","))
    p.add_argument("--minutes", type=float, default=30)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--peer", choices=("llama.cpp",))
    add_model_option(p)
    args = p.parse_args()
    check(p, args)
    if args.controller:
        out = describe(args, ("controller", "fixed", "types", "kinds", "minutes", "quick", "output_tokens", "draft"))
        controller(args, out)
        finish(args, out, show_controller, controller_panels)
    elif args.peer:
        out = describe(args, ("peer", "output_tokens", "requests", "draft", "draft_tokens", "temperature", "threads"))
        with_peer(args, out)
        finish(args, out, show_peer, peer_panels)
    else:
        with_and_without(args)


def check(p, args):
    args.output_tokens = args.output_tokens or (64 if args.controller else 128)
    args.loads, args.types = args.load.split(","), args.types.split(",")
    if set(args.loads) - set(LOADS):
        p.error(f"--load is of {', '.join(LOADS)}")
    if min(args.output_tokens, args.requests, *args.concurrency) < 1:
        p.error("counts must be at least 1")
    if set(args.types) - {"own", *quants.CONVERTED}:
        p.error(f"--types is of own, {', '.join(quants.CONVERTED)}")
    if max(args.fixed) > 16:
        p.error("--fixed: at most 16 drafts are verified at a time")
    if args.kinds and (args.quick or not args.controller):
        p.error("--kinds chooses workloads of --controller, without --quick")
    args.kinds = args.kinds or [*KINDS, "copy"]
    if set(args.kinds) - {*KINDS, "copy"}:
        p.error(f"--kinds is of {', '.join(KINDS)}, copy")
    if args.controller and args.peer:
        p.error("--controller and --peer are two runs")
    if args.quick:
        args.minutes, args.types = min(args.minutes, 2), args.types[:1]
    check_model(p, args)


def with_and_without(args):
    both = ["--threads", str(worker_threads(args))]
    prefill, decode = worker_cores(worker_threads(args))
    out = describe(args, ("load", "output_tokens", "requests", "draft_tokens", "draft", "temperature"))
    progress = Progress(2 * args.requests * len(args.loads) * len(args.concurrency), args.json)
    load = Load()
    with Cluster(args.model, kv_memory="1g", worker_args=both + ["--draft", "off"], prefill_args=prefill, decode_args=decode) as off, \
            Cluster(args.model, kv_memory="1g", worker_args=both + drafter_options(args) + ["--draft-tokens", str(args.draft_tokens)],
                    prefill_args=prefill, decode_args=decode) as on:
        for cluster in (off, on):
            warm_up(cluster)
        with load.during(pids_of(off, on)):
            out["rows"] = [row_of(args, off, on, name, n, progress.step) for name in args.loads for n in args.concurrency]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
