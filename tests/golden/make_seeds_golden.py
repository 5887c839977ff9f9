#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What float32 says of the prompts in the documentation of Triton's TensorRT-LLM backend, without Baton's code.

usage: make_seeds_golden.py MODEL.gguf OUT.json

Runs PyTorch transformers on the default model's file dequantized to float32 over each prompt and the tokens that it
draws greedily behind it. Needs what make_logits_golden.py beside this needs, whose tokenizer it takes.

Format: {"vocab": n, "prompts": [{"text", "n_prompt", "ids", "top", "logits", "lse"}]}; ids: of the prompt and, behind
n_prompt of them, of the answer; for each position but the last of ids: its TOP largest logits, by their ids and
descending, and the log of the sum of all logits' exponentials, so that a log-prob is a logit less it.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from make_logits_golden import tokenize
from transformers import AutoModelForCausalLM

PROMPTS = [("What is machine learning?", 20), ("Born in north-east France, Soyer trained as a", 20),
           ("This is a test", 5), ("I want you to", 5), ("The cat is", 5)]
TOP = 8


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor(ids)[None]).logits[0].double().numpy()


def main():
    path = Path(sys.argv[1]).resolve()
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, torch_dtype=torch.float32)
    model.eval()
    found = []
    for text, n in PROMPTS:
        ids = [int(x) for x in tokenize(str(path), text)]
        n_prompt = len(ids)
        for _ in range(n):
            ids.append(int(logits_of(model, ids)[-1].argmax()))
        rows = logits_of(model, ids)[:-1]
        top = np.argsort(-rows, axis=1, kind="stable")[:, :TOP]
        most = rows.max(axis=1)
        found.append({
            "text": text, "n_prompt": n_prompt, "ids": ids, "top": top.tolist(),
            "logits": [[round(float(x), 4) for x in row] for row in np.take_along_axis(rows, top, axis=1)],
            "lse": [round(float(x), 4) for x in most + np.log(np.exp(rows - most[:, None]).sum(axis=1))]})
    lines = ",\n".join(json.dumps(x, separators=(",", ":")) for x in found)
    Path(sys.argv[2]).write_text(f'{{"vocab":{rows.shape[1]},"prompts":[\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
