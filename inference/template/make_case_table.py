#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make case_table.c from Python's own idea of the cases of characters: what
str.lower(), str.upper() and str.title() do to each, which are cased, and which
are numbers.

Usage: make_case_table.py > case_table.c
"""
import sys
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


def ranges(which):
    rows = []
    for cp in points():
        if which(chr(cp)):
            if rows and rows[-1][1] == cp - 1:
                rows[-1][1] = cp
            else:
                rows.append([cp, cp])
    return rows


def lines(rows):
    """As many as go into a line."""
    return textwrap.fill(", ".join(rows), 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False) + ",\n"


def main():
    out = sys.stdout
    out.write("/* SPDX-License-Identifier: Apache-2.0 */\n"
              "/* Made by make_case_table.py, of Unicode %s; not to be edited. */\n"
              "#include \"inference/template/text.h\"\n\n/* clang-format off */\n" % unicodedata.unidata_version)
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
    for name, deltas in simple.items():
        rows = runs({cp: delta for cp, delta in deltas.items()
                     if delta is not None and delta != (usual[name].get(cp) or 0)})
        out.write(f"const bt_tmpl_case_run_t bt_tmpl_case_{name}[] = {{\n")
        out.write(lines("{0x%X,0x%X,%d,%d}" % row for row in rows))
        out.write(f"}};\nconst unsigned bt_tmpl_case_{name}_n = {len(rows)};\n\n")
    out.write("const bt_tmpl_case_many_t bt_tmpl_case_many[] = {\n")
    out.write(lines("{0x%X,%d,{%s}}" % (cp, number, ",".join("0x%X" % ord(c) for c in made))
                    for (cp, number), made in sorted(many.items())))
    out.write(f"}};\nconst unsigned bt_tmpl_case_many_n = {len(many)};\n\n")
    for name, which in (("cased", lambda c: c.islower() or c.isupper() or unicodedata.category(c) == "Lt"),
                        ("decimal", str.isdecimal), ("digit", lambda c: c.isdigit() and not c.isdecimal()),
                        ("numeric", lambda c: c.isnumeric() and not c.isdigit())):
        rows = ranges(which)
        out.write(f"const bt_tmpl_cp_range_t bt_tmpl_cp_{name}[] = {{\n")
        out.write(lines("{0x%X,0x%X}" % tuple(row) for row in rows))
        out.write(f"}};\nconst unsigned bt_tmpl_cp_{name}_n = {len(rows)};\n\n")


if __name__ == "__main__":
    main()
