/* SPDX-License-Identifier: Apache-2.0 */
/* Expected categories are those of UnicodeData.txt 16.0. */
#include "common/base/unicode.h"

#include "common/base/status.h"
#include "tests/support/testsupport.h"

static uint32_t props_of(uint32_t cp)
{
    uint32_t i = 0;

    while ((i + 1 < bt_unicode_n_merged) &&
           (bt_unicode_merged[i + 1] >> BT_UNICODE_RUN_BITS <= cp)) {
        i++;
    }
    return bt_unicode_run_props(bt_unicode_merged[i], cp);
}

static void runs_ascend_from_the_first_code_point(void **state)
{
    (void)state;
    assert_int_equal(bt_unicode_merged[0] >> BT_UNICODE_RUN_BITS, 0);
    for (uint32_t i = 1; i < bt_unicode_n_merged; i++) {
        assert_true(bt_unicode_merged[i - 1] >> BT_UNICODE_RUN_BITS <
                    bt_unicode_merged[i] >> BT_UNICODE_RUN_BITS);
    }
    assert_true(bt_unicode_merged[bt_unicode_n_merged - 1] >>
                BT_UNICODE_RUN_BITS <= 0x10FFFF);
}

static void characters_have_their_category(void **state)
{
    static const struct {
        uint32_t cp;
        bt_unicode_category_t category;
    } cases[] = {
        {0x00, BT_UNICODE_CC},
        {' ', BT_UNICODE_ZS},
        {'$', BT_UNICODE_SC},
        {'(', BT_UNICODE_PS},
        {'-', BT_UNICODE_PD},
        {'7', BT_UNICODE_ND},
        {'A', BT_UNICODE_LU},
        {'_', BT_UNICODE_PC},
        {'z', BT_UNICODE_LL},
        {0xAB, BT_UNICODE_PI},
        {0xAD, BT_UNICODE_CF},
        {0xBD, BT_UNICODE_NO},
        /* Upper and lower case by turns: even ones, then odd ones are upper. */
        {0x100, BT_UNICODE_LU},
        {0x101, BT_UNICODE_LL},
        {0x139, BT_UNICODE_LU},
        {0x13A, BT_UNICODE_LL},
        {0x1C5, BT_UNICODE_LT},
        {0x2B0, BT_UNICODE_LM},
        {0x300, BT_UNICODE_MN},
        {0x378, BT_UNICODE_CN},
        {0x488, BT_UNICODE_ME},
        {0x5D0, BT_UNICODE_LO},
        {0x903, BT_UNICODE_MC},
        {0x2028, BT_UNICODE_ZL},
        {0x2029, BT_UNICODE_ZP},
        {0x2160, BT_UNICODE_NL},
        {0x2211, BT_UNICODE_SM},
        {0xD800, BT_UNICODE_CS},
        {0xE000, BT_UNICODE_CO},
        {0x1F600, BT_UNICODE_SO},
        {0x10FFFF, BT_UNICODE_CN}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(props_of(cases[i].cp) & BT_UNICODE_CATEGORY,
                         cases[i].category);
    }
}

static void other_properties_are_bits(void **state)
{
    (void)state;
    assert_true((props_of(0x3000) & BT_UNICODE_IS_SPACE) != 0);
    assert_true((props_of(0x200B) & BT_UNICODE_IS_SPACE) == 0);
    assert_true((props_of('_') & BT_UNICODE_IS_WORD) != 0);
    assert_true((props_of(0x4E2D) & BT_UNICODE_IS_HAN) != 0);
    assert_true((props_of(0x3042) & BT_UNICODE_IS_HAN) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(runs_ascend_from_the_first_code_point),
        BT_TEST(characters_have_their_category),
        BT_TEST(other_properties_are_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
