#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference log-probabilities of the default model, without any of Baton's code.

usage: make_logits_golden.py MODEL.gguf OUT.bin

Runs PyTorch transformers on the GGUF file dequantized to float32 over
accuracy_text.txt beside this script, in windows of 512 tokens, each from
position 0. Needs torch, transformers, tokenizers and gguf (pip).

Format (little-endian): the text "BTLOGIT1"; u32 n_windows, window, top; then
    u16 tokens[n_windows * window + 1]   the last is only a target
    f32 target[n]                        log-probability of the next token
    f32 tail[n]                          mass outside the top
    u16 ids[n][top]                      descending by probability
    f16 logprobs[n][top]
with n = n_windows * window. The rounding to f16 is under 2^-11 of each value,
and moves the mean KL divergence by what the script prints at the end.
"""
import functools
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM

WINDOW = 512
N_WINDOWS = 5
TOP = 64


@functools.cache
def tokenizer_of(path):
    """The file's own vocabulary and merges: digits one by one, then byte level."""
    reader = GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    bpe = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges)
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def tokenize(path, text):
    tokenizer = tokenizer_of(path)
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    return ids


def main():
    model_path, out_path = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    text = (Path(__file__).parent / "accuracy_text.txt").read_text(encoding="utf-8")
    ids = tokenize(str(model_path), text)
    n = N_WINDOWS * WINDOW
    print(f"{len(ids)} tokens in the text, {n} positions used")
    assert len(ids) > n
    ids = np.array(ids[:n + 1])

    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(
        str(model_path.parent), gguf_file=model_path.name, torch_dtype=torch.float32)
    model.eval()
    rows = []
    with torch.no_grad():
        for w in range(N_WINDOWS):
            window = torch.tensor(ids[w * WINDOW:(w + 1) * WINDOW])[None]
            rows.append(torch.log_softmax(model(window).logits[0].double(), dim=-1).numpy())
    logprobs = np.concatenate(rows)

    order = np.argsort(-logprobs, axis=1, kind="stable")[:, :TOP]
    top = np.take_along_axis(logprobs, order, axis=1)
    target = logprobs[np.arange(n), ids[1:]]
    tail = 1.0 - np.exp(top).sum(axis=1)
    kept = top.astype(np.float16)
    with open(out_path, "wb") as out:
        out.write(b"BTLOGIT1" + struct.pack("<3I", N_WINDOWS, WINDOW, TOP))
        out.write(ids.astype("<u2").tobytes())
        out.write(target.astype("<f4").tobytes())
        out.write(tail.astype("<f4").tobytes())
        out.write(order.astype("<u2").tobytes())
        out.write(kept.astype("<f2").tobytes())
    print(f"perplexity {np.exp(-target.mean()):.4f}, mean tail mass {tail.mean():.4f}")
    drift = (np.exp(top) * (kept.astype(np.float64) - top)).sum(axis=1).mean()
    print(f"rounding to f16 moves the mean KL divergence by {drift:.2e}")


if __name__ == "__main__":
    main()
