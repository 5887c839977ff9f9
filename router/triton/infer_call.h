/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_call.h
 *
 * A tensor inference call, for HTTP and gRPC: parsed and lowered on the thread
 * pool, then each row of the batch runs as a separate call of the frontend,
 * whose results are converted to tensors.
 *
 *     begin ─▶ parse ─▶ model ─▶ lower ─┬─▶ row 0: bt_call ─▶ … ─┬─▶ responses
 *            (pool)    (loop)   (pool)  ├─▶ row 1: bt_call ─▶ … ─┤
 *                                       │                        │
 *                                       └─▶ tokens or text ──────┘
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
#ifndef BT_ROUTER_TRITON_INFER_CALL_H
#define BT_ROUTER_TRITON_INFER_CALL_H

#include "router/frontend/frontend.h"
#include "router/frontend/reply.h"
#include "router/triton/infer.h"

typedef struct bt_infer_call bt_infer_call_t;
typedef struct bt_infer_reply bt_infer_reply_t;

typedef struct bt_infer_reply_ops {
    /** Delivers one piece of one row of a stream. May call bt_infer_gone(). */
    void (*piece)(bt_infer_reply_t *reply, const bt_infer_response_t *piece);
    /** Delivers the end of a successful call; no callback follows.
     *  @param call   owns the response and everything that it points to; none
     *                of it changes any more. bt_infer_ref() keeps all of it
     *                beyond this function
     *  @param whole  the single response; for a stream without outputs, since
     *                the pieces had them. The structure itself is valid in
     *                this function only */
    void (*finish)(bt_infer_reply_t *reply, bt_infer_call_t *call,
                   const bt_infer_response_t *whole);
    /** Delivers the error of a call that was rejected or failed; no callback
     *  follows. Pieces of a stream may have been delivered before. */
    void (*error)(bt_infer_reply_t *reply, const bt_api_error_t *error);
} bt_infer_reply_ops_t;

/** Receiver of a call's results. A protocol handler embeds one and sets ops.
 *  The rules of reply.h apply: exactly one of finish() and error() is called,
 *  unless bt_infer_gone() was called before. */
struct bt_infer_reply {
    const bt_infer_reply_ops_t *ops;
    const char *request_id; /**< X-Request-Id; the handler's; NULL: none */
    bt_reply_facts_t facts; /**< facts of all rows together */
    bt_infer_call_t *call; /**< NULL before the call begins and after its end */
};

/** Parameters of a new call. Borrowed, except for ctx, which must stay valid
 *  until body_freed() was called; that happens within bt_infer_begin(). */
typedef struct bt_infer_source {
    /** Model and version from the URL path; NULL: the request has them. */
    const char *model, *version;
    /** True: streams if the request asks for it. False: a request that asks
     *  for a stream gets one response. */
    bool may_stream;
    /** Address of the client; only this client can stop the call. NULL: nobody
     *  can. */
    const char *client;
    const char *traceparent; /**< W3C Trace Context, or NULL */
    bt_tenant_t *tenant;     /**< tenant that is charged; NULL: none */
    bt_work_client_t who;    /**< client within the tenant */
    bt_infer_parse_t parse;
    /** Context given to parse; parse_ctx_bytes of it are copied (at most
     *  BT_INFER_CTX_BYTES). */
    const void *parse_ctx;
    size_t parse_ctx_bytes;
    /** Reports that the frontend's budget accounts for the body from here
     *  on. */
    void (*body_freed)(void *ctx, size_t bytes);
    void *ctx;
    size_t body_bytes; /**< argument of body_freed() */
} bt_infer_source_t;

#define BT_INFER_CTX_BYTES 64

/** Begins a call with a body, which is taken over (and left empty). Results
 *  are delivered now or later, possibly within this function, through @a
 *  reply, which must stay valid until finish(), error() or bt_infer_gone(). */
void bt_infer_begin(bt_frontend_t *front, bt_infer_reply_t *reply,
                    const bt_infer_source_t *source, bt_strbuf_t *body);
/** Cancels a call because the client disconnected. The call must not be used
 *  afterwards. */
void bt_infer_gone(bt_infer_call_t *call);

/** Keeps the content of a finished response (bt_infer_reply_ops_t.finish)
 *  until bt_infer_unref(). Other threads may read the content meanwhile.
 *  @return @a call */
bt_infer_call_t *bt_infer_ref(bt_infer_call_t *call);
/** Drops a reference; the last reference frees a call that has ended. */
void bt_infer_unref(bt_infer_call_t *call);

#endif
