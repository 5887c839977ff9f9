# SPDX-License-Identifier: Apache-2.0
"""Who did not join, and why: named by a router's status and by the launcher's."""
import json
import os
import secrets
import signal
import subprocess
import tempfile

from fleet import Fleet
from harness import small_model, tiny_model, wait_until
from launch import Launch


def refused(fleet, i=0):
    return {w["name"]: w for w in fleet.cluster(i)["refused"]}


def test_a_worker_that_is_refused_is_named_with_the_reason():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        other = os.path.join(directory, "other")
        os.mkdir(other)
        other = tiny_model(other, layers=3, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=2)
        wrong_key = os.path.join(directory, "key")
        with os.fdopen(os.open(wrong_key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write(secrets.token_hex(32))
        stranger = fleet.start_worker("decode", 7, ["--cluster-key-file", wrong_key])
        fleet.model, own = other, fleet.model
        fleet.start_worker("decode", 8)
        fleet.model = own
        fleet.start_worker("prefill", 9, ["--tokens-per-block", "32"])
        fleet.start_worker("decode", 10, ["--kv-dtype", "int8"])
        why = {"decode-7": "another cluster key: both sides need the same key file", "decode-8": "runs another model",
               "prefill-9": "has 32 tokens per block, but", "decode-10": "(--kv-dtype)"}
        for i in range(2):
            wait_until("all are refused", lambda i=i: set(why) <= set(refused(fleet, i)))
            seen = refused(fleet, i)
            assert set(seen) == set(why), seen
            for name, text in why.items():
                assert text in seen[name]["why"] and seen[name]["times"] > 0, seen[name]
            assert [name for name in why if not seen[name]["proven"]] == ["decode-7"], seen
            assert fleet.cluster(i)["launcher"] is None and fleet.cluster(i)["processes"] == []  # nobody knows who is meant to be here
        shown = fleet.admin(1, "status")
        for name, text in why.items():
            assert any(name in line and text in line for line in shown.splitlines()), (name, shown)
        assert "decode-7 (unproven)" in shown, shown

        # Who has joined is refused no more.
        stranger.kill()
        stranger.popen.wait()
        fleet.start_worker("decode", 7)
        wait_until("it is here", lambda: "decode-7" in fleet.seen(0) and "decode-7" not in refused(fleet))
        assert "decode-8" in refused(fleet)


def baton_status(launch, *more):
    run_dir = [d for d in os.listdir(launch.dir) if d.startswith("baton-")][0]
    done = subprocess.run([launch.args[0], "--admin", "status", "--run-dir", os.path.join(launch.dir, run_dir), *more],
                          capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def whys(launch):
    """What keeps each process, as ./baton status --json has it."""
    return {p["name"]: p["why"] for p in json.loads(baton_status(launch, "--json"))["processes"]}


def test_the_launcher_says_what_keeps_a_worker():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Launch("--model", small_model(directory)) as launch:
        wait_until("nothing keeps anybody", lambda: not any(whys(launch).values()))
        launch.admin("stop", "router", "wait=yes")
        wait_until("no router answers", lambda: all(
            (whys(launch)[name] or "").startswith("linked with 0 of 1 routers; ipc://")
            and whys(launch)[name].endswith(": no router answers there") for name in ("prefill-0", "decode-0")))
        assert "decode-0: linked with 0 of 1 routers; ipc://" in baton_status(launch)
        launch.admin("start", "router", "wait=yes")
        wait_until("they are linked", lambda: not any(whys(launch).values()))

        # Another key than the one of the launch, for one worker: the launcher, and the router, say who.
        key = os.path.join(launch.dir, [d for d in os.listdir(launch.dir) if d.startswith("baton-")][0], "key")
        with open(key, "w", encoding="ascii") as f:
            f.write(secrets.token_hex(32))
        launch.admin("restart", "decode-0", "wait=yes")
        wait_until("it is named", lambda: "both sides have the same cluster key" in (whys(launch)["decode-0"] or ""))
        assert not whys(launch)["prefill-0"]
        status, said = launch.ask(launch.process("router")["http"], "/v2/cluster")
        assert status == 200
        missing = [w for w in said["workers"] if w["state"] == "missing"]
        assert [(w["name"], w["process"]) for w in missing] == [("decode-0", "ready")], said
        assert "same cluster key" in missing[0]["why"], said
        assert {p["name"]: p["why"] for p in said["processes"]} == whys(launch), said
        assert "another cluster key" in said["refused"][0]["why"] and said["refused"][0]["name"] == "decode-0", said


def test_the_launcher_says_why_a_process_ended():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Launch("--model", small_model(directory)) as launch:
        pid = launch.process("decode-0")["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until("its end is told", lambda: "ended by signal 9 (Killed)" in (whys(launch)["decode-0"] or "")
                   or launch.process("decode-0")["restarts"] != 0)
        wait_until("it is back", lambda: launch.process("decode-0")["state"] == "ready" and not any(whys(launch).values()))
