#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All benchmarks one after another, and one report of them.

Usage: ./baton bench all [options]
  --report DIR       where it goes (default build/bench-report): index.html, report.json,
                     and of each benchmark its table, JSON, figure and log
  --quick            the smallest settings of each: does all of it run? A few minutes
  --only NAME,...    these alone
  --skip NAME,...    all but these
  --again            also those that DIR has, of the same sources and settings
  --limit SECONDS    that one benchmark may take (default 7200)
  --model PATH       another model, of those that have one
  --write FILE       run nothing: fill the tables of this page (docs/PERFORMANCE.md) from
                     DIR/report.json
  --even-so          also with figures of short settings, of a busy machine or of changed
                     sources

One that fails, or needs what is not here, stops nothing: the report says why. Peers are
compared with where they are installed; nothing is installed for them. Ctrl-C ends it with
a report of what there is, and the same command goes on from there. The status is 1 where
a benchmark failed.
"""
import contextlib
import datetime
import fcntl
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import _blocks
import _machine
import _report
import _settings
from _shared import HERE, MISSING, ROOT, Progress, argparse
from progress import time_text

PATIENCE_S = 60  # for one that was asked to end


def question_of(path):
    """The first line of its description."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as f:
        found = re.search(r'^"""(.*?)(?:"""|$)', f.read(), re.M)
        return found.group(1) if found else ""
    return ""


def finite(value):
    """For JSON, which has no NaN."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def replace(path, text):
    """Whole or not at all, whenever we are ended."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".new", path)


def read_report(folder):
    try:
        with open(os.path.join(folder, "report.json"), encoding="utf-8") as f:
            found = json.load(f)
        return found if isinstance(found, dict) and isinstance(found.get("benches"), list) else None
    except (OSError, ValueError):
        return None


class Board:
    """A line of each benchmark, and on a terminal one below them that moves."""

    def __init__(self, seconds, stream=sys.stderr):
        self.expected, self.stream, self.terminal = dict(seconds), stream, stream.isatty()
        self.n, self.begun, self.took, self.width = len(self.expected), time.monotonic(), {}, max(map(len, self.expected), default=0)

    def left(self, running=None, since=0.0):
        """Seconds, by what those that are over took of what they were expected to."""
        over = sum(self.expected[name] for name in self.took)
        factor = sum(self.took.values()) / over if over >= 5 else 1.0
        left = sum(s for name, s in self.expected.items() if name not in self.took and name != running) * factor
        return left + (max(0.0, self.expected[running] * factor - since) if running else 0.0)

    def say(self, text):
        print(("\r\033[K" if self.terminal else "") + text, file=self.stream, flush=True)

    def begin(self, name):
        if not self.terminal:
            self.say(f"{len(self.took) + 1:2} of {self.n}  {name:{self.width}}  begins; {time_text(time.monotonic() - self.begun)} so far, "
                     f"about {time_text(self.left())} left")

    def tick(self, name, since):
        if self.terminal:
            text = (f"{Progress.drawn(len(self.took), self.n, 24)} {len(self.took)}/{self.n} {name} {time_text(since)}; "
                    f"{time_text(time.monotonic() - self.begun)} so far, about {time_text(self.left(name, since))} left")
            self.stream.write("\r\033[K" + text[:shutil.get_terminal_size().columns - 1])
            self.stream.flush()

    def end(self, name, entry, kept=False):
        self.took[name] = 0.0 if kept else entry["seconds"]
        if kept:
            self.expected[name] = 0.0
        how = "kept from before" if kept else f"{entry['seconds']:.0f} s"
        self.say(f"{len(self.took):2} of {self.n}  {name:{self.width}}  {entry['status']:11} {how}" + (f": {entry['why']}" if entry["why"] else ""))


class Interrupts:
    """A handler of signals that raises KeyboardInterrupt, within held() at its end: a process that is being started can
    only be stopped when it is known."""

    def __init__(self):
        self.is_held = self.came = False

    def __call__(self, *_):
        self.came = True
        if not self.is_held:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self):
        self.is_held, self.came = True, False
        try:
            yield
        finally:
            self.is_held = False
        if self.came:
            raise KeyboardInterrupt


INTERRUPTS = Interrupts()


class Runner:
    def __init__(self, args, settings, folder):
        self.args, self.settings, self.folder = args, settings, folder
        self.child = None

    def path(self, name, kind):
        return os.path.join(self.args.report, f"{name}.{kind}")

    def entry(self, name, options, without):
        return {"name": name, "question": question_of(os.path.join(self.folder, name + ".py")), "options": options,
                "without": [{"name": n, "how": how} for n, how in without], "status": "failed", "why": "", "seconds": 0.0,
                "model": model_name(),
                "begun": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "figures": None}

    def stop(self, child):
        """As Ctrl-C would, so that it ends what it has started; then for good."""
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        try:
            child.wait(PATIENCE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def wait(self, child, name, board, begun):
        """@return its status, or None where it was too slow"""
        while True:
            since = time.monotonic() - begun
            if since >= self.args.limit:
                self.stop(child)
                return None
            board.tick(name, since)
            try:
                return child.wait(min(1.0, self.args.limit - since))
            except subprocess.TimeoutExpired:
                pass

    def run(self, name, options, without, board):
        """@return what the report has of it. What it leaves lies beside the report. Raises KeyboardInterrupt with that"""
        entry = self.entry(name, options, without)
        for kind in ("json", "svg", "txt", "log"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name, kind))
        command = [sys.executable, "-B", os.path.join(self.folder, name + ".py"), *options, "--out", self.path(name, "json"), "--svg",
                   self.path(name, "svg")]
        begun = time.monotonic()
        with open(self.path(name, "txt"), "wb") as table, open(self.path(name, "log"), "wb") as log:
            child = None
            try:
                with INTERRUPTS.held():
                    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=table, stderr=log, start_new_session=True)
                status = self.wait(child, name, board, begun)
            except KeyboardInterrupt:
                if child:
                    self.stop(child)
                entry.update(status="interrupted", why="it was interrupted", seconds=time.monotonic() - begun)
                raise KeyboardInterrupt(entry) from None
        entry["seconds"] = time.monotonic() - begun
        self.judge(entry, name, status)
        return entry

    def judge(self, entry, name, status):
        if status is None:
            entry["why"] = f"not done in {self.args.limit:g} s"
        elif status == MISSING:
            entry.update(status="skipped", why=self.last_words(name))
        elif status < 0:
            entry["why"] = f"ended by signal {-status}"
        elif status > 0:
            entry["why"] = self.last_words(name) or f"status {status}"
        try:
            with open(self.path(name, "json"), encoding="utf-8") as f:
                entry["figures"] = finite(json.load(f))
        except (OSError, ValueError):
            if status == 0:
                entry["why"] = "it left no figures"
        if status == 0 and not entry["why"]:
            entry["status"] = "ok"

    def last_words(self, name):
        with open(self.path(name, "log"), encoding="utf-8", errors="replace") as f:
            lines = [line.strip() for line in f if line.strip()]
        return (lines[-1] if lines else "").removeprefix("baton: ")[-400:]


def model_name():
    return os.path.basename(os.environ.get("BATON_TEST_MODEL", ""))


def is_kept(old, sources, options, folder):
    """Whether there is what a run now would give."""
    same = {"status": "ok", "tree": sources["tree"], "options": options, "model": model_name()}
    return (old is not None and sources["commit"] != "unknown" and all(old.get(key) == value for key, value in same.items())
            and os.path.exists(os.path.join(folder, old["name"] + ".json")))


def run_all(args, settings, folder):
    """@return the exit status"""
    sources, before = _machine.sources(), read_report(args.report)
    old = {e["name"]: e for e in before["benches"]} if before else {}
    names = [n for n in settings if (not args.only or n in args.only) and n not in args.skip]
    report = {"version": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "quick": args.quick,
              **sources, "machine": _machine.machine(), "peers": _machine.peers(), "interrupted": False, "benches": []}
    runner, board = Runner(args, settings, folder), Board([(n, settings[n].seconds[args.quick]) for n in names])
    done, interrupted = {}, False

    def tell():
        merged = {**{n: e for n, e in old.items() if n in settings and n not in done}, **done}
        report["benches"] = [merged[n] for n in settings if n in merged]
        report["interrupted"] = interrupted
        replace(os.path.join(args.report, "report.json"), json.dumps(report, indent=1, allow_nan=False) + "\n")
        replace(os.path.join(args.report, "index.html"), _report.page(report, args.report))

    try:
        for name in names:
            options, without = _settings.options_of(settings[name], args.quick)
            if kept := not args.again and is_kept(old.get(name), sources, options, args.report):
                entry = old[name]
            else:
                board.begin(name)
                entry = runner.run(name, options, without, board)
                entry.update(tree=sources["tree"], commit=sources["commit"], quick=args.quick)
            done[name] = entry
            board.end(name, entry, kept)
            tell()
    except KeyboardInterrupt as stop:
        interrupted = True
        if stop.args:
            entry = stop.args[0]
            done[entry["name"]] = dict(entry, tree=sources["tree"], commit=sources["commit"], quick=args.quick)
            board.end(entry["name"], entry)
        tell()
    counts = {s: sum(e["status"] == s for e in done.values()) for s in ("ok", "failed", "skipped", "interrupted")}
    board.say(", ".join(f"{n} {s}" for s, n in counts.items() if n) + f": {os.path.join(args.report, 'index.html')}")
    return 130 if interrupted else 1 if counts["failed"] else 0


@contextlib.contextmanager
def place(folder):
    """The report's folder, ours alone meanwhile."""
    try:
        os.makedirs(folder, exist_ok=True)
        lock = open(os.path.join(folder, "lock"), "wb")
    except OSError as error:
        raise SystemExit(f"baton: cannot write {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"baton: another run writes to {folder}") from None
        yield


def write(args):
    report = read_report(args.report)
    if report is None:
        raise SystemExit(f"baton: {args.report} has no report.json; ./baton bench all --report {args.report} makes one")
    try:
        with open(args.write, encoding="utf-8") as f:
            page = f.read()
        filled, said = _blocks.fill(page, report, args.even_so)
    except OSError as error:
        raise SystemExit(f"baton: cannot read {args.write}: {error.strerror}") from None
    except _blocks.BlockError as error:
        raise SystemExit(f"baton: {args.write}: {error}") from None
    if filled != page:
        replace(args.write, filled)
    print("\n".join(said))
    return 0


def names_of(settings):
    def parse(text):
        names = text.split(",")
        strange = [n for n in names if n not in settings]
        if strange:
            raise argparse.ArgumentTypeError(f"no benchmark {strange[0]!r}; there are {', '.join(settings)}")
        return names
    return parse


def parse(argv, settings):
    p = argparse.ArgumentParser(prog="baton bench all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--report", metavar="DIR", default=os.path.join(ROOT, "build", "bench-report"))
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", type=names_of(settings), default=[])
    p.add_argument("--skip", type=names_of(settings), default=[])
    p.add_argument("--again", action="store_true")
    p.add_argument("--limit", type=float, default=7200)
    p.add_argument("--model", default=os.environ.get("BATON_TEST_MODEL", ""))
    p.add_argument("--write", metavar="FILE")
    p.add_argument("--even-so", action="store_true")
    args = p.parse_args(argv)
    if args.limit <= 0:
        p.error("--limit is above 0")
    if args.even_so and not args.write:
        p.error("--even-so goes with --write")
    if not args.write and args.model:
        if not os.path.exists(args.model):
            p.error(f"no model {args.model}")
        os.environ["BATON_TEST_MODEL"] = os.path.abspath(args.model)
    args.report = os.path.abspath(args.report)
    return args


def main(argv=None, settings=None, folder=HERE):
    settings = settings or _settings.SETTINGS
    args = parse(argv, settings)
    if args.write:
        return write(args)
    signal.signal(signal.SIGTERM, INTERRUPTS)
    signal.signal(signal.SIGINT, INTERRUPTS)  # also where a shell started us in the background
    with place(args.report):
        return run_all(args, settings, folder)


if __name__ == "__main__":
    sys.exit(main())
