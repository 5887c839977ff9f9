# SPDX-License-Identifier: Apache-2.0
"""What breaks under a job while clients are served. usage: BATON_BUILD=… test_faults.py [PART OF A NAME …]

Layout, by steps.bash: routers on n1 and n2, prefill-0 on n1 and n2, prefill-1 on n3 and n4, decode-0 on n5, decode-1 on n1.
Every fault leaves one instance of each role; whatever was under way at it has to be answered, and right."""
import contextlib
import os
import signal
import sys
import tempfile
import time

from slurm_jobs import Job, Load, SlurmCluster, run_tests
from test_layouts import answers_on_one_machine, bodies, model_of

from harness import wait_until

N_BODIES = 40
N_CLIENTS = 8
WORKER = "^[^ ]*/baton-(prefill|decode)-worker .*--name={} "


class Faults:
    """A job with load, whose answers are all looked at in the end."""

    def __init__(self, cluster, model, want):
        self.cluster, self.want = cluster, want
        self.job = Job(cluster, model, "-N5", ROUTERS="2", PREFILL="2", PREFILL_TP="2", DECODE="2", RANKS_PER_NODE="1")
        self.job.wait_ready()
        for name in ("prefill-0", "prefill-1", "decode-0", "decode-1"):
            self.wait_joined(name, 1)
        self.load = Load(self.job, bodies(N_BODIES), parallel=N_CLIENTS)
        self.load.wait_answers(N_CLIENTS)
        self.may_fail = {}  # router: from when to when

    def wait_joined(self, name, n):
        """By both routers, for the n-th time."""
        self.job.wait_said(f"worker {name} joined", 2 * n)

    def kill(self, node, name, sig):
        """@return how many processes: of the ranks there"""
        pids = self.cluster.pids(node, WORKER.format(name))
        for pid in pids:
            self.cluster.on(node, "kill", f"-{int(sig)}", str(pid))
        return len(pids)

    def joined(self, name):
        return len(self.job.log().split(f"worker {name} joined")) - 1

    @contextlib.contextmanager
    def fault(self, what):
        """Within: it happens. Behind: what was under way then is answered, and more."""
        begin = time.monotonic()
        yield
        self.load.wait_answers(2 * N_CLIENTS)
        caught = []

        def answered():
            nonlocal caught
            caught = [a for a in self.load.answers() if a["begin"] <= begin + 0.5 <= a["end"] or a["begin"] <= begin < a["end"]]
            last = max((a["begin"] for a in self.load.answers()), default=0)
            return caught and last > max(a["end"] for a in caught)

        wait_until(f"{what}: what was under way is answered", answered)
        print(f"{what}: all that was under way was answered within {max(a['end'] for a in caught) - begin:.2f} s", flush=True)

    def finish(self):
        answers = self.load.end()
        wrong = [a for a in answers if "ids" in a and a["ids"] != self.want[a["i"]]]
        assert not wrong, f"{len(wrong)} of {len(answers)} are wrong: {wrong[0]}"
        failed = [a for a in answers if "error" in a]
        unexpected = [a for a in failed
                      if not any(a["end"] >= begin and a["begin"] <= end for begin, end in [self.may_fail.get(a["router"], (0, -1))])]
        assert not unexpected, f"{len(unexpected)} of {len(answers)} failed: {unexpected[0]}"
        print(f"{len(answers)} requests, {len(failed)} of them of a router that was killed", flush=True)
        self.job.cancel()
        self.job.wait_said("baton.sbatch: stopped", seconds=60)
        self.job.wait_gone()


@contextlib.contextmanager
def served():
    with tempfile.TemporaryDirectory() as d, SlurmCluster(5, CLUSTER_KILL_WAIT="25") as cluster:
        model = model_of(d)
        faults = Faults(cluster, model, answers_on_one_machine(model, bodies(N_BODIES), 2, 1, 2))
        yield faults
        faults.finish()


def test_rank_that_stops_or_dies():
    """Rank 0 or 1, while sums are under way: the instance is dead as a whole, is started again and joins."""
    with served() as f:
        for n, (node, sig) in enumerate((("n4", signal.SIGSTOP), ("n3", signal.SIGSTOP), ("n4", signal.SIGKILL))):
            with f.fault(f"{sig.name} of a rank on {node}"):
                assert f.kill(node, "prefill-1", sig) == 1
                # It drains and leaves where the other rank ended first, and Slurm woke and ended this one.
                f.job.wait_said("worker prefill-1 (?:lost|left)", 2 * (n + 1))
            f.wait_joined("prefill-1", n + 2)


def test_controller_and_a_router():
    with served() as f:
        with f.fault("controller ended and started"):
            for pid in f.cluster.pids("ctl", "^slurmctld"):
                f.cluster.on("ctl", "kill", str(pid))
            f.load.wait_answers(4 * N_CLIENTS)
            f.cluster.on("ctl", "slurmctld")
        with f.fault("SIGKILL of a decode worker behind it"):
            assert f.kill("n5", "decode-0", signal.SIGKILL) == 1
        f.wait_joined("decode-0", 2)
        with f.fault("SIGKILL of a router"):
            begin = time.monotonic()
            pids = f.cluster.pids("n2", "^[^ ]*/baton-router ")
            assert len(pids) == 1, pids
            f.cluster.on("n2", "kill", "-9", str(pids[0]))
        for name in ("prefill-0", "prefill-1", "decode-1"):
            f.job.wait_said(f"router-1: worker {name} joined", 2)
        f.may_fail[1] = (begin, time.monotonic())


def test_link_that_is_cut():
    """For five seconds: of a rank, and of a whole instance. Both are back in the end."""
    with served() as f:
        for node, name in (("n4", "prefill-1"), ("n5", "decode-0")):
            joined = f.joined(name)
            with f.fault(f"link of {node} cut for 5 s"):
                f.cluster.script("cut", node)
                since = time.monotonic()
                f.job.wait_said(f"worker {name} lost", joined)
                wait_until("five seconds are over", lambda since=since: time.monotonic() > since + 5)
                f.cluster.script("heal", node)
            wait_until(f"{name} is back", lambda name=name, joined=joined: f.joined(name) >= joined + 2)


def test_node_that_crashes():
    """One with a rank of an instance, one with a whole instance."""
    with served() as f:
        for node, name in (("n4", "prefill-1"), ("n5", "decode-0")):
            joined = f.joined(name)
            with f.fault(f"crash of {node}"):
                f.cluster.script("crash", node)
                f.job.wait_said(f"worker {name} lost", joined)
            f.cluster.script("boot", node)
            wait_until(f"{name} is back", lambda name=name, joined=joined: f.joined(name) >= joined + 2, 90)


def test_each_node_of_the_default_job_crashes():
    """A router, a prefill and a decode worker on a node each, and no spare: the only instance of a role moves to a node that
    is left; with the first node, where the script runs, the whole job begins anew on others, with the keys that it had."""
    asked = bodies(8)
    with tempfile.TemporaryDirectory() as d, SlurmCluster(4, CLUSTER_KILL_WAIT="5") as cluster:
        model = model_of(d)
        job = Job(cluster, model)
        job.wait_ready()
        want = {a["i"]: a["ids"] for a in Load(job, asked, repeat=False).end()}
        key = job.api_key()

        def is_whole():
            return {a["i"]: a.get("ids") for a in Load(job, asked, repeat=False, routers=job.routers()[-1:]).end()} == want

        def crash(node, name, home):
            begin = time.monotonic()
            cluster.script("crash", node)
            job.wait_said(f"{name} moves from {node}, which is down, to {home}")
            wait_until("the job is whole again", is_whole)
            print(f"crash of {node} with {name}: whole again after {time.monotonic() - begin:.1f} s", flush=True)

        crash("n3", "decode-0", "n1")
        cluster.script("boot", "n3")
        begin = time.monotonic()
        cluster.script("crash", "n1")
        job.wait_said("where the script of job [0-9]+ ran, is gone: the job goes back into the queue")
        print(f"crash of n1 with the script: the job is back in the queue after {time.monotonic() - begin:.1f} s", flush=True)
        job.wait_said(" curl http://", 2)
        print(f"crash of n1 with the script: it serves again after {time.monotonic() - begin:.1f} s", flush=True)
        assert job.api_key() == key, "another key"
        assert job.routers()[-1] == "10.77.0.12:8000", job.routers()
        assert is_whole()
        crash("n3", "prefill-0", "n2")
        job.cancel()
        job.wait_said("baton.sbatch: stopped", 1, seconds=60)


if __name__ == "__main__":
    sys.exit(run_tests([test_rank_that_stops_or_dies],
                       [test_controller_and_a_router, test_link_that_is_cut, test_node_that_crashes, test_each_node_of_the_default_job_crashes], sys.argv[1:]))
