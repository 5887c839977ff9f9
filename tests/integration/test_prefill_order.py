# SPDX-License-Identifier: Apache-2.0
"""Orders of prompts, and chunks of a tuned size: who waits for whom, and that no token depends on it."""
import concurrent.futures
import os
import tempfile

from harness import Cluster, tiny_model, wait_until
from test_same_bytes import ask_all, prompts
from trace_lines import read

ORDERS = ("srpt", "fcfs", "deadline")


def model_of(d, context=1024):
    return tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=context, seed=5)


def everywhere(order, *more):
    return dict(worker_args=["--prefill-order", order, "--prefix-cache", "off", *more],
                router_args=["--prefill-order", order, "--client-priority"])


def test_same_bytes_under_every_order_with_tuned_chunks():
    """Alone and beside others, at a pair and at one worker for both phases; the reference has fixed chunks."""
    texts = prompts()
    reference = None
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        for order, chunk, local in (("fcfs", 512, False), *((o, 0, local) for o in ORDERS for local in (False, True))):
            more = everywhere(order, "--chunk-tokens", str(chunk), "--itl-budget-ms", "1")
            if local:
                more.update(prefill=0, decode_args=["--local-prefill"])
            with Cluster(model, kv_memory="64m", **more) as c:
                for parallel in (1, 16) if reference is None else (16,):
                    got = ask_all(c, texts, parallel, 12)
                    reference = reference or got
                    wrong = [i for i, (a, b) in enumerate(zip(reference, got)) if a != b]
                    assert not wrong, f"{order}, chunks of {chunk}, local {local}, {parallel} at a time: {wrong} differ"
                c.wait_idle()


def who_is_first(c, trace, long, **short):
    """A long prompt, and a short one once its first chunk is computed. @return whose answer was there first, as the router has it"""
    before = c.total("baton_worker_prompt_tokens_total")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(c.complete, long, 1, temperature=0, patience=300, timeout_ms=100000)
        wait_until("the long prompt has begun", lambda: c.total("baton_worker_prompt_tokens_total") > before)
        assert not first.done(), "the long prompt is too short for this test"
        pool.submit(c.complete, [5] * 40, 1, temperature=0, patience=300, **short).result()
        first.result()
    wait_until("both are in the trace", lambda: len(read(trace)) == 2)
    return "long" if read(trace)[0].a["gen_ai.usage.input_tokens"] == len(long) else "short"


def test_short_prompt_overtakes_a_long_one_by_queue_order():
    long = [3 + i * 7 % 250 for i in range(12000)]
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d, 16384)
        for i, (order, more, first) in enumerate((("srpt", {}, "short"), ("fcfs", {}, "long"), ("deadline", {"timeout_ms": 50000}, "short"),
                                                  ("fcfs", {"priority": -12}, "short"))):
            trace = os.path.join(d, f"trace-{i}")
            options = everywhere(order, "--chunk-tokens", "16")
            options["router_args"] += ["--trace-file", trace]
            with Cluster(model, kv_memory="128m", **options) as c:
                assert who_is_first(c, trace, long, **more) == first, (order, more)
                c.wait_idle()


def test_step_times_are_learned_and_reported():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(model_of(d), kv_memory="64m", **everywhere("srpt")) as c:
            ask_all(c, prompts()[:8], 4, 8)
            wait_until("prefill times", lambda: c.total("baton_cost_model_item_seconds", worker="prefill-0", work="prefill") +
                       c.total("baton_cost_model_step_seconds", worker="prefill-0", work="prefill") > 0)
            wait_until("decode times", lambda: c.total("baton_cost_model_item_seconds", worker="decode-0", work="decode") +
                       c.total("baton_cost_model_step_seconds", worker="decode-0", work="decode") > 0)
            wait_until("transfer times", lambda: c.total("baton_cost_model_item_seconds", worker="prefill-0", work="transfer") +
                       c.total("baton_cost_model_step_seconds", worker="prefill-0", work="transfer") > 0)
            assert 0 <= c.metric("baton_cost_model_error_ratio", worker="prefill-0", work="prefill") <= 1
