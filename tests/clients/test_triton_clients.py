#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of Triton's gRPC port, unmodified: perf_analyzer, genai-perf, LangChain's and LlamaIndex's.

Usage: test_triton_clients.py [NAME ...]

As test_clients.py: needs BATON_BUILD, BATON_TEST_MODEL, what setup/clients.txt and setup/clients-langchain.txt name
(BATON_CLIENTS_PYTHON), and perf_analyzer (setup/fetch_perf_analyzer.py).

The texts that they must bring are PyTorch transformers' greedy answers in float32 (tests/golden/seeds_logits.json).
"""
import glob
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "setup"))
import client_tests  # noqa: E402
import fetch_clients  # noqa: E402
import fetch_model  # noqa: E402
import fetch_perf_analyzer  # noqa: E402
import harness  # noqa: E402

BORN, WHAT = "Born in north-east France, Soyer trained as a", "What is machine learning?"
PATIENCE_S = 300  # of a client that must end by itself
# Inputs of a request for every output that is computed only when it is asked for.
ALL_OUTPUTS = {"return_log_probs": [True], "return_context_logits": [True], "return_generation_logits": [True]}
MANY_ROWS = ("context_logits", "generation_logits")


def golden(text):
    with open(os.path.join(harness.ROOT, "tests", "golden", "seeds_logits.json"), encoding="utf-8") as f:
        return next(x for x in json.load(f)["prompts"] if x["text"] == text)


def prompt_ids(text):
    said = golden(text)
    return said["ids"][:said["n_prompt"]]


def answer_of(c, text, n):
    """@return transformers' first n tokens behind this prompt, as text"""
    first = golden(text)["n_prompt"]
    status, said = c.post("/detokenize", {"tokens": golden(text)["ids"][first:first + n]})
    assert status == 200, said
    return said["prompt"]


def grpc_at(c):
    return f"{c.grpc[0]}:{c.grpc[1]}"


def succeed(command, cwd=None, **env):
    """@return what a program prints that must end well, and by itself. What it imports is compiled once, beside its packages."""
    env = {name: value for name, value in dict(os.environ, **env).items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=PATIENCE_S, text=True, check=False, cwd=cwd, env=env)
    assert done.returncode == 0, (command, done.returncode, done.stdout[-4000:])
    return done.stdout


def successes(c, model):
    status, _, data = c.request("GET", f"/v2/models/{model}/stats")
    assert status == 200, data
    return json.loads(data)["model_stats"][0]["inference_stats"]["success"]["count"]


# --- perf_analyzer


def profile(c, model, data, *options, n=6, door="grpc"):
    """perf_analyzer's requests of these inputs, two at a time. Over gRPC it asks for every output that the metadata names.
    The version is named: without it perf_analyzer takes the one whose counts rose after its first look, and a few quick
    requests may all have been served by then ("failed to find the requested model version").
    @return the requests as it exports them: inputs and, of each response, the outputs"""
    before = successes(c, model)
    with tempfile.TemporaryDirectory() as folder:
        inputs, export = os.path.join(folder, "inputs.json"), os.path.join(folder, "export.json")
        with open(inputs, "w", encoding="utf-8") as f:
            json.dump({"data": data}, f)
        printed = succeed([fetch_perf_analyzer.ensure(fetch_model.default_cache()), "-m", model, "-x", "1", "-i", door,
                           "-u", grpc_at(c) if door == "grpc" else f"{c.http[0]}:{c.http[1]}", "--async",
                           "--request-count", str(n), "--concurrency-range", "2", "--stability-percentage", "999",
                           "--input-data", inputs, "--profile-export-file", export, *options])
        with open(export, encoding="utf-8") as f:
            requests = json.load(f)["experiments"][0]["requests"]
    assert len(requests) == n and f"Request count: {n}\n" in printed, printed
    assert successes(c, model) - before == n, "the statistics count each request once"
    return requests


def shapes(**lengths):
    return [x for name, n in lengths.items() for x in ("--shape", f"{name}:{n}")]


def test_perf_analyzer_streams_of_decoupled_models_with_every_output_asked_for(c):
    data = [{"text_input": [text], "max_tokens": [8], "stream": [True]} for text in (BORN, WHAT)]
    expected = {text: answer_of(c, text, 8) for text in (BORN, WHAT)}
    for model in ("ensemble", "tensorrt_llm_bls"):
        for request in profile(c, model, data, "--streaming", *shapes(text_input=1, max_tokens=1, stream=1)):
            pieces = request["response_outputs"]
            assert "".join(x["text_output"] for x in pieces) == expected[request["request_inputs"]["text_input"]], request
            # What was not computed is left out of a response; perf_analyzer writes that as an empty text.
            assert all(not x[name] for x in pieces for name in MANY_ROWS + ("cum_log_probs", "output_log_probs")), request
            assert len(pieces) == 9 and not pieces[-1]["text_output"], "the 9th response is the empty final one"


def test_perf_analyzer_gets_every_output_that_is_computed(c):
    data = [dict(ALL_OUTPUTS, text_input=[BORN], max_tokens=[5])]
    names = shapes(text_input=1, max_tokens=1, **{name: 1 for name in ALL_OUTPUTS})
    for request in profile(c, "ensemble", data, "--streaming", *names, n=2):
        first = request["response_outputs"][0]
        assert first["text_output"] == BORN + answer_of(c, BORN, 5), first
        assert all(first[name] for name in MANY_ROWS), list(first)
        assert len(first["output_log_probs"]) == 5, first["output_log_probs"]
        assert abs(first["cum_log_probs"] - sum(first["output_log_probs"])) < 1e-3, first


def test_perf_analyzer_profiles_the_models_of_token_ids(c):
    ids = prompt_ids(BORN)
    n = len(ids)
    data = [{"input_ids": ids, "input_lengths": [n], "request_output_len": [5], "end_id": [-1]}]
    for request in profile(c, "tensorrt_llm", data, "--streaming",
                           *shapes(input_ids=n, input_lengths=1, request_output_len=1, end_id=1), n=2):
        first = request["response_outputs"][0]
        assert first["output_ids"] == golden(BORN)["ids"][:n + 5], first
        assert not first["context_logits"], "not asked for by an input"
    # All of their outputs are given to everybody.
    for door in ("grpc", "http"):
        for request in profile(c, "preprocessing", [{"QUERY": [BORN], "REQUEST_OUTPUT_LEN": [5]}],
                               *shapes(QUERY=1, REQUEST_OUTPUT_LEN=1), n=2, door=door):
            assert request["response_outputs"][0]["INPUT_ID"] == ids, (door, request)
    made = golden(BORN)["ids"][n:n + 5]
    for request in profile(c, "postprocessing", [{"TOKENS_BATCH": {"content": made, "shape": [1, 5]}, "SEQUENCE_LENGTH": [5]}],
                           *shapes(SEQUENCE_LENGTH=1), n=2):
        assert request["response_outputs"][0]["OUTPUT"] == answer_of(c, BORN, 5), request


# --- genai-perf


def byte_tokenizer(folder):
    """A tokenizer of Hugging Face's form whose tokens are bytes, for genai-perf's own counting. GPT-2 writes each byte as a
    character that is printed."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printed]
    vocab = {chr(b if b in printed else 256 + others.index(b)): b for b in range(256)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": level, "post_processor": None, "decoder": level,
                   "model": {"type": "BPE", "vocab": vocab, "merges": []}}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, f)


def test_genai_perf_profiles_kserve_with_the_tensorrtllm_backend(c):
    program = fetch_perf_analyzer.ensure(fetch_model.default_cache())
    path = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        byte_tokenizer(folder)
        succeed([sys.executable, "-m", "genai_perf.main", "profile", "-m", "ensemble", "--endpoint-type", "kserve",
                 "--backend", "tensorrtllm", "--streaming", "-u", grpc_at(c), "--tokenizer", folder,
                 "--server-metrics-url", f"http://{c.metrics_at[0]}:{c.metrics_at[1]}/metrics",
                 "--num-dataset-entries", "3", "--synthetic-input-tokens-mean", "30", "--output-tokens-mean", "8",
                 "--request-count", "6", "--concurrency", "2", "--artifact-dir", folder], cwd=folder, PATH=path, HF_HUB_OFFLINE="1")
        found = {os.path.basename(path): path for path in glob.glob(os.path.join(folder, "**", "*.json"), recursive=True)}
        with open(found["profile_export_genai_perf.json"], encoding="utf-8") as f:
            figures = json.load(f)
        with open(found["profile_export.json"], encoding="utf-8") as f:
            requests = json.load(f)["experiments"][0]["requests"]
    assert figures["request_count"]["avg"] == len(requests) == 6, figures["request_count"]
    assert figures["input_sequence_length"]["avg"] == 30, "bytes of the synthetic prompts"
    assert figures["time_to_first_token"]["min"] > 0 and figures["inter_token_latency"]["min"] > 0, figures
    texts = []
    for request in requests:
        prompt = request["request_inputs"]["text_input"]
        texts.append("".join(x["text_output"] for x in request["response_outputs"]))
        assert texts[-1] == c.generate(prompt, 8), (prompt, texts[-1])
    counted = sum(len(text.encode()) for text in texts) / len(texts)
    assert abs(figures["output_sequence_length"]["avg"] - counted) < 1, (figures["output_sequence_length"], counted)


# --- LangChain's and LlamaIndex's


def run_script(script, *arguments, folders=()):
    """@return the JSON that it prints last. Who hangs says where, and ends."""
    watched = f"import faulthandler\nfaulthandler.dump_traceback_later({PATIENCE_S - 10}, exit=True)\nimport json, sys\n"
    return json.loads(succeed([sys.executable, "-c", watched + script, *arguments], LANGSMITH_TRACING="false",
                              PYTHONPATH=os.pathsep.join(folders)).splitlines()[-1])


LANGCHAIN = """
from langchain_nvidia_trt.llms import TritonTensorRTLLM
address, born, what, n = sys.argv[1:]
model = TritonTensorRTLLM(server_url=address, model_name="ensemble", tokens=int(n))
out = {"invoke": model.invoke(born), "batch": model.batch([born, what]), "stream": list(model.stream(born)),
       "models": model.get_model_list()}
try:
    TritonTensorRTLLM(server_url=address, model_name="nobody", tokens=4).invoke(born)
except Exception as why:
    out["nobody"] = str(why)
print(json.dumps(out))
"""

LLAMA_INDEX = """
from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.nvidia_triton import NvidiaTriton
address, born, what, n = sys.argv[1:]
# It stops reading one response before its own limit, whatever the server sends.
model = NvidiaTriton(server_url=address, model_name="ensemble", tokens=int(n) + 1)
out = {"complete": model.complete(born).text, "stream": [x.delta for x in model.stream_complete(born)],
       "loaded": NvidiaTriton(server_url=address, tokens=int(n) + 1, triton_load_model_call=True).complete(what).text,
       "chat": model.chat([ChatMessage(role="user", content=born)]).message.content}
try:
    NvidiaTriton(server_url=address, model_name="nobody", tokens=4).complete(born)
except Exception as why:
    out["nobody"] = str(why)
print(json.dumps(out))
"""


def test_langchain_s_triton_client_ends_at_the_final_response(c):
    said = run_script(LANGCHAIN, grpc_at(c), BORN, WHAT, "8",
                      folders=[fetch_clients.langchain_folder(os.path.join(sys.prefix, "bin", "python"))])
    born, what = answer_of(c, BORN, 8), answer_of(c, WHAT, 8)
    # Without a stream the prompt comes first.
    assert said["invoke"] == BORN + born and said["batch"] == [BORN + born, WHAT + what], said
    assert "".join(said["stream"]) == born and len(said["stream"]) == 8, said
    assert {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"} <= set(said["models"]), said
    assert "nobody" in said["nobody"], said
    c.wait_idle()


def test_llama_index_s_triton_client_ends_at_the_final_response(c):
    said = run_script(LLAMA_INDEX, grpc_at(c), BORN, WHAT, "8")
    born = answer_of(c, BORN, 8)
    assert said["complete"] == born and "".join(said["stream"]) == born and len(said["stream"]) == 8, said
    assert said["loaded"] == answer_of(c, WHAT, 8) and said["chat"], said
    assert "model is not loaded" in said["nobody"], said
    c.wait_idle()


def missing():
    absent = [name for name in ("genai_perf", "llama_index", "tritonclient") if importlib.util.find_spec(name) is None]
    if absent:
        return f"packages of PyPI are not installed: {' '.join(absent)}"
    try:
        fetch_perf_analyzer.ensure(fetch_model.default_cache())
    except fetch_clients.CannotInstall as why:
        if os.environ.get("CI") == "true":  # nobody would see that it never runs
            raise
        return str(why)
    return None


if __name__ == "__main__":
    client_tests.use_clients_python()
    sys.exit(client_tests.main(globals(), missing()))
