#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What evaluation harnesses ask of /v1/completions, and float32's answers to it.

Usage: test_evaluation.py [NAME ...]

Needs BATON_BUILD and BATON_TEST_MODEL. Requests and what is read out of the answers are those of lm-evaluation-harness
0.4.13 (LocalCompletionsAPI of its `local-completions`): prompts of token ids, `echo`, `logprobs` 1 and `max_tokens` 1,
the continuation's log-probs are `token_logprobs[len(context):-1]`, and it is greedy where each equals the maximum of its
`top_logprobs`. The values are of PyTorch transformers in float32 (tests/golden/make_evaluation_golden.py).

The harness itself is run where BATON_LM_EVAL_PYTHON names a Python that has lm-eval[api]; it brings 500 MB of packages,
so the clients of `./baton test` are without it.
"""
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from harness import Skip  # noqa: E402

with open(os.path.join(harness.ROOT, "tests", "golden", "evaluation.json"), encoding="utf-8") as file:
    GOLDEN = json.load(file)
# Of the default model, whose weights are multiplied by activations of 8 bits; the first as
# tests/unit/inference/model/test_accuracy.c has it, the others of single tokens as test_seed_requests.py has them.
MAX_PERPLEXITY_CHANGE = 0.0067
MAX_CHANGE, MAX_MEAN_CHANGE = 0.45, 0.08
# Of weights that are no integers nothing is rounded but attention's operands (to bfloat16), the KV (to float16) and, of
# bfloat16 weights, what they are multiplied by: how far that takes small models with random weights from float32, and
# how near numpy's float64 is that rounds the same, but where a last bit tips a value over to its neighbour.
TINY_CHANGE, TINY_MEAN_CHANGE, ROUNDED_CHANGE, ROUNDED_MEAN_CHANGE = 0.15, 0.03, 0.02, 1e-3


def ask(c, prompts, **more):
    """One request of the harness. @return its choices, ordered by index"""
    body = {"model": "ensemble", "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
            "echo": True}
    status, answer = c.post("/v1/completions", dict(body, **more), timeout=600)
    assert status == 200, (status, answer)
    assert len(answer["choices"]) == len(prompts)
    return sorted(answer["choices"], key=lambda x: x["index"])


def read(choice, n_context):
    """@return of each token of the continuation its log-prob, and whether the continuation is greedy"""
    scores = choice["logprobs"]
    values, tops = scores["token_logprobs"][n_context:-1], scores["top_logprobs"][n_context:-1]
    return values, all(value == max(top.values()) for value, top in zip(values, tops))


def asked(c, wanted, batch):
    """As loglikelihood() goes about it: the longest first, so many prompts a request."""
    order = sorted(range(len(wanted)), key=lambda i: -len(wanted[i]["context"] + wanted[i]["continuation"]))
    found = [None] * len(wanted)
    for at in range(0, len(order), batch):
        some = order[at:at + batch]
        choices = ask(c, [wanted[i]["context"] + wanted[i]["continuation"] for i in some])
        for i, choice in zip(some, choices):
            n_all = len(wanted[i]["context"] + wanted[i]["continuation"])
            scores = choice["logprobs"]
            assert all(len(scores[x]) == n_all + 1 for x in ("tokens", "token_logprobs", "top_logprobs", "text_offset"))
            assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
            found[i] = read(choice, len(wanted[i]["context"]))
            assert len(found[i][0]) == len(wanted[i]["continuation"])
    return found


def changes(wanted, found, of="logprobs"):
    return [abs(a - b) for w, (values, _) in zip(wanted, found) for a, b in zip(w[of], values)]


def check_greedy(wanted, found, change):
    """Where float32 is sure by more than both values of a comparison may be off, so are we. @return how many it was"""
    n_sure = 0
    for w, (_, greedy) in zip(wanted, found):
        gaps = [best - value for value, best in zip(w["logprobs"], w["best"])]
        leads = [value - second for value, second in zip(w["logprobs"], w["second"])]
        if max(gaps) > 2 * change:
            assert not greedy, w
            n_sure += 1
        elif max(gaps) == 0 and min(leads) > 2 * change:
            assert greedy, w
            n_sure += 1
    return n_sure


def described(values):
    return f"largest {max(values):.2g}, mean {sum(values) / len(values):.2g} of {len(values)} tokens"


def test_log_likelihoods_of_answers_are_those_of_float32(c):
    said = GOLDEN["default"]
    pairs = said["pairs"]
    found = asked(c, pairs, 1)
    assert found == asked(c, pairs, 8), "a batch changes nothing"
    off = changes(pairs, found)
    print(f"  log-probs of answers: {described(off)}")
    assert max(off) < MAX_CHANGE and sum(off) / len(off) < MAX_MEAN_CHANGE, described(off)
    assert check_greedy(pairs, found, MAX_CHANGE) >= 40  # of 53
    assert sum(greedy for _, greedy in found) == sum(max(
        b - v for v, b in zip(w["logprobs"], w["best"])) == 0 for w in pairs)
    # Accuracy as multiple_choice tasks have it: the likeliest choice is float32's for every question.
    at = n_right = 0
    for item in said["items"]:
        n = len(item["choices"])
        theirs = [sum(w["logprobs"]) for w in pairs[at:at + n]]
        ours = [sum(values) for values, _ in found[at:at + n]]
        assert ours.index(max(ours)) == theirs.index(max(theirs)), (item, ours, theirs)
        n_right += ours.index(max(ours)) == item["answer"]
        at += n
    assert n_right >= len(said["items"]) // 2, n_right


def test_long_windows_have_the_perplexity_of_float32(c):
    said = GOLDEN["default"]
    windows = said["windows"]
    assert len(windows[0]["continuation"]) == said["max_length"] - 2
    found = asked(c, windows, 2)
    off = changes(windows, found)
    ours, theirs = (sum(sum(x) for x in some) for some in ([v for v, _ in found], [w["logprobs"] for w in windows]))
    change = math.exp((theirs - ours) / len(off)) - 1
    print(f"  long windows: {described(off)}; perplexity {math.exp(-ours / len(off)):.4f}, "
          f"float32 {math.exp(-theirs / len(off)):.4f}: {100 * change:+.2f} %")
    assert abs(change) < MAX_PERPLEXITY_CHANGE, change
    assert sum(off) / len(off) < MAX_MEAN_CHANGE, described(off)


def test_small_models_equal_float32_with_their_roundings(_):
    for name in ("tiny_f32", "tiny_bf16"):
        said = GOLDEN[name]
        options = dict(zip((x[2:] for x in said["arguments"][::2]), said["arguments"][1::2]))
        with tempfile.TemporaryDirectory() as d:
            model = harness.tiny_model(d, **options)
            for more in ((), ("--chunk-tokens", "16")):
                with harness.Cluster(model, worker_args=["--kv-dtype", "f16", *more]) as c:
                    found = asked(c, said["pairs"], 4), asked(c, said["windows"], 3)
                    if not more:
                        first = found
                    assert found == first, "chunks change nothing"
        wanted, got = said["pairs"] + said["windows"], found[0] + found[1]
        off, exact = changes(wanted, got), changes(wanted, got, "rounded")
        print(f"  {name}: {described(off)}; with the same roundings {described(exact)}")
        assert max(off) < TINY_CHANGE and sum(off) / len(off) < TINY_MEAN_CHANGE, described(off)
        assert max(exact) < ROUNDED_CHANGE and sum(exact) / len(exact) < ROUNDED_MEAN_CHANGE, described(exact)
        assert check_greedy(said["pairs"], found[0], TINY_CHANGE) >= 8


def test_scoring_by_ids_and_by_text_gives_the_same_numbers(c):
    said = GOLDEN["default"]
    pairs = said["pairs"][:8]
    prompts = [w["context"] + w["continuation"] for w in pairs]
    one, none = ask(c, prompts), ask(c, prompts, max_tokens=0)
    for a, b in zip(one, none):
        assert b["finish_reason"] == "length" and a["text"].startswith(b["text"])
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert a["logprobs"][name][:-1] == b["logprobs"][name], name
        # The new token is drawn greedily: the best, to the last bit.
        assert a["logprobs"]["token_logprobs"][-1] == max(a["logprobs"]["top_logprobs"][-1].values())
        for value, top in list(zip(a["logprobs"]["token_logprobs"], a["logprobs"]["top_logprobs"]))[1:]:
            assert value <= max(top.values()) and value in top.values() and len(top) <= 2
    # What `tokenized_requests=False` sends.
    texts = [item["question"] + " " + choice for item in said["items"][:2] for choice in item["choices"]][:len(pairs)]
    for a, b in zip(ask(c, texts), one):
        assert (a["text"], a["logprobs"]) == (b["text"], b["logprobs"])


TASK = """task: baton_{kind}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {output}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{target}}}}"
{more}
"""
KINDS = {"choice": ("multiple_choice", 'doc_to_choice: "{{choices}}"\nmetric_list: [{metric: acc}]'),
         "last": ("loglikelihood", "metric_list: [{metric: perplexity}, {metric: acc}]"),
         "rolling": ("loglikelihood_rolling", "metric_list: [{metric: word_perplexity}]")}


def long_text(c):
    """That of the long windows, which is cut into their tokens again."""
    ids = [x for w in GOLDEN["default"]["windows"] for x in w["continuation"]]
    text = c.post("/detokenize", {"tokens": ids})[1]["prompt"]
    assert c.post("/tokenize", {"prompt": text})[1]["tokens"] == ids
    return text


def write_tasks(directory, long):
    """Task files as a user of the harness writes them."""
    said = GOLDEN["default"]
    rows = {"choice": [{"question": x["question"], "choices": x["choices"], "target": x["answer"]} for x in said["items"]],
            "last": [{"question": text, "target": " " + word} for text, word in said["last_words"]],
            "rolling": [{"question": "", "target": long}]}
    for kind, (output, more) in KINDS.items():
        data = os.path.join(directory, f"{kind}.jsonl")
        with open(data, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows[kind])
        with open(os.path.join(directory, f"{kind}.yaml"), "w", encoding="utf-8") as f:
            f.write(TASK.format(kind=kind, data=data, output=output, more=more))


def samples(directory, kind):
    found = glob.glob(os.path.join(directory, "out", "**", f"samples_baton_{kind}_*.jsonl"), recursive=True)
    assert len(found) == 1, found
    with open(found[0], encoding="utf-8") as f:
        return sorted((json.loads(line) for line in f), key=lambda x: x["doc_id"])


def test_evaluation_harness_itself(c):
    python = os.environ.get("BATON_LM_EVAL_PYTHON")
    if not python:
        raise Skip("BATON_LM_EVAL_PYTHON names no Python that has lm-eval")
    said = GOLDEN["default"]
    at = f"http://{c.http[0]}:{c.http[1]}/v1/completions"
    with tempfile.TemporaryDirectory() as d:
        write_tasks(d, long_text(c))
        # As docs/CLIENTS.md has it: the server's own tokenizer.
        done = subprocess.run(
            [python, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", f"base_url={at}",
             "model=ensemble", "tokenizer_backend=remote", "--batch_size", "4", "--include_path", d, "--tasks",
             ",".join("baton_" + x for x in KINDS), "--log_samples", "--output_path", os.path.join(d, "out")],
            env=dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=os.path.join(d, "cache"), HF_HOME=d),
            capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        pairs = iter(said["pairs"])
        for kind in ("choice", "last"):
            for sample in samples(d, kind):
                for reply in sample["filtered_resps"]:
                    w = next(pairs)
                    value, greedy = float(reply[0]), str(reply[1]) == "True"
                    assert abs(value - sum(w["logprobs"])) < MAX_CHANGE * len(w["logprobs"]), (sample, w)
                    check_greedy([w], [((), greedy)], MAX_CHANGE)
        assert next(pairs, None) is None
        rolling = samples(d, "rolling")
        theirs, n = (sum(f(w["logprobs"]) for w in said["windows"]) for f in (sum, len))
        change = math.exp((theirs - float(rolling[0]["filtered_resps"][0])) / n) - 1
        assert len(rolling) == 1 and abs(change) < MAX_PERPLEXITY_CHANGE, (rolling, theirs, change)


if __name__ == "__main__":
    sys.exit(client_tests.main(globals()))
