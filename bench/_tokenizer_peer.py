#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face tokenizers library on one thread, for bench/tokenizer.py.

Usage: _tokenizer_peer.py MODEL.gguf
The commands and answers are those of _tokenizer_rate.c; a first line tells the
library's version once the vocabulary is read. Needs the package tokenizers.
"""
import struct
import sys
import time

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4
SCALARS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"llama-bpe": LLAMA3, "qwen2": LLAMA3.replace("{1,3}", "")}


class Gguf:
    """The metadata of a GGUF file, version 3."""

    def __init__(self, path):
        with open(path, "rb") as self.file:
            if self.file.read(4) != b"GGUF":
                sys.exit(f"{path} is no GGUF file")
            self.scalar("<I")
            self.scalar("<Q")
            self.fields = {}
            for _ in range(self.scalar("<Q")):
                key = self.value(STRING)
                self.fields[key] = self.value(self.scalar("<I"))

    def scalar(self, form):
        return struct.unpack(form, self.file.read(struct.calcsize(form)))[0]

    def value(self, kind):
        if kind == STRING:
            return self.file.read(self.scalar("<Q")).decode("utf-8", errors="replace")
        if kind == ARRAY:
            inner = self.scalar("<I")
            return [self.value(inner) for _ in range(self.scalar("<Q"))]
        return self.scalar(SCALARS[kind])


def pretok(name):
    if name in PATTERNS:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    sys.exit(f"pre-tokenizer {name} is not one that this script knows")


def load(path):
    fields = Gguf(path).fields
    if fields.get("tokenizer.ggml.model") != "gpt2":
        sys.exit("only byte-level BPE vocabularies can be compared")
    tokens, types, merges = (fields["tokenizer.ggml." + k] for k in ("tokens", "token_type", "merges"))
    name = fields["tokenizer.ggml.pre"]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges],
                               ignore_merges=(name == "llama-bpe")))
    tok.pre_tokenizer = pretok(name)
    tok.add_special_tokens([AddedToken(t, normalized=False) for t, y in zip(tokens, types) if y == CONTROL])
    tok.add_tokens([AddedToken(t, normalized=False) for t, y in zip(tokens, types) if y == USER_DEFINED])
    return tok


def pieces_of(text, most):
    """Cut as _tokenizer_rate.c does: between characters, at most so many bytes."""
    out, at = [], 0
    while at < len(text):
        end = len(text) if most == 0 or len(text) - at <= most else at + most
        while end < len(text) and text[end] & 0xC0 == 0x80:
            end -= 1
        out.append(text[at:end].decode("utf-8"))
        at = end
    return out


def encode(tok, piece):
    # The variant that keeps no offsets is quicker, and is what we do too.
    fast = getattr(tok, "encode_batch_fast", tok.encode_batch)
    return fast([piece], add_special_tokens=False)[0].ids


def measure(tok, seconds, most, special, path):
    with open(path, "rb") as f:
        text = f.read()
    pieces = pieces_of(text, most)
    tok.encode_special_tokens = not special
    total, fnv = 0, 0xCBF29CE484222325
    for piece in pieces:
        ids = encode(tok, piece)
        total += len(ids)
        for i in ids:
            fnv = ((fnv ^ i) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    times = []
    start = time.process_time_ns()
    while not times or time.process_time_ns() - start < seconds * 1e9:
        before = time.process_time_ns()
        for piece in pieces:
            encode(tok, piece)
        times.append(time.process_time_ns() - before)
    print(len(text), total, f"{fnv:016x}", 0, 0, 0, *times, flush=True)


def main():
    tok = load(sys.argv[1])
    print(f"tokenizers {tokenizers.__version__}", flush=True)
    for line in sys.stdin:
        seconds, most, flags, _, path = line.rstrip("\n").split(" ", 4)  # it cannot forget: always warm
        measure(tok, float(seconds), int(most), int(flags) & 2 != 0, path)


if __name__ == "__main__":
    main()
