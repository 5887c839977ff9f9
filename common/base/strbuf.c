/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

#define FIRST_CAP_BYTES 256

void bt_strbuf_init(bt_strbuf_t *buf, size_t limit_bytes)
{
    memset(buf, 0, sizeof(*buf));
    buf->limit = limit_bytes;
}

void bt_strbuf_fini(bt_strbuf_t *buf)
{
    bt_free(buf->data);
    bt_strbuf_init(buf, buf->limit);
}

void bt_strbuf_init_fixed(bt_strbuf_t *buf, char *memory, size_t bytes)
{
    bt_strbuf_init(buf, bytes - 1);
    buf->data = memory;
    buf->cap = bytes;
    memory[0] = '\0';
}

void bt_strbuf_reset(bt_strbuf_t *buf)
{
    buf->len = 0;
    buf->status = BT_OK;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

static int set_cap(bt_strbuf_t *buf, size_t cap)
{
    char *data = bt_realloc_array(buf->data, cap, 1);

    if (data == NULL) {
        buf->status = BT_ERR_NO_MEMORY;
        return -1;
    }
    if (buf->data == NULL) {
        data[0] = '\0';
    }
    buf->data = data;
    buf->cap = cap;
    return 0;
}

void bt_strbuf_reserve(bt_strbuf_t *buf, size_t n)
{
    if ((buf->status != BT_OK) || (n < buf->cap)) {
        return;
    }
    if (n > buf->limit) {
        buf->status = BT_ERR_TOO_LARGE;
        return;
    }
    (void)set_cap(buf, n + 1); /* the error sticks */
}

/* Ensures memory for n more bytes and the zero byte, or returns the sticky
 * error. */
static int make_room(bt_strbuf_t *buf, size_t n)
{
    size_t cap = (buf->cap == 0) ? FIRST_CAP_BYTES : buf->cap;

    if (buf->status != BT_OK) {
        return -1;
    }
    if (n > buf->limit - buf->len) {
        buf->status = BT_ERR_TOO_LARGE;
        return -1;
    }
    if (buf->len + n < buf->cap) {
        return 0;
    }
    while (cap <= buf->len + n) {
        cap *= 2;
    }
    return set_cap(buf, cap);
}

void bt_strbuf_append_slowly(bt_strbuf_t *buf, const void *data, size_t n)
{
    if (make_room(buf, n) != 0) {
        return;
    }
    if (n > 0) {
        memcpy(buf->data + buf->len, data, n);
    }
    buf->len += n;
    buf->data[buf->len] = '\0';
}

void bt_strbuf_puts(bt_strbuf_t *buf, const char *text)
{
    bt_strbuf_append(buf, text, strlen(text));
}

void bt_strbuf_printf(bt_strbuf_t *buf, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if ((n < 0) || (make_room(buf, (size_t)n) != 0)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, args);
    va_end(args);
    buf->len += (size_t)n;
}

void bt_strbuf_consume(bt_strbuf_t *buf, size_t n)
{
    if (n >= buf->len) {
        n = buf->len;
    }
    if (n == 0) {
        return;
    }
    memmove(buf->data, buf->data + n, buf->len - n + 1);
    buf->len -= n;
}

bt_status_t bt_strbuf_status(const bt_strbuf_t *buf)
{
    return buf->status;
}
