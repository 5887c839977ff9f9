/* SPDX-License-Identifier: Apache-2.0 */
/** @file answer.h
 *
 * Writes whole answers as JSON, those that take long to encode (some 4 ms per
 * megabyte) on the frontend's pool. The request owns the whole content of its
 * answer, so nothing is copied:
 *
 *     finish(row, choices) ─▶ written ─▶ the request is answered
 *                             (pool) └─▶ client left: nothing
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

#include "router/api/api.h"
#include "router/triton/infer.h"

typedef struct bt_http_request bt_http_request_t;
typedef struct bt_answer bt_answer_t; /**< answer that is being written */

/** Writes an answer on the pool; the request is over when that is done. Until
 *  then the answer counts as in flight.
 *  @param [in] answer, choices  the request's
 *  @return false if memory is short: nothing was done */
bool bt_answer_begin(bt_http_request_t *r, const bt_api_answer_t *answer,
                     const bt_api_choice_t *choices, size_t n,
                     const bt_api_usage_t *usage);
/** Writes a response of tensors, on the pool if it is long: JSON, then raw
 *  outputs, compressed if the client accepts that. The request is over then. */
void bt_answer_tensors(bt_http_request_t *r, const bt_infer_response_t *whole);

#endif
