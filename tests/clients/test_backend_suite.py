#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The requests and checks of four tests that NVIDIA runs against TensorRT-LLM's backend and publishes in no registry:
end_to_end_test (the composing models chained by hand equal the ensemble and BLS), end_to_end_grpc_client with
--check-outputs, base_metrics_verification_tests (nv_inference_*, token lengths) and custom_metrics_verification_tests
(nv_trt_llm_*). Written anew: the same tensors, models, order and checks.

Usage: test_backend_suite.py [NAME ...]

As test_clients.py: needs BATON_BUILD, BATON_TEST_MODEL and tritonclient[grpc,http], which BATON_CLIENTS_PYTHON may have.

The texts are PyTorch transformers' greedy answers in float32 (tests/golden/seeds_logits.json).
"""
import importlib.util
import os
import queue
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
from harness import wait_until  # noqa: E402

NEEDED = ("tritonclient", "grpc", "numpy", "geventhttpclient")
MISSING = [x for x in NEEDED if importlib.util.find_spec(x) is None]
if not MISSING:
    import numpy as np
    import tritonclient.grpc as by_grpc
    import tritonclient.http as by_http
    from test_seed_requests import BORN, THREE, WHAT, client, fields, golden, switches, tensor, vocabulary

PROMPTS = [(WHAT, 20), (BORN, 20), (THREE[0], 5), (THREE[1], 5), (THREE[2], 5)]
COMPOSING = ("preprocessing", "tensorrt_llm", "postprocessing")
LOGITS_TOLERANCE = dict(rtol=1e-2, atol=1e-2)
EMPTY_WORD = [[b""]]
# The keys that TensorRT-LLM's batcher has in /metrics, by their label.
CUSTOM = {
    "request_type": {"context", "scheduled", "max", "active", "waiting"},
    "memory_type": {"pinned", "gpu", "cpu"},
    "kv_cache_block_type": {"tokens_per", "used", "free", "max", "reused", "fraction"},
    "inflight_batcher_specific_metric": {"total_context_tokens", "micro_batch_id", "generation_requests", "paused_requests"},
    "general_type": {"iteration_counter", "timestamp"},
    "disaggregated_serving_type": {"kv_cache_transfer_ms", "request_count"},
}
BOUNDS = ("10", "50", "100", "500", "1000", "+Inf")
LENGTHS = {"nv_llm_input_token_len": "total_input_tokens", "nv_llm_output_token_len": "total_output_tokens"}


def answer_of(c, text, n):
    """@return transformers' first n tokens behind this prompt, as text"""
    said = golden(text)
    status, got = c.post("/detokenize", {"tokens": said["ids"][said["n_prompt"]:said["n_prompt"] + n]})
    assert status == 200, got
    return got["prompt"]


def requested(kind, *names):
    return [(by_grpc if kind == "grpc" else by_http).InferRequestedOutput(x) for x in names]


# --- end_to_end_test


def chained(t, kind, text, n, flags, request_id):
    """preprocessing, tensorrt_llm and postprocessing, each with what the one before gave. Empty words are none.
    @return (the ids of the prompt, tensorrt_llm's result, the text)"""
    first = t.infer("preprocessing", [
        tensor(kind, "QUERY", "BYTES", [[text.encode()]]), tensor(kind, "BAD_WORDS_DICT", "BYTES", EMPTY_WORD),
        tensor(kind, "STOP_WORDS_DICT", "BYTES", EMPTY_WORD), tensor(kind, "REQUEST_OUTPUT_LEN", "INT32", [[n]])],
        request_id=request_id)
    given = {"input_ids": "INPUT_ID", "decoder_input_ids": "DECODER_INPUT_ID", "input_lengths": "REQUEST_INPUT_LEN",
             "request_output_len": "REQUEST_OUTPUT_LEN", "end_id": "OUT_END_ID", "pad_id": "OUT_PAD_ID"}
    second = t.infer("tensorrt_llm", [tensor(kind, name, "INT32", first.as_numpy(theirs)) for name, theirs in given.items()]
                     + [tensor(kind, *x) for x in flags], request_id=request_id)
    last = t.infer("postprocessing", [
        tensor(kind, "TOKENS_BATCH", "INT32", second.as_numpy("output_ids")),
        tensor(kind, "SEQUENCE_LENGTH", "INT32", second.as_numpy("sequence_length"))], request_id=request_id)
    return first.as_numpy("INPUT_ID"), second, last.as_numpy("OUTPUT")


def text_inputs(kind, text, n, flags):
    return [tensor(kind, "text_input", "BYTES", [[text.encode()]]), tensor(kind, "max_tokens", "INT32", [[n]]),
            tensor(kind, "bad_words", "BYTES", EMPTY_WORD), tensor(kind, "stop_words", "BYTES", EMPTY_WORD)] + [
                tensor(kind, *x) for x in flags]


def check_one(c, t, kind, text, n, everything, request_id):
    flags = switches("return_log_probs", "return_context_logits", "return_generation_logits") if everything else []
    names = ["cum_log_probs", "output_log_probs", "context_logits", "generation_logits"] if everything else []
    ids, core, made = chained(t, kind, text, n, flags, request_id)
    assert made.item().decode() == text + answer_of(c, text, n), made
    outputs = requested(kind, "text_output", *names)
    whole = t.infer("ensemble", text_inputs(kind, text, n, flags), outputs=outputs, request_id=request_id)
    assert whole.as_numpy("text_output") == made
    # BLS is asked for outputs of log-probs without the input that has them computed: they are left out.
    bls = t.infer("tensorrt_llm_bls", text_inputs(kind, text, n, flags[1:]), outputs=outputs, request_id=request_id)
    assert bls.as_numpy("text_output") == made and bls.as_numpy("output_log_probs") is None
    if everything:
        for name in names[:2]:
            assert (core.as_numpy(name) == whole.as_numpy(name)).all(), name
        for other in (whole, bls):
            for name, shape in (("context_logits", (1, ids.size, vocabulary())), ("generation_logits", (1, 1, n, vocabulary()))):
                assert other.as_numpy(name).shape == shape, (name, other.as_numpy(name).shape)
                assert np.allclose(core.as_numpy(name), other.as_numpy(name), **LOGITS_TOLERANCE), name


def test_models_chained_by_hand_equal_the_ensemble_and_bls(c):
    for kind in ("http", "grpc"):
        with client(c, kind) as t:
            for i, (text, n) in enumerate(PROMPTS):
                check_one(c, t, kind, text, n, i % 2 == 0, str(i))


def test_raw_logits_of_a_long_prompt_come_over_http_and_grpc(c):
    """With as many tokens as end_to_end_test's articles have: 42 MB, more than JSON has room for."""
    text, names = BORN + " word" * 180, ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits")
    flags = switches("return_log_probs", "return_context_logits", "return_generation_logits")
    shapes = []
    for kind in ("http", "grpc"):
        with client(c, kind) as t:
            got = t.infer("ensemble", text_inputs(kind, text, 5, flags), outputs=requested(kind, "text_output", *names))
            shapes.append({name: got.as_numpy(name).shape for name in names})
    n = golden(BORN)["n_prompt"] + 180
    assert shapes[0] == shapes[1] == {"cum_log_probs": (1, 1), "output_log_probs": (1, 1, 5), "context_logits": (1, n, vocabulary()),
                                      "generation_logits": (1, 1, 5, vocabulary())}, shapes


def test_concurrent_ensemble_requests_have_their_own_answers(c):
    expected = {text: text + answer_of(c, text, n) for text, n in PROMPTS}
    jobs = PROMPTS * 3
    with by_http.InferenceServerClient(f"{c.http[0]}:{c.http[1]}", concurrency=len(jobs)) as t:
        running = [t.async_infer("ensemble", text_inputs("http", text, n, []), outputs=requested("http", "text_output"),
                                 request_id=str(i)) for i, (text, n) in enumerate(jobs)]
        for (text, _), one in zip(jobs, running):
            assert one.get_result().as_numpy("text_output").item().decode() == expected[text]
    done = queue.Queue()
    with client(c, "grpc") as t:
        for i, (text, n) in enumerate(jobs):
            t.async_infer("ensemble", text_inputs("grpc", text, n, []), outputs=requested("grpc", "text_output"),
                          request_id=str(i), callback=lambda result, error: done.put((result, error)))
        for _ in jobs:
            result, error = done.get(timeout=60)
            assert error is None, error
            text = jobs[int(result.get_response().id)][0]
            assert result.as_numpy("text_output").item().decode() == expected[text]


# --- end_to_end_grpc_client


def streamed(c, texts, n, stream, *more, outputs=(), names=None):
    """One request on a gRPC stream whose sending side the client closes behind it, as it does: the stream ends when the
    request has. Temperature 1 and beam width 1 are always sent, top_k and top_p never, which is greedy.
    @return the responses"""
    rows, responses = len(texts), queue.Queue()
    inputs = [tensor("grpc", "text_input", "BYTES", [[x.encode()] for x in texts])] + [
        tensor("grpc", name, kind, [[value]] * rows) for name, kind, value in (
            ("max_tokens", "INT32", n), ("stream", "BOOL", stream), ("beam_width", "INT32", 1), ("temperature", "FP32", 1.0),
            *more)]
    with client(c, "grpc") as t:
        t.start_stream(callback=lambda result, error: responses.put((result, error)))
        t.async_stream_infer("ensemble", inputs, outputs=requested("grpc", "text_output", *outputs), request_id=names or "")
        t.stop_stream()
    found = []
    while not responses.empty():
        result, error = responses.get()
        assert error is None, error
        found.append(result)
    return found


def text_of(result):
    return result.as_numpy("text_output")[0].decode()  # also of the last one: the client reads it from each


def test_temperature_one_alone_has_the_expected_output_whole_and_streamed(c):
    for text, n in PROMPTS:
        expected = answer_of(c, text, n)
        for exclude in (False, True):
            more = ("exclude_input_in_output", "BOOL", exclude)
            whole = streamed(c, [text], n, False, more)
            assert [text_of(x) for x in whole] == [expected if exclude else text + expected], text
            # A stream's pieces are without the prompt in any case.
            assert "".join(text_of(x) for x in streamed(c, [text], n, True, more)) == expected, text


def test_only_the_last_response_of_a_stream_is_final_and_it_has_content(c):
    """The client does not ask for an empty final response, and reads text_output of every one."""
    for stream, n_responses in ((False, 1), (True, 5)):
        final = [x.get_response().parameters["triton_final_response"].bool_param
                 for x in streamed(c, [THREE[0]], 5, stream)]
        assert final == [False] * (n_responses - 1) + [True], (stream, final)


def test_streams_return_the_requested_outputs(c):
    n_prompt = golden(BORN)["n_prompt"]
    more = [(name, "BOOL", True) for name in ("return_log_probs", "return_context_logits", "return_generation_logits")]
    names = ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits")
    whole, = streamed(c, [BORN], 5, False, *more, outputs=names)
    assert fields(whole) == {"text_output": ("BYTES", [1]), "cum_log_probs": ("FP32", [1, 1]), "output_log_probs": ("FP32", [1, 1, 5]),
                             "context_logits": ("FP32", [1, n_prompt, vocabulary()]),
                             "generation_logits": ("FP32", [1, 1, 5, vocabulary()])}, fields(whole)
    pieces = streamed(c, [BORN], 5, True, more[0], outputs=names[:2])
    assert "".join(text_of(x) for x in pieces) == answer_of(c, BORN, 5)
    # A batch of three rows: each response says whose it is.
    rows = {}
    for x in streamed(c, THREE, 5, True, outputs=("batch_index",)):
        row = x.as_numpy("batch_index")[0][0]
        rows[row] = rows.get(row, "") + text_of(x)
    assert rows == {i: answer_of(c, text, 5) for i, text in enumerate(THREE)}, rows


# --- the tests of metrics


def metrics(c):
    return c.request("GET", "/metrics", at=c.metrics_at)[2].decode()


def counters(c):
    """{model: {what nv_inference_ says: value}} of /metrics"""
    found = {}
    for name, labels, value in re.findall(r"^nv_inference_(\w+)\{([^}]*)\} (\S+)$", metrics(c), re.M):
        labels = dict(x.split("=") for x in labels.replace('"', "").split(","))
        assert set(labels) <= {"model", "version", "reason"} and labels["version"] == "1", labels
        told = found.setdefault(labels["model"], {})
        told[name] = told.get(name, 0) + float(value)
    return found


def buckets(c):
    """[counts up to each of BOUNDS] of the tokens of prompts, and of answers"""
    text = metrics(c)
    return [[int(re.search(rf'^{name}_bucket{{model="tensorrt_llm",response_metric_type="{kind}",version="1",'
                           rf'le="{re.escape(bound)}"}} (\d+)$', text, re.M)[1]) for bound in BOUNDS]
            for name, kind in LENGTHS.items()]


def test_ensemble_models_count_the_same_requests(c):
    c.wait_idle()
    before, lengths_before = counters(c), buckets(c)
    assert set(COMPOSING) | {"ensemble"} <= set(before), list(before)
    assert len({frozenset(x) for x in before.values()}) == 1, "each model records the same metrics"
    with by_http.InferenceServerClient(f"{c.http[0]}:{c.http[1]}", concurrency=8) as t:
        running = [t.async_infer("ensemble", text_inputs("http", text, n, []), outputs=requested("http", "text_output"))
                   for text, n in PROMPTS]
        for one in running:
            one.get_result()

    def grown():
        now = counters(c)
        return {m: {k: v - before[m][k] for k, v in now[m].items()} for m in now}
    # Durations follow when the workers have said theirs.
    wait_until("all have counted", lambda: all(
        grown()[m]["compute_infer_duration_us"] > 0 and grown()[m]["count"] == len(PROMPTS) for m in COMPOSING + ("ensemble",)))
    told = grown()
    for model in COMPOSING + ("ensemble",):
        for key in ("request_success", "count"):
            assert told[model][key] == len(PROMPTS), (model, key, told[model])
        assert told[model]["request_failure"] == 0, (model, told[model])
    # A gauge: it falls when the workers have said that their parts are over, which may be after the answers.
    wait_until("nothing is pending", lambda: all(m["pending_request_count"] == 0 for m in counters(c).values()))
    assert told["tensorrt_llm"]["exec_count"] == told["ensemble"]["exec_count"], told
    assert told["tensorrt_llm_bls"]["request_success"] == 0, "nobody asked it"
    for key in ("request_duration_us", "compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us"):
        assert sum(told[m][key] for m in COMPOSING) > 0 and told["ensemble"][key] > 0, (key, told)
    # Token lengths: prompts as the tokenizer has them, answers as long as they were asked for.
    lengths = [golden(text)["n_prompt"] for text, _ in PROMPTS], [n for _, n in PROMPTS]
    for was, now, expected in zip(lengths_before, buckets(c), lengths):
        assert [b - a for a, b in zip(was, now)] == [sum(x <= float(bound) for x in expected) for bound in BOUNDS], (was, now)


def custom(c):
    """{(label, kind): value} of nv_trt_llm_* in /metrics"""
    found = {}
    for labels, value in re.findall(r"^nv_trt_llm_\w+\{([^}]*)\} (\S+)$", metrics(c), re.M):
        labels = dict(x.split("=") for x in labels.replace('"', "").split(","))
        assert labels.pop("model") == "tensorrt_llm" and labels.pop("version") == "1", labels
        (kind, value_of), = labels.items()
        found[kind, value_of] = float(value)
    return found


def test_batcher_metrics_match_tensorrt_llm_and_the_requests(c):
    c.wait_idle()
    before = custom(c)
    assert set(before) == {(kind, x) for kind, values in CUSTOM.items() for x in values}, sorted(before)
    with client(c, "grpc") as t:
        for text, n in PROMPTS:
            t.infer("ensemble", text_inputs("grpc", text, n, []))
    c.wait_idle()
    kv, served = "kv_cache_block_type", ("disaggregated_serving_type", "request_count")
    counter = ("general_type", "iteration_counter")
    # At least a step for each 17 tokens behind the first of an answer: 16 drafts and one. A worker tells of its own now
    # and then.
    n_steps = sum((n - 1 + 16) // 17 for _, n in PROMPTS)
    now = wait_until("the figures are of now", lambda: (
        lambda x: x[served] - before[served] == len(PROMPTS) and x[counter] - before[counter] >= n_steps and x)(custom(c)))
    for kind in ("active", "context", "scheduled", "waiting"):
        assert now["request_type", kind] == 0, (kind, now)
    assert now["request_type", "max"] > 0 and now["memory_type", "cpu"] > 0
    assert now[kv, "used"] + now[kv, "free"] == now[kv, "max"] > 0, now
    assert abs(now[kv, "fraction"] - now[kv, "used"] / now[kv, "max"]) < 0.01, now
    assert abs(now["general_type", "timestamp"] - time.time()) < 60, now["general_type", "timestamp"]
    assert now["disaggregated_serving_type", "kv_cache_transfer_ms"] > 0


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), MISSING and f"packages of PyPI are not installed: {' '.join(MISSING)}"))
