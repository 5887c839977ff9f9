#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write unicode_table.c: which code points are letters, numbers and space.

usage: make_unicode_table.py > unicode_table.c

The classes are those of Unicode 16.0, which is what the regular expressions
of the reference tokenizers use. Debian 12's Python knows Unicode 14.0, so the
letters and numbers that 15.0, 15.1 and 16.0 added are listed here (from
extracted/DerivedGeneralCategory.txt of those versions); with a newer Python
the list must already be in its own data, and the script checks that.
"""
import sys
import unicodedata

OTHER, LETTER, NUMBER, SPACE = range(4)

# The White_Space property (PropList.txt); stable since Unicode 6.3.
WHITE_SPACE = [(0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0),
               (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
               (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]

LETTERS_SINCE_14 = [
    (0x1C89, 0x1C8A), (0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC), (0x105C0, 0x105F3),
    (0x10D4A, 0x10D65), (0x10D6F, 0x10D85), (0x10EC2, 0x10EC4),
    (0x1123F, 0x11240), (0x11380, 0x11389), (0x1138B, 0x1138B),
    (0x1138E, 0x1138E), (0x11390, 0x113B5), (0x113B7, 0x113B7),
    (0x113D1, 0x113D1), (0x113D3, 0x113D3), (0x11BC0, 0x11BE0),
    (0x11F02, 0x11F02), (0x11F04, 0x11F10), (0x11F12, 0x11F33),
    (0x1342F, 0x1342F), (0x13441, 0x13446), (0x13460, 0x143FA),
    (0x16100, 0x1611D), (0x16D40, 0x16D6C), (0x18CFF, 0x18CFF),
    (0x1B132, 0x1B132), (0x1B155, 0x1B155), (0x1DF25, 0x1DF2A),
    (0x1E030, 0x1E06D), (0x1E4D0, 0x1E4EB), (0x1E5D0, 0x1E5ED),
    (0x1E5F0, 0x1E5F0), (0x2B739, 0x2B739), (0x2EBF0, 0x2EE5D),
    (0x31350, 0x323AF)]
NUMBERS_SINCE_14 = [
    (0x10D40, 0x10D49), (0x116D0, 0x116E3), (0x11BF0, 0x11BF9),
    (0x11F50, 0x11F59), (0x16130, 0x16139), (0x16D70, 0x16D79),
    (0x1CCF0, 0x1CCF9), (0x1D2C0, 0x1D2D3), (0x1E4F0, 0x1E4F9),
    (0x1E5F1, 0x1E5FA)]


def classes():
    table = bytearray(0x110000)
    for cp in range(0x110000):
        table[cp] = {"L": LETTER, "N": NUMBER}.get(
            unicodedata.category(chr(cp))[0], OTHER)
    newest = tuple(int(x) for x in unicodedata.unidata_version.split("."))
    for ranges, cls in ((LETTERS_SINCE_14, LETTER), (NUMBERS_SINCE_14, NUMBER)):
        for first, last in ranges:
            for cp in range(first, last + 1):
                if newest >= (16, 0, 0) and table[cp] != cls:
                    sys.exit(f"U+{cp:04X} is not what the list says")
                table[cp] = cls
    for first, last in WHITE_SPACE:
        for cp in range(first, last + 1):
            table[cp] = SPACE
    return table


def pages(table):
    """Distinct runs of 256 code points, as eight words of 32 classes each, and
    which of them each 256 of the code points have."""
    end = max(cp for cp in range(0x110000) if table[cp] != OTHER) | 0xFF
    distinct, which = {}, []
    for start in range(0, end + 1, 256):
        words = tuple(sum(table[start + 32 * w + i] << 2 * i for i in range(32)) for w in range(8))
        which.append(distinct.setdefault(words, len(distinct)))
    if len(distinct) > 256:
        sys.exit("a byte does not number the pages")
    return list(distinct), which


def main():
    distinct, which = pages(classes())
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_unicode_table.py; do not edit. */")
    print("/* clang-format off */")
    print('#include "inference/tokenizer/unicode.h"\n')
    print("const uint8_t bt_unicode_pages[BT_UNICODE_N_PAGES] = {")
    for i in range(0, len(which), 16):
        print("    " + " ".join(f"{x}," for x in which[i:i + 16]))
    print("};\n")
    print("/* The class of code point c in bits 2 * (c % 32) of a page's word c / 32 % 8. */")
    print("const uint64_t bt_unicode_classes[][8] = {")
    for words in distinct:
        print("    {" + ",\n     ".join(", ".join(f"0x{x:016x}" for x in words[i:i + 4]) for i in (0, 4)) + "},")
    print("};")


if __name__ == "__main__":
    main()
