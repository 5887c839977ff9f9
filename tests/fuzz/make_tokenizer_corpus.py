#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the seeds of fuzz_tokenizer: corpus/tokenizer/. Each is the length of
a text (u16), the text, and a GGUF file with a small vocabulary."""
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, item):
    return {STR: lambda: string(item), BOOL: lambda: struct.pack("<B", item),
            U32: lambda: struct.pack("<I", item), I32: lambda: struct.pack("<i", item),
            F32: lambda: struct.pack("<f", item)}[kind]()


def gguf(**keys):
    out = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(keys))
    for key, (kind, item) in keys.items():
        out += string(key.replace("__", ".") if "__" in key else "tokenizer.ggml." + key)
        if isinstance(item, list):
            out += struct.pack("<IIQ", ARRAY, kind, len(item))
            out += b"".join(value(kind, one) for one in item)
        else:
            out += struct.pack("<I", kind) + value(kind, item)
    return out + bytes(-len(out) % 32)


def bpe(pre):
    tokens = ["<s>", "</s>", "[ud]", "[udx]"] + [chr(c) for c in range(33, 127)]
    tokens += ["\u0120", "\u010a", "\u00c3", "\u00a9", "\u00e4", "\u00b8", "\u0143"]
    tokens += ["ab", "abc", "\u0120a", "\u0120\u0120", "\u00c3\u00a9", "12", "'s"]
    merges = ["a b", "ab c", "\u0120 a", "\u0120 \u0120", "\u00c3 \u00a9", "1 2", "' s"]
    types = [3, 3, 4, 4] + [1] * (len(tokens) - 4)
    return gguf(model=(STR, "gpt2"), pre=(STR, pre), tokens=(STR, tokens),
                token_type=(I32, types), merges=(STR, merges), bos_token_id=(U32, 0),
                eos_token_id=(U32, 1), add_bos_token=(BOOL, 1))


def spm(with_bytes):
    tokens = ["<unk>", "<s>", "</s>", "[ud]"]
    types = [2, 3, 3, 4]
    if with_bytes:
        tokens += ["<0x%02X>" % b for b in range(256)]
        types += [6] * 256
    pieces = ["\u2581", "a", "b", "c", "ab", "abc", "\u2581a", "\u2581abc", "\u00e9", "\u2581\u2581"]
    return gguf(model=(STR, "llama"), tokens=(STR, tokens + pieces),
                token_type=(I32, types + [1] * len(pieces)),
                scores=(F32, [0.0] * len(tokens) + [-float(i) for i in range(len(pieces))]),
                bos_token_id=(U32, 1), eos_token_id=(U32, 2),
                unknown_token_id=(U32, 0), add_space_prefix=(BOOL, with_bytes))


def charsmap():
    """A double array with the one key "A" (65), whose value is the text at 0."""
    units = [0] * 256
    units[0] = 1 << 10  # children of the root at 1 ^ byte
    units[1 ^ 65] = 65 | 1 << 8 | 128 << 10
    units[1 ^ 65 ^ 128] = 1 << 31
    raw = struct.pack("<256I", *units)
    return list(struct.pack("<I", len(raw)) + raw + b"a \0")


def unigram():
    pieces = ["\u2581", "a", "b", "ab", "\u2581ab", "abc", "\u00e9"]
    return gguf(model=(STR, "t5"), tokens=(STR, ["<unk>", "</s>", "[ud]"] + pieces),
                token_type=(I32, [2, 3, 4] + [1] * len(pieces)),
                scores=(F32, [0.0] * 3 + [-1.0 - i / 4 for i in range(len(pieces))]),
                eos_token_id=(U32, 1), unknown_token_id=(U32, 0),
                remove_extra_whitespaces=(BOOL, 1), precompiled_charsmap=(I32, charsmap()))


def plain():
    tokens = ["<unk>", "[l]", "[r]", "[w]", "\u2581", "a", "b", "ab", "\u2581ab"]
    return gguf(model=(STR, "gpt2"), tokens=(STR, tokens), token_type=(I32, [2, 4, 4, 4] + [1] * 5),
                merges=(STR, ["a b", "\u2581 ab"]), unknown_token_id=(U32, 0),
                baton__tokenizer__plain_text=(BOOL, 1),
                baton__tokenizer__normalizers=(STR, ["nfkc", "lowercase", "strip_left", "one_space",
                                                     "prepend", "\u2581", "replace", " ", "\u2581"]),
                baton__tokenizer__splits=(STR, ["merged_with_next", "text", "\u2581",
                                                "!removed", "pattern", "[\\s\\S]"]),
                baton__tokenizer__lstrip=(I32, [1]), baton__tokenizer__rstrip=(I32, [2]),
                baton__tokenizer__single_word=(I32, [3]))


def as_library():
    """What is read of a tokenizer.json: a prefix between splits, tokens that are found in normalized text."""
    tokens = ["<unk>", "[L]", " [r]", "[w]", "<S>", "\u2581", "a", "b", "ab", "\u2581ab"]
    return gguf(model=(STR, "gpt2"), tokens=(STR, tokens), token_type=(I32, [2, 4, 4, 4, 3] + [1] * 5),
                merges=(STR, ["a b", "\u2581 ab"]), unknown_token_id=(U32, 0),
                baton__tokenizer__plain_text=(BOOL, 1), baton__tokenizer__fuse_unknown=(BOOL, 0),
                baton__tokenizer__ignore_merges=(BOOL, 1), baton__tokenizer__first_space=(STR, "drop_all"),
                baton__tokenizer__normalizers=(STR, ["nfkd", "replace_pattern", "\\p{library_accent}+", "", "lowercase",
                                                     "replace_pattern", "[\\t\\n ]{2,}", " "]),
                baton__tokenizer__splits=(STR, ["removed", "pattern", "\\s+", "always", "prefix", "\u2581",
                                                "merged_with_next", "pattern", "[ \u2581]"]),
                baton__tokenizer__normalized=(I32, [1, 2, 4]), baton__tokenizer__lstrip=(I32, [1]),
                baton__tokenizer__rstrip=(I32, [2, 3]), baton__tokenizer__single_word=(I32, [3]))


def bytes_with_prefix():
    return gguf(model=(STR, "gpt2"), tokens=(STR, [chr(c) for c in range(33, 127)] + ["\u0120", "ab", "<M>", "[n]"]),
                token_type=(I32, [1] * 96 + [3, 4]), merges=(STR, ["a b"]),
                baton__tokenizer__splits=(STR, ["isolated", "pattern", "\\p{N}", "first", "prefix", " ",
                                                "isolated", "pattern", "\\p{library_punctuation}"]),
                baton__tokenizer__normalized=(I32, [97]), baton__tokenizer__lstrip=(I32, [96]),
                baton__tokenizer__normalizers=(STR, ["nfc", "prepend", "x"]))


def library_unigram():
    pieces = ["\u2581", "a", "b", "ab", "\u2581ab", "abc", "\u00e9"]
    return gguf(model=(STR, "t5"), tokens=(STR, ["<unk>", "</s>", "[ud]"] + ["<0x%02X>" % b for b in range(256)] + pieces),
                token_type=(I32, [2, 3, 4] + [6] * 256 + [1] * len(pieces)),
                scores=(F32, [0.0, 0.0, float("-inf")] + [0.0] * 256 + [-1.0 - i / 4 for i in range(len(pieces))]),
                eos_token_id=(U32, 1), unknown_token_id=(U32, 0), add_space_prefix=(BOOL, 0),
                baton__tokenizer__normalized=(I32, []), baton__tokenizer__float_sums=(BOOL, 1),
                baton__tokenizer__space_mark=(BOOL, 0),
                baton__tokenizer__splits=(STR, ["!removed", "pattern", "\\p{library_word}+|[^\\p{library_word}\\s]+"]))


def ruled(text):
    return bpe("gpt-2") if text is None else gguf(
        model=(STR, "gpt2"), tokens=(STR, [chr(c) for c in range(33, 127)] + ["\u0120", "ab"]),
        merges=(STR, ["a b"]), baton__tokenizer__splits=(STR, text),
        baton__tokenizer__ignore_merges=(BOOL, 1))


SEEDS = {
    "gpt2": ("abc ab  12's\n\n \u00e9\u4e2d <s>[udx]", bpe("gpt-2")),
    "smollm": ("a  12 \u00bdab\t3 x", bpe("smollm")),
    "llama_bpe": ("I'LL 12345 \r\n\n (a)!\n  b'\u017f", bpe("llama-bpe")),
    "qwen2": ("'s 12\u00a0\u3000ab </s>", bpe("qwen2")),
    "long_word": ("abcab" * 60, bpe("gpt-2")),
    "spm_bytes": ("abc \u00e9 \U0001F600 ab<s>a", spm(True)),
    "spm_unknown": ("ab[ud]xyz  \u4e2d\u2581abc", spm(False)),
    "unigram": ("A ab  abc \u00e9[ud]x", unigram()),
    "plain": ("a [l] B [r] [w]a \u00c9 [w]", plain()),
    "splits": ("It's 1234567, ab  a", ruled([
        "isolated", "threes", "", "contiguous", "pattern", "'(?i:s|t)|[^\\r\\n\\p{L}]?+\\p{L}+",
        "merged_with_previous", "bytes", "[\u0120-\u0143&&[^\u0121]]{1,3}(?!\\S)",
        "isolated", "before_threes", ""])),
    "as_library": ("a [L] [R] [W]a \u00c9e\u0301 <s>\t\n <S>ab\u2581", as_library()),
    "bytes_with_prefix": ("1 ab[n]  <M>!a2", bytes_with_prefix()),
    "library_unigram": ("<0x41>ab \u00e9\U0001F600[ud] \u2581", library_unigram()),
    "tekken": ("aB Ab1 \n/x", bpe("tekken")),
    "deepseek": ("ab  \n 1\u4e2da", bpe("deepseek-llm")),
    "no_vocabulary": ("{{ '<|im_start|>' }}<|im_end|>", b""),
}


def main():
    folder = os.path.join(HERE, "corpus", "tokenizer")
    os.makedirs(folder, exist_ok=True)
    for name, (text, model) in SEEDS.items():
        raw = text.encode()
        with open(os.path.join(folder, name), "wb") as out:
            out.write(struct.pack("<H", len(raw)) + raw + model)


if __name__ == "__main__":
    main()
