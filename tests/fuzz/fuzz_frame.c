/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/link/link_handshake_frames.h"

static volatile uint64_t sink;

/* What a stranger says first. What was understood is said again, by a build
 * that knows no later fields: then it must be the same bytes. */
static void introduce(const link_keys_t *keys, const uint8_t *data, size_t size)
{
    static const char answered[] = "a JOIN frame";
    uint8_t again[LINK_MAX_INTRO];
    link_intro_t intro;

    if (bt_link_join_check(keys, data, size, &intro) == BT_OK) {
        BT_ASSERT_ALWAYS(bt_link_join_put(keys, &intro, again) <= size);
    }
    if (bt_link_open_check(keys, answered, sizeof(answered), data, size,
                           &intro) == BT_OK) {
        BT_ASSERT_ALWAYS(bt_link_open_put(keys, answered, sizeof(answered),
                                          &intro, again) <= size);
    }
}

/* The bytes of a peer that has the key: it seals what it likes. */
static void exchange(const uint8_t *key, const uint8_t *data, size_t size)
{
    const uint8_t kind = (size > 0) ? data[0] : 0;
    const size_t whole = bt_link_frame_bytes(size);
    uint8_t *sealed = bt_calloc(1, whole);
    link_frame_t frame;

    BT_ASSERT_ALWAYS(sealed != NULL);
    if (size > 0) {
        memcpy(sealed + LINK_HEADER_BYTES, data, size);
    }
    bt_link_frame_seal(key, kind, size, sealed, whole);
    if (bt_link_frame_open(key, sealed, whole, &frame) == BT_OK) {
        BT_ASSERT_ALWAYS((frame.kind == kind) && (frame.sequence == size) &&
                         (frame.bytes == size) &&
                         (frame.body == sealed + LINK_HEADER_BYTES));
    }
    bt_free(sealed);
}

/* Messages of a stream in pieces of so many bytes. @return a sum of them */
static uint64_t walk(const uint8_t *data, size_t size, size_t piece)
{
    bt_status_t status = BT_OK;
    link_stream_t stream;
    uint64_t sum = 0;

    bt_link_stream_init(&stream);
    for (size_t from = 0; (from < size) && (status == BT_OK); from += piece) {
        const size_t bytes = (size - from < piece) ? size - from : piece;
        const void *message = NULL;
        size_t at = 0;
        size_t n = 0;

        do {
            status = bt_link_stream_next(&stream, data + from, bytes, &at,
                                         &message, &n);
            BT_ASSERT_ALWAYS(at <= bytes);
            if ((status != BT_OK) || (message == NULL)) {
                break;
            }
            sum = 31 * sum + n;
            for (size_t i = 0; i < n; i++) {
                sum = 31 * sum + ((const uint8_t *)message)[i];
            }
        } while (true);
    }
    bt_link_stream_fini(&stream);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t cluster_key[BT_KEY_BYTES] = {1, 2, 3};
    link_keys_t keys;
    link_frame_t frame;
    uint64_t whole;

    bt_link_keys_make(cluster_key, sizeof(cluster_key), &keys);
    introduce(&keys, data, size);
    exchange(keys.session, data, size);
    sink += (uint64_t)bt_link_frame_open(keys.open, data, size, &frame);
    whole = walk(data, size, size + 1);
    /* where it is cut makes no difference */
    BT_ASSERT_ALWAYS(walk(data, size, 1) == whole);
    BT_ASSERT_ALWAYS(walk(data, size, 7) == whole);
    return 0;
}
