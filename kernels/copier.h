/* SPDX-License-Identifier: Apache-2.0 */
/** @file copier.h
 *
 * Copies between host and device memory that run beside everything else: what
 * kvtransfer needs of a device, and nothing of the device itself. Filled by
 * kernels/cuda (bt_kernels_ops.copier_open) and, in tests, by a device made of
 * host memory.
 *
 *     host ── to_device(ticket 3) ──▶ device        returns at once
 *     query(3) → BT_INPROGRESS … BT_OK              then ticket 3 is free again
 *
 * The caller names each copy by a *ticket*, a number below n_tickets that no
 * copy under way has. Copies may end in any order. Until query() has answered
 * something other than BT_INPROGRESS, both sides of a copy belong to the
 * device: the source must not change and may still be read, the target may
 * still be written.
 *
 * A copy is not ordered against the device's other work: what it reads must be
 * finished before it begins, and nobody may use what it writes before it ended.
 *
 * Threads: one at a time.
 */
#ifndef BT_KERNELS_COPIER_H
#define BT_KERNELS_COPIER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_copier {
    void *user;         /**< of the functions below */
    uint32_t n_tickets; /**< copies that may be under way at a time */

    /** Host memory that the device reaches by itself (pinned), 64-byte
     *  aligned. @retval BT_ERR_NO_MEMORY */
    bt_status_t (*host_alloc)(void *user, size_t bytes, void **ptr_p);
    /** Nothing is under way with it. */
    void (*host_free)(void *user, void *ptr);

    /** Begin a copy into / from memory of host_alloc().
     *  @retval BT_ERR_DEVICE  nothing was begun, the ticket is free */
    bt_status_t (*to_host)(void *user, void *host, const void *device,
                           size_t bytes, uint32_t ticket);
    bt_status_t (*to_device)(void *user, void *device, const void *host,
                             size_t bytes, uint32_t ticket);

    /** How is the copy? Never blocks.
     *  @retval BT_OK          it is done, the ticket is free
     *  @retval BT_INPROGRESS  ask again
     *  @retval BT_ERR_DEVICE  it failed and has ended, the ticket is free */
    bt_status_t (*query)(void *user, uint32_t ticket);

    /** Wait until no copy is under way; all tickets are free. */
    void (*wait_all)(void *user);
} bt_copier_t;

#endif
