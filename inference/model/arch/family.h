/* SPDX-License-Identifier: Apache-2.0 */
/** @file family.h
 *
 * Description of a family of decoders by its differences from the others.
 * All families are
 *
 *     x = embedding of the tokens (+ positions)
 *     each layer:  x += norm(Wo attention(rope(norm(Wqkv norm(x)))))
 *                  x += norm(Wdown (act(Wgate norm(x)) * Wup norm(x))),
 *                       or the sum of several such by experts (experts.h)
 *     logits = cap(Wout norm(x))
 *
 * and share one reader of hyperparameters (decoder_hparams.c), one loader
 * (decoder_load.c) and one forward pass (decoder.c). A family is an entry of
 * families.c: docs/ADDING_A_MODEL.md.
 */
#ifndef BT_INFERENCE_MODEL_ARCH_FAMILY_H
#define BT_INFERENCE_MODEL_ARCH_FAMILY_H

#include "inference/gguf/architectures.h"
#include "inference/model/model_priv.h"

/** Norms of queries and keys, before RoPE. */
typedef enum bt_qk_norm {
    BT_QK_NORM_NONE,
    BT_QK_NORM_HEADS, /**< per head, all with one set of weights */
    BT_QK_NORM_ROW,   /**< over all heads together */
} bt_qk_norm_t;

/** Biases. */
typedef enum bt_bias {
    BT_BIAS_NORM = 1u << 0,        /**< all norms' */
    BT_BIAS_QKV = 1u << 1,         /**< queries, keys and values */
    BT_BIAS_ATTN_OUTPUT = 1u << 2, /**< output of attention */
    BT_BIAS_FFN_UP = 1u << 3,      /**< up, and the gate if there is one */
    BT_BIAS_FFN_DOWN = 1u << 4,    /**< second matrix of the feed-forward */
    BT_BIAS_OUTPUT = 1u << 5,      /**< logits */
    /** all matrices' of a layer */
    BT_BIAS_MATRICES =
        BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT | BT_BIAS_FFN_UP | BT_BIAS_FFN_DOWN,
} bt_bias_t;

/** Keys that a family may have. A model with another one of these keys is
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
    BT_TAKES_EXPERTS = 1u << 8,         /**< expert_count */
    BT_TAKES_SHARED_EXPERT = 1u << 9,   /**< expert_shared_count and
                                             …_feed_forward_length */
} bt_takes_t;

/** Mixture of experts of a family whose files do not say these; a member that
 *  is 0 means as in Mixtral. */
typedef struct bt_family_experts {
    bool always; /**< each of its models has experts */
    bt_gating_t gating;
    bool keeps_weights; /**< weights are not divided by their sum */
    bool shared_gate;   /**< the shared expert's output has a gate,
                             "ffn_gate_inp_shexp" */
    bool biases;        /**< router and experts have biases */
} bt_family_experts_t;

/** Description of a family; a member that is 0 means as in llama. */
struct bt_family {
    const char *name; /**< general.architecture, and the prefix of its keys */
    /* Norms: "attn_norm" and "ffn_norm" before attention and feed-forward,
     * "post_attention_norm" and "post_ffw_norm" on their outputs, before they
     * are added to x. */
    bool layer_norm; /**< norms are LayerNorm, not RMSNorm */
    bool bare_norms; /**< none of them has weights */
    bool no_norms_before;
    bool norms_after;
    bool embedding_norm; /**< "token_embd_norm" on the embedding */
    bt_qk_norm_t qk_norm;
    bool maybe_qk_norm; /**< some models do not have it */
    /** "post_attention_norm" is the norm before the feed-forward */
    bool ffn_norm_behind_attention;
    unsigned biases;       /**< biases that all models have, bits of
                                bt_bias_t */
    unsigned maybe_biases; /**< biases that some models have */

    bool plain_ffn; /**< act(Wup x), without a gate */
    bt_activation_t act;

    /** Attention and feed-forward both read x before either is added. */
    bool parallel;
    bool parallel_key; /**< parallel is given by the key
                            use_parallel_residual, true if missing */
    /** The feed-forward uses the norm of attention; in a file with
     *  "attn_norm_2" that one is for attention alone. */
    bool one_norm;

    bool learned_positions; /**< "position_embd" instead of RoPE, where the
                                 file has no attention.max_alibi_bias */
    float
        alibi; /**< attention.max_alibi_bias where the file has none; 0: none */
    uint32_t alibi_layers; /**< alibi is for models of this many layers; 0:
                                all */
    bool
        alibi_scaled; /**< slopes are scaled as products of query and key are */
    bool pairs_apart; /**< rotary pairs are (i, i + D/2), not (2i, 2i + 1) */
    uint32_t unturned_period; /**< each n-th layer has no RoPE; 0: all have
                                   it */

    unsigned takes; /**< bits of bt_takes_t */
    /** Each n-th layer has no attention window; 0: all have one. A file may
     *  differ (attention.sliding_window_pattern). */
    uint32_t window_period;
    uint32_t window;           /**< window where the file has no such key */
    bool window_turns;         /**< layers without a window have no RoPE */
    float window_rope_base;    /**< RoPE base of layers with a window, where
                                    the file has no rope.freq_base_swa; 0: as
                                    in the other layers */
    bool window_rope_unscaled; /**< RoPE of layers with a window is not
                                    scaled */
    bool scaled_embedding;     /**< embedding is scaled by sqrt(dim) */
    bool logit_scale_divides;  /**< logits are divided by the scale, not
                                    multiplied */
    /** Models of this many layers scale attention by 1 / sqrt(dim / n_heads);
     *  0: none. */
    uint32_t wide_scale_layers;

    bt_family_experts_t experts; /**< with BT_TAKES_EXPERTS */

    bool is_eagle3; /**< a draft head, not a model: head.h */
};

/** Returns the family with this general.architecture, or NULL. */
const bt_family_t *bt_family_find(bt_gguf_str_t name);

/** Family of the draft heads of architecture eagle3, which is not a model and
 *  not among those of bt_family_find(). */
extern const bt_family_t bt_family_eagle3;

/** Fills *hp_p, refusing by name what bt_decoder_forward() does not compute. */
BT_MUST_CHECK bt_status_t bt_decoder_hparams(const bt_family_t *family,
                                             const bt_gguf_t *gguf, char *why,
                                             size_t why_bytes,
                                             bt_hparams_t *hp_p);
/** Loads every tensor and buffer through the loader (which also serves to count
 *  memory, leaving pointers NULL). *state_p is owned by the caller, also on
 *  failure. */
void bt_decoder_load(bt_loader_t *loader, void **state_p);
/** Queues the pass over @a batch, which was begun; logits (n_logit_rows,
 *  n_vocab) go to model->logits. Between layers it calls bt_model_take_late(),
 *  which may append to the batch and the call, and then
 *  bt_model_between_layers(), in which this function may be called again: data
 *  kept from layer to layer lies in rows from fwd->first_row on. */
void bt_decoder_forward(bt_model_t *model, bt_batch_t *batch,
                        bt_forward_t *fwd);
/** Frees a state. NULL and half-loaded states are allowed. */
void bt_decoder_free(bt_backend_t *be, void *state);

#endif
