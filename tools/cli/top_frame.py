# SPDX-License-Identifier: Apache-2.0
"""What `baton top` shows, as lines of text: pure, so that a test can look at a frame without a terminal.

A frame is a list of lines, a line a list of (text, style). Styles are names; who draws knows what they look like.
"""
import time

from words import shown

PLAIN, DIM, BOLD, GOOD, WARN, BAD = "plain", "dim", "bold", "good", "warn", "bad"
STATES = {"up": GOOD, "silent": WARN, "starved": WARN, "draining": WARN, "drained": DIM, "asleep": DIM, "ending": WARN, "missing": BAD}
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*%#"
FEWEST_EVENTS = 3
KINDS = {"worker_joined": GOOD, "worker_back": GOOD, "worker_on": GOOD, "model_ready": GOOD, "router_ready": GOOD,
         "model_loaded": GOOD, "worker_lost": BAD, "worker_silent": WARN, "worker_starved": WARN, "request_rerun": WARN, "model_not_ready": BAD,
         "router_not_ready": BAD, "router_leaving": WARN}


def count(value):
    """Short, and exact below 10,000."""
    if value is None:
        return "-"
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 10 * size:
            return f"{value / size:.0f}{unit}" if value >= 100 * size else f"{value / size:.1f}{unit}"
    return f"{value:.0f}"


def milliseconds(value):
    if value is None:
        return "-"
    if value >= 10000:
        return f"{value / 1000:.1f}s"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def span(ms):
    seconds = int(ms / 1000)
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}d {text}" if days else text


def percent(part, whole):
    return f"{100 * part / whole:.0f}%" if whole else "-"


def bars(values, width, unicode=True):
    """The latest of them, a character each; the highest is a full one."""
    marks = BARS if unicode else ASCII_BARS
    values = values[-width:]
    top = max(values, default=0)
    return "".join(" " if v == 0 else marks[min(len(marks) - 1, int(len(marks) * v / top))] for v in values)


class View:
    """The cluster as it was told last: a snapshot, then events (docs/CLUSTER_API.md)."""

    MOST_POINTS, MOST_EVENTS = 180, 256

    def __init__(self, snapshot):
        self.history, self.events = {}, []
        self.handovers = {"begun": 0, "ended": 0, "failed": 0, "left_out": 0, "bytes": 0, "last": None}
        self.rates = {}
        self.state = snapshot
        self.take_points(snapshot["history"])
        for event in snapshot["events"]:
            self.take_event(event)

    def take(self, name, data):
        {"state": self.take_state, "point": self.take_points, "handover": self.take_handovers,
         "event": self.take_event}.get(name, lambda _: None)(data)

    def take_state(self, state):
        """Rates are the difference of two readings of one life of a worker."""
        before = {w["id"]: w for w in self.state["workers"] if w["id"]}
        seconds = (state["now_unix_ms"] - self.state["now_unix_ms"]) / 1000
        for worker in state["workers"]:
            old = before.get(worker["id"])
            if old and seconds > 0:
                self.rates[worker["id"]] = {k: max(0, worker[k] - old[k]) / seconds
                                            for k in ("prompt_tokens", "generated_tokens", "cpu_ms")}
        here = {w["id"] for w in state["workers"]}
        self.rates = {key: value for key, value in self.rates.items() if key in here}
        self.state = state

    def take_points(self, history):
        self.step_ms = history["step_ms"]
        for series in history["series"]:
            kept = self.history.setdefault(series["model"], {})
            for name, values in series.items():
                if name != "model":
                    kept[name] = (kept.get(name, []) + values)[-self.MOST_POINTS:]

    def take_event(self, event):
        self.events = (self.events + [event])[-self.MOST_EVENTS:]

    def take_handovers(self, data):
        h = self.handovers
        h["left_out"] += data["left_out"]
        for one in data["list"]:
            h[one["phase"]] = h.get(one["phase"], 0) + 1
            if one["phase"] == "ended":
                h["bytes"] += one["bytes"]
                h["last"] = one


# ---- parts of a frame ----

def head(view, width, notice):
    r, q = view.state["router"], view.state["queue"]
    state = r["state"].replace("_", " ")
    clock = time.strftime("%H:%M:%S", time.gmtime(view.state["now_unix_ms"] / 1000)) + " UTC"
    left = [(f"{r['name']} ", BOLD), (state, GOOD if r["ready"] else BAD),
            (f"  Baton {r['version']}, up {span(r['uptime_ms'])}", PLAIN)]
    used = sum(len(text) for text, _ in left)
    gap = max(2, width - used - len(clock))
    lines = [left + [(" " * gap + clock, DIM)],
             [(f"queue: {q['waiting']} waiting, {q['running']} running, {q['arriving']} arriving, most {q['max']}; "
               f"{r['connections']} connections, {r['watchers']} watching", PLAIN)]]
    if notice:
        lines.append([(notice, WARN)])
    return lines


def last(columns, name):
    values = columns.get(name) or [None]
    return values[-1]


def times(columns, name):
    return "/".join(milliseconds(last(columns, f"{name}_p{p}_ms")) for p in (50, 90, 99))


def attained(columns, name):
    return f"{sum(columns.get(name + '_met', []))}/{sum(columns.get(name + '_targets', []))}"


def flow(view, width, unicode):
    """The last whole step, and all that is kept."""
    all_ = view.history.get(None, {})
    seconds = view.step_ms / 1000

    def rate(name):
        value = last(all_, name)
        return "-" if value is None else count(value / seconds)

    def total(name):
        return count(sum(all_.get(name, [])))

    minutes = len(all_.get("begun", [])) * view.step_ms / 60000
    lines = [
        [("now    ", DIM), (f"requests/s {rate('begun')} begun, {rate('ended')} ended  tokens/s {rate('in_tokens')} in, "
                            f"{rate('out_tokens')} out", PLAIN)],
        [("ms     ", DIM), (f"first token {times(all_, 'ttft')}  between {times(all_, 'itl')}  (50/90/99 %)", PLAIN)],
        [(f"{minutes:4.1f}m  ", DIM), (f"{total('begun')} begun, {total('ended')} ended, {total('failed')} failed, "
                                     f"{total('canceled')} left, {total('refused')} refused, {total('rerun')} rerun", PLAIN)],
        [("       ", DIM), (f"tokens {total('in_tokens')} in, {total('out_tokens')} out", PLAIN)],
    ]
    if sum(all_.get("ttft_targets", []) + all_.get("itl_targets", [])):
        lines[-1][1] = (lines[-1][1][0] + f"; targets met: first {attained(all_, 'ttft')}, "
                        f"between {attained(all_, 'itl')}", PLAIN)
    graph = bars(all_.get("out_tokens", []), max(0, width - 7), unicode)
    lines.append([("out    ", DIM), (graph, GOOD)])
    return lines


def models(view):
    rows = []
    for m in view.state["models"]:
        columns = view.history.get(m["name"], {})
        state = "unloaded" if not m["loaded"] else "ready" if m["ready"] else "not ready"
        rows.append([("model  ", DIM), (f"{m['name']} ", PLAIN), (state, GOOD if state == "ready" else BAD),
                     (f"  {m['running']} running, {m['waiting']} waiting  first {times(columns, 'ttft')}  between "
                      f"{times(columns, 'itl')}", PLAIN)])
    return rows


def blocks(worker):
    return f"{worker['blocks_used']}/{worker['blocks']}"


# name, of a worker and of its rates, the narrowest terminal that shows it
COLUMNS = (
    ("WORKER", lambda w, r: w["name"], 0),
    ("MODEL", lambda w, r: w["model"], 110),
    ("ROLE", lambda w, r: w["role"], 0),
    ("STATE", lambda w, r: w["state"], 0),
    ("ACTIVE", lambda w, r: f"{w['active']}/{w['seats']}", 0),
    ("WAIT", lambda w, r: str(w["waiting"]), 0),
    ("KVWAIT", lambda w, r: count(w.get("waiting_for_kv", 0)), 85),
    ("BATCH", lambda w, r: f"{w['batch_context']}+{w['batch_generation']}", 0),
    ("CTX", lambda w, r: count(w["batch_context_tokens"]), 90),
    ("BLOCKS", lambda w, r: blocks(w), 0),
    ("KV", lambda w, r: percent(w["blocks_used"], w["blocks"]), 0),
    ("CACHED", lambda w, r: count(w["blocks_cached"]), 100),
    ("HELD", lambda w, r: count(w["blocks_quarantined"]), 130),
    ("LEASES", lambda w, r: str(w["leases"]), 90),
    ("TOK/S", lambda w, r: count(r["prompt_tokens"] + r["generated_tokens"]) if r else "-", 100),
    ("CPU", lambda w, r: f"{r['cpu_ms'] / 10:.0f}%" if r else "-", 110),
    ("AGAIN", lambda w, r: count(w["restarts"]), 80),
    ("TPxPP", lambda w, r: f"{w['tp']}x{w['pp']}", 130),
    ("VERSION", lambda w, r: w["version"], 140),
    ("ID", lambda w, r: w["id"], 160),
)
MISSING = {"WORKER": lambda w: w["name"], "MODEL": lambda w: w["model"], "ROLE": lambda w: w["role"],
           "STATE": lambda w: "missing", "AGAIN": lambda w: count(w["restarts"])}


def workers(view, width):
    """@return the head and a line for each"""
    shown = [(name, cell) for name, cell, least in COLUMNS if width >= least]
    rows = []
    for w in view.state["workers"]:
        if w["state"] == "missing":
            rows.append(["" if name not in MISSING else MISSING[name](w) for name, _ in shown])
        else:
            rows.append([cell(w, view.rates.get(w["id"])) for _, cell in shown])
    widths = [max(len(name), *(len(row[i]) for row in rows), 0) if rows else len(name) for i, (name, _) in enumerate(shown)]
    at = [name for name, _ in shown].index("STATE")
    lines = [[("  ".join(name.ljust(n) for (name, _), n in zip(shown, widths)), BOLD)]]
    for w, row in zip(view.state["workers"], rows):
        cells = [cell.ljust(n) for cell, n in zip(row, widths)]
        lines.append([("  ".join(cells[:at]) + "  ", PLAIN), (cells[at], STATES.get(w["state"], PLAIN)),
                      ("  " + "  ".join(cells[at + 1:]), PLAIN)])
    return lines


def handovers(view):
    h = view.handovers
    text = f"{h['ended']} hand-overs seen, {count(h['bytes'])}B, {h['failed']} given up"
    if h["last"]:
        one = h["last"]
        text += f"; last {one['from']} > {one['to']} {count(one['bytes'])}B {milliseconds(one['length_ms'])} ms"
    return [[("KV     ", DIM), (text, PLAIN)]]


def unreachable(view):
    """Pairs of workers between which no KV can go: the first."""
    found = view.state.get("unreachable", [])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return [[("no path ", BAD), (one["text"] + more, PLAIN)] for one in found[:1]]


def refused(view):
    """Workers that came and may not join: the last."""
    return [[("refused ", BAD), (f"{one['name'] or one['address'] or 'somebody'}: {one['why']}", PLAIN)]
            for one in view.state.get("refused", [])[:1]]


def events(view, n):
    lines = []
    for event in view.events[-n:] if n > 0 else []:
        clock = time.strftime("%H:%M:%S", time.gmtime(event["unix_ms"] / 1000))
        lines.append([(clock + " ", DIM), (event["text"], KINDS.get(event["kind"], PLAIN))])
    return lines


def cut(line, width):
    """...and nothing that a name or a reason says can steer the terminal."""
    out = []
    for text, style in line:
        out.append((shown(text[:width]), style))
        width -= len(text)
        if width <= 0:
            break
    return out


def frame(view, width, height, scroll=0, unicode=True, notice=None):
    """@param height  None: as many lines as there are. @param scroll  workers that are passed over
    @return the lines, none longer than width; and the furthest that one can scroll"""
    top = head(view, width, notice) + flow(view, width, unicode) + models(view)
    rows = workers(view, width)
    bottom = unreachable(view) + refused(view) + handovers(view)
    if height is None:
        lines = top + rows + bottom + events(view, len(view.events))
        return [cut(line, width) for line in lines], 0
    room = max(1, height - len(top) - 1 - len(bottom) - min(FEWEST_EVENTS, len(view.events)))
    n = len(rows) - 1
    furthest = 0
    if n > room:
        furthest = n - max(1, room - 1)
        scroll = min(max(scroll, 0), furthest)
        shown = rows[1 + scroll:][:max(1, room - 1)]
        rows = rows[:1] + shown + [[(f"... {n - len(shown)} of {n} workers are above or below (arrow keys)", DIM)]]
    lines = top + rows + bottom
    lines += events(view, height - len(lines))
    return [cut(line, width) for line in lines[:height]], furthest


def plain(lines):
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines) + "\n"
