#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of powers of ten in common/base/decimal.c, from exact fractions."""
import math
from fractions import Fraction

BITS = 192
WORD = (1 << 64) - 1


def power(k):
    value = Fraction(10) ** k
    log2 = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** log2 > value:
        log2 -= 1
    return math.floor(value * Fraction(2) ** (BITS - 1 - log2))


def main():
    for k in range(-297, 325, 27):
        words = (power(k) >> 128, power(k) >> 64 & WORD, power(k) & WORD)
        print("    {" + ", ".join(f"0x{word:016X}" for word in words) + "},")


if __name__ == "__main__":
    main()
