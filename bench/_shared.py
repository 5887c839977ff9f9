# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: the machine and its load, C halves, limits, numbers."""
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMITS = ("read", "int8", "bf16", "f32")
# Other programs' share of the cores above which a figure is marked.
BUSY_PERCENT = 5.0


def median(values):
    return statistics.median(values) if values else float("nan")


def number_list(text):
    """argparse type: "1,2,8" """
    values = [int(x) for x in text.split(",")]
    if not values or min(values) < 1:
        raise ValueError
    return values


number_list.__name__ = "list of numbers"


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def machine():
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=HERE, capture_output=True,
                            text=True)
    cores = len(os.sched_getaffinity(0))
    return {"machine": f"{cpu_model()}, {cores} cores, {platform.system()} {platform.release()}",
            "commit": commit.stdout.strip() or "unknown"}


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
        self.total = self.busy = self.own = 0

    def __enter__(self):
        self.before = (*cpu_ticks(), own_ticks(Half.pids()))
        return self

    def __exit__(self, error, *_):
        if error:
            return
        after = (*cpu_ticks(), own_ticks(Half.pids()))
        self.total += after[0] - self.before[0]
        self.busy += after[1] - self.before[1]
        self.own += after[2] - self.before[2]

    def busy_percent(self):
        return 100.0 * self.busy / max(self.total, 1)

    def others_percent(self):
        return max(0.0, 100.0 * (self.busy - self.own) / max(self.total, 1))


class Half:
    """A process that answers one line of JSON to each line it is sent."""
    running = []

    def __init__(self, argv, env=None):
        self.process = subprocess.Popen([str(x) for x in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=env)
        self.name = os.path.basename(str(argv[0]))
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
        return json.loads(line)

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


def build(target, args):
    """@return the path of a program of bench/meson.build, built unless --no-build"""
    folder = os.environ.get("BATON_BUILD", os.path.join(os.path.dirname(HERE), "build"))
    path = os.path.join(folder, "bench", target)
    if not args.no_build:
        done = subprocess.run(["ninja", "-C", folder, f"bench/{target}"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bench/{target} cannot be built:\n{done.stdout[-3000:]}")
    if not os.path.exists(path):
        raise SystemExit(f"{path} is not built")
    return path


class Progress:
    """A bar on a terminal."""

    def __init__(self, total, quiet):
        self.total, self.done = total, 0
        self.show = not quiet and sys.stderr.isatty()

    def step(self):
        self.done += 1
        if self.show:
            width = 40
            filled = width * self.done // self.total
            end = "\n" if self.done == self.total else ""
            print(f"\r[{'#' * filled}{'.' * (width - filled)}] {self.done}/{self.total}", end=end, file=sys.stderr,
                  flush=True)


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
    print(f"machine   {out['machine']}")
    print(f"commit    {out['commit']}")
    print(f"options   {out['options']}")
    print(f"load      {out['load_average_before']:.2f} before; cores {out['cpu_busy_percent']:.0f} % busy, "
          f"of which other programs {out['cpu_others_percent']:.0f} %")
    if out["busy"]:
        print(f"BUSY      other programs used more than {BUSY_PERCENT:.0f} % of the cores, over the whole run or during "
              "the\n          figures marked *: not to be quoted. Ratios suffer too: threads that wait for one\n"
              "          another lose most")


def options_line(args, names):
    return " ".join(f"--{n.replace('_', '-')}={','.join(map(str, v)) if isinstance(v, list) else v}"
                    for n, v in ((n, getattr(args, n)) for n in names) if v is not None)


def timed(ask, min_ms):
    """Samples, in seconds, of a command that answers {"seconds"}: one, or as many as fill min_ms."""
    samples = []
    end = time.monotonic() + min_ms / 1000
    while not samples or time.monotonic() < end:
        samples.append(ask()["seconds"])
    return samples
