#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which way `priority` goes at each API: requests wait for the one seat of the one worker, and the order in which they
end is that in which they were served.

Usage: test_priority.py [NAME ...]

Expected: vLLM ("lower means earlier handling; default: 0"), Triton's model_config.proto ("1 is the highest priority";
default_priority_level for requests without one; numbers above priority_levels are the default, by its PriorityQueue) and
TensorRT-LLM's executor API (0 to 1, the higher first, 0.5 by default).
"""
import contextlib
import os
import socket
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from harness import wait_until  # noqa: E402
from trace_lines import read  # noqa: E402

try:
    import numpy as np
    import openai
    import tritonclient.grpc as triton_grpc
    import tritonclient.http as triton_http
    MISSING = None
except ImportError as why:  # the runner says so
    MISSING = why

FOLDER = tempfile.TemporaryDirectory(prefix="baton-test-")
TRACE = os.path.join(FOLDER.name, "trace")
# An iteration gives a token and takes 2 ms at least: the seat is held for a minute, however quick the machine is.
ONE_SEAT = dict(prefill=0, decode_args=["--local-prefill", "--max-batch-size", "1", "--prefill-order", "fcfs",
                                        "--decode-order", "fcfs", "--prefix-cache", "off", "--draft", "off",
                                        "--simulate-step-us", "2000"])


def endless():
    """harness.endless_model of a quarter of the width: nobody holds the seat for longer than others take to come."""
    return harness.slow_model(FOLDER.name, dim=256, heads=4, kv_heads=1, ffn=768, context=32768)


def waiting(c):
    return c.total("nv_trt_llm_request_metrics", request_type="waiting") + c.total("baton_requests_waiting")


@contextlib.contextmanager
def seat_taken(c):
    """Somebody generates at the one seat until the block ends, and nobody waits when it begins. A worker's counts are a
    while old, so an earlier request's may be read as the holder's: its first token tells that they are past."""
    data = b'{"prompt": [5], "max_tokens": %d, "ignore_eos": true, "stream": true}' % harness.ENDLESS
    with socket.create_connection(c.http) as holder:
        holder.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(data) + data)
        said = b""
        while b"\ndata:" not in said:
            more = holder.recv(4096)
            assert more and b"HTTP/1.1 200".startswith(said[:12]), said
            said += more
        wait_until("nobody waits", lambda: waiting(c) == 0)
        yield


def served(c, trace, send, priorities):
    """@return the priorities in the order in which requests with them, sent in the order given, were served"""
    done = len(read(trace))
    errors = []

    def one(i, priority):
        try:
            send(c, 3 + i, priority)
        except Exception as error:  # pylint: disable=broad-except
            errors.append(error)
    threads = []
    with seat_taken(c):
        for i, priority in enumerate(priorities):
            threads.append(threading.Thread(target=one, args=(i, priority)))
            threads[-1].start()
            wait_until(f"request {i} waits", lambda n=i + 1: errors or waiting(c) >= n)
    for thread in threads:
        thread.join(120)
    assert not errors, errors
    wait_until("all are in the trace", lambda: len(read(trace)) == done + 1 + len(priorities))
    # Each has a length of its own, by which it is known again.
    lengths = [line.a["gen_ai.usage.output_tokens"] for line in read(trace)[done:]]
    assert lengths[0] > 2 + len(priorities), lengths
    return [priorities[n - 3] for n in lengths[1:]]


def by_openai(c, n, priority):
    client = openai.OpenAI(base_url=f"http://{c.http[0]}:{c.http[1]}/v1", api_key="x", max_retries=0)
    more = {} if priority is None else {"priority": priority}
    client.completions.create(model="ensemble", prompt="abc", max_tokens=n, extra_body=dict(more, ignore_eos=True))


def by_chat(c, n, priority):
    client = openai.OpenAI(base_url=f"http://{c.http[0]}:{c.http[1]}/v1", api_key="x", max_retries=0)
    more = {} if priority is None else {"priority": priority}
    client.chat.completions.create(model="ensemble", messages=[{"role": "user", "content": "a"}], max_tokens=n,
                                   extra_body=dict(more, ignore_eos=True))


def by_generate(c, n, priority):
    more = {} if priority is None else {"priority": priority}
    status, answer = c.post("/v2/models/ensemble/generate", dict(text_input="abc", max_tokens=n, ignore_eos=True, **more))
    assert status == 200, answer


def tensors(module):
    made = []
    for name, value, kind in (("input_ids", [[5, 6, 7]], "INT32"), ("input_lengths", [[3]], "INT32"),
                              ("request_output_len", [[0]], "INT32")):
        values = np.array(value, dtype=np.int32)
        made.append(module.InferInput(name, list(values.shape), kind))
        made[-1].set_data_from_numpy(values)
    return made


def by_triton(module, address):
    def send(c, n, priority):
        client = module.InferenceServerClient("%s:%d" % address(c), **({"network_timeout": 120} if module is triton_http else {}))
        inputs = tensors(module)
        inputs[2].set_data_from_numpy(np.array([[n]], dtype=np.int32))
        client.infer("tensorrt_llm", inputs, priority=priority or 0)  # 0: the client sends none
        client.close()
    return send


def triton_senders():
    return {"generate": by_generate, "HTTP infer": by_triton(triton_http, lambda c: c.http),
            "gRPC": by_triton(triton_grpc, lambda c: c.grpc)}


def test_openai_serves_the_lowest_priority_first(c):
    for send in (by_openai, by_chat):
        assert served(c, TRACE, send, [9, None, 1, -3]) == [-3, None, 1, 9], send


def test_triton_serves_priority_one_first(c):
    for door, send in triton_senders().items():
        assert served(c, TRACE, send, [2**64 - 1, None, 9, 1]) == [1, 9, None, 2**64 - 1], door
        assert served(c, TRACE, send, [25, None, 1]) == [1, None, 25], door


def test_share_of_one_serves_the_highest_first(c):
    for send in (by_openai, by_generate):
        assert served(c, TRACE, send, [0.0, None, 0.8, 1.0]) == [1.0, 0.8, None, 0.0], send


def test_priorities_of_all_apis_share_one_scale(c):
    """Triton's 13 is the default of 25, so its 12 is before OpenAI's 0 and its 14 behind."""
    def send(c, n, said):
        (by_openai if said[0] == "openai" else by_generate)(c, n, said[1])
    given = [("triton", 14), ("openai", 0), ("triton", 12), ("openai", -2)]
    assert served(c, TRACE, send, given) == list(reversed(given))


def test_invalid_priority_is_refused_with_the_allowed_range(c):
    for path, body, words in (
            ("/v1/completions", {"prompt": "a"}, "the lowest is the first"),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, "the lowest is the first"),
            ("/v2/models/ensemble/generate", {"text_input": "a"}, "1 is the first")):
        for bad in ("high", True, [1, 2], {}, 1.5, -0.5) + ((-1,) if "generate" in path else ()):
            status, answer = c.post(path, dict(body, max_tokens=1, priority=bad))
            assert status == 400 and words in str(answer), (path, bad, status, answer)


@contextlib.contextmanager
def own_cluster(*router_args):
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        trace = os.path.join(directory, "trace")
        with harness.Cluster(endless(), kv_memory="128m", router_args=["--trace-file", trace, *router_args], **ONE_SEAT) as c:
            yield c, trace


def test_priority_levels_of_a_repository_follow_triton(_):
    """Three levels, of which the last is the default: 7 is above them, so the default, too. No --client-priority."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        os.makedirs(os.path.join(directory, "tensorrt_llm"))
        with open(os.path.join(directory, "tensorrt_llm", "config.pbtxt"), "w", encoding="utf-8") as f:
            f.write('name: "tensorrt_llm"\nbackend: "tensorrtllm"\nmax_batch_size: 8\n'
                    "dynamic_batching { priority_levels: 3 default_priority_level: 3 }\n")
        with own_cluster("--model-repository", directory) as (c, trace):
            for door, send in triton_senders().items():
                assert served(c, trace, send, [7, 3, None, 2, 1]) == [1, 2, 7, 3, None], door
            assert served(c, trace, by_openai, [1, 0, -1, -2]) == [-2, -1, 1, 0]
            _, _, config = c.request("GET", "/v2/models/tensorrt_llm/config")
            assert b'"priority_levels":3,"default_priority_level":3' in config, config


def test_priority_is_unchecked_without_client_priority(_):
    """What is documented as ignored: any value, at every API, and the order is that of arrival."""
    with own_cluster() as (c, trace):
        for value in (-1, 0.5, 1.5, "high", True, [1, 2], {"a": 1}, 2**40):
            for path, body in (("/v1/completions", {"prompt": "a"}), ("/v2/models/ensemble/generate", {"text_input": "a"}),
                               ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                               ("/v1/responses", {"input": "a", "max_output_tokens": 1}),
                               ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
                               ("/api/generate", {"prompt": "a", "options": {"num_predict": 1}, "stream": False}),
                               ("/inference/v1/generate", {"token_ids": [5], "sampling_params": {"max_tokens": 1}})):
                body = body if "input" in body or "token_ids" in body else dict(body, max_tokens=1)
                status, answer = c.post(path, dict(body, priority=value))
                assert status == 200, (path, value, status, answer)
            inputs = [{"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]},
                      {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [1]}]
            status, answer = c.post("/v2/models/ensemble/infer", {"inputs": inputs, "parameters": {"priority": value}})
            assert status == 200, (value, status, answer)
        triton_senders()["gRPC"](c, 1, 2**64 - 1)
        wait_until("all are in the trace", lambda: len(read(trace)) == 8 * 8 + 1)
        assert served(c, trace, by_openai, [9, -9, 0]) == [9, -9, 0]


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), missing=MISSING, model_of=endless, kv_memory="128m",
                               router_args=["--trace-file", TRACE, "--client-priority"], **ONE_SEAT))
