# SPDX-License-Identifier: Apache-2.0
"""The processes that bench/grammar.py asks: Baton's (_grammar_run.c) and its peers' (_grammar_peer.py), and what those need."""
import contextlib
import json
import os
import select
import subprocess

from _peers import cache, environment
from _shared import HERE, Half

VERSIONS = {"llguidance": "1.9.1", "xgrammar": "0.2.9"}
# What they import and more: neither PyTorch nor transformers, which _grammar_peer.py does without.
PACKAGES = ["tokenizers==0.23.3", *(f"{name}=={version}" for name, version in VERSIONS.items())]
NEEDED = ["apache-tvm-ffi==0.1.15.post2", "numpy", "pydantic", "typing-extensions"]


def is_installed(python):
    check = ("from importlib.metadata import version; import tokenizers, llguidance, tvm_ffi, numpy, pydantic; "
             f"raise SystemExit(any(version(n) != v for n, v in {VERSIONS!r}.items()))")
    return os.path.exists(python) and subprocess.run([python, "-c", check], capture_output=True).returncode == 0


def place():
    """@return the folder, and the python of the virtual environment in it"""
    folder = os.path.join(cache(), "grammar-" + "-".join(VERSIONS.values()))
    return folder, os.path.join(folder, "bin", "python")


def is_here():
    return is_installed(place()[1])


def install():
    """@return the python of a virtual environment that has the peers"""
    binary = ["--only-binary", ":all:"]
    return environment(place()[0], is_installed, ", ".join(f"{n} {v}" for n, v in VERSIONS.items()), [
        ("what the peers need", [*binary, *NEEDED], {}), ("the peers", [*binary, "--no-deps", *PACKAGES], {})])


class Engine:
    """A process that is started again where a case ends it, or takes too long."""

    def __init__(self, name, argv, limit_s):
        self.name, self.argv, self.limit_s, self.half = name, argv, limit_s, None
        self.begun = self.start()

    def start(self):
        """@return its first line"""
        self.half = Half(self.argv)
        return self.half.read(60)

    def stop(self):
        Half.running.remove(self.half)
        self.half.process.kill()
        self.half.process.wait()
        with contextlib.suppress(BrokenPipeError):  # what it did not read
            self.half.process.stdin.close()
        self.half.process.stdout.close()

    def ask(self, case):
        """@return what it says of a case; {"lost"}: why it says nothing"""
        process = self.half.process
        try:
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], self.limit_s)[0]:
                why = f"no answer within {self.limit_s:g} s"
            else:
                line = process.stdout.readline()
                if line.endswith("\n"):
                    return json.loads(line)
                why = f"ended with status {process.wait()}"
        except BrokenPipeError:
            why = f"ended with status {process.wait()}"
        self.stop()
        self.start()
        return {"lost": why}

    def close(self):
        self.half.close()


def own(program, model, limit_s):
    return Engine("Baton", [program, model], limit_s)


def peer(name, model, limit_s):
    return Engine(name, [install(), os.path.join(HERE, "_grammar_peer.py"), name, model], limit_s)
