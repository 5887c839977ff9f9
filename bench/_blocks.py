# SPDX-License-Identifier: Apache-2.0
"""Tables of a page in Markdown that come from benchmarks: `./baton bench all --write FILE` fills them.

    <!-- bench engine, commit 42764c0 -->     a block: of a benchmark, or "quants 8b" of a part of one;
    | | Baton | ...                           the commit at which it was measured
    <!-- end -->

Everything outside of blocks is prose and stays as it is.
"""
import re

from _shared import BUSY_PERCENT

BEGIN = re.compile(r"^<!-- bench ([a-z-]+)(?: ([a-z0-9 ]+?))?(?:, commit ([\w-]+))? -->$")
END = "<!-- end -->"


class BlockError(Exception):
    """A page whose blocks cannot be told."""


def row(cells):
    return "|" + "|".join(f" {c} " if str(c) else " " for c in cells) + "|"


def table(header, *rows):
    return [row(header), "|" + "---|" * len(header), *map(row, rows)]


def n(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def plain(value, digits=0):
    return "" if value is None else f"{value:.{digits}f}"


def pair(f, low="p50", high="p99", digits=0):
    return f"{n(f[low], digits)} / {n(f[high], digits)}"


def named(r):
    return f"{r['kind']} {r['n']}"


# ---- one function a kind of block: what a benchmark's JSON says, as a table ----

# What was asked of the ratio to the best of the peer's files.
ENGINE_MARKS = {"prefill 512": "1.5", "prefill 2048": "2", "decode 1": "1.25", "decode 8": "2", "decode 32": "2.5"}


def engine(out):
    """Of the most threads."""
    t = max(out["threads"], key=lambda t: t["threads"])
    names = list(t["rows"][0]["peers"])
    own = next(iter(t["model"]["types"])) if "own" in names else ""
    own = max(t["model"]["types"], key=t["model"]["types"].get) if own else ""
    return table(["", "Baton", *(own if x == "own" else x for x in names), "ratio to the best", "mark"],
                 *([named(r), plain(r["tokens_per_s"]), *(plain(r["peers"][x]["tokens_per_s"]) for x in names),
                    plain(r.get("ratio_to_best"), 2), ENGINE_MARKS.get(named(r), "")] for r in t["rows"]))


def quants(out, shape, title):
    files = [f for f in out["files"] if f["shape"] == shape]

    def cell(r):
        ratios = ", ".join(f"{r['peers'][p]['ratio']:.2f}" if p in r["peers"] else "-" for p in out["peers"])
        return f"{r['tokens_per_s']:.0f}{'*' if r['busy'] else ''}" + (f" = {ratios} x" if ratios else "")

    return table([title, "MB", *(named(r) for r in files[0]["rows"])],
                 *([f["type"], plain(f["bytes"] / 1e6), *map(cell, f["rows"])] for f in files))


def large_served(out):
    return table(["served", "ready", "memory of all processes (PSS)", f"TTFT of {option(out, 'prefill')} tokens", "ITL"],
                 *([f"weights {kind}" if kind.startswith("to") else kind, f"{r['ready']:.1f} s", f"{n(r['pss'] / 1e6)} MB",
                    f"{r['ttft_ms'] / 1e3:.1f} s", f"{r['itl_ms']:.0f} ms"] for kind, r in out["served"].items()))


def large_engines(out):
    rows = list(out["engines"]["Baton"])
    body = [[name, *(plain(f[r], 1) for r in rows)] for name, f in out["engines"].items()]
    for name, f in list(out["engines"].items())[1:]:
        body.append(["ratio", *(plain(out["engines"]["Baton"][r] / f[r], 2) for r in rows)])
    return table(["tokens/s", *rows], *body)


def option(out, name):
    """Of the options that the JSON object tells."""
    return re.search(rf"(?:^|\s)--{name}=(\S+)", out["options"]).group(1)


def served_table(out):
    """Of the last turn."""
    turn = out["turns_done"][-1]
    sides = [turn[who] for who in ("baton", "peer") if turn[who]]

    def itl(f):
        values = [x["itl_ms"] for x in f["one"].values()]
        return f"{min(values):.1f} to {max(values):.1f}"

    def crowd(f):
        c = f["crowd"]
        return f"{n(c['tokens_per_s'])}; {n(c['ttft_ms']['50'])} ms; {n(c['itl_ms']['50'])} ms"

    def streams(f):
        itl_ms = f["itl_ms"]["p99"]
        return f"{n(f['tokens_per_s'])}; {n(f['short_ttft_ms']['p99'])} ms; {plain(itl_ms, 1 if itl_ms < 20 else 0)} ms"

    return table(["", *("Baton", "vLLM")[:len(sides)]],
                 ["one client, TTFT of 128 / 512 / 2,048 tokens, ms", *(" / ".join(n(x["ttft_ms"]) for x in f["one"].values()) for f in sides)],
                 ["... ITL, ms", *map(itl, sides)],
                 ["32 clients, 256 in, 128 out: tokens/s; TTFT p50; ITL p50", *map(crowd, sides)],
                 ["8 streams, 128 in, 200 out: tokens/s; TTFT p99; ITL p99", *(streams(f["undisturbed"]) for f in sides)],
                 [f"... beside {n(int(option(out, 'long')))} tokens every {float(option(out, 'every')):g} s: tokens/s; TTFT p99; ITL p99",
                  *(streams(f["disturbed"]) for f in sides)],
                 ["... the long prompts' TTFT p50", *(f"{f['disturbed']['long_ttft_ms']['p50'] / 1e3:.1f} s" for f in sides)])


ABLATION = {"default": "default", "idle": "`--share-idle-cores idle`", "own": "`--share-idle-cores off`", "fcfs": "`--prefill-order fcfs`",
            "deadline": "`--prefill-order deadline` (nobody names one)", "fixed": "`--chunk-tokens 512`", "no-late": "`--midstep-join off`",
            "local": "`--local-prefill on`", "weighed": "`--local-prefill auto`", "static": "`--batching-strategy V1`",
            "max-util": "`--scheduler-policy max_utilization`"}


def middle(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def ablation(out):
    def line(name, turns):
        f = {key: middle([t[key] for t in turns]) for key in turns[0]}
        return [ABLATION[name], plain(f["streams_per_s"], 2), f"{f['streams_percent']:.0f} %", n(f["streams_tokens_per_s"]),
                plain(f["crowd_per_s"], 2), f"{f['crowd_percent']:.0f} %", n(f["crowd_tokens_per_s"])]

    return table(["", "8 streams beside long prompts: kept/s", "kept", "tokens/s", "32 clients: kept/s", "kept", "tokens/s"],
                 *(line(name, turns) for name, turns in out["variants"].items()))


def orders(out):
    chunk = option(out, "chunk-tokens")

    def line(r):
        before, beside = r["undisturbed"], r["disturbed"]
        tuned = "tuned" if chunk == "0" else chunk
        return [f"{r['order']}, {tuned}" + (" (default)" if (r["order"], chunk) == ("srpt", "0") else ""),
                f"{pair(before['short_ttft_ms'])} ▸ {pair(beside['short_ttft_ms'])}",
                f"{n(beside['long_ttft_ms']['p50'])}, {n(r['long_bound_ms'])}", f"{n(before['tokens_per_s'])} ▸ {n(beside['tokens_per_s'])}"]

    return table(["`--prefill-order`, `--chunk-tokens`", "short TTFT p50 / p99 ms, undisturbed ▸ beside", "long TTFT p50, its bound, ms",
                  "tokens/s, undisturbed ▸ beside"], *map(line, out["orders"]))


MIXES = {"chat": "chat: 256 in, 64 out, two workers", "long": "long: the same, one prompt in eight of 2,048",
         "both": "both: one worker for both phases"}


def chunks(out):
    sizes = sorted({int(r["chunk"]) for mix in out["mixes"] for r in mix["rows"] if r["chunk"]})

    def line(mix):
        by = {int(r["chunk"]): r["goodput"] for r in mix["rows"]}
        best = max((by[s] for s in sizes if s in by), default=0)
        return [MIXES[mix["mix"]], plain(by.get(0), 2), *(plain(by.get(s), 2) for s in sizes),
                f"{100 * by[0] / best:.0f} %" if best and 0 in by else ""]

    return table(["", "tuned", *sizes, "tuned / best"], *map(line, out["mixes"]))


def overload(out):
    def name(run):
        if run.startswith("closed"):
            return f"{option(out, 'clients')} clients, no targets (the peak)"
        if run.startswith("greedy"):
            return f"{option(out, 'clients')} clients that ignore `Retry-After`"
        times = run.split(" x ")[0]
        return "sustainable" if times == "1" else f"{times} x"

    body = [[name(r["run"]), plain(r["rate"], 1) if r["rate"] else "", plain(r["tokens_per_s"]), f"{100 * r['of_peak']:.0f} %",
             f"{100 * r['good_of_answered']:.0f} %", pair(r["ttft_ms"]) if r["ttft_ms"] else "", pair(r["tpot_ms"]) if r["tpot_ms"] else "",
             f"{n(r['refused'])} of {n(r['offered'])}" if not r["run"].startswith("closed") else ""]
            for r in out["runs"] if " of it" not in r["run"]]
    return table(["", "requests/s", "tokens/s", "of the peak", "of accepted: both targets kept", "TTFT p50 / p99, ms", "TPOT",
                  "refused of offered"], *body)


LENDING = {"lent": "default: a core each, and the other's while it is idle", "own": "`--share-idle-cores off`: a core each",
           "oversubscribed": "oversubscribed: two threads each, not pinned", "engine": "engine, two threads",
           "engine-lent": "engine, a thread of its own and a lent one"}


def lending(out):
    first, *others = dict.fromkeys(r["prompt_tokens"] for r in out["rows"])
    by = {(r["name"], r["prompt_tokens"]): r for r in out["rows"]}
    header = ["", f"TTFT of {n(first)}, ms", "of engine"]
    for other in others:
        header += [f"of {n(other)}", "of engine"]
    header += [f"ITL behind {n(first)}, ms", "of engine"]
    for other in others:
        header += [n(other), "of engine"]
    body = []
    for name, label in LENDING.items():
        cells = [label]
        for what, digits in (("ttft", 0), ("itl", 2)):
            for tokens in (first, *others):
                cells += [n(by[name, tokens][f"{what}_ms"], digits), plain(by[name, tokens][f"{what}_ratio"], 2)]
        body.append(cells)
    return table(header, *body)


def ranks(out):
    def rate(value):
        return plain(value, 1 if value < 100 else 0)

    return table(["tok/s", f"{out['tp']} threads", f"{out['tp']} ranks", "ratio"],
                 *([named(r), rate(r["threads"]), rate(r["ranks"]), plain(r["ratio"], 2)] for r in out["compute"]))


def kind_of(r):
    return f"{r['bytes'] // 1024} KB {r['prompt']}, {'one token' if r['answer'] == 'whole' else 'stream of 64'}"


def router(out):
    builds = [got["mock"] for got in out["builds"].values() if "mock" in got]

    def middle_time(values):
        if max(values) < 1000:
            return " ▸ ".join(plain(v) for v in values) + " us"
        return " ▸ ".join(plain(v / 1e3, 1 if v >= 1000 else 2) for v in values) + " ms"

    body = []
    for same in zip(*builds):
        if same[0]["answer"] == "whole" or same[0]["bytes"] == min(r["bytes"] for r in builds[0]):
            body.append([kind_of(same[0]), " ▸ ".join(n(r["load"]["cpu_us"]["router"]) for r in same),
                         " ▸ ".join(n(r["load"]["per_s"]) for r in same), middle_time([r["one"]["p50_us"] for r in same])])
    return table(["", "router, CPU-us a request", "requests/s", "one client, p50"], *body)


def router_count(out):
    rows = next(got["count"] for got in out["builds"].values() if "count" in got)
    return table(["", "instructions", "calls of the allocator"],
                 *([kind_of(r).split(" KB ")[1], n(round(r["instructions"], -3)), n(r["allocations"])] for r in rows))


TENANTS = {"alone": "`alone`: away", "share": "`share`: asks its share, open loop", "open": "`open`: {times:g} times its share, open loop",
           "closed": "`closed`: {clients:,.0f} clients"}
CLOSED_CLIENTS = 96  # as bench/tenants.py has it


def tenants(out):
    """Of the last turn."""
    turn, times = out["turns"][-1], float(option(out, "times"))

    def line(name, r):
        p99 = [r["quiet"]["ttft_ms"]["p99"] / turn[base]["quiet"]["ttft_ms"]["p99"] for base in ("alone", "share")]
        ratios = ["1" if name == base else f"{value:.2f}" for base, value in zip(("alone", "share"), p99)]
        return [TENANTS[name].format(times=times, clients=times * CLOSED_CLIENTS), pair(r["quiet"]["ttft_ms"]), *ratios,
                f"{n(r['quiet']['tokens_per_s'])} / {n(r['other']['tokens_per_s'])}"]

    return table(["The other one", "quiet TTFT p50 / p99, ms", "p99 to `alone`", "p99 to `share`", "tokens/s quiet / other"],
                 *(line(name, r) for name, r in turn.items() if name != "capacity"))


BLOCKS = {
    "engine": engine, "quants 135m": lambda out: quants(out, "135m", "135M"), "quants 8b": lambda out: quants(out, "8b", "8B"),
    "large served": large_served, "large engines": large_engines, "table": served_table, "ablation": ablation, "orders": orders,
    "chunks": chunks, "overload": overload, "lending": lending, "ranks": ranks, "router": router, "router count": router_count,
    "tenants": tenants,
}


# ---- pages ----

def parse(page):
    """@return [(line of the begin, line of the end, name, part, commit)]"""
    found, begun = [], None
    for i, text in enumerate(page.split("\n")):
        begin = BEGIN.match(text)
        if begun is None and begin:
            name = " ".join(x for x in begin.groups()[:2] if x)
            if name not in BLOCKS:
                raise BlockError(f"line {i + 1}: no block {name!r}; there are {', '.join(BLOCKS)}")
            begun = (i, begin.group(1), name, begin.group(3))
        elif begun is not None and text == END:
            found.append((begun[0], i, *begun[1:]))
            begun = None
        elif begin or text == END or text.startswith("<!-- bench"):
            raise BlockError(f"line {i + 1}: {text} {'is no begin of a block' if begun is None else 'inside of a block'}")
    if begun is not None:
        raise BlockError(f"line {begun[0] + 1}: a block without {END}")
    return found


def why_not(entry, even_so):
    """@return why a benchmark's figures are not to be written, or None"""
    if entry is None:
        return "the report has none"
    if entry["status"] != "ok" or not entry["figures"]:
        return f"it did not run ({entry['why'] or entry['status']})"
    figures = entry["figures"]
    if even_so:
        return None
    if entry.get("quick"):
        return "its settings were the shortest"
    if figures.get("busy") or figures.get("cpu_others_percent", 0) > BUSY_PERCENT:
        return "other programs were running"
    return "its sources are in no commit" if entry.get("tree") != entry.get("commit") else None


def fill(page, report, even_so=False):
    """@return (the page, what became of each block)"""
    entries = {e["name"]: e for e in report["benches"]}
    lines, said = page.split("\n"), []
    for begin, end, bench, name, commit in reversed(parse(page)):
        entry = entries.get(bench)
        why = why_not(entry, even_so)
        if why is None:
            try:
                made = BLOCKS[name](entry["figures"])
            except (KeyError, IndexError, StopIteration, TypeError, ValueError, AttributeError) as error:
                why = f"the report lacks what it shows ({error!r})"
        if why is not None:
            said.append(f"{name:14} stays: {why}")
            continue
        now = entry["commit"]
        lines[begin + 1:end] = made
        lines[begin] = f"<!-- bench {name}, commit {now} -->"
        told = f"; what is written around it is of commit {commit}" if commit and commit != now else ""
        said.append(f"{name:14} written{told}")
    return "\n".join(lines), said[::-1]
