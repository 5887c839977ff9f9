/* SPDX-License-Identifier: Apache-2.0 */
/** @file tensors_to_requests_priv.h
 *
 * Shared by tensors_to_requests.c (rows of a batch) and
 * tensors_to_requests_fields.c (meaning of each input) only.
 */
#ifndef BT_ROUTER_TRITON_TENSORS_TO_REQUESTS_PRIV_H
#define BT_ROUTER_TRITON_TENSORS_TO_REQUESTS_PRIV_H

#include "router/triton/tensors_to_requests.h"

/** One row of an input tensor. */
typedef struct bt_slice {
    const bt_tensor_t *tensor;
    const char *name;
    uint64_t from, n; /* elements: first and number */
    uint32_t n_dims;  /* dimensions of the row alone */
    const uint64_t *dims;
} bt_slice_t;

typedef struct bt_lower {
    const bt_infer_request_t *request;
    const bt_model_spec_t *spec;
    bt_tensor_requests_t *out;
    bt_api_error_t *error;
    bt_api_request_t *row; /* the request being filled */
    uint64_t n_ids;        /* length of a row of ids, if the client gives it */
    bool has_n_ids;
    bt_slice_t bias_words, bias_weights; /* used together */
    bt_slice_t lora_weights, lora_config;
    size_t n_rows; /* of the batch */
} bt_lower_t;

/** Fills the error with status 400 and "input 'NAME' …".
 *  @return BT_ERR_INVALID_PARAM */
bt_status_t bt_lower_refuse(bt_lower_t *l, const char *name, const char *fmt,
                            ...) __attribute__((format(printf, 3, 4)));

/** Reads the single integer of a slice; the value must be from min to max. */
BT_MUST_CHECK bt_status_t bt_lower_integer(bt_lower_t *l, const bt_slice_t *s,
                                           int64_t min, int64_t max,
                                           int64_t *value_p);
BT_MUST_CHECK bt_status_t bt_lower_take_stop(bt_lower_t *l,
                                             const bt_slice_t *s);
/* ---- tensors_to_requests_table.c ---- */

/** Reads prompt_embedding_table: rows of F16, BF16 or F32, copied. */
BT_MUST_CHECK bt_status_t bt_lower_take_table(bt_lower_t *l,
                                              const bt_slice_t *s);
/** Reads prompt_vocab_size. */
BT_MUST_CHECK bt_status_t bt_lower_take_table_size(bt_lower_t *l,
                                                   const bt_slice_t *s);
/** Reads prompt_table_extra_ids. */
BT_MUST_CHECK bt_status_t bt_lower_take_extra_ids(bt_lower_t *l,
                                                  const bt_slice_t *s);
/** Compares what a row has of them, once all is there. */
BT_MUST_CHECK bt_status_t bt_lower_check_table(bt_lower_t *l);

/* ---- tensors_to_requests_lora.c ---- */

/** Reads lora_task_id. */
BT_MUST_CHECK bt_status_t bt_lower_take_lora_task(bt_lower_t *l,
                                                  const bt_slice_t *s);
/** Note lora_weights and lora_config, for bt_lower_join_lora(). */
BT_MUST_CHECK bt_status_t bt_lower_take_lora_weights(bt_lower_t *l,
                                                     const bt_slice_t *s);
BT_MUST_CHECK bt_status_t bt_lower_take_lora_config(bt_lower_t *l,
                                                    const bt_slice_t *s);
/** Copies both, and compares what a row has of the three, once all is there. */
BT_MUST_CHECK bt_status_t bt_lower_join_lora(bt_lower_t *l);

/* ---- tensors_to_requests_fields.c ---- */

/** Combines the bias words and weights of a row, once both are there. */
BT_MUST_CHECK bt_status_t bt_lower_join_biases(bt_lower_t *l);

/** Converts one row of an input to a field of the row's request.
 *  @param [in] field  bt_model_field_t */
BT_MUST_CHECK bt_status_t bt_lower_take(bt_lower_t *l, int field,
                                        const bt_slice_t *s);

#endif
