# SPDX-License-Identifier: Apache-2.0
"""Limits of this process, which all of a launch inherit."""
import re

# router/http/door_limits.c: a quarter of the descriptors, at most 1,024, is for workers and logs; 16 connections of clients
# are the least that a router starts with; it takes 16,384 and those of gRPC and metrics at most.
RESERVED_MOST, LEAST_CLIENTS, MOST_CLIENTS = 1024, 16, 16384 + 1024 + 64
IN_USE = 40         # descriptors that a router has open when it looks


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
    fix = "ulimit -Hn 65536 (systemd: LimitNOFILE=65536; docker: --ulimit nofile=65536:65536)"
    if hard is None:
        findings.ok("descriptors", "no limit")
        return
    n = max(0, min(clients(hard), 16384))
    if n < LEAST_CLIENTS:
        findings.problem("descriptors", f"the hard limit of {hard} files is too low for a router to start", fix)
    elif n < 1024:
        findings.warning("descriptors", f"the hard limit of {hard} files leaves a router {n} connections of clients", fix)
    else:
        findings.ok("descriptors", f"{hard} files at most, which leaves a router {n:,} connections of clients")


def processes(machine, findings):
    if not machine.limits:
        return
    limit, needs = machine.limit("threads"), machine.limits["threads_needed"]
    if limit["left"] is None:
        findings.ok("processes", f"no limit; a launch has up to {needs} processes and threads")
        return
    text = f"{limit['left']:,} of {limit['most']:,} processes and threads are left ({limit['by']}), and a launch has up to {needs}"
    more = limit["most"] - limit["left"] + needs
    if limit["left"] >= needs:
        findings.ok("processes", text)
    elif limit["by"] == "ulimit -u":
        findings.problem("processes", text, f"ulimit -u {more} (systemd: LimitNPROC={more})")
    else:
        findings.problem("processes", text, f"{more} or more there (systemd: TasksMax={more}; docker: --pids-limit {more})")


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
    if not machine.limits:
        findings.note("cgroups", "their limits (of CPUs, memory, processes) are read by the launcher, which is not built or does not run",
                      "./baton serve builds")
    found = limits(machine)
    if not found:
        findings.note("limits", "/proc/self/limits cannot be read")
        return
    descriptors(found, findings)
    processes(machine, findings)
    others(machine, found, findings)
