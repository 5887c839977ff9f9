#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes kernels/quant/grids.c: the points of the IQ types' grids.

Needs the PyPI package gguf, which has them from ggml's "ggml-common.h"; the
result is committed. tests/golden/dequant.txt, made by the same package, has
blocks that name every point.

    python3 make_quant_grids.py > ../../kernels/quant/grids.c
"""
from gguf import quants

# Name, class, what a point's numbers stand for.
GRIDS = (("iq2_xxs", quants.IQ2_XXS), ("iq2_xs", quants.IQ2_XS), ("iq2_s", quants.IQ2_S),
         ("iq3_xxs", quants.IQ3_XXS), ("iq3_s", quants.IQ3_S), ("iq1", quants.IQ1_S))

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Made by tests/golden/make_quant_grids.py from the tables of ggml
 * ("ggml-common.h", as the Python package gguf has them). Do not edit. */
#include "kernels/quant/grids.h"
"""


def words(cls):
    """Four points a word, each 16 bits, as the package packs them."""
    raw = bytes.fromhex(cls.grid_hex.decode())
    assert len(raw) == cls.grid_shape[0] * 2
    return [int.from_bytes(raw[i:i + 8], "little") for i in range(0, len(raw), 8)]


def main():
    print(HEAD)
    for i, (name, cls) in enumerate(GRIDS):
        list_ = words(cls)
        print(f"const uint64_t bt_grid_{name}[{len(list_)}] = {{")
        for at in range(0, len(list_), 3):
            print("    " + " ".join(f"0x{w:016x}u," for w in list_[at:at + 3]))
        print("};" + ("" if i == len(GRIDS) - 1 else "\n"))


if __name__ == "__main__":
    main()
