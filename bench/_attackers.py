# SPDX-License-Identifier: Apache-2.0
"""The other half of attack.py: one attacker, until its standard input ends.

Usage: _attackers.py NAME '{"http": [HOST, PORT], "ports": [N, ...], "connections": N}'
Prints `ready` when the attack is under way and, at the end, how often it did what it does.
"""
import asyncio
import json
import resource
import socket
import sys

BODY_BYTES = 8 << 20
IDLE = 4000
READERS = 20
SENDERS = 20
DRIPPERS = 200
SAMPLES = 8  # of each sampler
STRANGERS = 8  # at each port
RUBBISH = bytes(range(256)) * 64


def head(length, more=""):
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n{more}\r\n").encode()


class Attack:
    def __init__(self, told):
        self.http, self.ports = tuple(told["http"]), told["ports"]
        self.done = 0  # what it says at the end

    async def for_ever(self, step):
        """Again and again, whatever the server does about it."""
        while True:
            try:
                await step()
                self.done += 1
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)

    async def once(self, data):
        """One request and its answer to the end of the connection."""
        reader, writer = await asyncio.open_connection(*self.http)
        try:
            writer.write(data)
            await writer.drain()
            await reader.read()
        finally:
            writer.transport.abort()

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
        def stranger(port):
            async def step():
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(RUBBISH)
                    await asyncio.wait_for(reader.read(4096), 0.5)
                except asyncio.TimeoutError:
                    pass
                finally:
                    writer.transport.abort()
            return step
        return [self.for_ever(stranger(port)) for port in self.ports for _ in range(STRANGERS)]

    def priority(self):
        """Requests of the highest priority, of the size of the others'."""
        data = json.dumps({"prompt": "me first", "max_tokens": 32, "ignore_eos": True, "priority": 255}).encode()
        data = head(len(data), "Connection: close\r\n") + data
        return [self.for_ever(lambda: self.once(data)) for _ in range(2)]

    def samplers(self):
        """Choices whose every draw weighs all tokens of the vocabulary."""
        data = json.dumps({"prompt": "draw me", "max_tokens": 32, "ignore_eos": True, "n": SAMPLES, "temperature": 100,
                           "top_p": 0.9999}).encode()
        data = head(len(data), "Connection: close\r\n") + data
        return [self.for_ever(lambda: self.once(data)) for _ in range(2)]


async def run(attack, name):
    tasks = [asyncio.ensure_future(step) for step in getattr(attack, name)()]
    await asyncio.sleep(0.5)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(attack.done, flush=True)


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(run(Attack(json.loads(sys.argv[2])), sys.argv[1]))


if __name__ == "__main__":
    main()
