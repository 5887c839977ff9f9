/* SPDX-License-Identifier: Apache-2.0 */
/** @file returns.h
 *
 * Asynchronous copies of results to the host, queued behind the operations,
 * while the next operations are being queued: the caller can queue a step
 * before it knows the result of the step before.
 *
 *     … operations ── send(0, ids) ── operations … ── send(1, ids) ── …
 *                         wait(0) ◀──┘ when the first ones are done
 *
 * A *slot* is host memory for one send. From send() to the following wait() it
 * belongs to the device.
 *
 * Threads: the thread that drives the back end.
 */
#ifndef BT_KERNELS_RETURNS_H
#define BT_KERNELS_RETURNS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_returns {
    void *user; /**< first argument of the functions below; NULL: not open */
    uint32_t n_slots;

    /** Queues a copy of back-end memory into an idle slot, behind all
     *  operations queued so far. wait() reports failures.
     *  @param [in] bytes  at most the slot's size; 0: only a point to wait
     *      for */
    void (*send)(void *user, uint32_t slot, const void *src, size_t bytes);

    /** Waits until the slot's copy, and everything queued before it, is done.
     *  May also report errors of operations queued since.
     *  @param [out] host_p  the slot's bytes, until its next send()
     *  @retval BT_ERR_DEVICE */
    bt_status_t (*wait)(void *user, uint32_t slot, const void **host_p);
} bt_returns_t;

#endif
