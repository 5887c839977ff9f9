/* SPDX-License-Identifier: Apache-2.0 */
/* Expected numbers by Python's hashlib.blake2b(salt, digest_size=32, key=k),
 * where k is that of b"baton kv spaces 1\\0" under the key 00 01 … 1f; the
 * first 16 bytes, as two little-endian numbers. */
#include "tests/support/testsupport.h"

#include "common/base/status.h"
#include "router/frontend/space.h"

static void cache_salt_gives_keyed_hash_namespace(void **state)
{
    static const struct {
        const char *salt;
        bt_hash128_t space;
    } known[] = {
        {"tenant-a", {0xd5619c14f23dba53u, 0x7f12d0a4a06047e2u}},
        {"tenant-b", {0xc5a12ea0f1d555c6u, 0x95e65afdc7762837u}},
        {"\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87",
         {0xfd7f3d1cc527ef8bu, 0xbcf608d3e5bfc65du}},
    };
    uint8_t cluster[32];
    uint8_t key[BT_SPACE_KEY_BYTES];

    (void)state;
    for (uint8_t i = 0; i < sizeof(cluster); i++) {
        cluster[i] = i;
    }
    bt_space_key(cluster, sizeof(cluster), key);
    assert_int_equal(key[0], 0x88);
    assert_int_equal(key[31], 0x93);
    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        const bt_hash128_t space = bt_space_of_salt(key, known[i].salt);

        assert_true(space.lo == known[i].space.lo);
        assert_true(space.hi == known[i].space.hi);
    }
}

static void cache_namespaces_differ_between_clusters(void **state)
{
    uint8_t cluster[32] = {0};
    uint8_t key[2][BT_SPACE_KEY_BYTES];

    (void)state;
    bt_space_key(cluster, sizeof(cluster), key[0]);
    cluster[31] = 1;
    bt_space_key(cluster, sizeof(cluster), key[1]);
    assert_true(bt_space_of_salt(key[0], "a").lo !=
                bt_space_of_salt(key[1], "a").lo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(cache_salt_gives_keyed_hash_namespace),
        BT_TEST(cache_namespaces_differ_between_clusters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
