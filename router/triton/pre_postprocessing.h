/* SPDX-License-Identifier: Apache-2.0 */
/** @file pre_postprocessing.h
 *
 * Runs the models `preprocessing` and `postprocessing`: text to ids and back,
 * with the tokenizer of a served model.
 *
 *     QUERY [2, 1] "a b" "c"  ─▶  INPUT_ID [2, 3]  1 5 9 · 1 7 pad
 *                                 REQUEST_INPUT_LEN [2, 1]  3 · 2
 *     TOKENS_BATCH [2, 1, 2]  ─▶  OUTPUT [2]
 *
 * Threads: one thread; a served model is never changed.
 */
#ifndef BT_ROUTER_TRITON_PRE_POSTPROCESSING_H
#define BT_ROUTER_TRITON_PRE_POSTPROCESSING_H

#include "router/frontend/frontend.h"
#include "router/triton/infer.h"
#include "router/triton/models.h"
#include "router/triton/tensors_to_requests.h"

/**
 * Tokenizes or detokenizes the inputs of a request.
 *
 * @param [in]  lowered  lowered request of preprocessing; unused by
 *                       postprocessing
 * @param [in]  context_tokens  longest prompt
 * @param [out] outputs_p  array of BT_INFER_MAX_OUTPUTS; bt_tensor_fini() each
 * @retval others  error_p is filled
 */
BT_MUST_CHECK bt_status_t
bt_infer_process(const bt_served_t *served, uint32_t context_tokens,
                 const bt_model_spec_t *spec, const bt_infer_request_t *request,
                 const bt_tensor_requests_t *lowered, bt_tensor_t *outputs_p,
                 size_t *n_outputs_p, bt_api_error_t *error_p);

/** Returns the id that pads shorter rows: the client's pad_id or end_id, or
 *  the vocabulary's end id. */
uint32_t bt_infer_pad_id(const bt_served_t *served,
                         const bt_tensor_requests_t *lowered);

#endif
