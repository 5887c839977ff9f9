# SPDX-License-Identifier: Apache-2.0
"""The same programs under mpirun: one MPI world, no --join, no key file."""
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile

from harness import BUILD, ROOT, Cluster, Skip, default_model, free_port, is_there, tiny_model, wait_until

SCRIPT = os.path.join(ROOT, "examples/mpirun.sh")


@contextlib.contextmanager
def world(model, *counts, **more):
    """A client of a cluster that examples/mpirun.sh started, ready; ended by SIGTERM."""
    with started([SCRIPT, model, *counts], model, **more) as (client, _):
        yield client


def descendants(pid):
    """Pids of its children and of theirs."""
    out = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
            for child in f.read().split():
                out += [int(child), *descendants(child)]
    return out


@contextlib.contextmanager
def started(command, model, **more):
    """A client of a cluster that a command started, ready, and its process; ended by SIGTERM."""
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
        run = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               start_new_session=True)
        try:
            def ready():
                assert run.poll() is None, f"mpirun ended with {run.returncode}"
                try:
                    return client.request("GET", "/v2/health/ready")[0] == 200
                except OSError:
                    return False
            wait_until("ready under mpirun", ready, 90)
            yield client, run
            if run.poll() is None:
                run.send_signal(signal.SIGTERM)
            run.wait(60)
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


def test_instances_of_several_ranks_run_in_one_mpi_world():
    """Two prefill instances of two ranks and one decode instance of two, of one, or of two stages: the same answer."""
    answers = []
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=8, kv_heads=4, head_dim=16, ffn=160, context=512, seed=5)
        for decode in (dict(DECODE_TP="2"), dict(DECODE_TP="1"), dict(DECODE_TP="2", DECODE_PP="2")):
            with world(model, "2", "1", PREFILL_TP="2", **decode) as client:
                wait_until("all joined", lambda c=client: c.total("baton_workers", state="up") == 3)
                answers.append([client.complete("one world " * n, 12, temperature=0, ignore_eos=True)["token_ids"]
                                for n in (1, 20)])
    assert answers[0] == answers[1] == answers[2]


def test_experts_are_dealt_to_ranks_in_one_mpi_world():
    """Two groups to four of two ranks each, then the other way round, with two stages: the same answer."""
    answers = []
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="glm4moe", layers=3, dim=128, heads=8, kv_heads=4, head_dim=16, rope_dims=8, context=512,
                           seed=5, experts=8, experts_used=2, expert_ffn=128, shared_ffn=64, dense_layers=1, ffn=160)
        for grids in (dict(PREFILL_TP="2", PREFILL_EP="2", DECODE_TP="4", DECODE_EP="2"),
                      dict(PREFILL_TP="4", PREFILL_EP="2", DECODE_TP="2", DECODE_EP="2", DECODE_PP="2")):
            with world(model, **grids) as client:
                answers.append([client.complete("one world " * n, 12, temperature=0, ignore_eos=True)["token_ids"]
                                for n in (1, 20)])
    assert answers[0] == answers[1]


LAUNCHER = os.path.join(BUILD, "launcher/baton-launch")


def test_orchestrator_mode_answers_and_leaks_nothing():
    """mpirun starts `baton serve` alone, which has the others spawned: instances of one rank and of two, for the same
    answer. It is ended once by its own SIGTERM and once by mpirun's."""
    answers = []
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=8, kv_heads=4, head_dim=16, ffn=160, context=512, seed=5)
        for tp in ("2", "1"):
            command = ["mpirun", "-np", "1", LAUNCHER, model, "--decode-tp", tp, "--reduction-parts", "2"]
            with started(command, model) as (client, run):
                answers.append([client.complete("spawned " * n, 12, temperature=0, ignore_eos=True)["token_ids"]
                                for n in (1, 20)])
                pids = descendants(run.pid)
                assert len(pids) == 4 + int(tp), pids  # launcher, orchestrator, router, prefill
                if tp == "2":
                    os.kill(next(pid for pid in pids if program_of(pid) == "baton-launch"), signal.SIGTERM)
                    assert run.wait(60) == 0
            wait_until("nothing is left", lambda pids=pids: not any(is_there(pid) for pid in pids))
    assert answers[0] == answers[1]


def program_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
        return f.read().strip()


def test_orchestrator_mode_names_unsupported_environments():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=1, dim=64, heads=2, kv_heads=1, ffn=64, context=128, seed=1)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "BATON_"))}
        for more, said in (({"PMIX_RANK": "0"}, "srun cannot start further processes"),
                           ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpirun -np 1"),
                           ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_MCA_orte_num_nodes": "2"}, "slurm/baton.sbatch")):
            run = subprocess.run([LAUNCHER, model, "--http", "127.0.0.1:0"], env=dict(env, **more), capture_output=True,
                                 text=True, timeout=60)
            assert run.returncode == 78 and said in run.stderr, (run.returncode, run.stderr)


def test_ranks_with_different_options_are_refused_by_name():
    """Each would compute other experts, or other parts of their sums, than the rest count on."""
    if shutil.which("mpirun") is None:
        raise Skip("no mpirun")
    sums = ["--reduction-parts", "2", "--moe-reduction-parts", "2"]
    env = dict(os.environ, BATON_KV_MEMORY="64m", BATON_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="llama", layers=2, dim=128, heads=8, kv_heads=4, context=512, experts=8, experts_used=2,
                           expert_ffn=128)
        worker = [os.path.join(BUILD, "worker/main/baton-decode-worker"), "--model", model, "--weight-cache", d, "--tp", "2"]
        router = [os.path.join(BUILD, "router/baton-router"), "--model", model, "--listen", "tcp://127.0.0.1:0", "--http",
                  "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        for other, why in (([*sums, "--ep", "2"], "--ep is 1 at rank 0 and 2 at rank 1"),
                           (["--moe-reduction-parts", "2"], "--reduction-parts is 2 at rank 0 and 0 at rank 1"),
                           (["--reduction-parts", "2", "--moe-reduction-parts", "4"],
                            "--moe-reduction-parts is 2 at rank 0 and 4 at rank 1")):
            run = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "1", *router, ":", "-np", "1", *worker,
                                  *sums, ":", "-np", "1", *worker, *other], env=env, capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=60)
            assert run.returncode != 0 and why in run.stderr + run.stdout, (why, run.returncode, run.stderr[-2000:])


def test_mpirun_script_reports_errors():
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
