# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding through real processes: with drafts and without, whatever they are, an answer has the same bytes
(I1), and the counters say what was verified."""
import concurrent.futures
import json
import os
import random
import subprocess
import tempfile

from harness import BUILD, Cluster, default_model, tiny_model, wait_until

WORDS = ("the quick brown fox jumps over a lazy dog while seven wizards boxed quietly near an old stone bridge and "
         "counted every falling leaf").split()
COUNTERS = ("baton_spec_decode_drafts_total", "baton_spec_decode_draft_tokens_total",
            "baton_spec_decode_accepted_tokens_total", "baton_spec_decode_accepted_tokens_per_pos_total")
# Values of the options of a fuzzed request.
OPTIONS = {
    "top_p": [0.9, 0.5], "top_k": [1, 5, 30], "min_p": [0.02, 0.1], "repetition_penalty": [1.2, 0.8], "presence_penalty": [0.5, -0.5],
    "frequency_penalty": [0.3, -0.2], "min_tokens": [1, 8, 40], "logprobs": [0, 1, 3], "n": [2, 3], "echo": [True],
    "bad_words": [["fox", " lazy"], ["e", "in", "the"]], "stop": [[" leaf", "zz"], ["w", "q"]], "ignore_eos": [True],
    "logit_bias": [{"17": 3, "40": -100}, {str(i): 2 for i in range(60, 90)}], "no_repeat_ngram_size": [1, 2, 3], "typical_p": [0.8, 0.3],
    "top_n_sigma": [1, 2], "xtc_probability": [0.5, 1], "xtc_threshold": [0.02, 0.2], "dry_multiplier": [0.8, 5],
    "dry_allowed_length": [1, 3], "top_p_decay": [0.9, 0.6], "allowed_token_ids": [list(range(250)), list(range(60, 100)), [70, 71, 72]],
    "repetition_detection": [{"max_pattern_size": 12, "min_count": 3}]}


def small(d):
    """Random weights: what is drawn greedily is soon periodic, so that many drafts are right."""
    return tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=7)


def fuzzed(n, seed):
    """Bodies of /v1/completions. A prompt repeats itself now and then."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        words = rng.choices(WORDS, k=rng.randint(1, 48))
        body = {"prompt": " ".join(words * rng.randint(1, 3)), "max_tokens": rng.randint(1, 80), "seed": i,
                "temperature": rng.choice([0, 0, 0.7, 1.3]), "return_token_ids": True}
        for name in rng.sample(sorted(OPTIONS), k=rng.randint(0, 6)):
            body[name] = rng.choice(OPTIONS[name])
        if rng.random() < 0.5:
            body["logprobs"] = rng.choice(OPTIONS["logprobs"])
        if "min_tokens" in body:
            body["min_tokens"] = min(body["min_tokens"], body["max_tokens"])
        if "n" in body:
            body.pop("echo", None)
        out.append(body)
    return out


def ask(c, body):
    status, answer = c.post("/v1/completions", body, timeout=600)
    assert status == 200, (status, answer, body)
    return answer["choices"]


def ask_all(c, bodies, parallel=8):
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(lambda body: ask(c, body), bodies))


def assert_same(want, got, bodies, way):
    """Log-probs are compared as they are written: to the last bit."""
    for a, b, body in zip(want, got, bodies):
        assert json.dumps(a) == json.dumps(b), f"{way}: {body}\n{a}\n{b}"


def check_counters(c):
    """@return drafts verified and accepted; and holds the counters against each other"""
    page = c.metrics().items()
    steps, drafted, accepted, by_position = (sum(v for k, v in page if k.split("{")[0] == name) for name in COUNTERS)
    assert by_position == accepted <= drafted, (steps, drafted, accepted, by_position)
    assert steps <= drafted, (steps, drafted)
    return drafted, accepted


def same_bytes_when_a_decode_worker_dies(draft, make_draft_model=None):
    bodies = [{"prompt": " ".join(WORDS), "max_tokens": 400, "temperature": t, "seed": i, "ignore_eos": True,
               "return_token_ids": True, "logprobs": 2} for i, t in enumerate([0, 0.7, 1.3] * 4)]
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        model = small(d)
        options = ["--draft-model", make_draft_model(other)] if make_draft_model else []
        with Cluster(model, worker_args=["--draft", "off"]) as c:
            want = ask_all(c, bodies)
        with Cluster(model, decode=2, worker_args=["--draft", draft, "--draft-tokens", "8", "--simulate-step-us", "4000",
                                                   *options]) as c:
            with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
                answers = [pool.submit(ask, c, body) for body in bodies]
                wait_until("tokens come from both", lambda: all(
                    c.total("baton_worker_generation_tokens_total", worker=f"decode-{i}") > 50 for i in (0, 1)))
                c.decodes[0].kill()
                assert_same(want, [a.result() for a in answers], bodies, "a worker died")
            wait_until("drafts were right", lambda: check_counters(c)[1] > 0)
            if options:
                wait_until("the model's were", lambda: model_drafts(c)[1] > 0)


def test_same_bytes_with_drafts_when_a_decode_worker_dies():
    same_bytes_when_a_decode_worker_dies("ngram")


def test_same_bytes_with_drafts_of_the_model_when_a_decode_worker_dies():
    same_bytes_when_a_decode_worker_dies("self")


def test_same_bytes_with_drafts_of_a_model_on_several_ranks():
    """Each rank drafts with its part of the copy; in stages, where there is no draft model, n-grams fill the microbatches."""
    bodies = fuzzed(30, 5)
    with tempfile.TemporaryDirectory() as d:
        model = small(d)
        with Cluster(model, worker_args=["--tp", "2", "--draft", "off"]) as c:
            want = ask_all(c, bodies)
        for layout, draft in ((["--tp", "2"], "self"), (["--tp", "2"], "ngram"), (["--tp", "2", "--pp", "2"], "ngram")):
            with Cluster(model, worker_args=layout + ["--draft", draft, "--draft-tokens", "5"]) as c:
                assert_same(want, ask_all(c, bodies), bodies, f"{layout}, {draft}")
                wait_until("drafts were right", lambda: c.total("baton_spec_decode_accepted_tokens_total", source={
                    "self": "model"}.get(draft, draft)) > 0)


def test_same_bytes_with_a_draft_model_of_another_shape_when_a_decode_worker_dies():
    same_bytes_when_a_decode_worker_dies("ngram", longer)


def test_same_bytes_with_drafts_of_a_model_with_windows():
    """Blocks behind a window are given back while a draft model reads and writes those in it."""
    bodies = fuzzed(40, 2)
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="gemma3", layers=6, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=7,
                           window=32)
        with Cluster(model, worker_args=["--draft", "off"]) as c:
            want = ask_all(c, bodies)
        with Cluster(model, worker_args=["--draft", "self", "--draft-tokens", "5"]) as c:
            assert_same(want, ask_all(c, bodies), bodies, "windows")
            wait_until("the model has drafted", lambda: c.total("baton_spec_decode_draft_tokens_total", source="model") > 0)


def test_draft_model_may_be_any_file_of_the_same_shape():
    """Other weights: what they draft is mostly wrong."""
    bodies = fuzzed(40, 3)
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        model, draft = small(d), tiny_model(other, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=8)
        with Cluster(model, worker_args=["--draft", "off"]) as c:
            want = ask_all(c, bodies)
        with Cluster(model, worker_args=["--draft-model", draft, "--draft-tokens", "3"]) as c:
            assert_same(want, ask_all(c, bodies), bodies, "another model")
            wait_until("the model has drafted", lambda: c.total("baton_spec_decode_draft_tokens_total", source="model") > 40)


def longer(d, **options):
    """A model of the same numbers with a layer more that adds nothing: equal logits, and KV of another shape."""
    return tiny_model(d, **{**dict(layers=3, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=7,
                                   silent_layers=1), **options})


def smaller(d):
    """Another architecture, width and depth of the same vocabulary: what it drafts is mostly wrong."""
    return tiny_model(d, architecture="qwen2", layers=1, dim=32, heads=2, kv_heads=1, ffn=64, context=700, seed=8)


def model_drafts(c):
    """@return drafts of a model that were verified, and accepted"""
    return [c.total(f"baton_spec_decode_{what}_tokens_total", source="model") for what in ("draft", "accepted")]


def test_draft_model_of_another_shape_changes_no_byte():
    """It has a KV cache of its own at the worker that decodes; also one too small for all sequences, and a worker that
    has a few sequences at a time."""
    bodies = fuzzed(60, 4)
    local = dict(prefill=0, decode_args=["--local-prefill"])
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as near, tempfile.TemporaryDirectory() as far:
        model, copy, other = small(d), longer(near), smaller(far)
        with Cluster(model, worker_args=["--draft", "off"]) as c:
            want = ask_all(c, bodies)
        for way, draft, options in (
                ("equal logits", copy, dict(worker_args=["--draft-tokens", "4"])),
                ("equal logits, local", copy, dict(worker_args=["--draft-tokens", "4"], **local)),
                ("equal logits, int8", copy, dict(worker_args=["--draft-tokens", "3", "--kv-dtype", "int8"])),
                ("equal logits, where they pay", copy, dict(worker_args=[])),
                ("another model", other, dict(worker_args=["--draft-tokens", "3"])),
                ("another model, few blocks", other, dict(worker_args=["--draft-tokens", "3", "--kv-tokens", "2048"]))):
            options["worker_args"] = [*options["worker_args"], "--draft-model", draft]
            with Cluster(model, **options) as c:
                if "int8" in way:
                    with Cluster(model, worker_args=["--draft", "off", "--kv-dtype", "int8"]) as plain:
                        assert_same(ask_all(plain, bodies), ask_all(c, bodies), bodies, way)
                else:
                    assert_same(want, ask_all(c, bodies), bodies, way)
                if "--draft-tokens" not in options["worker_args"]:
                    continue
                drafted, accepted = wait_until("the model has drafted", lambda: (found := model_drafts(c)) and
                                               found[0] > 60 and found)
                print(f"    {way}: {drafted:.0f} drafts, {accepted:.0f} right", flush=True)
                if draft == copy:
                    wait_until("nearly all were right", lambda: (found := model_drafts(c)) and found[1] > 0.9 * found[0])


def test_draft_model_of_another_shape_changes_no_byte_of_preempted_sequences():
    """Eight answers of 300 tokens do not fit in 1024 tokens of KV: sequences give up their blocks and run again. The KV of
    the draft model stays, or goes to another sequence."""
    bodies = [{"prompt": " ".join(WORDS[i:]), "max_tokens": 300, "temperature": [0, 0.7, 1.3][i % 3], "seed": i,
               "ignore_eos": True, "return_token_ids": True} for i in range(16)]
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as near:
        model = small(d)
        with Cluster(model, worker_args=["--draft", "off"]) as c:
            want = ask_all(c, bodies)
        with Cluster(model, worker_args=["--draft-model", longer(near), "--draft-tokens", "2", "--scheduler-policy",
                                         "max_utilization", "--kv-tokens", "1024"]) as c:
            assert_same(want, ask_all(c, bodies), bodies, "preempted")
            wait_until("sequences were preempted", lambda: c.total("baton_worker_preemptions_total") > 0)
            wait_until("drafts of the model were right", lambda: model_drafts(c)[1] > 100)


def start_fails(model, options, status, words):
    with tempfile.TemporaryDirectory() as d:
        done = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--model", model, "--http", "127.0.0.1:0",
                               "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--kv-memory", "16m", *options],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
                              env=dict(os.environ, XDG_RUNTIME_DIR=d))
        assert done.returncode == status, done
        assert words in done.stdout, done.stdout


def test_memory_of_a_worker_counts_the_kv_cache_of_its_draft_model():
    """KV memory is divided between both models: with a draft model a worker takes its weights more than without."""
    def memory(c):
        return c.metric("baton_worker_memory_bytes", role="decode", memory="cpu")

    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as near:
        model, draft = small(d), longer(near)
        args = ["--kv-memory", "64MiB"]
        with Cluster(model, worker_args=[*args, "--draft", "off"]) as c:
            alone = memory(c)
        with Cluster(model, worker_args=[*args, "--draft-model", draft]) as c:
            assert memory(c) > alone, f"{memory(c)} bytes with a draft model, {alone} without"


def test_drafts_of_a_model_that_cannot_be_are_refused_by_name():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other, tempfile.TemporaryDirectory() as more:
        model = small(d)
        deeper = tiny_model(other, layers=3, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=8)
        start_fails(model, ["--draft", "tree"], 2, "--draft tree: it is ngram, self, self:TYPE, mtp or off")
        start_fails(model, ["--draft", "self:q9"], 2, "--draft self:q9: there is no such type of smaller weights")
        start_fails(model, ["--draft", "self:bf16"], 2, "--draft self:bf16: there is no such type of smaller weights")
        start_fails(model, ["--draft", "self", "--draft-model", deeper], 2, "contradicts --draft self")
        wider = tiny_model(more, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, vocab=300, seed=8)
        start_fails(model, ["--draft-model", wider], 78, "its vocabulary has 300 tokens, that of the model 288")
        start_fails(model, ["--draft-model", deeper, "--tp", "2"], 78, "a KV cache of its own, which a model over 2 ranks does not support")
        start_fails(model, ["--draft-model", d + "/none.gguf"], 78, "none.gguf: No such file")
        start_fails(model, ["--draft", "self", "--pp", "2"], 78, "--draft self: a model in 2 pipeline stages has no draft model")
        start_fails(default_model(), ["--draft", "self:q4_1"], 2, "which drafts no faster; use a smaller type")


def test_drafts_are_off_for_a_request_that_asks_for_none():
    with tempfile.TemporaryDirectory() as d, Cluster(small(d), worker_args=["--draft-tokens", "8"]) as c:
        body = {"prompt": "a b a b a b a b", "max_tokens": 60, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True}
        want = ask(c, {**body, "num_draft_tokens": 0})
        c.wait_idle()
        assert check_counters(c) == (0, 0)
        assert ask(c, body) == want
        wait_until("drafts are counted", lambda: check_counters(c)[0] > 0)


def test_prediction_saves_iterations_of_the_default_model():
    """The answer is known: nearly all of it is accepted, by the client's own words."""
    with Cluster(default_model(), worker_args=["--draft-tokens", "16"]) as c:
        body = {"messages": [{"role": "user", "content": "Write a limerick about a bridge."}], "max_tokens": 80,
                "temperature": 0.8, "seed": 3}
        status, first = c.post("/v1/chat/completions", body, timeout=600)
        assert status == 200, first
        c.wait_idle()
        before = c.total("baton_spec_decode_accepted_tokens_total", source="prediction")
        text = first["choices"][0]["message"]["content"]
        status, again = c.post("/v1/chat/completions",
                               {**body, "prediction": {"type": "content", "content": text}}, timeout=600)
        assert status == 200 and again["choices"] == first["choices"], (first, again)
        n = first["usage"]["completion_tokens"]
        wait_until("most tokens were predicted", lambda: c.total(
            "baton_spec_decode_accepted_tokens_total", source="prediction") - before > 0.7 * n)


def test_earlier_answers_are_drafts_for_those_who_share_a_prefix_cache():
    with tempfile.TemporaryDirectory() as d:
        model = small(d)
        body = {"prompt": "an old stone bridge", "max_tokens": 60, "temperature": 1.3, "seed": 5, "ignore_eos": True,
                "return_token_ids": True}
        with Cluster(model, worker_args=["--draft-tokens", "8"]) as c:
            def accepted():
                return c.total("baton_spec_decode_accepted_tokens_total", source="corpus")
            salted = {**body, "cache_salt": "mine"}
            want = ask(c, salted)
            assert ask(c, salted) == want == ask(c, body)
            c.wait_idle()
            assert accepted() == 0  # no other answer was shared so far
            assert ask(c, body) == want
            wait_until("most tokens are drafts from the earlier answer", lambda: accepted() > 40)
            before = accepted()
            assert ask(c, salted) == want
            c.wait_idle()
            assert accepted() == before
        with Cluster(model, worker_args=["--draft-tokens", "8", "--draft-corpus", "0"]) as c:
            assert ask(c, body) == want == ask(c, body)
            c.wait_idle()
            assert c.total("baton_spec_decode_draft_tokens_total", source="corpus") == 0
