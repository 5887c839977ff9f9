/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/kv/kv_groups.h"

#define UNTOUCHED 0xA5A5A5A5u

/* SmolLM2-135M in f16 with 16-token blocks, worked by hand:
 * 2 * 30 layers * 3 heads * 16 slots * 64 dims * 2 bytes = 368640 bytes. */
static void block_bytes_matches_hand_count(void **state)
{
    const bt_kv_shape_t shape = {.n_layers = 30,
                                 .n_kv_heads = 3,
                                 .tokens_per_block = 16,
                                 .head_dim = 64,
                                 .elem_bytes = 2};
    size_t bytes = 0;

    (void)state;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_OK);
    assert_int_equal(bytes, 368640);
    assert_int_equal(bt_kv_layer_bytes(&shape), 12288);
}

/* The same in int8 with scales in f32, worked by hand: 2 * 30 * 3 * 16 = 2880
 * vectors of 64 bytes, and behind them 2880 scales of 4 bytes. */
static void kv_scales_follow_the_elements(void **state)
{
    const bt_kv_shape_t shape = {.n_layers = 30,
                                 .n_kv_heads = 3,
                                 .tokens_per_block = 16,
                                 .head_dim = 64,
                                 .elem_bytes = 1,
                                 .scale_bytes = 4};
    size_t bytes = 0;

    (void)state;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_OK);
    assert_int_equal(bytes, 184320 + 11520);
    assert_int_equal(bt_kv_layer_bytes(&shape), 6144);
}

static void block_bytes_rejects_a_hostile_file(void **state)
{
    bt_kv_shape_t shape = {UINT32_MAX, UINT32_MAX, UINT32_MAX,
                           UINT32_MAX, 4,          0};
    size_t bytes = UNTOUCHED;

    (void)state;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_ERR_OVERFLOW);
    shape.head_dim = 0;
    shape.n_layers = shape.n_kv_heads = shape.tokens_per_block = 1;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_ERR_INVALID_PARAM);
    shape.head_dim = 1;
    shape.elem_bytes = 3;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_ERR_INVALID_PARAM);
    shape.elem_bytes = 1;
    shape.scale_bytes = 1;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_ERR_INVALID_PARAM);
    /* 2 * 2^31 * 2^31 vectors of 1 + 4 bytes: the elements alone would fit. */
    shape.scale_bytes = 4;
    shape.n_layers = shape.n_kv_heads = 1u << 31;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_ERR_OVERFLOW);
    assert_int_equal(bytes, UNTOUCHED);
    shape.scale_bytes = 0;
    assert_int_equal(bt_kv_block_bytes(&shape, &bytes), BT_OK);
    assert_true(bytes == (size_t)1 << 63);
}

static void layout_identity_covers_every_field(void **state)
{
    const bt_kv_shape_t base = {2, 3, 16, 64, 2, 0};
    const bt_hash128_t id = bt_kv_layout_identity(&base, 0, 3);

    (void)state;
    for (int field = 0; field < 8; field++) {
        bt_kv_shape_t other = base;
        uint32_t type = 0;
        uint32_t order = 3;
        bt_hash128_t other_id;

        other.n_layers += (field == 0);
        other.n_kv_heads += (field == 1);
        other.tokens_per_block += (field == 2);
        other.head_dim += (field == 3);
        other.elem_bytes += (field == 4);
        type += (field == 5);
        other.scale_bytes += (field == 6);
        order += (field == 7);
        other_id = bt_kv_layout_identity(&other, type, order);
        assert_memory_not_equal(&id, &other_id, sizeof(id));
    }
}

/* What builds so far say in their hello: XXH3-128, by python-xxhash 3, of the
 * order 3, the type and the shape as eight little-endian words. */
static void layout_identity_is_stable_across_builds(void **state)
{
    const bt_kv_shape_t shape = {2, 3, 16, 64, 2, 0};
    const bt_hash128_t id = bt_kv_layout_identity(&shape, 0, 3);

    (void)state;
    assert_true(id.hi == UINT64_C(0x0f1f825b4e9e46fa));
    assert_true(id.lo == UINT64_C(0x45b699c6af1e4eab));
}

static void blocks_are_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(bt_kv_blocks_for(0, 16), 0);
    assert_int_equal(bt_kv_blocks_for(1, 16), 1);
    assert_int_equal(bt_kv_blocks_for(16, 16), 1);
    assert_int_equal(bt_kv_blocks_for(17, 16), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(block_bytes_matches_hand_count),
        BT_TEST(kv_scales_follow_the_elements),
        BT_TEST(block_bytes_rejects_a_hostile_file),
        BT_TEST(layout_identity_covers_every_field),
        BT_TEST(layout_identity_is_stable_across_builds),
        BT_TEST(blocks_are_rounded_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
