# SPDX-License-Identifier: Apache-2.0
"""Hosts of their own on this machine: namespaces on one switch.

    host a 10.78.0.1 ─── switch (bridge) ─── host b 10.78.0.2

Every host has its own network, host name, IPC objects, process ids, /proc, /sys
and /dev/shm, so that nothing but its link leads to another; the file system is
shared. The machine's own network is not touched. A host lives as long as the
pipe to its first process, so everything is gone when the test is, however that
ended.
"""
import contextlib
import ctypes
import os
import select
import shutil
import socket
import struct
import subprocess
import time

from harness import Skip

CLONE_NEWNET = 0x40000000
FIRST_PROCESS = """
hostname "$0" && ip link set lo up || exit 1
mount -t sysfs sysfs /sys 2>/dev/null
mount -t tmpfs -o mode=1777 tmpfs /dev/shm && echo up && read -r _
"""


def first_child(pid, seconds=60.0):
    """The process that unshare or nsenter forked, as we number it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = f.read().split()
            if children:
                return int(children[0])
        select.select([], [], [], 0.005)
    raise AssertionError(f"process {pid} started nothing")


class Host:
    """Namespaces, without a link yet."""

    def __init__(self, name, address=None):
        self.name, self.address = name, address
        self.pidfd = -1
        self.popen = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc",
             "--propagation", "private", "sh", "-c", FIRST_PROCESS, "baton-" + name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        word = self.popen.stdout.readline().decode().strip()
        if word != "up":
            self.close()
            raise Skip(f"no namespaces here: {word}")
        self.pid = first_child(self.popen.pid)
        self.pidfd = os.pidfd_open(self.pid)

    def enter(self, command):
        """The command line that runs this command on the host."""
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "--"] + command

    @staticmethod
    def child_of(pid):
        """The process that the command of enter() became."""
        return first_child(pid)

    def run(self, *command):
        done = subprocess.run(self.enter(list(command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise Skip(f"{' '.join(command)}: {done.stdout.decode().strip()}")
        return done.stdout.decode()

    def connect(self, address, timeout=60):
        """A socket of this host in our hands, connected."""
        return self.there(lambda: socket.create_connection(address, timeout))

    def socket(self):
        """A socket of this host in our hands."""
        return self.there(socket.socket)

    def there(self, make):
        """Only the thread that asks is on the host, and only until what it makes exists."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net", "rb") as home, open(f"/proc/{self.pid}/ns/net", "rb") as there:
            if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                return make()
            finally:
                assert libc.setns(home.fileno(), CLONE_NEWNET) == 0

    def close(self):
        self.popen.kill()  # --kill-child: its first process dies, and with it all others
        self.popen.wait()
        if self.pidfd >= 0:
            gone, _, _ = select.select([self.pidfd], [], [], 60)
            assert gone, f"host {self.name} does not come down"
            os.close(self.pidfd)
        self.popen.stdin.close()
        self.popen.stdout.close()


class Network:
    """with Network("a", "b") as net: net.hosts, net.cut(host), net.heal(host)"""

    def __init__(self, *names, interfaces=1):
        """Each host has eth0 and as many more, each on a switch of its own; the switches are one router."""
        self.names, self.n_interfaces = names, interfaces
        self.hosts = []
        self.switch = None

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("namespaces need root")
        missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
        if missing:
            raise Skip(f"no {missing[0]} program")
        try:
            self.switch = Host("switch")
            self.hosts = [Host(name, f"10.78.0.{i + 1}") for i, name in enumerate(self.names)]
            for k in range(self.n_interfaces):
                self.add_interface(k)
            if self.n_interfaces > 1:
                self.switch.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def add_interface(self, k):
        """eth<k> of every host, 10.<78 + k>.0.1 and on."""
        bridge = f"br{k}"
        self.switch.run("ip", "link", "add", bridge, "type", "bridge", "forward_delay", "0")
        self.switch.run("ip", "link", "set", bridge, "up")
        if self.n_interfaces > 1:
            self.switch.run("ip", "addr", "add", f"10.{78 + k}.0.254/24", "dev", bridge)
        for i, (host, name) in enumerate(zip(self.hosts, self.names)):
            port = ("v-" if k == 0 else f"v{k}-") + name
            # The other end is born on the host; its first process is named as we number it.
            subprocess.run(["nsenter", "-t", str(self.switch.pid), "-n", "ip", "link", "add", port, "type",
                            "veth", "peer", "name", f"eth{k}", "netns", str(host.pid)], check=True)
            self.switch.run("ip", "link", "set", port, "master", bridge, "up")
            host.run("ip", "addr", "add", f"10.{78 + k}.0.{i + 1}/24", "dev", f"eth{k}")
            host.run("ip", "link", "set", f"eth{k}", "up")

    @staticmethod
    def received_bytes(host, interface):
        return int(host.run("cat", f"/sys/class/net/{interface}/statistics/rx_bytes"))

    def __exit__(self, kind, value, trace):
        for host in self.hosts + ([self.switch] if self.switch else []):
            host.close()

    @staticmethod
    def block(host, address):
        """As a firewall that drops: nothing of what comes to this host from there is answered any more."""
        host.run("ip", "route", "add", "blackhole", address)

    @staticmethod
    def unblock(host, address):
        host.run("ip", "route", "del", "blackhole", address)

    def cut(self, host):
        """Pull the cable at the switch: the host keeps its own address."""
        self.switch.run("ip", "link", "set", "v-" + host.name, "down")

    def is_seen_cut(self, host):
        """Does the host know? Its kernel tells programs up to a second later."""
        return "state UP" not in host.run("ip", "-o", "link", "show", "eth0")

    def heal(self, host):
        self.switch.run("ip", "link", "set", "v-" + host.name, "up")


NETLINK_NETFILTER, NF_TABLES = 12, 10
BATCH_BEGIN, BATCH_END, NEW_TABLE, NEW_CHAIN, NEW_RULE = 0x10, 0x11, NF_TABLES << 8, NF_TABLES << 8 | 3, NF_TABLES << 8 | 6


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def nest(kind, *attributes):
    return attribute(kind | 0x8000, b"".join(attributes))


def message(kind, sequence, body=b"", flags=0, family=socket.AF_UNSPEC, subsystem=0):
    """One of nfnetlink. Its acknowledgement is asked for where it has flags."""
    body = struct.pack("=BBH", family, 0, socket.htons(subsystem)) + body
    return struct.pack("=IHHII", 16 + len(body), kind, 1 | flags, sequence, 0) + body


def masquerade(host):
    """What this host forwards has its own address: `nft add rule ip nat postrouting masquerade`, without that program."""
    table, chain = attribute(1, b"nat\0"), b"out\0"
    hook = nest(4, attribute(1, struct.pack(">I", 4)), attribute(2, struct.pack(">i", 100)))  # postrouting, srcnat
    masq = nest(4, nest(1, attribute(1, b"masq\0"), nest(2)))
    create = 0x400 | 4  # NLM_F_CREATE, NLM_F_ACK
    batch = message(BATCH_BEGIN, 0, subsystem=NF_TABLES)
    for kind, body in ((NEW_TABLE, table), (NEW_CHAIN, table + attribute(3, chain) + hook + attribute(7, b"nat\0")),
                       (NEW_RULE, table + attribute(2, chain) + masq)):
        batch += message(kind, kind, body, create, socket.AF_INET)
    batch += message(BATCH_END, 0, subsystem=NF_TABLES)
    with host.there(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)) as s:
        s.settimeout(60)
        s.bind((0, 0))
        s.send(batch)
        left = {NEW_TABLE, NEW_CHAIN, NEW_RULE}
        while left:
            answers = s.recv(65536)
            while answers:
                length, _, _, sequence, _, error = struct.unpack_from("=IHHIIi", answers)
                if error != 0:
                    raise Skip(f"no nf_tables here: {os.strerror(-error)}")
                left.discard(sequence)
                answers = answers[(length + 3) & ~3:]


class NatNetwork(Network):
    """Some hosts are behind a router that translates addresses: they can dial the others, and nobody can dial them.

        host a 10.78.0.1 ─── br0 ─ switch 10.78.0.254, 10.79.0.254 ─ br1 ─── host b 10.79.0.2
    """

    def __init__(self, outside, inside):
        super().__init__(*outside, *inside)
        self.n_outside = len(outside)

    def __enter__(self):
        super().__enter__()
        try:
            self.switch.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
            self.switch.run("ip", "addr", "add", "10.78.0.254/24", "dev", "br0")
            self.switch.run("ip", "link", "add", "br1", "type", "bridge", "forward_delay", "0")
            self.switch.run("ip", "addr", "add", "10.79.0.254/24", "dev", "br1")
            self.switch.run("ip", "link", "set", "br1", "up")
            for i, host in list(enumerate(self.hosts))[self.n_outside:]:
                self.switch.run("ip", "link", "set", "v-" + host.name, "master", "br1")
                host.run("ip", "addr", "flush", "dev", "eth0")
                host.address = f"10.79.0.{i + 1}"
                host.run("ip", "addr", "add", host.address + "/24", "dev", "eth0")
                host.run("ip", "route", "add", "default", "via", "10.79.0.254")
            masquerade(self.switch)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self
