# SPDX-License-Identifier: Apache-2.0
"""Strangers at every port that the processes of a cluster listen at: whatever they say, and whenever they hang up."""
import contextlib
import signal
import socket
import struct
import tempfile
import threading

from attackers import listening
from harness import Cluster, small_model, wait_until
from hosts import Network

PROMPT = {"prompt": "one two three", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST
# The first bytes of some protocols, of none, and of ours: a control frame that is cut, one that is too long.
OPENINGS = (b"", b"\0", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0SP\0\0\x10\0\0",
            bytes.fromhex("160301020001000100fc0303") + bytes(64), struct.pack("<I", 104) + b"BTN4\1\0\0\0",
            struct.pack("<I", 104) + b"BTN4\1\0\0\0" + bytes(96), b"\xff" * 64, bytes(range(256)) * 64)
ROUNDS = 5
CONTROL = 7000


def ports(cluster):
    """@return {(host, address, port)} of all processes, the doors of clients among them"""
    return sorted({(p.host.name, address, port) for p in cluster.processes for address, port in listening(p.pid)})


def scan(host, address, port):
    """Each opening with each end, again and again. @return how many connections there were"""
    n = 0
    for i in range(ROUNDS * len(OPENINGS) * 2):
        if i == 5 and n == 0:
            break  # a filter of the kernel drops them
        with contextlib.suppress(OSError), host.connect((address, port), timeout=30 if n > 0 else 1) as s:
            n += 1
            if i % 2 == 1:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            s.sendall(OPENINGS[i // 2 % len(OPENINGS)])
    return n


def serve(cluster, n):
    for _ in range(n):
        status, answer = cluster.post("/v1/completions", PROMPT)
        assert status == 200 and answer["usage"]["completion_tokens"] == 8, answer


def test_port_scan_harms_nobody():
    """Every open port from another host, and those of control and clients from the cluster's own, while it serves. (KV ports let
    addresses of workers in: docs/SECURITY.md.) Nobody ends, and a worker can still join."""
    with tempfile.TemporaryDirectory() as d, Network("a", "b", "c") as net:
        a, b, stranger = net.hosts
        with Cluster(small_model(d), hosts=[a], decode_hosts=[b]) as c:
            found = ports(c)
            assert [port for host, _, port in found if host == "b"] and ("a", "10.78.0.1", CONTROL) in found, found
            counts, stop = [], threading.Event()

            def client():
                while not stop.is_set():
                    serve(c, 1)

            clients = [threading.Thread(target=client) for _ in range(2)]
            for one in clients:
                one.start()
            silent = [stranger.connect(("10.78.0.1", CONTROL)) for _ in range(100)]  # more than may prove nothing at a time
            for name, address, port in found:
                if address.startswith("127."):
                    counts.append(scan(a if name == "a" else b, address, port))
                else:
                    counts += [scan(host, address, port) for host in ((a, b, stranger) if port == CONTROL else (stranger,))]
            stop.set()
            for one in clients:
                one.join()
            assert sum(counts) >= 5 * ROUNDS * len(OPENINGS) * 2, (counts, found)  # control, and the doors of clients
            assert all(p.alive() for p in c.processes)
            assert c.total("baton_retries_total") == 0 and c.here() == (1, 1)
            c.start_worker("decode", 1)
            wait_until("another worker joins", lambda: c.here() == (1, 2) or c._check_alive())  # pylint: disable=protected-access
            serve(c, 4)
            assert "left" not in c.decodes[0].log() and "lost" not in c.router.log(), c.router.log()[-2000:]
            print(f"    {sum(counts)} connections to {len(found)} ports")
            for s in silent:
                s.close()


def test_router_and_workers_that_are_killed_meet_again():
    with tempfile.TemporaryDirectory() as d, Network("a", "b") as net:
        with Cluster(small_model(d), hosts=net.hosts[:1], decode_hosts=net.hosts[1:]) as c:
            serve(c, 1)
            c.router.kill(signal.SIGKILL)
            c.router.popen.wait()
            c.processes.remove(c.router)
            c.router.close()
            c.router = c.start_router()
            wait_until("the next router serves", lambda: c.router.is_ready() or c._check_alive())  # pylint: disable=protected-access
            c.read_addresses()
            serve(c, 4)
            for role in ("prefill", "decode"):
                old = next(p for p in c.processes if p.role == role)
                old.kill(signal.SIGKILL)
                old.popen.wait()
                c.processes.remove(old)
                old.close()
                c.start_worker(role, 1)
                wait_until(f"another {role} worker is here", lambda: c.all_joined() or c._check_alive())  # pylint: disable=protected-access
                serve(c, 4)
