# SPDX-License-Identifier: Apache-2.0
"""What `./baton serve` ends with when it cannot serve: at once, and the last line is the cause."""
import os
import socket
import subprocess
import tempfile

from harness import BUILD, small_model


def launch(directory, *args):
    """@return exit status, lines of standard error, names of processes that wrote a log."""
    logs = tempfile.mkdtemp(prefix="logs-", dir=directory)
    environment = dict(os.environ, XDG_RUNTIME_DIR=directory, BATON_WEIGHT_CACHE=os.path.join(directory, "weights"))
    done = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), *args, "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                           "--log-dir", logs], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, env=environment, timeout=120, check=False)
    wrote = sorted(name.removesuffix(".log") for name in os.listdir(logs) if os.path.getsize(os.path.join(logs, name)))
    return done.returncode, done.stderr.splitlines(), wrote


def test_launch_that_cannot_serve_ends_at_once():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, socket.socket() as taken:
        model = small_model(directory)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, said, wrote = launch(directory, "--model", model, "--http", address)
        assert status == 78, (status, said)
        assert said[-1].endswith(f"error baton: router could not start: cannot serve at {address}: Address already in "
                                 "use; choose another address with --http"), said
        assert wrote == ["launcher", "router"], wrote  # the workers were not started

        status, said, wrote = launch(directory, "--model", model, "--http", "127.0.0.1:0", "--kv-memory", "60000g")
        assert status == 78, (status, said)
        assert "error baton: memory: the workers take " in said[-1] and " MiB are missing; " in said[-1], said
        assert wrote == ["launcher"], wrote

        status, said, wrote = launch(directory, "--model", model, "--http", "127.0.0.1:0", "--backend", "nowhere")
        assert status == 78, (status, said)
        assert "could not start: " in said[-1] and "nowhere" in said[-1], said
        assert not any("restarting in" in line for line in said), said
