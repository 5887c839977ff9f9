#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/CLIENTS.md as they stand there, and the scripts of examples/ with the command lines that Triton's
users know, against Baton.

Usage: test_examples.py [NAME ...]

As test_clients.py: needs BATON_BUILD, BATON_TEST_MODEL and tritonclient[grpc,http], which BATON_CLIENTS_PYTHON may have.
"""
import ast
import csv
import http.client
import importlib.util
import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from harness import Skip  # noqa: E402

EXAMPLES = os.path.join(harness.ROOT, "examples")
TEMPLATES = os.path.join(harness.ROOT, "tests", "support", "model_repository")
FRANCE = "The capital of France is"
FRANCE_IDS = [504, 3575, 282, 4649, 314]  # of the Hugging Face tokenizer
VOCABULARY = 49152  # tokens of the default model
THREE = '["This is a test","I want you to","The cat is"]'
# The rows of the table that the benchmark is known for; ours has more between and behind them.
ROWS = ["Requests/Sec", "OP tokens/sec", "Avg. latency (ms)", "P99 latency (ms)", "P90 latency (ms)",
        "Avg. IP tokens per request", "Avg. OP tokens per request", "Total latency (ms)", "Total requests"]


def run(script, *arguments, code=0, env=None):
    """@return (standard output, standard error) of a script that must end with `code`."""
    done = subprocess.run([sys.executable, os.path.join(EXAMPLES, script), *arguments], capture_output=True, text=True,
                          timeout=180, check=False, stdin=subprocess.DEVNULL, env=env)
    assert done.returncode == code, (script, arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout, done.stderr


def at(address):
    return f"{address[0]}:{address[1]}"


def batcher(c, *arguments, code=0):
    return run("inflight_batcher_llm_client.py", "-u", at(c.grpc), *arguments, code=code)


def line_of(text, key):
    """What stands behind `KEY: ` on its line."""
    found = re.search(rf"^{re.escape(key)}: (.*)$", text, re.M)
    assert found, (key, text)
    return found[1]


def ids_of(text, key):
    return ast.literal_eval(line_of(text, key))


# --- the page of clients


def blocks_of_the_page():
    """{what it needs: code} of the section that promises to be run, in its order: `python` by the modules it imports,
    `sh` by its first word."""
    with open(os.path.join(harness.ROOT, "docs", "CLIENTS.md"), encoding="utf-8") as f:
        section = re.search(r"^## One working example of each\n(.*?)^##", f.read(), re.M | re.S)[1]
    return [(kind, code) for kind, code in re.findall(r"^```(\w*)\n(.*?)^```$", section, re.M | re.S)]


def here(c, code):
    for port, address in ((8000, c.http), (8001, c.grpc)):
        code = code.replace(f"127.0.0.1:{port}", at(address))
    return code


def test_documented_python_examples_run_unchanged(c):
    codes = [code for kind, code in blocks_of_the_page() if kind == "python"]
    assert len(codes) == 8, codes
    # Who hangs says where, and ends: what a client's threads wait for is not to be seen from here.
    watched = "import faulthandler\nfaulthandler.dump_traceback_later(150, exit=True)\n"
    for code in codes:
        done = subprocess.run([sys.executable, "-c", watched + here(c, code)], capture_output=True, text=True, timeout=180,
                              check=False, env=dict(os.environ, LANGSMITH_TRACING="false"))
        assert done.returncode == 0 and len(done.stdout) > 20, (code, done.stdout, done.stderr[-4000:])
        # A log-prob of 0.26 below 0 (tests/golden/evaluation.json): greedy it is Paris, which Triton's routes are.
        assert "tritonclient" not in code or "Paris" in done.stdout, (code, done.stdout)


def test_documented_shell_examples_run_unchanged(c):
    if shutil.which("curl") is None:
        raise Skip("curl is not installed")
    curls, load = (code for kind, code in blocks_of_the_page() if kind == "sh")
    lines = re.findall(r"^curl (?:.*\\\n)*.*$", curls, re.M)
    chat, stream, triton = (curl(here(c, line.replace("\\\n", " "))) for line in lines)
    assert json.loads(chat)["choices"][0]["message"]["content"], chat
    assert stream.startswith("data: {") and stream.endswith("data: [DONE]\n\n"), stream
    assert "Paris" in json.loads(triton)["text_output"], triton
    done = subprocess.run(["bash", "-ec", here(c, load)], cwd=harness.ROOT, capture_output=True, text=True, timeout=180,
                          check=False)
    assert done.returncode == 0 and re.search(r"\b8\b", done.stdout), (done.stdout, done.stderr)


# --- one request of ids


def test_batcher_client_prints_input_and_output_of_ids(c):
    out, said = batcher(c, "--request-output-len", "20", "--tokenizer-dir", "/gpt2", "--text", FRANCE)
    assert "--tokenizer-dir has no effect" in said, said
    assert int(line_of(out, "Using pad_id")) >= 0 and int(line_of(out, "Using end_id")) >= 0
    ids = ids_of(out, "Output sequence")
    assert ids_of(out, "Input sequence") == FRANCE_IDS == ids[:5] and len(ids) == 25, out
    assert "Got completed request" in out and line_of(out, "Input") == FRANCE, out
    assert "Paris" in line_of(out, "Output beam 0") and FRANCE not in line_of(out, "Output beam 0"), out

    # A stream brings the same ids one after the other, and no prompt.
    streamed, _ = batcher(c, "--request-output-len", "20", "--streaming", "--input-tokens-csv", "504,3575,282,4649,314",
                          "--exclude-input-in-output")
    assert ids_of(streamed, "Output sequence") == ids[5:], streamed
    pieces = [ast.literal_eval(x) for x in re.findall(r"^Output tokens: (.*)$", streamed, re.M)]
    assert sum(pieces, []) == ids[5:] and len(pieces) > 5, pieces

    expected = ",".join(str(x) for x in ids[5:])
    same = ["--request-output-len", "20", "--text", FRANCE, "--check-output", "--output-tokens-csv"]
    assert "\nPASS" in batcher(c, *same, expected)[0]
    assert "\nFAIL" in batcher(c, *same, "1," + expected, code=1)[0]


def test_batcher_client_ends_a_request_early(c):
    """--end-id -1: nothing but the stop ends it before 1500 tokens."""
    long = ["--request-output-len", "1500", "--stop-after-ms", "200", "--end-id", "-1", "--exclude-input-in-output"]
    for more in (["--request-id", "1"], ["--streaming"]):
        out, _ = batcher(c, *long, *more)
        assert "Got completed request" in out and len(ids_of(out, "Output sequence")) < 1500, out
    out, _ = batcher(c, *long, "--stop-via-request-cancel")
    assert "Request is cancelled" in out and ids_of(out, "Output sequence") == [], out
    out, _ = batcher(c, *long, "--stop-via-request-cancel", "--streaming")
    assert "Request is cancelled" in out and len(ids_of(out, "Output sequence")) < 1500, out
    c.wait_idle()


def test_batcher_client_returns_logits(c):
    line = ["inflight_batcher_llm_client.py", "-u", at(c.grpc), "--request-output-len", "20", "--text", FRANCE,
            "--return-context-logits", "--return-generation-logits"]
    done = subprocess.run([sys.executable, os.path.join(EXAMPLES, line[0]), *line[1:]], capture_output=True, text=True,
                          timeout=180, check=False)
    if "'return_context_logits' is not supported yet" in done.stderr:
        raise Skip("infer has no logits yet")
    assert done.returncode == 0, done.stderr
    assert line_of(done.stdout, "context_logits.shape") == f"(1, 5, {VOCABULARY})", done.stdout
    assert line_of(done.stdout, "generation_logits.shape") == f"(1, 1, 20, {VOCABULARY})", done.stdout
    ask = ["--request-output-len", "20", "--text", FRANCE, "--return-log-probs"]
    whole, streamed = batcher(c, *ask)[0], batcher(c, *ask, "--streaming")[0]
    assert line_of(whole, "output_log_probs.shape") == "(1, 1, 20)", whole
    assert whole[whole.index("cum_log_probs"):] == streamed[streamed.index("cum_log_probs"):], (whole, streamed)
    texts, _ = run("end_to_end_grpc_client.py", "-u", at(c.grpc), "-o", "5", "-p", THREE, "--batch-inputs", "--streaming",
                   "--return-log-probs", "--end-id", "-1")
    assert re.findall(r"^output_log_probs.shape: (.*)$", texts, re.M) == ["(1, 1, 5)"] * 3, texts


def test_batcher_client_refuses_unsupported_options_by_name(c):
    for option in ("--lora-path", "--prompt-embedding-table-path", "--draft-tokens-csv"):
        _, said = batcher(c, option, "x", code=2)
        assert f"{option}: " in said and "not there" in said, said
    _, said = batcher(c, "--beam-width", "100", code=1)
    assert "beam_width" in said, said
    _, said = run("benchmark_core_model.py", "-u", at(("127.0.0.1", harness.free_port())), "token_norm_dist",
                  "--input_mean", "4", "--input_stdev", "1", "--output_mean", "4", "--output_stdev", "1", code=1)
    assert said.startswith("Encountered error: ") and "refused" in said, said
    _, said = run("launch_triton_server.py", "--multi-model", code=2)
    assert "--multi-model: " in said, said
    _, said = run("launch_triton_server.py", "--tritonserver", "/opt/tritonserver/bin/tritonserver", code=2)
    assert "--tritonserver: " in said, said


# --- texts


def test_end_to_end_client_asks_a_batch_of_three(c):
    out, _ = run("end_to_end_grpc_client.py", "-u", at(c.grpc), "-o", "5", "-p", THREE, "--batch-inputs")
    assert re.findall(r"^batch_index: (\d)$", out, re.M) == ["0", "1", "2"], out
    for prompt in json.loads(THREE):
        found = re.search(rf"^Input: {prompt}\nOutput: (.*)$", out, re.M)
        assert found and found[1].startswith(prompt) and len(found[1]) > len(prompt), out
    # One after the other, as streams, from the other model: the same texts less the prompts.
    single, _ = run("end_to_end_grpc_client.py", "-u", at(c.grpc), "-o", "5", "-p", THREE, "--streaming", "--model-name",
                    "tensorrt_llm_bls")
    texts = re.findall(r"^Output: (.*)$", out, re.M)
    answers = re.findall(r"^Output: (.*)$", single, re.M)
    assert [p + a for p, a in zip(json.loads(THREE), answers)] == texts, (texts, answers)


def test_end_to_end_client_takes_words_and_sampling(c):
    ask = ["end_to_end_grpc_client.py", "-u", at(c.grpc), "-o", "8", "-p", FRANCE, "--exclude-input-in-output"]
    plain, _ = run(*ask)
    assert "Paris" in line_of(plain, "Output"), plain
    assert "Paris" not in line_of(run(*ask, "--bad-words", " Paris")[0], "Output")
    stopped = line_of(run(*ask, "--stop-words", "Paris", "--top-k", "1", "--temperature", "0.5")[0], "Output")
    assert len(stopped) < len(line_of(plain, "Output")), stopped


def curl(command):
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quick_start_curl_lines_run(c):
    if shutil.which("curl") is None:
        raise Skip("curl is not installed")
    for model in ("ensemble", "tensorrt_llm_bls"):
        answer = json.loads(curl(f"curl -X POST {at(c.http)}/v2/models/{model}/generate -d '" '{"text_input": "What is '
                                 'machine learning?", "max_tokens": 20, "bad_words": "", "stop_words": ""}\''))
        assert answer["model_name"] == model and answer["model_version"] == "1" and answer["text_output"], answer
        assert (answer["sequence_end"], answer["sequence_id"], answer["sequence_start"]) == (False, 0, False), answer
    page = curl(f"curl {at(c.metrics_at)}/metrics")
    for name in ("request", "runtime_memory", "kv_cache_block", "inflight_batcher", "general", "disaggregated_serving"):
        assert f"\nnv_trt_llm_{name}_metrics{{" in page, name


def test_example_texts_return_and_models_agree(c):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "dataset.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump([FRANCE, " two  spaces,\n\ta tab and 1234 \u00e9\u65e5\u672c \U0001f600", {"prompt": "The cat is"}], f)
        for library, address in (("grpc", c.grpc), ("http", c.http)):
            out, _ = run("identity_test.py", "-i", library, "-u", at(address), "dataset", "--dataset", path)
            assert "on 3 prompts" in out and "[INFO] Functionality test succeed." in out, out
        out, _ = run("end_to_end_test.py", "-i", "grpc", "-u", at(c.grpc), "--dataset", path, "--max-input-len", "8")
        assert "on 2 prompts" in out and "[INFO] Functionality test succeed." in out, out
        assert float(re.search(r"Total Latency: (\S+) ms", out)[1]) > 0, out


# --- the benchmark


def rows_of(out):
    found = dict(re.findall(r"^\| +(\S.*?) +\| +(\S+) +\|$", out, re.M))
    assert found.pop("Stat") == "Value"
    assert [x for x in found if x in ROWS] == ROWS, out
    return {name: float(value) for name, value in found.items()}


def n_inferences(c):
    stats = json.loads(c.request("GET", "/v2/models/tensorrt_llm/stats")[2])["model_stats"][0]
    return stats["inference_count"]


def test_example_benchmark_with_random_lengths_runs(c):
    before = n_inferences(c)
    out, _ = run("benchmark_core_model.py", "-u", at(c.grpc), "-i", "grpc", "--request_rate", "40", "token_norm_dist",
                 "--input_mean", "32", "--input_stdev", "0", "--output_mean", "10", "--output_stdev", "0",
                 "--num_requests", "12")
    rows = rows_of(out)
    assert "[INFO] Start benchmarking on 12 prompts." in out and "[INFO] Total Latency: " in out, out
    assert rows["Total requests"] == 12 and rows["Avg. IP tokens per request"] == 32, rows
    assert rows["Avg. OP tokens per request"] == 10, rows
    assert rows["P99 latency (ms)"] >= rows["P90 latency (ms)"] >= rows["P50 latency (ms)"] > 0, rows
    # Rates and the time of all are rounded to hundredths in the table.
    assert abs(rows["Requests/Sec"] * rows["Total latency (ms)"] / 1000 - 12) < 0.1, rows
    c.wait_idle()
    assert n_inferences(c) == before + 12 + 4  # four to warm up


def test_example_benchmark_with_a_dataset_runs(c):
    with tempfile.TemporaryDirectory() as directory:
        path, table = os.path.join(directory, "dataset.json"), os.path.join(directory, "stats.csv")
        with open(path, "w", encoding="utf-8") as f:
            # 5 ids and 10 words: 13 tokens; the second has no answer: 7 tokens; the third is too long
            json.dump([{"prompt": FRANCE, "output": "one two three four five six seven eight nine ten"}, FRANCE,
                       {"instruction": FRANCE, "input": FRANCE}], f)
        out, said = run("benchmark_core_model.py", "-i", "http", "-u", at(c.http), "--request_rate", "50",
                        "--time_delay_dist", "constant", "--exclude_input_in_output", "--stats_csv", table, "dataset",
                        "--dataset", path, "--tokenizer_dir", "/gpt2", "--max_input_len", "6", "--output_len", "7",
                        "--num_requests", "5000")
        with open(table, encoding="utf-8") as f:
            told = list(csv.reader(f))
    rows = rows_of(out)
    assert "--tokenizer_dir has no effect" in said, said
    assert rows["Total requests"] == 2 and rows["Avg. IP tokens per request"] == 5, rows
    assert rows["Avg. OP tokens per request"] == 10, rows  # of 13 and 7
    assert {name: float(value) for name, value in told[1:]} == rows, told


def test_example_benchmark_arrivals_follow_the_rate(_):
    sys.path.insert(0, EXAMPLES)
    benchmark = __import__("benchmark_core_model")
    few = ["token-norm-dist", "--input_mean", "1", "--input_stdev", "0", "--output_mean", "1", "--output_stdev", "0"]
    constant = benchmark.options_of(["--request-rate", "4", "--time-delay-dist", "constant"] + few)
    assert benchmark.arrivals(constant, 4, None) == [0.0, 0.25, 0.5, 0.75]
    drawn = benchmark.arrivals(benchmark.options_of(["--request_rate", "4"] + few), 10001, random.Random(1))
    gaps = [b - a for a, b in zip(drawn, drawn[1:])]
    # Of an exponential distribution mean and deviation are both 1/4; 10,000 draws are within 5 % of it.
    mean = sum(gaps) / len(gaps)
    deviation = (sum((x - mean) ** 2 for x in gaps) / len(gaps)) ** 0.5
    assert abs(mean - 0.25) < 0.0125 and abs(deviation - 0.25) < 0.0125, (mean, deviation)
    assert benchmark.arrivals(benchmark.options_of(few), 3, None) == [0.0, 0.0, 0.0]


# --- the launch


def fill_repository(where, model):
    """As the commands of the quick start fill it."""
    size, count = "triton_max_batch_size:4", "instance_count:1"
    for name, values in (
            ("ensemble", size), ("preprocessing", f"tokenizer_dir:/gpt2,{size},preprocessing_{count}"),
            ("tensorrt_llm", f"triton_backend:tensorrtllm,{size},decoupled_mode:false,engine_dir:{model},"
             "max_queue_delay_microseconds:0,batching_strategy:inflight_fused_batching,max_queue_size:0,"
             "encoder_input_features_data_type:TYPE_FP16"),
            ("postprocessing", f"tokenizer_dir:/gpt2,{size},postprocessing_{count},max_queue_size:0"),
            ("tensorrt_llm_bls", f"{size},decoupled_mode:false,bls_{count}")):
        run("fill_template.py", "-i", os.path.join(where, name, "config.pbtxt"), values)


def started_by(out):
    """@return {service: (host, port)} of the lines that say it."""
    return {name: (host, int(port)) for name, host, port in re.findall(r"Started (.*) at (\S+):(\d+)$", out, re.M)}


def test_launch_script_starts_a_repository(_):
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        where = os.path.join(directory, "triton_model_repo")
        shutil.copytree(TEMPLATES, where)
        fill_repository(where, harness.small_model(directory))
        ports = {name: harness.free_port() for name in ("grpc", "http", "metrics")}
        environment = dict(os.environ, XDG_RUNTIME_DIR=directory, BATON_WEIGHT_CACHE=os.path.join(directory, "weights"))
        environment.pop("SLURM_PROCID", None)
        log = os.path.join(directory, "log")
        arguments = ["--world_size=4", f"--model_repo={where}", "--oversubscribe", "--log-file", log,
                     "--tritonserver", os.path.join(harness.BUILD, "launcher/baton-launch"),
                     *(f"--{name}_port={port}" for name, port in ports.items()),
                     # As the seeds' Slurm script starts tritonserver.
                     "--disable-auto-complete-config", "--backend-config=python,shm-region-prefix-name=prefix0_",
                     "--log-verbose", "1", "--", "--kv-memory", "64m",
                     "--prefill-threads", "1", "--decode-threads", "1", "--drain-ms", "2000"]
        out, said = run("launch_triton_server.py", *arguments, env=environment)
        pid = os.pidfd_open(int(re.search(r"^PID (\d+)$", out, re.M)[1]))
        try:
            assert "--oversubscribe has no effect" in said, said
            found = started_by(out)
            assert found == {"GRPCInferenceService": ("127.0.0.1", ports["grpc"]),
                             "HTTPService": ("127.0.0.1", ports["http"]),
                             "Metrics Service": ("127.0.0.1", ports["metrics"])}, out
            answer, _ = run("end_to_end_grpc_client.py", "-u", at(found["GRPCInferenceService"]), "-o", "5", "-p", THREE,
                            "--batch-inputs")
            assert len(re.findall("^Output: ", answer, re.M)) == 3, answer

            def are_up():
                """It is ready with one of each."""
                connection = http.client.HTTPConnection(*found["Metrics Service"], timeout=60)
                connection.request("GET", "/metrics")
                page = connection.getresponse().read().decode()
                connection.close()
                return all(re.search(rf'^baton_workers{{.*role="{role}".*state="up".*}} 2$', page, re.M) for role in ("prefill", "decode"))
            harness.wait_until("two workers of each role are up", are_up)
            # A second server there is refused, and the first goes on.
            _, said = run("launch_triton_server.py", *arguments, code=1, env=environment)
            assert "somebody listens there already" in said and "_port" in said, said
        finally:
            signal.pidfd_send_signal(pid, signal.SIGTERM)
            ended = select.select([pid], [], [], 60)[0]
            os.close(pid)
        with open(log, encoding="utf-8") as f:
            text = f.read()
        assert ended, text[-3000:]
        for option in ("--disable-auto-complete-config", "--backend-config"):
            assert f"{option} has no effect" in text, text[:3000]
        assert " debug " in text, text[:3000]


def test_launch_script_splits_the_mpi_world_in_halves(_):
    sys.path.insert(0, EXAMPLES)
    launch = __import__("launch_triton_server")
    for size, n_prefill, n_decode in ((1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 2, 2)):
        command = launch.command_of(launch.options_of([f"--world_size={size}", "--model_repo=/r", "--http_port", "81"]))
        assert command == [os.path.join(harness.ROOT, "baton"), "serve", "--prefill", str(n_prefill), "--decode",
                           str(n_decode), "--model-repository", "/r", "--grpc", "127.0.0.1:8001", "--http",
                           "127.0.0.1:81", "--metrics", "127.0.0.1:8002"], command


def test_launch_script_reports_why_nothing_starts(_):
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        _, said = run("launch_triton_server.py", "--model_repo", os.path.join(directory, "none"), "--tritonserver",
                      os.path.join(harness.BUILD, "launcher/baton-launch"),
                      *(f"--{name}_port={harness.free_port()}" for name in ("grpc", "http", "metrics")), code=1)
        assert "none" in said and "the server ended with" in said, said
        out, _ = run("launch_triton_server.py", "--oversubscribe", env=dict(os.environ, SLURM_PROCID="3"))
        assert out.startswith("task 3: nothing to do"), out


if __name__ == "__main__":
    missing = [x for x in ("tritonclient", "grpc", "numpy", "geventhttpclient", "openai", "langchain_openai") if importlib.util.find_spec(x) is None]
    sys.exit(client_tests.main(globals(), missing and f"packages of PyPI are not installed: {' '.join(missing)}"))
