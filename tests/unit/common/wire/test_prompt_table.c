/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/prompt_table.h"

#include <math.h>
#include <string.h>

#include "tests/support/testsupport.h"

static bt_table_rows_t rows_of(const void *data, uint32_t bytes, uint32_t type,
                               uint32_t n)
{
    return (bt_table_rows_t){
        .data = data, .bytes = bytes, .type = type, .n = n};
}

static void width_is_what_a_row_has(void **state)
{
    static const uint8_t data[24];
    const bt_table_rows_t rows = rows_of(data, 24, BT_TABLE_F32, 2);
    const bt_table_rows_t halves = rows_of(data, 24, BT_TABLE_BF16, 2);

    (void)state;
    assert_int_equal(bt_table_width(&rows), 3);
    assert_int_equal(bt_table_width(&halves), 6);
}

static void fields_that_do_not_fit_have_no_width(void **state)
{
    static const uint8_t data[24];
    const bt_table_rows_t bad[] = {
        {0},
        rows_of(data, 24, BT_TABLE_F32, 0),
        rows_of(data, 24, BT_TABLE_F32, 4), /* 1.5 elements */
        rows_of(data, 24, BT_TABLE_N_TYPES, 2),
        rows_of(data, 0, BT_TABLE_F32, 2),
        rows_of(data, BT_TABLE_MAX_BYTES + 4, BT_TABLE_F32, 1),
        rows_of(data, 2 * (BT_TABLE_MAX_ROWS + 1), BT_TABLE_F16,
                BT_TABLE_MAX_ROWS + 1),
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_int_equal(bt_table_width(&bad[i]), 0);
    }
}

/* Bits by IEEE 754 and bfloat16: the largest finite number, infinity, a NaN. */
static void infinite_and_nan_are_not_finite(void **state)
{
    const float wide[3] = {1.0f, -3.4e38f, 0.0f};
    const float inf[3] = {1.0f, -INFINITY, 0.0f};
    const float nan[3] = {1.0f, 0.0f, NAN};
    const uint16_t f16[][2] = {{0, 0x7bff}, {0, 0xfc00}, {0, 0x7e01}};
    const uint16_t bf16[][2] = {{0, 0xff7f}, {0, 0x7f80}, {0, 0x7fc1}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const float *const f32[] = {wide, inf, nan};
        const bt_table_rows_t rows[] = {
            rows_of(f32[i], 12, BT_TABLE_F32, 1),
            rows_of(f16[i], 4, BT_TABLE_F16, 1),
            rows_of(bf16[i], 4, BT_TABLE_BF16, 2),
        };

        for (size_t k = 0; k < BT_ARRAY_LEN(rows); k++) {
            assert_int_equal(bt_table_is_finite(&rows[k]), i == 0);
        }
    }
}

static void table_holds_a_copy_until_its_last_reference(void **state)
{
    float data[2] = {1.5f, 2.5f};
    const bt_table_rows_t rows = rows_of(data, 8, BT_TABLE_F32, 1);
    const float want[2] = {1.5f, 2.5f};
    bt_prompt_table_t *table;
    bt_prompt_table_t *other;

    (void)state;
    assert_int_equal(bt_prompt_table_create(&rows, &table), BT_OK);
    data[0] = 9.0f;
    other = bt_prompt_table_ref(table);
    bt_prompt_table_unref(table);
    assert_int_equal(other->rows.n, 1);
    assert_memory_equal(other->rows.data, want, sizeof(want));
    bt_prompt_table_unref(other);
    bt_prompt_table_unref(NULL);
    assert_null(bt_prompt_table_ref(NULL));
}

static void ids_of_rows_are_above_all_vocabularies(void **state)
{
    (void)state;
    assert_false(bt_is_table_token(INT32_MAX));
    assert_true(bt_is_table_token(BT_TABLE_TOKEN));
    assert_true(bt_is_table_token(BT_TABLE_TOKEN + BT_TABLE_MAX_ROWS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(width_is_what_a_row_has),
        BT_TEST(fields_that_do_not_fit_have_no_width),
        BT_TEST(infinite_and_nan_are_not_finite),
        BT_TEST(table_holds_a_copy_until_its_last_reference),
        BT_TEST(ids_of_rows_are_above_all_vocabularies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
