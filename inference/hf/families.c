/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 and its kin: layer norms, biases, feed-forward without a gate. */
#include <string.h>

#include "inference/hf/families.h"

/* clang-format off: one line for a setting or a name */

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

/* clang-format on */

static const bt_hf_family_t *find(const bt_hf_family_t *table,
                                  const char *model_type, size_t len)
{
    for (; table->model_type != NULL; table++) {
        if ((strlen(table->model_type) == len) &&
            (memcmp(table->model_type, model_type, len) == 0)) {
            return table;
        }
    }
    return NULL;
}

const bt_hf_family_t *bt_hf_family_of(const char *model_type, size_t len)
{
    const bt_hf_family_t *const llama = find(bt_hf_llamas, model_type, len);

    return (llama != NULL) ? llama : find(bt_hf_gpts, model_type, len);
}

const char *bt_hf_family_names(void)
{
    return "llama, mistral, ministral, ministral3, mistral3, smollm3, granite, "
           "internlm2, olmo, olmo2, olmo3, qwen2, qwen3, gemma, gemma2, "
           "gemma3_text, gemma3, phi3, gpt2, gpt_neox, falcon, starcoder2, "
           "cohere2, baichuan, bloom, mpt";
}

/* clang-format off: one line for a setting or a name */

static const char *const no_checks[] = {NULL};

static const bt_hf_name_t no_names[] = {END_NAMES};

static const bt_hf_key_t mistral_keys[] = {
    {"sliding_window", "attention.sliding_window", BT_HF_U32, false, NULL},
    END_KEYS,
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
    {"post_attention_layernorm*", "ffn_norm", BT_HF_AS_IS},
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

/* ---- Bloom, MPT ---- */

static const bt_hf_key_t bloom_keys[] = {
    {LAYERS, "block_count", BT_HF_U32, true, NULL},
    {"seq_length", "context_length", BT_HF_U32, false, "2048"},
    {WIDTH, "embedding_length", BT_HF_U32, true, NULL},
    {FFN, "feed_forward_length", BT_HF_U32, false, "4x"},
    {HEADS, "attention.head_count", BT_HF_U32, true, NULL},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", BT_HF_F32, false,
     "1e-5"},
    END_KEYS,
};

static const bt_hf_name_t bloom_names[] = {
    {"input_layernorm*", "attn_norm", BT_HF_AS_IS},
    {"self_attention.query_key_value*", "attn_qkv", BT_HF_FUSED},
    {"self_attention.dense*", "attn_output", BT_HF_AS_IS},
    {"post_attention_layernorm*", "ffn_norm", BT_HF_AS_IS},
    {"mlp.dense_h_to_4h*", "ffn_up", BT_HF_AS_IS},
    {"mlp.dense_4h_to_h*", "ffn_down", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_name_t bloom_globals[] = {
    {"word_embeddings*", "token_embd", BT_HF_AS_IS},
    {"word_embeddings_layernorm*", "token_embd_norm", BT_HF_AS_IS},
    {"ln_f*", "output_norm", BT_HF_AS_IS},
    {"lm_head*", "output", BT_HF_AS_IS},
    END_NAMES,
};

static const char *const bloom_checks[] = {
    "apply_residual_connection_post_layernorm=false", NULL};

static const bt_hf_key_t mpt_keys[] = {
    {LAYERS, "block_count", BT_HF_U32, true, NULL},
    {CONTEXT, "context_length", BT_HF_U32, true, NULL},
    {WIDTH, "embedding_length", BT_HF_U32, true, NULL},
    {FFN, "feed_forward_length", BT_HF_U32, false, "4x"},
    {HEADS, "attention.head_count", BT_HF_U32, true, NULL},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", BT_HF_F32, false,
     "1e-5"},
    {"attn_config.clip_qkv", "attention.clamp_kqv", BT_HF_F32, false, NULL},
    {"attn_config.alibi_bias_max", "attention.max_alibi_bias", BT_HF_F32, false,
     "8"},
    END_KEYS,
};

static const bt_hf_name_t mpt_names[] = {
    {"norm_1*", "attn_norm", BT_HF_AS_IS},
    {"attn.Wqkv*", "attn_qkv", BT_HF_AS_IS},
    {"attn.out_proj*", "attn_output", BT_HF_AS_IS},
    {"norm_2*", "ffn_norm", BT_HF_AS_IS},
    {"ffn.up_proj*", "ffn_up", BT_HF_AS_IS},
    {"ffn.down_proj*", "ffn_down", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_name_t mpt_globals[] = {
    {"wte*", "token_embd", BT_HF_AS_IS},
    {"norm_f*", "output_norm", BT_HF_AS_IS},
    {"lm_head*", "output", BT_HF_AS_IS},
    END_NAMES,
};

static const char *const mpt_checks[] = {
    "attn_config.alibi=true",
    "attn_config.qk_ln=false",
    "attn_config.prefix_lm=false",
    "attn_config.softmax_scale=null",
    "attn_config.rope=false",
    "attn_config.attn_type=multihead_attention",
    "attn_config.sliding_window_size=-1",
    "expansion_ratio=4",
    "logit_scale=null",
    "norm_type=low_precision_layernorm",
    NULL};

/* ---- StarCoder 2 ---- */

static const bt_hf_name_t starcoder2_names[] = {
    {"mlp.c_fc*", "ffn_up", BT_HF_AS_IS},
    {"mlp.c_proj*", "ffn_down", BT_HF_AS_IS},
    END_NAMES,
};

const bt_hf_family_t bt_hf_gpts[] = {
    {.model_type = "gpt2",
     .arch = "gpt2",
     .no_rope = true,
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
     .checks = no_checks,
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
    {.model_type = "bloom",
     .arch = "bloom",
     .prefix = "transformer.",
     .layers = "h.",
     .tied = true,
     .no_rope = true,
     .acts = TANH "|gelu",
     .checks = bloom_checks,
     .keys = bloom_keys,
     .names = bloom_names,
     .global_names = bloom_globals},
    {.model_type = "mpt",
     .arch = "mpt",
     .prefix = "transformer.",
     .layers = "blocks.",
     .tied = true,
     .no_rope = true,
     .acts = "gelu",
     .checks = mpt_checks,
     .keys = mpt_keys,
     .names = mpt_names,
     .global_names = mpt_globals},
    {0},
};

/* clang-format on */
