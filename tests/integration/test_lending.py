# SPDX-License-Identifier: Apache-2.0
"""Workers compute on each other's cores while these are idle: the bytes are the same, also where a core is taken back
in the middle of a piece."""
import os
import subprocess
import sys
import tempfile

from harness import Cluster, Skip, tiny_model, wait_until
from test_same_bytes import ask_all, prompts

# Takes the cores it is given for a moment, leaves them for another, without end.
BURN = """
import os, sys, time
os.sched_setaffinity(0, [int(c) for c in sys.argv[1:]])
while True:
    end = time.monotonic() + 0.0005
    while time.monotonic() < end:
        pass
    time.sleep(0.0004)
"""


def cores():
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise Skip("there is one core: nobody has another to lend")
    return str(found[0]), str(found[1])


def options(lend):
    first, second = cores()
    return dict(prefill_args=["--cores", first] + (["--borrowed-cores", second] if lend else []),
                decode_args=["--cores", second, "--max-batch-size", "16"] + (["--borrowed-cores", first] if lend else []),
                worker_args=["--prefix-cache", "off"])


def model_in(folder):
    return tiny_model(folder, layers=3, dim=96, heads=6, kv_heads=3, ffn=1600, context=1024, seed=5)


def lent(c, what):
    return {role: c.metric(f"baton_worker_borrowed_core_{what}_total", role=role) for role in ("prefill", "decode")}


def test_workers_have_a_lower_priority_than_the_router():
    """And all their threads, those of the kernel's idle class apart."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with tempfile.TemporaryDirectory() as d:
        for option, added in ([], 5), (["--worker-nice", "0"], 0), (["--worker-nice", "19"], 19):
            with Cluster(model_in(d), worker_args=option) as c:
                ask_all(c, prompts()[:1], 1, 2)
                for process in c.processes:
                    nice = own if process is c.router else min(own + added, 19)
                    threads = [int(t) for t in os.listdir(f"/proc/{process.pid}/task")]
                    assert os.getpriority(os.PRIO_PROCESS, process.pid) == nice, (option, process.name)
                    assert all(os.getpriority(os.PRIO_PROCESS, t) >= nice for t in threads), (option, process.name)


def test_work_on_lent_cores_gives_the_same_bytes():
    """With and without, and with somebody who takes the cores back again and again."""
    texts = prompts()
    with tempfile.TemporaryDirectory() as d:
        model = model_in(d)
        with Cluster(model, **options(False)) as c:
            want = ask_all(c, texts, 1, 12)
            assert not any(lent(c, "tasks").values())
        with Cluster(model, **options(True)) as c:
            for parallel in (1, 16):
                got = ask_all(c, texts, parallel, 12)
                assert got == want, [i for i, (a, b) in enumerate(zip(want, got)) if a != b]
            wait_until("both have lent", lambda: ask_all(c, texts, 1, 12) == want and all(lent(c, "tasks").values()))
            with subprocess.Popen([sys.executable, "-c", BURN, *cores()]) as burner:
                try:
                    wait_until("a piece is done again",
                               lambda: ask_all(c, texts, 1, 12) == want and sum(lent(c, "task_retries").values()) > 0)
                finally:
                    burner.kill()
            assert sum(lent(c, "cpu_seconds").values()) > 0
            codes = c.stop()
            assert not any(codes.values()), codes
