# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade from the version before, which is built from this repository's history: with --long only."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading

from harness import BUILD, PROGRAMS, ROOT, Cluster, Process, Skip, small_model, wait_until

# The last build before STATS said duty and still_ms, exports said record_runs, and instances had stages.
BEFORE = "d65cdb8f2940fcacbbedfa15f86fecd6ada76be0"
PROMPT = "one two three four five six seven eight"
TOKENS = 24


def build_before():
    """@return the build folder of the version before, made once"""
    base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "baton", "before-" + BEFORE[:12])
    build = os.path.join(base, "build")
    wanted = [PROGRAMS[role] for role in ("router", "prefill", "decode")]
    if all(os.path.exists(os.path.join(build, program)) for program in wanted):
        return build
    if subprocess.run(["git", "-C", ROOT, "cat-file", "-e", BEFORE + "^{commit}"], capture_output=True, check=False).returncode != 0:
        raise Skip(f"the history of this clone does not have {BEFORE[:12]}")
    shutil.rmtree(base, ignore_errors=True)
    os.makedirs(base)
    archive = subprocess.run(["git", "-C", ROOT, "archive", BEFORE], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", base], input=archive, check=True)
    for command in (["meson", "setup", build, base, "-Dbuildtype=release", "-Dtests=disabled", "-Dcuda=disabled"],
                    ["ninja", "-C", build, *wanted]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return build


class Servers(Cluster):
    """Two routers, and workers of either build, one by one."""

    def __init__(self, model, build):
        super().__init__(model, prefill=0, decode=0, build=build)
        self.url = ",".join(map(self.control_url, range(2)))
        self.routers, self.https, self.metrics_of, self.n_workers = [None] * 2, [None] * 2, [None] * 2, 0

    def control_url(self, i):
        return f"ipc://{self.dir}/router-{i}.ipc"

    def add_router(self, i):
        router = Process("router", f"router-{i}", [
            "--model", self.model, "--listen", self.control_url(i), "--key-file", self.key, "--run-dir", self.dir,
            "--name", f"router-{i}", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
            + self.router_args, self.dir, self.build, self.env)
        self.processes.append(router)
        self.routers[i] = router

    def read_address(self, i):
        """Where it serves, which it says when workers are there."""
        router = self.routers[i]
        wait_until("router ready", router.is_ready, 120)
        for line in router.ready_text.split("\n"):
            word, _, rest = line.partition(" ")
            if word in ("http", "metrics"):
                host, _, port = rest.rpartition(":")
                (self.https if word == "http" else self.metrics_of)[i] = (host, int(port))

    def add_worker(self, role):
        self.n_workers += 1
        return self.start_worker(role, self.n_workers)

    def up(self, i, role):
        self.metrics_at = self.metrics_of[i]
        return self.total("baton_workers", role=role, state="up")

    def wait_up(self, n_prefill, n_decode):
        for i, router in enumerate(self.routers):
            if router.alive():
                wait_until(f"router-{i} sees {n_prefill} + {n_decode}", lambda i=i: (
                    self.up(i, "prefill"), self.up(i, "decode")) == (n_prefill, n_decode), 60)


class Clients:
    """They ask the routers in `use`, as a balancer has them do; none may fail or differ."""

    def __init__(self, servers, n=4):
        self.servers, self.over, self.failed, self.n_done = servers, threading.Event(), [], [0] * n
        self.use, self.busy, self.lock = [0, 1], [0, 0], threading.Lock()
        self.first = self.ask(0)
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n)]

    def ask(self, router):
        body = {"prompt": PROMPT, "max_tokens": TOKENS, "return_token_ids": True, "ignore_eos": True, "seed": 3}
        status, _, data = self.servers.request("POST", "/v1/completions", body, at=self.servers.https[router])
        assert status == 200, (status, data)
        return json.loads(data)["choices"][0]["token_ids"]

    def _run(self, i):
        try:
            while not self.over.is_set():
                with self.lock:
                    router = self.use[i % len(self.use)]
                    self.busy[router] += 1
                got = self.ask(router)
                with self.lock:
                    self.busy[router] -= 1
                assert got == self.first, (got, self.first)
                self.n_done[i] += 1
        except Exception as why:  # pylint: disable=broad-except
            self.failed.append(repr(why))

    def go_on(self):
        before = list(self.n_done)
        wait_until("all clients are answered", lambda: self.failed or all(
            now > old + 1 for now, old in zip(self.n_done, before)), 60)
        assert not self.failed, self.failed

    def leave(self, router):
        with self.lock:
            self.use = [1 - router]
        wait_until("nobody asks it", lambda: self.busy[router] == 0, 60)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(60)


def replace(servers, old, role, counts):
    """The new one first, then the old one drains."""
    worker = servers.add_worker(role)
    servers.wait_up(*[n + (r == role) for n, r in zip(counts, ("prefill", "decode"))])
    old.kill(signal.SIGTERM)
    assert old.popen.wait(60) == 0, old.log()[-2000:]
    servers.processes.remove(old)
    servers.wait_up(*counts)
    return worker


def test_a_rolling_upgrade_from_the_version_before():
    """Decode workers, prefill workers, routers, as docs/WIRE.md has it, and back again: not one request fails or differs."""
    if not os.environ.get("BATON_LONG"):
        raise Skip("builds the version before; with --long")
    before = build_before()
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        servers = Servers(small_model(directory), before)
        try:
            servers.add_router(0)
            servers.add_router(1)
            workers = {role: [servers.add_worker(role) for _ in range(2)] for role in ("prefill", "decode")}
            for i in range(2):
                servers.read_address(i)
            servers.wait_up(2, 2)
            with Clients(servers) as clients:
                for build in (BUILD, before):
                    servers.build = build
                    for role in ("decode", "prefill"):
                        workers[role] = [replace(servers, old, role, (2, 2)) for old in workers[role]]
                        clients.go_on()
                    for i in range(2):
                        clients.leave(i)
                        old = servers.routers[i]
                        old.kill(signal.SIGTERM)
                        assert old.popen.wait(60) == 0, old.log()[-2000:]
                        servers.processes.remove(old)
                        servers.add_router(i)
                        servers.read_address(i)
                        servers.wait_up(2, 2)
                        clients.use = [0, 1]
                        clients.go_on()
            assert not clients.failed, clients.failed
            print(f"    {sum(clients.n_done)} requests, none failed")
        finally:
            servers.stop()
