# SPDX-License-Identifier: Apache-2.0
"""Ports that serve would take, interfaces that KV would travel over, and what UCX makes of them."""
import errno
import os
import re
import socket

from .machine import HOST_NAME_MOST

LISTEN = "0A"         # proc(5), /proc/net/tcp: the state
ROUTER_PORT_STEP = 10  # common/config/config.h, BT_CONFIG_ROUTER_PORT_STEP
DOORS = (("http", "127.0.0.1:8000"), ("grpc", "127.0.0.1:8001"), ("metrics", "127.0.0.1:8002"))


def wanted(machine):
    """(option, host, port) of each port that is not left to the system"""
    routers = int(machine.options.get("routers", 1))
    for name, default in DOORS:
        host, _, port = machine.options.get(name, default).rpartition(":")
        if not port.isdigit() or int(port) == 0:
            continue
        shared = name == "http" and machine.options.get("reuse-http-port") == "yes"
        for i in range(1 if shared else routers):
            yield name, host.strip("[]"), int(port) + i * ROUTER_PORT_STEP


def listeners(machine):
    """port -> inode of the sockets that listen"""
    found = {}
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (machine.read(path) or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == LISTEN:
                found.setdefault(int(words[1].rpartition(":")[2], 16), words[9])
    return found


def holder(machine, inode):
    """(pid, command) of who has that socket, where /proc lets one see"""
    for pid in machine.list("/proc"):
        if not pid.isdigit():
            continue
        for fd in machine.list(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(machine.path(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                continue
            if target == f"socket:[{inode}]":
                return int(pid), (machine.read(f"/proc/{pid}/comm") or "?").strip()
    return None


def why_not(machine, host, port):
    """@return the errno of the bind, or 0"""
    if not machine.is_real:
        return errno.EADDRINUSE if port in listeners(machine) else 0
    try:
        family, kind, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(address)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as why:
        return why.errno
    return 0


def ports(machine, findings):
    free = []
    for name, host, port in wanted(machine):
        why = why_not(machine, host, port)
        other = f"--{name} {host or '127.0.0.1'}:{port + 1000 if port < 64000 else port - 1000}"
        if why == 0:
            free.append(str(port))
        elif why == errno.EADDRINUSE:
            who = holder(machine, listeners(machine).get(port, ""))
            if who and who[1].startswith("baton-router"):
                findings.note("ports", f"port {port} (--{name}) is taken by process {who[0]}, {who[1]}: a Baton serves here already "
                              "(./baton status)", other)
            else:
                by = f"process {who[0]}, {who[1]}" if who else "a process that this user may not see"
                findings.problem("ports", f"port {port} (--{name}) is taken by {by}", other + (f", or kill {who[0]}" if who else ""))
        elif why == errno.EACCES:
            findings.problem("ports", f"port {port} (--{name}) is not for this user", f"{other}, or sysctl "
                             f"net.ipv4.ip_unprivileged_port_start={port}")
        else:
            findings.problem("ports", f"--{name} {host}:{port}: {os.strerror(why)}", other.replace(host or "127.0.0.1", "127.0.0.1"))
    if free:
        findings.ok("ports", ", ".join(free) + (" are free" if len(free) > 1 else " is free"))


def devices(machine):
    """Those of --kv-net-devices, which ranks take in turn"""
    return [name.strip() for name in machine.options.get("kv-net-devices", "lo").split(",")]


def interface(machine, findings, device):
    rdma = device.partition(":")[0] in machine.list("/sys/class/infiniband")
    all_names = machine.list("/sys/class/net")
    name = (machine.list(f"/sys/class/infiniband/{device.partition(':')[0]}/device/net") or [device])[0] if rdma else device
    there = ", ".join(n for n in all_names if n != "lo") or "no other"
    if name not in all_names:
        findings.problem("interface", f"--kv-net-devices {device}: there is no such interface", f"--kv-net-devices NAME, of: lo, {there}")
        return
    flags = int((machine.read(f"/sys/class/net/{name}/flags") or "0").strip(), 16)
    state = (machine.read(f"/sys/class/net/{name}/operstate") or "unknown").strip()
    # kvt_ucx.c, has_link(): IFF_UP and IFF_RUNNING; the latter is not in sysfs, its state is. Loopback's is "unknown".
    if not flags & 1:
        findings.problem("interface", f"{name} is down: a worker waits for it and does not join", f"ip link set {name} up")
    elif state in ("down", "lowerlayerdown", "dormant"):
        findings.problem("interface", f"{name} has no link ({state}): a worker waits for it and does not join",
                         f"the cable or the switch's port; ip -s link show {name}")
    else:
        mtu = machine.number(f"/sys/class/net/{name}/mtu")
        speed = machine.number(f"/sys/class/net/{name}/speed")
        findings.ok("interface", f"KV travels over {name}{' (RDMA)' if rdma else ''}, MTU {mtu}"
                    + (f", {speed} Mbit/s" if speed and speed > 0 else "") + f"; --kv-net-devices may be: {', '.join(all_names)}")


def host_name(machine, findings):
    name = machine.host_name()
    if len(name) > HOST_NAME_MOST:
        findings.problem("host name", f"{name} has {len(name)} characters: UCX aborts every worker where it has more than {HOST_NAME_MOST}",
                         "hostname NAME, or hostnamectl set-hostname NAME, with a shorter one")


def ucx(machine, findings):
    if len(machine.host_name()) > HOST_NAME_MOST:
        return  # it aborts before it could be asked
    said = machine.command("ucx_info", "-d")
    kinds = list(dict.fromkeys(re.findall(r"Transport: (\S+)", said or "")))
    listed = f"; it has {', '.join(kinds)}" if kinds else ""
    probe = machine.probe
    if "kv_network" in probe:
        device = probe.get("net_device", "lo")
        if not probe["kv_network"]:
            findings.problem("ucx", f"UCX {probe['ucx']} cannot use {device}: {machine.probe_words or 'no reason was given'}{listed}",
                             "--kv-net-devices NAME, of an interface that is up")
        elif not probe["kv_shm"]:
            findings.warning("ucx", f"UCX {probe['ucx']} uses {device}, and no shared memory: {machine.probe_words or 'no reason was given'}"
                             f"{listed}", "fix /dev/shm or the kernel, as said there; or --kv-transport network")
        else:
            findings.ok("ucx", f"UCX {probe['ucx']}: shared memory on this host, {device} between hosts{listed}")
    elif said is not None:
        missing = [kind for kind in ("tcp",) if kind not in kinds]
        if missing:
            findings.problem("ucx", f"UCX here has no {' and no '.join(missing)}{listed}", "apt-get install --reinstall libucx0")
        else:
            findings.ok("ucx", f"UCX{listed}; what workers make of it is known when they are built")


def examine(machine, findings):
    ports(machine, findings)
    for device in devices(machine):
        interface(machine, findings, device)
    host_name(machine, findings)
    ucx(machine, findings)
