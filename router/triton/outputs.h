/* SPDX-License-Identifier: Apache-2.0 */
/** @file outputs.h
 *
 * Converts the results of a batch's rows to the tensors that the client wants.
 *
 *     row 0: "ab", ids 5 7      ─┬─▶  text_output  [2]        "ab" "c"
 *     row 1: "c",  id  9        ─┴─▶  output_ids   [2, 1, 2]  5 7 · 9 pad
 *                                     sequence_length [2, 1]  2 · 1
 *
 * Log-probs and logits of every sampled token; shorter rows are padded with 0:
 *
 *     cum_log_probs  [n, 1]       output_log_probs  [n, 1, output]
 *     context_logits [n, prompt, vocabulary]
 *     generation_logits [n, 1, output, vocabulary]
 *
 * With beams, the dimension of one above, or a second one of text_output and
 * behind the rows, has as many elements as a row has beams.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_OUTPUTS_H
#define BT_ROUTER_TRITON_OUTPUTS_H

#include "router/core/rows.h"
#include "router/triton/infer.h"
#include "router/triton/models.h"

/** Result of one row, complete or a piece of it; with beams, one of its
 *  answers. Borrowed. */
typedef struct bt_infer_result {
    uint32_t row;
    const char *text;
    size_t text_bytes;
    const uint32_t *prompt; /**< ids before the output's, or none */
    size_t n_prompt;
    const uint32_t *ids;
    size_t n_ids;
    /** Log-probs and logits, as in bt_api_choice_t; NULL: none. */
    bt_gen_rows_t *rows;
    uint32_t from, to;
    double cum_logprob;
    bt_gen_perf_t perf; /**< valid where the row ends */
    bool ends; /**< the row is complete, or this is its last piece: logits are
                  included */
} bt_infer_result_t;

/** Properties that all rows share. */
typedef struct bt_infer_shape {
    const bt_model_spec_t *spec;
    const bt_infer_request_t *request;
    size_t n_batch;      /**< rows of the whole batch */
    uint32_t n_beams;    /**< results of each row; 0: one */
    uint32_t pad_id;     /**< padding of shorter rows of ids */
    uint32_t wants;      /**< BT_WANT_*, for every row */
    uint64_t max_logits; /**< most bytes of logits in one response */
} bt_infer_shape_t;

/** Returns the BT_WANT_* that an output needs; 0: none. */
uint32_t bt_infer_output_wants(const bt_model_tensor_t *output);

/**
 * Makes the output tensors of @a n results, in one response: row by row, and
 * the answers of a row, its beams, one behind another.
 *
 * If the client names no outputs, it gets text or ids, and the row numbers
 * when the batch has several rows.
 *
 * @param [out] outputs_p  array of BT_INFER_MAX_OUTPUTS; bt_tensor_fini() each
 * @retval BT_ERR_NO_MEMORY  also when the outputs are too large to be held
 * @retval BT_ERR_TOO_LARGE  the logits exceed max_logits
 */
BT_MUST_CHECK bt_status_t bt_infer_outputs(const bt_infer_shape_t *shape,
                                           const bt_infer_result_t *results,
                                           size_t n, bt_tensor_t *outputs_p,
                                           size_t *n_outputs_p);

#endif
