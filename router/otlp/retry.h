/* SPDX-License-Identifier: Apache-2.0 */
/** @file retry.h
 *
 * Classifies the answers of an OTLP receiver, and computes the delay before a
 * retry.
 *
 * Threads: pure functions.
 * Source:  OTLP 1.x, "OTLP/HTTP Response" and "Failures"; RFC 9110, 10.2.3.
 */
#ifndef BT_ROUTER_OTLP_RETRY_H
#define BT_ROUTER_OTLP_RETRY_H

#include <stdint.h>

typedef enum bt_otlp_verdict {
    BT_OTLP_TAKEN,   /**< accepted by the receiver */
    BT_OTLP_REFUSED, /**< rejected; a retry would fail too */
    BT_OTLP_AGAIN,   /**< a retry may succeed */
} bt_otlp_verdict_t;

/** Classifies an answer by its status.
 *  @param http_status  0: there was no answer */
bt_otlp_verdict_t bt_otlp_judge(int http_status);

/** Parses a Retry-After header: seconds, or a date.
 *  @param unix_s  now
 *  @return milliseconds, at most a day; 0: neither of the two forms */
uint64_t bt_otlp_retry_after_ms(const char *text, int64_t unix_s);

typedef struct bt_otlp_waits {
    uint32_t first_ms, most_ms; /**< a delay is twice the previous one */
} bt_otlp_waits_t;

/** Returns the delay before the next try.
 *  @param n_failed  failed tries so far, above 0
 *  @param asked_ms  delay that the receiver asked for, a lower bound; 0: none
 *  @param random    jitter, for senders that failed together: the delay is
 *                   between half of itself and all of it */
uint64_t bt_otlp_wait_ms(const bt_otlp_waits_t *waits, uint32_t n_failed,
                         uint64_t asked_ms, uint32_t random);

#endif
