#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: embed.py OUT FILE...: the files of the page as a table in C, for page.h.

A file is named by its last part. Each has its bytes, the same packed by gzip, and a
tag that tells one content from another. The same files give the same table.
"""
import gzip
import hashlib
import os
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def write_bytes(out, name, data):
    out.write(f"static const unsigned char {name}[] = {{\n")
    for at in range(0, len(data), 20):
        out.write("".join(f"{b:d}," for b in data[at:at + 20]) + "\n")
    out.write("};\n")


def main():
    rows = []
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write('#include "router/page/page.h"\n\n')
        for i, path in enumerate(sorted(sys.argv[2:], key=os.path.basename)):
            name = os.path.basename(path)
            with open(path, "rb") as file:
                plain = file.read()
            packed = gzip.compress(plain, 9, mtime=0)
            write_bytes(out, f"plain_{i}", plain)
            write_bytes(out, f"packed_{i}", packed)
            tag = hashlib.sha256(plain).hexdigest()[:20]
            kind = TYPES[os.path.splitext(name)[1]]
            rows.append(f'    {{"{name}", "{kind}", "\\"{tag}\\"", "\\"{tag}-gz\\"",\n'
                        f"     plain_{i}, sizeof(plain_{i}), packed_{i}, sizeof(packed_{i})}},\n")
        out.write("const bt_page_file_t bt_page_files[] = {\n" + "".join(rows) + "};\n")
        out.write(f"const size_t bt_page_n_files = {len(rows)};\n")


if __name__ == "__main__":
    main()
