#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the targets safetensors, config_json and tokenizer_json. usage: make_hf_corpus.py FOLDER"""
import json
import struct
import sys
from pathlib import Path

LLAMA = dict(model_type="llama", hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=2,
             max_position_embeddings=8, rms_norm_eps=1e-5, vocab_size=4, tie_word_embeddings=True)
BYTES = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
WORDS = {"a": 0, "b": 1, "c": 2, "ab": 3}
SPM = {"<unk>": 0, "\u2581": 1, "a": 2, "\u2581a": 3}


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(dtype, shape, size, begin=0):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}


SAFETENSORS = {
    "two": safetensors({"__metadata__": {"format": "pt"}, "a": one("F32", [2, 3], 24), "b": one("BF16", [4], 8, 24)},
                       bytes(32)),
    "small_types": safetensors({"a": one("F8_E4M3", [4], 4), "b": one("I64", [], 8, 4), "c": one("BOOL", [0], 0, 12)},
                               bytes(12)),
    "overlap": safetensors({"a": one("F32", [2], 8), "b": one("F32", [2], 8, 4)}, bytes(12)),
    "hole": safetensors({"a": one("F32", [1], 4, 4)}, bytes(8)),
    "twice": safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                         b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', bytes(1)),
    "escapes": safetensors(b'{"\\u0061\\ud83d\\ude00\\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   ', b"x"),
    "long_header": struct.pack("<Q", 1 << 62) + b"{}",
    "many_dims": safetensors({"a": one("U8", [1] * 9, 1)}, b"x"),
    "absurd_shape": safetensors({"a": one("F64", [1 << 40, 1 << 40], 8)}, bytes(8)),
}

ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=8)
CONFIGS = {
    "plain": LLAMA,
    "rope": dict(LLAMA, rope_parameters=ROPE),
    "old_rope": dict(LLAMA, rope_theta=1e4, rope_scaling=dict(type="linear", factor=2.0)),
    "yarn": dict(LLAMA, rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=2)),
    "mistral": dict(LLAMA, model_type="mistral", sliding_window=4, layer_types=["sliding_attention"]),
    "gemma": dict(LLAMA, model_type="gemma", head_dim=2, hidden_act="gelu"),
    "phi3": dict(LLAMA, model_type="phi3", original_max_position_embeddings=4, rope_scaling=dict(
        type="longrope", long_factor=[2.0], short_factor=[1.0])),
    "falcon": dict(LLAMA, model_type="falcon", layer_norm_epsilon=1e-5, multi_query=True),
    "rw": dict(LLAMA, model_type="falcon", layer_norm_epsilon=1e-5, multi_query=False, alibi=True, parallel_attn=False),
    "bloom": dict(LLAMA, model_type="bloom", n_head=2, seq_length=8, apply_residual_connection_post_layernorm=False),
    "mpt": dict(LLAMA, model_type="mpt", d_model=4, n_heads=2, n_layers=1, max_seq_len=8,
                attn_config=dict(alibi=True, alibi_bias_max=8, clip_qkv=6, qk_ln=False)),
    "qwen3_moe": dict(LLAMA, model_type="qwen3_moe", num_experts=2, num_experts_per_tok=1, moe_intermediate_size=2,
                      mlp_only_layers=[], norm_topk_prob=True),
    "gpt_oss": dict(LLAMA, model_type="gpt_oss", num_local_experts=2, num_experts_per_tok=1, quantization_config=dict(
        quant_method="mxfp4"), rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=2, truncate=False)),
    "baichuan": dict(LLAMA, model_type="baichuan", model_max_length=8),
    "images": dict(model_type="mistral3", text_config=dict(LLAMA, model_type="ministral3", rope_parameters=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=2, mscale=1.0, mscale_all_dim=1.0,
        llama_4_scaling_beta=0.1, truncate=True))),
    "defaults": dict(model_type="gemma3", text_config=dict(model_type="gemma3_text", hidden_size=4,
                                                           query_pre_attn_scalar=4, num_hidden_layers=1)),
    "late_windows": dict(LLAMA, model_type="qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0),
    "dynamic": dict(LLAMA, rope_scaling=dict(type="dynamic", factor=2.0)),
    "gptq": dict(LLAMA, quantization_config=dict(quant_method="gptq", bits=4, group_size=2)),
    "fp8": dict(LLAMA, quantization_config=dict(quant_method="fp8", weight_block_size=[2, 2])),
    "compressed": dict(LLAMA, quantization_config=dict(
        quant_method="compressed-tensors", format="pack-quantized",
        config_groups={"group_0": {"weights": {"num_bits": 4, "group_size": 2}}})),
    "generation": dict(LLAMA, do_sample=True, temperature=0.6, top_k=20, top_p=0.9, eos_token_id=[3, 2]),
    "deep": dict(LLAMA, more=[[[[[[[[{"a": [1, 2.5e-3, -0, True, None, "x"]}]]]]]]]]),
}


def tokenizer(vocab, merges, **more):
    return dict({"version": "1.0", "normalizer": None, "pre_tokenizer": BYTES,
                 "model": {"type": "BPE", "vocab": vocab, "merges": merges}}, **more)


def special(name):
    return {"SpecialToken": {"id": name, "type_id": 0}}


SPM_MODEL = {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "vocab": SPM, "merges": ["\u2581 a"]}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
TOKENIZERS = {
    "pairs": tokenizer(WORDS, [["a", "b"]]),
    "lines": tokenizer(WORDS, ["a b"]),
    "added": tokenizer(WORDS, ["a b"], bos_token="<s>", eos_token={"content": "</s>"}, chat_template="{{ x }}",
                       added_tokens=[{"id": 4, "content": "<s>", "special": True}, {"id": 5, "content": "</s>"}],
                       post_processor={"type": "TemplateProcessing", "single": [
                           special("<s>"), {"Sequence": {"id": "A", "type_id": 0}}, special("</s>")]}),
    "digits": tokenizer(WORDS, [], pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, BYTES]}),
    "split": tokenizer(WORDS, [], pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated", "invert": False}, BYTES]}),
    "spm": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, REPLACE]},
            "pre_tokenizer": None, "model": SPM_MODEL},
    "metaspace": {"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
                                    "split": False}, "model": SPM_MODEL},
    "unigram": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.5]]}},
    "xlm_r": {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Nmt"}, {"type": "Precompiled", "precompiled_charsmap": ""}, {"type": "NFKC"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}]},
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
        "added_tokens": [{"id": 2, "content": "<m>", "lstrip": True, "normalized": True, "special": True}],
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
                  "vocab": [["<unk>", 0.0], ["a", -1.5], ["<m>", 0.1], ["<0x41>", 0]]}},
    "rules": tokenizer(WORDS, ["a b"], normalizer={"type": "Sequence", "normalizers": [
        {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Prepend", "prepend": "a"}, {"type": "Replace", "pattern": {"String": "b"}, "content": "c"}]},
        added_tokens=[{"id": 4, "content": "B", "single_word": True, "normalized": True},
                      {"id": 5, "content": " ", "rstrip": True}],
        post_processor={"type": "RobertaProcessing", "sep": ["b", 1], "cls": ["a", 0]}, decoder={"type": "ByteLevel"}),
    "steps": tokenizer(WORDS, [], pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Digits", "individual_digits": False},
        {"type": "Split", "pattern": {"String": "a"}, "behavior": "MergedWithNext", "invert": True},
        {"type": "CharDelimiterSplit", "delimiter": ","}, dict(BYTES, add_prefix_space=True),
        {"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Removed"}]}),
    "gemma": {"normalizer": REPLACE, "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                                                       "behavior": "MergedWithPrevious"},
              "decoder": {"type": "Sequence", "decoders": [
                  {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
              "model": dict(SPM_MODEL, fuse_unk=True, ignore_merges=True)},
    "words": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"},
                                                                      {"type": "BertPreTokenizer"}]},
              "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": WORDS, "merges": ["a b"]}},
}


def field(number, wire, content):
    head = bytes([number << 3 | wire])
    return head + (bytes([len(content)]) + content if wire == 2 else content)


def piece(text, score, kind):
    return field(1, 2, field(1, 2, text.encode()) + field(2, 5, struct.pack("<f", score)) +
                 field(3, 0, bytes([kind])))


SENTENCEPIECE = (piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("<0x41>", 0, 6) + piece("\u2581a", -1, 1) +
                 field(2, 2, field(3, 0, b"\x02")) +
                 field(3, 2, field(1, 2, b"identity") + field(3, 0, b"\x01") + field(4, 0, b"\x00")))
# One replacement, of "A" (65) by "a ": a double array, and what its value points to.
UNITS = [0] * 256
UNITS[0] = 1 << 10
UNITS[1 ^ 65] = 65 | 1 << 8 | 128 << 10
UNITS[1 ^ 65 ^ 128] = 1 << 31
CHARSMAP = struct.pack("<I256I", 1024, *UNITS) + b"a \0"


def long_field(number, content):
    return bytes([number << 3 | 2, len(content) & 127 | 128, len(content) >> 7]) + content


SENTENCEPIECE_UNIGRAM = (piece("<unk>", 0, 2) + piece("\u2581a", -1, 1) + piece("\u2581", -2, 1) + piece("[u]", 0, 4) +
                         field(2, 2, field(3, 0, b"\x01")) +
                         long_field(3, long_field(2, CHARSMAP) + field(3, 0, b"\x01") + field(4, 0, b"\x01")) +
                         field(5, 2, b""))


def main():
    out = Path(sys.argv[1])
    for name, content in SAFETENSORS.items():
        (out / "safetensors" / name).write_bytes(content)
    for folder, seeds in (("config_json", CONFIGS), ("tokenizer_json", TOKENIZERS)):
        for name, content in seeds.items():
            (out / folder / name).write_text(json.dumps(content))
    (out / "tokenizer_json" / "model").write_bytes(SENTENCEPIECE)
    (out / "tokenizer_json" / "model_unigram").write_bytes(SENTENCEPIECE_UNIGRAM)


if __name__ == "__main__":
    main()
