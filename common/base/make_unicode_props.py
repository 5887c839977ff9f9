#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write unicode_props.c: general category, white space, word and Han of all
code points, what no single-word token stands beside, and what the steps
Punctuation and StripAccents take, which have tables of their own, as runs.

usage: make_unicode_props.py > unicode_props.c   (needs the package tokenizers)

The properties are asked of Oniguruma, the regular expression engine of the
reference tokenizers, which so far is that of Unicode 16.0. What Python's own
data knows must be the same, but for the few characters that changed category.
"""
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po "
              "Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs").split()
SPACE, WORD, HAN, BESIDE, PUNCTUATION, ACCENT = 0x20, 0x40, 0x80, 0x100, 0x200, 0x400
RUN_BITS = 11
MAX_CHANGED = 16
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CODES))


def members(pattern):
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    for _, (start, end) in split.pre_tokenize_str(TEXT):
        yield from CODES[start:end]


def neighbours():
    """What keeps a token that is a word of its own from being found: asked by
    a text of that token before each character."""
    tok = Tokenizer(models.BPE({"?": 0}, [], unk_token="?"))
    tok.add_tokens([AddedToken("ZQ", single_word=True, normalized=False)])
    token = tok.token_to_id("ZQ")
    for first in range(0, len(CODES), 4096):
        part = CODES[first:first + 4096]
        text = "".join(" ZQ" + chr(cp) for cp in part)
        encoding = tok.encode(text)
        found = {start for i, (start, _) in zip(encoding.ids, encoding.offsets) if i == token}
        yield from (cp for i, cp in enumerate(part) if 4 * i + 1 not in found)


def punctuation():
    """What Punctuation makes a piece of its own."""
    split = pre_tokenizers.Punctuation("isolated")
    for first in range(0, len(CODES), 4096):
        part = CODES[first:first + 4096]
        for _, (start, end) in split.pre_tokenize_str("".join("x" + chr(cp) for cp in part) + "x"):
            if end - start == 1 and start % 2 == 1:
                yield part[start // 2]


def accents():
    strip = normalizers.StripAccents()
    yield from (cp for cp in CODES if strip.normalize_str("x" + chr(cp)) == "x")


def merged(runs):
    """Runs of one character whose case is the other one of their neighbours',
    as one run: its category is 30 if the even ones are upper case, or 31."""
    upper, lower = CATEGORIES.index("Lu"), CATEGORIES.index("Ll")
    rows = []
    for (cp, props), (end, _) in zip(runs, runs[1:] + [(0x110000, 0)]):
        category = props % 32
        if category in (upper, lower) and end == cp + 1:
            props += 30 + (category - upper + cp) % 2 - category
            if rows and rows[-1][1] == props:
                continue
        rows.append((cp, props))
    return rows


def main():
    props = [CATEGORIES.index("Cn")] * 0x110000
    for index, name in enumerate(CATEGORIES):
        if name not in ("Cn", "Cs"):
            for cp in members(r"\p{%s}" % name):
                props[cp] = index
    for cp in range(0xD800, 0xE000):
        props[cp] = CATEGORIES.index("Cs")
    changed = [cp for cp in range(0x110000) if unicodedata.category(chr(cp))
               not in ("Cn", CATEGORIES[props[cp]])]
    if len(changed) > MAX_CHANGED:
        sys.exit("%d characters are not what Python says" % len(changed))
    for pattern, bit in ((r"\s", SPACE), (r"\w", WORD), (r"\p{Han}", HAN)):
        for cp in members(pattern):
            props[cp] |= bit
    for found, bit in ((neighbours(), BESIDE), (punctuation(), PUNCTUATION), (accents(), ACCENT)):
        for cp in found:
            props[cp] |= bit
    runs = [cp for cp in range(0x110000) if cp == 0 or props[cp] != props[cp - 1]]
    rows = merged([(cp, props[cp]) for cp in runs])
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_unicode_props.py; do not edit. */")
    print("/* clang-format off */")
    print('#include "common/base/unicode.h"\n')
    print("const uint32_t bt_unicode_n_merged = %du;" % len(rows))
    print("const uint32_t bt_unicode_merged[] = {")
    for i in range(0, len(rows), 8):
        print("    " + " ".join("0x%x," % (cp << RUN_BITS | props) for cp, props in rows[i:i + 8]))
    print("};")
    print("BT_UNICODE_N_RUNS: %d" % len(runs), file=sys.stderr)
    print("changed: " + " ".join("%04X" % cp for cp in changed), file=sys.stderr)


if __name__ == "__main__":
    main()
