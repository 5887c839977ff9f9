# SPDX-License-Identifier: Apache-2.0
"""The bytes of a model's tokens, from its GGUF file alone (the GGUF specification, and GPT-2's table of bytes as characters)."""
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
NORMAL, BYTE = 1, 6  # types of tokens with text; the others are special


def byte_characters():
    """@return {character: byte} of byte-level BPE: printable characters are themselves, the rest follows U+0100"""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [b for b in range(256) if b not in kept]
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(rest)}


def keys_of(path):
    """@return the metadata of a GGUF file"""
    with open(path, "rb") as file:
        def take(code):
            return struct.unpack("<" + code, file.read(struct.calcsize(code)))[0]

        def value(kind):
            if kind == STRING:
                return file.read(take("Q")).decode()
            if kind == ARRAY:
                of, n = take("I"), take("Q")
                return [value(of) for _ in range(n)]
            return take(SCALARS[kind])

        if file.read(4) != b"GGUF":
            raise ValueError(f"{path} is no GGUF file")
        _, _, n_keys = take("I"), take("Q"), take("Q")
        return {value(STRING): value(take("I")) for _ in range(n_keys)}


def read(path):
    """@return (bytes of each token, none where it is special; ids that end an answer)"""
    keys = keys_of(path)
    if keys["tokenizer.ggml.model"] != "gpt2":
        raise ValueError(f"{path} has no byte-level tokens")
    bytes_of = byte_characters()
    tokens = [bytes(bytes_of[c] for c in text) if kind in (NORMAL, BYTE) else b""
              for text, kind in zip(keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"])]
    return tokens, [keys["tokenizer.ggml.eos_token_id"]]
