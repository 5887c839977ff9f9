/* SPDX-License-Identifier: Apache-2.0 */
/** @file tiny_family.h  Which tensors the layers of an architecture have, for
 *  tiny_model.c. */
#ifndef BT_TESTS_SUPPORT_TINY_FAMILY_H
#define BT_TESTS_SUPPORT_TINY_FAMILY_H

#include <stdbool.h>

typedef struct bt_tiny_family {
    const char *name; /**< general.architecture, or a variant of it */
    bool layer_norm;  /**< with a bias, unless no_norm_bias */
    bool no_norm_bias;
    bool bare_norms; /**< no tensors of them at all */
    bool embedding_norm;
    bool no_norms_before;
    bool norms_after;
    bool one_norm; /**< no ffn_norm */
    bool fused;    /**< attn_qkv, and gate and up in ffn_up */
    bool plain_ffn;
    bool positions; /**< learned */
    bool qkv_bias;
    bool other_bias;                /**< of all other matrices of a layer */
    bool ffn_norm_behind_attention; /**< ffn_norm is called
                                         post_attention_norm */
    bool expert_biases;             /**< of the router too */
    bool choice_bias;               /**< exp_probs_b */
    bool shared_gate;               /**< ffn_gate_inp_shexp */
    unsigned qk_norm; /**< 0 none, 1 of a head, 2 of all heads together */
} bt_tiny_family_t;

/** @return llama's for a name that is not known */
const bt_tiny_family_t *bt_tiny_family(const char *name);

#endif
