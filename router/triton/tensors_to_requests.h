/* SPDX-License-Identifier: Apache-2.0 */
/** @file tensors_to_requests.h
 *
 * Converts input tensors to requests of the frontend: one bt_api_request_t for
 * each row of the batch, by the table of the model's inputs (models.h).
 *
 *     text_input  [2, 1]  "a" "b"      ─┬─▶  request 0: "a", 8 tokens
 *     max_tokens  [2, 1]   8   9       ─┴─▶  request 1: "b", 9 tokens
 *
 * The batch size is the prompts' first dimension; [n] without a second
 * dimension is a batch of n, and a scalar a batch of one. Every other input
 * has a row for each prompt, or one row for all of them.
 *
 * Log-probs and logits that one row asks for are computed for all rows. If a
 * request names outputs, only the named log-probs and logits are computed.
 *
 * A model of ids stops at the end_id that the client gives, if any; a model of
 * text also stops at the vocabulary's end-of-sequence tokens.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_TENSORS_TO_REQUESTS_H
#define BT_ROUTER_TRITON_TENSORS_TO_REQUESTS_H

#include "router/triton/infer.h"
#include "router/triton/models.h"

/** Batch of frontend requests. Zero-initialise; free with
 * bt_tensor_requests_fini(). */
typedef struct bt_tensor_requests {
    bt_api_request_t *rows; /**< owned; n_rows entries, one prompt each */
    size_t n_rows;
    bool stop;        /**< stops the running request of the same id; no rows */
    bool stream;      /**< the client asks for streaming */
    int32_t pad_id;   /**< pad_id of the first row; -1: not given */
    int32_t end_id;   /**< end_id of the first row; -1: not given */
    uint32_t wants;   /**< BT_WANT_* of every row; equal for all rows */
    uint32_t n_beams; /**< answers of each row by a beam search; 0: none */
    /** DECODER_QUERY of each row, or NULL. Owned, n_rows entries; NULL: no row
     *  has one. */
    char **decoder_texts;
} bt_tensor_requests_t;

/**
 * Converts a request's tensors to one frontend request per row.
 *
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  error_p names the input and its limits
 * @retval BT_ERR_NO_MEMORY      error_p is filled
 */
BT_MUST_CHECK bt_status_t bt_tensors_to_requests(
    const bt_model_spec_t *spec, const bt_infer_request_t *request,
    bt_tensor_requests_t *lowered_p, bt_api_error_t *error_p);
/** Checks that each input belongs to the model, is supported here and occurs
 *  once. bt_tensors_to_requests() begins with this check.
 *  @retval BT_ERR_INVALID_PARAM  error_p names the first input that fails */
BT_MUST_CHECK bt_status_t bt_infer_check_inputs(
    const bt_model_spec_t *spec, const bt_infer_request_t *request,
    bt_api_error_t *error_p);
/** Checks that each output that the client names belongs to the model. An
 *  output named twice counts once, as in Triton.
 *  @retval BT_ERR_INVALID_PARAM  error_p names the first output that fails */
BT_MUST_CHECK bt_status_t bt_infer_check_outputs(
    const bt_model_spec_t *spec, const bt_infer_request_t *request,
    bt_api_error_t *error_p);
void bt_tensor_requests_fini(bt_tensor_requests_t *lowered);

#endif
