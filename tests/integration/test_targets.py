# SPDX-License-Identifier: Apache-2.0
"""Targets of the time to the first token and between tokens: who would be late is told at once, and others are served."""
import contextlib
import json
import select
import signal
import tempfile
import threading
import time

from harness import Cluster, slow_model, wait_until

LONG = [20 + i % 200 for i in range(700)]  # some 100 ms and more


def learn(c, first=3):
    """Steps have been measured, and the router has heard it. @return the id of an unused first token"""
    def known():
        nonlocal first
        status, _ = c.post("/v1/completions", dict(prompt=[first] + LONG, max_tokens=4, temperature=0, ignore_eos=True))
        assert status == 200
        first += 1
        return (c.total("baton_cost_model_item_seconds", work="prefill") > 0 and
                c.total("baton_cost_model_step_seconds", work="decode") > 0)

    wait_until("workers know what steps take", known)
    return first


def count(c, target, result):
    return c.total("baton_slo_sequences_total", target=target, result=result)


def ask(c, prompt, **more):
    return c.request("POST", "/v1/completions", dict(dict(prompt=prompt, max_tokens=4, ignore_eos=True), **more))


def refused(answer, field, *words):
    status, headers, body = answer
    assert status == 429, (status, body)
    assert int(headers["Retry-After"]) >= 1, headers
    for word in (field.encode(), b'"code":"rate_limit_exceeded"', *words):
        assert word in body, body


def ask_until_refused(c, first, **more):
    """A worker at rest takes one in a second whatever is forecast, so it may be the second one. @return the answer, and
    how many were served before"""
    for served in range(20):
        answer = ask(c, [first + served] + LONG, **more)
        if answer[0] == 429:
            return answer, served
        assert answer[0] == 200, answer
    raise AssertionError("20 were served that could not be in time")


@contextlib.contextmanager
def slowed(process):
    """It gets a twentieth of the time, as beside neighbours that take all of it."""
    over = threading.Event()

    def pulse():
        while not over.is_set():
            process.kill(signal.SIGSTOP)
            over.wait(0.095)
            process.kill(signal.SIGCONT)
            over.wait(0.005)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def forecast_ms(c, prompt):
    """What a prompt is forecast to take."""
    def told():
        status, _, body = ask(c, prompt, ttft_target_ms=1, max_tokens=1)
        return body if status == 429 else None

    text = json.loads(wait_until("it is refused", told))["error"]["message"]
    return int(text.split(" would be ")[1].split()[0])


def took(c, first, prompt):
    """The seconds of the quickest of three such prompts, none of which is in a prefix cache."""
    times = []
    for i in range(3):
        since = time.monotonic()
        status, _ = c.post("/v1/completions", dict(prompt=[first + i] + prompt, max_tokens=1))
        assert status == 200
        times.append(time.monotonic() - since)
    return min(times)


def test_slow_forecast_recovers_while_idle():
    short, first = [20 + i for i in range(20)], 3
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), router_args=["--served-model-name", "m"]) as c:
            with slowed(c.prefills[0]):  # the first prompts that it measures
                # So long that each is stopped several times, however fast the machine is.
                while took(c, first, short) < 0.27:
                    first, short = first + 3, short + [20 + i % 200 for i in range(len(short))]
                    assert len(short) < 1000, len(short)
            wait_until("the router has heard what a prompt takes",
                       lambda: c.total("baton_cost_model_item_seconds", work="prefill") > 0)
            was = forecast_ms(c, [first + 3] + short)
            target = was // 2  # many times what it takes
            first += 4
            since = time.monotonic()
            refused_, served, in_a_row = 0, 0, 0
            while in_a_row < 4:  # at once one after the other: by the forecast, for a second is between probes
                assert time.monotonic() - since < 60, (was, refused_, served)
                status, headers, body = ask(c, [first + served] + short, ttft_target_ms=target, max_tokens=1)
                if status == 429:
                    assert headers["Retry-After"] == "1", headers
                    refused_, in_a_row = refused_ + 1, 0
                    select.select([], [], [], 0.05)
                else:
                    assert status == 200, body
                    served, in_a_row = served + 1, in_a_row + 1
            print(f"{was} ms were forecast; of a target of {target} ms {refused_} were refused before {served} were served, "
                  f"in {time.monotonic() - since:.1f} s")
            c.wait_idle()


def test_request_that_would_miss_its_slo_is_rejected_at_once():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), router_args=["--served-model-name", "m"]) as c:
            first = learn(c)
            # Nobody computes 700 tokens in a millisecond, and no sequence gets on so fast.
            answer, probes = ask_until_refused(c, first, ttft_target_ms=1)
            refused(answer, "ttft_target_ms", b"more than the target of 1 ms")
            assert count(c, "ttft", "refused") == 1
            assert count(c, "ttft", "met") == 0
            wait_until("they are counted", lambda: count(c, "ttft", "missed") == probes)
            # What can be kept is taken, and is counted as what came of it.
            first += probes
            status, _, body = ask(c, [first] + LONG, ttft_target_ms=100000, itl_target_ms=10000)
            assert status == 200, body
            wait_until("it is counted", lambda: count(c, "ttft", "met") == count(c, "itl", "met") == 1)
            # As a stream, a chat's and Triton's.
            answer, _ = ask_until_refused(c, first + 1, ttft_target_ms=1, stream=True)
            refused(answer, "ttft_target_ms")

            def is_refused_by_triton():
                status, headers, body = c.request("POST", "/v2/models/ensemble/generate", dict(
                    text_input="word " * 200, max_tokens=4, ttft_target_ms=1))
                assert status in (200, 429) and (status == 200 or "Retry-After" in headers), (status, body)
                return status == 429

            wait_until("it is refused", is_refused_by_triton)
            c.wait_idle()


def test_model_targets_apply_to_requests_without_targets():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), router_args=["--served-model-name", "m", "--ttft-target-ms", "100000", "--model-targets", "other=90000/0,m=1/0"]) as c:
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
