# SPDX-License-Identifier: Apache-2.0
"""Figures of a run: what was offered, what came of it, and how long it took.

    due ──── begun ──── first ──── last ──── end
     └──────── TTFT ──────┘ └ gaps ┘          │     ITL: each gap; TPOT: their mean for
     └──────────────── end to end ────────────┘     each request, by tokens

Times begin when a request was due, whether or not it could be sent then: a server
that makes us wait is charged for it.
"""
import math

PERCENTILES = (50, 90, 95, 99)
TARGETS = (("ttft_ms", "TTFT"), ("itl_ms", "ITL"), ("tpot_ms", "TPOT"), ("e2e_ms", "end to end"))


def percentile(ordered, percent):
    """Nearest rank: the least value that at least so many percent are not above."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def summary(values):
    """@return {p50: ..., max, mean, n}, or None where there is none"""
    if not values:
        return None
    ordered = sorted(values)
    out = {f"p{p}": percentile(ordered, p) for p in PERCENTILES}
    out.update(max=ordered[-1], mean=math.fsum(ordered) / len(ordered), n=len(ordered))
    return out


def is_answered(record):
    return record.error is None and record.first is not None


def ttft_ms(record):
    return 1e3 * (record.first - record.due)


def e2e_ms(record):
    return 1e3 * (record.end - record.due)


def tpot_ms(record):
    """@return None of a single token"""
    n = record.n_tokens()
    return 1e3 * (record.last - record.first) / (n - 1) if n > 1 and record.streamed else None


def itl_p99_ms(record):
    return 1e3 * percentile(sorted(record.gaps), 99) if record.gaps else None


def is_good(record, targets):
    """Met every target; what a target has no value of (the gaps of one token) meets it."""
    if not is_answered(record):
        return False
    values = {"ttft_ms": ttft_ms(record), "itl_ms": itl_p99_ms(record), "tpot_ms": tpot_ms(record),
              "e2e_ms": e2e_ms(record)}
    return all(values[name] is None or values[name] <= limit for name, limit in targets.items())


def latencies(records):
    """All values in ms, of requests that were answered."""
    answered = [r for r in records if is_answered(r)]
    return {"ttft_ms": [ttft_ms(r) for r in answered],
            "itl_ms": [1e3 * gap for r in answered for gap in r.gaps],
            "tpot_ms": [x for x in map(tpot_ms, answered) if x is not None],
            "e2e_ms": [e2e_ms(r) for r in answered]}


def count_errors(records):
    """@return {error: [how many, what one of them said]}"""
    errors = {}
    for record in records:
        error = record.error or ("no token" if record.first is None else None)
        if error:
            errors.setdefault(error, [0, record.why])[0] += 1
    return errors


def figures(run):
    """@param run  a load.Run that is over
    @return what --json prints"""
    records, options = run.records, run.options
    answered = [r for r in records if is_answered(r)]
    seconds = max((r.end for r in records), default=0.0) - min((r.due for r in records), default=0.0)
    span = run.offered_s()
    targets = {name: getattr(options, name) for name, _ in TARGETS if getattr(options, name) is not None}
    errors = count_errors(records)
    n_good = sum(is_good(r, targets) for r in records)
    n_out = sum(r.n_tokens() for r in answered)
    n_counted = sum(r.usage is not None for r in answered)
    out = {
        "server": run.where.netloc, "model": run.model, "api": "chat" if options.chat else "completions",
        "arrivals": options.arrivals if options.rate else "closed loop", "rate": options.rate, "seed": options.seed,
        "concurrency": options.concurrency, "interrupted": run.interrupted,
        "requests": {"offered": len(records), "answered": len(answered),
                     "refused": sum(n for e, (n, _) in errors.items() if e.startswith("HTTP ")),
                     "failed": sum(n for e, (n, _) in errors.items() if not e.startswith("HTTP ")),
                     "given_up": run.n_given_up},
        "errors": {error: {"n": n, "example": why} for error, (n, why) in sorted(errors.items())},
        "seconds": seconds, "offered_per_s": len(records) / span if span > 0 else None,
        "answered_per_s": len(answered) / seconds if seconds > 0 else None,
        "tokens": {"out": n_out, "out_per_s": n_out / seconds if seconds > 0 else None,
                   "in": sum(r.usage[0] for r in answered if r.usage) if n_counted else None,
                   "counted_by": ("server" if n_counted == len(answered) else
                                  "events" if n_counted == 0 else "server and events")},
        "not_streamed": sum(not r.streamed for r in answered),
        "goodput": {"targets": targets, "good": n_good, "of_offered": n_good / len(records) if records else None,
                    "per_s": n_good / seconds if seconds > 0 else None} if targets else None,
        "client": run.client_figures(),
    }
    out.update({name: summary(values) for name, values in latencies(records).items()})
    return out


def number(value):
    return "-" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def table(out):
    columns = [f"p{p}" for p in PERCENTILES] + ["max", "mean"]
    yield f"{'':14}" + "".join(f"{column:>10}" for column in columns)
    for name, title in TARGETS:
        row = out[name]
        yield f"{title + ' ms':14}" + "".join(f"{number(row[c]) if row else '-':>10}" for c in columns)


def lines(out):
    """The report that people read."""
    requests, tokens, client = out["requests"], out["tokens"], out["client"]
    how = f"{out['arrivals']} arrivals at {out['rate']:g}/s" if out["rate"] else f"{out['concurrency']} clients in turn"
    yield f"{out['model']} at {out['server']}, {out['api']}, {how}, seed {out['seed']}"
    asked = f" ({out['offered_per_s']:.2f}/s)" if out["offered_per_s"] and out["rate"] else ""
    yield (f"{'offered':14}{requests['offered']} requests{asked} in {out['seconds']:.1f} s: {requests['answered']} answered, "
           f"{requests['refused']} refused, {requests['failed']} failed")
    for error, found in out["errors"].items():
        yield f"{'':14}{error}: {found['n']}" + (f" ({found['example']})" if found["example"] else "")
    if requests["given_up"]:
        yield f"{'':14}stopped by you: {requests['given_up']} were under way and count nowhere"
    words = {"server": "as the server counts them", "events": "events that had text: the server counts none",
             "server and events": "some counted by the server, others as events that had text"}[tokens["counted_by"]]
    came_in = f", {tokens['in']:,} in" if tokens["in"] is not None else ""
    yield f"{'tokens':14}{tokens['out']:,} out ({number(tokens['out_per_s'])}/s){came_in}; {words}"
    if out["not_streamed"]:
        yield f"{'':14}{out['not_streamed']} answers came whole: the server does not stream, so TTFT is end to end"
    yield from table(out)
    goodput = out["goodput"]
    if goodput:
        wanted = ", ".join(f"{title} <= {goodput['targets'][name]:g} ms" for name, title in TARGETS
                           if name in goodput["targets"])
        yield (f"{'goodput':14}{goodput['good']} of {requests['offered']} offered ({100 * goodput['of_offered']:.1f} %), "
               f"{goodput['per_s']:.2f}/s: {wanted}")
    yield (f"{'this client':14}{client['most_streams']} streams at most, {client['cpu_percent']:.0f} % of a core, "
           f"sent p99 {client['late_p99_ms']:.1f} ms behind their time")
    if client["was_limit"]:
        yield (f"{'':14}warning: this client was itself slow; all latencies may be too long by some "
               f"{client['lag_p99_ms']:.0f} ms. Use several of it")
    if client["waited_for_us"]:
        yield f"{'':14}{client['waited_for_us']} requests waited because --concurrency was reached; that is in their times"
