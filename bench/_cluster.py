# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of a whole cluster share: starting it, and being its client."""
import asyncio
import contextlib
import ctypes
import gc
import json
import os
import random
import socket
import struct
import sys
import time

from _shared import ROOT, own_ticks

sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from attackers import Attacker, LogReader, NAMES, POOL_NAMES, WITHOUT  # noqa: E402, F401
import harness  # noqa: E402
from harness import BUILD, PROGRAMS, Stream, free_port, wait_until  # noqa: E402, F401
from hosts import Network  # noqa: E402, F401

SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine, -1)


def worker_threads(args, n_workers=2):
    """@return the threads of each worker: --threads, or an equal share of the cores"""
    return args.threads or max(1, len(os.sched_getaffinity(0)) // n_workers)


def worker_cores(threads):
    """@return options of the prefill and of the decode worker: cores of their own, and the other's while that has no
    work, as the launcher deals them out; none where there are not enough"""
    cores = [str(c) for c in sorted(os.sched_getaffinity(0))]
    if 2 * threads > len(cores):
        return [], []
    first, second = ",".join(cores[:threads]), ",".join(cores[threads:2 * threads])
    return ["--cores", first, "--borrowed-cores", second], ["--cores", second, "--borrowed-cores", first]


class Cluster(harness.Cluster):
    """As the launcher starts one: where every worker has cores of its own the router is told so."""

    def __init__(self, *args, prefill_args=(), decode_args=(), router_args=(), **more):
        if "--cores" in prefill_args and "--cores" in decode_args:
            router_args = [*router_args, "--workers-pinned"]
        super().__init__(*args, prefill_args=list(prefill_args), decode_args=list(decode_args), router_args=list(router_args), **more)


def brief():
    """This thread, and processes that it starts, get a core as soon as there is something for them, like a client with
    a machine of its own, and not when a computing thread's slice is over. Linux 6.12 and later; what common/base/thread.h
    does for the router and for workers."""
    attr = struct.pack("=IIQiIQQQ", 48, 0, 0, 0, 0, 2000000, 0, 0)
    ctypes.CDLL(None, use_errno=True).syscall(SYS_SCHED_SETATTR, 0, attr, 0)


def pids_of(*clusters):
    """For Load.during(): this process and those of the clusters."""
    return lambda: [os.getpid()] + [p.pid for c in clusters for p in c.processes]


def warm_up(cluster, headers=None):
    """One request, and what workers do in idle moments of their own: their KV pools get memory."""
    status, _, data = cluster.request("POST", "/v1/completions", {"prompt": "warm up", "max_tokens": 8, "temperature": 0}, headers)
    if status != 200:
        raise SystemExit(f"the first request fails: {data.decode(errors='replace')}")
    rest(cluster)


def rest(cluster):
    """Wait until the cluster's processes take less than a tenth of a core."""
    pids = [p.pid for p in cluster.processes]
    wait_until("the cluster rests", lambda: ticks_within(pids, 0.5) <= 5, 120)


def ticks_within(pids, seconds):
    before = own_ticks(pids)
    time.sleep(seconds)
    return own_ticks(pids) - before


def without_chunks(pieces):
    """Of a body in chunks (RFC 9112, 7.1), which some servers send to HTTP/1.0 too. @return what was in them, and when it came"""
    out, buffered, left = [], b"", 0
    for when, piece in pieces:
        buffered += piece
        got = b""
        while buffered:
            if left > 0:
                got, buffered, left = got + buffered[:left], buffered[left:], left - min(left, len(buffered))
                continue
            size, end, rest = buffered.lstrip(b"\r\n").partition(b"\r\n")
            if not end:
                break
            left, buffered = int(size, 16), rest
            if left == 0:
                return out + [(when, got)]
        out.append((when, got))
    return out


def split_head(pieces):
    """@return the head, and the pieces of the body"""
    data = b""
    for i, (when, piece) in enumerate(pieces):
        data += piece
        if b"\r\n\r\n" in data:
            head, _, body = data.partition(b"\r\n\r\n")
            return head, [(when, body)] + pieces[i + 1:]
    return data, []


class Answer(asyncio.Protocol):
    """A streamed answer. While it comes only what came and when is kept, for the client is on the cores that it measures;
    what it says is read afterwards."""

    def __init__(self, request):
        self.request, self.pieces, self.ended = request, [], asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.started = time.monotonic()
        transport.write(self.request)

    def data_received(self, data):
        self.pieces.append((time.monotonic(), data))

    def connection_lost(self, exc):
        self.ended.set_result(None)

    def read(self):
        """The events, and when the last byte of each came. @return self"""
        head, pieces = split_head(self.pieces)
        if b"chunked" in head.lower():
            pieces = without_chunks(pieces)
        body = b"".join(piece for _, piece in pieces)
        events = body.split(b"\n\n")[:-1]
        if not head.startswith(b"HTTP/1.1 200 ") or events[-1:] != [b"data: [DONE]"] or b'"error"' in body:
            raise SystemExit(f"a request failed: {(head + body)[-1000:].decode(errors='replace')}")
        self.events = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1] if not event.startswith(b":")]
        self.times, pieces, at, got = [], iter(pieces), 0, 0
        for event in events:
            at += len(event) + 2
            while got < at:
                when, piece = next(pieces)
                got += len(piece)
            if not event.startswith(b":"):  # a comment
                self.times.append(when)
        return self


@contextlib.contextmanager
def no_collector():
    """Python's collector would stop the client for milliseconds."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Client:
    """Sends prompts that nobody has seen before, for answers of exact length."""

    def __init__(self, address, seed, output_tokens):
        self.address, self.output_tokens = address, output_tokens
        self.rng = random.Random(seed)

    def request(self, n_prompt, **more):
        """HTTP/1.0, so that nothing but events is between the head and the end. @return its bytes"""
        body = json.dumps({"prompt": [self.rng.randrange(1000, 20000) for _ in range(n_prompt)],
                           "max_tokens": self.output_tokens, "temperature": 0, "ignore_eos": True, "stream": True, **more})
        return (f"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}").encode()

    async def send(self, request):
        _, answer = await asyncio.get_running_loop().create_connection(lambda: Answer(request), *self.address)
        await answer.ended
        return answer

    def closed(self, n_prompt, n_requests, n_clients, step=lambda: None):
        """So many clients, each with one request at a time. step: called after each. @return (answers, seconds)"""
        async def run():
            todo = iter([self.request(n_prompt) for _ in range(n_requests)])
            out = []

            async def client():
                for request in todo:
                    out.append(await self.send(request))
                    step()

            start = time.monotonic()
            await asyncio.gather(*(client() for _ in range(n_clients)))
            return out, time.monotonic() - start

        with no_collector():
            answers, seconds = asyncio.run(run())
        return [answer.read() for answer in answers], seconds

    def open(self, n_prompt, n_requests, rate):
        """Requests arrive at random (Poisson), so many per second. @return answers"""
        async def run():
            todo = [(self.rng.expovariate(rate), self.request(n_prompt)) for _ in range(n_requests)]
            tasks = []
            at = time.monotonic()
            for wait, request in todo:
                at += wait
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                tasks.append(asyncio.create_task(self.send(request)))
            return await asyncio.gather(*tasks)

        with no_collector():
            answers = asyncio.run(run())
        return [answer.read() for answer in answers]
