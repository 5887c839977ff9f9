/* SPDX-License-Identifier: Apache-2.0 */
/** @file answer.h
 *
 * Whole answers that take long to write as JSON: some 4 ms for a megabyte. The
 * frontend's pool writes them. A reference keeps the call, which owns the whole
 * content of its answer, until that is done; nothing is copied:
 *
 *     finish(call, choices) ─▶ bt_call_ref ─▶ written ─▶ the visit is answered
 *                                             (pool) └─▶ the client left:
 * nothing
 *
 * The pool writes a slice at a time, and other work comes between two slices. A
 * client that leaves ends it at the next one.
 *
 * Threads: everything on the event loop's thread, but for what the pool runs.
 */
#ifndef BT_ROUTER_HTTP_ANSWER_H
#define BT_ROUTER_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "router/frontend/api.h"
#include "router/frontend/call.h"

/** Answers up to here are written on the event loop: that takes 100 us. */
#define BT_ANSWER_INLINE_BYTES ((size_t)24 * 1024)

/** The pool writes so much of an answer in one go: some 2 ms. */
#define BT_ANSWER_SLICE_BYTES ((size_t)256 * 1024)

typedef struct bt_visit bt_visit_t;
typedef struct bt_answer bt_answer_t; /**< one that is being written */

/** About how long the JSON of an answer is. */
size_t bt_answer_bytes(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n);
/** Write it for the visit, which is over when that is done. As long as it takes
 *  the answer counts as in flight.
 *  @param [in] call  owns @a answer and @a choices; a reference is taken
 *  @return false for want of memory: nothing was done */
bool bt_answer_begin(bt_visit_t *visit, bt_call_t *call,
                     const bt_api_answer_t *answer,
                     const bt_api_choice_t *choices, size_t n,
                     const bt_api_usage_t *usage);
/** The visit is over: nobody waits for it. */
void bt_answer_leave(bt_answer_t *answer);

#endif
