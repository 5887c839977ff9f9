# SPDX-License-Identifier: Apache-2.0
"""What killed processes left behind: run directories, and shared memory that nobody has open."""
import fcntl
import os
import re
import stat

# common/base/files.h
RUN_DIR, HALF_MADE = re.compile(r"baton-[A-Za-z0-9]{6}"), 0o1700
MARK = "run directory of baton-launch: {} {}\n"
# What UCX and Open MPI name there while they work: UCX in workers of earlier versions, Open MPI under mpirun and srun.
SEGMENT = re.compile(r"(ucx_shm_posix_|vader_segment\.|sm_segment\.|osc_rdma\.).*")


def is_held(path):
    """Does a process live that has the lock?"""
    with open(path, "rb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def is_dead_run_dir(path, info):
    try:
        names = os.listdir(path)
        if "lock" in names:
            with open(os.path.join(path, "lock"), encoding="ascii", errors="replace") as f:
                return f.read() == MARK.format(info.st_dev, info.st_ino) and not is_held(f.name)
        return stat.S_IMODE(info.st_mode) == HALF_MADE and set(names) <= {"lock.new"} and not any(
            is_held(os.path.join(path, name)) for name in names)
    except OSError:
        return False


def size_of(path):
    """Bytes of what is in a directory."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                pass
    return total


def dead_run_dirs(machine):
    parents = dict.fromkeys((machine.environment.get("XDG_RUNTIME_DIR"), machine.environment.get("TMPDIR"), "/tmp"))
    for parent in parents:
        if not parent or not parent.startswith("/"):
            continue
        for name in machine.list(parent):
            path = machine.path(os.path.join(parent, name))
            if RUN_DIR.fullmatch(name) is None:
                continue
            try:
                info = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISDIR(info.st_mode) and info.st_uid == machine.uid() and is_dead_run_dir(path, info):
                yield os.path.join(parent, name), size_of(path)


def inodes_in_use(machine):
    """Of files below /dev/shm that a process has mapped or open, as far as this user may see."""
    found = set()
    for pid in filter(str.isdecimal, machine.list("/proc")):
        for line in (machine.read(f"/proc/{pid}/maps") or "").splitlines():
            words = line.split(None, 5)
            if len(words) == 6 and words[5].startswith("/dev/shm/"):
                found.add(int(words[4]))
        for fd in machine.list(f"/proc/{pid}/fd"):
            try:
                if os.readlink(machine.path(f"/proc/{pid}/fd/{fd}")).startswith("/dev/shm/"):
                    found.add(os.stat(machine.path(f"/proc/{pid}/fd/{fd}")).st_ino)
            except OSError:
                pass
    return found


def dead_segments(machine):
    found = []
    for name in machine.list("/dev/shm"):
        try:
            info = os.lstat(machine.path(f"/dev/shm/{name}"))
        except OSError:
            continue
        if SEGMENT.fullmatch(name) and stat.S_ISREG(info.st_mode) and info.st_uid == machine.uid():
            found.append((f"/dev/shm/{name}", info.st_size, info.st_ino))
    used = inodes_in_use(machine) if found else ()
    return [(path, size) for path, size, inode in found if inode not in used]


def examine(machine, findings):
    n_before = len(findings.rows)
    for path, size in dead_run_dirs(machine):
        findings.note("leftovers", f"{path}, {size:,} bytes: the run directory of a process that was killed; the next start removes it",
                      f"rm -r {path}")
    for path, size in dead_segments(machine):
        findings.warning("leftovers", f"{path}, {size:,} bytes: shared memory of UCX or Open MPI that no process has open; "
                         "a worker of an earlier version that was killed, or another program, left it", f"rm {path}")
    if len(findings.rows) == n_before:
        findings.ok("leftovers", "none of killed processes, in /dev/shm and where run directories are made")
