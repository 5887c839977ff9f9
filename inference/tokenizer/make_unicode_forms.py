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

from tokenizers import normalizers

REFERENCE = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(),
             "NFKD": normalizers.NFKD(), "lower": normalizers.Lowercase()}

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)


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
    print("const uint32_t bt_unicode_n_%s = %du;" % (name, len(values)))
    print("const %s bt_unicode_%s[] = {" % (kind, name))
    rows(values)
    print("};\n")


def runs(values):
    """first code << 8 | value, for each run of equal values"""
    return [cp << 8 | values[cp] for cp in range(0x110000)
            if cp == 0 or values[cp] != values[cp - 1]]


def main():
    parts, keys, seen = [], {"NFD": [], "NFKD": []}, {}
    for name in keys:
        for cp in ALL:
            to = form(name, cp)
            if to == [cp] or cp in HANGUL or (name == "NFKD" and to == form("NFD", cp)):
                continue
            if tuple(to) not in seen:
                seen[tuple(to)] = len(parts)
                parts += to
            # code 21 bits, count 5, place in parts 16
            keys[name].append(cp << 21 | len(to) << 16 | seen[tuple(to)])
    assert len(parts) < 1 << 16
    classes = [combining(cp) for cp in range(0x110000)]
    pairs = []
    for cp in ALL:
        both = unicodedata.decomposition(chr(cp)).split()
        if len(both) == 2 and not both[0].startswith("<") and form("NFC", cp) == [cp] \
                and form("NFD", cp) != [cp]:
            pairs.append((int(both[0], 16) << 21 | int(both[1], 16)) << 21 | cp)
    seconds = {p >> 21 & 0x1FFFFF for p in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    stable = [0] * 0x110000
    for cp in ALL:
        stable[cp] = int(classes[cp] == 0 and cp not in seconds and form("NFC", cp) == [cp])
    lower = []
    for cp in ALL:
        to = [ord(c) for c in REFERENCE["lower"].normalize_str(chr(cp))]
        if to != [cp] and len(to) == 1:
            lower.append(cp << 21 | to[0])
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_unicode_forms.py; do not edit. */")
    print("/* clang-format off */")
    print('#include "inference/tokenizer/unicode.h"\n')
    table("uint32_t", "parts", parts)
    table("uint64_t", "canonical", keys["NFD"])
    table("uint64_t", "compatible", keys["NFKD"])
    table("uint32_t", "combining", runs(classes))
    table("uint64_t", "pairs", sorted(pairs))
    table("uint32_t", "stable", runs(stable))
    table("uint64_t", "lower", lower)


if __name__ == "__main__":
    main()
