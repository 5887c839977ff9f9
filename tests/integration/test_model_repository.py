# SPDX-License-Identifier: Apache-2.0
"""A launch of a model repository as Triton has it, and models loaded and unloaded by clients."""
import http.client
import json
import os
import re
import subprocess
import tempfile
import threading

from harness import BUILD, ROOT, Cluster, small_model, wait_until
from launch import Launch

TEMPLATES = os.path.join(ROOT, "tests", "support", "model_repository")
VALUES = {
    "triton_max_batch_size": "2", "preprocessing_instance_count": "2", "postprocessing_instance_count": "1",
    "bls_instance_count": "1", "triton_backend": "tensorrtllm", "decoupled_mode": "true", "tokenizer_dir": "/none",
    "max_queue_delay_microseconds": "2000", "max_queue_size": "9", "batching_strategy": "V1",
    "encoder_input_features_data_type": "TYPE_FP16", "logits_datatype": "TYPE_FP32",
    "max_tokens_in_paged_kv_cache": "640", "kv_cache_free_gpu_mem_fraction": "0.9",
    "exclude_input_in_output": "false", "enable_kv_cache_reuse": "false", "gpu_device_ids": "0",
    "batch_scheduler_policy": "max_utilization", "accumulate_tokens": "true",
}


def fill(directory, **values):
    """The five files as fill_template.py leaves them. @return the repository's folder"""
    values = dict(VALUES, **values)
    where = os.path.join(directory, "repository")
    for name in os.listdir(TEMPLATES):
        os.makedirs(os.path.join(where, name))
        with open(os.path.join(TEMPLATES, name, "config.pbtxt"), encoding="utf-8") as f:
            text = f.read()
        for key, value in values.items():
            text = text.replace("${%s}" % key, value)
        with open(os.path.join(where, name, "config.pbtxt"), "w", encoding="utf-8") as f:
            f.write(text)
    return where


def ask(address, method, path, body=None):
    conn = http.client.HTTPConnection(address, timeout=120)
    try:
        conn.request(method, path, None if body is None else json.dumps(body))
        answer = conn.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data.startswith((b"{", b"[")) else data.decode()
    finally:
        conn.close()


def page(address):
    conn = http.client.HTTPConnection(address, timeout=60)
    try:
        conn.request("GET", "/metrics")
        return conn.getresponse().read().decode()
    finally:
        conn.close()


def test_model_repository_takes_effect_in_every_process():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = small_model(directory)
        where = fill(directory, engine_dir=model)
        with Launch("--model-repository", where, "--enable-cpu-metrics") as launch:
            router = launch.process("router")
            at, metrics = router["http"], router["metrics"]
            # described
            status, config = ask(at, "GET", "/v2/models/tensorrt_llm/config")
            assert status == 200 and config["max_batch_size"] == 2, config
            assert config["parameters"]["gpt_model_type"]["string_value"] == "V1", config
            assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 2000, config
            assert config["dynamic_batching"]["default_queue_policy"]["max_queue_size"] == 9, config
            # workers
            blocks = launch.metric(metrics, "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="max")
            tokens = launch.metric(metrics, "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="tokens_per")
            assert blocks * tokens == 2 * 640, (blocks, tokens)  # a prefill and a decode worker
            with open(os.path.join(launch.logs_dir, "decode-0.log"), encoding="utf-8") as f:
                assert f.read().count("static batches, by --batching-strategy V1") == 1
            # requests: the prompt stands in the text, a stream of the chain accumulates
            body = {"text_input": "abc", "max_tokens": 6, "temperature": 0}
            status, answer = ask(at, "POST", "/v2/models/ensemble/generate", body)
            assert status == 200 and answer["text_output"].startswith("abc"), answer
            whole = answer["text_output"]
            status, text = ask(at, "POST", "/v2/models/tensorrt_llm_bls/generate_stream", body)
            events = [json.loads(x[6:])["text_output"] for x in text.split("\n\n") if x]
            assert status == 200 and "abc" + events[-1] == whole, (events, whole)
            assert all(b.startswith(a) for a, b in zip(events, events[1:])), events
            inputs = [{"name": "text_input", "shape": [3, 1], "datatype": "BYTES", "data": ["a", "b", "c"]},
                      {"name": "max_tokens", "shape": [3, 1], "datatype": "INT32", "data": [1, 1, 1]}]
            status, answer = ask(at, "POST", "/v2/models/ensemble/infer", {"inputs": inputs})
            assert status == 400 and "batch-size must be <= 2 for 'ensemble'" in answer["error"], answer
            # metrics
            text = page(metrics)
            assert "nv_trt_llm_v1_metrics{" in text and "nv_trt_llm_inflight_batcher_metrics" not in text
            assert re.search(r"^nv_cpu_utilization [01]", text, re.M) and "nv_cpu_memory_total_bytes " in text
            with open(os.path.join(launch.logs_dir, "router.log"), encoding="utf-8") as f:
                log = f.read()
            assert log.count("parameters.gpu_device_ids (--backend says what computes)") == 1, log


def test_other_model_repository_values_take_effect():
    """What test_model_repository_takes_effect_in_every_process sets otherwise or not at all."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        where = fill(directory, engine_dir=small_model(directory), triton_max_batch_size="1", batching_strategy="inflight_fused_batching",
                     decoupled_mode="false", exclude_input_in_output="true", enable_kv_cache_reuse="true",
                     max_num_sequences="3", accumulate_tokens="false", enable_chunked_context="false",
                     max_queue_delay_microseconds="0", gather_context_logits="true")
        path = os.path.join(where, "tensorrt_llm", "config.pbtxt")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        assert "instance_group [ { count: 1 kind: KIND_CPU } ]" in text
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("count: 1 kind: KIND_CPU", "count: 2 kind: KIND_GPU gpus: [ 0 ]"))
        gpu = [] if os.path.exists("/proc/driver/nvidia/version") else ["--enable-gpu-metrics"]
        with Launch("--model-repository", where, *gpu) as launch:
            router = launch.process("router")
            at, metrics = router["http"], router["metrics"]
            wait_until("both instances", lambda: launch.metric(metrics, "baton_workers", role="decode", state="up") == 2)
            assert "nv_gpu_" not in page(metrics)
            # Two decode workers, each with three seats: their loads come after they have joined.
            wait_until("the seats of both", lambda: launch.metric(metrics, "nv_trt_llm_request_metrics", request_type="max") == 6)
            body = {"text_input": "abc " * 20, "max_tokens": 6, "temperature": 0}
            status, answer = ask(at, "POST", "/v2/models/ensemble/generate", body)
            assert status == 200 and not answer["text_output"].startswith("abc"), answer
            status, stream = ask(at, "POST", "/v2/models/ensemble/generate_stream", body)
            assert status == 400 and "decoupled" in stream["error"], stream
            assert ask(at, "POST", "/v2/models/ensemble/generate", body) == (200, answer)
            wait_until("its prompt was found again", lambda: launch.metric(
                metrics, "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="reused") > 0)
            assert "nv_trt_llm_inflight_batcher_metrics{" in page(metrics)
            status, config = ask(at, "GET", "/v2/models/tensorrt_llm/config")
            assert status == 200 and config["parameters"]["batch_scheduler_policy"]["string_value"] == "max_utilization", config
            with open(os.path.join(launch.logs_dir, "router.log"), encoding="utf-8") as f:
                log = f.read()
            for said in ("KIND_GPU (--backend", "instance_group.gpus (--backend", "parameters.enable_chunked_context (prompts",
                         "parameters.gather_context_logits (logits"):
                assert log.count(said) == 1, (said, log)


def test_unsupported_repository_field_is_refused_by_file_line_and_name():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        where = fill(directory, engine_dir=small_model(directory), sink_token_length="4")
        try:
            with Launch("--model-repository", where):
                raise RuntimeError("it was launched")
        except AssertionError as e:
            assert "the launcher ended with" in str(e), e


# As an article on serving with TensorRT-LLM and Triton prints it, whole.
ARTICLE = """name: "tensorrt_llm"
platform: "tensorrt_llm"
max_batch_size: 32
input [
  {
    name: "input_ids"
    data_type: TYPE_INT32
    dims: [ -1 ]
  }
]
output [
  {
    name: "output_ids"
    data_type: TYPE_INT32
    dims: [ -1 ]
  }
]
instance_group [
  {
    count: 1
    kind: KIND_GPU
    gpus: [ 0 ]
  }
]
dynamic_batching {
  max_queue_delay_microseconds: 1000
}
parameters {
    key: "decoupled"
    value {
      string_value: "true"
    }
  }
"""
# Further fields of model_config.proto that change nothing here, or that Baton serves.
ALSO = """version_policy { latest { num_versions: 1 } }
optimization { priority: PRIORITY_MAX cuda { graphs: true } input_pinned_memory { enable: true } }
model_warmup [ { name: "w" batch_size: 1 inputs { key: "input_ids" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } } ]
response_cache { enable: true }
default_model_filename: "model.py"
parameters { key: "batch_scheduler_policy" value { string_value: "MAX_UTILIZATION" } }
parameters { key: "gpt_model_path" value { string_value: "%s" } }
"""


def config_file(repository, text, model="tensorrt_llm"):
    os.makedirs(os.path.join(repository, model), exist_ok=True)
    with open(os.path.join(repository, model, "config.pbtxt"), "w", encoding="utf-8") as f:
        f.write(text)


def check(*arguments):
    """@return status and output of the launcher's --check, which starts nothing"""
    done = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--check", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", timeout=120, check=False)
    return done.returncode, done.stdout


def engine_folder(directory):
    """As trtllm-build leaves it."""
    engine = os.path.join(directory, "engine")
    os.makedirs(engine)
    for name in ("config.json", "rank0.engine"):
        with open(os.path.join(engine, name), "w", encoding="utf-8") as f:
            f.write("{}")
    return engine


def test_published_config_is_served_and_other_folders_are_named():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        where, model = os.path.join(directory, "repository"), small_model(directory)
        config_file(where, ARTICLE + ALSO % engine_folder(directory))
        config_file(where, 'backend: "python"', "my_reranker")
        status, said = check("--model", model, "--model-repository", where)
        assert status == 0 and "folders that are not served: my_reranker" in said, said
        with Launch("--model", model, "--model-repository", where) as launch:
            at = launch.process("router")["http"]
            status, config = ask(at, "GET", "/v2/models/tensorrt_llm/config")
            assert status == 200 and config["platform"] == "tensorrt_llm", config
            assert config["model_transaction_policy"] == {"decoupled": True} and config["max_batch_size"] == 32, config
            # --model names another model than the file: the served one is shown.
            assert config["parameters"]["gpt_model_path"]["string_value"] == model, config
            status, text = ask(at, "POST", "/v2/models/ensemble/generate_stream", {"text_input": "abc", "max_tokens": 2})
            assert status == 200 and "data: " in text, text
            with open(os.path.join(launch.logs_dir, "router.log"), encoding="utf-8") as f:
                log = f.read()
            assert re.search(r"warn .*repository: not served: .*: my_reranker$", log, re.M), log
            for said in ("parameters.gpt_model_path (not served: --model names the model)", "optimization (--backend",
                         "model_warmup (a worker", "response_cache (answers are not kept", "default_model_filename (Baton"):
                assert log.count(said) == 1, (said, log)
            with open(f"/proc/{launch.process('decode-0')['pid']}/cmdline", encoding="utf-8") as f:
                assert "--scheduler-policy\0max_utilization\0" in f.read().replace("=", "\0")


def test_decoupled_false_as_a_parameter_refuses_streams():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        where = os.path.join(directory, "repository")
        config_file(where, ARTICLE.replace('"true"', '"false"'))
        with Cluster(small_model(directory), router_args=["--model-repository", where]) as c:
            status, answer = c.post("/v2/models/ensemble/generate_stream", {"text_input": "abc", "max_tokens": 2})
            assert status == 400 and "decoupled" in answer["error"], answer


def test_tensorrt_engine_is_refused_without_a_substitute():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        where = os.path.join(directory, "repository")
        for path, words in ((engine_folder(directory), "is an engine of TensorRT, which is not served"),
                            ("/engines/gpt/fp16/4-gpu", "cannot open the model /engines/gpt/fp16/4-gpu")):
            config_file(where, ARTICLE + ALSO % path)
            status, said = check("--model-repository", where)
            assert status != 0 and words in said and f"of {where}/tensorrt_llm/config.pbtxt says so: --model PATH" in said, said
            done = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--model-repository", where], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, encoding="utf-8", timeout=60, check=False)
            assert done.returncode == 78 and words in done.stdout and "--model PATH" in done.stdout, done
            # ./baton serve fetches the default model where this is empty.
            named = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--print-model", "--model-repository", where],
                                   stdout=subprocess.PIPE, encoding="utf-8", timeout=60, check=True).stdout
            assert named == path + "\n\n\n", named  # then --override-generation-config and --chat-template


def test_requests_within_the_queue_delay_are_placed_together():
    """Half a second, so that four that are sent at once are all there before it is over."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        with Cluster(small_model(directory), router_args=["--max-queue-delay-us", "500000"]) as c:
            answers = []

            def one():
                answers.append(c.post("/v2/models/ensemble/generate", {"text_input": "abc", "max_tokens": 2})[0])
            threads = [threading.Thread(target=one) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert answers == [200] * 4, answers
            status, _, data = c.request("GET", "/v2/models/ensemble/stats")
            queue = json.loads(data)["model_stats"][0]["inference_stats"]["queue"]
            assert status == 200 and queue["count"] == 4, queue
            wait_until("what was held counts as time in the queue", lambda: json.loads(
                c.request("GET", "/v2/models/ensemble/stats")[2])["model_stats"][0]["inference_stats"]["queue"]["ns"]
                >= 500_000_000)


def test_client_unloads_and_loads_a_model_through_the_launcher():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = small_model(directory)
        with Launch("--model", f"a={model}") as launch:
            at = launch.process("router")["http"]
            body = {"text_input": "abc", "max_tokens": 2}

            def states():
                return {x["name"]: (x["state"], x["reason"]) for x in ask(at, "POST", "/v2/repository/index", {})[1]}
            assert ask(at, "POST", "/v2/models/a/generate", body)[0] == 200
            assert states()["a"] == states()["ensemble"] == ("READY", ""), states()
            # Triton's names are the first model's.
            assert ask(at, "POST", "/v2/repository/models/tensorrt_llm/unload", {"parameters": {
                "unload_dependents": True}}) == (200, "")
            assert states()["a"] == ("UNAVAILABLE", "unloaded"), states()
            assert ask(at, "POST", "/v2/repository/index", {"ready": True}) == (200, [])
            assert ask(at, "GET", "/v2/models/a/ready")[0] == 503
            assert ask(at, "POST", "/v2/models/a/generate", body)[0] == 503
            assert ask(at, "POST", "/v2/repository/models/a/load", {}) == (200, "")
            assert ask(at, "GET", "/v2/models/a/ready")[0] == 200, "an order is answered when it has come true"
            assert ask(at, "POST", "/v2/models/a/generate", body)[0] == 200
            status, answer = ask(at, "POST", "/v2/repository/models/nothing/load", {})
            assert status == 400 and "failed to load 'nothing'" in answer["error"], answer
