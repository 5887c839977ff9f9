/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "worker/manifest_payload.h"

/* Bytes laid out by hand from the table in manifest_payload.h. */
static void manifest_payload_has_the_documented_bytes(void **state)
{
    static const uint8_t want[BT_NOTE_BYTES] = {
        1,    0,    0, 0, 3,    0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1,
        0x10, 0x20, 0, 0, 0xff, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0,
    };
    const bt_manifest_payload_t note = {
        .version = BT_NOTE_VERSION,
        .id = 0x0102030405060708u,
        .attempt = 3,
        .token = 0x2010,
        .n_tokens = 255,
        .grant_wait_us = 257,
    };
    bt_manifest_payload_t back;

    (void)state;
    assert_int_equal(bt_manifest_payload_bytes(&note), BT_NOTE_BYTES);
    assert_memory_equal(&note, want, sizeof(want));
    assert_int_equal(bt_manifest_payload_decode(want, sizeof(want), &back),
                     BT_OK);
    assert_int_equal(back.id, note.id);
    assert_int_equal(back.attempt, 3);
    assert_int_equal(back.token, 0x2010);
    assert_int_equal(back.n_tokens, 255);
    assert_int_equal(back.grant_wait_us, 257);
    assert_int_equal(back.n_followers, 0);
}

static void manifest_payload_lists_followers_by_key(void **state)
{
    static const uint8_t want[2 * BT_NOTE_FOLLOWER_BYTES] = {
        2,    0, 0, 0, 0, 0, 0, 1, 7, 0, 0, 0, 0x10, 0x20, 0, 0,
        0xff, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3,    0,    0, 0,
    };
    static bt_manifest_payload_t note = {
        .version = BT_NOTE_VERSION,
        .token = BT_NOTE_NO_TOKEN,
        .n_followers = 2,
        .followers = {{(1ull << 56) + 2, 7, 0x2010}, {511, 1, 3}},
    };
    static bt_manifest_payload_t back;
    const size_t n = BT_NOTE_BYTES + sizeof(want);

    (void)state;
    assert_int_equal(bt_manifest_payload_bytes(&note), n);
    assert_memory_equal(note.followers, want, sizeof(want));
    assert_int_equal(bt_manifest_payload_decode(&note, n, &back), BT_OK);
    assert_int_equal(back.token, BT_NOTE_NO_TOKEN);
    assert_int_equal(back.n_followers, 2);
    assert_int_equal(back.followers[0].id, (1ull << 56) + 2);
    assert_int_equal(back.followers[0].attempt, 7);
    assert_int_equal(back.followers[0].token, 0x2010);
    assert_int_equal(back.followers[1].id, 511);
    assert_int_equal(back.followers[1].token, 3);
    assert_int_equal(bt_manifest_payload_decode(&note, n - 1, &back),
                     BT_ERR_BAD_MESSAGE);
    /* A group of 128, which is the most, and one more. */
    note.n_followers = BT_NOTE_MAX_FOLLOWERS;
    assert_int_equal(bt_manifest_payload_bytes(&note), 32 + 127 * 16);
    assert_int_equal(
        bt_manifest_payload_decode(&note, BT_NOTE_MAX_BYTES, &back), BT_OK);
    assert_int_equal(back.n_followers, BT_NOTE_MAX_FOLLOWERS);
    assert_int_equal(
        bt_manifest_payload_decode(
            &note, BT_NOTE_MAX_BYTES + BT_NOTE_FOLLOWER_BYTES, &back),
        BT_ERR_BAD_MESSAGE);
}

static void manifest_payload_of_another_size_or_version_is_refused(void **state)
{
    uint8_t bytes[BT_NOTE_BYTES + 1] = {1};
    bt_manifest_payload_t back;

    (void)state;
    assert_int_equal(
        bt_manifest_payload_decode(bytes, BT_NOTE_BYTES - 1, &back),
        BT_ERR_BAD_MESSAGE);
    assert_int_equal(
        bt_manifest_payload_decode(bytes, BT_NOTE_BYTES + 1, &back),
        BT_ERR_BAD_MESSAGE);
    bytes[0] = 2;
    assert_int_equal(bt_manifest_payload_decode(bytes, BT_NOTE_BYTES, &back),
                     BT_ERR_BAD_MESSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(manifest_payload_has_the_documented_bytes),
        BT_TEST(manifest_payload_lists_followers_by_key),
        BT_TEST(manifest_payload_of_another_size_or_version_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
