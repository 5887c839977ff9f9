# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of a whole cluster share: starting it, and being its client."""
import asyncio
import ctypes
import os
import random
import struct
import sys
import time

from _shared import ROOT, own_ticks

sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from attackers import Attacker, LogReader, NAMES  # noqa: E402, F401
from harness import BUILD, PROGRAMS, Cluster, Stream, free_port, wait_until  # noqa: E402, F401
from hosts import Network  # noqa: E402, F401

SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine, -1)


def worker_threads(args, n_workers=2):
    """@return the threads of each worker: --threads, or an equal share of the cores"""
    return args.threads or max(1, len(os.sched_getaffinity(0)) // n_workers)


def worker_cores(threads):
    """@return options of the prefill and of the decode worker: cores of their own, as the launcher deals them out; none
    where there are not enough"""
    cores = sorted(os.sched_getaffinity(0))
    if 2 * threads > len(cores):
        return [], []
    return tuple(["--cores", ",".join(str(c) for c in cores[at:at + threads])] for at in (0, threads))


def brief():
    """This thread, and processes that it starts, get a core as soon as there is something for them, like a client with
    a machine of its own, and not when a computing thread's slice is over. Linux 6.12 and later; what common/base/thread.h
    does for the router and for workers."""
    attr = struct.pack("=IIQiIQQQ", 48, 0, 0, 0, 0, 2000000, 0, 0)
    ctypes.CDLL(None, use_errno=True).syscall(SYS_SCHED_SETATTR, 0, attr, 0)


def pids_of(*clusters):
    """For Load.during(): this process and those of the clusters."""
    return lambda: [os.getpid()] + [p.pid for c in clusters for p in c.processes]


def warm_up(cluster):
    """One request, and what workers do in idle moments of their own: their KV pools get memory."""
    cluster.complete("warm up", 8, temperature=0)
    pids = [p.pid for p in cluster.processes]
    wait_until("the cluster rests", lambda: ticks_within(pids, 0.5) <= 5, 120)


def ticks_within(pids, seconds):
    before = own_ticks(pids)
    time.sleep(seconds)
    return own_ticks(pids) - before


class Client:
    """Sends prompts that nobody has seen before, for answers of exact length."""

    def __init__(self, address, seed, output_tokens):
        self.address, self.output_tokens = address, output_tokens
        self.rng = random.Random(seed)

    def body(self, n_prompt):
        return {"prompt": [self.rng.randrange(1000, 20000) for _ in range(n_prompt)],
                "max_tokens": self.output_tokens, "temperature": 0, "ignore_eos": True, "stream": True}

    async def send(self, body):
        s = await Stream(self.address, "/v1/completions", body).run()
        if s.status != 200 or s.errors() or not s.done:
            raise SystemExit(f"a request failed: {s.status} {s.errors() or getattr(s, 'error', '')}")
        return s

    def closed(self, n_prompt, n_requests, n_clients, step=lambda: None):
        """So many clients, each with one request at a time. step: called after each. @return (streams, seconds)"""
        async def run():
            todo = iter([self.body(n_prompt) for _ in range(n_requests)])
            out = []

            async def client():
                for body in todo:
                    out.append(await self.send(body))
                    step()

            start = time.monotonic()
            await asyncio.gather(*(client() for _ in range(n_clients)))
            return out, time.monotonic() - start
        return asyncio.run(run())

    def open(self, n_prompt, n_requests, rate):
        """Requests arrive at random (Poisson), so many per second. @return streams"""
        async def run():
            tasks = []
            at = time.monotonic()
            for _ in range(n_requests):
                body = self.body(n_prompt)
                at += self.rng.expovariate(rate)
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                tasks.append(asyncio.create_task(self.send(body)))
            return await asyncio.gather(*tasks)
        return asyncio.run(run())
