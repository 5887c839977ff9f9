# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: the machine and its load, C halves, limits, numbers."""
import argparse
import contextlib
import json
import os
import platform
import select
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.append(os.path.join(ROOT, "tools", "cli"))
import charts  # noqa: E402

MISSING = 77  # exit status where something outside is not there, as of tests that are skipped
LIMITS = ("read", "int8", "bf16", "f32")
# Other programs' share of the cores above which a figure is marked.
BUSY_PERCENT = 5.0


def percentile(values, p):
    values = sorted(values)
    if not values:
        return float("nan")
    at = (len(values) - 1) * p / 100
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def median(values):
    return percentile(values, 50)


def number_list(text):
    """argparse type: "1,2,8" """
    values = [int(x) for x in text.split(",")]
    if not values or min(values) < 1:
        raise ValueError
    return values


number_list.__name__ = "list of numbers"


def new_file(path):
    """argparse type: a file to write in the end, which had better be found out before hours of measuring"""
    folder = os.path.dirname(os.path.abspath(path))
    if not path or os.path.isdir(path) or not os.path.isdir(folder) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {path!r}")
    return path


def missing(what):
    """Ends the benchmark: something outside that it needs is not there."""
    print(f"baton: {what}", file=sys.stderr)
    raise SystemExit(MISSING)


def ranged(values):
    """@return a bar: the median of the values, and their range"""
    return (median(values), min(values), max(values)) if values else None


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def cpu_ticks():
    """@return (all, busy) since boot; what a hypervisor took counts as busy"""
    with open("/proc/stat", encoding="ascii") as f:
        fields = [int(x) for x in f.readline().split()[1:9]]
    return sum(fields), sum(fields) - fields[3] - fields[4]


def own_ticks(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            rest = f.read().rsplit(")", 1)[1].split()
        # Its children too, as far as they have ended.
        ticks += sum(int(x) for x in rest[11:15])
    return ticks


class Load:
    """How busy the cores were over some intervals, and with what."""

    def __init__(self):
        self.average_before = os.getloadavg()[0]
        self.total = self.busy = self.own = 0

    @contextlib.contextmanager
    def during(self, pids=None):
        """One more interval. pids: gives, at its begin and again at its end, the processes that are ours; what has
        ended must have been waited for by one of them. Without it: this one and its halves."""
        pids = pids or Half.pids
        before = (*cpu_ticks(), own_ticks(pids()))
        yield
        after = (*cpu_ticks(), own_ticks(pids()))
        self.total += after[0] - before[0]
        self.busy += after[1] - before[1]
        self.own += after[2] - before[2]

    def busy_percent(self):
        return 100.0 * self.busy / max(self.total, 1)

    def others_percent(self):
        return max(0.0, 100.0 * (self.busy - self.own) / max(self.total, 1))

    def figures(self):
        return {"load_average_before": self.average_before, "cpu_busy_percent": self.busy_percent(),
                "cpu_others_percent": self.others_percent()}


class Half:
    """A process that answers one line to each line it is sent; parse: what its answers are, JSON if not told."""
    running = []

    def __init__(self, argv, env=None, parse=json.loads):
        self.process = subprocess.Popen([str(x) for x in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=env)
        self.name = os.path.basename(str(argv[0]))
        self.parse = parse
        Half.running.append(self)

    @staticmethod
    def pids():
        return [os.getpid()] + [h.process.pid for h in Half.running]

    def read(self, limit_s=900):
        if not select.select([self.process.stdout], [], [], limit_s)[0]:
            raise SystemExit(f"{self.name} gives no answer for {limit_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with status {self.process.wait()}")
        return self.parse(line)

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(str(x) for x in words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # read() tells how it ended
        return self.read()

    def close(self):
        Half.running.remove(self)
        self.process.stdin.close()
        status = self.process.wait()
        self.process.stdout.close()
        if status != 0:
            raise SystemExit(f"{self.name} ended with status {status}")


def build(target, folder=None, make=True):
    """@return the path of a program of bench/meson.build; folder: a build directory, ours if not told"""
    folder = folder or os.environ.get("BATON_BUILD", os.path.join(ROOT, "build"))
    path = os.path.join(folder, "bench", target)
    if make:
        done = subprocess.run(["ninja", "-C", folder, f"bench/{target}"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bench/{target} cannot be built:\n{done.stdout[-3000:]}")
    if not os.path.exists(path):
        raise SystemExit(f"{path} is not there; ninja -C {folder} bench/{target} makes it")
    return path


class Progress:
    """A bar on a terminal; elsewhere a line now and then."""

    LINE_S = 20

    def __init__(self, total, quiet, clock=time.monotonic):
        self.total, self.done = total, 0  # total may change meanwhile
        self.show = not quiet and sys.stderr.isatty()
        self.quiet, self.clock, self.said = quiet, clock, clock()
        self.draw()

    @staticmethod
    def drawn(done, total, width=40):
        filled = width * done // total
        return f"[{'#' * filled}{'.' * (width - filled)}]"

    def step(self):
        self.done += 1
        self.draw()

    def draw(self):
        if self.show:
            end = "\n" if self.done == self.total else ""
            print(f"\r{self.drawn(self.done, self.total)} {self.done}/{self.total}", end=end, file=sys.stderr, flush=True)
        elif not self.quiet and self.clock() - self.said >= self.LINE_S:
            self.said = self.clock()
            print(f"{self.done} of {self.total} figures are measured", file=sys.stderr, flush=True)


class Limits:
    """The limits of the machine, measured again and again during a run."""

    def __init__(self):
        self.isa = {}
        self.medians = {name: [] for name in LIMITS}
        self.bests = {name: [] for name in LIMITS}

    def measure(self, half, ms):
        for name in LIMITS:
            got = half.ask("limit", name, ms)
            self.isa[name] = got["isa"]
            if got["isa"]:
                self.medians[name].append(got["median"])
                self.bests[name].append(got["best"])

    def rate(self, name):
        """Bytes or operations per second: the middle of the run. 0: the CPU has no such instructions."""
        return median(self.medians[name]) if self.medians[name] else 0.0

    def best(self, name):
        return max(self.bests[name], default=0.0)

    def compute_for(self, types):
        """@return the limit that goes with weights of these types ({name: bytes}): the most common one's"""
        most = max(types, key=types.get)
        if most == "F32" or (most in ("F16", "BF16") and not self.isa["bf16"]):
            return "f32"
        return "bf16" if most in ("F16", "BF16") else "int8"

    def figures(self):
        return {name: {"unit": "GB/s" if name == "read" else "GOPS", "isa": self.isa[name],
                       "median": self.rate(name) / 1e9, "best": self.best(name) / 1e9} for name in LIMITS}

    @staticmethod
    def line(figures):
        parts = []
        for name, f in figures.items():
            if f["isa"]:
                parts.append(f"{name} {f['median']:.1f} {f['unit']} (best {f['best']:.1f}, {f['isa']})")
        return "limits    " + "; ".join(parts)


def roof(rate, compute, work):
    """Seconds that `work` ({"ops", "bytes"}) takes at least; rate: of Limits, rate or best."""
    return max(work["bytes"] / rate("read"), work["ops"] / rate(compute))


def show_machine(out):
    """The first lines of every table."""
    print(f"machine   {out['machine']}")
    print(f"commit    {out['commit']}")
    print(f"options   {out['options']}")
    print(f"load      {out['load_average_before']:.2f} before; cores {out['cpu_busy_percent']:.0f} % busy"
          + (f", of which other programs {out['cpu_others_percent']:.0f} %" if "cpu_others_percent" in out else ""))
    if out.get("busy"):
        print(f"BUSY      other programs used more than {BUSY_PERCENT:.0f} % of the cores, over the whole run or during "
              "the\n          figures marked *: not to be quoted. Ratios suffer too: threads that wait for one\n"
              "          another lose most")


def describe(args, names):
    """What every JSON object begins with. names: of the options that say what was measured"""
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=HERE, capture_output=True,
                            text=True)
    cores = len(os.sched_getaffinity(0))
    values = ((n, getattr(args, n)) for n in names)
    return {"machine": f"{cpu_model()}, {cores} cores, {platform.system()} {platform.release()}",
            "commit": commit.stdout.strip() or "unknown",
            "options": " ".join(f"--{n.replace('_', '-')}={','.join(map(str, v)) if isinstance(v, list) else v}"
                                for n, v in values if v is not None)}


def parser(name, doc):
    p = argparse.ArgumentParser(prog=f"baton bench {name}", description=doc,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", action="store_true")
    p.add_argument("--svg", type=new_file, metavar="FILE")
    p.add_argument("--out", type=new_file, metavar="FILE")
    p.set_defaults(bench=name, question=doc.strip().splitlines()[0])
    return p


def add_model_option(p):
    p.add_argument("--model", default=os.environ.get("BATON_TEST_MODEL", ""))


def check_model(p, args, otherwise=""):
    if not os.path.exists(args.model):
        p.error(f"no model: use --model PATH{otherwise}")


def add_limit_options(p, limit_ms):
    """Of the benchmarks that measure the machine's limits too, each with as many threads."""
    cores = len(os.sched_getaffinity(0))
    p.add_argument("--threads", type=number_list, default=[n for n in (1, 2) if n <= cores])
    p.add_argument("--no-build", action="store_true", help="use the programs as they are built")
    p.add_argument("--limit-mib", type=int, default=512, help="size of the read-only stream")
    p.add_argument("--limit-ms", type=int, default=limit_ms, help="time for each limit, each time")


def figure(args, out, panels, columns=1, title=""):
    """@return the text of the SVG file with these panels"""
    load = f"load {out['load_average_before']:.2f} before" if "load_average_before" in out else ""
    if "cpu_others_percent" in out:
        load += f"; other programs {out['cpu_others_percent']:.0f} % of the cores"
    busy = "Other programs were running: not to be quoted." if out.get("busy") else ""
    told = [f"{out['machine']}; commit {out['commit']}{'; ' + load if load else ''}. {busy}",
            f"baton bench {args.bench} {out['options']}"]
    return charts.figure(title or args.question, told, panels, columns)


def finish(args, out, show, panels, columns=1, title=""):
    """Tells what was measured. panels(out): of its figure; columns: that they stand in; title: of it, the question if not told"""
    if args.json:
        print(json.dumps(out))
    else:
        show(out)
    sys.stdout.flush()
    if args.out:
        write(args.out, json.dumps(out) + "\n")
    drawn = panels(json.loads(json.dumps(out))) if args.svg else []  # as who reads the file has it
    if drawn:
        write(args.svg, figure(args, out, drawn, columns, title))
    elif args.svg:
        print("baton: there is nothing to draw", file=sys.stderr)


def write(path, text):
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    except OSError as error:
        raise SystemExit(f"baton: cannot write {path}: {error.strerror}") from None


def finish_limits(args, out, whole, show, panels):
    """out["threads"]: what was measured with each number of threads; whole: the Load of it all"""
    out.update(whole.figures())
    out["busy"] = out["cpu_others_percent"] > BUSY_PERCENT or any(r["busy"] for t in out["threads"] for r in t["rows"])
    finish(args, out, show, panels)


def threads_title(t):
    return f"{t['threads']} thread{'s' if t['threads'] > 1 else ''}"


def timed(ask, min_ms):
    """Samples, in seconds, of a command that answers {"seconds"}: one, or as many as fill min_ms."""
    samples = []
    end = time.monotonic() + min_ms / 1000
    while not samples or time.monotonic() < end:
        samples.append(ask()["seconds"])
    return samples
