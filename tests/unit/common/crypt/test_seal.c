/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/crypt/key.h"

/* draft-irtf-cfrg-xchacha-03, appendix A.3.1 */
static const char text[] =
    "Ladies and Gentlemen of the class of '99: If I could offer you only one "
    "tip for the future, sunscreen would be it.";
static const uint8_t bound_data[] = {0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1,
                                     0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7};
static const uint8_t sealed[] = {
    0xbd, 0x6d, 0x17, 0x9d, 0x3e, 0x83, 0xd4, 0x3b, 0x95, 0x76, 0x57, 0x94,
    0x93, 0xc0, 0xe9, 0x39, 0x57, 0x2a, 0x17, 0x00, 0x25, 0x2b, 0xfa, 0xcc,
    0xbe, 0xd2, 0x90, 0x2c, 0x21, 0x39, 0x6c, 0xbb, 0x73, 0x1c, 0x7f, 0x1b,
    0x0b, 0x4a, 0xa6, 0x44, 0x0b, 0xf3, 0xa8, 0x2f, 0x4e, 0xda, 0x7e, 0x39,
    0xae, 0x64, 0xc6, 0x70, 0x8c, 0x54, 0xc2, 0x16, 0xcb, 0x96, 0xb7, 0x2e,
    0x12, 0x13, 0xb4, 0x52, 0x2f, 0x8c, 0x9b, 0xa4, 0x0d, 0xb5, 0xd9, 0x45,
    0xb1, 0x1b, 0x69, 0xb9, 0x82, 0xc1, 0xbb, 0x9e, 0x3f, 0x3f, 0xac, 0x2b,
    0xc3, 0x69, 0x48, 0x8f, 0x76, 0xb2, 0x38, 0x35, 0x65, 0xd3, 0xff, 0xf9,
    0x21, 0xf9, 0x66, 0x4c, 0x97, 0x63, 0x7d, 0xa9, 0x76, 0x88, 0x12, 0xf6,
    0x15, 0xc6, 0x8b, 0x13, 0xb5, 0x2e};
static const uint8_t tag_of_text[BT_SEAL_TAG_BYTES] = {
    0xc0, 0x87, 0x59, 0x24, 0xc1, 0xc7, 0x98, 0x79,
    0x47, 0xde, 0xaf, 0xd8, 0x78, 0x0a, 0xcf, 0x49};

static const bt_key_part_t bound = {bound_data, sizeof(bound_data)};

static void fill(uint8_t *bytes, size_t n, uint8_t from)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(from + i);
    }
}

static void standard_vector_is_unsealed(void **state)
{
    uint8_t key[BT_KEY_BYTES], nonce[BT_SEAL_NONCE_BYTES];
    uint8_t data[sizeof(sealed)];

    (void)state;
    fill(key, sizeof(key), 0x80);
    fill(nonce, sizeof(nonce), 0x40);
    memcpy(data, sealed, sizeof(data));
    assert_int_equal(
        bt_key_unseal(key, &bound, data, sizeof(data), nonce, tag_of_text),
        BT_OK);
    assert_int_equal(sizeof(data), strlen(text));
    assert_memory_equal(data, text, sizeof(data));
}

static void sealed_data_is_unsealed_once_nothing_changed(void **state)
{
    uint8_t key[BT_KEY_BYTES], other[BT_KEY_BYTES];
    uint8_t nonce[BT_SEAL_NONCE_BYTES], again[BT_SEAL_NONCE_BYTES];
    uint8_t tag[BT_SEAL_TAG_BYTES], tag2[BT_SEAL_TAG_BYTES];
    const bt_key_part_t elsewhere = {bound_data, sizeof(bound_data) - 1};
    uint8_t data[64], copy[64], plain[64];

    (void)state;
    fill(key, sizeof(key), 1);
    fill(other, sizeof(other), 2);
    fill(plain, sizeof(plain), 7);
    memcpy(data, plain, sizeof(data));
    bt_key_seal(key, &bound, data, sizeof(data), nonce, tag);
    assert_memory_not_equal(data, plain, sizeof(data));

    for (size_t i = 0; i < sizeof(data); i++) {
        memcpy(copy, data, sizeof(copy));
        copy[i] ^= 1;
        assert_int_equal(
            bt_key_unseal(key, &bound, copy, sizeof(copy), nonce, tag),
            BT_ERR_CORRUPT);
    }
    memcpy(copy, data, sizeof(copy));
    assert_int_equal(
        bt_key_unseal(other, &bound, copy, sizeof(copy), nonce, tag),
        BT_ERR_CORRUPT);
    assert_int_equal(
        bt_key_unseal(key, &elsewhere, copy, sizeof(copy), nonce, tag),
        BT_ERR_CORRUPT);
    assert_int_equal(
        bt_key_unseal(key, &bound, copy, sizeof(copy) - 1, nonce, tag),
        BT_ERR_CORRUPT);
    memcpy(copy, data, sizeof(copy));
    assert_int_equal(bt_key_unseal(key, &bound, copy, sizeof(copy), nonce, tag),
                     BT_OK);
    assert_memory_equal(copy, plain, sizeof(copy));

    memcpy(copy, plain, sizeof(copy));
    bt_key_seal(key, &bound, copy, sizeof(copy), again, tag2);
    assert_memory_not_equal(again, nonce, sizeof(nonce));
    assert_memory_not_equal(copy, data, sizeof(copy));
}

static void empty_data_has_a_tag(void **state)
{
    uint8_t key[BT_KEY_BYTES] = {3}, nonce[BT_SEAL_NONCE_BYTES];
    uint8_t tag[BT_SEAL_TAG_BYTES], none[1];

    (void)state;
    bt_key_seal(key, &bound, none, 0, nonce, tag);
    assert_int_equal(bt_key_unseal(key, &bound, none, 0, nonce, tag), BT_OK);
    tag[0] ^= 1;
    assert_int_equal(bt_key_unseal(key, &bound, none, 0, nonce, tag),
                     BT_ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(standard_vector_is_unsealed),
        BT_TEST(sealed_data_is_unsealed_once_nothing_changed),
        BT_TEST(empty_data_has_a_tag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
