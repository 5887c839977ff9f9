# SPDX-License-Identifier: Apache-2.0
"""The commands that README and docs show, and a server for those that want one."""
import glob
import os
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request

import harness
from harness import wait_until

PAGES = ["README.md", "CONTRIBUTING.md", *(os.path.relpath(p, harness.ROOT) for p in sorted(
    glob.glob(os.path.join(harness.ROOT, "docs", "**", "*.md"), recursive=True)))]
SHELLS = ("sh", "bash", "console")
# What a line of a block without a language would begin with, were it a command.
PROGRAMS = re.compile(r"(?:[A-Z_]+=\S+ )*(?:\./baton|baton|curl|jq|awk|pip|python3?|meson|ninja|docker|sbatch|srun|mpirun|cd)\s")
# ./baton as it is in the source tree, with this build and nothing to install.
SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
root={root}
self=./baton
. "$root/setup/commands.sh"
launch={build}/launcher/baton-launch
text="$root/tests/golden/accuracy_text.txt"
program_path() {{ printf '%s\\n' {build}/"${{1#baton-}}/$1"; }}
prepare() {{ :; }}
own_help() {{ :; }}
told_version() {{ "$launch" --version; }}
cmd_serve() {{ serve_model "$@"; }}
run_command "$@"
"""


def text_of(page):
    with open(os.path.join(harness.ROOT, page), encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """@return [(language, code)] of the fenced blocks"""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)


def commands(code):
    """@return the commands of a block: lines with those that continue them, without comments; a here-document and a
    quoted text over several lines belong to their command"""
    found, end = [], None
    for line in code.split("\n"):
        before = found[-1] if found else ""
        if end is not None:
            found[-1] += "\n" + line
            end = None if line == end else end
        elif found and (before.endswith("\\") or before.count("'") % 2 == 1):
            found[-1] += "\n" + line
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append(line)
            here = re.search(r"<<(\w+)$", line)
            end = here[1] if here else None
    return [re.sub(r"\s+# .*$", "", c) if "\n" not in c else c for c in found]


def section(page, title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text_of(page), re.M | re.S)[1]


WEIGHTS = tempfile.TemporaryDirectory(prefix="baton-test-")  # packed once for all servers


class Desk:
    """A folder with ./baton, as somebody has it who follows a page. The first server has the default model, where none is
    named; others a small one, which starts and answers at once."""

    def __init__(self, programs=()):
        self.dir = tempfile.mkdtemp(prefix="baton-test-")
        with open(os.path.join(self.dir, "baton"), "w", encoding="utf-8") as f:
            f.write(SCRIPT.format(root=harness.ROOT, build=harness.BUILD))
        os.chmod(os.path.join(self.dir, "baton"), 0o755)
        os.symlink(os.path.join(harness.ROOT, "packaging"), os.path.join(self.dir, "packaging"))
        self.ports = {str(p): str(harness.free_port()) for p in (8000, 8001, 8002)}
        self.server, self.log = None, os.path.join(self.dir, "log")
        os.mkdir(os.path.join(self.dir, "run"), 0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("BATON_", "OPENAI_"))}
        self.env.update(XDG_RUNTIME_DIR=os.path.join(self.dir, "run"), TMPDIR=os.path.join(self.dir, "run"),
                        BATON_HTTP="127.0.0.1:" + self.ports["8000"], BATON_GRPC="127.0.0.1:" + self.ports["8001"],
                        BATON_METRICS="127.0.0.1:" + self.ports["8002"], BATON_THREADS="1", BATON_LAME_DUCK_MS="0",
                        BATON_WEIGHT_CACHE=os.path.join(WEIGHTS.name, "weights"),
                        PATH=os.pathsep.join([*programs, os.environ["PATH"]]))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.stop()
        if kind is not None and os.path.exists(self.log):
            with open(self.log, encoding="utf-8", errors="replace") as f:
                print(f"--- the server's log\n{f.read()[-4000:]}")
        shutil.rmtree(self.dir)

    def here(self, code):
        for port, ours in self.ports.items():
            code = re.sub(rf"\b(?:127\.0\.0\.1|0\.0\.0\.0):{port}\b", f"127.0.0.1:{ours}", code)
        return code

    def run(self, code):
        """A block in a shell of its own; where its last command serves, that goes on. @return what it printed"""
        first, serves = code, ""
        if "./baton serve" in code:
            first, _, serves = code.rpartition("./baton serve")
            assert "\n" not in serves.strip().replace("\\\n", ""), f"a server is the last of its block: {code}"
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", self.here(first)], cwd=self.dir, env=self.env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{first}\n{done.returncode}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        if serves or code.strip() == "./baton serve":
            self.stop()
            self.serve("exec ./baton serve" + self.here(serves))
        return done.stdout

    def serve(self, command):
        with open(self.log, "a", encoding="utf-8") as log:
            self.server = subprocess.Popen(["bash", "-ec", command], cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log)
        wait_until("the server is ready", self.is_ready, 180)
        if "BATON_MODEL" not in self.env:
            self.env["BATON_MODEL"] = harness.tiny_model(self.dir, layers=2, dim=64, heads=4, kv_heads=2, ffn=128,
                                                         context=2048, seed=1)

    def is_ready(self):
        assert self.server.poll() is None, f"the server ended with {self.server.returncode}"
        loose = ssl.create_default_context()
        loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
        for scheme in ("http", "https"):
            try:
                with urllib.request.urlopen(f"{scheme}://127.0.0.1:{self.ports['8000']}/v2/health/ready", timeout=5,
                                            context=loose) as answer:
                    return answer.status == 200
            except (OSError, urllib.error.URLError):
                pass
        return False

    def stop(self):
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            code = self.server.wait(timeout=90)
            self.server = None
            assert code == 0, f"the server ended with {code}"
