#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes common/base/decimal.c: the powers of ten by which decimal.c finds shortest decimal texts, from
exact fractions.

Usage: make_decimal_powers.py >common/base/decimal.c
"""
import math
from fractions import Fraction

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Made by tests/golden/make_decimal_powers.py. */
#include "common/base/decimal.h"
"""


def power(k, bits):
    value = Fraction(10) ** k
    log2 = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** log2 > value:
        log2 -= 1
    return math.floor(value * Fraction(2) ** (bits - 1 - log2)) + 1


def rows(texts, n):
    return "\n".join("    " + " ".join(texts[i:i + n]) for i in range(0, len(texts), n))


def main():
    floats = [f"0x{power(k, 64):016X}," for k in range(-31, 46)]
    doubles = [f"{{0x{power(k, 128) >> 64:016X}, 0x{power(k, 128) & (1 << 64) - 1:016X}}}," for k in range(-292, 325)]
    print(HEAD)
    print("const uint64_t bt_float_powers[BT_FLOAT_POWERS] = {\n" + rows(floats, 3) + "\n};\n")
    print("/* clang-format off */\nconst uint64_t bt_double_powers[BT_DOUBLE_POWERS][2] = {\n" + rows(doubles, 2) + "\n};")


if __name__ == "__main__":
    main()
