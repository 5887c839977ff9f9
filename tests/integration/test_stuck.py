# SPDX-License-Identifier: Apache-2.0
"""Slow is not hung: what ends a worker is an operation that does not end, not a step that takes long. The back end that
can do both is tests/support/trap_backend.h."""
import os
import signal
import tempfile
import threading

from harness import Cluster, tiny_model, wait_until
from test_own_memory import plugin

LAYERS = 8
PRODUCTS = 4 * LAYERS + 1  # of matrices in a step
LIMIT_MS = 1000
PRODUCT_MS = 60


def cluster(directory, **env):
    model = tiny_model(directory, layers=LAYERS, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
    return Cluster(model, worker_args=["--backend", "trap", "--compute-watchdog-ms", str(LIMIT_MS)], env=dict(plugin(), **env))


def test_slow_step_is_not_a_hang():
    assert PRODUCTS * PRODUCT_MS > 1.9 * LIMIT_MS
    with tempfile.TemporaryDirectory() as d:
        with cluster(d, BATON_TRAP_MATMUL_MS=str(PRODUCT_MS)) as c:
            answer = c.complete("a step takes two seconds", 3, temperature=0, ignore_eos=True)
            assert len(answer["token_ids"]) == 3, answer
            assert all(worker.alive() for worker in c.prefills + c.decodes)
            assert c.total("baton_attempt_failures_total") == 0
            c.wait_idle()


def test_hung_worker_can_be_stopped():
    """With the default of --compute-watchdog-ms: who says stop need not wait for that."""
    with tempfile.TemporaryDirectory() as d:
        hang = os.path.join(d, "hang")
        model = tiny_model(d, layers=LAYERS, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
        with Cluster(model, worker_args=["--backend", "trap", "--drain-ms", "200"],
                     env=dict(plugin(), BATON_TRAP_HANG=hang)) as c:
            c.complete("before", 4, temperature=0)
            with open(hang, "w", encoding="utf-8"):
                pass
            client = threading.Thread(target=lambda: c.post("/v1/completions", {"prompt": "hangs", "max_tokens": 4}))
            client.start()
            worker = c.prefills[0]
            wait_until("it computes", lambda: c.metric("baton_worker_active_requests", role="prefill") == 1)
            worker.kill(signal.SIGTERM)
            wait_until("the worker ends", lambda: not worker.alive())
            assert worker.popen.returncode == 0, worker.popen.returncode
            assert "exiting during an iteration" in worker.log(), worker.log()
            os.unlink(hang)
            client.join()


def test_hung_step_ends_the_worker():
    with tempfile.TemporaryDirectory() as d:
        hang = os.path.join(d, "hang")
        with cluster(d, BATON_TRAP_HANG=hang) as c:
            good = c.complete("before", 4, temperature=0)["text"]
            with open(hang, "w", encoding="utf-8"):
                pass
            answers = []
            client = threading.Thread(target=lambda: answers.append(c.complete("this one hangs", 4, temperature=0)))
            client.start()
            worker = c.prefills[0]
            wait_until("the worker ends itself", lambda: not worker.alive())
            assert worker.popen.returncode == 70, worker.popen.returncode
            assert f"no progress for {LIMIT_MS} ms" in worker.log(), worker.log()
            os.unlink(hang)
            c.start_worker("prefill", 0)
            client.join()
            assert len(answers) == 1, "its request ran again"
            assert c.complete("before", 4, temperature=0)["text"] == good
            c.wait_idle()


def test_server_without_compute_progress_is_not_ready():
    """Long before --compute-watchdog-ms: health says so, and is well again when the work is."""
    with tempfile.TemporaryDirectory() as d:
        hang = os.path.join(d, "hang")
        model = tiny_model(d, layers=LAYERS, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)

        def ready(c):
            return c.request("GET", "/v2/health/ready")[0] == 200

        with Cluster(model, worker_args=["--backend", "trap"], silence=(1000, 2000), env=dict(plugin(), BATON_TRAP_HANG=hang)) as c:
            good = c.complete("moves", 4, temperature=0)["text"]
            assert ready(c)
            with open(hang, "w", encoding="utf-8"):
                pass
            answers = []
            client = threading.Thread(target=lambda: answers.append(c.complete("moves", 4, temperature=0)["text"]))
            client.start()
            wait_until("not ready", lambda: not ready(c))
            assert all(worker.alive() for worker in c.prefills + c.decodes)
            os.unlink(hang)
            client.join()
            assert answers == [good]
            wait_until("ready again", lambda: ready(c))
            assert "prefill-0 does not get on" in c.router.log(), c.router.log()
