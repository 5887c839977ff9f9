#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What V8 (Node, flag u) and Python's re say of patterns and texts, without Baton's code.

usage: make_regex_golden.py > regex.jsonl     (needs node, version 20 or later)

Each pattern is asked of one of the two, or of both where both read it: they must agree. Texts are samples, altered at
random. Patterns of the second list are drawn at random.

Format, a line for each pattern: {"pattern", "whole": [matching texts, others], "search": [matching texts, others]}:
whether the pattern matches the whole of a text, and whether it matches a part of it.
"""
import json
import random
import re
import subprocess
import sys

# What Python writes for what it reads differently.
SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
DOT = r"[^\n\r\u2028\u2029]"
BOTH = object()  # Python reads the pattern alike

# Pattern, as V8 reads it (None: not) and as Python does (None: not; BOTH: alike), and samples.
PATTERNS = [
    (r"abc", BOTH, ["abc", "xabcx", "ab"]),
    (r"a|bc|", BOTH, ["a", "bc", ""]),
    (r"a*", BOTH, ["", "aaa", "ab"]),
    (r"a+b?", BOTH, ["a", "aab", "b"]),
    (r"(a|b)*abb", BOTH, ["abb", "aabb", "babb", "ab"]),
    (r"(?:ab)+", BOTH, ["ab", "abab", "aba"]),
    (r"a{3}", BOTH, ["aaa", "aa", "aaaa"]),
    (r"a{2,}", BOTH, ["aa", "aaaaa", "a"]),
    (r"a{1,3}b", BOTH, ["ab", "aaab", "aaaab"]),
    (r"a{0}b", BOTH, ["b", "ab"]),
    (r"(ab){0,2}c", BOTH, ["c", "ababc", "abababc"]),
    (r"a*?b+?c??", BOTH, ["aabc", "b", "abbc"]),
    (r"a{2,3}?b", BOTH, ["aab", "aaab", "ab"]),
    (r"((a*)*)*b", BOTH, ["aab", "b", "aa"]),
    (r"(a|a)*c", BOTH, ["aac", "c", "ab"]),
    (r"(a?){5}", BOTH, ["aaaaa", "", "aaaaaa"]),
    (r"((ab?){2}c){1,2}", BOTH, ["aac", "ababc", "aacabac", "abc"]),
    (r"[abc]", BOTH, ["a", "d", "ab"]),
    (r"[a-fx-z]+", BOTH, ["afxz", "g", "ay"]),
    (r"[^a-c]", BOTH, ["d", "a", "\n", "\u20ac"]),
    (r"[-a]+", BOTH, ["-a", "b"]),
    (r"[a-]+", BOTH, ["a-", "b"]),
    (r"[a\-z]+", BOTH, ["a-z", "m"]),
    (r"[+--]+", BOTH, ["+,-", "."]),
    (r"[\]\\^]+", BOTH, ["]\\^", "["]),
    (r"[.*+?()|{}$]+", BOTH, [".*+?()|{}$", "a"]),
    (r"[a^]+", BOTH, ["a^", "b"]),
    (r"[\b]", BOTH, ["\b", "b"]),
    (r"[\t\n\r\f\v]+", BOTH, ["\t\n", "\r\f\v", " "]),
    (r"[]", None, ["", "a", "]"], ),
    (r"[^]", r"(?s:.)", ["a", "\n", "\U0001f600", ""]),
    (r"[^]*x", r"(?s:.)*x", ["x", "a\nx", "a"]),
    (r"\d+", r"[0-9]+", ["09", "a", "\u0661"]),
    (r"\D", r"[^0-9]", ["a", "0", "\u0661"]),
    (r"\w+", r"[0-9A-Z_a-z]+", ["aZ_9", "-", "\u00e9"]),
    (r"\W", r"[^0-9A-Z_a-z]", ["-", "a", "\u00e9"]),
    (r"\s+", f"[{SPACE}]+", [" \t\n", "\u00a0\u3000\ufeff", "\u200b", "a"]),
    (r"\S+", f"[^{SPACE}]+", ["a-", "\u200b", "\u2028", " "]),
    (r"[\d\s]+", f"[0-9{SPACE}]+", ["1 2", "a", "\u2003"]),
    (r"[^\d\s]+", f"[^0-9{SPACE}]+", ["a-", "1", " ", "\u2003"]),
    (r"[^\S]", f"[{SPACE}]", [" ", "a", "\u2029"]),
    (r"[^\W\d_]+", r"[A-Za-z]+", ["aZ", "9", "_", "\u00e9"]),
    (r"[\w.\-]+", r"[0-9A-Z_a-z.\-]+", ["a.b-c", "a b"]),
    (r".", DOT, ["a", "\n", "\r", "\u2028", "\u2029", "\u0085", "\U0001f600", ""]),
    (r"a.b", f"a{DOT}b", ["axb", "a\nb", "a\u00e9b"]),
    (r".*x", f"{DOT}*x", ["x", "abx", "a\nx"]),
    (r"^abc$", r"\Aabc\Z", ["abc", "xabc", "abcx", "abc\n"]),
    (r"^abc", r"\Aabc", ["abc", "abcd", "xabc"]),
    (r"abc$", r"abc\Z", ["abc", "xabc", "abc\n", "abcd"]),
    (r"^$", r"\A\Z", ["", "a", "\n"]),
    (r"$^", r"\Z\A", ["", "a"]),
    (r"^", r"\A", ["", "a"]),
    (r"$", r"\Z", ["", "a"]),
    (r"^a|b$", r"\Aa|b\Z", ["ax", "xb", "b", "xa", "bx"]),
    (r"^(a|b)$", r"\A(a|b)\Z", ["a", "b", "ab"]),
    (r"(^a|b)c", r"(\Aa|b)c", ["ac", "xac", "xbc"]),
    (r"a(b$|c)", r"a(b\Z|c)", ["ab", "abx", "acx"]),
    (r"(^|,)a($|,)", r"(\A|,)a(\Z|,)", ["a", ",a,", "x,a", "xa", "a,x"]),
    (r"a^b", r"a\Ab", ["ab", "a", "b"]),
    (r"a$b", r"a\Zb", ["ab", "a", "b"]),
    (r"(a$)?b", r"(a\Z)?b", ["b", "ab", "a"]),
    (r"(^a)*b", r"(\Aa)*b", ["b", "ab", "aab", "xab"]),
    (r"(^x|y$)+", r"(\Ax|y\Z)+", ["x", "y", "xy", "yx", "xx"]),
    (r"x*^y", r"x*\Ay", ["y", "xy", "yx"]),
    (r"x$y*", r"x\Zy*", ["x", "xy", "yx"]),
    (r"(?:^|\s)foo(?:\s|$)", f"(?:\\A|[{SPACE}])foo(?:[{SPACE}]|\\Z)", ["foo", "a foo b", "afoo", "foo "]),
    (r"(?<year>[0-9]{4})-(?<month>[0-9]{2})", r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})", ["2026-11", "226-11"]),
    (r"(?<$a_1>x)", r"(?P<a_1>x)", ["x", "y"]),
    (r"\x41\u0042\u{43}", r"\x41\u0042C", ["ABC", "ABD"]),
    (r"\u{1F600}+", r"\U0001F600+", ["\U0001f600", "\U0001f600\U0001f600", "\U0001f601"]),
    (r"\ud83d\ude00", r"\U0001F600", ["\U0001f600", "\U0001f601"]),
    (r"[\ud83d\ude00-\ud83d\ude4f]", r"[\U0001F600-\U0001F64F]", ["\U0001f600", "\U0001f64f", "\U0001f650"]),
    (r"[\u{80}-\u{7ff}]", r"[\x80-\u07ff]", ["\x7f", "\x80", "\u07ff", "\u0800"]),
    (r"[\u0800-\uffff]", r"[\u0800-\uffff]", ["\u07ff", "\u0800", "\uffff", "\U00010000"]),
    (r"[^\u0000-\u007f]+", BOTH, ["\u00e9\u20ac\U0001f600", "a"]),
    (r"[\u00e0-\u00ff]+", BOTH, ["\u00e9\u00e8", "e"]),
    (r"\u00e9|\u20ac", BOTH, ["\u00e9", "\u20ac", "e"]),
    (r"\0", r"\0", ["\0", "0"]),
    (r"\cJ\cm", r"\n\r", ["\n\r", "JM"]),
    (r"\t\n\v\f\r", BOTH, ["\t\n\v\f\r", "tnvfr"]),
    (r"\/\.\*\+\?\(\)\[\]\{\}\|\^\$\\", BOTH, ["/.*+?()[]{}|^$\\", "/"]),
    (r"\p{L}+", None, ["ab\u00e9\u0416\u4e2d", "1", "_"]),
    (r"\P{L}+", None, ["12", "a", "\u4e2d"]),
    (r"\p{Lu}\p{Ll}*", None, ["Ab", "\u0416\u0436", "ab", "AB"]),
    (r"\p{Nd}+", None, ["12\u0661", "a", "\u00bd"]),
    (r"\p{General_Category=Uppercase_Letter}", None, ["A", "a", "\u0100", "\u0101"]),
    (r"[\p{Ll}\p{Nd}_]+", None, ["a1_", "A", "\u0101"]),
    (r"[^\p{Ll}]+", None, ["A1", "a", "\u0101"]),
    (r"[\P{L}a]+", None, ["1a", "b"]),
    (r"\p{Script=Han}+", None, ["\u4e2d\u6587", "a", "\u3042"]),
    (r"\p{White_Space}+", None, [" \u2028", "\ufeff", "a"]),
    (r"\p{ASCII}+\p{Any}", None, ["ab\u00e9", "\u00e9\u00e9"]),
    (r"[0-9a-f]{8}-[0-9a-f]{4}", BOTH, ["0123abcd-0f0f", "0123abcd-0f0g"]),
    (r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])", BOTH,
     ["127.0.0.1", "255.255.255.255", "256.1.1.1", "1.2.3"]),
    (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", f"\\A[^@{SPACE}]+@[^@{SPACE}]+\\.[^@{SPACE}]+\\Z", ["a@b.c", "a b@c.d", "a@b"]),
    (r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$", r"\A-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z",
     ["0", "-1.5e+3", "01", "1.", "1e5"]),
    (r"^(?:\+?1[-. ]?)?\(?([0-9]{3})\)?[-. ]?([0-9]{4})$", r"\A(?:\+?1[-. ]?)?\(?([0-9]{3})\)?[-. ]?([0-9]{4})\Z",
     ["+1 (555) 1234", "5551234", "555-123"]),
    (r"^\s*$", f"\\A[{SPACE}]*\\Z", ["", " \t", " a"]),
    (r"^x-", r"\Ax-", ["x-a", "ax-", "x"]),
    (r"^#([0-9a-fA-F]{3}){1,2}$", r"\A#([0-9a-fA-F]{3}){1,2}\Z", ["#fff", "#00FFaa", "#ff", "#fffff"]),
    # What V8 refuses with flag u, and Python reads.
    (None, r"a{", ["a{", "a"]),
    (None, r"a{x}", ["a{x}", "a"]),
    (None, r"a{1", ["a{1", "a"]),
    (None, r"a{1,2,3}", ["a{1,2,3}", "a"]),
    (None, r"{}", ["{}", ""]),
    (None, r"a}", ["a}", "a"]),
    (None, r"a]", ["a]", "a"]),
    (None, r"{\"a\": [0-9]+}", ["{\"a\": 12}", "{\"a\": x}"]),
    (None, r"\-\_\"\'\@\#\%\&\,\:\;\<\=\>\~\`\ \!", ["-_\"'@#%&,:;<=>~` !", "-"]),
    (None, r"(?P<name>a|b)c", ["ac", "bc", "cc"]),
    (None, r"\Aab", ["ab", "abc", "xab"]),
    (None, r"[\"\'\-\.]+", ["\"'-.", "a"]),
    (None, r"[[a]+", ["[a", "]"]),
    (None, r"\U0001F600", ["\U0001f600", "\U0001f601"]),
    (None, r"x(?:)y", ["xy", "x"]),
]
ODD = "\n\u00e9\u20ac\U0001f600 -0aZ_]"
N_RANDOM = 250
N_TEXTS = 6

NODE = r"""
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answers = cases.map(([pattern, texts]) => {
  const whole = new RegExp("^(?:" + pattern + ")$", "u"), part = new RegExp(pattern, "u");
  return texts.map(text => [whole.test(text), part.test(text)]);
});
console.log(JSON.stringify(answers));
"""


def ask_node(cases):
    out = subprocess.run(["node", "-e", NODE], input=json.dumps(cases), capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def ask_python(pattern, texts):
    compiled = re.compile(pattern)
    return [[compiled.fullmatch(text) is not None, compiled.search(text) is not None] for text in texts]


def altered(rng, text, letters):
    chars = list(text)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(chars) + 1)
        kind = rng.randrange(3)
        if kind == 0 or not chars:
            chars.insert(at, rng.choice(letters))
        elif at < len(chars) and kind == 1:
            chars[at] = rng.choice(letters)
        elif at < len(chars):
            del chars[at]
    return "".join(chars)


def texts_of(rng, samples):
    letters = "".join(samples) + ODD
    texts = set(samples) | {""}
    for _ in range(60):
        texts.add(altered(rng, rng.choice(samples), letters))
    return sorted(texts)


def random_pattern(rng, depth):
    """Pattern over a and b, and its spelling in Python."""
    kind = rng.randrange(12 if depth > 0 else 5)
    if kind < 3:
        one = rng.choice("aab")
        return one, one
    if kind == 3:
        one = rng.choice(["[ab]", "[^a]", "[^ab]", "[a-b]"])
        return one, one
    if kind == 4:
        one = rng.choice(["^", "$", "", "a"])
        return one, {"^": r"\A", "$": r"\Z"}.get(one, one)
    if kind < 8:
        parts = [random_pattern(rng, depth - 1) for _ in range(rng.randrange(2, 4))]
        return "".join(p for p, _ in parts), "".join(q for _, q in parts)
    parts = [random_pattern(rng, depth - 1) for _ in range(1 if kind > 9 else 2)]
    quantifier = rng.choice(["", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?"])
    return ("(" + "|".join(p for p, _ in parts) + ")" + quantifier,
            "(?:" + "|".join(q for _, q in parts) + ")" + quantifier)


def chosen(rng, texts):
    return sorted(rng.sample(texts, min(len(texts), N_TEXTS)))


def main():
    rng = random.Random(44)
    cases = []  # pattern, V8 reads it, Python's spelling, texts
    for pattern, python, samples in PATTERNS:
        spelling = pattern if python is BOTH else python
        cases.append((pattern if pattern is not None else python, pattern is not None, spelling,
                      texts_of(rng, samples)))
    short = ["", *("".join(rng.choice("abc") for _ in range(n)) for n in range(1, 7) for _ in range(12))]
    for _ in range(N_RANDOM):
        pattern, python = random_pattern(rng, 3)
        cases.append((pattern, True, python, sorted(set(short))))
    by_node = iter(ask_node([(pattern, texts) for pattern, node, _, texts in cases if node]))
    for pattern, node, python, texts in cases:
        answers = [next(by_node)] if node else []
        if python is not None:
            answers.append(ask_python(python, texts))
        if any(answer != answers[0] for answer in answers):
            sys.exit(f"V8 and Python differ on {pattern}")
        row = {"pattern": pattern}
        for i, name in enumerate(("whole", "search")):
            found = list(zip(texts, answers[0]))
            row[name] = [chosen(rng, [t for t, a in found if a[i]]), chosen(rng, [t for t, a in found if not a[i]])]
        print(json.dumps(row, separators=(",", ":")))


if __name__ == "__main__":
    main()
