# SPDX-License-Identifier: Apache-2.0
"""Memory that is there, large pages of it, and /dev/shm."""
import os
import tempfile

from .machine import MIB, mib

# Of the default model two workers take 92 MiB of weights together and 76 MiB each while they load (./baton check tells it).
LEAST_BYTES = 256 * MIB
POOL_MOST = 1024 * MIB     # worker/preflight.c, DEFAULT_POOL_BYTES: of each worker, or a quarter of what is left


def kib(fields, name):
    words = fields.get(name, "").split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


def available(machine):
    """Bytes, as a start would find them; before something is built what the machine has, whatever cgroups leave."""
    left = machine.limit("memory")["left"]
    return kib(machine.fields("/proc/meminfo"), "MemAvailable") if left is None else left


def amount(machine, findings):
    fields, free, limit = machine.fields("/proc/meminfo"), available(machine), machine.limit("memory")
    if free is None:
        findings.warning("memory", "/proc/meminfo cannot be read, so nobody knows whether the model fits", "mount -t proc proc /proc")
        return
    text = f"{mib(free)} of {mib(kib(fields, 'MemTotal') or free)} are available"
    if limit["by"]:
        text += f"; the cgroup has {mib(limit['most'])} and leaves {mib(limit['left'])} ({limit['by']}; pages of files count as free)"
    more = "a higher limit of the cgroup (docker run --memory)" if limit["by"] else "fewer other processes, or more memory"
    if free < LEAST_BYTES:
        findings.problem("memory", f"{text}: even the default model and its two workers need {mib(LEAST_BYTES)}", more)
    elif free < 4 * LEAST_BYTES:
        findings.warning("memory", f"{text}: the KV pools, a quarter of what is left, will be small",
                         f"{more}; ./baton check --model M tells what a model takes")
    else:
        findings.ok("memory", text)
    if machine.number("/proc/sys/vm/overcommit_memory") == 2:
        findings.warning("memory", "vm.overcommit_memory is 2: address space that is only reserved counts as taken, and starts may "
                         "fail with memory left", "sysctl vm.overcommit_memory=0")


def chosen(text):
    """ "always [madvise] never" -> "madvise" """
    return (text or "").partition("[")[2].partition("]")[0]


def large_pages(machine, findings):
    enabled = chosen(machine.read("/sys/kernel/mm/transparent_hugepage/enabled"))
    shmem = chosen(machine.read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    kernel = machine.kernel()
    if enabled in ("", "never"):
        # inference/packed/packed_pages.c, huge_allowed(); 12 %: docs/MODELS.md, "Packed weights".
        findings.warning("large pages", ("this kernel has no" if enabled == "" else "never allowed:") + " transparent huge pages: a "
                         "decode step of one sequence takes some 12 % longer",
                         "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" if enabled else "a kernel with "
                         "CONFIG_TRANSPARENT_HUGEPAGE")
    elif shmem == "deny":  # kvtransfer/kvt_pages.h: MADV_COLLAPSE is refused
        findings.warning("large pages", f"{enabled}, but denied to shared memory: steps that read much KV take some 4 % longer",
                         "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled")
    elif kernel < (6, 1):
        findings.note("large pages", f"{enabled}; before Linux 6.1 the KV pool has small ones (MADV_COLLAPSE)")
    else:
        findings.ok("large pages", enabled + ("" if kernel >= (6, 7) else "; before Linux 6.7 packed weights that lie in small ones "
                                                                          "stay so"))
    reserved = sum((machine.number(f"/sys/kernel/mm/hugepages/{name}/nr_hugepages") or 0) * int(name.split("-")[1][:-2]) * 1024
                   for name in machine.list("/sys/kernel/mm/hugepages") if name.endswith("kB"))
    if reserved:
        findings.note("large pages", f"{mib(reserved)} are reserved for hugetlbfs, which Baton does not use: nobody else has them",
                      "sysctl vm.nr_hugepages=0")


def shm_room(machine):
    """@return (size, free) of /dev/shm, or None. A faked one says them in the file `room` beside it."""
    told = machine.read("/dev/shm.room")
    if told is not None:
        size, free = told.split()
        return int(size), int(free)
    if not machine.is_real:
        return None
    try:
        info = os.statvfs("/dev/shm")
    except OSError:
        return None
    return info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize


def can_write(directory):
    try:
        with tempfile.TemporaryFile(dir=directory):
            return None
    except OSError as why:
        return why.strerror


def pools(machine):
    """(bytes, a word) that the pools of a launch take of /dev/shm: as its workers say, or before any can be asked at most."""
    if machine.shm_bytes is not None:
        return machine.shm_bytes, "take"
    n = int(machine.options.get("prefill", 1)) + int(machine.options.get("decode", 1))
    asked = size_of(machine.options.get("kv-memory", "0"))
    return n * (asked or min(POOL_MOST, (available(machine) or 0) // 4)), "take" if asked else "take at most"


def size_of(text):
    units = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
    digits = text.rstrip("kmgtKMGTiIbB ")
    return int(digits) << units.get(text[len(digits):].strip().lower()[:1], 0) if digits.isdigit() else 0


def shared(machine, findings):
    if machine.options.get("kv-transport") == "network":
        return
    room, (needs, take) = shm_room(machine), pools(machine)
    strict = machine.options.get("kv-transport") == "shm"
    add = findings.problem if strict else findings.warning
    without = "with --kv-transport shm no worker starts" if strict else "KV goes over the loopback network"
    if room is None:
        add("/dev/shm", f"there is none: {without}", "mount -t tmpfs -o mode=1777 tmpfs /dev/shm")
        return
    size, free = room
    _, kind, options = machine.mount_of("/dev/shm")
    why = can_write(machine.path("/dev/shm"))
    if why is not None or "ro" in options.split(","):
        add("/dev/shm", f"it cannot be written ({why or 'it is mounted read-only'}): {without}",
            "mount -o remount,rw,mode=1777 /dev/shm")
    elif free < needs:
        add("/dev/shm", f"{mib(free)} of {mib(size)} are free, and the KV pools of a launch {take} {mib(needs)}: where there is no room, "
            f"{without}", f"mount -o remount,size={-(-needs // MIB) + (size - free) // MIB + 64}m /dev/shm (a container: --shm-size "
            f"{-(-needs // MIB) + 64}m), or --kv-memory {max(1, free // MIB // 4)}m")
    else:
        findings.ok("/dev/shm", f"{kind or 'there'}, {mib(free)} of {mib(size)} are free; the KV pools of a launch {take} {mib(needs)}"
                    + ("; noexec, which does no harm" if "noexec" in options.split(",") else ""))


def examine(machine, findings):
    amount(machine, findings)
    large_pages(machine, findings)
    shared(machine, findings)
