# SPDX-License-Identifier: Apache-2.0
"""Requests of one token, as evaluation harnesses send them: the prefill worker's token #1 is the answer, no decode
worker hears of it, and no KV is sent."""
import asyncio
import signal
import tempfile
import time

from harness import LONG_PROMPT, PACED, Cluster, Stream, endless_model, small_model, wait_until
from test_failures import until
from trace_lines import attributes, read

PROMPTS = ["one", "the capital of France is", "word " * 40]


def ids(c, prompt, n, **more):
    return c.complete(prompt, n, temperature=0, ignore_eos=True, **more)["token_ids"]


def at_workers(c):
    return c.metric("baton_worker_requests")


def test_one_token_request_sends_no_kv_and_uses_no_decode_worker():
    with tempfile.TemporaryDirectory() as d:
        trace = d + "/trace.jsonl"
        with Cluster(small_model(d), router_args=["--trace-file", trace]) as c:
            first = [ids(c, p, 1) for p in PROMPTS]
            c.decodes[0].kill(signal.SIGSTOP)  # what were asked of it would stay open
            assert [ids(c, p, 1) for p in PROMPTS] == first
            wait_until("the requests are over", lambda: at_workers(c) == 0)
            c.decodes[0].kill(signal.SIGCONT)
            for name in ("baton_kv_transfers_total", "baton_kv_transfer_bytes_total",
                         "baton_kv_transfer_descriptors_total"):
                assert c.metric(name) == 0, name
            assert c.metric("nv_trt_llm_disaggregated_serving_metrics",
                            disaggregated_serving_type="kv_cache_transfer_ms") == 0
            # The same token as the first of more (I1); these do send KV.
            assert [ids(c, p, 3)[:1] for p in PROMPTS] == first
            assert c.metric("baton_kv_transfers_total") == len(PROMPTS)
            c.wait_idle()
            wait_until("every line is written", lambda: len(read(trace)) == 9)
        attempts = [attributes(line.root["events"][0]) for line in read(trace)]
        assert [a["baton.placement"] for a in attempts] == ["one token"] * 6 + ["pair"] * 3, attempts
        assert all("baton.worker.decode" not in a for a in attempts[:6]), attempts
        assert all(a["baton.placement.decode"] == "only one" for a in attempts[6:]), attempts


def test_one_token_request_needs_no_decode_worker():
    with tempfile.TemporaryDirectory() as d:
        c = Cluster(small_model(d), decode=0, router_args=["--worker-wait-ms", "500"])
        try:
            c.router = c.start_router()
            c.prefills = [c.start_worker("prefill", 0)]

            def bound():
                c.router.is_ready()
                return "metrics " in c.router.ready_text
            wait_until("the router listens", bound)
            c.read_addresses()
            wait_until("the prefill worker joined", lambda: c.total("baton_workers", role="prefill", state="up") == 1)
            assert len(ids(c, PROMPTS[1], 1)) == 1
            status, answer = c.post("/v1/completions", {"prompt": "hello", "max_tokens": 2})
            assert status == 503 and "worker" in str(answer), (status, answer)
            assert len(ids(c, PROMPTS[2], 1)) == 1
            wait_until("nothing is held", lambda: at_workers(c) == 0)
        finally:
            c.__exit__(None, None, None)


def test_one_token_request_survives_the_death_of_its_prefill_worker():
    """Two of them; the one that computes the prompt dies."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), prefill=2, kv_memory="256m", worker_args=["--chunk-tokens", "16", *PACED]) as c:
            body = {"prompt": LONG_PROMPT[:4000], "max_tokens": 1, "temperature": 0, "stream": True,
                    "ignore_eos": True}

            def busy():
                active = [c.total("baton_worker_active_requests", worker=p.name) for p in c.prefills]
                return active.index(max(active)) if max(active) > 0 else None

            async def go():
                s = Stream(c.http, "/v1/completions", body)
                task = asyncio.ensure_future(s.run())
                await until("a prefill worker has it", lambda: busy() is not None or task.done())
                assert not task.done(), s.events[-1:]
                c.prefills[busy()].kill()
                began = time.monotonic()
                await asyncio.wait_for(task, 120)
                return s, time.monotonic() - began
            s, seconds = asyncio.run(go())
            assert s.done and not s.errors(), s.events[-1:]
            assert s.finishes() == ["length"], s.events
            assert c.total("baton_retries_total") == 1
            assert c.metric("baton_kv_transfer_bytes_total") == 0
            print(f"    answered by the other one {seconds:.2f} s after the death of the first")
