# SPDX-License-Identifier: Apache-2.0
"""Hung processes of a launch are killed and started again; those that only compute for long are not."""
import os
import re
import signal
import tempfile
import time

from harness import endless_model, small_model, wait_until
from launch import Launch

SILENT_MS = 2000


def test_stopped_process_is_restarted_by_the_watchdog():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as d:
        with Launch("--model", small_model(d), "--watchdog-ms", str(SILENT_MS)) as launch:
            for name in ("decode-0", "prefill-0", "router"):
                wait_until(f"{name} is ready", lambda name=name: launch.process(name)["state"] == "ready")
                before = launch.process(name)
                os.kill(before["pid"], signal.SIGSTOP)
                wait_until(f"{name} is started again",
                           lambda name=name: launch.process(name)["restarts"] == 1
                           and launch.process(name)["state"] == "ready")
                assert launch.process(name)["pid"] != before["pid"]
                assert f"{name} is hung (stopped, blocked or spinning): silent for 2.0 s; killing it" \
                    in launch.output(), launch.output()
                # What its threads did is said before.
                assert re.search(rf"{name} thread {before['pid']} \(.+\): state T, waits in \S.*, ran [0-9]+ ms, waited "
                                 r"[0-9]+ ms for a core in [0-9]+ turns", launch.output()), launch.output()
            # The router is ready when its workers are.
            launch.complete(launch.process("router")["http"], "hello", 2)
            assert launch.output().count("is hung") == 3, launch.output()


def test_step_longer_than_the_watchdog_is_not_a_hang():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as d:
        # A whole prompt, of 4 tokens a word, is one step; how long it must be depends on the machine.
        with Launch("--model", endless_model(d), "--watchdog-ms", str(SILENT_MS), "--chunk-tokens", "32768") as launch:
            address = launch.process("router")["http"]
            took, words = 0, 500
            while took < 1.2 * SILENT_MS / 1000:
                words = words * 3 // 2
                assert words < 8000, took
                since = time.monotonic()
                status, answer = launch.post(address, "/v1/completions",
                                             {"prompt": f"{words} " + "word " * words, "max_tokens": 1}, 600)
                took = time.monotonic() - since
                assert status == 200, (status, answer)
            assert launch.process("prefill-0")["restarts"] == 0, launch.output()
            assert "is hung" not in launch.output(), launch.output()
