/* SPDX-License-Identifier: Apache-2.0 */
/** @file returns.h
 *
 * Words that come back to the host behind the operations that were queued,
 * while the next ones are being queued: so a caller need not wait with one step
 * until it knows what came of the step before.
 *
 *     … operations ── send(0, ids) ── operations … ── send(1, ids) ── …
 *                         wait(0) ◀──┘ when the first ones are done
 *
 * A *slot* is host memory for one send. From send() to the wait() that follows
 * it belongs to the device.
 *
 * Threads: the one that drives the back end.
 */
#ifndef BT_KERNELS_RETURNS_H
#define BT_KERNELS_RETURNS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_returns {
    void *user; /**< of the functions below; NULL: it is not open */
    uint32_t n_slots;

    /** Queue a copy of back-end memory behind all operations so far, into a
     *  slot that nothing is on its way to. What fails is told by wait().
     *  @param [in] bytes  at most those of a slot; 0: there is only the wait */
    void (*send)(void *user, uint32_t slot, const void *src, size_t bytes);

    /** Wait until the slot's copy, and so all that was queued before it, is
     *  done. Errors of operations queued since may be told, too.
     *  @param [out] host_p  the slot's bytes, until its next send()
     *  @retval BT_ERR_DEVICE */
    bt_status_t (*wait)(void *user, uint32_t slot, const void **host_p);
} bt_returns_t;

#endif
