#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the packed fuzz target. usage: make_packed_corpus.py FOLDER

XXH3 is not in Python's library, so the sums are zeros; the target makes them fit.
"""
import struct
import sys
from pathlib import Path

MAGIC, FORMAT, DATA_AT, ALIGN = 0x3154475750544142, 1, 4096, 64


def build(pieces, format_version=FORMAT, magic=MAGIC, n_pieces=None):
    """pieces: [(name, type, n_out, n_in, data)]"""
    data, entries, names = b"", b"", b""
    for name, kind, n_out, n_in, content in pieces:
        data += bytes(-len(data) % ALIGN)
        entries += struct.pack("<QQIIIIII", DATA_AT + len(data), len(content), kind, n_out, n_in,
                               len(names), len(name), 0)
        data += content
        names += name
    data += bytes(-len(data) % ALIGN)
    table = entries + bytes(16) + names
    head = struct.pack("<QII32sIIQ16s", magic, format_version, len(pieces) if n_pieces is None else n_pieces,
                       b"q8-seq1", 2, 0, 1000, bytes(16))
    head += struct.pack("<16sQqq", bytes(16), 1, 2, 3)
    head += struct.pack("<QQ16s16s", DATA_AT + len(data), len(table), bytes(16), bytes(16))
    return head + bytes(DATA_AT - len(head)) + data + table


SEEDS = {
    "empty": b"",
    "no_pieces": build([]),
    "one_piece": build([(b"w", 3, 32, 64, b"\x01" * 64)]),
    "four_pieces": build([(b"blk.%d.w" % i, 2 + i, 32, 64 + i, bytes([i]) * (65 + i)) for i in range(4)]),
    "same_names": build([(b"w", 3, 32, 64, b"\x01" * 64)] * 2),
    "long_name": build([(b"n" * 255, 3, 32, 64, b"\x01")]),
    "too_long_name": build([(b"n" * 256, 3, 32, 64, b"\x01")]),
    "zero_in_name": build([(b"w\0x", 3, 32, 64, b"\x01")]),
    "many_pieces_claimed": build([(b"w", 3, 32, 64, b"\x01" * 64)], n_pieces=0xFFFFFFFF),
    "other_format": build([], format_version=2),
    "other_magic": build([], magic=MAGIC + 1),
}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
