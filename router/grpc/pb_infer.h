/* SPDX-License-Identifier: Apache-2.0 */
/** @file pb_infer.h
 *
 * Requests to infer and their responses as gRPC's messages.
 *
 *     ModelInferRequest ─▶ bt_infer_request_t        (perhaps on the pool)
 *     bt_infer_response_t ─▶ ModelInferResponse, or a piece of a stream
 *
 * A tensor's data comes raw (raw_input_contents, one for each input that is not
 * in shared memory, in their order) or as numbers (contents); it leaves raw, or
 * in shared memory, and then raw_output_contents has an empty entry for it.
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
    uint64_t max_bytes; /**< of it, unpacked */
} bt_pb_infer_form_t;

/** A bt_infer_parse_t; @a ctx is a bt_pb_infer_form_t. */
bt_status_t bt_pb_infer_parse(const void *ctx, bt_strbuf_t *body,
                              bt_infer_request_t *request_p,
                              bt_api_error_t *error_p);

/** The id that a request begins with, for what must be said before it is read;
 *  "" when it has none. */
void bt_pb_infer_id(const void *data, size_t bytes,
                    char id[BT_INFER_NAME_BYTES]);

/** Append a ModelInferResponse. */
void bt_pb_infer_write(const bt_infer_response_t *response, bt_strbuf_t *out);
/** Append a ModelStreamInferResponse.
 *  @param final  what its parameter triton_final_response says: the request has
 *                no response after it */
void bt_pb_infer_write_piece(const bt_infer_response_t *response, bool final,
                             bt_strbuf_t *out);
/** Append a ModelStreamInferResponse of a request that failed, its last one.
 *  @param [in] id  "" = none */
void bt_pb_infer_write_error(const char *message, const char *id,
                             bt_strbuf_t *out);

#endif
