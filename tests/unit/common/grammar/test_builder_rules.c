/* SPDX-License-Identifier: Apache-2.0 */
/* Automata of rules: empty texts, repetitions, parts that are used often. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/bounds.h"
#include "common/grammar/builder.h"
#include "common/grammar/builder_priv.h"
#include "tests/support/grammar_text.h"
#include "tests/support/testsupport.h"

#define NO_LIMIT BT_REPEAT_NO_LIMIT

/* Grammar with the rule 0 as its root. */
typedef struct made {
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    bt_grammar_t *g;
} made_t;

static void begin(made_t *m)
{
    memset(m, 0, sizeof(*m));
    bt_grammar_compiler_init(&m->c);
    m->b = bt_builder_create(&m->c);
    assert_int_equal(bt_builder_rule(m->b, "root"), 0);
}

static bt_status_t finish(made_t *m, const bt_expr_t *x)
{
    const uint8_t *program = NULL;
    size_t bytes = 0;
    const char *why = "";
    bt_grammar_bounds_t *bounds = NULL;
    bt_status_t status;

    bt_builder_define(m->b, 0, x);
    status = bt_builder_finish(m->b, 0, &program, &bytes);
    if (status == BT_OK) {
        if (bt_grammar_load(program, bytes, &why, &m->g) != BT_OK) {
            fail_msg("%s", why);
        }
        assert_int_equal(bt_grammar_bounds_create(m->g, &bounds), BT_OK);
        bt_grammar_bounds_destroy(bounds);
    }
    return status;
}

static bool has(const made_t *m, const char *text)
{
    return grammar_has_text(m->g, text, strlen(text));
}

static void end(made_t *m)
{
    bt_grammar_free(m->g);
    bt_grammar_compiler_fini(&m->c);
}

static const bt_expr_t *text(made_t *m, const char *bytes)
{
    return bt_expr_literal(m->b, bytes, strlen(bytes));
}

static const bt_expr_t *seq(made_t *m, const bt_expr_t *x, const bt_expr_t *y)
{
    return bt_expr_seq(m->b, (const bt_expr_t *const[]){x, y}, 2);
}

static const bt_expr_t *alt(made_t *m, const bt_expr_t *x, const bt_expr_t *y)
{
    return bt_expr_alt(m->b, (const bt_expr_t *const[]){x, y}, 2);
}

/* a{min,max} for all counts around what is written out and what counts. */
static void repetitions_have_their_counts(void **state)
{
    static const uint32_t maxima[] = {0, 1, 2, 5, 40, 63, 64, 65, 66, 1000};

    (void)state;
    for (size_t i = 0; i < 2 * BT_ARRAY_LEN(maxima); i++) {
        const uint32_t number = maxima[i / 2];
        const uint32_t min = (i % 2 == 0) ? number / 2 : number;
        const uint32_t max = (i % 2 == 0) ? number : NO_LIMIT;
        char all[64] = "";
        made_t m;

        begin(&m);
        assert_int_equal(
            finish(&m, bt_expr_repeat(m.b, text(&m, "a"), min, max)), BT_OK);
        for (uint32_t n = 0; n < 62; n++) {
            assert_int_equal(has(&m, all), (n >= min) && (n <= max));
            all[n] = 'a';
            all[n + 1] = '\0';
        }
        assert_int_equal(m.g->n_rules > 1,
                         ((max == NO_LIMIT) ? min : max) > BT_UNROLL_STATES);
        assert_true(m.g->n_states <= BT_UNROLL_STATES + 2);
        end(&m);
    }
}

static void largest_counts_are_as_small_as_others(void **state)
{
    made_t m;

    (void)state;
    begin(&m);
    assert_int_equal(
        finish(&m, bt_expr_repeat(m.b, bt_expr_bytes(m.b, 'a', 'z'),
                                  4294967293u, 4294967294u)),
        BT_OK);
    assert_int_equal(m.g->n_rules, 2);
    assert_int_equal(m.g->rules[1].min, 4294967293u);
    assert_int_equal(m.g->rules[1].max, 4294967294u);
    assert_true(m.g->n_states < 6);
    end(&m);
}

/* Where an item may be empty, or ends where the next may begin with the same
 * byte. */
static void items_of_any_kind_are_counted(void **state)
{
    static const struct {
        const char *first, *second; /* item: first, or second */
        uint32_t min, max;
        const char *in[4], *out[4];
    } cases[] = {
        {"", "ab", 500, 900, {"", "ab", "abab"}, {"a", "aba"}},
        {"a", "aa", 3, 500, {"aaa", "aaaa", "aaaaaaaaaaaa"}, {"", "a", "aa"}},
        {"ab", "b", 2, 500, {"bb", "abb", "abab"}, {"b", "ab", "aab"}},
        {"ab", "a", 3, 500, {"aaa", "abaab"}, {"aba", "abab", "bab"}},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        made_t m;

        begin(&m);
        assert_int_equal(
            finish(&m, bt_expr_repeat(m.b,
                                      alt(&m, text(&m, cases[i].first),
                                          text(&m, cases[i].second)),
                                      cases[i].min, cases[i].max)),
            BT_OK);
        for (size_t k = 0; (k < 4) && (cases[i].in[k] != NULL); k++) {
            if (!has(&m, cases[i].in[k])) {
                fail_msg("case %zu: not %s", i, cases[i].in[k]);
            }
        }
        for (size_t k = 0; (k < 4) && (cases[i].out[k] != NULL); k++) {
            if (has(&m, cases[i].out[k])) {
                fail_msg("case %zu: %s", i, cases[i].out[k]);
            }
        }
        end(&m);
    }
}

/* Items with calls: ["x"], each in brackets. */
static void items_with_calls_count_with_their_first_byte(void **state)
{
    made_t m;
    uint32_t inner;
    const bt_expr_t *item;

    (void)state;
    begin(&m);
    inner = bt_builder_rule(m.b, "inner"); /* calls itself: is not merged */
    bt_builder_define(
        m.b, inner,
        alt(&m, text(&m, "x"),
            seq(&m, text(&m, "("),
                seq(&m, bt_expr_rule(m.b, inner), text(&m, ")")))));
    item = seq(&m, text(&m, "["),
               seq(&m, bt_expr_rule(m.b, inner), text(&m, "]")));
    assert_int_equal(finish(&m, bt_expr_repeat(m.b, item, 2, 100)), BT_OK);
    assert_int_equal(m.g->n_rules, 3); /* root, the one that counts, inner */
    assert_false(has(&m, "[x]"));
    assert_true(has(&m, "[x][((x))]"));
    assert_true(has(&m, "[x][x][x][(x)]"));
    assert_false(has(&m, "[x][x)]"));
    end(&m);
}

/* (a|b)*a(a|b){20} has 2^21 states as one automaton. */
static void repetition_of_exponential_size_is_counted_instead(void **state)
{
    made_t m;
    const bt_expr_t *x;

    (void)state;
    begin(&m);
    x = bt_expr_bytes(m.b, 'a', 'b');
    x = bt_expr_seq(m.b,
                    (const bt_expr_t *const[]){
                        bt_expr_repeat(m.b, x, 0, NO_LIMIT), text(&m, "a"),
                        bt_expr_repeat(m.b, x, 20, 20)},
                    3);
    assert_int_equal(finish(&m, x), BT_OK);
    assert_true(m.g->n_states < 20);
    assert_true(has(&m, "abbbbbbbbbbbbbbbbbbbb"));
    assert_true(has(&m, "bbbaabbabbbbbbbbbbbbabbb"));
    assert_false(has(&m, "abbbbbbbbbbbbbbbbbbb"));
    assert_false(has(&m, "babbbbbbbbbbbbbbbbbbb"));
    end(&m);
}

static void empty_texts_are_taken_out_of_rules(void **state)
{
    made_t m;
    uint32_t opt, deep;

    (void)state;
    begin(&m);
    opt = bt_builder_rule(m.b, "opt"); /* "" or ( opt ) */
    deep = bt_builder_rule(m.b, "deep");
    bt_builder_define(m.b, opt,
                      alt(&m, bt_expr_empty(m.b),
                          seq(&m, text(&m, "("),
                              seq(&m, bt_expr_rule(m.b, opt), text(&m, ")")))));
    bt_builder_define(m.b, deep,
                      seq(&m, bt_expr_rule(m.b, opt), bt_expr_rule(m.b, opt)));
    assert_int_equal(
        finish(&m, seq(&m, bt_expr_rule(m.b, deep),
                       bt_expr_repeat(m.b, bt_expr_rule(m.b, deep), 2, 3))),
        BT_OK);
    assert_true(has(&m, ""));
    assert_true(has(&m, "()"));
    assert_true(has(&m, "()()()()()()()(())"));
    assert_false(has(&m, "()()()()()()()()()"));
    assert_false(has(&m, "(()"));
    for (uint32_t r = 1; r < m.g->n_rules; r++) {
        assert_false(m.g->states[m.g->rules[r].start].accepts &&
                     (m.g->rules[r].min == 0));
    }
    end(&m);
}

static void rule_of_the_empty_text_alone_is_nothing(void **state)
{
    made_t m;
    uint32_t none;

    (void)state;
    begin(&m);
    none = bt_builder_rule(m.b, "none");
    bt_builder_define(m.b, none,
                      bt_expr_repeat(m.b, text(&m, ""), 7, 4000000000u));
    assert_int_equal(
        finish(&m, seq(&m, bt_expr_rule(m.b, none),
                       seq(&m, text(&m, "a"), bt_expr_rule(m.b, none)))),
        BT_OK);
    assert_int_equal(m.g->n_rules, 1);
    assert_true(has(&m, "a"));
    assert_false(has(&m, ""));
    end(&m);
}

static void alternatives_without_text_vanish(void **state)
{
    made_t m;
    uint32_t forever;

    (void)state;
    begin(&m);
    forever = bt_builder_rule(m.b, "forever");
    bt_builder_define(m.b, forever,
                      seq(&m, text(&m, "x"), bt_expr_rule(m.b, forever)));
    assert_int_equal(
        finish(&m, alt(&m, seq(&m, text(&m, "a"), bt_expr_rule(m.b, forever)),
                       alt(&m, bt_expr_nothing(m.b), text(&m, "b")))),
        BT_OK);
    assert_int_equal(m.g->n_rules, 1);
    assert_int_equal(m.g->n_states, 2);
    assert_true(has(&m, "b"));
    end(&m);
}

/* Members of an object, each of which may be left out: the rest behind one is
 * part of two alternatives, so a tree of them has 2^60 leaves. */
static void rest_that_is_used_twice_is_there_once(void **state)
{
    const bt_expr_t *rest;
    made_t m;

    (void)state;
    begin(&m);
    rest = text(&m, "}");
    for (char name = 'Z'; name >= 'A'; name--) {
        const char member[] = {name, ',', '\0'};

        rest = alt(&m, seq(&m, text(&m, member), rest), rest);
    }
    assert_int_equal(finish(&m, rest), BT_OK);
    assert_true(has(&m, "A,C,Z,}"));
    assert_true(has(&m, "}"));
    assert_false(has(&m, "C,A,}"));
    assert_false(has(&m, "A,A,}"));
    assert_true(m.g->n_states < 60);
    assert_true(m.c.fuel > BT_GRAMMAR_FUEL / 10 * 9);
    end(&m);
}

/* Words of a and b with as many a as fit three, from 0 to 2, and then c: nodes
 * are numbers of a, modulo 3. */
static void graphs_have_the_texts_of_their_paths(void **state)
{
    made_t m;
    const bt_expr_t *a, *b, *graph;

    (void)state;
    begin(&m);
    a = text(&m, "a");
    b = bt_expr_repeat(m.b, text(&m, "b"), 1, 2);
    graph = bt_expr_graph(m.b, 4,
                          (const bt_expr_way_t[]){{0, 2, a},
                                                  {2, 3, a},
                                                  {3, 0, a},
                                                  {0, 0, b},
                                                  {2, 2, b},
                                                  {3, 3, b},
                                                  {0, 1, NULL}},
                          7);
    assert_int_equal(finish(&m, seq(&m, graph, seq(&m, text(&m, "c"), graph))),
                     BT_OK);
    assert_int_equal(m.g->n_states, 6);
    assert_true(has(&m, "c"));
    assert_true(has(&m, "abbabbbacbbb"));
    assert_true(has(&m, "baaacbaaabaaa"));
    assert_false(has(&m, "aac"));
    assert_false(has(&m, "caa"));
    assert_false(has(&m, "aaa"));
    end(&m);
}

static void graphs_without_a_path_have_no_text(void **state)
{
    made_t m;

    (void)state;
    begin(&m);
    assert_int_equal(
        finish(&m, bt_expr_graph(m.b, 3,
                                 (const bt_expr_way_t[]){{0, 2, NULL},
                                                         {2, 0, text(&m, "a")},
                                                         {1, 2, NULL}},
                                 3)),
        BT_ERR_INVALID_PARAM);
    end(&m);
    begin(&m);
    assert_int_equal(
        finish(&m, bt_expr_graph(m.b, 3,
                                 (const bt_expr_way_t[]){
                                     {0, 2, NULL}, {2, 1, NULL}, {1, 2, NULL}},
                                 3)),
        BT_OK);
    assert_true(has(&m, ""));
    assert_int_equal(m.g->n_states, 1);
    end(&m);
}

/* A client's nesting takes no stack. */
static void nesting_takes_no_stack(void **state)
{
    const bt_expr_t *x;
    made_t m;

    (void)state;
    begin(&m);
    x = text(&m, "a");
    for (uint32_t i = 0; i < 30000; i++) {
        x = (i % 3 == 0)   ? seq(&m, bt_expr_empty(m.b), x)
            : (i % 3 == 1) ? alt(&m, bt_expr_nothing(m.b), x)
                           : bt_expr_repeat(m.b, x, 0, 1);
    }
    assert_int_equal(finish(&m, x), BT_OK);
    assert_true(has(&m, "a"));
    assert_true(has(&m, ""));
    assert_false(has(&m, "aa"));
    end(&m);
}

static void expression_that_grows_without_end_is_too_large(void **state)
{
    const bt_expr_t *x;
    made_t m;

    (void)state;
    begin(&m);
    x = text(&m, "ab");
    for (uint32_t i = 0; i < 60; i++) {
        x = seq(&m, x, x);
    }
    assert_int_equal(finish(&m, x), BT_ERR_TOO_LARGE);
    end(&m);
}

static void tokens_are_taken_by_their_ids(void **state)
{
    made_t m;
    const bt_grammar_edge_t *edge;

    (void)state;
    begin(&m);
    assert_int_equal(finish(&m, seq(&m, bt_expr_token(m.b, 7),
                                    bt_expr_tokens(m.b, 9, 4000000))),
                     BT_OK);
    assert_int_equal(m.g->n_edges, 2);
    edge = &m.g->edges[m.g->states[0].first_edge];
    assert_int_equal(edge->kind, BT_GRAMMAR_TAKES);
    assert_int_equal(edge->arg, 7);
    assert_int_equal(edge->last, 7);
    edge = &m.g->edges[m.g->states[edge->to].first_edge];
    assert_int_equal(edge->arg, 9);
    assert_int_equal(edge->last, 4000000);
    assert_true(m.g->states[edge->to].accepts);
    end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(repetitions_have_their_counts),
        BT_TEST(largest_counts_are_as_small_as_others),
        BT_TEST(items_of_any_kind_are_counted),
        BT_TEST(items_with_calls_count_with_their_first_byte),
        BT_TEST(repetition_of_exponential_size_is_counted_instead),
        BT_TEST(empty_texts_are_taken_out_of_rules),
        BT_TEST(rule_of_the_empty_text_alone_is_nothing),
        BT_TEST(alternatives_without_text_vanish),
        BT_TEST(rest_that_is_used_twice_is_there_once),
        BT_TEST(graphs_have_the_texts_of_their_paths),
        BT_TEST(graphs_without_a_path_have_no_text),
        BT_TEST(nesting_takes_no_stack),
        BT_TEST(expression_that_grows_without_end_is_too_large),
        BT_TEST(tokens_are_taken_by_their_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
