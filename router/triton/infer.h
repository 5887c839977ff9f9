/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer.h
 *
 * Inference requests and responses in a form independent of the protocol: HTTP
 * and gRPC handlers parse into it and write from it.
 *
 *     bytes ── bt_infer_parse_t ──▶ request ── infer_request.h ──▶ responses
 *              (the handler's)                                     │
 *     bytes ◀─────────────── the handler's writer ◀────────────────┘
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_INFER_H
#define BT_ROUTER_TRITON_INFER_H

#include "router/api/api.h"
#include "router/triton/tensor.h"

#define BT_INFER_MAX_INPUTS  96
#define BT_INFER_MAX_OUTPUTS 32
#define BT_INFER_MAX_PARAMS  64  /**< per request and per tensor */
#define BT_INFER_NAME_BYTES  257 /**< for id, model, version; zero included */

/** Type of a parameter of a request or of one of its tensors. */
typedef enum bt_infer_kind {
    BT_INFER_BOOL,
    BT_INFER_INT,
    BT_INFER_DOUBLE,
    BT_INFER_STRING,
} bt_infer_kind_t;

typedef struct bt_infer_param {
    char name[BT_TENSOR_NAME_BYTES];
    bt_infer_kind_t kind;
    bool boolean;
    int64_t integer; /**< value of an INT; a larger value is clamped to the
                        maximum */
    double real;
    char *text; /**< owned; value of a STRING */
} bt_infer_param_t;

typedef struct bt_infer_params {
    bt_infer_param_t *list; /**< owned; n entries */
    size_t n;
} bt_infer_params_t;

/** Range in shared memory for an input or a requested output; shm_tensors.h
 * resolves such ranges. */
typedef struct bt_infer_region {
    char name[BT_TENSOR_NAME_BYTES]; /**< "": not in shared memory */
    uint64_t offset, bytes;
} bt_infer_region_t;

typedef struct bt_infer_input {
    bt_tensor_t tensor; /**< without data while region says where the data is */
    bt_infer_region_t region;
} bt_infer_input_t;

/** Output that the client names. */
typedef struct bt_infer_wanted {
    char name[BT_TENSOR_NAME_BYTES];
    bool binary; /**< HTTP: raw bytes, after the JSON */
    bt_infer_region_t region;
} bt_infer_wanted_t;

/** Inference request. Zero-initialise; free with bt_infer_request_fini(). The
 *  tensors have passed bt_tensor_check() or are in shared memory. */
typedef struct bt_infer_request {
    /** Model name and version as the client wrote them, "" when absent. A
     *  handler whose URL path names the model fills them from the path. */
    char model[BT_INFER_NAME_BYTES], version[BT_INFER_NAME_BYTES];
    char id[BT_INFER_NAME_BYTES]; /**< echoed in the response; "" = none */
    bt_infer_params_t params;
    bt_infer_input_t *inputs; /**< owned; n_inputs entries */
    size_t n_inputs;
    bt_infer_wanted_t *wanted; /**< owned; none: all outputs that exist */
    size_t n_wanted;
    bool binary; /**< HTTP: outputs that are not named are raw bytes */
    /** Bytes that the tensors may borrow from; owned. */
    bt_strbuf_t body;
} bt_infer_request_t;

void bt_infer_request_fini(bt_infer_request_t *request);

/** Returns the parameter of this name, or NULL when there is none. */
const bt_infer_param_t *bt_infer_param(const bt_infer_params_t *params,
                                       const char *name);
/** True when the parameter of this name is there, and is true. */
bool bt_infer_flag(const bt_infer_params_t *params, const char *name);
/** Appends a parameter, zeroed except for its name. If the name exists
 *  already, the existing parameter is reset: its value is freed.
 *  @retval BT_ERR_TOO_LARGE  more than BT_INFER_MAX_PARAMS, or the name is too
 *                            long
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_infer_param_add(bt_infer_params_t *params,
                                             const char *name, size_t bytes,
                                             bt_infer_param_t **param_p);
/** Returns the input of this name, or NULL when there is none. */
const bt_infer_input_t *bt_infer_input(const bt_infer_request_t *request,
                                       const char *name);
/** Returns the output of this name that the client requested; NULL when the
 *  client did not name this output. */
const bt_infer_wanted_t *bt_infer_wanted(const bt_infer_request_t *request,
                                         const char *name);
/** Returns the shared-memory range of an output, or NULL when the output is
 *  not in shared memory. A response has this range and the tensor's byte size
 *  in place of data. */
const bt_infer_region_t *
bt_infer_output_region(const bt_infer_request_t *request, const char *name);

/** True when an output is returned as raw bytes: neither as JSON nor in shared
 *  memory. */
bool bt_infer_is_raw(const bt_infer_request_t *request, const char *name);

/**
 * Parses the bytes of a body into a request. Large bodies are parsed on the
 * frontend's thread pool, so the function may touch only its arguments.
 *
 * @param [in]  ctx  bt_infer_source_t.parse_ctx of the call
 * @param [in,out] body  May be moved to request->body, so that tensors borrow
 *                       from it; else the caller frees it.
 * @retval others  error_p is filled
 */
typedef bt_status_t (*bt_infer_parse_t)(const void *ctx, bt_strbuf_t *body,
                                        bt_infer_request_t *request_p,
                                        bt_api_error_t *error_p);

/** One response. All pointers are borrowed until the callback that delivers
 *  the response returns. */
typedef struct bt_infer_response {
    const char *model, *version;
    /** Version of the weights of its tokens; NULL: not told. */
    const char *weight_version;
    const char *id; /**< "" = none */
    /** Request that this response answers; says how each output is encoded. */
    const bt_infer_request_t *request;
    /** Outputs that the client wants. A handler may take the memory that a
     *  tensor owns and leave NULL. */
    bt_tensor_t *outputs;
    size_t n_outputs;
    /** Stream: last response of this row of the batch. */
    bool ends_row;
    uint32_t row; /**< row of the batch; value of `batch_index` */
    /** Stream: last response of the request. */
    bool final;
    /** Stream: the client asked for a final response without outputs, and the
     *  model is decoupled; that empty response is then the last one. */
    bool empty_final;
} bt_infer_response_t;

/** Name of the boolean request parameter that sets empty_final. */
#define BT_INFER_EMPTY_FINAL "triton_enable_empty_final_response"

#endif
