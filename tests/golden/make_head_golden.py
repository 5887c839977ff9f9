#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected hidden states and logits of tiny draft heads (EAGLE-3, multi-token prediction), computed without any of
Baton's code.

usage: make_head_golden.py BATON_TINY_MODEL OUT_DIR [CASE ...]

As make_family_golden.py, whose forward pass with Baton's roundings is used for the target and for the heads' layer. What is
the heads' own follows llama.cpp's src/models/eagle3.cpp and the MTP graph of qwen35.cpp, and vLLM's llama_eagle3.py: row p has token p + 1 and
the target's hidden states of position p; a head that drafts on takes its own output. Before a file is written, the
same without the roundings must agree with PyTorch: layers of transformers' Llama and Qwen 3 with the heads' weights.
Needs numpy, gguf, torch and transformers (pip).

Format of the .txt files: arguments of the generator for the target, for the head ("-": the target's file), token ids,
ids that are drafted on; then for each of ROWS every ninth of the target's hidden states and every fifth logit of the
head, then for each drafted id every fifth logit.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from make_family_golden import Model, unpermute
from make_tiny_golden import TOKENS

ROWS = [0, 11, 38]
DRAFTED = [41, 7, 200]
CLOSE = 2e-5

TARGET = ["--layers", "4", "--seed"]
CASES = {
    "eagle3": (TARGET + ["71"], ["--architecture", "eagle3", "--layers", "1", "--seed", "72", "--tied", "--draft-vocab", "96",
                        "--ffn", "96", "--key", "target_layers=l:1,2,3", "--key", "target_hidden_size=u:64"]),
    "eagle3_own": (TARGET + ["1071"], ["--architecture", "eagle3", "--layers", "1", "--seed", "1073", "--draft-vocab", "288",
                            "--kv-heads", "1", "--key", "extract_layers=l:0,2,4", "--key", "target_hidden_size=u:64",
                            "--key", "norm_before_residual=b:true", "--key", "norm_before_fc=b:true",
                            "--key", "norm_output=b:true"]),
    "nextn": (["--layers", "3", "--seed", "374", "--nextn"], None),
    "nextn_own": (["--architecture", "qwen3", "--layers", "3", "--seed", "375", "--nextn-own"], None),
}


class Target(Model):
    def hidden(self, tokens, layers):
        """x before each of layers, and behind the output norm."""
        x = self.embed(tokens)
        before = []
        for layer in range(self.n_layers):
            before.append(x)
            x = self.layer(x, layer)
        before.append(x)
        return np.concatenate([before[i] for i in layers], axis=1) if layers else self.norm(x, "output_norm")


class Eagle(Model):
    def layers_read(self):
        return self.key("target_layers") or self.key("extract_layers")

    def fuse(self, hidden):
        if self.key("norm_before_fc"):
            hidden = self.norm(hidden, "enc.output_norm")
        return self.times(hidden, "fc.weight")

    def run(self, tokens, g, target):
        own = "token_embd.weight" in self.w
        e = (self if own else target).w["token_embd.weight"][tokens]
        normed = self.norm(g, "blk.0.attn_norm_2")
        both = np.concatenate([self.norm(e, "blk.0.attn_norm"), normed], axis=1)
        x = normed if self.key("norm_before_residual") else g
        x = x + self.linear(self.heads(both, 0), "blk.0.attn_output")
        x = x + self.feed_forward(self.norm(x, "blk.0.ffn_norm"), 0)
        normed = self.norm(x, "output_norm")
        return normed if self.key("norm_output") else x, self.times(normed, "output.weight")


class Nextn(Model):
    def layers_read(self):
        return []

    def fuse(self, hidden):
        return hidden

    def run(self, tokens, h, target):
        n = self.n_layers - 1
        own = f"blk.{n}.nextn.embed_tokens.weight" in self.w
        at = f"blk.{n}.nextn."
        e = self.w[at + "embed_tokens.weight" if own else "token_embd.weight"][tokens]
        both = np.concatenate([self.norm(e, at + "enorm"), self.norm(h, at + "hnorm")], axis=1)
        x = self.layer(self.times(both, at + "eh_proj.weight"), n)
        x = self.norm(x, at + "shared_head_norm" if own else "output_norm")
        return x, self.times(x, at + "shared_head_head.weight" if own else "output.weight")


def draft(head, target, hidden):
    """Logits of all rows, then of each drafted id, whose hidden state is the head's own output."""
    g = head.fuse(hidden[:-1])
    out, logits = head.run(TOKENS[1:], g, target)
    chain = []
    tokens = TOKENS[1:]
    for token in DRAFTED:
        tokens, g = tokens + [token], np.concatenate([g, out[-1:]])
        out, more = head.run(tokens, g, target)
        chain.append(more[-1])
    return logits, chain


class Torch:
    """The layer of a head by transformers, in float64."""

    def __init__(self, m, layer, wide):
        import torch
        import transformers
        from transformers.models.llama import modeling_llama as llama
        from transformers.models.qwen3 import modeling_qwen3 as qwen3
        kind = qwen3 if m.arch == "qwen3" else llama
        name = "Qwen3" if m.arch == "qwen3" else "Llama"
        config = getattr(transformers, name + "Config")(
            hidden_size=m.dim, num_attention_heads=m.n_heads, num_key_value_heads=m.n_kv, head_dim=m.head_dim,
            intermediate_size=m.key("feed_forward_length"), rms_norm_eps=1e-5, num_hidden_layers=1,
            max_position_embeddings=m.key("context_length"), attn_implementation="eager",
            rope_parameters={"rope_theta": m.key("rope.freq_base"), "rope_type": "default"})
        self.m, self.torch, self.wide = m, torch, wide
        self.layer = getattr(kind, name + "DecoderLayer")(config, 0).double().eval()
        self.rotary = getattr(kind, name + "RotaryEmbedding")(config)
        attn = self.layer.self_attn
        if wide:
            for proj in "qkv":
                rows = getattr(attn, proj + "_proj").weight.shape[0]
                setattr(attn, proj + "_proj", torch.nn.Linear(2 * m.dim, rows, bias=False).double())
        turn = (lambda w, n: w) if m.arch == "qwen3" else unpermute
        at = f"blk.{layer}."
        put = {attn.q_proj: turn(m.w[at + "attn_q.weight"], m.n_heads), attn.k_proj: turn(m.w[at + "attn_k.weight"], m.n_kv),
               attn.v_proj: m.w[at + "attn_v.weight"], attn.o_proj: m.w[at + "attn_output.weight"],
               self.layer.mlp.gate_proj: m.w[at + "ffn_gate.weight"], self.layer.mlp.up_proj: m.w[at + "ffn_up.weight"],
               self.layer.mlp.down_proj: m.w[at + "ffn_down.weight"],
               self.layer.input_layernorm: m.w[at + "attn_norm.weight"],
               self.layer.post_attention_layernorm: m.w[at + "ffn_norm.weight"]}
        if m.arch == "qwen3":
            put |= {attn.q_norm: m.w[at + "attn_q_norm.weight"], attn.k_norm: m.w[at + "attn_k_norm.weight"]}
        for module, w in put.items():
            module.weight = torch.nn.Parameter(torch.tensor(w))

    def rms(self, x, name):
        torch = self.torch
        return torch.nn.functional.rms_norm(x, x.shape[-1:], torch.tensor(self.m.w[name + ".weight"]), 1e-5)

    def attend(self, x):
        torch, n = self.torch, x.shape[1]
        mask = torch.full((1, 1, n, n), float("-inf"), dtype=torch.float64).triu(1)
        cos_sin = self.rotary(x, torch.arange(n)[None])
        return self.layer.self_attn(hidden_states=x, position_embeddings=cos_sin, attention_mask=mask)[0]

    def run(self, tokens, g, target):
        torch, m = self.torch, self.m
        g = torch.tensor(g)[None]
        if self.wide:
            own = "token_embd.weight" in m.w
            e = torch.tensor((m if own else target).w["token_embd.weight"][tokens])[None]
            normed = self.rms(g, "blk.0.attn_norm_2")
            both = torch.cat([self.layer.input_layernorm(e), normed], dim=-1)
            x = (normed if m.key("norm_before_residual") else g) + self.attend(both)
            x = x + self.layer.mlp(self.layer.post_attention_layernorm(x))
            normed = self.rms(x, "output_norm")
            out = normed if m.key("norm_output") else x
            logits = normed @ torch.tensor(m.w["output.weight"]).T
        else:
            at = f"blk.{m.n_layers - 1}.nextn."
            own = at + "embed_tokens.weight" in m.w
            e = torch.tensor(m.w[at + "embed_tokens.weight" if own else "token_embd.weight"][tokens])[None]
            both = torch.cat([self.rms(e, at + "enorm"), self.rms(g, at + "hnorm")], dim=-1)
            x = both @ torch.tensor(m.w[at + "eh_proj.weight"]).T
            x = x + self.attend(self.layer.input_layernorm(x))
            x = x + self.layer.mlp(self.layer.post_attention_layernorm(x))
            out = self.rms(x, at + "shared_head_norm" if own else "output_norm")
            logits = out @ torch.tensor(m.w[at + "shared_head_head.weight" if own else "output.weight"]).T
        return out[0].detach().numpy(), logits[0].detach().numpy()

    def fuse(self, hidden):
        torch, m = self.torch, self.m
        if not self.wide:
            return hidden
        h = torch.tensor(hidden)
        if m.key("norm_before_fc"):
            h = self.rms(h, "enc.output_norm")
        return (h @ torch.tensor(m.w["fc.weight"]).T).numpy()


def case(tool, name, tmp):
    """@return lines; and how far PyTorch is from the pass without roundings"""
    target_args, head_args = CASES[name]
    paths = [str(Path(tmp) / "target.gguf"), str(Path(tmp) / "head.gguf")]
    subprocess.run([tool, paths[0], *target_args], check=True)
    if head_args:
        subprocess.run([tool, paths[1], *head_args], check=True)
    kind = Eagle if head_args else Nextn
    results = []
    for exact in (True, False):
        target = Target(paths[0], exact)
        head = kind(paths[1 if head_args else 0], exact)
        target.n_layers -= target.key("nextn_predict_layers", 0)
        hidden = target.hidden(TOKENS, head.layers_read())
        results.append((hidden, *draft(head, target, hidden)))
        if exact:
            torch = Torch(head, 0 if head_args else head.n_layers - 1, bool(head_args))
            logits, chain = draft(torch, target, hidden)
            apart = max(np.abs(logits - results[0][1]).max(), np.abs(np.array(chain) - np.array(results[0][2])).max())
    hidden, logits, chain = results[1]
    lines = [" ".join(target_args), " ".join(head_args) if head_args else "-", " ".join(map(str, TOKENS)),
             " ".join(map(str, DRAFTED))]
    for row in ROWS:
        lines += [" ".join(f"{v:.8g}" for v in hidden[row][::9]), " ".join(f"{v:.8g}" for v in logits[row][::5])]
    lines += [" ".join(f"{v:.8g}" for v in one[::5]) for one in chain]
    return lines, apart, np.abs(logits - results[0][1]).max(), logits.std()


def main():
    tool, out_dir, *wanted = sys.argv[1:]
    bad = False
    for name in wanted or CASES:
        with tempfile.TemporaryDirectory() as tmp:
            lines, apart, rounding, spread = case(tool, name, tmp)
        print(f"{name}: {apart:.2g} from PyTorch, roundings {rounding:.2g}, spread {spread:.2g}")
        if not apart < CLOSE:
            print(f"{name}: too far apart")
            bad = True
            continue
        (Path(out_dir) / f"head_{name}.txt").write_text("\n".join(lines) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
