/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/rule_names.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/testsupport.h"

static void names_are_found_again(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_rule_names_t names = {0};

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 1000; i++) {
            char text[16];
            const int n = snprintf(text, sizeof(text), "a%u", i);

            assert_int_equal(
                bt_rule_names_get(&names, b, &c, text, (uint32_t)n, i + round),
                i);
            assert_string_equal(names.list[i].text, text);
            assert_int_equal(names.list[i].line, i);
            assert_int_equal(names.list[i].rule, i);
            assert_false(names.list[i].is_defined);
        }
    }
    assert_int_equal(names.n, 1000);
    assert_int_equal(bt_rule_names_get(&names, b, &c, "a10x", 3, 1), 10);
    bt_grammar_compiler_fini(&c);
}

static void undefined_names_and_roots_are_told(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_rule_names_t names = {0};
    uint32_t name;

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    name = bt_rule_names_get(&names, b, &c, "top", 3, 1);
    names.list[name].is_defined = true;
    assert_non_null(bt_rule_names_root(&names, b, &c, "top"));
    (void)bt_rule_names_get(&names, b, &c, "other", 5, 7);
    assert_null(bt_rule_names_root(&names, b, &c, "top"));
    assert_string_equal(c.why, "line 7: rule other is not defined");
    assert_int_equal(bt_rule_names_get(&names, b, &c, "x", 1, 1),
                     BT_RULE_NAMES_NONE);
    bt_grammar_compiler_fini(&c);

    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    names = (bt_rule_names_t){0};
    assert_null(bt_rule_names_root(&names, b, &c, "top"));
    assert_string_equal(c.why, "there is no rule top");
    bt_grammar_compiler_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(names_are_found_again),
        BT_TEST(undefined_names_and_roots_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
