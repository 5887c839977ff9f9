#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden files of the pre-tokenizers, Unigram and normalizers.

usage: make_tokenizer_rules_golden.py   (reads tok_corpus.txt and tok_small.gguf,
                                         writes beside this script)

Needs the Python packages tokenizers, sentencepiece and gguf. The patterns are
those of the families' tokenizer.json; where none is published as such (spark,
youtu, falcon, fallback, jais2, minicpm5, exaone_moe, superbpe) those of
llama.cpp's src/llama-vocab.cpp.

  tok_rules.ids.gz  ids of every 6th line with tok_small.gguf's vocabulary, a
                    section for each rule of inference/tokenizer/pretok.c
  tok_unigram.gguf  a SentencePiece Unigram model with a table of replacements,
                    trained here;  tok_unigram.ids.gz
  tok_plain.gguf    BPE over characters with byte fallback, normalizers and added
                    tokens with rules, trained here;  tok_plain.ids.gz
  tok_normal.txt    name, a tab, a text, a tab, its normal form
"""
import os
import random
import re
import tempfile

import gguf
import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, models, normalizers,
                        pre_tokenizers, trainers)

import make_tokenizer_golden as base

HERE = base.HERE
STEP = 6
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
CASED = LEAD + UP + "*" + LOW + "+%s|" + LEAD + UP + "+" + LOW + "*%s"
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
      r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-"
    "\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-"
    "\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-"
    "\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc"
    "\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-"
    "\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-"
    "\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-"
    "\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-"
    "\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-"
    "\U000118df\U0001e900-\U0001e943")
DEEPSEEK_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
AFMOE_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
THREES = r"\d{1,3}(?=(?:\d{3})*\b)"


def llama3(numbers):
    return SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + numbers + TAIL


def o200k(numbers):
    return CASED % (SHORT + "?", SHORT + "?") + "|" + numbers + O200K_TAIL


def kimi():
    up, low = (s[:-1] + r"&&[^\p{Han}]]" for s in (UP, LOW))
    return (r"[\p{Han}]+|" + LEAD + up + "*" + low + "+" + SHORT + "?|" + LEAD + up + "+" + low +
            "*" + SHORT + r"?|\p{N}{1,3}" + TAIL)


RULES = {
    "gpt2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama3": [llama3(r"\p{N}{1,3}")],
    "qwen2": [llama3(r"\p{N}")],
    "qwen35": [SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
               r"\s*[\r\n]+|\s+(?!\S)|\s+"],
    "jais2": [llama3(r"\p{N}{1,3}").replace(
        r"|\s+(?!\S)|\s+", "".join(r"|\s{%d}(?!\S)" % (1 << n) for n in range(9, 1, -1)) +
        r"|\s{1,2}(?!\S)|\s{1}")],
    "deepseek_llm": [r"[\r\n]", r"\s?[" + LETTERS + "]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                     r"\s+$", DEEPSEEK_ASIAN, r"\p{N}+"],
    "deepseek_coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_ASIAN, r"\p{N}"],
    "deepseek_v3": [r"\p{N}{1,3}", CJK, V3],
    "spark": [r"\p{N}{1,3}", CJK, V3.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+",
                                            r"[\p{P}\p{S}]+|[\r\n]"), r"\p{N}"],
    "youtu": [
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", o200k(r"\p{N}")],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "fallback": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "tekken": [CASED % ("", "") + r"|\p{N}" + O200K_TAIL],
    "gpt4o": [o200k(r"\p{N}{1,3}")],
    "tiny_aya": [THREES, o200k(r"\p{N}{1,3}")],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
                  r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2],
    "kimi_k2": [kimi()],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "bailing": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
                r"\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed_coder": [SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|"
                   r"\s+(?!\S)|\s+"],
    "ufakzeka": [llama3(r"\p{N}")[len(SHORT) + 1:]],
    "afmoe": [THREES, AFMOE_ASIAN, V3],
    "laguna": [r"[^\n]+|[\n]+", llama3(r"\p{N}")],
    "exaone_moe": [SHORT + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+"
                   r"[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", llama3(r"\p{N}+")],
}


def corpus():
    names = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
    with open(os.path.join(HERE, "tok_corpus.txt"), encoding="utf-8", newline="\n") as file:
        return [re.sub(r"\\(.)", lambda m: names[m[1]], line) for line in file.read().split("\n")[:-1]]


def write_rules(lines):
    fields = gguf.GGUFReader(os.path.join(HERE, "tok_small.gguf")).fields
    vocab = [fields["tokenizer.ggml." + k].contents() for k in ("tokens", "token_type", "merges")]
    sections = []
    for name, patterns in RULES.items():
        tok = base.reference(vocab, "gpt-2")
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] +
            [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        sections.append((name, [tok.encode(line).ids for line in lines]))
    base.write_ids("tok_rules.ids.gz", sections)


def open_gguf(name, model, tokens, types):
    out = gguf.GGUFWriter(os.path.join(HERE, name + ".gguf"), "llama")
    out.add_tokenizer_model(model)
    out.add_token_list(tokens)
    out.add_token_types(types)
    return out


def close_gguf(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.close()


# What the table of the Unigram model replaces: ligatures, widths, marks that
# compose, white space, some of it by nothing.
TABLE = {"ﬁ": "fi", "ﬂ": "fl", "Ａ": "A", "ａ": "a", "１": "1", "e\u0301": "é", "a\u0308\u0323": "ạ̈",
         "…": "...", "½": "1⁄2", "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ",
         "\u200b": "", "\ufeff": "", "\u00ad": "", "㍻": "平成", "Ⅻ": "XII", "İ": "i̇"}


def write_unigram(lines):
    with tempfile.TemporaryDirectory() as folder:
        text, table = os.path.join(folder, "text"), os.path.join(folder, "table")
        with open(text, "w", encoding="utf-8") as out:
            for line in lines:
                if len(line) < 200 and "\0" not in line:
                    out.write(line.replace("\n", " ").replace("\r", " ") + "\n")
        with open(table, "w", encoding="utf-8") as out:
            for key, value in TABLE.items():
                out.write("%s\t%s\n" % tuple(" ".join("%X" % ord(c) for c in s) for s in (key, value)))
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=os.path.join(folder, "m"), model_type="unigram", vocab_size=500,
            normalization_rule_tsv=table, character_coverage=0.98, num_threads=1, minloglevel=2)
        sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "m.model"))
        with open(os.path.join(folder, "m.model"), "rb") as file:
            charsmap = charsmap_of(file.read())
    n = sp.get_piece_size()
    out = open_gguf("tok_unigram", "t5", [sp.id_to_piece(i) for i in range(n)],
                    [CONTROL if sp.is_control(i) else UNKNOWN if sp.is_unknown(i) else NORMAL
                     for i in range(n)])
    out.add_token_scores([sp.get_score(i) for i in range(n)])
    out.add_eos_token_id(sp.eos_id())
    out.add_unk_token_id(sp.unk_id())
    out.add_add_space_prefix(True)
    out.add_remove_extra_whitespaces(True)
    out.add_precompiled_charsmap(charsmap)
    close_gguf(out)
    # SentencePiece adds scores in float, which decides ties by rounding; the
    # library adds in double. So the text is as the one normalizes it, and the
    # pieces as the other chooses them; nearly always both choose the same.
    tok = Tokenizer(models.Unigram([(sp.id_to_piece(i), sp.get_score(i)) for i in range(n)],
                                   unk_id=sp.unk_id(), byte_fallback=False))
    ids = [tok.encode(sp.normalize(line)).ids for line in lines]
    assert sum(a != sp.encode(line) for a, line in zip(ids, lines)) <= 1
    base.write_ids("tok_unigram.ids.gz", [("unigram", ids)])


def charsmap_of(raw):
    """Field 2 (precompiled_charsmap) of field 3 (normalizer_spec)."""
    def fields(data):
        at = 0

        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = number()
            if key & 7 == 2:
                size = number()
                yield key >> 3, data[at:at + size]
                at += size
            elif key & 7 == 0:
                yield key >> 3, number()
            else:
                at += {1: 8, 5: 4}[key & 7]
    return dict(fields(dict(fields(raw))[3]))[2]


RULED = [("<mask>", "lstrip"), ("<|user|>", "rstrip"), ("<w>", "single_word"), ("the", "single_word")]


def write_plain(lines):
    steps = [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Prepend("▁"),
             normalizers.Replace(" ", "▁")]
    special = ["<unk>", "<s>"] + ["<0x%02X>" % b for b in range(256)]
    tok = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tok.normalizer = normalizers.Sequence(steps)
    tok.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, limit_alphabet=150, show_progress=False))
    tok = fresh(tok)
    model = tok.to_str()
    import json
    data = json.loads(model)["model"]
    tokens = sorted(data["vocab"], key=data["vocab"].get)
    tok.add_special_tokens([AddedToken("<s>", normalized=False)])
    for text, rule in RULED:
        tok.add_tokens([AddedToken(text, normalized=False, **{rule: True})])
        if tok.token_to_id(text) == len(tokens):
            tokens.append(text)
    kinds = {"<unk>": UNKNOWN, "<s>": CONTROL}
    kinds.update({"<0x%02X>" % b: BYTE for b in range(256)})
    kinds.update({text: USER_DEFINED for text, _ in RULED})
    out = open_gguf("tok_plain", "gpt2", tokens, [kinds.get(t, NORMAL) for t in tokens])
    out.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in data["merges"]])
    out.add_unk_token_id(0)
    out.add_bool("baton.tokenizer.plain_text", True)
    out.add_array("baton.tokenizer.normalizers",
                  ["nfkc", "lowercase", "prepend", "▁", "replace", " ", "▁"])
    for rule in ("lstrip", "rstrip", "single_word"):
        out.add_array("baton.tokenizer." + rule, [tok.token_to_id(t) for t, r in RULED if r == rule])
    close_gguf(out)
    rng = random.Random(11)
    words = [t for t, _ in RULED] + ["<s>", " ", "  ", "\n", "a", "x1", "ﬁ", "É", "\u00a0", "!", "you", "中",
                                     "\U0001F600", "<mask", "then", "breathe"]
    extra = ["".join(rng.choice(words) for _ in range(rng.randint(1, 9))) for _ in range(len(lines))]
    base.write_ids("tok_plain.ids.gz", [("plain", [tok.encode(t).ids for t in lines]),
                                     ("ruled", [tok.encode(t).ids for t in extra])])
    with open(os.path.join(HERE, "tok_ruled.txt"), "w", encoding="utf-8", newline="\n") as file:
        file.writelines(base.escape(t) + "\n" for t in extra)


def fresh(tok):
    """Without the byte tokens as added ones: they are for what has no token."""
    import json
    data = json.loads(tok.to_str())
    data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data))


def write_normal(lines):
    rng = random.Random(5)
    forms = {"nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(),
             "nfkd": normalizers.NFKD(), "lowercase": normalizers.Lowercase(),
             "strip_left": normalizers.Strip(left=True, right=False),
             "strip_right": normalizers.Strip(left=False, right=True)}
    marks = [chr(c) for c in range(0x300, 0x370)] + list("\u0323\u3099\u093c\u1161\u11a8\uac00\u1100\u0f71\u0f72")
    texts = lines[::12] + ["".join(rng.choice(list("aeoÅéﬁﷺ中x ") + marks) for _ in range(rng.randint(1, 12)))
                           for _ in range(150)]
    texts += ["".join(chr(rng.choice([rng.randrange(0x1200), rng.randrange(0x1200, 0xD800),
                                      rng.randrange(0xE000, 0x30000)])) for _ in range(8)) for _ in range(150)]
    with open(os.path.join(HERE, "tok_normal.txt"), "w", encoding="utf-8", newline="\n") as out:
        for i, text in enumerate(texts):
            name = list(forms)[i % len(forms)]
            out.write("%s\t%s\t%s\n" % (name, base.escape(text),
                                        base.escape(forms[name].normalize_str(text))))


def main():
    lines = corpus()[::STEP]
    write_rules(lines)
    write_unigram(lines)
    write_plain(lines)
    write_normal(corpus())


if __name__ == "__main__":
    main()
