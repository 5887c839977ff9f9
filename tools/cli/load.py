#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load a server of OpenAI's API, and tell how it bore it.

  baton load-test --rate 4 --duration 60               open loop: requests come when they
                                                  come, whatever the server does
  baton load-test --concurrency 32 --requests 500      closed loop: so many clients, each
                                                  waits for its answer

The server's address is in BATON_URL or --url, else in BATON_HTTP as it serves there
(127.0.0.1:8000 by default), a key in BATON_API_KEY (or OPENAI_API_KEY) or --api-key. (baton load-model
is something else: it makes the running server serve one more model.)

Latencies count from the moment when a request was due, also where it was sent
later: with --rate that is its time by the schedule, otherwise the moment its
client was free. Goodput is the share of all offered requests that met every
target; one that was refused or failed has missed them.

Exit status: 0, 1 when no request gave a token, 2 for a mistake in the options,
130 after Ctrl-C (what was measured until then is printed).
"""
import asyncio
import gc
import json
import random
import resource
import signal
import sys
import time

import command
import endpoint as endpoints
import load_plan
import load_report
import load_svg
import talk
from load_wire import Client, Record
from words import Parser, Trouble, above_0, at_least_0, count, in_a_line, shown

LAG_EVERY_S = 0.02
BAR_EVERY_S = 0.2
SPARE_FILES = 64
GIVEN_UP = "given up"
UNREACHABLE = ("connection refused", "connection failed")
UNREACHABLE_PAUSE_S = 0.1
# Beyond these the client's own delays show in the figures.
SLOW_LAG_MS, SLOW_CPU_PERCENT = 10.0, 90.0


def extra_fields(text):
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


extra_fields.__name__ = "JSON object"


def make_parser():
    parser = Parser(prog="baton load-test", description=__doc__)
    add = parser.add_argument
    add("--url", metavar="URL", help="the server (default: BATON_URL, or BATON_HTTP, or 127.0.0.1:8000)")
    add("--model", metavar="NAME", help="one of several models (default: the first)")
    add("--chat", action="store_true", help="/v1/chat/completions in place of /v1/completions")
    when = parser.add_argument_group("when requests come, and how many")
    when.add_argument("--rate", type=above_0, metavar="R", help="requests a second; without it a closed loop")
    when.add_argument("--arrivals", choices=load_plan.ARRIVALS, default="poisson",
                      help="with --rate: equally spaced, at random, or many at once (default: poisson)")
    when.add_argument("--burst", type=count, default=8, metavar="N", help="requests of a burst (default: 8)")
    when.add_argument("--concurrency", type=count, metavar="N",
                      help="streams at a time: of a closed loop (default: 8), or the most with --rate")
    when.add_argument("--requests", type=count, metavar="N", help="in all (default: 100, or as --duration says)")
    when.add_argument("--duration", type=above_0, metavar="S", help="offer no request after so many seconds")
    when.add_argument("--warmup", type=int, default=1, metavar="N", help="requests before, which count nowhere "
                      "(default: 1)")
    when.add_argument("--timeout", type=above_0, default=600.0, metavar="S", help="of one request (default: 600)")
    when.add_argument("--seed", type=int, default=1, metavar="N", help="of arrivals, lengths and texts (default: 1)")
    what = parser.add_argument_group("what they ask")
    what.add_argument("--prompt-tokens", type=load_plan.Length, default="128", metavar="N[:SD]",
                      help="words of a prompt, about a token each; with :SD normally distributed (default: 128)")
    what.add_argument("--output-tokens", type=load_plan.Length, default="64", metavar="N[:SD]",
                      help="the longest answer, the same way (default: 64)")
    what.add_argument("--prompt-ids", action="store_true",
                      help="prompts of token ids: their length is exact; not with --chat")
    what.add_argument("--ignore-eos", action="store_true",
                      help="answers have their whole length; a field that not every server knows")
    what.add_argument("--dataset", metavar="FILE", help="lines of JSON with prompt (or text, question, messages, "
                      "conversations) and perhaps output_tokens; from the start again when it ends")
    what.add_argument("--shuffle", action="store_true", help="its lines in an order drawn from the seed")
    what.add_argument("--temperature", type=at_least_0, metavar="X")
    what.add_argument("--extra", type=extra_fields, default={}, metavar="JSON", help="more fields of each request")
    what.add_argument("--no-usage", action="store_true", help="do not ask the server to count tokens")
    targets = parser.add_argument_group("targets of goodput")
    targets.add_argument("--ttft-ms", type=above_0, metavar="MS", help="time to first token")
    targets.add_argument("--itl-ms", type=above_0, metavar="MS", help="99 %% of the gaps between a request's tokens")
    targets.add_argument("--tpot-ms", type=above_0, metavar="MS", help="the mean of its gaps")
    targets.add_argument("--e2e-ms", type=above_0, metavar="MS", help="its whole time")
    told = parser.add_argument_group("what is told")
    told.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    told.add_argument("--svg", metavar="FILE", help="draw the distributions")
    told.add_argument("--quiet", action="store_true", help="no progress bar on a terminal")
    endpoints.add_key_option(parser)
    endpoints.add_tls_options(parser)
    return parser


def check(parser, options):
    if options.prompt_ids and (options.chat or options.dataset):
        parser.error("--prompt-ids is for prompts that are drawn, of completions")
    if options.shuffle and not options.dataset:
        parser.error("--shuffle needs --dataset")
    if options.warmup < 0:
        parser.error("--warmup is a count from 0")
    if options.rate is None and options.concurrency is None:
        options.concurrency = 8
    if options.requests is None and options.duration is None:
        options.requests = 100


def room_for_streams():
    """File descriptors that the system lets us have, as streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, min(hard, 1 << 20) - SPARE_FILES)


class Run:
    """One run, from its first request to its last."""

    def __init__(self, options, where, model, prompts, most):
        self.options, self.where, self.model, self.prompts = options, where, model, prompts
        self.client = Client(where, "/chat/completions" if options.chat else "/completions", options.timeout)
        self.most = most  # streams at a time
        self.records = []
        self.n_done = self.n_errors = self.n_tokens = self.n_given_up = 0
        self.n_waited = 0
        self.interrupted = False
        self.stop = asyncio.Event()
        self.start = None
        self.lags, self.behind = [], []
        self.cpu_s = self.wall_s = 0.0

    # ---- requests ----

    async def one(self, due, slots=None):
        record = Record(due)
        self.records.append(record)
        body = self.prompts.next_body()
        try:
            if slots is not None:
                self.n_waited += slots.locked()
                async with slots:
                    await self.client.ask(body, record)
            else:
                await self.client.ask(body, record)
        except asyncio.CancelledError:
            record.error = GIVEN_UP
            raise
        self.n_done += 1
        self.n_errors += record.error is not None
        self.n_tokens += record.n_tokens()
        return record

    def schedule(self):
        """Seconds from the start at which requests are due."""
        options = self.options
        chance = random.Random(f"{options.seed} arrivals")
        times = load_plan.arrival_times(options.arrivals, options.rate, options.burst, chance)
        for n, at in enumerate(times):
            if (options.requests is not None and n >= options.requests) or (
                    options.duration is not None and at >= options.duration):
                return
            yield at

    async def open_loop(self):
        slots = asyncio.Semaphore(self.most)
        tasks = set()
        for at in self.schedule():
            due = self.start + at
            wait = due - time.perf_counter()
            if wait > 0:
                await self.pause(wait)
            if self.stop.is_set():
                break
            self.behind.append(1e3 * max(0.0, time.perf_counter() - due))
            task = asyncio.ensure_future(self.one(due, slots))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if wait <= 0:
                await asyncio.sleep(0)  # also behind the schedule others have their turn
        await self.wait_for(tasks)

    async def closed_loop(self):
        left = iter(range(self.options.requests)) if self.options.requests is not None else iter(int, 1)
        end = self.start + self.options.duration if self.options.duration is not None else float("inf")

        async def client():
            while not self.stop.is_set() and time.perf_counter() < end and next(left, None) is not None:
                record = await self.one(time.perf_counter())
                if record.error in UNREACHABLE:
                    await self.pause(UNREACHABLE_PAUSE_S)  # a closed loop must not become a storm

        await self.wait_for({asyncio.ensure_future(client()) for _ in range(self.most)})

    async def pause(self, seconds):
        try:
            await asyncio.wait_for(self.stop.wait(), seconds)
        except TimeoutError:
            pass

    async def wait_for(self, tasks):
        """Until all are over, or we are told to stop."""
        stopped = asyncio.ensure_future(self.stop.wait())
        whole = asyncio.gather(*tasks)
        try:
            await asyncio.wait([stopped, whole], return_when=asyncio.FIRST_COMPLETED)
            if not whole.done():
                whole.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if not whole.cancelled():
                whole.result()
        except asyncio.CancelledError:
            pass
        finally:
            stopped.cancel()

    # ---- about ourselves ----

    async def watch(self):
        """How late we are woken: what the figures are too long by."""
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(LAG_EVERY_S)
            self.lags.append(1e3 * (time.perf_counter() - asked - LAG_EVERY_S))

    async def show(self):
        options, width = self.options, 30
        while True:
            elapsed = time.perf_counter() - self.start
            part = max(self.n_done / options.requests if options.requests else 0.0,
                       min(1.0, elapsed / options.duration) if options.duration else 0.0)
            filled = int(width * min(1.0, part))
            print(f"\r\033[K[{'#' * filled}{'.' * (width - filled)}] {self.n_done} done, {self.client.n_now} under way, "
                  f"{self.n_errors} failed, {self.n_tokens / max(elapsed, 1e-3):.0f} tokens/s", end="", file=sys.stderr,
                  flush=True)
            await asyncio.sleep(BAR_EVERY_S)

    def offered_s(self):
        """What the rate of offers is of: the schedule, to one place behind its last."""
        if not self.options.rate or len(self.records) < 2:
            return 0.0
        span = self.records[-1].due - self.records[0].due
        return span * len(self.records) / (len(self.records) - 1)

    def client_figures(self):
        lag = load_report.percentile(sorted(self.lags), 99) if self.lags else 0.0
        late = load_report.percentile(sorted(self.behind), 99) if self.behind else 0.0
        cpu = 100 * self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0
        return {"most_streams": self.client.n_most, "cpu_percent": cpu, "lag_p99_ms": lag, "late_p99_ms": late,
                "was_limit": lag > SLOW_LAG_MS or late > SLOW_LAG_MS or cpu > SLOW_CPU_PERCENT,
                "waited_for_us": self.n_waited}

    # ---- the whole ----

    async def warm_up(self):
        await asyncio.gather(*(self.client.ask(self.prompts.next_body(), Record(time.perf_counter()))
                               for _ in range(min(self.options.warmup, self.most))))
        for _ in range(self.options.warmup - self.most):
            await self.client.ask(self.prompts.next_body(), Record(time.perf_counter()))

    def interrupt(self):
        self.interrupted = True
        self.stop.set()

    async def go(self):
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        aside = [asyncio.ensure_future(self.watch())]
        warm = asyncio.ensure_future(self.warm_up())
        await self.wait_for({warm})
        self.client.n_most = 0
        self.start, cpu = time.perf_counter(), time.process_time()
        shows = sys.stderr.isatty() and not self.options.quiet
        if shows:
            aside.append(asyncio.ensure_future(self.show()))
        self.lags.clear()
        if not self.stop.is_set():
            await (self.open_loop() if self.options.rate else self.closed_loop())
        self.cpu_s, self.wall_s = time.process_time() - cpu, time.perf_counter() - self.start
        self.n_given_up = sum(r.error == GIVEN_UP for r in self.records)
        self.records = [r for r in self.records if r.error != GIVEN_UP]
        for task in aside:
            task.cancel()
        if shows:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self.client.close()


def tell(run):
    """@return the exit status"""
    options, out = run.options, load_report.figures(run)
    if options.json:
        print(json.dumps(out, indent=2))
    else:
        print("\n".join(map(in_a_line, load_report.lines(out))))
    if options.svg:
        targets = out["goodput"]["targets"] if out["goodput"] else {}
        drawn = load_svg.draw(shown(f"{out['model']} at {out['server']}"), load_report.latencies(run.records), targets)
        try:
            with open(options.svg, "w", encoding="utf-8") as file:
                file.write(drawn)
        except OSError as error:
            raise Trouble(f"cannot write {options.svg}: {error.strerror}") from None
    sys.stdout.flush()
    if run.interrupted:
        return 130
    if out["tokens"]["out"] == 0:
        first = next(iter(out["errors"].items()), None)
        why = f": {first[0]}" + (f" ({first[1]['example']})" if first[1]["example"] else "") if first else ""
        raise Trouble(f"no request gave a token{why}")
    return 0


def run_all(options, where):
    room = room_for_streams()
    most = options.concurrency or room
    if most > room:
        raise Trouble(f"--concurrency {most}: the limit of file descriptors allows {room} streams (ulimit -n)")
    model = options.model or talk.first_model(where)
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)  # a pause of the collector would be in the figures
    run = Run(options, where, model, load_plan.Prompts(options, model), most)
    asyncio.run(run.go())
    return tell(run)


def main():
    if sys.version_info < (3, 11):
        print("baton: load needs Python 3.11", file=sys.stderr)
        return 1
    parser = make_parser()
    options = parser.read(sys.argv[1:])
    check(parser, options)
    address, name = endpoints.named(options.url)
    return command.run(lambda where: run_all(options, where), options, address, name,
                       lambda text: print(f"baton: {text}", file=sys.stderr))


if __name__ == "__main__":
    sys.exit(main())
