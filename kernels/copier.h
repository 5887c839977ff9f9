/* SPDX-License-Identifier: Apache-2.0 */
/** @file copier.h
 *
 * Asynchronous copies between host and device memory: the part of a device that
 * kvtransfer needs. Implemented by kernels/cuda (bt_kernels_ops.copier_open)
 * and, in tests, by a simulated device in host memory.
 *
 *     host ── to_device(ticket 3) ──▶ device        returns at once
 *     query(3) → BT_INPROGRESS … BT_OK              then ticket 3 is free again
 *
 * The caller names each copy by a *ticket*, a number below n_tickets that no
 * copy in flight uses. Copies may complete in any order. Until query() has
 * returned something other than BT_INPROGRESS, both sides of a copy belong to
 * the device: the source may still be read and must not change, the target may
 * still be written.
 *
 * A copy is not ordered against other work of the device: its source must be
 * complete before it begins, and its target must not be used before it has
 * ended.
 *
 * Device memory can be *shared* with another process on the same host, if both
 * devices (possibly one) and the system allow it. Bytes then go from device to
 * device without passing a CPU, so the devices compute the checksums
 * (kernels/device_hash.h), each over its own side:
 *
 *     owner                                  the other process
 *     share(buffer) ── handle (any way) ──▶  open_shared() → its pointer
 *                                            between(there, here, ticket 5)
 *                                            query(5) → BT_OK; hashed(5)
 *     hash(buffer + …, ticket 2) …           close_shared()
 *     hashed(2): equal
 *
 * Shared memory stays with its owner, which frees it after the other processes
 * have closed it, or by exiting.
 *
 * Threads: one at a time.
 */
#ifndef BT_KERNELS_COPIER_H
#define BT_KERNELS_COPIER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Size of an opaque handle. Equal for every device and build, since handles
 *  are sent to other hosts. */
#define BT_COPIER_HANDLE_BYTES 96u
/** Maximum bytes of one between() or hash(). */
#define BT_COPIER_MAX_BYTES (1u << 20)

typedef struct bt_copier {
    void *user;         /**< first argument of the functions below */
    uint32_t n_tickets; /**< maximum copies in flight */

    /** Allocates pinned host memory that the device accesses directly, 64-byte
     *  aligned. @retval BT_ERR_NO_MEMORY */
    bt_status_t (*host_alloc)(void *user, size_t bytes, void **ptr_p);
    /** Frees memory of host_alloc() that no copy in flight uses. */
    void (*host_free)(void *user, void *ptr);

    /** Begins a copy into / from memory of host_alloc().
     *  @retval BT_ERR_DEVICE  nothing was begun, the ticket is free */
    bt_status_t (*to_host)(void *user, void *host, const void *device,
                           size_t bytes, uint32_t ticket);
    bt_status_t (*to_device)(void *user, void *device, const void *host,
                             size_t bytes, uint32_t ticket);

    /** Name of the sharing method, for logs ("cuda_ipc"). NULL: memory of this
     *  device cannot be shared, and the functions below except query() and
     *  wait_all() are absent. */
    const char *share_name;
    /** Creates a handle of @a buffer, which is the start of an allocation.
     *  @retval BT_ERR_UNSUPPORTED  not on this device; see why_not() */
    bt_status_t (*share)(void *user, void *buffer,
                         uint8_t handle[BT_COPIER_HANDLE_BYTES]);
    /** Maps the buffer of another process's handle into this device. May take
     *  milliseconds.
     *  @retval BT_ERR_UNSUPPORTED  another kind of handle, or unreachable, or
     *      gone; see why_not() */
    bt_status_t (*open_shared)(void *user,
                               const uint8_t handle[BT_COPIER_HANDLE_BYTES],
                               void **buffer_p);
    /** Unmaps a shared buffer that no copy in flight uses. */
    void (*close_shared)(void *user, void *buffer);
    /** Returns the reason of the last refused share() or open_shared(); static
     *  text. */
    const char *(*why_not)(void *user);
    /** Begins a copy of at most BT_COPIER_MAX_BYTES into a buffer of
     *  open_shared(), or into the process's own memory, and the hash of the
     *  bytes read.
     *  @retval BT_ERR_INVALID_PARAM  from or to is not 4-byte aligned
     *  @retval BT_ERR_DEVICE  nothing was begun, the ticket is free */
    bt_status_t (*between)(void *user, void *to, const void *from, size_t bytes,
                           uint64_t seed, uint32_t ticket);
    /** Begins the hash of @a bytes bytes in memory that this device can access.
     *  @retval BT_ERR_INVALID_PARAM  @a device is not 4-byte aligned
     *  @retval BT_ERR_DEVICE  nothing was begun, the ticket is free */
    bt_status_t (*hash)(void *user, const void *device, size_t bytes,
                        uint64_t seed, uint32_t ticket);
    /** Returns bt_device_hash() of the bytes read by the last between() or
     *  hash() with this ticket. Valid after query() returned BT_OK, until the
     *  ticket's next use. */
    uint64_t (*hashed)(void *user, uint32_t ticket);

    /** Polls a copy; never blocks.
     *  @retval BT_OK          complete, the ticket is free
     *  @retval BT_INPROGRESS  still running
     *  @retval BT_ERR_DEVICE  failed and ended, the ticket is free */
    bt_status_t (*query)(void *user, uint32_t ticket);

    /** Waits until no copy is in flight; all tickets are free. */
    void (*wait_all)(void *user);
} bt_copier_t;

/** Polls until the copy has ended, for callers with nothing else to do.
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
