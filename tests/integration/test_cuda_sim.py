# SPDX-License-Identifier: Apache-2.0
"""The CUDA plugin's own sources on a machine of the tests (tests/simt) run the whole cluster, on either side of a
transfer or on both: every kernel, copy and table, with the bytes of the CPU. It is slow; nobody serves with it."""
import concurrent.futures
import os
import signal
import tempfile
import time

from adapters import ATTENTION, Adapter
from harness import BUILD, PACED, Cluster, Skip, children_of, default_model, is_there, tiny_model, wait_until
from test_experts import MODELS
from test_failures import expect_refusal
from test_ranks import disturb, n_ranks, split
from test_same_bytes import ask_all, prompts

# Another name of the back end, whose plugin is in BATON_PLUGIN_DIR then; and is it a GPU's? It takes more, and tells less.
DEVICE = os.environ.get("BATON_TEST_DEVICE", "cuda_sim")
REAL = "BATON_TEST_GPU" in os.environ
PAIRS = (("cpu", "cpu"), (DEVICE, DEVICE), (DEVICE, "cpu"), ("cpu", DEVICE))


def plugin():
    """The environment that shows the plugin to the workers."""
    if DEVICE != "cuda_sim":
        return {"BATON_PLUGIN_DIR": os.environ["BATON_PLUGIN_DIR"]}
    folder = os.path.join(BUILD, "tests/simt")
    if not os.path.exists(os.path.join(folder, "baton_cuda_sim.so")):
        raise Skip("this build has no baton_cuda_sim.so")
    return {"BATON_PLUGIN_DIR": folder}


def cluster(model, prefill, decode, steps_ahead="on", drafts=(), **env):
    return Cluster(model, prefill_args=["--backend", prefill], decode_args=["--backend", decode, *drafts],
                   worker_args=["--compute-watchdog-ms", "600000", "--chunk-tokens", "64", "--overlap-scheduling", steps_ahead],
                   env=dict(plugin(), **env))


def ranks_cluster(model, backend, prefill, decode, sum_parts, races=True, workers=1, env=None, more_workers=(), **more):
    """Ranks "2x3" (2 of each of 3 stages) of either side."""
    sides = {f"{side}_args": ["--backend", backend, "--tp", str(split(text)[0]), "--pp", str(split(text)[1])]
             for side, text in (("prefill", prefill), ("decode", decode))}
    return Cluster(model, worker_args=["--compute-watchdog-ms", "600000", "--reduction-parts", str(sum_parts), "--chunk-tokens", "64", *more_workers],
                   env=dict(plugin(), BATON_SIMT_RACES=str(int(races)), **(env or {})), kv_memory="64m", decode=workers,
                   **sides, **more)


def states(path):
    """What the simulated devices say of themselves at their end, one for each process (BATON_SIMT_STATE)."""
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return [dict(zip(words[::2], map(int, words[1::2]))) for words in lines]


def left_nothing(c):
    c.wait_idle()
    assert c.total("baton_kv_leases", role="prefill") == c.total("baton_kv_leases", role="decode") == 0
    used = [v for k, v in c.metrics().items() if k.startswith("baton_kv_blocks{") and
            ('"used"' in k or '"quarantined"' in k)]
    assert used and not any(used), used
    codes = c.stop()
    assert not any(codes.values()), codes


def answers(model, prefill, decode, texts, n, sampling=None, **env):
    sampling = sampling or dict(temperature=0)
    with cluster(model, prefill, decode, **env) as c:
        since = time.monotonic()
        got = [c.complete(text, n, patience=600, ignore_eos=True, **sampling) for text in texts]
        print(f"    {prefill} to {decode}: {len(texts)} x {n} tokens in {time.monotonic() - since:.1f} s")
        left_nothing(c)
    return [(choice["token_ids"], choice["logprobs"]) if sampling.get("logprobs") else choice["token_ids"] for choice in got]


def test_simulated_device_gives_the_bytes_of_the_cpu():
    """On both ends, and on either: its numbers are those of the CPU, so a mixed cluster has one profile."""
    texts = ["a b c", "a b c", "a b d", "once upon a time there was a " * 6]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        got = {pair: answers(model, *pair, texts, 6) for pair in PAIRS}
    wrong = [pair for pair in PAIRS if got[pair] != got[PAIRS[0]]]
    assert not wrong, f"{wrong} differ: {got}"


def test_experts_on_a_device_give_the_tokens_of_the_cpu():
    """Alone and together, in chunks of fewer and of more rows than experts; prefill on a device, decode on either."""
    texts = ["a b c", "once upon a time there was a " * 6, "a b d"]
    for name, shape in MODELS.items():
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, architecture=name, context=512, seed=46, **shape)
            with cluster(model, "cpu", "cpu") as c:
                want = ask_all(c, texts, 1, 6)
            for decode in ("cpu", DEVICE) if name == "qwen3moe" else (DEVICE,):
                with cluster(model, DEVICE, decode, BATON_SIMT_RACES="0") as c:
                    assert (ask_all(c, texts, 1, 6), ask_all(c, texts, len(texts), 6)) == (want, want), (name, decode)
                    left_nothing(c)
        assert len({tuple(ids) for ids in want}) > 1, name


def lora_answer(c, name):
    body = dict(prompt="one two three four five six", max_tokens=8, temperature=0, ignore_eos=True, return_token_ids=True)
    status, said = c.post("/v1/completions", dict(body, **({"model": name} if name else {})), timeout=600)
    assert status == 200, said
    return said["choices"][0]["token_ids"]


def lora_all_at_once(c, names):
    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(lambda name: lora_answer(c, name), names))


def lora_cluster(model, backend, lora):
    return Cluster(model, worker_args=["--backend", backend, "--compute-watchdog-ms", "600000", "--prefix-cache", "off", *lora], router_args=lora,
                   env=dict(plugin(), BATON_SIMT_RACES="0"))


def lora_answers(model, backend, lora, names):
    """Of each adapter, and of the model (None), alone and then all at once, twice each."""
    with lora_cluster(model, backend, lora) as c:
        alone = [lora_answer(c, name) for name in names]
        together = lora_all_at_once(c, names * 2)
        left_nothing(c)
    return alone, together


def test_adapters_on_a_device_give_the_tokens_of_the_cpu():
    """Of all products of a dense model, and of the attention beside experts; rows of several and of none in a batch."""
    shape = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128)
    for more, products in ({}, None), (dict(architecture="qwen3moe", experts=8, experts_used=2, expert_ffn=32), ATTENTION):
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, context=512, seed=1, **dict(shape, **more))
            made = {f"r{rank}": Adapter(rank, 20 + rank, shape, *([products] if products else [])) for rank in (1, 8, 13, 64)}
            lora = [f"--lora={name}={adapter.peft(os.path.join(d, name))}" for name, adapter in made.items()]
            names = [None, *made]
            alone, together = lora_answers(model, "cpu", lora, names)
            assert len({tuple(ids) for ids in alone}) == len(names) and together == alone * 2, alone
            assert lora_answers(model, DEVICE, lora, names) == (alone, together), more


def test_adapters_come_to_a_device_and_go_while_it_runs():
    shape = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128)
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, context=512, seed=1, **shape)
        folder = os.path.join(d, "lora")
        os.mkdir(folder)
        paths = {name: Adapter(rank, 20 + rank, shape).peft(os.path.join(folder, name)) for name, rank in (("a", 8), ("b", 13))}
        base, a, b = lora_answers(model, "cpu", [f"--lora={name}={path}" for name, path in paths.items()], [None, "a", "b"])[0]
        with lora_cluster(model, DEVICE, ["--lora-dir=" + folder]) as c:
            def order(what, **fields):
                status, said = c.post(f"/v1/{what}_lora_adapter", fields, timeout=600)
                assert status == 200, said

            assert lora_answer(c, None) == base
            order("load", lora_name="x", lora_path="a")
            assert lora_all_at_once(c, ["x", None, "x"]) == [a, base, a]
            order("load", lora_name="y", lora_path="b")
            assert lora_all_at_once(c, ["y", "x", None]) == [b, a, base]
            order("unload", lora_name="x")
            order("load", lora_name="y", lora_path="a", load_inplace=True)
            order("load", lora_name="z", lora_path="b")
            assert lora_all_at_once(c, ["y", "z", None]) == [a, b, base]
            left_nothing(c)


def test_experts_by_tensor_numerics_agree_on_certain_tokens():
    """A token is compared as long as none before it was a matter of rounding; alone and in company it is the same."""
    texts, n, least = ["a b c", "a b d", "once upon a time there was a " * 3], 6, 0.02
    greedy = dict(temperature=0, ignore_eos=True, logprobs=2)
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="qwen3moe", context=512, seed=46, type="bf16", **MODELS["qwen3moe"])
        with tensor_cluster(model, "cpu", "cpu") as c:
            want = [sure_tokens(c.complete(text, n, **greedy), least) for text in texts]
        with tensor_cluster(model, env={"BATON_SIMT_RACES": "0"}) as c:
            got = [c.complete(text, n, patience=600, **greedy)["token_ids"] for text in texts]
            assert ask_all(c, texts, len(texts), n)[::2] == got
            left_nothing(c)
    wrong = [(text, a, b) for text, a, b in zip(texts, want, got) if b[:len(a)] != a]
    assert not wrong, wrong
    assert sum(map(len, want)) >= len(texts) * n // 2, "too few tokens are sure"


def test_beams_on_a_device_are_the_cpus():
    """It computes their rows, and the host's thread searches."""
    body = dict(prompt="once upon a time", max_tokens=6, use_beam_search=True, n=3, ignore_eos=True, logprobs=0)
    got = {}
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        for pair in PAIRS:
            with cluster(model, *pair) as c:
                status, answer = c.post("/v1/completions", body, timeout=600)
                assert status == 200, answer
                got[pair] = [(choice["text"], choice["logprobs"]) for choice in answer["choices"]]
                left_nothing(c)
    wrong = [pair for pair in PAIRS if got[pair] != got[PAIRS[0]]]
    assert not wrong, f"{wrong} differ: {got}"


def test_structured_output_on_a_device_is_the_cpus():
    """The host draws by the mask and the device for the others, in the same passes, with drafts and with passes ahead."""
    more = [{"regex": r"(yes|no)(, (really|perhaps)){0,3}[.]"}, {"guided_choice": ["one", "two", "three"]}, {}, {"ebnf": 'root ::= ("ab" | [c-e]){3,9} "."'},
            {"guided_json": {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 5}, "maxItems": 4}}, {}]
    bodies = [dict(body, prompt=f"a b {i} c", max_tokens=24, temperature=t, seed=i, return_token_ids=True)
              for i, body in enumerate(more) for t in (0, 0.9)]
    got, drafts = {}, ("--draft", "self", "--draft-tokens", "3")
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        for pair, drafted in [(pair, ()) for pair in PAIRS] + [(PAIRS[1], drafts)]:
            with cluster(model, *pair, drafts=drafted, BATON_SIMT_RACES="0") as c:
                with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
                    replies = list(pool.map(lambda body: c.post("/v1/completions", body, timeout=600), bodies))
                assert all(status == 200 for status, _ in replies), replies
                choices = [answer["choices"][0] for _, answer in replies]
                got[pair, drafted] = [(x["text"], x["token_ids"], x["finish_reason"]) for x in choices]
                wait_until("the worker has told of its masks", lambda: c.total("baton_grammar_masks_total", role="decode") > 0)
                left_nothing(c)
    reference = got[PAIRS[0], ()]
    wrong = {key: answers_ for key, answers_ in got.items() if answers_ != reference}
    assert not wrong, f"{wrong} differ: {reference}"
    assert [text in ("one", "two", "three") for text, _, _ in reference[2:4]] == [True, True], reference


def test_simulated_device_gives_the_same_bytes_in_every_batch():
    """Prompts that are new and again with what the prefix caches hold, one by one and 8 at a time, in chunks."""
    texts = sorted(prompts(), key=len)[::6]
    reference = None
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        for backend, together, times in (("cpu", 8, 1), (DEVICE, 1, 1), (DEVICE, 8, 2)):
            with cluster(model, backend, backend, BATON_SIMT_RACES="0") as c:
                for again in range(times):
                    got = ask_all(c, texts, together, 6)
                    reference = reference or got
                    wrong = [i for i, (a, b) in enumerate(zip(reference, got)) if a != b]
                    assert not wrong, f"{backend}, {together} at a time, time {again}: prompts {wrong} differ"
                left_nothing(c)
    assert len({tuple(ids) for ids in reference}) >= len(texts)


def test_overlapped_steps_give_the_same_bytes():
    """Six prompts, twice each, of all lengths, some ended by a word that nobody sees coming, some left by their client;
    with and without."""
    texts = sorted(prompts(), key=len)[:6]
    n = 250 if REAL else 8  # a GPU's says what it gains
    got = {}
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=5)
        for ahead in ("off", "on"):
            with cluster(model, DEVICE, DEVICE, steps_ahead=ahead, BATON_SIMT_RACES="0") as c:
                since = time.monotonic()
                free = ask_all(c, texts, 12, n)
                rate = 2 * n * len(texts) / (time.monotonic() - since)
                ended = [c.complete(text, n + 2, patience=600, temperature=0, stop_token_ids=[ids[i % 6]])["token_ids"]
                         for i, (text, ids) in enumerate(zip(texts, free[::2]))]
                for i in range(3):
                    try:
                        c.post("/v1/completions", dict(prompt=texts[-1], max_tokens=100, ignore_eos=True), timeout=0.1 + 0.1 * i)
                    except OSError:
                        pass
                got[ahead] = free, ended, ask_all(c, texts, 12, n)
                c.wait_idle()
                begun = c.metric("baton_worker_overlapped_iterations_total", role="decode")
                assert (begun > 0) == (ahead == "on"), begun
                print(f"    --overlap-scheduling {ahead}: {rate:.0f} tokens/s, {begun:.0f} iterations began ahead")
                left_nothing(c)
    assert got["on"] == got["off"], got


def log_probs(c, texts):
    """Of each prompt's tokens but the first."""
    return [p for text in texts for p in
            c.complete(text, 1, patience=600, temperature=0, echo=True, logprobs=1)["logprobs"]["token_logprobs"][1:-1]]


def test_device_logits_are_close_to_the_cpus():
    """What log-probabilities of the same tokens differ by, of all that a model computes: nothing, or by --numerics tensor as
    much as roundings of 2^-8 of few layers of a random model may come to."""
    size = dict(layers=8, dim=512, heads=8, kv_heads=4, ffn=1536) if REAL else \
        dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=96)
    texts = ["once upon a time there was a " * 3, "a b c d e f g h i j"] + (prompts() if REAL else [])
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, type="bf16", context=1024, seed=5, **size)
        with tensor_cluster(model, "cpu", "cpu") as c:
            want = log_probs(c, texts)
        for numerics, most in (("exact", 0.0), ("tensor", 0.01)):
            with tensor_cluster(model, numerics, numerics) as c:
                apart = [abs(a - b) for a, b in zip(want, log_probs(c, texts), strict=True)]
                left_nothing(c)
            print(f"    --numerics {numerics}: log p of {len(apart)} tokens, mean difference {sum(apart) / len(apart):.2g}, "
                  f"most {max(apart):.2g}")
            assert len(apart) > 20 and max(apart) <= most, apart
            assert numerics == "exact" or max(apart) > 0.0  # it is another profile


def tensor_cluster(model, prefill="tensor", decode="tensor", kv_type="bf16", env=None, **more):
    """The profile of tensor cores, on either side or on both; "cpu" is the CPU's."""
    sides = {f"{side}_args": ["--backend", "cpu"] if what == "cpu" else ["--backend", DEVICE, "--numerics", what]
             for side, what in (("prefill", prefill), ("decode", decode))}
    return Cluster(model, worker_args=["--compute-watchdog-ms", "600000", "--chunk-tokens", "64", "--kv-dtype", kv_type],
                   env=dict(plugin(), **(env or {})), **sides, **more)


def sure_tokens(choice, least):
    """Tokens of a greedy answer before the first whose lead over the second, in log-probability, is below that."""
    ids = choice["token_ids"]
    for i, top in enumerate(choice["logprobs"]["top_logprobs"]):
        first, second = sorted(top.values(), reverse=True)[:2]
        if first - second < least:
            return ids[:i]
    return ids


def test_tensor_profile_agrees_with_the_cpu_on_certain_tokens():
    """Both kinds of its products, and a cache of 16 and of 8 bits; a token is compared as long as none before it was a
    matter of rounding. And what it says is the same alone and among others (I1)."""
    texts = ["a b c", "a b d", "once upon a time there was a " * 3]
    n, least = 6, 0.02
    compared = 0
    for kind, kv_type in (("bf16", "bf16"), ("f16", "int8")):
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, type=kind, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
            greedy = dict(temperature=0, ignore_eos=True, logprobs=2)
            with tensor_cluster(model, "cpu", "cpu", kv_type) as c:
                want = [sure_tokens(c.complete(text, n, **greedy), least) for text in texts]
            with tensor_cluster(model, kv_type=kv_type) as c:
                got = [c.complete(text, n, patience=600, **greedy)["token_ids"] for text in texts]
                assert ask_all(c, texts, len(texts), n)[::2] == got
                left_nothing(c)
        wrong = [(kind, text, a, b) for text, a, b in zip(texts, want, got) if b[:len(a)] != a]
        assert not wrong, wrong
        compared += sum(map(len, want))
    assert compared >= len(texts) * n, "too few tokens are sure"


def test_two_numeric_profiles_are_mixed_only_on_request():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=1, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        with tensor_cluster(model, "cpu", "cpu") as c:
            worker = c.start_worker("decode", 9, ["--backend", DEVICE, "--numerics", "tensor"])
            expect_refusal(c, worker, "decode-9 has numeric profile q8-bf16-tensor, but ")
            worker = c.start_worker("decode", 8, ["--numerics", "tensor"])
            wait_until("the worker ended", lambda: not worker.alive())
            assert "back end cpu: the CPU has exact numerics only, no tensor cores (--numerics)" in worker.log()
        with tensor_cluster(model, "cpu", "tensor", router_args=["--allow-mixed-numerics"]) as c:
            assert len(c.complete("a b c", 4, patience=600, ignore_eos=True)["token_ids"]) == 4
            left_nothing(c)


def test_each_decode_step_is_one_launch():
    """As many sequences make the same calls at each step: from the third on, a graph; and nothing of it is left."""
    n = 12
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        said = os.path.join(d, "state")
        want = answers(model, "cpu", "cpu", ["a b c"], n)
        assert answers(model, "cpu", "cuda_sim", ["a b c"], n, BATON_SIMT_STATE=said) == want
        state, = states(said)
    assert state["graph_launches"] >= n - 4, state
    assert state["bytes_left"] == state["graphs_left"] == 0, state


def test_worker_names_what_its_host_lacks():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
        with cluster(model, "cpu", "cpu", BATON_SIMT_HOST="with-old-driver") as c:
            worker = c.start_worker("decode", 9, ["--backend", "cuda_sim"])
            wait_until("the worker ended", lambda: not worker.alive())
            assert "the back end cuda_sim cannot be opened: the NVIDIA driver of this host is for CUDA 11.8, this " \
                   "build needs one for 13.0" in worker.log(), worker.log()


def test_simulated_device_samples_the_tokens_of_the_cpu():
    """Whatever is asked for, the device draws: ids come, and of log-probs a few numbers, but no row of logits."""
    few = dict(temperature=0.9, top_k=40, top_p=0.95, seed=11)
    every = dict(temperature=1.1, seed=5)
    ways = {"candidates": few, "all": every, "nucleus": dict(every, top_p=0.9, min_p=0.001),
            "penalties": dict(few, presence_penalty=0.6, frequency_penalty=0.2),
            "raised": dict(every, presence_penalty=-0.6, repetition_penalty=1.2),
            "biased": dict(every, logit_bias={"20": 3.5, "21": -100}), "scored": dict(every, logprobs=2)}
    n = 12
    brought = {}
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        for way, sampling in ways.items():
            said = os.path.join(d, way)
            want = answers(model, "cpu", "cpu", ["a b c", "a b d"], n, sampling)
            got = answers(model, "cpu", DEVICE, ["a b c", "a b d"], n, sampling, BATON_SIMT_STATE=said)
            assert got == want, (way, got, want)
            assert len({str(part) for part in want[0]}) > 1 and want[0] != want[1], want
            brought[way] = 0 if REAL else states(said)[0]["bytes_out"]
    if REAL:
        return
    # Of each token but the first an id; where it is scored, a place that scores begin at besides, 16 bytes of each, and 2 ids
    # and logits.
    tokens = 2 * (n - 1)
    scored = brought.pop("scored")
    assert set(brought.values()) == {tokens * 4}, brought
    assert scored == tokens * (8 + 16 + 2 * 8), scored


def test_default_model_runs_on_a_simulated_device():
    """A prompt of many rows and one of few. Races are for smaller models to find: to look for them here takes long."""
    model = default_model()
    texts = ["The capital of France is", "One, two, three, four, five, six,"]
    want = answers(model, "cpu", "cpu", texts, 4, BATON_SIMT_RACES="0")
    got = answers(model, DEVICE, DEVICE, texts, 4, BATON_SIMT_RACES="0")
    assert got == want, (got, want)


def answers_of_ranks(model, backend, layout, ask, sum_parts=2, more_workers=()):
    with ranks_cluster(model, backend, *layout, sum_parts, more_workers=more_workers) as c:
        ranks = [pid for worker in c.prefills + c.decodes for pid in children_of(worker.pid)]
        assert len(ranks) == sum(n_ranks(text) - 1 for text in layout), ranks
        since = time.monotonic()
        got = [c.complete(text, 6, patience=600, ignore_eos=True, **how)["token_ids"] for text, how in ask]
        print(f"    {backend}, {layout[0]} to {layout[1]}: {len(ask)} answers in {time.monotonic() - since:.1f} s")
        left_nothing(c)
    wait_until("no rank is left", lambda: not any(is_there(pid) for pid in ranks))
    return got


def check_ranks(layouts, more_workers=(), **shape):
    """The best words, first candidates and whole rows, of prompts in several chunks, with the bytes of one rank on the
    CPU, which are those of any number of them (test_ranks.py)."""
    ask = [("a b c", {"temperature": 0}), ("a b d", {"temperature": 0.9, "top_k": 8, "seed": 7}),
           ("once upon a time there was a " * 4, {"temperature": 0}), ("a b c", {"temperature": 0.9, "seed": 11})]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **shape, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        want = answers_of_ranks(model, "cpu", layouts[0], ask, more_workers=more_workers)
        got = {layout: answers_of_ranks(model, "cuda_sim", layout, ask, more_workers=more_workers) for layout in layouts}
    wrong = [layout for layout in layouts if got[layout] != want]
    assert not wrong, f"{wrong} differ: {got}, and not {want}"


def test_ranks_on_simulated_devices_give_the_bytes_of_the_cpu():
    check_ranks(((2, 2), (2, 1), (1, 2)), layers=2)


def test_ranks_on_simulated_devices_share_the_width_of_experts():
    check_ranks(((2, 1), (1, 2)), ["--moe-reduction-parts", "2"], layers=2, architecture="qwen2moe", experts=8, experts_used=2,
                expert_ffn=64, shared_ffn=64)


def test_ranks_on_simulated_devices_have_experts_of_their_own():
    check_ranks(((2, 2),), ["--ep", "2"], layers=2, architecture="qwen2moe", experts=8, experts_used=3, expert_ffn=64, shared_ffn=64)


def test_each_step_of_simulated_device_ranks_is_one_launch():
    """Sums over NCCL and all: calls of it are in the graph."""
    n = 12
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        said = os.path.join(d, "state")
        with ranks_cluster(model, "cuda_sim", 1, 2, 2, env={"BATON_SIMT_STATE": said}) as c:
            c.complete("a b c", n, patience=600, ignore_eos=True, temperature=0)
            left_nothing(c)
        ends = states(said)
    launches = sorted(end["graph_launches"] for end in ends)
    assert len(launches) == 3, ends  # the prefill worker and both ranks of the other one
    assert all(n - 4 <= found <= n for found in launches[1:]), ends
    # Of each step the best of a rank's words, an id and a logit, and checksums of the KV that came: not its words, 576 bytes.
    assert all(8 * (n - 1) <= end["bytes_out"] < 16 * (n - 1) for end in ends if end["graph_launches"] > 0), ends


def test_stages_on_simulated_devices_give_the_bytes_of_the_cpu():
    check_ranks((("1x2", "1x2"), ("2x2", "1x1"), (1, "2x2")), layers=3)


def check_loss(sig, decode):
    """The other rank waits for it on its device, where nobody can be called back."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=512, seed=5)
        with ranks_cluster(model, "cuda_sim", 1, decode, 2, races=False, workers=2, silence=(1500, 3000), more_workers=PACED) as c:
            got, want = disturb(c, c.decodes, sig)
            assert got == want
            c.wait_idle()


def test_dead_device_rank_ends_its_instance_but_no_request():
    check_loss(signal.SIGKILL, 2)


def test_stopped_device_stage_ends_its_instance_but_no_request():
    check_loss(signal.SIGSTOP, "1x2")


def test_draft_model_on_a_simulated_device_gives_the_bytes_of_the_cpu():
    """Rounds wait for the pass in flight; on two devices each has its part of the copy."""
    texts, n = ["a b c d e f", "one two one two one"], 24
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=512, seed=7)
        want = {}
        for temperature in (0, 0.8):
            with Cluster(model, worker_args=["--draft", "off", "--reduction-parts", "2"]) as c:
                want[temperature] = [c.complete(t, n, ignore_eos=True, temperature=temperature, seed=3, logprobs=1) for t in texts * 2]
        for tp, drafts in ((1, "3"), (1, "0"), (2, "3")):
            args = ["--backend", DEVICE, "--tp", str(tp), "--draft", "self:q4_0", "--draft-tokens", drafts]
            with Cluster(model, worker_args=["--compute-watchdog-ms", "600000", "--reduction-parts", "2", "--overlap-scheduling", "on"],
                         decode_args=args, env=dict(plugin(), BATON_SIMT_RACES="0")) as c:
                for temperature, answers_ in want.items():
                    with concurrent.futures.ThreadPoolExecutor(4) as pool:
                        got = list(pool.map(lambda t, temperature=temperature: c.complete(
                            t, n, patience=600, ignore_eos=True, temperature=temperature, seed=3, logprobs=1), texts * 2))
                    for a, b in zip(answers_, got):
                        assert (a["token_ids"], a["logprobs"]) == (b["token_ids"], b["logprobs"]), (tp, drafts, temperature, a, b)
                wait_until("the model has drafted, on trial at least", lambda: c.total(
                    "baton_spec_decode_draft_tokens_total", source="model") > (20 if drafts != "0" else 0))
                if tp == 1:  # log-probs are the host's to compute, and passes do not overlap where rounds pay: this request has neither
                    before = c.total("baton_worker_overlapped_iterations_total")
                    c.complete(texts[0], n, patience=600, ignore_eos=True, temperature=0, num_draft_tokens=0)
                    wait_until("passes overlap", lambda: c.total("baton_worker_overlapped_iterations_total") >= before + n // 2)
                left_nothing(c)
