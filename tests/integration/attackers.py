# SPDX-License-Identifier: Apache-2.0
"""Attackers of a running cluster, for tests/integration and bench/attack.py.

    with Attacker("bodies", cluster) as a: it attacks, as a process of its own; a.done afterwards: how often

As a program: one of them, until its standard input ends. Usage: attackers.py NAME
'{"http": [HOST, PORT], "doors": [[HOST, PORT], ...], "headers": TEXT, "is_idle": BOOL}'. Prints `ready` when the attack is under way and, at the end, how
often it did what it does.
"""
import asyncio
import gzip
import json
import os
import resource
import signal
import socket
import subprocess
import sys

NAMES = ("bodies", "readers", "idle", "drips", "strangers", "priority", "samplers", "log")
# Of the pool between the sockets and the queue; bench/attack.py's alone.
POOL_NAMES = ("gone", "waiting", "texts", "logits")
# Those whose requests are not only the pool's work: the rest of it alone.
WITHOUT = {"logits": "prompts"}
SPACES = 8_000_000  # one word for most tokenizers
LEAVERS = 30
TEXT_IDS = 1_000_000
LOGITS_TOKENS = 50  # of 50,000 numbers each: an answer of some 20 MB, that a router does not refuse
BODY_BYTES = 8 << 20
IDLE = 4000
READERS = 20
SENDERS = 20
DRIPPERS = 200
SAMPLES = 8  # of each sampler
STRANGERS = 8  # at each port
RUBBISH = bytes(range(256)) * 64
# Reads the access log until it is stopped; a small pipe is full soon.
LOG_READER = """
import fcntl, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(f, fcntl.F_SETPIPE_SZ, 4096)
print("ready", flush=True)
while os.read(f, 65536):
    pass
"""


class LogReader:
    """with LogReader(cluster) as reader: whoever reads the cluster's access log; before the cluster starts"""

    def __init__(self, cluster):
        fifo = os.path.join(cluster.dir, "access")
        os.mkfifo(fifo)
        cluster.router_args += ["--access-log", fifo]
        self.process = subprocess.Popen([sys.executable, "-c", LOG_READER, fifo], stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def listening(pid):
    """@return {(address, port)} of TCP that this process listens at, for somebody in its network"""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    found = set()
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        for line in list(f)[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # LISTEN
                address, _, port = fields[1].partition(":")
                address = socket.inet_ntoa(bytes.fromhex(address)[::-1])
                found.add(("127.0.0.1" if address == "0.0.0.0" else address, int(port, 16)))
    return found


def doors(cluster):
    """@return where its processes listen, but for clients"""
    found = set()
    for p in cluster.processes:
        try:
            found |= listening(p.pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass  # it has just ended
    return sorted(found - {tuple(cluster.http), tuple(cluster.metrics_at)})


class Attacker:
    """See the top. With a host of hosts.py it attacks from there. @param reader of the log: a LogReader, for "log"
    @param is_idle: it takes no core that another process wants, as one on another machine"""

    def __init__(self, name, cluster, reader=None, host=None, headers="", is_idle=False):
        self.name, self.reader, self.done = name, reader, 1
        told = json.dumps({"http": cluster.http, "doors": doors(cluster), "headers": headers, "is_idle": is_idle})
        self.command = [sys.executable, os.path.abspath(__file__), name, told]
        if host:
            self.command = host.enter(self.command)

    def __enter__(self):
        if self.name == "log":
            self.reader.process.send_signal(signal.SIGSTOP)
            return self
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line == "ready\n", f"the attacker {self.name} did not begin: {line}"
        return self

    def __exit__(self, kind, value, trace):
        if self.name == "log":
            self.reader.process.send_signal(signal.SIGCONT)
            return
        out, _ = self.process.communicate()
        self.done = int(out or 0)


def head(length, more="", path="/v1/completions"):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n{more}\r\n").encode()


class Attack:
    def __init__(self, told):
        self.http, self.doors, self.headers = tuple(told["http"]), told["doors"], told["headers"]
        # Another client than those that behave, where there are no tenants.
        self.own_address = ("127.0.0.2", 0) if self.http[0] == "127.0.0.1" and not self.headers else None
        self.done = 0  # what it says at the end
        self.over = False

    async def for_ever(self, step):
        """Again and again, whatever the server does about it."""
        while not self.over:  # wait_for() may swallow that it is cancelled
            try:
                await step()
                self.done += 1
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                await asyncio.sleep(0.05)

    async def once(self, data):
        """One request and its answer to the end of the connection."""
        reader, writer = await asyncio.open_connection(*self.http, local_addr=self.own_address)
        try:
            writer.write(data)
            await writer.drain()
            start = await reader.read(64)
            while await reader.read(1 << 20):
                pass
            return start.split(b" ")[1:2] == [b"200"]
        finally:
            writer.transport.abort()

    async def patient(self, data):
        """... which waits before it comes again, where it was refused: what counts is the work, not the flood."""
        if not await self.once(data):
            await asyncio.sleep(0.2)

    def request(self, path, body, more=""):
        return head(len(body), f"Connection: close\r\n{self.headers}{more}", path) + body

    def packed_spaces(self):
        """8 MB to tokenize in 8 kB."""
        body = gzip.compress(b'{"prompt":"' + b" " * SPACES + b'"}')
        return self.request("/tokenize", body, "Content-Encoding: gzip\r\n")

    # --- who they are

    def bodies(self):
        """Bodies of 8 MiB: one string, which must be parsed to be refused."""
        start = b'{"prompt": "'
        data = head(BODY_BYTES, "Connection: close\r\n") + start + b"a " * ((BODY_BYTES - len(start)) // 2)
        return [self.for_ever(lambda: self.once(data)) for _ in range(SENDERS)]

    def readers(self):
        """Clients that ask for long answers and never read."""
        body = json.dumps({"prompt": "on and on", "max_tokens": 200, "stream": True, "ignore_eos": True}).encode()

        async def step():
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.setblocking(False)
            await asyncio.get_running_loop().sock_connect(s, self.http)
            with s:
                await asyncio.get_running_loop().sock_sendall(s, head(len(body)) + body)
                self.done += 1
                await asyncio.sleep(5)
        return [self.for_ever(step) for _ in range(READERS)]

    def idle(self):
        """Thousands of connections without a word; those that are closed come again."""
        async def step():
            reader, writer = await asyncio.open_connection(*self.http)
            try:
                self.done += 1
                await reader.read()
            finally:
                writer.transport.abort()
        return [self.for_ever(step) for _ in range(IDLE)]

    def drips(self):
        """Heads and bodies that come byte by byte."""
        def dripper(start):
            async def step():
                _, writer = await asyncio.open_connection(*self.http)
                try:
                    writer.write(start)
                    for _ in range(2000):
                        writer.write(b" ")
                        await writer.drain()
                        await asyncio.sleep(0.05)
                        self.done += 1
                finally:
                    writer.transport.abort()
            return step
        starts = (b"GET / HTTP/1.1\r\nX: ", head(4000), b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                  b"\r\n1;")
        return [self.for_ever(dripper(starts[i % 3])) for i in range(DRIPPERS)]

    def strangers(self):
        """Rubbish for every other port of the cluster: control links and KV."""
        def stranger(door):
            async def step():
                reader, writer = await asyncio.wait_for(asyncio.open_connection(*door), 1)
                try:
                    writer.write(RUBBISH)
                    await asyncio.wait_for(reader.read(4096), 0.5)
                except asyncio.TimeoutError:
                    pass
                finally:
                    writer.transport.abort()
            return step
        return [self.for_ever(stranger(door)) for door in self.doors for _ in range(STRANGERS)]

    def priority(self):
        """Requests of the highest priority, of the size of the others'."""
        data = json.dumps({"prompt": "me first", "max_tokens": 32, "ignore_eos": True, "priority": -255}).encode()
        data = head(len(data), "Connection: close\r\n") + data
        return [self.for_ever(lambda: self.once(data)) for _ in range(2)]

    def samplers(self):
        """Choices whose every draw weighs all tokens of the vocabulary."""
        data = json.dumps({"prompt": "draw me", "max_tokens": 32, "ignore_eos": True, "n": SAMPLES, "temperature": 100,
                           "top_p": 0.9999}).encode()
        data = head(len(data), "Connection: close\r\n") + data
        return [self.for_ever(lambda: self.once(data)) for _ in range(2)]


    def gone(self):
        """Clients that send what takes long, and leave."""
        data = self.packed_spaces()

        async def step():
            _, writer = await asyncio.open_connection(*self.http, local_addr=self.own_address)
            try:
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0.2)
            finally:
                writer.transport.abort()
        return [self.for_ever(step) for _ in range(LEAVERS)]

    def waiting(self):
        """... and that wait for it."""
        data = self.packed_spaces()
        return [self.for_ever(lambda: self.patient(data)) for _ in range(SENDERS)]

    def texts(self):
        """Texts of a million tokens: 2 MB of ids, and as long an answer."""
        data = self.request("/detokenize", json.dumps({"tokens": [65] * TEXT_IDS}).encode())
        return [self.for_ever(lambda: self.patient(data)) for _ in range(SENDERS)]

    def prompts(self, **more):
        """Short prompts that must be computed."""
        def data():
            body = {"text_input": f"{self.done} " + "a " * LOGITS_TOKENS, "max_tokens": 1, **more}
            return self.request("/v2/models/ensemble/generate", json.dumps(body).encode())
        return [self.for_ever(lambda: self.patient(data())) for _ in range(4)]

    def logits(self):
        """... and their logits as JSON: short requests with long answers."""
        return self.prompts(return_context_logits=True)


async def run(attack, name):
    tasks = [asyncio.ensure_future(step) for step in getattr(attack, name)()]
    await asyncio.sleep(0.5)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    attack.over = True
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(attack.done, flush=True)


def main():
    if json.loads(sys.argv[2])["is_idle"]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(run(Attack(json.loads(sys.argv[2])), sys.argv[1]))


if __name__ == "__main__":
    main()
