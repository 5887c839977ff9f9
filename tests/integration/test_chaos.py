# SPDX-License-Identifier: Apache-2.0
"""Steady load while workers are killed and stopped, links are cut and clients
leave, and (in --long) while attackers take turns: every request ends once and in time, every whole answer has the bytes of
an undisturbed run, and nothing is held at the end.

    host a: router, prefill-0, decode-0        host b: prefill-1, decode-1

So one pair of each two shares memory and the others cross the link.
BATON_SEED names another run than the usual one.
"""
import asyncio
import contextlib
import itertools
import os
import random
import re
import signal
import tempfile
import time

from attackers import Attacker, LogReader, NAMES
from harness import Cluster, Skip, Stream, open_fds, slow_model, small_model, wait_until
from hosts import Network
from quota import Quota

ALONE = True  # its requests must end in time
PAUSES = ["--scheduler-policy", "max_utilization", "--kv-tokens", "512"]
CYCLE = 40.0  # seconds, with every kind of fault
SIEGE = 15.0  # seconds of each attacker
N_CLIENTS = 8
N_JOBS = 16
ABORTED = 0.10  # of the requests
STARVED_US = 20000  # of processor time in a second
TIMEOUT = 20.0  # deadline of a request, seconds
SLACK = 10.0  # for a busy machine's router and client
PATIENCE = 300.0  # seconds behind the faults; whoever takes longer does not get on
# An error tells where the request was.
PHASE = re.compile(r"in phase (prefill|KV transfer|decode|waiting for workers)|workers? came within")
WORDS = "a worker was lost and found while the river carried every letter to another town".split()


def job(i):
    """One of the questions: short to a dozen blocks, greedy and seeded."""
    prompt = " ".join(WORDS[(i + 3 * k) % len(WORDS)] for k in range(3 + 7 * (i % 5)))
    body = {"prompt": f"{i} {prompt}", "max_tokens": 60 + 40 * (i % 4), "stream": True, "ignore_eos": True}
    if i % 2:
        body.update(temperature=0.9, top_p=0.95, top_k=40, seed=100 + i)
    else:
        body.update(temperature=0)
    return body


class Tally:
    def __init__(self):
        self.completed, self.aborted, self.failed = 0, 0, []
        self.wrong, self.hung, self.unclear = [], [], []
        self.longest_gap = self.longest = 0.0

    def is_enough(self):
        """Most of those that met the faults went on."""
        return self.completed > max(2 * N_JOBS, len(self.failed))

    def judge(self, i, s, seconds, expected):
        self.longest = max(self.longest, seconds)
        times = [s.started] + s.times
        if s.status == 200 and len(s.times) > 1:
            self.longest_gap = max(self.longest_gap, max(b - a for a, b in zip(times[1:], times[2:])))
        if seconds > TIMEOUT + SLACK:
            self.hung.append((i, f"{seconds:.1f} s"))
        finishes = s.finishes()
        if s.status == 200 and not s.errors():
            if not s.done or len(finishes) != 1:
                self.unclear.append((i, "ended without an end", s.done, finishes, s.events[-2:]))
            elif (s.text(), finishes) != expected:
                self.wrong.append((i, s.text(), expected))
            else:
                self.completed += 1
            return
        if s.status == 200:
            message = s.errors()[0]["message"]
            if len(s.errors()) != 1 or finishes:
                self.unclear.append((i, "ended twice", finishes, s.errors()))
            if not expected[0].startswith(s.text()):
                self.wrong.append((i, s.text(), expected))
        else:
            message = getattr(s, "error", "")
        if PHASE.search(message) is None or s.status not in (200, 503, 504):
            self.unclear.append((i, "no clear error", s.status, message))
        self.failed.append(message)


def home(c):
    """@return the router's host, None: this one"""
    return c.hosts[0] if c.hosts else None


async def ask(c, i):
    s = Stream(c.http, "/v1/completions", job(i), home(c))
    await s.run()
    finishes = s.finishes()
    assert s.status == 200 and s.done and not s.errors() and len(finishes) == 1, (s.status, s.events[-1:])
    return s.text(), finishes


async def one_request(c, rng, expected, tally):
    i = rng.randrange(N_JOBS)
    leave = rng.uniform(0, 2.5) if rng.random() < ABORTED else None
    s = Stream(c.http, "/v1/completions", job(i), home(c))
    start = time.monotonic()
    task = asyncio.ensure_future(s.run())
    done, _ = await asyncio.wait([task], timeout=TIMEOUT + SLACK + 10 if leave is None else leave)
    if not done:
        if leave is None:
            tally.hung.append((i, "no end"))
        else:
            tally.aborted += 1
        if s.writer is not None:
            s.writer.transport.abort()
        task.cancel()
        await asyncio.wait([task])
        return
    try:
        task.result()
    except (asyncio.IncompleteReadError, ConnectionError, ValueError) as e:
        tally.unclear.append((i, "the connection broke", repr(e)))
        return
    tally.judge(i, s, time.monotonic() - start, expected[i])
    if s.status != 200 or s.errors():
        await asyncio.sleep(rng.uniform(0.1, 0.5))  # as a client would, before it tries again


async def client(c, rng, until, expected, tally):
    """To the end of the faults, and on a slow machine until enough of the requests that they met have gone on."""
    while time.monotonic() < until or (not tally.is_enough() and time.monotonic() < until + PATIENCE):
        await one_request(c, rng, expected, tally)


def plan(rng, seconds, cuts, starves):
    """[(when, what, whom)], whom = number of a worker or host. cuts: of links between hosts, too; starves: workers get next
    to no core, and are killed while they start"""
    events = []
    for begin in range(0, int(seconds), int(CYCLE)):
        for k, victim in enumerate(rng.sample(range(4), 4)):
            events.append((begin + 4 + 10 * k + rng.uniform(0, 2), "kill", victim))
        events.append((begin + 8 + rng.uniform(0, 2), "stop 1", rng.randrange(4)))
        events.append((begin + 11.5 + rng.uniform(0, 2), "cut 1", rng.randrange(2)))
        events.append((begin + 17 + rng.uniform(0, 2), "stop 6", rng.randrange(4)))
        events.append((begin + 27 + rng.uniform(0, 2), "cut 6", rng.randrange(2)))
        for when, what in (2, "start 3"), (6, "starve 4"), (14, "starve 6"), (20, "start 3"):
            if starves:
                events.append((begin + when + rng.uniform(0, 2), what, rng.randrange(4)))
    # What begins late would end after the clients.
    return sorted(e for e in events if e[0] < seconds - 3 and (cuts or "cut" not in e[1]))


class Faults:
    def __init__(self, c, net, rng):
        self.c, self.net, self.rng = c, net, rng
        self.workers = c.prefills + c.decodes
        self.n = {"kill": 0, "stop": 0, "cut": 0, "starve": 0, "start": 0}

    def kill(self, k):
        old = self.workers[k]
        old.kill(signal.SIGKILL)
        old.popen.wait(60)
        old.close()
        self.c.processes.remove(old)
        self.workers[k] = self.c.start_worker(old.role, int(old.name.split("-")[1]))

    async def starve(self, k, seconds):
        """From now on next to no core for it, whoever it is then."""
        victim = self.workers[k]
        with contextlib.suppress(ProcessLookupError), Quota([victim.pid], STARVED_US):
            await asyncio.sleep(seconds)

    async def start_badly(self, k, times):
        """Killed again in the first moments of its starts, each of which begins without a core."""
        for i in range(int(times)):
            self.kill(k)
            moment = self.rng.uniform(0, 0.2 * 3 ** i)
            await asyncio.gather(self.starve(k, moment), asyncio.sleep(moment))
        self.kill(k)

    async def act(self, what, whom):
        word, _, seconds = what.partition(" ")
        self.n[word] += 1
        if word == "kill":
            self.kill(whom)
        elif word == "starve":
            await self.starve(whom, float(seconds))
        elif word == "start":
            await self.start_badly(whom, seconds)
        elif word == "stop":
            victim = self.workers[whom]
            victim.kill(signal.SIGSTOP)
            await asyncio.sleep(float(seconds))
            victim.kill(signal.SIGCONT)
        else:
            self.net.cut(self.net.hosts[whom])
            await asyncio.sleep(float(seconds))
            self.net.heal(self.net.hosts[whom])

    async def run(self, events, start):
        tasks = []
        for when, what, whom in events:
            await asyncio.sleep(max(0.0, start + when - time.monotonic()))
            if os.environ.get("BATON_CHAOS_VERBOSE"):
                name = self.net.hosts[whom].name if "cut" in what else self.workers[whom].name
                print(f"    {time.strftime('%H:%M:%S')} {when:5.1f} s: {what} {name}", flush=True)
            tasks.append(asyncio.ensure_future(self.act(what, whom)))
        await asyncio.gather(*tasks)


async def besiege(c, reader, until, attacks):
    """One attacker after the other, on the router's host.

    @param [out] attacks  {name: how often it did what it does}"""
    loop = asyncio.get_running_loop()
    for name in itertools.cycle(NAMES):
        if time.monotonic() + SIEGE > until:
            return
        with contextlib.ExitStack() as stack:
            a = await loop.run_in_executor(None, stack.enter_context, Attacker(name, c, reader, home(c)))
            await asyncio.sleep(SIEGE)
            await loop.run_in_executor(None, stack.close)
        attacks[name] = attacks.get(name, 0) + a.done


async def storm(c, net, rng, seconds, expected, reader, starves):
    tally, faults, attacks = Tally(), Faults(c, net, random.Random(1)), {}
    start = time.monotonic()
    others = [client(c, random.Random(rng.random()), start + seconds, expected, tally) for _ in range(N_CLIENTS)]
    if reader:
        others.append(besiege(c, reader, start + seconds, attacks))
    await asyncio.gather(faults.run(plan(rng, seconds, bool(net), starves), start), *others)
    return tally, faults, attacks


def held(c, fds):
    """What is not given back, by name; empty = nothing."""
    found = {}
    for name, value in c.metrics().items():
        if value and (name.startswith(("baton_kv_leases", "baton_requests_in_flight", "baton_requests_waiting",
                                       "baton_worker_requests")) or
                      (name.startswith("baton_kv_blocks") and 'state="quarantined"' in name) or
                      'kv_cache_block_type="used"' in name or
                      ("nv_trt_llm_request_metrics" in name and 'request_type="active"' in name)):
            found[name] = value
    for p in c.processes:
        now = {"descriptors": open_fds(p.pid), "keys": mapped_keys(p.pid)}
        found.update({f"{p.name} {k}": (v, fds[p.name][k]) for k, v in now.items() if v > fds[p.name][k]})
    return found


def mapped_keys(pid):
    """Shared segments that this process has mapped: its own and those of peers,
    each by a remote key."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as f:
        return sum(1 for line in f if "/dev/shm/" in line or "/memfd:" in line or "/SYSV" in line)


def leaks_after(c, fds, seconds=60.0):
    """Wait until nothing is held. @return what still is"""
    try:
        wait_until("nothing held", lambda: not held(c, fds), seconds)
    except AssertionError:
        return held(c, fds)
    return {}


async def ask_all(c):
    gate = asyncio.Semaphore(4)

    async def one(i):
        async with gate:
            return await ask(c, i)
    return await asyncio.gather(*(one(i) for i in range(N_JOBS)))


def run_chaos(seconds, seed, attacked=False, names=("a", "b"), pauses=False, policy=None, starves=False):
    """@param starves   workers get next to no core for seconds, and are killed while they start
    @param attacked  one attacker after the other joins the clients
    @param pauses    decode workers have KV for less than they begin
    @param policy    options that are not the default: arguments of Cluster
    @param names     of the hosts; none: all on this one, where control messages are in shared memory"""
    rng = random.Random(seed)
    policy = policy or {}
    with contextlib.ExitStack() as stack:
        d = stack.enter_context(tempfile.TemporaryDirectory())
        net = stack.enter_context(Network(*names)) if names else None
        c = Cluster(slow_model(d), prefill=2, decode=2, hosts=net.hosts if net else (), kv_memory="32m", silence=None,
                    router_args=["--request-timeout-ms", str(int(1000 * TIMEOUT)), *policy.get("router_args", [])],
                    worker_args=["--chunk-tokens", "32", *policy.get("worker_args", [])],
                    decode_args=["--max-batch-size", "8", *(PAUSES if pauses else []), *policy.get("decode_args", [])])
        reader = stack.enter_context(LogReader(c)) if attacked else None
        with c:
            expected = asyncio.run(ask_all(c))
            c.wait_idle()
            fds = {p.name: {"descriptors": open_fds(p.pid), "keys": mapped_keys(p.pid)} for p in c.processes}
            began = time.monotonic()
            tally, faults, attacks = asyncio.run(storm(c, net, rng, seconds, expected, reader, starves))
            seconds = time.monotonic() - began
            wait_until("all workers are here again", c.all_joined)
            leaked = leaks_after(c, fds)
            reruns = int(c.total("baton_retries_total"))
            after = asyncio.run(ask_all(c))
            tally.wrong += [(i, a, b) for i, (a, b) in enumerate(zip(after, expected)) if a != b]
            leaked.update(leaks_after(c, fds))
            print(f"    seed {seed}, {seconds:.0f} s, {faults.n['kill']} kills, {faults.n['stop']} stops, "
                  f"{faults.n['cut']} cuts, {faults.n['starve']} starved, {faults.n['start']} bad starts: leaked {len(leaked)}, wrong bytes {len(tally.wrong)}, "
                  f"hung {len(tally.hung)}; {tally.completed} completed, {len(tally.failed)} failed with a clear "
                  f"error, {tally.aborted} aborted, {reruns} re-run; longest gap in a stream "
                  f"{tally.longest_gap:.2f} s, longest request {tally.longest:.2f} s", flush=True)
            if attacked:
                print(f"    attacks: {attacks}", flush=True)
            for message in sorted(set(tally.failed)):
                print(f"      {tally.failed.count(message)} x {message}")
            paused = c.total("baton_worker_preemptions_total")
            assert (paused > 0) == pauses, paused
            assert not leaked, leaked
            assert not tally.wrong, tally.wrong[:3]
            assert not tally.hung, tally.hung[:5]
            assert not tally.unclear, tally.unclear[:5]
            # The faults met requests.
            assert reruns > 0 and tally.aborted > 0, (reruns, vars(tally))
            assert tally.is_enough(), vars(tally)
            assert not attacked or sorted(attacks) == sorted(NAMES), attacks
            codes = c.stop()
            assert set(codes.values()) == {0}, (codes, c.logs())


def test_worker_started_without_link_waits_for_it():
    """As after a cut that ended it: it must not be there and useless."""
    with tempfile.TemporaryDirectory() as d, Network("a", "b") as net:
        model = small_model(d)
        with Cluster(model, prefill=1, decode=1, hosts=net.hosts) as c:
            net.cut(net.hosts[1])
            wait_until("the cut is seen", lambda: net.is_seen_cut(net.hosts[1]))
            worker = c.start_worker("decode", 1)
            wait_until("the worker says that it waits", lambda: "eth0 has no link" in worker.log())
            assert worker.alive()
            net.heal(net.hosts[1])
            wait_until("the worker joins", lambda: c.metric("baton_workers", role="decode", state="up") == 2)
            c.decodes[0].kill()
            wait_until("it is alone", lambda: c.metric("baton_workers", role="decode", state="up") == 1)
            assert c.post("/v1/completions", {"prompt": "hello", "max_tokens": 8})[0] == 200
            net.cut(net.hosts[1])
            wait_until("the cut is seen again", lambda: net.is_seen_cut(net.hosts[1]))
            ended = c.start_worker("decode", 3)
            wait_until("another waits", lambda: "eth0 has no link" in ended.log())
            ended.kill(signal.SIGTERM)
            assert ended.popen.wait(60) == 0, ended.log()
            assert "cannot start" not in ended.log()


def test_chaos_of_one_host_with_pauses():
    run_chaos(CYCLE / 2, int(os.environ.get("BATON_SEED", "4")), names=(), pauses=True)


def test_chaos():
    run_chaos(CYCLE, int(os.environ.get("BATON_SEED", "1")))


def run_long(**more):
    if not os.environ.get("BATON_LONG"):
        raise Skip("in --long")
    run_chaos(float(os.environ.get("BATON_CHAOS_SECONDS", "300")), int(os.environ.get("BATON_SEED", "2")), **more)


def everywhere(*options):
    return {"router_args": list(options), "worker_args": list(options)}


def test_chaos_five_minutes():
    run_long(attacked=True)


def test_chaos_five_minutes_with_starved_workers_and_killed_starts():
    run_long(starves=True)


def test_chaos_five_minutes_with_pauses():
    run_long(names=(), pauses=True)


def test_chaos_five_minutes_fcfs():
    run_long(names=(), policy=everywhere("--prefill-order", "fcfs"))


def test_chaos_five_minutes_deadline_and_pauses():
    run_long(names=(), pauses=True, policy=everywhere("--prefill-order", "deadline"))


def test_chaos_five_minutes_static_batches():
    run_long(names=(), policy=everywhere("--batching-strategy", "V1"))


def test_chaos_five_minutes_static_batches_by_length_and_pauses():
    run_long(names=(), pauses=True,
             policy={**everywhere("--batching-strategy", "V1"), "decode_args": ["--decode-order", "length"]})


def test_chaos_five_minutes_weighed_prompts():
    run_long(names=(), policy={"decode_args": ["--local-prefill", "auto"]})
