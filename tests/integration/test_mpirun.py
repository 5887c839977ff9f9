# SPDX-License-Identifier: Apache-2.0
"""The same programs under mpirun: one MPI world, no --join, no key file."""
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile

from harness import BUILD, ROOT, Cluster, Skip, default_model, free_port, tiny_model, wait_until

SCRIPT = os.path.join(ROOT, "examples/mpirun.sh")


@contextlib.contextmanager
def world(model, *counts, **more):
    """A client of a cluster that examples/mpirun.sh started, ready; ended by SIGTERM."""
    if shutil.which("mpirun") is None:
        raise Skip("no mpirun")
    http, metrics = free_port(), free_port()
    env = dict(os.environ, BATON_BUILD=BUILD, BATON_HTTP=f"127.0.0.1:{http}", BATON_METRICS=f"127.0.0.1:{metrics}",
               BATON_GRPC="127.0.0.1:0", BATON_KV_MEMORY="256m", BATON_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
    env.pop("BATON_READY_FD", None)
    client = Cluster(model)  # only its methods of a client
    env["BATON_WEIGHT_CACHE"] = os.path.join(client.dir, "weights")
    client.http, client.metrics_at = ("127.0.0.1", http), ("127.0.0.1", metrics)
    with tempfile.TemporaryFile() as log:
        run = subprocess.Popen([SCRIPT, model, *counts], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               start_new_session=True)
        try:
            def ready():
                assert run.poll() is None, f"mpirun ended with {run.returncode}"
                try:
                    return client.request("GET", "/v2/health/ready")[0] == 200
                except OSError:
                    return False
            wait_until("ready under mpirun", ready, 90)
            yield client
            run.send_signal(signal.SIGTERM)
            run.wait(30)
        except BaseException:
            log.seek(0)
            print(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            shutil.rmtree(client.dir, ignore_errors=True)


def test_mpirun_answers_the_first_prompt():
    with world(default_model()) as client:
        assert "Paris" in client.generate("The capital of France is", 16)
        name = "nv_trt_llm_disaggregated_serving_metrics"
        assert client.metric(name, disaggregated_serving_type="request_count") == 1
        assert client.metric(name, disaggregated_serving_type="kv_cache_transfer_ms") > 0


def test_instances_of_ranks_in_one_world():
    """Two prefill instances of two ranks and one decode instance of two, or of one: the same answer."""
    answers = []
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=8, kv_heads=4, head_dim=16, ffn=160, context=512, seed=5)
        for decode in ("2", "1"):
            with world(model, "2", "1", PREFILL_TP="2", DECODE_TP=decode) as client:
                wait_until("all joined", lambda c=client: c.total("baton_workers", state="up") == 3)
                answers.append([client.complete("one world " * n, 12, temperature=0, ignore_eos=True)["token_ids"]
                                for n in (1, 20)])
    assert answers[0] == answers[1]


def test_the_script_says_what_is_wrong():
    def said(*args, **more):
        env = dict(dict(os.environ, BATON_BUILD=BUILD), **more)
        env.pop("OMPI_ALLOW_RUN_AS_ROOT", None)
        run = subprocess.run([SCRIPT, *args], env=env, capture_output=True, text=True, timeout=60)
        assert run.returncode == 2, run
        return run.stderr

    assert "which model?" in said()
    assert "no model /nowhere" in said("/nowhere")
    assert "nothing is built in /nowhere" in said(SCRIPT, BATON_BUILD="/nowhere")
    if os.getuid() == 0 and shutil.which("mpirun") is not None:
        assert "OMPI_ALLOW_RUN_AS_ROOT=1" in said(SCRIPT)
