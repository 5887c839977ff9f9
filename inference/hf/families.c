/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/families.h"

#include <string.h>

#include "common/base/assert.h"

/* clang-format off: one line for a setting or a name */

#define END_KEYS                           \
    {                                      \
        NULL, NULL, BT_HF_U32, false, NULL \
    }
#define END_NAMES               \
    {                           \
        NULL, NULL, BT_HF_AS_IS \
    }

#define CONTEXT "max_position_embeddings|n_ctx|n_positions|max_sequence_length"
#define WIDTH   "hidden_size|n_embd"
#define LAYERS  "num_hidden_layers|n_layer|n_layers"
#define HEADS   "num_attention_heads|n_head|n_heads"
#define FFN     "intermediate_size|n_inner"

const bt_hf_key_t bt_hf_common_keys[] = {
    {LAYERS, "block_count", BT_HF_U32, true, NULL},
    {CONTEXT, "context_length", BT_HF_U32, true, NULL},
    {WIDTH, "embedding_length", BT_HF_U32, true, NULL},
    {FFN, "feed_forward_length", BT_HF_U32, true, NULL},
    {HEADS, "attention.head_count", BT_HF_U32, true, NULL},
    {"num_key_value_heads|n_kv_heads", "attention.head_count_kv", BT_HF_U32,
     false, NULL},
    {"rms_norm_eps|norm_eps", "attention.layer_norm_rms_epsilon", BT_HF_F32,
     false, NULL},
    {"layer_norm_eps|layer_norm_epsilon|norm_epsilon",
     "attention.layer_norm_epsilon", BT_HF_F32, false, NULL},
    {"head_dim", "attention.key_length", BT_HF_U32, false, NULL},
    {"head_dim", "attention.value_length", BT_HF_U32, false, NULL},
    {"vocab_size", "vocab_size", BT_HF_U32, false, NULL},
    END_KEYS,
};

const bt_hf_name_t bt_hf_common_names[] = {
    {"input_layernorm*", "attn_norm", BT_HF_AS_IS},
    {"self_attn.q_proj*", "attn_q", BT_HF_QUERY},
    {"self_attn.k_proj*", "attn_k", BT_HF_KEY},
    {"self_attn.v_proj*", "attn_v", BT_HF_AS_IS},
    {"self_attn.o_proj*", "attn_output", BT_HF_AS_IS},
    {"self_attn.q_norm*", "attn_q_norm", BT_HF_AS_IS},
    {"self_attn.k_norm*", "attn_k_norm", BT_HF_AS_IS},
    {"post_attention_layernorm*", "ffn_norm", BT_HF_AS_IS},
    {"mlp.gate_proj*", "ffn_gate", BT_HF_AS_IS},
    {"mlp.up_proj*", "ffn_up", BT_HF_AS_IS},
    {"mlp.down_proj*", "ffn_down", BT_HF_AS_IS},
    {"self_attn.rotary_emb.inv_freq", NULL, BT_HF_SKIP},
    END_NAMES,
};

const bt_hf_name_t bt_hf_common_globals[] = {
    {"embed_tokens*", "token_embd", BT_HF_AS_IS},
    {"norm*", "output_norm", BT_HF_AS_IS},
    {"lm_head*", "output", BT_HF_AS_IS},
    END_NAMES,
};

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

/* ---- Qwen ---- */

static const char *const qwen_checks[] = {"use_sliding_window=false", NULL};

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

/* ---- GPT-2, NeoX, Falcon ---- */

static const bt_hf_key_t gpt2_keys[] = {
    {LAYERS, "block_count", BT_HF_U32, true, NULL},
    {CONTEXT, "context_length", BT_HF_U32, true, NULL},
    {WIDTH, "embedding_length", BT_HF_U32, true, NULL},
    {FFN, "feed_forward_length", BT_HF_U32, false, "4x"},
    {HEADS, "attention.head_count", BT_HF_U32, true, NULL},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", BT_HF_F32, false,
     "1e-5"},
    END_KEYS,
};

static const bt_hf_name_t gpt2_names[] = {
    {"ln_1*", "attn_norm", BT_HF_AS_IS},
    {"attn.c_attn.weight", "attn_qkv.weight", BT_HF_TRANSPOSE},
    {"attn.c_attn.bias", "attn_qkv.bias", BT_HF_AS_IS},
    {"attn.c_proj.weight", "attn_output.weight", BT_HF_TRANSPOSE},
    {"attn.c_proj.bias", "attn_output.bias", BT_HF_AS_IS},
    {"ln_2*", "ffn_norm", BT_HF_AS_IS},
    {"mlp.c_fc.weight", "ffn_up.weight", BT_HF_TRANSPOSE},
    {"mlp.c_fc.bias", "ffn_up.bias", BT_HF_AS_IS},
    {"mlp.c_proj.weight", "ffn_down.weight", BT_HF_TRANSPOSE},
    {"mlp.c_proj.bias", "ffn_down.bias", BT_HF_AS_IS},
    {"attn.bias", NULL, BT_HF_SKIP},
    {"attn.masked_bias", NULL, BT_HF_SKIP},
    END_NAMES,
};

static const bt_hf_name_t gpt2_globals[] = {
    {"wte*", "token_embd", BT_HF_AS_IS},
    {"wpe*", "position_embd", BT_HF_AS_IS},
    {"ln_f*", "output_norm", BT_HF_AS_IS},
    {"lm_head*", "output", BT_HF_AS_IS},
    END_NAMES,
};

static const char *const gpt2_checks[] = {
    "scale_attn_weights=true", "scale_attn_by_inverse_layer_idx=false",
    "add_cross_attention=false", NULL};

static const bt_hf_key_t neox_keys[] = {
    {"use_parallel_residual", "use_parallel_residual", BT_HF_BOOL, false,
     "true"},
    END_KEYS,
};

static const bt_hf_name_t neox_names[] = {
    {"input_layernorm*", "attn_norm", BT_HF_AS_IS},
    {"attention.query_key_value*", "attn_qkv", BT_HF_FUSED},
    {"attention.dense*", "attn_output", BT_HF_AS_IS},
    {"post_attention_layernorm*", "ffn_norm", BT_HF_AS_IS},
    {"mlp.dense_h_to_4h*", "ffn_up", BT_HF_AS_IS},
    {"mlp.dense_4h_to_h*", "ffn_down", BT_HF_AS_IS},
    {"attention.bias", NULL, BT_HF_SKIP},
    {"attention.masked_bias", NULL, BT_HF_SKIP},
    {"attention.rotary_emb.inv_freq", NULL, BT_HF_SKIP},
    END_NAMES,
};

static const bt_hf_name_t neox_globals[] = {
    {"embed_in*", "token_embd", BT_HF_AS_IS},
    {"final_layer_norm*", "output_norm", BT_HF_AS_IS},
    {"embed_out*", "output", BT_HF_AS_IS}, /* in files of old */
    {"lm_head*", "output", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_key_t falcon_keys[] = {
    {LAYERS, "block_count", BT_HF_U32, true, NULL},
    {CONTEXT, "context_length", BT_HF_U32, false, "2048"},
    {WIDTH, "embedding_length", BT_HF_U32, true, NULL},
    {"ffn_hidden_size", "feed_forward_length", BT_HF_U32, false, "4x"},
    {HEADS, "attention.head_count", BT_HF_U32, true, NULL},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", BT_HF_F32, true,
     NULL},
    END_KEYS,
};

static const bt_hf_name_t falcon_names[] = {
    {"input_layernorm*", "attn_norm", BT_HF_AS_IS},
    {"ln_mlp*", "attn_norm", BT_HF_AS_IS},
    {"ln_attn*", "attn_norm_2", BT_HF_AS_IS},
    {"self_attention.query_key_value*", "attn_qkv", BT_HF_FUSED},
    {"self_attention.dense*", "attn_output", BT_HF_AS_IS},
    {"mlp.dense_h_to_4h*", "ffn_up", BT_HF_AS_IS},
    {"mlp.dense_4h_to_h*", "ffn_down", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_name_t falcon_globals[] = {
    {"word_embeddings*", "token_embd", BT_HF_AS_IS},
    {"ln_f*", "output_norm", BT_HF_AS_IS},
    {"lm_head*", "output", BT_HF_AS_IS},
    END_NAMES,
};

static const char *const falcon_checks[] = {"alibi=false", "parallel_attn=true",
                                            NULL};

/* ---- StarCoder 2, Cohere 2 ---- */

static const bt_hf_name_t starcoder2_names[] = {
    {"mlp.c_fc*", "ffn_up", BT_HF_AS_IS},
    {"mlp.c_proj*", "ffn_down", BT_HF_AS_IS},
    END_NAMES,
};

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

#define SILU "silu|swish"
#define TANH "gelu_pytorch_tanh|gelu_new|gelu_fast"

static const bt_hf_family_t families[] = {
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
    {.model_type = "qwen2",
     .arch = "qwen2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .acts = SILU,
     .checks = qwen_checks,
     .keys = no_keys,
     .names = no_names,
     .global_names = no_names},
    {.model_type = "qwen3",
     .arch = "qwen3",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .acts = SILU,
     .checks = qwen_checks,
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
    {.model_type = "gpt2",
     .arch = "gpt2",
     .prefix = "transformer.",
     .layers = "h.",
     .tied = true,
     .acts = TANH,
     .checks = gpt2_checks,
     .keys = gpt2_keys,
     .names = gpt2_names,
     .global_names = gpt2_globals},
    {.model_type = "gpt_neox",
     .arch = "gptneox",
     .prefix = "gpt_neox.",
     .layers = "layers.",
     .common_keys = true,
     .acts = "gelu",
     .checks = no_checks,
     .keys = neox_keys,
     .names = neox_names,
     .global_names = neox_globals},
    {.model_type = "falcon",
     .arch = "falcon",
     .prefix = "transformer.",
     .layers = "h.",
     .tied = true,
     .acts = "gelu",
     .checks = falcon_checks,
     .keys = falcon_keys,
     .names = falcon_names,
     .global_names = falcon_globals},
    {.model_type = "starcoder2",
     .arch = "starcoder2",
     .prefix = "model.",
     .layers = "layers.",
     .common_keys = true,
     .common_names = true,
     .tied = true,
     .windows = BT_HF_ONE_WINDOW,
     .acts = TANH,
     .checks = no_checks,
     .keys = mistral_keys,
     .names = starcoder2_names,
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
};

/* clang-format on */

const bt_hf_family_t *bt_hf_family_of(const char *model_type, size_t len)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(families); i++) {
        if ((strlen(families[i].model_type) == len) &&
            (memcmp(families[i].model_type, model_type, len) == 0)) {
            return &families[i];
        }
    }
    return NULL;
}

const char *bt_hf_family_names(void)
{
    return "llama, mistral, smollm3, granite, internlm2, olmo2, qwen2, qwen3, "
           "gemma, gemma2, gemma3_text, phi3, gpt2, gpt_neox, falcon, "
           "starcoder2, cohere2";
}
