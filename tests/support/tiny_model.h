/* SPDX-License-Identifier: Apache-2.0 */
/** @file tiny_model.h
 *
 * Writes small, valid GGUF v3 files of any dense architecture with seeded
 * weights and a real byte-level BPE vocabulary, so that tests of the whole
 * cluster need no download. The same arguments give the same bytes everywhere.
 *
 * Vocabulary: 0 <|endoftext|>, 1 <|im_start|> (bos), 2 <|im_end|> (eos), 3 ..
 * 258 the 256 bytes in the order of GPT-2's byte alphabet, then one token per
 * merge, then fillers w0, w1 … up to n_vocab.
 */
#ifndef BT_TESTS_SUPPORT_TINY_MODEL_H
#define BT_TESTS_SUPPORT_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_TINY_SAME_TYPE UINT32_MAX
#define BT_TINY_MAX_KEYS  12

/** A further key: "general.…" as it is, others "ARCHITECTURE.name". */
typedef struct bt_tiny_key {
    const char *name;
    char type; /**< 'u' 32 bits, 'f' float, 'b' truth value, 's' text, 'p' a
                    list of truth values, a '1' or '0' of the text each, 'l' a
                    list of numbers, "1,2" */
    const char *value; /**< as text */
} bt_tiny_key_t;

typedef struct bt_tiny_model {
    uint32_t n_layers;
    uint32_t n_silent; /**< so many of them, the last ones, add nothing to what
                            passes through: logits are those of the model
                            without them */
    uint32_t dim;      /**< a multiple of n_heads */
    uint32_t n_heads;
    uint32_t head_dim;  /**< even; 0: dim / n_heads, and no key */
    uint32_t rope_dims; /**< of a head; 0: all */
    uint32_t n_kv_heads;
    uint32_t ffn_dim;
    uint32_t n_vocab; /**< at least bt_tiny_model_min_vocab() */
    /** Rows of token_embd and output behind those of n_vocab, listed as tokens
     *  "[PADid]" of type UNUSED, and behind them rows without a token. Their
     *  logits are so large that one of them would be drawn almost always; the
     *  rows before them are those of the model without. */
    uint32_t n_unused;
    uint32_t n_padding;
    uint32_t context_tokens;
    uint32_t type;       /**< ggml_type of the matrices */
    uint32_t mixed_type; /**< of attn_v and ffn_down, as K-quant mixes have
                              it; BT_TINY_SAME_TYPE = like the others */
    uint32_t embd_type;  /**< of token_embd and output */
    bool tied;           /**< no output.weight */
    bool rope_factors;   /**< add rope_freqs.weight */
    bool long_factors;   /**< add rope_factors_long.weight and _short */
    bool biases;         /**< of all matrices, whatever the architecture */
    bool second_norm;    /**< add blk.N.attn_norm_2 */
    float rope_base;
    uint64_t seed;
    bool sampling; /**< recommend temp 0.6, top_k 20, top_p 0.9,
                        penalty_repeat 1.125, and a min_p that is none, 2 */

    /* Attention; 0: not in the file */
    uint32_t sliding_window; /**< llama.attention.sliding_window */
    float attn_soft_cap;     /**< llama.attn_logit_softcapping */
    float attn_scale;        /**< llama.attention.scale */
    bool attn_sinks;         /**< add blk.N.attn_sinks.weight */

    /* Mixture of experts, in all layers but the first n_dense. */
    uint32_t n_experts;      /**< 0: none */
    uint32_t n_experts_used; /**< of a row */
    uint32_t expert_dim;     /**< width of an expert; 0: ffn_dim, and no key */
    uint32_t n_dense;
    uint32_t shared_dim;  /**< width of a shared expert; 0: none */
    bool gate_up;         /**< gate and up as one tensor */
    uint32_t up_type;     /**< of ffn_up_exps; BT_TINY_SAME_TYPE = like the
                               others */
    uint32_t router_type; /**< of ffn_gate_inp */

    bt_tiny_key_t keys[BT_TINY_MAX_KEYS];
    uint32_t n_keys;

    bool thinks; /**< the last two tokens are <think> and </think> */
    const char *chat_template; /**< NULL: ChatML's; "": none */

    const char *architecture; /**< "llama"; tiny_family.c has the others */

    /** Of architecture "eagle3", a draft head (inference/model/head.h):
     *  rows of output, with d2t if they are fewer than n_vocab; 0: no output.
     *  It has no token_embd if `tied`. Its target is as wide. */
    uint32_t draft_vocab;
    bool nextn;     /**< the last of the layers predicts further tokens: add
                         blk.N.nextn.eh_proj, enorm and hnorm, and the key */
    bool nextn_own; /**< add nextn.embed_tokens, shared_head_head and _norm */

    const char *tensors_of; /**< a line of tiny_family.c; NULL: that of
                                 architecture */

    /* What a loader must refuse. */
    bool experts_apart;    /**< a tensor for each expert */
    uint32_t experts_said; /**< expert_count; 0: n_experts */
    uint32_t n_stacked;    /**< experts of the stacked tensors; 0: n_experts */
    const char *rope_scaling; /**< llama.rope.scaling.type, or NULL */
} bt_tiny_model_t;

/** 2 layers, 64 wide, 4 query and 2 KV heads of 16, ffn 128, vocabulary 288,
 *  context 512, all F32, not tied, seed 1. */
bt_tiny_model_t bt_tiny_model_default(void);

uint32_t bt_tiny_model_min_vocab(void);

/**
 * @retval BT_ERR_INVALID_PARAM  The shape is impossible, or rows are not a
 *                               whole number of the type's blocks.
 * @retval BT_ERR_UNSUPPORTED    The tensor type.
 * @retval BT_ERR_IO             The file could not be written.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_tiny_model_write(const bt_tiny_model_t *model,
                                              const char *path);

#endif
