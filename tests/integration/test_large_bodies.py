# SPDX-License-Identifier: Apache-2.0
"""Large bodies hold up nobody: they are read beside the event loop, and refused by their length alone."""
import asyncio
import json
import socket
import tempfile
import threading

from harness import ENDLESS, Cluster, Stream, endless_model, small_model, wait_until

MIB = 1 << 20
N_BODIES = 20  # at once; with 8 MiB each they took 2.5 s of the loop, which is dead-ms
TURN_S = 0.01  # CPU time of the longest turn of the loop; one body took 0.1 s of it


def bodies():
    """One of each kind that takes long: tokens of text, of a chat, JSON values."""
    text = "word " * (8 * MIB // 5 - 50)
    yield "/v1/completions", json.dumps({"prompt": text, "max_tokens": 4})
    yield "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": text}]})
    yield "/v1/completions", json.dumps({"prompt": [1] * 900_000, "max_tokens": 4})
    yield "/v2/models/ensemble/generate", '{"text_input": "' + "x" * (8 * MIB - 100) + '"}'


def burst(c, kinds):
    """@return the statuses of all bodies, and of what else was asked meanwhile"""
    statuses, health = [], []

    def client(i):
        path, body = kinds[i % len(kinds)]
        statuses.append(c.request("POST", path, body, timeout=120)[0])

    clients = [threading.Thread(target=client, args=(i,)) for i in range(N_BODIES)]
    for t in clients:
        t.start()
    while any(t.is_alive() for t in clients):
        health.append(c.request("GET", "/v2/health/ready")[0])
    return statuses, health


async def beside_a_stream(c, work):
    """The work, done elsewhere while a stream goes on that does not end."""
    body = {"prompt": "a long story", "max_tokens": ENDLESS, "stream": True, "ignore_eos": True, "temperature": 0}
    stream = Stream(c.http, "/v1/completions", body)
    run = asyncio.ensure_future(stream.run(abandon_after=ENDLESS))
    while len(stream.events) < 2:
        await asyncio.sleep(0.01)
    await asyncio.get_running_loop().run_in_executor(None, work)
    n = len(stream.events)
    while len(stream.events) == n and not run.done():
        await asyncio.sleep(0.01)
    assert not stream.errors() and not run.done(), stream.errors()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


def long_turns(c):
    """Turns of the loop that were longer than TURN_S."""
    m = c.metrics()
    return m["baton_event_loop_turn_seconds_count"] - m[f'baton_event_loop_turn_seconds_bucket{{le="{TURN_S}"}}']


def test_large_bodies_delay_no_other_request():
    with tempfile.TemporaryDirectory() as d, Cluster(endless_model(d)) as c:
        kinds = list(bodies())

        def work():
            statuses, health = burst(c, kinds)
            assert statuses == [400] * N_BODIES, statuses
            assert set(health) <= {200}, health

        asyncio.run(beside_a_stream(c, work))
        wait_until("the stream's request is over", lambda: c.total("baton_requests_in_flight") == 0)
        assert c.total("baton_retries_total") == 0
        assert long_turns(c) == 0, [l for l in c.metrics().items() if "turn" in l[0]]
        c.wait_idle()
        for p in c.processes:
            assert "silent" not in p.log(), p.log()


def answers_of(f, n):
    """@return the bodies of so many answers on a connection"""
    out = []
    for _ in range(n):
        length = None
        while (line := f.readline().strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        out.append(f.read(length))
    return out


def test_long_answers_on_one_connection_are_whole_and_in_order():
    """Short requests behind long ones, which do not wait for the answer before theirs, and a client that takes a few bytes
    at a time."""
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        bodies = [{"tokens": [65] * n} for n in (400_000, 5, 3)]
        alone = [c.request("POST", "/detokenize", body)[2] for body in bodies]
        assert len(alone[0]) > 1 << 18 > len(alone[1]), [len(x) for x in alone]
        data = b""
        for body in bodies:
            text = json.dumps(body).encode()
            data += f"POST /detokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(60)
            s.connect(c.http)
            with s.makefile("rb", buffering=4096) as f:
                for _ in range(3):
                    s.sendall(data)
                    assert answers_of(f, len(bodies)) == alone
        c.wait_idle()
