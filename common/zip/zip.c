/* SPDX-License-Identifier: Apache-2.0 */
#define ZLIB_CONST
#include "common/zip/zip.h"

#include <limits.h>
#include <stdint.h>
#include <zlib.h>

#include "common/base/alloc.h"

#define GZIP_BITS  (15 + 16)
#define PIECE      ((size_t)16 * 1024)
#define FAST       1
#define MEM_LEVEL  8
#define MOST_INPUT ((size_t)1 << 30)

static voidpf lib_alloc(voidpf ctx, uInt n, uInt size)
{
    (void)ctx;
    return bt_calloc(n, size);
}

static void lib_free(voidpf ctx, voidpf ptr)
{
    (void)ctx;
    bt_free(ptr);
}

static void set_input(z_stream *z, const void *data, size_t bytes)
{
    *z = (z_stream){.zalloc = lib_alloc, .zfree = lib_free};
    z->next_in = data;
    z->avail_in = (uInt)bytes;
}

/* One run of inflate() or deflate() after the other, into `out`.
 * @return Z_STREAM_END, or what went wrong */
static int run(z_stream *z, int (*step)(z_stream *z, int flush), int flush,
               bt_strbuf_t *out, bt_status_t *status_p)
{
    unsigned char piece[PIECE];
    int rc;

    do {
        z->next_out = piece;
        z->avail_out = sizeof(piece);
        rc = step(z, flush);
        if ((rc != Z_OK) && (rc != Z_STREAM_END) && (rc != Z_BUF_ERROR)) {
            break;
        }
        bt_strbuf_append(out, piece, sizeof(piece) - z->avail_out);
        *status_p = bt_strbuf_status(out);
        if (*status_p != BT_OK) {
            break;
        }
    } while ((rc == Z_OK) && ((z->avail_in > 0) || (z->avail_out == 0)));
    return rc;
}

static bt_status_t status_of(int rc)
{
    return (rc == Z_MEM_ERROR) ? BT_ERR_NO_MEMORY : BT_ERR_BAD_MESSAGE;
}

/* Deflate without zlib's two bytes: their low four bits are 8, and together
 * they are a multiple of 31. */
static int bits_of(bt_zip_kind_t kind, const unsigned char *data, size_t bytes)
{
    if (kind == BT_ZIP_GZIP) {
        return GZIP_BITS;
    }
    if ((bytes >= 2) && ((data[0] & 0x0f) == Z_DEFLATED) &&
        ((((unsigned)data[0] << 8) | data[1]) % 31 == 0)) {
        return MAX_WBITS;
    }
    return -MAX_WBITS;
}

bt_status_t bt_zip_unpack(bt_zip_kind_t kind, const void *data, size_t bytes,
                          bt_strbuf_t *out)
{
    bt_status_t status = BT_OK;
    z_stream z;
    int rc;

    if (bytes > MOST_INPUT) {
        return BT_ERR_TOO_LARGE;
    }
    set_input(&z, data, bytes);
    rc = inflateInit2(&z, bits_of(kind, data, bytes));
    if (rc != Z_OK) {
        return status_of(rc);
    }
    rc = run(&z, inflate, Z_NO_FLUSH, out, &status);
    if ((status == BT_OK) && ((rc != Z_STREAM_END) || (z.avail_in > 0))) {
        status = status_of(rc);
    }
    (void)inflateEnd(&z);
    return status;
}

bt_status_t bt_zip_pack(bt_zip_kind_t kind, const void *data, size_t bytes,
                        bt_strbuf_t *out)
{
    bt_status_t status = BT_OK;
    z_stream z;
    int rc;

    if (bytes > MOST_INPUT) {
        return BT_ERR_TOO_LARGE;
    }
    set_input(&z, data, bytes);
    rc = deflateInit2(&z, FAST, Z_DEFLATED,
                      (kind == BT_ZIP_GZIP) ? GZIP_BITS : MAX_WBITS, MEM_LEVEL,
                      Z_DEFAULT_STRATEGY);
    if (rc != Z_OK) {
        return status_of(rc);
    }
    rc = run(&z, deflate, Z_FINISH, out, &status);
    if ((status == BT_OK) && (rc != Z_STREAM_END)) {
        status = status_of(rc);
    }
    (void)deflateEnd(&z);
    return status;
}
