# SPDX-License-Identifier: Apache-2.0
"""A GGUF file of a model that says what it is told to: for tests of what becomes of a model's words.

Every piece of a script is a token of its own, though others may have the same text, and the token that comes next hangs on the last one alone: its layer does
nothing, token i has a random vector, and the output row of its successor has the same. So a prompt's last character
says which script is drawn, and the last piece of a script is followed by the end.
"""
import struct

import numpy as np

DIM, HEADS, FFN, CONTEXT = 256, 4, 32, 2048
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
NORMAL, CONTROL = 1, 3
ALIGNMENT = 32


def alphabet():
    """GPT-2's letters for bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {b: chr(b) for b in printable}
    for i, b in enumerate(x for x in range(256) if x not in letters):
        letters[b] = chr(0x100 + i)
    return letters


def pieces_of(text, specials, step=3):
    """Cut a text: special tokens whole, the rest every few bytes, also within characters."""
    data, pieces = text.encode(), []
    while data:
        special = next((s for s in specials if data.startswith(s.encode())), None)
        if special:
            pieces.append(special)
            data = data[len(special.encode()):]
            continue
        n = min([step] + [i for s in specials if (i := data.find(s.encode())) > 0])
        pieces.append(data[:n])
        data = data[n:]
    return pieces


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pairs_of(tokens, types, context):
    def number(kind, code, value):
        return struct.pack("<I" + code, kind, value)

    def array(kind, items):
        return struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)

    sizes = {"block_count": 1, "context_length": context, "embedding_length": DIM, "feed_forward_length": FFN,
             "attention.head_count": HEADS, "attention.head_count_kv": HEADS, "rope.dimension_count": DIM // HEADS,
             "vocab_size": len(tokens)}
    pairs = {"general.architecture": struct.pack("<I", STRING) + string("llama"),
             "general.alignment": number(U32, "I", ALIGNMENT)}
    pairs.update({f"llama.{k}": number(U32, "I", v) for k, v in sizes.items()})
    pairs.update({"llama.attention.layer_norm_rms_epsilon": number(F32, "f", 1e-5),
                  "llama.rope.freq_base": number(F32, "f", 10000.0),
                  "tokenizer.ggml.model": struct.pack("<I", STRING) + string("gpt2"),
                  "tokenizer.ggml.pre": struct.pack("<I", STRING) + string("smollm"),
                  "tokenizer.ggml.tokens": array(STRING, [string(t) for t in tokens]),
                  "tokenizer.ggml.token_type": array(I32, [struct.pack("<i", t) for t in types]),
                  "tokenizer.ggml.merges": array(STRING, [string("\u0120 t")]),
                  "tokenizer.ggml.bos_token_id": number(U32, "I", 1),
                  "tokenizer.ggml.eos_token_id": number(U32, "I", 2)})
    return pairs


def vocabulary():
    """Each byte a token, behind three special ones, and one more for the only merge."""
    letters = alphabet()
    return ["<unk>", "<s>", "</s>", *letters.values(), "\u0120t"], [CONTROL] * 3 + [NORMAL] * 257, letters


def header(pairs, n_tensors):
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(pairs)) + b"".join(string(k) + v for k, v in pairs.items())


def write_vocabulary(path, name, template, context=1 << 20):
    """A model without tensors: a router's, for what needs no worker; another file for each name. @return the bytes of
    each id"""
    tokens, types, letters = vocabulary()
    pairs = pairs_of(tokens, types, context)
    pairs["general.name"] = struct.pack("<I", STRING) + string(name)
    pairs["tokenizer.chat_template"] = struct.pack("<I", STRING) + string(template)
    head = header(pairs, 0)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT))
    bytes_of = {letter: bytes([b]) for b, letter in letters.items()}
    return [t.encode() for t in tokens[:3]] + [b"".join(bytes_of[c] for c in t) for t in tokens[3:]]


def write(path, scripts, specials=(), endless="", context=CONTEXT, **more):
    """scripts: a prompt's last character -> what is said then. more: of pieces_of(). specials: texts in them that are special tokens, unless a
    script is a pair of a text and its own. endless: of which last characters it is said again and again."""
    tokens, types, letters = vocabulary()
    ids = {b: 3 + i for i, b in enumerate(letters)}
    follows = {i: 2 for i in range(len(tokens))}
    again = {}  # last piece of a script without an end: who leads to its first
    rng = np.random.default_rng(1)
    for last, text in scripts.items():
        before, first = ids[ord(last)], len(tokens)
        text, own = (text, specials) if isinstance(text, str) else text
        for piece in pieces_of(text, own, **more):
            name = piece if isinstance(piece, str) else "".join(letters[b] for b in piece)
            tokens.append(name)
            types.append(CONTROL if isinstance(piece, str) else NORMAL)
            follows[before] = before = len(tokens) - 1
        follows[before] = first if last in endless else 2
        if last in endless:
            again[before] = ids[ord(last)]
    embedding = rng.standard_normal((len(tokens), DIM)).astype(np.float32)
    output = np.zeros_like(embedding)
    for i, other in again.items():
        embedding[i] = embedding[other]  # as below
    for i, successor in follows.items():
        if successor == 2:
            embedding[i] = embedding[2]  # one vector: the sum of many would be like any other's
        output[successor] = embedding[i]
    tensors = {"token_embd.weight": embedding, "output.weight": output, "output_norm.weight": np.ones(DIM, np.float32),
               "blk.0.attn_norm.weight": np.ones(DIM, np.float32), "blk.0.ffn_norm.weight": np.ones(DIM, np.float32)}
    for name, shape in (("attn_q", (DIM, DIM)), ("attn_k", (DIM, DIM)), ("attn_v", (DIM, DIM)),
                        ("attn_output", (DIM, DIM)), ("ffn_gate", (FFN, DIM)), ("ffn_up", (FFN, DIM)),
                        ("ffn_down", (DIM, FFN))):
        tensors[f"blk.0.{name}.weight"] = np.zeros(shape, np.float32)
    pairs = pairs_of(tokens, types, context)
    head = header(pairs, len(tensors))
    offset, data = 0, b""
    for name, values in tensors.items():
        head += string(name) + struct.pack(f"<I{values.ndim}QIQ", values.ndim, *values.shape[::-1], 0, offset)
        data += values.tobytes() + b"\0" * (-values.nbytes % ALIGNMENT)
        offset = len(data)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT) + data)
