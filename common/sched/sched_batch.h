/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_batch.h
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
 * sched_admit.h shows that it arrives: a ready member counts as a lease until
 * it starts, so prefills still have what leases leave to them, and no worker's
 * batch waits for another's. A lease that fails, is canceled or exceeds its
 * deadline leaves the batch, and the rest starts without it. A member whose
 * prompt is computed here as well (local) starts at once: that is the batch's
 * prefill. A prefill for another worker is in no batch.
 *
 * Threads: pure; one thread owns it.
 * Source:  TensorRT-LLM's V1 batching, as the comparison for its in-flight
 *          batching; Yu et al., "Orca", OSDI 2022, section 3 (what static
 *          batches waste).
 */
#ifndef BT_COMMON_SCHED_BATCH_H
#define BT_COMMON_SCHED_BATCH_H

#include <stdbool.h>
#include <stdint.h>

/** State of a sequence with respect to the batch. */
typedef enum bt_sched_part {
    BT_SCHED_OUTSIDE, /**< not a member: waits, has ended, or begins with a
                           group leader */
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

#endif
