/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/rpc/rpc_old.h"

/* A frame of a peer of protocol 2, and an announcement from anybody. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[BT_KEY_BYTES] = {1, 2, 3};
    uint8_t header[RPC_OLD_HEADER_BYTES];
    uint8_t whole[RPC_OLD_MAX_ANNOUNCE];
    char url[RPC_MAX_URL];
    uint64_t incarnation = 0;
    rpc_old_frame_t frame;

    if (bt_rpc_old_parse(data, size, &frame) == BT_OK) {
        BT_ASSERT_ALWAYS(bt_rpc_old_is(data, size));
        BT_ASSERT_ALWAYS(frame.body + frame.bytes == data + size);
        bt_rpc_old_put_header(header, frame.kind, frame.incarnation,
                              frame.sequence);
        BT_ASSERT_ALWAYS(memcmp(header, data, sizeof(header)) == 0);
    }
    if (bt_rpc_old_announce_check(key, data, size, &incarnation, url) ==
        BT_OK) {
        const size_t n = bt_rpc_old_announce_put(key, incarnation, url, whole);

        BT_ASSERT_ALWAYS((n == size) && (memcmp(whole, data, n) == 0));
    }
    return 0;
}
