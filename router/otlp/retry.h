/* SPDX-License-Identifier: Apache-2.0 */
/** @file retry.h
 *
 * What an answer of an OTLP receiver means for the spans that were sent, and
 * how long to wait before they are sent again.
 *
 * Threads: pure functions.
 * Source:  OTLP 1.x, "OTLP/HTTP Response" and "Failures"; RFC 9110, 10.2.3.
 */
#ifndef BT_ROUTER_OTLP_RETRY_H
#define BT_ROUTER_OTLP_RETRY_H

#include <stdint.h>

typedef enum bt_otlp_verdict {
    BT_OTLP_TAKEN,   /**< the receiver has them */
    BT_OTLP_REFUSED, /**< and would refuse them again */
    BT_OTLP_AGAIN,   /**< later they may be taken */
} bt_otlp_verdict_t;

/** @param http_status  0: there was no answer */
bt_otlp_verdict_t bt_otlp_judge(int http_status);

/** Of a header Retry-After: seconds, or a date.
 *  @param unix_s  now
 *  @return milliseconds, at most a day; 0: it says neither */
uint64_t bt_otlp_retry_after_ms(const char *text, int64_t unix_s);

typedef struct bt_otlp_waits {
    uint32_t first_ms, most_ms; /**< a wait is twice the one before */
} bt_otlp_waits_t;

/** Before the next try.
 *  @param n_failed  tries so far, above 0
 *  @param asked_ms  what the receiver asked for; 0: nothing. It is kept to.
 *  @param random    spreads senders that failed together: the wait is between
 *                   half of itself and all of it */
uint64_t bt_otlp_wait_ms(const bt_otlp_waits_t *waits, uint32_t n_failed,
                         uint64_t asked_ms, uint32_t random);

#endif
