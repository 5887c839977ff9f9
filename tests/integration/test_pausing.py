# SPDX-License-Identifier: Apache-2.0
"""--scheduler-policy max_utilization: more sequences than the decode worker's KV has room for begin, some are paused and
go on, and no answer shows it. The pool is so small that pauses must happen, and the workers' counters say that they
did."""
import asyncio
import concurrent.futures
import tempfile

from harness import Cluster, Stream, slow_model, tiny_model, wait_until

POOL = 640  # tokens of the decode worker: 40 blocks of 16
POLICY = ["--scheduler-policy", "max_utilization"]
WAYS = {
    "memory": dict(worker_args=["--kv-transport", "shm"]),
    "network": dict(worker_args=["--kv-transport", "network"]),
    "local, no cache": dict(prefill=0, decode_args=["--local-prefill"], worker_args=["--prefix-cache", "off"]),
}
WORDS = "one of them makes room for the others and goes on later as if nothing had been".split()


def model_of(d):
    return tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)


def text(i):
    return " ".join(WORDS[(i + 3 * k) % len(WORDS)] for k in range(4 + 5 * (i % 4)))


def requests():
    """Of every kind of which something must be kept or come out the same."""
    complete, out = "/v1/completions", []
    for i in range(8):
        drawn = dict(temperature=0.9, top_p=0.95, top_k=40, seed=100 + i) if i % 2 else dict(temperature=0)
        out.append((complete, dict(prompt=text(i), max_tokens=120 + 20 * (i % 3), **drawn)))
    out += [
        (complete, dict(prompt=text(8), max_tokens=90, n=4, seed=11, temperature=0.9)),
        (complete, dict(prompt=text(9), max_tokens=100, temperature=0, logprobs=3)),
        (complete, dict(prompt=text(10), max_tokens=80, n=2, seed=5, logprobs=2, temperature=0.8,
                        frequency_penalty=1.5, presence_penalty=0.5, logit_bias={"70": 5})),
        (complete, dict(prompt=text(11), max_tokens=90, echo=True, logprobs=1, seed=4)),
        (complete, dict(prompt=text(12), max_tokens=150, min_tokens=100, ignore_eos=False, seed=21, temperature=1.2,
                        repetition_penalty=1.3)),
        (complete, dict(prompt=text(13), max_tokens=120, temperature=0.9, seed=8, stop=["zq", "\n\n"])),
        ("/v2/models/ensemble/generate", dict(text_input=text(14), max_tokens=60, random_seed=9, temperature=0.9,
                                              return_log_probs=True, return_generation_logits=True)),
        ("/v2/models/ensemble/generate", dict(text_input=text(15), max_tokens=60, return_context_logits=True)),
    ]
    return [(path, dict(dict(ignore_eos=True), **body)) for path, body in out]


def ask_all(c, at_a_time):
    def one(request):
        status, answer = c.post(*request, timeout=600)
        assert status == 200, (request, status, answer)
        return answer.get("choices", answer)

    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(one, requests()))


def total(c, what):
    return c.total(f"baton_worker_{what}_total", worker="decode-0")


def small_cluster(model, way="memory", pool=POOL, **more):
    options = dict(WAYS[way])
    options["decode_args"] = options.get("decode_args", []) + ["--kv-tokens", str(pool), "--max-batch-size", "16", *POLICY]
    return Cluster(model, **options, **more)


def test_preemption_gives_the_same_answers():
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        with Cluster(model) as c:
            reference = ask_all(c, 1)
            assert total(c, "preemptions") == 0
            c.wait_idle()
        for way in WAYS:
            with small_cluster(model, way) as c:
                for turn in range(2):
                    for request, a, b in zip(requests(), reference, ask_all(c, len(requests()))):
                        assert a == b, f"{way}, turn {turn}: {request} differs"
                c.wait_idle()
                wait_until("every pause is over, and there were some", lambda: (
                    total(c, "preemptions") == total(c, "preemption_resumes") > 0 and
                    c.metric("baton_worker_paused_requests", worker="decode-0") == 0))
                assert total(c, "recomputed_tokens") > 0
                print(f"    {way}: {total(c, 'pauses'):.0f} pauses, "
                      f"{total(c, 'recomputed_tokens'):.0f} tokens computed again", flush=True)


def body_of(i, max_tokens):
    return dict(prompt=text(i), max_tokens=max_tokens, seed=50 + i, temperature=0.9, ignore_eos=True, stream=True)


def test_preempted_streams_resume_without_gap_or_repeat():
    async def all_of(c, n):
        streams = [Stream(c.http, "/v1/completions", body_of(i, 200)) for i in range(n)]
        await asyncio.gather(*(s.run() for s in streams))
        assert not any(s.errors() for s in streams)
        return [(s.text(), s.finishes()) for s in streams]

    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        with Cluster(model) as c:
            reference = asyncio.run(all_of(c, 12))
        with small_cluster(model) as c:
            assert asyncio.run(all_of(c, 12)) == reference
            wait_until("there were pauses", lambda: total(c, "preemptions") > 0)
            c.wait_idle()


def test_client_that_leaves_while_preempted_leaks_nothing():
    """Clients go while some of theirs stand still: eight answers that the pool has room for one of."""
    pool = 1280
    with tempfile.TemporaryDirectory() as d:
        model = slow_model(d, context=4096)

        async def leave_while_paused(c):
            streams = [Stream(c.http, "/v1/completions", body_of(i, pool - 200)) for i in range(8)]
            tasks = [asyncio.create_task(s.run()) for s in streams]
            try:
                for _ in range(6000):
                    if await asyncio.to_thread(c.total, "baton_worker_paused_requests", worker="decode-0") > 0:
                        return True
                    if all(t.done() for t in tasks):
                        return False
                    await asyncio.sleep(0.01)
                return False
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        with small_cluster(model, pool=pool) as c:
            before = c.complete(text(3), 40, temperature=0)
            assert asyncio.run(leave_while_paused(c)), "nobody was paused"
            c.wait_idle()
            after = c.complete(text(3), 40, temperature=0)
            assert after == before, (after, before)
            c.wait_idle()


def test_request_that_fits_alone_completes_and_larger_one_is_refused():
    with tempfile.TemporaryDirectory() as d:
        with small_cluster(model_of(d), prefill=1) as c:
            prompt = [5 + i % 90 for i in range(40)]
            one = c.complete(prompt, POOL - 40, temperature=0, ignore_eos=True)
            assert len(one["token_ids"]) == POOL - 40
            status, answer = c.post("/v1/completions", dict(prompt=prompt, max_tokens=POOL, ignore_eos=True))
            assert status == 400 and f"maximum context length is {POOL} tokens" in str(answer), (status, answer)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:  # four that fit alone, together
                got = list(pool.map(lambda i: c.complete(prompt, POOL - 40, temperature=0, ignore_eos=True, patience=300),
                                    range(4)))
            assert all(g == one for g in got)
            wait_until("they took turns", lambda: total(c, "preemptions") > 0)
            c.wait_idle()
