# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts in a whole cluster: the tokens of a request depend on it and the model alone, whatever the chunks,
the company, the threads, the way of the KV cache, and who died."""
import asyncio
import tempfile

from harness import Cluster, tiny_model
from test_failures import ENDLESS_BODY, SOON, ended_with_an_error, next_one_works, stream_and
from test_families import TEXTS, answers
from test_same_bytes import options

# The widest of them have more experts than rows of a chunk, and more rows than the scratch of prepared ones.
MODELS = {
    "llama": dict(ffn=96, experts=8, experts_used=2),
    "qwen3moe": dict(layers=3, head_dim=24, experts=64, experts_used=6, expert_ffn=64, dense_layers=1),
    "qwen2moe": dict(experts=12, experts_used=3, expert_ffn=32, shared_ffn=96),
    "granitemoe": dict(ffn=64, experts=8, experts_used=3, key="residual_scale=f:0.4"),
    "glm4moe": dict(layers=3, rope_dims=8, experts=16, experts_used=4, expert_ffn=32, shared_ffn=64, dense_layers=1,
                    key=["expert_gating_func=u:2", "expert_weights_scale=f:1.5"]),
    "gpt-oss": dict(ffn=64, experts=8, experts_used=4, window=40, sinks=True, type="MXFP4"),
    "olmoe": dict(kv_heads=4, ffn=32, experts=24, experts_used=5, gate_up=True, router_type="BF16"),
}
# Chunk, threads, way.
PATHS = [(16, 1, "shm"), (48, 2, "tcp"), (64, 1, "tcp"), (512, 2, "shm")]


def test_experts_give_the_same_bytes_on_every_path():
    for name, model_options in MODELS.items():
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, architecture=name, context=512, seed=46, **model_options)
            with Cluster(model, kv_memory="32m", **options("local", 512)) as c:
                want = answers(c, False)
                assert len({tuple(ids) for ids in want}) > len(TEXTS), name
            for chunk, threads, way in PATHS if name == "qwen3moe" else PATHS[1:2]:
                more = options(way, chunk)
                more["worker_args"] += ["--threads", str(threads)]
                with Cluster(model, kv_memory="32m", **more) as c:
                    assert answers(c, True) == want, f"{name}, chunks of {chunk}, {threads} threads, {way}"


def test_worker_with_experts_dies_and_another_goes_on():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="qwen3moe", layers=6, context=65536, seed=47, experts=64, experts_used=6,
                           expert_ffn=64)
        with Cluster(model, kv_memory="128m", router_args=SOON) as c:
            whole = c.complete(ENDLESS_BODY["prompt"], 20, temperature=0, ignore_eos=True)["text"]
            s, _ = asyncio.run(stream_and(c, 3, c.decodes[0].kill, ENDLESS_BODY))
            ended_with_an_error(s, whole)
            c.start_worker("decode", 1)
            next_one_works(c)
