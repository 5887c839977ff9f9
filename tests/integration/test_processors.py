# SPDX-License-Identifier: Apache-2.0
"""Logits processors through real processes: each token of an answer is the one that the published formulas draw from
the model's own logits (tests/support/reference_draw.py); neutral values change no byte; drafts, local and separate
prefill give the same bytes."""
import concurrent.futures
import os
import random
import sys
import tempfile

from harness import ROOT, Cluster, tiny_model

sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import reference_draw  # noqa: E402

COMPLETIONS, CHAT, GENERATE = "/v1/completions", "/v1/chat/completions", "/v2/models/ensemble/generate"
OPENING = "{{ messages[0].content }}<think>"
# Values that are the field's "off", alone and together.
NEUTRAL = {"no_repeat_ngram_size": 0, "top_p_decay": 1, "top_p_min": 0.5, "top_p_reset_ids": 5, "top_n_sigma": -1,
           "typical_p": 1, "xtc_probability": 0, "xtc_threshold": 0.2, "dry_multiplier": 0, "dry_base": 2,
           "dry_allowed_length": 1, "dry_penalty_last_n": 64, "dry_sequence_breakers": ["a"], "mirostat": 0,
           "repetition_detection": {"max_pattern_size": 0}, "thinking_token_budget": -1}
# Options of requests, each of which changes draws.
CASES = [
    {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 3, "temperature": 0, "max_tokens": 240},
    {"top_p": 0.9, "top_p_decay": 0.8}, {"top_p": 0.95, "top_p_decay": 0.5, "top_p_min": 0.3},
    {"top_p": 0.2, "top_p_decay": 0.9, "top_p_min": 0.6},
    {"top_p": 0.9, "top_p_decay": 0.7, "top_p_reset_ids": 100}, {"top_p": 0.9, "top_p_decay": 0.7, "top_k": 20},
    {"top_n_sigma": 1.0}, {"top_n_sigma": 0.5, "temperature": 2}, {"top_n_sigma": 2.5, "top_k": 30, "min_p": 0.05},
    {"typical_p": 0.5}, {"typical_p": 0.2, "temperature": 0.7}, {"typical_p": 0.9, "top_k": 12, "top_p": 0.8},
    {"xtc_probability": 1, "xtc_threshold": 0.02}, {"xtc_probability": 0.5, "xtc_threshold": 0.05, "temperature": 0.3},
    {"xtc_probability": 0.5, "xtc_threshold": 0.1, "top_p": 0.7, "temperature": 0.5},
    {"dry_multiplier": 5, "temperature": 0, "max_tokens": 240}, {"dry_multiplier": 0.8, "dry_allowed_length": 1, "dry_base": 1.2, "temperature": 0, "max_tokens": 240},
    {"dry_multiplier": 3, "dry_penalty_last_n": 9, "dry_allowed_length": 1, "temperature": 0, "max_tokens": 240}, {"dry_multiplier": 9, "dry_allowed_length": 0},
    {"dry_multiplier": 4, "dry_allowed_length": 1, "dry_sequence_breakers": ["e", "st"], "temperature": 0,
     "max_tokens": 240},
    {"allowed_token_ids": [70, 71, 72, 100]}, {"allowed_token_ids": [72, 70], "no_repeat_ngram_size": 1},
    {"allowed_token_ids": list(range(50, 250)), "temperature": 0},
    {"no_repeat_ngram_size": 2, "typical_p": 0.8, "top_n_sigma": 2, "xtc_probability": 0.4, "xtc_threshold": 0.05,
     "top_p": 0.95, "top_p_decay": 0.9, "dry_multiplier": 1, "dry_allowed_length": 1, "min_p": 0.01, "top_k": 40,
     "repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.2,
     "allowed_token_ids": list(range(20, 280))},
]


def model_of(d, **more):
    return tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=512, seed=11, **more)


def prompt_of(rng):
    """It repeats itself, so that DRY and n-grams have something to find."""
    part = [rng.randint(20, 250) for _ in range(rng.randint(2, 5))]
    return (part * 4)[:rng.randint(6, 18)]


def bodies(n, seed, cases=CASES):
    rng = random.Random(seed)
    out = []
    for i in range(n):
        body = {"prompt": prompt_of(rng), "max_tokens": 24, "seed": rng.getrandbits(63), "temperature": 1,
                "ignore_eos": True, "return_token_ids": True}
        out.append(dict(body, **cases[i % len(cases)]))
    return out


def ask(c, body, path=COMPLETIONS):
    status, answer = c.post(path, body, timeout=600)
    assert status == 200, (status, answer, body)
    return answer["choices"][0]


def ask_all(c, requests, parallel=8):
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(lambda body: ask(c, body)["token_ids"], requests))


def rows_of(c, tokens):
    """The model's logits behind each of the tokens."""
    status, answer = c.post("/v2/models/tensorrt_llm/infer", {
        "inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [1, len(tokens)], "data": [tokens]},
                   {"name": "request_output_len", "datatype": "INT32", "shape": [1, 1], "data": [1]},
                   {"name": "return_context_logits", "datatype": "BOOL", "shape": [1, 1], "data": [True]}],
        "outputs": [{"name": "context_logits"}]}, timeout=600)
    assert status == 200, answer
    output = next(x for x in answer["outputs"] if x["name"] == "context_logits")
    n = output["shape"][-1]
    return [output["data"][i * n:(i + 1) * n] for i in range(len(tokens))]


def texts_of(c, n_vocab):
    return [c.post("/detokenize", {"tokens": [i]})[1]["prompt"] for i in range(n_vocab)]


def breakers(texts, body):
    return {i for i, text in enumerate(texts)
            if any(x in text for x in body.get("dry_sequence_breakers", ["\n", ":", '"', "*"]))}


def check(c, body, ids, texts):
    prompt = body["prompt"]
    rows = rows_of(c, prompt + ids)
    options = dict(body, breakers=breakers(texts, body)) if "dry_multiplier" in body else body
    for i, token in enumerate(ids):
        before = prompt + ids[:i]
        want = reference_draw.draw(rows[len(before) - 1], before, len(prompt), body["seed"], options)
        assert token == want, (body, ids, i, want)


def test_each_token_is_the_one_that_the_formulas_draw():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        texts = texts_of(c, len(rows_of(c, [70])[0]))
        requests = bodies(2 * len(CASES), 1)
        answers = ask_all(c, requests)
        for body, ids in zip(requests, answers):
            assert len(ids) == body["max_tokens"], (body, ids)
            check(c, body, ids, texts)
        # Each option did something.
        plain = ask_all(c, [{k: v for k, v in body.items() if k in (
            "prompt", "max_tokens", "seed", "temperature", "ignore_eos", "return_token_ids")} for body in requests])
        for i, case in enumerate(CASES):
            assert any(plain[k] != answers[k] for k in range(i, len(requests), len(CASES))), case
        c.wait_idle()


def test_neutral_values_of_processors_change_no_byte():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for temperature in (0, 1):
            plain = bodies(1, 2, [{"temperature": temperature, "top_p": 0.9}])[0]
            want = ask(c, plain)["token_ids"]
            for name, value in NEUTRAL.items():
                assert ask(c, dict(plain, **{name: value}))["token_ids"] == want, name
            assert ask(c, dict(plain, **NEUTRAL))["token_ids"] == want
            assert ask(c, dict(plain, dry_multiplier=5, dry_penalty_last_n=0))["token_ids"] == want
            assert ask(c, dict(plain, xtc_probability=1, xtc_threshold=0.6))["token_ids"] == want
        c.wait_idle()


def test_processors_give_the_same_bytes_with_drafts_and_by_any_worker():
    requests = bodies(2 * len(CASES), 3)
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        with Cluster(model, kv_memory="32m", worker_args=["--draft", "off"]) as c:
            want = ask_all(c, requests)
            c.wait_idle()
        with Cluster(model, kv_memory="32m", worker_args=["--draft-tokens", "4"]) as c:
            drafted = [dict(body, draft_input_ids=ids[:12] + [70] + ids[13:]) for body, ids in zip(requests, want)]
            assert ask_all(c, requests) == want
            assert ask_all(c, drafted) == want
            c.wait_idle()
        with Cluster(model, prefill=0, kv_memory="32m", decode_args=["--local-prefill"]) as c:
            assert ask_all(c, requests) == want
            c.wait_idle()


def test_penalties_count_the_prompt_at_tritons_door_alone():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        rng = random.Random(5)
        for options in ({"presence_penalty": 1.5}, {"frequency_penalty": 0.7}, {"frequency_penalty": -0.5},
                        {"presence_penalty": 1, "prompt_ignore_length": 4},
                        {"frequency_penalty": 0.6, "prompt_ignore_length": 400}):
            prompt, seed = prompt_of(rng), rng.getrandbits(63)
            inputs = {"input_ids": ("INT32", prompt), "request_output_len": ("INT32", [16]),
                      "random_seed": ("UINT64", [seed]), "runtime_top_p": ("FP32", [1]), "temperature": ("FP32", [1])}
            for name, value in options.items():
                inputs[name] = ("INT32" if name == "prompt_ignore_length" else "FP32", [value])
            status, answer = c.post("/v2/models/tensorrt_llm/infer", {"inputs": [
                {"name": name, "datatype": kind, "shape": [1, len(data)], "data": [data]}
                for name, (kind, data) in inputs.items()]})
            assert status == 200, answer
            ids = next(x["data"] for x in answer["outputs"] if x["name"] == "output_ids")[-16:]
            triton = dict(options, prompt=prompt, seed=seed, temperature=1, counts_prompt=True)
            check(c, triton, ids, None)
            if "prompt_ignore_length" not in options:
                body = dict(options, prompt=prompt, seed=seed, temperature=1, max_tokens=16, ignore_eos=True,
                            return_token_ids=True)
                check(c, body, ask(c, body)["token_ids"], None)
        c.wait_idle()


def test_embedding_bias_may_have_a_value_for_each_token():
    rng = random.Random(9)
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d, vocab=3000), kv_memory="32m") as c:
        biases = [round(rng.uniform(-4, 4), 3) for _ in range(3000)]
        for temperature, more in ((0, {}), (1, {"repetition_penalty": 1.3}), (1, {"no_repeat_ngram_size": 1})):
            prompt, seed = prompt_of(rng), rng.getrandbits(63)
            inputs = {"input_ids": ("INT32", prompt), "request_output_len": ("INT32", [12]), "embedding_bias": ("FP32", biases),
                      "random_seed": ("UINT64", [seed]), "runtime_top_p": ("FP32", [1]), "temperature": ("FP32", [temperature])}
            for name, value in more.items():
                inputs[name] = ("INT32" if name == "no_repeat_ngram_size" else "FP32", [value])
            status, answer = c.post("/v2/models/tensorrt_llm/infer", {"inputs": [
                {"name": name, "datatype": kind, "shape": [1, len(data)], "data": data}
                for name, (kind, data) in inputs.items()]})
            assert status == 200, answer
            ids = next(x["data"] for x in answer["outputs"] if x["name"] == "output_ids")[-12:]
            check(c, dict(more, prompt=prompt, seed=seed, temperature=temperature, embedding_bias=biases), ids, None)
        c.wait_idle()


def test_top_p_decay_and_ngrams_of_tritons_inputs_are_those_of_the_json_fields():
    body = {"text_input": "abc abc abc", "max_tokens": 20, "random_seed": 77, "temperature": 1, "top_p": 0.95}
    fields = {"runtime_top_p_decay": ("FP32", 0.6), "runtime_top_p_min": ("FP32", 0.2),
              "runtime_top_p_reset_ids": ("INT32", 101), "no_repeat_ngram_size": ("INT32", 2)}
    kinds = {"text_input": "BYTES", "max_tokens": "INT32", "random_seed": "UINT64", "temperature": "FP32", "top_p": "FP32"}
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        texts = set()
        for name, (_, value) in fields.items():
            given = dict(body, **{"runtime_top_p_decay": 0.6, name: value})
            status, by_json = c.post(GENERATE, given)
            assert status == 200, by_json
            status, by_tensor = c.post("/v2/models/ensemble/infer", {"inputs": [
                {"name": k, "datatype": kinds.get(k) or fields[k][0], "shape": [1, 1], "data": [v]}
                for k, v in given.items()]})
            assert status == 200, by_tensor
            text = next(x["data"][0] for x in by_tensor["outputs"] if x["name"] == "text_output")
            assert text == by_json["text_output"], name
            texts.add(text)
        assert len(texts) > 2, texts
        c.wait_idle()


def test_thinking_budget_closes_the_thinking_part():
    with tempfile.TemporaryDirectory() as d:
        template = os.path.join(d, "template")
        with open(template, "w") as f:
            f.write(OPENING)
        thinker = ["--chat-template", template, "--reasoning-parser", "think"]
        with Cluster(model_of(d, thinks=True), kv_memory="32m", router_args=thinker) as c:
            opened, close = (c.post("/tokenize", {"prompt": x, "add_special_tokens": False})[1]["tokens"]
                             for x in ("<think>", "</think>"))
            assert len(opened) == len(close) == 1
            for budget, temperature in ((0, 0), (5, 1), (9, 0), (30, 1)):
                body = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 40, "seed": 5,
                        "temperature": temperature, "ignore_eos": True, "return_token_ids": True}
                free = ask(c, body, CHAT)["token_ids"]
                choice = ask(c, dict(body, thinking_token_budget=budget), CHAT)
                ids = choice["token_ids"]
                early = free.index(close[0]) if close[0] in free[:budget] else None
                assert ids[:budget] == free[:budget]
                assert ids.index(close[0]) == (budget if early is None else early), (budget, ids, free)
                assert len(ids) == 40
                assert choice["message"]["content"], choice
                again = ask(c, dict(body, thinking_budget_tokens=budget, draft_input_ids=free), CHAT)["token_ids"]
                assert again == ids
            # The prompt's last mark counts at every route; an answer may open the part with its first tokens.
            body = {"max_tokens": 12, "seed": 6, "temperature": 1, "return_token_ids": True, "ignore_eos": True,
                    "thinking_token_budget": 3}
            for prompt, thinks in ((opened + [70, 71], True), (opened + close + [70], False), ([70, 71], False)):
                free = ask(c, dict(body, prompt=prompt, thinking_token_budget=-1))["token_ids"]
                ids = ask(c, dict(body, prompt=prompt))["token_ids"]
                assert ids[:3] == free[:3] and (ids[3] == close[0] if thinks else ids == free), (prompt, ids, free)
            opens = dict(body, prompt=[70, 71], allowed_token_ids=opened)
            assert ask(c, opens)["token_ids"][:5] == opened * 4 + close
            c.wait_idle()
        for thinks, parser, text in (({}, "think", "has no token <think>"), ({"thinks": True}, "off", "--reasoning-parser")):
            with Cluster(model_of(d, **thinks), kv_memory="32m", router_args=["--reasoning-parser", parser]) as c:
                status, answer = c.post(COMPLETIONS, {"prompt": "abc", "thinking_token_budget": 5})
                assert status == 400 and text in answer["error"]["message"], answer
                assert answer["error"]["param"] == "thinking_token_budget", answer


def test_repetition_detection_ends_an_answer_at_the_last_repeat():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        n_ended = 0
        for seed in range(6):
            body = {"prompt": prompt_of(random.Random(seed)), "max_tokens": 200, "temperature": 0, "ignore_eos": True,
                    "return_token_ids": True}
            whole = ask(c, body)
            for options in ({"max_pattern_size": 20, "min_count": 2}, {"max_pattern_size": 40, "min_count": 3},
                            {"max_pattern_size": 8, "min_pattern_size": 4, "min_count": 2}):
                sizes = range(max(1, options.get("min_pattern_size", 0)), options["max_pattern_size"] + 1)
                ids = whole["token_ids"]
                ends = next((i for i in range(1, len(ids)) if any(
                    i >= n * options["min_count"] and
                    ids[i - n * options["min_count"]:i] == ids[i - n:i] * options["min_count"] for n in sizes)), None)
                choice = ask(c, dict(body, repetition_detection=options))
                assert choice["token_ids"] == ids[:ends], (options, ends)
                assert choice["finish_reason"] == ("length" if ends is None else "repetition"), choice
                assert whole["text"].startswith(choice["text"])
                n_ended += ends is not None
                status, raw = c.request("POST", COMPLETIONS, dict(body, repetition_detection=options, stream=True))[::2]
                assert status == 200 and (b'"repetition"' in raw) == (ends is not None), raw[-300:]
        assert n_ended > 3
        c.wait_idle()


def test_values_of_processors_that_are_refused_name_their_field():
    refused = [("no_repeat_ngram_size", -1), ("no_repeat_ngram_size", 1025), ("top_p_decay", 1.5), ("top_p_min", "a"), ("top_n_sigma", -2),
               ("typical_p", 1.5), ("xtc_probability", 1.1), ("xtc_threshold", -0.1), ("dry_multiplier", -1),
               ("dry_base", -1), ("dry_allowed_length", -1), ("dry_penalty_last_n", -2),
               ("dry_sequence_breakers", [1]), ("thinking_token_budget", 5), ("allowed_token_ids", []), ("allowed_token_ids", [1 << 30]),
               ("allowed_token_ids", 5), ("thinking_token_budget", "x"), ("mirostat", 2), ("repetition_detection", 1),
               ("repetition_detection", {"max_pattern_size": 4}), ("repetition_detection", {"max_pattern_size": 4, "min_count": 1}),
               ("repetition_detection", {"max_pattern_size": 4, "min_pattern_size": 5, "min_count": 2}),
               ("repetition_detection", {"max_pattern_size": 2000, "min_count": 2})]
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for name, value in refused:
            status, answer = c.post(COMPLETIONS, {"prompt": "abc", name: value})
            assert status == 400 and name in answer["error"]["message"], (name, value, answer)
        status, answer = c.post(COMPLETIONS, {"prompt": "abc", "dry_multiplier": 1, "dry_sequence_breakers": ["a", "no token"]})
        assert status == 400 and "number 1" in answer["error"]["message"], answer
        c.wait_idle()


def test_return_perf_metrics_gives_the_numbers_of_the_request():
    names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m", worker_args=["--draft-tokens", "4"]) as c:
        prompt = [70 + i % 7 for i in range(40)]
        free = ask(c, {"prompt": prompt, "max_tokens": 20, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
        inputs = {"input_ids": ("INT32", prompt), "request_output_len": ("INT32", [20]),
                  "draft_input_ids": ("INT32", free["token_ids"]), "return_perf_metrics": ("BOOL", [True]),
                  "return_num_input_tokens": ("BOOL", [True]), "return_num_output_tokens": ("BOOL", [True])}

        def numbers(without=()):
            status, answer = c.post("/v2/models/tensorrt_llm/infer", {"inputs": [
                {"name": name, "datatype": kind, "shape": [1, len(data)], "data": data}
                for name, (kind, data) in inputs.items() if name not in without]})
            assert status == 200, answer
            return {x["name"]: (x["datatype"], x["shape"], x["data"]) for x in answer["outputs"]}

        got = numbers()
        assert [got[x][:2] for x in names] == [("INT64", [1, 1])] * 4
        times = [got[x][2][0] for x in names]
        assert times == sorted(times) and times[0] > 0, times
        value = {name: data[0] for name, (_, shape, data) in got.items() if shape == [1, 1]}
        assert (value["num_input_tokens"], value["num_output_tokens"]) == (40, 20), value
        # 60 tokens in blocks of 16; two whole blocks of the prompt were computed by the request before.
        assert (value["kv_cache_alloc_total_blocks"], value["kv_cache_reused_blocks"],
                value["kv_cache_alloc_new_blocks"]) == (4, 2, 2), value
        # All drafts are right; 20 tokens, of which the first is not a draft and each verification gives one more.
        assert value["total_draft_tokens"] == value["total_accepted_draft_tokens"] > 10, value
        assert value["acceptance_rate"] == 1 and got["acceptance_rate"][0] == "FP32", got
        assert not set(names) & set(numbers(without=("return_perf_metrics",)))
        body = {"text_input": "abc abc", "max_tokens": 5, "return_perf_metrics": True, "return_num_output_tokens": True}
        status, whole = c.post(GENERATE, body)
        assert status == 200 and whole["num_output_tokens"] == 5 and "num_input_tokens" not in whole, whole
        assert 0 < whole["arrival_time_ns"] <= whole["last_token_time_ns"] and whole["total_draft_tokens"] >= 0, whole
        status, raw = c.request("POST", GENERATE + "_stream", body)[::2]
        assert status == 200 and raw.count(b"last_token_time_ns") == 1, raw
        c.wait_idle()
