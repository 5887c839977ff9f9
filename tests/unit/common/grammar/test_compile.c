/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/compile.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
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
    assert_int_equal(compile(BT_GRAMMAR_LARK, "", &g), BT_ERR_INVALID_PARAM);
    assert_string_equal(why, "there is no rule start");
}

/* No UTF-8 text is such a half, so U+FFFD in its place would be an answer that
 * the client's validator does not take: Python's jsonschema finds "\ufffd"
 * invalid against {"const": "\ud800"}. */
static void half_of_a_surrogate_pair_is_refused(void **state)
{
    bt_grammar_t *g;

    (void)state;
    assert_int_equal(compile(BT_GRAMMAR_CHOICE, "[\"a\\ud800\"]", &g),
                     BT_ERR_INVALID_PARAM);
    assert_string_equal(why, "choices are not Unicode text: half of a "
                             "surrogate pair at byte 3");
    assert_int_equal(
        compile(BT_GRAMMAR_JSON_SCHEMA, "{\"const\": \"\\udfff\"}", &g),
        BT_ERR_INVALID_PARAM);
    assert_string_equal(why, "the schema is not Unicode text: half of a "
                             "surrogate pair at byte 11");
    assert_int_equal(
        compile(BT_GRAMMAR_CHOICE, "[\"\\ud83d\\ude00\", \"\\ufffd\"]", &g),
        BT_OK);
    assert_true(has(g, "\xF0\x9F\x98\x80"));
    assert_true(has(g, "\xEF\xBF\xBD"));
    bt_grammar_free(g);
}

/* Rules rN ::= "(" rN+1 rN+1 ")" nest N deep in each text: a frame for each,
 * but for the last ones, which are merged. */
static void texts_that_are_too_deep_are_refused(void **state)
{
    static char text[BT_GRAMMAR_TEXT_BYTES];
    bt_grammar_t *g;
    int n;

    (void)state;
    for (int depth = 100; depth <= 1500; depth += 1400) {
        n = snprintf(text, sizeof(text), "root ::= r0\n");
        for (int i = 0; i < depth; i++) {
            n += snprintf(text + n, sizeof(text) - (size_t)n,
                          "r%d ::= \"(\" r%d r%d \")\"\n", i, i + 1, i + 1);
        }
        snprintf(text + n, sizeof(text) - (size_t)n, "r%d ::= \"y\"\n", depth);
        if (depth == 100) {
            assert_int_equal(compile(BT_GRAMMAR_EBNF, text, &g), BT_OK);
            bt_grammar_free(g);
        } else {
            assert_int_equal(compile(BT_GRAMMAR_EBNF, text, &g),
                             BT_ERR_TOO_LARGE);
            assert_string_equal(why, "each text of the grammar has more than "
                                     "255 rules in one another");
        }
    }
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

/* Counts polls; cancels its task at one of them. */
typedef struct polled {
    bt_task_t task;
    uint32_t n, cancel_at; /* 0: never */
} polled_t;

static void polled_yield(void *ctx)
{
    polled_t *polled = ctx;

    if (++polled->n == polled->cancel_at) {
        bt_task_cancel(&polled->task);
    }
}

static bt_status_t compile_polled(const bt_grammar_source_t *source,
                                  polled_t *polled)
{
    uint8_t *program = NULL;
    size_t bytes = 0;
    bt_task_t *before;
    bt_status_t status;

    bt_task_init(&polled->task);
    polled->task.yield = polled_yield;
    polled->task.ctx = polled;
    before = bt_task_enter(&polled->task);
    status = bt_grammar_compile(source, &program, &bytes, why, sizeof(why));
    bt_free(program);
    bt_task_leave(before);
    return status;
}

/* What a step tries and gives up must not take the cancellation for a limit,
 * and write another program. */
static void canceled_compilation_ends_soon_and_has_no_program(void **state)
{
    static const char *const texts[] = {
        /* refused, after it was looked at for long */
        "{\"type\":\"string\",\"allOf\":[{\"pattern\":\"a.*b\"},"
        "{\"pattern\":\"b.*c\"},{\"pattern\":\"c.*d\"},"
        "{\"pattern\":\"d.*e\"},{\"pattern\":\"e.*f\"}]}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"pattern\":"
        "\"^(x|yz){3,90}$\"},\"b\":{\"type\":\"array\",\"items\":{"
        "\"anyOf\":[{\"type\":\"number\"},{\"$ref\":\"#\"}]}}}}",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        const bt_grammar_source_t source = {.kind = BT_GRAMMAR_JSON_SCHEMA,
                                            .text = texts[i],
                                            .bytes = strlen(texts[i])};
        polled_t whole = {0};
        const bt_status_t status = compile_polled(&source, &whole);

        assert_int_not_equal(status, BT_ERR_NO_MEMORY);
        assert_true(whole.n > 20);
        for (uint32_t at = 1; at <= whole.n; at += 1 + whole.n / 50) {
            polled_t polled = {.cancel_at = at};

            assert_int_equal(compile_polled(&source, &polled),
                             BT_ERR_NO_MEMORY);
            assert_in_range(polled.n, at, at + 4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(choice_has_its_strings_and_no_others),
        BT_TEST(wrong_choices_are_refused_with_the_reason),
        BT_TEST(half_of_a_surrogate_pair_is_refused),
        BT_TEST(texts_that_are_too_deep_are_refused),
        BT_TEST(text_over_the_limit_is_refused),
        BT_TEST(each_failed_allocation_is_a_status),
        BT_TEST(canceled_compilation_ends_soon_and_has_no_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
