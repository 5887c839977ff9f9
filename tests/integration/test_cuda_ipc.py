# SPDX-License-Identifier: Apache-2.0
"""KV that goes from device to device on one host (kvtransfer/kvt_stage.h): the simulated devices open each other's
memory by the calls of CUDA's (tests/simt), the processes are real ones."""
import concurrent.futures
import os
import signal
import tempfile

from harness import Cluster, tiny_model, wait_until
from test_cuda_sim import DEVICE, REAL, left_nothing, plugin, states
from test_own_memory import SLOTS_BYTES

SHAPE = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=512, seed=5)
TEXTS = ["a b c", "a b d", "once upon a time there was a " * 12, "one two three four five six seven " * 9]


def cluster(model, prefill=DEVICE, decode=DEVICE, transport="auto", workers=1, **more):
    env = dict(plugin(), BATON_SIMT_RACES="0", **more.pop("env", {}))
    args = ["--compute-watchdog-ms", "600000", "--chunk-tokens", "64", "--kv-transport", transport] + more.pop("worker_args", [])
    return Cluster(model, prefill_args=["--backend", prefill], decode_args=["--backend", decode], worker_args=args,
                   prefill=workers, decode=workers, env=env, **more)


def answers(c, n=6):
    return [c.complete(text, n, patience=600, ignore_eos=True, temperature=0)["token_ids"] for text in TEXTS]


def staged(c):
    return sum(c.metric("baton_worker_kv_staged_bytes_total", role=role) for role in ("prefill", "decode"))


def test_kv_is_transferred_from_device_to_device():
    """With the CPU's tokens; neither end has it in host memory, and nothing of the other one's is left open."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **SHAPE)
        with cluster(model, "cpu", "cpu") as c:
            want = answers(c)
        came, moved = {}, {}
        for transport, path in (("auto", "cuda_ipc"), ("network", "network")):
            said = os.path.join(d, transport)
            with cluster(model, transport=transport, env={"BATON_SIMT_STATE": said}) as c:
                assert answers(c) == want
                assert f"KV goes to decode-0 by {path}" in c.prefills[0].log(), c.prefills[0].log()
                c.wait_idle()
                moved[path] = c.metric("baton_kv_transfer_bytes_total")
                across = moved[path] if path == "cuda_ipc" else 0
                wait_until("the path is counted",
                           lambda n=across: c.metric("baton_worker_kv_device_bytes_total", role="prefill") == n)
                assert staged(c) == (0 if across else 2 * moved[path])
                for memory, least in (("gpu", 2 * (63 << 20)), ("pinned", 2 * SLOTS_BYTES), ("cpu", 1)):
                    assert c.metric("nv_trt_llm_runtime_memory_metrics", memory_type=memory) >= least, memory
                left_nothing(c)
            came[path] = [] if REAL else states(said)
        assert moved["cuda_ipc"] == moved["network"] > 100 << 10, moved
    if REAL:
        return
    assert [s["opens"] for s in came["cuda_ipc"]].count(1) == 1, came
    assert all(s["opened_left"] == s["bytes_left"] == 0 for path in came for s in came[path]), came
    # All that came to the host less by it is the KV that left prefill's device; the sums of hashes are little.
    less = [sum(s["bytes_out"] for s in came[path]) for path in ("network", "cuda_ipc")]
    assert moved["network"] * 0.9 < less[0] - less[1] < moved["network"], (came, moved)


def killed(role):
    """A worker that has a hand-over half done, with others behind it; prompts come in many chunks, which leave one by
    one. @return the states of those who lived"""
    texts = [f"{i} and " + "many words that are computed in chunks " * 8 for i in range(4)]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **SHAPE)
        said = os.path.join(d, "state")
        with cluster(model, workers=2, worker_args=["--chunk-tokens", "16", "--prefix-cache", "off"],
                     env={"BATON_SIMT_STATE": said}) as c:
            def ask(text):
                return c.complete(text, 8, patience=600, ignore_eos=True, temperature=0)["token_ids"]

            want = [ask(text) for text in texts]
            c.wait_idle()
            moved = {w.name: c.metric("baton_worker_kv_device_bytes_total", worker=w.name) for w in c.prefills}

            def victim():
                """One of that role with an open hand-over, after something of these prompts has gone."""
                m = {w.name: c.metric("baton_worker_kv_device_bytes_total", worker=w.name) for w in c.prefills}
                busy = [w for w in (c.prefills if role == "prefill" else c.decodes)
                        if c.total("baton_kv_leases", worker=w.name) > 0]
                return busy[0] if busy and m != moved else None

            with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
                got = [pool.submit(ask, text) for text in texts]
                dead = wait_until("a hand-over is under way", victim)
                os.kill(dead.pid, signal.SIGKILL)
                assert [one.result() for one in got] == want
            wait_until("it is gone", lambda: not dead.alive())
            c.wait_idle()
            used = [v for k, v in c.metrics().items() if k.startswith("baton_kv_blocks{") and
                    ('"used"' in k or '"quarantined"' in k)]
            assert used and not any(used), used
            codes = c.stop()
            assert [name for name, code in codes.items() if code] == [dead.name], codes
        lived = states(said)
    assert len(lived) == 3 and all(s["opened_left"] == s["bytes_left"] == 0 for s in lived), lived
    return lived


def test_sender_death_during_hand_over_leaks_nothing():
    killed("prefill")


def test_receiver_death_during_hand_over_leaks_nothing():
    """Those who had its pool open close it."""
    assert sum(s["opens"] for s in killed("decode")) >= 2


def test_device_without_shared_memory_stages_and_logs_why():
    """On a device without peer access, or where the system has no handles; and a CPU's worker at either end."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **SHAPE)
        with cluster(model, "cpu", "cpu") as c:
            want = answers(c, 3)
        for host, said_by, why in (
                ("without-peer-access", "prefill", "is staged through host memory: peer access is not supported"),
                ("without-ipc", "decode", "the pool cannot be shared by cuda_ipc, incoming KV is staged: operation not")):
            with cluster(model, env={"BATON_SIMT_HOST": host}) as c:
                assert answers(c, 3) == want
                worker = c.prefills[0] if said_by == "prefill" else c.decodes[0]
                assert worker.log().count(why) == 1, worker.log()
                assert "KV goes to decode-0 by network" in c.prefills[0].log()
                left_nothing(c)
        for pair, path in ((("cuda_sim", "cpu"), "shm"), (("cpu", "cuda_sim"), "network")):
            with cluster(model, *pair) as c:
                assert answers(c, 3) == want
                assert f"KV goes to decode-0 by {path}" in c.prefills[0].log()
                assert "is staged through host memory" not in c.prefills[0].log()
                left_nothing(c)
