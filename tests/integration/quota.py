# SPDX-License-Identifier: Apache-2.0
"""A quota of processor time for some processes: a cgroup of their own, of version 1 or 2."""
import errno
import os
import tempfile

from harness import Skip, wait_until

V1 = "/sys/fs/cgroup/cpu"
V2 = "/sys/fs/cgroup"
PERIOD_US = 1000000  # the longest: whoever has used up the quota does not run for a second


class Quota:
    """with Quota(pids, quota_us) as q: together they get quota_us of each second"""

    def __init__(self, pids, quota_us):
        self.pids, self.quota_us = list(pids), quota_us
        self.is_v1 = os.path.exists(os.path.join(V1, "cpu.cfs_quota_us"))
        self.path = ""

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("a quota of processor time needs root")
        if not self.is_v1 and not self._is_v2():
            raise Skip("no cgroup with a quota of processor time here")
        try:
            self.path = tempfile.mkdtemp(prefix="baton-test-", dir=V1 if self.is_v1 else V2)
        except OSError as why:
            raise Skip(f"no cgroup can be made: {why}") from why
        try:
            self.set(self.quota_us)
            for pid in self.pids:
                self._write("cgroup.procs", str(pid))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @staticmethod
    def _is_v2():
        try:
            with open(os.path.join(V2, "cgroup.subtree_control"), encoding="ascii") as f:
                return "cpu" in f.read().split()
        except OSError:
            return False

    def _write(self, name, text, path=None):
        with open(os.path.join(path or self.path, name), "w", encoding="ascii") as f:
            f.write(text)

    def set(self, quota_us):
        if self.is_v1:
            self._write("cpu.cfs_period_us", str(PERIOD_US))
            self._write("cpu.cfs_quota_us", str(quota_us))
        else:
            self._write("cpu.max", f"{quota_us} {PERIOD_US}")

    def lift(self):
        if self.is_v1:
            self._write("cpu.cfs_quota_us", "-1")
        else:
            self._write("cpu.max", "max")

    def n_throttled(self):
        """Periods in which the quota was used up"""
        with open(os.path.join(self.path, "cpu.stat"), encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("nr_throttled"))

    def __exit__(self, kind, value, trace):
        if not self.path:
            return
        self.lift()
        for pid in self.pids:
            try:
                self._write("cgroup.procs", str(pid), V1 if self.is_v1 else V2)
            except OSError:
                pass  # it has ended
        wait_until("the cgroup is empty", self._remove)

    def _remove(self):
        try:
            os.rmdir(self.path)
        except OSError as why:
            if why.errno != errno.EBUSY:  # who was killed in it is still ending
                raise
            return False
        return True
