#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do cancelled requests, reused prefixes and clients that leave cost the others?

Usage: ./baton bench robustness [options]
  --only NAME,...     parts (default: all): cancelled, cached, disconnected
  --peer ADDR:PORT    another server of OpenAI's API that is running, for the same requests of
                      the parts cancelled and cached
  --long-tokens N     cancelled: tokens of each long prompt (default 4000)
  --cancels N         cancelled: long prompts at a time (default 10)
  --rounds N          cancelled: how often they are sent and cancelled (default 3)
  --shared-tokens N   cached: the prompt that others share a beginning with (default 512)
  --leaves N          disconnected: clients that leave (default 400)
  --vocabulary N      token ids of prompts are below N (default 20000)
  --kv-memory SIZE    KV pool of each worker (default 1g, the default of serve)
  --model PATH        another model
  --threads N         threads of each worker (default: share the cores)
  --seed N            of the prompts (default 1)
  --svg FILE          draw it, as SVG
  --out FILE          write all of it as JSON too
  --json              one JSON object instead of the table

cancelled: the time to the first token (TTFT) of a prompt of 64 tokens, alone, and right after
long prompts were cancelled by closing their connections, one second after they were sent.
cached: the same prompt computed whole (a cache_salt of its own) and with a prefix that an
earlier prompt left in the cache, cut around each boundary of 16 tokens; ids and log-probs of 16
greedy tokens are compared byte by byte. disconnected: clients that close or reset their
connection at any moment up to twice the TTFT, streams and whole answers; then what the workers
still hold is counted.
"""
import asyncio
import contextlib
import http.client
import json
import random
import socket
import struct
import time

from _cluster import Answer, Cluster, no_collector, pids_of, wait_until, warm_up, worker_cores, worker_threads
from _shared import Load, Progress, add_model_option, check_model, describe, finish, median, parser, show_machine
from charts import Bars
from harness import open_fds

PARTS = ("cancelled", "cached", "disconnected")
SHORT_TOKENS, SHORT_ALONE, SHORT_AFTER = 64, 15, 5
SETTLE_S = 1.0   # until the long prompts are under way, and between rounds
BLOCK = 16       # tokens of a KV block, here and of vLLM
ANSWER = 16      # tokens of answers that are compared


class Server:
    """An address that speaks OpenAI's API, and prompts of token ids that nobody has sent it before."""

    def __init__(self, name, address, args):
        self.name, self.address, self.rng = name, address, random.Random(args.seed)
        self.vocabulary = args.vocabulary
        status, answer = self.exchange("GET", "/v1/models")
        if status != 200 or not answer.get("data"):
            raise SystemExit(f"{name}: GET /v1/models answers {status}")
        self.model = answer["data"][0]["id"]

    def exchange(self, method, path, body=None):
        connection = http.client.HTTPConnection(*self.address, timeout=600)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def ids(self, n):
        return [self.rng.randrange(self.vocabulary // 20, self.vocabulary) for _ in range(n)]  # the first are control tokens

    def body(self, ids, n, **more):
        return {"model": self.model, "prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": True, **more}

    def complete(self, ids, n, **more):
        status, answer = self.exchange("POST", "/v1/completions", self.body(ids, n, **more))
        if status != 200:
            raise SystemExit(f"{self.name}: {answer}")
        return answer

    def bytes_of(self, ids, n, version="1.1", **more):
        body = json.dumps(self.body(ids, n, **more))
        return (f"POST /v1/completions HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}").encode()

    def begin(self, ids, n, **more):
        """@return the connection on which a request was sent"""
        connection = socket.create_connection(self.address)
        connection.sendall(self.bytes_of(ids, n, **more))
        return connection

    def ttft(self, n_prompt):
        """@return seconds to the first token of a stream"""
        async def run():
            request = self.bytes_of(self.ids(n_prompt), 2, "1.0", stream=True)
            _, answer = await asyncio.get_running_loop().create_connection(lambda: Answer(request), *self.address)
            await answer.ended
            return answer
        answer = asyncio.run(run()).read()
        return answer.times[0] - answer.started


# --- the parts


def cancelled(server, args, step):
    alone = [server.ttft(SHORT_TOKENS) for _ in range(SHORT_ALONE)]
    one_long = server.ttft(args.long_tokens)
    first, later = [], []
    for _ in range(args.rounds):
        running = [server.begin(server.ids(args.long_tokens), 64, stream=True) for _ in range(args.cancels)]
        time.sleep(SETTLE_S)
        for connection in running:
            connection.close()
        first.append(server.ttft(SHORT_TOKENS))
        later += [server.ttft(SHORT_TOKENS) for _ in range(SHORT_AFTER - 1)]
        time.sleep(SETTLE_S)
        step()
    return {"server": server.name, "alone_p50_ms": 1e3 * median(alone), "alone_max_ms": 1e3 * max(alone),
            "long_ms": 1e3 * one_long, "first_ms": [1e3 * x for x in first], "later_p50_ms": 1e3 * median(later)}


def cuts_of(n):
    return [k for k in range(1, n + 1) if k % BLOCK in (0, 1, BLOCK - 1)]


def said(answer):
    """Of an answer: what it says, with all digits of its log-probs."""
    return json.dumps([answer["choices"][0]["text"], answer["choices"][0]["logprobs"]], sort_keys=True)


def cached(server, args, step):
    shared = server.ids(args.shared_tokens)
    server.complete(shared, 1)  # leaves its KV blocks in the cache
    cuts, unequal, reused, prompts = cuts_of(args.shared_tokens), 0, 0, 0
    for i, k in enumerate(cuts):
        prompt = shared[:k] + server.ids(8)
        cold = server.complete(prompt, ANSWER, logprobs=2, cache_salt=f"cold {args.seed} {i} {server.rng.random()}")
        warm = server.complete(prompt, ANSWER, logprobs=2)
        unequal += said(cold) != said(warm)
        reused += ((warm["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        prompts += len(prompt)
        step()
    return {"server": server.name, "cuts": len(cuts), "unequal": unequal, "prompt_tokens": prompts, "reused_tokens": reused}


def descriptors(cluster):
    return sum(open_fds(p.pid) for p in cluster.processes)


def held(cluster, most_descriptors=1 << 30):
    """What the cluster holds for requests, once everything has come back, or after a minute."""
    with contextlib.suppress(AssertionError):
        cluster.wait_idle()
    values = cluster.metrics()
    # Not while the connection that told the metrics may still be open.
    with contextlib.suppress(AssertionError):
        wait_until("connections are closed", lambda: descriptors(cluster) <= most_descriptors)
    return {"blocks": sum(v for k, v in values.items() if 'kv_cache_block_type="used"' in k),
            "seats": sum(v for k, v in values.items() if k.startswith("nv_trt_llm_request_metrics") and 'request_type="active"' in k),
            "leases": sum(v for k, v in values.items() if k.startswith("baton_kv_leases")),
            "descriptors": descriptors(cluster)}


def leave(server, i, after, n_prompt):
    """One client that leaves: by RST or FIN, whole or streamed."""
    connection = server.begin(server.ids(n_prompt), 64, stream=i % 2 == 0)
    time.sleep(after)
    if i % 4 >= 2:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def disconnected(server, cluster, args, step):
    prompt = server.ids(SHORT_TOKENS)
    before = said(server.complete(prompt, ANSWER, logprobs=2))
    ttft = median([server.ttft(SHORT_TOKENS) for _ in range(SHORT_ALONE)])
    at_rest = held(cluster, descriptors(cluster))
    for i in range(args.leaves):
        leave(server, i, 2 * ttft * i / args.leaves, SHORT_TOKENS)
        step()
    left = {k: max(0, v - at_rest[k]) for k, v in held(cluster, at_rest["descriptors"]).items()}
    return {"server": server.name, "leaves": args.leaves, "ttft_ms": 1e3 * ttft, "leaked": left,
            "equal_after": said(server.complete(prompt, ANSWER, logprobs=2)) == before,
            "ended": [p.name for p in cluster.processes if not p.alive()]}


def measure(server, cluster, args, step):
    out = {}
    with no_collector():
        if "cancelled" in args.only:
            out["cancelled"] = cancelled(server, args, step)
        if "cached" in args.only:
            out["cached"] = cached(server, args, step)
        if "disconnected" in args.only and cluster:
            out["disconnected"] = disconnected(server, cluster, args, step)
    return out


# --- the whole


def address(text):
    host, _, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    if not host:
        raise ValueError
    return host, int(port)


def parse():
    p = parser("robustness", __doc__)
    p.add_argument("--only", default=",".join(PARTS))
    p.add_argument("--peer", type=address)
    for name, default in (("long-tokens", 4000), ("cancels", 10), ("rounds", 3), ("shared-tokens", 512), ("leaves", 400), ("vocabulary", 20000)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--kv-memory", default="1g")
    add_model_option(p)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    args.only = args.only.split(",")
    strange = [name for name in args.only if name not in PARTS]
    if strange:
        p.error(f"no part {strange[0]}")
    if min(args.long_tokens, args.cancels, args.rounds, args.shared_tokens, args.leaves) < 1:
        p.error("counts must be at least 1")
    check_model(p, args)
    return args


def steps_of(args):
    once = ("cancelled" in args.only) * args.rounds + ("cached" in args.only) * len(cuts_of(args.shared_tokens))
    return once * (2 if args.peer else 1) + ("disconnected" in args.only) * args.leaves


def run(args):
    threads = worker_threads(args)
    prefill, decode = worker_cores(threads)
    progress, load = Progress(max(1, steps_of(args)), args.json), Load()
    with Cluster(args.model, kv_memory=args.kv_memory, worker_args=["--threads", str(threads)], prefill_args=prefill,
                 decode_args=decode) as cluster:
        warm_up(cluster)
        with load.during(pids_of(cluster)):
            servers = [measure(Server("baton", cluster.http, args), cluster, args, progress.step)]
    if args.peer:
        servers.append(measure(Server("peer", args.peer, args), None, args, progress.step))
    out = describe(args, ("only", "long_tokens", "cancels", "rounds", "shared_tokens", "leaves", "vocabulary", "kv_memory", "threads",
                          "seed"))
    out.update(load.figures(), **{name: [s[name] for s in servers if name in s] for name in args.only})
    return out


def show(out):
    show_machine(out)
    if out.get("cancelled"):
        print(f"{'TTFT ms of a short prompt':28}{'alone p50':>10}{'max':>9}{'first after cancelled':>23}{'later p50':>11}{'one long':>10}")
    for r in out.get("cancelled", ()):
        print(f"{r['server']:28}{r['alone_p50_ms']:10.1f}{r['alone_max_ms']:9.1f}"
              f"{' '.join(f'{x:.1f}' for x in r['first_ms']):>23}{r['later_p50_ms']:11.1f}{r['long_ms']:10.0f}")
    if out.get("cached"):
        print(f"{'cold and with a reused prefix':34}{'prompts':>9}{'unequal':>9}{'tokens':>9}{'reused':>9}")
    for r in out.get("cached", ()):
        print(f"{r['server']:34}{r['cuts']:9}{r['unequal']:9}{r['prompt_tokens']:9}{r['reused_tokens']:9}")
    for r in out.get("disconnected", ()):
        print(f"{r['leaves']} clients left within {2 * r['ttft_ms']:.0f} ms of their requests; still held: "
              + ", ".join(f"{v:.0f} {k}" for k, v in r["leaked"].items())
              + f"; the same answer as before: {'yes' if r['equal_after'] else 'NO'}"
              + "".join(f"; {name} ENDED" for name in r["ended"]))


def panels(out):
    rows = out.get("cancelled", [])
    names = [r["server"] for r in rows]
    drawn = [Bars("Time to the first token of a short prompt", "ms", names,
                  [("alone", [(r["alone_p50_ms"], r["alone_p50_ms"], r["alone_max_ms"]) for r in rows]),
                   ("first after long prompts were cancelled",
                    [(median(r["first_ms"]), min(r["first_ms"]), max(r["first_ms"])) for r in rows])])] if rows else []
    rows = out.get("cached", [])
    if rows:
        drawn.append(Bars("Tokens of prompts, and of those reused", "tokens", [r["server"] for r in rows],
                          [("prompts", [r["prompt_tokens"] for r in rows]), ("reused", [r["reused_tokens"] for r in rows])]))
    return drawn


if __name__ == "__main__":
    ARGS = parse()
    finish(ARGS, run(ARGS), show, panels)
