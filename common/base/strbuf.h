/* SPDX-License-Identifier: Apache-2.0 */
/** @file strbuf.h
 *
 * Byte string that grows up to a fixed limit. Errors stick: after one, appends
 * do nothing and bt_strbuf_status() returns it, so a writer of many pieces
 * checks once. `data` is always zero-terminated once non-NULL.
 */
#ifndef BT_COMMON_BASE_STRBUF_H
#define BT_COMMON_BASE_STRBUF_H

#include <stddef.h>
#include <string.h>

#include "common/base/status.h"

/** Growing byte string. */
typedef struct bt_strbuf {
    char *data;   /**< owned; NULL while empty */
    size_t len;   /**< bytes, without the zero at the end */
    size_t cap;   /**< bytes allocated */
    size_t limit; /**< largest len allowed */
    bt_status_t status;
} bt_strbuf_t;

/** Initialises an empty buffer. Allocates nothing. */
void bt_strbuf_init(bt_strbuf_t *buf, size_t limit_bytes);
void bt_strbuf_fini(bt_strbuf_t *buf);
/** Initialises a buffer in memory of the caller, which never allocates and
 *  needs no bt_strbuf_fini(): for code that must not allocate. */
void bt_strbuf_init_fixed(bt_strbuf_t *buf, char *memory, size_t bytes);

/** Clears content and error; keeps the memory. */
void bt_strbuf_reset(bt_strbuf_t *buf);

/** Allocates memory for @a n bytes in all, exactly; nothing if there is
 *  enough. For callers that know the size: appending doubles. */
void bt_strbuf_reserve(bt_strbuf_t *buf, size_t n);
/** Implements bt_strbuf_append() when the memory is full, or after an error. */
void bt_strbuf_append_slowly(bt_strbuf_t *buf, const void *data, size_t n);
/** Appends @a n bytes. Inline while the memory suffices: JSON is written in
 *  very small pieces. */
static inline void bt_strbuf_append(bt_strbuf_t *buf, const void *data,
                                    size_t n)
{
    if ((n == 0) || (buf->status != BT_OK) || (n >= buf->cap - buf->len) ||
        (n > buf->limit - buf->len)) {
        bt_strbuf_append_slowly(buf, data, n);
        return;
    }
    memcpy(buf->data + buf->len, data, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
}
void bt_strbuf_puts(bt_strbuf_t *buf, const char *text);
void bt_strbuf_printf(bt_strbuf_t *buf, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** Drops the first @a n bytes (at most all). */
void bt_strbuf_consume(bt_strbuf_t *buf, size_t n);

/**
 * Returns the buffer's status.
 *
 * @retval BT_OK
 * @retval BT_ERR_TOO_LARGE  The limit was reached; the content is incomplete.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_strbuf_status(const bt_strbuf_t *buf);

#endif
