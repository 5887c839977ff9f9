# SPDX-License-Identifier: Apache-2.0
"""A cluster without a launcher, whose routers and workers come and go one by one; and load that must not notice."""
import json
import os
import subprocess
import threading

from harness import ROOT, Cluster, Process, wait_until

PROMPT = "one two three four five six seven eight"
TOKENS = 24


def command(url, *words, code=0):
    """@return what ./baton WORDS --url URL says: output and error"""
    environment = {k: v for k, v in os.environ.items() if k not in ("BATON_URL", "BATON_RUN_DIR")}
    done = subprocess.run([os.path.join(ROOT, "baton"), *words, "--url", url, "--timeout", "60"], capture_output=True,
                          text=True, timeout=120, env=environment)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


class Fleet(Cluster):
    """Two routers that know nothing of each other, and workers of both.

    meet: workers find routers by a directory, not by a list of addresses."""

    def __init__(self, model, meet=False, **more):
        super().__init__(model, prefill=0, decode=0, **more)
        self.meet = os.path.join(self.dir, "routers")
        os.mkdir(self.meet)
        self.url = "" if meet else ",".join(map(self.control_url, range(2)))
        if meet:
            self.worker_args += ["--join-dir", self.meet]
        self.routers, self.https, self.metrics_of, self.workers = {}, {}, {}, {}
        self.n_started = 0

    def control_url(self, i):
        return f"ipc://{self.dir}/router-{i}.ipc"

    def add_router(self, i):
        router = Process("router", f"router-{i}", [
            "--model", self.model, "--listen", self.control_url(i), "--cluster-key-file", self.key, "--run-dir", self.dir,
            "--name", f"router-{i}", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
            + ([] if self.url else ["--join-dir", self.meet]) + self.router_args, self.dir, self.build, self.env)
        self.processes.append(router)
        self.routers[i] = router

    def read_address(self, i, seconds=120):
        """Where it serves, which it says when workers are there."""
        router = self.routers[i]
        wait_until("router ready", lambda: router.is_ready() or self._check_alive(), seconds)
        said = dict(line.partition(" ")[::2] for line in router.ready_text.split("\n"))
        for word, addresses in (("http", self.https), ("metrics", self.metrics_of)):
            host, _, port = said[word].rpartition(":")
            addresses[i] = (host, int(port))

    def start(self, seconds=120):
        for i in range(2):
            self.add_router(i)
        self.add("prefill", "decode")
        for i in range(2):
            self.read_address(i, seconds)
        self.http = self.https[0]
        return self

    def add(self, *roles):
        for role in roles:
            worker = self.start_worker(role, self.n_started)
            self.workers[worker.name] = worker
            self.n_started += 1

    def take_away(self, process):
        """It was told to end, and does so in order."""
        assert process.popen.wait(60) == 0, process.log()[-2000:]
        self.processes.remove(process)
        process.close()

    def url_of(self, i):
        return "http://%s:%d" % self.https[i]

    def cluster(self, i):
        """What a router sees."""
        status, _, data = self.request("GET", "/v2/cluster", at=self.https[i])
        assert status == 200, (status, data)
        return json.loads(data)

    def seen(self, i):
        return {w["name"]: w for w in self.cluster(i)["workers"]}

    def names(self, i):
        return [w["name"] for w in self.cluster(i)["workers"]]

    def all_see(self, what, condition):
        """Both routers, whoever gave the order."""
        wait_until(what, lambda: all(condition(self.seen(i)) for i in range(2)))

    def admin(self, i, *words, code=0):
        return command(self.url_of(i), *words, code=code)

    def leave(self, i, name):
        """A worker ends in order."""
        self.admin(i, "drain", name, "--and-stop")
        self.take_away(self.workers.pop(name))


class Load:
    """with Load(fleet): clients ask the routers in `use`, as a balancer has them do, one request after the other; none
    may fail or differ."""

    def __init__(self, fleet, n=4):
        self.fleet, self.over, self.failed, self.n_done = fleet, threading.Event(), [], [0] * n
        self.use, self.busy, self.lock = [0, 1], [0, 0], threading.Lock()
        self.first = self.ask(0)
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n)]

    def ask(self, router):
        body = {"prompt": PROMPT, "max_tokens": TOKENS, "return_token_ids": True, "ignore_eos": True, "seed": 3}
        status, _, data = self.fleet.request("POST", "/v1/completions", body, at=self.fleet.https[router])
        assert status == 200, (status, data)
        choice = json.loads(data)["choices"][0]
        assert len(choice["token_ids"]) == TOKENS, choice
        return choice["token_ids"]

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

    def goes_on(self):
        """Every client has answers that it had not before."""
        before = list(self.n_done)
        wait_until("all clients are answered", lambda: self.failed or all(
            now > old + 1 for now, old in zip(self.n_done, before)))
        assert not self.failed, self.failed

    def leave(self, router):
        with self.lock:
            self.use = [1 - router]
        wait_until("nobody asks it", lambda: self.busy[router] == 0 or self.failed)

    def come_back(self):
        with self.lock:
            self.use = [0, 1]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
