#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JSON Schema against what others have of it: the official test suite, and two validators that judge texts of the suite's
schemas, of random ones, and answers of a cluster.

Nothing that is invalid may be written. What is refused, and which valid values of the suite are not written, is in
json_schema_suite.txt: it changes only on purpose.

Usage: test_json_schema.py [NAME ...]
       test_json_schema.py --update     writes json_schema_suite.txt again

Needs BATON_BUILD, jsonschema and jsonschema_rs (BATON_CLIENTS_PYTHON), and setup/fetch_json_schema_suite.py. With
BATON_TEST_LONG there are twenty times as many random schemas and texts.
"""
import collections
import concurrent.futures
import difflib
import glob
import importlib.util
import itertools
import json
import os
import random
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "integration"), os.path.join(ROOT, "tests", "support"), os.path.join(ROOT, "setup")]
import client_tests  # noqa: E402
import fetch_clients  # noqa: E402
import fetch_json_schema_suite  # noqa: E402
import fetch_model  # noqa: E402
import harness  # noqa: E402
from grammar_texts import JSON_SCHEMA, GrammarTexts  # noqa: E402
from random_schemas import VALUES, Schemas  # noqa: E402

LIST = os.path.join(HERE, "json_schema_suite.txt")
DRAFTS = ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")
# Files of `optional` whose schemas say by their draft, not by $schema, or by nothing at all, that they assert more than
# Baton does: contents of strings. In draft 4 a file without $schema takes 1.0 for no integer.
NOT_ASSERTED = ("draft7/optional/content.json", "draft4/optional/zeroTerminatedFloats.json")
COMPACT = {"separators": (",", ":"), "ensure_ascii": False}
# Values that schemas often tell apart, and texts that are another spelling of one, or none.
MORE_VALUES = [-0.5, 7, 99, 100, -120, 1e3, 0.3, "aab", "abc", "2020-01-01", "ééé", "x@y.de", [[]], [1, 2, 3], [None, "a"], ["a", "a"], [0, 0],
               {"ab": 0}, {"c": []}, {"a": 1, "b": 2, "c": 3}, {"é": "a"}, {"x\"y": 1, "a": 2}, {"b": 1, "zz": 2, "y": None}]
EDGES = [b"-0", b"0.0", b"-0.0", b"1.0", b"3.0", b"1e0", b"0e0", b"10e-1", b"1E2", b"100e-2", b"2.50", b"1.00e2", b"00", b"1.", b".5", b"+1",
         b"[1.0]", b'{"a":1.0}', b"nul", b"[1,]", b"[,]", b'{"a":1,}', b'"\\u0061"', b'"\\n"', b'"\n"', b'{"\\u0061":1}', b"", b" 1", b"1 ",
         b'"a', b"'a'", b"\xef\xbb\xbf1", b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b"{}{}", b"[1 2]", b'{"a" 1}', b"true false"]
MORE = 20 if os.environ.get("BATON_TEST_LONG") else 1

# A schema of the suite with its values; data: (description, value, is valid)
Case = collections.namedtuple("Case", "name draft schema data")


def suite_cases():
    """@return all of the drafts, also those of formats and other optional parts"""
    try:
        folder = fetch_json_schema_suite.ensure(fetch_model.default_cache())
    except fetch_clients.CannotInstall as why:
        if os.environ.get("CI") == "true":
            raise
        raise harness.Skip(why) from why
    cases, names = [], collections.Counter()
    for draft in DRAFTS:
        for path in sorted(glob.glob(os.path.join(folder, draft, "**", "*.json"), recursive=True)):
            file = os.path.relpath(path, folder)
            if file in NOT_ASSERTED:
                continue
            with open(path, encoding="utf-8") as stream:
                groups = json.load(stream)
            for group in groups:
                name = f"{file} | {group['description']}"
                names[name] += 1
                if names[name] > 1:
                    name += f" ({names[name]})"
                cases.append(Case(name, draft, group["schema"], [(x["description"], x["data"], x["valid"]) for x in group["tests"]]))
    return cases


def encode(text):
    return text.encode("utf-8", "surrogatepass")


def spellings(value, valid):
    """Texts of a value: members of an object in orders of all kinds, since Baton writes them in one. One that is not valid
    must not be held in any of them; 1 and 1.0 are one value, but drafts differ about its type."""
    found = [json.dumps(value, **COMPACT), json.dumps(value, ensure_ascii=False), json.dumps(value, separators=(",", ":"))]
    if isinstance(value, dict):
        found += [json.dumps(dict(order), **COMPACT) for order in itertools.islice(itertools.permutations(value.items()), 24)]
    if valid and isinstance(value, float) and value == int(value):
        found.append(str(int(value)))
    return [encode(x) for x in dict.fromkeys(found)]


def one_line(text):
    return json.dumps(text)[1:-1].replace('\\"', '"')


class Report:
    """What the suite finds, as lines of LIST."""

    def __init__(self):
        self.counts = {part: collections.Counter() for draft in DRAFTS for part in (draft, f"{draft}/optional")}
        self.lines = []
        self.wrong = []

    def add(self, case, answer, texts):
        part = case.name.split("/")[0] + ("/optional" if "/optional/" in case.name else "")
        counts = self.counts[part]
        counts["schemas"] += 1
        if answer.why is not None:
            counts["refused"] += 1
            self.lines.append(f"refused {one_line(case.name)} | {one_line(answer.why)}")
            return
        has = iter(answer.has)
        for (description, value, valid), forms in zip(case.data, texts):
            held = any([next(has) for _ in forms])
            counts["valid" if valid else "invalid"] += 1
            if held and not valid:
                self.wrong.append(f"{case.name}: {description}: {json.dumps(value)} is written; schema {json.dumps(case.schema)}")
            if valid and not held:
                counts["not written"] += 1
                self.lines.append(f"unwritten {one_line(case.name)} | {one_line(description)}")

    def text(self):
        head = ["# Made by test_json_schema.py --update: what of the official test suite of JSON Schema is refused, and which valid",
                "# values are not written. Nothing that is invalid is written."]
        for part, c in self.counts.items():
            head.append(f"count {part}: {c['schemas']} schemas, {c['refused']} refused; {c['valid']} valid values of the others, "
                        f"{c['not written']} not written; {c['invalid']} invalid values, none written")
        return "\n".join(head + sorted(self.lines)) + "\n"


def judge_suite(driver):
    report = Report()
    for case in suite_cases():
        texts = [spellings(value, valid) for _, value, valid in case.data]
        report.add(case, driver.ask(JSON_SCHEMA, encode(json.dumps(case.schema)), [x for forms in texts for x in forms]), texts)
    return report


def test_the_official_suite_is_held_as_far_as_the_list_says(_):
    with GrammarTexts(harness.BUILD) as driver:
        report = judge_suite(driver)
    assert not report.wrong, "invalid values are written:\n" + "\n".join(report.wrong)
    with open(LIST, encoding="utf-8") as file:
        before, now = file.read().splitlines(), report.text().splitlines()
    if before == now:
        return
    lines = [x for x in difflib.unified_diff(before, now, "listed", "now", lineterm="", n=0) if not x.startswith("@@")]

    def what(sign):  # without the reason, which may have changed its words
        return {x[1:].rpartition(" | ")[0] if x[1:].startswith("refused") else x[1:] for x in lines
                if x.startswith((sign + "refused ", sign + "unwritten "))}

    verdict = "worse: schemas that were held are refused, or values that were written are not" if what("+") - what("-") else \
        "better, or in other words: run tests/clients/test_json_schema.py --update and commit the list"
    raise AssertionError(f"json_schema_suite.txt does not say what is held: {verdict}\n" + "\n".join(lines))


def mutants(rng, text):
    """Texts that differ a little from one that is held."""
    found = []
    for _ in range(3):
        at = rng.randrange(len(text) + 1)
        size = rng.choice([0, 1, 1, 2])
        found.append(text[:at] + rng.choice([b"", b"", b"0", b"1", b"a", b"b", b",", b" ", b"-", b".", b"\"", b"}"]) + text[at + size:])
    return found


def fixed_texts():
    return [x for value in VALUES + MORE_VALUES for x in spellings(value, True)] + EDGES


class Judge:
    """Asks the driver for random texts of schemas, and the validators about them."""

    def __init__(self, driver, seed):
        from schema_validators import Validators  # pylint: disable=import-outside-toplevel
        self.validators = Validators
        self.driver = driver
        self.rng = random.Random(seed)
        self.fixed = fixed_texts()
        self.pool = []  # of texts of other schemas
        self.counts = collections.Counter()
        self.wrong = []

    def is_compact(self, text):
        return not re.search(rb"\s", re.sub(rb'"(?:[^"\\]|\\.)*"', b"", text))

    def schema(self, schema, n_walks=6, draft="draft2020-12"):
        """All that the driver has of a schema must be valid: its own walks, these with small changes, texts of others, and
        fixed ones."""
        text = encode(json.dumps(schema))
        self.counts["schemas"] += 1
        compact = self.counts["schemas"] % 2 == 0
        answer = self.driver.ask(JSON_SCHEMA, text, walks=n_walks, seed=self.counts["schemas"], compact=compact)
        if answer.why is not None:
            self.counts["refused"] += 1
            return
        walks = [x for x in answer.walks if x is not None]
        others = [x for walk in walks for x in mutants(self.rng, walk)]
        others += self.rng.sample(self.pool, min(30, len(self.pool))) + self.fixed
        has = self.driver.ask(JSON_SCHEMA, text, walks + others, compact=compact).has
        self.wrong += [f"{x} is drawn, but not held; {schema}" for x, held in zip(walks, has) if not held]
        held = list(dict.fromkeys(walks + [x for x, is_held in zip(others, has[len(walks):]) if is_held]))
        validators = self.validators(text, draft)
        self.counts["walks"] += len(walks)
        self.counts["endless walks"] += n_walks - len(walks)
        self.counts["texts"] += len(held)
        self.counts["judged by both"] += len(held) if validators.exact else 0
        for x in held:
            fault = validators.fault(x) or (compact and not self.is_compact(x) and "not compact") or None
            if fault:
                self.wrong.append(f"{x} is held: {fault}; {json.dumps(schema)}")
        self.pool = (self.pool + walks[:2])[-300:]

    def check(self):
        print("  " + ", ".join(f"{n} {what}" for what, n in self.counts.items()))
        assert not self.wrong, f"{len(self.wrong)} texts, of them:\n" + "\n".join(self.wrong[:20])


def test_texts_of_random_schemas_are_valid(_):
    n = 2000 * MORE
    with GrammarTexts(harness.BUILD) as driver:
        judge, schemas = Judge(driver, seed=5), Schemas(seed=5)
        for _ in range(n):
            judge.schema(schemas.document())
    judge.check()
    # Most can be held, and most walks end.
    assert judge.counts["refused"] < 0.35 * n, judge.counts
    assert judge.counts["walks"] > 3 * n and judge.counts["judged by both"] > n, judge.counts


def test_texts_of_the_suites_schemas_are_valid(_):
    with GrammarTexts(harness.BUILD) as driver:
        judge = Judge(driver, seed=2)
        for case in suite_cases():
            judge.schema(case.schema, 4 * MORE, case.draft)
    judge.check()


def test_answers_of_a_cluster_are_valid(_):
    """The model has random weights, so nothing but the schema makes an answer valid."""
    from schema_validators import Validators  # pylint: disable=import-outside-toplevel
    cases = random.Random(3).sample(suite_cases(), 60)
    with GrammarTexts(harness.BUILD) as driver:
        refused = [driver.ask(JSON_SCHEMA, encode(json.dumps(x.schema))).why for x in cases]
    with tempfile.TemporaryDirectory() as d, harness.Cluster(
            harness.tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=11), kv_memory="32m") as c:

        def ask(job):
            case, temperature = job
            # An object, or the text of one, where it is true or false.
            schema = case.schema if isinstance(case.schema, dict) else json.dumps(case.schema)
            return c.post("/v1/completions", {"prompt": case.name[-40:], "max_tokens": 200, "seed": len(case.name),
                                              "temperature": temperature, "guided_json": schema}, timeout=600)

        n_ended = 0
        jobs = [(case, temperature) for case in cases for temperature in (0, 1.5)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for (case, _), why, (status, answer) in zip(jobs, (x for x in refused for _ in range(2)), pool.map(ask, jobs)):
                if why is not None:
                    assert status == 400 and why in answer["error"]["message"], (case, why, answer)
                    continue
                assert status == 200, (case, status, answer)
                choice = answer["choices"][0]
                if choice["finish_reason"] == "stop":
                    n_ended += 1
                    fault = Validators(encode(json.dumps(case.schema)), case.draft).fault(encode(choice["text"]))
                    assert fault is None, (case.schema, choice["text"], fault)
                else:
                    assert choice["finish_reason"] == "length", choice
        n_held = 2 * refused.count(None)
        print(f"  {n_held} answers, {n_ended} of them ended by themselves")
        assert n_held >= 80 and n_ended >= n_held // 2, (n_held, n_ended)
        c.wait_idle()


def held_schemas(n):
    """@return n random schemas that can be held"""
    schemas, held = Schemas(seed=9), []
    with GrammarTexts(harness.BUILD) as driver:
        while len(held) < n:
            schema = schemas.document()
            if driver.ask(JSON_SCHEMA, encode(json.dumps(schema))).why is None:
                held.append(schema)
    return held


def answers_to(c, schemas, dies):
    """@return a text, or None where the shortest one is too long, for each schema and temperature; one decode worker dies on the way"""
    def ask(job):
        i, schema, temperature = job
        if dies and i == len(schemas) // 2 and temperature == 0:
            c.decodes[0].kill()
        status, answer = c.post("/v1/completions", {"prompt": f"p {i}", "max_tokens": 200, "seed": i, "temperature": temperature,
                                                    "guided_json": schema, "complete_in_max_tokens": True}, timeout=600)
        if status == 400:
            assert "the shortest answer may take" in answer["error"]["message"], (schema, answer)
            return None
        assert status == 200, (schema, answer)
        return answer["choices"][0]["text"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(ask, [(i, schema, t) for i, schema in enumerate(schemas) for t in (0, 1.5)]))
    c.wait_idle()
    return texts


def test_every_answer_that_must_be_whole_is_valid(_):
    """Cut by max_tokens or not, with drafts and without, P/D and local, and after the death of a worker."""
    from schema_validators import Validators  # pylint: disable=import-outside-toplevel
    schemas = held_schemas(40 if MORE == 1 else 1000)
    with tempfile.TemporaryDirectory() as d:
        model = harness.tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=11)
        with harness.Cluster(model, kv_memory="32m", decode=2) as c:
            texts = answers_to(c, schemas, dies=True)
        with harness.Cluster(model, kv_memory="32m", prefill=0, decode_args=["--local-prefill"], worker_args=["--draft", "off"]) as c:
            assert answers_to(c, schemas, dies=False) == texts
    n_valid = 0
    for i, text in enumerate(texts):
        if text is not None:
            schema = schemas[i // 2]
            fault = Validators(encode(json.dumps(schema))).fault(encode(text))
            assert fault is None, (schema, text, fault)
            n_valid += 1
    print(f"  {len(schemas)} schemas, {len(texts)} answers, {n_valid} of them valid, {len(texts) - n_valid} would be too long")
    assert n_valid > 0.9 * len(texts), n_valid


def update():
    with GrammarTexts(harness.BUILD) as driver:
        report = judge_suite(driver)
    if report.wrong:
        sys.exit("invalid values are written:\n" + "\n".join(report.wrong))
    with open(LIST, "w", encoding="utf-8") as file:
        file.write(report.text())


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        sys.exit(update())
    client_tests.use_clients_python()
    MISSING = [x for x in ("jsonschema", "jsonschema_rs") if importlib.util.find_spec(x) is None]
    sys.exit(client_tests.main(globals(), MISSING and f"no {' and no '.join(MISSING)} here", model_of=None))
