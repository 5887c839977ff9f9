# SPDX-License-Identifier: Apache-2.0
"""Limits of this process, which all of a launch inherit."""
import re

from .cpu import quota

# router/http/door_limits.c: a quarter of the descriptors, at most 1,024, is for workers and logs; 16 connections of clients
# are the least that a router starts with; it takes 16,384 and those of gRPC and metrics at most.
RESERVED_MOST, LEAST_CLIENTS, MOST_CLIENTS = 1024, 16, 16384 + 1024 + 64
IN_USE = 40         # descriptors that a router has open when it looks
THREADS_EACH = 12   # of a process beside its compute threads: UCX's, nng's, the log's, a router's pool


def limits(machine):
    """name -> (soft, hard), None for unlimited"""
    found = {}
    for line in (machine.read("/proc/self/limits") or "").splitlines()[1:]:
        words = re.match(r"(Max .*?)\s{2,}(\S+)\s+(\S+)", line)
        if words:
            found[words[1]] = tuple(None if word == "unlimited" else int(word) for word in words.groups()[1:])
    return found


def clients(descriptors):
    """places() of door_limits.c, less what gRPC and metrics get"""
    left = max(0, descriptors - IN_USE - min(descriptors // 4, RESERVED_MOST))
    return left - min(left // 8, 64) - min(left // 8, 1024)


def descriptors(found, findings):
    hard = found.get("Max open files", (None, None))[1]
    mend = "ulimit -Hn 65536 (systemd: LimitNOFILE=65536; docker: --ulimit nofile=65536:65536)"
    if hard is None:
        findings.ok("descriptors", "no limit")
        return
    n = max(0, min(clients(hard), 16384))
    if n < LEAST_CLIENTS:
        findings.problem("descriptors", f"the hard limit of {hard} files is too low for a router to start", mend)
    elif n < 1024:
        findings.warning("descriptors", f"the hard limit of {hard} files leaves a router {n} connections of clients", mend)
    else:
        findings.ok("descriptors", f"{hard} files at most, which leaves a router {n:,} connections of clients")


def processes(machine, found, findings):
    n_cores = min(len(machine.allowed_cores()) or 1, quota(machine) or 1 << 30)
    workers = int(machine.options.get("prefill", 1)) + int(machine.options.get("decode", 1))
    routers = int(machine.options.get("routers", 1))
    needs = (workers + routers + 1) * THREADS_EACH + 2 * n_cores  # compute threads, own and on lent cores
    limit = found.get("Max processes", (None, None))[0]
    pids = machine.read("/sys/fs/cgroup/pids.max")
    used = machine.number("/sys/fs/cgroup/pids.current") or 0
    if limit is not None and limit < needs and machine.fields("/proc/self/status").get("Uid", "0").split()[0] != "0":
        findings.problem("processes", f"this user may have {limit} threads, and a launch has some {needs}",
                         f"ulimit -u {4 * needs} (systemd: LimitNPROC={4 * needs})")
    elif pids and pids.strip().isdigit() and int(pids) - used < needs:
        findings.problem("processes", f"the cgroup leaves {max(0, int(pids) - used)} threads (pids.max), and a launch has some {needs}",
                         f"TasksMax={4 * needs} of the systemd unit (docker: --pids-limit {4 * needs})")
    else:
        findings.ok("processes", f"room for the some {needs} threads of a launch")


def others(machine, found, findings):
    for name, what in (("Max address space", "address space (ulimit -v): reserved space counts, and starts fail with memory left"),
                       ("Max file size", "size of files (ulimit -f): packed weights, logs and traces are cut off there"),
                       ("Max data size", "memory (ulimit -d): a model that is larger is not loaded")):
        soft = found.get(name, (None, None))[0]
        if soft is not None:
            letter = {"Max address space": "v", "Max file size": "f", "Max data size": "d"}[name]
            findings.warning("limits", f"a limit of {soft:,} bytes of {what}", f"ulimit -{letter} unlimited")
    locked = found.get("Max locked memory", (None, None))[0]
    if machine.list("/sys/class/infiniband") and locked is not None:
        findings.warning("locked memory", f"{locked:,} bytes (ulimit -l): RDMA registers the KV pool, which has to fit",
                         "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1)")
    core = found.get("Max core file size", (None, None))[0]
    if machine.options.get("core-dumps") == "yes" and core == 0:
        findings.warning("core dumps", "--core-dumps, but the limit of a core file is 0: a crash leaves none", "ulimit -c unlimited")


def examine(machine, findings):
    found = limits(machine)
    if not found:
        findings.note("limits", "/proc/self/limits cannot be read")
        return
    descriptors(found, findings)
    processes(machine, found, findings)
    others(machine, found, findings)
