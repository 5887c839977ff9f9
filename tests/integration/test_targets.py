# SPDX-License-Identifier: Apache-2.0
"""Targets of the time to the first token and between tokens: who would be late is told at once, and others are served."""
import tempfile

from harness import Cluster, slow_model, wait_until

LONG = [20 + i % 200 for i in range(700)]  # some 100 ms and more


def learn(c, first=3):
    """Steps have been measured, and the router has heard it. @return the id of an unused first token"""
    def known():
        nonlocal first
        status, _ = c.post("/v1/completions", dict(prompt=[first] + LONG, max_tokens=4, temperature=0, ignore_eos=True))
        assert status == 200
        first += 1
        return (c.total("baton_worker_cost_item_seconds", work="prefill") > 0 and
                c.total("baton_worker_cost_step_seconds", work="decode") > 0)

    wait_until("workers know what steps take", known)
    return first


def count(c, target, result):
    return c.total("baton_target_sequences_total", target=target, result=result)


def ask(c, prompt, **more):
    return c.request("POST", "/v1/completions", dict(dict(prompt=prompt, max_tokens=4, ignore_eos=True), **more))


def refused(answer, field, *words):
    status, headers, body = answer
    assert status == 429, (status, body)
    assert int(headers["Retry-After"]) >= 1, headers
    for word in (field.encode(), b'"code":"rate_limit_exceeded"', *words):
        assert word in body, body


def test_who_would_be_late_is_told_at_once():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), router_args=["--model-name", "m"]) as c:
            first = learn(c)
            # Nobody computes 700 tokens in a millisecond, and no sequence gets on so fast.
            refused(ask(c, [first] + LONG, ttft_target_ms=1), "ttft_target_ms", b"more than the target of 1 ms")
            assert count(c, "ttft", "refused") == 1
            assert count(c, "ttft", "met") == count(c, "ttft", "missed") == 0
            # What can be kept is taken, and is counted as what came of it.
            status, _, body = ask(c, [first] + LONG, ttft_target_ms=100000, itl_target_ms=10000)
            assert status == 200, body
            wait_until("it is counted", lambda: count(c, "ttft", "met") == count(c, "itl", "met") == 1)
            # As a stream, a chat's and Triton's.
            refused(ask(c, [first + 1] + LONG, ttft_target_ms=1, stream=True), "ttft_target_ms")
            status, headers, body = c.request("POST", "/v2/models/ensemble/generate", dict(
                text_input="word " * 200, max_tokens=4, ttft_target_ms=1))
            assert status == 429 and "Retry-After" in headers, (status, body)
            c.wait_idle()


def test_a_model_s_targets_are_of_those_that_name_none():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), router_args=["--model-name", "m", "--ttft-target-ms", "100000", "--model-targets", "other=90000/0,m=1/0"]) as c:
            # Before anything is measured all are taken, and are late.
            first = 3
            status, _, body = ask(c, [first] + LONG)
            assert status == 200, body
            wait_until("it is counted", lambda: count(c, "ttft", "missed") == 1)

            def is_refused():
                nonlocal first
                first += 1
                answer = ask(c, [first] + LONG)
                if answer[0] == 429:
                    refused(answer, "ttft_target_ms")
                return answer[0] == 429

            wait_until("the router has heard what a prompt takes", is_refused)
            status, _, body = ask(c, [first] + LONG, ttft_target_ms=100000)
            assert status == 200, body
            c.wait_idle()
