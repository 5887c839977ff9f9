/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/compile.h"

#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/testsupport.h"

static char why[BT_GRAMMAR_WHY_BYTES];

static bt_status_t compile(bt_grammar_kind_t kind, const char *text,
                           bt_grammar_t **g_p)
{
    const bt_grammar_source_t source = {
        .kind = kind, .text = text, .bytes = strlen(text)};
    uint8_t *program = NULL;
    size_t bytes = 0;
    const char *fault;
    const bt_status_t status =
        bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));

    if (status == BT_OK) {
        assert_int_equal(bt_grammar_load(program, bytes, &fault, g_p), BT_OK);
        bt_free(program);
    }
    return status;
}

static bool has(const bt_grammar_t *g, const char *text)
{
    uint32_t state = g->rules[0].start;

    for (; *text != '\0'; text++) {
        const bt_grammar_edge_t *edge =
            bt_grammar_read(g, state, (uint8_t)*text);

        if (edge == NULL) {
            return false;
        }
        state = edge->to;
    }
    return g->states[state].accepts;
}

static void choice_has_its_strings_and_no_others(void **state)
{
    bt_grammar_t *g;

    (void)state;
    assert_int_equal(compile(BT_GRAMMAR_CHOICE,
                             "[\"yes\", \"no\", \"n\\u00e9 \\\"x\\\"\"]", &g),
                     BT_OK);
    assert_true(has(g, "yes"));
    assert_true(has(g, "no"));
    assert_true(has(g, "n\xC3\xA9 \"x\""));
    assert_false(has(g, "ye"));
    assert_false(has(g, "yesno"));
    assert_false(has(g, ""));
    bt_grammar_free(g);
}

static void wrong_choices_are_refused_with_the_reason(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"[]", "choices must be a list of at least one string"},
        {"{}", "choices must be a list of at least one string"},
        {"[\"a\", 1]", "choice 1 is no string"},
    };
    bt_grammar_t *g;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(compile(BT_GRAMMAR_CHOICE, cases[i].text, &g),
                         BT_ERR_INVALID_PARAM);
        assert_string_equal(why, cases[i].why);
    }
    assert_int_equal(compile(BT_GRAMMAR_CHOICE, "[\"a\"", &g),
                     BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, "choices are not JSON"));
    assert_false(bt_grammar_compiles(BT_GRAMMAR_LARK));
    assert_int_equal(compile(BT_GRAMMAR_LARK, "", &g), BT_ERR_UNSUPPORTED);
}

static void text_over_the_limit_is_refused(void **state)
{
    static char text[BT_GRAMMAR_TEXT_BYTES + 2];
    bt_grammar_t *g;

    (void)state;
    memset(text, ' ', BT_GRAMMAR_TEXT_BYTES + 1);
    assert_int_equal(compile(BT_GRAMMAR_CHOICE, text, &g), BT_ERR_TOO_LARGE);
}

static void each_failed_allocation_is_a_status(void **state)
{
    bool failed = true;

    (void)state;
    for (int nth = 1; failed; nth++) {
        const bt_grammar_source_t source = {.kind = BT_GRAMMAR_CHOICE,
                                            .text = "[\"abc\",\"abd\"]",
                                            .bytes = 13};
        uint8_t *program = NULL;
        size_t bytes;
        bt_status_t status;

        (void)bt_alloc_fail_at(nth);
        status =
            bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));
        failed = bt_alloc_fail_at(0) == 0;
        assert_int_equal(status, failed ? BT_ERR_NO_MEMORY : BT_OK);
        bt_free(program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(choice_has_its_strings_and_no_others),
        BT_TEST(wrong_choices_are_refused_with_the_reason),
        BT_TEST(text_over_the_limit_is_refused),
        BT_TEST(each_failed_allocation_is_a_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
