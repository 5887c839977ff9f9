/* SPDX-License-Identifier: Apache-2.0 */
/** @file regions.h
 *
 * POSIX shared-memory regions that clients on this host have registered, to
 * pass tensors in.
 *
 *     register    name, key, offset, bytes ─▶ a region: a descriptor and bounds
 *     use         find ─▶ a reference ─▶ read, write ─▶ unref
 *     unregister  cannot be found any more; existing references stay valid
 *
 *     the object   0 ......... offset ................. offset + bytes ... size
 *     the region               0 ....... offset of a use ...... bytes
 *
 * The object belongs to a client, which may shrink, change or fill it at any
 * moment. So nothing is mapped, and no access can raise SIGBUS: data is read
 * and written by pread() and pwrite() within the bounds of the region, each use
 * copies once, and missing data is an error that names the region.
 *
 * An object is accepted only if it is a regular file directly below
 * BT_REGIONS_DIR with this one name, owned by the user of this process, and not
 * created by the libraries of Baton's processes.
 *
 * A region holds a descriptor and no memory. Data read from regions takes
 * memory, which bt_regions_hold() bounds.
 *
 * Threads: everything on the event loop's thread; but bt_region_check(),
 * bt_region_read() and bt_region_write() on any, while a reference is held.
 * Source:  Triton's extension "system shared memory"; shm_open(3).
 */
#ifndef BT_ROUTER_FRONTEND_REGIONS_H
#define BT_ROUTER_FRONTEND_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "router/api/api.h"

#define BT_REGIONS_DIR "/dev/shm" /**< directory of shm_open(3) objects */

#define BT_REGIONS_MAX       256                 /**< each holds a descriptor */
#define BT_REGIONS_MAX_BYTES (UINT64_C(1) << 40) /**< total of all regions */
#define BT_REGION_NAME_BYTES 128                 /**< including the zero byte */
#define BT_REGION_KEY_BYTES  256 /**< NAME_MAX, zero byte and slash */

typedef struct bt_regions bt_regions_t;
typedef struct bt_region bt_region_t;

/** Registration data of a region. */
typedef struct bt_region_info {
    char name[BT_REGION_NAME_BYTES];
    char key[BT_REGION_KEY_BYTES]; /**< as received, with its slash if any */
    uint64_t offset, bytes;        /**< bounds within the object */
} bt_region_info_t;

/** Creates an empty set of regions.
 *  @param [in] max_held_bytes  see bt_regions_hold()
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_regions_create(uint64_t max_held_bytes,
                                            bt_regions_t **regions_p);
/** Destroys the set; references stay valid. NULL is allowed. */
void bt_regions_destroy(bt_regions_t *regions);

/**
 * Registers a region.
 *
 * @param [in] key  a name below BT_REGIONS_DIR, with or without a leading slash
 * @retval BT_ERR_INVALID_PARAM  The name is empty, too long or registered
 *   already; the key is no such name; the object does not exist, may not be
 *   used or is too small. error_p says which.
 * @retval BT_ERR_BUSY           Too many regions, or too many bytes; or no
 *   descriptor.
 * @retval BT_ERR_NO_MEMORY      error_p is filled as well
 */
BT_MUST_CHECK bt_status_t bt_regions_register(bt_regions_t *regions,
                                              const char *name, const char *key,
                                              uint64_t offset, uint64_t bytes,
                                              bt_api_error_t *error_p);
/** Unregisters a region; does nothing if there is none of this name.
 *  @param [in] name  NULL: all regions */
void bt_regions_unregister(bt_regions_t *regions, const char *name);

size_t bt_regions_count(const bt_regions_t *regions);
/** Returns the data of region @a i, valid until the next register or
 *  unregister.
 *  @param [in] i  below bt_regions_count(), in order of registration */
const bt_region_info_t *bt_regions_at(const bt_regions_t *regions, size_t i);

/** Finds a region by name. @return a reference, to be dropped with
 *  bt_region_unref(); NULL: no such region */
bt_region_t *bt_regions_find(const bt_regions_t *regions, const char *name);
/** Drops a reference. NULL is allowed. */
void bt_region_unref(bt_region_t *region);

/** Reserves memory for @a bytes about to be read from regions.
 *  @return false: the total would exceed max_held_bytes; try again later */
bool bt_regions_hold(bt_regions_t *regions, uint64_t bytes);
/** Releases memory reserved by bt_regions_hold(). */
void bt_regions_give_back(bt_regions_t *regions, uint64_t bytes);

/* ---- with a reference; on any thread ---- */

/** Checks that these bytes lie in the region.
 *  @retval BT_ERR_INVALID_PARAM  error_p names the region */
BT_MUST_CHECK bt_status_t bt_region_check(const bt_region_t *region,
                                          uint64_t offset, uint64_t bytes,
                                          bt_api_error_t *error_p);
/** Copies data from a region; as costly as a memory copy. Concurrent writes of
 *  another process may or may not be included, so check the copy, never the
 *  region.
 *  @param [out] out  @a bytes large; may be written in part on failure
 *  @retval BT_ERR_INVALID_PARAM  not in the region, or the object has shrunk
 *  @retval BT_ERR_IO             error_p is filled as well */
BT_MUST_CHECK bt_status_t bt_region_read(const bt_region_t *region,
                                         uint64_t offset, void *out,
                                         size_t bytes, bt_api_error_t *error_p);
/** Copies data to a region. An object that has shrunk is not changed, unless it
 *  shrinks during the write: then it grows again.
 *  @retval BT_ERR_INVALID_PARAM, BT_ERR_IO  as bt_region_read() */
BT_MUST_CHECK bt_status_t bt_region_write(const bt_region_t *region,
                                          uint64_t offset, const void *data,
                                          size_t bytes,
                                          bt_api_error_t *error_p);

#endif
