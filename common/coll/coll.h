/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll.h
 *
 * Collectives among the ranks of one instance, and point-to-point messages: a
 * function table independent of the transport. common/cluster fills one over
 * MPI, the CUDA plugin one over NCCL; an instance of one process has none
 * (NULL).
 *
 * Every call except send() and the receives is collective: all ranks make the
 * same calls in the same order with the same sizes, each from the thread that
 * opened the transport. A call returns when the result is available (MPI) or
 * queued on the back end's stream (NCCL). Buffers are in the transport's
 * memory: the host's for MPI, the device's for NCCL; they are borrowed until
 * then and do not overlap.
 *
 * After a failed call the ranks no longer agree on their position in the call
 * sequence: the instance has to end.
 */
#ifndef BT_COMMON_COLL_COLL_H
#define BT_COMMON_COLL_COLL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_COLL_MAX_BEGUN 16u /**< most receives in flight */

/** Function table of a transport. */
typedef struct bt_collectives {
    void *ctx; /**< first argument of every call */
    uint32_t rank;
    uint32_t size; /**< at least 2 */
    /**
     * Adds in place: buf[i] = the sum of all ranks' buf[i], bit-identical on
     * every rank: added in the order of coll_shm.h with every transport.
     * @retval BT_ERR_INTERNAL  MPI failed
     * @retval BT_ERR_DEVICE    NCCL failed
     */
    bt_status_t (*all_reduce_sum)(void *ctx, float *buf, size_t n);
    /**
     * Gathers: recv[r * bytes_each ...] = send of rank r; recv has size times
     * @a bytes_each.
     * @retval BT_ERR_TOO_LARGE  above 2 GiB each, over MPI; nothing was sent
     * @retval BT_ERR_INTERNAL, BT_ERR_DEVICE  as all_reduce_sum()
     */
    bt_status_t (*all_gather)(void *ctx, const void *send, void *recv,
                              size_t bytes_each);
    /**
     * Copies buf of @a root to every rank.
     * @retval BT_ERR_INVALID_PARAM  no such rank
     * @retval BT_ERR_INTERNAL, BT_ERR_DEVICE  as all_reduce_sum()
     */
    bt_status_t (*broadcast)(void *ctx, void *buf, size_t bytes, uint32_t root);
    /**
     * Sends bytes from one rank to another. Not collective; recv() of as many
     * bytes receives them in the order sent. May return before they are
     * received. The transport limits the pairs of ranks: over shared memory,
     * neighbours in a pipeline (coll_shm.h).
     * @retval BT_ERR_INVALID_PARAM  not between these ranks
     * @retval BT_ERR_INTERNAL, BT_ERR_DEVICE  as all_reduce_sum()
     */
    bt_status_t (*send)(void *ctx, const void *buf, size_t bytes, uint32_t to);
    bt_status_t (*recv)(void *ctx, void *buf, size_t bytes, uint32_t from);
    /**
     * Receives in two parts. In between, this rank may make all calls but
     * recv(), and while it waits in one of them, incoming data is received: so
     * two ranks that send to each other do not deadlock. @a buf is borrowed
     * until recv_end(), which completes the oldest receive; at most
     * BT_COLL_MAX_BEGUN at a time. NULL: not supported by the transport (NCCL).
     * @retval BT_ERR_BUSY           too many are begun
     * @retval BT_ERR_TOO_LARGE      above 2 GiB, over MPI
     * @retval BT_ERR_INVALID_PARAM  not between these ranks; recv_end(): none
     *                               was begun
     * @retval BT_ERR_INTERNAL, BT_ERR_DEVICE  as all_reduce_sum()
     */
    bt_status_t (*recv_begin)(void *ctx, void *buf, size_t bytes,
                              uint32_t from);
    bt_status_t (*recv_end)(void *ctx);
} bt_collectives_t;

#endif
