# SPDX-License-Identifier: Apache-2.0
"""Packed weights: one copy for all workers of a host, found at the next start."""
import json
import os
import subprocess
import sys
import tempfile

from harness import BUILD, ROOT, Cluster, Skip, default_model, tiny_model, wait_until

PROMPTS = ["The capital of France is", "Count: one, two, three,", "Water is"]
PRIVATE_LIMIT = 64 << 20


def regions(pid):
    """@return [(dev, inode, name, {field: bytes})] of /proc/PID/smaps."""
    found = []
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if words[0].endswith(":"):
                if len(words) == 3 and words[2] == "kB":
                    found[-1][3][words[0][:-1]] = int(words[1]) << 10
            else:
                found.append((words[3], words[4], " ".join(words[5:]), {}))
    return found


def packed_file(pid):
    files = {(dev, inode) for dev, inode, name, _ in regions(pid) if name.endswith(".packed")}
    assert len(files) == 1, f"pid {pid} maps {files}"
    return files.pop()


def private_bytes(pid, but=("/dev/shm/", "/memfd:", "/SYSV")):
    """Without the KV pool."""
    return sum(fields["Private_Clean"] + fields["Private_Dirty"] for _, _, name, fields in regions(pid)
               if not name.startswith(but))


def workers(c):
    every = c.prefills + c.decodes
    wait_until("all workers ready", lambda: all(p.is_ready() for p in every))
    return every


def answers(c):
    return [c.complete(p, 12, temperature=0)["token_ids"] for p in PROMPTS]


def lines(c, text):
    return sum(p.log().count(text) for p in workers(c))


def run(model, cache, **more):
    """@return the answers, and how many workers built, found, did without."""
    with Cluster(model, env={"BATON_WEIGHT_CACHE": cache}, **more) as c:
        counts = tuple(lines(c, text) for text in (": built in ", ": found and verified in ", " cannot be kept in "))
        if cache != "off" and not counts[2]:
            assert len({packed_file(p.pid) for p in workers(c)}) == 1
        said = answers(c)
        c.wait_idle()
    return said, counts


def test_weight_cache_gives_the_same_bytes_new_reused_and_disabled():
    with tempfile.TemporaryDirectory() as d:
        for options in ({}, {"type": "Q4_1", "embedding_type": "Q8_0"}):
            model = tiny_model(d, **options)
            cache = os.path.join(d, "cache" + str(len(options)))
            without, counts = run(model, "off", prefill=1, decode=2)
            assert counts == (0, 0, 0), counts
            built, counts = run(model, cache, prefill=1, decode=2)
            assert counts == (1, 2, 0), counts
            found, counts = run(model, cache, prefill=1, decode=2)
            assert counts == (0, 3, 0), counts
            assert without == built == found


def test_unusable_weight_cache_is_no_failure():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d)
        said, counts = run(model, os.path.join(model, "below", "a", "file"))
        assert counts == (0, 0, 2), counts
        assert said == run(model, "off")[0]


def test_weight_cache_keeps_private_memory_small():
    """Each worker: KV pool and at most 64 MiB, with the default batch size."""
    with tempfile.TemporaryDirectory() as d:
        cache = os.path.join(d, "cache")
        for start in range(2):
            with Cluster(default_model(), kv_memory="256m", env={"BATON_WEIGHT_CACHE": cache}) as c:
                every = workers(c)
                assert lines(c, ": built in ") == (1 if start == 0 else 0)
                assert len({packed_file(p.pid) for p in every}) == 1
                assert "Paris" in c.generate(PROMPTS[0], 8)
                c.complete("word " * 1000, 4, temperature=0)
                for p in every:
                    assert private_bytes(p.pid) <= PRIVATE_LIMIT, (p.name, private_bytes(p.pid) >> 20)
                    # Nobody has a private page of the weights: all are shared.
                    weights = [f for _, _, name, f in regions(p.pid) if name.endswith(".packed")]
                    assert sum(f["Private_Dirty"] for f in weights) == 0
                    assert sum(f["Private_Clean"] for f in weights) < sum(f["Rss"] for f in weights) / 10
                c.wait_idle()


def test_weight_cache_benchmark_reports_every_kind_of_start():
    with tempfile.TemporaryDirectory() as d:
        run = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench", "start.py"), "--runs", "1", "--kv-memory",
                              "64m", "--model", tiny_model(d), "--json"], env=dict(os.environ, BATON_BUILD=BUILD),
                             capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
        kinds = json.loads(run.stdout)["runs"]
        assert list(kinds) == ["off", "build", "found", "disk"]
        for kind, (one,) in kinds.items():
            assert 0 < one["ready"] < one["token"], kind
            assert 0 < one["private"] <= PRIVATE_LIMIT, kind
            assert (one["shared"] == 0) == (kind == "off"), kind


def one_copy_for_each_memory(cores):
    """Runs in a mount namespace in which each of two cores has a memory (NUMA node) of its own."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
        cache = os.path.join(d, "weights")
        with Cluster(model, decode=2, kv_memory="64m", env={"BATON_WEIGHT_CACHE": cache},
                     prefill_args=["--threads", "1", "--cores", str(cores[0])],
                     decode_args=["--threads", "1", "--cores", str(cores[1])]) as c:
            first, second, third = map(packed_file, (p.pid for p in workers(c)))
            assert second == third != first, (first, second, third)
            assert c.complete(PROMPTS[0], 8, temperature=0)["token_ids"]
        assert len([f for f in os.listdir(cache) if f.endswith(".packed")]) == 1
        assert len([f for f in os.listdir(os.path.join(cache, "node1")) if f.endswith(".packed")]) == 1


def test_workers_of_one_host_share_one_copy_of_weights():
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise Skip("one core")
    with tempfile.TemporaryDirectory() as nodes:
        for node, core in enumerate(cores):
            os.mkdir(os.path.join(nodes, f"node{node}"))
            with open(os.path.join(nodes, f"node{node}", "cpulist"), "w", encoding="ascii") as f:
                f.write(f"{core}\n")
        mount = f"mount --bind {nodes} /sys/devices/system/node"
        enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        if subprocess.run(enter + [mount], check=False, capture_output=True).returncode != 0:
            raise Skip("this user may not mount in a namespace of its own")
        run_it = f"import test_weight_cache; test_weight_cache.one_copy_for_each_memory({cores})"
        done = subprocess.run(enter + [mount + ' && exec "$@"', "sh", sys.executable, "-c", run_it],
                              cwd=os.path.dirname(os.path.abspath(__file__)), check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
