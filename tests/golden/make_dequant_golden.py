#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make dequant.txt: blocks of every tensor type and their values in float32.

Needs the PyPI packages gguf and numpy; the result is committed, so that tests
do not. One line a vector: type number, elements, block bytes in hex, then the
float32 bytes (little endian) in hex, or "fnv" and their hash (FNV-1a, 64 bits).
The hashed ones name every point of the IQ types' grids, and all scales.

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
          T.BF16: [], T.F32: [], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.IQ1_S: [0], T.IQ1_M: [], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0],
          T.IQ3_XXS: [0], T.IQ3_S: [0], T.IQ4_NL: [0], T.IQ4_XS: [0],
          T.TQ1_0: [52], T.TQ2_0: [64], T.MXFP4: [], T.NVFP4: []}
# Random blocks of the hashed line. An index of a grid is in 8, 32 or 64 places.
HASHED = {T.Q2_K: 4, T.Q3_K: 4, T.IQ1_S: 64, T.IQ1_M: 8, T.IQ2_XXS: 8, T.IQ2_XS: 16,
          T.IQ2_S: 32, T.IQ3_XXS: 4, T.IQ3_S: 8, T.IQ4_NL: 8, T.IQ4_XS: 4, T.TQ1_0: 4,
          T.TQ2_0: 4, T.MXFP4: 256, T.NVFP4: 64}
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
    if kind == T.IQ1_M:  # the upper nibbles of four 16-bit numbers
        half = rng.choice(ODD_HALVES) if i < 6 else rng.getrandbits(16) & 0xbfff
        for k in range(4):
            data[49 + 2 * k] = data[49 + 2 * k] & 15 | (half >> 4 * k & 15) << 4
    if kind == T.MXFP4:
        data[0] = min(data[0], 251)  # times 12 is below 2^128
    return bytes(data)


def name_point(kind, data, n):
    """Make index n of the line's blocks point n of the grid. @return whether there is such a point"""
    def put(at, low, bits, value):
        old = int.from_bytes(data[at:at + 4].ljust(4, b"\0"), "little")
        mask = (1 << bits) - 1 << low
        new = old & ~mask | value << low & mask
        data[at:at + 4] = new.to_bytes(4, "little")[:len(data[at:at + 4])]

    per_block = {T.IQ1_S: 32, T.IQ2_XXS: 32, T.IQ2_XS: 32, T.IQ2_S: 32, T.IQ3_XXS: 64, T.IQ3_S: 64}[kind]
    at, i = n // per_block * GGML_QUANT_SIZES[kind][1], n % per_block
    if kind == T.IQ1_S:
        put(at + 2 + i, 0, 8, n & 255)
        put(at + 34 + i // 4 * 2, i % 4 * 3, 3, n >> 8)
    elif kind == T.IQ2_XXS:
        put(at + 2 + i // 4 * 8 + i % 4, 0, 8, n)
    elif kind == T.IQ2_XS:
        put(at + 2 + 2 * i, 0, 9, n)
    elif kind == T.IQ2_S:
        put(at + 2 + i, 0, 8, n & 255)
        put(at + 66 + i // 4, i % 4 * 2, 2, n >> 8)
    elif kind == T.IQ3_XXS:
        put(at + 2 + i, 0, 8, n)
    else:
        put(at + 2 + i, 0, 8, n & 255)
        put(at + 66 + i // 8, i % 8, 1, n >> 8)


def hashed(kind, rng):
    """Blocks, every point of a grid in them."""
    n_elems, n_bytes = GGML_QUANT_SIZES[kind]
    data = bytearray().join(block(kind, 6 + i, rng) for i in range(HASHED[kind]))
    if kind in (T.IQ1_S, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S):
        for n in range(gguf.quants._type_traits[kind].grid_shape[0]):
            name_point(kind, data, n)
    if kind == T.MXFP4:
        for i in range(HASHED[kind]):
            data[i * n_bytes] = min(i, 251)
    if kind == T.NVFP4:
        for i in range(4 * HASHED[kind]):
            data[i // 4 * n_bytes + i % 4] = i
    return bytes(data)


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 % 2 ** 64
    return h


def values_of(kind, data):
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
    return values


def main():
    rng = random.Random(20260101)
    print("# made by make_dequant_golden.py with gguf " +
          __import__("importlib.metadata").metadata.version("gguf"))
    for kind in HALVES:
        n_elems, _ = GGML_QUANT_SIZES[kind]
        n_blocks = 64 if n_elems == 1 else 10 if n_elems == 32 else 7 if kind not in HASHED else 2
        data = b"".join(block(kind, i, rng) for i in range(n_blocks))
        values = values_of(kind, data)
        print(kind.value, values.size, data.hex(), values.tobytes().hex())
    for kind in HASHED:
        data = hashed(kind, rng)
        values = values_of(kind, data)
        print(kind.value, values.size, data.hex(), "fnv", f"{fnv(values.tobytes()):016x}")


if __name__ == "__main__":
    main()
