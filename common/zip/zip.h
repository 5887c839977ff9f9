/* SPDX-License-Identifier: Apache-2.0 */
/** @file zip.h
 *
 * HTTP Content-Encoding of bodies, whole, in memory. The output is bounded by
 * the limit of its buffer, whatever size the compressed data claims.
 *
 * Threads: pure functions.
 * Source:  RFC 1950 (zlib, HTTP's "deflate"), RFC 1951, RFC 1952 (gzip).
 */
#ifndef BT_COMMON_ZIP_ZIP_H
#define BT_COMMON_ZIP_ZIP_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/text.h"

typedef enum bt_zip {
    BT_ZIP_GZIP,
    BT_ZIP_DEFLATE, /**< zlib; decompression accepts raw deflate, too, which
                         some clients send */
} bt_zip_t;

/** Largest ratio of decompressed to compressed size. */
#define BT_ZIP_MAX_RATIO 1032u

/**
 * Decompresses all of @a data; gzip members may follow each other.
 *
 * @param [in,out] out  appended to, up to its limit
 * @retval BT_ERR_TOO_LARGE  the output exceeds out's limit
 * @retval BT_ERR_CORRUPT    not of this format, truncated, or followed by more
 *                           data
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_CANCELED   the thread's task is canceled (common/base/task.h)
 */
BT_MUST_CHECK bt_status_t bt_unzip(bt_zip_t format, const void *data,
                                   size_t bytes, bt_strbuf_t *out);
/**
 * Compresses data, fast rather than small.
 * @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY, BT_ERR_CANCELED
 */
BT_MUST_CHECK bt_status_t bt_zip(bt_zip_t format, const void *data,
                                 size_t bytes, bt_strbuf_t *out);

/** Compressor of a body in parts. */
typedef struct bt_zipper bt_zipper_t;

/** Creates a compressor. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_zipper_create(bt_zip_t format,
                                           bt_zipper_t **zipper_p);
void bt_zipper_destroy(bt_zipper_t *zipper); /**< NULL is allowed */
/**
 * Appends the compressed next part; nothing may follow the last one.
 * @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY, BT_ERR_CANCELED
 */
BT_MUST_CHECK bt_status_t bt_zipper_add(bt_zipper_t *zipper, const void *data,
                                        size_t bytes, bool is_last,
                                        bt_strbuf_t *out);

#endif
