#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the documentation of Triton's TensorRT-LLM backend prints, request by request and field by field.

Usage: test_seed_requests.py [NAME ...]

As test_clients.py: needs BATON_BUILD, BATON_TEST_MODEL and tritonclient[grpc,http], which BATON_CLIENTS_PYTHON may have.

Values are held against float32: tests/golden/seeds_logits.json has what PyTorch transformers say of the default model's
file (make_seeds_golden.py), tiny_f32.txt what numpy says of a small one (make_tiny_golden.py).
"""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402

NEEDED = ("tritonclient", "grpc", "numpy", "geventhttpclient")
MISSING = [x for x in NEEDED if importlib.util.find_spec(x) is None]
if not MISSING:
    import numpy as np
    import tritonclient.grpc as by_grpc
    import tritonclient.http as by_http
    from test_examples import at, batcher, ids_of, line_of, run
    from test_grpc import Stream
    from tritonclient.utils import InferenceServerException

GOLDEN = os.path.join(harness.ROOT, "tests", "golden")
WHAT, BORN = "What is machine learning?", "Born in north-east France, Soyer trained as a"
THREE = ["This is a test", "I want you to", "The cat is"]
# Of the default model, whose weights are multiplied by activations of 8 bits: how far log-probs of what is likely are
# from float32's. Over these prompts they are at most 0.31 off, 0.06 in the mean, and draw the same tokens.
MAX_LOGIT_CHANGE, MAX_MEAN_CHANGE = 0.45, 0.08
TINY_CHANGE = 1e-4  # as tests/unit/inference/model/test_model_golden.c has it: float32 against float64
KINDS = {"INT32": "int32", "FP32": "float32", "BOOL": "bool", "UINT64": "uint64", "FP16": "float16", "BYTES": "object",
         "INT64": "int64", "UINT8": "uint8"}


def golden(text):
    with open(os.path.join(GOLDEN, "seeds_logits.json"), encoding="utf-8") as f:
        return next(x for x in json.load(f)["prompts"] if x["text"] == text)


def vocabulary():
    with open(os.path.join(GOLDEN, "seeds_logits.json"), encoding="utf-8") as f:
        return json.load(f)["vocab"]


def client(c, kind):
    return (by_grpc if kind == "grpc" else by_http).InferenceServerClient(at(c.grpc if kind == "grpc" else c.http))


def tensor(kind, name, datatype, values):
    array = np.array(values, dtype=KINDS[datatype])
    made = (by_grpc if kind == "grpc" else by_http).InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def text_request(kind, texts, max_tokens, *more):
    return [tensor(kind, "text_input", "BYTES", [[x.encode()] for x in texts]),
            tensor(kind, "max_tokens", "INT32", [[max_tokens]] * len(texts))] + [tensor(kind, *x) for x in more]


def ids_request(kind, ids, n, *more):
    return [tensor(kind, "input_ids", "INT32", [ids]), tensor(kind, "input_lengths", "INT32", [[len(ids)]]),
            tensor(kind, "request_output_len", "INT32", [[n]])] + [tensor(kind, *x) for x in more]


def switches(*names):
    return [(x, "BOOL", [[True]]) for x in names]


def fields(result):
    """{name: (type, shape)} of an answer by either door."""
    response = result.get_response()
    if isinstance(response, dict):
        return {x["name"]: (x["datatype"], x["shape"]) for x in response["outputs"]}
    return {x.name: (x.datatype, list(x.shape)) for x in response.outputs}


# --- curl


def curl(c, path, body):
    """The documentation's line; without curl the same bytes."""
    url = f"{at(c.http)}{path}"
    if shutil.which("curl"):
        done = subprocess.run(["curl", "-s", "-X", "POST", url, "-d", body], capture_output=True, timeout=120, check=True)
        return done.stdout
    return c.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})[2]


def test_generate_answers_with_the_printed_fields_and_the_prompt_in_front(c):
    said = golden(WHAT)
    for model in ("ensemble", "tensorrt_llm_bls"):
        # The documentation prints ensemble's; its keys stand in this order.
        printed = [("model_name", model), ("model_version", "1"), ("sequence_end", False), ("sequence_id", 0),
                   ("sequence_start", False)]
        body = '{"text_input": "%s", "max_tokens": 20, "bad_words": "", "stop_words": ""}' % WHAT
        answer = json.loads(curl(c, f"/v2/models/{model}/generate", body), object_pairs_hook=list)
        assert answer[:5] == printed and answer[5][0] == "text_output" and len(answer) == 6, answer
        text = answer[5][1]
        assert text.startswith(WHAT + "\n\nMachine learning is a "), text  # so does the documentation's
        # The last field is the prompt and 20 tokens, and nothing else is.
        ids = token_ids(c, text)
        assert len(ids) == said["n_prompt"] + 20 and ids[:said["n_prompt"]] == said["ids"][:said["n_prompt"]], ids
        # Without the prompt, if that is asked for; a stream's pieces never have it.
        without = json.loads(curl(c, f"/v2/models/{model}/generate", body[:-1] + ', "exclude_input_in_output": true}'))
        assert WHAT + without["text_output"] == text, without
        for more in ("", ', "exclude_input_in_output": false', ', "stream": true'):
            events = curl(c, f"/v2/models/{model}/generate_stream", body[:-1] + more + "}").decode().split("\n\n")
            events = [x for x in events if not x.startswith(":")]
            assert events.pop() == "" and all(x.startswith("data: ") for x in events), events
            pieces = [json.loads(x[6:], object_pairs_hook=list) for x in events]
            assert all(x[:5] == printed and len(x) == 6 for x in pieces), pieces[0]
            assert WHAT + "".join(x[5][1] for x in pieces) == text, pieces


def token_ids(c, text):
    asked = [tensor("http", "QUERY", "BYTES", [[text.encode()]]), tensor("http", "REQUEST_OUTPUT_LEN", "INT32", [[1]])]
    return client(c, "http").infer("preprocessing", asked).as_numpy("INPUT_ID")[0].tolist()


def test_metrics_curl_prints_every_family_with_help_type_and_labels(c):
    """The sample of "Triton metrics", name by name; numbers are each server's own."""
    _, _, data = c.request("GET", "/metrics", at=c.metrics_at)
    page = data.decode().split("\n")
    for family, kind, text, label, values in FAMILIES:
        where = page.index(f"# HELP {family} {text}")
        assert page[where + 1] == f"# TYPE {family} {kind}", page[where:where + 2]
        names = ["model", "version"] + ([label] if label else [])
        series = set()
        for line in page[where + 2:]:
            if not line.startswith(family + "{"):
                break
            labels = re.findall(r'(\w+)="([^"]*)"', line)
            assert [x for x, _ in labels] == sorted(names), line  # as Triton sorts them
            assert re.search(r"\} [0-9.e+]+$", line), line
            labels = dict(labels)
            assert labels["version"] == "1", line
            if labels["model"] == "tensorrt_llm":
                series.add(labels.get(label, ""))
        assert series == set(values), (family, series)


FAMILIES = [
    ("nv_trt_llm_request_metrics", "gauge", "TRT LLM request metrics", "request_type",
     ("context", "scheduled", "max", "active", "waiting")),
    ("nv_trt_llm_runtime_memory_metrics", "gauge", "TRT LLM runtime memory metrics", "memory_type",
     ("pinned", "gpu", "cpu")),
    ("nv_trt_llm_kv_cache_block_metrics", "gauge", "TRT LLM KV cache block metrics", "kv_cache_block_type",
     ("tokens_per", "used", "free", "max", "reused", "fraction")),
    ("nv_trt_llm_inflight_batcher_metrics", "gauge", "TRT LLM inflight_batcher-specific metrics",
     "inflight_batcher_specific_metric",
     ("micro_batch_id", "generation_requests", "total_context_tokens", "paused_requests")),
    ("nv_trt_llm_general_metrics", "gauge", "General TRT LLM metrics", "general_type", ("iteration_counter", "timestamp")),
    ("nv_trt_llm_disaggregated_serving_metrics", "counter", "TRT LLM disaggregated serving metrics",
     "disaggregated_serving_type", ("kv_cache_transfer_ms", "request_count")),
    ("nv_inference_request_success", "counter", "Number of successful inference requests, all batch sizes", "", ("",)),
    ("nv_inference_request_failure", "counter", "Number of failed inference requests, all batch sizes", "", ("",)),
    ("nv_inference_count", "counter", "Number of inferences performed (does not include cached requests)", "", ("",)),
    ("nv_inference_exec_count", "counter", "Number of model executions performed (does not include cached requests)", "",
     ("",)),
    ("nv_inference_request_duration_us", "counter",
     "Cumulative inference request duration in microseconds (includes cached requests)", "", ("",)),
    ("nv_inference_queue_duration_us", "counter",
     "Cumulative inference queuing duration in microseconds (includes cached requests)", "", ("",)),
    ("nv_inference_compute_input_duration_us", "counter",
     "Cumulative compute input duration in microseconds (does not include cached requests)", "", ("",)),
    ("nv_inference_compute_infer_duration_us", "counter",
     "Cumulative compute inference duration in microseconds (does not include cached requests)", "", ("",)),
    ("nv_inference_compute_output_duration_us", "counter",
     "Cumulative inference compute output duration in microseconds (does not include cached requests)", "", ("",)),
    ("nv_inference_pending_request_count", "gauge",
     "Instantaneous number of pending requests awaiting execution per-model.", "", ("",)),
]
V1 = ("nv_trt_llm_v1_metrics", "gauge", "TRT LLM v1-specific metrics", "v1_specific_metric",
      ("total_generation_tokens", "empty_generation_slots", "total_context_tokens"))


def test_v1_model_has_the_v1_metric_family(_):
    with tempfile.TemporaryDirectory() as d:
        with harness.Cluster(harness.small_model(d), router_args=["--batching-strategy", "V1"]) as c:
            _, _, data = c.request("GET", "/metrics", at=c.metrics_at)
            page = data.decode()
            assert "nv_trt_llm_inflight_batcher_metrics" not in page
            assert f"# HELP {V1[0]} {V1[2]}\n# TYPE {V1[0]} {V1[1]}\n" in page
            for value in V1[4]:
                assert f'\n{V1[0]}{{model="tensorrt_llm",{V1[3]}="{value}",version="1"}} ' in page, value


# --- the table of inputs


# Name, type, values; what is answered: "" it is served, else a word of the refusal. Shapes are those of the table with
# the batch in front, as clients of these models send them.
INPUTS = [
    ("bad_words", "BYTES", [[b" the", b" a"]], ""),
    ("stop_words", "BYTES", [[b" zebra", b" of"]], ""),
    ("end_id", "INT32", [[2]], ""),
    ("pad_id", "INT32", [[2]], ""),
    ("temperature", "FP32", [[0.7]], ""),
    ("top_k", "INT32", [[4]], ""),
    ("top_p", "FP32", [[0.8]], ""),
    ("len_penalty", "FP32", [[1.0]], ""),
    ("repetition_penalty", "FP32", [[1.1]], ""),
    ("min_length", "INT32", [[2]], ""),
    ("presence_penalty", "FP32", [[0.5]], ""),
    ("frequency_penalty", "FP32", [[0.5]], ""),
    ("random_seed", "UINT64", [[1 << 40]], ""),
    ("return_log_probs", "BOOL", [[True]], ""),
    ("return_context_logits", "BOOL", [[True]], ""),
    ("return_generation_logits", "BOOL", [[True]], ""),
    ("beam_width", "INT32", [[1]], ""),
    ("beam_width", "INT32", [[3]], ""),
    ("beam_width", "INT32", [[100]], "beam_width"),
    ("stream", "BOOL", [[False]], ""),
    ("prompt_embedding_table", "FP16", [[[0.5]]], "prompt_embedding_table"),
    ("prompt_vocab_size", "INT32", [[1]], "prompt_vocab_size"),
    ("lora_task_id", "UINT64", [[1]], "lora_task_id"),
    ("lora_weights", "FP16", [[[0.5]]], "lora_weights"),
    ("lora_config", "INT32", [[[1, 1, 1]]], "lora_config"),
    ("num_draft_tokens", "INT32", [[2]], ""),
    ("use_draft_logits", "BOOL", [[True]], ""),
    # Their rows are not in the printed table, but its clients send them.
    ("exclude_input_in_output", "BOOL", [[True]], ""),
    ("length_penalty", "FP32", [[1.0]], ""),
    ("num_return_sequences", "INT32", [[1]], ""),
    ("return_perf_metrics", "BOOL", [[True]], ""),
    ("return_num_input_tokens", "BOOL", [[True]], ""),
    ("return_num_output_tokens", "BOOL", [[True]], ""),
]
# What return_perf_metrics brings: tensorrt_llm_bls/config.pbtxt of TensorRT-LLM.
PERF_METRICS = {"kv_cache_alloc_new_blocks": "INT32", "kv_cache_reused_blocks": "INT32", "kv_cache_alloc_total_blocks": "INT32",
                "arrival_time_ns": "INT64", "first_scheduled_time_ns": "INT64", "first_token_time_ns": "INT64",
                "last_token_time_ns": "INT64", "acceptance_rate": "FP32", "total_accepted_draft_tokens": "INT32",
                "total_draft_tokens": "INT32"}
# The same for tensorrt_llm, whose clients are inflight_batcher_llm_client.py and the one of speculative decoding; with the
# others that are sent along.
BEAMS = ("beam_width", "INT32", [[3]])
IDS_INPUTS = [
    (("beam_width", "INT32", [[1]]), ""),
    (BEAMS, ""),
    (BEAMS, ("len_penalty", "FP32", [[1.5]]), ""),
    (BEAMS, ("early_stopping", "BOOL", [[False]]), ""),
    (BEAMS, ("early_stopping", "BOOL", [[True]]), ("len_penalty", "FP32", [[-1.0]]), ("min_tokens", "INT32", [[2]]), ""),
    (BEAMS, ("beam_search_diversity_rate", "FP32", [[0.0]]), ""),
    (BEAMS, ("beam_search_diversity_rate", "FP32", [[0.5]]), "beam_search_diversity_rate"),
    (BEAMS, ("draft_input_ids", "INT32", [[5, 6]]), "draft_input_ids"),
    (BEAMS, ("streaming", "BOOL", [[True]]), "streaming"),
    (("len_penalty", "FP32", [[1.5]]), ""),
    (("draft_input_ids", "INT32", [[504, 3575, 282]]), ""),
    (("draft_input_ids", "INT32", [[504, 3575]]), ("draft_acceptance_threshold", "FP32", [[1.0]]), ""),
    (("draft_input_ids", "INT32", [[504, 3575]]), ("draft_acceptance_threshold", "FP32", [[0.5]]), "draft_acceptance_threshold"),
    (("draft_input_ids", "INT32", [[504]]), ("draft_logits", "FP32", [[[0.5]]]), "draft_logits"),
    (("draft_input_ids", "INT32", [[504, 3575]]), ("return_generation_logits", "BOOL", [[True]]), ""),
    (("lookahead_window_size", "INT32", [[2]]), ("lookahead_ngram_size", "INT32", [[2]]),
     ("lookahead_verification_set_size", "INT32", [[2]]), "lookahead_"),
    (("return_perf_metrics", "BOOL", [[True]]), ""),
]
# What it adds to the answer.
ADDED = {"return_log_probs": {"cum_log_probs", "output_log_probs"}, "return_context_logits": {"context_logits"},
         "return_generation_logits": {"generation_logits"}, "return_perf_metrics": set(PERF_METRICS),
         "return_num_input_tokens": {"num_input_tokens"}, "return_num_output_tokens": {"num_output_tokens"}}


def plain(values):
    """As JSON has it."""
    if isinstance(values, list):
        return [plain(x) for x in values]
    return values.decode() if isinstance(values, bytes) else values


def infer_one(c, kind, row):
    """@return ("", names of the outputs), or (the refusal, none)"""
    try:
        with client(c, kind) as t:
            return "", set(fields(t.infer("tensorrt_llm_bls", text_request(kind, ["The cat is"], 3, row[:3]))))
    except InferenceServerException as wrong:
        return wrong.message(), set()


def generate_one(c, row):
    status, answer = c.post("/v2/models/tensorrt_llm_bls/generate",
                            {"text_input": "The cat is", "max_tokens": 3, row[0]: plain(row[2])})
    if status != 200:
        return answer["error"], set()
    return "", set(answer) - {"model_name", "model_version", "sequence_end", "sequence_id", "sequence_start"}


def test_every_documented_input_is_served_or_refused_by_name(c):
    doors = (lambda row: infer_one(c, "http", row), lambda row: infer_one(c, "grpc", row), lambda row: generate_one(c, row))
    for row in INPUTS:
        for i, door in enumerate(doors):
            why, names = door(row)
            if row[3]:
                assert row[3] in why, (row, i, why)
            else:
                assert not why and names == {"text_output"} | ADDED.get(row[0], set()), (row, i, why, names)
    # Both of a bias are needed; alone each is refused.
    words, weights = ("embedding_bias_words", "BYTES", [[b" Paris"]]), ("embedding_bias_weights", "FP32", [[50.0]])
    for kind in ("http", "grpc"):
        with client(c, kind) as t:
            text = t.infer("tensorrt_llm_bls", text_request(kind, ["The cat is"], 3, words, weights))
            assert text.as_numpy("text_output").tolist() == [b"The cat is Paris Paris Paris"], kind
        for one in (words, weights):
            assert "embedding_bias_" in infer_one(c, kind, one)[0], (kind, one)


def test_every_input_of_ids_for_drafts_and_beams_is_served_or_refused_by_name(c):
    ids = golden(BORN)["ids"][:golden(BORN)["n_prompt"]]
    for *row, refusal in IDS_INPUTS:
        added = set().union(*(ADDED.get(name, set()) for name, _, _ in row))
        for kind in ("http", "grpc"):
            try:
                with client(c, kind) as t:
                    got = t.infer("tensorrt_llm", ids_request(kind, ids, 3, *row))
            except InferenceServerException as wrong:
                assert refusal and refusal in wrong.message(), (row, kind, wrong.message())
                continue
            assert not refusal and set(fields(got)) == {"output_ids", "sequence_length"} | added, (row, kind, fields(got))
            n_beams = got.as_numpy("output_ids").shape[1]
            assert n_beams == (3 if BEAMS in row else 1), (row, kind, n_beams)


def test_documented_outputs_have_their_types_and_shapes(c):
    n, vocab = golden(BORN)["n_prompt"], vocabulary()
    on = switches("return_log_probs", "return_context_logits", "return_generation_logits")
    scores = {"cum_log_probs": ("FP32", [1, 1]), "output_log_probs": ("FP32", [1, 1, 5]),
              "context_logits": ("FP32", [1, n, vocab]), "generation_logits": ("FP32", [1, 1, 5, vocab])}
    ids = golden(BORN)["ids"][:n]
    for kind in ("http", "grpc"):
        with client(c, kind) as t:
            for model in ("ensemble", "tensorrt_llm_bls"):
                got = fields(t.infer(model, text_request(kind, [BORN], 5, *on)))
                assert got == dict(scores, text_output=("BYTES", [1])), (kind, got)
                outputs = [(by_grpc if kind == "grpc" else by_http).InferRequestedOutput(x)
                           for x in ("generation_logtis", "batch_index", "text_output")]
                got = fields(t.infer(model, text_request(kind, [BORN], 5, *on), outputs=outputs))
                # In the spelling of the table.
                assert got == {"generation_logtis": ("FP32", [1, 1, 5, vocab]), "batch_index": ("INT32", [1, 1]),
                               "text_output": ("BYTES", [1])}, got
            got = t.infer("tensorrt_llm", ids_request(kind, ids, 5, *on))
            assert fields(got) == dict(scores, output_ids=("INT32", [1, 1, n + 5]), sequence_length=("INT32", [1, 1])), got
            assert got.as_numpy("output_ids")[0, 0, :n].tolist() == ids, "the prompt comes first"
            assert got.as_numpy("sequence_length").tolist() == [[n + 5]]


# --- values


def near(got, said, position):
    """Is a row of logits float32's, as far as this model has it? @return |difference| of the likely ones' logits"""
    ids = said["top"][position]
    lse = np.log(np.exp(got.astype(np.float64) - got.max()).sum()) + got.max()
    ours, theirs = got[ids] - lse, np.array(said["logits"][position]) - said["lse"][position]
    return np.abs(ours - theirs)


def test_logits_and_log_probs_are_those_of_float32(c):
    """Given a prompt and float32's own answer behind it as a prompt, each position says what float32 says. An answer of
    its own is the same as long as both draw the same."""
    vocab, changes, n_same = vocabulary(), [], 0
    on = switches("return_log_probs", "return_context_logits", "return_generation_logits")
    for text in [WHAT, BORN] + THREE:
        said = golden(text)
        n, all_ids = said["n_prompt"], said["ids"]
        assert token_ids(c, text) == all_ids[:n], text
        with client(c, "grpc") as t:
            forced = t.infer("tensorrt_llm", ids_request("grpc", all_ids[:-1], 1, *on)).as_numpy("context_logits")
            n_new = len(all_ids) - n
            own = t.infer("tensorrt_llm", ids_request("grpc", all_ids[:n], n_new, *on, ("end_id", "INT32", [[-1]])))
        assert forced.shape == (1, len(all_ids) - 1, vocab)
        for i, row in enumerate(forced[0]):
            changes.append(near(row, said, i))
        # A prompt's logits do not know what comes behind it.
        context, made = own.as_numpy("context_logits"), own.as_numpy("generation_logits")
        assert (context[0] == forced[0, :n]).all()
        assert context.shape == (1, n, vocab) and made.shape == (1, 1, n_new, vocab)
        assert (context[0, -1] == made[0, 0, 0]).all(), "both are printed alike"
        drawn, scores = own.as_numpy("output_ids")[0, 0, n:].tolist(), own.as_numpy("output_log_probs")[0, 0]
        assert drawn == made[0, 0].argmax(axis=1).tolist()
        assert np.isclose(own.as_numpy("cum_log_probs")[0, 0], scores.astype(np.float64).sum(), rtol=1e-6)
        for i, (a, b) in enumerate(zip(drawn, all_ids[n:])):
            if a != b:
                break
            n_same += 1
            changes.append(near(made[0, 0, i], said, n - 1 + i))
            best = said["logits"][n - 1 + i][0] - said["lse"][n - 1 + i]
            assert abs(scores[i] - best) < MAX_LOGIT_CHANGE, (text, i, scores[i], best)
    changes = np.array(changes)
    assert changes.max() < MAX_LOGIT_CHANGE and changes.mean() < MAX_MEAN_CHANGE, (changes.max(), changes.mean())
    assert n_same >= 50, n_same  # of 55


def tiny_golden():
    with open(os.path.join(GOLDEN, "tiny_f32.txt"), encoding="utf-8") as f:
        lines = f.read().split("\n")
    rows = {int(k): np.array(line.split(), dtype=float) for k, line in zip(lines[2].split(), lines[3:])}
    return lines[0].split(), [int(x) for x in lines[1].split()], rows


def test_float32_logits_are_exact_for_any_chunking(_):
    """Chunks of the context phase change none of its bits, as chunked context promises; the values are float64's."""
    options, ids, rows = tiny_golden()
    seen = []
    on = switches("return_log_probs", "return_context_logits", "return_generation_logits")
    with tempfile.TemporaryDirectory() as d:
        model = harness.tiny_model(d, **dict(zip((x[2:] for x in options[::2]), options[1::2])))
        for more in ((), ("--chunk-tokens", "16")):
            with harness.Cluster(model, worker_args=["--kv-dtype", "f16", *more]) as c:
                with client(c, "http") as t:
                    answer = t.infer("tensorrt_llm", ids_request("http", ids, 3, *on, ("end_id", "INT32", [[-1]])))
                seen.append([answer.as_numpy(x) for x in ("context_logits", "generation_logits", "output_log_probs")])
    assert all((a == b).all() for a, b in zip(*seen))
    context, made, scores = seen[0]
    for k, row in rows.items():
        assert np.abs(context[0, k] - row).max() < TINY_CHANGE, k
    last = rows[len(ids) - 1]
    assert np.abs(made[0, 0, 0] - last).max() < TINY_CHANGE
    assert abs(scores[0, 0, 0] - (last.max() - np.log(np.exp(last).sum()))) < TINY_CHANGE


# --- the client scripts


def test_batcher_clients_run_prints_each_field_as_documented(c):
    said = golden(BORN)
    n = said["n_prompt"]
    out, _ = batcher(c, "--request-output-len", "20", "--tokenizer-dir", "/gpt2", "--text", BORN, "--end-id", "-1",
                     "--return-context-logits", "--return-generation-logits")
    # In this order, each on a line.
    order = ["Using pad_id", "Using end_id", "Input sequence", "Got completed request", "Input", "Output beam 0",
             "Output sequence", "context_logits.shape", "context_logits", "generation_logits.shape", "generation_logits"]
    found = [x for x in re.findall(r"^([A-Z][a-z]+ [a-z_ 0]+|Input|[a-z_.]+)(?::|$)", out, re.M) if x in order]
    assert found == order, (found, out)
    assert ids_of(out, "Input sequence") == said["ids"][:n] and line_of(out, "Input") == BORN, out
    ids = ids_of(out, "Output sequence")
    assert ids[:n] == said["ids"][:n] and len(ids) == n + 20, out
    assert line_of(out, "context_logits.shape") == f"(1, {n}, {vocabulary()})"
    assert line_of(out, "generation_logits.shape") == f"(1, 1, 20, {vocabulary()})"
    # The corners that are printed are the tensors'.
    on = switches("return_context_logits")
    with client(c, "grpc") as t:
        logits = t.infer("tensorrt_llm", ids_request("grpc", said["ids"][:n], 1, *on)).as_numpy("context_logits")
    printed = re.search(r"^context_logits: \[\[\[ *(\S+)", out, re.M)[1]
    assert np.isclose(float(printed), logits[0, 0, 0], rtol=1e-5), (printed, logits[0, 0, 0])


def test_end_to_end_clients_batch_comes_back_row_by_row_with_its_index(c):
    """-o 5 -p '[three prompts]' --batch-inputs: one request of batch size 3, three responses of batch size 1."""
    out, _ = run("end_to_end_grpc_client.py", "-u", at(c.grpc), "-o", "5", "-p", json.dumps(THREE), "--batch-inputs")
    assert re.findall(r"^batch_index: (\d)$", out, re.M) == ["0", "1", "2"], out
    s = Stream(c)
    s.ask("7", inputs=text_request("grpc", THREE, 5, ("return_log_probs", "BOOL", [[True]] * 3)))
    rows = {}
    for _ in THREE:
        response, result = s.next()
        assert response.id == "7" and response.model_name == "ensemble" and response.model_version == "1"
        assert fields(result) == {"text_output": ("BYTES", [1]), "cum_log_probs": ("FP32", [1, 1]),
                                  "output_log_probs": ("FP32", [1, 1, 5]), "batch_index": ("INT32", [1, 1])}, fields(result)
        rows[result.as_numpy("batch_index").item()] = result
    s.close()
    assert sorted(rows) == [0, 1, 2]
    for i, prompt in enumerate(THREE):
        text, said = rows[i].as_numpy("text_output").item().decode(), golden(prompt)
        assert text.startswith(prompt) and f"Input: {prompt}\nOutput: {text}" in out, (text, out)
        scores = rows[i].as_numpy("output_log_probs")[0, 0]
        best = said["logits"][said["n_prompt"] - 1][0] - said["lse"][said["n_prompt"] - 1]
        assert abs(scores[0] - best) < MAX_LOGIT_CHANGE, (prompt, scores[0], best)


def end_to_end(c, model, prompt, n, *more, outputs=("text_output",)):
    """A request of end_to_end_grpc_client.py: over a stream, with temperature 1, one beam unless told, and the outputs that
    it asks for."""
    inputs = {"stream": ("BOOL", [[False]]), "beam_width": ("INT32", [[1]]), "temperature": ("FP32", [[1.0]]),
              "exclude_input_in_output": ("BOOL", [[False]])}
    inputs.update({name: rest for name, *rest in more})
    s = Stream(c)
    s.ask("1", model=model, inputs=text_request("grpc", [prompt], n, *((name, *rest) for name, rest in inputs.items())),
          outputs=[by_grpc.InferRequestedOutput(x) for x in outputs])
    _, result = s.next()
    s.close()
    return result


def test_end_to_end_clients_beams_come_best_first(c):
    """-b 3 --return-log-probs: three texts in one response."""
    asked = ("text_output", "cum_log_probs", "output_log_probs")
    for model in ("ensemble", "tensorrt_llm_bls"):
        got = end_to_end(c, model, BORN, 8, BEAMS, *switches("return_log_probs"), outputs=asked)
        assert fields(got) == {"text_output": ("BYTES", [3]), "cum_log_probs": ("FP32", [1, 3]), "output_log_probs": ("FP32", [1, 3, 8])}
        # The client prints output[0].decode("utf-8").
        texts, sums = [x.decode() for x in got.as_numpy("text_output")], got.as_numpy("cum_log_probs")[0]
        assert len(set(texts)) == 3 and all(x.startswith(BORN) for x in texts), texts
        assert (np.diff(sums) <= 0).all(), sums  # the length penalty is 0, the default
        assert np.allclose(got.as_numpy("output_log_probs")[0].astype(np.float64).sum(axis=1), sums, rtol=1e-5)


def test_speculative_clients_outputs_match(c):
    """speculative_decoding_test.py: for each prompt the ensemble and the BLS model with --num-draft-tokens and
    --use-draft-logits, whose outputs must match; at temperature 1, and with the metrics of the request."""
    for i, prompt in enumerate([WHAT, BORN] + THREE):
        control = end_to_end(c, "ensemble", prompt, 24).as_numpy("text_output").item()
        for n_drafts, use in ((5, True), (1, False), (16, True)):
            more = [("num_draft_tokens", "INT32", [[n_drafts]]), ("use_draft_logits", "BOOL", [[use]])]
            got = end_to_end(c, "tensorrt_llm_bls", prompt, 24, *more, ("return_perf_metrics", "BOOL", [[True]]),
                             outputs=("text_output", *PERF_METRICS))
            assert got.as_numpy("text_output").item() == control, (i, n_drafts, control)
            assert fields(got) == {"text_output": ("BYTES", [1]), **{x: (kind, [1, 1]) for x, kind in PERF_METRICS.items()}}
            drafts, right = (got.as_numpy(x).item() for x in ("total_draft_tokens", "total_accepted_draft_tokens"))
            assert 0 <= right <= drafts, (right, drafts)
            assert np.isclose(got.as_numpy("acceptance_rate").item(), right / drafts if drafts else 0), (right, drafts)


def test_drafts_that_a_client_makes_are_verified_as_documented(c):
    """e2e_grpc_speculative_decoding_client.py: preprocessing, then in turns a request for drafts and one that verifies them,
    with logits, then postprocessing. Drafts are of the same model: all are right, and a token comes on top."""
    n, n_drafts = 20, 5
    for prompt in (BORN, THREE[0]):
        with client(c, "grpc") as t:
            first = t.infer("preprocessing", [tensor("grpc", "QUERY", "BYTES", [[prompt.encode()]]),
                                              tensor("grpc", "REQUEST_OUTPUT_LEN", "INT32", [[n]])])
            words = [(name, "INT32", first.as_numpy(of).tolist()) for name, of in (
                ("bad_words_list", "BAD_WORDS_IDS"), ("stop_words_list", "STOP_WORDS_IDS"))]
            words = [x for x in words if x[2][0][0]]  # there are none
            ids = begun = first.as_numpy("INPUT_ID")[0].tolist()

            def ask(more, n_out, drafts=None):
                inputs = [*words, ("beam_width", "INT32", [[1]]), ("temperature", "FP32", [[1.0]]), *switches("return_generation_logits")]
                inputs += [("draft_input_ids", "INT32", [drafts])] if drafts else []
                got = t.infer("tensorrt_llm", ids_request("grpc", more, n_out, *inputs))
                return got.as_numpy("output_ids")[0, 0].tolist(), got.as_numpy("generation_logits")

            while len(ids) < len(begun) + n:
                more = min(n_drafts, len(begun) + n - len(ids) - 1)
                drafts = ask(ids, more)[0][len(ids):] if more > 0 else []
                verified, logits = ask(ids, len(drafts) + 1, drafts)
                assert verified[:len(ids)] == ids and verified[len(ids):-1] == drafts, (verified, ids, drafts)
                assert logits.shape == (1, 1, len(drafts) + 1, vocabulary()), logits.shape
                ids = verified
            text = t.infer("postprocessing", [tensor("grpc", "TOKENS_BATCH", "INT32", [[ids]]),
                                              tensor("grpc", "SEQUENCE_LENGTH", "INT32", [[len(ids)]])]).as_numpy("OUTPUT").item()
        control = end_to_end(c, "ensemble", prompt, n).as_numpy("text_output").item()
        assert text == control, (text, control)


def test_stop_request_of_the_same_id_ends_a_stream_early(c):
    """--stop-after-ms and --request-id, without the time: what a client heard decides."""
    s = Stream(c)
    ids = golden(BORN)["ids"][:golden(BORN)["n_prompt"]]
    s.ask("1", model="tensorrt_llm", enable_empty_final_response=True, inputs=ids_request(
        "grpc", ids, 2000, ("end_id", "INT32", [[-1]]), *switches("streaming")))
    made = []
    response, result = s.next()
    made += result.as_numpy("output_ids")[0, 0].tolist()
    assert not set(ids) <= set(made), "a stream brings no prompt"
    s.ask("1", model="tensorrt_llm", inputs=[tensor("grpc", "input_ids", "INT32", [[0]]),
                                             tensor("grpc", "request_output_len", "INT32", [[1]])]
          + [tensor("grpc", *x) for x in switches("stop")])
    ended = False
    while not ended:
        response, result = s.next()
        ended = response.parameters["triton_final_response"].bool_param
        if response.outputs:
            made += result.as_numpy("output_ids")[0, 0].tolist()
    s.close()
    assert 0 < len(made) < 2000, len(made)
    c.wait_idle()


def test_stream_follows_the_transaction_policy_and_accumulates(_):
    """decoupled_mode:false and accumulate_tokens of the model repository, as gRPC's streams have them."""
    with tempfile.TemporaryDirectory() as d:
        for name, words in (("tensorrt_llm", "model_transaction_policy { decoupled: false }"),
                            ("tensorrt_llm_bls", 'parameters { key: "accumulate_tokens" value { string_value: "true" } }')):
            os.makedirs(os.path.join(d, "repository", name))
            with open(os.path.join(d, "repository", name, "config.pbtxt"), "w", encoding="utf-8") as f:
                f.write(f'name: "{name}"\n{words}\n')
        repository = ["--model-repository", os.path.join(d, "repository")]
        with harness.Cluster(harness.small_model(d), router_args=repository) as c:
            with client(c, "grpc") as t:
                whole = t.infer("tensorrt_llm_bls", text_request("grpc", ["a"], 8)).as_numpy("text_output").item().decode()
            s = Stream(c)
            for model, inputs in (("tensorrt_llm", ids_request("grpc", [5, 6], 2, *switches("streaming"))),
                                  ("ensemble", text_request("grpc", ["a"], 2, *switches("stream")))):
                s.ask("1", model=model, inputs=inputs)
                try:
                    raise AssertionError(f"{model}: {s.next()}")
                except InferenceServerException as wrong:
                    assert "only supported if model is deployed using decoupled mode" in wrong.message(), wrong
                s.ask("2", model=model, inputs=inputs[:-1])
                assert s.next()[0].id == "2", model
            s.ask("3", model="tensorrt_llm_bls", enable_empty_final_response=True,
                  inputs=text_request("grpc", ["a"], 8, *switches("stream")))
            pieces = []
            while True:
                response, result = s.next()
                if response.parameters["triton_final_response"].bool_param:
                    break
                pieces.append(result.as_numpy("text_output").item().decode())
            s.close()
            assert len(pieces) > 2 and all(b.startswith(a) for a, b in zip(pieces, pieces[1:])), pieces
            assert "a" + pieces[-1] == whole, (pieces, whole)
            # The last response has all text even where it brings none: an end id does not.
            with client(c, "grpc") as t:
                ids = t.infer("tensorrt_llm", ids_request("grpc", [97], 8)).as_numpy("output_ids")[0, 0].tolist()
            s = Stream(c)
            s.ask("4", model="tensorrt_llm_bls", inputs=text_request("grpc", ["a"], 8, *switches("stream"),
                                                                     ("end_id", "INT32", [[ids[-1]]])))
            pieces = []
            while not pieces or not response.parameters["triton_final_response"].bool_param:
                response, result = s.next()
                pieces.append(result.as_numpy("text_output").item().decode())
            s.close()
            assert len(pieces) > 2 and all(b.startswith(a) for a, b in zip(pieces, pieces[1:])), pieces


def test_published_client_sends_ids_alone(c):
    """input_ids [[1, 2, 3, 4, 5]] and output_ids wanted: no lengths, nothing else."""
    with client(c, "http") as t:
        assert t.is_server_ready() and t.is_model_ready("tensorrt_llm")
        answer = t.infer(model_name="tensorrt_llm", inputs=[tensor("http", "input_ids", "INT32", [[1, 2, 3, 4, 5]])],
                         outputs=[by_http.InferRequestedOutput("output_ids")])
    assert fields(answer) == {"output_ids": ("INT32", [1, 1, 5 + 16])}, fields(answer)
    assert answer.as_numpy("output_ids")[0, 0, :5].tolist() == [1, 2, 3, 4, 5]


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), MISSING and f"packages of PyPI are not installed: {' '.join(MISSING)}"))
