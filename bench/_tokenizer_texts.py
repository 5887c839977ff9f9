# SPDX-License-Identifier: Apache-2.0
"""The texts of bench/tokenizer.py: the same bytes for the same sources.

Ordinary text is what this repository holds: its documents and the comments of
its sources (English), its sources (code). Nothing is repeated to make it longer.
The rest is generated from fixed seeds.
"""
import itertools
import os
import random
import re
import string

LIMIT = 1 << 20
SOURCES = (".c", ".h", ".py", ".sh", ".cu")
SKIP = ("golden", "corpus", "_table", ".git", "build")


def files(root, ends):
    """Paths below root in an order that mixes the folders and never changes."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(SKIP))
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(ends) and "_table" not in name and not os.path.islink(path):
                found.append(os.path.relpath(path, root))
    found.sort()
    random.Random(1).shuffle(found)
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def cut(text, limit=LIMIT):
    return text.encode("utf-8")[:limit].decode("utf-8", errors="ignore")


def comments(source):
    """The sentences of C comments, without their stars."""
    out = []
    for body in re.findall(r"/\*[*]?(.*?)\*/", source, re.S):
        text = re.sub(r"\n[ \t]*\*[ \t]?", "\n", body).strip()
        if len(text) > 60 and "SPDX" not in text:
            out.append(re.sub(r"[ \t]*\n[ \t]*(?=\S)", " ", text))
    return out


def english(root):
    parts = [read(root, "tests/golden/accuracy_text.txt")]
    parts += [read(root, p) for p in files(root, (".md",))]
    for path in files(root, (".c", ".h")):
        parts += comments(read(root, path))
    return cut("\n\n".join(parts))


def code(root):
    return cut("\n".join(read(root, p) for p in files(root, SOURCES)))


WEIGHTS = list(itertools.accumulate(1 / (k + 1) for k in range(0x6000)))


def zipf(rng, items, n):
    """n of items, the k-th as often as 1/k"""
    return rng.choices(items, cum_weights=WEIGHTS[:len(items)], k=n)


def cjk(rng):
    """Characters in random order: no word comes twice, unlike in real text."""
    han = [chr(c) for c in range(0x4E00, 0x9FA6)]
    hangul = [chr(c) for c in range(0xAC00, 0xD7A4)]
    kana = [chr(c) for c in range(0x3041, 0x30FF)]
    for pool in (han, hangul, kana):
        rng.shuffle(pool)
    out = []
    while len(out) < LIMIT // 60:
        pool = rng.choice((han, han, han, kana, hangul))
        out.append("".join(zipf(rng, pool, rng.randint(4, 25))) + rng.choice("，。、！ \n"))
    return "".join(out)


def mixed(rng, words):
    emoji = [chr(c) for c in (*range(0x1F300, 0x1F650), *range(0x2600, 0x2700))]
    accents = "áàâäãåçéèêëíìîïñóòôöõúùûüßøæœşğıłżźćńąęščřžýěů"
    cyrillic = [chr(c) for c in range(0x430, 0x450)]
    out = []
    for word in words[:LIMIT // 8]:
        kind = rng.random()
        if kind < 0.15:
            word += " " + "".join(rng.choices(emoji, k=rng.randint(1, 3)))
        elif kind < 0.3:
            word = "".join(rng.choice(accents) if rng.random() < 0.3 else c for c in word)
        elif kind < 0.4:
            word = "".join(zipf(rng, cyrillic, rng.randint(2, 9)))
        out.append(word)
    return " ".join(out)


def digits(rng):
    return "\n".join(
        f"{rng.randrange(10 ** rng.randint(1, 12))},{rng.uniform(-1000, 1000):.6f},2026-{rng.randint(1, 12):02d}-"
        f"{rng.randint(1, 28):02d}T{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}Z,0x{rng.getrandbits(64):016x}"
        for _ in range(LIMIT // 68))


def long_words(rng):
    letters = string.ascii_letters
    return "\n".join("".join(rng.choices(letters, k=rng.randint(200, 4000))) for _ in range(LIMIT // 2101))


def chat(rng, words):
    system = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
              "<|im_end|>\n")
    out, size = [], 0
    while size < LIMIT:
        start = rng.randrange(len(words) - 60)
        out.append(f"{system}<|im_start|>user\n{' '.join(words[start:start + rng.randint(10, 60)])}"
                   "<|im_end|>\n<|im_start|>assistant\n")
        size += len(out[-1])
    return "".join(out)


def one_word(rng):
    return "".join(rng.choices(string.ascii_lowercase, k=1000000))


def make(root):
    """@return [(name, text, bytes of a piece, special tokens are read)]"""
    prose = english(root)
    words = prose.split()
    return [("english", prose, 4096, False),
            ("code", code(root), 4096, False),
            ("cjk", cjk(random.Random(2)), 4096, False),
            ("mixed, emoji", mixed(random.Random(3), words), 4096, False),
            ("digits", digits(random.Random(4)), 4096, False),
            ("long words", long_words(random.Random(5)), 4096, False),
            ("chat prompts", chat(random.Random(6), words), 4096, True),
            ("one word", one_word(random.Random(7)), 0, False)]
