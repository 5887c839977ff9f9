# SPDX-License-Identifier: Apache-2.0
"""What other engines, the peers, are installed with: $XDG_CACHE_HOME/baton/peers (~/.cache/baton/peers)."""
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys

from _shared import missing


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(base, "baton", "peers")
    os.makedirs(folder, exist_ok=True)
    return folder


@contextlib.contextmanager
def lock():
    with open(os.path.join(cache(), "lock"), "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def run(argv, log_path, what, **more):
    with open(log_path, "ab") as log:
        done = subprocess.run([str(x) for x in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)
    if done.returncode != 0:
        with open(log_path, "rb") as log:
            tail = log.read()[-3000:].decode(errors="replace")
        raise SystemExit(f"{tail}\n{what} failed (all of it: {log_path})")


def pip_python():
    """A python that has pip."""
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", "import pip"], capture_output=True).returncode == 0:
                return python
    missing("no Python has pip (Debian package python3-pip)")


def environment(folder, is_installed, what, steps):
    """A virtual environment of a peer, made anew unless it is there.
    @param is_installed  of a python: whether the peer can be imported
    @param steps  [(what, arguments of `pip install`, environment variables)]
    @return its python"""
    python = os.path.join(folder, "bin", "python")
    with lock():
        if is_installed(python):
            return python
        print(f"installing {what} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        log = folder + ".log"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log)
        host = pip_python()
        # Without ensurepip, which is a package of its own on Debian.
        run([host, "-m", "venv", "--without-pip", folder], log, "making a virtual environment")
        for name, arguments, variables in steps:
            run([host, "-m", "pip", "--python", python, "install", *arguments], log, f"installing {name}", env=dict(os.environ, **variables))
        if not is_installed(python):
            raise SystemExit(f"{what} was installed but cannot be imported (see {log})")
    return python
