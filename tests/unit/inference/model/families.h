/* SPDX-License-Identifier: Apache-2.0 */
/** @file families.h  Small models of every family, for the tests of this
 * folder; tests/golden/make_family_golden.py has the same. */
#ifndef BT_TESTS_UNIT_MODEL_FAMILIES_H
#define BT_TESTS_UNIT_MODEL_FAMILIES_H

#include "common/base/status.h"
#include "tests/unit/inference/model/rig.h"

#define N_KEYS 8

/* One case of the script: how it differs from bt_tiny_model_default(). */
typedef struct family_case {
    const char *name;
    const char *architecture;
    uint32_t seed;
    const char *tensors_of;
    uint32_t n_layers;
    uint32_t dim;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t rope_dims;
    uint32_t ffn_dim;
    uint32_t context_tokens;
    uint32_t window;
    float soft_cap;
    float attn_scale;
    bool tied;
    bool biases;
    bool long_factors;
    bool second_norm;
    bool mixed; /* 256 wide, 8 heads, Q4_K and Q6_K, embedding Q8_0 */
    bool bf16;
    uint32_t n_experts;
    uint32_t n_experts_used;
    uint32_t expert_dim;
    uint32_t n_dense;
    bool gate_up;
    uint32_t shared_dim;
    bool sinks;
    bool bf16_up;
    bool bf16_router;
    bt_tiny_key_t keys[N_KEYS];
} family_case_t;

static const family_case_t family_cases[] = {
    {.name = "llama_bias", .architecture = "llama", .seed = 31, .biases = true},
    {.name = "llama_window", .architecture = "llama", .seed = 32, .window = 11},
    {.name = "llama_linear",
     .architecture = "llama",
     .seed = 33,
     .keys = {{"rope.scaling.type", 's', "linear"},
              {"rope.scaling.factor", 'f', "4"}}},
    {.name = "llama_yarn",
     .architecture = "llama",
     .seed = 34,
     .context_tokens = 256,
     .keys = {{"rope.scaling.type", 's', "yarn"},
              {"rope.scaling.factor", 'f', "4"},
              {"rope.scaling.original_context_length", 'u', "64"}}},
    {.name = "qwen2", .architecture = "qwen2", .seed = 41},
    {.name = "qwen3",
     .architecture = "qwen3",
     .seed = 142,
     .head_dim = 24,
     .tied = true},
    {.name = "gemma",
     .architecture = "gemma",
     .seed = 43,
     .head_dim = 24,
     .tied = true},
    {.name = "gemma2",
     .architecture = "gemma2",
     .seed = 44,
     .n_layers = 3,
     .head_dim = 24,
     .tied = true,
     .window = 11,
     .soft_cap = 1.5f,
     .keys = {{"final_logit_softcapping", 'f', "3"}}},
    {.name = "gemma3",
     .architecture = "gemma3",
     .seed = 245,
     .n_layers = 3,
     .head_dim = 24,
     .tied = true,
     .window = 11,
     .keys = {{"rope.freq_base_swa", 'f', "1000"},
              {"rope.scaling.type", 's', "linear"},
              {"rope.scaling.factor", 'f', "8"},
              {"attention.sliding_window_pattern", 'p', "101"}}},
    {.name = "phi3",
     .architecture = "phi3",
     .seed = 46,
     .rope_dims = 12,
     .window = 29},
    {.name = "phi3_short",
     .architecture = "phi3",
     .seed = 47,
     .long_factors = true,
     .keys = {{"rope.scaling.type", 's', "longrope"},
              {"rope.scaling.attn_factor", 'f', "1.25"},
              {"rope.scaling.original_context_length", 'u', "300"}}},
    {.name = "phi3_long", /* the rig's context is 256 */
     .architecture = "phi3",
     .seed = 47,
     .long_factors = true,
     .keys = {{"rope.scaling.type", 's', "longrope"},
              {"rope.scaling.attn_factor", 'f', "1.25"},
              {"rope.scaling.original_context_length", 'u', "32"}}},
    {.name = "granite",
     .architecture = "granite",
     .seed = 48,
     .attn_scale = 0.3f,
     .keys = {{"embedding_scale", 'f', "3"},
              {"residual_scale", 'f', "0.4"},
              {"logit_scale", 'f', "2.5"}}},
    {.name = "olmo2", .architecture = "olmo2", .seed = 49},
    {.name = "internlm2", .architecture = "internlm2", .seed = 50},
    {.name = "smollm3",
     .architecture = "smollm3",
     .seed = 351,
     .n_kv_heads = 1,
     .n_layers = 4,
     .tied = true},
    {.name = "gpt2",
     .architecture = "gpt2",
     .seed = 152,
     .n_kv_heads = 4,
     .ffn_dim = 256,
     .tied = true},
    {.name = "gptneox",
     .architecture = "gptneox",
     .seed = 53,
     .n_kv_heads = 4,
     .rope_dims = 4,
     .keys = {{"use_parallel_residual", 'b', "true"}}},
    {.name = "gptneox_serial",
     .architecture = "gptneox",
     .seed = 54,
     .n_kv_heads = 4,
     .rope_dims = 8,
     .keys = {{"use_parallel_residual", 'b', "false"}}},
    {.name = "falcon",
     .architecture = "falcon",
     .seed = 55,
     .n_kv_heads = 1,
     .ffn_dim = 256,
     .tied = true},
    {.name = "falcon_40b",
     .architecture = "falcon",
     .seed = 56,
     .ffn_dim = 256,
     .second_norm = true},
    {.name = "starcoder2",
     .architecture = "starcoder2",
     .seed = 57,
     .window = 11,
     .tied = true},
    {.name = "cohere2",
     .architecture = "cohere2",
     .seed = 358,
     .n_layers = 4,
     .window = 11,
     .tied = true,
     .keys = {{"logit_scale", 'f', "0.25"}}},
    {.name = "bloom",
     .architecture = "bloom",
     .seed = 61,
     .n_heads = 8,
     .n_kv_heads = 8,
     .ffn_dim = 256,
     .tied = true},
    {.name = "mpt",
     .architecture = "mpt",
     .seed = 62,
     .dim = 72,
     .n_heads = 6,
     .n_kv_heads = 6,
     .ffn_dim = 288,
     .tied = true,
     .keys = {{"attention.max_alibi_bias", 'f', "8"},
              {"attention.clamp_kqv", 'f', "1.25"}}},
    {.name = "mpt_learned",
     .architecture = "mpt",
     .tensors_of = "mpt_learned",
     .seed = 263,
     .n_kv_heads = 4,
     .ffn_dim = 256,
     .tied = true},
    {.name = "falcon_rw",
     .architecture = "falcon",
     .tensors_of = "falcon_rw",
     .seed = 364,
     .n_kv_heads = 4,
     .ffn_dim = 256,
     .tied = true,
     .keys = {{"attention.max_alibi_bias", 'f', "8"},
              {"use_parallel_residual", 'b', "false"}}},
    {.name = "baichuan",
     .architecture = "baichuan",
     .seed = 365,
     .n_kv_heads = 4},
    {.name = "baichuan_13b",
     .architecture = "baichuan",
     .seed = 66,
     .dim = 80,
     .n_heads = 5,
     .n_kv_heads = 5,
     .keys = {{"attention.max_alibi_bias", 'f', "8"}}},
    {.name = "olmo",
     .architecture = "olmo",
     .seed = 67,
     .keys = {{"attention.clamp_kqv", 'f', "1.5"}}},
    {.name = "mistral3",
     .architecture = "mistral3",
     .seed = 68,
     .context_tokens = 256,
     .head_dim = 24,
     .keys = {{"rope.scaling.type", 's', "yarn"},
              {"rope.scaling.factor", 'f', "16"},
              {"rope.scaling.original_context_length", 'u', "16"},
              {"rope.scaling.yarn_beta_fast", 'f', "8"},
              {"rope.scaling.yarn_beta_slow", 'f', "0.5"},
              {"rope.scaling.yarn_log_multiplier", 'f', "1"},
              {"attention.temperature_scale", 'f', "0.1"}}},
    {.name = "mixtral",
     .architecture = "llama",
     .seed = 70,
     .ffn_dim = 96,
     .n_experts = 8,
     .n_experts_used = 2},
    {.name = "qwen3moe",
     .architecture = "qwen3moe",
     .seed = 471,
     .head_dim = 24,
     .n_experts = 16,
     .n_experts_used = 4,
     .expert_dim = 32},
    {.name = "qwen3moe_dense",
     .architecture = "qwen3moe",
     .seed = 572,
     .n_layers = 3,
     .n_experts = 12,
     .n_experts_used = 3,
     .expert_dim = 64,
     .n_dense = 1,
     .bf16_up = true,
     .tied = true},
    {.name = "olmoe",
     .architecture = "olmoe",
     .seed = 873,
     .n_kv_heads = 4,
     .ffn_dim = 32,
     .n_experts = 16,
     .n_experts_used = 5,
     .gate_up = true,
     .bf16_router = true},
    {.name = "qwen2moe",
     .architecture = "qwen2moe",
     .seed = 76,
     .n_experts = 12,
     .n_experts_used = 3,
     .expert_dim = 32,
     .shared_dim = 96},
    {.name = "granitemoe",
     .architecture = "granitemoe",
     .seed = 77,
     .ffn_dim = 64,
     .n_experts = 8,
     .n_experts_used = 3,
     .tied = true,
     .attn_scale = 0.3f,
     .keys = {{"embedding_scale", 'f', "3"},
              {"residual_scale", 'f', "0.4"},
              {"logit_scale", 'f', "2.5"}}},
    {.name = "glm4moe",
     .architecture = "glm4moe",
     .seed = 1378,
     .n_layers = 3,
     .head_dim = 24,
     .rope_dims = 12,
     .n_experts = 16,
     .n_experts_used = 4,
     .expert_dim = 32,
     .shared_dim = 64,
     .n_dense = 1,
     .keys = {{"expert_gating_func", 'u', "2"},
              {"expert_weights_norm", 'b', "true"},
              {"expert_weights_scale", 'f', "1.5"}}},
    {.name = "gpt_oss",
     .architecture = "gpt-oss",
     .seed = 79,
     .ffn_dim = 64,
     .context_tokens = 256,
     .n_experts = 8,
     .n_experts_used = 3,
     .window = 11,
     .sinks = true,
     .keys = {{"rope.scaling.type", 's', "yarn"},
              {"rope.scaling.factor", 'f', "4"},
              {"rope.scaling.original_context_length", 'u', "64"}}},
    {.name = "mixtral_q4_k",
     .architecture = "llama",
     .seed = 475,
     .ffn_dim = 256,
     .mixed = true,
     .n_experts = 8,
     .n_experts_used = 2},
    {.name = "qwen2_q4_k",
     .architecture = "qwen2",
     .seed = 59,
     .ffn_dim = 256,
     .mixed = true},
    {.name = "gemma2_bf16",
     .architecture = "gemma2",
     .seed = 60,
     .tied = true,
     .window = 11,
     .bf16 = true,
     .soft_cap = 1.5f,
     .keys = {{"final_logit_softcapping", 'f', "3"}}},
};

#define N_FAMILIES BT_ARRAY_LEN(family_cases)

static inline void set_if(uint32_t *value_p, uint32_t value)
{
    *value_p = (value != 0) ? value : *value_p;
}

static inline bt_tiny_model_t family_tiny(const family_case_t *c)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    tiny.architecture = c->architecture;
    tiny.seed = c->seed;
    tiny.head_dim = c->head_dim;
    tiny.rope_dims = c->rope_dims;
    tiny.sliding_window = c->window;
    tiny.attn_soft_cap = c->soft_cap;
    tiny.attn_scale = c->attn_scale;
    tiny.tied = c->tied;
    tiny.biases = c->biases;
    tiny.long_factors = c->long_factors;
    tiny.second_norm = c->second_norm;
    tiny.tensors_of = c->tensors_of;
    set_if(&tiny.n_layers, c->n_layers);
    set_if(&tiny.dim, c->dim);
    set_if(&tiny.n_heads, c->n_heads);
    set_if(&tiny.n_kv_heads, c->n_kv_heads);
    set_if(&tiny.ffn_dim, c->ffn_dim);
    set_if(&tiny.context_tokens, c->context_tokens);
    tiny.n_experts = c->n_experts;
    tiny.n_experts_used = c->n_experts_used;
    tiny.expert_dim = c->expert_dim;
    tiny.n_dense = c->n_dense;
    tiny.gate_up = c->gate_up;
    tiny.shared_dim = c->shared_dim;
    tiny.attn_sinks = c->sinks;
    tiny.up_type = c->bf16_up ? 30 : BT_TINY_SAME_TYPE;
    tiny.router_type = c->bf16_router ? 30 : 0;
    if (c->mixed) {
        tiny.dim = 256;
        tiny.n_heads = 8;
        tiny.type = 12;       /* Q4_K */
        tiny.mixed_type = 14; /* Q6_K */
        tiny.embd_type = 8;   /* Q8_0 */
    }
    if (c->bf16) {
        tiny.type = tiny.embd_type = 30; /* BF16 */
    }
    for (uint32_t i = 0; (i < N_KEYS) && (c->keys[i].name != NULL); i++) {
        tiny.keys[tiny.n_keys++] = c->keys[i];
    }
    return tiny;
}

#endif
