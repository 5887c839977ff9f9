#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers as folders have them, and what the libraries that they are of make of texts.

usage: make_hf_tokenizer_golden.py CORPUS OUT_DIR

hf_tok_NAME.json        tokenizer.json, trained on the ASCII lines of CORPUS (tok_corpus.txt) by the
                        tokenizers library (PyPI), or of the SentencePiece model
hf_tok_spm.model        tokenizer.model, trained by the sentencepiece library
hf_tok_NAME.ids         a line for each of TEXTS: JSON of the text, a tab, its ids by that library

Needs tokenizers and sentencepiece.
"""
import io
import json
import sys
from pathlib import Path

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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


def sentencepiece_model(lines):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, vocab_size=420, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    return out.getvalue()


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


if __name__ == "__main__":
    main()
