# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts in a whole cluster: the tokens of a request depend on it and the model alone, whatever the chunks,
the company, the threads, the way of the KV cache, and who died."""
import asyncio
import os
import signal
import tempfile

from harness import PACED, Cluster, children_of, slow_model, tiny_model
from launch import Launch
from test_failures import ENDLESS_BODY, SOON, ended_with_an_error, expect_refusal, next_one_works, stream_and
from test_families import TEXTS, answers
from test_ranks import disturb
from test_same_bytes import options
from test_speculation import start_fails

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


def grid(prefill, decode, way, sums=(4, 2), more=()):
    """Workers of tp ranks in ep groups, (tp, ep) each, and the parts of their sums: --reduction-parts, --moe-reduction-parts."""
    out = options(way, 48)
    out["worker_args"] += ["--reduction-parts", str(sums[0]), "--moe-reduction-parts", str(sums[1]), *more]
    for side, (tp, ep) in (("prefill_args", prefill), ("decode_args", decode)):
        out[side] = out.get(side, []) + ["--tp", str(tp), "--ep", str(ep)]
    return out


def ranks_give_the_same_bytes(name, grids, sums):
    """@param grids [(prefill, decode, way)], the first of one rank"""
    shape = dict(layers=3, dim=128, heads=8, kv_heads=4, head_dim=16, context=512, seed=46)
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture=name, **{**shape, **RANK_MODELS[name]})
        want = None
        for prefill, decode, way in grids:
            with Cluster(model, kv_memory="32m", **grid(prefill, decode, way, sums)) as c:
                ranks = [len(children_of(worker.pid)) for worker in c.prefills + c.decodes]
                assert ranks == ([] if way == "local" else [prefill[0] - 1]) + [decode[0] - 1], ranks
                got = answers(c, want is not None)
                want = want or got
                assert len({tuple(ids) for ids in want}) > len(TEXTS), name
                assert got == want, f"{name}, (tp, ep) {prefill} to {decode}, {way}, {sums} parts"


RANK_MODELS = {
    "llama": dict(experts=8, experts_used=2, expert_ffn=128),
    "glm4moe": dict(rope_dims=8, experts=19, experts_used=4, expert_ffn=64, shared_ffn=64, dense_layers=1, ffn=160,
                    key=["expert_gating_func=u:2", "expert_weights_scale=f:1.5"]),
    "gpt-oss": dict(ffn=64, experts=8, experts_used=4, window=40, sinks=True, type="MXFP4"),
}


def test_experts_dealt_to_ranks_give_the_bytes_of_one_rank():
    """One, two and four groups, and P in two groups to D in one."""
    for name in RANK_MODELS:
        ranks_give_the_same_bytes(name, [
            ((1, 1), (1, 1), "local"), ((1, 1), (2, 2), "local"), ((1, 1), (4, 4), "local"), ((2, 2), (1, 1), "shm"),
            ((1, 1), (2, 2), "tcp")], (4, 1))


def test_grids_of_experts_and_their_widths_give_the_bytes_of_one_rank():
    """Groups of several ranks, which have a share of an expert's width each: 4 x 2 is moe_tp_size 2, moe_ep_size 2."""
    for name in RANK_MODELS:
        ranks_give_the_same_bytes(name, [
            ((1, 1), (1, 1), "local"), ((1, 1), (4, 2), "local"), ((4, 2), (2, 1), "shm"), ((2, 1), (4, 4), "tcp")], (4, 2))


def test_launcher_gives_workers_of_different_grids_the_same_sums():
    """Four ranks in groups of two for prefill, and one rank for decode; then the other way round."""
    got = []
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="llama", layers=3, dim=128, heads=8, kv_heads=4, context=512, seed=46,
                           **RANK_MODELS["llama"])
        for layout in (("--prefill-tp", "4", "--prefill-ep", "2"), ("--decode-tp", "4", "--decode-ep", "2")):
            with Launch("--model", model, *layout) as launch:
                address = launch.process("router")["http"].split("//")[-1]
                for text in TEXTS[:3]:
                    status, answer = launch.post(address, "/v1/completions", dict(
                        prompt=text, max_tokens=12, temperature=0, ignore_eos=True, return_token_ids=True))
                    assert status == 200, answer
                    got.append(answer["choices"][0]["token_ids"])
    assert got[:3] == got[3:] and len({tuple(ids) for ids in got}) == 3, got


def test_worker_with_other_sums_of_experts_is_not_mixed():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="llama", **RANK_MODELS["llama"])
        with Cluster(model, worker_args=["--moe-reduction-parts", "2"]) as c:
            worker = c.start_worker("decode", 9, ["--moe-reduction-parts", "1"])
            expect_refusal(c, worker, "decode-9 has numeric profile q8-bf16, but ")


def test_dead_rank_of_experts_ends_its_instance_but_no_request():
    with tempfile.TemporaryDirectory() as d:
        model = slow_model(d, architecture="llama", experts=8, experts_used=2, expert_ffn=64)
        with Cluster(model, decode=2, kv_memory="64m", silence=(1500, 3000), **grid((1, 1), (2, 2), "shm", (2, 1), PACED)) as c:
            got, want = disturb(c, c.decodes, signal.SIGKILL)
            assert got == want
            c.wait_idle()


def test_impossible_grids_of_experts_are_refused_by_name():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="llama", heads=8, kv_heads=8, dim=128, experts=3, experts_used=2, expert_ffn=96)
        dense = os.path.join(d, "dense")
        os.mkdir(dense)
        dense = tiny_model(dense, heads=8, kv_heads=8, dim=128)
        fails = ((model, ["--decode-tp", "4", "--decode-ep", "3"], "--decode-ep 3: it is 1, 2, 4, 8 or 16, and divides "
                  "--decode-tp, here 4"),
                 (model, ["--prefill-ep", "2"], "--prefill-ep 2: it is 1, 2, 4, 8 or 16, and divides --prefill-tp, here 1"))
        for path, args, why in fails:
            start_fails(path, args, 2, why)
        fails = ((dense, ["--decode-tp", "2", "--decode-ep", "2"], "(--ep, --prefill-ep, --decode-ep): the model has no experts"),
                 (model, ["--prefill-tp", "4", "--prefill-ep", "4"], "the model has 3 experts, and each rank needs one"),
                 (model, ["--prefill-tp", "4"], "an expert's 96 columns are 3 blocks of 32"))
        for path, args, why in fails:
            start_fails(path, args, 78, why)
