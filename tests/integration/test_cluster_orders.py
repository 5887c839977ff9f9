# SPDX-License-Identifier: Apache-2.0
"""A cluster without a launcher: several routers, orders through any of them, workers that come, change and go under
load. No request fails."""
import json
import os
import signal
import subprocess
import tempfile
import threading

from harness import ROOT, Cluster, Process, small_model, wait_until

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
    """Two routers that know nothing of each other; workers come one by one.

    meet: they find each other by a directory, not by a list of addresses."""

    def __init__(self, model, meet=False, **more):
        super().__init__(model, prefill=0, decode=0, **more)
        self.meet = os.path.join(self.dir, "routers")
        os.mkdir(self.meet)
        self.url = "" if meet else ",".join(map(self.control_url, range(2)))
        if meet:
            self.worker_args += ["--join-dir", self.meet]
        self.routers, self.https, self.workers = [], [], {}
        self.n_started = 0

    def control_url(self, i):
        return f"ipc://{self.dir}/router-{i}.ipc"

    def add_router(self):
        i = len(self.routers)
        router = Process("router", f"router-{i}", [
            "--model", self.model, "--listen", self.control_url(i), "--key-file", self.key, "--run-dir", self.dir,
            "--name", f"router-{i}", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
            + ([] if self.url else ["--join-dir", self.meet]) + self.router_args, self.dir, self.build, self.env)
        self.processes.append(router)
        self.routers.append(router)

    def read_address(self, router, seconds=120):
        wait_until("router ready", lambda: router.is_ready() or self._check_alive(), seconds)
        said = dict(line.partition(" ")[::2] for line in router.ready_text.split("\n"))
        host, _, port = said["http"].rpartition(":")
        self.https.append((host, int(port)))

    def start(self, seconds=120):
        for _ in range(2):
            self.add_router()
        self.add("prefill", "decode")
        for router in self.routers:
            self.read_address(router, seconds)
        self.http = self.https[0]
        return self

    def add(self, *roles):
        for role in roles:
            worker = self.start_worker(role, self.n_started)
            self.workers[worker.name] = worker
            self.n_started += 1

    def url_of(self, i):
        return "http://%s:%d" % self.https[i]

    def cluster(self, i):
        """What a router sees."""
        status, _, data = self.request("GET", "/cluster", at=self.https[i])
        assert status == 200, (status, data)
        return json.loads(data)

    def seen(self, i):
        return {w["name"]: w for w in self.cluster(i)["workers"]}

    def names(self, i):
        return [w["name"] for w in self.cluster(i)["workers"]]

    def all_see(self, what, condition):
        """Both routers, whoever gave the order."""
        wait_until(what, lambda: all(condition(self.seen(i)) for i in range(2)))

    def order(self, i, *words, code=0):
        return command(self.url_of(i), *words, code=code)

    def leave(self, i, name):
        """A worker ends in order."""
        self.order(i, "drain", name, "--and-stop")
        worker = self.workers.pop(name)
        assert worker.popen.wait(60) == 0, worker.log()[-2000:]


class Load:
    """with Load(fleet): clients of both routers ask, one request after the other; none may fail or differ."""

    def __init__(self, fleet, n=4):
        self.fleet, self.over, self.failed, self.n_done = fleet, threading.Event(), [], [0] * n
        self.first = self.ask(fleet.https[0])
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n)]

    def ask(self, at):
        body = {"prompt": PROMPT, "max_tokens": TOKENS, "return_token_ids": True, "ignore_eos": True, "seed": 3}
        status, _, data = self.fleet.request("POST", "/v1/completions", body, at=at)
        assert status == 200, (status, data)
        choice = json.loads(data)["choices"][0]
        assert len(choice["token_ids"]) == TOKENS, choice
        return choice["token_ids"]

    def _run(self, i):
        try:
            while not self.over.is_set():
                got = self.ask(self.fleet.https[i % 2])
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

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(60)


def states(workers):
    return {name: w["state"] for name, w in workers.items()}


def test_orders_reach_a_worker_through_any_router():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        fleet.add("decode")
        fleet.all_see("three workers", lambda w: len(w) == 3)
        shown = fleet.order(1, "status")
        assert "router router-1" in shown and "decode-2" in shown, shown
        assert {w["name"] for w in json.loads(fleet.order(0, "status", "--json"))["workers"]} == set(fleet.workers)

        # Drained through one, it is so for both, and says so; then it serves again.
        fleet.order(0, "drain", "decode-1")
        fleet.all_see("it is drained", lambda w: states(w)["decode-1"] == "drained")
        fleet.order(1, "drain", "decode-2")
        fleet.all_see("so is the other", lambda w: states(w)["decode-2"] == "drained")
        late = []
        waiting = threading.Thread(target=lambda: late.append(fleet.complete(PROMPT, max_tokens=4)))
        waiting.start()
        wait_until("it waits", lambda: fleet.cluster(0)["models"][0]["requests"] == 1)
        assert not late
        fleet.order(1, "undrain", fleet.seen(0)["decode-1"]["id"])
        waiting.join(60)
        assert late[0]["token_ids"], late
        fleet.all_see("it is back", lambda w: states(w)["decode-1"] == "up")
        assert states(fleet.seen(0))["decode-2"] == "drained"

        # A role: of one that is drained, too.
        fleet.order(1, "role", "decode-2", "both")
        fleet.all_see("it is both", lambda w: w["decode-2"]["role"] == "both")
        fleet.leave(0, "decode-2")
        fleet.all_see("it left", lambda w: set(w) == {"prefill-0", "decode-1"})


def test_orders_that_cannot_be_are_refused_by_name():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        assert "nobody: no worker here has this name or id" in fleet.order(0, "drain", "nobody", code=1)
        assert "not 'decoder'" in fleet.order(0, "role", "decode-1", "decoder", code=2)
        assert "takes a worker and a role" in fleet.order(0, "role", "decode-1", code=2)
        assert "a launcher's" in fleet.order(0, "restart", "decode-1", code=2)
        fleet.start_worker("decode", 1)  # another one of this name
        wait_until("two of one name", lambda: fleet.names(0).count("decode-1") == 2)
        assert "several workers have this name" in fleet.order(0, "drain", "decode-1", code=1)
        for body, why in ((b"", "nothing is ordered"), ({"role": "router"}, "prefill, decode or both"),
                          ({"role": 3}, "prefill, decode or both"), ({"duty": "away"}, "on, off"),
                          ({"roles": "both"}, "nothing else"), ("[1]", ""), ({"role": "both", "x": None}, "nothing else")):
            status, _, data = fleet.request("POST", "/cluster/workers/prefill-0", body)
            assert status == 400 and why in data.decode(), (body, status, data)
        status, _, data = fleet.request("GET", "/cluster/workers/prefill-0")
        assert status == 405, (status, data)
        assert states(fleet.seen(0)) == {"prefill-0": "up", "decode-1": "up"}


def test_a_cluster_grows_changes_and_shrinks_under_load():
    """1+1 to 3+3 and back; each instance has each role once; each is started anew. Not one request fails."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        with Load(fleet) as load:
            fleet.add("prefill", "prefill", "decode", "decode")
            fleet.all_see("3 + 3", lambda w: set(states(w).values()) == {"up"} and len(w) == 6)
            load.goes_on()

            for i, (name, worker) in enumerate(list(fleet.workers.items())):
                role = worker.role
                other = "decode" if role == "prefill" else "prefill"
                for wish in (other, "both", role):
                    fleet.order(i % 2, "role", name, wish)
                fleet.all_see("it is what it was", lambda w, n=name, r=role: w[n]["role"] == r)
            load.goes_on()

            for i, (name, worker) in enumerate(list(fleet.workers.items())):
                fleet.leave(i % 2, name)
                fleet.add(worker.role)
                fleet.all_see("the new one is here", lambda w: set(w) == set(fleet.workers)
                              and set(states(w).values()) == {"up"})
            load.goes_on()

            for i, name in enumerate([n for r in ("prefill", "decode") for n, w in fleet.workers.items() if w.role == r]):
                if i % 3 != 0:
                    fleet.leave(i % 2, name)
            fleet.all_see("1 + 1", lambda w: len(w) == 2)
            load.goes_on()
        assert not load.failed, load.failed
        print(f"    {sum(load.n_done)} requests, none failed")


def test_routers_come_and_go_in_a_directory():
    """Workers find them while they serve; what a killed one leaves behind harms nobody."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory), meet=True) as fleet:
        assert len(os.listdir(fleet.meet)) == 2
        for name, text in (("x.router", "rubbish"), ("y.router", f"ipc://{fleet.dir}/nobody.ipc\n"), ("note", "")):
            with open(os.path.join(fleet.meet, name), "w", encoding="ascii") as f:
                f.write(text)
        with Load(fleet, 2) as load:
            fleet.add_router()
            fleet.read_address(fleet.routers[2])
            wait_until("both workers found it", lambda: len(fleet.seen(2)) == 2)
            assert load.ask(fleet.https[2]) == load.first
            fleet.add("decode")
            wait_until("so does one that comes later", lambda: [len(fleet.seen(i)) for i in range(3)] == [3, 3, 3])
            fleet.order(2, "drain", "decode-2", "--and-stop")
            assert fleet.workers["decode-2"].popen.wait(60) == 0
            load.goes_on()

            fleet.routers[2].kill()
            fleet.routers[2].popen.wait()
            assert len(os.listdir(fleet.meet)) == 6  # its file is left
            load.goes_on()
        assert not load.failed, load.failed
        # Who ends in order takes its file away, and the workers leave it.
        fleet.routers[1].kill(signal.SIGTERM)
        assert fleet.routers[1].popen.wait(60) == 0
        assert len(os.listdir(fleet.meet)) == 5
        for name in os.listdir(fleet.meet):
            if name != "note":
                os.unlink(os.path.join(fleet.meet, name))
        for name in ("prefill-0", "decode-1"):
            wait_until("the worker left the two that are gone", lambda n=name:
                       fleet.workers[n].log().count("is gone from the join directory") >= 2)
        # Not the one whose link is up.
        assert load.ask(fleet.https[0]) == load.first


def test_an_address_that_is_no_address_is_no_meeting_place():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        for listen, meet, why in (("tcp://0.0.0.0:0", fleet.meet, "workers elsewhere cannot use the address"),
                                  (fleet.control_url(9), fleet.meet + "/not", "No such file or directory")):
            router = Process("router", "refused", [
                "--model", fleet.model, "--listen", listen, "--key-file", fleet.key, "--run-dir", fleet.dir, "--http",
                "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--join-dir", meet], directory)
            assert router.popen.wait(60) != 0
            assert why in router.log(), router.log()
            router.close()
        assert os.listdir(fleet.meet) == []
