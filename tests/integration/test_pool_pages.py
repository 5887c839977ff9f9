# SPDX-License-Identifier: Apache-2.0
"""The KV pool's memory: in large pages as idle moments allow, and where there is too little of it."""
import os
import re
import subprocess
import sys
import tempfile

from harness import Cluster, Skip, small_model, wait_until

SETTING = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"


def check_system():
    """Linux 6.1 and newer have them, unless they are denied."""
    release = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())
    if release < (6, 1) or not os.path.exists(SETTING):
        raise Skip(f"no large pages for shared memory in Linux {os.uname().release}")
    with open(SETTING, encoding="ascii") as f:
        if "[deny]" in f.read():
            raise Skip("large pages for shared memory are denied here")


def large_kib(pid):
    """KiB in large pages of the largest mapping of shared memory"""
    with open(f"/proc/{pid}/smaps", encoding="ascii", errors="replace") as f:
        text = f.read()
    return max(int(kib) for kib in re.findall(r"^ShmemPmdMapped: +(\d+) kB", text, re.M))


def test_idle_workers_move_their_pool_to_large_pages():
    check_system()
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), kv_memory="64m") as c:
        for worker in c.prefills + c.decodes:
            # Whole blocks, so less than all of the 64 MiB.
            wait_until(f"{worker.name}'s pool", lambda w=worker: large_kib(w.pid) >= 60 << 10)
        # And one that was used before stays as it is.
        first = c.complete("The capital of France is", 8, temperature=0)["text"]
        assert c.complete("The capital of France is", 8, temperature=0)["text"] == first


PROMPT = "word " * 40  # several blocks


def answers_in_a_small_shm():
    """Runs in a mount namespace of its own, whose /dev/shm has room for one of the two pools at most."""
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        with Cluster(model, kv_memory="64m", worker_args=["--kv-transport", "network"]) as c:
            expected = c.complete(PROMPT, 16, temperature=0)["text"]
        with Cluster(model, kv_memory="64m") as c:
            assert c.complete(PROMPT, 16, temperature=0)["text"] == expected
            logs = [w.log() for w in c.prefills + c.decodes]
            told = [re.findall(r"no shared memory for a pool of \d+ bytes, /dev/shm has \d+ left", log) for log in logs]
            # Both, where each took a half of the room at the same moment.
            assert sorted(map(len, told)) in ([0, 1], [1, 1]), logs
            codes = c.stop()
            assert set(codes.values()) == {0}, codes


def test_pools_that_overcommit_shared_memory_are_logged():
    enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run(enter + ["mount -t tmpfs none /dev/shm"], check=False, capture_output=True).returncode != 0:
        raise Skip("this user may not mount in a namespace of its own")
    run = "import test_pool_pages; test_pool_pages.answers_in_a_small_shm()"
    done = subprocess.run(enter + ['mount -t tmpfs -o size=100m none /dev/shm && exec "$@"', "sh", sys.executable,
                                   "-c", run], cwd=os.path.dirname(os.path.abspath(__file__)), check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
