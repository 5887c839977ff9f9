/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll_shm.h
 *
 * Collectives among the ranks of one host, in shared memory.
 */
#ifndef BT_COMMON_COLL_COLL_SHM_H
#define BT_COMMON_COLL_COLL_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/coll/coll.h"

/*
 * Summation order: the list of parts is halved recursively, so that a rank that
 * has the parts of one half can add them first.
 *
 *     4 parts   (p0 + p1) + (p2 + p3)
 *     3 parts   p0 + (p1 + p2)
 *
 * So a sum over 4 parts is bit-identical whether 4 ranks have one each, 2 ranks
 * two each, or one rank all.
 *
 * Threads: pure functions.
 */

/** Computes out (n) = the sum of all parts (n), in this order; n_parts >= 1. */
void bt_coll_tree_sum(const float *const *parts, uint32_t n_parts, size_t n,
                      float *out);

/** Returns where a list from @a begin to @a end is halved, of at least two
 *  parts. */
static inline uint32_t bt_coll_tree_middle(uint32_t begin, uint32_t end)
{
    return begin + (end - begin) / 2;
}

/** True when each of @a size ranks, which have the parts in rank order, has
 *  parts that are added before those of others. */
bool bt_coll_tree_divides(uint32_t n_parts, uint32_t size);

/*
 * Collectives of ranks on one host, through shared memory mapped by all of
 * them:
 *
 *     segment   head of rank 0 │ head of rank 1 │ …      a cache line each
 *               slot of rank 0, even calls │ odd calls
 *               slot of rank 1, even calls │ odd calls │ …
 *
 * A call proceeds in rounds. In each, every rank writes its piece into its slot
 * and then the round into its head; a rank that has seen the round in all heads
 * reads the slots. Slots alternate, so that no rank overwrites what another one
 * still reads: a rank in round n + 2 has seen all in round n + 1, where they
 * are done with round n.
 *
 * Short sums are computed by each rank over all slots; for long ones each rank
 * sums a part, which the others fetch (reduce-scatter, all-gather). Both add in
 * the order of bt_coll_tree_sum(), element by element: bit-identical to each
 * other and to MPI.
 *
 * Ranks may be in *stages* of equal size, in rank order, like the stages of a
 * pipeline. Each stage has heads and slots of its own behind the common ones,
 * for sums within it, and rank r has a *channel* to rank r + stage_size (from
 * the last stage to the first one): a ring of BT_COLL_SHM_CHANNEL_SLOTS slots,
 * so that the sender proceeds while the receiver is still busy.
 *
 *     segment   all ranks │ stage 0 │ stage 1 │ … │ channel of rank 0 │ …
 *
 * A waiting rank spins for some microseconds, then yields, then sleeps (futex),
 * so that idle ranks cost nothing.
 *
 * Threads: one thread of each rank calls; bt_coll_shm_break() is for any.
 * Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
 *         Communication Operations in MPICH", 2005.
 */

#define BT_COLL_SHM_MAX_RANKS     64u
#define BT_COLL_SHM_CHANNEL_SLOTS 8u

typedef struct bt_coll_shm bt_coll_shm_t;

/** Returns the size of the segment for @a size ranks with slots of @a
 *  slot_bytes, which are rounded up. 0: too many ranks, too large, or no
 *  whole number of stages. */
size_t bt_coll_shm_bytes(uint32_t size, uint32_t stage_size, size_t slot_bytes);

/**
 * Opens the collectives of one rank.
 *
 * @param [in]  segment  Mapped by all ranks, at any address of 64; all zero
 *                       before the first one opens it. Borrowed until close.
 * @param [in]  bytes    bt_coll_shm_bytes() of the same numbers at all ranks.
 * @param [in]  stage_size  Ranks of a stage; size: one stage of all, without
 *                          channels.
 * @param [out] shm_p    Close with bt_coll_shm_close().
 * @retval BT_ERR_INVALID_PARAM  rank, size, stage_size or bytes
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_coll_shm_open(void *segment, size_t bytes,
                                           uint32_t rank, uint32_t size,
                                           uint32_t stage_size,
                                           size_t slot_bytes,
                                           bt_coll_shm_t **shm_p);
void bt_coll_shm_close(bt_coll_shm_t *shm); /**< NULL is allowed. */

/** Returns the table of all ranks, whose calls return BT_ERR_PEER_LOST after
 *  bt_coll_shm_break(). */
const bt_collectives_t *bt_coll_shm_collectives(const bt_coll_shm_t *shm);
/** Returns the table of the ranks of this one's stage, without send() and
 *  recv(); NULL: the rank is alone there. With one stage: the table of all
 *  ranks. */
const bt_collectives_t *bt_coll_shm_stage(const bt_coll_shm_t *shm);

/** Breaks the collectives after a rank is lost or hangs: no call waits any
 *  longer, at any rank. */
void bt_coll_shm_break(bt_coll_shm_t *shm);

#endif
