/* SPDX-License-Identifier: Apache-2.0 */
/** @file answer.h
 *
 * Writes whole answers that take long to encode as JSON (some 4 ms per
 * megabyte) on the frontend's pool. A reference keeps the call, which owns the
 * whole content of its answer, until writing is done; nothing is copied:
 *
 *     finish(call, choices) ─▶ bt_call_ref ─▶ written ─▶ the visit is answered
 *                                             (pool) └─▶ client left: nothing
 *
 * The pool writes one slice at a time, and other jobs run between two slices. A
 * client that leaves ends the job at the next slice.
 *
 * Threads: everything on the event loop's thread, except the pool's jobs.
 */
#ifndef BT_ROUTER_HTTP_ANSWER_H
#define BT_ROUTER_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "router/frontend/api.h"
#include "router/frontend/call.h"

/** Answers up to this size are written on the event loop: that takes 100 us. */
#define BT_ANSWER_INLINE_BYTES ((size_t)24 * 1024)

/** Bytes of an answer that the pool writes in one go: some 2 ms. */
#define BT_ANSWER_SLICE_BYTES ((size_t)256 * 1024)

typedef struct bt_visit bt_visit_t;
typedef struct bt_answer bt_answer_t; /**< answer that is being written */

/** Returns the approximate JSON size of an answer in bytes. */
size_t bt_answer_bytes(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n);
/** Writes an answer for the visit, which is over when writing is done. Until
 *  then the answer counts as in flight.
 *  @param [in] call  owns @a answer and @a choices; a reference is taken
 *  @return false if memory is short: nothing was done */
bool bt_answer_begin(bt_visit_t *visit, bt_call_t *call,
                     const bt_api_answer_t *answer,
                     const bt_api_choice_t *choices, size_t n,
                     const bt_api_usage_t *usage);
/** Abandons an answer whose visit is over. */
void bt_answer_leave(bt_answer_t *answer);

#endif
