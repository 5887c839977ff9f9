/* SPDX-License-Identifier: Apache-2.0 */
/** @file reply.h
 *
 * How a call answers, whatever the door it came through. A door embeds a
 * bt_reply_t in an object of its own and fills `ops`; the call tells it what is
 * certain, in the dialect's terms, and the door puts that into bytes.
 *
 *     a whole answer     ────────────────────▶ finish(choices)
 *     a stream  ── begin ── piece ── piece ──▶ finish(no choices)
 *                (or an error before its begin: a refusal)
 *     at any time        ────────────────────▶ error
 *
 * Exactly one of finish() and error() comes, as the last word; after it the
 * reply belongs to the door alone. A client that leaves before it is told by
 * the door with bt_call_gone(); then nothing comes any more.
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
    /** A stream, before anything else of it: the call is admitted. Workers have
     *  it, or it has waited for busy ones for so long that its client is to
     *  hear of it. What follows is its answer or a failure, no refusal.
     *  May call bt_call_gone(). NULL: nothing is to be said */
    void (*begin)(bt_reply_t *reply, const bt_api_answer_t *answer);
    /** Stream: new text of one choice, certain; with choice->finish its end
     *  (the text may be empty then). May call bt_call_gone().
     *  @param first  nothing of this choice was told before
     *  @param usage  of the whole call so far */
    void (*piece)(bt_reply_t *reply, const bt_api_answer_t *answer,
                  const bt_api_choice_t *choice, bool first,
                  const bt_api_usage_t *usage);
    /** All choices ended well.
     *  @param call     owns the answer, the choices and everything that both
     *                  point to; none of it changes any more. bt_call_ref()
     *                  keeps it all beyond this function
     *  @param choices  n of them, whole; a stream: none, they were told
     *  @param usage    valid in this function only */
    void (*finish)(bt_reply_t *reply, bt_call_t *call,
                   const bt_api_answer_t *answer,
                   const bt_api_choice_t *choices, size_t n,
                   const bt_api_usage_t *usage);
    /** The call is refused or failed; of a stream pieces may have been told. */
    void (*error)(bt_reply_t *reply, const bt_api_error_t *error);
} bt_reply_ops_t;

/** What is known of a call, for whoever keeps the door's books. The call keeps
 *  it up to date; after its last word, and after bt_call_gone(), it stays. */
typedef struct bt_reply_facts {
    char model[BT_CONFIG_MODEL_NAME_BYTES]; /**< "": none was found */
    uint32_t n_prompt, n_output;            /**< tokens of all choices */
    uint64_t first_token_us;                /**< from its begin; 0 = none yet */
    bt_finish_t finish;                     /**< of its last choice */
    /** bt_api_request_t.ignored, where clients are told. */
    char ignored[BT_API_IGNORED_BYTES];
    /** Of its last choice; "" = not placed, or both phases at one. */
    char prefill[BT_WIRE_MAX_NAME], decode[BT_WIRE_MAX_NAME];
    /** Of the call; "" and zeros where it has not come so far. Of several rows
     *  those of the last one. */
    char answer_id[64], tenant[64];
    uint8_t trace_id[16];
} bt_reply_facts_t;

struct bt_reply {
    const bt_reply_ops_t *ops;
    const char *request_id; /**< X-Request-Id; the door's; NULL: none */
    bt_reply_facts_t facts;
    /** The call that answers here; NULL before it begins and after its last
     *  word. The call sets it. */
    bt_call_t *call;
};

#endif
