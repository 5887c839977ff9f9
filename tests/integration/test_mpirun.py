# SPDX-License-Identifier: Apache-2.0
"""The same programs under mpirun: one MPI world, no --join, no key file."""
import os
import shutil
import signal
import subprocess
import tempfile

from harness import BUILD, ROOT, Cluster, Skip, default_model, free_port, wait_until


def test_mpirun_answers_the_first_prompt():
    if shutil.which("mpirun") is None:
        raise Skip("no mpirun")
    model = default_model()
    http, metrics = free_port(), free_port()
    env = dict(os.environ, BATON_BUILD=BUILD, BATON_HTTP=f"127.0.0.1:{http}", BATON_METRICS=f"127.0.0.1:{metrics}",
               BATON_GRPC="127.0.0.1:0", BATON_KV_MEMORY="256m", BATON_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env.pop("BATON_READY_FD", None)
    client = Cluster(model)  # only its methods of a client
    env["BATON_WEIGHT_CACHE"] = os.path.join(client.dir, "weights")
    client.http, client.metrics_at = ("127.0.0.1", http), ("127.0.0.1", metrics)
    with tempfile.TemporaryFile() as log:
        run = subprocess.Popen([os.path.join(ROOT, "examples/mpirun.sh"), model], env=env, stdin=subprocess.DEVNULL,
                               stdout=log, stderr=log, start_new_session=True)
        try:
            def ready():
                assert run.poll() is None, f"mpirun ended with {run.returncode}"
                try:
                    return client.request("GET", "/v2/health/ready")[0] == 200
                except OSError:
                    return False
            wait_until("ready under mpirun", ready, 90)
            assert "Paris" in client.generate("The capital of France is", 16)
            name = "nv_trt_llm_disaggregated_serving_metrics"
            assert client.metric(name, disaggregated_serving_type="request_count") == 1
            assert client.metric(name, disaggregated_serving_type="kv_cache_transfer_ms") > 0
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
