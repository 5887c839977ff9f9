#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Beam searches by Hugging Face transformers over tiny models of three families, without any of Baton's code.

usage: make_beam_golden.py BATON_TINY_MODEL > beams.jsonl

The search is generate(num_beams=…) of transformers, untouched. Its model is a shell around the float64 forward pass of
make_family_golden.py, with the roundings of kernels.h: so its logits are Baton's to about 1e-5, and the answers can be
compared token for token. Each setting is searched with the first prompt that can be: where a step is decided by less than
MARGIN between the first candidate that is kept and the first that is not, float32 would be compared with float64, and
where log-probs hang on a number that lies half way between two codes (is_steady()), a rounding. One beam is generate()'s
greedy search, whose score is the same formula. Needs numpy, gguf, torch and transformers (pip); versions on the first line.

Format: a line of JSON each. First {"transformers": VERSION}; then for each model {"model": generator's arguments} and
its searches: prompt, width, lp (length_penalty), early (early_stopping), max_new, eos, and, where they are there, min
(min_new_tokens), rep (repetition_penalty) and bad (bad_words_ids); answers: best first, [sequences_scores, ids].
"""
import itertools
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from make_family_golden import Model
from make_tiny_golden import bf16
from transformers.modeling_outputs import CausalLMOutput

MODELS = [
    ["--architecture", "qwen3", "--seed", "142", "--head-dim", "24", "--tied"],
    ["--architecture", "gpt2", "--seed", "152", "--kv-heads", "4", "--ffn", "256", "--tied"],
    ["--architecture", "granite", "--seed", "48", "--attn-scale", "0.3", "--key", "embedding_scale=f:3",
     "--key", "residual_scale=f:0.4", "--key", "logit_scale=f:0.7"],
]
WIDTHS, PENALTIES, STOPS = (1, 2, 4, 8), (-1.0, 0.0, 1.0, 2.0), (False, True, "never")
MAX_NEW, MOST_PROMPTS = 14, 400
MARGIN, STEADY = 5e-5, 5e-5


class Config(transformers.PretrainedConfig):
    model_type = "shell"


class Shell(transformers.PreTrainedModel, transformers.GenerationMixin):
    """transformers' generate() over the logits of another model."""
    config_class = Config
    _supports_cache_class = False

    def __init__(self, config, model):
        super().__init__(config)
        self.none = torch.nn.Parameter(torch.zeros(1))
        self.model, self.known = model, {}

    def prepare_inputs_for_generation(self, input_ids, **more):
        return {"input_ids": input_ids}

    def row(self, ids):
        if ids not in self.known:
            self.known[ids] = torch.from_numpy(self.model.forward(np.array(ids))[-1]).float()
        return self.known[ids]

    def forward(self, input_ids, **more):
        rows = [self.row(tuple(ids)) for ids in input_ids.tolist()]
        return CausalLMOutput(logits=torch.stack(rows)[:, None, :])


class Margin:
    """The least distance between kept and dropped candidates, seen by looking at what topk() is asked."""

    def __enter__(self):
        self.least, self.topk = np.inf, torch.topk
        torch.topk = self.watch
        return self

    def __exit__(self, *what):
        torch.topk = self.topk

    def watch(self, values, k, *more, **named):
        all_of = self.topk(values.double(), k=min(k + 1, values.shape[-1])).values[0]
        gaps = (all_of[:-1] - all_of[1:])[all_of[1:] > -1e8]
        if len(gaps) > 0:
            self.least = min(self.least, gaps.min().item())
        return self.topk(values, k, *more, **named)


def scored(out, case, n_prompt):
    """@return [[score, ids], …], best first, and the least distance between the best candidates of one beam"""
    ids = out.sequences[:, n_prompt:].tolist()
    answers, least = [], np.inf
    for i, one in enumerate(ids):
        ends = [at for at, token in enumerate(one) if token in case["eos"]]
        one = one[:ends[0] + 1] if ends else one
        if case["width"] > 1:
            score = out.sequences_scores[i].item()
        else:
            rows = [torch.log_softmax(row[0].double(), -1) for row in out.scores]
            best = [row.topk(2).values for row in rows]
            least = min((two[0] - two[1]).item() for two in best)
            score = sum(row[token].item() for row, token in zip(rows, one)) / len(one) ** case["lp"]
        answers.append([round(score, 6), one])
    return answers, least


def search(shell, prompt, case, margin_of=MARGIN):
    more = {}
    if case.get("min"):
        more["min_new_tokens"] = case["min"]
    if case.get("rep"):
        more["repetition_penalty"] = case["rep"]
    if case.get("bad"):
        more["bad_words_ids"] = case["bad"]
    if case["width"] > 1:
        more.update(length_penalty=case["lp"], early_stopping=case["early"])
    with Margin() as margin, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = shell.generate(torch.tensor([prompt]), num_beams=case["width"], num_return_sequences=case["width"],
                             max_new_tokens=case["max_new"], do_sample=False, eos_token_id=case["eos"] or None,
                             pad_token_id=0, use_cache=False, return_dict_in_generate=True, output_scores=True, **more)
        least = margin.least
    answers, of_one = scored(out, case, len(prompt))
    return answers if min(least, of_one) > margin_of else None


def likely_ends(shell, prompt):
    """Three ids of its own answers, so that beams end at several lengths."""
    case = dict(width=8, lp=1.0, early=False, max_new=MAX_NEW, eos=[])
    found = search(shell, prompt, case, -1.0)
    ids = [answer[1][at] for at in (8, 5, 6, 3, 9, 2, 11, 1, 0) for answer in found]
    return list(dict.fromkeys(ids))[:3]


def total(model, prompt, ids):
    rows = model.forward(np.array(prompt + ids))[len(prompt) - 1:-1]
    return sum(torch.log_softmax(torch.from_numpy(rows), -1)[range(len(ids)), ids].tolist())


def is_steady(models, prompt, answers):
    """Whether the log-probs stay where weights are off by as much as float32 is: a number half way between two codes does
    not."""
    for _, ids in answers:
        totals = [total(model, prompt, ids) for model in models]
        if max(totals) - min(totals) > STEADY * len(ids):
            return False
    return True


def perturbed(path, seed):
    model, noise = Model(path, False, stored=bf16), np.random.default_rng(seed)
    model.w = {name: w * (1 + 6e-8 * noise.standard_normal(w.shape)) for name, w in model.w.items()}
    return model


def cases_of():
    """n_eos: of the ids that likely_ends() finds; bad: the last of them"""
    for i, (width, lp, early) in enumerate(itertools.product(WIDTHS, PENALTIES, STOPS)):
        yield dict(width=width, lp=lp, early=early, max_new=MAX_NEW - i % 4, n_eos=1 + (i + i // 3) % 3)
    for early in STOPS:
        yield dict(width=3, lp=0.7, early=early, max_new=MAX_NEW, n_eos=2)
    for width in (2, 3, 4, 8):
        yield dict(width=width, lp=0.7, early=False, max_new=MAX_NEW, n_eos=0)
        yield dict(width=width, lp=1.0, early=False, max_new=1, n_eos=1)
        yield dict(width=width, lp=1.0, early=False, max_new=MAX_NEW, n_eos=3, min=9)
        yield dict(width=width, lp=1.0, early=True, max_new=MAX_NEW, n_eos=3, rep=1.3)
        yield dict(width=width, lp=0.0, early="never", max_new=MAX_NEW, n_eos=2, bad=True)


def prompts(n):
    """Another one each time."""
    for i in itertools.count():
        length = (16, 21, 7)[i % 3]
        yield [(k * k * 41 + (11 + 2 * (i // 3)) * k + 3 + n + i // 3) % 288 for k in range(length)]


def found(shell, models, case, tries, ends_of):
    """@return the case with the first prompt whose answers can be compared; and how many could not"""
    for n_left, prompt in enumerate(tries):
        ends = ends_of.setdefault(tuple(prompt), None) or likely_ends(shell, prompt)
        ends_of[tuple(prompt)] = ends
        one = dict(prompt=prompt, **case, eos=ends[:case["n_eos"]])
        if one.pop("bad", None):
            one["bad"] = [[ends[2]]]
        del one["n_eos"]
        answers = search(shell, prompt, one)
        if answers is not None and is_steady(models, prompt, answers):
            return dict(one, answers=answers), n_left
    raise SystemExit(f"{case}: no prompt can be compared")


def main():
    print(json.dumps({"transformers": transformers.__version__}))
    for n, args in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "tiny.gguf"
            subprocess.run([sys.argv[1], str(path), *args], check=True)
            model = Model(path, False, stored=bf16)
            models = [model] + [perturbed(path, seed) for seed in range(6)]
        shell = Shell(Config(vocab_size=model.w["token_embd.weight"].shape[0], is_encoder_decoder=False), model)
        print(json.dumps({"model": args}), flush=True)
        ends_of, n_left_out = {}, 0
        for k, case in enumerate(cases_of()):
            tries = itertools.islice(prompts(n), k % 3, MOST_PROMPTS)  # not all with the first one
            one, n_left = found(shell, models, case, tries, ends_of)
            n_left_out += n_left
            print(json.dumps(one, separators=(",", ":")), flush=True)
        print(f"{args[1]}: {n_left_out} searches are too close to call", file=sys.stderr)


if __name__ == "__main__":
    main()
