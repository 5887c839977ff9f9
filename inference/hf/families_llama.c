/* SPDX-License-Identifier: Apache-2.0 */
/* Llama and its kin: RMS norms, gates, matrices apart. */
#include "inference/hf/families.h"

/* clang-format off: one line for a setting or a name */

static const char *const no_checks[] = {NULL};

/* ---- llama and its kin ---- */

static const bt_hf_key_t mistral_keys[] = {
    {"sliding_window", "attention.sliding_window", BT_HF_U32, false, NULL},
    END_KEYS,
};

static const bt_hf_key_t no_keys[] = {END_KEYS};
static const bt_hf_name_t no_names[] = {END_NAMES};

static const bt_hf_key_t granite_keys[] = {
    {"attention_multiplier", "attention.scale", BT_HF_F32, false, NULL},
    {"embedding_multiplier", "embedding_scale", BT_HF_F32, false, NULL},
    {"residual_multiplier", "residual_scale", BT_HF_F32, false, NULL},
    {"logits_scaling", "logit_scale", BT_HF_F32, false, NULL},
    END_KEYS,
};

static const bt_hf_name_t internlm2_names[] = {
    {"attention_norm*", "attn_norm", BT_HF_AS_IS},
    {"attention.wqkv*", "attn_q|attn_k|attn_v", BT_HF_SPLIT},
    {"attention.wo*", "attn_output", BT_HF_AS_IS},
    {"ffn_norm*", "ffn_norm", BT_HF_AS_IS},
    {"feed_forward.w1*", "ffn_gate", BT_HF_AS_IS},
    {"feed_forward.w3*", "ffn_up", BT_HF_AS_IS},
    {"feed_forward.w2*", "ffn_down", BT_HF_AS_IS},
    {"attention.rotary_emb.inv_freq", NULL, BT_HF_SKIP},
    END_NAMES,
};

static const bt_hf_name_t internlm2_globals[] = {
    {"tok_embeddings*", "token_embd", BT_HF_AS_IS},
    {"norm*", "output_norm", BT_HF_AS_IS},
    {"output*", "output", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_name_t olmo2_names[] = {
    {"post_attention_layernorm*", "post_attention_norm", BT_HF_AS_IS},
    {"post_feedforward_layernorm*", "post_ffw_norm", BT_HF_AS_IS},
    END_NAMES,
};

static const char *const smollm3_checks[] = {"use_sliding_window=false", NULL};
static const char *const llama_checks[] = {"pretraining_tp=1", NULL};

/* ---- Gemma ---- */

static const bt_hf_key_t gemma_keys[] = {
    {"head_dim", "attention.key_length", BT_HF_U32, true, NULL},
    {"head_dim", "attention.value_length", BT_HF_U32, true, NULL},
    END_KEYS,
};

static const bt_hf_name_t gemma_names[] = {
    {"input_layernorm*", "attn_norm", BT_HF_PLUS_ONE},
    {"post_attention_layernorm*", "ffn_norm", BT_HF_PLUS_ONE},
    END_NAMES,
};

static const bt_hf_name_t gemma_globals[] = {
    {"norm*", "output_norm", BT_HF_PLUS_ONE},
    END_NAMES,
};

static const bt_hf_key_t gemma2_keys[] = {
    {"attn_logit_softcapping", "attn_logit_softcapping", BT_HF_F32, false,
     NULL},
    {"final_logit_softcapping", "final_logit_softcapping", BT_HF_F32, false,
     NULL},
    {"sliding_window", "attention.sliding_window", BT_HF_U32, false, NULL},
    END_KEYS,
};

static const bt_hf_name_t gemma2_names[] = {
    {"input_layernorm*", "attn_norm", BT_HF_PLUS_ONE},
    {"post_attention_layernorm*", "post_attention_norm", BT_HF_PLUS_ONE},
    {"pre_feedforward_layernorm*", "ffn_norm", BT_HF_PLUS_ONE},
    {"post_feedforward_layernorm*", "post_ffw_norm", BT_HF_PLUS_ONE},
    {"self_attn.q_norm*", "attn_q_norm", BT_HF_PLUS_ONE},
    {"self_attn.k_norm*", "attn_k_norm", BT_HF_PLUS_ONE},
    END_NAMES,
};

#define GIVEN(setting, number)                           \
    {                                                    \
        (setting),                                       \
        {                                                \
            .text = (number), .len = sizeof(number) - 1, \
            .kind = BT_JSON_NUMBER                       \
        }                                                \
    }

/* The files of the authors' first models leave these out. */
static const bt_hf_default_t gemma3_defaults[] = {
    GIVEN("num_attention_heads", "8"),
    GIVEN("num_key_value_heads", "4"),
    GIVEN("head_dim", "256"),
    GIVEN("max_position_embeddings", "131072"),
    GIVEN("rms_norm_eps", "1e-6"),
    GIVEN("rope_theta", "1000000"),
    GIVEN("vocab_size", "262208"),
    {NULL, {0}},
};

static const char *const gemma3_checks[] = {
    "use_bidirectional_attention=false", "attn_logit_softcapping=null", NULL};

/* ---- Phi ---- */

static const bt_hf_key_t phi3_keys[] = {
    {"sliding_window", "attention.sliding_window", BT_HF_U32, false, "0"},
    {".original_max_position_embeddings|original_max_position_embeddings|" CONTEXT,
     "rope.scaling.original_context_length", BT_HF_U32, true, NULL},
    END_KEYS,
};

static const bt_hf_name_t phi3_names[] = {
    {"self_attn.qkv_proj*", "attn_qkv", BT_HF_AS_IS},
    {"mlp.gate_up_proj*", "ffn_up", BT_HF_AS_IS},
    END_NAMES,
};

/* ---- OLMo 1, Baichuan, Mistral 3 ---- */

static const bt_hf_key_t olmo_keys[] = {
    {"clip_qkv", "attention.clamp_kqv", BT_HF_F32, false, NULL},
    END_KEYS,
};

static const bt_hf_name_t baichuan_names[] = {
    {"self_attn.W_pack*", "attn_q|attn_k|attn_v", BT_HF_PACK},
    END_NAMES,
};

static const bt_hf_name_t baichuan_globals[] = {
    {"lm_head*", "output", BT_HF_UNIT},
    END_NAMES,
};

static const bt_hf_key_t mistral3_keys[] = {
    {".llama_4_scaling_beta", "attention.temperature_scale", BT_HF_F32, false,
     NULL},
    END_KEYS,
};

static const char *const mistral3_checks[] = {"sliding_window=null", NULL};

/* ---- Cohere 2 ---- */

static const bt_hf_key_t cohere2_keys[] = {
    {"logit_scale", "logit_scale", BT_HF_F32, true, NULL},
    {"sliding_window", "attention.sliding_window", BT_HF_U32, true, NULL},
    END_KEYS,
};

static const bt_hf_name_t cohere2_names[] = {
    {"input_layernorm.weight", "attn_norm.weight", BT_HF_AS_IS},
    {"input_layernorm.bias", NULL, BT_HF_ZERO},
    END_NAMES,
};

const bt_hf_family_t bt_hf_llamas[] = {
    {.model_type = "llama",
     .arch = "llama",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .acts = SILU,
     .checks = llama_checks,
     .keys = no_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "mistral",
     .arch = "llama",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .windows = BT_HF_ONE_WINDOW,
     .acts = SILU,
     .checks = no_checks,
     .keys = mistral_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "ministral",
     .arch = "llama",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .windows = BT_HF_ANY_WINDOW,
     .acts = SILU,
     .checks = no_checks,
     .keys = mistral_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "smollm3",
     .arch = "smollm3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .tied = true,
     .acts = SILU,
     .checks = smollm3_checks,
     .keys = no_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "granite",
     .arch = "granite",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .acts = SILU,
     .checks = no_checks,
     .keys = granite_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "internlm2",
     .arch = "internlm2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .turns = true,
     .acts = SILU,
     .checks = no_checks,
     .keys = no_keys,
     .names = internlm2_names,
     .global_names = internlm2_globals},
    {.model_type = "olmo2",
     .arch = "olmo2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .acts = SILU,
     .checks = no_checks,
     .keys = no_keys,
     .names = olmo2_names,
     .global_names = no_names},
    {.model_type = "olmo3",
     .arch = "olmo2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .windows = BT_HF_ANY_WINDOW,
     .acts = SILU,
     .checks = no_checks,
     .keys = mistral_keys,
     .names = olmo2_names,
     .global_names = no_names},
    {.model_type = "qwen2",
     .arch = "qwen2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .late_windows = true,
     .acts = SILU,
     .checks = no_checks,
     .keys = no_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "qwen3",
     .arch = "qwen3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .late_windows = true,
     .acts = SILU,
     .checks = no_checks,
     .keys = no_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "gemma",
     .arch = "gemma",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .tied = true,
     .bare_head = true,
     .acts = TANH "|gelu",
     .checks = no_checks,
     .keys = gemma_keys,
     .names = gemma_names,
     .global_names = gemma_globals},
    {.model_type = "gemma2",
     .arch = "gemma2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .tied = true,
     .bare_head = true,
     .windows = 2,
     .acts = TANH,
     .checks = no_checks,
     .keys = gemma2_keys,
     .names = gemma2_names,
     .global_names = gemma_globals},
    {.model_type = "gemma3_text",
     .arch = "gemma3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .tied = true,
     .windows = 6,
     .acts = TANH,
     .checks = gemma3_checks,
     .defaults = gemma3_defaults,
     .keys = gemma2_keys,
     .names = gemma2_names,
     .global_names = gemma_globals},
    {.model_type = "gemma3",
     .inner = "gemma3_text",
     .arch = "gemma3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .tied = true,
     .windows = 6,
     .acts = TANH,
     .checks = gemma3_checks,
     .defaults = gemma3_defaults,
     .keys = gemma2_keys,
     .names = gemma2_names,
     .global_names = gemma_globals},
    {.model_type = "phi3",
     .arch = "phi3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .long_factors = true,
     .windows = BT_HF_ONE_WINDOW,
     .acts = SILU,
     .checks = no_checks,
     .keys = phi3_keys,
     .names = phi3_names,
     .global_names = no_names},
    {.model_type = "cohere2",
     .arch = "cohere2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .tied = true,
     .windows = 4,
     .acts = SILU,
     .checks = no_checks,
     .keys = cohere2_keys,
     .names = cohere2_names,
     .global_names = no_names},
    {.model_type = "ministral3",
     .arch = "mistral3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .acts = SILU,
     .checks = mistral3_checks,
     .keys = mistral3_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "mistral3",
     .inner = "ministral3|mistral",
     .arch = "mistral3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .acts = SILU,
     .checks = mistral3_checks,
     .keys = mistral3_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "olmo",
     .arch = "olmo",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .acts = SILU,
     .checks = no_checks,
     .keys = olmo_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "baichuan",
     .arch = "baichuan",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .turns = true,
     .acts = SILU,
     .checks = no_checks,
     .keys = no_keys,
     .names = baichuan_names,
     .global_names = baichuan_globals},
    {0},
};

/* clang-format on */
