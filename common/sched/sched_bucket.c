/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_bucket.h"

#define MILLION 1000000

static int64_t full(const bt_sched_bucket_t *bucket)
{
    return (int64_t)bucket->burst * MILLION;
}

/* Adds the tokens since the last update. */
static void settle(bt_sched_bucket_t *bucket, uint64_t now_us)
{
    const int64_t room = full(bucket) - bucket->level;
    uint64_t passed = 0;

    if (now_us > bucket->at_us) {
        passed = now_us - bucket->at_us;
        bucket->at_us = now_us;
    }
    if (bucket->rate == 0) {
        return;
    }
    if (passed >= (uint64_t)room / bucket->rate + 1) {
        bucket->level = full(bucket);
    } else {
        bucket->level += (int64_t)(passed * bucket->rate);
    }
    if (bucket->level > full(bucket)) {
        bucket->level = full(bucket);
    }
}

void bt_sched_bucket_init(bt_sched_bucket_t *bucket, uint32_t rate,
                          uint32_t burst, uint64_t now_us)
{
    *bucket =
        (bt_sched_bucket_t){.rate = rate, .burst = burst, .at_us = now_us};
    bucket->level = full(bucket);
}

void bt_sched_bucket_change(bt_sched_bucket_t *bucket, uint32_t rate,
                            uint32_t burst, uint64_t now_us)
{
    settle(bucket, now_us);
    if (bucket->rate == 0) {
        bt_sched_bucket_init(bucket, rate, burst, now_us);
        return;
    }
    bucket->rate = rate;
    bucket->burst = burst;
    if (bucket->level > full(bucket)) {
        bucket->level = full(bucket);
    }
}

/* us until the level is so high. */
static uint64_t until(const bt_sched_bucket_t *bucket, int64_t level)
{
    const int64_t missing = level - bucket->level;

    if ((bucket->rate == 0) || (missing <= 0)) {
        return 0;
    }
    return ((uint64_t)missing + bucket->rate - 1) / bucket->rate;
}

uint64_t bt_sched_bucket_wait_us(bt_sched_bucket_t *bucket, uint64_t n,
                                 uint64_t now_us)
{
    settle(bucket, now_us);
    return until(bucket,
                 (n < bucket->burst) ? (int64_t)n * MILLION : full(bucket));
}

void bt_sched_bucket_take(bt_sched_bucket_t *bucket, uint64_t n,
                          uint64_t now_us)
{
    const uint64_t most = (uint64_t)BT_SCHED_BUCKET_MOST * 4;

    settle(bucket, now_us);
    if (bucket->rate != 0) {
        bucket->level -= (int64_t)((n < most) ? n : most) * MILLION;
    }
}

void bt_sched_bucket_give(bt_sched_bucket_t *bucket, uint64_t n,
                          uint64_t now_us)
{
    settle(bucket, now_us);
    if (bucket->rate == 0) {
        return;
    }
    if (n >= (uint64_t)(full(bucket) - bucket->level) / MILLION + 1) {
        bucket->level = full(bucket);
    } else {
        bucket->level += (int64_t)n * MILLION;
    }
    if (bucket->level > full(bucket)) {
        bucket->level = full(bucket);
    }
}

uint64_t bt_sched_bucket_left(bt_sched_bucket_t *bucket, uint64_t now_us)
{
    settle(bucket, now_us);
    return (bucket->level > 0) ? (uint64_t)bucket->level / MILLION : 0;
}

uint64_t bt_sched_bucket_full_us(bt_sched_bucket_t *bucket, uint64_t now_us)
{
    settle(bucket, now_us);
    return until(bucket, full(bucket));
}
