/* SPDX-License-Identifier: Apache-2.0 */
/* A client's bytes into a session of HTTP/2 whose streams are answered: the
 * first byte says how they are cut. Every stream that was told is closed, and
 * a session that has failed stays so. */
#include "tests/fuzz/fuzz.h"

#include "common/base/status.h"
#include "router/grpc/h2.h"

#define MAX_STREAMS 8

typedef struct seen {
    size_t n_told, n_closed, bytes;
} seen_t;

static void on_request(void *ctx, bt_h2_stream_t *stream)
{
    const bt_h2_field_t head[] = {{":status", "200"}, {"a", "b"}};
    seen_t *seen = ctx;

    seen->n_told++;
    BT_ASSERT_ALWAYS(bt_h2_field(stream, ":path") != NULL ||
                     bt_h2_field(stream, ":method") != NULL);
    bt_h2_respond(stream, head, 2, false);
    bt_h2_write(stream, "answer", 6);
}

static void on_data(void *ctx, bt_h2_stream_t *stream, const void *data,
                    size_t bytes)
{
    seen_t *seen = ctx;

    seen->bytes += bytes;
    bt_h2_write(stream, data, bytes);
    if (bt_h2_unsent(stream) > 65536) {
        bt_h2_reset(stream, BT_H2_ENHANCE_YOUR_CALM);
    }
}

static void on_end(void *ctx, bt_h2_stream_t *stream)
{
    const bt_h2_field_t trailers[] = {{"grpc-status", "0"}};

    (void)ctx;
    bt_h2_finish(stream, trailers, 1);
}

static void on_closed(void *ctx, bt_h2_stream_t *stream)
{
    seen_t *seen = ctx;

    (void)stream;
    seen->n_closed++;
}

static bool pull(bt_h2_t *h2)
{
    const void *data;
    size_t n;

    do {
        if (bt_h2_pull(h2, &data, &n) != BT_OK) {
            return false;
        }
    } while (n > 0);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    seen_t seen = {0};
    const bt_h2_handlers_t handlers = {.on_request = on_request,
                                       .on_data = on_data,
                                       .on_end = on_end,
                                       .on_closed = on_closed,
                                       .ctx = &seen};
    const size_t step = (size > 0) ? (size_t)data[0] * 4 + 1 : 1;
    bt_status_t status = BT_OK;
    bt_h2_t *h2;

    if (bt_h2_create(&handlers, MAX_STREAMS, &h2) != BT_OK) {
        return 0;
    }
    status = bt_h2_feed(h2, preface, sizeof(preface) - 1, 0);
    BT_ASSERT_ALWAYS(status == BT_OK);
    for (size_t at = 1; (at < size) && (status == BT_OK); at += step) {
        status = bt_h2_feed(h2, data + at,
                            (size - at < step) ? size - at : step, at);
        if (!pull(h2)) {
            break;
        }
        BT_ASSERT_ALWAYS(bt_h2_state(h2).bytes <=
                         BT_H2_MEMORY_BYTES +
                             (MAX_STREAMS + 1) * 2 * BT_H2_HEAD_BYTES);
    }
    if (status != BT_OK) {
        BT_ASSERT_ALWAYS(bt_h2_feed(h2, "x", 1, size) != BT_OK);
    }
    bt_h2_destroy(h2);
    BT_ASSERT_ALWAYS((seen.n_told == seen.n_closed) && (seen.bytes <= size));
    return 0;
}
