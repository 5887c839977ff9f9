/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_batch.h
 *
 * Who may come to those that generate: anybody at any time (in-flight
 * batching), or, with static batches (V1), nobody until all of them have ended.
 *
 *     empty ──▶ gathering: who may begin is of it; KV comes
 *                  │ the first of it is ready; those beside it, too, that may
 *                  ▼ begin now
 *               closed: nobody else begins
 *                  │ none of it is left whose KV has not come
 *                  ▼
 *               all that are ready start together; seats of those that end stay
 *               empty; paused ones go on
 *                  │ the last has ended, by whatever
 *                  ▼
 *               empty
 *
 * A batch waits for nobody but those of it whose KV comes from other workers.
 * That they come is what sched_admit.h shows: who is ready counts as a lease
 * until it starts, so what leases leave to context phases they still have, and
 * no worker's batch waits for another's. A lease that fails, is canceled or
 * runs into its deadline leaves the batch, and the rest starts without it. One
 * whose prompt is computed here as well (local) starts at once: that is the
 * batch's context phase. A context phase for another worker is of no batch.
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

/** What somebody is to the batch. */
typedef enum bt_sched_part {
    BT_SCHED_OUTSIDE, /**< not in it: waits, is over, or begins with a leader */
    BT_SCHED_COMING,  /**< of it; its KV has not come */
    BT_SCHED_READY,   /**< its KV is there; it has not started */
    BT_SCHED_INSIDE,  /**< it generates, or is on its way out */
    BT_SCHED_PAUSED,  /**< it waits to go on */
    BT_SCHED_N_PARTS,
} bt_sched_part_t;

typedef struct bt_sched_batch {
    bool is_static;
    bool is_closed;
    uint32_t n[BT_SCHED_N_PARTS]; /**< none of OUTSIDE is counted */
} bt_sched_batch_t;

/** Empty. */
void bt_sched_batch_init(bt_sched_batch_t *batch, bool is_static);

/** Somebody is this to the batch from now on. With the last one that leaves, a
 *  closed batch is open again. */
void bt_sched_batch_move(bt_sched_batch_t *batch, bt_sched_part_t *part_p,
                         bt_sched_part_t next);

/** All have begun that may now: is it to be closed? To be asked after each
 *  round of admissions. */
void bt_sched_batch_round(bt_sched_batch_t *batch);

/** May who is this to the batch begin? */
static inline bool bt_sched_batch_admits(const bt_sched_batch_t *batch,
                                         bt_sched_part_t part)
{
    return !batch->is_closed || (part == BT_SCHED_PAUSED);
}

/** May those that are ready start? */
static inline bool bt_sched_batch_starts(const bt_sched_batch_t *batch)
{
    return !batch->is_static ||
           (batch->is_closed && (batch->n[BT_SCHED_COMING] == 0));
}

#endif
