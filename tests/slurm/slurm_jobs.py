# SPDX-License-Identifier: Apache-2.0
"""Jobs of slurm/baton.sbatch on a cluster of namespaces (cluster.sh), and clients of them. For the tests beside it."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/integration"))

from harness import BUILD, Skip, wait_until  # noqa: E402

CLUSTER = os.path.join(HERE, "cluster.sh")
LOAD = os.path.join(HERE, "load.py")
PROGRAMS = "/baton-(router|prefill-worker|decode-worker)"
PROGRAMS_ALONE = "^[^ ]*" + PROGRAMS  # and no shell or srun that starts them
OURS = re.compile("^(SLURM|SBATCH|BATON|PMIX|OMPI)_|^(MODEL|BUILD|ROUTERS|PREFILL|DECODE|JOIN|KEY_MUNGE)$")


def look_around():
    """Skip where no cluster can be."""
    if os.getuid() != 0:
        raise Skip("needs root")
    for command in ("slurmctld", "slurmd", "munged", "sbatch", "srun", "unshare", "nsenter", "ip"):
        if shutil.which(command) is None:
            raise Skip(f"no {command}")
    if subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--ipc", "--fork", "true"],
                      stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Skip("no namespaces")


class SlurmCluster:
    """Nodes n1 … nN, and a folder that they share."""

    def __init__(self, n_nodes, prefix="baton-slurm-", **environment):
        look_around()
        self.n_nodes = n_nodes
        # what the caller's own job or options may have left must not reach these
        self.environment = {k: v for k, v in os.environ.items() if not OURS.match(k)}
        self.environment.update(environment)
        self.directory = tempfile.mkdtemp(prefix=prefix)
        self.folder = None

    def __enter__(self):
        try:
            self.folder = self.script("up", str(self.n_nodes)).strip()
        except BaseException:
            shutil.rmtree(self.directory)
            raise
        self.environment["CLUSTER_DIR"] = self.folder
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and kind is not Skip:
            for name in sorted(os.listdir(self.directory)):
                if name.endswith((".out", ".log")):
                    print(f"--- {name}")
                    print("\n".join("    " + line for line in self.read(name).split("\n")[-150:]))
        if self.folder:
            self.script("down")
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def nodes(self):
        return [f"n{i + 1}" for i in range(self.n_nodes)]

    def script(self, *words):
        done = subprocess.run([CLUSTER, *words], env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, check=False, timeout=120)
        assert done.returncode == 0, f"cluster.sh {' '.join(words)}: {done.returncode} {done.stdout.decode()}"
        return done.stdout.decode()

    def on(self, node, *command, check=True, **variables):
        """@return what it prints"""
        done = subprocess.run([CLUSTER, "exec", node, *command], env=dict(self.environment, **variables),
                              cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
                              timeout=120)
        assert not check or done.returncode == 0, f"{node}: {' '.join(command)}: {done.returncode} {done.stdout.decode()}"
        return done.stdout.decode()

    def read(self, name):
        try:
            with open(os.path.join(self.directory, name), encoding="utf-8", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def sealed(self):
        """What a job needs to keep its key in a credential of this cluster's munged."""
        return {"KEY_MUNGE": "1", "BATON_MUNGE_SOCKET": f"{self.folder}/munge/munge.sock"}

    def pids(self, node, pattern):
        return [int(pid) for pid in self.on(node, "pgrep", "-f", pattern, check=False).split()]

    def shared_memory(self, node):
        return sorted(self.on(node, "ls", "-A", "/dev/shm").split())

    def wait_for_nodes(self):
        wait_until("all nodes are idle", lambda: self.on("ctl", "sinfo", "-h", "-p", "all", "-N", "-o", "%T", check=False).split()
                   == ["idle"] * self.n_nodes)


class Job:
    """One that serves, once it is ready."""

    def __init__(self, cluster, model, *options, script="slurm/baton.sbatch", arguments=(), **variables):
        self.cluster = cluster
        environment = dict(MODEL=model, BUILD=BUILD, BATON_THREADS="1", BATON_KV_MEMORY="64m",
                           BATON_WEIGHT_CACHE=os.path.join(cluster.directory, "weights"))
        environment.update(variables)
        self.id = cluster.on("n1", "sbatch", "--parsable", *options, os.path.join(ROOT, script), *arguments,
                             **environment).strip()
        self.name = self.id  # for Slurm's commands; ARRAY_TASK of a task of an array
        self.folder = None   # WORK_DIR, of an array that is given one

    def log(self):
        """@return the job's output, then the logs of its instances"""
        names = [name for name in sorted(os.listdir(self.cluster.directory)) if re.match(rf"baton-{self.id}-.*\.log$", name)]
        return "".join(self.cluster.read(name) for name in [f"baton-{self.id}.out", *names])

    def said(self, pattern, n=1):
        return len(re.findall(pattern, self.log())) >= n

    def wait_said(self, pattern, n=1, seconds=90):
        wait_until(f"job {self.id} says “{pattern}” {n} times", lambda: self.said(pattern, n), seconds)

    def wait_ready(self):
        last_line = " curl http://"  # of those that it says then
        wait_until(f"job {self.id} is ready", lambda: self.said(last_line) or self.state() == "FAILED", 120)
        assert self.said(last_line), "it failed"

    def state(self):
        found = re.search("JobState=([A-Z]*)", self.cluster.on("ctl", "scontrol", "show", "job", self.name, check=False))
        return found.group(1) if found else ""

    def routers(self):
        """ADDR:PORT of each."""
        return re.findall(r"ready after \d+ s: http://([0-9a-f.:[\]]+),", self.log())

    @property
    def work_dir(self):
        return os.path.join(self.folder or self.cluster.directory, f"baton-{self.id}")

    def api_key(self):
        with open(os.path.join(self.work_dir, "api-key"), encoding="utf-8") as f:
            return f.read().strip()

    def metric(self, address, name):
        """Sum of the series of a family; address is that of HTTP."""
        host, _, port = address.rpartition(":")
        text = self.cluster.on("ctl", "curl", "-s", "-m", "10", "-H", f"Authorization: Bearer {self.api_key()}",
                               f"http://{host}:{int(port) + 2}/metrics", check=False)
        return sum(float(line.rpartition(" ")[2]) for line in text.split("\n") if re.match(name + "[{ ]", line))

    def cancel(self, *options):
        self.cluster.on("ctl", "scancel", *options, self.name)

    def wait_gone(self, files=True):
        """No process of it, and no file or shared memory."""
        cluster = self.cluster
        wait_until("the job ends", lambda: self.state() in ("CANCELLED", "COMPLETED", "FAILED"))
        wait_until("no process is left", lambda: not any(cluster.pids(node, PROGRAMS) for node in cluster.nodes))
        left = {node: cluster.shared_memory(node) for node in cluster.nodes}
        assert not any(left.values()), f"in /dev/shm: {left}"
        assert not files or not os.path.exists(self.work_dir), os.listdir(self.work_dir)


class Load:
    """Clients on the controller's host, until they are told to end."""

    def __init__(self, job, bodies, parallel=8, repeat=True, routers=()):
        self.bodies = bodies
        what = os.path.join(job.cluster.directory, "load.json")
        self.out = os.path.join(job.cluster.directory, "load.jsonl")
        with open(what, "w", encoding="utf-8") as f:
            json.dump(dict(routers=list(routers) or job.routers(), key=job.api_key(), bodies=bodies, parallel=parallel, repeat=repeat), f)
        with open(self.out, "wb") as out:
            self.popen = subprocess.Popen([CLUSTER, "exec", "ctl", sys.executable, LOAD, what], stdin=subprocess.PIPE,
                                          stdout=out, env=job.cluster.environment)

    def answers(self):
        with open(self.out, encoding="utf-8") as f:
            return [json.loads(line) for line in f.read().split("\n")[:-1]]

    def wait_answers(self, more=1):
        """So many that were begun from now on."""
        since = time.monotonic()
        wait_until(f"{more} more answers",
                   lambda: sum("ids" in a and a["begin"] >= since for a in self.answers()) >= more)

    def end(self):
        """@return all answers"""
        self.popen.communicate(timeout=300)
        assert self.popen.returncode == 0, self.popen.returncode
        return self.answers()


def run_tests(tests, long_tests, words):
    """Those whose name has all words; without any the long ones where BATON_TEST_LONG is set.
    @return the exit status, 77 where all were skipped"""
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    if words or os.environ.get("BATON_TEST_LONG"):
        tests = tests + long_tests
    for test in tests:
        if not all(word in test.__name__ for word in words):
            continue
        begin = time.monotonic()
        try:
            test()
            outcome, line = "passed", f"ok {test.__name__} ({time.monotonic() - begin:.1f} s)"
        except Skip as why:
            outcome, line = "skipped", f"skip {test.__name__}: {why}"
        except Exception:  # whatever it is, the next one runs
            traceback.print_exc(file=sys.stdout)
            outcome, line = "failed", f"not ok {test.__name__} ({time.monotonic() - begin:.1f} s)"
        counts[outcome] += 1
        print(line, flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in counts.items()))
    return 1 if counts["failed"] else 0 if counts["passed"] else 77
