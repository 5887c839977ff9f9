# SPDX-License-Identifier: Apache-2.0
"""The file of --trace-file: one line for each request that ended, however it did."""
import asyncio
import json
import os
import signal
import subprocess
import tempfile

from harness import (BUILD, ENDLESS, PACED, PROGRAMS, Cluster, Stream, endless_model, slow_model, small_model,
                     wait_until)
from trace_lines import attributes, read

DISAGG = "nv_trt_llm_disaggregated_serving_metrics"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"  # the example of W3C Trace Context


def lines_of(path, n):
    wait_until(f"{n} lines", lambda: len(read(path)) >= n)
    return read(path)


def test_trace_has_one_line_for_each_request():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "trace.jsonl")
        with Cluster(endless_model(d), kv_memory="256m",
                     router_args=["--trace-file", path, "--served-model-name", "tiny"]) as c:
            for i in range(4):
                c.complete(f"Number {i} is", 5, temperature=0, ignore_eos=True)
            c.complete("Only one token", 1, temperature=0, ignore_eos=True)  # no KV is moved
            children = {"prompt": "child", "max_tokens": 3, "n": 2, "ignore_eos": True}
            status, _, _ = c.request("POST", "/v1/completions", children, headers={"traceparent": PARENT})
            assert status == 200
            # A client that leaves, one whose time is over, and one that is refused at the door: no request began.
            asyncio.run(Stream(c.http, "/v1/completions", {
                "prompt": "leaves", "max_tokens": ENDLESS, "ignore_eos": True, "stream": True}).run(abandon_after=3))
            status, answer = c.post("/v2/models/ensemble/generate", {
                "text_input": "late", "max_tokens": ENDLESS, "ignore_eos": True, "timeout": 500000})
            assert status == 504, (status, answer)
            assert c.post("/v1/completions", {"prompt": "x", "max_tokens": -1})[0] == 400
            c.wait_idle()
            lines = lines_of(path, 9)
            metrics = c.metrics()
            codes = c.stop()
        assert set(codes.values()) == {0}, codes
        lines = read(path)
        assert len(lines) == 9, [line.a for line in lines]

        ends = sorted(line.finish for line in lines)
        assert ends == ["canceled", "error"] + ["length"] * 7, ends
        for line in lines:
            a = line.a
            assert a["gen_ai.request.model"] == "tiny" and a["gen_ai.operation.name"] == "text_completion", a
            assert line.status == {"length": 1, "canceled": 0, "error": 2}[line.finish]
            assert a["baton.attempts"] == 1 and a["baton.worker.prefill"] == "prefill-0", a
            assert a["gen_ai.usage.input_tokens"] > 0
            # TTFT is the sum of the parts up to token #1.
            first = sum(line.part_us(p) for p in ("parse", "tokenize", "queue", "prefill_queue", "prefill",
                                                  "first_token"))
            n = a["gen_ai.usage.output_tokens"]
            if n > 0:
                assert abs(a["gen_ai.server.time_to_first_token"] * 1e6 - first) < 1, (a, first)
            moved = a["baton.kv.transfers"] == 1
            follows = a["baton.choice"] == 1  # its KV came with the first choice's
            if n != 1 or line.finish == "length":  # else it ended while its KV was on the way, or not
                assert moved == (n > 1 and not follows), a
            assert (a["baton.kv.bytes"] > 0) == moved and (a["baton.kv.descriptors"] > 0) == moved, a
            assert (a["baton.kv.transfer_us"] > 0) == moved, a
            if line.finish == "length":
                assert (a["baton.kv.tail_us"] > 0) == moved and (a["baton.decode.batch_us"] > 0) == (n > 1), a
        failed = next(line for line in lines if line.finish == "error")
        assert failed.a["error.type"] == "504" and "deadline" in failed.root["status"]["message"], failed.root

        children = [line for line in lines if line.root["traceId"] == PARENT[3:35]]
        assert len(children) == 2 and all(x.root["parentSpanId"] == PARENT[36:52] for x in children)
        assert sorted(x.a["baton.choice"] for x in children) == [0, 1]
        assert len({line.root["traceId"] for line in lines}) == 8

        # The ledgers add up to what /metrics says (I7).
        def metric(name, **labels):
            found = [v for k, v in metrics.items()
                     if k.split("{")[0] == name and all(f'{n}="{v}"' in k for n, v in labels.items())]
            assert len(found) == 1, (name, found)
            return found[0]

        def total(key):
            return sum(line.a[key] for line in lines)

        assert abs(total("baton.kv.transfer_us") / 1000 -
                   metric(DISAGG, disaggregated_serving_type="kv_cache_transfer_ms")) < 1e-6
        for key, name in (("transfer", "transfer"), ("grant_wait", "grant_wait"), ("verify", "verify"),
                          ("join_wait", "join_wait"), ("tail", "transfer_tail")):
            assert abs(total(f"baton.kv.{key}_us") / 1e6 - metric(f"baton_kv_{name}_seconds_sum")) < 1e-6, name
        assert total("baton.kv.transfers") in (6, 7)  # the late one has none when the machine is very busy
        for name in ("kv_transfer_seconds_count", "kv_grant_wait_seconds_count", "kv_verify_seconds_count",
                     "kv_transfers_total"):
            assert metric("baton_" + name) == total("baton.kv.transfers"), name
        assert total("baton.kv.bytes") == metric("baton_kv_transfer_bytes_total")
        assert total("baton.kv.descriptors") == metric("baton_kv_transfer_descriptors_total")
        begun = sum(line.a["gen_ai.usage.output_tokens"] > 0 for line in lines)
        assert begun in (8, 9) and metric("baton_time_to_first_token_seconds_count") == begun
        assert metric("baton_queue_seconds_count") == begun
        assert metric("baton_request_duration_seconds_count") == 7
        assert metric("baton_inter_token_latency_seconds_count") == total("gen_ai.usage.output_tokens") - begun


def test_trace_of_a_request_that_a_killed_worker_interrupted():
    """The decode worker is stopped before it can finish, and dies when there is another."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "trace.jsonl")
        with Cluster(slow_model(d), router_args=["--trace-file", path], decode_args=PACED, silence=(60000, 90000)) as c:
            body = {"prompt": "tell me everything", "max_tokens": 600, "temperature": 0, "stream": True,
                    "ignore_eos": True}

            async def interrupted():
                s = Stream(c.http, "/v1/completions", body)
                task = asyncio.ensure_future(s.run())
                while len(s.events) < 3 and not task.done():
                    await asyncio.sleep(0.005)
                c.decodes[0].kill(signal.SIGSTOP)
                c.start_worker("decode", 1)
                c.n_decode = 2
                await asyncio.to_thread(wait_until, "the second decode worker joined", c.all_joined)
                assert not task.done(), s.events[-1:]
                c.decodes[0].kill(signal.SIGKILL)
                return await asyncio.wait_for(task, 120)

            s = asyncio.run(interrupted())
            assert s.done and not s.errors(), s.events[-1:]
            line, = lines_of(path, 1)
            a = line.a
            events = [attributes(e)["baton.worker.decode"] for e in line.root["events"]
                      if e["name"] == "baton.attempt"]
            assert events == ["decode-0", "decode-1"], events
            assert a["baton.attempts"] == 2 and a["baton.worker.decode"] == "decode-1", a
            assert "decode-0 was lost in phase decode" in a["baton.trouble"], a
            assert a["baton.kv.transfers"] == 2 and line.status == 1, a
            assert a["gen_ai.usage.output_tokens"] == 600 and line.finish == "length", a
            assert a["baton.max_gap_us"] > a["baton.total_us"] / 600, a


def test_trace_file_that_cannot_be_opened_is_named():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        for path, word in ((os.path.join(d, "no/such/file"), "No such file"), (d, "directory")):
            run = subprocess.run([os.path.join(BUILD, PROGRAMS["router"]), "--model", model, "--http", "127.0.0.1:0",
                                  "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--trace-file", path], stdin=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, timeout=60, check=False)
            text = run.stderr.decode()
            assert run.returncode == 1 and f"--trace-file {path}" in text and word in text, (run.returncode, text)


def test_full_trace_file_does_not_affect_requests():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), router_args=["--trace-file", "/dev/full"]) as c:
            for i in range(3):
                c.complete(f"Number {i} is", 5, ignore_eos=True)
            wait_until("the log says it", lambda: "/dev/full: No space left" in c.router.log())
            c.complete("still here", 5, ignore_eos=True)
            c.wait_idle()
            assert set(c.stop().values()) == {0}
            assert c.router.log().count("No space left") == 2  # once while it runs, once at the end
