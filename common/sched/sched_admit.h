/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_admit.h
 *
 * Decides which sequences may join the generation batch: any at any time
 * (in-flight batching), or, with static batches (V1), none until the whole
 * batch has ended.
 *
 *     empty ──▶ gathering: sequences that may begin join; KV arrives
 *                  │ the first member is ready; others that may begin now
 *                  ▼ join too
 *               closed: no other sequence joins
 *                  │ no member is left whose KV has not arrived
 *                  ▼
 *               all ready members start together; seats of those that end
 *               stay empty; preempted members resume
 *                  │ the last has ended, for whatever reason
 *                  ▼
 *               empty
 *
 * A batch waits only for members whose KV comes from other workers.
 * The admission below shows that it arrives: a ready member counts as a lease
 * until it starts, so prefills still have what leases leave to them, and no
 * worker's batch waits for another's. A lease that fails, is canceled or
 * exceeds its deadline leaves the batch, and the rest starts without it. A
 * member whose prompt is computed here as well (local) starts at once: that is
 * the batch's prefill. A prefill for another worker is in no batch.
 *
 * Threads: pure; one thread owns it.
 * Source:  TensorRT-LLM's V1 batching, as the comparison for its in-flight
 *          batching; Yu et al., "Orca", OSDI 2022, section 3 (what static
 *          batches waste).
 */
#ifndef BT_COMMON_SCHED_SCHED_ADMIT_H
#define BT_COMMON_SCHED_SCHED_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_queue.h"

/** State of a sequence with respect to the batch. */
typedef enum bt_sched_part {
    BT_SCHED_OUTSIDE, /**< not a member: waits, has ended, or begins with a
                           fanout leader */
    BT_SCHED_COMING,  /**< member; its KV has not arrived */
    BT_SCHED_READY,   /**< KV has arrived; not started */
    BT_SCHED_INSIDE,  /**< generates, or is leaving */
    BT_SCHED_PAUSED,  /**< preempted; waits to resume */
    BT_SCHED_N_PARTS,
} bt_sched_part_t;

typedef struct bt_sched_batch {
    bool is_static;
    bool is_closed;
    uint32_t n[BT_SCHED_N_PARTS]; /**< members by state; OUTSIDE is not
                                       counted */
} bt_sched_batch_t;

/** Initialises an empty batch. */
void bt_sched_batch_init(bt_sched_batch_t *batch, bool is_static);

/** Sets a sequence's state. When the last member leaves, a closed batch
 *  opens again. */
void bt_sched_batch_move(bt_sched_batch_t *batch, bt_sched_part_t *part_p,
                         bt_sched_part_t next);

/** Closes a static batch if a member is ready. Call after each round of
 *  admissions. */
void bt_sched_batch_round(bt_sched_batch_t *batch);

/** True when a sequence in this state may begin. */
static inline bool bt_sched_batch_admits(const bt_sched_batch_t *batch,
                                         bt_sched_part_t part)
{
    return !batch->is_closed || (part == BT_SCHED_PAUSED);
}

/** True when ready members may start. */
static inline bool bt_sched_batch_starts(const bt_sched_batch_t *batch)
{
    return !batch->is_static ||
           (batch->is_closed && (batch->n[BT_SCHED_COMING] == 0));
}

/*
 * Decides which request may begin at a worker: seats, blocks, the share of
 * blocks for KV without a grant, and whose KV is dropped to free blocks. Pure:
 * queues and counts in, one decision out; the worker carries the decision out,
 * reports the result, and asks again.
 *
 *     granted ──┐ the first in order, when it fits; no other
 *     leases  ──┤ overtakes it                                   ──▶ BEGIN
 *     ungranted ┘ only while neither of those waits, within the share
 *     waiting ◀── complete KV without a grant: the last in order is
 *                 dropped to free blocks for a granted prefill or
 *                 a lease                                        ──▶ DROP
 *
 *   context   a prefill whose KV goes to another worker once that worker has
 *             granted it. A request for one token needs no grant and counts
 *             as granted.
 *   lease     a seat and all blocks, or the blocks that the sequence begins
 *             with (sched_preempt.h), for KV that comes from another worker
 *   local     a seat and blocks for both phases of a request; depends on no
 *             other worker
 *
 * Static batches: while a batch is closed (above), leases and local
 * requests wait, except preempted ones of the batch, and block none behind
 * them.
 *
 * A fanout is one claim: the first member's, plus what the others need beyond
 * it. All members begin, or none.
 *
 * No two workers wait for each other (I4). Whatever has begun proceeds by
 * itself, with two exceptions: KV that waits for a grant, which is dropped, and
 * leases, which end when other workers' granted prefills end. So a granted
 * prefill must always be able to proceed: where a worker has both roles, leases
 * whose KV has not arrived leave it context_blocks and context_seats, and
 * everything else is released by itself. A lease beyond that limit waits, and
 * blocks only the leases behind it. A single lease may begin in any case, or it
 * never would: so the guarantee holds for requests that take at most half of a
 * worker's blocks. Remaining cases, such as a worker that just got its second
 * role, the owner ends by revoking a lease after a timeout:
 * bt_sched_admit_is_stuck().
 *
 * Threads: one thread owns it.
 */

typedef enum bt_sched_want {
    BT_SCHED_CONTEXT,
    BT_SCHED_LEASE,
    BT_SCHED_BOTH_PHASES, /**< local */
} bt_sched_want_t;

/** Resources that a job asks for; embedded in the worker's job. */
typedef struct bt_sched_claim {
    bt_sched_turn_t turn; /**< in one of the queues below, or in none */
    bt_sched_want_t want;
    uint32_t n_blocks; /**< blocks held once the job has begun */
    /** Blocks and seats of a fanout's other members, beyond what they share. */
    uint32_t more_blocks, more_seats;
    bool is_leased;       /**< set by bt_sched_admit_hold_lease() */
    bt_sched_part_t part; /**< state in admit->batch */
} bt_sched_claim_t;

/** Admission state of one worker. */
typedef struct bt_sched_admit {
    uint32_t n_blocks, max_seats;
    uint32_t waiting_share; /**< most blocks for KV without a grant; a single
                                 job may exceed this */
    uint32_t context_blocks, context_seats; /**< left free by leases */
    /* Queues of bt_sched_claim_t.turn, by sched_queue.h. */
    bt_list_t granted, ungranted; /**< prefills to begin */
    bt_list_t leases;             /**< leases and local requests to begin */
    bt_list_t waiting;            /**< complete KV without a grant */
    bt_sched_batch_t batch;       /**< batch that leases and local requests
                                       join */
    /* Held by claims that have begun. */
    uint32_t waiting_blocks; /**< by prefills without a grant */
    uint32_t leased_blocks;  /**< by leases whose KV has not arrived */
    uint32_t leased_seats;   /**< by leases whose KV has not arrived; not in
                                  the engine yet */
} bt_sched_admit_t;

typedef enum bt_sched_verdict {
    BT_SCHED_BEGIN, /**< fits: take blocks and a seat */
    BT_SCHED_DROP,  /**< drop the KV of bt_sched_admit_victim(), ask again */
    BT_SCHED_WAIT,  /**< until blocks or seats are released */
} bt_sched_verdict_t;

/**
 * Initialises admission with in-flight batching; the owner may set up batch
 * differently.
 * @param [in] waiting_kv_percent  1 .. 99, of the blocks
 */
void bt_sched_admit_init(bt_sched_admit_t *admit, uint32_t n_blocks,
                         uint32_t max_seats, uint32_t waiting_kv_percent);

/**
 * Sets or clears what leases leave to prefills, when a worker gets a second
 * role or loses one.
 * @param [in] longest_blocks  of the longest prompt; 0: one role only. At most
 *     half of the blocks are kept for it, and half of the seats.
 */
void bt_sched_admit_reserve(bt_sched_admit_t *admit, uint32_t longest_blocks);

/** True when a fanout can ever begin here, given the seats and blocks that
 *  leases leave to prefills. Members of a fanout that cannot are queued one
 *  by one. */
bool bt_sched_admit_fits(const bt_sched_admit_t *admit,
                         const bt_sched_claim_t *claim);

/**
 * Returns the claim that may begin next by order, seats and shares. Cheap; how
 * many new blocks the claim needs, since other claims may already hold some of
 * them, is then computed for this claim only.
 *
 * @param [in] free_seats  of the engine; leased ones are not free
 * @return NULL when no claim may begin.
 */
bt_sched_claim_t *bt_sched_admit_next(const bt_sched_admit_t *admit,
                                      uint32_t free_seats);

/**
 * Decides whether the claim from bt_sched_admit_next() begins.
 *
 * @param [in] n_new        Blocks of the claim, with more_blocks, not held by
 *                          any claim yet.
 * @param [in] free_blocks  Blocks available now.
 */
bt_sched_verdict_t bt_sched_admit_judge(const bt_sched_admit_t *admit,
                                        const bt_sched_claim_t *claim,
                                        uint32_t n_new, uint32_t free_blocks);

/**
 * True when the first request to begin, a granted prefill or a local one, does
 * not fit beside the leases. The request then waits for other workers, and one
 * of them may wait for it. Causes: the worker got its second role after leases
 * had been given, or the request needs more than leases leave, or all seats are
 * leased. After a timeout the owner revokes a lease.
 */
bool bt_sched_admit_is_stuck(const bt_sched_admit_t *admit);

/** Returns the claim whose complete KV is dropped to free blocks: the last
 *  in order. NULL: there is none. */
bt_sched_claim_t *bt_sched_admit_victim(const bt_sched_admit_t *admit);

/** Counts blocks of a prefill without a grant: hold when the prefill begins,
 *  free when it gets its grant or drops its KV. */
void bt_sched_admit_hold_waiting(bt_sched_admit_t *admit,
                                 const bt_sched_claim_t *claim);
void bt_sched_admit_free_waiting(bt_sched_admit_t *admit,
                                 const bt_sched_claim_t *claim);
/** Counts the seat and blocks of a lease: hold when the lease begins, free
 *  when its sequence is in the engine or has ended. */
void bt_sched_admit_hold_lease(bt_sched_admit_t *admit,
                               bt_sched_claim_t *claim);
void bt_sched_admit_free_lease(bt_sched_admit_t *admit,
                               bt_sched_claim_t *claim);
/**
 * Removes one of the other members of a fanout that has ended or left the
 * fanout, before or while the lease is held.
 * @param [in] n_blocks  the member's part of more_blocks
 */
void bt_sched_admit_shrink(bt_sched_admit_t *admit, bt_sched_claim_t *claim,
                           uint32_t n_blocks);

static inline bt_sched_claim_t *bt_sched_claim_of(bt_sched_turn_t *turn)
{
    return BT_CONTAINER_OF(turn, bt_sched_claim_t, turn);
}

/*
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

/*
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
