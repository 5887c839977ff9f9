# SPDX-License-Identifier: Apache-2.0
"""Control groups of a test's own, for limits of memory, processor time and processes."""
import os

from harness import Skip, wait_until


def own_group(controller):
    """@return the folder of this process's group, of version 1 or, without a name, of version 2; Skip where there is none"""
    with open("/proc/self/cgroup", encoding="ascii") as f:
        paths = {line.split(":")[1]: line.rstrip("\n").split(":", 2)[2] for line in f}
    path = next((path for names, path in paths.items() if controller in names.split(",")), None)
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            left, _, right = line.partition(" - ")
            kind, _, options = right.split()[:3]
            if (kind, True) == (("cgroup", controller in options.split(",")) if controller else ("cgroup2", True)):
                root, place = left.split()[3:5]
                folder = place + (path or "/").removeprefix(root.rstrip("/"))
                if path is not None and os.path.isdir(folder):
                    return folder.rstrip("/")
    raise Skip(f"no cgroup of version {'1 with ' + controller if controller else '2'} is mounted")


class Group:
    """with Group("memory", limit_in_bytes=...) as g: a new group; with deeper=True one more in it, which processes join"""

    def __init__(self, controller, deeper=False, **limits):
        self.controller, self.limits = controller, limits
        self.top = os.path.join(own_group(controller), f"baton-test-{os.getpid()}")
        self.folder = os.path.join(self.top, "deeper") if deeper else self.top

    def __enter__(self):
        try:
            os.makedirs(self.folder)
            for name, value in self.limits.items():
                self.set(name, value)
        except OSError as why:
            self.__exit__(None, None, None)
            raise Skip(f"no cgroup {self.top} can be made: {why}") from why
        return self

    def __exit__(self, kind, value, trace):
        for folder in dict.fromkeys((self.folder, self.top)):
            if os.path.isdir(folder):  # who was in it has ended, and may not be gone yet
                wait_until(f"{folder} is empty", lambda f=folder: not open(f + "/cgroup.procs", encoding="ascii").read())
                os.rmdir(folder)

    def file(self, name):
        return f"{self.top}/{self.controller}.{name}"

    def set(self, name, value):
        with open(self.file(name), "w", encoding="ascii") as f:
            f.write(str(value))

    def read(self, name, folder=None):
        with open(f"{folder or self.top}/{self.controller}.{name}", encoding="ascii") as f:
            return f.read()
