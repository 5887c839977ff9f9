/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll.h
 *
 * Sums and gathers among the ranks of one instance, and what one sends to
 * another: a table that says nothing of who carries the bytes. common/cluster
 * fills one over MPI, the CUDA plugin one over NCCL; an instance of one process
 * has none (NULL).
 *
 * Every call but send() and those that receive is collective: all ranks make
 * the same calls in the same order with the same sizes, each from the thread
 * that opened what filled the table. A call returns when the result is there
 * (MPI) or queued on the back end's stream (NCCL). Buffers are memory of the
 * one who carries: the host's for MPI, the device's for NCCL; they are borrowed
 * until then and do not overlap.
 *
 * After a failed call the ranks no longer agree on where they are: the instance
 * has to end.
 */
#ifndef BT_COMMON_COLL_COLL_H
#define BT_COMMON_COLL_COLL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_COLL_MAX_BEGUN 16u

typedef struct bt_collectives {
    void *ctx; /**< first argument of every call */
    uint32_t rank;
    uint32_t size; /**< at least 2 */
    /** In place: buf[i] = the sum of all ranks' buf[i], the same bits on every
     *  rank: added in the order of coll_tree.h, whoever carries.
     *  @retval BT_ERR_INTERNAL  MPI failed  @retval BT_ERR_DEVICE  NCCL did */
    bt_status_t (*all_reduce_sum)(void *ctx, float *buf, size_t n);
    /** recv[r * bytes_each ...] = what rank r sent; recv holds size times
     *  @a bytes_each. @retval BT_ERR_TOO_LARGE  above 2 GiB each, over MPI;
     *  nothing was sent. Otherwise as above. */
    bt_status_t (*all_gather)(void *ctx, const void *send, void *recv,
                              size_t bytes_each);
    /** buf of every rank = that of @a root.
     *  @retval BT_ERR_INVALID_PARAM  no such root. Otherwise as above. */
    bt_status_t (*broadcast)(void *ctx, void *buf, size_t bytes, uint32_t root);
    /** Not collective: bytes from one rank to another, whose recv() of as many
     *  takes them in the order in which they were sent. It may return before
     *  they are taken. Who carries says between which ranks: over shared memory
     *  those that stand one behind the other in a pipeline (coll_shm.h).
     *  @retval BT_ERR_INVALID_PARAM  not between these. Otherwise as above. */
    bt_status_t (*send)(void *ctx, const void *buf, size_t bytes, uint32_t to);
    bt_status_t (*recv)(void *ctx, void *buf, size_t bytes, uint32_t from);
    /** A recv() in two parts. Between them this rank may make all calls but
     *  recv(), and while it waits in one of them what has come is taken: so two
     *  that send to each other do not wait for each other. @a buf is borrowed
     *  until recv_end(), which is for the oldest that was begun;
     *  BT_COLL_MAX_BEGUN of them at a time. NULL: who carries has no such calls
     *  (NCCL).
     *  @retval BT_ERR_BUSY  so many are begun
     *  @retval BT_ERR_TOO_LARGE  above 2 GiB, over MPI
     *  @retval BT_ERR_INVALID_PARAM  not between these; recv_end(): none was
     *  begun. Otherwise as recv(). */
    bt_status_t (*recv_begin)(void *ctx, void *buf, size_t bytes,
                              uint32_t from);
    bt_status_t (*recv_end)(void *ctx);
} bt_collectives_t;

#endif
