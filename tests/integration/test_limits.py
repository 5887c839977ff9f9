# SPDX-License-Identifier: Apache-2.0
"""Limits of the machine: a launch in control groups of version 1, real ones, where root can make them, and in files of
version 2 in a mount namespace. It fits into them and names them, or says at once what is missing."""
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request

from cgroups import Group, own_group
from harness import BUILD, Skip, children_of, small_model, tiny_model, wait_until

LAUNCHER = os.path.join(BUILD, "launcher/baton-launch")
END_SECONDS = 60   # of a launch that cannot serve: it says so at once
NOBODY = 65533
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Serve:
    """A launch in these groups, behind a line of shell, with the options as they are."""

    def __init__(self, model, *args, groups=(), shell="", **popen):
        self.dir = tempfile.mkdtemp(prefix="baton-test-")
        os.chmod(self.dir, 0o777)  # it may be another user's launch
        words = [LAUNCHER, "--model", model, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                 "--lame-duck-ms", "0", "--drain-ms", "1000", *args]
        join = "".join(f"echo $$ >{shlex.quote(folder)}/cgroup.procs && " for folder in groups)
        environment = dict(os.environ, XDG_RUNTIME_DIR=self.dir, BATON_WEIGHT_CACHE=os.path.join(self.dir, "weights"))
        with open(os.path.join(self.dir, "out"), "wb") as out:
            self.popen = subprocess.Popen(["bash", "-c", f"{join}exec {shell}{shlex.join(words)}"], stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=out, env=environment, **popen)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.popen.terminate()
        try:
            self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        if kind is not None:
            print(self.output()[-6000:])
        shutil.rmtree(self.dir, ignore_errors=True)

    def output(self):
        with open(os.path.join(self.dir, "out"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def serves(self):
        """It becomes ready and answers."""
        wait_until("it is ready", lambda: "Baton is ready" in self.output() or self.popen.poll() is not None, 120)
        address = re.search(r"HTTP +http://(\S+)", self.output())
        assert address, f"it ended with {self.popen.poll()}"
        body = json.dumps({"prompt": "one two", "max_tokens": 4, "ignore_eos": True}).encode()
        with urllib.request.urlopen(f"http://{address[1]}/v1/completions", body, timeout=60) as answer:
            assert answer.status == 200

    def run_dir(self):
        return next(os.path.join(self.dir, name) for name in os.listdir(self.dir) if name.startswith("baton-"))

    def refuses(self):
        """It ends by itself and starts nothing. @return its last line"""
        status = self.popen.wait(END_SECONDS)
        lines = self.output().splitlines()
        assert status == 78 and lines, (status, lines)
        assert not any(" router: " in line or " decode-0: " in line for line in lines), lines
        return lines[-1]

    def says(self, text):
        assert text in self.output(), text


def test_launch_fits_into_its_cgroups():
    """One CPU and 900 MiB, limits of the group above: then 1,200 MiB, its own, and no process more than it says it has."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = small_model(directory)
        with Group("memory", deeper=True, limit_in_bytes=900 << 20) as memory, \
                Group("cpu", deeper=True, cfs_period_us=100000, cfs_quota_us=199999) as cpu, \
                Serve(model, groups=(memory.folder, cpu.folder)) as launch:
            launch.serves()
            launch.says(f"warn  baton: cores: the cgroup has the time of 1 CPU ({cpu.file('cfs_quota_us')}), and the workers have 2 threads")
            launch.says(f"baton: memory: the cgroup has 900 MiB and leaves 89")
            launch.says(f"decode-0: memory: the cgroup has 900 MiB and leaves 8")
            launch.says(f"({memory.file('limit_in_bytes')})")
            assert launch.output().count(" 1 threads and 0 on borrowed cores") == 2, launch.output()
            assert "oom_kill 0" in memory.read("oom_control", memory.folder)
        with Group("memory", limit_in_bytes=1200 << 20) as memory, Group("pids", max=64) as pids:
            with Serve(model, groups=(memory.folder, pids.folder)) as launch:
                needed = int(re.search(r" (\d+) or more there", launch.refuses())[1])
            pids.set("max", needed)
            with Serve(model, groups=(memory.folder, pids.folder)) as launch:
                launch.serves()
                launch.says("baton: memory: the cgroup has 1200 MiB and leaves 119")
                launch.says(f"info  baton: processes: up to {needed - 2} processes and threads are needed, and {needed - 2} of {needed} are "
                            f"left ({pids.file('max')})")
                assert int(pids.read("current")) > needed * 3 // 4, pids.read("current")  # it is no wild guess
                more = subprocess.run([LAUNCHER, "--admin", "load-model", f"late={model}", "--run-dir", launch.run_dir()], capture_output=True,
                                      text=True, timeout=60, check=False)
                assert more.returncode != 0 and re.search(rf"threads are needed, and \d+ of {needed} are left", more.stderr), more
            assert "max 0" in pids.read("events"), pids.read("events")
            assert "oom_kill 0" in memory.read("oom_control")


def test_insufficient_cgroup_limits_are_reported_before_start():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = small_model(directory)
        with Group("memory", deeper=True, limit_in_bytes=900 << 20) as memory, \
                Serve(model, "--kv-memory", "500m", groups=(memory.folder,)) as launch:
            line = launch.refuses()
            assert "error baton: memory: the workers take 10" in line and "KV pools 1000)" in line, line
            assert f" MiB are available of the cgroup's 900 ({memory.file('limit_in_bytes')}): " in line, line
            assert re.search(r"; --kv-memory 4\d\dm$", line), line
        for deeper, most in ((False, 64), (True, 64), (False, 40), (False, 3), (False, 1)):
            with Group("pids", deeper=deeper, max=most) as pids, Serve(model, groups=(pids.folder,)) as launch:
                line = launch.refuses()
                assert re.search(rf"error baton: processes: up to \d+ processes and threads are needed, and \d+ of {most} are left "
                                 rf"\({pids.file('max')}\); \d+ or more there", line), line


def in_group(group, *words):
    """@return exit status, output and errors of a command in this group"""
    done = subprocess.run(["bash", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group.folder, *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def test_check_doctor_and_programs_report_the_same_limits():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Group("pids", deeper=True, max=30) as group:
        model, key = small_model(directory), os.path.join(directory, "key")
        with open(key, "w", encoding="ascii") as f:
            f.write("ab" * 32)
        os.chmod(key, 0o600)
        said = rf"(\d+) of 30 .*left \({group.file('max')}\)"
        status, out, _ = in_group(group, LAUNCHER, "--check", "--json", "--model", model)
        found = [f for f in json.loads(out)["findings"] if f["about"] == "processes"]
        assert status == 1 and found[0]["level"] == "problem" and re.search(said, found[0]["text"]), out
        status, out, _ = in_group(group, "env", f"BATON_DOCTOR_LAUNCH={LAUNCHER}", sys.executable, "-B",
                                  os.path.join(ROOT, "tools/cli/doctor.py"), "--json")
        found = [f for f in json.loads(out)["findings"] if f["about"] == "processes"]
        assert status == 1 and found[0]["level"] == "problem" and re.search(said, found[0]["text"]), out
        group.set("max", 8)
        for program, options in (("router/baton-router", ["--listen", f"ipc://{directory}/r.ipc", "--http", "127.0.0.1:0"]),
                                 ("worker/main/baton-decode-worker", ["--join", f"ipc://{directory}/r.ipc", "--kv-memory", "16m"])):
            status, _, errors = in_group(group, os.path.join(BUILD, program), "--model", model, "--cluster-key-file", key, *options)
            assert status == 78, (program, status, errors)
            assert re.search(rf"error .*: up to \d+ threads are needed, and \d of 8 are left \({group.file('max')}\)", errors), errors


def test_ranks_that_only_fit_one_by_one_are_refused_with_the_sum():
    """Each of two ranks needs some 270 MiB, 256 of them for its half of the KV pool."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Group("memory", limit_in_bytes=400 << 20) as group:
        model = tiny_model(directory, architecture="llama", layers=2, dim=128, heads=8, kv_heads=4, context=512, experts=8, experts_used=2,
                           expert_ffn=128)
        key = os.path.join(directory, "key")
        with open(key, "w", encoding="ascii") as f:
            f.write("ab" * 32)
        os.chmod(key, 0o600)
        worker = [os.path.join(BUILD, "worker/main/baton-decode-worker"), "--model", model, "--weight-cache", directory, "--join",
                  f"ipc://{directory}/r.ipc", "--cluster-key-file", key, "--threads", "1"]
        status, _, errors = in_group(group, *worker, "--kv-memory", "512m", "--tp", "2", "--ep", "2")
        said = re.search(r"error .*2 ranks on this host: not enough memory: the model takes \d+ MiB and the KV pool 512 MiB, 3\d\d MiB are ",
                         errors)
        assert status == 78 and said, (status, errors)
        assert "oom_kill 0" in group.read("oom_control")


def test_too_low_process_limit_is_reported_at_once():
    """RLIMIT_NPROC, which does not bound root."""
    def few():
        resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))

    if os.geteuid() != 0:
        raise Skip("only root becomes another user")
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = small_model(directory)
        os.chmod(directory, 0o755)
        os.chmod(model, 0o644)
        try:
            subprocess.run([LAUNCHER, "--version"], user=NOBODY, check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.CalledProcessError) as why:
            raise Skip(f"another user may not run {LAUNCHER}: {why}") from why
        with Serve(model, user=NOBODY, group=NOBODY, extra_groups=[], preexec_fn=few) as launch:
            line = launch.refuses()
            assert re.search(r"error baton: processes: up to \d+ processes and threads are needed, and \d+ of 40 are left "
                             r"\(ulimit -u\); ulimit -u \d+ ", line), line


def test_oom_killed_process_is_reported():
    hog = "import sys\nheld = []\nwhile not sys.stdin.readline():\n    pass\nwhile True:\n    held.append(b'x' * (16 << 20))\n"
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Group("memory", limit_in_bytes=700 << 20) as memory, \
            Serve(small_model(directory), groups=(memory.folder,)) as launch:
        launch.serves()
        for pid in children_of(launch.popen.pid):
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                is_decode = f.read().startswith("baton-decode")
            if is_decode:  # the kernel takes it before the one that takes the memory
                with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as f:
                    f.write("1000")
        with subprocess.Popen(["python3", "-c", hog], stdin=subprocess.PIPE, text=True) as eater:
            try:
                with open(memory.folder + "/cgroup.procs", "w", encoding="ascii") as f:
                    f.write(str(eater.pid))
                eater.stdin.write("\n")
                eater.stdin.flush()
                told = rf"error baton: decode-0 was killed: .* \(limit 700 MiB, {memory.file('limit_in_bytes')}\)"
                wait_until("the kill is told", lambda: re.search(told, launch.output()), 60)
            finally:
                eater.kill()
        launch.says("ended by signal 9 (Killed), out of memory: the cgroup has 700 MiB; restarting in")


def in_files(place, parent):
    """A prefix of a command: a mount namespace with these files of version 2 instead of what is mounted there."""
    script = (f"mount -t tmpfs none {place} && mkdir -p {place}{parent}/deeper && echo '150000 100000' >{place}{parent}/cpu.max && "
              f"echo {700 << 20} >{place}{parent}/memory.max && echo {100 << 20} >{place}{parent}/memory.current && "
              f"echo 500 >{place}{parent}/pids.max && exec \"$0\" \"$@\"")
    return f"unshare -m bash -c {shlex.quote(script)} "


def assert_bounded(launch, where):
    launch.serves()
    launch.says(f"the cgroup has the time of 1 CPU ({where}/cpu.max), and the workers have 2 threads")
    launch.says(f"memory: the cgroup has 700 MiB and leaves 600 ({where}/memory.max)")
    launch.says(f"500 of 500 are left ({where}/pids.max)")
    assert launch.output().count(" 1 threads and 0 on borrowed cores") == 2, launch.output()


def test_cgroup_v2_limits_apply():
    """Its files, as a container has them at the root, and of a group that the own one lies in."""
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        raise Skip("no mount namespace can be made")
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = small_model(directory)
        with Serve(model, shell=in_files("/sys/fs/cgroup", "")) as launch:
            assert_bounded(launch, "/sys/fs/cgroup")


def test_nested_cgroup_v2_limits_apply():
    place = own_group("")
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Group("", deeper=True) as group:
        parent = group.top.removeprefix(place)
        with Serve(small_model(directory), groups=(group.folder,), shell=in_files(place, parent)) as launch:
            assert_bounded(launch, group.top)
