# SPDX-License-Identifier: Apache-2.0
"""Folders may have any name: those of sockets, of models and of caches."""
import os
import subprocess
import tempfile

from harness import BUILD, small_model, wait_until
from launch import Launch


def in_home(variable):
    """All that somebody's session says of folders; sockets lie in that of `variable`."""
    return lambda folder: {variable: folder, "HOME": folder, "XDG_CACHE_HOME": os.path.join(folder, "ca,che")}


def check(name, variable, *options):
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        place = os.path.join(directory, name)
        os.mkdir(place)
        with Launch("--model", small_model(place), *options, folder=name, environment=in_home(variable)) as launch:
            launcher = launch.admin("status")["launcher"]
            assert os.path.dirname(launcher["run_dir"]) == launch.dir, launcher
            assert launch.complete(launch.process("router" if "--routers" not in options else "router-1")["http"], "a")
            weights = os.path.join(launch.dir, "ca,che/baton/weights")
            wait_until("packed weights are kept", lambda: os.path.isdir(weights) and os.listdir(weights), 60)
            told = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--admin", "status"], text=True, check=True,
                                  env=dict(os.environ, **launch.environment), stdout=subprocess.PIPE).stdout
            assert launcher["run_dir"] in told, told
            assert "control port" not in launch.output(), launch.output()
            launch.popen.terminate()
            assert launch.popen.wait(60) == 0
            left = [entry for entry in os.listdir(launch.dir) if entry.startswith("baton-")]
            assert left == [], left


def test_folder_names_with_blanks_commas_and_letters_work():
    check("a b", "TMPDIR")
    check("é", "TMPDIR")
    check("a,b", "TMPDIR")
    check("a =%,é", "XDG_RUNTIME_DIR", "--routers", "2", "--decode-tp", "2")


def test_worker_names_a_socket_whose_path_has_control_characters():
    """The launcher takes another one; who starts a worker by hand is told."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        folder = os.path.join(directory, "a\nb")
        os.mkdir(folder)
        with Launch("--model", small_model(directory), environment=lambda d: {"TMPDIR": folder, "BATON_WEIGHT_CACHE": "off"}) as launch:
            wait_until("it is ready", lambda: "Baton is ready" in launch.output(), 60)
            assert os.listdir(folder) == []
        key = os.path.join(directory, "key")
        with open(key, "w", opener=lambda path, flags: os.open(path, flags, 0o600), encoding="ascii") as f:
            f.write("00" * 32 + "\n")
        done = subprocess.run([os.path.join(BUILD, "worker/main/baton-decode-worker"), "--model", small_model(directory), "--cluster-key-file", key,
                               "--kv-memory", "16m", "--join", f"ipc://{folder}/router.ipc"],
                              stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert done.returncode != 0 and "control characters" in done.stderr, (done.returncode, done.stderr)
