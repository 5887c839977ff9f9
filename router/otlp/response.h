/* SPDX-License-Identifier: Apache-2.0 */
/** @file response.h
 *
 * Interprets the response of an OTLP receiver: the meaning of its status, its
 * JSON body, and the delay before a retry.
 *
 * Threads: pure functions.
 * Source:  OTLP 1.x, "OTLP/HTTP Response" and "Failures";
 *          ExportTraceServiceResponse and google.control.Status in proto3's
 * JSON.
 */
#ifndef BT_ROUTER_OTLP_RESPONSE_H
#define BT_ROUTER_OTLP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"

typedef enum bt_otlp_verdict {
    BT_OTLP_ACCEPTED,
    BT_OTLP_REJECTED, /**< a retry would be rejected, too */
    BT_OTLP_RETRY,    /**< a retry may succeed */
} bt_otlp_verdict_t;

/** Classifies a response by its HTTP status. */
bt_otlp_verdict_t bt_otlp_judge(int http_status);

/** Result of parsing a JSON body. */
typedef struct bt_otlp_result {
    uint64_t n_rejected; /**< rejected spans, from partialSuccess */
    bool is_partial;     /**< partialSuccess has rejected spans or a message */
    bt_printable_t message; /**< from partialSuccess or an error; or "" */
} bt_otlp_result_t;

/** Parses the JSON body of a response; a body of another form gives an empty
 *  result. */
void bt_otlp_parse_body(const char *body, size_t bytes,
                        bt_otlp_result_t *result);

/** Exponential backoff: each delay is twice the previous one. */
typedef struct bt_otlp_backoff {
    uint32_t first_ms, max_ms;
} bt_otlp_backoff_t;

/** Returns the delay before the next try.
 *  @param n_failed        failed tries so far, above 0
 *  @param retry_after_ms  lower bound, of the receiver; 0: none
 *  @param random          jitter, for senders that failed together: the delay
 *                         is between half of itself and all of it */
uint64_t bt_otlp_backoff_ms(const bt_otlp_backoff_t *backoff, uint32_t n_failed,
                            uint64_t retry_after_ms, uint32_t random);

#endif
