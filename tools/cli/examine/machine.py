# SPDX-License-Identifier: Apache-2.0
"""The machine, as it is read: files of /proc, /sys and /dev, commands, and calls that are tried.

Tests point BATON_DOCTOR_ROOT at a folder with files of a machine that is wrong. Then nothing that is a call of this kernel
is tried, for it would tell of this machine."""
import os
import re
import shutil
import subprocess

MIB = 1 << 20
COMMAND_S = 10
HOST_NAME_MOST = 63  # common/base/process.h: with more UCX 1.13 aborts whoever is linked with it


def mib(n_bytes):
    return f"{n_bytes / MIB:,.0f} MiB" if n_bytes < 10240 * MIB else f"{n_bytes / MIB / 1024:,.1f} GiB"


def cores_of(text):
    """ "0-3,8" -> {0, 1, 2, 3, 8} """
    cores = set()
    for part in (text or "").strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores |= set(range(int(first), int(last or first) + 1))
    return cores


class Machine:
    def __init__(self, environment=None, options=None, root=None):
        self.environment = dict(os.environ) if environment is None else environment
        self.root = self.environment.get("BATON_DOCTOR_ROOT", "") if root is None else root
        self.is_real = not self.root
        self.options = options or {}  # of serve, as they are in force: name -> value
        self.build = None             # of Build, where there is one
        self.tree = None              # the version of the source tree, as the programs would say theirs
        self.probe = {}               # what the worker's program says of the machine...
        self.probe_words = ""         # ...and what it had against it
        self.limits = None            # what a start would find (launcher/survey.h), where something is built
        self.shm_bytes = None         # what KV pools take of /dev/shm, where the workers could be asked

    def limit(self, name):
        """cpus, memory or threads: most, left, and by, the file of a cgroup or what else sets it. Each None: there is none,
        or nobody knows."""
        return (self.limits or {}).get(name) or {"most": None, "left": None, "by": None}

    def path(self, path):
        return self.root + path

    def read(self, path):
        """@return the text, or None"""
        try:
            with open(self.path(path), encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return None

    def number(self, path):
        text = (self.read(path) or "").strip()
        return int(text) if re.fullmatch(r"-?\d+", text) else None

    def list(self, path):
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def exists(self, path):
        return os.path.exists(self.path(path))

    def fields(self, path):
        """ "MemTotal:  3 kB" lines as a dict of text """
        return {key.strip(): value.strip() for key, colon, value in
                (line.partition(":") for line in (self.read(path) or "").splitlines()) if colon}

    def run(self, *words, seconds=COMMAND_S):
        """@return (status, standard output, standard error), or (None, "", why) where it did not run or took too long"""
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL,
                                  env=self.environment)
        except subprocess.TimeoutExpired:
            return None, "", f"no answer within {seconds} s"
        except OSError as why:
            return None, "", why.strerror
        return done.returncode, done.stdout, done.stderr

    def command(self, *words):
        """@return standard output, or None where there is no such command, it fails or takes too long"""
        status, out, _ = self.run(*words) if self.has(words[0]) else (None, "", "")
        return out if status == 0 else None

    def has(self, program):
        return shutil.which(program, path=self.environment.get("PATH"))

    def kernel(self):
        """@return (6, 1) of "6.1.0-18-amd64" """
        text = self.read("/proc/sys/kernel/osrelease") or ""
        found = re.match(r"(\d+)\.(\d+)", text)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def mount_of(self, path):
        """@return (place, type, options) of the mount that a path is on"""
        best = ("", "", "")
        for line in (self.read("/proc/self/mounts") or "").splitlines():
            words = line.split(" ")
            if len(words) >= 4:
                place = words[1].replace("\\040", " ")
                inside = path == place or path.startswith(place.rstrip("/") + "/")
                if inside and len(place) >= len(best[0]):
                    best = (place, words[2], words[3])
        return best

    def allowed_cores(self):
        """Those that this process may use."""
        return cores_of(self.fields("/proc/self/status").get("Cpus_allowed_list", ""))

    def host_name(self):
        return (self.read("/proc/sys/kernel/hostname") or "").strip()

    @staticmethod
    def uid():
        return os.geteuid()
