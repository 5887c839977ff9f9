#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write unicode_forms.c: decompositions, combining classes, compositions and
lower case.

usage: make_unicode_forms.py > unicode_forms.c   (needs the package tokenizers)

The data are those of the reference tokenizers, whose forms are of a Unicode
before 12.1: what Python knows beyond is left out, anything else that differs
is an error. Lower case is that of Unicode 16.0.
"""
import sys
import unicodedata
from itertools import groupby

from tokenizers import normalizers

REFERENCE = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(),
             "NFKD": normalizers.NFKD(), "lower": normalizers.Lowercase()}

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)
ALPHABET = 5  # letters, at least
N_COMPOSED = 0x11600  # BT_UNICODE_N_COMPOSED


def form(name, cp):
    """What the reference makes of a character: what Python does, or nothing."""
    to = REFERENCE[name].normalize_str(chr(cp))
    if to not in (chr(cp), unicodedata.normalize(name, chr(cp))):
        sys.exit("U+%04X is not what Python says" % cp)
    return [ord(c) for c in to]


def combining(cp):
    """The class, 0 if the reference does not know it: then it stays where it
    is, before a mark of class 1 or behind one of class 230."""
    value = unicodedata.combining(chr(cp))
    for text in ("\u0301" + chr(cp), chr(cp) + "\u0334"):
        if value and REFERENCE["NFD"].normalize_str(text) != unicodedata.normalize("NFD", text):
            return 0
    return value


def rows(values, fmt="0x%x,", per_line=20):
    for i in range(0, len(values), per_line):
        print("    " + " ".join(fmt % v for v in values[i:i + per_line]))


def table(kind, name, values):
    if name != "parts":  # found by their index
        print("const uint32_t bt_unicode_n_%s = %du;" % (name, len(values)))
    print("const %s bt_unicode_%s[] = {" % (kind, name))
    rows(values)
    print("};\n")


def runs(values):
    """first code << 8 | value, for each run of equal values"""
    return [cp << 8 | values[cp] for cp in range(0x110000)
            if cp == 0 or values[cp] != values[cp - 1]]


def runs_of(mapped):
    """Neighbours of one kind that have as many parts, as lists of (code, kind,
    parts). Alphabets, whose letters all are as far from their one part, are
    runs of their own, for their parts then are those of other alphabets, too.
    """
    rows = [(cp - i, cp) + mapped[cp] for i, cp in enumerate(sorted(mapped))]
    keys = []
    for _, group in groupby(rows, lambda r: (r[0], r[2], len(r[3]), r[3][0] - r[1])):
        block, cp, kind, to = next(group)
        n = len(list(group)) + 1
        keys += [(block, kind, len(to), to[0] - cp if len(to) == 1 and n >= ALPHABET else None)] * n
    for _, group in groupby(zip(keys, rows), lambda both: both[0]):
        yield [row[1:] for _, row in group]


def mapped_tables(mapped):
    """The runs of mapped and between, and the parts of all, those of a run one behind another."""
    runs, parts = [0], ""
    for run in sorted(runs_of(mapped), key=lambda run: -sum(len(to) for _, _, to in run)):
        text = "".join(chr(cp) for _, _, to in run for cp in to)
        if text not in parts:
            parts += text
        first, kind, to = run[0]
        # code 21 bits, kind 1, count 5, place in parts 16
        runs.append(first << 22 | kind << 21 | len(to) << 16 | parts.index(text))
        end = run[-1][0] + 1
        if end not in mapped:
            runs.append(end << 22)
    assert len(parts) < 1 << 16
    return sorted(runs), [ord(c) for c in parts]


def decomposed(cp, kind, pairs, mapped):
    """What a reader of the tables makes of a character."""
    if cp in pairs:
        parts = pairs[cp]
    elif cp in mapped and mapped[cp][0] <= kind:
        parts = mapped[cp][1]
    else:
        return [cp]
    return [to for part in parts for to in decomposed(part, kind, pairs, mapped)]


def lower_runs():
    """Characters whose lower case is as far away, neighbours or every second
    one: first 21 bits, its lower case 21, last - first 20, steps of two 1."""
    runs = []
    for cp in ALL:
        to = [ord(c) for c in REFERENCE["lower"].normalize_str(chr(cp))]
        if to == [cp] or len(to) > 1:
            continue
        if runs:
            first, last, lower, step = runs[-1]
            if to[0] - cp == lower - first and cp - last in (1, 2) and step in (0, cp - last):
                runs[-1] = (first, cp, lower, cp - last)
                continue
        runs.append((cp, cp, to[0], 0))
    return [first << 42 | lower << 21 | (last - first) << 1 | (step == 2) for first, last, lower, step in runs]


def main():
    pairs = {}
    for cp in ALL:
        both = unicodedata.decomposition(chr(cp)).split()
        if len(both) == 2 and not both[0].startswith("<") and form("NFC", cp) == [cp] \
                and form("NFD", cp) != [cp]:
            assert cp < N_COMPOSED
            pairs[cp] = [int(part, 16) for part in both]
    mapped = {}
    for cp in ALL:
        if cp not in pairs and cp not in HANGUL:
            for kind, name in enumerate(("NFD", "NFKD")):
                if cp not in mapped and form(name, cp) != [cp]:
                    mapped[cp] = (kind, form(name, cp))
    for cp in ALL:
        for kind, name in enumerate(("NFD", "NFKD")):
            assert cp in HANGUL or decomposed(cp, kind, pairs, mapped) == form(name, cp)
    classes = [combining(cp) for cp in range(0x110000)]
    seconds = {second for _, second in pairs.values()} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    stable = [0] * 0x110000
    for cp in ALL:
        stable[cp] = int(classes[cp] == 0 and cp not in seconds and form("NFC", cp) == [cp])
    mapped, parts = mapped_tables(mapped)
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_unicode_forms.py; do not edit. */")
    print("/* clang-format off */")
    print('#include "inference/tokenizer/unicode.h"\n')
    table("uint32_t", "parts", parts)
    table("uint64_t", "mapped", mapped)
    table("uint32_t", "combining", runs(classes))
    table("uint64_t", "pairs", sorted((a << 21 | b) << 21 | cp for cp, (a, b) in pairs.items()))
    table("uint32_t", "stable", runs(stable))
    table("uint64_t", "lower", lower_runs())


if __name__ == "__main__":
    main()
