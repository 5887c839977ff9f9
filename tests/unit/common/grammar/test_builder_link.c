/* SPDX-License-Identifier: Apache-2.0 */
/* Rules together: left recursion, equal rules, merged rules. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/bounds.h"
#include "common/grammar/builder.h"
#include "tests/support/grammar_text.h"
#include "tests/support/testsupport.h"

#define NO_LIMIT BT_REPEAT_NO_LIMIT

/* Grammar of rules by letter: the text of a rule is its alternatives, with
 * rules as capital letters, the first of which is the root. */
typedef struct made {
    bt_grammar_compiler_t c;
    bt_grammar_t *g;
    bt_status_t status;
} made_t;

static const bt_expr_t *alternative(bt_grammar_builder_t *b, const char *text,
                                    size_t n)
{
    const bt_expr_t *parts[64];
    uint32_t n_parts = 0;

    for (size_t i = 0; i < n; i++) {
        parts[n_parts++] = ((text[i] >= 'A') && (text[i] <= 'Z'))
                               ? bt_expr_rule(b, (uint32_t)(text[i] - 'A'))
                               : bt_expr_literal(b, &text[i], 1);
    }
    return bt_expr_seq(b, parts, n_parts);
}

/* @param [in] rules  Of A, B and so on; NULL behind the last */
static void make(made_t *m, const char *const *rules)
{
    static const char *const names[] = {"A", "B", "C", "D", "E", "F", "G"};
    bt_grammar_builder_t *b;
    bt_grammar_bounds_t *bounds = NULL;
    const uint8_t *program = NULL;
    const char *why = "";
    size_t bytes = 0;

    memset(m, 0, sizeof(*m));
    bt_grammar_compiler_init(&m->c);
    b = bt_builder_create(&m->c);
    for (uint32_t r = 0; rules[r] != NULL; r++) {
        (void)bt_builder_rule(b, names[r]);
    }
    for (uint32_t r = 0; rules[r] != NULL; r++) {
        const bt_expr_t *x = NULL;

        for (const char *at = rules[r];;) {
            const size_t n = strcspn(at, "|");
            const bt_expr_t *y = alternative(b, at, n);

            x = (x == NULL)
                    ? y
                    : bt_expr_alt(b, (const bt_expr_t *const[]){x, y}, 2);
            if (at[n] == '\0') {
                break;
            }
            at += n + 1;
        }
        if (strcmp(rules[r], "?") != 0) {
            bt_builder_define(b, r, x);
        }
    }
    m->status = bt_builder_finish(b, 0, &program, &bytes);
    if (m->status == BT_OK) {
        m->status = bt_grammar_load(program, bytes, &why, &m->g);
    }
    if (m->status == BT_OK) {
        m->status = bt_grammar_bounds_create(m->g, &bounds);
    }
    bt_grammar_bounds_destroy(bounds);
}

#define MAKE(m, ...) make(m, (const char *const[]){__VA_ARGS__, NULL})

static bool has(const made_t *m, const char *text)
{
    return grammar_has_text(m->g, text, strlen(text));
}

static void end(made_t *m)
{
    bt_grammar_free(m->g);
    bt_grammar_compiler_fini(&m->c);
}

static void left_recursion_is_refused_by_name(void **state)
{
    static const struct {
        const char *rules[4];
        const char *why;
    } cases[] = {
        {{"Aa|b"}, "rule A begins with itself (left recursion)"},
        {{"B", "Ba|b"}, "rule B begins with itself (left recursion)"},
        {{"xB|y", "Ca|b", "Bc"}, "rule C begins with itself (left recursion)"},
        /* B may be empty, so C begins with itself. */
        {{"C", "x|", "BCc|d"}, "rule C begins with itself (left recursion)"},
        {{"A|b"}, "rule A begins with itself (left recursion)"},
        {{"aB|c", "BB|b"}, "rule B begins with itself (left recursion)"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        made_t m;

        make(&m, cases[i].rules);
        assert_int_equal(m.status, BT_ERR_UNSUPPORTED);
        if (strcmp(m.c.why, cases[i].why) != 0) {
            fail_msg("case %zu: %s", i, m.c.why);
        }
        end(&m);
    }
}

static void left_recursion_in_a_repetition_is_refused_by_name(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    const uint8_t *program;
    const bt_expr_t *x;
    size_t bytes;
    uint32_t list;

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    list = bt_builder_rule(b, "list");
    x = bt_expr_repeat(b, bt_expr_rule(b, list), 100, 200);
    x = bt_expr_alt(
        b, (const bt_expr_t *const[]){x, bt_expr_literal(b, "a", 1)}, 2);
    bt_builder_define(b, list, x);
    assert_int_equal(bt_builder_finish(b, list, &program, &bytes),
                     BT_ERR_UNSUPPORTED);
    assert_string_equal(c.why, "rule list begins with itself (left recursion)");
    bt_grammar_compiler_fini(&c);
}

static void missing_rules_are_refused_by_name(void **state)
{
    made_t m;

    (void)state;
    MAKE(&m, "aB", "?");
    assert_int_equal(m.status, BT_ERR_INVALID_PARAM);
    assert_string_equal(m.c.why, "rule B is used and not defined");
    end(&m);
    MAKE(&m, "?");
    assert_int_equal(m.status, BT_ERR_INVALID_PARAM);
    assert_string_equal(m.c.why, "the grammar has no root rule");
    end(&m);
    MAKE(&m, "aA");
    assert_int_equal(m.status, BT_ERR_INVALID_PARAM);
    assert_string_equal(m.c.why, "no text is in the grammar");
    end(&m);
}

static void right_recursion_needs_no_frames(void **state)
{
    made_t m;

    (void)state;
    MAKE(&m, "aA|b");
    assert_int_equal(m.g->n_rules, 2); /* nothing calls the root */
    assert_true(has(&m, "aaab"));
    assert_false(has(&m, "aaa"));
    end(&m);
}

static void equal_rules_are_one(void **state)
{
    made_t m;

    (void)state;
    /* C and D call themselves, so they are not merged; E and F are equal, and
     * then so are the rules that call them, which leaves one of each. */
    MAKE(&m, "xE|yF", "", "(C)|c", "", "<Cq>", "<Cq>");
    assert_int_equal(m.g->n_rules, 2);
    assert_true(has(&m, "x<(c)q>"));
    assert_true(has(&m, "y<(c)q>"));
    assert_false(has(&m, "z<(c)q>"));
    /* Both ways of the root are one now, behind x and y. */
    assert_int_equal(m.g->states[m.g->rules[0].start].n_edges, 1);
    end(&m);
}

/* Rules that are called often and are not small. */
static void equal_rules_that_count_are_one(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_grammar_t *g = NULL;
    const bt_expr_t *parts[40];
    const uint8_t *program;
    const char *why;
    size_t bytes;
    uint32_t root;

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    root = bt_builder_rule(b, "root");
    for (uint32_t i = 0; i < 40; i++) {
        const char name[] = {(char)('A' + i % 20), ':'};

        parts[i] = bt_expr_seq(
            b,
            (const bt_expr_t *const[]){
                bt_expr_literal(b, name, 2),
                bt_expr_text(b, bt_dfa_any_text(&c), 0, 500 + i % 2, true)},
            2);
    }
    bt_builder_define(b, root, bt_expr_seq(b, parts, 40));
    assert_int_equal(bt_builder_finish(b, root, &program, &bytes), BT_OK);
    assert_int_equal(bt_grammar_load(program, bytes, &why, &g), BT_OK);
    assert_int_equal(g->n_rules, 3);
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

/* True when from each state a byte leads to one state at most: no call may
 * begin with a byte that something else of the state begins with. */
static bool leaves_nothing_open(const bt_grammar_t *g)
{
    for (uint32_t s = 0; s < g->n_states; s++) {
        const bt_grammar_state_t *const state = &g->states[s];

        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t n = (bt_grammar_read(g, s, (uint8_t)byte) != NULL);

            for (uint32_t e = 0; e < state->n_edges; e++) {
                const bt_grammar_edge_t *const edge =
                    &g->edges[state->first_edge + e];

                if (edge->kind == BT_GRAMMAR_CALLS) {
                    n += bt_grammar_read(g, g->rules[edge->arg].start,
                                         (uint8_t)byte) != NULL;
                }
            }
            if (n > 1) {
                return false;
            }
        }
    }
    return true;
}

/* Alternatives that begin alike, each a rule that is used elsewhere too. */
static void alternatives_that_begin_alike_are_one_automaton(void **state)
{
    made_t m;

    (void)state;
    MAKE(&m, "B|C|xB|yC|zB|wC|vB|uC", "{kind:abcdefghijklmnopqrstuvwl,D}",
         "{kind:abcdefghijklmnopqrstuvwm,E}", "12345678901|(D)",
         "12345678902|(E)");
    assert_true(leaves_nothing_open(m.g));
    assert_true(m.g->n_rules > 1);
    assert_true(has(&m, "{kind:abcdefghijklmnopqrstuvwl,((12345678901))}"));
    assert_true(has(&m, "z{kind:abcdefghijklmnopqrstuvwl,12345678901}"));
    assert_true(has(&m, "{kind:abcdefghijklmnopqrstuvwm,(12345678902)}"));
    assert_false(has(&m, "{kind:abcdefghijklmnopqrstuvwm,(12345678901)}"));
    assert_false(has(&m, "y{kind:abcdefghijklmnopqrstuvwl,12345678901}"));
    end(&m);
}

/* Two recursive rules stay calls. */
static void alternatives_that_call_themselves_stay_open(void **state)
{
    made_t m;

    (void)state;
    MAKE(&m, "Bx|Cy", "(B)|a", "(C)|b");
    assert_false(leaves_nothing_open(m.g));
    assert_true(has(&m, "((a))x"));
    assert_true(has(&m, "((b))y"));
    assert_false(has(&m, "((a))y"));
    end(&m);
}

static void rules_called_once_are_merged(void **state)
{
    made_t m;

    (void)state;
    MAKE(&m, "aBz", "bCy", "cDx", "d");
    assert_int_equal(m.g->n_rules, 1);
    assert_int_equal(m.g->n_states, 8);
    assert_true(has(&m, "abcdxyz"));
    end(&m);
}

/* Each of many rules uses one of 2,000 states, which cannot be copied. */
static void large_rules_used_often_stay_calls(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_grammar_t *g = NULL;
    const bt_expr_t *parts[200];
    char word[2000];
    const uint8_t *program;
    const char *why;
    size_t bytes = 0;
    uint32_t root, large;

    (void)state;
    for (uint32_t i = 0; i < sizeof(word); i++) {
        word[i] = (char)('a' + (i * i + i / 7) % 26);
    }
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    root = bt_builder_rule(b, "root");
    large = bt_builder_rule(b, "large");
    bt_builder_define(b, large, bt_expr_literal(b, word, sizeof(word)));
    for (uint32_t i = 0; i < 200; i++) {
        char name[12];
        const int n = snprintf(name, sizeof(name), "%u", i);

        parts[i] = bt_expr_seq(
            b,
            (const bt_expr_t *const[]){bt_expr_literal(b, name, (size_t)n),
                                       bt_expr_rule(b, large),
                                       bt_expr_literal(b, name, (size_t)n)},
            3);
    }
    bt_builder_define(b, root, bt_expr_alt(b, parts, 200));
    assert_int_equal(bt_builder_finish(b, root, &program, &bytes), BT_OK);
    assert_int_equal(bt_grammar_load(program, bytes, &why, &g), BT_OK);
    assert_int_equal(g->n_rules, 2);
    assert_true(bytes < 8000);
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

/* Two rules that begin alike are called in a hundred places: one automaton for
 * both in each place does not fit a program. */
static void merging_that_does_not_fit_is_undone(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_grammar_t *g = NULL;
    const bt_expr_t *parts[100], *either;
    char word[440];
    const uint8_t *program;
    const char *why;
    size_t bytes = 0;

    (void)state;
    for (uint32_t i = 0; i < sizeof(word); i++) {
        word[i] = (char)('a' + (i * i + i / 7) % 26);
    }
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(bt_builder_rule(b, "rule"), r);
        word[400] = (char)('0' + r);
        bt_builder_define(b, r, bt_expr_literal(b, word, sizeof(word)));
    }
    either = bt_expr_alt(
        b, (const bt_expr_t *const[]){bt_expr_rule(b, 1), bt_expr_rule(b, 2)},
        2);
    for (uint32_t i = 0; i < 100; i++) {
        char name[12];
        const int n = snprintf(name, sizeof(name), "%u.", i);
        const bt_expr_t *x = bt_expr_literal(b, name, (size_t)n);

        parts[i] = bt_expr_seq(b, (const bt_expr_t *const[]){x, either, x}, 3);
    }
    bt_builder_define(b, 0, bt_expr_alt(b, parts, 100));
    assert_int_equal(bt_builder_finish(b, 0, &program, &bytes), BT_OK);
    assert_int_equal(bt_grammar_load(program, bytes, &why, &g), BT_OK);
    assert_int_equal(g->n_rules, 3);
    assert_true(bytes < 4000);
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

/* ab…b: each rule begins with the next. */
static void chain_of_four_thousand_rules_is_linked(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_grammar_t *g = NULL;
    const uint8_t *program;
    const char *why = "";
    size_t bytes = 0;

    (void)state;
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    for (uint32_t i = 0; i < 4000; i++) {
        assert_int_equal(bt_builder_rule(b, "link"), i);
    }
    for (uint32_t i = 0; i < 4000; i++) {
        bt_builder_define(b, i,
                          (i == 3999)
                              ? bt_expr_literal(b, "a", 1)
                              : bt_expr_seq(b,
                                            (const bt_expr_t *const[]){
                                                bt_expr_rule(b, i + 1),
                                                bt_expr_literal(b, "b", 1)},
                                            2));
    }
    assert_int_equal(bt_builder_finish(b, 0, &program, &bytes), BT_OK);
    assert_int_equal(bt_grammar_load(program, bytes, &why, &g), BT_OK);
    assert_in_range(g->n_rules, 1, 6);
    assert_in_range(g->n_states, 4001, 4020);
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

static void each_failed_allocation_is_a_status(void **state)
{
    static const char *const rules[] = {"xE|yF|C|D|", "bB|",  "(C)|c", "(D)cB",
                                        "<Cq>",       "<Cq>", NULL};
    bool failed = true;

    (void)state;
    for (int nth = 1; failed; nth++) {
        made_t m;

        (void)bt_alloc_fail_at(nth);
        make(&m, rules);
        failed = bt_alloc_fail_at(0) == 0;
        assert_int_equal(m.status, failed ? BT_ERR_NO_MEMORY : BT_OK);
        end(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(left_recursion_is_refused_by_name),
        BT_TEST(left_recursion_in_a_repetition_is_refused_by_name),
        BT_TEST(missing_rules_are_refused_by_name),
        BT_TEST(right_recursion_needs_no_frames),
        BT_TEST(equal_rules_are_one),
        BT_TEST(equal_rules_that_count_are_one),
        BT_TEST(alternatives_that_begin_alike_are_one_automaton),
        BT_TEST(alternatives_that_call_themselves_stay_open),
        BT_TEST(rules_called_once_are_merged),
        BT_TEST(large_rules_used_often_stay_calls),
        BT_TEST(merging_that_does_not_fit_is_undone),
        BT_TEST(chain_of_four_thousand_rules_is_linked),
        BT_TEST(each_failed_allocation_is_a_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
