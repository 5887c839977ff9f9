# SPDX-License-Identifier: Apache-2.0
"""What a process keeps of the cluster key, and what a crash would leave of it."""
import hashlib
import resource
import tempfile

from harness import Cluster, small_model

MOST_BYTES = 256 << 20  # a mapping beyond that is a pool or a model


def private_memory(pid):
    """What the process may write and nobody shares, mapping by mapping: heap, stacks, data."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            where, mode = line.split()[:2]
            first, end = (int(x, 16) for x in where.split("-"))
            if mode.startswith("rw") and mode.endswith("p") and end - first <= MOST_BYTES:
                mem.seek(first)
                try:
                    yield mem.read(end - first)
                except OSError:  # of a device
                    pass


def test_no_process_keeps_the_cluster_key():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        assert c.complete("hello", 4)
        with open(c.key, "rb") as f:
            text = f.read().strip()
        key = hashlib.blake2b(text, digest_size=32).digest()
        for p in c.processes:
            found = {"its text": 0, "the key itself": 0, "the address": 0}
            for part in private_memory(p.pid):
                found["its text"] += part.count(text)
                found["the key itself"] += part.count(key)
                found["the address"] += part.count(c.url.encode())
            assert found["its text"] == 0 and found["the key itself"] == 0, (p.name, found)
            assert found["the address"] > 0, (p.name, "this did not look where things are")


def test_no_process_leaves_a_core_dump():
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        with tempfile.TemporaryDirectory() as d:
            model = small_model(d)
            with Cluster(model) as c:
                for p in c.processes:
                    assert resource.prlimit(p.pid, resource.RLIMIT_CORE)[0] in (0, 1), p.name
            with Cluster(model, worker_args=["--core-dumps"], router_args=["--core-dumps"]) as c:
                for p in c.processes:
                    assert resource.prlimit(p.pid, resource.RLIMIT_CORE)[0] == hard, p.name
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
