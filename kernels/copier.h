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
 * Memory of a device can be *shared* with a process of the same host, where
 * both devices (it may be one) and the system allow it. Then bytes go from
 * device to device, and no processor sees them; so the devices make their
 * checksums (kernels/device_hash.h), each of what it has:
 *
 *     owner                                  the other process
 *     share(buffer) ── handle (any way) ──▶  open_shared() → its pointer
 *                                            between(there, here, ticket 5)
 *                                            query(5) → BT_OK; hashed(5)
 *     hash(buffer + …, ticket 2) …           close_shared()
 *     hashed(2): the same
 *
 * What was shared stays the owner's, who frees it after the others closed it,
 * or with its process.
 *
 * Threads: one at a time.
 */
#ifndef BT_KERNELS_COPIER_H
#define BT_KERNELS_COPIER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Of a handle, opaque; as long for every device, as it goes to other hosts'
 *  builds. */
#define BT_COPIER_HANDLE_BYTES 96u
/** Most that one between() or hash() takes. */
#define BT_COPIER_MAX_BYTES (1u << 20)

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

    /** The way to shared memory, for logs ("cuda_ipc"); NULL: memory of this
     *  device cannot be shared, and what is below but query() and wait_all()
     *  is not there. */
    const char *share_name;
    /** A handle of @a buffer, which is the beginning of an allocation.
     *  @retval BT_ERR_UNSUPPORTED  not of this device; why_not() */
    bt_status_t (*share)(void *user, void *buffer,
                         uint8_t handle[BT_COPIER_HANDLE_BYTES]);
    /** The buffer of a handle, as the own device reaches it; not of an own
     *  handle. May take milliseconds.
     *  @retval BT_ERR_UNSUPPORTED  of another kind, or out of reach, or gone;
     *                              why_not() */
    bt_status_t (*open_shared)(void *user,
                               const uint8_t handle[BT_COPIER_HANDLE_BYTES],
                               void **buffer_p);
    /** Nothing is under way with it. */
    void (*close_shared)(void *user, void *buffer);
    /** Of the last share() or open_shared() that was refused; static text. */
    const char *(*why_not)(void *user);
    /** Begin a copy of at most BT_COPIER_MAX_BYTES into a buffer of
     *  open_shared(), or into the own memory, and the hash of what it reads.
     *  @retval BT_ERR_INVALID_PARAM  from or to is not on 4 bytes
     *  @retval BT_ERR_DEVICE  nothing was begun, the ticket is free */
    bt_status_t (*between)(void *user, void *to, const void *from, size_t bytes,
                           uint64_t seed, uint32_t ticket);
    /** Begin the hash of so many bytes that this device reaches.
     *  @retval BT_ERR_INVALID_PARAM  it is not on 4 bytes
     *  @retval BT_ERR_DEVICE  nothing was begun, the ticket is free */
    bt_status_t (*hash)(void *user, const void *device, size_t bytes,
                        uint64_t seed, uint32_t ticket);
    /** bt_device_hash() of what the last between() or hash() of this ticket
     *  read, once query() has said BT_OK, until the ticket's next use. */
    uint64_t (*hashed)(void *user, uint32_t ticket);

    /** How is the copy? Never blocks.
     *  @retval BT_OK          it is done, the ticket is free
     *  @retval BT_INPROGRESS  ask again
     *  @retval BT_ERR_DEVICE  it failed and has ended, the ticket is free */
    bt_status_t (*query)(void *user, uint32_t ticket);

    /** Wait until no copy is under way; all tickets are free. */
    void (*wait_all)(void *user);
} bt_copier_t;

/** Ask until the copy has ended: for who has nothing else to do.
 *  @return as query(), never BT_INPROGRESS */
static inline bt_status_t bt_copier_wait(const bt_copier_t *copier,
                                         uint32_t ticket)
{
    bt_status_t status;

    do {
        status = copier->query(copier->user, ticket);
    } while (status == BT_INPROGRESS);
    return status;
}

#endif
