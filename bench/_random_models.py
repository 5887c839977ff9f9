# SPDX-License-Identifier: Apache-2.0
"""Models of random weights with the widths of large ones, written once by the program that writes the tests' models. They
lie in the cache, beside the peers."""
import os

import _peers
from _shared import build

# Types of the matrices, of attn_v and ffn_down, of the embedding and output.
TYPES = {"Q4_0": ("Q4_0", "Q4_0", "Q6_K"), "Q4_K_M": ("Q4_K", "Q6_K", "Q6_K"), "Q6_K": ("Q6_K",) * 3,
         "Q8_0": ("Q8_0",) * 3, "IQ4_XS": ("IQ4_XS", "IQ4_XS", "Q6_K"), "MXFP4": ("MXFP4", "MXFP4", "Q8_0"),
         "BF16": ("BF16",) * 3}
# Layers where none are told, and the widths.
SHAPES = {
    "8b": (2, ("--dim", 4096, "--heads", 32, "--kv-heads", 8, "--ffn", 14336)),
    "30b-a3b": (8, ("--architecture", "qwen3moe", "--dim", 2048, "--heads", 32, "--kv-heads", 4, "--head-dim", 128, "--ffn", 6144,
                    "--experts", 128, "--experts-used", 8, "--expert-ffn", 768)),
    "gpt-oss": (6, ("--architecture", "gpt-oss", "--dim", 2880, "--heads", 64, "--kv-heads", 8, "--head-dim", 64, "--ffn", 2880,
                    "--experts", 32, "--experts-used", 4, "--expert-ffn", 2880, "--window", 128, "--sinks")),
}


def once(path, what, argv):
    """A file that a program writes, made where it is missing. None in argv stands for its path."""
    with _peers.lock():
        if not os.path.exists(path):
            _peers.run([*argv[:1], *(path + ".part" if x is None else x for x in argv[1:])], path + ".log", what)
            os.rename(path + ".part", path)
    return path


def random_model(shape, kind, layers=None):
    """@return the path of a model of a shape and of a type's name"""
    matrices, mixed, output = TYPES[kind]
    default, widths = SHAPES[shape]
    layers = layers or default
    path = os.path.join(_peers.cache(), f"{shape}-{layers}-{kind}.gguf")
    return once(path, f"making {path}",
                [build("tiny-model", make=False), None, "--layers", layers, *widths, "--vocab", 4096, "--context", 8192,
                 "--type", matrices, "--mixed-type", mixed, "--embedding-type", output])
