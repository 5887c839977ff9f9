# SPDX-License-Identifier: Apache-2.0
"""An installed Baton, and a server of it, for the tests of this folder."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tests/integration"))

from harness import BUILD, free_port, small_model, tiny_model, wait_until  # noqa: E402, F401

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def prefix():
    """That the build was configured for."""
    done = subprocess.run(["meson", "introspect", "--buildoptions", BUILD], stdout=subprocess.PIPE, check=True)
    return next(option["value"] for option in json.loads(done.stdout) if option["name"] == "prefix")


def install(directory):
    """@return the prefix, below a folder that is another one than it was installed to: an installed tree may be moved"""
    first = os.path.join(directory, "first")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", first], check=True,
                   stdout=subprocess.DEVNULL)
    moved = os.path.join(directory, "mo ved,é")  # and folders may have any name
    os.rename(first, moved)
    return moved + prefix()


def can_hide():
    """May this process have a mount namespace of its own?"""
    return subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def hidden(command):
    """The command, for which the source tree and the build are empty folders, where that is possible."""
    if not can_hide():
        return command
    script = 'for tree in "$0" "$1"; do [ ! -d "$tree" ] || mount -t tmpfs none "$tree"; done; shift; exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, ROOT, BUILD, *command]


class Home:
    """Somebody's folders, with nothing of this process's environment."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="bt-home-")
        self.environment = {"PATH": SYSTEM_PATH, "HOME": self.dir, "XDG_RUNTIME_DIR": self.dir, "LC_ALL": "C.UTF-8",
                            "XDG_CACHE_HOME": os.path.join(self.dir, "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *command, status=0, **environment):
        """@return what it says on standard output, after it ended with that status"""
        done = subprocess.run(hidden(list(command)), cwd=self.dir, env=dict(self.environment, **environment), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout + (done.stderr if status else "")

    def remove(self):
        shutil.rmtree(self.dir)


class Server:
    """with Server(home, [".../baton", "serve"], model) as s: s.http"""

    def __init__(self, home, command, model, *options, **environment):
        self.home = home
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.command = [*command, "--model", model, "--http", self.http, "--grpc", self.grpc, "--metrics", self.metrics,
                        "--kv-memory", "16m", "--lame-duck-ms", "0", *options]
        self.environment = dict(home.environment, **environment)
        self.log_path = os.path.join(home.dir, "log")
        self.popen = None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.popen = subprocess.Popen(self.command, cwd=self.home.dir, env=self.environment, stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log)
        try:
            wait_until("Baton is ready", lambda: "Baton is ready" in self.log() or self.popen.poll() is not None, 120)
            assert self.popen.poll() is None, self.log()
            return self
        except BaseException:
            self.popen.kill()
            self.popen.wait()
            raise

    def run_dir(self):
        """Of the launcher, where this server's home is its XDG_RUNTIME_DIR."""
        name, = (name for name in os.listdir(self.home.dir) if name.startswith("baton-"))
        return os.path.join(self.home.dir, name)

    def stop(self):
        """@return its status; nothing that it started is left"""
        self.popen.send_signal(signal.SIGTERM)
        status = self.popen.wait(60)
        left = [name for name in os.listdir(self.home.dir) if name.startswith("baton-")]
        assert left == [], left
        return status

    def __exit__(self, kind, value, trace):
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(60)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        if kind is not None:
            print(self.log()[-6000:])
