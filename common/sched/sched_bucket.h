/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_bucket.h
 *
 * Token bucket: rate and burst limit of one tenant.
 *
 *     rate, tokens/s ──▶ ┌────────┐ take(n) ──▶ request proceeds
 *                        │ burst  │
 *     give(n), unused ─▶ └────────┘ too few tokens ──▶ time to wait
 *
 * A request larger than the burst would never fit, so a full bucket admits it:
 * the level is then below zero, and nothing else passes until it recovers. So
 * over any time t at most rate * t + burst + the largest request pass.
 *
 * Integers: a level is in millionths of a token, the amount that one token a
 * second adds in a microsecond; so reading the level often loses nothing.
 *
 * Threads: one thread owns a bucket. Pure: the owner's clock.
 * Source:  J. Turner, "New Directions in Communications", IEEE Communications
 *          Magazine, 1986 (the leaky bucket as a meter).
 */
#ifndef BT_COMMON_SCHED_BUCKET_H
#define BT_COMMON_SCHED_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define BT_SCHED_BUCKET_MOST 1000000000u /**< maximum of rate and of burst */

typedef struct bt_sched_bucket {
    int64_t level; /**< millionths of a token; below 0: a debt */
    uint64_t at_us;
    uint32_t rate, burst; /**< tokens a second, tokens; rate 0: no limit */
} bt_sched_bucket_t;

/**
 * Initialises a full bucket.
 * @param [in] rate, burst  up to BT_SCHED_BUCKET_MOST; burst at least 1
 */
void bt_sched_bucket_init(bt_sched_bucket_t *bucket, uint32_t rate,
                          uint32_t burst, uint64_t now_us);
/** Changes rate and burst; the level stays, up to the new burst. A bucket
 *  without a limit becomes full. */
void bt_sched_bucket_change(bt_sched_bucket_t *bucket, uint32_t rate,
                            uint32_t burst, uint64_t now_us);
/** Returns when n tokens would pass. @return 0: now; else us to wait */
uint64_t bt_sched_bucket_wait_us(bt_sched_bucket_t *bucket, uint64_t n,
                                 uint64_t now_us);
/** Takes n tokens. Call when bt_sched_bucket_wait_us() has returned 0. */
void bt_sched_bucket_take(bt_sched_bucket_t *bucket, uint64_t n,
                          uint64_t now_us);
/** Returns n unused tokens to the bucket. */
void bt_sched_bucket_give(bt_sched_bucket_t *bucket, uint64_t n,
                          uint64_t now_us);
/** Returns the whole tokens available; 0 when the bucket is in debt. */
uint64_t bt_sched_bucket_left(bt_sched_bucket_t *bucket, uint64_t now_us);
/** Returns us until the bucket is full. */
uint64_t bt_sched_bucket_full_us(bt_sched_bucket_t *bucket, uint64_t now_us);

#endif
