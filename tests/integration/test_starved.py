# SPDX-License-Identifier: Apache-2.0
"""Who gets no core is starved, and neither lost nor hung: its requests wait, and end well when it runs again. A link that
is cut is still found in time."""
import http.client
import tempfile
import threading
import time

from harness import PACED, Cluster, children_of, slow_model, wait_until
from hosts import Network
from launch import Launch
from quota import Quota

FIFTIETH_US = 20000  # of a second, for all workers
LEAST_US = 1000      # the least that Linux takes
SILENCE = (500, 1500)
SHORT_SILENCE = (400, 800)
TIMES = ["--heartbeat-ms", "100"]
N_REQUESTS = 2


class Requests:
    """Clients that wait, one thread each."""

    def __init__(self, post):
        self.answers = []
        self.threads = [threading.Thread(target=self._ask, args=(post, i)) for i in range(N_REQUESTS)]
        for thread in self.threads:
            thread.start()

    def _ask(self, post, i):
        body = {"prompt": f"starve {i}", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
        try:
            self.answers.append(post(body))
        except (OSError, http.client.HTTPException) as why:
            self.answers.append((0, str(why)))

    def check(self):
        for thread in self.threads:
            thread.join(300)
        assert [status for status, _ in self.answers] == [200] * N_REQUESTS, self.answers


def test_starved_workers_lose_no_request():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as d:
        with Launch("--model", slow_model(d), "--watchdog-ms", str(SILENCE[1]), *TIMES, silence=SILENCE) as launch:
            router = launch.process("router")
            workers = [p for p in launch.processes().values() if p["program"] != "router"]
            wait_until("the workers serve", lambda: launch.get(router["http"], "/v2/health/ready") == 200)

            def states():
                return [w["state"] for w in launch.ask(router["http"], "/v2/cluster")[1]["workers"]]

            def says_starved(name):
                return (launch.process(name)["why"] or "").startswith("starved")

            with Quota([p["pid"] for p in workers], FIFTIETH_US) as quota:
                requests = Requests(lambda body: launch.post(router["http"], "/v1/completions", body, 300))
                wait_until("a fiftieth of a core is too little", lambda: quota.n_throttled() >= 1)
                quota.set(LEAST_US)
                wait_until("all are starved", lambda: states() == ["starved"] * len(workers))
                assert sum(launch.metric(router["metrics"], "baton_workers", role=role, state="starved") or 0
                           for role in ("prefill", "decode")) > 0
                wait_until("the launcher knows", lambda: all(says_starved(p["name"]) for p in workers))
                since = quota.n_throttled()  # longer than a lost link and a hang take
                wait_until("they are starved for long", lambda: quota.n_throttled() >= since + 3)
                quota.lift()
                requests.check()
            wait_until("all are up", lambda: states() == ["up"] * len(workers))
            wait_until("the launcher knows that, too", lambda: not any(says_starved(p["name"]) for p in workers))
            assert all(launch.process(p["name"])["restarts"] == 0 for p in workers), launch.output()
            assert "is hung" not in launch.output(), launch.output()
            assert launch.metric(router["metrics"], "baton_attempt_failures_total", reason="worker_lost") == 0


def test_starved_worker_of_another_host_is_not_declared_lost():
    with tempfile.TemporaryDirectory() as d, Network("a", "b") as net:
        with Cluster(slow_model(d), hosts=net.hosts[:1], decode_hosts=net.hosts[1:], worker_args=[*TIMES, *PACED], router_args=[
                *TIMES, "--suspect-ms", str(SHORT_SILENCE[0]), "--dead-ms", str(SHORT_SILENCE[1])]) as c:
            def lost():
                return "worker decode-0 lost" in c.router.log()

            def silences():
                return c.router.log().count("worker decode-0 is silent")

            requests = Requests(lambda body: c.post("/v1/completions", body, 300))
            wait_until("all generate", lambda: c.metric("baton_kv_transfers_total") == N_REQUESTS)
            with Quota([p.pid for p in c.decodes], FIFTIETH_US) as quota:
                # Without its quota for a second, which is longer than a cut link takes.
                wait_until("it has used up its quota", lambda: quota.n_throttled() >= 3)
                assert silences() > 0 and not lost(), c.router.log()
                quota.lift()
                requests.check()
                assert c.metric("baton_attempt_failures_total", reason="worker_lost") == 0

                # A cut is found as soon as ever, however silent it was before.
                Requests(lambda body: c.post("/v1/completions", body, 300))  # which it then has no time for
                wait_until("all generate", lambda: c.metric("baton_kv_transfers_total") == 2 * N_REQUESTS)
                was = silences()
                quota.set(LEAST_US)
                wait_until("it is silent", lambda: silences() > was)
                net.cut(net.hosts[1])
                since = time.monotonic()
                wait_until("the cut is found", lost)
                assert 1000 * (time.monotonic() - since) < 3 * SHORT_SILENCE[1], c.router.log()
                net.heal(net.hosts[1])


def test_starved_rank_does_not_end_its_instance():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), worker_args=[*TIMES, *PACED, "--reduction-parts", "2", "--suspect-ms", str(SILENCE[0]), "--dead-ms",
                                                 str(SILENCE[1])], decode_args=["--tp", "2"]) as c:
            ranks = children_of(c.decodes[0].pid)
            assert len(ranks) == 1, ranks
            requests = Requests(lambda body: c.post("/v1/completions", body, 300))
            wait_until("all generate", lambda: c.metric("baton_kv_transfers_total") == N_REQUESTS)
            with Quota(ranks, LEAST_US) as quota:
                wait_until("it has used up its quota", lambda: quota.n_throttled() >= 4)
                assert c.decodes[0].alive(), c.decodes[0].log()
                quota.lift()
                requests.check()
            assert c.metric("baton_attempt_failures_total", reason="worker_lost") == 0
