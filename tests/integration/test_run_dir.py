# SPDX-License-Identifier: Apache-2.0
"""The run directory goes away while the cluster runs, as a logout or systemd-tmpfiles takes it."""
import os
import shutil
import signal
import stat
import tempfile

from harness import small_model, wait_until
from launch import Launch


def restarts(launch, names):
    """Kill them, and wait until they are there again."""
    before = launch.processes()
    for name in names:
        os.kill(before[name]["pid"], signal.SIGKILL)

    def are_back():
        now = launch.processes()
        return all(now[name]["state"] == "ready" and now[name]["pid"] != before[name]["pid"] for name in names)
    wait_until(f"{', '.join(names)} are ready again", are_back, 120)


def test_processes_restart_after_the_run_directory_was_removed():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Launch("--model", small_model(directory)) as launch:
        address = launch.process("router")["http"]
        expected = launch.complete(address, "Once upon a time", 8)
        run_dir = os.path.join(launch.dir, [name for name in os.listdir(launch.dir) if name.startswith("baton-")][0])
        with open(os.path.join(run_dir, "key"), "rb") as f:
            key = f.read()

        def is_whole():
            return all(os.path.exists(os.path.join(run_dir, name)) for name in ("lock", "key", "admin.sock", "router.ipc"))
        shutil.rmtree(run_dir)
        assert launch.complete(address, "Once upon a time", 8) == expected
        wait_until("the directory is there again", is_whole)
        assert stat.S_IMODE(os.stat(run_dir).st_mode) == 0o700
        with open(os.path.join(run_dir, "key"), "rb") as f:
            assert f.read() == key
        restarts(launch, ["decode-0"])  # its peers are those of before
        assert launch.complete(address, "Once upon a time", 8) == expected
        restarts(launch, ["router"])  # prefill-0 has its socket elsewhere, and finds it
        address = launch.process("router")["http"]
        assert launch.complete(address, "Once upon a time", 8) == expected
        # And what is in it, as who cleans up old files does.
        for name in ("key", "lock", "admin.sock", "router.ipc"):
            os.unlink(os.path.join(run_dir, name))
        wait_until("what was in it is there again", is_whole)
        launch.popen.terminate()
        assert launch.popen.wait(60) == 0, launch.output()
        assert not os.path.exists(run_dir)
