#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the grammar_program fuzz target. usage: make_grammar_corpus.py FOLDER

Programs are made from the description in common/grammar/grammar.h, not by the compiler.
"""
import sys
from pathlib import Path


def number(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def edge(head, *args):
    """An edge: its kind or byte, its numbers, and where it leads."""
    return bytes([head]) + b"".join(number(arg) for arg in args)


def high(byte, to):
    """An edge that reads a byte above 0x7F."""
    return bytes([0x80, byte]) + number(to)


def span(lo, hi, to, counts=False):
    return bytes([0x85 if counts else 0x81, lo, hi]) + number(to)


def state(*edges, accepts=False, otherwise=None):
    head = (len(edges) + 1) << 2 | (otherwise is not None) << 1 | accepts
    return number(head) + (number(otherwise) if otherwise is not None else b"") + b"".join(edges)


def literal(text, accepts=False, otherwise=None):
    head = (otherwise is not None) << 1 | accepts
    return (number(head) + (number(otherwise) if otherwise is not None else b"") +
            number(len(text)) + text)


def rule(n_states, *states, least=0, most=None):
    return number(n_states) + number(least) + number(0 if most is None else most + 1), b"".join(states), n_states


def program(*rules):
    return (b"BTG" + number(1) + number(len(rules)) + number(sum(r[2] for r in rules)) +
            b"".join(r[0] for r in rules) + b"".join(r[1] for r in rules))


NEW, BEFORE = 0, 1


def at(n):
    return n + 2


PROGRAMS = {
    "one_byte": program(rule(2, literal(b"a"), state(accepts=True))),
    "empty_text": program(rule(1, state(accepts=True))),
    "letters_that_count": program(
        rule(4, literal(b'"'), state(edge(0x82, 1, NEW)), literal(b'"'), state(accepts=True)),
        rule(1, state(span(0x61, 0x7A, at(0), counts=True), accepts=True), least=2, most=5)),
    "tree": program(rule(
        6, state(edge(0x62, NEW), edge(0x63, NEW), edge(0x64, BEFORE), high(0xC3, NEW)),
        literal(b"at"), state(accepts=True),
        state(edge(0x61, at(2)), edge(0x83, 7, 2, at(3))), state(high(0xA9, at(3))))),
    "words_but_no": program(rule(
        4, literal(b"n", accepts=True, otherwise=3), state(edge(0x6F, NEW), accepts=True, otherwise=3),
        state(edge(0x61, at(3)), edge(0x62, BEFORE), otherwise=3),
        state(span(0x61, 0x7A, at(3)), accepts=True))),
    "nested": program(
        rule(2, state(edge(0x82, 1, NEW)), state(accepts=True)),
        rule(4, state(edge(0x28, NEW), edge(0x78, at(3))), state(edge(0x82, 1, NEW)),
             literal(b")"), state(accepts=True))),
    "items_that_count": program(
        rule(4, literal(b"["), state(edge(0x5D, at(3)), edge(0x82, 1, NEW)), literal(b"]"), state(accepts=True)),
        rule(2, state(edge(0x86, 2, NEW)), state(edge(0x86, 2, at(1)), accepts=True), least=1, most=1000),
        rule(3, literal(b"1,"), state(accepts=True))),
    "pairs_that_count": program(
        rule(2, state(edge(0x84, 0x61, NEW), accepts=True), state(edge(0x84, 0x62, at(0))), least=2, most=6)),
    "left_recursion": program(
        rule(2, state(edge(0x82, 1, NEW)), state(accepts=True)),
        rule(2, state(edge(0x82, 2, NEW)), state(accepts=True)),
        rule(2, state(edge(0x82, 1, NEW)), state(accepts=True))),
    "large_numbers": program(rule(
        2, state(edge(0x83, 2**31, 2**31 - 2, NEW)), state(accepts=True), most=2**32 - 2)),
}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in PROGRAMS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
