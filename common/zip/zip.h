/* SPDX-License-Identifier: Apache-2.0 */
/** @file zip.h
 *
 * Bodies and messages of clients, packed with gzip or deflate. What comes out
 * of a few bytes may be a thousand times as much: the buffer's limit bounds it.
 *
 * Threads: pure functions. Source: RFC 1950, RFC 1952; zlib.
 */
#ifndef BT_COMMON_ZIP_ZIP_H
#define BT_COMMON_ZIP_ZIP_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

typedef enum bt_zip_kind {
    BT_ZIP_GZIP,
    BT_ZIP_DEFLATE, /**< zlib's wrapping, as HTTP means it; or none, as some
                         send it */
} bt_zip_kind_t;

/**
 * Append what @a data holds.
 * @retval BT_OK
 * @retval BT_ERR_TOO_LARGE    It is more than the buffer's limit.
 * @retval BT_ERR_BAD_MESSAGE  It is not of this kind, or not whole.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_zip_unpack(bt_zip_kind_t kind, const void *data,
                                        size_t bytes, bt_strbuf_t *out);
/** Append @a data packed, quickly rather than small.
 *  @retval BT_OK, BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_zip_pack(bt_zip_kind_t kind, const void *data,
                                      size_t bytes, bt_strbuf_t *out);

#endif
