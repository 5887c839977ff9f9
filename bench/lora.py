#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do many adapters in one batch cost, against the model alone?

Usage: ./baton bench lora [options]
  --cases LIST     RANK-TARGETS; targets are qv (queries and values), attention or all
                   (default 8-attention,16-attention,16-all)
  --clients N      sequences that decode together, each with an adapter of its own (default 32)
  --max-tokens N   of each answer (default 96)
  --turns N        times that each is measured, in turn with the model alone (default 5)
  --model PATH     another model of the llama family
  --shape NAME     instead, random weights: some layers of an 8B model's widths (8b)
  --layers N       of random weights (default 2)
  --type NAME      of random weights (default Q4_K_M)
  --threads N      (default: as many as there are cores)
  --seed N         of prompts and adapters (default 1)
  --svg FILE       draw it, as SVG
  --out FILE       write all of it as JSON too
  --json           one JSON object instead of the table

One worker for both phases; adapters are random matrices of bf16. Each turn asks for
as many answers at once: with the model alone, with one adapter for all of them, and
with an adapter for each. From the last first token to the first end all of them decode.

  tokens/s  while all decode, in the middle of the turns
  share     of the model alone, in the same turn; in the middle of the turns
  of CPU time  CPU time of the model alone by that with adapters: with --threads 1
            what a machine that nobody else uses would show
"""
import asyncio
import json
import os
import random
import struct
import sys
import tempfile

import _random_models
from _cluster import Client, Cluster, no_collector, pids_of, warm_up
from _shared import ROOT, Load, add_model_option, build, check_model, describe, finish, median, own_ticks, parser, show_machine
from charts import Bars

sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from adapters import ATTENTION, MODULES, model_shape  # noqa: E402

TARGETS = {"qv": ("self_attn.q_proj", "self_attn.v_proj"), "attention": ATTENTION, "all": tuple(MODULES)}
KINDS = ("model", "one adapter", "one for each")
HIGH = bytes(0x3C if b & 1 else 0xBC for b in range(256))  # bf16 from 2^-7 to 2^-5, of either sign


def numbers(rng, n):
    out = bytearray(2 * n)
    out[0::2] = rng.randbytes(n)
    out[1::2] = rng.randbytes(n).translate(HIGH)
    return bytes(out)


def write_adapter(folder, shape, rank, targets, seed):
    """Random bf16 matrices, so small that the model still answers."""
    os.makedirs(folder)
    rng = random.Random(seed)
    sizes = {"dim": shape["dim"], "ffn": shape["ffn"], "kv": shape["kv"]}
    header, data, at = {}, [], 0
    for layer in range(shape["layers"]):
        for module in TARGETS[targets]:
            _, n_in, n_out = MODULES[module]
            for side, dims in (("A", (rank, sizes[n_in])), ("B", (sizes[n_out], rank))):
                raw = numbers(rng, dims[0] * dims[1])
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{side}.weight"] = {
                    "dtype": "BF16", "shape": dims, "data_offsets": [at, at + len(raw)]}
                data.append(raw)
                at += len(raw)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank / 16}, f)
    return at


def rate_of(client, models):
    """@return tokens per second while all decode"""
    requests = [client.request(32, **({"model": m} if m else {})) for m in models]

    async def run():
        return await asyncio.gather(*(client.send(r) for r in requests))

    with no_collector():
        answers = asyncio.run(run())
    times = [a.read().times[:-1] for a in answers]
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    if begin >= end:
        raise SystemExit("not all decode together: give more --max-tokens")
    return sum(1 for t in times for x in t if begin < x <= end) / (end - begin)


def measure(case, shape, args, load):
    rank, _, targets = case.partition("-")
    with tempfile.TemporaryDirectory() as folder:
        names = [f"a{i}" for i in range(args.clients)]
        options, n_bytes = [], 0
        for i, name in enumerate(names):
            path = os.path.join(folder, name)
            n_bytes = write_adapter(path, shape, int(rank), targets, args.seed + i)
            options.append(f"--lora={name}={path}")
        threads = args.threads or len(os.sched_getaffinity(0))
        with Cluster(args.model, prefill=0, kv_memory="1g", worker_args=["--threads", str(threads), "--draft", "off",
                                                                         "--prefix-cache", "off", *options],
                     decode_args=["--local-prefill"], router_args=["--out-of-vocabulary-ids", "modulo", *options]) as c:
            warm_up(c)
            client = Client(c.http, args.seed, args.max_tokens)
            models = {"model": [None] * args.clients, "one adapter": names[:1] * args.clients, "one for each": names}
            rates, ticks = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}
            pids = [c.decodes[0].pid]
            with load.during(pids_of(c)):
                rate_of(client, models["one for each"])
                for _ in range(args.turns):
                    for kind in KINDS:
                        before = own_ticks(pids)
                        rates[kind].append(rate_of(client, models[kind]))
                        ticks[kind].append(own_ticks(pids) - before)
    return [{"case": case, "kind": kind, "adapter_bytes": n_bytes, "tokens_per_s": median(rates[kind]),
             "share": median([a / b for a, b in zip(rates[kind], rates["model"])]),
             "cpu_share": median([b / a for a, b in zip(ticks[kind], ticks["model"])])} for kind in KINDS]


def show(out):
    show_machine(out)
    print(f"{'rank-targets':16}{'MB each':>9}{'adapters':>16}{'tokens/s':>10}{'share':>8}{'of CPU time':>13}")
    for row in out["rows"]:
        print(f"{row['case']:16}{row['adapter_bytes'] / 1e6:9.2f}{row['kind']:>16}{row['tokens_per_s']:10.0f}{row['share']:8.1%}{row['cpu_share']:13.1%}")


def panels(out):
    cases = list(dict.fromkeys(row["case"] for row in out["rows"]))
    return [Bars("Many adapters in one batch", "tokens/s, of the model alone", cases,
                 [(kind, [row["share"] for row in out["rows"] if row["kind"] == kind]) for kind in KINDS[1:]])]


def parse():
    p = parser("lora", __doc__)
    p.add_argument("--cases", default="8-attention,16-attention,16-all")
    for name, default in (("clients", 32), ("max-tokens", 96), ("turns", 5)):
        p.add_argument("--" + name, type=int, default=default)
    add_model_option(p)
    p.add_argument("--shape", choices=("8b",))
    p.add_argument("--layers", type=int)
    p.add_argument("--type", choices=tuple(_random_models.TYPES), default="Q4_K_M")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if min(args.clients, args.max_tokens, args.turns, args.layers or 1) <= 0:
        p.error("counts must be above 0")
    for case in args.cases.split(","):
        rank, _, targets = case.partition("-")
        if not rank.isdigit() or targets not in TARGETS:
            p.error(f"--cases: {case} is not RANK-qv, RANK-attention or RANK-all")
    if not args.shape:
        check_model(p, args, " or --shape 8b")
    return args


def main():
    args = parse()
    if args.shape:
        build("tiny-model")
        args.model = _random_models.random_model(args.shape, args.type, args.layers)
    out = describe(args, ("clients", "max_tokens", "seed", *(("shape", "layers", "type") if args.shape else ())))
    load = Load()
    shape = model_shape(args.model)
    out["rows"] = [row for case in args.cases.split(",") for row in measure(case, shape, args, load)]
    out.update(load.figures())
    finish(args, out, show, panels)


if __name__ == "__main__":
    main()
