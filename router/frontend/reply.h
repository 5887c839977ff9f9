/* SPDX-License-Identifier: Apache-2.0 */
/** @file reply.h
 *
 * Interface through which a call answers, independent of the client protocol. A
 * protocol embeds a bt_reply_t in an object of its own and fills `ops`; the
 * call passes final results, in the dialect's terms, and the protocol encodes
 * them.
 *
 *     a whole answer     ────────────────────▶ finish(choices)
 *     a stream  ── begin ── piece ── piece ──▶ finish(no choices)
 *                (or an error before begin: a refusal)
 *     at any time        ────────────────────▶ error
 *
 * Exactly one of finish() and error() is called, as the last callback;
 * afterwards only the protocol uses the reply. If a client leaves earlier, the
 * protocol calls bt_call_gone(); then no more callbacks are made.
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_REPLY_H
#define BT_ROUTER_FRONTEND_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/config/config.h"
#include "common/wire/wire.h"
#include "router/frontend/api.h"

typedef struct bt_call bt_call_t;
typedef struct bt_reply bt_reply_t;

typedef struct bt_reply_ops {
    /** Called first for a stream: the call is admitted. Workers have it, or it
     *  has waited so long for busy ones that the client should get a sign of
     *  life. An answer or a failure follows, not a refusal. May call
     *  bt_call_gone(). NULL: nothing to send. */
    void (*begin)(bt_reply_t *reply, const bt_api_answer_t *answer);
    /** Called for a stream's new final text of one choice; with choice->finish
     *  at its end (the text may be empty then). May call bt_call_gone().
     *  @param first  first piece of this choice
     *  @param usage  of the whole call so far */
    void (*piece)(bt_reply_t *reply, const bt_api_answer_t *answer,
                  const bt_api_choice_t *choice, bool first,
                  const bt_api_usage_t *usage);
    /** Called when all choices ended successfully.
     *  @param call     owns the answer, the choices and everything that both
     *    point to, which are immutable from here on; bt_call_ref() keeps them
     *    beyond this callback
     *  @param choices  n whole choices; a stream: none, they were sent as
     *    pieces
     *  @param usage    valid in this callback only */
    void (*finish)(bt_reply_t *reply, bt_call_t *call,
                   const bt_api_answer_t *answer,
                   const bt_api_choice_t *choices, size_t n,
                   const bt_api_usage_t *usage);
    /** Called when the call is refused or failed; a stream may have sent
     *  pieces. */
    void (*error)(bt_reply_t *reply, const bt_api_error_t *error);
} bt_reply_ops_t;

/** Properties of a call, for the protocol's log and metrics. The call updates
 *  them; they stay valid after its finish() or error() and after
 *  bt_call_gone(). */
typedef struct bt_reply_facts {
    char model[BT_CONFIG_MODEL_NAME_BYTES]; /**< "": no model was found */
    uint32_t n_prompt, n_output;            /**< total tokens of all choices */
    uint64_t first_token_us; /**< time from the call's start; 0 = none yet */
    bt_finish_t finish;      /**< finish reason of the last choice */
    /** bt_api_request_t.ignored, where clients are informed of ignored fields.
     */
    char ignored[BT_API_IGNORED_BYTES];
    /** Workers of the last choice; "" = not placed, or both phases at one
     *  worker. */
    char prefill[BT_WIRE_MAX_NAME], decode[BT_WIRE_MAX_NAME];
    /** Identifiers of the call; "" and zeros until known. With several rows,
     *  those of the last one. */
    char answer_id[64], tenant[64];
    uint8_t trace_id[16];
} bt_reply_facts_t;

struct bt_reply {
    const bt_reply_ops_t *ops;
    /** X-Request-Id, owned by the protocol; NULL: none. */
    const char *request_id;
    bt_reply_facts_t facts;
    /** Call that answers through this reply; NULL before it begins and after
     *  finish() or error(). Set by the call. */
    bt_call_t *call;
};

#endif
