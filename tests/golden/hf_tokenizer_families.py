# SPDX-License-Identifier: Apache-2.0
"""The pipelines of tokenizer.json files: those of published families, as their authors describe them or as
transformers' converters make them, and some that only test what a reader must tell apart.

A family is a name, the vocabulary that it takes, settings of its model, and functions that give its components."""
import json

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as D
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
CASED = LEAD + UP + "*" + LOW + "+%s|" + LEAD + UP + "+" + LOW + "*%s"
LLAMA3 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
O200K = CASED % (SHORT + "?", SHORT + "?") + r"|\p{N}{1,3}" + O200K_TAIL
TEKKEN = CASED % ("", "") + r"|\p{N}" + O200K_TAIL
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
          r"\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
THREES = r"\d{1,3}(?=(?:\d{3})*\b)"
TOKENS = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<mask>", "<|user|>", "<x>", "<S>", "<think>",
          "<\uff5cUser\uff5c>", "[INST]", "<0x41>"]


def special(*texts, **rules):
    return [AddedToken(t, special=True, **dict({"normalized": False}, **rules)) for t in texts]


def cut(pattern, keep="isolated", invert=False):
    return P.Split(Regex(pattern), keep, invert)


def as_bytes(prefix=False, regex=False):
    return P.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def steps(*list_of_them):
    return P.Sequence(list(list_of_them))


def meta(scheme, split):
    return P.Metaspace("\u2581", scheme, split)


def llama_decoder(*last):
    return D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse()] + list(last))


def dropping():
    return llama_decoder(D.Strip(" ", 1, 0))


def marked_decoder(scheme):
    return D.Sequence([D.ByteFallback(), D.Metaspace("\u2581", scheme)])


def no_bytes():
    return D.Sequence([D.Replace("\u2581", " "), D.Fuse(), D.Strip(" ", 1, 0)])


ENDS = special("<unk>", "<s>", "</s>")
CHAT = special("<|im_start|>", "<|im_end|>")
MARKED = N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")])
WHOLE = {"ignore_merges": True}
FALL = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
NO_FALL = {"unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False}
MIXED = [AddedToken("Hello", normalized=True), AddedToken("\ufb01ne", normalized=True, single_word=True),
         AddedToken("<x>", normalized=False, lstrip=True, rstrip=True), AddedToken("  ", normalized=False),
         AddedToken("\n", normalized=True, rstrip=True), AddedToken("hell", normalized=False, single_word=True)
         ] + special("<S>", normalized=True)

# name, settings of the model, normalizer, pre-tokenizer, added tokens
BYTES = [
    ("gpt2", {}, None, as_bytes(regex=True), special("<|im_end|>", normalized=True)),
    ("gpt_neox", {}, N.NFC(), as_bytes(regex=True), CHAT + [AddedToken(" " * n, normalized=True) for n in range(2, 9)]),
    ("llama3", WHOLE, None, steps(cut(LLAMA3), as_bytes()), CHAT),
    ("smollm3", WHOLE, None, steps(cut(LLAMA3), as_bytes()), CHAT),
    ("dbrx", {}, None, steps(cut(LLAMA3), as_bytes()), CHAT),
    ("qwen2", {}, N.NFC(), steps(cut(QWEN2), as_bytes()), CHAT + [AddedToken("<think>", normalized=False)]),
    ("qwen2_as_is", {}, None, steps(cut(QWEN2), as_bytes()), CHAT),
    ("tekken", WHOLE, None, steps(cut(TEKKEN), as_bytes()), special("<s>", "[INST]")),
    ("gpt4o", {}, None, steps(cut(O200K), as_bytes()), CHAT),
    ("phi4", {}, None, steps(cut(CL100K, "removed", True), as_bytes()),
     special("<|im_start|>", "<|im_end|>", lstrip=True, rstrip=True)),
    ("falcon", {}, None, steps(P.Punctuation("contiguous"), as_bytes(regex=True), P.Digits(False),
                               cut("[0-9][0-9][0-9]")), CHAT),
    ("starcoder2", {}, None, steps(P.Digits(True), as_bytes(regex=True)), CHAT),
    ("command_r", {}, N.NFC(), steps(P.Digits(True), as_bytes(regex=True)), CHAT),
    ("olmo", {}, N.NFC(), as_bytes(regex=True), CHAT),
    ("deepseek_v3", {}, None, steps(cut(r"\p{N}{1,3}"), cut("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                                    cut(DEEPSEEK3), as_bytes()), special("<\uff5cUser\uff5c>")),
    ("deepseek_coder", {}, None, steps(cut("[\r\n]"), cut(r"\s?\p{L}+"), cut(r"\s?\p{P}+"),
                                       cut("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), P.Digits(True), as_bytes()),
     special("<\uff5cUser\uff5c>")),
    ("bloom", {}, None, steps(cut(BLOOM), as_bytes()), special("<s>", "</s>")),
    ("threes", {}, None, steps(cut(THREES), cut(O200K), as_bytes()), CHAT),
    ("prefix", {}, None, as_bytes(prefix=True, regex=True), special("<mask>", lstrip=True) +
     special("</s>", normalized=True)),
    ("prefix_of_parts", {}, None, steps(P.Digits(True), as_bytes(prefix=True, regex=True)), CHAT),
    ("normal_tokens", {}, N.Sequence([N.NFKC(), N.Lowercase(), N.StripAccents()]), as_bytes(regex=True), MIXED),
    ("order_of_tokens", {}, None, as_bytes(regex=True), MIXED),
    ("kinds", {}, None, steps(P.Punctuation("merged_with_previous"), P.Digits(False), cut("x+", "merged_with_next"),
                              cut("[aeiou]+", "contiguous"), P.Split(",", "removed"), as_bytes(regex=True)), CHAT),
    ("bert", {}, N.Sequence([N.Nmt(), N.Strip(True, True), N.Replace(Regex(" {2,}"), " ")]),
     steps(P.BertPreTokenizer(), as_bytes(prefix=True)), []),
]

# and a decoder, which of the above is always ByteLevel
PLAIN = [
    ("llama2", FALL, MARKED, None, ENDS, dropping()),
    ("llama2_old", FALL, MARKED, None, special("<unk>", "<s>", "</s>", normalized=True), dropping()),
    ("phi3", FALL, MARKED, None, ENDS + special("<|user|>", "<|im_end|>", rstrip=True), dropping()),
    ("mistral", FALL, None, meta("first", False), ENDS + special("[INST]"), dropping()),
    ("gemma", FALL, N.Replace(" ", "\u2581"), P.Split(" ", "merged_with_previous"), ENDS + CHAT +
     [AddedToken("\u2581" * n, normalized=False) for n in range(2, 6)] +
     [AddedToken("\n" * n, normalized=False) for n in range(1, 4)], llama_decoder()),
    ("metaspace", FALL, None, meta("always", False), ENDS, dropping()),
    ("metaspace_split", FALL, None, meta("always", True), ENDS, marked_decoder("always")),
    ("metaspace_first", FALL, None, steps(meta("first", True), P.Digits(True), P.Punctuation()), ENDS,
     marked_decoder("first")),
    ("metaspace_of_words", FALL, N.NFKC(), steps(P.WhitespaceSplit(), meta("always", True)), ENDS,
     marked_decoder("always")),
    ("whole_words", dict(FALL, ignore_merges=True), None, meta("always", True), ENDS, marked_decoder("always")),
    ("unknown_apart", NO_FALL, MARKED, None, ENDS, no_bytes()),
    ("unknown_left_out", {"byte_fallback": False}, MARKED, None, [], no_bytes()),
    ("words", NO_FALL, N.NFKD(), P.Whitespace(), ENDS, D.Fuse()),
    ("unmarked", NO_FALL, N.NFD(), steps(P.WhitespaceSplit(), P.Punctuation()), ENDS, D.Fuse()),
]
CHOSEN = {"unk_id": 0, "byte_fallback": False}
UNIGRAM = [
    ("t5", CHOSEN, N.Sequence([N.NFKC(), N.Replace(Regex(" {2,}"), " ")]),
     steps(P.WhitespaceSplit(), meta("always", True)), ENDS + special("<mask>", lstrip=True),
     D.Metaspace("\u2581", "always")),
    ("xlm_r", CHOSEN, N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), meta("always", True),
     ENDS + special("<mask>", lstrip=True, normalized=True), D.Metaspace("\u2581", "always")),
    ("unigram_first", CHOSEN, N.NFKC(), meta("first", False), ENDS, D.Metaspace("\u2581", "first")),
    ("unigram_bytes", dict(CHOSEN, byte_fallback=True), N.Replace(" ", "\u2581"), None, ENDS, llama_decoder()),
    ("unigram_words", CHOSEN, MARKED, None, ENDS + [AddedToken("Word", normalized=True, single_word=True)], no_bytes()),
]


def all_of(bases):
    """@param bases  "model" of tokenizer.json by name: bytes, plain, unigram
    @yield name, name of the vocabulary, settings of the model, the other members of tokenizer.json"""
    for base, list_of_them in (("bytes", BYTES), ("plain", PLAIN), ("unigram", UNIGRAM)):
        for name, settings, normalizer, pre_tokenizer, added, *decoder in list_of_them:
            flags = dict({"type": bases[base]["type"]}, **settings)
            vocabulary = {k: bases[base][k] for k in ("vocab", "merges") if k in bases[base]}
            tok = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": dict(flags, **vocabulary)}))
            if normalizer is not None:
                tok.normalizer = normalizer
            if pre_tokenizer is not None:
                tok.pre_tokenizer = pre_tokenizer
            tok.decoder = decoder[0] if decoder else D.ByteLevel()
            for token in added:
                (tok.add_special_tokens if token.special else tok.add_tokens)([token])
            parts = json.loads(tok.to_str())
            del parts["model"], parts["truncation"], parts["padding"], parts["post_processor"]
            yield name, base, flags, parts
