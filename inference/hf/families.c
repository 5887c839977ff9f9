/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/families.h"

#include <string.h>

#include "common/base/status.h"

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

/* ---- llama and its kin ---- */

static const bt_hf_key_t mistral_keys[] = {
    {"sliding_window", "attention.sliding_window", BT_HF_U32, false, NULL},
    END_KEYS,
};

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

/* ---- experts ---- */

#define EXPERT_KEYS                                                   \
    {EXPERTS, "expert_count", BT_HF_U32, true, NULL},                 \
    {                                                                 \
        "num_experts_per_tok|experts_per_token", "expert_used_count", \
            BT_HF_U32, true, NULL                                     \
    }

/* Of all experts in one tensor, as transformers 5 has them in memory. */
#define FUSED_EXPERTS                                                       \
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight|ffn_up_exps.weight", \
     BT_HF_EXPERTS_HALVES},                                                 \
    {                                                                       \
        "mlp.experts.down_proj", "ffn_down_exps.weight", BT_HF_EXPERTS      \
    }

#define EXPERT_NAMES                                                 \
    {"mlp.gate*", "ffn_gate_inp", BT_HF_AS_IS},                      \
        {"mlp.experts.#.gate_proj*", "ffn_gate_exps", BT_HF_EXPERT}, \
        {"mlp.experts.#.up_proj*", "ffn_up_exps", BT_HF_EXPERT},     \
        {"mlp.experts.#.down_proj*", "ffn_down_exps", BT_HF_EXPERT}, \
        FUSED_EXPERTS

static const bt_hf_key_t mixtral_keys[] = {
    EXPERT_KEYS,
    {"sliding_window", "attention.sliding_window", BT_HF_U32, false, NULL},
    END_KEYS,
};

static const bt_hf_name_t mixtral_names[] = {
    {"block_sparse_moe.gate*", "ffn_gate_inp", BT_HF_AS_IS},
    {"block_sparse_moe.experts.#.w1*", "ffn_gate_exps", BT_HF_EXPERT},
    {"block_sparse_moe.experts.#.w3*", "ffn_up_exps", BT_HF_EXPERT},
    {"block_sparse_moe.experts.#.w2*", "ffn_down_exps", BT_HF_EXPERT},
    EXPERT_NAMES,
    END_NAMES,
};

static const bt_hf_key_t qwen2moe_keys[] = {
    EXPERT_KEYS,
    {"moe_intermediate_size", "expert_feed_forward_length", BT_HF_U32, true,
     NULL},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length",
     BT_HF_U32, true, NULL},
    {"norm_topk_prob", "expert_weights_norm", BT_HF_BOOL, false, "false"},
    END_KEYS,
};

static const bt_hf_name_t qwen2moe_names[] = {
    EXPERT_NAMES,
    {"mlp.shared_expert.gate_proj*", "ffn_gate_shexp", BT_HF_AS_IS},
    {"mlp.shared_expert.up_proj*", "ffn_up_shexp", BT_HF_AS_IS},
    {"mlp.shared_expert.down_proj*", "ffn_down_shexp", BT_HF_AS_IS},
    {"mlp.shared_expert_gate*", "ffn_gate_inp_shexp", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_key_t qwen3moe_keys[] = {
    EXPERT_KEYS,
    {"moe_intermediate_size", "expert_feed_forward_length", BT_HF_U32, true,
     NULL},
    {"norm_topk_prob", "expert_weights_norm", BT_HF_BOOL, false, "false"},
    END_KEYS,
};

static const bt_hf_name_t expert_names[] = {
    EXPERT_NAMES,
    END_NAMES,
};

static const char *const qwen_moe_checks[] = {"decoder_sparse_step=1", NULL};

static const bt_hf_key_t olmoe_keys[] = {
    EXPERT_KEYS,
    {"norm_topk_prob", "expert_weights_norm", BT_HF_BOOL, false, "false"},
    {"clip_qkv", "attention.clamp_kqv", BT_HF_F32, false, NULL},
    END_KEYS,
};

static const bt_hf_key_t granitemoe_keys[] = {
    EXPERT_KEYS,
    {"attention_multiplier", "attention.scale", BT_HF_F32, false, NULL},
    {"embedding_multiplier", "embedding_scale", BT_HF_F32, false, NULL},
    {"residual_multiplier", "residual_scale", BT_HF_F32, false, NULL},
    {"logits_scaling", "logit_scale", BT_HF_F32, false, NULL},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", BT_HF_U32,
     false, NULL},
    END_KEYS,
};

static const bt_hf_name_t granitemoe_names[] = {
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight",
     BT_HF_AS_IS},
    {"block_sparse_moe.input_linear.weight",
     "ffn_gate_exps.weight|ffn_up_exps.weight", BT_HF_EXPERTS_HALVES},
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight",
     BT_HF_EXPERTS},
    {"shared_mlp.input_linear.weight",
     "ffn_gate_shexp.weight|ffn_up_shexp.weight", BT_HF_EXPERTS_HALVES},
    {"shared_mlp.output_linear*", "ffn_down_shexp", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_key_t glm4moe_keys[] = {
    EXPERT_KEYS,
    {"moe_intermediate_size", "expert_feed_forward_length", BT_HF_U32, true,
     NULL},
    {"n_shared_experts", "expert_shared_count", BT_HF_U32, false, NULL},
    {"first_k_dense_replace", "leading_dense_block_count", BT_HF_U32, false,
     "1"},
    {"routed_scaling_factor", "expert_weights_scale", BT_HF_F32, false, "1"},
    {"norm_topk_prob", "expert_weights_norm", BT_HF_BOOL, false, "true"},
    {"n_group", "expert_group_count", BT_HF_U32, false, NULL},
    {"topk_group", "expert_group_used_count", BT_HF_U32, false, NULL},
    {"", "expert_gating_func", BT_HF_U32, false, "2"},   /* sigmoid */
    {"", "nextn_predict_layers", BT_HF_U32, false, "0"}, /* left out */
    END_KEYS,
};

static const bt_hf_name_t glm4moe_names[] = {
    EXPERT_NAMES,
    {"post_attention_layernorm*", "post_attention_norm", BT_HF_AS_IS},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", BT_HF_AS_IS},
    {"mlp.shared_experts.gate_proj*", "ffn_gate_shexp", BT_HF_AS_IS},
    {"mlp.shared_experts.up_proj*", "ffn_up_shexp", BT_HF_AS_IS},
    {"mlp.shared_experts.down_proj*", "ffn_down_shexp", BT_HF_AS_IS},
    END_NAMES,
};

static const char *const glm4moe_checks[] = {"n_group=1", "topk_group=1", NULL};

static const bt_hf_default_t glm4moe_defaults[] = {
    GIVEN("partial_rotary_factor", "0.5"),
    {NULL, {0}},
};

static const bt_hf_key_t gpt_oss_keys[] = {
    EXPERT_KEYS,
    {"intermediate_size", "expert_feed_forward_length", BT_HF_U32, true, NULL},
    {"sliding_window", "attention.sliding_window", BT_HF_U32, false, NULL},
    END_KEYS,
};

static const bt_hf_name_t gpt_oss_names[] = {
    {"post_attention_layernorm*", "post_attention_norm", BT_HF_AS_IS},
    {"self_attn.sinks", "attn_sinks.weight", BT_HF_AS_IS},
    {"mlp.router*", "ffn_gate_inp", BT_HF_AS_IS},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight|ffn_up_exps.weight",
     BT_HF_EXPERTS_TURNS},
    {"mlp.experts.gate_up_proj.weight",
     "ffn_gate_exps.weight|ffn_up_exps.weight", BT_HF_EXPERTS_TURNS},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias|ffn_up_exps.bias",
     BT_HF_EXPERTS_TURNS},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", BT_HF_EXPERTS_TRANSPOSE},
    {"mlp.experts.down_proj.weight", "ffn_down_exps.weight",
     BT_HF_EXPERTS_TRANSPOSE},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", BT_HF_EXPERTS},
    END_NAMES,
};

static const char *const gpt_oss_checks[] = {"swiglu_limit=7.0",
                                             "swiglu_alpha=1.702", NULL};

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

static const bt_hf_family_t families[] = {
    {.model_type = "llama",
     .arch = "llama",
     .turns = true,
     .checks = llama_checks},
    {.model_type = "mistral",
     .arch = "llama",
     .turns = true,
     .windows = BT_HF_ONE_WINDOW,
     .keys = mistral_keys},
    {.model_type = "ministral",
     .arch = "llama",
     .turns = true,
     .windows = BT_HF_ANY_WINDOW,
     .keys = mistral_keys},
    {.model_type = "smollm3",
     .arch = "smollm3",
     .turns = true,
     .tied = true,
     .checks = smollm3_checks},
    {.model_type = "granite",
     .arch = "granite",
     .turns = true,
     .keys = granite_keys},
    {.model_type = "internlm2",
     .arch = "internlm2",
     .own_names = true,
     .turns = true,
     .names = internlm2_names,
     .global_names = internlm2_globals},
    {.model_type = "olmo2", .arch = "olmo2", .names = olmo2_names},
    {.model_type = "olmo3",
     .arch = "olmo2",
     .windows = BT_HF_ANY_WINDOW,
     .keys = mistral_keys,
     .names = olmo2_names},
    {.model_type = "qwen2", .arch = "qwen2", .late_windows = true},
    {.model_type = "qwen3", .arch = "qwen3", .late_windows = true},
    {.model_type = "gemma",
     .arch = "gemma",
     .tied = true,
     .bare_head = true,
     .acts = TANH "|gelu",
     .keys = gemma_keys,
     .names = gemma_names,
     .global_names = gemma_globals},
    {.model_type = "gemma2",
     .arch = "gemma2",
     .tied = true,
     .bare_head = true,
     .windows = 2,
     .acts = TANH,
     .keys = gemma2_keys,
     .names = gemma2_names,
     .global_names = gemma_globals},
    {.model_type = "gemma3_text",
     .arch = "gemma3",
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
     .long_factors = true,
     .windows = BT_HF_ONE_WINDOW,
     .keys = phi3_keys,
     .names = phi3_names},
    {.model_type = "cohere2",
     .arch = "cohere2",
     .tied = true,
     .windows = 4,
     .keys = cohere2_keys,
     .names = cohere2_names},
    {.model_type = "ministral3",
     .arch = "mistral3",
     .turns = true,
     .checks = mistral3_checks,
     .keys = mistral3_keys},
    {.model_type = "mistral3",
     .inner = "ministral3|mistral",
     .arch = "mistral3",
     .turns = true,
     .checks = mistral3_checks,
     .keys = mistral3_keys},
    {.model_type = "olmo", .arch = "olmo", .turns = true, .keys = olmo_keys},
    {.model_type = "baichuan",
     .arch = "baichuan",
     .turns = true,
     .names = baichuan_names,
     .global_names = baichuan_globals},
    {.model_type = "gpt2",
     .arch = "gpt2",
     .own_names = true,
     .own_keys = true,
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
     .own_names = true,
     .prefix = "gpt_neox.",
     .acts = "gelu",
     .keys = neox_keys,
     .names = neox_names,
     .global_names = neox_globals},
    {.model_type = "falcon",
     .arch = "falcon",
     .own_names = true,
     .own_keys = true,
     .prefix = "transformer.",
     .layers = "h.",
     .tied = true,
     .acts = "gelu",
     .keys = falcon_keys,
     .names = falcon_names,
     .global_names = falcon_globals},
    {.model_type = "starcoder2",
     .arch = "starcoder2",
     .tied = true,
     .windows = BT_HF_ONE_WINDOW,
     .acts = TANH,
     .keys = mistral_keys,
     .names = starcoder2_names},
    {.model_type = "bloom",
     .arch = "bloom",
     .own_names = true,
     .own_keys = true,
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
     .own_names = true,
     .own_keys = true,
     .prefix = "transformer.",
     .layers = "blocks.",
     .tied = true,
     .no_rope = true,
     .acts = "gelu",
     .checks = mpt_checks,
     .keys = mpt_keys,
     .names = mpt_names,
     .global_names = mpt_globals},
    {.model_type = "mixtral",
     .arch = "llama",
     .turns = true,
     .experts = true,
     .windows = BT_HF_ONE_WINDOW,
     .keys = mixtral_keys,
     .names = mixtral_names},
    {.model_type = "qwen2_moe",
     .arch = "qwen2moe",
     .experts = true,
     .late_windows = true,
     .checks = qwen_moe_checks,
     .keys = qwen2moe_keys,
     .names = qwen2moe_names},
    {.model_type = "qwen3_moe",
     .arch = "qwen3moe",
     .experts = true,
     .late_windows = true,
     .checks = qwen_moe_checks,
     .keys = qwen3moe_keys,
     .names = expert_names},
    {.model_type = "olmoe",
     .arch = "olmoe",
     .experts = true,
     .keys = olmoe_keys,
     .names = expert_names},
    {.model_type = "granitemoe",
     .arch = "granitemoe",
     .turns = true,
     .experts = true,
     .keys = granitemoe_keys,
     .names = granitemoe_names},
    {.model_type = "granitemoeshared",
     .arch = "granitemoe",
     .turns = true,
     .experts = true,
     .keys = granitemoe_keys,
     .names = granitemoe_names},
    {.model_type = "glm4_moe",
     .arch = "glm4moe",
     .experts = true,
     .checks = glm4moe_checks,
     .defaults = glm4moe_defaults,
     .keys = glm4moe_keys,
     .names = glm4moe_names},
    {.model_type = "gpt_oss",
     .arch = "gpt-oss",
     .experts = true,
     .windows = 2,
     .checks = gpt_oss_checks,
     .keys = gpt_oss_keys,
     .names = gpt_oss_names},
};

static const bt_hf_key_t eagle3_keys[] = {
    {"target_hidden_size|hidden_size", "target_hidden_size", BT_HF_U32, true,
     NULL},
    {"norm_before_residual", "norm_before_residual", BT_HF_BOOL, false, NULL},
    {"norm_output", "norm_output", BT_HF_BOOL, false, NULL},
    {"norm_before_fc|eagle_config.norm_before_fc", "norm_before_fc", BT_HF_BOOL,
     false, NULL},
    END_KEYS,
};

static const bt_hf_name_t eagle3_names[] = {
    {"hidden_norm*", "attn_norm_2", BT_HF_AS_IS},
    END_NAMES,
};

static const bt_hf_name_t eagle3_globals[] = {
    {"fc*", "fc", BT_HF_AS_IS},
    {"input_norm*", "enc.output_norm", BT_HF_AS_IS},
    {"d2t", "d2t", BT_HF_IDS},
    {"t2d", NULL, BT_HF_SKIP},
    END_NAMES,
};

static const char *const eagle3_checks[] = {
    "pretraining_tp=1",
    "sliding_window=null",
    "fc_norm=false",
    "eagle_config.fc_norm=false",
    "eagle_config.use_aux_hidden_state=true",
    NULL};

const bt_hf_family_t bt_hf_family_eagle3 = {
    .model_type = "EAGLE-3",
    .arch = "eagle3",
    .only_layer = "midlayer.",
    .turns = true,
    /* tie_word_embeddings of SpecForge's configs is the target's */
    .own_head = true,
    .checks = eagle3_checks,
    .keys = eagle3_keys,
    .names = eagle3_names,
    .global_names = eagle3_globals,
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

const bt_hf_family_t *bt_hf_family_of_arch(const char *arch, size_t len,
                                           uint32_t i)
{
    for (size_t k = 0; k < BT_ARRAY_LEN(families); k++) {
        const bt_hf_family_t *const f = &families[k];

        if ((strlen(f->arch) == len) && (memcmp(f->arch, arch, len) == 0) &&
            (i-- == 0)) {
            return f;
        }
    }
    return NULL;
}

const char *bt_hf_family_names(void)
{
    return "llama, mistral, ministral, ministral3, mistral3, smollm3, granite, "
           "internlm2, olmo, olmo2, olmo3, qwen2, qwen3, gemma, gemma2, "
           "gemma3_text, gemma3, phi3, gpt2, gpt_neox, falcon, starcoder2, "
           "cohere2, baichuan, bloom, mpt, mixtral, qwen2_moe, qwen3_moe, "
           "olmoe, granitemoe, granitemoeshared, glm4_moe, gpt_oss";
}
