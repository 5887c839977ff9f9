# SPDX-License-Identifier: Apache-2.0
"""A process that has its weights mapped replaces a worker that ends by itself."""
import os
import signal
import tempfile
import time

from harness import children_of, is_there, tiny_model, wait_until
from launch import Launch

ASK = {"prompt": "who was lost", "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


def ask(launch):
    status, answer = launch.post(launch.process("router")["http"].split("//")[-1], "/v1/completions", ASK)
    assert status == 200, (status, answer)
    return answer["choices"][0]["token_ids"]


def said(launch, name, text):
    with open(os.path.join(launch.logs_dir, name + ".log"), encoding="utf-8", errors="replace") as f:
        return text in f.read()


def is_ready(launch, name, other_than=None):
    found = launch.process(name)
    return found["state"] == "ready" and found["pid"] != other_than


def test_standby_replaces_a_worker_of_either_role():
    """Again and again, for the next one is there soon; without the pauses that another start has."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
        with Launch("--model", model, "--standby", "1") as launch:
            want = ask(launch)
            for name in ("decode-0", "prefill-0", "decode-0", "decode-0"):
                wait_until("a standby is ready", lambda: is_ready(launch, "standby-0"))
                standby, before = launch.process("standby-0")["pid"], launch.process(name)["pid"]
                began = time.monotonic()
                os.kill(int(before), signal.SIGKILL)
                assert ask(launch) == want
                print(f"{name}: answered {time.monotonic() - began:.2f} s after its end")
                wait_until(f"{name} is back", lambda name=name, before=before: is_ready(launch, name, before))
                assert launch.process(name)["pid"] == standby, launch.output()
            assert launch.process("standby-0")["program"] == "standby"
            assert launch.output().count(" replaces ") == 4
            launch.admin("stop", "standby-0", "wait=yes")
            assert launch.process("standby-0")["state"] == "stopped"
            before = launch.process("decode-0")["pid"]
            os.kill(before, signal.SIGKILL)
            wait_until("another start without one", lambda: is_ready(launch, "decode-0", before))
            assert ask(launch) == want


def test_standby_instances_have_the_ranks_of_their_workers():
    """All ranks of one stand by, and take the name with them. One that loses a rank while it waits begins anew."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
        with Launch("--model", model, "--standby", "1", "--prefill-tp", "2", "--decode-pp", "2") as launch:
            want = ask(launch)
            for name, standby in (("prefill-0", "standby-1"), ("decode-0", "standby-0"), ("decode-0", "standby-0")):
                wait_until("a standby is ready", lambda n=standby: is_ready(launch, n))
                instead, before = launch.process(standby)["pid"], launch.process(name)["pid"]
                ranks = children_of(int(before))
                assert len(ranks) == 1 and len(children_of(int(instead))) == 1
                began = time.monotonic()
                os.kill(ranks[0], signal.SIGKILL)
                assert ask(launch) == want
                print(f"    {name}: answered {time.monotonic() - began:.2f} s after the end of its second rank")
                wait_until(f"{name} is back", lambda name=name, before=before: is_ready(launch, name, before))
                assert launch.process(name)["pid"] == instead, launch.output()
                wait_until("its rank has the name", lambda name=name: said(launch, name, f"{name}:1: ready: rank 1 of 2"))
            wait_until("a standby is ready", lambda: is_ready(launch, "standby-0"))
            before = launch.process("standby-0")["pid"]
            os.kill(children_of(int(before))[0], signal.SIGKILL)
            wait_until("it begins anew", lambda: is_ready(launch, "standby-0", before))
            assert ask(launch) == want
            before = launch.process("standby-1")["pid"]
            rank, = children_of(int(before))
            launch.admin("stop", "standby-1")
            wait_until("no rank is left", lambda: not is_there(rank))
            assert not said(launch, "standby-1", "peer lost") and not said(launch, "standby-1", ":1: ready")
