#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What float32 says of the log-likelihoods that evaluation harnesses ask for, without Baton's code.

usage: make_evaluation_golden.py MODEL.gguf BATON_TINY_MODEL OUT.json

Runs PyTorch transformers in float32 on the default model's file dequantized, and on two small models that the build's
generator writes. Needs what make_logits_golden.py beside this needs, whose tokenizer it takes. Pairs of context and
continuation are cut as lm-evaluation-harness cuts them (TemplateLM._encode_pair()), long texts as it does for
perplexity (get_rolling_token_windows() and make_disjoint_window()).

Format: {"default": SET, "tiny_f32": SET, "tiny_bf16": SET}; a SET has "arguments" of the generator (of small models),
"prefix" (the token that stands before a text), "max_length" (the harness' option), "pairs" and "windows". Each of
these is {"context": ids, "continuation": ids, "logprobs", "best", "second"}: of each token of the continuation its
log-prob and those of the two likeliest tokens there; of small models also "rounded", the log-probs by numpy in float64
with the roundings that kernels.h says (make_tiny_golden.py), which alone are what sets ours apart. "items" of the default model: {"question", "choices", "answer"},
whose pairs stand one after the other; behind them are those of "last_words": [text, word].
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import make_tiny_golden
import numpy as np
import torch
from gguf import GGUFReader
from make_logits_golden import tokenize
from transformers import AutoModelForCausalLM

ITEMS = [
    ("The capital of France is", ["Paris", "Rome", "Berlin", "Lisbon"], 0),
    ("Water freezes at a temperature of", ["zero degrees Celsius", "fifty degrees Celsius", "one thousand degrees"], 0),
    ("Question: Which animal lays eggs?\nAnswer:", ["a dog", "a hen", "a cow", "a horse"], 1),
    ("Question: How many legs does a spider have?\nAnswer:", ["four", "six", "eight", "ten"], 2),
    ("She opened her umbrella because it began to", ["rain", "sing", "sleep", "burn"], 0),
    ("The opposite of hot is", ["warm", "cold", "red", "heavy"], 1),
    ("To cut a loaf of bread you use a", ["spoon", "pillow", "knife", "candle"], 2),
    ("Plants make their food with the help of", ["moonlight", "sunlight", "plastic", "noise"], 1),
    ("def add(a, b):\n    return", ["a + b", "a - b", "None", "print(a)"], 0),
    ("2 + 2 =", ["3", "4", "5", "22"], 1),
    ("Le contraire de « grand » est «", ["petit", "bleu", "rapide", "demain"], 0),
    ("The Earth goes around the", ["Moon", "Sun", "Mars", "clock"], 1),
]
LAST_WORDS = [
    ("He put the key into the lock, turned it, and opened the", "door"),
    ("The baker took the bread out of the", "oven"),
    ("At night the sky was so clear that we could see all the", "stars"),
    ("The doctor listened to my heart and told me to take a deep", "breath"),
    ("After the last page she closed the", "book"),
    ("The fisherman threw his net into the", "sea"),
]
MAX_LENGTH = 2048  # the harness' default
LONG_TOKENS = 2500
TINY = {"tiny_f32": ["--seed", "31", "--layers", "3", "--context", "512"],
        "tiny_bf16": ["--seed", "32", "--layers", "2", "--context", "512", "--type", "BF16", "--embedding-type", "BF16"]}
TINY_VOCABULARY = 288
TINY_MAX_LENGTH, TINY_LONG = 130, 400


def pair(path, context, continuation):
    n_spaces = len(context) - len(context.rstrip())
    if n_spaces > 0:
        context, continuation = context[:-n_spaces], context[-n_spaces:] + continuation
    whole, first = tokenize(path, context + continuation), tokenize(path, context)
    return [int(x) for x in whole[:len(first)]], [int(x) for x in whole[len(first):]]


def rolling(ids, prefix, max_length):
    """Of each window what is seen and what is asked: every token is asked once, and as many as fit are seen."""
    size = max_length - 2  # one place is the new token's, one the token before the first
    at = min(size, len(ids))
    windows = [([prefix] + ids[:at - 1], ids[:at])]
    while at < len(ids):
        n = min(len(ids) - at, size)
        windows.append((ids[at + n - size - 1:at + n - 1], ids[at:at + n]))
        at += n
    # What is seen and asked both stands in what is asked alone.
    return [(seen[:len(seen) - (len(asked) - 1)], asked) for seen, asked in windows]


def rounded(values):
    return [round(float(x), 6) for x in values]


def score(model, context, continuation):
    ids = context + continuation
    with torch.no_grad():
        logits = model(torch.tensor(ids[:-1])[None]).logits[0][len(context) - 1:].double()
        rows = torch.log_softmax(logits, dim=-1)
    best = torch.topk(rows, 2).values
    return {"context": context, "continuation": continuation,
            "logprobs": rounded(rows[torch.arange(len(continuation)), torch.tensor(continuation)]),
            "best": rounded(best[:, 0]), "second": rounded(best[:, 1])}


def load(path):
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    return model.eval()


def default_set(path):
    model = load(path)
    prefix = int(GGUFReader(str(path)).fields["tokenizer.ggml.bos_token_id"].contents())
    text = (Path(__file__).parent / "accuracy_text.txt").read_text(encoding="utf-8")
    pairs = [pair(str(path), question, " " + choice) for question, choices, _ in ITEMS for choice in choices]
    pairs += [pair(str(path), text, " " + word) for text, word in LAST_WORDS]
    long = [int(x) for x in tokenize(str(path), text)[:LONG_TOKENS]]
    return {"items": [{"question": q, "choices": c, "answer": a} for q, c, a in ITEMS], "last_words": LAST_WORDS,
            "prefix": prefix, "max_length": MAX_LENGTH, "pairs": [score(model, *x) for x in pairs],
            "windows": [score(model, *x) for x in rolling(long, prefix, MAX_LENGTH)]}


def tiny_set(tool, arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tiny.gguf"
        subprocess.run([tool, str(path), *arguments], check=True)
        return tiny_scores(path, arguments)


def with_rounded(path, scored):
    context, continuation = scored["context"], scored["continuation"]
    logits = make_tiny_golden.forward(str(path), context + continuation[:-1])[len(context) - 1:]
    rows = torch.log_softmax(torch.tensor(logits), dim=-1)
    scored["rounded"] = rounded(rows[torch.arange(len(continuation)), torch.tensor(continuation)])
    return scored


def tiny_scores(path, arguments):
    model = load(path)
    draw = np.random.default_rng(7)
    pairs = [([int(x) for x in draw.integers(0, TINY_VOCABULARY, n)],
              [int(x) for x in draw.integers(0, TINY_VOCABULARY, k)])
             for n, k in [(1, 1), (1, 5), (2, 3), (15, 1), (16, 16), (17, 2), (33, 31), (100, 20)]]
    # One whose continuation is what the model would say.
    with torch.no_grad():
        said = model.generate(torch.tensor(pairs[-1][0])[None], max_new_tokens=8, do_sample=False, eos_token_id=None)
    pairs.append((pairs[-1][0], [int(x) for x in said[0, 100:]]))
    long = [int(x) for x in draw.integers(0, TINY_VOCABULARY, TINY_LONG)]
    return {"arguments": arguments, "prefix": 1, "max_length": TINY_MAX_LENGTH,
            "pairs": [with_rounded(path, score(model, *x)) for x in pairs],
            "windows": [with_rounded(path, score(model, *x)) for x in rolling(long, 1, TINY_MAX_LENGTH)]}


def lines(value):
    """JSON, a line for each pair and window."""
    parts = [f"{json.dumps(name)}: " + (
        "[\n" + ",\n".join(json.dumps(x, separators=(",", ":"), ensure_ascii=False) for x in part) + "]"
        if name in ("pairs", "windows") else json.dumps(part, ensure_ascii=False)) for name, part in value.items()]
    return "{" + ",\n".join(parts) + "}"


def main():
    torch.set_num_threads(2)
    found = {"default": default_set(Path(sys.argv[1]).resolve())}
    for name, arguments in TINY.items():
        found[name] = tiny_set(sys.argv[2], arguments)
    text = ",\n".join(f'"{name}": {lines(value)}' for name, value in found.items())
    Path(sys.argv[3]).write_text("{" + text + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
