# SPDX-License-Identifier: Apache-2.0
"""Families of decoders in a whole cluster: handed over, in chunks, in company, with what the prefix cache has, the same
bytes. The prompts are longer than any window."""
import concurrent.futures
import tempfile

from harness import Cluster, tiny_model, wait_until
from test_failures import expect_refusal
from test_same_bytes import WORDS, options, reused

WINDOW = 40
OLD = dict(kv_heads=4, ffn=256)
# How a small model of each family differs from llama's: tests/unit/inference/model/families.h has the same ones.
FAMILIES = {
    "llama": dict(window=WINDOW),
    "qwen2": {}, "qwen3": dict(head_dim=24), "gemma": dict(head_dim=24),
    "gemma2": dict(layers=4, head_dim=24, window=WINDOW, soft_cap=20, key="final_logit_softcapping=f:3"),
    "gemma3": dict(layers=3, head_dim=24, window=WINDOW, key="attention.sliding_window_pattern=p:101"),
    "phi3": dict(rope_dims=12, window=WINDOW),
    "granite": dict(attn_scale=0.3, key="residual_scale=f:0.4"),
    "olmo": dict(key="attention.clamp_kqv=f:1.5"), "olmo2": dict(layers=4, window=WINDOW), "internlm2": {},
    "smollm3": dict(layers=4), "gpt2": OLD, "gptneox": dict(OLD, rope_dims=4),
    "falcon": dict(kv_heads=1, ffn=256), "starcoder2": dict(window=WINDOW), "cohere2": dict(layers=4, window=WINDOW),
    "bloom": OLD, "mpt": dict(OLD, key="attention.max_alibi_bias=f:8"), "baichuan": dict(kv_heads=4),
    "mistral3": dict(key="attention.temperature_scale=f:0.1"),
}
TEXTS = [" ".join(WORDS[(i * 7 + j * 3) % len(WORDS)] for j in range(12 + 40 * i)) for i in range(3)]
WAYS = [("shm", 16), ("tcp", 48)]


def ask(cluster, text, **more):
    return cluster.complete(text, 8, ignore_eos=True, **more)["token_ids"]


def answers(cluster, together):
    """Greedy and drawn, one after another or all at once."""
    jobs = [(text, more) for text in TEXTS for more in (dict(temperature=0), dict(temperature=0.9, seed=5))]
    with concurrent.futures.ThreadPoolExecutor(len(jobs) if together else 1) as pool:
        got = list(pool.map(lambda job: ask(cluster, job[0], **job[1]), jobs))
    cluster.wait_idle()
    return got


def check(name, directory, way, chunk):
    """One at a time by one worker alone; then handed over in chunks, all at once, and again with what the cache has."""
    model = tiny_model(directory, architecture=name, context=512, seed=44, **FAMILIES[name])
    with Cluster(model, kv_memory="32m", **options("local", 512)) as c:
        want = answers(c, False)
        assert len({tuple(ids) for ids in want}) > len(TEXTS), name
    with Cluster(model, kv_memory="32m", **options(way, chunk, "on")) as c:
        assert answers(c, True) == want, f"{name}, {way}, chunks of {chunk}"
        assert answers(c, False) == want, f"{name}, {way}, again"
        wait_until(f"blocks reused, {name}", lambda: reused(c) > 0)


def test_families_give_the_same_bytes_on_every_path():
    """Each family once in each way would take a minute and a half: they take turns, and no way is left out."""
    for i, name in enumerate(FAMILIES):
        with tempfile.TemporaryDirectory() as d:
            check(name, d, *WAYS[i % len(WAYS)])


def test_longrope_profiles_of_different_context_lengths_do_not_mix():
    """LongRoPE: a model that is loaded for more tokens than it was trained on is another one."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="phi3", context=512, long_factors=True, key=[
            "rope.scaling.type=s:longrope", "rope.scaling.original_context_length=u:300"])
        with Cluster(model, worker_args=["--max-seq-len", "256"]) as c:
            expect_refusal(c, c.start_worker("decode", 9, ["--max-seq-len", "512"]),
                           "decode-9 has numeric profile q8-bf16 for long contexts (--max-seq-len), but ")
            expect_refusal(c, c.start_worker("prefill", 9, ["--max-seq-len", "512"]),
                           "prefill-9 has numeric profile q8-bf16 for long contexts (--max-seq-len), but ")
            ask(c, TEXTS[0])
