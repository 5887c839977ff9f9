/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/status.h"
#include "inference/model/arch/family.h"

static const bt_family_t families[] = {
    /* Llama and what differs from it in sizes alone: Mistral, Yi and many
     * others. Source: Touvron et al., "LLaMA: Open and Efficient Foundation
     * Language Models", section 2.2. */
    {
        .name = "llama",
        .maybe_biases = BT_BIAS_MATRICES,
        .takes = BT_TAKES_WINDOW | BT_TAKES_EXPERTS,
    },

    /* Ministral 3 and Mistral Small 3: llama, and where the file says so
     * queries that grow with the position beyond the trained context. Source:
     * Mistral AI, "Ministral 3"; the scale, Meta, "Llama 4" (interleaved
     * attention). */
    {
        .name = "mistral3",
        .maybe_biases = BT_BIAS_MATRICES,
        .takes = BT_TAKES_TEMPERATURE,
    },

    /* Granite: llama with scales of what x begins with, of what is added to it,
     * of scores and of logits. Source: IBM, "Granite 3.0 Language Models". */
    {
        .name = "granite",
        .maybe_biases = BT_BIAS_MATRICES,
        .takes = BT_TAKES_EMBEDDING_SCALE | BT_TAKES_RESIDUAL_SCALE |
                 BT_TAKES_LOGIT_SCALE,
        .logit_scale_divides = true,
    },

    /* SmolLM3: llama, each fourth layer without positions. Source: Bakouch et
     * al., "SmolLM3"; Yang et al., "Rope to Nope and Back Again". */
    {
        .name = "smollm3",
        .unturned_period = 4,
    },

    /* InternLM 2: llama under a name of its own. Source: Cai et al., "InternLM2
     * Technical Report". */
    {
        .name = "internlm2",
        .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT,
    },

    /* Baichuan: llama; the models of 40 layers (13B) have ALiBi instead of
     * rotary positions. Source: Yang et al., "Baichuan 2: Open Large-scale
     * Language Models". */
    {
        .name = "baichuan",
        .alibi = 8.0f,
        .alibi_layers = 40,
        .takes = BT_TAKES_ALIBI,
    },

    /* Qwen 2 and 2.5, whose queries, keys and values have biases, and Qwen 3,
     * which has norms of queries and keys. Source: Yang et al., "Qwen2
     * Technical Report" and "Qwen3 Technical Report". */
    {
        .name = "qwen2",
        .biases = BT_BIAS_QKV,
        .maybe_biases = BT_BIAS_OUTPUT,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW,
    },
    {
        .name = "qwen3",
        .qk_norm = BT_QK_NORM_HEADS,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW,
    },

    /* Qwen 3 with experts. Source: Yang et al., "Qwen3 Technical Report". */
    {
        .name = "qwen3moe",
        .qk_norm = BT_QK_NORM_HEADS,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW | BT_TAKES_EXPERTS,
        .experts = {.always = true},
    },

    /* Qwen 1.5 and 2 with experts and a shared one, whose output has a gate;
     * GLM 4.5 to 4.7: experts by sigmoid with a bias for the choice, a shared
     * one, first layers without. Source: Yang et al., "Qwen2 Technical Report";
     * GLM-4.5 Team, "GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation
     * Models". */
    {
        .name = "qwen2moe",
        .biases = BT_BIAS_QKV,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW | BT_TAKES_EXPERTS | BT_TAKES_SHARED_EXPERT,
        .experts = {.always = true, .keeps_weights = true, .shared_gate = true},
    },
    {
        .name = "glm4moe",
        .qk_norm = BT_QK_NORM_HEADS,
        .maybe_qk_norm = true,
        .ffn_norm_behind_attention = true,
        .maybe_biases = BT_BIAS_QKV,
        .pairs_apart = true,
        .takes = BT_TAKES_EXPERTS | BT_TAKES_SHARED_EXPERT,
        .experts = {.always = true, .gating = BT_GATING_SIGMOID},
    },

    /* Granite with experts. Source: IBM, "Granite 3.0 Language Models". */
    {
        .name = "granitemoe",
        .maybe_biases = BT_BIAS_MATRICES,
        .takes = BT_TAKES_EMBEDDING_SCALE | BT_TAKES_RESIDUAL_SCALE |
                 BT_TAKES_LOGIT_SCALE | BT_TAKES_EXPERTS |
                 BT_TAKES_SHARED_EXPERT,
        .logit_scale_divides = true,
        .experts = {.always = true, .gating = BT_GATING_CHOSEN},
    },

    /* gpt-oss: biases throughout, attention sinks, a window in every second
     * layer, a gate of its own. Source: OpenAI, "gpt-oss-120b & gpt-oss-20b
     * Model Card". */
    {
        .name = "gpt-oss",
        .ffn_norm_behind_attention = true,
        .biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT,
        .act = BT_ACT_SWIGLU_OAI,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW | BT_TAKES_EXPERTS,
        .window_period = 2,
        .experts = {.always = true, .gating = BT_GATING_CHOSEN, .biases = true},
    },

    /* OLMoE: norms of all queries and all keys together, experts whose weights
     * are those among all. Source: Muennighoff et al., "OLMoE: Open
     * Mixture-of-Experts Language Models". */
    {
        .name = "olmoe",
        .qk_norm = BT_QK_NORM_ROW,
        .pairs_apart = true,
        .takes = BT_TAKES_EXPERTS,
        .experts = {.always = true, .keeps_weights = true},
    },

    /* OLMo: norms without weights, queries, keys and values that are clamped.
     * OLMo 2 and 3: norms behind attention and feed-forward alone, and of all
     * queries and all keys together; the third has windows, in whose layers
     * positions are not scaled. Source: Groeneveld et al., "OLMo: Accelerating
     * the Science of Language Models"; Walsh et al., "2 OLMo 2 Furious". */
    {
        .name = "olmo",
        .layer_norm = true,
        .bare_norms = true,
        .takes = BT_TAKES_CLAMP,
    },
    {
        .name = "olmo2",
        .no_norms_before = true,
        .norms_after = true,
        .qk_norm = BT_QK_NORM_ROW,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW,
        .window_period = 4,
        .window_rope_unscaled = true,
    },

    /* Gemma's three generations: GELU and an embedding of its own scale; from
     * the second on norms behind attention and feed-forward too and layers that
     * alternate between a window and all positions; the second caps scores and
     * logits, the third has norms of queries and keys instead. (The files have
     * 1 + w of what the authors call a norm's weight.)
     * Source: Gemma Team, "Gemma", "Gemma 2" and "Gemma 3" technical reports.
     */
    {
        .name = "gemma",
        .act = BT_ACT_GELU_TANH,
        .pairs_apart = true,
        .scaled_embedding = true,
    },
    {
        .name = "gemma2",
        .norms_after = true,
        .act = BT_ACT_GELU_TANH,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW | BT_TAKES_LOGIT_CAP,
        .window_period = 2,
        .window = 4096,
        .scaled_embedding = true,
        .wide_scale_layers = 46, /* 27B */
    },
    {
        .name = "gemma3",
        .norms_after = true,
        .qk_norm = BT_QK_NORM_HEADS,
        .act = BT_ACT_GELU_TANH,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW | BT_TAKES_LOGIT_CAP,
        .window_period = 6,
        .window_rope_base = 10000.0f,
        .window_rope_unscaled = true,
        .scaled_embedding = true,
        .wide_scale_layers = 62, /* 27B */
    },

    /* Cohere 2 (Command R7B, Command A): attention and feed-forward in parallel
     * behind one norm; three of four layers have a window and rotary positions,
     * the fourth neither. Source: Cohere, "Command A". */
    {
        .name = "cohere2",
        .layer_norm = true,
        .parallel = true,
        .one_norm = true,
        .takes = BT_TAKES_WINDOW | BT_TAKES_LOGIT_SCALE,
        .window_period = 4,
        .window_turns = true,
    },

    /* Phi-3 and 4: fused matrices, and LongRoPE for long contexts. Source:
     * Abdin et al., "Phi-3 Technical Report". */
    {
        .name = "phi3",
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW,
    },

    /* StarCoder 2. Source: Lozhkov et al., "StarCoder 2 and The Stack v2". */
    {
        .name = "starcoder2",
        .layer_norm = true,
        .biases = BT_BIAS_NORM,
        .maybe_biases = BT_BIAS_MATRICES,
        .plain_ffn = true,
        .act = BT_ACT_GELU_TANH,
        .pairs_apart = true,
        .takes = BT_TAKES_WINDOW,
    },

    /* Falcon: attention and feed-forward in parallel, behind one norm (7B) or a
     * norm each (40B and later); RefinedWeb's have them one after the other,
     * biases and ALiBi, whose slopes are scaled with the scores. Source:
     * Almazrouei et al., "The Falcon Series of Open Language Models". */
    {
        .name = "falcon",
        .layer_norm = true,
        .biases = BT_BIAS_NORM,
        .maybe_biases = BT_BIAS_MATRICES,
        .plain_ffn = true,
        .act = BT_ACT_GELU_ERF,
        .parallel_key = true,
        .one_norm = true,
        .pairs_apart = true,
        .alibi_scaled = true,
        .takes = BT_TAKES_ALIBI,
    },

    /* MPT: ALiBi, or learned positions; norms and matrices without biases, but
     * in some; queries, keys and values that are clamped. Source: MosaicML,
     * "Introducing MPT-7B", and its code. */
    {
        .name = "mpt",
        .layer_norm = true,
        .maybe_biases = BT_BIAS_NORM | BT_BIAS_MATRICES,
        .plain_ffn = true,
        .act = BT_ACT_GELU_ERF,
        .learned_positions = true,
        .takes = BT_TAKES_ALIBI | BT_TAKES_CLAMP,
    },

    /* BLOOM: ALiBi, biases throughout, a norm of the embedding. Source: Le Scao
     * et al., "BLOOM: A 176B-Parameter Open-Access Multilingual Language
     * Model". */
    {
        .name = "bloom",
        .layer_norm = true,
        .embedding_norm = true,
        .biases = BT_BIAS_NORM | BT_BIAS_MATRICES,
        .plain_ffn = true,
        .act = BT_ACT_GELU_TANH,
        .alibi = 8.0f,
        .takes = BT_TAKES_ALIBI,
    },

    /* GPT-2. Source: Radford et al., "Language Models are Unsupervised
     * Multitask Learners". */
    {
        .name = "gpt2",
        .layer_norm = true,
        .biases = BT_BIAS_NORM | BT_BIAS_MATRICES,
        .plain_ffn = true,
        .act = BT_ACT_GELU_TANH,
        .learned_positions = true,
    },

    /* GPT-NeoX and Pythia: attention and feed-forward in parallel, positions in
     * a part of each head. Source: Black et al., "GPT-NeoX-20B". */
    {
        .name = "gptneox",
        .layer_norm = true,
        .biases = BT_BIAS_NORM | BT_BIAS_FFN_UP | BT_BIAS_FFN_DOWN,
        .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT,
        .plain_ffn = true,
        .act = BT_ACT_GELU_ERF,
        .parallel_key = true,
        .pairs_apart = true,
    },
};

/* Source: Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large
 * Language Models via Training-Time Test", and llama.cpp's converter. */
const bt_family_t bt_family_eagle3 = {
    .name = "eagle3",
    .maybe_biases = BT_BIAS_MATRICES,
    .is_eagle3 = true,
};

#define ONE(name) +1
_Static_assert(BT_ARRAY_LEN(families) == 0 BT_FAMILIES(ONE),
               "a family is here and in architectures.h");

const bt_family_t *bt_family_find(bt_gguf_str_t name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(families); i++) {
        if (bt_gguf_str_is(name, families[i].name)) {
            return &families[i];
        }
    }
    return NULL;
}
