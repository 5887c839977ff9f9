#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the adapter fuzz target. usage: make_adapter_corpus.py FOLDER"""
import json
import struct
import sys
from pathlib import Path

import make_gguf_corpus as gguf
import make_hf_corpus as hf

SIZES = {"q_proj": (8, 8), "k_proj": (8, 4), "v_proj": (8, 4), "o_proj": (8, 8), "gate_proj": (8, 12),
         "up_proj": (8, 12), "down_proj": (12, 8)}
TYPES = {"F32": 4, "F16": 2, "BF16": 2}


def module(layer, name):
    return f"model.layers.{layer}.{'self_attn' if name[0] in 'qkvo' else 'mlp'}.{name}"


def folder(modules, rank=2, dtype="F32", b_dtype=None, **config):
    """adapter_config.json, a zero byte and adapter_model.safetensors of (layer, module) pairs."""
    header, data = {}, b""
    for layer, name in modules:
        n_in, n_out = SIZES[name]
        for side, shape, kind in (("A", [rank, n_in], dtype), ("B", [n_out, rank], b_dtype or dtype)):
            size = shape[0] * shape[1] * TYPES[kind]
            header[f"base_model.model.{module(layer, name)}.lora_{side}.weight"] = hf.one(kind, shape, size, len(data))
            data += bytes(i % 60 for i in range(size))
    config = {"peft_type": "LORA", "lora_alpha": 4, "r": rank, "target_modules": ["q_proj"], "bias": "none", **config}
    return json.dumps(config).encode() + b"\0" + hf.safetensors(header, data)


def file(pairs, rank=2, kind=0, alpha=4.0):
    """A GGUF adapter of (tensor, (n_in, n_out)) pairs."""
    head = [gguf.scalar("general.architecture", gguf.STRING, "llama"),
            gguf.scalar("general.type", gguf.STRING, "adapter"), gguf.scalar("adapter.type", gguf.STRING, "lora"),
            gguf.scalar("adapter.lora.alpha", gguf.F32, alpha)]
    tensors, data = [], b""
    for name, (n_in, n_out) in pairs:
        for side, dims in (("a", [n_in, rank]), ("b", [rank, n_out])):
            tensors.append(gguf.tensor(f"{name}.weight.lora_{side}", dims, kind, len(data)))
            data += struct.pack("<f", 0.5)[2 if kind else 0:] * (dims[0] * dims[1])
            data += bytes(-len(data) % 32)
    return gguf.build(head, tensors, data)


def npy(kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data


def tensors(rows, kind="<f4", size=4, columns=3, width=None):
    """model.lora_weights.npy and model.lora_config.npy of (module id, layer, rank, n_in, n_out) rows."""
    width = width or max(rank * (n_in + n_out) for _, _, rank, n_in, n_out in rows)
    config = b"".join(struct.pack(f"<{columns}i", *[module, layer, rank, 0][:columns])
                      for module, layer, rank, _, _ in rows)
    return (npy(kind, (1, len(rows), width), bytes(i % 60 for i in range(len(rows) * width * size))) +
            npy("<i4", (1, len(rows), columns), config))


def packed(parts):
    """"PACK" and parts (layer, product, rank, n_in, n_out, type) of an adapter."""
    out = b"PACK" + struct.pack("<I", len(parts))
    for layer, product, rank, n_in, n_out, kind in parts:
        out += struct.pack("<6If", layer, product, rank, n_in, n_out, kind, 0.5)
        out += bytes(i % 60 for i in range(rank * (n_in + n_out) * (2 if kind else 4)))
    return out


SEEDS = {
    "tensors_attention": tensors([(1, 0, 2, 8, 8), (2, 0, 2, 8, 4), (3, 1, 1, 8, 4), (4, 1, 2, 8, 8)]),
    "tensors_ffn": tensors([(5, 0, 2, 8, 12), (7, 0, 2, 8, 12), (6, 1, 2, 12, 8)], kind="<f2", size=2, columns=4),
    "tensors_fused": tensors([(0, 0, 2, 8, 16), (18, 1, 2, 8, 24)], kind="|V2", size=2),
    "tensors_wrong": tensors([(9, 7, 100, 8, 8)]),
    "packed": packed([(0, 0, 2, 8, 8, 0), (1, 6, 3, 12, 8, 30)]),
    "packed_wrong": packed([(9, 0, 2, 8, 8, 0)]),
    "attention": folder([(0, "q_proj"), (1, "v_proj")]),
    "all_linear": folder([(1, name) for name in SIZES], dtype="BF16", use_rslora=True),
    "two_types": folder([(0, "down_proj")], dtype="F16", b_dtype="F32"),
    "alpha_pattern": folder([(0, "q_proj"), (0, "k_proj")], alpha_pattern={"layers.0.self_attn.q_proj": 8, "^x$": 1}),
    "rank_8": folder([(0, "o_proj")], rank=8),
    "rank_9": folder([(0, "o_proj")], rank=9),
    "dora": folder([(0, "q_proj")], use_dora=True),
    "init_pissa": folder([(0, "q_proj")], init_lora_weights="pissa"),
    "layer_2": folder([(2, "q_proj")]),
    "gguf_two": file([("blk.0.attn_q", (8, 8)), ("blk.1.ffn_down", (12, 8))]),
    "gguf_bf16": file([("blk.1.attn_output", (8, 8))], kind=30),
    "gguf_fused": file([("blk.0.attn_qkv", (8, 16)), ("blk.0.ffn_up", (8, 24))]),
    "gguf_layer": file([("blk.4294967295.attn_q", (8, 8))]),
}


def main():
    for name, content in SEEDS.items():
        (Path(sys.argv[1]) / name).write_bytes(content)


if __name__ == "__main__":
    main()
