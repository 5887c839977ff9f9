/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/rpc/rpc_frame.h"

static volatile uint64_t sink;

static void walk(const rpc_frame_t *frame)
{
    const uint8_t *end = frame->body + frame->bytes;
    const void *data;
    size_t at = 0;
    size_t n;

    while (bt_rpc_frame_next(frame, &at, &data, &n)) {
        BT_ASSERT_ALWAYS(((const uint8_t *)data >= frame->body) &&
                         ((size_t)(end - (const uint8_t *)data) >= n));
        for (size_t i = 0; i < n; i++) {
            sink += ((const uint8_t *)data)[i];
        }
    }
    BT_ASSERT_ALWAYS(at == frame->bytes);
}

/* A frame from a peer, and an announcement from anybody. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[BT_KEY_BYTES] = {1, 2, 3};
    uint8_t header[RPC_HEADER_BYTES];
    uint8_t whole[RPC_MAX_ANNOUNCE];
    char url[RPC_MAX_URL];
    uint64_t incarnation = 0;
    rpc_frame_t frame;
    size_t run;

    run = bt_rpc_frame_whole(data, size, size / 2);
    BT_ASSERT_ALWAYS(run <= size / 2);
    if (bt_rpc_frame_parse(data, size, &frame) == BT_OK) {
        BT_ASSERT_ALWAYS(frame.body + frame.bytes == data + size);
        bt_rpc_frame_put_header(header, frame.kind, frame.incarnation,
                                frame.sequence);
        BT_ASSERT_ALWAYS(memcmp(header, data, sizeof(header)) == 0);
        if (frame.kind == RPC_DATA) {
            walk(&frame);
        }
    }
    if (bt_rpc_announce_check(key, data, size, &incarnation, url) == BT_OK) {
        const size_t n = bt_rpc_announce_put(key, incarnation, url, whole);

        BT_ASSERT_ALWAYS((n == size) && (memcmp(whole, data, n) == 0));
    }
    return 0;
}
