# SPDX-License-Identifier: Apache-2.0
"""Each attacker alone beside clients that behave: nobody's request fails or changes, and afterwards nothing is held.
What it costs the others in time is bench/attack.py's."""
import asyncio
import os
import random
import select
import socket
import tempfile
import time

from attackers import Attacker, LogReader, NAMES, listening
from harness import Cluster, Stream, free_port, small_model, wait_until
from hosts import Network

N_CLIENTS = 8
SIEGE = 1.0  # seconds of each attacker, at least
N_EACH = 2  # requests of each client, at least
QUESTIONS = [f"the {i}th of them asks " + "word " * (1 + 3 * i) for i in range(N_CLIENTS)]


def body(i):
    return {"prompt": QUESTIONS[i], "max_tokens": 16, "temperature": 0, "ignore_eos": True, "stream": True}


async def behave(address, i, expected, until):
    for k in range(10000):
        if k >= N_EACH and time.monotonic() > until:
            return k
        s = await asyncio.wait_for(Stream(address, "/v1/completions", body(i)).run(), 120)
        assert s.status == 200 and s.done and not s.errors(), (i, s.status, s.errors(), getattr(s, "error", ""))
        assert s.text() == expected[i], (i, s.text(), expected[i])
    return 0


async def serve(c, expected):
    until = time.monotonic() + SIEGE
    return sum(await asyncio.gather(*(behave(c.http, i, expected, until) for i in range(N_CLIENTS))))


def test_attackers_harm_nobody():
    with tempfile.TemporaryDirectory() as d:
        c = Cluster(small_model(d))
        c.url = f"tcp://127.0.0.1:{free_port()}"  # for strangers, too
        with LogReader(c) as reader, c:
            expected = [c.complete(q, 16, temperature=0, ignore_eos=True)["text"] for q in QUESTIONS]
            for name in NAMES:
                with Attacker(name, c, reader) as a:
                    n = asyncio.run(serve(c, expected))
                print(f"    {name}: {a.done} times, {n} requests beside it")
                assert a.done > 0, name
                assert all(p.alive() for p in c.processes), (name, c.logs())
            wait_until("nobody is served", lambda: c.total("baton_requests_in_flight") == 0 and
                       c.total("baton_http_connections") <= 1)
            c.wait_idle()
            codes = c.stop()
            assert set(codes.values()) == {0}, (codes, c.logs())


# What UCX 1.13.1 takes for the head of a connection's first message, and what ends it by an assertion: more than it says.
FIRST_BYTES = (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", b"\xff" * 300, bytes([16]) + bytes(7), bytes(64),
               bytes([64]) + bytes(7) + b"a" * 200, bytes([16]) + bytes(7) + b"x" * 16, b"GET", random.Random(1).randbytes(500))


def throw(door, first, closes):
    """@return the connection, half of it closed, or None"""
    s = socket.socket()
    try:
        s.connect(door)
        s.sendall(first)
        if not closes:
            s.shutdown(socket.SHUT_WR)
            return s
    except OSError:
        pass  # it may be ended at any time
    s.close()
    return None


def test_kv_is_closed_to_other_programs_of_the_host():
    """Whatever they send first: no worker ends, none keeps a descriptor, and KV goes on."""
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), prefill=1, decode=1) as c:
        workers = c.prefills + c.decodes
        doors_of = {w: sorted(listening(w.pid)) for w in workers}
        assert c.post("/v1/completions", {"prompt": "hello", "max_tokens": 8})[0] == 200
        held = {w: len(os.listdir(f"/proc/{w.pid}/fd")) for w in workers}
        kept = []
        for w in workers:
            assert len(doors_of[w]) == 2, doors_of  # of UCX
            for door in doors_of[w]:
                for first in FIRST_BYTES:
                    kept += [throw(door, first, closes) for closes in (True, False)]
        wait_until("their connections are gone", lambda: all(len(os.listdir(f"/proc/{w.pid}/fd")) <= held[w] for w in workers))
        assert all(w.alive() for w in workers), c.logs()
        assert c.post("/v1/completions", {"prompt": "hello again", "max_tokens": 8})[0] == 200
        for s in filter(None, kept):
            s.close()
        codes = c.stop()
        assert set(codes.values()) == {0}, (codes, c.logs())


def knock(host, door):
    """A connection under way from this host; on a cable it is decided when this returns."""
    s = host.socket()
    s.setblocking(False)
    s.connect_ex(door)
    return s


def is_in(s):
    """The other end has let it in."""
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and bool(select.select([], [s], [], 0)[1])


def test_kv_is_closed_to_hosts_without_a_worker():
    with tempfile.TemporaryDirectory() as d, Network("a", "b", "c") as net:
        a, b, stranger = net.hosts
        with Cluster(small_model(d), prefill=1, decode=2, hosts=[a, b]) as c:
            assert c.post("/v1/completions", {"prompt": "hello", "max_tokens": 8})[0] == 200
            for worker in c.prefills + c.decodes:
                doors = {door for door in listening(worker.pid) if door[0] != "127.0.0.1"}
                tried = {door: (knock(stranger, door), knock(a if worker in c.decodes else b, door)) for door in doors}
                for _, ours in tried.values():  # behind theirs, whose answer would have come before
                    select.select([], [ours], [], 60)
                let_in = {door: (is_in(theirs), is_in(ours)) for door, (theirs, ours) in tried.items()}
                for pair in tried.values():
                    for s in pair:
                        s.close()
                # UCX listens at two; a worker with a router has no other.
                assert len(let_in) == 2 and set(let_in.values()) == {(False, True)}, (worker.name, let_in)
            codes = c.stop()
            assert set(codes.values()) == {0}, (codes, c.logs())
