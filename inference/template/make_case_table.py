#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make case_table.c from Python's own idea of the cases of characters: what
str.lower(), str.upper() and str.title() do to each, which are cased, and which
are numbers.

Usage: make_case_table.py   (writes the tables of the file beside it anew)
"""
import pathlib
import re
import textwrap
import unicodedata

END = 0x110000


def points():
    return (cp for cp in range(END) if not 0xD800 <= cp < 0xE000)


def runs(mapping):
    """(first, last, step, delta) for neighbours that move alike."""
    rows = []
    for cp, delta in sorted(mapping.items()):
        if rows:
            first, last, step, was = rows[-1]
            gap = cp - last
            if was == delta and gap in (1, 2) and step in (0, gap):
                rows[-1] = (first, cp, gap, delta)
                continue
        rows.append((cp, cp, 0, delta))
    return [(f, l, s or 1, d) for f, l, s, d in rows]


def kind(cp):
    """4 where a letter has cases, and 1 to 3 for numbers: numeric, digit,
    decimal."""
    c = chr(cp)
    cased = c.islower() or c.isupper() or unicodedata.category(c) == "Lt"
    return cased << 2 | c.isnumeric() + c.isdigit() + c.isdecimal()


def lines(rows):
    """As many as go into a line."""
    return textwrap.fill(", ".join(rows), 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False) + ",\n"


def main():
    many = {}
    simple = {}
    for number, name in enumerate(("lower", "upper", "title")):
        simple[name] = {}
        for cp in points():
            made = getattr(chr(cp), name)()
            if len(made) > 1:
                many[cp, number] = made
            simple[name][cp] = ord(made) - cp if len(made) == 1 else None
    # Title is upper, but for those in its table.
    usual = {"lower": {}, "upper": {}, "title": simple["upper"]}
    out = "/* Of Unicode %s; not to be edited. */\n" % unicodedata.unidata_version
    for name, deltas in simple.items():
        rows = runs({cp: delta for cp, delta in deltas.items()
                     if delta is not None and delta != (usual[name].get(cp) or 0)})
        out += f"static const case_run_t {name}_runs[] = {{\n"
        out += lines("{0x%X,0x%X,%d,%d}" % row for row in rows) + "};\n\n"
    out += "static const case_many_t many_made[] = {\n"
    out += lines("{0x%X,%d,{%s}}" % (cp, number, ",".join("0x%X" % ord(c) for c in made))
                 for (cp, number), made in sorted(many.items())) + "};\n\n"
    out += "static const uint32_t kinds[] = {\n"
    out += lines("0x%X" % (cp << 3 | kind(cp)) for cp in range(END)
                 if cp == 0 or kind(cp) != kind(cp - 1)) + "};\n"
    path = pathlib.Path(__file__).with_name("case_table.c")
    marks = "/* clang-format off */\n", "/* clang-format on */\n"
    path.write_text(re.sub("(?s)(?<=%s).*(?=%s)" % tuple(map(re.escape, marks)), lambda _: out, path.read_text()))


if __name__ == "__main__":
    main()
