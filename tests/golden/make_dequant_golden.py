#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make dequant.txt: blocks of every tensor type and their values in float32.

Needs the PyPI packages gguf and numpy; the result is committed, so that tests
do not. One line a vector: type number, elements, block bytes, float32 bytes
(little endian), both in hex.

    python3 make_dequant_golden.py > dequant.txt
"""
import random
import struct
import sys

import numpy as np
import gguf
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

# Where a block keeps its float16 numbers.
HALVES = {T.F16: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2],
          T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
          T.BF16: [], T.F32: []}
# Largest, smallest, subnormal, zeros and ordinary float16 numbers.
ODD_HALVES = [0x7bff, 0xfbff, 0x0001, 0x83ff, 0x0000, 0x8000, 0x3c00, 0xb555]


def block(kind, i, rng):
    n_elems, n_bytes = GGML_QUANT_SIZES[kind]
    fill = {0: b"\xff", 1: b"\x00"}.get(i)
    data = bytearray(fill * n_bytes if fill else rng.randbytes(n_bytes))
    if kind == T.F32:
        data[:] = struct.pack("<f", [0.0, -0.0, 1e-45, 3.4e38][i]
                              if i < 4 else rng.gauss(0, 1))
    if kind == T.BF16:
        data[1] &= 0xbf
    for at in HALVES[kind]:
        half = rng.choice(ODD_HALVES) if i < 6 else rng.getrandbits(16)
        if half & 0x7c00 == 0x7c00:
            half &= 0x83ff
        data[at:at + 2] = struct.pack("<H", half)
    return bytes(data)


def main():
    rng = random.Random(20260101)
    print("# made by make_dequant_golden.py with gguf " +
          __import__("importlib.metadata").metadata.version("gguf"))
    for kind in HALVES:
        n_elems, _ = GGML_QUANT_SIZES[kind]
        n_blocks = 64 if n_elems == 1 else 10 if n_elems == 32 else 7
        data = b"".join(block(kind, i, rng) for i in range(n_blocks))
        raw = np.frombuffer(data, dtype=np.uint8)
        if kind == T.F32:
            values = np.frombuffer(data, dtype=np.float32)
        elif kind == T.F16:
            values = np.frombuffer(data, dtype=np.float16).astype(np.float32)
        else:
            with np.errstate(over="ignore"):
                values = gguf.quants.dequantize(raw, kind)
        values = values.astype("<f4").reshape(-1)
        if not np.isfinite(values).all():
            sys.exit(f"{kind.name}: a value is not finite")
        print(kind.value, values.size, data.hex(), values.tobytes().hex())


if __name__ == "__main__":
    main()
