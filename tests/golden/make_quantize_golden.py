#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make quantize.txt: rows of numbers, and how well others quantize them.

Needs the PyPI packages gguf and numpy, and the libggml-base.so that the PyPI
package llama-cpp-python builds; the result is committed, so that tests do not.

    NAME.0 HEX, NAME.1 HEX  a row of 256 float32, little endian, in halves
    error TYPE NAME ERROR   the squared error, summed over the row, of ggml's
                            ggml_quantize_chunk() (read by gguf's dequantize()),
                            and of gguf's quantize() where it has the type: the
                            smaller

    python3 make_quantize_golden.py .../llama_cpp/lib/libggml-base.so > quantize.txt
"""
import ctypes
import importlib.metadata
import sys

import numpy as np
import gguf
from gguf.constants import GGMLQuantizationType as T

TYPES = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K, T.MXFP4]


def rows():
    rng = np.random.default_rng(20261125)
    normal = rng.normal(size=256)
    outlier = rng.normal(size=256)
    outlier[[7, 130]] = [40, -55]
    return {
        "normal": 0.02 * normal,
        "laplace": rng.laplace(size=256),
        "uniform": rng.uniform(-1, 1, size=256),
        "positive": rng.uniform(0.5, 3, size=256),
        "negative": -rng.exponential(size=256) - 1,
        "heavy": rng.standard_t(2, size=256),
        "outlier": outlier,
        "tiny": 1e-5 * rng.normal(size=256),
        "groups": rng.normal(size=256) * np.repeat(2.0 ** rng.integers(-8, 8, size=16), 16),
        "sparse": rng.normal(size=256) * (rng.uniform(size=256) < 0.1),
    }


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    print("# made by make_quantize_golden.py with gguf " + importlib.metadata.version("gguf") +
          " and llama-cpp-python 0.3.36")
    every = {name: np.ascontiguousarray(x, dtype="<f4") for name, x in rows().items()}
    for name, x in every.items():
        for half in range(2):
            print(f"{name}.{half}", x[half * 128:][:128].tobytes().hex())
    for kind in TYPES:
        for name, x in every.items():
            n_elems, n_bytes = gguf.constants.GGML_QUANT_SIZES[kind]
            out = np.zeros(x.size // n_elems * n_bytes, dtype=np.uint8)
            ggml.ggml_quantize_chunk(ctypes.c_int(kind.value), x.ctypes.data_as(ctypes.c_void_p),
                                     out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0), ctypes.c_int64(1),
                                     ctypes.c_int64(x.size), None)
            made = [out]
            try:
                made.append(gguf.quants.quantize(x, kind))
            except NotImplementedError:
                pass
            wide = x.astype(np.float64)
            error = min(np.sum((gguf.quants.dequantize(m, kind).astype(np.float64).reshape(-1) - wide) ** 2)
                        for m in made)
            print("error", kind.name, name, repr(float(error)))


main()
