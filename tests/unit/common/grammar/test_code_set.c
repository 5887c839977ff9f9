/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/code_set.h"

#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/testsupport.h"

static bool has(const bt_code_set_t *set, uint32_t code_point)
{
    for (uint32_t i = 0; i < set->n; i++) {
        if ((set->ranges[i].lo <= code_point) &&
            (code_point <= set->ranges[i].hi)) {
            return true;
        }
    }
    return false;
}

static void ranges_are_sorted_and_joined(void **state)
{
    bt_grammar_compiler_t c;
    bt_code_set_t set = {0};

    (void)state;
    bt_grammar_compiler_init(&c);
    bt_code_set_add(&c, &set, 'x', 'z');
    bt_code_set_add(&c, &set, 'a', 'c');
    bt_code_set_add(&c, &set, 'd', 'd');
    bt_code_set_add(&c, &set, 'b', 'b');
    bt_code_set_add(&c, &set, 'y', '~');
    bt_code_set_add(&c, &set, 0, 0);
    bt_code_set_normalize(&c, &set);
    assert_int_equal(set.n, 3);
    assert_int_equal(set.ranges[0].lo, 0);
    assert_int_equal(set.ranges[0].hi, 0);
    assert_int_equal(set.ranges[1].lo, 'a');
    assert_int_equal(set.ranges[1].hi, 'd');
    assert_int_equal(set.ranges[2].lo, 'x');
    assert_int_equal(set.ranges[2].hi, '~');
    bt_grammar_compiler_fini(&c);
}

static void negation_is_what_is_left(void **state)
{
    bt_grammar_compiler_t c;
    bt_code_set_t set = {0};

    (void)state;
    bt_grammar_compiler_init(&c);
    bt_code_set_negate(&c, &set);
    assert_int_equal(set.n, 1);
    assert_int_equal(set.ranges[0].lo, 0);
    assert_int_equal(set.ranges[0].hi, BT_CODE_POINT_MAX);
    bt_code_set_negate(&c, &set);
    assert_int_equal(set.n, 0);
    bt_code_set_add(&c, &set, 'a', 'z');
    bt_code_set_add(&c, &set, 0x100000, BT_CODE_POINT_MAX);
    bt_code_set_negate(&c, &set);
    assert_int_equal(set.n, 2);
    assert_int_equal(set.ranges[0].hi, 'a' - 1);
    assert_int_equal(set.ranges[1].lo, 'z' + 1);
    assert_int_equal(set.ranges[1].hi, 0xFFFFF);
    bt_grammar_compiler_fini(&c);
}

static void sets_intersect_by_one_code_point(void **state)
{
    bt_grammar_compiler_t c;
    bt_code_set_t a = {0}, b = {0};

    (void)state;
    bt_grammar_compiler_init(&c);
    bt_code_set_add(&c, &a, 'a', 'f');
    bt_code_set_add(&c, &a, 'p', 'q');
    bt_code_set_add(&c, &b, 'g', 'o');
    assert_false(bt_code_set_intersects(&a, &b));
    bt_code_set_add(&c, &b, 'q', 'z');
    assert_true(bt_code_set_intersects(&a, &b));
    assert_true(bt_code_set_intersects(&b, &a));
    bt_grammar_compiler_fini(&c);
}

/* Members are those of UnicodeData.txt, Scripts.txt and PropList.txt 16.0. */
static void properties_have_their_characters(void **state)
{
    static const struct {
        const char *name;
        uint32_t in[3], out[3];
    } cases[] = {
        {"L", {'a', 0x5D0, 0x101}, {'1', '_', 0x300}},
        {"Letter", {'a', 0x5D0, 0x100}, {'1', '_', 0x300}},
        {"Lu", {'A', 0x100, 0x139}, {'a', 0x101, 0x13A}},
        {"Uppercase_Letter", {'A', 0x100, 0x139}, {'a', 0x101, 0x13A}},
        {"Ll", {'a', 0x101, 0x13A}, {'A', 0x100, 0x139}},
        {"LC", {'a', 'A', 0x1C5}, {0x5D0, '1', ' '}},
        {"gc=Nd", {'0', '9', 0x660}, {0xBD, 'a', 0x2160}},
        {"General_Category=Decimal_Number", {'0', '9', 0x660}, {0xBD, 'a', 1}},
        {"P", {'!', '-', '_'}, {'$', '+', 'a'}},
        {"Sc", {'$', 0x20AC, 0xA3}, {'+', 'a', '!'}},
        {"C", {0, 0x378, 0xE000}, {'a', ' ', '1'}},
        {"Cn", {0x378, 0x10FFFF, 0x2FE0}, {0, 0xE000, 'a'}},
        {"Zs", {' ', 0xA0, 0x3000}, {'\n', 0x2028, 'a'}},
        {"Any", {0, 'a', 0x10FFFF}, {0x110000, 0x110000, 0x110000}},
        {"ASCII", {0, 'a', 0x7F}, {0x80, 0x100, 0x10FFFF}},
        {"Assigned", {0, 'a', 0xE000}, {0x378, 0x10FFFF, 0x2FE0}},
        {"White_Space", {' ', '\n', 0x2028}, {0x200B, 'a', 0xFEFF}},
        {"Script=Han", {0x4E2D, 0x3007, 0x20000}, {0x3042, 'a', 0xAC00}},
        {"sc=Hani", {0x4E2D, 0x3007, 0x20000}, {0x3042, 'a', 0xAC00}},
        {"Han", {0x4E2D, 0x3007, 0x20000}, {0x3042, 'a', 0xAC00}},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_grammar_compiler_t c;
        bt_code_set_t set = {0};

        bt_grammar_compiler_init(&c);
        assert_true(bt_code_set_add_property(&c, &set, cases[i].name,
                                             strlen(cases[i].name)));
        for (size_t j = 0; j < 3; j++) {
            if (!has(&set, cases[i].in[j]) || has(&set, cases[i].out[j])) {
                fail_msg("%s: U+%X, U+%X", cases[i].name, cases[i].in[j],
                         cases[i].out[j]);
            }
        }
        bt_grammar_compiler_fini(&c);
    }
}

static void unknown_properties_are_told(void **state)
{
    static const char *const names[] = {
        "",      "l",    "LU",      "Lx", "gc=", "gc=Han", "gc=Any",
        "sc=Lu", "Han=", "Script=", "=L", "L=",  "Nope",   "Alphabetic"};
    bt_grammar_compiler_t c;
    bt_code_set_t set = {0};

    (void)state;
    bt_grammar_compiler_init(&c);
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        assert_false(
            bt_code_set_add_property(&c, &set, names[i], strlen(names[i])));
        assert_true(bt_grammar_ok(&c));
        assert_int_equal(set.n, 0);
    }
    bt_grammar_compiler_fini(&c);
}

static void failed_allocation_is_told(void **state)
{
    bt_grammar_compiler_t c;
    bt_code_set_t set = {0};

    (void)state;
    bt_grammar_compiler_init(&c);
    bt_alloc_fail_at(1);
    bt_code_set_add(&c, &set, 'a', 'z');
    assert_int_equal(bt_alloc_fail_at(0), 0);
    assert_int_equal(c.status, BT_ERR_NO_MEMORY);
    assert_int_equal(set.n, 0);
    assert_false(bt_code_set_add_property(&c, &set, "L", 1));
    bt_code_set_negate(&c, &set);
    bt_code_set_normalize(&c, &set);
    assert_int_equal(set.n, 0);
    bt_grammar_compiler_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ranges_are_sorted_and_joined),
        BT_TEST(negation_is_what_is_left),
        BT_TEST(sets_intersect_by_one_code_point),
        BT_TEST(properties_have_their_characters),
        BT_TEST(unknown_properties_are_told),
        BT_TEST(failed_allocation_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
