# SPDX-License-Identifier: Apache-2.0
"""The CUDA plugin's own sources on a machine of the tests (tests/simt) run the whole cluster, on either side of a
transfer or on both: every kernel, copy and table, with the bytes of the CPU. It is slow; nobody serves with it."""
import os
import signal
import tempfile
import time

from harness import BUILD, Cluster, Skip, children_of, default_model, is_there, tiny_model, wait_until
from test_ranks import disturb, n_ranks, split

PAIRS = (("cpu", "cpu"), ("cuda_sim", "cuda_sim"), ("cuda_sim", "cpu"), ("cpu", "cuda_sim"))


def plugin():
    """The environment that shows the plugin to the workers."""
    folder = os.path.join(BUILD, "tests/simt")
    if not os.path.exists(os.path.join(folder, "baton_cuda_sim.so")):
        raise Skip("this build has no baton_cuda_sim.so")
    return {"BATON_PLUGIN_DIR": folder}


def cluster(model, prefill, decode, races):
    return Cluster(model, prefill_args=["--backend", prefill], decode_args=["--backend", decode],
                   worker_args=["--stuck-ms", "600000"], env=dict(plugin(), BATON_SIMT_RACES=str(int(races))))


def ranks_cluster(model, backend, prefill, decode, sum_parts, races=True, workers=1, **more):
    """Ranks "2x3" (2 of each of 3 stages) of either side."""
    sides = {f"{side}_args": ["--backend", backend, "--tp", str(split(text)[0]), "--pp", str(split(text)[1])]
             for side, text in (("prefill", prefill), ("decode", decode))}
    return Cluster(model, worker_args=["--stuck-ms", "600000", "--sum-parts", str(sum_parts), "--chunk-tokens", "64"],
                   env=dict(plugin(), BATON_SIMT_RACES=str(int(races))), kv_memory="64m", decode=workers, **sides, **more)


def left_nothing(c):
    c.wait_idle()
    assert c.metric("baton_kv_leases", role="prefill") == c.metric("baton_kv_leases", role="decode") == 0
    used = [v for k, v in c.metrics().items() if k.startswith("baton_kv_blocks{") and
            ('"used"' in k or '"quarantined"' in k)]
    assert used and not any(used), used
    codes = c.stop()
    assert not any(codes.values()), codes


def answers(model, prefill, decode, texts, n, races):
    with cluster(model, prefill, decode, races) as c:
        since = time.monotonic()
        got = [c.complete(text, n, patience=600, temperature=0, ignore_eos=True)["token_ids"] for text in texts]
        print(f"    {prefill} to {decode}: {len(texts)} x {n} tokens in {time.monotonic() - since:.1f} s")
        left_nothing(c)
    return got


def test_a_simulated_device_gives_the_bytes_of_the_cpu():
    """On both ends, and on either: its numbers are those of the CPU, so a mixed cluster has one profile."""
    texts = ["a b c", "a b c", "a b d", "once upon a time there was a " * 6]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        got = {pair: answers(model, *pair, texts, 6, races=True) for pair in PAIRS}
    wrong = [pair for pair in PAIRS if got[pair] != got[PAIRS[0]]]
    assert not wrong, f"{wrong} differ: {got}"


def test_the_default_model_on_a_simulated_device():
    """A prompt of many rows and one of few. Races are for smaller models to find: to look for them here takes long."""
    model = default_model()
    texts = ["The capital of France is", "One, two, three, four, five, six,"]
    want = answers(model, "cpu", "cpu", texts, 4, races=False)
    got = answers(model, "cuda_sim", "cuda_sim", texts, 4, races=False)
    assert got == want, (got, want)


def answers_of_ranks(model, backend, layout, ask, sum_parts=2):
    with ranks_cluster(model, backend, *layout, sum_parts) as c:
        ranks = [pid for worker in c.prefills + c.decodes for pid in children_of(worker.pid)]
        assert len(ranks) == sum(n_ranks(text) - 1 for text in layout), ranks
        since = time.monotonic()
        got = [c.complete(text, 6, patience=600, ignore_eos=True, **how)["token_ids"] for text, how in ask]
        print(f"    {backend}, {layout[0]} to {layout[1]}: {len(ask)} answers in {time.monotonic() - since:.1f} s")
        left_nothing(c)
    wait_until("no rank is left", lambda: not any(is_there(pid) for pid in ranks))
    return got


def check_ranks(layouts, **shape):
    """The best words, first candidates and whole rows, of prompts in several chunks, with the bytes of one rank on the
    CPU, which are those of any number of them (test_ranks.py)."""
    ask = [("a b c", {"temperature": 0}), ("a b d", {"temperature": 0.9, "top_k": 8, "seed": 7}),
           ("once upon a time there was a " * 4, {"temperature": 0}), ("a b c", {"temperature": 0.9, "seed": 11})]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **shape, dim=64, heads=4, kv_heads=2, ffn=96, context=256, seed=5)
        want = answers_of_ranks(model, "cpu", layouts[0], ask)
        got = {layout: answers_of_ranks(model, "cuda_sim", layout, ask) for layout in layouts}
    wrong = [layout for layout in layouts if got[layout] != want]
    assert not wrong, f"{wrong} differ: {got}, and not {want}"


def test_ranks_on_simulated_devices_give_the_bytes_of_the_cpu():
    check_ranks(((2, 2), (2, 1), (1, 2)), layers=2)


def test_stages_on_simulated_devices_give_the_bytes_of_the_cpu():
    check_ranks((("1x2", "1x2"), ("2x2", "1x1"), (1, "2x2")), layers=3)


def check_loss(sig, decode):
    """The other rank waits for it on its device, where nobody can be called back."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=512, seed=5)
        with ranks_cluster(model, "cuda_sim", 1, decode, 2, races=False, workers=2, silence=(1500, 3000)) as c:
            got, want = disturb(c, c.decodes, sig)
            assert got == want
            c.wait_idle()


def test_a_rank_on_a_device_that_dies_takes_its_instance_and_no_answer():
    check_loss(signal.SIGKILL, 2)


def test_a_stage_on_a_device_that_stops_takes_its_instance_and_no_answer():
    check_loss(signal.SIGSTOP, "1x2")
