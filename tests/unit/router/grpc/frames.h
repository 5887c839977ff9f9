/* SPDX-License-Identifier: Apache-2.0 */
/** @file frames.h
 *
 * HTTP/2 by hand: a client's frames as bytes, and a server's bytes as frames.
 * Heads are literals without an index (RFC 7541, 6.2.2), never Huffman.
 */
#ifndef BT_TESTS_UNIT_GRPC_FRAMES_H
#define BT_TESTS_UNIT_GRPC_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/text.h"
#include "tests/support/testsupport.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum {
    F_DATA = 0,
    F_HEADERS = 1,
    F_PRIORITY = 2,
    F_RST_STREAM = 3,
    F_SETTINGS = 4,
    F_PUSH_PROMISE = 5,
    F_PING = 6,
    F_GOAWAY = 7,
    F_WINDOW_UPDATE = 8,
    F_CONTINUATION = 9,
};

enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

/* RFC 9113, 7 */
enum {
    NO_ERROR = 0,
    PROTOCOL_ERROR = 1,
    INTERNAL_ERROR = 2,
    FLOW_CONTROL_ERROR = 3,
    STREAM_CLOSED = 5,
    FRAME_SIZE_ERROR = 6,
    REFUSED_STREAM = 7,
    CANCEL = 8,
    COMPRESSION_ERROR = 9,
    ENHANCE_YOUR_CALM = 11,
};

static inline void put_u32(bt_strbuf_t *out, uint32_t n)
{
    const uint8_t be[] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16),
                          (uint8_t)(n >> 8), (uint8_t)n};

    bt_strbuf_append(out, be, sizeof(be));
}

static inline uint32_t get_u32(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    return ((uint32_t)b[0] << 24) | ((uint32_t)b[1] << 16) |
           ((uint32_t)b[2] << 8) | b[3];
}

static inline void put_frame_head(bt_strbuf_t *out, size_t bytes, int type,
                                  int flags, uint32_t stream)
{
    const uint8_t head[] = {(uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8),
                            (uint8_t)bytes, (uint8_t)type, (uint8_t)flags};

    bt_strbuf_append(out, head, sizeof(head));
    put_u32(out, stream);
}

static inline void put_frame(bt_strbuf_t *out, int type, int flags,
                             uint32_t stream, const void *data, size_t bytes)
{
    put_frame_head(out, bytes, type, flags, stream);
    bt_strbuf_append(out, data, bytes);
}

static inline void put_settings(bt_strbuf_t *out, uint16_t id, uint32_t value)
{
    put_frame_head(out, 6, F_SETTINGS, 0, 0);
    bt_strbuf_append(out, (const uint8_t[]){(uint8_t)(id >> 8), (uint8_t)id},
                     2);
    put_u32(out, value);
}

/* Preface and empty settings. */
static inline void put_opening(bt_strbuf_t *out)
{
    bt_strbuf_puts(out, PREFACE);
    put_frame(out, F_SETTINGS, 0, 0, "", 0);
}

static inline void put_field(bt_strbuf_t *out, const char *name,
                             const char *value)
{
    const uint8_t n = (uint8_t)strlen(name);
    const uint8_t v = (uint8_t)strlen(value);

    assert_true((strlen(name) < 127) && (strlen(value) < 127));
    bt_strbuf_append(out, (const uint8_t[]){0, n}, 2);
    bt_strbuf_append(out, name, n);
    bt_strbuf_append(out, &v, 1);
    bt_strbuf_append(out, value, v);
}

/* The head of a gRPC call, and more fields "name", "value", …, NULL. */
/* @param authority  NULL: it says none */
static inline void put_call_head_to(bt_strbuf_t *out, const char *authority,
                                    const char *path, const char *const *more)
{
    put_field(out, ":method", "POST");
    put_field(out, ":scheme", "http");
    put_field(out, ":path", path);
    if (authority != NULL) {
        put_field(out, ":authority", authority);
    }
    put_field(out, "te", "trailers");
    put_field(out, "content-type", "application/grpc");
    for (; (more != NULL) && (more[0] != NULL); more += 2) {
        put_field(out, more[0], more[1]);
    }
}

static inline void put_call_head(bt_strbuf_t *out, const char *path,
                                 const char *const *more)
{
    put_call_head_to(out, "localhost", path, more);
}

static inline void put_call_to(bt_strbuf_t *out, uint32_t stream,
                               const char *authority, const char *path,
                               const char *const *more, int flags)
{
    bt_strbuf_t head;

    bt_strbuf_init(&head, 65536);
    put_call_head_to(&head, authority, path, more);
    put_frame(out, F_HEADERS, flags | END_HEADERS, stream, head.data, head.len);
    bt_strbuf_fini(&head);
}

static inline void put_call(bt_strbuf_t *out, uint32_t stream, const char *path,
                            const char *const *more, int flags)
{
    put_call_to(out, stream, "localhost", path, more, flags);
}

/* A message of gRPC in one DATA frame. */
static inline void put_message(bt_strbuf_t *out, uint32_t stream,
                               const void *data, size_t bytes, int flags)
{
    bt_strbuf_t body;

    bt_strbuf_init(&body, 1u << 20);
    bt_strbuf_append(&body, "", 1);
    put_u32(&body, (uint32_t)bytes);
    bt_strbuf_append(&body, data, bytes);
    put_frame(out, F_DATA, flags, stream, body.data, body.len);
    bt_strbuf_fini(&body);
}

typedef struct frame {
    size_t bytes;
    int type, flags;
    uint32_t stream;
    const char *data;
} frame_t;

/* The next frame at *at. @return false: there is no whole one */
static inline bool next_frame(const bt_strbuf_t *in, size_t *at, frame_t *f)
{
    const uint8_t *p;

    if (in->len - *at < 9) {
        return false;
    }
    p = (const uint8_t *)in->data + *at;
    f->bytes = ((size_t)p[0] << 16) | ((size_t)p[1] << 8) | p[2];
    f->type = p[3];
    f->flags = p[4];
    f->stream = get_u32((const char *)p + 5);
    f->data = (const char *)p + 9;
    if (in->len - *at - 9 < f->bytes) {
        return false;
    }
    *at += 9 + f->bytes;
    return true;
}

/* The n-th frame of this type on this stream, from 0. */
static inline bool find_frame(const bt_strbuf_t *in, int type, uint32_t stream,
                              int n, frame_t *f)
{
    for (size_t at = 0; next_frame(in, &at, f);) {
        if ((f->type == type) && (f->stream == stream) && (n-- == 0)) {
            return true;
        }
    }
    return false;
}

static inline int count_frames(const bt_strbuf_t *in, int type, uint32_t stream)
{
    frame_t f;
    int n = 0;

    while (find_frame(in, type, stream, n, &f)) {
        n++;
    }
    return n;
}

/* @return the code of the server's last GOAWAY, -1: none */
static inline int goaway_code(const bt_strbuf_t *in)
{
    frame_t f;
    int code = -1;

    for (int n = 0; find_frame(in, F_GOAWAY, 0, n, &f); n++) {
        code = (int)get_u32(f.data + 4);
    }
    return code;
}

/* @return the code with which a stream was reset, -1: it was not */
static inline int reset_code(const bt_strbuf_t *in, uint32_t stream)
{
    frame_t f;

    return find_frame(in, F_RST_STREAM, stream, 0, &f) ? (int)get_u32(f.data)
                                                       : -1;
}

#endif
