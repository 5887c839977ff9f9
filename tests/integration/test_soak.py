# SPDX-License-Identifier: Apache-2.0
"""Hours in short: mixed load in rounds, and after each of them, at rest, what every process holds. It must be flat.

BATON_SOAK_SECONDS says for how long (a minute is enough to see that it works); without it there is no soak.
"""
import asyncio
import os
import random
import re
import statistics
import tempfile
import time

from harness import Cluster, Skip, Stream, open_fds, tiny_model, wait_until

ALONE = True  # so that only its own load is on the machine
N_CLIENTS = 12
ROUNDS = 45  # a third each: to get warm, to compare with, to be compared
LEAST_ROUND = 1.0  # seconds of load
# What a heap may grow by from the second third to the last: pages at its edges, buffers that met a longer request than
# ever. A leak of 256 bytes for each request of 30 minutes, 100 a second, is twenty times as much.
SLACK_KIB = 768
SLACK_SHARE = 0.01
KNOWN = [f"the {i}th question is about " + "abcdefghij"[i % 10] * (3 + i) for i in range(24)]


def held_by(pid):
    """Memory of its own in KiB (its heap and stacks; not the pool and the weights, which are files), descriptors and
    threads."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        status = f.read()
    return {"heap KiB": int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.M).group(1)),
            "descriptors": open_fds(pid),
            "threads": int(re.search(r"^Threads:\s+(\d+)", status, re.M).group(1))}


def rising(samples):
    """@param samples {process: [held_by() of each round]}  @return what is not flat, in words

    Medians, so that one round on a busy machine decides nothing."""
    found = []
    for name, rounds in samples.items():
        third = len(rounds) // 3
        for what in rounds[0]:
            before = statistics.median(r[what] for r in rounds[third:2 * third])
            after = statistics.median(r[what] for r in rounds[2 * third:])
            slack = max(SLACK_KIB, before * SLACK_SHARE) if what == "heap KiB" else 0
            if after > before + slack:
                found.append(f"{name}: {what} rose from {before:g} to {after:g}")
    return found


async def one_request(address, rng, expected, counts):
    """@return after one of many kinds of request, which went as it should"""
    kind = rng.choice(("known", "known", "new", "choices", "leave", "one", "bad", "generate"))
    path, leave = "/v1/completions", None
    known = rng.randrange(len(KNOWN))
    body = {"prompt": KNOWN[known], "max_tokens": 24, "temperature": 0, "stream": True, "ignore_eos": True}
    if kind == "new":  # other blocks than any before, of any length
        body.update(prompt=f"{rng.random()} " * rng.randrange(1, 12), temperature=1, seed=rng.randrange(1 << 30))
    elif kind == "choices":
        body.update(n=3, temperature=1, seed=known)
    elif kind == "leave":
        body.update(max_tokens=60)
        leave = rng.randrange(1, 10)
    elif kind == "one":
        body.update(max_tokens=1)
    elif kind == "bad":
        body.update(temperature="hot")
    elif kind == "generate":
        path = "/v2/models/ensemble/generate_stream"
        body = {"text_input": KNOWN[known], "max_tokens": 8, "temperature": 0}
    s = await asyncio.wait_for(Stream(address, path, body).run(leave), 300)
    if kind == "bad":
        assert s.status == 400, s.status
    else:
        assert s.status == 200 and not s.errors(), (kind, s.status, s.errors())
    if kind == "known":
        assert s.text() == expected[known], (known, s.text(), expected[known])
    counts[kind] = counts.get(kind, 0) + 1


async def one_round(address, seconds, rng, expected, counts):
    end = time.monotonic() + seconds

    async def client(own):
        while time.monotonic() < end:
            await one_request(address, own, expected, counts)
    await asyncio.gather(*(client(random.Random(rng.random())) for _ in range(N_CLIENTS)))


def at_rest(c):
    """Waits until nothing is under way: no sequence, seat, lease or block; then what each process holds."""
    c.wait_idle()
    wait_until("no client is served", lambda: c.total("baton_requests_in_flight") == 0 and
               c.total("baton_http_connections") <= 1 and c.total("baton_kv_blocks", state="quarantined") == 0)
    return {p.name: held_by(p.pid) for p in c.processes}


def soak(seconds):
    rng = random.Random(int(os.environ.get("BATON_SEED", "1")))
    counts = {}
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=512, seed=3)
        with Cluster(model, prefill=2, decode=2, kv_memory="4m") as c:
            expected = [c.complete(p, 24, temperature=0, ignore_eos=True)["text"] for p in KNOWN]
            samples = {p.name: [] for p in c.processes}
            for _ in range(ROUNDS):
                asyncio.run(one_round(c.http, max(LEAST_ROUND, seconds / ROUNDS), rng, expected, counts))
                for name, held in at_rest(c).items():
                    samples[name].append(held)
            for name, rounds in samples.items():
                print(f"    {name}: " + ", ".join(
                    f"{what} {' '.join(str(rounds[i][what]) for i in (0, ROUNDS // 3, 2 * ROUNDS // 3, -1))}"
                    for what in rounds[0]) + " (rounds 1, 16, 31, 45)")
            print(f"    {sum(counts.values())} requests: {counts}")
            assert not rising(samples), rising(samples)
            codes = c.stop()
            assert set(codes.values()) == {0}, (codes, c.logs())


def test_soak_memory_does_not_grow():
    seconds = float(os.environ.get("BATON_SOAK_SECONDS") or 0)
    if seconds <= 0:
        raise Skip("BATON_SOAK_SECONDS is not set; ./baton test --long has 30 minutes of it")
    soak(seconds)


def made_up(**more):
    """Rounds of a process that gets warm and then is noisy, and flat."""
    rng = random.Random(5)
    rounds = [{"heap KiB": 20000 + min(i, 10) * 300 + rng.randrange(-200, 200), "descriptors": 40, "threads": 3}
              for i in range(ROUNDS)]
    for what, per_round in more.items():
        for i, held in enumerate(rounds):
            held[what.replace("_", " ")] += int(i * per_round)
    return {"decode-0": rounds}


def test_soak_analysis_separates_growth_from_noise():
    assert rising(made_up()) == []
    one_bad_round = made_up()
    one_bad_round["decode-0"][-1].update({"heap KiB": 90000, "descriptors": 90})
    assert rising(one_bad_round) == []
    assert [text.split(" rose")[0] for text in rising(made_up(heap_KiB=100))] == ["decode-0: heap KiB"]
    assert [text.split(" rose")[0] for text in rising(made_up(descriptors=0.1))] == ["decode-0: descriptors"]
    assert [text.split(" rose")[0] for text in rising(made_up(threads=0.1))] == ["decode-0: threads"]
