# SPDX-License-Identifier: Apache-2.0
"""One launch with several models, and with several routers; workers that change their role."""
import json
import os
import signal
import subprocess
import tempfile
import threading
import urllib.request

from harness import ENDLESS, endless_model, free_port, small_model, wait_until
from launch import Launch, Reading

PROMPT = "one two three"
LONG = ENDLESS // 3  # tokens of each of several streams, which all have their room in one pool


def models(directory):
    """@return arguments: `a` streams for ever, `b` answers at once."""
    paths = {}
    for name, make in (("a", endless_model), ("b", small_model)):
        os.mkdir(os.path.join(directory, name))
        paths[name] = make(os.path.join(directory, name))
    return [word for name, path in paths.items() for word in ("--model", f"{name}={path}")]


def test_models_of_one_launch_are_apart():
    """One is stopped and started while the other streams."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Launch(*models(directory)) as launch:
        router = launch.process("router")
        http, metrics = router["http"], router["metrics"]

        def tokens_of(model):
            return launch.metric(metrics, "baton_generation_tokens_total", model=model)

        def expected(model, role):
            return launch.metric(metrics, "baton_expected_workers", model=model, role=role)

        stream = Reading(http, PROMPT, ENDLESS, model="a").read(4)
        first = launch.complete(http, PROMPT, model="b")
        assert tokens_of("b") == 16, tokens_of("b")
        assert tokens_of("a") >= 4, tokens_of("a")
        wait_until("the router knows what is expected", lambda: expected("b", "decode") == 1)

        launch.admin("unload-model", "b", "wait=yes")
        states = {name: p["state"] for name, p in launch.processes().items()}
        assert states == {"router": "ready", "a.prefill-0": "ready", "a.decode-0": "ready",
                          "b.prefill-0": "stopped", "b.decode-0": "stopped"}, states
        wait_until("the router knows that b is unloaded", lambda: expected("b", "decode") == 0)
        status, answer = launch.post(http, "/v1/completions", {"model": "b", "prompt": PROMPT, "max_tokens": 1})
        assert status == 503 and "unloaded" in answer["error"]["message"], (status, answer)
        stream.read(4)

        launch.admin("load-model", "b", "wait=yes")
        wait_until("b is served again", lambda: launch.post(
            http, "/v1/completions", {"model": "b", "prompt": PROMPT, "max_tokens": 1})[0] == 200)
        before = tokens_of("b")
        assert launch.complete(http, PROMPT, model="b") == first
        assert tokens_of("b") == before + 16
        stream.read(4)

        # A worker that dies is started again, and counted.
        os.kill(launch.process("b.decode-0")["pid"], signal.SIGKILL)
        wait_until("the worker's restart is counted", lambda: launch.metric(
            metrics, "baton_worker_restarts_total", worker="b.decode-0") == 1, 60)
        stream.read(4)
        stream.close()


def test_a_model_is_loaded_while_others_are_served():
    """It was not named when the launch began."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        args = models(directory)
        late = args[3].partition("=")[2]
        with Launch(*args[:2]) as launch:
            http = launch.process("router")["http"]
            stream = Reading(http, PROMPT, ENDLESS).read(2)
            status, answer = launch.post(http, "/v1/completions", {"model": "late", "prompt": PROMPT})
            assert status == 404 and "'late'" in answer["error"]["message"], (status, answer)
            launch.admin("load-model", f"late={late}", "wait=yes")
            wait_until("it is served", lambda: launch.post(
                http, "/v1/completions", {"model": "late", "prompt": PROMPT, "max_tokens": 1})[0] == 200)
            # More workers for a model that has fewer, in a launch of one model, too.
            metrics = launch.process("router")["metrics"]
            for model, name in (("late", "late.decode-1"), ("a", "decode-1")):
                launch.admin("load-model", model, "decode=2", "wait=yes")
                assert launch.process(name)["state"] == "ready"
                wait_until("it has joined", lambda: sum(launch.metric(metrics, "baton_workers", model=model, role="decode", state=state)
                                                        or 0 for state in ("up", "starved")) == 2)
                assert launch.metric(metrics, "baton_expected_workers", model=model, role="decode") == 2
            stream.read(4).close()


def test_routers_of_one_launch_live_on_alone():
    """One of two is killed: the other's streams go on, and it comes back."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        args = models(directory)[:2]
        with Launch(*args, "--routers", "2") as launch:
            routers = [launch.process(f"router-{i}") for i in range(2)]
            streams = [Reading(r["http"], PROMPT, ENDLESS).read(3) for r in routers]
            os.kill(routers[0]["pid"], signal.SIGKILL)
            streams[1].read(20)
            again = wait_until("the router is back", lambda: (lambda p: p if p["state"] == "ready" and
                               p["restarts"] == 1 else None)(launch.process("router-0")), 60)
            streams[1].read(20)
            # Both give the bytes of the stream that nothing disturbed.
            # A token may be a part of a character, so there are more of them than events.
            n = 8 * streams[1].n_events
            texts = [launch.complete(http, PROMPT, max_tokens=n) for http in (again["http"], routers[1]["http"])]
            assert texts[0] == texts[1]
            assert texts[0].startswith(streams[1].text), (texts[0], streams[1].text)
            for stream in streams:
                stream.close()


def test_routers_share_one_port():
    """Connections are dealt out; who dies takes its own only; another launch does not get in among them."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        args = [*models(directory)[2:], "--routers", "2", "--reuse-http-port"]
        address = f"127.0.0.1:{free_port()}"
        with Launch(*args, http=address) as launch:
            routers = [launch.process(f"router-{i}") for i in range(2)]
            assert [r["http"] for r in routers] == [address, address]

            def served():
                launch.complete(address, PROMPT, max_tokens=2)
                return [launch.metric(r["metrics"], "baton_http_requests_total", route="/v1/completions", code="200") or 0
                        for r in routers]

            wait_until("both have served", lambda: min(served()) > 0)
            other = subprocess.run([launch.args[0], *args, "--http", address], capture_output=True, text=True, timeout=60)
            assert other.returncode == 78 and "Address already in use" in other.stderr, (other.returncode, other.stderr)
            os.kill(routers[0]["pid"], signal.SIGKILL)
            wait_until("it is gone", lambda: launch.process("router-0")["pid"] != routers[0]["pid"])
            for _ in range(10):
                launch.complete(address, PROMPT, max_tokens=2)


class Streams:
    """with Streams(http, n): each goes on and on; `failed` says which did not."""

    def __init__(self, http, n):
        self.prompts = [f"{PROMPT} {i}" for i in range(n)]
        self.readings = [Reading(http, prompt, LONG).read(1) for prompt in self.prompts]
        self.failed, self.over = [], False
        self.threads = [threading.Thread(target=self._read, args=(r,)) for r in self.readings]

    def _read(self, reading):
        try:
            while not self.over:
                reading.read(1)
        except Exception as why:  # pylint: disable=broad-except
            self.failed.append(repr(why))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for thread in self.threads:
            thread.join(60)

    def go_on(self):
        """All have events that they had not before."""
        before = [r.n_events for r in self.readings]
        wait_until("all streams go on", lambda: self.failed or all(
            r.n_events > n for r, n in zip(self.readings, before)), 60)
        assert not self.failed, self.failed

    def check_bytes(self, launch, http):
        """What nothing disturbs gives the same: an event has a token or more, so this is what came first."""
        texts = {}

        def ask(prompt, n):
            texts[prompt] = launch.complete(http, prompt, max_tokens=n)

        threads = [threading.Thread(target=ask, args=(p, r.n_events)) for p, r in zip(self.prompts, self.readings)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for prompt, reading in zip(self.prompts, self.readings):
            # Its last character may be cut short, which the stream's was not.
            text = texts[prompt].rstrip("\ufffd")
            assert text and reading.text.startswith(text), (text, reading.text)
            reading.close()


def test_a_role_changes_while_clients_stream():
    """One of two prefill workers becomes both, decode and prefill again, in the same life."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        with Launch(*models(directory)[:2], "--prefill", "2") as launch:
            router = launch.process("router")
            http, metrics = router["http"], router["metrics"]
            wait_until("all workers are ready", lambda: {p["state"] for p in launch.processes().values()} == {"ready"},
                       60)
            pid = launch.process("prefill-0")["pid"]
            first = launch.complete(http, PROMPT)
            with Streams(http, 8) as streams:
                for role in ("both", "decode", "prefill"):
                    launch.admin("role", "prefill-0", role, "wait=yes")
                    assert launch.process("prefill-0")["role"] == role
                    wait_until("the router uses it so", lambda r=role: launch.metric(
                        metrics, "baton_worker_up", worker="prefill-0", role=r) == 1)
                    wait_until("as it is expected", lambda r=role: launch.metric(
                        metrics, "baton_expected_workers", role=r) == (2 if r == "decode" else 1 if r == "both" else 2))
                    for _ in range(2):
                        assert launch.complete(http, PROMPT) == first
                    streams.go_on()
                assert launch.process("prefill-0")["pid"] == pid
                assert launch.metric(metrics, "baton_worker_restarts_total", worker="prefill-0") == 0
            streams.check_bytes(launch, http)


def test_a_worker_of_both_roles_serves_alone_and_drains():
    """The decode worker takes over all; then it finishes what it has and ends."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        with Launch(*models(directory)[:2]) as launch:
            router = launch.process("router")
            http, metrics = router["http"], router["metrics"]
            first = launch.complete(http, PROMPT)
            launch.admin("role", "decode-0", "both", "wait=yes")
            launch.admin("drain", "prefill-0")
            wait_until("it is gone", lambda: launch.metric(metrics, "baton_worker_up", worker="prefill-0") is None)
            before = launch.metric(metrics, "baton_kv_bytes_total", direction="received")
            with Streams(http, 4) as streams:
                assert launch.complete(http, PROMPT) == first
                assert launch.metric(metrics, "baton_workers", role="both", state="up") == 1
                # Nothing came over the wire: both phases are its own.
                assert launch.metric(metrics, "baton_kv_bytes_total", direction="received") == before
                launch.admin("start", "prefill-0", "wait=yes")
                wait_until("it is back", lambda: launch.metric(metrics, "baton_worker_up", worker="prefill-0") == 1)
                streams.go_on()
            streams.check_bytes(launch, http)
            launch.admin("drain", "decode-0")
            assert launch.process("decode-0")["state"] == "stopped"
            launch.admin("start", "decode-0", "wait=yes")
            assert launch.process("decode-0")["role"] == "both"
            wait_until("it is both again", lambda: launch.metric(metrics, "baton_workers", role="both", state="up") == 1)
            assert launch.complete(http, PROMPT) == first


def test_a_command_through_a_router_goes_to_the_launcher_that_runs_the_worker():
    """Whose word counts: it would make the worker again what it is meant to be."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        with Launch(*models(directory)[2:]) as launch:
            http = launch.process("router")["http"]

            def change(**what):
                status, answer = launch.post(http, "/v2/cluster/workers/prefill-0", what)
                return status, answer

            def worker():
                with urllib.request.urlopen(f"http://{http}/v2/cluster", timeout=60) as reply:
                    found = [w for w in json.load(reply)["workers"] if w["name"] == "prefill-0"]
                return found[0] if found else None

            wait_until("the router knows whose it is", lambda: worker() and worker()["launched"])
            assert change(role="both")[0] == 202
            wait_until("the launcher means it so", lambda: launch.process("prefill-0")["role"] == "both")
            wait_until("it is so", lambda: worker()["role"] == "both")
            status, answer = change(role="decode", duty="off")
            assert status == 400 and "one command at a time" in json.dumps(answer), (status, answer)
            assert change(duty="off")[0] == 202
            wait_until("it has drained and ended", lambda: launch.process("prefill-0")["state"] == "stopped")
            wait_until("the router saw it go", lambda: worker() is None)
            assert change(duty="on")[0] == 404
            launch.admin("start", "prefill-0", "wait=yes")
            wait_until("it is back, as it was meant to be", lambda: worker() and worker()["role"] == "both")
