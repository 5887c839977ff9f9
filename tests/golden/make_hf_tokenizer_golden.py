#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers as folders have them, and what the libraries that they are of make of texts.

usage: make_hf_tokenizer_golden.py CORPUS OUT_DIR

hf_tok_NAME.json        tokenizer.json, trained on the ASCII lines of CORPUS (tok_corpus.txt) by the
                        tokenizers library (PyPI), or of the SentencePiece model
hf_tok_spm.model        tokenizer.model, trained by the sentencepiece library
hf_tok_unigram.model    a second one: Unigram, with replacements and without extra spaces
hf_tok_NAME.ids         a line for each of TEXTS: JSON of the text, a tab, its ids by that library
hf_tok_texts.txt        hostile texts, a JSON string a line; then a line "=", then lists of ids
hf_tok_models.txt       three vocabularies: a line of a name, a line of JSON without its braces
hf_tok_families.txt     for each of FAMILIES: "= name", the vocabulary's name, the members of tokenizer.json and
                        of its "model" without their braces; FNV-1a hashes of the ids of each of the texts, and
                        of the text of each of the lists of ids, by the library

Needs tokenizers and sentencepiece.
"""
import io
import json
import random
import re
import struct
import sys
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import hf_tokenizer_families as families

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
TEXTS = ["the words and the", "The 1234 words, he'll say: \u00e9t\u00e9!\n\n  And  then\t\u4e2d\u6587 \U0001f680 end ", " a", "",
         "<s>the</s> <|end|>x", "\u00df\u0000z", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 12345678"]


def byte_level(pre, lines):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_tokens(["<|end|>"])
    return tok


def sentencepiece_model(lines, **more):
    out = io.BytesIO()
    settings = dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", vocab_size=420,
                    remove_extra_whitespaces=False)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, minloglevel=2,
                                             **dict(settings, **more))
    return out.getvalue()


# What the Unigram model replaces: a ligature, a width, marks that compose, white space, a mark by nothing.
REPLACED = {"\ufb01": "fi", "\uff21": "A", "e\u0301": "\u00e9", "\u00a0": " ", "\t": " ", "\n": " ", "\u200b": ""}
SPACED = ["  a   b  ", "\ufb01\u200bne \uff21\u00a0b\tc e\u0301", "\u2581a \u2581", "\t\n", "\u4e2d\u6587\u4e2d", "1234 12 !!"]


def replacing_model(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        for pair in REPLACED.items():
            table.write("%s\t%s\n" % tuple(" ".join("%X" % ord(c) for c in text) for text in pair))
        table.flush()
        return sentencepiece_model(lines, model_type="unigram", byte_fallback=False, vocab_size=300,
                                   normalization_rule_tsv=table.name, normalization_rule_name="user_defined",
                                   remove_extra_whitespaces=True, num_threads=1)


def as_tokenizers(sp):
    """The same vocabulary with merges, as transformers converts it: by score, all ways to make each piece."""
    vocab = {sp.id_to_piece(i): i for i in range(sp.vocab_size())}
    merges = []
    for piece, i in sorted(vocab.items(), key=lambda item: (-sp.get_score(item[1]), item[1])):
        if sp.is_byte(i) or sp.is_control(i) or sp.is_unknown(i):
            continue
        ways = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
        merges += sorted(ways, key=lambda way: (vocab[way[0]], vocab[way[1]]))
    tok = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tok


def fnv1a(data):
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return "%08x" % value


PIECES = families.TOKENS + [
    "<unk", "Hello", "HELLO", "hell", "\ufb01ne", "fine", "  ", "\n", "\n\n", "\t", " ", "   ", "\u2581", "\u2581\u2581", "a",
    "the", "The", "\u00e9", "e\u0301", "\u4e2d\u6587", "\U0001d49c", "\u216b", "\u00bd", "\uff11", "1", "12", "1234", "1234567",
    "'s", "'LL", "Word", "Words", "\u200b", "\ufeff", "\u00a0", "\u0085", "\U0001f642", "\u1100\u1161\u11a8", "\u00df",
    "\u0130", "\u017f", "\u212a", "!", "?!", "...", "_", "", "$+", "\u00b2", "\ud7a3", "\u0e01", "\u0964", "x, y", "-->"]


def hostile_texts(rng):
    texts = ["", " ", "\u2581", "  a", "a" * 400, "ab " * 60, "\u00e9" * 150]
    texts += ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 9))) for _ in range(140)]
    texts += [bytes(rng.randrange(256) for _ in range(rng.randint(1, 40))).decode("utf-8", "replace") for _ in range(10)]
    texts += ["".join(chr(rng.choice([rng.randrange(0x300), rng.randrange(0x3100), rng.randrange(0xE000, 0x20000)]))
                      for _ in range(20)) for _ in range(25)]
    return texts


def lists_of_ids(rng, models_by_name):
    """Ids that all families have; of bytes only whole runs, see decodes() in the test."""
    n = min(len(m["vocab"]) for m in models_by_name.values())
    return [[rng.randrange(n) for _ in range(rng.randint(1, 8))] for _ in range(60)]


def plain_vocabulary(lines):
    """BPE over characters: a few spaces and letters, all bytes, merges."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.Replace(" ", "\u2581")
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    tok.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=560, limit_alphabet=90, special_tokens=special,
                                                       show_progress=False))
    return json.loads(tok.to_str())["model"]


def unigram_vocabulary(lines):
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=260, special_tokens=["<unk>", "<s>", "</s>"],
                                                           unk_token="<unk>", show_progress=False))
    model = json.loads(tok.to_str())["model"]
    model["vocab"] += [["<0x%02X>" % b, 0.0] for b in range(256)]
    return model


def inner(content):
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))[1:-1]


def without_broken_bytes(tok, ids):
    """Of runs of byte tokens that are no whole text the library makes one replacement character for each byte, even
    of characters that were given before the run was known to be broken: left out."""
    run = b""
    for token in [tok.id_to_token(i) for i in ids] + [""]:
        if token and re.fullmatch("<0x[0-9A-F]{2}>", token):
            run += bytes([int(token[3:5], 16)])
        elif token not in ("<s>", "</s>", "<unk>"):
            if run and any(c != "\ufffd" for c in run.decode("utf-8", "replace")) and "\ufffd" in run.decode(
                    "utf-8", "replace"):
                return False
            run = b""
    return True


def is_known(tok, ids):
    """The library gives special tokens that are found in normalized text a name that it does not know as special, and
    shows them."""
    added = tok.get_added_tokens_decoder()
    return all(i not in added or tok.id_to_token(i) == added[i].content for i in ids)


def write_families(lines, out):
    rng = random.Random(7)
    texts = hostile_texts(rng)
    bases = {"bytes": json.loads(byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), lines).to_str())["model"],
             "plain": plain_vocabulary(lines), "unigram": unigram_vocabulary([t for t in lines if len(t) < 300])}
    ids = lists_of_ids(rng, bases)
    (out / "hf_tok_texts.txt").write_text("".join(json.dumps(t) + "\n" for t in texts) + "=\n" +
                                          "".join(" ".join(map(str, i)) + "\n" for i in ids))
    vocabularies = {name: {k: m[k] for k in ("vocab", "merges") if k in m} for name, m in bases.items()}
    (out / "hf_tok_models.txt").write_text("".join(f"{name}\n{inner(m)}\n" for name, m in vocabularies.items()))
    with open(out / "hf_tok_families.txt", "w", encoding="utf-8") as file:
        for name, base, flags, parts in families.all_of(bases):
            tok = Tokenizer.from_str(json.dumps(dict(parts, model=dict(flags, **vocabularies[base]))))
            hashes = [fnv1a(struct.pack("<%dI" % len(e.ids), *e.ids))
                      for e in tok.encode_batch(texts, add_special_tokens=False)]
            words = [fnv1a(tok.decode(i).encode()) if without_broken_bytes(tok, i) and is_known(tok, i) else "-"
                     for i in ids]
            file.write(f"= {name}\n{base}\n{inner(parts)}\n{inner(flags)}\n{' '.join(hashes)}\n{' '.join(words)}\n")


def main():
    lines = [line for line in Path(sys.argv[1]).read_text().splitlines() if line.isascii()]
    out = Path(sys.argv[2])
    model = sentencepiece_model(lines)
    (out / "hf_tok_spm.model").write_bytes(model)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    made = {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), lines),
        "smollm": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=False)]), lines),
        "split": byte_level(pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), lines),
        "merges": as_tokenizers(sp),
    }
    for name, tok in made.items():
        if name == "split":
            tok.model.ignore_merges = True
        text = json.loads(tok.to_str())
        (out / f"hf_tok_{name}.json").write_text(json.dumps(text, ensure_ascii=False, separators=(",", ":")) + "\n")
        (out / f"hf_tok_{name}.ids").write_text("".join(
            f"{json.dumps(t)}\t{' '.join(map(str, tok.encode(t, add_special_tokens=False).ids))}\n" for t in TEXTS))
    (out / "hf_tok_spm.ids").write_text("".join(
        f"{json.dumps(t)}\t{' '.join(map(str, sp.encode(t)))}\n" for t in TEXTS if "<" not in t))
    model = replacing_model(lines)
    (out / "hf_tok_unigram.model").write_bytes(model)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    (out / "hf_tok_unigram.ids").write_text("".join(
        f"{json.dumps(t)}\t{' '.join(map(str, sp.encode(t)))}\n" for t in TEXTS + SPACED if "<" not in t and "\0" not in t))
    write_families(lines, out)


if __name__ == "__main__":
    main()
