/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_call.h
 *
 * A call of tensors, whatever the door it came through: parsed and lowered on
 * the pool, then each row of its batch a call of the front end by itself, whose
 * results become tensors again.
 *
 *     begin ─▶ parse ─▶ model ─▶ lower ─┬─▶ row 0: bt_call ─▶ … ─┬─▶ responses
 *            (pool)    (loop)   (pool)  ├─▶ row 1: bt_call ─▶ … ─┤
 *                                       │                        │
 *                                       └─▶ tokens or text ──────┘
 *                                          (pool: pre- and postprocessing)
 *
 * What is in shared memory is found between parse and lower, read with lower,
 * and written before the response that tells of it (uses.h).
 *
 * Without a stream all rows are one response, whose tensors' first dimension is
 * the rows. With one, each response is a piece of one row.
 *
 * A request whose input `stop` is true ends the one of the same id that runs:
 * what that has so far is its answer; the request itself is answered without
 * outputs. Only for the client, by its address, and the tenant that sent that
 * one.
 *
 * Threads: everything on the event loop's thread, but for what the pool runs.
 */
#ifndef BT_ROUTER_TRITON_INFER_CALL_H
#define BT_ROUTER_TRITON_INFER_CALL_H

#include "router/frontend/frontend.h"
#include "router/frontend/reply.h"
#include "router/triton/infer.h"

typedef struct bt_infer_call bt_infer_call_t;
typedef struct bt_infer_reply bt_infer_reply_t;

typedef struct bt_infer_reply_ops {
    /** A stream: one piece of one row. May call bt_infer_gone(). */
    void (*piece)(bt_infer_reply_t *reply, const bt_infer_response_t *piece);
    /** The last word: all went well.
     *  @param call   owns the response and everything that it points to; none
     *                of it changes any more. bt_infer_ref() keeps it all beyond
     *                this function
     *  @param whole  the one response; a stream: without outputs, they were
     *                told. The structure itself is valid in this function only
     */
    void (*finish)(bt_infer_reply_t *reply, bt_infer_call_t *call,
                   const bt_infer_response_t *whole);
    /** The last word: it is refused or failed; of a stream pieces may have
     *  been told. */
    void (*error)(bt_infer_reply_t *reply, const bt_api_error_t *error);
} bt_infer_reply_ops_t;

/** A door embeds one and fills ops; the rules are those of reply.h: exactly one
 *  of finish() and error() comes, unless bt_infer_gone() was called before. */
struct bt_infer_reply {
    const bt_infer_reply_ops_t *ops;
    const char *request_id; /**< X-Request-Id; the door's; NULL: none */
    bt_reply_facts_t facts; /**< of all rows together */
    bt_infer_call_t *call;  /**< NULL before it begins and after its end */
};

/** What a door knows of a call. Borrowed, but for ctx, which must stay until
 *  body_freed() was called, which is from inside. */
typedef struct bt_infer_source {
    /** From the path; NULL: the request says it. */
    const char *model, *version;
    /** May answer with pieces, if the request asks for it; else a request that
     *  asks for a stream gets one response. */
    bool may_stream;
    /** Who asks, its address: only that one can stop it. NULL: nobody can. */
    const char *client;
    const char *traceparent; /**< W3C Trace Context, or NULL */
    bt_tenant_t *tenant;     /**< whose it is; NULL: nobody's in particular */
    bt_work_client_t who;    /**< and of which of the tenant's clients */
    bt_infer_parse_t parse;
    /** Given to parse; copied, parse_ctx_bytes of it (at most
     *  BT_INFER_CTX_BYTES). */
    const void *parse_ctx;
    size_t parse_ctx_bytes;
    /** The body is counted in the frontend's budget from here on. */
    void (*body_freed)(void *ctx, size_t bytes);
    void *ctx;
    size_t body_bytes; /**< what it is told */
} bt_infer_source_t;

#define BT_INFER_CTX_BYTES 64

/** Begin the call of a body, which is taken over (and left empty). Answers now
 *  or later, perhaps from inside, through @a reply, which must stay until its
 *  last word or bt_infer_gone(). */
void bt_infer_begin(bt_frontend_t *front, bt_infer_reply_t *reply,
                    const bt_infer_source_t *source, bt_strbuf_t *body);
/** The client left. The call is not to be touched afterwards. */
void bt_infer_gone(bt_infer_call_t *call);

/** Keep the content of a finished response (bt_infer_reply_ops_t.finish) until
 *  bt_infer_unref(); other threads may read it meanwhile. @return @a call */
bt_infer_call_t *bt_infer_ref(bt_infer_call_t *call);
/** Give it up; the last reference frees a call that has ended. */
void bt_infer_unref(bt_infer_call_t *call);

#endif
