/* SPDX-License-Identifier: Apache-2.0 */
/** @file call.h
 *
 * One call of a client that generates text: several choices, each a generation
 * of its model's core. It answers through a reply (reply.h) and knows nothing
 * of the door behind it.
 *
 *     begun ──▶ running ──▶ told its last word ──▶ freed
 *    (intake.h)    │                               ▲  (when no generation
 *       │          └── client left ────────────────┤   of it runs any more)
 *       └── refused, client left ──────────────────┘
 *
 * A refusal with 429 may be held back for a quarter of a second, of the tenant
 * of whom many are refused; it takes no place in the queue meanwhile.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_CALL_H
#define BT_ROUTER_FRONTEND_CALL_H

#include "router/frontend/frontend.h"
#include "router/frontend/intake.h"
#include "router/frontend/reply.h"

/** Begin the call of a JSON body, which is taken over (and left empty). Answers
 *  or streams, now or later, through @a reply, which must stay until its last
 *  word or bt_call_gone(). */
void bt_call_json(bt_frontend_t *front, bt_reply_t *reply,
                  const bt_call_source_t *source, bt_strbuf_t *body);
/** Begin the call of source->request, which is taken over (and left zeroed);
 *  otherwise as bt_call_json(). */
void bt_call_request(bt_frontend_t *front, bt_reply_t *reply,
                     const bt_call_source_t *source);
/** What it has so far is its answer: it ends well, from inside.
 *  @return false: it has not begun to run; nothing was done */
bool bt_call_stop(bt_call_t *call);
/** Begin all that were held for others to come with them: the time is over. */
void bt_call_begin_held(bt_frontend_t *front);
/** Begin streams (bt_reply_ops_t.begin) whose calls were placed. At the end of
 *  each callback of the event loop. */
void bt_call_begin_placed(bt_frontend_t *front);
/** Begin those that have waited for workers for as long as a stream may be
 *  silent (--sse-keepalive-s), where there are workers, all of them busy: a
 *  503 can only be a failure then. Every 50 ms or so. */
void bt_call_begin_waiting(bt_frontend_t *front, uint64_t now_us);
/** Tell those whose refusals were held back for so long (sched_reject_delay.h).
 */
void bt_call_tell_refused(bt_frontend_t *front, uint64_t now_us);
/** The client left. The call is not to be touched afterwards. */
void bt_call_gone(bt_call_t *call);

/** Keep the content of a finished answer (bt_reply_ops_t.finish) until
 *  bt_call_unref(); other threads may read it meanwhile. @return @a call */
bt_call_t *bt_call_ref(bt_call_t *call);
/** Give it up; the last reference frees a call that has ended. NULL is allowed.
 */
void bt_call_unref(bt_call_t *call);

/** For bt_core_ops_t; @a choice is the generation's user pointer. */
void bt_call_on_placed(void *ctx, void *choice);
void bt_call_on_text(void *ctx, void *choice, const char *text, size_t bytes,
                     uint32_t n_output);
void bt_call_on_end(void *ctx, void *choice, const bt_gen_end_t *end);

#endif
