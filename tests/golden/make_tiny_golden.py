#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected logits of tiny models, computed without any of Baton's code.

usage: make_tiny_golden.py BATON_TINY_MODEL OUT_DIR

BATON_TINY_MODEL is the generator that the build makes. For each case a model
file is written, its tensors are dequantized by the gguf package, and the llama
forward pass is done in float64 by numpy, with keys and values rounded to
float16 as the cache stores them, and what is multiplied by quantized weights
rounded to 8 bits in groups of 16, what is multiplied by BF16 weights and in attention
to bfloat16, as kernels.h says. Needs numpy and gguf (pip).

Format of the .txt files: a line of arguments for the generator, a line of
token ids, a line of row numbers, then the logits of each of those rows.
"""
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

CASES = {
    "tiny_f32": ["--seed", "11", "--layers", "3"],
    "tiny_mixed": ["--seed", "23", "--dim", "256", "--heads", "8", "--kv-heads", "2",
                   "--ffn", "512", "--type", "Q4_K", "--mixed-type", "Q6_K",
                   "--embedding-type", "Q8_0", "--tied", "--rope-factors"],
    "tiny_q4_1": ["--seed", "24", "--dim", "96", "--heads", "3", "--kv-heads", "1",
                  "--ffn", "160", "--type", "Q4_1", "--mixed-type", "Q5_0",
                  "--embedding-type", "F16"],
    "tiny_iq4": ["--seed", "26", "--dim", "256", "--heads", "8", "--kv-heads", "2",
                 "--ffn", "512", "--type", "IQ4_XS", "--mixed-type", "IQ4_NL",
                 "--embedding-type", "MXFP4", "--tied"],
    "tiny_few_bits": ["--seed", "25", "--dim", "256", "--heads", "8", "--kv-heads", "2",
                      "--ffn", "512", "--type", "IQ2_S", "--mixed-type", "Q2_K",
                      "--embedding-type", "TQ2_0"],
    "tiny_bf16": ["--seed", "15", "--type", "BF16", "--embedding-type", "BF16", "--tied"],
    "tiny_window": ["--seed", "11", "--layers", "3", "--window", "11", "--soft-cap", "1.5",
                    "--attn-scale", "0.7"],
    "tiny_sinks": ["--seed", "11", "--layers", "3", "--sinks"],
}
TOKENS = [(i * i * 37 + 11 * i + 3) % 288 for i in range(40)]
KEPT_ROWS = [0, 1, 17, 39]


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rope(x, base, factors):
    """x (tokens, heads, dim); pairs (2i, 2i + 1) turn by pos * base^(-2i/dim)."""
    n, _, dim = x.shape
    freq = base ** (-2.0 * np.arange(dim // 2) / dim) / factors
    angle = np.arange(n)[:, None] * freq[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def as_stored(x):
    return x.astype(np.float16).astype(np.float64)


def eight_bits(x):
    """Groups of 16: codes to nearest even of x * (127 / largest), in float32."""
    groups = x.astype(np.float32).reshape(x.shape[0], -1, 16)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    codes = np.rint(groups * (np.float32(127) / largest))
    return (codes.astype(np.float64) * (largest / np.float32(127))).reshape(x.shape)


def bf16(x):
    """To nearest, ties to even: the bits of float32 that a bfloat16 has not decide."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def attention(q, k, v, scale, window, cap, sinks, slopes=None):
    """Causal, grouped: query head h reads KV head h * n_kv // n_heads. In steps of 32
    positions, whose weights are relative to the largest score so far and become bfloat16.
    window: a position sees itself and the window - 1 before it; 0: all before it.
    sinks: of each query head a score without a value, or None. slopes: of each query head what
    a score loses for each position that its key lies before the row, or None."""
    n, n_heads, dim = q.shape
    n_kv = k.shape[1]
    out = np.zeros_like(q)
    q, k, v = bf16(q), bf16(k), bf16(v)
    apart = np.arange(n)[:, None] - np.arange(n)[None, :]
    seen = (apart >= 0) & ((window == 0) | (apart < window))
    for h in range(n_heads):
        g = h * n_kv // n_heads
        scores = q[:, h] @ k[:, g].T * scale
        scores = cap * np.tanh(scores / cap) if cap else scores
        scores = np.where(seen, scores if slopes is None else scores - slopes[h] * apart, -np.inf)
        largest, total = np.full((n, 1), -np.inf), np.zeros((n, 1))
        if sinks is not None:
            largest, total = np.full((n, 1), sinks[h]), np.ones((n, 1))
        for at in range(0, n, 32):
            rows = seen[:, at:at + 32].any(axis=1)  # the others see nothing of this step
            step = scores[rows, at:at + 32]
            now = np.maximum(largest[rows], step.max(axis=1, keepdims=True))
            weights, correction = np.exp(step - now), np.exp(largest[rows] - now)
            total[rows] = total[rows] * correction + weights.sum(axis=1, keepdims=True)
            out[rows, h] = out[rows, h] * correction + bf16(weights) @ v[at:at + 32, g]
            largest[rows] = now
        out[:, h] /= total
    return out.reshape(n, n_heads * dim)


def forward(path, tokens, see=lambda name, x: None):
    """see: is given what each matrix is multiplied with (tokens, columns), before it."""
    reader = GGUFReader(path)
    w = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    rounding = {"F32": lambda x: x, "F16": lambda x: x, "BF16": bf16}

    def times(x, name):
        see(name, x)
        return rounding.get(kinds[name], eight_bits)(x) @ w[name].T

    def key(name, default=None):
        field = reader.fields.get("llama." + name)
        return default if field is None else field.contents()

    n_layers, n_heads = key("block_count"), key("attention.head_count")
    n_kv = key("attention.head_count_kv")
    eps = key("attention.layer_norm_rms_epsilon")
    dim = key("embedding_length") // n_heads
    scale = key("attention.scale", 1 / math.sqrt(dim))
    window, cap = key("attention.sliding_window", 0), key("attn_logit_softcapping", 0)
    factors = w.get("rope_freqs.weight", np.ones(dim // 2))
    n = len(tokens)

    x = w["token_embd.weight"][tokens]
    for layer in range(n_layers):
        def m(name):
            return w[f"blk.{layer}.{name}.weight"]

        def mul(x, name):
            return times(x, f"blk.{layer}.{name}.weight")

        h = rms_norm(x, m("attn_norm"), eps)
        q = rope(mul(h, "attn_q").reshape(n, n_heads, dim), key("rope.freq_base"), factors)
        k = rope(mul(h, "attn_k").reshape(n, n_kv, dim), key("rope.freq_base"), factors)
        v = mul(h, "attn_v").reshape(n, n_kv, dim)
        sinks = w.get(f"blk.{layer}.attn_sinks.weight")
        heads = attention(q, as_stored(k), as_stored(v), scale, window, cap, sinks)
        x = x + mul(heads, "attn_output")
        h = rms_norm(x, m("ffn_norm"), eps)
        gate, up = mul(h, "ffn_gate"), mul(h, "ffn_up")
        x = x + mul(gate / (1.0 + np.exp(-gate)) * up, "ffn_down")
    x = rms_norm(x, w["output_norm.weight"], eps)
    return times(x, "output.weight" if "output.weight" in w else "token_embd.weight")


def main():
    tool, out_dir = sys.argv[1], Path(sys.argv[2])
    for name, args in CASES.items():
        with tempfile.TemporaryDirectory() as tmp:
            path = str(Path(tmp) / "tiny.gguf")
            subprocess.run([tool, path, *args], check=True)
            logits = forward(path, TOKENS)
        lines = [" ".join(args), " ".join(map(str, TOKENS)), " ".join(map(str, KEPT_ROWS))]
        lines += [" ".join(f"{v:.9g}" for v in logits[row]) for row in KEPT_ROWS]
        (out_dir / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
