# SPDX-License-Identifier: Apache-2.0
"""What a worker takes of a device: all of it is in the plan that its KV pool is sized by, and nothing is taken later."""
import os
import re
import tempfile

from harness import tiny_model, wait_until
from test_cuda_sim import cluster, left_nothing, ranks_cluster, states, tensor_cluster

SHAPE = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=5)
MIB = 1 << 20
SAID = re.compile(r"device memory: (\d+) MiB are free; the model takes (\d+) MiB, of them (\d+) MiB of scratch, "
                  r"the KV pool (\d+) MiB, (\d+) MiB stay for libraries and graphs")


def test_device_allocates_exactly_the_planned_memory():
    with tempfile.TemporaryDirectory() as d:
        model, said = tiny_model(d, **SHAPE), os.path.join(d, "state")
        # One side alone is a device: its process tells what it took at the most.
        with tensor_cluster(model, "cpu", "tensor", router_args=["--allow-mixed-numerics"], env={"BATON_SIMT_STATE": said}) as c:
            free, takes, scratch, pool, later = map(int, SAID.search(c.decodes[0].log()).groups())
            # Attention of each row in up to 7 parts: there is scratch for it.
            c.complete("once upon a time there was a " * 30, 4, patience=600, ignore_eos=True)
            planned = c.metric("nv_trt_llm_runtime_memory_metrics", memory_type="gpu")
            left_nothing(c)
        most = states(said)[0]["bytes_most"]
    assert free == 4096 and later == 64 and scratch > 0 and takes >= scratch, (free, takes, scratch, pool, later)
    # Each buffer begins on 256 bytes.
    assert 0 <= most - (planned - later * MIB) < 0.01 * most, (most, planned)
    assert abs(planned - (takes + pool + later) * MIB) < 3 * MIB, (planned, takes, pool, later)


def test_too_small_device_is_reported_with_figures():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **SHAPE)
        with cluster(model, "cpu", "cpu", BATON_SIMT_MEMORY=str(70 * MIB)) as c:
            worker = c.start_worker("decode", 9, ["--backend", "cuda_sim"])
            wait_until("the worker ended", lambda: not worker.alive())
            assert re.search(r"not enough device memory: the model takes \d+ MiB, libraries and graphs 64 MiB and the KV pool "
                             r"\d+ MiB, 70 MiB are available, \d+ MiB are missing", worker.log()), worker.log()


def test_device_plan_includes_collective_buffers():
    with tempfile.TemporaryDirectory() as d:
        with ranks_cluster(tiny_model(d, **SHAPE), "cuda_sim", "2x1", "1x1", 2, races=False) as c:
            logs = [SAID.search(p.log()).groups() for p in c.prefills + c.decodes]
            left_nothing(c)
    assert [int(log[4]) for log in logs] == [64 + 512, 64], logs
    assert int(logs[0][2]) >= 8, logs  # 4 MiB of each part
