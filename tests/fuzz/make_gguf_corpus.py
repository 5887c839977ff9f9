#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the gguf fuzz target. usage: make_gguf_corpus.py FOLDER"""
import struct
import sys
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B",
         U64: "Q", I64: "q", F64: "d"}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    return text(v) if kind == STRING else struct.pack("<" + CODES[kind], v)


def scalar(key, kind, v):
    return text(key) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, items):
    return (text(key) + struct.pack("<IIQ", ARRAY, kind, len(items)) +
            b"".join(value(kind, v) for v in items))


def tensor(name, dims, kind, offset):
    return (text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) +
            struct.pack("<IQ", kind, offset))


def build(kvs, tensors=(), data=b"", version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(kvs))
    head += b"".join(kvs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


HPARAMS = [
    scalar("general.architecture", STRING, "llama"),
    scalar("llama.block_count", U32, 2),
    scalar("llama.context_length", U32, 128),
    scalar("llama.embedding_length", U32, 32),
    scalar("llama.feed_forward_length", U32, 64),
    scalar("llama.attention.head_count", U32, 4),
    scalar("llama.attention.head_count_kv", U32, 2),
    scalar("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
    scalar("llama.rope.freq_base", F32, 10000.0),
    scalar("llama.rope.dimension_count", U32, 8),
]


def part(no, count, total, tensors, data, before=()):
    """A model's part as gguf-split writes it."""
    return build([*before, scalar("split.no", U16, no), scalar("split.count", U16, count),
                  scalar("split.tensors.count", I32, total)], tensors, data)


def of_family(name, eps="attention.layer_norm_rms_epsilon"):
    """HPARAMS under another architecture's name."""
    renamed = [scalar("general.architecture", STRING, name)]
    for key, kind, v in (("block_count", U32, 2), ("context_length", U32, 128), ("embedding_length", U32, 32),
                         ("feed_forward_length", U32, 64), ("attention.head_count", U32, 4), (eps, F32, 1e-5)):
        renamed.append(scalar(f"{name}.{key}", kind, v))
    return renamed


SEEDS = {
    "windows": build(
        of_family("gemma2") + [scalar("gemma2.attention.sliding_window", U32, 16),
                               scalar("gemma2.attn_logit_softcapping", F32, 50.0),
                               scalar("gemma2.final_logit_softcapping", F32, 30.0),
                               array("gemma2.attention.sliding_window_pattern", BOOL, [1, 0])],
        [tensor("token_embd.weight", (32, 4), 0, 0)], bytes(32 * 4 * 4)),
    "yarn": build(
        of_family("gptneox", "attention.layer_norm_epsilon") + [
            scalar("gptneox.use_parallel_residual", BOOL, 0),
            scalar("gptneox.rope.dimension_count", U32, 4),
            scalar("gptneox.rope.scaling.type", STRING, "yarn"),
            scalar("gptneox.rope.scaling.factor", F32, 4.0),
            scalar("gptneox.rope.scaling.yarn_beta_fast", F32, 32.0),
            scalar("gptneox.rope.scaling.original_context_length", U32, 32)],
        [tensor("token_embd.weight", (32, 4), 0, 0)], bytes(32 * 4 * 4)),
    "empty_file": build([]),
    "one_of_each": build([
        scalar("a", U8, 1), scalar("b", I8, -1), scalar("c", U16, 2), scalar("d", I16, -2),
        scalar("e", U32, 3), scalar("f", I32, -3), scalar("g", F32, 1.5), scalar("bool", BOOL, 1),
        scalar("h", U64, 4), scalar("i", I64, -4), scalar("j", F64, 2.5),
        scalar("general.architecture", STRING, "llama"),
        array("strs", STRING, ["a", "", "bcd"]), array("ints", I32, [-1, 0, 1]),
        array("floats", F32, [0.5, 1.5]), array("tokenizer.ggml.scores", F64, [0.5])]),
    "hparams": build(
        HPARAMS + [array("tokenizer.ggml.tokens", STRING, ["a", "b", "c", "d"]),
                   array("tokenizer.ggml.merges", STRING, ["a b"])],
        [tensor("token_embd.weight", (32, 4), 8, 0)], bytes(34 * 4)),
    "linear_rope": build(
        HPARAMS + [scalar("llama.rope.scaling.type", STRING, "linear"),
                   scalar("llama.rope.scaling.factor", F32, 4.0),
                   scalar("llama.attention.key_length", U32, 8)],
        [tensor("token_embd.weight", (32, 4), 0, 0)], bytes(32 * 4 * 4)),
    "experts": build(HPARAMS + [scalar("llama.expert_count", U32, 8)]),
    "other_architecture": build([scalar("general.architecture", STRING, "mamba")]),
    "two_tensors": build(
        [scalar("general.alignment", U32, 64)],
        [tensor("x", (8,), 0, 64), tensor("y", (4, 2, 1, 1), 1, 0)],
        bytes(range(96)), alignment=64),
    "k_quant": build([], [tensor("k", (256, 2), 14, 0)], bytes(420)),
    "two_parts": part(0, 2, 2, [tensor("x", (8,), 0, 0)], bytes(32), HPARAMS)
    + part(1, 2, 2, [tensor("y", (256,), 23, 0)], bytes(160)),
    "three_parts": part(0, 3, 2, [], b"", HPARAMS) + part(1, 3, 2, [tensor("x", (8,), 0, 0)], bytes(32))
    + part(2, 3, 2, [tensor("y", (8,), 0, 0)], bytes(32)),
    "part_of_another": part(0, 2, 2, [tensor("x", (8,), 0, 0)], bytes(32))
    + part(1, 2, 3, [tensor("y", (8,), 0, 0)], bytes(32)),
    "part_twice": 2 * part(0, 2, 2, [tensor("x", (8,), 0, 0)], bytes(32)),
    "part_alone": part(1, 2, 2, [tensor("x", (8,), 0, 0)], bytes(32)),
    "name_in_both_parts": part(0, 2, 2, [tensor("x", (8,), 0, 0)], bytes(32))
    + part(1, 2, 2, [tensor("x", (8,), 0, 0)], bytes(32)),
    "unknown_type": build([], [tensor("k", (256, 2), 15, 0)], bytes(300)),
    "nested_array": build([text("n") + struct.pack("<IIQ", ARRAY, ARRAY, 1) +
                           struct.pack("<IQ", U8, 1) + b"\0"]),
    "version_2": build([], version=2),
    "big_endian": build([], version=0x03000000),
    "many_keys_claimed": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63),
    "long_string": build([text("k") + struct.pack("<IQ", STRING, 2**64 - 1) + b"abc"]),
}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
