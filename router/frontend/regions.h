/* SPDX-License-Identifier: Apache-2.0 */
/** @file regions.h
 *
 * Places in POSIX shared memory that clients on this host have named, to pass
 * tensors in.
 *
 *     register    name, key, offset, bytes ─▶ a region: a descriptor and bounds
 *     use         find ─▶ a reference ─▶ read, write ─▶ unref
 *     unregister  it is found no more; who has a reference goes on
 *
 *     the object   0 ......... offset ................. offset + bytes ... size
 *     the region               0 ....... offset of a use ...... bytes
 *
 * The object is a client's, which may shrink, change or fill it at any moment.
 * So nothing is mapped, and no access can raise SIGBUS: it is read and written
 * by pread() and pwrite() within the bounds of the region, each use copies
 * once, and what is found missing is an error that names the region.
 *
 * An object is taken only if it is a regular file right below BT_REGIONS_DIR
 * with this one name, of the user that this process runs as, and none of those
 * that the libraries of Baton's processes make.
 *
 * A region holds a descriptor and no memory. What is read from regions is
 * memory: bt_regions_hold() bounds it.
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
#include "router/frontend/api.h"

#define BT_REGIONS_DIR "/dev/shm" /**< where shm_open(3) has its objects */

#define BT_REGIONS_MAX       256 /**< at a time: each holds a descriptor */
#define BT_REGIONS_MAX_BYTES (UINT64_C(1) << 40) /**< of all together */
#define BT_REGION_NAME_BYTES 128                 /**< zero included */
#define BT_REGION_KEY_BYTES  256 /**< the same; NAME_MAX without a slash */

typedef struct bt_regions bt_regions_t;
typedef struct bt_region bt_region_t;

/** What a client said when it registered one. */
typedef struct bt_region_info {
    char name[BT_REGION_NAME_BYTES];
    char key[BT_REGION_KEY_BYTES]; /**< as written, with its slash if any */
    uint64_t offset, bytes;        /**< of the object */
} bt_region_info_t;

/** @param [in] max_held_bytes  see bt_regions_hold()
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_regions_create(uint64_t max_held_bytes,
                                            bt_regions_t **regions_p);
/** References may outlive it. NULL is allowed. */
void bt_regions_destroy(bt_regions_t *regions);

/**
 * @param [in] key  a name below BT_REGIONS_DIR, a slash in front or not
 * @retval BT_ERR_INVALID_PARAM  The name is empty, too long or there already;
 *                  the key is no such name; the object is not there, is not one
 *                  of ours to use or does not have these bytes. error_p says.
 * @retval BT_ERR_BUSY           Too many, or too many bytes; or no descriptor.
 * @retval BT_ERR_NO_MEMORY      error_p is filled as well
 */
BT_MUST_CHECK bt_status_t bt_regions_register(bt_regions_t *regions,
                                              const char *name, const char *key,
                                              uint64_t offset, uint64_t bytes,
                                              bt_api_error_t *error_p);
/** @param [in] name  NULL: all. One that is not there is none. */
void bt_regions_unregister(bt_regions_t *regions, const char *name);

size_t bt_regions_count(const bt_regions_t *regions);
/** @param [in] i  below bt_regions_count(), in the order they came
 *  @return valid until the next register or unregister */
const bt_region_info_t *bt_regions_at(const bt_regions_t *regions, size_t i);

/** @return a reference, to be given up with bt_region_unref(); NULL: none is
 *  named so */
bt_region_t *bt_regions_find(const bt_regions_t *regions, const char *name);
/** NULL is allowed. */
void bt_region_unref(bt_region_t *region);

/** So much is about to be read from regions and held in memory.
 *  @return false: it would be more than max_held_bytes with what is held; try
 *          again later */
bool bt_regions_hold(bt_regions_t *regions, uint64_t bytes);
/** What was held is free. */
void bt_regions_give_back(bt_regions_t *regions, uint64_t bytes);

/* ---- with a reference; on any thread ---- */

/** Do these bytes lie in the region?
 *  @retval BT_ERR_INVALID_PARAM  error_p names it */
BT_MUST_CHECK bt_status_t bt_region_check(const bt_region_t *region,
                                          uint64_t offset, uint64_t bytes,
                                          bt_api_error_t *error_p);
/** Copy from it; as costly as memory. What another process writes meanwhile is
 *  there or not, so check what came, never what is there.
 *  @param [out] out  of @a bytes; may be written in part on failure
 *  @retval BT_ERR_INVALID_PARAM  not in the region, or the object has shrunk
 *  @retval BT_ERR_IO             error_p is filled as well */
BT_MUST_CHECK bt_status_t bt_region_read(const bt_region_t *region,
                                         uint64_t offset, void *out,
                                         size_t bytes, bt_api_error_t *error_p);
/** Copy to it. An object that has shrunk is left as it is, unless it shrinks
 *  while this is written: then it grows again.
 *  @retval BT_ERR_INVALID_PARAM, BT_ERR_IO  as bt_region_read() */
BT_MUST_CHECK bt_status_t bt_region_write(const bt_region_t *region,
                                          uint64_t offset, const void *data,
                                          size_t bytes,
                                          bt_api_error_t *error_p);

#endif
