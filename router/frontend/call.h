/* SPDX-License-Identifier: Apache-2.0 */
/** @file call.h
 *
 * One call of a client that generates text: several choices, each a generation
 * of its model's core. It answers through a reply (reply.h) and knows nothing
 * of the door behind it.
 *
 *     begun ──▶ running ──▶ told its last word ──▶ freed
 *       │          └── client left ─────────────────▲  (when no generation
 *       └── refused: reply->ops->error(), no call   ─┘   of it runs any more)
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_CALL_H
#define BT_ROUTER_FRONTEND_CALL_H

#include "router/frontend/frontend.h"
#include "router/frontend/reply.h"

/** What the door knows of a call beside its body. Borrowed. */
typedef struct bt_call_source {
    bt_api_dialect_t dialect;
    const char *model; /**< from the path, or NULL: the body names it */
    /** generate: whether it was generate_stream. The path alone decides: some
     *  clients send "stream": true to generate and expect one object. OpenAI:
     *  ignored, the body says. */
    bool stream;
    const char *traceparent; /**< W3C Trace Context, or NULL */
} bt_call_source_t;

/** Begin the call of a JSON body. Answers or streams, now or later, through
 *  @a reply, which must stay until its last word or bt_call_gone(). */
void bt_call_json(bt_frontend_t *front, bt_reply_t *reply,
                  const bt_call_source_t *source, const void *body,
                  size_t bytes);
/** The client left. The call is not to be touched afterwards. */
void bt_call_gone(bt_call_t *call);

/** For bt_core_ops_t; @a choice is the generation's user pointer. */
void bt_call_on_text(void *ctx, void *choice, const char *text, size_t bytes,
                     uint32_t n_output);
void bt_call_on_end(void *ctx, void *choice, const bt_gen_end_t *end);

#endif
