# SPDX-License-Identifier: Apache-2.0
"""Options of a request that reach the workers' own state."""
import json
import os
import subprocess
import tempfile

from harness import BUILD, Cluster, free_port, small_model, tiny_model, wait_until
from launch import Launch

PROMPT = [3 + i * 7 % 250 for i in range(70)]  # four whole blocks of 16 and 6 more
FOUND = 64


def prefilled(c):
    """(computed, found) prompt tokens of the prefill worker, of one and the same of its messages."""
    m = c.metrics()
    return tuple(sum(v for k, v in m.items() if k.startswith(name + "{") and "prefill-0" in k)
                 for name in ("baton_worker_prompt_tokens_total", "baton_worker_prompt_tokens_reused_total"))


def test_cache_salts_share_no_blocks():
    """A prompt under a salt finds what was computed under that salt, and nothing else; the answer is the same."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, context=1024, seed=3)
        with Cluster(model, kv_memory="64m", worker_args=["--prefix-cache", "on"]) as c:
            answers = set()
            before = prefilled(c)
            for salt, found in ((None, 0), ("one", 0), ("two", 0), ("two", FOUND), (None, FOUND), ("three", 0),
                                ("one", FOUND), ("one ", 0), ("three", FOUND)):
                answers.add(tuple(c.complete(PROMPT, 4, temperature=0, cache_salt=salt)["token_ids"]))
                wait_until(f"the prompt of salt {salt} is counted",
                           lambda n=sum(before) + len(PROMPT): sum(prefilled(c)) >= n)
                after = prefilled(c)
                assert after == (before[0] + len(PROMPT) - found, before[1] + found), (salt, before, after)
                before = after
            assert len(answers) == 1


def test_logit_bias_applies_in_prefill_and_decode():
    """Token #1 is the prefill worker's, the others the decode worker's, or all are a decode worker's alone."""
    for way in (dict(prefill=1), dict(prefill=0, decode_args=["--local-prefill"])):
        with tempfile.TemporaryDirectory() as d:
            with Cluster(tiny_model(d, layers=2, context=1024, seed=3), kv_memory="64m", **way) as c:
                def ask(**more):
                    return c.complete(PROMPT, 8, ignore_eos=True, **more)["token_ids"]

                plain = ask(temperature=0)
                assert ask(temperature=0, logit_bias={}) == plain
                assert ask(temperature=0, logit_bias={"77": 100}) == [77] * 8
                assert ask(temperature=1, seed=5, logit_bias={"78": 100}) == [78] * 8
                without = ask(temperature=0, logit_bias={str(i): -100 for i in set(plain)})
                assert not set(without) & set(plain), (plain, without)
                # A ban comes after the bias, and company is not touched by it.
                assert 77 not in ask(temperature=0, logit_bias={"77": 100, "79": 90}, repetition_penalty=1.0,
                                     stop_token_ids=[77], min_tokens=8)
                status, answer = c.post("/v1/completions", dict(prompt=PROMPT, logit_bias={"1000000": 1}))
                assert status == 400 and answer["error"]["param"] == "logit_bias", answer
                assert ask(temperature=0) == plain


def test_tritonserver_address_options_take_effect():
    """As `tritonserver --help` has them, on the command line alone, some of a value of their own and some of the next word."""
    with tempfile.TemporaryDirectory() as d:
        ports = [free_port() for _ in range(3)]
        with Launch("--model", small_model(d), f"--http-port={ports[0]}", "--grpc-port", str(ports[1]), f"--metrics-port={ports[2]}",
                    "--http-address", "127.0.0.2", "--grpc-address=127.0.0.2", "--model-control-mode=explicit", "--load-model=*",
                    "--exit-on-error", "true", "--strict-readiness=1", "--allow-metrics=true", "--rate-limit", "off") as launch:
            router = launch.process("router")
            assert (router["http"], router["metrics"]) == (f"127.0.0.2:{ports[0]}", f"127.0.0.1:{ports[2]}"), router
            assert f"gRPC     127.0.0.2:{ports[1]}\n" in launch.output(), launch.output()
            status, _ = launch.post(router["http"], "/v2/models/ensemble/generate", {"text_input": "a", "max_tokens": 1})
            assert status == 200, status
            said = launch.output()
            for option in ("--model-control-mode explicit", "--load-model *", "--exit-on-error", "--strict-readiness", "--rate-limit"):
                assert said.count(f"{option} has no effect: ") == 1, (option, said)


def test_unsupported_tritonserver_options_are_refused():
    for arguments, words in ((["--allow-http=false"], "--allow-http false is not served: HTTP is always served"),
                             (["--model-control-mode", "poll"], "poll is not served: the repository is read once"),
                             (["--grpc-use-ssl=true"], "--tls-cert"), (["--http-restricted-api=health:k=v"], "--api-keys FILE"),
                             (["--http-port", "http"], "'127.0.0.1:http' is not ADDR:PORT"),
                             (["--log-verbose=much"], "'much' is no number"), (["--exit-timeout-secs", "x"], "--exit-timeout-secs: 'x' is no number"),
                             (["--load-model"], "--load-model needs a value")):
        done = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--model", "none", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=60, check=False)
        assert done.returncode == 2 and words in done.stdout, (arguments, done)


def test_options_of_vllm_and_llama_server_take_effect():
    """By the launcher, which hands them to router and workers under our names."""
    with tempfile.TemporaryDirectory() as d:
        http = free_port()
        with Launch("-m", small_model(d), "--host", "127.0.0.2", "--port", str(http), "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                    "--max-model-len", "48", "--served-model-name", "shop", "--max-num-seqs", "3", "-ngl", "0") as launch:
            router = launch.process("router")
            assert router["http"] == f"127.0.0.2:{http}", router
            status, _ = launch.post(router["http"], "/v1/completions", {"model": "shop", "prompt": [1, 2], "max_tokens": 1})
            assert status == 200, status
            status, said = launch.post(router["http"], "/v1/completions", {"model": "shop", "prompt": [1] * 60, "max_tokens": 1})
            assert status == 400 and "48" in json.dumps(said), (status, said)


def test_unsupported_options_of_other_servers_name_an_alternative():
    for arguments, words in ((["--gpu-memory-utilization", "0.9"], "--kv-free-percent N"), (["--api-key", "sk-1"], "--api-keys FILE"),
                             (["--dtype", "half"], "baton convert"), (["-t", "8"], "--prefill-threads N")):
        done = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--model", "none", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=60, check=False)
        assert done.returncode == 2 and words in done.stdout and "sk-1" not in done.stdout, (arguments, done)


def test_help_that_cannot_be_written_is_an_error():
    for program in ("router/baton-router", "launcher/baton-launch"):
        for option in ("--help", "--help-all", "--version"):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([os.path.join(BUILD, program), option], stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode != 0 and "cannot write to standard output" in done.stderr, (program, option, done)
