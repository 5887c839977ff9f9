# SPDX-License-Identifier: Apache-2.0
"""What the kernel, a container or a sandbox may refuse of what processes of one host do with each other; and the clock."""
import os
import time

SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")  # each look at them is a system call, or an access to a device
BUILT_S = 1_767_225_600  # 2026-01-01: a clock before that is wrong


def tried(call, *arguments):
    """@return why it is refused, or None"""
    try:
        made = call(*arguments)
    except OSError as why:
        return why.strerror
    if isinstance(made, int) and made > 2:
        os.close(made)
    return None


def idle_class():
    """Refused in some sandboxes; in a child, for what is idle cannot always come back."""
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def calls(machine, findings):
    seccomp = machine.fields("/proc/self/status").get("Seccomp", "0")
    cause = "its seccomp filter refuses it" if seccomp == "2" else "the kernel refuses it"
    unconfined = "docker run --security-opt seccomp=unconfined, or a profile that allows it" if seccomp == "2" else \
        "Linux 5.10 or newer"
    bad = False
    # kvtransfer/kvt_host.c, bt_kvt_host_watch(): pools of others are mapped only by who sees their end; worker/instance_ranks.c.
    old = machine.kernel() < (5, 3)
    why = tried(os.pidfd_open, os.getpid()) if machine.is_real else "before Linux 5.3" if old else None
    if why:
        bad = True
        findings.warning("pidfd", f"pidfd_open: {why} ({cause}): KV of one host goes over the network, and instances of several ranks "
                         "do not start", unconfined)
    # common/link/shm_segment.c, worker/instance_ranks.c: memfd_create() without a word of execution.
    noexec = machine.number("/proc/sys/vm/memfd_noexec") == 2
    why = tried(os.memfd_create, "baton-doctor", os.MFD_CLOEXEC) if machine.is_real else "vm.memfd_noexec is 2" if noexec else None
    if why:
        bad = True
        findings.warning("memfd", f"memfd_create: {why}: control messages go through sockets, and instances of several ranks do not start",
                         "sysctl vm.memfd_noexec=1" if noexec else unconfined)
    if machine.is_real and not idle_class():
        bad = True
        findings.note("idle class", "SCHED_IDLE is refused: threads on borrowed cores have nice 19 and yield later",
                      "--share-idle-cores off, where latencies suffer")
    if not bad:
        findings.ok("kernel", f"Linux {(machine.read('/proc/sys/kernel/osrelease') or '?').strip()}: pidfd, memfd and what else "
                    "processes of one host use")


def identity(machine, findings):
    """kvtransfer/kvt_host.c: without these two workers never know that they are on one host."""
    missing = [path for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/ipc", "/proc/self/ns/pid")
               if not os.path.lexists(machine.path(path))]
    if missing:
        findings.warning("namespaces", f"{missing[0]} cannot be read: workers take each other for other hosts, and KV goes over the "
                         "network", "mount -t proc proc /proc")


def container(machine, findings):
    signs = [path for path in ("/.dockerenv", "/run/.containerenv") if machine.exists(path)]
    environment = machine.read("/proc/1/environ") or ""
    if signs or "container=" in environment:
        findings.note("container", "this is one: workers of two containers share KV through memory only with one IPC and one PID "
                      "namespace, one /dev/shm and one user (docker: --ipc container:NAME --pid container:NAME)")


def clock(machine, findings):
    source = (machine.read("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "").strip()
    now = machine.number("/now") if not machine.is_real and machine.exists("/now") else time.time()
    if now < BUILT_S:
        findings.problem("clock", f"it says {time.strftime('%Y-%m-%d', time.gmtime(now))}: certificates of TLS are not valid yet, and "
                         "times in logs are wrong", "timedatectl set-ntp true, or date -s")
    elif source in SLOW_CLOCKS:
        findings.warning("clock", f"the clock source is {source}: each look at the time takes a microsecond or more, and every iteration "
                         "takes several", "tsc or kvm-clock: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource")
    else:
        findings.ok("clock", f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now))} UTC" + (f", source {source}" if source else ""))


def examine(machine, findings):
    calls(machine, findings)
    identity(machine, findings)
    container(machine, findings)
    clock(machine, findings)
