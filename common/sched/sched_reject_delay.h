/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_reject_delay.h
 *
 * Delays 429 responses. A client that retries immediately costs the server less
 * if its rejection is delayed; a client that waits for its response sends
 * nothing meanwhile.
 *
 *     rejections ──▶ up to BURST beyond RATE ──▶ sent at once
 *                    more than that          ──▶ one each 1/RATE s, none later
 *                                                than MOST
 *
 * So n clients that send and are rejected without a pause get RATE responses a
 * second, or n / MOST if that is more; an occasional rejection is not delayed.
 *
 * Threads: one thread owns a state. Pure: the owner's clock.
 * Source:  ITU-T I.371, annex A (the virtual scheduling algorithm).
 */
#ifndef BT_COMMON_SCHED_REJECT_DELAY_H
#define BT_COMMON_SCHED_REJECT_DELAY_H

#include <stdint.h>

#define BT_SCHED_REJECT_DELAY_RATE  100u /**< responses a second */
#define BT_SCHED_REJECT_DELAY_BURST 20u
/** Longest delay. Shorter than any Retry-After: a client that heeds it is
 *  not slowed down. */
#define BT_SCHED_REJECT_DELAY_MOST_US 250000u

/** State of the rate limit. Zero-initialise. */
typedef struct bt_sched_reject_delay {
    uint64_t due_us; /**< time of the next response by the rate alone */
} bt_sched_reject_delay_t;

/** Records a rejection. @return us until its response is sent; 0: now */
uint64_t bt_sched_reject_delay_us(bt_sched_reject_delay_t *pace,
                                  uint64_t now_us);

#endif
