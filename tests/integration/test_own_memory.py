# SPDX-License-Identifier: Apache-2.0
"""A device whose memory the host must not touch (tests/support/trap_backend.h) runs the whole cluster: each touch of
its KV pool past its operations and its copier would be SIGSEGV."""
import os
import tempfile

from harness import BUILD, Cluster, Skip, tiny_model, wait_until
import test_pausing as pausing
from test_failures import expect_refusal, freed_by
from test_same_bytes import ask_all, prompts

# (prefill's and decode's back end, --kv-transport, how KV travels). A pool in a device is no shared memory: what is sent
# to it goes over the network, what it sends to a pool of this host goes there directly.
PAIRS = (("cpu", "cpu", "auto", "shm"), ("trap", "trap", "auto", "network"), ("trap", "cpu", "auto", "shm"),
         ("trap", "cpu", "network", "network"), ("cpu", "trap", "auto", "network"))
SLOTS_BYTES = 2 * 16 * (256 << 10)


def plugin():
    """The environment that shows the plugin to the workers."""
    folder = os.path.join(BUILD, "tests/support")
    if not os.path.exists(os.path.join(folder, "baton_trap.so")):
        raise Skip("this build has no baton_trap.so")
    return {"BATON_PLUGIN_DIR": folder}


def cluster(model, prefill, decode, transport="auto", **more):
    more["worker_args"] = ["--kv-transport", transport, "--chunk-tokens", "64", "--overlap-scheduling", "on"] + \
        more.get("worker_args", [])
    return Cluster(model, prefill_args=["--backend", prefill], decode_args=["--backend", decode, "--max-batch-size", "16"],
                   env=plugin(), **more)


def staged(c, role):
    return c.metric("baton_worker_kv_staged_bytes_total", role=role)


def stop_well(c):
    codes = c.stop()
    assert not any(codes.values()), codes


def test_device_memory_gives_the_same_bytes_on_every_kv_path():
    """Each with prompts that are new and again with what the prefix caches hold, 16 at a time."""
    texts = prompts()
    reference = None
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        for prefill, decode, transport, path in PAIRS:
            with cluster(model, prefill, decode, transport) as c:
                for again in range(2):
                    got = ask_all(c, texts, 16, 12)
                    reference = reference or got
                    wrong = [i for i, (a, b) in enumerate(zip(reference, got)) if a != b]
                    assert not wrong, f"{prefill} to {decode}, {transport}, time {again}: prompts {wrong} differ"
                c.wait_idle()
                moved = c.metric("baton_kv_transfer_bytes_total")
                assert moved > 0
                assert f"KV goes to decode-0 by {path}" in c.prefills[0].log()
                for role, backend in (("prefill", prefill), ("decode", decode)):
                    own = backend == "trap"
                    # What moved crossed once at this end, and nothing else did.
                    wait_until(f"staged by {role} of {prefill} to {decode}",
                               lambda r=role, n=moved if own else 0: staged(c, r) == n)
                    assert (c.metric("baton_worker_memory_bytes", role=role, memory="gpu") > 63 << 20) == own
                    assert c.metric("baton_worker_memory_bytes", role=role, memory="pinned") == SLOTS_BYTES * own
                    assert (c.metric("baton_worker_overlapped_iterations_total", role=role) > 0) == own
                assert c.total("baton_kv_leases", role="prefill") == c.total("baton_kv_leases", role="decode") == 0
                stop_well(c)  # a buffer of the device that was not freed would end it otherwise
    assert len({tuple(ids) for ids in reference}) > len(texts)


def test_device_memory_supports_preemption():
    """Requests of every kind, in a pool that is too small for all of them: those that are paused are in a step that began
    ahead, mostly."""
    with tempfile.TemporaryDirectory() as d:
        model = pausing.model_of(d)
        with Cluster(model) as c:
            reference = pausing.ask_all(c, 1)
        with Cluster(model, prefill_args=["--backend", "trap"], worker_args=["--overlap-scheduling", "on"], env=plugin(),
                     decode_args=["--backend", "trap", "--kv-tokens", str(pausing.POOL), "--max-batch-size", "16",
                                  *pausing.POLICY]) as c:
            for request, want, got in zip(pausing.requests(), reference,
                                          pausing.ask_all(c, len(pausing.requests()))):
                assert got == want, f"{request} differs: {got}, {want}"
            c.wait_idle()
            wait_until("every pause is over, and there were some", lambda: (
                pausing.total(c, "preemptions") == pausing.total(c, "preemption_resumes") > 0))
            assert c.metric("baton_worker_overlapped_iterations_total", role="decode") > 0
            print(f"    {pausing.total(c, 'pauses'):.0f} pauses, "
                  f"{c.metric('baton_worker_overlapped_iterations_total', role='decode'):.0f} iterations began ahead", flush=True)
            stop_well(c)


def test_device_memory_leaks_nothing_on_cancel():
    """Clients that leave at any time, and prompts of many chunks."""
    words = "word " * 400
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=8, dim=256, heads=8, kv_heads=4, ffn=768, context=2048, seed=7)
        with cluster(model, "trap", "trap", kv_memory="48m", worker_args=["--prefix-cache", "off"]) as c:
            want = c.complete(words, 4, patience=600, temperature=0, ignore_eos=True)["token_ids"]
            for i in range(12):
                try:
                    c.post("/v1/completions", dict(prompt=words + str(i), max_tokens=200, temperature=0),
                           timeout=0.05 * (1 + i % 6))
                except TimeoutError:
                    pass
            c.wait_idle()
            assert c.complete(words, 4, patience=600, temperature=0, ignore_eos=True)["token_ids"] == want
            c.wait_idle()
            used = [v for k, v in c.metrics().items() if k.startswith("baton_kv_blocks{") and
                    ('"used"' in k or '"quarantined"' in k)]
            assert used and not any(used), used
            stop_well(c)


def test_device_memory_of_survivors_is_freed_when_a_worker_dies():
    for role in ("prefill", "decode"):
        (leases, blocks), seconds = freed_by(role, "auto", "trap", plugin())
        print(f"    {role} worker killed: {leases:.0f} leases, {blocks:.0f} blocks free after {seconds:.2f} s")
        assert 1000 * seconds < Cluster.PATIENT[0], seconds


def test_device_memory_is_refused_as_shared_memory():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
        with cluster(model, "cpu", "cpu") as c:
            worker = c.start_worker("decode", 9, ["--backend", "trap", "--kv-transport", "shm"])
            expect_refusal(c, worker, "a pool in device memory cannot be shared memory")
            wait_until("the worker ended", lambda: not worker.alive())
