#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected logits of models with LoRA adapters, by PEFT, and the files that it saves.

usage: make_peft_golden.py BATON_TINY_MODEL OUT_DIR [CASE ...]

A tiny model of make_family_golden.py in transformers, in float64, with an adapter of PEFT:
its numbers are numbers() of make_hf_golden.py by the names that PEFT saves them under, so
that a test can write the same file. PEFT's merged weights must give the same logits.
Needs numpy, gguf, torch, transformers and peft (pip).

Format of the .txt files: a line of arguments for the model's generator; adapter_config.json
on one line; for each tensor of adapter_model.safetensors a line "name dtype rows columns",
and an empty line; then token ids, row numbers and logits as make_family_golden.py has them.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import peft
import torch
from make_family_golden import CASES as MODELS
from make_family_golden import EVERY, KEPT_ROWS, Model, transformers_model
from make_hf_golden import numbers
from make_tiny_golden import TOKENS
from safetensors import safe_open

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "attention": ("llama_bias", "F32", dict(r=8, lora_alpha=0.1, target_modules=LINEAR[:4])),
    "rslora": ("qwen3", "BF16", dict(r=13, lora_alpha=0.04, use_rslora=True, target_modules=LINEAR)),
    "patterns": ("llama_yarn", "F16", dict(
        r=4, lora_alpha=0.1, target_modules="all-linear", rank_pattern={"layers.1.mlp.down_proj": 9, "k_proj": 2},
        alpha_pattern={"layers.1.mlp.down_proj": 0.3, "self_attn.q_proj": 0.05})),
    "fused": ("phi3", "F32", dict(r=8, lora_alpha=0.1, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
}


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].numpy()


def make(tool, name):
    model, dtype, settings = CASES[name]
    with tempfile.TemporaryDirectory() as tmp:
        path = str(Path(tmp) / "tiny.gguf")
        subprocess.run([tool, path, *MODELS[model]], check=True)
        base = transformers_model(Model(path, True))
        before = logits_of(base)
        adapted = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
        state = {}
        for key, value in peft.get_peft_model_state_dict(adapted).items():
            state[key] = numbers(key, dtype, "*", value.numel()).reshape(value.shape)
        peft.set_peft_model_state_dict(adapted, {key: value.double() for key, value in state.items()})
        logits = logits_of(adapted)
        for module in adapted.modules():  # saved in the type of the numbers
            if isinstance(module, peft.tuners.lora.LoraLayer):
                module.lora_A.to(state[next(iter(state))].dtype)
                module.lora_B.to(state[next(iter(state))].dtype)
        adapted.save_pretrained(tmp)
        config = json.loads((Path(tmp) / "adapter_config.json").read_text())
        config["target_modules"] = sorted(config["target_modules"])
        lines = []
        with safe_open(Path(tmp) / "adapter_model.safetensors", "pt") as f:
            for key in f.keys():
                assert torch.equal(f.get_tensor(key), state[key]), key
                lines.append(f"{key} {dtype} {state[key].shape[0]} {state[key].shape[1]}")
        for module in adapted.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                module.lora_A.double()
                module.lora_B.double()
        merged = logits_of(adapted.merge_and_unload())
    apart = np.abs(merged - logits).max()
    print(f"{name}: merged {apart:.2g} apart, moved by {np.abs(logits - before).max():.3g}, spread {logits.std():.2g}")
    assert apart < 1e-6  # norms are of float32 in transformers
    return [" ".join(MODELS[model]), json.dumps(config), *lines, "", " ".join(map(str, TOKENS)),
            " ".join(map(str, KEPT_ROWS)), *(" ".join(f"{v:.8g}" for v in logits[row][::EVERY]) for row in KEPT_ROWS)]


def main():
    tool, out_dir, *wanted = sys.argv[1:]
    for name in wanted or CASES:
        (Path(out_dir) / f"peft_{name}.txt").write_text("\n".join(make(tool, name)) + "\n")


if __name__ == "__main__":
    main()
