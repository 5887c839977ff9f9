/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_admit.h"

#include <string.h>

#include "common/base/assert.h"

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

/* Blocks of a claim with those of its group. */
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
