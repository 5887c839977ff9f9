/* SPDX-License-Identifier: Apache-2.0 */
#include "common/zip/zip.h"

#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>

#include "common/base/alloc.h"
#include "common/base/task.h"

#define CHUNK_BYTES ((size_t)32 * 1024)
#define LEVEL       1
#define BARE        (-15) /* window bits: no frame */
#define FRAME_ZLIB  15
#define FRAME_GZIP  (15 + 16)

static void *allocate(void *opaque, unsigned n, unsigned size)
{
    (void)opaque;
    return bt_calloc(n, size);
}

static void release(void *opaque, void *memory)
{
    (void)opaque;
    bt_free(memory);
}

/* zlib counts in unsigned: longer data is fed in parts. */
static void feed(z_stream *z, size_t *rest)
{
    if ((z->avail_in == 0) && (*rest > 0)) {
        z->avail_in = (*rest > UINT32_MAX) ? UINT32_MAX : (uInt)*rest;
        *rest -= z->avail_in;
    }
}

static void begin(z_stream *z, const void *data)
{
    *z = (z_stream){.zalloc = allocate, .zfree = release};
    /* zlib's z_const is not const unless asked for; it writes nothing. */
    z->next_in = (Bytef *)(uintptr_t)data;
}

/* True when a frame of RFC 1950 begins here, by its first two bytes. */
static bool has_zlib_frame(const uint8_t *data, size_t bytes)
{
    return (bytes >= 2) && ((data[0] & 0x0F) == 8) &&
           (((unsigned)data[0] * 256 + data[1]) % 31 == 0);
}

/* Appends the chunk. @return false: beyond the limit */
static bool put(bt_strbuf_t *out, const uint8_t *chunk, size_t n)
{
    if (n > out->limit - out->len) {
        return false;
    }
    bt_strbuf_append(out, chunk, n);
    return true;
}

/* Processes all of it, until the end or a fault. */
static bt_status_t inflate_all(z_stream *z, bt_zip_t format, size_t rest,
                               uint8_t *chunk, bt_strbuf_t *out)
{
    for (;;) {
        int code;

        if (bt_task_poll()) {
            return BT_ERR_CANCELED;
        }
        feed(z, &rest);
        z->next_out = chunk;
        z->avail_out = CHUNK_BYTES;
        code = inflate(z, Z_NO_FLUSH);
        if (!put(out, chunk, CHUNK_BYTES - z->avail_out)) {
            return BT_ERR_TOO_LARGE;
        }
        if (bt_strbuf_status(out) != BT_OK) {
            return bt_strbuf_status(out);
        }
        if (code == Z_MEM_ERROR) {
            return BT_ERR_NO_MEMORY;
        }
        if (code == Z_STREAM_END) {
            if ((z->avail_in == 0) && (rest == 0)) {
                return BT_OK;
            }
            if ((format != BT_ZIP_GZIP) || (inflateReset(z) != Z_OK)) {
                return BT_ERR_CORRUPT;
            }
        } else if (code != Z_OK) {
            return BT_ERR_CORRUPT; /* Z_BUF_ERROR: it ends too soon */
        }
    }
}

bt_status_t bt_unzip(bt_zip_t format, const void *data, size_t bytes,
                     bt_strbuf_t *out)
{
    int frame = FRAME_GZIP;
    z_stream z;
    uint8_t *chunk;
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (bytes == 0) {
        return BT_ERR_CORRUPT;
    }
    if (format == BT_ZIP_DEFLATE) {
        frame = has_zlib_frame(data, bytes) ? FRAME_ZLIB : BARE;
    }
    chunk = bt_calloc(1, CHUNK_BYTES);
    if (chunk == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    begin(&z, data);
    if (inflateInit2(&z, frame) == Z_OK) {
        status = inflate_all(&z, format, bytes, chunk, out);
        (void)inflateEnd(&z);
    }
    bt_free(chunk);
    return status;
}

struct bt_zipper {
    z_stream z;
    uint8_t chunk[CHUNK_BYTES];
};

bt_status_t bt_zipper_create(bt_zip_t format, bt_zipper_t **zipper_p)
{
    const int frame = (format == BT_ZIP_GZIP) ? FRAME_GZIP : FRAME_ZLIB;
    bt_zipper_t *zipper = bt_calloc(1, sizeof(*zipper));

    if (zipper == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    begin(&zipper->z, NULL);
    if (deflateInit2(&zipper->z, LEVEL, Z_DEFLATED, frame, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        bt_free(zipper);
        return BT_ERR_NO_MEMORY;
    }
    *zipper_p = zipper;
    return BT_OK;
}

void bt_zipper_destroy(bt_zipper_t *zipper)
{
    if (zipper != NULL) {
        (void)deflateEnd(&zipper->z);
        bt_free(zipper);
    }
}

bt_status_t bt_zipper_add(bt_zipper_t *zipper, const void *data, size_t bytes,
                          bool is_last, bt_strbuf_t *out)
{
    z_stream *z = &zipper->z;
    size_t rest = bytes;
    bool more;
    int code;

    /* zlib's z_const is not const unless asked for; it writes nothing. */
    z->next_in = (Bytef *)(uintptr_t)data;
    do {
        if (bt_task_poll()) {
            return BT_ERR_CANCELED;
        }
        feed(z, &rest);
        z->next_out = zipper->chunk;
        z->avail_out = CHUNK_BYTES;
        code = deflate(z, (is_last && (rest == 0)) ? Z_FINISH : Z_NO_FLUSH);
        if (!put(out, zipper->chunk, CHUNK_BYTES - z->avail_out)) {
            return BT_ERR_TOO_LARGE;
        }
        more = is_last
                   ? (code != Z_STREAM_END)
                   : ((rest > 0) || (z->avail_in > 0) || (z->avail_out == 0));
    } while (more && (bt_strbuf_status(out) == BT_OK));
    return bt_strbuf_status(out);
}

bt_status_t bt_zip(bt_zip_t format, const void *data, size_t bytes,
                   bt_strbuf_t *out)
{
    bt_zipper_t *zipper = NULL;
    bt_status_t status = bt_zipper_create(format, &zipper);

    if (status == BT_OK) {
        status = bt_zipper_add(zipper, data, bytes, true, out);
    }
    bt_zipper_destroy(zipper);
    return status;
}
