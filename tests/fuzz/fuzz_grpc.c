/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a gRPC stream, whole and in pieces of three bytes: cutting
 * must change nothing. And the texts of its fields. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/grpc/framing.h"

#define LIMIT 4096

/* @return how reading ended; all that came is appended */
static bt_status_t read_all(const uint8_t *data, size_t size, size_t step,
                            bt_strbuf_t *all)
{
    bt_grpc_reader_t reader = {.limit = LIMIT};
    bt_status_t status = BT_INPROGRESS;

    for (size_t at = 0; at < size;) {
        const size_t n = (size - at < step) ? size - at : step;
        size_t used = 0;

        status = bt_grpc_reader_feed(&reader, data + at, n, &used);
        if ((status != BT_OK) && (status != BT_INPROGRESS)) {
            break;
        }
        BT_ASSERT_ALWAYS((used > 0) && (used <= n));
        at += used;
        if (status == BT_OK) {
            bt_strbuf_t body;
            const bool packed = bt_grpc_reader_take(&reader, &body);

            BT_ASSERT_ALWAYS(body.len <= LIMIT);
            bt_strbuf_printf(all, "%d %zu:", packed, body.len);
            bt_strbuf_append(all, body.data, body.len);
            bt_strbuf_fini(&body);
        }
    }
    bt_grpc_reader_fini(&reader);
    return status;
}

static void read_texts(const char *text)
{
    bt_strbuf_t out;
    uint64_t us = 0;

    bt_strbuf_init(&out, 1000);
    bt_grpc_message_encode(text, 100, &out);
    BT_ASSERT_ALWAYS(out.len <= 100);
    for (size_t i = 0; i < out.len; i++) {
        BT_ASSERT_ALWAYS((out.data[i] >= 0x20) && (out.data[i] <= 0x7e));
    }
    bt_strbuf_fini(&out);
    (void)!bt_grpc_timeout_parse(text, &us);
    (void)bt_grpc_accepts_gzip(text);
    (void)bt_grpc_is_content_type(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = bt_memdup(data, size);
    bt_strbuf_t whole;
    bt_strbuf_t pieces;

    bt_strbuf_init(&whole, 32 * size + 100);
    bt_strbuf_init(&pieces, 32 * size + 100);
    BT_ASSERT_ALWAYS(read_all(data, size, SIZE_MAX, &whole) ==
                     read_all(data, size, 3, &pieces));
    BT_ASSERT_ALWAYS((whole.len == pieces.len) &&
                     ((whole.len == 0) ||
                      (memcmp(whole.data, pieces.data, whole.len) == 0)));
    bt_strbuf_fini(&whole);
    bt_strbuf_fini(&pieces);
    if (text != NULL) {
        read_texts(text);
    }
    bt_free(text);
    return 0;
}
