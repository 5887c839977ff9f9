/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_request_priv.h
 *
 * Shared by infer_request.c (from the body to the rows) and infer_respond.c
 * (from the rows to responses) only.
 */
#ifndef BT_ROUTER_TRITON_INFER_REQUEST_PRIV_H
#define BT_ROUTER_TRITON_INFER_REQUEST_PRIV_H

#include "router/triton/infer_request.h"
#include "router/triton/outputs.h"
#include "router/triton/shm_tensors.h"
#include "router/triton/tensors_to_requests.h"

/* Tensors of a request; in its arena. */
struct bt_tensors {
    bt_request_t *request;
    const bt_infer_ops_t *ops;
    const bt_request_ops_t *door;
    const char *peer;
    bool may_stream;
    bt_infer_parse_t parse;
    uint8_t parse_ctx[BT_INFER_CTX_BYTES];
    uint64_t process_us; /* when pre- or postprocessing began */
    bt_infer_request_t api;
    bt_shm_tensors_t *uses; /* owned; NULL: no tensor is in shared memory */
    const bt_model_spec_t *spec;
    bt_tensor_requests_t lowered;
    bool stream;      /* delivers pieces of a row as they come */
    bool row_by_row;  /* delivers each row when it is complete */
    bool empty_final; /* bt_infer_response_t.empty_final */
    bool final_sent;  /* the last response of the stream was delivered */
    size_t n_open;    /* rows */
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n_outputs;
};

/* ---- infer_respond.c ---- */

void bt_infer_free_outputs(bt_tensors_t *tensors);
/** Finishes a successful request with its outputs. */
void bt_infer_finish(bt_tensors_t *tensors);
/** Counts a row as ended. */
void bt_infer_row_ended(bt_row_t *row);
/** Functions of bt_request_ops_t. */
void bt_infer_on_piece(bt_row_t *row, const bt_api_choice_t *choice, bool first,
                       const bt_api_usage_t *usage);
void bt_infer_on_finish(bt_row_t *row, const bt_api_choice_t *choices, size_t n,
                        const bt_api_usage_t *usage);

#endif
