# SPDX-License-Identifier: Apache-2.0
"""Many clients at once, some leaving: right texts, nothing leaked."""
import asyncio
import os
import random
import tempfile

from harness import BUILD, Cluster, Skip, Stream, open_fds, tiny_model, wait_until

N_CLIENTS = 200
N_QUESTIONS = 10  # of each of them
N_PROMPTS = 40


def prompt(i):
    return f"client {i} asks about " + "abcdefghij"[i % 10] * (5 + i % 60)


async def one_client(address, expected, rng, counts):
    for _ in range(N_QUESTIONS):
        i = rng.randrange(N_PROMPTS)
        body = {"prompt": prompt(i), "max_tokens": 24, "temperature": 0, "stream": True, "ignore_eos": True}
        leave = rng.randrange(1, 12) if rng.random() < 0.10 else None
        s = await asyncio.wait_for(Stream(address, "/v1/completions", body).run(leave), 300)
        if s.status != 200 or s.errors():
            counts["failed"].append((s.status, s.errors() or getattr(s, "error", "")))
        elif leave is not None and not s.done:
            counts["left"] += 1
        elif s.text() != expected[i]:
            counts["wrong"].append((i, s.text(), expected[i]))
        else:
            counts["whole"] += 1


async def all_clients(address, expected):
    counts = {"whole": 0, "left": 0, "wrong": [], "failed": []}
    await asyncio.gather(*(one_client(address, expected, random.Random(n), counts) for n in range(N_CLIENTS)))
    return counts


def run_load(build):
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=512, seed=3)
        env = {"ASAN_OPTIONS": "exitcode=86:detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:exitcode=87"}
        with Cluster(model, build=build, env=env, decode_args=["--max-batch-size", "32"]) as c:
            expected = [c.complete(prompt(i), 24, temperature=0, ignore_eos=True)["text"] for i in range(N_PROMPTS)]
            c.wait_idle()
            fds = {p.name: open_fds(p.pid) for p in c.processes}
            counts = asyncio.run(all_clients(c.http, expected))
            assert not counts["wrong"], counts["wrong"][:3]
            assert not counts["failed"], counts["failed"][:3]
            assert counts["whole"] + counts["left"] == N_CLIENTS * N_QUESTIONS and counts["left"] > 100, counts
            c.wait_idle()

            def fds_back():
                return all(open_fds(p.pid) <= fds[p.name] for p in c.processes)
            wait_until("descriptors back to where they began", fds_back)
            print(f"    {counts['whole']} whole answers, {counts['left']} abandoned, 0 wrong, 0 failed, "
                  f"descriptors {fds}")
            codes = c.stop()
            assert set(codes.values()) == {0}, (codes, c.logs())
            for p in c.processes:
                assert "ERROR: " not in p.log() and "runtime error" not in p.log(), p.log()[-3000:]


def test_load_200_clients_sanitized():
    """2,000 requests, a tenth abandoned; the programs run under ASan and UBSan and SIGTERM
    ends them clean."""
    build = os.environ.get("BATON_BUILD_ASAN", "")
    if not os.path.exists(os.path.join(build, "router/baton-router")):
        raise Skip("BATON_BUILD_ASAN names no sanitizer build")
    run_load(build)


def test_load_200_clients():
    if os.environ.get("BATON_BUILD_ASAN") and not os.environ.get("BATON_LONG"):
        raise Skip("the sanitizer build runs the same load; this one runs in --long")
    run_load(BUILD)
