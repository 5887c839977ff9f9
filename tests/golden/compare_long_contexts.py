#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits at the end of a context of 131,072 tokens, without any of Baton's code.

usage: compare_long_contexts.py BUILD_DIR [--tokens N] [CASE ...]

Small models of one layer, so that what a position sees of all others can be computed for the last positions alone: numpy
in float64 with the roundings of kernels.h (make_family_golden.py), in steps of 32 positions as there. Baton's logits
(baton-model-logits) of the last 64 positions must be the same to 1e-4: those of a row where a number lies near half way
between two codes are not, in float32, and one of a key may be seen by many, so that three of four rows is what must hold. Needs numpy and gguf.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from make_family_golden import Model
from make_tiny_golden import bf16

KEEP, CLOSE, TILE = 64, 1e-4, 32
TRAINED = "rope.scaling.original_context_length=u:4096"
CASES = {
    "llama": ["--rope-factors", "--kv-heads", "2"],
    "mistral": ["--window", "4096"],
    "yarn": ["--key", "rope.scaling.type=s:yarn", "--key", "rope.scaling.factor=f:32", "--key", TRAINED],
    "phi3": ["--architecture", "phi3", "--long-factors", "--key", "rope.scaling.type=s:longrope", "--key", TRAINED,
             "--key", "rope.scaling.attn_factor=f:1.19"],
    "ministral3": ["--architecture", "mistral3", "--key", "rope.scaling.type=s:yarn", "--key", "rope.scaling.factor=f:32",
                   "--key", TRAINED, "--key", "rope.scaling.yarn_log_multiplier=f:1",
                   "--key", "attention.temperature_scale=f:0.1"],
    "gemma3": ["--architecture", "gemma3", "--tied", "--window", "1024", "--key", "attention.sliding_window_pattern=p:0",
               "--key", "rope.freq_base_swa=f:10000", "--key", "rope.scaling.type=s:linear",
               "--key", "rope.scaling.factor=f:8"],
    "bloom": ["--architecture", "bloom", "--heads", "6", "--kv-heads", "6", "--dim", "48", "--ffn", "96", "--tied"],
}


class Far(Model):
    """Attention of the last positions alone; that of the others is 0."""

    def attend(self, q, k, v, scale, window, cap):
        n, n_heads, _ = q.shape
        out = np.zeros_like(q)
        q, k, v = bf16(q[-KEEP:]), bf16(self.stored(k)), bf16(self.stored(v))
        for h in range(n_heads):
            g = h * k.shape[1] // n_heads
            for i, row in enumerate(range(n - KEEP, n)):
                first = max(0, row + 1 - window) if window else 0
                scores = np.full(-(-n // TILE) * TILE, -np.inf)
                scores[first:row + 1] = k[first:row + 1, g] @ q[i, h] * scale
                if cap:
                    scores = cap * np.tanh(scores / cap)
                if self.slopes() is not None:
                    scores[first:row + 1] -= self.slopes()[h] * (row - np.arange(first, row + 1))
                out[row, h] = online(scores.reshape(-1, TILE), v[:, g])
        return out.reshape(n, -1)


def online(scores, v):
    """Of one row, in tiles: weights are relative to the largest score so far, and become bfloat16."""
    most = np.maximum.accumulate(scores.max(axis=1))
    used = np.isfinite(most)
    scores, most = scores[used], most[used]
    weights = np.exp(scores - most[:, None])
    factor = np.exp(most - most[-1])
    values = np.zeros((len(used) * TILE, v.shape[1]))
    values[:len(v)] = v
    values = values.reshape(-1, TILE, v.shape[1])[used]
    total = (weights.sum(axis=1) * factor).sum()
    return np.einsum("t,tj,tjd->d", factor, bf16(weights), values) / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_intermixed_args()
    tools = Path(args.build) / "tests/support"
    tokens = np.random.default_rng(7).integers(3, 288, args.tokens)
    bad = False
    for name in args.cases or CASES:
        with tempfile.TemporaryDirectory() as d:
            path = str(Path(d) / "tiny.gguf")
            subprocess.run([tools / "baton-tiny-model", path, "--layers", "1", "--dim", "32", "--ffn", "64", "--kv-heads",
                            "1", "--context", str(args.tokens), *CASES[name]], check=True)
            run = subprocess.run([tools / "baton-model-logits", path, str(args.tokens), str(KEEP)], check=True,
                                 input=" ".join(map(str, tokens)).encode(), capture_output=True)
            got = np.frombuffer(run.stdout, np.float32).reshape(KEEP, -1)
            m = Far(path, False, bf16, args.tokens)
            want = m.output(m.layer(m.embed(tokens), 0)[-KEEP:])
        apart = np.abs(want - got).max(axis=1)
        good = (apart < CLOSE).mean() >= 0.75 and apart.max() < 0.05
        bad |= not good
        print(f"{name:12} {args.tokens} tokens: median {np.median(apart):.1e}, most {apart.max():.1e}, "
              f"{(apart < CLOSE).sum()} of {KEEP} rows{'' if good else '  FAILED'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
