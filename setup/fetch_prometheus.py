#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch prometheus and promtool for the tests of packaging/observability/ and print their folder.

Usage: fetch_prometheus.py [--cache DIR] [--no-install]

They come from the Debian package `prometheus`, which is unpacked into the cache and not installed: an installed one
would start a service. Says why on standard error, and ends with 3, where they are not there and cannot be.
"""
import fcntl
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import fetch_clients

PACKAGE = "prometheus"
PROGRAMS = ("prometheus", "promtool")


def run(command, where):
    return subprocess.run(command, cwd=where, stdout=sys.stderr, check=False).returncode == 0


def download(where):
    """@return path of the package"""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise fetch_clients.CannotInstall("there is no apt-get or dpkg to fetch the package prometheus with")
    command = ["apt-get", "-q", "download", PACKAGE]
    done = run(command, where)
    if not done and os.geteuid() == 0 and run(["apt-get", "-q", "update"], where):
        done = run(command, where)  # the lists of packages were not there, or old
    found = glob.glob(os.path.join(where, f"{PACKAGE}_*.deb"))
    if not done or not found:
        raise fetch_clients.CannotInstall("the package prometheus cannot be fetched")
    return found[0]


def is_there(folder):
    return all(os.access(os.path.join(folder, name), os.X_OK) for name in PROGRAMS)


def ensure(cache, may_install=True):
    """@return the folder of the programs."""
    folder = os.path.join(cache, "prometheus")
    if is_there(folder):
        return folder
    if not may_install:
        raise fetch_clients.CannotInstall("prometheus is not there")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "prometheus.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_there(folder):  # another process may have been quicker
            unpack(cache, folder)
    return folder


def unpack(cache, folder):
    with tempfile.TemporaryDirectory(dir=cache) as where:
        fetch_clients.say(f"fetching the package prometheus into {folder}")
        package = download(where)
        if not run(["dpkg", "-x", package, "root"], where):
            raise fetch_clients.CannotInstall("the package prometheus cannot be unpacked")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        for name in PROGRAMS:
            os.replace(os.path.join(where, "root", "usr", "bin", name), os.path.join(folder, name))


if __name__ == "__main__":
    sys.exit(fetch_clients.main_of(__doc__, ensure))
