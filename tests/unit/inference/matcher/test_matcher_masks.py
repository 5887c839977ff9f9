# SPDX-License-Identifier: Apache-2.0
"""Masks of compiled descriptions, in both directions: a token is in the mask exactly when the text with its bytes can be continued,
as tests/support/grammar_oracle.py says, which knows nothing of automata."""
import collections
import json
import os
import random
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..", "..")
sys.path[:0] = [os.path.join(ROOT, "tests", "support"), os.path.join(ROOT, "setup")]
import fetch_model  # noqa: E402
import grammar_oracle as oracle  # noqa: E402
import model_vocabulary  # noqa: E402

PROGRAM = os.path.join(os.environ.get("BATON_BUILD", "build"), "tests", "support", "baton-grammar-masks")
PIECES = ['"', '"}', '", "', '":', '": ', "{", '{"', "[", "]", "},", ", ", ",", "\n", "\n  ", " ", "  ", "true", "false", "null", "12",
          "0", "-1", "1.5", "e+3", "a", "ab", "abc", "the quick", " fox", "name", "id", "\\n", "\\u00", "\\", "é", "日本", "😀",
          "\u2028", "x" * 17, "0123456789", "--", "_x", "A", "Zz9"]

LONG = bool(os.environ.get("BATON_TEST_LONG"))
SCALE = 8 if LONG else 1
MODEL = os.path.join(fetch_model.default_cache(), fetch_model.FILE)

REGEXES = [
    r"abc|abd|x*", r"[a-z]+(-[a-z]+)*", r"(a|b){2,5}c?", r"[^a-c\n]{0,3}!", r"\d{4}-\d\d-\d\d", r"(ab|a)(bc|c)*", r"é+|日本?", r".*x.*",
    r"[a-z]{1,100}", r"(\w+ ){0,3}\w+", r"(a{1,3}){1,3}", r"\s\S\D\W", r"[é-ü]{2}|[\u2000-\u3000]", r"(0|[1-9]\d*)(\.\d+)?", r"x{3,}y{0,2}",
    r"[a-z]{40,300}", r"(ab|q){50,}", r"([a-f]{2}x?){70,400}",
]
CHOICES = [["yes", "no"], ["a", "ab", "abc", "b"], ["", "x"], ["日本", "日光", "é"], [" true", "true", "tr\"ue", "a\nb"]]
EBNFS = [
    'root ::= "[" (value ("," value)*)? "]"\nvalue ::= [0-9]+ | root | "x"',
    'root ::= expr\nexpr ::= term (("+" | "-") term)*\nterm ::= [a-z] | "(" expr ")"',
    'root ::= "a" root "b" | ""',
    'root ::= item{2,4} end?\nitem ::= "ab" | "a"\nend ::= "!" | "b!"',
    'root ::= string\nstring ::= "\\"" ([^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\\""',
    'root ::= (<[300]> | "the") " " [^\\n]* "\\n"',
    'root ::= a | b\na ::= "x" a "y" | "x"\nb ::= "x" b | "z"',
    'root ::= ([a-z]{0,30} ",")* "."',
    'root ::= (<[97]> "x" | "a" "y" | <[301]>)*',
    'root ::= item{30,400}\nitem ::= "a" item? "b" | "q"',
]
SCHEMAS = [
    {"type": "string"}, {"type": "string", "maxLength": 5}, {"type": "string", "minLength": 2, "maxLength": 40},
    {"type": "string", "pattern": "^[a-z]+-\\d{2}$"}, {"type": "string", "pattern": "^.{1,20}$"}, {"type": "integer"}, {"type": "number"},
    {"type": ["string", "null"]}, {"enum": ["a", "ab", 1, 12, None, True, "é\n"]}, {"const": "x\"y"},
    {"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "items": {"type": "string"}, "minItems": 20, "maxItems": 300},
    {"type": "object", "properties": {"name": {"type": "string"}, "id": {"type": "integer"}}, "required": ["name"],
     "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "ab": {"type": "boolean"}}},
    {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "x": {"type": "integer"}},
     "required": ["next"], "additionalProperties": False},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}, {"const": "abc"}]},
    {},
]


def random_regex(rng, depth):
    def atom():
        kind = rng.randrange(8)
        if kind < 3 or depth == 0:
            return rng.choice(["a", "b", "ab", "é", " ", "[a-c]", "[^a]", ".", r"\d", r"\w", r"\S", "x", "[0-9a-f]", "日"])
        inner = random_regex(rng, depth - 1)
        return f"({inner})" if kind < 6 else f"(?:{inner}|{random_regex(rng, depth - 1)})"
    parts = []
    for _ in range(rng.randrange(1, 4)):
        least = rng.randrange(0, 3)
        parts.append(atom() + rng.choice(["", "", "", "*", "+", "?", f"{{{least},{least + rng.randrange(4)}}}", f"{{{least},}}"]))
    return "".join(parts)


def random_ebnf(rng):
    """A rule calls itself and rules before it only behind a text."""
    n = rng.randrange(1, 5)

    def item(i, depth, inside):
        kind = rng.randrange(9)
        if kind < 3 or (depth == 0 and kind > 6):
            return rng.choice(['"a"', '"b"', '"ab"', '"é日"', '"c"', '"a" "b"', '[a-c]', '[^a\\n]', '[é-ü]', "[0-9]", '"-"', "<[301]>", "<[97]>"])
        names = [f"r{k}" for k in range(n) if k > i or inside]
        if kind < 6 and names:
            return rng.choice(names)
        return "(" + ways(i, max(depth - 1, 0), inside) + ")" if depth else '"x"'

    def sequence(i, depth, inside):
        parts = []
        for _ in range(rng.randrange(1, 4)):
            least = rng.randrange(0, 3)
            if rng.random() < 0.3:
                parts.append(rng.choice(['"("', '"["', '"x"', '"a"']))
                inside = True
            else:
                parts.append(item(i, depth, inside) + rng.choice(["", "", "", "", "*", "+", "?", f"{{{least},{least + rng.randrange(4)}}}"]))
        return " ".join(parts)

    def ways(i, depth, inside=False):
        return " | ".join(sequence(i, depth, inside) for _ in range(rng.randrange(1, 4)))
    return "\n".join(["root ::= " + ways(-1, 1)] + [f"r{i} ::= " + ways(i, 1) for i in range(n)])


def random_schema(rng, depth):
    kind = rng.randrange(12 if depth else 8)
    if kind < 2:
        return {"type": "string"} | ({"maxLength": rng.randrange(1, 60)} if rng.random() < 0.6 else {}) | (
            {"minLength": 1} if rng.random() < 0.4 else {})
    if kind == 2:
        return {"type": "string", "pattern": "^" + random_regex(rng, 1) + "$"}
    if kind < 6:
        return rng.choice([{"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {"type": ["integer", "null"]}])
    if kind < 8:
        return {"enum": rng.sample(["a", "ab", "b", 'x"y', 1, 12, None, "é", "long text"], rng.randrange(1, 5))}
    if kind == 8:
        least = rng.randrange(0, 3)
        return {"type": "array", "items": random_schema(rng, depth - 1)} | ({"minItems": least} if least else {}) | (
            {"maxItems": least + rng.randrange(0, 30)} if rng.random() < 0.5 else {})
    names = rng.sample(["a", "ab", "abc", "name", "id", "é", 'q"'], rng.randrange(1, 5))
    schema = {"type": "object", "properties": {n: random_schema(rng, depth - 1) for n in names},
              "required": [n for n in names if rng.random() < 0.5]}
    extra = rng.randrange(3)
    return schema | ({"additionalProperties": False} if extra == 0 else
                     {"additionalProperties": random_schema(rng, 0)} if extra == 1 else {})


def oracle_of(kind, source, compact):
    if kind == "regex":
        return oracle.Oracle({}, oracle.regex(source))
    if kind == "choice":
        return oracle.Oracle({}, oracle.alt(*[oracle.literal(t.encode()) for t in source]))
    if kind == "ebnf":
        return oracle.Oracle(oracle.Ebnf(source).rules, ("rule", "root"))
    return oracle.Oracle(oracle.Schema(source, compact).rules, ("rule", "root"))


def vocabulary(rng, source):
    """All bytes, what the description spells, parts of characters, duplicates, long tokens, special ones, and ends: the last one, and
    at times one with bytes."""
    texts = PIECES + [json.dumps(source, ensure_ascii=False)]
    vocab = [bytes([b]) for b in range(256)]
    if rng.random() < 0.2:
        vocab = rng.sample(vocab, 256)
    for _ in range(44):
        data = "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 4))).encode()
        at = rng.randrange(len(data))
        vocab.append(data[at:at + rng.randrange(1, 12)] or b"a")
    vocab += [b"", b""]  # 300 and 301 are special
    for text in texts:
        data = text.encode()
        vocab += [data] if len(data) < 40 else []
        for _ in range(2 if len(data) < 40 else 40):
            at = rng.randrange(len(data))
            vocab.append(data[at:at + rng.randrange(1, 9)])
    vocab += [b"q" * n for n in (31, 32, 33, 40, 254, 255, 256, 300)] + ["é".encode() * n for n in (31, 32, 33, 130)]
    ends = [len(vocab)]
    kind = rng.randrange(6)
    if kind < 2:
        ends.append(rng.randrange(256))
    if kind == 2:  # some bytes have no token: at times nothing may come next
        vocab = [d for d in vocab if len(d) != 1 or rng.random() < 0.8]
        ends = [len(vocab)]
    return vocab + [b""], ends


# What a string's characters are cut into, each with the characters that end in it: of one to several, of parts of one, and escapes, whose
# last part ends the character. A surrogate pair is one.
CHARACTERS = [[(b"a", 1)], [(b"ab", 2)], [(b"abc", 3)], [("é".encode(), 1)], [(b"\xc3", 0), (b"\xa9", 1)], [("日本".encode(), 2)],
              [(b"\xe6\x97", 0), (b"\xa5", 1)], [(b"a\xf0\x9f", 1), (b"\x98\x80b", 2)], [(b"\\n", 1)], [(b"\\", 0), (b"n", 1)],
              [(b"\\u", 0), (b"00", 0), (b"41", 1)], [(b"\\ud", 0), (b"83d", 0), (b"\\ude", 0), (b"00", 1)]]
# (schema, what comes before the characters, their most), or (regex, …): bounds above the longest token twice.
COUNTED = [
    ("json_schema", {"type": "string", "maxLength": 45}, b'"', 45), ("json_schema", {"type": "string", "minLength": 40}, b'"', 44),
    ("json_schema", {"type": "string", "minLength": 41, "maxLength": 41}, b'"', 41),
    ("json_schema", {"type": "string", "minLength": 20, "maxLength": 60}, b'"', 60),
    ("json_schema", {"anyOf": [{"type": "string", "maxLength": 40}, {"type": "string", "minLength": 30, "maxLength": 43}]}, b'"', 43),
    ("json_schema", {"type": "object", "properties": {"a": {"type": "string", "maxLength": 42}, "b": {"type": "integer"}}}, b'{"a": "', 42),
    ("json_schema", {"type": "array", "items": {"type": "string", "maxLength": 50}, "maxItems": 50}, b'["', 50),
    ("regex", r'[^"\\\x00-\x1f]{0,44}!?', b"", 44), ("regex", r"(x?[a-cé日本]){40,46}", b"", 46), ("regex", r"([a-c]{1,50}-){1,50}", b"", 50),
]
# (schema, the first element, each further one, their most)
LISTS = [
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 40}, [b"[", b"1"], [b", ", b"2"], 40),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 38, "maxItems": 41}, [b"[1"], [b", 2"], 41),
    ({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 45}, "maxItems": 50}, [b"[[", b"true"], [b", true"], 45),
    ({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 50}, "maxItems": 45},
     [b"[[", b"true"], [b"], [", b"true"], 45),
    ({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 50}}, "additionalProperties": False},
      "maxItems": 36}, [b'[{"a": "', b'x"}'], [b', {"a": "', b'x"}'], 36),
]


def beginning(rng, before, most, chars):
    """@return tokens that spell a text of as many characters as there may be"""
    tokens, n = [before] if before else [], 0
    while n < most:
        for data, here in rng.choice(chars):
            tokens.append(data)
            n += here
    return tokens


def say(what, sums):
    print(f"{what}: " + ", ".join(f"{n} {name}" for name, n in sums.items()), flush=True)


class Comparison:
    """The program that compares, with the oracle's rows at its service."""

    def __init__(self):
        self.vocabulary = None
        self.start()

    def start(self):
        self.process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, message):
        self.process.stdin.write(message + "\n")
        self.process.stdin.flush()

    def set_vocabulary(self, vocab, ends):
        self.vocabulary = vocab, ends
        self.send(json.dumps({"vocab": [d.hex() for d in vocab], "end_ids": ends}))

    def run(self, case, make_oracle):
        """@return the totals"""
        self.send(json.dumps(case))
        o = None
        while True:
            line = self.process.stdout.readline()
            if not line or line[0] == "{":
                return json.loads(line)
            o = o or make_oracle()
            what, *ids = line.split()
            if what != "row":
                self.send(str(o.start if what == "start" else o.union(int(ids[0]), int(ids[1]))))
                continue
            ends, least, ranges, takes = o.row(int(ids[0]))
            numbers = [int(ends), least, len(ranges), *[n for r in ranges for n in r], len(takes), *[n for t in takes for n in t]]
            self.send(" ".join(map(str, numbers)))

    def start_again(self):
        """Leaves a case in the middle."""
        self.process.kill()
        self.close()
        self.start()
        self.set_vocabulary(*self.vocabulary)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


class Masks(unittest.TestCase):
    def setUp(self):
        self.comparison = Comparison()

    def tearDown(self):
        self.assertEqual(self.comparison.close(), 0)

    def compare(self, kind, sources, seed, answers, tokens, may_refuse=False, may_fail=0, vocab=None, begin=None):
        """@param may_fail  Descriptions that may be too ambiguous for some answers (BT_MATCHER_MAX_SET).
        @param vocab  A vocabulary for all, else one for each.
        @param begin  Tokens that answers begin with, as far as they may; nothing is printed then."""
        rng = random.Random(seed)
        sums = collections.Counter()
        if vocab:
            self.comparison.set_vocabulary(*vocab)
        for i, source in enumerate(sources):
            if not vocab:
                self.comparison.set_vocabulary(*vocabulary(rng, source))
            compact = i % 3 == 2
            case = {"kind": kind, "source": source if kind in ("regex", "ebnf") else json.dumps(source, ensure_ascii=False),
                    "compact": compact, "answers": answers, "tokens": tokens, "seed": seed + i, "within": i % 2 == 0,
                    "bytes": (1 << 20 if i % 5 == 0 else 2 << 20) if not vocab else 16 << 20, "begin": begin or []}
            try:
                totals = self.comparison.run(case, lambda source=source, compact=compact: oracle_of(kind, source, compact))
            except oracle.TooAmbiguous:
                self.comparison.start_again()
                sums["left"] += 1
                continue
            with self.subTest(source=source, compact=compact):
                if "refused" in totals:
                    self.assertTrue(may_refuse, totals)
                    sums["refused"] += 1
                    continue
                self.assertIsNone(totals.pop("first"))
                totals["failed"] = min(totals["failed"], 1)
                sums.update(totals)
        if begin is None:
            say(f"{kind}: {len(sources)} descriptions", sums)
        self.assertLessEqual(sums["refused"], len(sources) // 5)
        self.assertLessEqual(sums["left"], len(sources) // 20 if may_refuse else 0)
        self.assertEqual((sums["differ"], sums["stuck"]), (0, 0))
        self.assertLessEqual(sums["failed"], may_fail)
        return sums

    def test_choices(self):
        self.assertGreater(self.compare("choice", CHOICES, 1, 3, 8)["tokens"], 10000)

    def test_regular_expressions(self):
        self.assertGreater(self.compare("regex", REGEXES, 2, 3, 10)["tokens"], 100000)

    def test_ebnf(self):
        self.assertGreater(self.compare("ebnf", EBNFS, 3, 3, 10)["tokens"], 50000)

    def test_json_schemas(self):
        self.assertGreater(self.compare("json_schema", SCHEMAS, 4, 3, 14)["tokens"], 100000)

    def test_random_regular_expressions(self):
        rng = random.Random(5)
        sources = [random_regex(rng, 2) for _ in range(60 * SCALE)]
        self.assertGreater(self.compare("regex", sources, 6, 2, 8, may_refuse=True)["tokens"], 200000)

    def test_random_ebnf(self):
        rng = random.Random(9)
        sources = [random_ebnf(rng) for _ in range(60 * SCALE)]
        self.assertGreater(self.compare("ebnf", sources, 10, 2, 12, may_refuse=True, may_fail=len(sources) // 20)["tokens"], 200000)

    def test_random_json_schemas(self):
        rng = random.Random(7)
        sources = [random_schema(rng, 2) for _ in range(40 * SCALE)]
        self.assertGreater(self.compare("json_schema", sources, 8, 2, 20, may_refuse=True)["tokens"], 200000)

    def test_counts_around_their_bounds(self):
        rng = random.Random(12)
        sums = collections.Counter()
        for kind, source, before, most in COUNTED:
            chars = [c for c in CHARACTERS if kind != "regex" or c[0][0] in (b"a", b"ab", b"abc")]
            for i in range(4 * SCALE):
                tokens = beginning(rng, before, most, chars)
                pieces = [data for c in CHARACTERS for data, _ in c] + [b'"', b'a"', b"!", b"-", b'"}', b'"]', b'", "', b'"ab', b"x", b"b-a"]
                vocab = list(dict.fromkeys([*tokens, *pieces, *(bytes([b]) for b in range(256))])) + [b""]
                self.assertLessEqual(max(map(len, vocab)), 10)
                sums.update(self.compare(kind, [source], 100 + i, 2, len(tokens) + 4, vocab=(vocab, [len(vocab) - 1]),
                                         begin=[vocab.index(t) for t in tokens]))
        say("characters around their bounds", sums)
        self.assertGreater(sums["masks"], 2500 * SCALE)

    def test_elements_around_their_bounds(self):
        sums = collections.Counter()
        for source, first, more, most in LISTS:
            for n in (most - 1, most, most + 1):
                tokens = first + more * (n - 1)
                pieces = [b", 1", b"]", b"1]", b", ", b", [", b"]]", b"true", b'", ', b'"}]', b'{"a"', b"}, {}"]
                vocab = list(dict.fromkeys([*tokens, *pieces, *(bytes([b]) for b in range(256))])) + [b""]
                self.assertLessEqual(max(map(len, vocab)), 10)
                sums.update(self.compare("json_schema", [source], 200 + n, 2, len(tokens) + 8, vocab=(vocab, [len(vocab) - 1]),
                                         begin=[vocab.index(t) for t in tokens]))
        say("elements around their bounds", sums)
        self.assertGreater(sums["masks"], 1000)

    def compare_vocabulary(self, n_tokens, n_random, answers, tokens):
        """Compares masks of a model's vocabulary, until there are so many tokens."""
        if LONG:
            fetch_model.ensure(fetch_model.default_cache())
        elif not os.path.exists(MODEL):
            self.skipTest("setup/fetch_model.py was not run")
        vocab = model_vocabulary.read(MODEL)
        rng = random.Random(11)
        sums = collections.Counter()
        given = {"json_schema": SCHEMAS, "regex": REGEXES, "ebnf": EBNFS, "choice": CHOICES}
        drawn = {"json_schema": lambda: random_schema(rng, 2), "regex": lambda: random_regex(rng, 2), "ebnf": lambda: random_ebnf(rng)}
        seed = 1000
        while sums["tokens"] < n_tokens:
            sources = given if seed == 1000 else {k: [draw() for _ in range(n_random)] for k, draw in drawn.items()}
            for kind, some in sources.items():
                sums.update(self.compare(kind, some, seed, answers, tokens, may_refuse=True, may_fail=len(some) // 5, vocab=vocab))
            seed += 1000
        say(f"{len(vocab[0])} tokens in the vocabulary", sums)
        return sums

    def test_vocabulary_of_a_model(self):
        self.assertGreater(self.compare_vocabulary(9 * 10**6, 20, 1, 6)["allowed"], 10**6)

    @unittest.skipUnless(LONG, "for --long")
    def test_vocabulary_of_a_model_at_length(self):
        self.assertGreater(self.compare_vocabulary(11 * 10**8, 20, 6, 40)["allowed"], 10**8)

    def test_masks_of_another_language_are_told(self):
        vocab = [b"a", b"b", b""], [2]
        self.comparison.set_vocabulary(*vocab)
        case = {"kind": "choice", "source": '["a"]', "answers": 1, "tokens": 3}
        totals = self.comparison.run(case, lambda: oracle_of("choice", ["ab"], False))
        self.assertEqual(totals["first"], {"what": "accepts", "token": 0, "in_mask": True, "tokens": [0]})
        self.assertEqual(totals["differ"], 4)  # behind a: that it may end, the end, and b; behind ab: the end


if __name__ == "__main__":
    unittest.main()
