/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_json.h
 *
 * Requests and responses of `infer` as HTTP carries them:
 *
 *     {"id": …, "inputs": [{"name": …, "shape": …, "datatype": …,
 *                           "data": […] or "parameters":
 *                                          {"binary_data_size": n}}, …],
 *      "outputs": [{"name": …, "parameters": {"binary_data": true}}, …]}
 *     raw data of the inputs that have a size, one after the other
 *
 * The header Inference-Header-Content-Length says where the JSON ends. A
 * tensor in shared memory has the parameters shared_memory_region, …_offset
 * and …_byte_size in place of data; in a response, the byte size is the size
 * of the data.
 *
 * Threads: pure functions.
 * Source:  KServe's protocol v2, extension "binary tensor data".
 */
#ifndef BT_ROUTER_TRITON_INFER_JSON_H
#define BT_ROUTER_TRITON_INFER_JSON_H

#include "common/base/json.h"
#include "router/triton/infer.h"

#define BT_INFER_LENGTH_HEADER "Inference-Header-Content-Length"

/** Context of bt_infer_parse_json(). */
typedef struct bt_infer_http {
    bool has_json_bytes; /**< false: the whole body is JSON */
    uint64_t json_bytes;
} bt_infer_http_t;

/** Parses an HTTP body; a bt_infer_parse_t. */
BT_MUST_CHECK bt_status_t bt_infer_parse_json(const void *http,
                                              bt_strbuf_t *body,
                                              bt_infer_request_t *request_p,
                                              bt_api_error_t *error_p);

/** Writes the JSON of a response. If the writer produces slices, the response
 *  must stay valid until the last slice is written.
 *  @return true: raw data of outputs follows (bt_infer_append_raw()) */
bool bt_infer_put_json(const bt_infer_response_t *response, bt_json_t *json);
/** Appends the data of the outputs that the request wants raw. */
void bt_infer_append_raw(const bt_infer_response_t *response, bt_strbuf_t *out);

#endif
