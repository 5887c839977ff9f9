/* SPDX-License-Identifier: Apache-2.0 */
/** @file lora_pass.h
 *
 * Adapters in the forward pass of a decoder. The rows that are being computed,
 * and the adapters of them, are its current rows: those of the call, of
 * sequences that joined it, or, in the last layer, its logit rows.
 */
#ifndef BT_INFERENCE_MODEL_LORA_PASS_H
#define BT_INFERENCE_MODEL_LORA_PASS_H

#include "inference/model/arch/decoder.h"
#include "inference/model/lora.h"

/** Neighbouring rows of one adapter. */
typedef struct bt_lora_span {
    const bt_lora_t *lora;
    uint32_t row, n_rows;
} bt_lora_span_t;

typedef struct bt_lora_pass {
    bt_lora_span_t *spans;    /**< (max_rows) spans of calls, from their
                                   first_row */
    bt_lora_span_t *last;     /**< (max_logit_rows) spans of logit rows */
    bt_lora_rows_t *groups;   /**< one product's */
    float *down;              /**< back end (rows, max_rank) */
    uint32_t max_rank;        /**< 0: no adapters are computed */
    const bt_lora_span_t *at; /**< the current rows */
    uint32_t n;               /**< 0: none has an adapter */
    uint32_t layer;           /**< being computed */
} bt_lora_pass_t;

/** Checks that the model can compute adapters, and allocates what that takes,
 *  where the configuration wants it. */
void bt_lora_pass_load(bt_loader_t *ld, bt_decoder_t *d);
void bt_lora_pass_free(bt_backend_t *be, bt_decoder_t *d);

/** Make the rows of a call, of sequences that joined it last, or the logit rows
 *  among the current rows, the current rows. */
void bt_lora_rows_of(bt_model_t *model, const bt_forward_t *fwd);
void bt_lora_rows_late(bt_model_t *model, const bt_forward_t *fwd,
                       const bt_model_late_t *late);
void bt_lora_rows_last(bt_model_t *model, const bt_batch_t *batch);

/** Sets the layer whose products are computed. */
void bt_lora_layer(bt_model_t *model, uint32_t layer);

/** True when a current row has an adapter. */
bool bt_lora_any(const bt_model_t *model);

/** Adds the products of the current rows' adapters to y, in the layout of the
 *  decoder's: @a first and the @a n - 1 products behind it are side by side.
 *  in (rows, n_in). */
void bt_lora_add(bt_model_t *model, bt_adapter_product_t first, uint32_t n,
                 const float *in, float *y);

/** bt_step_norm_linear(), with adapters of its products. */
void bt_lora_norm_linear(bt_model_t *model, const bt_linear_t *linear,
                         bt_adapter_product_t first, uint32_t n, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows,
                         const bt_weight_t *next, float *tmp, float *out);

#endif
