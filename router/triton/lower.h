/* SPDX-License-Identifier: Apache-2.0 */
/** @file lower.h
 *
 * From tensors to what the front end generates from: one bt_api_request_t for
 * each row of the batch, by the table of the model's inputs (models.h).
 *
 *     text_input  [2, 1]  "a" "b"      ─┬─▶  request 0: "a", 8 tokens
 *     max_tokens  [2, 1]   8   9       ─┴─▶  request 1: "b", 9 tokens
 *
 * The batch is what the prompts' first dimension says; [n] without a second one
 * is a batch of n, and a scalar a batch of one. Every other input has a row for
 * each prompt, or one for all of them.
 *
 * Log-probs and logits that one row asks for come for all; of a request that
 * names outputs only those that it names are asked for.
 *
 * A model of ids ends at the end_id that the client gives, if it does; text
 * ends at those of the vocabulary as well.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_LOWER_H
#define BT_ROUTER_TRITON_LOWER_H

#include "router/triton/infer.h"
#include "router/triton/models.h"

/** Zero-initialise; bt_lowered_fini(). */
typedef struct bt_lowered {
    bt_api_request_t *rows; /**< owned; n_rows of them, each one prompt */
    size_t n_rows;
    bool stop;      /**< ends the request of the same id; no rows */
    bool stream;    /**< the client asks for pieces */
    int32_t pad_id; /**< of the first row; -1: not given */
    int32_t end_id; /**< the same */
    uint32_t wants; /**< BT_WANT_*, the same of all rows */
    /** Owned, n_rows of them: DECODER_QUERY of each, or NULL. NULL: of none */
    char **decoder_texts;
} bt_lowered_t;

/**
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  error_p names the input and its limits
 * @retval BT_ERR_NO_MEMORY      error_p is filled
 */
BT_MUST_CHECK bt_status_t bt_infer_lower(const bt_model_spec_t *spec,
                                         const bt_infer_request_t *request,
                                         bt_lowered_t *lowered_p,
                                         bt_api_error_t *error_p);
/** bt_infer_lower() begins with it: are all inputs among the model's, here, and
 *  each once?
 *  @retval BT_ERR_INVALID_PARAM  error_p names the first that is not */
BT_MUST_CHECK bt_status_t bt_infer_check_inputs(
    const bt_model_spec_t *spec, const bt_infer_request_t *request,
    bt_api_error_t *error_p);
/** Are all outputs that the client names among the model's? One that it names
 *  twice counts once, as Triton has it.
 *  @retval BT_ERR_INVALID_PARAM  error_p names the first that is not */
BT_MUST_CHECK bt_status_t bt_infer_check_outputs(
    const bt_model_spec_t *spec, const bt_infer_request_t *request,
    bt_api_error_t *error_p);
void bt_lowered_fini(bt_lowered_t *lowered);

#endif
