/* SPDX-License-Identifier: Apache-2.0 */
/** @file pb_infer.h
 *
 * Converts inference requests and responses from and to gRPC messages.
 *
 *     ModelInferRequest ─▶ bt_infer_request_t        (perhaps on the pool)
 *     bt_infer_response_t ─▶ ModelInferResponse, or a piece of a stream
 *
 * A tensor's data is received raw (raw_input_contents, one entry for each
 * input that is not in shared memory, in order) or as numbers (contents). It
 * is sent raw, or in shared memory; raw_output_contents then has an empty
 * entry for the tensor.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_GRPC_PB_INFER_H
#define BT_ROUTER_GRPC_PB_INFER_H

#include <stdbool.h>

#include "router/triton/infer.h"

/** Context of bt_pb_infer_parse(). */
typedef struct bt_pb_infer_form {
    bool compressed;    /**< with gzip */
    uint64_t max_bytes; /**< largest body after decompression */
} bt_pb_infer_form_t;

/** Parses a ModelInferRequest; a bt_infer_parse_t. @a ctx is a
 *  bt_pb_infer_form_t. */
bt_status_t bt_pb_infer_parse(const void *ctx, bt_strbuf_t *body,
                              bt_infer_request_t *request_p,
                              bt_api_error_t *error_p);

/** Reads the request id from the beginning of a message, for errors before the
 *  message is parsed; "" when there is none. */
void bt_pb_infer_id(const void *data, size_t bytes,
                    char id[BT_INFER_NAME_BYTES]);

/** Appends a ModelInferResponse. */
void bt_pb_infer_write(const bt_infer_response_t *response, bt_strbuf_t *out);
/** Appends a ModelStreamInferResponse.
 *  @param final  value of the parameter triton_final_response: the request has
 *                no response after this one */
void bt_pb_infer_write_piece(const bt_infer_response_t *response, bool final,
                             bt_strbuf_t *out);
/** Appends a ModelStreamInferResponse with an error, the last one of its
 *  request.
 *  @param [in] id  "" = none */
void bt_pb_infer_write_error(const char *message, const char *id,
                             bt_strbuf_t *out);

#endif
