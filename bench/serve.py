#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How quick is serving, as a client sees it?

Usage: ./baton bench serve [options]
  --prompt-tokens N   tokens of each prompt (default 256)
  --output-tokens N   tokens of each answer (default 128)
  --concurrency N     clients at a time (default 4)
  --requests N        requests in all (default 8 x concurrency)
  --http ADDR:PORT    a running server; without it a cluster is started with the
                      default model on free ports of this host
  --model PATH        another model for the cluster that is started
  --threads N         threads of each worker started (default: share the cores)
  --local-prefill N   the decode worker takes a share of queued prompts, in steps of N
                      tokens (default 0: none)
  --n N               one client, and N choices of a prompt in turn with one: the
                      prompt is computed once, so TTFT is the same (default: off)
  --seed N            of the prompts (default 1)
  --engine            measure the engine alone too, before and after, with all cores:
                      what serving would reach if nothing but the model's passes
                      took time, and the cores were always shared as they should be
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

Prints time to first token (TTFT), inter-token latency (ITL) and tokens per
second. Prompts are different token sequences of exact length, answers have
exact length (ignore_eos), so equal options mean equal work. The load line tells
what else the machine was doing: figures of a busy machine are not to be quoted.
"""
import asyncio
import os
import statistics

from _cluster import Client, Cluster, pids_of, warm_up, worker_cores, worker_threads
from _shared import (Half, Load, Progress, add_model_option, build, check_model, describe, finish, parser, percentile,
                     show_machine, timed)
from charts import Bars

ENGINE_AFTER = 128  # tokens that a sequence of the engine's decode holds, as in bench/engine.py
ENGINE_STEPS = 32
ENGINE_CHUNK = 512
# Time for each of its figures, before and after: the machine changes its mind within seconds, and serving meets all of
# its states; hence means too, not medians.
ENGINE_MS = 6000


def figures(results, seconds, args):
    ttft = [1e3 * (s.times[0] - s.started) for s in results]
    itl = [1e3 * (b - a) for s in results for a, b in zip(s.times, s.times[1:-1])]
    whole = [1e3 * (s.times[-1] - s.started) for s in results]
    out = {"requests": len(results), "seconds": seconds,
           "output_tokens_per_s": len(results) * args.output_tokens / seconds,
           "prompt_tokens_per_s": len(results) * args.prompt_tokens / seconds}
    for name, values in (("ttft_ms", ttft), ("itl_ms", itl), ("request_ms", whole)):
        out[name] = {f"p{p}": percentile(values, p) for p in (50, 90, 99)}
    per_stream = [args.output_tokens / (s.times[-1] - s.started) for s in results]
    out["tokens_per_s_per_stream"] = {f"p{p}": percentile(per_stream, p) for p in (50, 99)}
    return out


def in_turn(address, args, step):
    """Requests for one choice and for --n of them, alternating. @return {n: streams}"""
    client = Client(address, args.seed, args.output_tokens)
    out = {1: [], args.n: []}

    async def run():
        for i in range(args.requests):
            for n in (1, args.n) if i % 2 == 0 else (args.n, 1):
                request = client.request(args.prompt_tokens, n=n, temperature=1.0, seed=i)
                out[n].append((await client.send(request)).read())
            step()
    asyncio.run(run())
    return out


def first_of_each(stream):
    """@return seconds until the last of its choices has begun"""
    begun = {}
    for event, at in zip(stream.events, stream.times):
        for choice in event.get("choices", []):
            begun.setdefault(choice["index"], at)
    return max(begun.values()) - stream.started


def choices_figures(results):
    out = {"choices": max(results)}
    for n, streams in results.items():
        for name, values in (("ttft_ms", [s.times[0] - s.started for s in streams]),
                             ("ttft_all_ms", [first_of_each(s) for s in streams]),
                             ("request_ms", [s.times[-1] - s.started for s in streams])):
            out[f"n{n}_{name}"] = {f"p{p}": 1e3 * percentile(values, p) for p in (50, 90, 99)}
    # Of each pair of neighbours, since the machine is not the same all the time.
    firsts = [[s.times[0] - s.started for s in streams] for streams in results.values()]
    out["ttft_ratio_percent"] = 100 * percentile([b / a for a, b in zip(*firsts)], 50) - 100
    return out


def engine_times(args):
    """@return seconds that one token of a prompt takes, and one of a decode of all clients, with all cores: samples"""
    half = Half([build("engine-run"), args.model, len(os.sched_getaffinity(0)), "bf16", ENGINE_CHUNK, args.prompt_tokens,
                 args.concurrency, ENGINE_AFTER, ENGINE_STEPS, 1, "auto"])
    half.read()
    times = {}
    for kind, n, tokens in (("prefill", args.prompt_tokens, args.prompt_tokens),
                            ("decode", args.concurrency, args.concurrency * ENGINE_STEPS)):
        half.ask(kind, n)
        times[kind] = [s / tokens for s in timed(lambda k=kind, m=n: half.ask(k, m), ENGINE_MS)]
    half.close()
    return times


def engine_figures(samples, args, served):
    """samples: of engine_times(). The bound: output tokens / (time of a prompt + time of an answer)."""
    prefill, decode = (statistics.mean(t for s in samples for t in s[kind]) for kind in ("prefill", "decode"))
    bound = args.output_tokens / (args.prompt_tokens * prefill + args.output_tokens * decode)
    return {"prefill_tokens_per_s": 1 / prefill, "decode_tokens_per_s": 1 / decode,
            "bound_tokens_per_s": bound, "served_percent": 100 * served / bound}


def panels(out):
    def value(f):
        return f["p50"], None, f["p99"]

    if "choices" in out:
        parts = (("ttft_ms", "first token"), ("ttft_all_ms", "all begun"), ("request_ms", "whole request"))
        return [Bars("Times of a request: p50, up to p99", "ms", [label for _, label in parts],
                     [(f"n = {n}", [value(out[f"n{n}_{name}"]) for name, _ in parts]) for n in (1, out["choices"])])]
    rates = [("output", out["output_tokens_per_s"]), ("prompt", out["prompt_tokens_per_s"])]
    if "engine" in out:
        rates.append(("output, of the engine's bound", out["engine"]["bound_tokens_per_s"]))
    parts = (("ttft_ms", "first token"), ("itl_ms", "between tokens"), ("request_ms", "whole request"))
    return [Bars("Times of a request: p50, up to p99", "ms", [label for _, label in parts], [("time", [value(out[name]) for name, _ in parts])]),
            Bars("Tokens a second", "tokens/s", [name for name, _ in rates], [("rate", [rate for _, rate in rates])])]


def parse():
    p = parser("serve", __doc__)
    p.add_argument("--prompt-tokens", type=int, default=256)
    p.add_argument("--output-tokens", type=int, default=128)
    p.add_argument("--concurrency", type=int, default=4)
    p.add_argument("--requests", type=int, default=0)
    p.add_argument("--http", default="")
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--local-prefill", type=int, default=0)
    p.add_argument("--n", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--engine", action="store_true")
    args = p.parse_args()
    args.requests = args.requests or 8 * args.concurrency
    if min(args.prompt_tokens, args.output_tokens, args.concurrency, args.requests) < 1:
        p.error("counts must be at least 1")
    if args.n == 1:
        p.error("--n is at least 2")
    if args.n and args.engine:
        p.error("--engine is not for --n")
    if args.http and args.engine:
        p.error("--engine measures the cores of this host: not beside a running server")
    if not args.http:
        check_model(p, args, ", or --http ADDR:PORT of a running server")
    return args


def worker_args(args):
    """@return of both workers, of the prefill worker, of the decode worker"""
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    # A group of choices gets half of the seats at most.
    decode = decode + ["--max-batch-size", str(min(max(args.concurrency, 4, 2 * args.n), 256))]
    if args.local_prefill:
        decode += ["--local-prefill", "--chunk-tokens", str(args.local_prefill)]
    return ["--threads", str(threads)], prefill, decode


def run(address, args, cluster):
    """@return figures with the load of the machine during the run; cluster: None when others started it"""
    client = Client(address, args.seed, args.output_tokens)
    progress = Progress(args.requests, args.json)
    load = Load()
    with load.during(pids_of(cluster) if cluster else None):
        if args.n:
            results = in_turn(address, args, progress.step)
        else:
            results, seconds = client.closed(args.prompt_tokens, args.requests, args.concurrency, progress.step)
    out = describe(args, ("prompt_tokens", "output_tokens", "concurrency", "requests", "local_prefill", "seed") + (("n",) if args.n else ()))
    out.update(load.figures(), **(choices_figures(results) if args.n else figures(results, seconds, args)))
    if not cluster:
        del out["cpu_others_percent"]  # the server would be among them
    return out


def show_choices(out):
    n_choices = out["choices"]
    for n in (1, n_choices):
        for name, label in (("ttft_ms", "TTFT"), ("ttft_all_ms", "all begun"), ("request_ms", "whole")):
            print(f"{f'n = {n}, {label} ms':24}" +
                  "".join(f"{out[f'n{n}_{name}'][p]:10.1f}" for p in ("p50", "p90", "p99")))
    print(f"TTFT of n = {n_choices} to that of one, in turn: {out['ttft_ratio_percent']:+.1f} %")


def show(out):
    show_machine(out)
    print(f"{'':24}{'p50':>10}{'p90':>10}{'p99':>10}")
    if "choices" in out:
        show_choices(out)
        return
    for name, label in (("ttft_ms", "TTFT ms"), ("itl_ms", "ITL ms"), ("request_ms", "whole request ms")):
        print(f"{label:24}" + "".join(f"{out[name][p]:10.1f}" for p in ("p50", "p90", "p99")))
    print(f"{'tokens/s per stream':24}{out['tokens_per_s_per_stream']['p50']:10.1f}{'':10}"
          f"{out['tokens_per_s_per_stream']['p99']:10.1f}")
    print(f"{'output tokens/s':24}{out['output_tokens_per_s']:10.1f}")
    print(f"{'prompt tokens/s':24}{out['prompt_tokens_per_s']:10.1f}")
    if "engine" in out:
        e = out["engine"]
        print(f"engine    prefill {e['prefill_tokens_per_s']:.0f} tok/s, decode {e['decode_tokens_per_s']:.0f} tok/s: at "
              f"most {e['bound_tokens_per_s']:.0f} output tokens/s, of which {e['served_percent']:.1f} % are served")


def main():
    args = parse()
    if args.http:
        host, _, port = args.http.rpartition(":")
        out = run((host, int(port)), args, None)
    else:
        samples = [engine_times(args)] if args.engine else []
        both, prefill, decode = worker_args(args)
        with Cluster(args.model, kv_memory="1g", worker_args=both, prefill_args=prefill, decode_args=decode) as c:
            warm_up(c)
            out = run(c.http, args, c)
        if args.engine:
            samples.append(engine_times(args))
            out["engine"] = engine_figures(samples, args, out["output_tokens_per_s"])
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
