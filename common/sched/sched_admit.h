/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_admit.h
 *
 * Who may begin at a worker now: seats, blocks, the share of KV that waits for
 * a grant, and whose KV makes room. Pure: queues and counts in, one decision
 * out; the worker carries it out, tells what became of it, and asks again.
 *
 *     granted ──┐ the one whose turn it is, when it fits; nobody
 *     leases  ──┤ overtakes it                                    ──▶ BEGIN
 *     ungranted ┘ while none of those waits, within the share
 *     waiting ◀── complete KV without a grant: its last one makes room for
 *                 a granted context phase or a lease              ──▶ DROP
 *
 *   context   a context phase; its KV goes to another worker once that one has
 *             granted it. One that asks for one token needs no grant: it is
 *             granted from the first.
 *   lease     a seat and all blocks, or those that it begins with
 *             (sched_preempt.h), for KV that comes from another worker
 *   local     the same for both phases of a request; depends on nobody
 *
 * Static batches: while one is closed (sched_batch.h), leases and local ones
 * wait, but for paused ones of it, and hold up nobody.
 *
 * A group is one claim: its first member's, with what the others need beside
 * it. All of them begin, or none.
 *
 * No two workers wait for each other (I4). Whoever has begun gets on by itself,
 * but for two: KV that waits for a grant, which is dropped, and leases, which
 * end with other workers' granted context phases. So a granted context phase
 * must always get on: leases, until their KV is there, leave it
 * context_blocks and context_seats where a worker has both roles, and the rest
 * comes back by itself. A lease beyond that waits, and holds up nobody but the
 * leases behind it. One that is alone may begin all the same, or it never
 * would: so this holds for all that takes no more than half of a worker's
 * blocks. What else there is, of a worker that just got its second role, too,
 * the owner ends by taking a lease back after a time:
 * bt_sched_admit_is_stuck().
 *
 * Threads: one thread owns it.
 */
#ifndef BT_COMMON_SCHED_ADMIT_H
#define BT_COMMON_SCHED_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_batch.h"
#include "common/sched/sched_queue.h"

typedef enum bt_sched_want {
    BT_SCHED_CONTEXT,
    BT_SCHED_LEASE,
    BT_SCHED_BOTH_PHASES, /**< local */
} bt_sched_want_t;

/** What a job asks for; embedded in the worker's. */
typedef struct bt_sched_claim {
    bt_sched_turn_t turn; /**< in one of the queues below, or in none */
    bt_sched_want_t want;
    uint32_t n_blocks; /**< all that it holds once it has begun */
    /** Of a group: what the others take, beside what they share. */
    uint32_t more_blocks, more_seats;
    bool is_leased;       /**< bt_sched_admit_hold_lease() */
    bt_sched_part_t part; /**< of admit->batch */
} bt_sched_claim_t;

/** The admission of one worker. */
typedef struct bt_sched_admit {
    uint32_t n_blocks, max_seats;
    uint32_t waiting_share; /**< blocks for KV without a grant; one job alone
                                 may have more */
    uint32_t context_blocks, context_seats; /**< that leases leave */
    /* Queues of bt_sched_claim_t.turn, by sched_queue.h. */
    bt_list_t granted, ungranted; /**< context phases to begin */
    bt_list_t leases;             /**< leases and local ones to begin */
    bt_list_t waiting;            /**< complete KV, no grant */
    bt_sched_batch_t batch;       /**< whom leases and local ones come to */
    /* Held by those who have begun. */
    uint32_t waiting_blocks; /**< by context phases without a grant */
    uint32_t leased_blocks;  /**< by leases whose KV has not come */
    uint32_t leased_seats;   /**< by the same; not in the engine yet */
} bt_sched_admit_t;

typedef enum bt_sched_verdict {
    BT_SCHED_BEGIN, /**< it fits: take blocks and a seat */
    BT_SCHED_DROP,  /**< give up the KV of bt_sched_admit_victim(), ask again */
    BT_SCHED_WAIT,  /**< until something comes back */
} bt_sched_verdict_t;

/** With in-flight batching, until the owner sets batch up otherwise.
 *  @param [in] waiting_kv_percent  1 .. 99, of the blocks */
void bt_sched_admit_init(bt_sched_admit_t *admit, uint32_t n_blocks,
                         uint32_t max_seats, uint32_t waiting_kv_percent);

/** The worker has both roles, or no longer.
 *  @param [in] longest_blocks  of the longest prompt; 0: one role alone. At
 *                              most half of the blocks are kept for it, and
 *                              half of the seats. */
void bt_sched_admit_reserve(bt_sched_admit_t *admit, uint32_t longest_blocks);

/** Can a group ever begin here, with seats and blocks that leases leave to
 *  context phases? One that cannot is for its members alone. */
bool bt_sched_admit_fits(const bt_sched_admit_t *admit,
                         const bt_sched_claim_t *claim);

/**
 * The one that may begin next, as far as order, seats and shares go. Cheap;
 * what it needs of blocks, now that others may hold some of them already, is
 * then found out for this one alone.
 *
 * @param [in] free_seats  of the engine; leased ones are not free
 * @return NULL when nobody may.
 */
bt_sched_claim_t *bt_sched_admit_next(const bt_sched_admit_t *admit,
                                      uint32_t free_seats);

/**
 * May the one of bt_sched_admit_next() begin?
 *
 * @param [in] n_new        Blocks of the claim's that nobody holds yet, with
 *                          more_blocks.
 * @param [in] free_blocks  That can be had now.
 */
bt_sched_verdict_t bt_sched_admit_judge(const bt_sched_admit_t *admit,
                                        const bt_sched_claim_t *claim,
                                        uint32_t n_new, uint32_t free_blocks);

/**
 * Does the first to begin, a granted context phase or a local one, not fit
 * beside the leases? Then it waits for other workers, and one of them may wait
 * for it: where a worker got its second role with leases given already, where
 * one is larger than what leases leave, or has no seat but theirs. After a time
 * the owner takes a lease back.
 */
bool bt_sched_admit_is_stuck(const bt_sched_admit_t *admit);

/** Whose complete KV makes room: the last in order. NULL: there is none. */
bt_sched_claim_t *bt_sched_admit_victim(const bt_sched_admit_t *admit);

/** A context phase without a grant begins to hold its blocks, or has got its
 *  grant or given them up. */
void bt_sched_admit_hold_waiting(bt_sched_admit_t *admit,
                                 const bt_sched_claim_t *claim);
void bt_sched_admit_free_waiting(bt_sched_admit_t *admit,
                                 const bt_sched_claim_t *claim);
/** A lease begins to hold its seat and blocks, or is in the engine or over. */
void bt_sched_admit_hold_lease(bt_sched_admit_t *admit,
                               bt_sched_claim_t *claim);
void bt_sched_admit_free_lease(bt_sched_admit_t *admit,
                               bt_sched_claim_t *claim);
/** One of the others of a group is over or goes its own way, before or while
 *  its lease is held.
 *  @param [in] n_blocks  that were its part of more_blocks */
void bt_sched_admit_shrink(bt_sched_admit_t *admit, bt_sched_claim_t *claim,
                           uint32_t n_blocks);

static inline bt_sched_claim_t *bt_sched_claim_of(bt_sched_turn_t *turn)
{
    return BT_CONTAINER_OF(turn, bt_sched_claim_t, turn);
}

#endif
