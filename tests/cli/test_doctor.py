#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./baton doctor on machines that are wrong: really so where that is cheap, else made of files under another root. Each
is named, with its cure."""
import fcntl
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

from serving import CLI, ROOT
import doctor

BUILD = os.environ.get("BATON_BUILD", os.path.join(ROOT, "build"))
LAUNCH = os.path.join(BUILD, "launcher/baton-launch")
AVX2 = "fpu sse2 avx avx2 fma f16c"
AVX512 = AVX2 + " avx512f avx512bw avx512dq avx512vl avx512_vnni"
GIB = 1 << 30


def good_machine():
    """Files of a machine on which all is well: two cores, 16 GiB, Linux 6.8."""
    limits = "Limit                     Soft Limit           Hard Limit           Units\n" + "".join(
        f"{name:<25} {soft:<20} {hard:<20} {unit}\n" for name, soft, hard, unit in (
            ("Max file size", "unlimited", "unlimited", "bytes"), ("Max data size", "unlimited", "unlimited", "bytes"),
            ("Max core file size", "0", "unlimited", "bytes"), ("Max processes", "60000", "60000", "processes"),
            ("Max open files", "1024", "1048576", "files"), ("Max locked memory", "8388608", "8388608", "bytes"),
            ("Max address space", "unlimited", "unlimited", "bytes")))
    return {
        "/proc/cpuinfo": f"processor\t: 0\nmodel name\t: Test CPU\nflags\t\t: {AVX512} avx512_bf16\n",
        "/proc/self/status": "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nSeccomp:\t0\nCpus_allowed_list:\t0-1\n",
        "/proc/self/limits": limits, "/proc/self/cgroup": "0::/\n",
        "/proc/self/mounts": "/dev/vda1 / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n",
        "/proc/self/ns/ipc": "", "/proc/self/ns/pid": "", "/proc/sys/kernel/random/boot_id": "x\n",
        "/proc/sys/kernel/hostname": "host\n", "/proc/sys/kernel/osrelease": "6.8.0-test\n", "/proc/sys/vm/overcommit_memory": "0\n", "/proc/sys/vm/memfd_noexec": "0\n",
        "/proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {14 * GIB // 1024} kB\n",
        "/proc/net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n",
        "/sys/devices/system/cpu/online": "0-1\n",
        "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0\n",
        "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled": "always within_size advise [never] deny force\n",
        "/sys/class/net/lo/flags": "0x9\n", "/sys/class/net/lo/operstate": "unknown\n", "/sys/class/net/lo/mtu": "65536\n",
        "/dev/shm/.keep": "", "/dev/shm.room": f"{8 * GIB} {8 * GIB}\n",
    }


class Doctor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="baton-test-")
        self.addCleanup(self.folder.cleanup)
        self.home = os.path.join(self.folder.name, "home")
        self.bin = os.path.join(self.folder.name, "bin")
        os.mkdir(self.home)
        os.mkdir(self.bin)
        for name in ("python3", "sh", "bash", "sed"):
            if shutil.which(name):
                os.symlink(shutil.which(name), os.path.join(self.bin, name))

    def fake(self, name, script):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + script + "\n")
        os.chmod(path, 0o755)

    def machine(self, **changes):
        """A root with the good machine and these files of it changed; None: it is not there. Names are paths, as good_machine()
        has them."""
        root = tempfile.mkdtemp(dir=self.folder.name)
        for path, text in {**good_machine(), **changes}.items():
            if text is not None:
                os.makedirs(os.path.dirname(root + path), exist_ok=True)
                with open(root + path, "w", encoding="ascii") as f:
                    f.write(text)
        return root

    def where(self, root, environment, launch):
        return {"PATH": self.bin if root else os.environ["PATH"], "HOME": self.home, "BATON_DOCTOR_LAUNCH": launch,
                "XDG_RUNTIME_DIR": "/tmp", "BATON_DOCTOR_ROOT": root or "", **(environment or {})}

    def run_doctor(self, *args, code, environment=None, launch="/nowhere", before=None, prefix=()):
        done = subprocess.run([*prefix, sys.executable, "-B", os.path.join(CLI, "doctor.py"), *args], capture_output=True, text=True,
                              timeout=120, env=self.where(None, environment, launch), check=False, preexec_fn=before)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "", done.stderr)
        return done.stdout

    def findings(self, *args, code=None, root=None, environment=None, launch="/nowhere", **more):
        if root:  # many of them, so in this process
            found = doctor.look(list(args), self.where(root, environment, launch))
            self.assertIn(code, (None, 1 if found.count("problem") else 0), found.rows)
            return found.rows
        more.update(environment=environment, launch=launch)
        return json.loads(self.run_doctor(*args, "--json", code=code, **more))["findings"]

    def of(self, about, *args, **more):
        return [f for f in self.findings(*args, **more) if f["about"] == about]

    def assert_found(self, level, about, text, fix, *args, **more):
        """There is such a finding, and its cure is this line. @return all"""
        found = self.findings(*args, **more)
        hits = [f for f in found if f["level"] == level and f["about"] == about and text in f["text"]]
        self.assertEqual(len(hits), 1, json.dumps(found, indent=1))
        self.assertIn(fix, hits[0]["fix"])
        return found

    def changed(self, level, about, text, fix, *args, environment=None, **files):
        """The good machine with one thing wrong: that is told, and nothing else is worse than a note."""
        found = self.assert_found(level, about, text, fix, *args, root=self.machine(**files), environment=environment)
        self.assertEqual([f for f in found if f["level"] in ("warning", "problem") and f["about"] not in (about, "packages")], [])

    def bounded(self, level, about, text, fix, *args, **files):
        """As changed(), where a launcher that is built reads the limits of this machine of files."""
        if not os.access(LAUNCH, os.X_OK):
            self.skipTest("nothing is built")
        self.fake("baton-launch", f"""[ "$1" != --print-limits ] || exec {LAUNCH} "$@" """)
        found = self.assert_found(level, about, text, fix, *args, root=self.machine(**files), launch=os.path.join(self.bin, "baton-launch"))
        self.assertEqual([f for f in found if f["level"] in ("warning", "problem") and f["about"] not in (about, "packages", "build")], [])

    # ---- machines of files ----

    def test_doctor_reports_no_problem_on_a_good_machine(self):
        self.fake("dpkg-query", 'shift 2; for p; do echo "$p install ok installed"; done')
        found = self.findings(root=self.machine(), code=0)
        self.assertEqual([f for f in found if f["level"] in ("warning", "problem")], [])
        self.assertEqual([f["text"] for f in found if f["about"] == "cpu"], ["Test CPU: kernels of tier avx512, with bf16 products"])
        said = {f["about"] for f in found}
        for room in ("cpu", "cores", "memory", "large pages", "/dev/shm", "descriptors", "cgroups", "kernel", "clock", "ports",
                     "interface", "weight cache", "leftovers", "packages", "build", "mpi", "gpu"):
            self.assertIn(room, said)

    def test_instruction_sets(self):
        for flags, level, text in ((AVX2, "note", "tier avx2: it has no avx512f"), ("fpu sse2", "warning", "tier plain, many times slower"),
                                   (AVX512.replace(" avx512_vnni", ""), "note", "it has no avx512_vnni"),
                                   (AVX2.replace("f16c", ""), "warning", "it has no f16c")):
            self.assert_found(level, "cpu", text, "QEMU: -cpu host", root=self.machine(**{
                "/proc/cpuinfo": f"model name\t: T\nflags\t\t: {flags}\n"}))
        self.changed("warning", "cpu", "BATON_CPU_TIER=sse is no tier", "unset BATON_CPU_TIER", environment={"BATON_CPU_TIER": "sse"})
        arm = self.of("cpu", root=self.machine(**{"/proc/cpuinfo": "CPU part\t: 0xd40\nFeatures\t: fp asimd i8mm bf16\n"}))
        self.assertIn("of ARM there are the portable kernels alone, though it has asimd, bf16, i8mm", arm[0]["text"])
        amx = self.of("cpu", root=self.machine(**{"/proc/cpuinfo": f"flags\t\t: {AVX512} amx_bf16 amx_tile\n"}))
        self.assertEqual(amx[1]["text"], "amx_bf16, amx_tile: this version does not use AMX")

    def test_cores(self):
        status = good_machine()["/proc/self/status"]
        self.changed("warning", "cores", "1 of 2 cores may be used: prefill and decode share one", "taskset",
                     **{"/proc/self/status": status.replace("0-1", "1")})
        self.bounded("warning", "cores", "for the time of 1 (/sys/fs/cgroup/cpu.max)", "quota of the cgroup",
                     **{"/sys/fs/cgroup/cpu.max": "199999 100000\n"})
        self.bounded("warning", "cores", "for the time of 1 (/sys/fs/cgroup/a/cpu.max)", "quota of the cgroup",
                     **{"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/cpu.max": "100000 100000\n"})
        self.bounded("warning", "cores", "for the time of 1 (/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us)", "quota of the cgroup",
                     **{"/proc/self/cgroup": "3:cpu,cpuacct:/x\n", "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "150000\n",
                        "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n"})
        smt = self.of("cores", root=self.machine(**{f"/sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": "0-1\n"
                                                    for i in range(2)}))
        self.assertIn("they are 1 physical ones", smt[0]["text"])
        nodes = self.of("cores", root=self.machine(**{f"/sys/devices/system/node/node{i}/cpulist": f"{i}\n" for i in range(2)}))
        self.assertIn("2 memory nodes, each with a copy of the weights", nodes[0]["text"])

    def test_memory(self):
        little = f"MemTotal: {2 * GIB // 1024} kB\nMemAvailable: {200 * 1024} kB\n"
        self.changed("problem", "memory", "need 256 MiB", "more memory", **{"/proc/meminfo": little})
        cgroup = {"/sys/fs/cgroup/memory.max": str(600 << 20), "/sys/fs/cgroup/memory.current": str(500 << 20),
                  "/sys/fs/cgroup/memory.stat": f"anon 1\nactive_file {50 << 20}\ninactive_file {50 << 20}\n"}
        self.bounded("problem", "memory", "the cgroup has 600 MiB and leaves 200 MiB (/sys/fs/cgroup/memory.max", "limit of the cgroup",
                     **cgroup)
        self.bounded("warning", "memory", "leaves 600 MiB", "limit of the cgroup", **dict(cgroup, **{"/sys/fs/cgroup/memory.current": "0"}))
        self.bounded("warning", "memory", "the cgroup has 1,000 MiB and leaves 1,000 MiB (/sys/fs/cgroup/a/memory.max", "docker run --memory",
                     **{"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/memory.max": str(1000 << 20),
                        "/sys/fs/cgroup/a/memory.current": "0"})
        self.bounded("warning", "memory", "leaves 1,000 MiB (/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "docker run --memory",
                     **{"/proc/self/cgroup": "4:memory:/x\n", "/sys/fs/cgroup/memory/x/memory.limit_in_bytes": str(1000 << 20),
                        "/sys/fs/cgroup/memory/x/memory.usage_in_bytes": "0"})
        self.changed("warning", "memory", "vm.overcommit_memory is 2", "sysctl vm.overcommit_memory=0",
                     **{"/proc/sys/vm/overcommit_memory": "2\n"})

    def test_large_pages(self):
        thp = "/sys/kernel/mm/transparent_hugepage/"
        self.changed("warning", "large pages", "never allowed: transparent huge pages", "echo madvise > " + thp + "enabled",
                     **{thp + "enabled": "always madvise [never]\n"})
        self.changed("warning", "large pages", "denied to shared memory", "echo never > " + thp + "shmem_enabled",
                     **{thp + "shmem_enabled": "always never [deny]\n"})
        note = self.of("large pages", root=self.machine(**{"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "100\n"}))
        self.assertIn("200 MiB are reserved for hugetlbfs", note[1]["text"])

    def test_small_dev_shm(self):
        """Two pools of 1 GiB each: 2,048 MiB, of a machine with 14 GiB available."""
        small = {"/dev/shm.room": f"{64 << 20} {63 << 20}\n"}
        self.changed("warning", "/dev/shm", "63 MiB of 64 MiB are free, and the KV pools of a launch take at most 2,048 MiB",
                     "mount -o remount,size=2113m /dev/shm", **small)
        self.changed("problem", "/dev/shm", "no worker starts", "--shm-size", "--kv-transport", "shm", **small)
        self.changed("warning", "/dev/shm", "take 512 MiB", "--kv-memory 15m", "--kv-memory=256m", **small)
        self.assertEqual(self.of("/dev/shm", "--kv-transport=network", root=self.machine(**small)), [])
        self.fake("baton-launch", """[ "$1" != --check ] || echo '{"options":[],"findings":[],"shm_bytes":73400320}'""")
        self.assert_found("warning", "/dev/shm", "the KV pools of a launch take 70 MiB", "remount", root=self.machine(**small),
                          launch=os.path.join(self.bin, "baton-launch"))
        # A build before this one tells none.
        self.fake("baton-launch", """[ "$1" != --check ] || echo '{"options":[],"findings":[]}'""")
        self.assert_found("warning", "/dev/shm", "take at most ", "remount", root=self.machine(**small),
                          launch=os.path.join(self.bin, "baton-launch"))
        mounts = good_machine()["/proc/self/mounts"]
        self.changed("warning", "/dev/shm", "cannot be written (it is mounted read-only)", "remount,rw",
                     **{"/proc/self/mounts": mounts.replace("shm tmpfs rw", "shm tmpfs ro")})
        noexec = self.of("/dev/shm", root=self.machine(**{"/proc/self/mounts": mounts.replace("nodev", "nodev,noexec")}))
        self.assertTrue(noexec[0]["level"] == "ok" and noexec[0]["text"].endswith("noexec, which does no harm"), noexec)

    def test_doctor_names_leftovers_of_killed_processes(self):
        """Segments that nobody has open, and directories whose lock says that they are themselves and that nobody holds."""
        root = self.machine(**{"/dev/shm/ucx_shm_posix_1a2b": "x" * 4096, "/dev/shm/ucx_shm_posix_3c4d": "used", "/dev/shm/other": "x",
                               "/tmp/baton-aaaaaa/lock": "", "/tmp/baton-aaaaaa/key": "k" * 65, "/tmp/baton-bbbbbb/lock": "",
                               "/tmp/baton-cccccc/lock": "mine", "/tmp/baton-dddddd/notes": "mine", "/tmp/baton-long-name/lock": ""})
        for name in ("aaaaaa", "bbbbbb", "long-name"):
            info = os.stat(f"{root}/tmp/baton-{name}")
            with open(f"{root}/tmp/baton-{name}/lock", "w", encoding="ascii") as f:
                f.write(f"run directory of baton-launch: {info.st_dev} {info.st_ino}\n")
        os.mkdir(root + "/tmp/baton-eeeeee")
        os.chmod(root + "/tmp/baton-eeeeee", 0o1700)
        inode = os.stat(root + "/dev/shm/ucx_shm_posix_3c4d").st_ino
        os.makedirs(root + "/proc/77")
        with open(root + "/proc/77/maps", "w", encoding="ascii") as f:
            f.write(f"7f0000000000-7f0000001000 rw-s 00000000 00:1a {inode} /dev/shm/ucx_shm_posix_3c4d (deleted)\n")
        with open(root + "/tmp/baton-bbbbbb/lock", "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            found = self.of("leftovers", root=root)
        self.assertEqual([(f["level"], f["fix"]) for f in found],
                         [("note", "rm -r /tmp/baton-aaaaaa"), ("note", "rm -r /tmp/baton-eeeeee"),
                          ("warning", "rm /dev/shm/ucx_shm_posix_1a2b")])
        lock_bytes = os.path.getsize(root + "/tmp/baton-aaaaaa/lock")
        self.assertIn(f"/tmp/baton-aaaaaa, {65 + lock_bytes} bytes: the run directory", found[0]["text"])
        self.assertIn("4,096 bytes: shared memory", found[2]["text"])

    def test_limits(self):
        text = good_machine()["/proc/self/limits"]
        line = f"{'Max open files':<25} {'1024':<20} {'1048576':<20}"
        self.assertIn(line, text)
        for hard, level, said in ((50, "problem", "too low for a router to start"), (600, "warning", "leaves a router ")):
            self.changed(level, "descriptors", said, "LimitNOFILE=65536", **{
                "/proc/self/limits": text.replace(line, f"{'Max open files':<25} {hard:<20} {hard:<20}")})
        self.bounded("problem", "processes", "17 of 20 processes and threads are left (ulimit -u), and a launch has up to ", "ulimit -u", **{
            "/proc/self/limits": text.replace("60000  ", "20     "), "/proc/7/status": "Uid:\t1000\t1000\t1000\t1000\nThreads:\t3\n"})
        self.bounded("problem", "processes", "10 of 30 processes and threads are left (/sys/fs/cgroup/pids.max)", "TasksMax", **{
            "/sys/fs/cgroup/pids.max": "30\n", "/sys/fs/cgroup/pids.current": "20\n"})
        self.bounded("problem", "processes", "10 of 30 processes and threads are left (/sys/fs/cgroup/pids/a/pids.max)", "TasksMax", **{
            "/proc/self/cgroup": "8:pids:/a/b\n", "/sys/fs/cgroup/pids/a/pids.max": "30\n", "/sys/fs/cgroup/pids/a/pids.current": "20\n"})
        self.changed("warning", "limits", "a limit of 1,000 bytes of size of files (ulimit -f)", "ulimit -f unlimited", **{
            "/proc/self/limits": text.replace(f"{'Max file size':<25} {'unlimited':<20}", f"{'Max file size':<25} {'1000':<20}")})
        self.changed("warning", "locked memory", "RDMA registers the KV pool", "LimitMEMLOCK=infinity", **{
            "/sys/class/infiniband/mlx5_0/device/net/ib0/x": ""})

    def test_doctor_reports_what_the_kernel_refuses(self):
        self.changed("warning", "pidfd", "before Linux 5.3", "Linux 5.10", **{
            "/proc/sys/kernel/osrelease": "4.19.0\n", "/sys/kernel/mm/transparent_hugepage/shmem_enabled": "[never]\n"})
        self.changed("warning", "memfd", "vm.memfd_noexec is 2", "sysctl vm.memfd_noexec=1", **{"/proc/sys/vm/memfd_noexec": "2\n"})
        self.changed("warning", "namespaces", "/proc/self/ns/ipc cannot be read", "mount -t proc", **{"/proc/self/ns/ipc": None})
        self.changed("warning", "clock", "the clock source is hpet", "echo tsc", **{
            "/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"})
        self.changed("problem", "clock", "it says 1970-01-02", "timedatectl set-ntp true", **{"/now": "100000\n"})
        inside = self.of("container", root=self.machine(**{"/.dockerenv": ""}))
        self.assertIn("one IPC and one PID namespace", inside[0]["text"])

    def test_interfaces(self):
        down = {"/sys/class/net/eth0/flags": "0x1002\n", "/sys/class/net/eth0/operstate": "down\n"}
        self.changed("problem", "interface", "eth0 is down", "ip link set eth0 up", "--kv-net-devices", "eth0", **down)
        self.changed("problem", "interface", "eth0 has no link (down)", "ip -s link show eth0", "--kv-net-devices=eth0",
                     **dict(down, **{"/sys/class/net/eth0/flags": "0x1003\n"}))
        self.changed("problem", "interface", "--kv-net-devices eth9: there is no such interface", "of: lo, eth0", "--kv-net-devices", "eth9", **down)
        self.changed("problem", "interface", "eth0 is down", "ip link set eth0 up", "--kv-net-devices", "lo,eth0", **down)

    def test_ports_of_a_machine_of_files(self):
        tcp = good_machine()["/proc/net/tcp"]
        row = "   0: 0100007F:{:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0\n"
        root = self.machine(**{"/proc/net/tcp": tcp + row.format(8001), "/proc/77/comm": "somebody\n", "/proc/77/fd/.keep": ""})
        os.symlink("socket:[4711]", root + "/proc/77/fd/5")
        self.assert_found("problem", "ports", "port 8001 (--grpc) is taken by process 77, somebody", "--grpc 127.0.0.1:9001, or kill 77",
                          root=root)
        with open(root + "/proc/77/comm", "w", encoding="ascii") as f:
            f.write("baton-router\n")
        self.assert_found("note", "ports", "a Baton serves here already", "--grpc", root=root)
        os.unlink(root + "/proc/77/fd/5")
        self.assert_found("problem", "ports", "by a process that this user may not see", "--grpc", root=root)

    def test_gpu(self):
        driver = {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}.54  Mon Jan 1\n"}
        new = {k: v.format(580) for k, v in driver.items()}
        self.changed("problem", "gpu", "--backend cuda, and there is no NVIDIA driver", "--backend cpu", "--backend", "cuda")
        self.changed("warning", "gpu", "nvidia-smi does not answer", "docker run --gpus all", **new)
        self.fake("nvidia-smi", "echo 'Tesla V100, 7.0, 580.54, 16384'; echo 'H100, 9.0, 580.54, 81559'")
        found = self.assert_found("warning", "gpu", "Tesla V100 is an sm_70; sm_80 is the least", "--devices", root=self.machine(**new))
        self.assertIn("H100, sm_90, 81559 MiB, driver 580.54: --backend cuda (the default is cpu)", [f["text"] for f in found])
        self.assert_found("warning", "gpu", "driver 535.54 is older than 580", "a newer driver",
                          root=self.machine(**{k: v.format(535) for k, v in driver.items()}))
        self.fake("nvidia-smi", "exit 0")
        self.changed("warning", "gpu", "and no device", "--backend cpu", **new)

    def test_software(self):
        self.fake("dpkg-query", 'shift 2; for p; do [ "$p" = libnng-dev ] || echo "$p install ok installed"; done')
        self.assert_found("problem", "packages", "not installed: libnng-dev", "apt-get install -y --no-install-recommends libnng-dev",
                          root=self.machine(), code=1)
        # Of a package with several names one is enough, and the one to install is what apt has.
        self.fake("dpkg-query", 'shift 2; for p; do case $p in libmsgpack*) ;; *) echo "$p install ok installed" ;; esac; done; exit 1')
        for apt, name in (("exit 100", "libmsgpack-dev"), ('echo "$2:"; echo "  Installed: (none)"; echo "  Candidate: 6.0.1-3"', "libmsgpack-c-dev")):
            self.fake("apt-cache", apt)
            self.assert_found("problem", "packages", f"not installed: {name}", f"install -y --no-install-recommends {name}",
                              root=self.machine(), code=1)
        self.fake("dpkg-query", 'shift 2; for p; do [ "$p" = libmsgpack-dev ] || echo "$p install ok installed"; done; exit 1')
        self.assertEqual(self.of("packages", root=self.machine())[0]["level"], "ok")
        self.fake("dpkg-query", 'shift 2; for p; do echo "$p install ok installed"; done')
        self.fake("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
        if os.geteuid() == 0:
            self.assert_found("note", "mpi", "it refuses to run as root", "export OMPI_ALLOW_RUN_AS_ROOT=1", root=self.machine(), code=0)
        self.assertEqual(self.of("mpi", root=self.machine(), environment={"OMPI_ALLOW_RUN_AS_ROOT": "1"})[0]["level"], "ok")
        self.fake("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
        self.changed("warning", "mpi", "aborts where the host's name has more than 56 characters", "hostname NAME", **{
            "/proc/sys/kernel/hostname": "n" * 57 + "\n"})
        self.changed("problem", "host name", "has 64 characters", "hostname NAME", environment={"PATH": "/nowhere"}, **{
            "/proc/sys/kernel/hostname": "n" * 64 + "\n"})
        self.fake("mpirun", "echo 'HYDRA build details'")
        self.changed("warning", "mpi", "which is no Open MPI", "openmpi-bin")
        self.fake("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
        for name in ("srun", "sbatch", "sinfo", "scontrol"):
            self.fake(name, "echo 'MPI plugin types are... none pmi2'")
        munge = {"/run/munge/munge.socket.2": ""}
        self.changed("warning", "slurm", "no plugin mpi/pmix", "libpmix2", **munge)
        self.fake("srun", "echo 'MPI plugin types are... none pmix'")
        self.changed("warning", "munge", "munge.socket.2 is not", "systemctl start munge")
        self.assertEqual(self.of("slurm", root=self.machine(**munge))[0]["level"], "ok")

    def test_build_that_is_old_or_does_not_run(self):
        places = {"baton-launch": "launcher", "baton-router": "router", "baton-prefill-worker": "worker/main",
                  "baton-decode-worker": "worker/main"}
        for name, place in places.items():
            os.makedirs(os.path.join(self.folder.name, place), exist_ok=True)
            with open(os.path.join(self.folder.name, place, name), "w", encoding="ascii") as f:
                f.write(f"#!/bin/sh\necho {name} 0.0.1 '(abc)'\n")
            os.chmod(f.name, 0o755)
        launch = os.path.join(self.folder.name, "launcher/baton-launch")
        self.assert_found("warning", "build", "it is of 0.0.1 (abc), and the tree is of 0.", "./baton serve", root=self.machine(), launch=launch)
        router = os.path.join(self.folder.name, "router/baton-router")
        with open(router, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\necho 'baton-router: error while loading shared libraries: libnng.so.1: cannot open shared object file: "
                    "No such file or directory' >&2\nexit 127\n")
        self.assert_found("problem", "build", "baton-router does not run: ", "apt-file search libnng.so.1", root=self.machine(), launch=launch)
        os.unlink(router)
        self.assert_found("problem", "build", "not there: baton-router", "./baton serve", root=self.machine(), launch=launch)

    # ---- this machine, made wrong ----

    def test_doctor_names_the_process_using_a_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            found = self.assert_found("problem", "ports", f"port {port} (--http) is taken by process {os.getpid()}, ",
                                      f"kill {os.getpid()}", "--port", str(port), "--grpc=127.0.0.1:0", "--metrics", "127.0.0.1:0", code=1)
            self.assertEqual([f for f in found if f["about"] == "ports" and f["level"] == "ok"], [])

    def test_few_descriptors(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))

        self.assert_found("problem", "descriptors", "the hard limit of 60 files is too low", "ulimit -Hn 65536", code=1, before=few)

    def test_cache_that_cannot_be_written(self):
        cache = os.path.join(self.folder.name, "cache")
        os.makedirs(cache + "/baton/weights")
        os.chmod(cache + "/baton/weights", 0o555)
        where = {"XDG_CACHE_HOME": cache}
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin")  # ours may not be everybody's to execute
        if os.geteuid() == 0 and python is None:
            self.skipTest("no python3 that every user may execute")
        if os.geteuid() == 0:
            os.chmod(self.folder.name, 0o755)
            readable = os.path.join(self.folder.name, "copy")  # the tree may not be everybody's to read
            shutil.copytree(CLI, os.path.join(readable, "tools", "cli"))
            for path, _, _ in os.walk(readable):
                os.chmod(path, 0o755)
            done = subprocess.run([python, "-B", readable + "/tools/cli/doctor.py", "--json"],
                                  env={"PATH": os.environ["PATH"], "XDG_CACHE_HOME": cache, "HOME": self.home}, capture_output=True,
                                  text=True, timeout=120, user=65534, group=65534, extra_groups=[], check=False)
            found = json.loads(done.stdout)["findings"]
        else:
            found = self.findings(environment=where)
        wrong = [f for f in found if f["about"] == "weight cache"]
        self.assertEqual([f["level"] for f in wrong], ["warning"], wrong)
        self.assertIn("may not write", wrong[0]["text"])
        self.assertIn("--weight-cache DIR", wrong[0]["fix"])
        self.assertEqual(self.of("weight cache", "--weight-cache", "off", environment=where), [])
        if os.geteuid() == 0:
            os.chmod(cache + "/baton/weights", stat.S_IRWXU)
            os.chown(cache + "/baton/weights", 12345, 12345)
            self.assert_found("warning", "weight cache", "is user 12345's, and this is user 0", "--weight-cache DIR", environment=where)
        self.assert_found("warning", "weight cache", "neither XDG_CACHE_HOME nor HOME is set", "--weight-cache DIR", environment={"HOME": ""})

    def in_namespace(self, setup, kind=("--mount", "--propagation", "private")):
        """@return words before a command that run it where `setup` was done to mounts, or a skip"""
        prefix = ["unshare", *kind, "sh", "-c", setup + ' && exec "$@"', "sh"]
        if os.geteuid() != 0 or subprocess.run(prefix + ["true"], capture_output=True, check=False).returncode != 0:
            self.skipTest(f"no namespaces of {kind[0]} here, or not as root")
        return prefix

    @unittest.skipUnless(os.access(LAUNCH, os.X_OK), "nothing is built")
    def test_host_name_too_long_for_ucx_is_reported(self):
        """Linux allows 64 characters. Then the workers cannot even be asked for their version: that is not told of the build."""
        longest = self.in_namespace(f"echo {'n' * 64} > /proc/sys/kernel/hostname", ("--uts",))
        found = self.assert_found("problem", "host name", "has 64 characters: UCX aborts every worker", "hostname NAME", prefix=longest,
                                  launch=LAUNCH)
        self.assertEqual([f for f in found if f["about"] in ("build", "ucx") and f["level"] == "problem"], [])
        shorter = self.in_namespace(f"echo {'n' * 63} > /proc/sys/kernel/hostname", ("--uts",))
        self.assertEqual(self.of("host name", prefix=shorter), [])

    def test_small_and_a_read_only_file_system(self):
        small = self.in_namespace("mount -t tmpfs -o size=3m tmpfs /dev/shm")
        self.assert_found("warning", "/dev/shm", "3 MiB of 3 MiB are free", "mount -o remount,size=", prefix=small)
        cache = os.path.join(self.folder.name, "ro")
        os.makedirs(cache)
        read_only = self.in_namespace(f"mount -t tmpfs -o ro tmpfs {cache} && mount -t tmpfs -o ro tmpfs /dev/shm")
        found = self.assert_found("warning", "weight cache", "its file system is read-only", "--weight-cache DIR", prefix=read_only,
                                  environment={"XDG_CACHE_HOME": cache})
        self.assertIn("cannot be written (Read-only file system)", [f for f in found if f["about"] == "/dev/shm"][0]["text"])

    @unittest.skipUnless(os.access(LAUNCH, os.X_OK), "nothing is built")
    def test_doctor_queries_the_built_programs(self):
        found = self.findings("--kv-net-devices", "lo,lo", "--http=127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                              launch=LAUNCH)
        said = {f["about"]: f for f in found}
        # A processor with AMX has a second line about it.
        tier = [f["text"] for f in found if f["about"] == "cpu" and "tier" in f["text"]][0]
        self.assertIn("(so the worker's program says)", tier)
        self.assertRegex(said["ucx"]["text"], r"UCX \d+\.\d+")
        self.fake("mpirun", "echo 'mpirun (Open MPI) 1.2.3'")
        self.assert_found("warning", "mpi", "Open MPI 1.2.3; what is built is linked with Open MPI ", "PATH with the mpirun of ", launch=LAUNCH,
                          environment={"PATH": self.bin + ":" + os.environ["PATH"]})
        if "tier avx512" in tier:
            self.assert_found("warning", "cpu", "because of BATON_CPU_TIER=avx2; it could be avx512", "unset BATON_CPU_TIER", launch=LAUNCH,
                              environment={"BATON_CPU_TIER": "avx2"})
        prefix = self.in_namespace("mount -t tmpfs -o size=512k tmpfs /dev/shm")
        found = self.assert_found("warning", "ucx", "no shared memory: kv transfer: no shared memory for a pool", "fix /dev/shm",
                                  launch=LAUNCH, prefix=prefix)
        self.assertNotIn("options", {f["about"] for f in found})

    @unittest.skipUnless(os.access(LAUNCH, os.X_OK), "nothing is built")
    def test_doctor_reads_the_options_of_serve(self):
        conf = os.path.join(self.folder.name, "conf")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with open(conf, "w", encoding="ascii") as f:
                f.write(f"metrics = 127.0.0.1:{port}\nhttp = 127.0.0.1:0\nkv-memroy = 3\n")
            for launch in (LAUNCH, "/nowhere"):
                found = self.assert_found("problem", "ports", f"port {port} (--metrics)", "--metrics", "--config", conf, launch=launch, code=1,
                                          environment={"BATON_GRPC": "127.0.0.1:0"})
            self.assertNotIn("options", {f["about"] for f in found})
            self.assert_found("note", "options", "before something is built: --kv-dtype, --max-batch-size", "./baton serve", "--kv-dtype", "int8",
                              "--max-batch-size=3")
            self.assert_found("problem", "options", "unknown key 'kv-memroy'; did you mean kv-memory", "./baton check", "--config", conf,
                              launch=LAUNCH)

    def test_cluster_command_words_are_parsed(self):
        text = self.run_doctor(code=None)
        self.assertRegex(text, r"\n\d+ problems?, \d+ warnings?\n\Z")
        self.assertIn("baton doctor [--json] [OPTION]", self.run_doctor("--help", code=0))


if __name__ == "__main__":
    sys.exit(unittest.main())
