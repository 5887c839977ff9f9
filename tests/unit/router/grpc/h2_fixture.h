/* SPDX-License-Identifier: Apache-2.0 */
/** @file h2_fixture.h  A session without a socket: what goes in, and what comes
 * out. */
#ifndef BT_TESTS_UNIT_GRPC_H2_FIXTURE_H
#define BT_TESTS_UNIT_GRPC_H2_FIXTURE_H

#include "router/grpc/h2.h"
#include "tests/unit/router/grpc/frames.h"

#define MAX_STREAMS 4

typedef struct session {
    bt_h2_t *h2;
    bt_strbuf_t in;  /* what the client will say next */
    bt_strbuf_t out; /* what it was told */
    uint64_t now_ms;
    bool answers; /* each request with its own body */
    int n_requests, n_ends, n_closed;
    size_t data_bytes;
    bt_h2_stream_t *last; /* NULL: it was closed */
} session_t;

static inline void on_request(void *ctx, bt_h2_stream_t *stream)
{
    session_t *s = ctx;

    s->n_requests++;
    s->last = stream;
}

static inline void on_data(void *ctx, bt_h2_stream_t *stream, const void *data,
                           size_t bytes)
{
    session_t *s = ctx;

    (void)stream;
    (void)data;
    s->data_bytes += bytes;
}

static inline void on_end(void *ctx, bt_h2_stream_t *stream)
{
    const bt_h2_field_t head[] = {{":status", "200"}};
    const bt_h2_field_t trailers[] = {{"grpc-status", "0"}};
    session_t *s = ctx;

    s->n_ends++;
    if (s->answers) {
        bt_h2_respond(stream, head, 1, false);
        bt_h2_write(stream, "answer", 6);
        bt_h2_finish(stream, trailers, 1);
    }
}

static inline void on_closed(void *ctx, bt_h2_stream_t *stream)
{
    session_t *s = ctx;

    s->n_closed++;
    if (s->last == stream) {
        s->last = NULL;
    }
}

/* @return false: for want of memory */
static inline bool try_open(session_t *s)
{
    const bt_h2_handlers_t handlers = {.on_request = on_request,
                                       .on_data = on_data,
                                       .on_end = on_end,
                                       .on_closed = on_closed,
                                       .ctx = s};

    *s = (session_t){.now_ms = 1000, .answers = true};
    bt_strbuf_init(&s->in, 64u << 20);
    bt_strbuf_init(&s->out, 64u << 20);
    return bt_h2_create(&handlers, MAX_STREAMS, &s->h2) == BT_OK;
}

static inline void session_open(session_t *s)
{
    assert_true(try_open(s));
}

static inline void session_close(session_t *s)
{
    bt_h2_destroy(s->h2);
    assert_int_equal(s->n_requests, s->n_closed);
    bt_strbuf_fini(&s->in);
    bt_strbuf_fini(&s->out);
}

/* What there is to send. */
static inline bt_status_t pull(session_t *s)
{
    const void *data = NULL;
    size_t n = 0;
    bt_status_t status;

    do {
        status = bt_h2_pull(s->h2, &data, &n);
        if (status == BT_OK) {
            bt_strbuf_append(&s->out, data, n);
        }
    } while ((status == BT_OK) && (n > 0));
    return status;
}

/* The client says what `in` has, `step` bytes at a time. */
static inline bt_status_t say_slowly(session_t *s, size_t step)
{
    bt_status_t status = BT_OK;

    for (size_t at = 0; (at < s->in.len) && (status == BT_OK); at += step) {
        const size_t left = s->in.len - at;

        status = bt_h2_feed(s->h2, s->in.data + at, (left < step) ? left : step,
                            s->now_ms);
        if (pull(s) != BT_OK) {
            status = BT_ERR_NO_MEMORY;
        }
    }
    bt_strbuf_reset(&s->in);
    return status;
}

static inline bt_status_t say(session_t *s)
{
    return say_slowly(s, SIZE_MAX / 2);
}

#endif
