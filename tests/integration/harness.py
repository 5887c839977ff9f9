# SPDX-License-Identifier: Apache-2.0
"""Starts real Baton processes on loopback and talks to them as a client would.

Python's standard library only. Nothing here sleeps to wait: `wait_until` polls
a condition with a deadline.
"""
import asyncio
import http.client
import json
import os
import random
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BATON_BUILD", os.path.join(ROOT, "build"))
PROGRAMS = {
    "router": "router/baton-router",
    "prefill": "worker/main/baton-prefill-worker",
    "decode": "worker/main/baton-decode-worker",
}


class Skip(Exception):
    """The test cannot run here; the text says why."""


def wait_until(what, condition, seconds=60.0):
    """The deadline only guards against hanging: what is late on a busy machine is no failure."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        select.select([], [], [], 0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def default_model():
    path = os.environ.get("BATON_TEST_MODEL", "")
    if not os.path.exists(path):
        raise Skip("BATON_TEST_MODEL names no model file")
    return path


def tiny_model(directory, **options):
    """A small model with seeded random weights, made by the build's own tool. A value of True is an option without one,
    a list the option several times."""
    path = os.path.join(directory, "tiny.gguf")
    args = [os.path.join(BUILD, "tests/support/baton-tiny-model"), path]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            args += ["--" + name.replace("_", "-")] + ([] if one is True else [str(one)])
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    return path


def small_model(directory):
    """Answers at once."""
    return tiny_model(directory, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)


def slow_model(directory, **more):
    """200 tokens take about a second. BATON_TEST_SPEED=4 makes it what it is on a machine four times as fast."""
    layers = max(1, round(8 / float(os.environ.get("BATON_TEST_SPEED", "1"))))
    shape = dict(layers=layers, dim=512, heads=8, kv_heads=4, ffn=1536, context=1024, seed=7)
    return tiny_model(directory, **dict(shape, **more))


def endless_model(directory):
    """slow_model with so much room that neither an answer of ENDLESS tokens nor the context phase of LONG_PROMPT, by
    chunks of 16, is over before the test is, on a machine of whatever speed. Its KV is 2 KiB a token."""
    return slow_model(directory, kv_heads=1, context=32768)


ENDLESS = 30000  # tokens
# Options of workers that give a token in 10 ms at the earliest, whatever the machine and however well it would be drafted: what is
# to be met in the middle of an answer has so long for each token of it.
PACED = ["--draft", "off", "--simulate-step-us", "10000"]
LONG_PROMPT = "word " * 3000  # 12,000 tokens


class Process:
    """One Baton process; its standard error goes to a file. With a host of
    hosts.py it runs there."""

    def __init__(self, role, name, args, directory, build=None, env=None, host=None):
        self.role, self.name, self.host = role, name, host
        self.log_path = os.path.join(directory, name + ".log")
        ready_r, ready_w = os.pipe()
        os.set_inheritable(ready_w, True)
        self.ready_fd = ready_r
        os.set_blocking(ready_r, False)
        self.ready_text = ""
        # Packed weights of test models are of no use to anybody else.
        environment = dict({"BATON_WEIGHT_CACHE": os.path.join(directory, "weights")}, **os.environ)
        environment.update(env or {}, BATON_READY_FD=str(ready_w))
        command = [os.path.join(build or BUILD, PROGRAMS[role])] + args
        with open(self.log_path, "ab") as log:
            self.popen = subprocess.Popen(
                host.enter(command) if host else command,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[ready_w], env=environment)
        os.close(ready_w)
        self.pidfd = -1
        if host:
            self._pid = host.child_of(self.popen.pid)
            self.pidfd = os.pidfd_open(self._pid)

    @property
    def pid(self):
        return self._pid if self.host else self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def is_ready(self):
        try:
            self.ready_text += os.read(self.ready_fd, 4096).decode()
        except BlockingIOError:
            pass
        if not self.alive() and "ready" not in self.ready_text:
            raise AssertionError(f"{self.name} ended with {self.popen.returncode}:\n{self.log()[-2000:]}")
        return "ready\n" in self.ready_text

    def kill(self, sig=signal.SIGKILL):
        if not self.alive():
            return
        if not self.host:
            self.popen.send_signal(sig)
            return
        try:
            signal.pidfd_send_signal(self.pidfd, sig)
        except ProcessLookupError:
            pass
        if sig in (signal.SIGKILL, signal.SIGCONT):
            # nsenter, which waits for it, stops when it is stopped.
            self.popen.send_signal(signal.SIGCONT)

    def close(self):
        for fd in (self.ready_fd, self.pidfd):
            if fd >= 0:
                os.close(fd)
        self.ready_fd = self.pidfd = -1


given_ports = set()
port_range = range(20000, 32000)


def use_ports_of(slot, slots):
    """Of the tests that run at a time each has ports of its own."""
    global port_range  # pylint: disable=global-statement
    port_range = range(20000 + slot, 32000, slots)


def free_port():
    """A port for a program that is started later: below those that the kernel gives to connections meanwhile, and none
    twice."""
    while True:
        port = random.SystemRandom().choice(port_range)
        if port in given_ports:
            continue
        try:
            with socket.create_server(("127.0.0.1", port)):
                given_ports.add(port)
                return port
        except OSError:
            pass  # somebody's


class Cluster:
    """Router, prefill and decode workers as separate processes of this host.

    with Cluster(model) as c: c.post("/v1/completions", {...})

    Peers are patient: a busy machine, which may be silent for seconds, harms nobody, and a test may stop a process for
    a while. `silence`: milliseconds after which a peer is suspect, and dead; None: the defaults. A dial that is lost is
    tried again after the second of them, so it must not be endless.
    """

    PATIENT = (15000, 20000)

    def __init__(self, model, prefill=1, decode=1, worker_args=(), prefill_args=(), decode_args=(), router_args=(),
                 build=None, env=None, kv_memory="64m", hosts=(), decode_hosts=(), silence=PATIENT, router_build=None):
        self.model, self.build, self.env = model, build, env
        self.router_build = router_build or build
        self.hosts = list(hosts)  # router on the first, workers in turn
        self.decode_hosts = list(decode_hosts) or self.hosts
        self.n_prefill, self.n_decode = prefill, decode
        times = ["--suspect-ms", str(silence[0]), "--dead-ms", str(silence[1])] if silence else []
        self.worker_args = ["--kv-memory", kv_memory, "--threads", "1"] + times + list(worker_args)
        self.prefill_args, self.decode_args = list(prefill_args), list(decode_args)
        self.router_args = times + list(router_args)
        self.dir = tempfile.mkdtemp(prefix="baton-test-")
        os.chmod(self.dir, 0o700)
        self.processes = []
        self.key = os.path.join(self.dir, "key")
        with os.fdopen(os.open(self.key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write(secrets.token_hex(32))
        self.url = f"tcp://{self.hosts[0].address}:7000" if hosts else f"ipc://{self.dir}/router.ipc"
        self.http = self.metrics_at = self.grpc = None
        self.tls = None  # an ssl.SSLContext, for requests to a router that speaks TLS

    def start_router(self):
        router = Process("router", "router", [
            "--model", self.model, "--listen", self.url, "--cluster-key-file", self.key, "--run-dir", self.dir,
            "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0"] + self.router_args, self.dir, self.router_build, self.env,
            self.hosts[0] if self.hosts else None)
        self.processes.append(router)
        return router

    def start_worker(self, role, index, extra=()):
        hosts = self.decode_hosts if role == "decode" else self.hosts
        host = hosts[index % len(hosts)] if hosts else None
        args = ["--model", self.model, "--join", self.url, "--cluster-key-file", self.key,
                "--name", f"{role}-{index}"] + self.worker_args
        args += ["--kv-net-devices", "eth0"] if host else ["--run-dir", self.dir]
        args += (self.prefill_args if role == "prefill" else self.decode_args) + list(extra)
        worker = Process(role, f"{role}-{index}", args, self.dir, self.build, self.env, host)
        self.processes.append(worker)
        return worker

    def start(self, seconds=120):
        self.router = self.start_router()
        self.prefills = [self.start_worker("prefill", i) for i in range(self.n_prefill)]
        self.decodes = [self.start_worker("decode", i) for i in range(self.n_decode)]
        wait_until("router ready", lambda: all(p.is_ready() for p in [self.router]) or self._check_alive(), seconds)
        self.read_addresses()
        # The router serves as soon as a pair is there; tests mean all of them.
        wait_until("all workers joined", lambda: self.all_joined() or self._check_alive(), seconds)
        return self

    def read_addresses(self):
        """Where the router listens, from what it said when it was ready."""
        for line in self.router.ready_text.split("\n"):
            word, _, rest = line.partition(" ")
            host, _, port = rest.removeprefix("https://").rpartition(":")
            if word == "http":
                self.http = (host, int(port))
            elif word == "metrics":
                self.metrics_at = (host, int(port))
            elif word == "grpc":
                self.grpc = (host, int(port))
        assert self.http and self.metrics_at, self.router.ready_text

    def here(self):
        return tuple(self.total("baton_workers", role=role, state="up") for role in ("prefill", "decode"))

    def all_joined(self):
        return all(self.total("baton_workers", role=role, state="up") == n
                   for role, n in (("prefill", self.n_prefill), ("decode", self.n_decode))) and \
            self.total("baton_kv_links", state="unproven") == 0  # requests may go to any pair

    def _check_alive(self):
        for p in self.processes:
            if not p.alive():
                raise AssertionError(f"{p.name} ended with {p.popen.returncode}:\n{p.log()[-2000:]}")
        return False

    def stop(self, seconds=60):
        """SIGTERM to all, router first; @return {name: exit code}."""
        order = sorted(self.processes, key=lambda p: p.role != "router")
        for p in order:
            p.kill(signal.SIGTERM)
            if p.role == "router" and p.alive():
                try:
                    p.popen.wait(seconds)
                except subprocess.TimeoutExpired:
                    pass
        codes = {}
        for p in order:
            try:
                codes[p.name] = p.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                p.kill()
                p.popen.wait()
                codes[p.name] = "did not stop"
        return codes

    def logs(self):
        return "\n".join(f"--- {p.name}\n{p.log()[-3000:]}" for p in self.processes)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            print(self.logs())
            self.__exit__(None, None, None)
            raise

    def __exit__(self, kind, value, trace):
        try:
            if kind is not None and not issubclass(kind, Skip):
                print(self.logs())
        finally:  # nobody may be reading that
            for p in self.processes:
                p.kill()
                p.popen.wait()
                p.close()
        if os.environ.get("BATON_KEEP_LOGS"):
            print(f"    logs kept in {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    # --- as a client

    def request(self, method, path, body=None, headers=None, at=None, timeout=60):
        if self.tls and not at:
            conn = http.client.HTTPSConnection(*self.http, timeout=timeout, context=self.tls)
        else:
            conn = http.client.HTTPConnection(*(at or self.http), timeout=timeout)
        if self.hosts:
            conn.sock = self.hosts[0].connect(at or self.http, timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            conn.request(method, path, body, headers or {})
            answer = conn.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            conn.close()

    def post(self, path, body, timeout=60):
        status, _, data = self.request("POST", path, body, timeout=timeout)
        try:
            return status, json.loads(data)
        except ValueError:
            return status, data.decode(errors="replace")

    def generate(self, text, max_tokens=16, exclude_input_in_output=True, **more):
        """@return the text that follows"""
        status, answer = self.post("/v2/models/ensemble/generate", dict(
            text_input=text, max_tokens=max_tokens, exclude_input_in_output=exclude_input_in_output, **more))
        assert status == 200, (status, answer)
        return answer["text_output"]

    def complete(self, prompt, max_tokens=16, patience=60, **more):
        """@return the choice of /v1/completions with token ids."""
        body = dict(prompt=prompt, max_tokens=max_tokens, return_token_ids=True, **more)
        status, answer = self.post("/v1/completions", body, timeout=patience)
        assert status == 200, (status, answer)
        return answer["choices"][0]

    def metrics(self):
        """@return {'name{labels}': value} of the metrics port."""
        _, _, data = self.request("GET", "/metrics", at=self.metrics_at)
        values = {}
        for line in data.decode().split("\n"):
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                values[name] = float(value)
        return values

    def series(self, name, **labels):
        """Values of the series of a family whose labels include these."""
        return [value for series, value in self.metrics().items()
                if series.split("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items())]

    def metric(self, name, **labels):
        """The one series of a family whose labels include these."""
        found = self.series(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {len(found)} series"
        return found[0]

    def total(self, name, **labels):
        """The sum of the series of a family whose labels include these; 0 without any."""
        return sum(self.series(name, **labels))

    def wait_idle(self, seconds=60):
        """Until no worker holds a block, seat or lease."""
        def idle():
            m = self.metrics()
            used = [v for k, v in m.items() if 'kv_cache_block_type="used"' in k]
            active = [v for k, v in m.items() if 'nv_trt_llm_request_metrics' in k and 'request_type="active"' in k]
            leases = [v for k, v in m.items() if k.startswith("baton_kv_leases")]
            return used and active and not any(used + active + leases)
        wait_until("all blocks, seats and leases returned", idle, seconds)


class UnprovenCluster(Cluster):
    """Does not wait until it is ready: KV may not go from its prefill to its decode workers."""

    def start(self, seconds=120):
        self.router = self.start_router()
        self.prefills = [self.start_worker("prefill", i) for i in range(self.n_prefill)]
        self.decodes = [self.start_worker("decode", i) for i in range(self.n_decode)]
        wait_until("the router serves", lambda: self.router.is_ready() or "metrics " in self.router.ready_text, seconds)
        self.read_addresses()
        wait_until("all are here", lambda: self.here() == (self.n_prefill, self.n_decode) or self._check_alive(), seconds)
        return self

    def ready(self):
        return self.request("GET", "/v2/health/ready")[0]

    def unreachable(self):
        return json.loads(self.request("GET", "/v2/cluster")[2])["unreachable"]

    def links(self, state):
        return self.metric("baton_kv_links", state=state)


class Stream:
    """One streaming request over asyncio; counts what comes. With a host of
    hosts.py the client is there."""

    def __init__(self, address, path, body, host=None):
        self.address, self.path, self.body, self.host = address, path, body, host
        self.writer = None
        self.events, self.times = [], []
        self.status = 0
        self.done = False

    async def open(self):
        if self.host:
            self.reader, self.writer = await asyncio.open_connection(sock=self.host.connect(self.address))
        else:
            self.reader, self.writer = await asyncio.open_connection(*self.address)
        self.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = json.dumps(self.body).encode()
        self.started = time.monotonic()
        self.writer.write((f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data)
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.status = int(head.split(b" ", 2)[1])
        self.chunked = b"chunked" in head.lower()
        return self

    async def chunks(self):
        if not self.chunked:
            yield await self.reader.read()
            return
        while True:
            size = int((await self.reader.readline()).strip() or b"0", 16)
            data = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield data[:-2]

    async def run(self, abandon_after=None):
        """Read events to the end, or leave after some. @return self"""
        await self.open()
        rest = b""
        try:
            async for chunk in self.chunks():
                rest += chunk
                while b"\n\n" in rest:
                    event, _, rest = rest.partition(b"\n\n")
                    if event.startswith(b":"):
                        continue  # a comment: it was silent for long
                    self.times.append(time.monotonic())
                    text = event.decode()
                    assert text.startswith("data: "), text
                    if text == "data: [DONE]":
                        self.done = True
                    else:
                        self.events.append(json.loads(text[6:]))
                    if abandon_after is not None and len(self.events) >= abandon_after:
                        return self
            if self.status != 200:
                self.error = rest.decode()
            return self
        finally:
            self.writer.transport.abort() if abandon_after is not None else self.writer.close()

    def text(self):
        if self.path.startswith("/v2"):
            return "".join(e.get("text_output", "") for e in self.events)
        return "".join(c.get("text") or c.get("delta", {}).get("content") or ""
                       for e in self.events for c in e.get("choices", []))

    def finishes(self):
        return [c["finish_reason"] for e in self.events for c in e.get("choices", []) if c.get("finish_reason")]

    def errors(self):
        return [e["error"] for e in self.events if "error" in e]


def open_fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def children_of(pid):
    """Pids of what its main thread started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


def is_there(pid):
    """Neither gone nor a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def series(text, name):
    return [line for line in text.split("\n") if re.match(rf"{name}[{{ ]", line)]
