/* SPDX-License-Identifier: Apache-2.0 */
/** @file decoder.h  The state of a dense decoder, between its loader and its
 *  forward pass. */
#ifndef BT_INFERENCE_MODEL_ARCH_DECODER_H
#define BT_INFERENCE_MODEL_ARCH_DECODER_H

#include "inference/model/arch/family.h"

typedef struct bt_layer {
    float *attn_norm;
    float *attn_sinks; /**< (n_heads), NULL: none */
    bt_linear_t qkv;
    bt_weight_t *attn_output;
    float *ffn_norm;
    bt_linear_t gate_up;
    bt_weight_t *ffn_down;
} bt_layer_t;

typedef struct bt_decoder {
    uint32_t n_layers;
    bt_layer_t *layers;
    bt_weight_t *embedding;
    bt_weight_t *output; /**< NULL: the embedding's matrix again */
    float *output_norm;
    float *cos_sin;

    /* Activations, rows of the batch. Between two layers all but x are free. */
    float *x;      /**< dim: what the layers add to */
    float *x_last; /**< dim: the rows of x whose logits are wanted */
    float *a;      /**< dim, all heads, or ffn_dim */
    float *b;      /**< dim, query + key + value, or gate + up */
    float *part;   /**< one part of a linear of several, NULL: there is none */
} bt_decoder_t;

#endif
