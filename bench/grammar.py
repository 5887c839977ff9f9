#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does an answer's grammar cost, and is it held?

Usage: ./baton bench grammar [options]
  --model FILE      the vocabulary (default: the default model)
  --peers LIST      alternate with llguidance, xgrammar (installed from PyPI into the
                    cache of peers); byte-level BPE only
  --case NAME       only this case of bench/grammar_cases.json (may be given more than
                    once)
  --rounds N        over all cases (default 5); with --corpus 1
  --corpus DIR      instead of the cases: the JSON schemas of a folder, *.json; each is
                    a schema, or {"schema", "tests": [{"data", "valid"}]} as MaskBench
                    has it (github.com/guidance-ai/jsonschemabench, maskbench/data)
  --sample N        only N schemas of it, evenly spread
  --wrong           list the schemas whose instances are not answered right
  --limit S         time for a schema and engine (default 60)
  --no-build        use the program as it is built
  --svg FILE        draw it, as SVG
  --out FILE        write all of it as JSON too
  --json            one JSON object instead of the tables

A grammar is compiled anew in each round, and answers are followed through it token by
token. All engines follow the same tokens, those of Baton's tokenizer.

  first     from the description's text to the mask of the first token
  mask      the mask of a token, with the step over the token before it
  x NAME    median over the rounds of (time of that engine / Baton's), over the cases
            that both answer right
  beside    median mask to that of the case named, whose answers are the same

Time is that of the process on the cores, not of the wall. Of a corpus it is counted
which schemas each engine refuses, and why; which answers it does not write though
they are instances ("not written"), and which it does though they are none ("accepted
though invalid"), which is to be 0. Instances are written with their members in the
order they stand in, ", " between elements and ": " behind names.
"""
import collections
import glob
import json
import os
import re

import _grammar_engines
from _shared import HERE, Load, Progress, add_model_option, build, check_model, describe, finish, median, parser, percentile, show_machine
from charts import Bars

CASES = os.path.join(HERE, "grammar_cases.json")
# What is aimed at, in microseconds: (figure of a row, at most).
TARGETS = (("mask_mean", 40), ("mask_p50", 15), ("mask_p99", 300), ("mask_max", 5000), ("first_p50", 1000), ("first_p99", 20000))
BESIDE_AT_MOST = 1.2
RIGHT, OVER, REFUSED, WRONG, LOST = "right", "not written", "refused", "accepted though invalid", "lost"
OUTCOMES = (RIGHT, OVER, REFUSED, WRONG, LOST)


class Case:
    def __init__(self, name, kind, source, answers, valid, beside=None):
        self.name, self.kind, self.source, self.beside = name, kind, source, beside
        self.answers, self.valid = answers, valid


def own_cases(names):
    with open(CASES, encoding="utf-8") as f:
        values = json.load(f)
    out = [Case(v["name"], v["kind"], v["source"] if isinstance(v["source"], str) else json.dumps(v["source"], ensure_ascii=False),
                v["answers"] + v["wrong"], [True] * len(v["answers"]) + [False] * len(v["wrong"]), v.get("beside")) for v in values]
    unknown = set(names or ()) - {c.name for c in out}
    if unknown:
        raise SystemExit(f"no case is called {', '.join(sorted(unknown))}")
    return [c for c in out if not names or c.name in names]


def corpus_case(path):
    with open(path, encoding="utf-8") as f:
        value = json.load(f)
    schema, tests = value, []
    if isinstance(value, dict) and "schema" in value and isinstance(value.get("tests"), list):
        schema, tests = value["schema"], value["tests"]
    return Case(os.path.splitext(os.path.basename(path))[0], "json_schema", json.dumps(schema, ensure_ascii=False),
                [json.dumps(t["data"], ensure_ascii=False) for t in tests], [bool(t["valid"]) for t in tests])


def corpus_paths(folder, sample):
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "**", "*.json"), recursive=True))
    if not paths:
        raise SystemExit(f"{folder} has no *.json")
    return paths if not sample or sample >= len(paths) else [paths[i * len(paths) // sample] for i in range(sample)]


def reason(error):
    """@return a refusal without what is the schema's own: "not supported: pattern: look-ahead is not supported" """
    kind, _, rest = error.partition(": ")
    found = re.match(r"/(?:[^/:]*/)*([^/:]*): (.*)", rest)
    if found:
        keyword = found[1] if found[1] in KEYWORDS else "patternProperties" if "regex, byte" in found[2] else "a member"
        rest = f"{keyword}: {found[2]}"
    return f"{kind}: {re.sub(r'[0-9]+', 'N', rest)}"


KEYWORDS = set("""$ref $dynamicRef additionalItems additionalProperties allOf anyOf const contains dependencies dependentRequired
dependentSchemas else enum exclusiveMaximum exclusiveMinimum format if items maxContains maxItems maxLength maxProperties maximum
minContains minItems minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems properties
propertyNames required then type unevaluatedItems unevaluatedProperties uniqueItems""".split())


class Tally:
    """What an engine said, over all cases and rounds."""

    def __init__(self):
        self.outcomes, self.reasons, self.bad = collections.Counter(), collections.Counter(), []
        self.instances = collections.Counter()
        self.first, self.masks = [], []

    def add(self, case, got, count):
        """@return the outcome, and the first and the mean mask of it in ns, where all is right"""
        outcome, details = RIGHT, ""
        if "error" in got or "lost" in got:
            outcome, details = (REFUSED, got["error"]) if "error" in got else (LOST, got["lost"])
        else:
            written = [run["what"] == "whole" for run in got["runs"]]
            wrong = [i for i, (w, v) in enumerate(zip(written, case.valid)) if w != v]
            if wrong:
                outcome = WRONG if any(written[i] for i in wrong) else OVER
                details = "; ".join(f"instance {i}: {got['runs'][i]['what']}" for i in wrong)
            if count:
                self.instances.update((v, w) for w, v in zip(written, case.valid))
        if count:
            self.outcomes[outcome] += 1
            if outcome == REFUSED:
                self.reasons[reason(details)] += 1
            if outcome != RIGHT:
                self.bad.append((case.name, outcome, details))
        if outcome in (REFUSED, LOST):
            return outcome, None
        masks = [ns for run in got["runs"] for ns in run["mask_ns"]]
        self.first.append(first_ns(got))
        self.masks += masks
        return outcome, {"first": first_ns(got), "masks": masks}

    def row(self, name):
        us = [x / 1e3 for x in self.masks]
        first = [x / 1e3 for x in self.first]
        figures = {f"{what}_{p}": f(values) for what, values in (("mask", us), ("first", first)) if values
                   for p, f in (("mean", lambda v: sum(v) / len(v)), ("p50", median), ("p99", lambda v: percentile(v, 99)), ("max", max))}
        valid, invalid = ({w: self.instances[v, w] for w in (True, False)} for v in (True, False))
        return {"engine": name, **figures, "masks": len(us), "outcomes": {o: self.outcomes[o] for o in OUTCOMES},
                "valid": sum(valid.values()), "valid_written": valid[True], "invalid": sum(invalid.values()),
                "invalid_written": invalid[True], "reasons": self.reasons.most_common(), "bad": self.bad}


def first_ns(got):
    if "first_ns" in got:
        return got["first_ns"]
    return got["compile_ns"] + got["load_ns"] + got["first_mask_ns"]


def ask(engine, case, tokens):
    """tokens: of the answers, where a peer is asked"""
    return engine.ask({"kind": case.kind, "source": case.source, "answers": case.answers if tokens is None else tokens})


def turn(case, engines, tallies, first, at):
    """All engines on one case, Baton first, for its tokens, then the peers, each round in another order.
    @return {engine: {"first", "masks"} or None}, and what Baton said"""
    own, *peers = engines
    got = ask(own, case, None)
    for run in got.get("runs", [])[:1]:
        run["mask_ns"][0] = got["first_mask_ns"]  # made before, so that it was found there
    tokens = [run["tokens"] for run in got.get("runs", [])]
    outcomes = {own.name: tallies[own.name].add(case, got, first)}
    if "lost" in got or "error" in got:
        tokens = []  # what it compiles to is known without
    for k in range(len(peers)):
        e = peers[(k + at) % len(peers)]
        said = ask(e, case, tokens)
        if "error" in got or "lost" in got:
            tallies[e.name].add(Case(case.name, case.kind, case.source, [], []), said, first)
        else:
            outcomes[e.name] = tallies[e.name].add(case, said, first)
    return {name: times for name, (outcome, times) in outcomes.items() if outcome == RIGHT}, got


def ratios(turns, own, name):
    """@return median over the rounds of the sums of both, (first, masks)"""
    out = []
    for pick in (lambda t: t["first"], lambda t: sum(t["masks"])):
        rounds = []
        for cases in turns:
            both = [c for c in cases if own in c and name in c]
            if sum(pick(c[own]) for c in both) > 0:
                rounds.append(sum(pick(c[name]) for c in both) / sum(pick(c[own]) for c in both))
        out.append(median(rounds))
    return out


def case_row(case, rounds):
    """One row of the table of cases: of Baton's times in all rounds"""
    good = [r for r in rounds if r]
    if not good:
        return {"case": case.name}
    masks = [ns / 1e3 for r in good for ns in r["masks"]]
    return {"case": case.name, "first_us": median([r["first"] for r in good]) / 1e3, "mask_mean_us": sum(masks) / len(masks),
            "mask_p50_us": median(masks), "mask_max_us": max(masks), "tokens": len(masks) // len(good)}


def beside_rows(cases, rows):
    by_name = {r["case"]: r for r in rows}
    return [{"case": c.name, "beside": c.beside, "ratio": by_name[c.name]["mask_p50_us"] / by_name[c.beside]["mask_p50_us"]}
            for c in cases if c.beside in by_name and "mask_p50_us" in by_name[c.name] and "mask_p50_us" in by_name[c.beside]]


def measure(args, out, engines):
    paths = corpus_paths(args.corpus, args.sample) if args.corpus else []
    cases = paths or own_cases(args.case)
    tallies, turns = {e.name: Tally() for e in engines}, []
    own, per_case = engines[0].name, [[] for _ in cases]
    progress = Progress(len(cases) * args.rounds, args.json)
    for at in range(args.rounds):
        turns.append([])
        for i, case in enumerate(cases):
            case = corpus_case(case) if args.corpus else case
            times, _ = turn(case, engines, tallies, at == 0, at + i)
            if not args.corpus:
                per_case[i].append(times.get(own))
            for t in times.values():
                t["masks"] = t["masks"] if not args.corpus else [sum(t["masks"])]
            turns[-1].append(times)
            progress.step()
    out["rows"] = [tallies[e.name].row(e.name) for e in engines]
    for row in out["rows"][1:]:
        row["first_ratio"], row["mask_ratio"] = ratios(turns, own, row["engine"])
    if not args.corpus:
        out["cases"] = [case_row(c, rounds) for c, rounds in zip(cases, per_case)]
        out["beside"] = beside_rows(cases, out["cases"])
    out["missed"] = missed(out)


def missed(out):
    """@return what is not as it is aimed at, in words"""
    own, peers = out["rows"][0], out["rows"][1:]
    words = [f"{name.replace('_', ' ')} {own[name]:.1f} us, aimed at {most}" for name, most in TARGETS if own.get(name, 0) > most]
    words += [f"{b['case']}: masks take {b['ratio']:.2f} of those of {b['beside']}, aimed at {BESIDE_AT_MOST}"
              for b in out.get("beside", []) if b["ratio"] > BESIDE_AT_MOST]
    words += [f"{r['engine']} is quicker: {what} {r[key]:.2f}" for r in peers if r["engine"] == "llguidance"
              for what, key in (("mask", "mask_ratio"),) if r[key] < 1]
    if own["outcomes"][WRONG]:
        words.append(f"{own['outcomes'][WRONG]} schemas have answers accepted though they are invalid")
    return words


def show_cases(out):
    print(f"\n{'case':22}{'first us':>10}{'mask mean':>11}{'p50':>8}{'max':>9}{'tokens':>8}")
    for r in out["cases"]:
        print(f"{r['case']:22}" + (f"{r['first_us']:10.0f}{r['mask_mean_us']:11.1f}{r['mask_p50_us']:8.1f}{r['mask_max_us']:9.1f}{r['tokens']:8}"
                                   if "first_us" in r else "  not compiled"))
    for b in out["beside"]:
        print(f"{b['case']} beside {b['beside']}: {b['ratio']:.2f}")


def show(out, wrong):
    show_machine(out)
    if "cases" in out:
        show_cases(out)
    print(f"\n{'engine':18}{'first us: p50':>14}{'mean':>9}{'p99':>10}{'max':>10}{'mask us: p50':>14}{'mean':>9}{'p99':>9}{'max':>10}"
          f"{'masks':>9}{'x first':>9}{'x mask':>8}")
    for r in out["rows"]:
        name = f"{r['engine']} {r.get('version', '')}"
        if "mask_p50" not in r:
            print(f"{name:18}  no answers")
            continue
        print(f"{name:18}{r['first_p50']:14.0f}{r['first_mean']:9.0f}{r['first_p99']:10.0f}{r['first_max']:10.0f}{r['mask_p50']:14.1f}"
              f"{r['mask_mean']:9.1f}{r['mask_p99']:9.1f}{r['mask_max']:10.0f}{r['masks']:9}"
              + (f"{r['first_ratio']:9.2f}{r['mask_ratio']:8.2f}" if "mask_ratio" in r else ""))
    print(f"\n{'engine':18}" + "".join(f"{o:>25}" if o == WRONG else f"{o:>13}" for o in OUTCOMES)
          + f"{'valid written':>18}{'invalid written':>18}")
    for r in out["rows"]:
        counts, written = r["outcomes"], f"{r['valid_written']} of {r['valid']}"
        print(f"{r['engine']:18}" + "".join(f"{counts[o]:25}" if o == WRONG else f"{counts[o]:13}" for o in OUTCOMES)
              + f"{written:>18}{r['invalid_written']:>9} of {r['invalid']}")
    for r in out["rows"]:
        if r["reasons"]:
            print(f"\nrefused by {r['engine']}")
        for words, n in r["reasons"][:20]:
            print(f"{n:7}  {words[:150]}")
        for name, outcome, details in r["bad"]:
            if wrong and outcome != REFUSED or outcome == WRONG and r is out["rows"][0]:
                print(f"{outcome}: {name}: {details[:150]}")
    for words in out["missed"]:
        print(f"MISSED    {words}")


def panels(out):
    rows = [r for r in out["rows"] if "mask_p50" in r]
    names = [r["engine"] for r in rows]
    drawn = [Bars("Mask of a token", "us", names, [(p, [r[f"mask_{p}"] for r in rows]) for p in ("p50", "mean", "p99")]),
             Bars("First mask, from the description's text", "ms", names, [(p, [r[f"first_{p}"] / 1e3 for r in rows]) for p in ("p50", "mean", "p99")])]
    if "cases" in out:
        there = [c for c in out["cases"] if "first_us" in c]
        drawn.append(Bars("Baton, by case: mean mask", "us", [c["case"] for c in there], [("mask", [c["mask_mean_us"] for c in there])]))
    return drawn if rows else []


def parse():
    p = parser("grammar", __doc__)
    add_model_option(p)
    p.add_argument("--peers", type=lambda text: [x for x in text.split(",") if x], default=[])
    p.add_argument("--case", action="append")
    p.add_argument("--rounds", type=int)
    p.add_argument("--corpus")
    p.add_argument("--sample", type=int, default=0)
    p.add_argument("--wrong", action="store_true")
    p.add_argument("--limit", type=float, default=60)
    p.add_argument("--no-build", action="store_true")
    args = p.parse_args()
    check_model(p, args)
    args.rounds = args.rounds or (1 if args.corpus else 5)
    if set(args.peers) - set(_grammar_engines.VERSIONS):
        p.error(f"--peers is of {', '.join(_grammar_engines.VERSIONS)}")
    if args.corpus and args.case:
        p.error("--case chooses cases, --corpus has its own")
    if not 1 <= args.rounds <= 1000 or args.sample < 0 or not 0 < args.limit <= 3600:
        p.error("--rounds must be 1 to 1000, --sample at least 0, --limit above 0 and at most 3600")
    if args.corpus and not os.path.isdir(args.corpus):
        p.error(f"no folder: {args.corpus}")
    return args


def main():
    args = parse()
    out = describe(args, ("peers", "case", "rounds", "corpus", "sample", "limit"))
    engines = [_grammar_engines.own(build("grammar-run", make=not args.no_build), args.model, args.limit)]
    engines += [_grammar_engines.peer(name, args.model, args.limit) for name in args.peers]
    load = Load()
    with load.during():
        measure(args, out, engines)
    for row, e in zip(out["rows"], engines):
        row["version"] = e.begun.get("version", "")
        e.close()
    out.update(load.figures())
    finish(args, out, lambda o: show(o, args.wrong), panels)


if __name__ == "__main__":
    main()
