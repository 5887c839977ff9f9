#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected importance matrices, computed without any of Baton's code.

usage: make_imatrix_golden.py BATON_TINY_MODEL > imatrix.txt

sum NAME N_COLUMNS TOTAL FIRST SECOND LAST   sums of squares of what a matrix of
    the tiny model of the seed 11 is given over the windows of TEXT, in float64
    by the forward pass of make_tiny_golden.py: of all columns, and three of them
gguf HEX, dat HEX   small files of both formats: by the gguf package, and as
    llama.cpp's common/imatrix-loader.cpp reads them, by struct

Needs numpy and gguf (pip).
"""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFReader, GGUFWriter

import make_tiny_golden as tiny

WINDOW = 16
N_TOKENS = 40  # the third window is not full
# No letters: in the vocabulary of the tiny model no merge has any of these.
TEXT = "".join(chr(33 + i * i % 31) for i in range(N_TOKENS))


def ids(path):
    reader = GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    for merge in reader.fields["tokenizer.ggml.merges"].contents():
        assert not set(merge) & set(TEXT), merge
    return [tokens.index(c) for c in TEXT]


def show_sums(tool):
    sums = {}

    def see(name, x):
        sums[name] = sums.get(name, 0) + (x * x).sum(axis=0)

    tiny.as_stored = tiny.bf16  # the cache of a model that reads by itself
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        subprocess.run([tool, path, "--seed", "11", "--layers", "3"], check=True)
        tokens = ids(path)
        for at in range(0, N_TOKENS - WINDOW + 1, WINDOW):
            tiny.forward(path, tokens[at:at + WINDOW], see)
    for name in sorted(sums):
        s = sums[name]
        print("sum", name, s.size, *(f"{v:.9g}" for v in (s.sum(), s[0], s[1], s[-1])))


def show_gguf():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "small.gguf")
        writer = GGUFWriter(path, "llama")
        writer.add_type("imatrix")
        writer.add_array("imatrix.datasets", ["some text"])
        writer.add_uint32("imatrix.chunk_count", 3)
        writer.add_uint32("imatrix.chunk_size", 512)
        for name, sums, counts in (("one", [[1, 2, 3, 6]], [4]), ("two", [[1, 3], [0, 0]], [2, 0])):
            writer.add_tensor(name + ".in_sum2", np.array(sums, dtype=np.float32))
            writer.add_tensor(name + ".counts", np.array(counts, dtype=np.float32).reshape(-1, 1))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with open(path, "rb") as f:
            print("gguf", f.read().hex())


def show_dat():
    out = struct.pack("<i", 2)
    for name, n_calls, sums in ((b"one", 5, (1, 2, 3, 6)), (b"two", 1, (1, 3, 0, 0))):
        out += struct.pack("<i", len(name)) + name + struct.pack(f"<ii{len(sums)}f", n_calls, len(sums), *sums)
    out += struct.pack("<ii", 3, 4) + b"text"
    print("dat", out.hex())


print("# made by make_imatrix_golden.py")
show_sums(sys.argv[1])
show_gguf()
show_dat()
