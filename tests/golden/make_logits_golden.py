#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference log-probabilities of a real model, without any of Baton's code.

usage: make_logits_golden.py smollm2|gemma3 MODEL.gguf OUT.bin

Runs PyTorch transformers on the GGUF file dequantized to float32 over
accuracy_text.txt beside this script, in windows of tokens, each from position 0.
smollm2 is the default model (accuracy_logits.bin); gemma3 the file of
setup/fetch_gemma.py (accuracy_gemma.bin), whose windows are twice as long as what
its local layers see and begin with its <bos>, as it was trained; of its positions
every fourth is kept. Needs torch, transformers, tokenizers and gguf (pip).

Format (little-endian): the text "BTLOGIT2"; u32 n_windows, window, top, every,
id_bytes; with n = n_windows * window / every and an id of id_bytes
    id  tokens[n_windows * window + 1]   the last is only a target
    f32 target[n]                        log-probability of the next token
    f32 tail[n]                          mass outside the top
    id  ids[n][top]                      descending by probability
    f16 logprobs[n][top]
The rounding to f16 is under 2^-11 of each value, and moves the mean KL divergence
by what the script prints at the end.
"""
import collections
import functools
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

Case = collections.namedtuple("Case", "n_windows window top every id_bytes")
CASES = {"smollm2": Case(5, 512, 64, 1, 2), "gemma3": Case(2, 1024, 32, 4, 4)}


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


def gemma_windows(path, text, case):
    """Each <bos> and what follows of the text; one token more at the end."""
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    n = case.window - 1
    print(f"{len(ids)} tokens in the text, {case.n_windows * n + 1} used")
    parts = [[tokenizer.bos_token_id, *ids[w * n:(w + 1) * n]] for w in range(case.n_windows)]
    return np.array([*(i for part in parts for i in part), ids[case.n_windows * n]])


def smollm_windows(path, text, case):
    ids = tokenize(str(path), text)
    n = case.n_windows * case.window
    print(f"{len(ids)} tokens in the text, {n} positions used")
    assert len(ids) > n
    return np.array(ids[:n + 1])


def main():
    case = CASES[sys.argv[1]]
    model_path, out_path = Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    text = (Path(__file__).parent / "accuracy_text.txt").read_text(encoding="utf-8")
    ids = {"smollm2": smollm_windows, "gemma3": gemma_windows}[sys.argv[1]](model_path, text, case)

    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(
        str(model_path.parent), gguf_file=model_path.name, torch_dtype=torch.float32)
    model.eval()
    rows = []
    with torch.no_grad():
        for w in range(case.n_windows):
            window = torch.tensor(ids[w * case.window:(w + 1) * case.window])[None]
            kept = torch.arange(0, case.window, case.every)
            logits = model(window, logits_to_keep=kept).logits[0]
            rows.append(torch.log_softmax(logits.double(), dim=-1))
    logprobs = torch.cat(rows)

    n = len(logprobs)
    top, order = (x.numpy() for x in torch.topk(logprobs, case.top))
    target = logprobs[torch.arange(n), torch.tensor(ids[1::case.every][:n])].numpy()
    tail = 1.0 - np.exp(top).sum(axis=1)
    kept = top.astype(np.float16)
    as_id = f"<u{case.id_bytes}"
    with open(out_path, "wb") as out:
        out.write(b"BTLOGIT2" + struct.pack("<5I", *case))
        out.write(ids.astype(as_id).tobytes())
        out.write(target.astype("<f4").tobytes())
        out.write(tail.astype("<f4").tobytes())
        out.write(order.astype(as_id).tobytes())
        out.write(kept.astype("<f2").tobytes())
    print(f"perplexity {np.exp(-target.mean()):.4f}, mean tail mass {tail.mean():.4f}")
    drift = (np.exp(top) * (kept.astype(np.float64) - top)).sum(axis=1).mean()
    print(f"rounding to f16 moves the mean KL divergence by {drift:.2e}")


if __name__ == "__main__":
    main()
