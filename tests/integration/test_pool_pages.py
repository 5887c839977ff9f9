# SPDX-License-Identifier: Apache-2.0
"""The KV pool's memory: taken in idle moments, in large pages."""
import os
import re
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


def test_idle_workers_take_their_pool_in_large_pages():
    check_system()
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), kv_memory="64m") as c:
        for worker in c.prefills + c.decodes:
            # Whole blocks, so less than all of the 64 MiB.
            wait_until(f"{worker.name}'s pool", lambda w=worker: large_kib(w.pid) >= 60 << 10)
        # And one that was used before stays as it is.
        first = c.complete("The capital of France is", 8, temperature=0)["text"]
        assert c.complete("The capital of France is", 8, temperature=0)["text"] == first
