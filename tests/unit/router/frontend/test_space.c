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

/* blake2b(b"baton kv table" in 16 bytes, six little-endian numbers of 64 bits
 * (namespace, type, rows, bytes, extra ids), the extra ids, the rows). */
static void prompt_table_gives_a_namespace_of_its_content(void **state)
{
    static const uint8_t data[4] = {0, 0x3c, 0, 0xc0};
    static const uint64_t extra = 7;
    static const struct {
        bt_hash128_t space;
        uint32_t n, n_extra;
        bt_hash128_t want;
    } known[] = {
        {{0, 0}, 2, 0, {0x7de383e95f983fa1u, 0x8aaa280c5460abbfu}},
        {{5, 6}, 2, 0, {0x9ce89804686d207au, 0xb6a82ebe30a10f0au}},
        {{0, 0}, 1, 0, {0x64f687a69cc92a0au, 0x8c6a56d236552cc0u}},
        {{0, 0}, 2, 1, {0x418118418c052ca8u, 0xef142b5263f7fea2u}},
    };
    uint8_t cluster[32];
    uint8_t key[BT_SPACE_KEY_BYTES];

    (void)state;
    for (uint8_t i = 0; i < sizeof(cluster); i++) {
        cluster[i] = i;
    }
    bt_space_key(cluster, sizeof(cluster), key);
    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        const bt_table_rows_t rows = {data, sizeof(data), BT_TABLE_F16,
                                      known[i].n};
        const bt_hash128_t got = bt_space_of_table(key, known[i].space, &rows,
                                                   &extra, known[i].n_extra);

        assert_true(got.lo == known[i].want.lo);
        assert_true(got.hi == known[i].want.hi);
    }
}

/* Python's hashlib.blake2b(b"baton kv adapter" + struct.pack("<QQQQ", 1, 2, 3,
 * 4), digest_size=32, key=k). */
static void adapter_gives_a_namespace_within_another(void **state)
{
    const bt_hash128_t space = {1, 2};
    const bt_hash128_t adapter = {3, 4};
    uint8_t cluster[32];
    uint8_t key[BT_SPACE_KEY_BYTES];
    bt_hash128_t got;

    (void)state;
    for (uint8_t i = 0; i < sizeof(cluster); i++) {
        cluster[i] = i;
    }
    bt_space_key(cluster, sizeof(cluster), key);
    got = bt_space_of_adapter(key, space, adapter);
    assert_true(got.lo == 0x9fe52e051686f68cu);
    assert_true(got.hi == 0x3db8b8873faada26u);
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
        BT_TEST(prompt_table_gives_a_namespace_of_its_content),
        BT_TEST(adapter_gives_a_namespace_within_another),
        BT_TEST(cache_namespaces_differ_between_clusters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
