/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll_shm.h
 *
 * The collectives of ranks on one host, through memory that all of them map:
 *
 *     segment   head of rank 0 │ head of rank 1 │ …      a cache line each
 *               slot of rank 0, even calls │ odd calls
 *               slot of rank 1, even calls │ odd calls │ …
 *
 * A call goes in rounds. In each, every rank writes its piece into its slot and
 * says so in its head; who has seen all say so reads theirs. Slots take turns,
 * so that nobody writes over what another one still reads: who has come to
 * round n + 2 has seen all in round n + 1, where they are done with round n.
 *
 * Short sums are made by each rank over all slots; of long ones each makes a
 * part, which the others fetch (reduce-scatter, all-gather). Both add in the
 * order of coll_tree.h, element by element: the same bits, and those of MPI.
 *
 * Ranks may be in *groups* of as many each, one behind the other, as the stages
 * of a pipeline are. Each group has heads and slots of its own behind those of
 * all, for sums within it, and rank r a *channel* to rank r + group_size (from
 * the last group to the first one): a ring of BT_COLL_SHM_CHANNEL_SLOTS slots,
 * so that who sends goes on while who receives is still at work.
 *
 *     segment   all ranks │ group 0 │ group 1 │ … │ channel of rank 0 │ …
 *
 * Who waits spins for some microseconds, then yields, then sleeps (futex), so
 * that ranks without work of their own cost nothing.
 *
 * Threads: one thread of each rank calls; bt_coll_shm_break() is for any.
 * Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
 *         Communication Operations in MPICH", 2005.
 */
#ifndef BT_COMMON_COLL_COLL_SHM_H
#define BT_COMMON_COLL_COLL_SHM_H

#include "common/coll/coll.h"

#define BT_COLL_SHM_MAX_RANKS     64u
#define BT_COLL_SHM_CHANNEL_SLOTS 8u

typedef struct bt_coll_shm bt_coll_shm_t;

/** Of the segment for so many ranks with slots of @a slot_bytes, which are
 *  rounded up. 0: too many ranks, too large, or no whole number of groups. */
size_t bt_coll_shm_bytes(uint32_t size, uint32_t group_size, size_t slot_bytes);

/**
 * @param [in]  segment  Mapped by all ranks, at any address of 64; all zero
 *                       before the first one opens it. Borrowed until close.
 * @param [in]  bytes    bt_coll_shm_bytes() of the same numbers at all ranks.
 * @param [in]  group_size  Ranks of a group; size: all are one, and there are
 *                          no channels.
 * @param [out] shm_p    Close it with bt_coll_shm_close().
 * @retval BT_ERR_INVALID_PARAM  rank, size, group_size or bytes
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_coll_shm_open(void *segment, size_t bytes,
                                           uint32_t rank, uint32_t size,
                                           uint32_t group_size,
                                           size_t slot_bytes,
                                           bt_coll_shm_t **shm_p);
void bt_coll_shm_close(bt_coll_shm_t *shm); /**< NULL is allowed. */

/** Its calls return BT_ERR_PEER_LOST after bt_coll_shm_break(). */
const bt_collectives_t *bt_coll_shm_collectives(const bt_coll_shm_t *shm);
/** Of the ranks of this one's group, without send() and recv(); NULL: it is
 *  alone there. Where there is one group: that of all. */
const bt_collectives_t *bt_coll_shm_group(const bt_coll_shm_t *shm);

/** A rank is gone or hangs: no call waits any longer, at any rank. */
void bt_coll_shm_break(bt_coll_shm_t *shm);

#endif
