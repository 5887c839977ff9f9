/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with bounds, and spelled as JSON strings, beside their definition. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "common/grammar/bounds.h"
#include "common/grammar/builder.h"
#include "tests/support/draw.h"
#include "tests/support/grammar_text.h"
#include "tests/support/testsupport.h"

#define NO_LIMIT BT_REPEAT_NO_LIMIT

/* Compiles an expression alone.
 * @return NULL: it has no text, or, with *why, it cannot be held */
static bt_grammar_t *grammar_of(bt_grammar_compiler_t *c,
                                bt_grammar_builder_t *b, const bt_expr_t *x)
{
    const uint32_t root = bt_builder_rule(b, "root");
    const uint8_t *program;
    size_t bytes;
    const char *why = "";
    bt_grammar_t *g = NULL;
    bt_grammar_bounds_t *bounds = NULL;

    bt_builder_define(b, root, x);
    if (bt_builder_finish(b, root, &program, &bytes) != BT_OK) {
        return NULL;
    }
    assert_int_equal(bt_grammar_load(program, bytes, &why, &g), BT_OK);
    assert_int_equal(bt_grammar_bounds_create(g, &bounds), BT_OK);
    bt_grammar_bounds_destroy(bounds);
    (void)c;
    return g;
}

static bool has(const bt_grammar_t *g, const char *text)
{
    return grammar_has_text(g, text, strlen(text));
}

/* RFC 8259, section 7; the one spelling of each is that of builder.h. */
static void characters_are_spelled_in_one_way(void **state)
{
    static const struct {
        const char *spelled, *other;
    } cases[] = {
        {"\\\"", "\""},
        {"\\\\", "\\"},
        {"\\b", "\\u0008"},
        {"\\f", "\\u000c"},
        {"\\n", "\n"},
        {"\\r", "\\u000D"},
        {"\\t", "\t"},
        {"\\u0000", "\\u0"},
        {"\\u0001", "\x01"},
        {"\\u000b", "\\u000B"},
        {"\\u000e", "\\u000d"},
        {"\\u001f", "\\u001F"},
        {"\\u0010", "\\u0020"},
        {" ", "\\u0009"},
        {"/", "\\/"},
        {"\x7F", "\\u007f"},
        {"\xC3\xA9", "\\u00e9"},
        {"\xE2\x82\xAC", "\xE2\x82"},
        {"\xF0\x9F\x98\x80", "\\ud83d\\ude00"},
    };
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_grammar_t *g;

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    g = grammar_of(&c, b, bt_expr_text(b, bt_dfa_any_text(&c), 1, 1, true));
    assert_non_null(g);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char twice[32];

        if (!has(g, cases[i].spelled) || has(g, cases[i].other)) {
            fail_msg("case %zu", i);
        }
        (void)snprintf(twice, sizeof(twice), "%s%s", cases[i].spelled,
                       cases[i].spelled);
        assert_false(has(g, twice));
    }
    assert_false(has(g, ""));
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

static void any_text_with_bounds_is_one_small_rule(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_grammar_t *g;

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    g = grammar_of(&c, b,
                   bt_expr_text(b, bt_dfa_any_text(&c), 3, 1000000, true));
    assert_non_null(g);
    assert_int_equal(g->n_rules, 2);
    assert_int_equal(g->rules[1].min, 3);
    assert_int_equal(g->rules[1].max, 1000000);
    /* Loop, six states inside of characters, six of escapes. */
    assert_in_range(g->n_states, 10, 18);
    assert_false(has(g, "ab"));
    assert_false(has(g, "\\\"\\\""));
    assert_true(has(g, "\\\"\\\"\\\""));
    assert_false(has(g, "\xF0\x9F\x98\x80\xC3\xA9"));
    assert_true(has(g, "\xF0\x9F\x98\x80\xC3\xA9x"));
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

static void bounds_that_hold_anyway_are_left_out(void **state)
{
    static const char *const texts[] = {"one", "three", "seven"};
    static const size_t lens[] = {3, 5, 5};
    static const struct {
        uint32_t min, max;
        bool three, five;
    } cases[] = {{0, 5, true, true},         {3, NO_LIMIT, true, true},
                 {0, 4, true, false},        {4, NO_LIMIT, false, true},
                 {4, 9, false, true},        {3, 3, true, false},
                 {1, 4000000000, true, true}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_grammar_compiler_t c;
        bt_grammar_builder_t *b;
        bt_grammar_t *g;

        bt_grammar_compiler_init(&c);
        b = bt_builder_create(&c);
        g = grammar_of(&c, b,
                       bt_expr_text(b, bt_dfa_of_texts(&c, texts, lens, 3),
                                    cases[i].min, cases[i].max, false));
        assert_non_null(g);
        assert_int_equal(has(g, "one"), cases[i].three);
        assert_int_equal(has(g, "three"), cases[i].five);
        assert_int_equal(has(g, "seven"), cases[i].five);
        assert_int_equal(g->n_rules > 1, !cases[i].three || !cases[i].five);
        bt_grammar_free(g);
        bt_grammar_compiler_fini(&c);
    }
}

static void bounds_that_no_text_has_leave_nothing(void **state)
{
    static const char *const texts[] = {"", "abc"};
    static const size_t lens[] = {0, 3};
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    const bt_dfa_t *dfa;
    bt_grammar_t *g;

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    dfa = bt_dfa_of_texts(&c, texts, lens, 2);
    g = grammar_of(&c, b, bt_expr_text(b, dfa, 0, 2, false));
    assert_non_null(g);
    assert_true(has(g, ""));
    assert_false(has(g, "abc"));
    bt_grammar_free(g);
    assert_null(grammar_of(&c, b, bt_expr_text(b, dfa, 4, 9, false)));
    assert_int_equal(c.status, BT_ERR_INVALID_PARAM);
    assert_string_equal(c.why, "no text is in the grammar");
    bt_grammar_compiler_fini(&c);
}

/* (ab)*: only even lengths. */
static const bt_dfa_t *pairs(bt_grammar_compiler_t *c)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t even = bt_nfa_state(nfa), odd = bt_nfa_state(nfa);

    bt_nfa_edge(nfa, even, 'a', 'a', odd);
    bt_nfa_edge(nfa, odd, 'b', 'b', even);
    return bt_nfa_to_dfa(nfa, even, even);
}

static void lengths_with_gaps_are_held_or_refused(void **state)
{
    static const struct {
        uint32_t min, max;
        bool is_counted, is_refused;
    } cases[] = {
        {0, 3, true, false},        {0, 1000000, true, false},
        {3, NO_LIMIT, true, false}, {2, 6, false, false},
        {3, 1000, false, false},    {3, 4000, false, false},
        {3, 5000, false, true},     {1000000, 1000001, false, true},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_grammar_compiler_t c;
        bt_grammar_builder_t *b;
        bt_grammar_t *g;
        char text[20] = "";

        bt_grammar_compiler_init(&c);
        b = bt_builder_create(&c);
        g = grammar_of(
            &c, b,
            bt_expr_text(b, pairs(&c), cases[i].min, cases[i].max, false));
        assert_int_equal(g == NULL, cases[i].is_refused);
        if (g == NULL) {
            assert_int_equal(c.status, BT_ERR_UNSUPPORTED);
            bt_grammar_compiler_fini(&c);
            continue;
        }
        assert_int_equal(g->n_rules > 1, cases[i].is_counted);
        for (uint32_t n = 0; n < 16; n++) {
            assert_int_equal(has(g, text), (n % 2 == 0) &&
                                               (n >= cases[i].min) &&
                                               (n <= cases[i].max));
            text[n] = (n % 2 == 0) ? 'a' : 'b';
            text[n + 1] = '\0';
        }
        bt_grammar_free(g);
        bt_grammar_compiler_fini(&c);
    }
}

/*
 * Random automata
 */

static const char *const letters[] = {"a", "\"", "\n", "\xC3\xA9"};
static const char *const spelled[] = {"a", "\\\"", "\\n", "\xC3\xA9"};

static const bt_dfa_t *draw_dfa(bt_grammar_compiler_t *c, uint64_t *rng)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t n = 1 + (uint32_t)draw_below(rng, 4);
    const uint32_t end = bt_nfa_state(nfa);

    for (uint32_t s = 0; s < n; s++) {
        (void)bt_nfa_state(nfa);
    }
    for (uint32_t i = 0; i < n * 3; i++) {
        const uint32_t from = 1 + (uint32_t)draw_below(rng, n);
        const uint32_t to = 1 + (uint32_t)draw_below(rng, n);
        uint32_t cp = 0;

        (void)bt_utf8_decode((const uint8_t *)letters[draw_below(rng, 4)], &cp);
        bt_nfa_code_points(nfa, from, cp, cp, to);
        if (draw_below(rng, 3) == 0) {
            bt_nfa_epsilon(nfa, from, end);
        }
    }
    return bt_nfa_to_dfa(nfa, 1, end);
}

static void append(char *to, size_t cap, const char *more)
{
    const size_t n = strlen(to);

    assert_true((size_t)snprintf(to + n, cap - n, "%s", more) < cap - n);
}

static void random_texts_have_their_lengths_and_spelling(void **state)
{
    const uint32_t n_rounds = bt_test_rounds(700);
    uint64_t rng = 3;
    uint32_t n_grammars = 0, n_texts = 0;

    (void)state;
    for (uint32_t round = 0; round < n_rounds; round++) {
        const uint32_t min = (uint32_t)draw_below(&rng, 4);
        const uint32_t max = (draw_below(&rng, 3) == 0)
                                 ? NO_LIMIT
                                 : min + (uint32_t)draw_below(&rng, 3);
        bt_grammar_compiler_t c;
        bt_grammar_builder_t *b;
        const bt_dfa_t *dfa;
        bt_grammar_t *g;
        bool any = false;

        bt_grammar_compiler_init(&c);
        b = bt_builder_create(&c);
        dfa = draw_dfa(&c, &rng);
        g = grammar_of(&c, b, bt_expr_text(b, dfa, min, max, true));
        for (uint32_t index = 0; index < 1365; index++) { /* up to 5 letters */
            char text[16] = "", as_json[16] = "";
            uint32_t n = 0;
            bool want;

            for (uint32_t rest = index; rest > 0; rest = (rest - 1) / 4) {
                append(text, sizeof(text), letters[(rest - 1) % 4]);
                append(as_json, sizeof(as_json), spelled[(rest - 1) % 4]);
                n++;
            }
            want = (n >= min) && (n <= max) &&
                   bt_dfa_accepts(dfa, text, strlen(text));
            any = any || want;
            if ((g != NULL) && (has(g, as_json) != want)) {
                fail_msg("round %u: %s", round, as_json);
            }
            n_texts++;
        }
        assert_true((g != NULL) || !any);
        n_grammars += (g != NULL);
        bt_grammar_free(g);
        bt_grammar_compiler_fini(&c);
    }
    assert_in_range(n_grammars, n_rounds / 2, n_rounds - 1);
    assert_true(n_texts > n_rounds * 1300);
}

static void each_failed_allocation_is_a_status(void **state)
{
    bool failed = true;

    (void)state;
    for (int nth = 1; failed; nth++) {
        bt_grammar_compiler_t c;
        bt_grammar_builder_t *b;
        const bt_expr_t *x;

        bt_grammar_compiler_init(&c);
        (void)bt_alloc_fail_at(nth);
        b = bt_builder_create(&c);
        x = bt_expr_text(b, pairs(&c), 3, 20, true);
        x = (x != NULL) ? bt_expr_text(b, bt_dfa_any_text(&c), 2, 9, true) : x;
        failed = bt_alloc_fail_at(0) == 0;
        assert_int_equal(x == NULL, failed);
        assert_int_equal(c.status, failed ? BT_ERR_NO_MEMORY : BT_OK);
        bt_grammar_compiler_fini(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(characters_are_spelled_in_one_way),
        BT_TEST(any_text_with_bounds_is_one_small_rule),
        BT_TEST(bounds_that_hold_anyway_are_left_out),
        BT_TEST(bounds_that_no_text_has_leave_nothing),
        BT_TEST(lengths_with_gaps_are_held_or_refused),
        BT_TEST(random_texts_have_their_lengths_and_spelling),
        BT_TEST(each_failed_allocation_is_a_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
