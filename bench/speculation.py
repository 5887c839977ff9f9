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
  --output-tokens N   tokens of an answer (default 128)
  --requests N        requests of each load and concurrency, on each side (default 40)
  --draft-tokens N    verify N drafts of a sequence, whatever they cost (default 0: those
                      that are expected to pay)
  --draft SOURCE      of the side with drafts, an option of the worker: ngram, self, self:TYPE
                      (default ngram)
  --temperature T     of all requests (default 0)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Two clusters of one build are asked in turns, request by request: one with --draft off,
one with drafts; the other one rests meanwhile. Prints decode tokens per second (of the
time between the first token and the last), time per output token of the slowest
requests, drafts verified and right, and how many answers differ.
"""
import concurrent.futures
import http.client
import json
import os
import random
import threading
import time

from _cluster import Cluster, pids_of, warm_up, worker_cores, worker_threads
from _shared import (Load, Progress, add_model_option, check_model, describe, finish, number_list, parser, percentile,
                     show_machine)
from charts import Bars

PROMPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "speculation_prompts.json")
LONG_WORDS = 1000
LOADS = ("copy", "prediction", "free", "long")
FREE = ("Write a story about a lighthouse keeper.", "Explain how bread rises.", "Describe a market in the morning.",
        "Give advice to a new gardener.", "Write a letter to an old friend.", "Explain why the sky is blue.",
        "Tell a legend of a mountain.", "Describe the taste of a lemon.", "Plan a week in the country.",
        "Explain how a bicycle stays upright.")


def stream(address, body, begun=lambda: None):
    """begun: called at the first text. @return text, tokens, seconds from the first token to the last, seconds until the first"""
    connection = http.client.HTTPConnection(*address, timeout=600)
    started = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"a request fails: {answer.read().decode(errors='replace')}")
    first = last = None
    text, n = [], 0
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            n = event["usage"]["completion_tokens"]
        for choice in event["choices"]:
            if choice["delta"].get("content"):
                last = time.monotonic()
                if first is None:
                    first = last
                    begun()
                text.append(choice["delta"]["content"])
    connection.close()
    first = first or started
    return "".join(text), n, (last or first) - first, first - started


def bodies(args, load):
    with open(PROMPTS, encoding="utf-8") as f:
        prompts = [row["prompt"] for row in json.load(f)] if load != "free" else list(FREE)
    return [{"messages": [{"role": "user", "content": prompts[i % len(prompts)]}], "max_tokens": args.output_tokens,
             "temperature": args.temperature, "seed": i, "stream": True, "ignore_eos": True,
             "stream_options": {"include_usage": True}} for i in range(args.requests)]


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


def drafts_of(cluster):
    """@return times that a sequence had drafts, drafts, right ones"""
    return [cluster.total(f"baton_spec_decode_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")]


def side_figures(results, seconds):
    per_token = [1e3 * s / (n - 1) for _, n, s, _ in results if n > 1]
    return {"decode_tokens_per_s": sum(n - 1 for _, n, _, _ in results) / max(sum(s for _, _, s, _ in results), 1e-9),
            "tokens_per_s": sum(n for _, n, _, _ in results) / seconds,
            "tpot_ms": {f"p{p}": percentile(per_token, p) for p in (50, 99)},
            "ttft_ms": {f"p{p}": percentile([1e3 * t for *_, t in results], p) for p in (50, 99)}}


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
        row[side]["ttft_ms"] = {f"p{p}": percentile([1e3 * t for *_, t in longs[cluster]], p) for p in (50, 99)}
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
           "on": side_figures(results[on], seconds[on]), "different": sum(a[0] != b[0] for a, b in zip(results[off], results[on])),
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
        jobs = [{**job, "prediction": {"type": "content", "content": text}} for job, (text, *_) in zip(jobs, answers) if text]
    results, seconds = {off: [], on: []}, {off: 0, on: 0}
    before = drafts_of(on)
    part = max(1, n_clients)
    for turn, begin in enumerate(range(0, len(jobs), part)):
        for side in (off, on) if turn % 2 == 0 else (on, off):
            got, took = ask_all(side, jobs[begin:begin + part], n_clients, step)
            results[side] += got
            seconds[side] += took
    return compared(load, n_clients, results, seconds, (off, on), counted(on, before))


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
    p.add_argument("--output-tokens", type=int, default=128)
    p.add_argument("--requests", type=int, default=40)
    p.add_argument("--draft-tokens", type=int, default=0)
    p.add_argument("--draft", default="ngram")
    p.add_argument("--temperature", type=float, default=0.0)
    p.add_argument("--threads", type=int, default=0)
    add_model_option(p)
    args = p.parse_args()
    loads = args.load.split(",")
    if set(loads) - set(LOADS):
        p.error(f"--load is of {', '.join(LOADS)}")
    if min(args.output_tokens, args.requests, *args.concurrency) < 1:
        p.error("counts must be at least 1")
    check_model(p, args)
    both = ["--threads", str(worker_threads(args))]
    prefill, decode = worker_cores(worker_threads(args))
    out = describe(args, ("load", "output_tokens", "requests", "draft_tokens", "draft", "temperature"))
    progress = Progress(2 * args.requests * len(loads) * len(args.concurrency), args.json)
    load = Load()
    with Cluster(args.model, kv_memory="1g", worker_args=both + ["--draft", "off"], prefill_args=prefill, decode_args=decode) as off, \
            Cluster(args.model, kv_memory="1g", worker_args=both + ["--draft", args.draft, "--draft-tokens", str(args.draft_tokens)],
                    prefill_args=prefill, decode_args=decode) as on:
        for cluster in (off, on):
            warm_up(cluster)
        with load.during(pids_of(off, on)):
            out["rows"] = [row_of(args, off, on, name, n, progress.step) for name in loads for n in args.concurrency]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
