/* SPDX-License-Identifier: Apache-2.0 */
/** @file family.h
 *
 * What a family of dense decoders differs in from the others. All of them are
 *
 *     x = embedding of the tokens (+ positions)
 *     each layer:  x += norm(Wo attention(rope(norm(Wqkv norm(x)))))
 *                  x += norm(Wdown (act(Wgate norm(x)) * Wup norm(x)))
 *     logits = cap(Wout norm(x))
 *
 * and share one reader of hyper-parameters (decoder_hparams.c), one loader
 * (decoder_load.c) and one forward pass (decoder.c). A family is a file of this
 * folder with a bt_arch_t, which arch.c lists: docs/ADDING_A_MODEL.md.
 */
#ifndef BT_INFERENCE_MODEL_ARCH_FAMILY_H
#define BT_INFERENCE_MODEL_ARCH_FAMILY_H

#include "inference/gguf/architectures.h"
#include "inference/model/model_priv.h"

/** Norms of queries and keys, before they turn. */
typedef enum bt_qk_norm {
    BT_QK_NORM_NONE,
    BT_QK_NORM_HEADS, /**< each head for itself, all with the same weights */
    BT_QK_NORM_ROW,   /**< all heads together */
} bt_qk_norm_t;

/** Vectors that are added. */
typedef enum bt_bias {
    BT_BIAS_NORM = 1u << 0,        /**< all norms' */
    BT_BIAS_QKV = 1u << 1,         /**< queries, keys and values */
    BT_BIAS_ATTN_OUTPUT = 1u << 2, /**< */
    BT_BIAS_FFN_UP = 1u << 3,      /**< and the gate's */
    BT_BIAS_FFN_DOWN = 1u << 4,    /**< */
    BT_BIAS_OUTPUT = 1u << 5,      /**< the logits' */
} bt_bias_t;

/** Keys that a family may have. Where it has another one of these, it is
 *  refused by name. */
typedef enum bt_takes {
    BT_TAKES_WINDOW = 1u << 0,          /**< attention.sliding_window */
    BT_TAKES_EMBEDDING_SCALE = 1u << 1, /**< embedding_scale */
    BT_TAKES_RESIDUAL_SCALE = 1u << 2,  /**< residual_scale */
    BT_TAKES_LOGIT_SCALE = 1u << 3,     /**< logit_scale */
    BT_TAKES_LOGIT_CAP = 1u << 4,       /**< final_logit_softcapping */
    BT_TAKES_ALIBI = 1u << 5,           /**< attention.max_alibi_bias */
    BT_TAKES_CLAMP = 1u << 6,           /**< attention.clamp_kqv */
    BT_TAKES_TEMPERATURE = 1u << 7,     /**< attention.temperature_scale */
} bt_takes_t;

/** What is 0 is as in llama. */
struct bt_family {
    /* Norms: "attn_norm" and "ffn_norm" before attention and feed-forward,
     * "post_attention_norm" and "post_ffw_norm" of what is added to x. */
    bool layer_norm; /**< they are LayerNorm, not RMSNorm */
    bool bare_norms; /**< none of them has weights */
    bool no_norms_before;
    bool norms_after;
    bool embedding_norm; /**< "token_embd_norm" of what x begins with */
    bt_qk_norm_t qk_norm;
    unsigned biases;       /**< bits of bt_bias_t: it has them */
    unsigned maybe_biases; /**< some files have them */

    bool plain_ffn; /**< act(Wup x), without a gate */
    bt_activation_t act;

    /** Attention and feed-forward both read the x before either was added. */
    bool parallel;
    bool parallel_key; /**< the key use_parallel_residual, true if it is not
                            there, says whether */
    /** Feed-forward has the norm of attention; a file with "attn_norm_2" has
     *  that for attention alone. */
    bool one_norm;

    bool learned_positions; /**< "position_embd", and nothing turns, where the
                                 file has no attention.max_alibi_bias */
    float
        alibi; /**< attention.max_alibi_bias where the file has none; 0: none */
    uint32_t alibi_layers; /**< models of so many layers have it; 0: all */
    bool
        alibi_scaled; /**< slopes are scaled as products of query and key are */
    bool pairs_apart; /**< rotary pairs are (i, i + D/2), not (2i, 2i + 1) */
    uint32_t unturned_period; /**< each n-th layer turns nothing; 0: all do */

    unsigned takes; /**< bits of bt_takes_t */
    /** A window is that of all layers but each n-th; 0: of all. A file may say
     *  otherwise (attention.sliding_window_pattern). */
    uint32_t window_period;
    uint32_t window;           /**< where the file has no such key */
    bool window_turns;         /**< layers without a window turn nothing */
    float window_rope_base;    /**< where it has no rope.freq_base_swa; 0: as in
                                    the other layers */
    bool window_rope_unscaled; /**< layers with one scale no positions */
    bool scaled_embedding;     /**< by sqrt(dim) */
    bool logit_scale_divides;  /**< and does not multiply */
    /** Models of so many layers scale attention by 1 / sqrt(dim / n_heads);
     *  0: none. */
    uint32_t wide_scale_layers;
};

bt_status_t bt_decoder_hparams(const bt_arch_t *arch, const bt_gguf_t *gguf,
                               char *why, size_t why_bytes, bt_hparams_t *hp_p);
bt_status_t bt_decoder_load(bt_loader_t *loader, void **state_p);
void bt_decoder_forward(bt_model_t *model, bt_batch_t *batch,
                        bt_forward_t *fwd);
void bt_decoder_free(bt_backend_t *be, void *state);

#define BT_DECLARE_FAMILY(name) extern const bt_arch_t bt_arch_##name;
BT_FAMILIES(BT_DECLARE_FAMILY)
#undef BT_DECLARE_FAMILY

/** The functions of a bt_arch_t that is a family. */
#define BT_DECODER                                          \
    .hparams = bt_decoder_hparams, .load = bt_decoder_load, \
    .forward = bt_decoder_forward, .free_state = bt_decoder_free

#endif
