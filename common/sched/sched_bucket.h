/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_bucket.h
 *
 * Tokens at a rate, with a burst: what one tenant may ask for.
 *
 *     rate, tokens/s ──▶ ┌────────┐ take(n) ──▶ it goes on
 *                        │ burst  │
 *     give(n), unused ─▶ └────────┘ too little ──▶ how long to wait
 *
 * What is larger than the burst would never fit, so a full bucket lets it go:
 * the level is below zero then, and as long nobody else's turn. So over any
 * time t no more than rate * t + burst + the largest are let through.
 *
 * Integers: a level is in millionths of a token, which is what a token a second
 * brings in a microsecond; so nothing is lost however often one looks.
 *
 * Threads: one thread owns a bucket. Pure: the owner's clock.
 * Source:  J. Turner, "New Directions in Communications", IEEE Communications
 *          Magazine, 1986 (the leaky bucket as a meter).
 */
#ifndef BT_COMMON_SCHED_BUCKET_H
#define BT_COMMON_SCHED_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define BT_SCHED_BUCKET_MOST 1000000000u /**< of rate, and of burst */

typedef struct bt_sched_bucket {
    int64_t level; /**< millionths of a token; below 0: a debt */
    uint64_t at_us;
    uint32_t rate, burst; /**< tokens a second, tokens; rate 0: no limit */
} bt_sched_bucket_t;

/** Full. @param [in] rate, burst  up to BT_SCHED_BUCKET_MOST; burst at least 1
 */
void bt_sched_bucket_init(bt_sched_bucket_t *bucket, uint32_t rate,
                          uint32_t burst, uint64_t now_us);
/** From now on with these; what is in it stays, up to the burst. One that had
 *  no limit begins full. */
void bt_sched_bucket_change(bt_sched_bucket_t *bucket, uint32_t rate,
                            uint32_t burst, uint64_t now_us);
/** Would so many be let through? @return 0, or in how many us */
uint64_t bt_sched_bucket_wait_us(bt_sched_bucket_t *bucket, uint64_t n,
                                 uint64_t now_us);
/** They are: to be called where that returned 0. */
void bt_sched_bucket_take(bt_sched_bucket_t *bucket, uint64_t n,
                          uint64_t now_us);
/** Of those that were taken, so many were not used. */
void bt_sched_bucket_give(bt_sched_bucket_t *bucket, uint64_t n,
                          uint64_t now_us);
/** Whole tokens in it; 0 when it is in debt. */
uint64_t bt_sched_bucket_left(bt_sched_bucket_t *bucket, uint64_t now_us);
/** @return us until it is full */
uint64_t bt_sched_bucket_full_us(bt_sched_bucket_t *bucket, uint64_t now_us);

#endif
