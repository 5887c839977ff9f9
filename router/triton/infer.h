/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer.h
 *
 * A request to infer, and a response, as neither HTTP nor gRPC has them: what a
 * door parses into and what it writes from.
 *
 *     bytes ── bt_infer_parse_t ──▶ request ── infer_call.h ──▶ responses
 *              (the door's)                                     │
 *     bytes ◀───────────────── the door's writer ◀──────────────┘
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_INFER_H
#define BT_ROUTER_TRITON_INFER_H

#include "router/frontend/api.h"
#include "router/triton/tensor.h"

#define BT_INFER_MAX_INPUTS  96
#define BT_INFER_MAX_OUTPUTS 32
#define BT_INFER_MAX_PARAMS  64  /**< of a request, of one tensor */
#define BT_INFER_NAME_BYTES  257 /**< of id, model, version; zero included */

/** A parameter: of the request, or of one of its tensors. */
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
    int64_t integer; /**< one of a larger size is the largest of this type */
    double real;
    char *text; /**< owned; of a STRING */
} bt_infer_param_t;

typedef struct bt_infer_params {
    bt_infer_param_t *list; /**< owned; n of them */
    size_t n;
} bt_infer_params_t;

/** A place in shared memory, of a request's input or wanted output; uses.h
 *  knows such places. */
typedef struct bt_infer_region {
    char name[BT_TENSOR_NAME_BYTES]; /**< "": it is not in shared memory */
    uint64_t offset, bytes;
} bt_infer_region_t;

typedef struct bt_infer_input {
    bt_tensor_t tensor; /**< without data where region says where that is */
    bt_infer_region_t region;
} bt_infer_input_t;

/** An output that the client names. */
typedef struct bt_infer_wanted {
    char name[BT_TENSOR_NAME_BYTES];
    bool binary; /**< HTTP: raw, behind the JSON */
    bt_infer_region_t region;
} bt_infer_wanted_t;

/** Zero-initialise; bt_infer_request_fini(). Its tensors have passed
 *  bt_tensor_check() or are in shared memory. */
typedef struct bt_infer_request {
    /** As the client wrote them, "" when it did not. A door whose path names
     *  the model fills them from there. */
    char model[BT_INFER_NAME_BYTES], version[BT_INFER_NAME_BYTES];
    char id[BT_INFER_NAME_BYTES]; /**< echoed; "" = none */
    bt_infer_params_t params;
    bt_infer_input_t *inputs; /**< owned; n_inputs of them */
    size_t n_inputs;
    bt_infer_wanted_t *wanted; /**< owned; none: all outputs there are */
    size_t n_wanted;
    bool binary; /**< HTTP: outputs not named are raw */
    /** The bytes that the tensors borrow from, if they do; owned. */
    bt_strbuf_t body;
} bt_infer_request_t;

void bt_infer_request_fini(bt_infer_request_t *request);

/** NULL when there is none. */
const bt_infer_param_t *bt_infer_param(const bt_infer_params_t *params,
                                       const char *name);
/** Append one, zeroed but for its name; of a name that is there it is the one
 *  that stays, and what it held is freed.
 *  @retval BT_ERR_TOO_LARGE  BT_INFER_MAX_PARAMS, or the name is too long
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_infer_param_add(bt_infer_params_t *params,
                                             const char *name, size_t bytes,
                                             bt_infer_param_t **param_p);
void bt_infer_params_fini(bt_infer_params_t *params);
/** NULL when there is none. */
const bt_infer_input_t *bt_infer_input(const bt_infer_request_t *request,
                                       const char *name);
/** NULL: the client did not name it. */
const bt_infer_wanted_t *bt_infer_wanted(const bt_infer_request_t *request,
                                         const char *name);
/** Where in shared memory this output is: a response tells that, and the
 *  tensor's bytes, in place of its data. NULL: it is not there. */
const bt_infer_region_t *bt_infer_place(const bt_infer_request_t *request,
                                        const char *name);

/** Is this output given as raw bytes: neither as JSON nor in shared memory? */
bool bt_infer_is_raw(const bt_infer_request_t *request, const char *name);

/**
 * From a door's bytes to a request; on the frontend's pool when they are many,
 * so that it touches nothing but its arguments.
 *
 * @param [in]  ctx  the door's, of the call's source
 * @param [in,out] body  May be moved to request->body, so that tensors borrow
 *                   from it; else the caller frees it.
 * @retval others  error_p is filled
 */
typedef bt_status_t (*bt_infer_parse_t)(const void *ctx, bt_strbuf_t *body,
                                        bt_infer_request_t *request_p,
                                        bt_api_error_t *error_p);

/** One response. All borrowed, until the call that tells it returns. */
typedef struct bt_infer_response {
    const char *model, *version;
    const char *id; /**< "" = none */
    /** The request it answers, for what each output is to look like. */
    const bt_infer_request_t *request;
    /** Those that the client wants. Who answers may take what they own, and
     *  leave it NULL. */
    bt_tensor_t *outputs;
    size_t n_outputs;
    /** Of a stream: that row of the batch has no more after this one. */
    bool ends_row;
    uint32_t row; /**< of the batch; what `batch_index` says */
    /** Of a stream: the last response of its request. */
    bool final;
    /** Of a stream: the client asked for a response without outputs behind all
     *  others, and the model is decoupled; that one is the last then. */
    bool empty_final;
} bt_infer_response_t;

/** Parameter of a request, a bool: what empty_final says. */
#define BT_INFER_EMPTY_FINAL "triton_enable_empty_final_response"

#endif
