/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_admit.h"

#include <string.h>

#include "common/base/status.h"

void bt_sched_batch_init(bt_sched_batch_t *batch, bool is_static)
{
    memset(batch, 0, sizeof(*batch));
    batch->is_static = is_static;
}

static bool is_empty(const bt_sched_batch_t *batch)
{
    uint32_t n = 0;

    for (uint32_t i = BT_SCHED_COMING; i < BT_SCHED_N_PARTS; i++) {
        n += batch->n[i];
    }
    return n == 0;
}

void bt_sched_batch_move(bt_sched_batch_t *batch, bt_sched_part_t *part_p,
                         bt_sched_part_t next)
{
    const bt_sched_part_t part = *part_p;

    if (next != BT_SCHED_OUTSIDE) {
        batch->n[next]++;
    }
    if (part != BT_SCHED_OUTSIDE) {
        BT_ASSERT(batch->n[part] > 0);
        batch->n[part]--;
    }
    *part_p = next;
    batch->is_closed = batch->is_closed && !is_empty(batch);
}

void bt_sched_batch_round(bt_sched_batch_t *batch)
{
    if (batch->is_static &&
        (batch->n[BT_SCHED_READY] + batch->n[BT_SCHED_INSIDE] +
             batch->n[BT_SCHED_PAUSED] >
         0)) {
        batch->is_closed = true;
    }
}

void bt_sched_admit_init(bt_sched_admit_t *admit, uint32_t n_blocks,
                         uint32_t max_seats, uint32_t waiting_kv_percent)
{
    memset(admit, 0, sizeof(*admit));
    admit->n_blocks = n_blocks;
    admit->max_seats = max_seats;
    admit->waiting_share =
        (uint32_t)((uint64_t)n_blocks * waiting_kv_percent / 100);
    bt_list_init(&admit->granted);
    bt_list_init(&admit->ungranted);
    bt_list_init(&admit->leases);
    bt_list_init(&admit->waiting);
    bt_sched_batch_init(&admit->batch, false);
}

void bt_sched_admit_reserve(bt_sched_admit_t *admit, uint32_t longest_blocks)
{
    const uint32_t half = admit->n_blocks / 2;

    admit->context_blocks = (longest_blocks < half) ? longest_blocks : half;
    admit->context_seats = (longest_blocks > 0) ? admit->max_seats / 2 : 0;
}

/* Blocks of a claim with those of its fanout. */
static uint64_t blocks_of(const bt_sched_claim_t *claim)
{
    return (uint64_t)claim->n_blocks + claim->more_blocks;
}

static uint64_t seats_of(const bt_sched_claim_t *claim)
{
    return (uint64_t)1 + claim->more_seats;
}

bool bt_sched_admit_fits(const bt_sched_admit_t *admit,
                         const bt_sched_claim_t *claim)
{
    uint32_t n_blocks = admit->n_blocks;
    uint32_t n_seats = admit->max_seats;

    switch (claim->want) {
    case BT_SCHED_CONTEXT:
        if (admit->context_blocks > 0) {
            n_blocks = admit->context_blocks;
        }
        if (admit->context_seats > 0) {
            n_seats = admit->context_seats;
        }
        break;
    case BT_SCHED_LEASE:
        n_blocks -= admit->context_blocks;
        n_seats -= admit->context_seats;
        break;
    case BT_SCHED_BOTH_PHASES:
        break;
    }
    return (blocks_of(claim) <= n_blocks) && (seats_of(claim) <= n_seats);
}

static bt_sched_claim_t *first(const bt_list_t *queue)
{
    bt_sched_turn_t *turn = bt_sched_queue_first(queue);

    return (turn == NULL) ? NULL : bt_sched_claim_of(turn);
}

/* First claim to begin of leases and local requests. Usually a closed batch
 * has no preempted member that waits to resume: no queue is walked then. */
static bt_sched_claim_t *first_lease(const bt_sched_admit_t *admit)
{
    const bt_sched_batch_t *batch = &admit->batch;

    if (batch->is_closed && (batch->n[BT_SCHED_PAUSED] == 0)) {
        return NULL;
    }
    for (bt_list_t *pos = admit->leases.next; pos != &admit->leases;
         pos = pos->next) {
        bt_sched_claim_t *claim = bt_sched_claim_of(bt_sched_turn_of(pos));

        if (bt_sched_batch_admits(batch, claim->part)) {
            return claim;
        }
    }
    return NULL;
}

/* True when the lease leaves granted prefills their share. */
static bool leaves_enough(const bt_sched_admit_t *admit,
                          const bt_sched_claim_t *lease)
{
    return (lease->want == BT_SCHED_BOTH_PHASES) ||
           (admit->leased_seats == 0) ||
           ((admit->leased_blocks + blocks_of(lease) + admit->context_blocks <=
             admit->n_blocks) &&
            (admit->leased_seats + seats_of(lease) + admit->context_seats <=
             admit->max_seats));
}

/* One that is larger than the share may run when it is alone in it. */
static bool is_within_share(const bt_sched_admit_t *admit,
                            const bt_sched_claim_t *context)
{
    return (admit->waiting_blocks == 0) ||
           (admit->waiting_blocks + blocks_of(context) <= admit->waiting_share);
}

/* The next claim by order and shares. */
static bt_sched_claim_t *whose_turn(const bt_sched_admit_t *admit)
{
    bt_sched_claim_t *granted = first(&admit->granted);
    bt_sched_claim_t *lease = first_lease(admit);
    bt_sched_claim_t *ungranted = first(&admit->ungranted);

    if ((lease != NULL) && !leaves_enough(admit, lease)) {
        lease = NULL;
    }
    if ((granted != NULL) && (lease != NULL)) {
        return bt_sched_turn_before(&lease->turn, &granted->turn) ? lease
                                                                  : granted;
    }
    if (granted != NULL) {
        return granted;
    }
    if (lease != NULL) {
        return lease;
    }
    return ((ungranted != NULL) && is_within_share(admit, ungranted))
               ? ungranted
               : NULL;
}

bt_sched_claim_t *bt_sched_admit_next(const bt_sched_admit_t *admit,
                                      uint32_t free_seats)
{
    bt_sched_claim_t *claim = whose_turn(admit);

    return ((claim != NULL) && (seats_of(claim) <= free_seats)) ? claim : NULL;
}

bt_sched_verdict_t bt_sched_admit_judge(const bt_sched_admit_t *admit,
                                        const bt_sched_claim_t *claim,
                                        uint32_t n_new, uint32_t free_blocks)
{
    BT_ASSERT(n_new <= blocks_of(claim));
    if (n_new <= free_blocks) {
        return BT_SCHED_BEGIN;
    }
    /* Only claims that need no grant may drop KV that waits for one. */
    return ((claim == first(&admit->ungranted)) ||
            bt_list_empty(&admit->waiting))
               ? BT_SCHED_WAIT
               : BT_SCHED_DROP;
}

static bool fits_beside_leases(const bt_sched_admit_t *admit,
                               const bt_sched_claim_t *claim)
{
    return (claim->n_blocks <= admit->n_blocks - admit->leased_blocks) &&
           (admit->leased_seats < admit->max_seats);
}

bool bt_sched_admit_is_stuck(const bt_sched_admit_t *admit)
{
    const bt_sched_claim_t *granted = first(&admit->granted);
    const bt_sched_claim_t *local = first_lease(admit);

    if (granted == NULL) {
        return false; /* no other worker waits for this one */
    }
    if ((local != NULL) && (local->want == BT_SCHED_BOTH_PHASES) &&
        bt_sched_turn_before(&local->turn, &granted->turn)) {
        granted = local; /* the request that blocks it */
    }
    return !fits_beside_leases(admit, granted);
}

bt_sched_claim_t *bt_sched_admit_victim(const bt_sched_admit_t *admit)
{
    bt_sched_turn_t *turn = bt_sched_queue_last(&admit->waiting);

    return (turn == NULL) ? NULL : bt_sched_claim_of(turn);
}

void bt_sched_admit_hold_waiting(bt_sched_admit_t *admit,
                                 const bt_sched_claim_t *claim)
{
    admit->waiting_blocks += claim->n_blocks + claim->more_blocks;
}

void bt_sched_admit_free_waiting(bt_sched_admit_t *admit,
                                 const bt_sched_claim_t *claim)
{
    BT_ASSERT(admit->waiting_blocks >= blocks_of(claim));
    admit->waiting_blocks -= claim->n_blocks + claim->more_blocks;
}

void bt_sched_admit_hold_lease(bt_sched_admit_t *admit, bt_sched_claim_t *claim)
{
    claim->is_leased = true;
    admit->leased_blocks += claim->n_blocks + claim->more_blocks;
    admit->leased_seats += 1 + claim->more_seats;
}

void bt_sched_admit_free_lease(bt_sched_admit_t *admit, bt_sched_claim_t *claim)
{
    BT_ASSERT((admit->leased_blocks >= blocks_of(claim)) &&
              (admit->leased_seats >= seats_of(claim)));
    admit->leased_blocks -= claim->n_blocks + claim->more_blocks;
    admit->leased_seats -= 1 + claim->more_seats;
    claim->is_leased = false;
}

void bt_sched_admit_shrink(bt_sched_admit_t *admit, bt_sched_claim_t *claim,
                           uint32_t n_blocks)
{
    BT_ASSERT((claim->more_blocks >= n_blocks) && (claim->more_seats > 0));
    claim->more_blocks -= n_blocks;
    claim->more_seats--;
    if (claim->is_leased) {
        admit->leased_blocks -= n_blocks;
        admit->leased_seats--;
    }
}

#define MILLION 1000000

static int64_t full(const bt_sched_bucket_t *bucket)
{
    return (int64_t)bucket->burst * MILLION;
}

/* Adds the tokens since the last update. */
static void settle(bt_sched_bucket_t *bucket, uint64_t now_us)
{
    const int64_t missing = full(bucket) - bucket->level;
    uint64_t passed = 0;

    if (now_us > bucket->at_us) {
        passed = now_us - bucket->at_us;
        bucket->at_us = now_us;
    }
    if (bucket->rate == 0) {
        return;
    }
    if (passed >= (uint64_t)missing / bucket->rate + 1) {
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

#define APART_US (1000000u / BT_SCHED_REJECT_DELAY_RATE)
#define BURST_US (APART_US * BT_SCHED_REJECT_DELAY_BURST)

uint64_t bt_sched_reject_delay_us(bt_sched_reject_delay_t *pace,
                                  uint64_t now_us)
{
    const uint64_t last_us = now_us + BURST_US + BT_SCHED_REJECT_DELAY_MOST_US;
    uint64_t due_us = pace->due_us;

    if (due_us < now_us) {
        due_us = now_us;
    } else if (due_us > last_us) { /* many at once are no debt for later */
        due_us = last_us;
    }
    pace->due_us = due_us + APART_US;
    return (due_us - now_us > BURST_US) ? due_us - now_us - BURST_US : 0;
}
