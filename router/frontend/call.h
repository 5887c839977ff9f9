/* SPDX-License-Identifier: Apache-2.0 */
/** @file call.h
 *
 * Handles one client call that generates text: several choices, each a
 * generation of its model's core. The call answers through a reply (reply.h)
 * and does not depend on the protocol behind that.
 *
 *     begun ──▶ running ──▶ finished or failed ──▶ freed
 *    (intake.h)    │                               ▲  (when no generation
 *       │          └── client left ────────────────┤   of the call runs)
 *       └── refused, client left ──────────────────┘
 *
 * A 429 refusal may be delayed by a quarter of a second for a tenant with many
 * refusals; the call holds no slot in the queue meanwhile.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_CALL_H
#define BT_ROUTER_FRONTEND_CALL_H

#include "router/frontend/frontend.h"
#include "router/frontend/intake.h"
#include "router/frontend/reply.h"

/** Begins the call of a JSON body, which is taken over (and left empty).
 *  Answers or streams, now or later, through @a reply, which must stay until
 *  its finish(), its error() or bt_call_gone(). */
void bt_call_json(bt_frontend_t *front, bt_reply_t *reply,
                  const bt_call_source_t *source, bt_strbuf_t *body);
/** Begins the call of source->request, which is taken over (and left zeroed);
 *  otherwise as bt_call_json(). */
void bt_call_request(bt_frontend_t *front, bt_reply_t *reply,
                     const bt_call_source_t *source);
/** Ends a call with the answer generated so far, as a success; reports it from
 *  inside.
 *  @return false: the call is not running yet; nothing was done */
bool bt_call_stop(bt_call_t *call);
/** Begins all calls that were held for batching, at the end of the queue delay.
 */
void bt_call_begin_held(bt_frontend_t *front);
/** Begins streams (bt_reply_ops_t.begin) whose calls were placed. Call at the
 *  end of each callback of the event loop. */
void bt_call_begin_placed(bt_frontend_t *front);
/** Begins streams that have waited for busy workers for as long as a stream may
 *  be silent (--sse-keepalive-s): a 503 can only be a failure then. Call every
 *  50 ms or so. */
void bt_call_begin_waiting(bt_frontend_t *front, uint64_t now_us);
/** Sends refusals whose delay is over (sched_admit.h). */
void bt_call_tell_refused(bt_frontend_t *front, uint64_t now_us);
/** Cancels a call whose client left. The call must not be used afterwards. */
void bt_call_gone(bt_call_t *call);

/** Keeps the content of a finished answer (bt_reply_ops_t.finish) until
 *  bt_call_unref(); other threads may read it meanwhile. @return @a call */
bt_call_t *bt_call_ref(bt_call_t *call);
/** Drops a reference; the last one frees a call that has ended. NULL is
 *  allowed. */
void bt_call_unref(bt_call_t *call);

/** Callbacks for bt_core_ops_t; @a choice is the generation's user pointer. */
void bt_call_on_placed(void *ctx, void *choice);
void bt_call_on_text(void *ctx, void *choice, const char *text, size_t bytes,
                     uint32_t n_output);
void bt_call_on_end(void *ctx, void *choice, const bt_gen_end_t *end);

#endif
