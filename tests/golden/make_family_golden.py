#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected logits of tiny models of every family, computed without any of Baton's code.

usage: make_family_golden.py [--check] BATON_TINY_MODEL OUT_DIR [CASE ...]

As make_tiny_golden.py, whose roundings are used: a model file for each case, its forward
pass in float64 by numpy. Before a file is written, the same pass without the roundings
must agree with PyTorch `transformers`, whose model of the family is given the file's
tensors (names by the gguf package's map; what llama.cpp's converter does to them, undone).
--check compares and writes nothing. Needs numpy, gguf, torch and transformers (pip).

Format of the .txt files: a line of arguments for the generator, a line of token ids, a line
of row numbers, then of each of those rows the logits of every ninth token.
"""
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from make_tiny_golden import TOKENS, as_stored, attention, bf16, eight_bits

KEPT_ROWS = [0, 11, 33, 39]
EVERY = 9
CONTEXT = 256  # that the test asks for
MARGIN = 1e-3  # of scores of the last expert that is chosen and the first that is not
CLOSE = 2e-5  # of float32 in parts of transformers; measured 4e-6 at most

CASES = {
    "llama_bias": ["--architecture", "llama", "--seed", "31", "--biases"],
    "llama_window": ["--architecture", "llama", "--seed", "32", "--window", "11"],
    "llama_linear": ["--architecture", "llama", "--seed", "33", "--key", "rope.scaling.type=s:linear",
                     "--key", "rope.scaling.factor=f:4"],
    "llama_yarn": ["--architecture", "llama", "--seed", "34", "--context", "256", "--key", "rope.scaling.type=s:yarn",
                   "--key", "rope.scaling.factor=f:4", "--key", "rope.scaling.original_context_length=u:64"],
    "qwen2": ["--architecture", "qwen2", "--seed", "41"],
    "qwen3": ["--architecture", "qwen3", "--seed", "142", "--head-dim", "24", "--tied"],
    "gemma": ["--architecture", "gemma", "--seed", "43", "--head-dim", "24", "--tied"],
    "gemma2": ["--architecture", "gemma2", "--seed", "44", "--layers", "3", "--head-dim", "24", "--tied",
               "--window", "11", "--soft-cap", "1.5", "--key", "final_logit_softcapping=f:3"],
    "gemma3": ["--architecture", "gemma3", "--seed", "245", "--layers", "3", "--head-dim", "24", "--tied",
               "--window", "11", "--key", "rope.freq_base_swa=f:1000", "--key", "rope.scaling.type=s:linear",
               "--key", "rope.scaling.factor=f:8", "--key", "attention.sliding_window_pattern=p:101"],
    "phi3": ["--architecture", "phi3", "--seed", "46", "--rope-dims", "12", "--window", "29"],
    "phi3_short": ["--architecture", "phi3", "--seed", "47", "--context", "512", "--long-factors",
                   "--key", "rope.scaling.type=s:longrope", "--key", "rope.scaling.attn_factor=f:1.25",
                   "--key", "rope.scaling.original_context_length=u:300"],
    "phi3_long": ["--architecture", "phi3", "--seed", "47", "--context", "512", "--long-factors",
                  "--key", "rope.scaling.type=s:longrope", "--key", "rope.scaling.attn_factor=f:1.25",
                  "--key", "rope.scaling.original_context_length=u:32"],
    "granite": ["--architecture", "granite", "--seed", "48", "--attn-scale", "0.3", "--key", "embedding_scale=f:3",
                "--key", "residual_scale=f:0.4", "--key", "logit_scale=f:2.5"],
    "olmo2": ["--architecture", "olmo2", "--seed", "49"],
    "internlm2": ["--architecture", "internlm2", "--seed", "50"],
    "smollm3": ["--architecture", "smollm3", "--seed", "351", "--layers", "4", "--kv-heads", "1", "--tied"],
    "gpt2": ["--architecture", "gpt2", "--seed", "152", "--kv-heads", "4", "--ffn", "256", "--tied"],
    "gptneox": ["--architecture", "gptneox", "--seed", "53", "--kv-heads", "4", "--rope-dims", "4",
                "--key", "use_parallel_residual=b:true"],
    "gptneox_serial": ["--architecture", "gptneox", "--seed", "54", "--kv-heads", "4", "--rope-dims", "8",
                       "--key", "use_parallel_residual=b:false"],
    "falcon": ["--architecture", "falcon", "--seed", "55", "--kv-heads", "1", "--ffn", "256", "--tied"],
    "falcon_40b": ["--architecture", "falcon", "--seed", "56", "--ffn", "256", "--second-norm"],
    "starcoder2": ["--architecture", "starcoder2", "--seed", "57", "--window", "11", "--tied"],
    "cohere2": ["--architecture", "cohere2", "--seed", "358", "--layers", "4", "--window", "11", "--tied",
                "--key", "logit_scale=f:0.25"],
    "bloom": ["--architecture", "bloom", "--seed", "61", "--heads", "8", "--kv-heads", "8", "--ffn", "256", "--tied"],
    "mpt": ["--architecture", "mpt", "--seed", "62", "--dim", "72", "--heads", "6", "--kv-heads", "6", "--ffn", "288",
            "--tied", "--key", "attention.max_alibi_bias=f:8", "--key", "attention.clamp_kqv=f:1.25"],
    "mpt_learned": ["--architecture", "mpt", "--tensors-of", "mpt_learned", "--seed", "263", "--kv-heads", "4",
                    "--ffn", "256", "--tied"],
    "falcon_rw": ["--architecture", "falcon", "--tensors-of", "falcon_rw", "--seed", "364", "--kv-heads", "4",
                  "--ffn", "256", "--tied", "--key", "attention.max_alibi_bias=f:8",
                  "--key", "use_parallel_residual=b:false"],
    "baichuan": ["--architecture", "baichuan", "--seed", "365", "--kv-heads", "4"],
    "baichuan_13b": ["--architecture", "baichuan", "--seed", "66", "--heads", "5", "--dim", "80", "--kv-heads", "5",
                     "--key", "attention.max_alibi_bias=f:8"],
    "olmo": ["--architecture", "olmo", "--seed", "67", "--key", "attention.clamp_kqv=f:1.5"],
    "mistral3": ["--architecture", "mistral3", "--seed", "68", "--context", "256", "--head-dim", "24",
                 "--key", "rope.scaling.type=s:yarn", "--key", "rope.scaling.factor=f:16",
                 "--key", "rope.scaling.original_context_length=u:16",
                 "--key", "rope.scaling.yarn_beta_fast=f:8", "--key", "rope.scaling.yarn_beta_slow=f:0.5",
                 "--key", "rope.scaling.yarn_log_multiplier=f:1", "--key", "attention.temperature_scale=f:0.1"],
    "mixtral": ["--architecture", "llama", "--seed", "70", "--experts", "8", "--experts-used", "2", "--ffn", "96"],
    "qwen3moe": ["--architecture", "qwen3moe", "--seed", "471", "--head-dim", "24", "--experts", "16",
                 "--experts-used", "4", "--expert-ffn", "32"],
    "qwen3moe_dense": ["--architecture", "qwen3moe", "--seed", "572", "--layers", "3", "--experts", "12",
                       "--experts-used", "3", "--expert-ffn", "64", "--dense-layers", "1", "--tied", "--up-type", "BF16"],
    "olmoe": ["--architecture", "olmoe", "--seed", "873", "--kv-heads", "4", "--experts", "16", "--experts-used", "5",
              "--ffn", "32", "--gate-up", "--router-type", "BF16"],
    "qwen2moe": ["--architecture", "qwen2moe", "--seed", "76", "--experts", "12", "--experts-used", "3", "--expert-ffn",
                 "32", "--shared-ffn", "96"],
    "granitemoe": ["--architecture", "granitemoe", "--seed", "77", "--experts", "8", "--experts-used", "3", "--ffn", "64",
                   "--tied", "--attn-scale", "0.3", "--key", "embedding_scale=f:3", "--key", "residual_scale=f:0.4",
                   "--key", "logit_scale=f:2.5"],
    "glm4moe": ["--architecture", "glm4moe", "--seed", "1378", "--layers", "3", "--head-dim", "24", "--rope-dims", "12",
                "--experts", "16", "--experts-used", "4", "--expert-ffn", "32", "--shared-ffn", "64", "--dense-layers", "1",
                "--key", "expert_gating_func=u:2", "--key", "expert_weights_norm=b:true",
                "--key", "expert_weights_scale=f:1.5"],
    "gpt_oss": ["--architecture", "gpt-oss", "--seed", "79", "--experts", "8", "--experts-used", "3", "--ffn", "64",
                "--window", "11", "--sinks", "--context", "256", "--key", "rope.scaling.type=s:yarn",
                "--key", "rope.scaling.factor=f:4", "--key", "rope.scaling.original_context_length=u:64"],
    "mixtral_q4_k": ["--architecture", "llama", "--seed", "475", "--dim", "256", "--heads", "8", "--ffn", "256",
                     "--experts", "8", "--experts-used", "2", "--type", "Q4_K", "--mixed-type", "Q6_K",
                     "--embedding-type", "Q8_0"],
    "qwen2_q4_k": ["--architecture", "qwen2", "--seed", "59", "--dim", "256", "--heads", "8", "--ffn", "256",
                   "--type", "Q4_K", "--mixed-type", "Q6_K", "--embedding-type", "Q8_0"],
    "gemma2_bf16": ["--architecture", "gemma2", "--seed", "60", "--tied", "--window", "11", "--type", "BF16",
                    "--embedding-type", "BF16", "--soft-cap", "1.5", "--key", "final_logit_softcapping=f:3"],
}

# What a family differs in, as its authors' papers and transformers have it.
LAYER_NORM = {"gpt2", "gptneox", "falcon", "starcoder2", "cohere2", "bloom", "mpt", "olmo"}
PLAIN = {"gpt2", "gptneox", "falcon", "starcoder2", "bloom", "mpt"}
PAIRS_APART = {"qwen2", "qwen3", "qwen3moe", "olmoe", "qwen2moe", "glm4moe", "gpt-oss", "gemma", "gemma2", "gemma3", "phi3", "olmo2", "gptneox", "falcon", "starcoder2"}
FFN_NORM_BEHIND = {"glm4moe", "gpt-oss"}  # it is called post_attention_norm
WINDOW_PERIOD = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "cohere2": 4, "olmo2": 4}


def erf(x):
    return np.vectorize(math.erf)(x)


ACTS = {
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3))),
    "oai": lambda x: np.minimum(x, 7) / (1.0 + np.exp(-1.702 * np.minimum(x, 7))),
    "erf": lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0))),
}


def activation_of(arch):
    return "tanh" if arch in ("gemma", "gemma2", "gemma3", "gpt2", "starcoder2", "bloom") else \
        "erf" if arch in ("gptneox", "falcon", "mpt") else "oai" if arch == "gpt-oss" else "silu"


def rope(x, freq, magnitude, apart):
    """x (tokens, heads, dim); pair i of the first 2 len(freq) dimensions turns by pos * freq[i]."""
    n, half = x.shape[0], len(freq)
    angle = np.arange(n)[:, None] * freq[None, :]
    cos, sin = (np.cos(angle) * magnitude)[:, None, :], (np.sin(angle) * magnitude)[:, None, :]
    out = x.copy()
    one, two = (slice(0, half), slice(half, 2 * half)) if apart else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    out[..., one] = x[..., one] * cos - x[..., two] * sin
    out[..., two] = x[..., one] * sin + x[..., two] * cos
    return out


class Model:
    """One file's model. exact: without the roundings of kernels.h. stored: what keys and values are rounded to, besides
    bfloat16 as they are multiplied. Of a file by llama.cpp's converter some keys are missing."""

    def __init__(self, path, exact, stored=as_stored, context=CONTEXT):
        self.stored, self.context = stored, context
        reader = GGUFReader(path)
        self.exact = exact
        self.margin = np.inf  # of the choices of experts
        self.fields = reader.fields
        self.w = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors
                  if t.tensor_type.name != "I64"}
        self.kinds = {t.name: t.tensor_type.name for t in reader.tensors}
        self.arch = reader.fields["general.architecture"].contents()
        self.n_layers, self.n_heads = self.key("block_count"), self.key("attention.head_count")
        self.n_kv, self.dim = self.key("attention.head_count_kv", self.n_heads), self.key("embedding_length")
        self.head_dim = self.key("attention.key_length", self.dim // self.n_heads)
        self.window = self.key("attention.sliding_window", 0)

    def key(self, name, default=None):
        field = self.fields.get(f"{self.arch}.{name}")
        return default if field is None else field.contents()

    def times(self, x, name, expert=None):
        rounding = {"F32": lambda x: x, "F16": lambda x: x, "BF16": bf16}.get(self.kinds[name], eight_bits)
        w = self.w[name] if expert is None else self.w[name][expert]
        return (x if self.exact else rounding(x)) @ w.T

    def linear(self, x, name):
        bias = self.w.get(name + ".bias", 0.0)
        return self.times(x, name + ".weight") + bias

    def norm(self, x, name):
        bare = self.arch == "olmo" and name.endswith((".attn_norm", ".ffn_norm", "output_norm"))
        if name + ".weight" not in self.w and not bare:
            return x
        if self.arch in LAYER_NORM:
            x = x - x.mean(axis=-1, keepdims=True)
            eps = self.key("attention.layer_norm_epsilon")
        else:
            eps = self.key("attention.layer_norm_rms_epsilon")
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
        return x * self.w.get(name + ".weight", 1.0) + self.w.get(name + ".bias", 0.0)

    def windowed(self, layer):
        period, pattern = WINDOW_PERIOD.get(self.arch, 0), self.key("attention.sliding_window_pattern")
        if pattern is not None:
            return bool(pattern[layer])
        return self.window > 0 and (period == 0 or (layer + 1) % period != 0)

    def learned(self):
        return "position_embd.weight" in self.w

    def slopes(self):
        """ALiBi, section 3 of its paper: of n heads the powers of 2^(-8/n); where n is no power of two, those of the
        next smaller one, then every second of those of twice as many."""
        most = self.key("attention.max_alibi_bias", 8.0 if self.arch == "bloom" else 0.0)
        if not most:
            return None
        def of(n):
            return [2.0 ** (-most * (i + 1) / n) for i in range(n)]
        whole = 1 << (self.n_heads.bit_length() - 1)
        slopes = np.array((of(whole) + of(2 * whole)[::2])[:self.n_heads])
        return slopes / math.sqrt(self.head_dim) if self.arch == "falcon" else slopes

    def turn(self, x, layer):
        if self.arch == "gpt2" or self.slopes() is not None or self.learned() or (self.arch == "smollm3" and (layer + 1) % 4 == 0) or \
                (self.arch == "cohere2" and not self.windowed(layer)):
            return x
        dims = self.key("rope.dimension_count", self.head_dim)
        base, kind = self.key("rope.freq_base", 10000.0), self.key("rope.scaling.type", "none")
        factor, magnitude = self.key("rope.scaling.factor", 1.0), self.key("rope.scaling.attn_factor", 1.0)
        if self.arch == "gemma3" and self.windowed(layer):
            base, factor = self.key("rope.freq_base_swa", 10000.0), 1.0
        if self.arch == "olmo2" and self.windowed(layer):
            kind, factor = "none", 1.0
        freq = base ** (-2.0 * np.arange(dims // 2) / dims)
        if kind == "yarn":  # section 3.2 of the paper: turns in the trained context, 32 and 1
            trained = self.key("rope.scaling.original_context_length")
            turned = self.key("rope.scaling.yarn_beta_fast", 32), self.key("rope.scaling.yarn_beta_slow", 1)
            low, high = (dims * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in turned)
            low, high = max(math.floor(low), 0), min(math.ceil(high), dims - 1)
            ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
            freq = freq / factor * ramp + freq * (1 - ramp)
            weight = self.key("rope.scaling.yarn_log_multiplier", 0.0)
            magnitude = (0.1 * math.log(factor) + 1.0) / (0.1 * weight * math.log(factor) + 1.0)
        else:
            freq = freq / factor
        if "rope_factors_long.weight" in self.w:
            is_long = self.context > self.key("rope.scaling.original_context_length")
            freq = freq / self.w["rope_factors_long.weight" if is_long else "rope_factors_short.weight"]
        if "rope_freqs.weight" in self.w:
            freq = freq / self.w["rope_freqs.weight"]
        return rope(x, freq, magnitude, self.arch in PAIRS_APART)

    def heads(self, x, layer):
        n, at = x.shape[0], f"blk.{layer}."
        if at + "attn_qkv.weight" in self.w:
            qkv = self.linear(x, at + "attn_qkv")
            q_dim, kv_dim = self.n_heads * self.head_dim, self.n_kv * self.head_dim
            q, k, v = qkv[:, :q_dim], qkv[:, q_dim:q_dim + kv_dim], qkv[:, q_dim + kv_dim:]
        else:
            q, k, v = (self.linear(x, at + f"attn_{name}") for name in "qkv")
        if self.arch in ("olmo2", "olmoe"):
            q, k = self.norm(q, at + "attn_q_norm"), self.norm(k, at + "attn_k_norm")
        limit = self.key("attention.clamp_kqv")
        if limit:
            q, k, v = (np.clip(m, -limit, limit) for m in (q, k, v))
        q, k, v = (m.reshape(n, -1, self.head_dim) for m in (q, k, v))
        if self.arch not in ("olmo2", "olmoe"):
            q, k = self.norm(q, at + "attn_q_norm"), self.norm(k, at + "attn_k_norm")
        q, k = self.turn(q, layer), self.turn(k, layer)
        warmth = self.key("attention.temperature_scale")
        if warmth:
            times = np.floor(np.arange(n) / self.key("rope.scaling.original_context_length"))
            q = q * (1 + warmth * np.log(1 + times))[:, None, None]
        scale = self.key("attention.scale", 1 / math.sqrt(self.head_dim))
        window = self.window if self.windowed(layer) else 0
        cap = self.key("attn_logit_softcapping", 0)
        return self.attend(q, k, v, scale, window, cap, self.w.get(at + "attn_sinks.weight"))

    def attend(self, q, k, v, scale, window, cap, sinks=None):
        if self.exact:
            return exact_attention(q, k, v, scale, window, cap, self.slopes(), sinks)
        return attention(q, self.stored(k), self.stored(v), scale, window, cap, sinks, self.slopes())

    def route(self, z, layer):
        """Scores to a weight for each expert, 0 where it is not chosen. The gaps between the last that is and the first
        that is not are such that no rounding changes the choice."""
        k = self.key("expert_used_count")
        if self.key("expert_gating_func") == 2:
            g = 1.0 / (1.0 + np.exp(-z))
            z = g + self.w[f"blk.{layer}.exp_probs_b.bias"]
        else:
            g = np.exp(z - z.max(axis=1, keepdims=True))
            g = g / g.sum(axis=1, keepdims=True)
        ranks = np.argsort(-z, axis=1, kind="stable")
        sorted_z = np.sort(z, axis=1)[:, ::-1]
        if k < z.shape[1]:
            self.margin = min(self.margin, (sorted_z[:, k - 1] - sorted_z[:, k]).min())
        chosen = np.zeros_like(g)
        np.put_along_axis(chosen, ranks[:, :k], 1.0, axis=1)
        w = g * chosen
        if self.arch not in ("olmoe", "qwen2moe"):
            w = w / w.sum(axis=1, keepdims=True)
        return w * self.key("expert_weights_scale", 1.0)

    def experts(self, x, layer):
        """Each expert is computed for all rows, which is slow and plain."""
        at, act = f"blk.{layer}.", ACTS[activation_of(self.arch)]
        weights = self.route(x @ self.w[at + "ffn_gate_inp.weight"].T + self.w.get(at + "ffn_gate_inp.bias", 0.0), layer)
        out = np.zeros_like(x)
        for e in range(weights.shape[1]):
            if at + "ffn_gate_up_exps.weight" in self.w:
                gate, up = np.split(self.times(x, at + "ffn_gate_up_exps.weight", e), 2, axis=1)
            else:
                gate, up = (self.of_expert(x, at + f"ffn_{name}_exps", e) for name in ("gate", "up"))
            if self.arch == "gpt-oss":
                up = np.clip(up, -7, 7) + 1
            out += weights[:, e:e + 1] * self.of_expert(act(gate) * up, at + "ffn_down_exps", e)
        if at + "ffn_up_shexp.weight" in self.w:
            shared = act(self.linear(x, at + "ffn_gate_shexp")) * self.linear(x, at + "ffn_up_shexp")
            shared = self.linear(shared, at + "ffn_down_shexp")
            if at + "ffn_gate_inp_shexp.weight" in self.w:
                shared = shared / (1.0 + np.exp(-(x @ self.w[at + "ffn_gate_inp_shexp.weight"].ravel())))[:, None]
            out += shared
        return out

    def of_expert(self, x, name, expert):
        bias = self.w.get(name + ".bias")
        return self.times(x, name + ".weight", expert) + (0.0 if bias is None else bias[expert])

    def feed_forward(self, x, layer):
        at = f"blk.{layer}."
        if at + "ffn_gate_inp.weight" in self.w:
            return self.experts(x, layer)
        act = ACTS[activation_of(self.arch)]
        up = self.linear(x, at + "ffn_up")
        if self.arch in PLAIN:
            up = act(up)
        elif self.arch == "phi3":
            gate, up = np.split(up, 2, axis=1)
            up = act(gate) * up
        else:
            up = act(self.linear(x, at + "ffn_gate")) * up
        return self.linear(up, at + "ffn_down")

    def layer(self, x, layer):
        at = f"blk.{layer}."
        second = at + "attn_norm_2.weight" in self.w
        normed = self.norm(x, at + "attn_norm")
        read = self.norm(x, at + "attn_norm_2") if second else normed
        if self.arch == "olmo2":
            read = x
        a = self.linear(self.heads(read, layer), at + "attn_output")
        if self.arch not in FFN_NORM_BEHIND:
            a = self.norm(a, at + "post_attention_norm")
        scale = self.key("residual_scale", 1.0)
        if self.arch in ("falcon", "cohere2") and self.key("use_parallel_residual", True):
            return x + a + self.feed_forward(normed, layer)
        if self.key("use_parallel_residual", self.arch == "gptneox"):
            return x + a + self.feed_forward(self.norm(x, at + "ffn_norm"), layer)
        x = x + scale * a
        before = "post_attention_norm" if self.arch in FFN_NORM_BEHIND else "ffn_norm"
        f = self.feed_forward(self.norm(x, at + before), layer)
        return x + scale * self.norm(f, at + "post_ffw_norm")

    def embed(self, tokens):
        x = self.w["token_embd.weight"][tokens] * self.key("embedding_scale", 1.0)
        if self.arch.startswith("gemma"):
            x = x * math.sqrt(self.dim)
        if self.learned():
            x = x + self.w["position_embd.weight"][:len(tokens)]
        if self.arch == "bloom":
            x = self.norm(x, "token_embd_norm")
        return x

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in range(self.n_layers):
            x = self.layer(x, layer)
        return self.output(x)

    def output(self, x):
        x = self.norm(x, "output_norm")
        logits = self.times(x, "output.weight" if "output.weight" in self.w else "token_embd.weight")
        scale, cap = self.key("logit_scale", 1.0), self.key("final_logit_softcapping", 0)
        logits = logits / scale if self.arch in ("granite", "granitemoe") else logits * scale
        return cap * np.tanh(logits / cap) if cap else logits


def exact_attention(q, k, v, scale, window, cap, slopes, sinks=None):
    n, n_heads, _ = q.shape
    apart = np.arange(n)[:, None] - np.arange(n)[None, :]
    seen = (apart >= 0) & ((window == 0) | (apart < window))
    out = np.zeros_like(q)
    for h in range(n_heads):
        g = h * k.shape[1] // n_heads
        scores = q[:, h] @ k[:, g].T * scale
        scores = cap * np.tanh(scores / cap) if cap else scores
        scores = np.where(seen, scores if slopes is None else scores - slopes[h] * apart, -np.inf)
        most = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - most)
        total = weights.sum(axis=1, keepdims=True) + (0.0 if sinks is None else np.exp(sinks[h] - most))
        out[:, h] = weights / total @ v[:, g]
    return out.reshape(n, -1)


# ---- transformers ----

def hf_config(m):
    """The configuration in the words of transformers."""
    import transformers
    common = dict(vocab_size=m.w["token_embd.weight"].shape[0], hidden_size=m.dim, num_hidden_layers=m.n_layers,
                  num_attention_heads=m.n_heads, num_key_value_heads=m.n_kv, head_dim=m.head_dim,
                  intermediate_size=m.key("feed_forward_length"), max_position_embeddings=m.key("context_length"),
                  rms_norm_eps=1e-5, tie_word_embeddings="output.weight" not in m.w, attn_implementation="eager",
                  bos_token_id=1, eos_token_id=2, pad_token_id=0)
    kind = m.key("rope.scaling.type", "default")
    turns = {"rope_theta": m.key("rope.freq_base"), "rope_type": kind}
    if kind in ("linear", "yarn"):
        turns["factor"] = m.key("rope.scaling.factor")
    if kind in ("yarn", "longrope"):
        turns["original_max_position_embeddings"] = m.key("rope.scaling.original_context_length")
    if kind == "longrope":
        turns |= {"attention_factor": m.key("rope.scaling.attn_factor"),
                  "long_factor": m.w["rope_factors_long.weight"].tolist(),
                  "short_factor": m.w["rope_factors_short.weight"].tolist()}
    part = m.key("rope.dimension_count") / m.head_dim
    if part != 1:
        turns["partial_rotary_factor"] = part
    common["rope_parameters"] = turns
    windows = dict(sliding_window=m.window, layer_types=[
        "sliding_attention" if m.windowed(i) else "full_attention" for i in range(m.n_layers)])
    a = m.arch
    if m.key("expert_count"):
        dim = m.key("expert_feed_forward_length", m.key("feed_forward_length"))
        experts = dict(num_experts_per_tok=m.key("expert_used_count"), experts_implementation="eager")
        if a == "llama":
            return transformers.MixtralConfig(**common, **experts, num_local_experts=m.key("expert_count"))
        if a == "granitemoe":
            return transformers.GraniteMoeConfig(**common, **experts, num_local_experts=m.key("expert_count"),
                                                 attention_multiplier=m.key("attention.scale"),
                                                 embedding_multiplier=m.key("embedding_scale"),
                                                 residual_multiplier=m.key("residual_scale"),
                                                 logits_scaling=m.key("logit_scale"))
        if a == "qwen2moe":
            return transformers.Qwen2MoeConfig(**common, **experts, num_experts=m.key("expert_count"),
                                               moe_intermediate_size=dim, norm_topk_prob=False,
                                               shared_expert_intermediate_size=m.key("expert_shared_feed_forward_length"))
        if a == "glm4moe":
            return transformers.Glm4MoeConfig(**common, **experts, n_routed_experts=m.key("expert_count"), n_group=1,
                                              topk_group=1, moe_intermediate_size=dim, use_qk_norm=True,
                                              n_shared_experts=m.key("expert_shared_feed_forward_length") // dim,
                                              first_k_dense_replace=m.key("leading_dense_block_count"),
                                              routed_scaling_factor=m.key("expert_weights_scale"), attention_bias=True)
        if a == "gpt-oss":
            turns["truncate"] = True  # as llama.cpp has it: a file says nothing of it
            return transformers.GptOssConfig(**common, **experts, **windows, num_local_experts=m.key("expert_count"))
        if a == "olmoe":
            return transformers.OlmoeConfig(**common, **experts, num_experts=m.key("expert_count"))
        dense = list(range(m.key("leading_dense_block_count", 0)))
        return transformers.Qwen3MoeConfig(**common, **experts, num_experts=m.key("expert_count"), norm_topk_prob=True,
                                           moe_intermediate_size=dim, mlp_only_layers=dense)
    if a == "llama" and m.window:
        return transformers.MistralConfig(**common, sliding_window=m.window)
    if a in ("llama", "internlm2"):
        return transformers.LlamaConfig(**common)
    if a in ("qwen2", "qwen3"):
        return getattr(transformers, a.capitalize() + "Config")(**common)
    if a == "gemma":
        return transformers.GemmaConfig(**common, hidden_act="gelu_pytorch_tanh")
    if a == "gemma2":
        return transformers.Gemma2Config(**common, **windows, query_pre_attn_scalar=m.head_dim,
                                         attn_logit_softcapping=m.key("attn_logit_softcapping"),
                                         final_logit_softcapping=m.key("final_logit_softcapping"))
    if a == "gemma3":
        common["rope_parameters"] = {"full_attention": turns, "sliding_attention": {
            "rope_type": "default", "rope_theta": m.key("rope.freq_base_swa")}}
        return transformers.Gemma3TextConfig(**common, **windows, query_pre_attn_scalar=m.head_dim)
    if a == "phi3":
        if kind == "longrope":
            common["original_max_position_embeddings"] = turns["original_max_position_embeddings"]
        return transformers.Phi3Config(**common, sliding_window=m.window or None)
    if a == "granite":
        return transformers.GraniteConfig(**common, attention_multiplier=m.key("attention.scale"),
                                          embedding_multiplier=m.key("embedding_scale"),
                                          residual_multiplier=m.key("residual_scale"),
                                          logits_scaling=m.key("logit_scale"))
    if a == "olmo2":
        return transformers.Olmo2Config(**common)
    if a == "smollm3":
        return transformers.SmolLM3Config(**common, no_rope_layer_interval=4)
    if a == "gpt2":
        return transformers.GPT2Config(vocab_size=common["vocab_size"], n_embd=m.dim, n_layer=m.n_layers,
                                       n_head=m.n_heads, n_positions=m.key("context_length"),
                                       layer_norm_epsilon=1e-5, attn_implementation="eager")
    if a == "gptneox":
        turns["partial_rotary_factor"] = part
        return transformers.GPTNeoXConfig(**common, layer_norm_eps=1e-5, rotary_pct=part, hidden_act="gelu",
                                          use_parallel_residual=m.key("use_parallel_residual"))
    if a == "falcon":
        new, rw = "blk.0.attn_norm_2.weight" in m.w, not m.key("use_parallel_residual", True)
        del common["head_dim"]
        if rw:  # eager attention adds the biases twice, to the mask and to the scores (transformers 5.19)
            common["attn_implementation"] = "sdpa"
        return transformers.FalconConfig(**common, layer_norm_epsilon=1e-5, new_decoder_architecture=new,
                                         num_kv_heads=m.n_kv, multi_query=not new and not rw, parallel_attn=not rw,
                                         bias=rw, alibi=rw, ffn_hidden_size=m.key("feed_forward_length"))
    if a == "starcoder2":
        return transformers.Starcoder2Config(**common, norm_epsilon=1e-5, use_bias=True, sliding_window=m.window,
                                             hidden_act="gelu_pytorch_tanh")
    if a == "bloom":
        return transformers.BloomConfig(vocab_size=common["vocab_size"], hidden_size=m.dim, n_layer=m.n_layers,
                                        n_head=m.n_heads, layer_norm_epsilon=1e-5, attn_implementation="eager")
    if a == "mpt" and m.learned():  # GPT-2, but for its activation; biases that are 0
        return transformers.GPT2Config(vocab_size=common["vocab_size"], n_embd=m.dim, n_layer=m.n_layers,
                                       n_head=m.n_heads, n_positions=m.key("context_length"),
                                       activation_function="gelu", attn_implementation="eager")
    if a == "mpt":
        attn = {"alibi": True, "alibi_bias_max": int(m.key("attention.max_alibi_bias")),
                "clip_qkv": m.key("attention.clamp_kqv")}
        return transformers.MptConfig(vocab_size=common["vocab_size"], d_model=m.dim, n_layers=m.n_layers,
                                      n_heads=m.n_heads, max_seq_len=m.key("context_length"), attn_config=attn,
                                      attn_implementation="eager")
    if a == "olmo":
        return transformers.OlmoConfig(**common, clip_qkv=m.key("attention.clamp_kqv"))
    if a == "baichuan":
        return transformers.LlamaConfig(**common)
    if a == "mistral3":
        turns |= {"beta_fast": m.key("rope.scaling.yarn_beta_fast"), "beta_slow": m.key("rope.scaling.yarn_beta_slow"),
                  "mscale": 1.0, "mscale_all_dim": m.key("rope.scaling.yarn_log_multiplier"),
                  "llama_4_scaling_beta": m.key("attention.temperature_scale")}
        return transformers.Ministral3Config(**common)
    return transformers.Cohere2Config(**common, **windows, layer_norm_eps=1e-5, logit_scale=m.key("logit_scale"))


def unpermute(w, n_heads):
    """llama.cpp's files have a head's pairs side by side; transformers has them apart."""
    return w.reshape(n_heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def hf_tensor(m, gguf_name, hf_name):
    w, a = m.w[gguf_name], m.arch
    # Of these families the converter permutes; of Cohere 2 it does not, since transformers too
    # has its pairs side by side.
    if a in ("llama", "internlm2", "granite", "granitemoe", "smollm3", "olmo", "baichuan", "mistral3"):
        if ".attn_q." in gguf_name:
            return unpermute(w, m.n_heads)
        if ".attn_k." in gguf_name:
            return unpermute(w, m.n_kv)
    if a.startswith("gemma") and hf_name.endswith("norm.weight"):
        return w - 1
    if (a == "gpt2" or m.learned()) and w.ndim == 2 and re.search(r"c_(attn|proj|fc)\.weight", hf_name):
        return w.T
    if "attn_qkv" in gguf_name and a in ("gptneox", "falcon", "bloom"):
        d, g = m.head_dim, m.n_heads // m.n_kv
        q, k, v = np.split(w, [m.n_heads * d, (m.n_heads + m.n_kv) * d])
        parts = [q.reshape(m.n_kv, g, d, -1), k.reshape(m.n_kv, 1, d, -1), v.reshape(m.n_kv, 1, d, -1)]
        return np.concatenate(parts, axis=1).reshape(w.shape)
    return w


def expert_parts(name):
    """Tensors of a file, as far as it has them, of what transformers has as one for all experts."""
    found = re.fullmatch(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(gate_up|down)_proj(_bias)?", name)
    if found is None:
        return []
    parts = ("down",) if found[2] == "down" else ("gate_up", "gate", "up")
    return [f"blk.{found[1]}.ffn_{part}_exps.{'bias' if found[3] else 'weight'}" for part in parts]


def joined(m, parts):
    """gpt-oss has rows of gate and up in turns, and matrices transposed."""
    if m.arch == "gpt-oss":
        w = parts[0] if len(parts) == 1 else np.stack(parts, axis=2).reshape(parts[0].shape[0], -1, *parts[0].shape[2:])
        return np.ascontiguousarray(w.swapaxes(1, 2)) if w.ndim == 3 else w
    return np.concatenate(parts, axis=1)


OTHER_NAMES = {  # that the gguf package does not map
    r"block_sparse_moe\.router\.weight": "ffn_gate_inp.weight",
    r"mlp\.gate\.e_score_correction_bias": "exp_probs_b.bias",
    r"self_attn\.sinks": "attn_sinks.weight",
}


def other_name(name):
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
    return next((f"blk.{found[1]}.{ours}" for theirs, ours in OTHER_NAMES.items()
                 if found and re.fullmatch(theirs, found[2])), None)


def transformers_model(m):
    """transformers' model of the family, with the file's tensors, in float64."""
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    config = hf_config(m)
    if m.arch == "llama" and any("attn_q.bias" in name for name in m.w):
        config.attention_bias = config.mlp_bias = True
    model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    named = "gpt2" if m.learned() else "bloom" if "falcon" == m.arch and "blk.0.ffn_norm.weight" in m.w else m.arch
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[named], m.n_layers)
    used = set()
    state = {}
    for name, old in model.state_dict().items():
        if name.endswith((".attn.bias", "masked_bias", "inv_freq")):
            continue
        short = name.removeprefix("transformer.") if named == "bloom" else name
        ours = other_name(name) or names.get_name(short, try_suffixes=(".weight", ".bias"))
        if m.arch in ("internlm2", "qwen3moe", "glm4moe") and ours is None:
            ours = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, m.n_layers).get_name(
                name, try_suffixes=(".weight", ".bias"))
        if name == "lm_head.weight":
            ours = "output.weight" if "output.weight" in m.w else "token_embd.weight"
        if ours is None and not expert_parts(name):
            raise SystemExit(f"{m.arch}: nothing in the file for {name}")
        if m.arch == "mpt" and m.learned() and ours.endswith(".bias"):
            state[name] = torch.zeros_like(old)
            continue
        parts = expert_parts(name)
        if parts:
            used.update(part for part in parts if part in m.w)
            w = torch.tensor(joined(m, [m.w[part] for part in parts if part in m.w]))
            assert w.shape == old.shape, (name, w.shape, old.shape)
            state[name] = w
            continue
        used.add(ours)
        w = torch.tensor(hf_tensor(m, ours, name))
        if "shared_expert_gate" in name:
            w = w[None]
        assert w.shape == old.shape, (name, ours, w.shape, old.shape)
        state[name] = w
    left = set(m.w) - used - {n for n in m.w if n.startswith("rope_f")}
    assert not left, left
    model.load_state_dict(state, strict=False)
    return model


def transformers_logits(m, tokens):
    import torch
    model = transformers_model(m)
    more = {}
    if m.arch == "baichuan" and m.slopes() is not None:
        # Not in transformers: llama, all of whose positions are 0, so that nothing turns, and biases as its mask.
        apart = np.arange(len(tokens))[:, None] - np.arange(len(tokens))[None, :]
        mask = np.where(apart >= 0, -m.slopes()[:, None, None] * apart, np.finfo(np.float64).min)
        more = {"position_ids": torch.zeros((1, len(tokens)), dtype=torch.long), "attention_mask": torch.tensor(mask[None])}
    with torch.no_grad():
        return model(torch.tensor([tokens]), **more).logits[0].numpy()


def main():
    args = sys.argv[1:]
    check = args[0] == "--check"
    tool, out_dir, *wanted = args[1:] if check else args
    bad = False
    for name in wanted or CASES:
        with tempfile.TemporaryDirectory() as tmp:
            path = str(Path(tmp) / "tiny.gguf")
            subprocess.run([tool, path, *CASES[name]], check=True)
            exact = Model(path, True)
            apart = np.abs(exact.forward(TOKENS) - transformers_logits(exact, TOKENS)).max()
            rounded = Model(path, False)
            logits = rounded.forward(TOKENS)
        rounding = np.abs(logits - exact.forward(TOKENS)).max() if not check else 0
        print(f"{name}: {apart:.2g} from transformers, roundings {rounding:.2g}, spread {logits.std():.2g}")
        if not min(exact.margin, rounded.margin) > MARGIN:
            print(f"{name}: experts whose scores are {min(exact.margin, rounded.margin):.2g} apart: take another seed")
            bad = True
            continue
        if not apart < CLOSE:
            print(f"{name}: too far apart")
            bad = True
            continue
        if check:
            continue
        lines = [" ".join(CASES[name]), " ".join(map(str, TOKENS)), " ".join(map(str, KEPT_ROWS))]
        lines += [" ".join(f"{v:.8g}" for v in logits[row][::EVERY]) for row in KEPT_ROWS]
        (Path(out_dir) / f"family_{name}.txt").write_text("\n".join(lines) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
