#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden files of the tokenizer and chat template tests.

usage: make_tokenizer_golden.py MODEL.gguf   (the default model; writes beside
                                              this script)

Needs the Python packages tokenizers, sentencepiece, gguf and jinja2, which are
the independent implementations that inference/tokenizer is compared with. The
tests themselves read only what this script wrote:

  tok_corpus.txt      the lines to tokenize, backslash escapes \\n \\r \\t \\0 \\\\
  tok_model.ids.gz    expected ids with the default model's vocabulary
  tok_small.gguf      the first merges of the same vocabulary, more special
                      tokens;  tok_small.ids.gz: expected ids of every 3rd line
  tok_spm_bytes.gguf  SentencePiece pieces trained here, with byte fallback
  tok_spm_plain.gguf  without it, with user-defined pieces; both with .ids.gz
  tok_detok.txt       random ids of the small vocabulary, a tab, their text
  tok_chat.txt        conversations as the families' Jinja texts render them

An .ids.gz file is gzip of text, the same bytes for the same ids: `zcat` shows it, and `git diff --textconv` does with
`git config diff.gzip.textconv zcat` (.gitattributes names these files). It has sections "= name"; under each, one line for each line of the
corpus (or of its part): the ids in base 36, "" for none, or "~" when they are
those of the section before.
"""
import os
import random
import sys
import tempfile
import zlib

import gguf
import jinja2
import jinja2.sandbox
import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        pre_tokenizers)

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL_MERGES = 1000
SMALL_STEP = 3
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

# ---------------------------------------------------------------- the corpus

PROSE = """\
The capital of France is Paris, and the river that runs through it is the Seine.
She'll say that we've no time; I'd rather they're late than that he's hurt.
It is not what you look at that matters, it's what you see: don't you think so?
A cluster has routers, prefill workers and decode workers; each can fail alone.
Once upon a time there was a small program that counted tokens all day long.
"Yes," she said, "but who's going to tell them that the cat's tail isn't long?"
Bread, cheese and wine cost 12.50 in 1999, 14.75 in 2005 and 23.10 in 2024.
Call +44 20 7946 0958 before 17:30, or write to someone@example.org instead.
HE'S SHOUTING AND SHE'LL SHOUT TOO, THEY'VE ALL GONE MAD, I'D SAY, WE'RE DONE.
The quick brown fox jumps over the lazy dog while 3 of 4 geese look the other way.
""".splitlines()

CODE = r"""int main(int argc, char **argv) { return argc > 1 ? puts(argv[1]) : 0; }
for (size_t i = 0; i < n; i++) { sum += a[i] * b[i]; }
def f(x, *, y=None):\n    if y is None:\n        return x ** 2\n    return f(y)
#include <stdio.h>\n\n#define MAX(a, b) ((a) > (b) ? (a) : (b))\n
SELECT name, COUNT(*) FROM users WHERE age >= 21 GROUP BY name ORDER BY 2 DESC;
if [ "$#" -lt 1 ]; then\n\techo "usage: $0 FILE" >&2\n\texit 2\nfi
{"a": [1, 2.5e-3, null, true], "b": {"c": "d\\n"}}
\t\tvalue = dict.get(key) or default  # TODO(#42)
const f = async (x) => { await g(`${x}`); return x?.y ?? 'z'; };
<a href="https://example.org/?q=1&r=%20x#top" class='b'>link</a>
let v: Vec<u8> = s.bytes().filter(|b| b.is_ascii()).collect();
x = 0xDEADBEEF + 0b1011 - 1_000_000 // 3
    /* four spaces */\n        /* eight */\n            /* twelve */
git commit -m "fix: don't split at '--'" && git push --force-with-lease
\\begin{align} \\int_0^\\infty e^{-x^2} dx = \\frac{\\sqrt{\\pi}}{2} \\end{align}
----------------------------------------------------------------
################ heading ################
=====\n*****\n_____\n.....
a.b.c->d::e<f>(g)[h]{i};
printf("%5.2f%%\\n", 100.0 * hits / total);
""".splitlines()

SCRIPTS = [
    "中文分词没有空格，所以很难。", "日本語のテキストとカタカナ、ひらがな。", "한국어 문장입니다.",
    "Съешь же ещё этих мягких французских булок", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Tiếng Việt có dấu",
    "ქართული ენა", "Հայերեն", "አማርኛ", "தமிழ் மொழி", "বাংলা ভাষা", "ᏣᎳᎩ", "ខ្មែរ", "𐌰𐌱𐌲",
    "Straße, Größe, Übermut", "El niño comió jalapeños ayer", "Łódź, Gdańsk i Kraków",
    "Çok güzel, teşekkürler", "naïve café façade", "ﬁnancial ﬂoor", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒯𝑒𝓍𝓉",
    "ⅣⅫ ½ ¾ ² ³ ① ㊿ ٣٤٥ १२३ ๔๕", "㋀㍻ ｆｕｌｌｗｉｄｔｈ １２３", "𠀀𠀁 \U00031350 \U0001E4D0",
]

EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇯🇵", "❤️", "👩🏾‍💻", "1️⃣", "☃︎", "🧑‍🚀", "🫠", "\U0001FAE8"]

SPACES = [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\u00a0",
          "\u3000", "\u2003", "\u2009", "\u200b", "\u2028", "\u2029", "\u202f", "\u0085", "\u1680",
          "\x0b", "\x0c", "\x1c", "\u2060", "\ufeff", " " * 9, "\n" * 5, " \t \n\t "]

ODD = ["\x00", "\x01", "\x07", "\x1b[0m", "\x7f", "\u00ad", "\u0301", "e\u0301", "a\u0308\u0323",
       "q\u0307\u0323", "\u0915\u094d\u0937", "\u200d", "\ufffd", "\ue000", "\U000f0000",
       "\U0010ffff", "\u0378", "\ufdd0", "'", "'\u017f", "\u2019s", "''s", "'LL", "'Re", "'x", "’ll",
       "Z" + "\u0300" * 12, "\ud7a3", "\u1100\u1161", "\ufb01", "\u212a", "\u0130", "\u01c5"]

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<reponame>",
           "<|im_end", "<|im_start|", "|>", "<|", "<|im_end|><|im_end|>", "<file_sep>",
           "<|im_start|>user\nHi<|im_end|>\n", "[UD]", "[UDX]", "[UD", "<|IM_END|>", "< |im_end|>",
           "<|im_<|im_end|>end|>"]

LONG = ["a" * 300, "ab" * 200, "the" * 100, "-" * 200, " " * 150, "\n" * 90, "é" * 120, "中" * 150,
        "xyzzy" * 60, "1" * 80, "👍" * 40, "=" * 129, "aB" * 99 + "c", "internationalization" * 12,
        "\t" * 70 + "x", " " * 60 + "1", "Pneumonoultramicroscopicsilicovolcanoconiosis"]


def unescape(line):
    return (line.replace("\\\\", "\0").replace("\\n", "\n")
            .replace("\\t", "\t").replace("\0", "\\"))


def mixed(rng):
    pools = [PROSE, SCRIPTS, EMOJI, SPACES, SPACES, ODD, SPECIAL]
    parts = []
    for _ in range(rng.randint(2, 7)):
        part = rng.choice(rng.choice(pools))
        if len(part) > 12 and "<" not in part:
            start = rng.randrange(len(part) - 8)
            part = part[start:start + rng.randint(1, 10)]
        parts.append(part)
        if rng.random() < 0.25:
            parts.append(str(rng.randrange(10 ** rng.randint(1, 7))))
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def sentence(rng, words):
    out = []
    for _ in range(rng.randint(3, 9)):
        word = rng.choice(words)
        out.append({0: word.upper(), 1: word.title()}.get(rng.randrange(9), word))
        if rng.random() < 0.15:
            out[-1] += rng.choice([",", ".", "...", "!", "?!", ";", ":", "'s", ")", "\"", "%"])
        if rng.random() < 0.1:
            out.append(rng.choice(["%d" % rng.randrange(100000),
                                   "%.3f" % (rng.random() * 100), "1,234,567",
                                   "2024-02-%02d" % rng.randrange(29)]))
    return rng.choice(["", "", "", " ", "  ", "\t"]) + " ".join(out)


def make_corpus():
    rng = random.Random(20240229)
    code = [unescape(line) for line in CODE]
    lines = [""] + PROSE + code + SCRIPTS + EMOJI + SPACES + ODD + SPECIAL + LONG
    lines += [s + x for s in SPACES for x in ("a", "1", "!")]
    lines += ["x" + s + "7" + s + "y" + s for s in SPACES[:20]]
    lines += [a + b for a in SPECIAL[:6] for b in (" x", "\n", "<|im_end|>", "1", "é")]
    lines += ["%s%d" % (w, n) for w in ("x", " ", "v ") for n in
              (0, 10, 123, 1234, 12345, 999999, 10 ** 12)]
    words = sorted({w.strip(".,;:\"?!") for line in PROSE for w in line.split()})
    lines += [sentence(rng, words) for _ in range(400)]
    lines += [mixed(rng) for _ in range(420)]
    lines = list(dict.fromkeys(lines))
    assert len(lines) >= 1000, len(lines)
    return lines


def escape(text):
    for char, name in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\0", "\\0")):
        text = text.replace(char, name)
    return text


# --------------------------------------------------------- expected token ids

def base36(n):
    digits = ""
    while True:
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36] + digits
        n //= 36
        if n == 0:
            return digits


def write_ids(name, sections):
    """sections: (name, list of lists of ids), in the order that diffs best"""
    text = []
    before = None
    for title, lines in sections:
        text.append("= %s\n" % title)
        for i, ids in enumerate(lines):
            same = before is not None and before[i] == ids
            text.append("~\n" if same else " ".join(map(base36, ids)) + "\n")
        before = lines
    with open(os.path.join(HERE, name), "wb") as out:
        # zlib's own gzip header has neither a time nor a name: the same ids are the same file.
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        out.write(packer.compress("".join(text).encode("ascii")) + packer.flush())


def pretok(name):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), byte_level])
    pattern = {"llama-bpe": LLAMA3, "qwen2": QWEN2}[name]
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def reference(vocab, name):
    tokens, types, merges = vocab
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)},
                               [tuple(m.split(" ")) for m in merges],
                               ignore_merges=(name == "llama-bpe")))
    tok.pre_tokenizer = pretok(name)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, normalized=False) for t, y in
                            zip(tokens, types) if y == CONTROL])
    tok.add_tokens([AddedToken(t, normalized=False) for t, y in
                    zip(tokens, types) if y == USER_DEFINED])
    return tok


def sections_for(vocab, corpus):
    out = []
    for name in ("smollm", "gpt-2", "qwen2", "llama-bpe"):
        tok = reference(vocab, name)
        out.append((name, [tok.encode(line).ids for line in corpus]))
        if name == "smollm":
            tok.encode_special_tokens = True
            out.append(("smollm as text", [tok.encode(line).ids for line in corpus]))
    return out


def read_vocab(path):
    fields = gguf.GGUFReader(path).fields
    vocab = [fields["tokenizer.ggml." + k].contents()
             for k in ("tokens", "token_type", "merges")]
    return vocab, fields["tokenizer.chat_template"].contents()


def small_vocab(vocab):
    """The byte tokens and first merges of the model, and special tokens that
    begin alike, one of them user-defined."""
    tokens, types, merges = vocab
    merges = merges[:SMALL_MERGES]
    keep = [t for t, y in zip(tokens, types) if y == CONTROL]
    keep += [t for t, y in zip(tokens, types) if y == NORMAL and len(t) == 1]
    keep += [m.replace(" ", "") for m in merges] + ["[UD]", "[UDX]"]
    kinds = [CONTROL if t.startswith("<") and len(t) > 4 else
             USER_DEFINED if t.startswith("[UD") else NORMAL for t in keep]
    return keep, kinds, merges


def write_small(vocab):
    tokens, types, merges = vocab
    out = gguf.GGUFWriter(os.path.join(HERE, "tok_small.gguf"), "llama")
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges(merges)
    out.add_bos_token_id(tokens.index("<|im_start|>"))
    out.add_eos_token_id(tokens.index("<|im_end|>"))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.close()


def write_detok(vocab):
    """Most of these bytes are no characters: what U+FFFD stands for matters."""
    rng = random.Random(7)
    tok = reference(vocab, "smollm")
    singles = [i for i, t in enumerate(vocab[0]) if len(t) == 1]
    with open(os.path.join(HERE, "tok_detok.txt"), "w", encoding="utf-8",
              newline="\n") as out:
        for n in range(200):
            pool = range(len(vocab[0])) if n % 4 == 0 else singles
            ids = [rng.choice(pool) for _ in range(rng.randint(1, 12))]
            out.write("%s\t%s\n" % (" ".join(map(base36, ids)), escape(
                tok.decode(ids, skip_special_tokens=True))))


# -------------------------------------------------------------- SentencePiece

def train(corpus, name, fallback, prefix, symbols):
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as out:
            for line in corpus:
                if len(line) < 200 and "\0" not in line:
                    out.write(line.replace("\n", " ").replace("\r", " ") + "\n")
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=os.path.join(folder, "m"),
            model_type="bpe", vocab_size=900 if fallback else 700,
            byte_fallback=fallback, add_dummy_prefix=prefix,
            normalization_rule_name="identity", remove_extra_whitespaces=False,
            user_defined_symbols=symbols, character_coverage=0.98,
            num_threads=1, minloglevel=2)
        sp = sentencepiece.SentencePieceProcessor(
            model_file=os.path.join(folder, "m.model"))
    out = gguf.GGUFWriter(os.path.join(HERE, name + ".gguf"), "llama")
    n = sp.get_piece_size()
    types = [CONTROL if sp.is_control(i) else UNKNOWN if sp.is_unknown(i) else
             6 if sp.is_byte(i) else NORMAL for i in range(n)]
    for symbol in symbols:
        types[sp.piece_to_id(symbol)] = USER_DEFINED
    out.add_tokenizer_model("llama")
    out.add_token_list([sp.id_to_piece(i) for i in range(n)])
    out.add_token_scores([sp.get_score(i) for i in range(n)])
    out.add_token_types(types)
    out.add_bos_token_id(sp.bos_id())
    out.add_eos_token_id(sp.eos_id())
    out.add_unk_token_id(sp.unk_id())
    out.add_add_bos_token(prefix)
    out.add_add_space_prefix(prefix)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.close()
    write_ids(name + ".ids.gz", [("spm", [sp.encode(line) for line in corpus])])


# ------------------------------------------------------------- chat templates

ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('Conversation roles must alternate "
             "user/assistant/user/assistant/...') }}{% endif %}")
CHATML_LOOP = ("{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
               "+ '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt "
               "%}{{ '<|im_start|>assistant\\n' }}{% endif %}")
CHATML_DEFAULT = ("{% for message in messages %}{% if loop.first and "
                  "messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
                  "SYSTEM<|im_end|>\\n' }}{% endif %}" + CHATML_LOOP)
MISTRAL = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE +
           "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] "
           "+ ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ "
           "message['content'] + EOS}}{% else %}{{ raise_exception('Only user "
           "and assistant roles are supported!') }}{% endif %}{% endfor %}")

# name: (template as the model's makers published it, bos, eos)
FAMILIES = {
    "chatml": ("{% for message in messages %}" + CHATML_LOOP, "", ""),
    "qwen1.5": (CHATML_DEFAULT.replace(
        "SYSTEM", "You are a helpful assistant"), "", ""),
    "qwen2": (CHATML_DEFAULT.replace(
        "SYSTEM", "You are a helpful assistant."), "", ""),
    "qwen2.5": ("""\
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""", "", ""),
    "llama2": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = "
        "messages[1:] %}{% set system_message = messages[0]['content'] %}"
        "{% else %}{% set loop_messages = messages %}{% set system_message = "
        "false %}{% endif %}{% for message in loop_messages %}" + ALTERNATE +
        "{% if loop.index0 == 0 and system_message != false %}{% set content = "
        "'<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] "
        "%}{% else %}{% set content = message['content'] %}{% endif %}{% if "
        "message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() "
        "+ ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + "
        "content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
        "<s>", "</s>"),
    "llama3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}"
        "{% set content = '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}"
        "{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
        "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ "
        "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
        "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.1": ("""\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""", "<|begin_of_text|>", "<|eot_id|>"),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ "
        "raise_exception('System role not supported') }}{% endif %}{% for "
        "message in messages %}" + ALTERNATE + "{% if (message['role'] == "
        "'assistant') %}{% set role = 'model' %}{% else %}{% set role = "
        "message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + "
        "message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if "
        "add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}",
        "<bos>", "<eos>"),
    "gemma3": ("""\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
""", "<bos>", "<eos>"),
    "mistral": (MISTRAL.replace("EOS", "eos_token"), "<s>", "</s>"),
    "mistral-v0.1": (MISTRAL.replace("EOS", "eos_token + ' ' "), "<s>", "</s>"),
    "mistral-v1": ("""\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.first and system_message is defined %}
            {{- " [INST] " + system_message + "\\n\\n" + message["content"] + " [/INST]" }}
        {%- else %}
            {{- " [INST] " + message["content"] + " [/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
""", "<s>", "</s>"),
    "zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
        "{{ '<|user|>\\n' + message['content'] + eos_token }}\n{% elif "
        "message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] "
        "+ eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ "
        "'<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n"
        "{% endif %}\n{% endfor %}", "<s>", "</s>"),
    "phi": (
        "{% for message in messages %}{% if message['role'] == 'system' %}"
        "{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif "
        "message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + "
        "'<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{"
        "'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}"
        "{% else %}{{ eos_token }}{% endif %}", "<s>", "<|endoftext|>"),
}

CONVERSATIONS = [
    [("user", "What is 2 + 2?")],
    [("system", "Be brief."), ("user", "Hi")],
    [("user", "Hi"), ("assistant", "Hello!"), ("user", "How are\nyou?")],
    [("system", " Two\nlines. \n"), ("user", "\n a \u00a0"),
     ("assistant", "\t b\u3000\x1c"), ("user", " c d\u2028 ")],
    [("user", "")],
    [("system", ""), ("user", "x")],
    [("system", "s"), ("user", " \n ")],
    [("user", "\u00e9t\u00e9 \U0001F600 <|im_end|> [/INST] </s>")],
    [("user", "a"), ("assistant", "b")],
    [("user", "a"), ("user", "b")],
    [("assistant", "a"), ("user", "b")],
    [("system", "s"), ("assistant", "a"), ("user", "b")],
    [("user", "a"), ("system", "s"), ("user", "b")],
]


def render(text, bos, eos, conversation):
    """None where the template raises."""
    class Raised(Exception):
        pass

    def raise_exception(message):
        raise Raised(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = raise_exception
    messages = [{"role": r, "content": c} for r, c in conversation]
    try:
        return env.from_string(text).render(
            messages=messages, bos_token=bos, eos_token=eos,
            add_generation_prompt=True)
    except Raised:
        return None


def write_chat(model_template):
    families = dict(FAMILIES, smollm=(model_template, "", ""))
    with open(os.path.join(HERE, "tok_chat.txt"), "w", encoding="utf-8") as out:
        for name, (text, bos, eos) in families.items():
            out.write("template %s\t%s\n" % (name, escape(text)))
            for conversation in CONVERSATIONS:
                # A late system message, which these templates drop or leave
                # in a user's place without a word, is refused here.
                if (name in ("llama2", "gemma", "gemma3") and
                        conversation[1:2] == [("system", "s")]):
                    continue
                expected = render(text, bos, eos, conversation)
                for role, content in conversation:
                    out.write("message %s\t%s\n" % (role, escape(content)))
                out.write("raises\n" if expected is None else
                          "renders\t%s\n" % escape(expected))


def main():
    vocab, model_template = read_vocab(sys.argv[1])
    corpus = make_corpus()
    with open(os.path.join(HERE, "tok_corpus.txt"), "w", encoding="utf-8",
              newline="\n") as out:
        out.writelines(escape(line) + "\n" for line in corpus)
    write_ids("tok_model.ids.gz", sections_for(vocab, corpus))
    part = corpus[::SMALL_STEP]
    small = small_vocab(vocab)
    write_small(small)
    write_detok(small)
    write_ids("tok_small.ids.gz", sections_for(small, part))
    train(part, "tok_spm_bytes", True, True, [])
    train(part, "tok_spm_plain", False, False, ["<tool>", "<tool_x>"])
    write_chat(model_template)


if __name__ == "__main__":
    main()
