/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_reject_delay.h
 *
 * How long an answer that says no is held back. Who comes again at once when he
 * was refused costs a server more the sooner he hears it; one who waits for his
 * answer does not ask meanwhile.
 *
 *     refusals ──▶ up to BURST beyond RATE ──▶ told at once
 *                  more than that          ──▶ one each 1/RATE s, none later
 *                                              than MOST
 *
 * So n clients that ask and are refused without a pause get RATE answers a
 * second, or n / MOST where that is more; who is refused now and then waits for
 * nothing.
 *
 * Threads: one thread owns a pace. Pure: the owner's clock.
 * Source:  ITU-T I.371, annex A (the virtual scheduling algorithm).
 */
#ifndef BT_COMMON_SCHED_PACE_H
#define BT_COMMON_SCHED_PACE_H

#include <stdint.h>

#define BT_SCHED_REJECT_DELAY_RATE  100u /**< a second */
#define BT_SCHED_REJECT_DELAY_BURST 20u
/** Less than any Retry-After: who heeds it comes no later for it. */
#define BT_SCHED_REJECT_DELAY_MOST_US 250000u

/** Zero-initialise. */
typedef struct bt_sched_reject_delay {
    uint64_t due_us; /**< the next one's turn, by the rate alone */
} bt_sched_reject_delay_t;

/** One more is refused. @return us until it is to be told; 0: now */
uint64_t bt_sched_reject_delay_us(bt_sched_reject_delay_t *pace,
                                  uint64_t now_us);

#endif
