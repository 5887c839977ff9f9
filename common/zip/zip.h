/* SPDX-License-Identifier: Apache-2.0 */
/** @file zip.h
 *
 * Bodies as HTTP's Content-Encoding packs them, whole, in memory. What comes
 * out is bounded by the limit of the buffer it goes to, however much the packed
 * bytes say they are.
 *
 * Threads: pure functions.
 * Source:  RFC 1950 (zlib, HTTP's "deflate"), RFC 1951, RFC 1952 (gzip).
 */
#ifndef BT_COMMON_ZIP_ZIP_H
#define BT_COMMON_ZIP_ZIP_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

typedef enum bt_zip {
    BT_ZIP_GZIP,
    BT_ZIP_DEFLATE, /**< zlib; unpacking takes the bare format, too, which some
                         clients mean by it */
} bt_zip_t;

/** A byte becomes no more than so many, whatever it is. */
#define BT_ZIP_MAX_RATIO 1032u

/**
 * Unpack all of @a data; gzip members may follow each other.
 *
 * @param [in,out] out  is appended to, up to its limit
 * @retval BT_ERR_TOO_LARGE  it would be more than out's limit
 * @retval BT_ERR_CORRUPT    it is not of this format, ends too soon, or more
 *                           follows
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_CANCELED   the thread's task is (common/base/task.h)
 */
BT_MUST_CHECK bt_status_t bt_unzip(bt_zip_t format, const void *data,
                                   size_t bytes, bt_strbuf_t *out);
/** Pack, quickly rather than well.
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY, BT_ERR_CANCELED */
BT_MUST_CHECK bt_status_t bt_zip(bt_zip_t format, const void *data,
                                 size_t bytes, bt_strbuf_t *out);

/** Packs a body part by part. */
typedef struct bt_zipper bt_zipper_t;

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_zipper_create(bt_zip_t format,
                                           bt_zipper_t **zipper_p);
void bt_zipper_destroy(bt_zipper_t *zipper); /**< NULL is allowed */
/** Append what the next part becomes; nothing may come after the last one.
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY, BT_ERR_CANCELED */
BT_MUST_CHECK bt_status_t bt_zipper_add(bt_zipper_t *zipper, const void *data,
                                        size_t bytes, bool is_last,
                                        bt_strbuf_t *out);

#endif
