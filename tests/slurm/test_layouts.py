# SPDX-License-Identifier: Apache-2.0
"""A job of several routers and of instances whose ranks are on several nodes. usage: BATON_BUILD=… test_layouts.py"""
import copy
import json
import os
import re
import sys
import tempfile
import time

from slurm_jobs import PROGRAMS_ALONE, ROOT, Job, Load, SlurmCluster, run_tests

from harness import BUILD, Cluster, tiny_model, wait_until

WORDS = "the quick brown fox jumps over a lazy dog while seven wizards boxed quietly near an old stone bridge".split()
N_REQUESTS = 200


def model_of(directory):
    return tiny_model(directory, layers=3, dim=96, heads=8, kv_heads=4, head_dim=16, ffn=160, context=1024, seed=5)


def bodies(n):
    """Prompts of 3 to 150 words, every second drawn with a seed of its own."""
    out = []
    for i in range(n):
        words = [WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(3 + i * 37 % 148)]
        body = dict(prompt=f"{i} " + " ".join(words), max_tokens=12, ignore_eos=True, return_token_ids=True, temperature=0)
        if i % 2 == 1:
            body.update(temperature=0.9, top_p=0.95, top_k=40, seed=1000 + i)
        out.append(body)
    return out


def answers_on_one_machine(model, asked, prefill_tp, decode_tp, sum_parts):
    more = ["--reduction-parts", str(sum_parts)]
    with Cluster(model, prefill=2, decode=2, kv_memory="64m", worker_args=more,
                 prefill_args=["--tp", str(prefill_tp)], decode_args=["--tp", str(decode_tp)]) as c:
        got = []
        for body in asked:
            status, answer = c.post("/v1/completions", body)
            assert status == 200, (status, answer)
            got.append(answer["choices"][0]["token_ids"])
    return got


def sent_by(cluster, node):
    """Bytes, of all that it sent."""
    return int(cluster.on(node, "cat", "/sys/class/net/eth0/statistics/tx_bytes"))


def peers_of(cluster, node):
    """Addresses that it has connections to."""
    lines = cluster.on(node, "ss", "-Htn", "state", "established").split("\n")
    return {line.split()[3].rsplit(":", 1)[0] for line in lines if line}


def test_two_routers_and_ranks_on_four_nodes():
    """200 requests, through both: the same tokens as of the same layout on one machine. KV goes rank to rank over the
    network, and nothing is left when the job is cancelled."""
    asked = bodies(N_REQUESTS)
    with tempfile.TemporaryDirectory() as d, SlurmCluster(4) as cluster:
        model = model_of(d)
        want = answers_on_one_machine(model, asked, 2, 1, 2)
        assert len({tuple(ids) for ids in want}) > N_REQUESTS / 2
        job = Job(cluster, model, "-N4", ROUTERS="2", PREFILL="2", PREFILL_TP="2", DECODE="2", RANKS_PER_NODE="1")
        job.wait_ready()
        assert len(job.routers()) == 2 and len(set(job.routers())) == 2, job.routers()
        ranks = {node: len(cluster.pids(node, "^[^ ]*/baton-prefill-worker .*--tp=2")) for node in cluster.nodes}
        assert ranks == dict.fromkeys(cluster.nodes, 1), ranks
        # n4 has rank 1 of prefill-1 alone
        begin = sent_by(cluster, "n4")

        got = Load(job, asked, parallel=8, repeat=False).end()
        wrong = [a for a in got if a.get("ids") != want[a["i"]]]
        assert not wrong, f"{len(wrong)} of {len(got)} differ, as {json.dumps(wrong[0])}, not {want[wrong[0]['i']]}"
        assert len(got) == N_REQUESTS
        assert {a["router"] for a in got} == {0, 1}
        handed = [job.metric(router, "baton_kv_transfers_total") for router in job.routers()]
        assert sum(handed) == N_REQUESTS, handed
        assert job.said("prefill-1: KV goes to decode-0 by network") and job.said("prefill-1: KV goes to decode-1 by network")
        decoders = {"10.77.0.11", "10.77.0.12"}
        assert decoders < peers_of(cluster, "n4"), "rank 1 of prefill-1 has no connection to them"
        kv = sum(job.metric(router, "baton_kv_transfer_bytes_total") for router in job.routers())
        sent = sent_by(cluster, "n4") - begin
        print(f"KV of all: {kv / 1e6:.1f} MB; the second rank of one instance sent {sent / 1e6:.1f} MB over the network")
        assert sent > kv / 16, (sent, kv)

        job.cancel()
        job.wait_said("baton.sbatch: stopped", seconds=40)
        assert job.said("router-0: ended with 0") and job.said("router-1: ended with 0")
        job.wait_gone()
        cluster.wait_for_nodes()


def test_heterogeneous_job_and_one_that_joins_it():
    """Routers on nodes of the first part, ranks on those of the second; then a job of one more decode worker, without which
    the cluster serves again when it has ended. The key is for all to see, and for their user alone to open."""
    asked = bodies(24)
    with tempfile.TemporaryDirectory() as d, SlurmCluster(4) as cluster:
        model = model_of(d)
        want = answers_on_one_machine(model, asked, 2, 1, 2)
        job = Job(cluster, model, "-N1", "-c2", ":", "-N2", "-c8", PREFILL="1", PREFILL_TP="2", DECODE="1", RANKS_PER_NODE="1",
                  **cluster.sealed())
        job.wait_ready()
        where = {node: [len(cluster.pids(node, f"^[^ ]*/baton-{what} ")) for what in ("router", "prefill-worker", "decode-worker")]
                 for node in cluster.nodes[:3]}
        assert where["n1"] == [1, 0, 0] and sum(w[1] for w in where.values()) == 2, where
        assert all(a["ids"] == want[a["i"]] for a in Load(job, asked, repeat=False).end())

        more = Job(cluster, model, "-N1", JOIN=re.search(r"JOIN=(\S+)", job.log()).group(1),
                   KEY_FILE=os.path.join(job.work_dir, "key"), SUM_PARTS="2", PREFILL="0", DECODE="1",
                   BATON_MUNGE_SOCKET=cluster.sealed()["BATON_MUNGE_SOCKET"])
        with open(os.path.join(job.work_dir, "key"), encoding="ascii") as f:
            assert f.read().startswith("MUNGE:")
        job.wait_said(f"worker job-{more.id}-decode-0 joined")
        before = job.metric(job.routers()[0], "baton_kv_transfers_total")
        job.wait_said(f"prefill-0: KV goes to job-{more.id}-decode-0")
        assert all(a["ids"] == want[a["i"]] for a in Load(job, asked, repeat=False).end())
        assert job.metric(job.routers()[0], "baton_kv_transfers_total") == before + len(asked)
        more.cancel()
        wait_until("the job that joined ends", lambda: more.state() == "CANCELLED")
        assert all(a["ids"] == want[a["i"]] for a in Load(job, asked, repeat=False).end())
        job.cancel()
        job.wait_gone()


def test_nodes_that_have_ipv6_alone():
    with tempfile.TemporaryDirectory() as d, SlurmCluster(3, CLUSTER_IPV6="1") as cluster:
        job = Job(cluster, model_of(d))
        job.wait_ready()
        assert job.routers() == ["[fd77::11]:8000"], job.routers()
        got = Load(job, bodies(24), repeat=False).end()
        assert all("ids" in a for a in got), got
        assert job.said("KV goes to decode-0 by network")
        job.cancel()
        job.wait_gone()


def test_stages_and_ranks_on_four_nodes():
    """Two stages of two ranks each, every rank on a node of its own: the same tokens."""
    asked = bodies(24)
    with tempfile.TemporaryDirectory() as d, SlurmCluster(4) as cluster:
        model = tiny_model(d, layers=4, dim=96, heads=8, kv_heads=4, head_dim=16, ffn=160, context=1024, seed=5)
        want = answers_on_one_machine(model, asked, 2, 1, 2)
        job = Job(cluster, model, "-N4", PREFILL="1", PREFILL_TP="2", PREFILL_PP="2", DECODE="1", DECODE_PP="2", RANKS_PER_NODE="1")
        job.wait_ready()
        counts = {node: len(cluster.pids(node, "^[^ ]*/baton-prefill-worker .*--pp=2")) for node in cluster.nodes}
        assert counts == dict.fromkeys(cluster.nodes, 1), counts
        got = Load(job, asked, repeat=False).end()
        assert all(a.get("ids") == want[a["i"]] for a in got), got
        job.cancel()
        job.wait_gone()


def test_one_world():
    """Every role in one srun, ranks on two nodes; a task that dies ends all of them, and so does scancel."""
    asked = bodies(24)
    with tempfile.TemporaryDirectory() as d, SlurmCluster(2) as cluster:
        model = model_of(d)
        want = answers_on_one_machine(model, asked, 2, 1, 2)
        for signalled in (True, False):
            job = Job(cluster, model, "-N2", "--ntasks-per-node=2", script="slurm/one-world.sbatch", PREFILL_TP="2",
                      HTTP="10.77.0.11:8000", **cluster.sealed())
            address = "10.77.0.11:8000"
            wait_until("it serves", lambda: cluster.on("ctl", "curl", "-s", "-o", cluster.directory + "/ready", "-w", "%{http_code}",
                                                       f"http://{address}/v2/health/ready", check=False) == "200")
            counts = {node: len(cluster.pids(node, PROGRAMS_ALONE)) for node in cluster.nodes}
            assert counts == {"n1": 2, "n2": 2}, counts
            got = Load(job, asked, repeat=False, routers=[address]).end()
            assert all(a["ids"] == want[a["i"]] for a in got), got
            assert "worker prefill-0 joined" in cluster.read(f"baton-{job.id}-0.log"), "no log of task 0"
            assert "rank 1 of 2" in cluster.read(f"baton-{job.id}-2.log"), "no log of task 2"
            if signalled:
                job.cancel()
            else:
                for pid in cluster.pids("n2", "^[^ ]*/baton-decode-worker "):
                    cluster.on("n2", "kill", "-KILL", str(pid))
            job.wait_gone()
            assert job.state() == ("CANCELLED" if signalled else "FAILED"), job.state()


def test_end_that_was_announced():
    """What is under way at the time limit's signal is answered. A worker that does not end is killed at the end of the
    time for it, and nothing is left then either."""
    asked = [dict(body, max_tokens=400) for body in bodies(8)]
    with tempfile.TemporaryDirectory() as d, SlurmCluster(3) as cluster:
        model = model_of(d)
        job = Job(cluster, model, DRAIN_SECONDS="30", BATON_LAME_DUCK_MS="0")
        job.wait_ready()
        load = Load(job, asked, parallel=8)
        load.wait_answers(8)
        signalled = time.monotonic()
        job.cancel("--batch", "--signal=USR1")
        job.wait_said("baton.sbatch: stopped")
        answers = load.end()
        under_way = [a for a in answers if a["begin"] < signalled <= a["end"]]
        assert under_way and all("ids" in a for a in under_way), under_way
        job.wait_gone()
        assert job.state() == "COMPLETED", job.state()

        job = Job(cluster, model, DRAIN_SECONDS="1")
        job.wait_ready()
        for pid in cluster.pids("n3", "^[^ ]*/baton-decode-worker "):
            cluster.on("n3", "kill", "-STOP", str(pid))
        job.cancel("--batch", "--signal=USR1")
        job.wait_said("not ended within 1 s: killed", seconds=20)
        job.wait_gone()


def test_preemption_and_a_spare_node():
    """A job of another partition takes the nodes: what is under way is answered first, and the job begins anew behind it. A
    job whose node crashes while it has a spare."""
    asked = [dict(body, max_tokens=400) for body in bodies(8)]
    with tempfile.TemporaryDirectory() as d, SlurmCluster(4) as cluster:
        model = model_of(d)
        job = Job(cluster, model, "-N4", PREFILL="1", DECODE="1", DRAIN_SECONDS="10", BATON_LAME_DUCK_MS="0")
        job.wait_ready()
        key = job.api_key()
        load = Load(job, asked)
        load.wait_answers(8)
        first = time.monotonic()
        other = cluster.on("n1", "sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "--wrap", "hostname").strip()
        wait_until("the other job has the nodes", lambda: "JobState=COMPLETED" in cluster.on(
            "ctl", "scontrol", "show", "job", other))
        under_way = [a for a in load.end() if a["begin"] < first <= a["end"]]
        assert under_way and all("ids" in a for a in under_way), under_way

        def serves_again(n):
            """Slurm would let it wait until its credentials have expired. Its output goes on in the same file."""
            if job.state() == "PENDING":
                cluster.on("ctl", "scontrol", "update", f"JobId={job.id}", "StartTime=now", check=False)
            return job.said(" curl http://", n)

        wait_until("it serves again", lambda: serves_again(2))
        assert cluster.read(f"baton-{job.id}-router-0.log").count(" serving ") == 2, "the log of before is lost"
        assert "Restarts=1" in cluster.on("ctl", "scontrol", "show", "job", job.id)
        assert job.api_key() == key, "another key"

        want = Load(job, asked, repeat=False).end()
        cluster.script("crash", "n3")
        job.wait_said("decode-0 moves from n3, which is down, to n4")
        job.wait_said("worker decode-0 joined", 3)
        got = Load(job, asked, repeat=False).end()
        assert {a["i"]: a["ids"] for a in got} == {a["i"]: a["ids"] for a in want}
        cluster.script("boot", "n3")
        cluster.on("ctl", "scontrol", "requeue", job.id)
        wait_until("it serves again", lambda: serves_again(3))
        assert job.api_key() == key, "another key"
        job.cancel()
        job.wait_said("baton.sbatch: stopped", seconds=60)


def shared_script(cluster, script="baton.sbatch"):
    """A copy for nodes that others use, too, as SLURM.md says. @return its path"""
    for name in (script, "steps.bash"):
        with open(os.path.join(ROOT, "slurm", name), encoding="utf-8") as f:
            text = f.read().replace("#SBATCH --exclusive\n", "")
        with open(os.path.join(cluster.directory, name), "w", encoding="utf-8") as f:
            f.write(text)
    return os.path.join(cluster.directory, script)


def tasks_of(job):
    """@return a Job for each task of this array, the one first that has the array's own number"""
    found = []

    def all_found():
        shown = job.cluster.on("ctl", "scontrol", "show", "job", "-o", job.id)
        found[:] = re.findall(r"^JobId=(\d+) ArrayJobId=(\d+) ArrayTaskId=(\d+) ", shown, re.M)
        return len(found) == 2

    wait_until("both tasks have begun", all_found)
    tasks = []
    for number, array, task in sorted(found, key=lambda f: f[0] != f[1]):
        tasks.append(copy.copy(job))
        tasks[-1].id, tasks[-1].name = number, f"{array}_{task}"
    assert tasks[0].id == job.id, found
    return tasks


def test_array_of_two_tasks_on_a_node():
    """Each task is a cluster of its own: ports, keys and output. The one whose number is also the array's ends, or is put back
    into the queue, and the other one serves on."""
    with tempfile.TemporaryDirectory() as d, SlurmCluster(1) as cluster:
        model = model_of(d)

        def statuses(task, addresses):
            return [cluster.on("ctl", "curl", "-s", "-o", cluster.directory + "/answer", "-w", "%{http_code}", "-H",
                               f"Authorization: Bearer {task.api_key()}", f"http://{address}/v1/models") for address in addresses]

        for given in (None, os.path.join(cluster.directory, "keys")):
            more = {} if given is None else {"WORK_DIR": given}
            job = Job(cluster, model, "-N1", "-c2", "--array=0-1", script=shared_script(cluster), ROUTERS="2", **more)
            first, other = tasks_of(job)
            for task in (first, other):
                task.folder = given
                task.wait_ready()
                assert task.said(rf"job {task.id} \({task.name}\): 2 router"), "it does not say which task it is"
                logs = [f"baton-{task.id}-{name}.log" for name in ("decode-0", "prefill-0", "router-0", "router-1")]
                assert all(cluster.read(name) for name in logs), f"none of {logs}"
            where = [first.routers(), other.routers()]
            assert len(set(where[0] + where[1])) == 4, where
            assert statuses(first, where[0] + where[1]) == ["200", "200", "401", "401"]
            assert statuses(other, where[0] + where[1]) == ["401", "401", "200", "200"]
            if given is None:
                first.cancel("--batch", "--signal=USR1")
                first.wait_said("baton.sbatch: stopped", seconds=40)
                wait_until("the first one has ended", lambda task=first: task.state() == "COMPLETED")
                assert not os.path.exists(first.work_dir), os.listdir(first.work_dir)
            else:
                cluster.on("ctl", "scontrol", "requeue", first.name)
                first.wait_said("baton.sbatch: stopped", seconds=40)
                assert os.path.exists(os.path.join(first.work_dir, "api-key")), "its clients have lost their key"
            assert statuses(other, where[1]) == ["200", "200"] and other.state() == "RUNNING"
            assert not other.said("stopping|ended with"), "it lost something"
            for task in (first, other):
                task.cancel()
            other.wait_gone()


def test_array_of_worlds_on_a_node():
    """Each task has ports of its own, and logs beside its output."""
    with tempfile.TemporaryDirectory() as d, SlurmCluster(1) as cluster:
        model = model_of(d)
        os.mkdir(os.path.join(cluster.directory, "logs"))
        job = Job(cluster, model, "-N1", "--ntasks-per-node=3", "--array=0-1", "--output=logs/%j.out",
                  script=shared_script(cluster, "one-world.sbatch"))
        first, other = tasks_of(job)
        for task in (first, other):
            wait_until("it serves", lambda task=task: re.search("worker decode-0 joined", cluster.read(f"logs/baton-{task.id}-0.log")))
        where = [re.search(r"^http://(\S+),", cluster.read(f"logs/baton-{task.id}-0.log")).group(1) for task in (first, other)]
        assert len(set(where)) == 2, where
        first.cancel("--batch", "--signal=USR1")
        wait_until("the first one has ended", lambda: first.state() in ("COMPLETED", "FAILED", "CANCELLED"))
        assert other.state() == "RUNNING" and "stopping" not in cluster.read(f"logs/baton-{other.id}-0.log")
        other.cancel()
        other.wait_gone()


def last_line(job, begin):
    """@return the line of its output that begins so, behind time and name"""
    return re.findall(rf"baton\.sbatch: ({begin}.*)", job.log())[-1]


def test_folders_with_blanks():
    """Scripts, programs, model, keys and output are in folders with blanks and brackets; the script has an argument with one.
    The lines to paste that the job prints work as they are."""
    with tempfile.TemporaryDirectory(prefix="a model (1) ") as d, SlurmCluster(1, prefix="baton slurm (1) ") as cluster:
        model = model_of(d)
        build = os.path.join(d, "build")
        os.symlink(BUILD, build)
        job = Job(cluster, model, "-N1", "-c2", script=shared_script(cluster), arguments=["an argument"], BUILD=build)
        job.wait_ready()
        answer = cluster.on("ctl", "bash", "-c", last_line(job, "curl "))
        assert "text_output" in answer, answer
        line = last_line(job, "BATON_API_KEY=")
        assert " baton ask --url http://" in line, line
        said = cluster.on("ctl", "bash", "-c", f"cd {ROOT} && {line.replace(' baton ask', ' ./baton ask')}")
        assert said.strip(), "no answer"
        more = last_line(job, "more workers: ").partition(": ")[2]
        told = cluster.on("ctl", "bash", "-c", f'{more}; printf %s "$KEY_FILE"')
        assert told == os.path.join(job.work_dir, "key"), told

        def steps_begun():
            with open(os.path.join(cluster.folder, "n1/slurmd.log"), encoding="utf-8", errors="replace") as f:
                return f.read().count("launch task StepId=")

        begun = steps_begun()
        for pid in cluster.pids("n1", "^slurmd"):
            cluster.on("n1", "kill", str(pid))
        wait_until("slurmd has ended", lambda: not cluster.pids("n1", "^slurmd$"))
        cluster.on("n1", "slurmd")
        wait_until("the script looks whose processes are there", lambda: steps_begun() > begun)
        wait_until("it has looked", lambda: "ps" not in cluster.on("ctl", "squeue", "-h", "-s", "-o", "%j").split())
        for pid in cluster.pids("n1", "^/[^=]*/baton-decode-worker --tp"):
            cluster.on("n1", "kill", "-KILL", str(pid))
        job.wait_said("worker decode-0 joined", 2)
        assert not job.said("lost its node"), "a process that is there was not found"
        begins = {name: len(re.findall(rf" {name}: ready:", cluster.read(f"baton-{job.id}-{name}.log"))) for name in ("prefill-0", "decode-0")}
        assert begins == {"prefill-0": 1, "decode-0": 2}, begins
        assert ": ready:" not in cluster.read(f"baton-{job.id}.out"), "an instance writes to the job's output"
        job.cancel()
        job.wait_gone()

        job = Job(cluster, model, "-N1", "--ntasks-per-node=3", script=shared_script(cluster, "one-world.sbatch"), BUILD=build)
        wait_until("it serves", lambda: "worker decode-0 joined" in cluster.read(f"baton-{job.id}-0.log") or job.state() == "FAILED")
        assert job.state() == "RUNNING", job.log()
        line = re.search("^BATON_API_KEY=.* baton ask --url http://.*", cluster.read(f"baton-{job.id}-0.log"), re.M).group()
        said = cluster.on("ctl", "bash", "-c", f"cd {ROOT} && {line.replace(' baton ask', ' ./baton ask')}")
        assert said.strip(), "no answer"
        job.cancel()
        job.wait_gone()


def test_two_jobs_on_a_node():
    """Each has ports and a key of its own, at the node's address, which is not what its name says, and three steps share its
    two processors. A job that is told the port of another one's server is not ready, and says so."""
    with tempfile.TemporaryDirectory() as d, SlurmCluster(1) as cluster:
        model = model_of(d)
        script = shared_script(cluster)
        with open(os.path.join(cluster.folder, "etc/hosts"), "r+", encoding="ascii") as f:  # as Debian does
            text = f.read().replace("10.77.0.11 n1", "127.0.1.1 n1")
            f.seek(0)
            f.truncate()
            f.write(text)
        jobs = [Job(cluster, model, "-N1", "-c2", script=script) for _ in range(2)]
        for job in jobs:
            job.wait_ready()
            assert job.said("n1 has 2 processors for 3 ranks, which share them")
        where = [job.routers()[0] for job in jobs]
        assert len(set(where)) == 2 and all(w.startswith("10.77.0.11:") for w in where), where
        for job in jobs:
            statuses = [cluster.on("ctl", "curl", "-s", "-o", cluster.directory + "/answer", "-w", "%{http_code}", "-H",
                                   f"Authorization: Bearer {job.api_key()}", f"http://{address}/v1/models") for address in where]
            assert statuses == [("200" if job.routers()[0] == address else "401") for address in where], statuses

        third = Job(cluster, model, "-N1", "-c2", script=script, HTTP=where[0])
        third.wait_said("router-0 on n1 ended with")
        assert not third.said("baton.sbatch: ready"), "it calls the server of another job its own"
        assert third.said("another port: HTTP, GRPC, METRICS and CONTROL_PORT"), "no advice"
        for job in jobs + [third]:
            job.cancel()
        for job in jobs:
            job.wait_said("baton.sbatch: stopped", seconds=40)


def test_net_device_has_an_address():
    """An interface, the first of a list, and the interface of an RDMA device, which keeps its own name for UCX."""
    with SlurmCluster(1) as cluster:
        look = f"""mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/infiniband/mlx5_0/device/net/eth0
            . {os.path.join(ROOT, "slurm/steps.bash")} && ADDRESSES= net_of_node"""
        for device in ("eth0", "eth0,lo", "mlx5_0:1", "mlx5_0:1,mlx5_1:1"):
            said = cluster.on("n1", "unshare", "--mount", "bash", "-c", look, NET_DEVICE=device).strip()
            assert said == f"{device} 10.77.0.11", (device, said)
        assert cluster.on("n1", "bash", "-c", look.split("\n")[1], NET_DEVICE="mlx5_0:1", check=False) == "", "there is none"


if __name__ == "__main__":
    sys.exit(run_tests([test_two_routers_and_ranks_on_four_nodes, test_heterogeneous_job_and_one_that_joins_it, test_one_world,
                        test_two_jobs_on_a_node, test_folders_with_blanks, test_array_of_two_tasks_on_a_node,
                        test_array_of_worlds_on_a_node, test_net_device_has_an_address, test_end_that_was_announced], [test_nodes_that_have_ipv6_alone, test_stages_and_ranks_on_four_nodes, test_preemption_and_a_spare_node], sys.argv[1:]))
