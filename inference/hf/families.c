/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/families.h"

#include <string.h>

#include "inference/hf/families_words.h"

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
