# SPDX-License-Identifier: Apache-2.0
"""Log-probs, logits and echo, through real processes: the values of float32 PyTorch within the model's accuracy, the
same ones by whatever way a request goes (I1), each once when a worker dies."""
import asyncio
import concurrent.futures
import json
import math
import os
import struct
import tempfile

from harness import ENDLESS, ROOT, Cluster, Stream, default_model, endless_model, small_model, tiny_model, wait_until

# As tests/unit/inference/model/test_accuracy.c has them, and why.
MAX_PERPLEXITY_CHANGE = 0.0067
MIN_SAME_TOP = 0.965
TEXT = "the quick brown fox jumps over a lazy dog while seven wizards boxed quietly near an old stone bridge"


def golden():
    """What is in accuracy_logits.bin: made by tests/golden/make_logits_golden.py with PyTorch transformers in float32
    on the same file dequantized; its format stands there.
    @return of each window its tokens, the log-prob of each next token, the best id at each position"""
    with open(os.path.join(ROOT, "tests/golden/accuracy_logits.bin"), "rb") as f:
        data = f.read()
    assert data[:8] == b"BTLOGIT2"
    n_windows, window, top, every, id_bytes = struct.unpack_from("<5I", data, 8)
    assert (every, id_bytes) == (1, 2)
    n = n_windows * window
    tokens = struct.unpack_from(f"<{n + 1}H", data, 28)
    at = 28 + 2 * (n + 1)
    targets = struct.unpack_from(f"<{n}f", data, at)
    ids = struct.unpack_from(f"<{n * top}H", data, at + 8 * n)
    return [(tokens[i:i + window], targets[i:i + window], [ids[k * top] for k in range(i, i + window)])
            for i in range(0, n, window)]


def choice(c, body, path="/v1/completions"):
    status, answer = c.post(path, body, timeout=600)
    assert status == 200, (status, answer)
    return answer["choices"][0] if "choices" in answer else answer


def choices(c, body):
    status, answer = c.post("/v1/completions", body, timeout=600)
    assert status == 200, (status, answer)
    return answer["choices"]


def test_log_probs_equal_float32_within_the_models_accuracy():
    model = default_model()
    windows = golden()
    with Cluster(model, kv_memory="128m", worker_args=["--kv-dtype", "f16"]) as c:
        ours = theirs = 0.0
        n_same = n = 0
        for window in choices(c, {"prompt": [list(w[0]) for w in windows], "max_tokens": 0, "echo": True,
                                  "logprobs": 1}):
            tokens, targets, best = windows[window["index"]]
            got = window["logprobs"]
            assert all(len(got[k]) == len(tokens) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset"))
            assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None
            # Position i of the golden values is about token i + 1.
            ours -= sum(got["token_logprobs"][1:])
            theirs -= sum(targets[:-1])
            spelled = dict(zip(tokens, got["tokens"]))
            same = [max(t, key=t.get) == spelled[b] for t, b in zip(got["top_logprobs"][1:], best) if b in spelled]
            n_same += sum(same)
            n += len(same)
        change = math.exp((ours - theirs) / (len(windows) * (len(windows[0][0]) - 1))) - 1
        assert abs(change) < MAX_PERPLEXITY_CHANGE, change
        assert n > 2000 and n_same / n >= MIN_SAME_TOP, (n_same, n)
        # A row of this vocabulary goes in several pieces. The log-prob of the token that is drawn greedily is the
        # largest logit less the log of the sum, here by Python of what 9 digits of each logit give.
        answer = choice(c, {"text_input": TEXT, "max_tokens": 2, "return_log_probs": True,
                            "return_generation_logits": True}, "/v2/models/ensemble/generate")
        rows = answer["generation_logits"]
        n_vocab = len(rows) // 2
        assert n_vocab == 49152, n_vocab
        for i, logprob in enumerate(answer["output_log_probs"]):
            assert abs(logprob - log_softmax(rows[i * n_vocab:(i + 1) * n_vocab])[1]) < 1e-6
        assert answer["cum_log_probs"] == sum(answer["output_log_probs"])
        c.wait_idle()


def log_softmax(row):
    """@return log of the sum, and the largest log-prob"""
    top = max(row)
    total = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return total, top - total


REQUESTS = [
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 9, "temperature": 0, "logprobs": 5}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": 1}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 1, "echo": True, "logprobs": 0, "temperature": 0}),
    ("/v1/completions", {"prompt": [72, 101, 108, 9], "max_tokens": 5, "echo": True, "logprobs": 20, "seed": 3}),
    ("/v1/completions", {"prompt": [[5], [6, 7]], "max_tokens": 3, "echo": True, "logprobs": 2, "seed": 4}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 7, "n": 4, "seed": 11, "logprobs": 2, "temperature": 0.9,
                         "frequency_penalty": 1.5, "logit_bias": {"70": 5}}),
    ("/v1/completions", {"prompt": [TEXT, [5, 6, 7]], "max_tokens": 3, "n": 2, "seed": 6, "logprobs": 1, "prompt_logprobs": 3}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 6, "seed": 5,
                              "logprobs": True, "top_logprobs": 3}),
    ("/v2/models/ensemble/generate", {"text_input": TEXT, "max_tokens": 4, "return_log_probs": True,
                                      "return_context_logits": True, "return_generation_logits": True}),
]


def ask_all(c, at_a_time):
    def one(request):
        status, answer = c.post(*request, timeout=600)
        assert status == 200, (request, status, answer)
        return answer.get("choices", answer)

    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(one, [(path, dict(body, ignore_eos=True)) for path, body in REQUESTS]))


def test_log_probs_are_equal_on_every_path():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        ways = {
            "one worker, one at a time": dict(prefill=0, decode_args=["--local-prefill"],
                                              worker_args=["--prefix-cache", "off", "--chunk-tokens", "512"]),
            "a pair, chunks of 16, a cache": dict(worker_args=["--chunk-tokens", "16"]),
            "two of each, over the network": dict(prefill=2, decode=2, worker_args=["--kv-transport", "network"]),
        }
        reference = None
        for i, (way, options) in enumerate(ways.items()):
            with Cluster(model, **options) as c:
                for turn in range(2):  # the second finds the prompts in the cache
                    got = ask_all(c, 1 if i == 0 else len(REQUESTS))
                    reference = reference or got
                    for request, a, b in zip(REQUESTS, reference, got):
                        assert a == b, f"{way}, turn {turn}: {request} differs"
                c.wait_idle()


def test_log_probs_name_the_tokens_of_the_text():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d)) as c:
            plain = choice(c, {"prompt": TEXT, "max_tokens": 8, "temperature": 0, "ignore_eos": True})
            assert plain["logprobs"] is None
            got = choice(c, {"prompt": TEXT, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "echo": True,
                             "logprobs": 4})
            assert got["text"] == TEXT + plain["text"]
            scores = got["logprobs"]
            n = len(scores["tokens"]) - 8
            assert "".join(scores["tokens"][:n]) == TEXT
            for token, offset in zip(scores["tokens"][:n], scores["text_offset"]):
                assert got["text"][offset:offset + len(token)] == token
            assert scores["text_offset"] == sorted(scores["text_offset"])
            for token, value, top in list(zip(scores["tokens"], scores["token_logprobs"], scores["top_logprobs"]))[1:]:
                assert top[token] == value and len(top) in (4, 5)
                assert list(top.values())[:4] == sorted(top.values(), reverse=True)[:4]
            # Greedy: each new token is the best, to the last bit.
            assert all(v == max(t.values()) for v, t in
                       zip(scores["token_logprobs"][n:], scores["top_logprobs"][n:]))
            assert choice(c, {"prompt": TEXT, "max_tokens": 0, "echo": True})["text"] == TEXT
            one = choice(c, {"prompt": TEXT, "max_tokens": 1, "echo": True, "logprobs": 4, "temperature": 0})
            assert one["logprobs"]["token_logprobs"] == scores["token_logprobs"][:n + 1]
            # Logits of the prompt give the same log-probs, up to Python's rounding.
            answer = choice(c, {"text_input": TEXT, "max_tokens": 1, "return_context_logits": True},
                            "/v2/models/ensemble/generate")
            rows = answer["context_logits"]
            n_vocab = len(rows) // n
            assert len(rows) == n * n_vocab
            for i in range(n - 1):
                row = rows[i * n_vocab:(i + 1) * n_vocab]
                assert abs(log_softmax(row)[1] - max(scores["top_logprobs"][i + 1].values())) < 1e-6, i
            c.wait_idle()


def whole_of(events):
    """Pieces of one choice, put together."""
    whole = {"text": "", "tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for event in events:
        piece = event["choices"][0] if event["choices"] else {"text": "", "logprobs": {}}
        whole["text"] += piece["text"]
        for name, values in piece["logprobs"].items():
            whole[name] += values
    return whole


def test_streamed_log_probs_equal_unary_ones():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d)) as c:
            for more in ({}, {"echo": True}, {"echo": True, "max_tokens": 0}, {"stop": ["9"]}):
                body = dict({"prompt": TEXT, "max_tokens": 20, "temperature": 0.8, "seed": 7, "ignore_eos": True,
                             "logprobs": 2}, **more)
                whole = choice(c, body)

                async def stream():
                    s = await Stream(c.http, "/v1/completions", dict(body, stream=True)).open()
                    await s.run()
                    return s.events
                got = whole_of(asyncio.run(stream()))
                assert got.pop("text") == whole["text"], more
                assert got == whole["logprobs"], more
            body = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 9, "seed": 5, "logprobs": True,
                    "top_logprobs": 2, "ignore_eos": True}
            whole = choice(c, body, "/v1/chat/completions")

            async def chat():
                s = await Stream(c.http, "/v1/chat/completions", dict(body, stream=True)).open()
                await s.run()
                return s.events
            events = asyncio.run(chat())
            content = [t for e in events for x in e["choices"] if x["logprobs"] for t in x["logprobs"]["content"]]
            assert content == whole["logprobs"]["content"] and len(content) == 9
            text = b"".join(bytes(t["bytes"]) for t in content if t["token"][:2] != "<|").decode(errors="replace")
            assert text == whole["message"]["content"]


def test_log_probs_come_once_each_when_a_worker_dies():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), prefill=2, decode=2, kv_memory="256m") as c:
            body = {"prompt": TEXT, "max_tokens": ENDLESS, "temperature": 0.9, "seed": 9, "ignore_eos": True,
                    "logprobs": 1, "echo": True, "stream": True}

            async def interrupted():
                s = await Stream(c.http, "/v1/completions", body).open()
                n, before = 0, None
                async for chunk in s.chunks():
                    for line in chunk.split(b"\n"):
                        if line.startswith(b"data: {"):
                            s.events.append(json.loads(line[6:]))
                    n += 1
                    if n == 6:
                        busy = wait_until("a decode worker says that it has it", lambda: [
                            p for p in c.decodes if c.total("baton_worker_active_requests", worker=p.name) > 0])
                        busy[0].kill()
                        other = c.decodes[1 - c.decodes.index(busy[0])]
                        wait_until("the other one has it", lambda: c.total(
                            "baton_worker_active_requests", worker=other.name) > 0)
                        before = len(s.events)
                    if before and len(s.events) > before + 12:
                        break
                s.writer.close()
                return whole_of(s.events)
            got = asyncio.run(interrupted())
            n = len(got["tokens"])
            wait_until("it ran again", lambda: c.total("baton_retries_total") == 1)
            n_new = n - len(choice(c, {"prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": 0})
                            ["logprobs"]["tokens"])
            want = choice(c, dict(body, max_tokens=n_new, stream=False))
            assert want["logprobs"] == {k: v for k, v in got.items() if k != "text"}


def test_logits_over_the_limit_are_refused_by_name():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), router_args=["--max-logits-bytes", "20k"]) as c:
            body = {"text_input": "word", "max_tokens": 2, "return_generation_logits": True}
            path = "/v2/models/ensemble/generate"
            assert len(choice(c, body, path)["generation_logits"]) > 0
            status, answer = c.post(path, dict(body, max_tokens=200))
            assert status == 400 and "max-logits-bytes" in answer["error"], (status, answer)
            assert len(choice(c, dict(body, max_tokens=200, return_generation_logits=False, return_log_probs=True,
                                      ignore_eos=True), path)["output_log_probs"]) == 200
        with Cluster(small_model(d), worker_args=["--max-logits-bytes", "1k"]) as c:
            status, answer = c.post(path, body)
            assert status == 400 and "max-logits-bytes" in answer["error"], (status, answer)
            wait_until("nothing is held", lambda: c.metric("baton_worker_requests") == 0)


def test_log_probs_over_the_answer_limit_are_refused():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="256m") as c:
            body = {"prompt": "word", "n": 64, "logprobs": 20, "max_tokens": 5000}
            status, answer = c.post("/v1/completions", body)
            assert status == 400 and answer["error"]["param"] == "logprobs", (status, answer)
            assert "320000 tokens with 20 alternatives" in answer["error"]["message"], answer
            assert len(choices(c, dict(body, max_tokens=2))) == 64


def test_logits_over_the_answer_limit_are_refused_before_prefill():
    """As JSON a float takes up to 16 bytes ("-1.17549435e-38,"), and logits have 63 MiB of an answer; raw a float takes 4.
    What is refused has begun no sequence."""
    n_vocab = 4096
    fits = (63 << 20) // 16 // n_vocab  # rows as JSON
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=1, dim=64, heads=4, kv_heads=2, ffn=128, context=4096, seed=1, vocab=n_vocab)
        with Cluster(model) as c:
            def infer(rows, binary):
                def tensor(name, kind, values):
                    return {"name": name, "datatype": kind, "shape": [1, len(values)], "data": values}
                status, _, data = c.request("POST", "/v2/models/tensorrt_llm/infer", {"inputs": [
                    tensor("input_ids", "INT32", [5] * rows), tensor("input_lengths", "INT32", [rows]), tensor("request_output_len", "INT32", [1]),
                    tensor("return_context_logits", "BOOL", [True])],
                    "outputs": [{"name": "context_logits", "parameters": {"binary_data": binary}}]}, timeout=600)
                return status, data

            def generate(text):
                return c.post("/v2/models/ensemble/generate", {"text_input": text, "max_tokens": 1, "return_context_logits": True}, timeout=600)

            def refused(status, data):
                error = data["error"] if isinstance(data, dict) else json.loads(data)["error"]
                return status == 400 and "the logits of this request are up to" in error and "binary_data" in error

            assert refused(*infer(fits + 1, False)) and refused(*infer(4 * fits + 1, True)) and refused(*generate("a " * 1500))
            assert c.total("baton_tenant_requests_total") == 0
            status, data = infer(fits, False)
            assert status == 200 and json.loads(data)["outputs"][0]["shape"] == [1, fits, n_vocab], (status, data[:300])
            status, data = infer(fits + 1, True)
            assert status == 200 and len(data) > (fits + 1) * n_vocab * 4, (status, data[:300])
            status, answer = generate("a " * 20)
            assert status == 200 and len(answer["context_logits"]) % n_vocab == 0, (status, str(answer)[:300])


def test_logits_delay_no_other_request_and_end_with_their_client():
    """Clients that leave while theirs are computed and sent."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d)) as c:
            body = {"text_input": TEXT, "max_tokens": 100, "return_generation_logits": True, "ignore_eos": True,
                    "return_context_logits": True}

            async def leave():
                s = await Stream(c.http, "/v2/models/ensemble/generate_stream", body).open()
                s.writer.close()
            for _ in range(8):
                asyncio.run(leave())
            assert c.complete("hello", 4)["text"] is not None
            c.wait_idle()
            wait_until("nothing is held", lambda: c.metric("baton_worker_requests") == 0)
