# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment, from the first millisecond of the start on: nothing of a process outlives it.

Five moments without limits and three in control groups here, 200 of each with --long. BATON_KILLS_SEED repeats those of a run, which says its seed when it fails.
"""
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from cgroups import Group
from harness import BUILD, Skip, is_there, small_model, wait_until

SHORT, SHORT_BOUNDED, LONG = 5, 3, 200
BOUNDS = {"memory": {"limit_in_bytes": 900 << 20}, "cpu": {"cfs_period_us": 100000, "cfs_quota_us": 100000}, "pids": {"max": 128 + 64 * os.cpu_count()}}
MARK = "BT_TEST_KILLS"  # in the environment of all that a round starts
HOWS = ("kill launcher", "kill worker", "stop launcher", "kill all", "kill lone worker")


class Kills:
    """Rounds in a directory of their own, with a /dev/shm and segments of System V of their own."""

    def __init__(self, directory, seed, is_bounded):
        self.dir = directory
        # In control groups a launch finds by itself what fits.
        self.sizes = [] if is_bounded else ["--kv-memory", "64m", "--prefill-threads", "1", "--decode-threads", "1"]
        self.model = small_model(directory)
        self.run_dirs = os.path.join(directory, "run")
        os.mkdir(self.run_dirs)
        self.key = os.path.join(directory, "key")
        with os.fdopen(os.open(self.key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("ab" * 32)
        self.mark = f"{os.getpid()}.{seed}"
        self.random = random.Random(seed)
        self.lasts = {}  # how long a start takes here

    def popen(self, *args):
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
        env.pop("XDG_RUNTIME_DIR", None)
        env.update({"TMPDIR": self.run_dirs, "BATON_WEIGHT_CACHE": os.path.join(self.dir, "weights"), MARK: self.mark})
        with open(os.path.join(self.dir, "log"), "wb") as log:
            return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True)

    def log(self):
        with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def launch(self):
        return self.popen(os.path.join(BUILD, "launcher/baton-launch"), "--model", self.model, *self.sizes,
                          "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--drain-ms", "0")

    def lone_worker(self):
        """As mpirun, srun or a hand would start it: nobody watches it, and it looks for a router that is not there."""
        return self.popen(os.path.join(BUILD, "worker/main/baton-decode-worker"), "--model", self.model, "--kv-memory", "64m",
                          "--cluster-key-file", self.key, "--join", f"ipc://{self.dir}/none.ipc", "--run-dir", self.run_dirs,
                          "--threads", "1")

    def processes(self):
        """Of what the rounds started, whoever their parent is by now."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if mark in f.read().split(b"\0") and is_there(int(pid)):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def time_starts(self):
        for name, start, is_ready in (("launcher", self.launch, "Baton is ready"), ("lone worker", self.lone_worker, " ready: ")):
            begun = time.monotonic()
            process = start()
            wait_until(f"the {name} is ready", lambda word=is_ready: word in self.log())
            self.lasts[name] = time.monotonic() - begun
            process.terminate()
            assert process.wait(60) == 0, self.log()
        self.check_clean("after a start without a kill")

    def left(self):
        return {"/dev/shm": os.listdir("/dev/shm"), "run directories": os.listdir(self.run_dirs)}

    @staticmethod
    def segments():
        """Of System V, by their numbers."""
        with open("/proc/sysvipc/shm", encoding="ascii") as f:
            return {line.split()[1] for line in f.readlines()[1:]}

    def check_clean(self, when, but=()):
        left = self.left()
        left["run directories"] = [name for name in left["run directories"] if name not in but]
        assert not any(left.values()), f"{when}: {left}\n{self.log()}"

    def check_all_ended(self, when):
        wait_until(f"all processes have ended {when}", lambda: not self.processes())
        assert not os.listdir("/dev/shm"), (when, os.listdir("/dev/shm"))

    def round(self, how):
        """One start, and the end of it."""
        lone = how == "kill lone worker"
        before, segments = set(os.listdir(self.run_dirs)), self.segments()
        moment = self.random.uniform(0.001, 1.1 * self.lasts["lone worker" if lone else "launcher"])
        when = f"{how} {1000 * moment:.0f} ms after its start"
        process = self.lone_worker() if lone else self.launch()
        try:
            time.sleep(moment)  # this is drawn; nothing is waited for
            if how in ("kill launcher", "kill lone worker"):
                process.kill()
            elif how == "kill all":
                for pid in [process.pid, *self.processes()]:
                    self.signal(pid, signal.SIGKILL)
            elif how == "kill worker":
                self.signal(self.random.choice([pid for pid in self.processes() if pid != process.pid] or [0]), signal.SIGKILL)
            if how in ("kill worker", "stop launcher"):
                process.send_signal(signal.SIGTERM)
            process.wait(60)
            self.check_all_ended(when)
            # UCX makes some as a process starts, for microseconds; a launcher has it do without (not where there is RDMA).
            assert lone or os.path.exists("/sys/class/infiniband") or self.segments() == segments, when
            if how in ("kill worker", "stop launcher"):
                self.check_clean(f"{when}, of its own", before)
            return set(os.listdir(self.run_dirs))
        finally:
            for pid in self.processes():
                self.signal(pid, signal.SIGKILL)

    @staticmethod
    def signal(pid, number):
        try:
            if pid > 0:
                os.kill(pid, number)
        except ProcessLookupError:
            pass

    def check_next_start(self, when):
        """Removes all that those before it left."""
        process = self.launch()
        wait_until("the next start is ready", lambda: "Baton is ready" in self.log())
        process.terminate()
        process.wait(60)
        self.check_all_ended(when)
        self.check_clean(when)


def kill(rounds, seed, is_bounded):
    """Runs in a mount namespace of its own."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        kills = Kills(directory, seed, is_bounded)
        left = 0
        kills.time_starts()
        for i in range(rounds):
            left += bool(kills.round(HOWS[i % len(HOWS)]))
            if i % 20 == 19 or i == rounds - 1:
                kills.check_next_start(f"at the start after {i + 1} rounds")
    print(f"{rounds} kills, seed {seed}: nothing was left after the next start ({left} rounds ended with a directory to remove)")


def kill_in_namespaces(rounds, groups=()):
    """Groups: that all of it joins."""
    enter = ["unshare", "--user", "--map-root-user", "--mount", "--ipc", "sh", "-c"]
    if subprocess.run(enter + ["mount -t tmpfs none /dev/shm"], check=False, capture_output=True).returncode != 0:
        raise Skip("this user may not mount in a namespace of its own")
    rounds = LONG if os.environ.get("BATON_LONG") else rounds
    seed = int(os.environ.get("BATON_KILLS_SEED") or random.randrange(1 << 32))
    run = f"import test_kills; test_kills.kill({rounds}, {seed}, {bool(groups)})"
    join = "".join(f"echo $$ >{group.folder}/cgroup.procs && " for group in groups)
    done = subprocess.run(["sh", "-c", join + 'exec "$@"', "sh", *enter, 'mount -t tmpfs none /dev/shm && exec "$@"', "sh",
                           sys.executable, "-c", run],
                          cwd=os.path.dirname(os.path.abspath(__file__)), check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    print(done.stdout.strip())


def test_kill_at_any_moment_leaks_nothing():
    kill_in_namespaces(SHORT)


def test_kill_in_cgroups_leaks_nothing():
    """One CPU, 900 MiB, some hundred processes and threads: limits of the group above the one that a launch is in."""
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(Group(name, deeper=True, **limits)) for name, limits in BOUNDS.items()]
        kill_in_namespaces(SHORT_BOUNDED, groups)
        for group in groups:
            if group.controller == "memory":
                assert "oom_kill 0" in group.read("oom_control", group.folder)
