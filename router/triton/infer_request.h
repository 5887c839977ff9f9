/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_request.h
 *
 * A request of tensors, for HTTP and gRPC: parsed and lowered on the thread
 * pool, then each row of the batch runs as a row of the request, whose results
 * are converted to tensors.
 *
 *     begin ─▶ parse ─▶ model ─▶ lower ─┬─▶ row 0 ─▶ … ─┬─▶ responses
 *            (pool)    (loop)   (pool)  ├─▶ row 1 ─▶ … ─┤
 *                                       └─▶ tokens or text
 *                                          (pool: pre- and postprocessing)
 *
 * Tensors in shared memory are looked up between parse and lower, read during
 * lower, and written before the response that reports them (shm_tensors.h).
 *
 * Without streaming, all rows are one response; the tensors' first dimension
 * is the rows. With streaming, each response is a piece of one row.
 *
 * A request whose input `stop` is true stops the running request of the same
 * id: the output generated so far is the answer of the stopped request; the
 * stop request is answered without outputs. Only the client (by address) and
 * tenant that sent a request may stop it.
 *
 * Threads: everything on the event loop's thread, except what the pool runs.
 */
#ifndef BT_ROUTER_TRITON_INFER_REQUEST_H
#define BT_ROUTER_TRITON_INFER_REQUEST_H

#include "router/request/request.h"
#include "router/triton/infer.h"

/** Functions of a door for tensors, beside the error() of its bt_request_ops_t.
 */
typedef struct bt_infer_ops {
    /** Delivers one piece of one row of a stream. May call bt_request_gone().
     */
    void (*piece)(bt_request_t *request, const bt_infer_response_t *piece);
    /** Delivers the end of a successful request, which owns the response and
     *  everything that it points to; none of it changes any more.
     *  @param whole  the single response; for a stream without outputs, since
     *                the pieces had them. The structure itself is valid in
     *                this function only */
    void (*finish)(bt_request_t *request, const bt_infer_response_t *whole);
} bt_infer_ops_t;

/** Parameters of a request of tensors. Borrowed. */
typedef struct bt_infer_source {
    const bt_infer_ops_t *ops; /**< static */
    /** True: streams if the request asks for it. False: a request that asks
     *  for a stream gets one response. */
    bool may_stream;
    /** Address of the client; only this client can stop the request. "":
     *  nobody can. */
    const char *peer;
    bt_infer_parse_t parse;
    /** Context given to parse; parse_ctx_bytes of it are copied (at most
     *  BT_INFER_CTX_BYTES). */
    const void *parse_ctx;
    size_t parse_ctx_bytes;
} bt_infer_source_t;

#define BT_INFER_CTX_BYTES 64

/** Begins a request with its body, which is taken over (and left empty).
 *  Results are delivered now or later. The request may be freed afterwards. */
void bt_infer_begin(bt_request_t *request, const bt_infer_source_t *source,
                    bt_strbuf_t *body);

#endif
