# SPDX-License-Identifier: Apache-2.0
"""A launcher under test, with fake programs: what the tests that run one share.
"""
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import admin_socket  # noqa: E402
DEADLINE_S = 60
LAUNCHER = []


def launcher():
    """Of the program whose path stands before unittest's arguments."""
    return LAUNCHER[0]


def main():
    LAUNCHER.append(os.path.abspath(sys.argv.pop(1)))
    unittest.main()


def poll(condition, what):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {DEADLINE_S} s for {what}")


def is_alive(pid):
    """Not a zombie either: somebody else may have to reap it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Launched:
    """One launcher with its output collected as it comes."""

    def __init__(self, folder, *arguments, reads=True, popen=None,
                 **environment):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("BATON_")}
        env.update(FAKE_DIR=folder, BATON_LIBEXEC=folder, TMPDIR=folder,
                   PYTHONDONTWRITEBYTECODE="1")
        env.pop("XDG_RUNTIME_DIR", None)
        env.update(environment)
        self.process = subprocess.Popen(
            [launcher(), *arguments], env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **(popen or {}))
        self.out = []
        self.err = []
        self.readers = [
            threading.Thread(target=self.collect, args=pair)
            for pair in ((self.process.stdout, self.out),
                         (self.process.stderr, self.err))]
        self.reads = reads
        if reads:
            self.begin_to_read()

    def begin_to_read(self):
        self.reads = True
        for reader in self.readers:
            reader.start()

    @staticmethod
    def collect(stream, lines):
        for line in stream:
            lines.append(line)

    def stdout(self):
        return "".join(self.out)

    def stderr(self):
        return "".join(self.err)

    def wait_says(self, pattern):
        """Until standard error has it: what we read comes after what the
        launcher did."""
        poll(lambda: re.search(pattern, self.stderr()), f"{pattern} in "
             "standard error")

    def wait_ready(self):
        poll(lambda: "Ctrl-C stops" in self.stdout()
             or self.process.poll() is not None, "the announcement")
        assert self.process.poll() is None, self.stderr()

    def wait(self):
        status = self.process.wait(DEADLINE_S)
        for reader in self.readers if self.reads else ():
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()


class LauncherTest(unittest.TestCase):
    """A folder with fake programs; every launcher that a test starts ends."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="bt-", dir="/tmp")
        self.model = os.path.join(self.folder, "model.gguf")
        open(self.model, "w").close()
        for name in ("baton-router", "baton-prefill-worker",
                     "baton-decode-worker"):
            shutil.copy(os.path.join(HERE, "fake_program.py"),
                        os.path.join(self.folder, name))
        self.launched = []

    def tearDown(self):
        for launched in self.launched:
            if launched.process.poll() is None:
                launched.process.kill()
                launched.wait()
        for _event, _name, pid in self.events():
            poll(lambda pid=pid: not is_alive(pid), f"the end of {pid}")
        shutil.rmtree(self.folder)

    def launch(self, *arguments, reads=True, popen=None, **environment):
        if "--model" not in arguments:
            arguments = ("--model", self.model, *arguments)
        launched = Launched(self.folder, *arguments, reads=reads, popen=popen,
                            **environment)
        self.launched.append(launched)
        return launched

    def behave(self, name, how):
        with open(os.path.join(self.folder, name + ".behave"), "w") as file:
            file.write(how)

    def say(self, name, line):
        """Have the process write a line, and wait until it has."""
        path = os.path.join(self.folder, name + ".say")
        with open(path + ".new", "w") as file:
            file.write(line + "\n")
        os.rename(path + ".new", path)
        poll(lambda: not os.path.exists(path), f"what {name} says")

    @staticmethod
    def read(path):
        with open(path) as file:
            return file.read()

    def events(self, wanted=None, name=None):
        try:
            with open(os.path.join(self.folder, "events")) as file:
                rows = [line.split() for line in file]
        except FileNotFoundError:
            return []
        return [(event, who, int(pid)) for event, who, pid in rows
                if wanted in (None, event) and name in (None, who)]

    def started(self, name):
        with open(os.path.join(self.folder, name + ".started")) as file:
            return file.read().splitlines()

    def option(self, name, key):
        for line in self.started(name):
            if line.startswith(f"--{key}="):
                return line.split("=", 1)[1]
        return None

    def ask(self, words):
        """A command to the only launcher. @return its answer."""
        return admin_socket.ask(
            os.path.join(self.folder, self.run_dirs()[0], admin_socket.NAME),
            words, DEADLINE_S)

    def state_of(self, name):
        """The process' entry of the status, or nothing."""
        for process in self.ask("status")["processes"]:
            if process["name"] == name:
                return process
        return {"state": None, "restarts": None}

    def run_dirs(self):
        return [entry for entry in os.listdir(self.folder)
                if re.fullmatch("baton-.{6}", entry)
                and os.path.isdir(os.path.join(self.folder, entry))]
