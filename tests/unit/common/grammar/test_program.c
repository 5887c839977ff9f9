/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/builder_priv.h"
#include "tests/support/draw.h"
#include "tests/support/grammar_text.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"

#define MOST_WORDS 10000u

static uint64_t rng = 1;

static uint32_t below(uint32_t n)
{
    return (uint32_t)draw_below(&rng, n);
}

static char words[MOST_WORDS][16];
static const char *texts[MOST_WORDS];
static size_t lens[MOST_WORDS];

static void make_words(uint32_t n, uint32_t length)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < length; k++) {
            words[i][k] = (char)('a' + below(26));
        }
        texts[i] = words[i];
        lens[i] = length;
    }
}

/* Follows the states of rule 0, which calls nothing. */
static bool has(const bt_grammar_t *g, const char *text, size_t n)
{
    uint32_t state = g->rules[0].start;

    for (size_t i = 0; i < n; i++) {
        const bt_grammar_edge_t *edge =
            bt_grammar_read(g, state, (uint8_t)text[i]);

        if (edge == NULL) {
            return false;
        }
        state = edge->to;
    }
    return g->states[state].accepts;
}

static size_t write_dfa(bt_grammar_compiler_t *c, const bt_dfa_t *dfa,
                        bt_grammar_t **g_p)
{
    bt_grammar_builder_t *b = bt_builder_create(c);
    const uint32_t rule = bt_builder_rule(b, "root");
    const uint8_t *program = NULL;
    const char *why;
    size_t bytes = 0;

    bt_builder_define(b, rule, bt_expr_dfa(b, dfa));
    assert_int_equal(bt_builder_finish(b, rule, &program, &bytes), BT_OK);
    assert_int_equal(bt_grammar_load(program, bytes, &why, g_p), BT_OK);
    return bytes;
}

/* JSON text of 64 KiB has no more choices of three letters than this. */
static void ten_thousand_choices_fit_a_program(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_t *g;
    size_t bytes;

    (void)state;
    make_words(MOST_WORDS, 3);
    bt_grammar_compiler_init(&c);
    bytes = write_dfa(&c, bt_dfa_of_texts(&c, texts, lens, MOST_WORDS), &g);
    assert_in_range(bytes, 2000, 20000);
    for (uint32_t i = 0; i < MOST_WORDS; i++) {
        assert_true(has(g, texts[i], 3));
    }
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

/* Each state of the words falls back to the states of any text. */
static void all_texts_but_some_words_are_written_by_otherwise(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;
    bt_grammar_t *g;
    size_t bytes;

    (void)state;
    make_words(100, 12);
    bt_grammar_compiler_init(&c);
    dfa = bt_dfa_of_texts(&c, texts, lens, 100);
    dfa = bt_dfa_combine(&c, BT_DFA_MINUS, bt_dfa_any_text(&c), dfa);
    bytes = write_dfa(&c, dfa, &g);
    /* A byte for each letter, and a few for the ends of words. */
    assert_in_range(bytes, 1000, 2 * 12 * 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_false(has(g, texts[i], 12));
        assert_true(has(g, texts[i], 11));
        assert_true(has(g, "\xC3\xA9tat", 5));
        words[i][below(12)] = 'A';
        assert_true(has(g, texts[i], 12));
    }
    assert_false(has(g, "\xC3", 1));
    bt_grammar_free(g);
    bt_grammar_compiler_fini(&c);
}

static void program_over_its_limit_is_refused(void **state)
{
    bt_grammar_compiler_t c;
    bt_grammar_builder_t *b;
    const uint8_t *program;
    size_t bytes;
    uint32_t rule;

    (void)state;
    make_words(MOST_WORDS, 12);
    bt_grammar_compiler_init(&c);
    b = bt_builder_create(&c);
    rule = bt_builder_rule(b, "root");
    bt_builder_define(
        b, rule, bt_expr_dfa(b, bt_dfa_of_texts(&c, texts, lens, MOST_WORDS)));
    assert_int_equal(bt_builder_finish(b, rule, &program, &bytes),
                     BT_ERR_TOO_LARGE);
    bt_grammar_compiler_fini(&c);
}

/* Grammars at random, with `otherwise`, calls, tokens and counts: what is read
 * back has the same texts. */
static void programs_are_read_back(void **state)
{
    const hand_random_t options = {.n_rules = 4,
                                   .n_states = 6,
                                   .n_letters = 3,
                                   .max_count = 3,
                                   .n_token_ids = 5};
    const uint32_t n_rounds = bt_test_rounds(1000);
    uint32_t n_texts = 0, n_bytes = 0;

    (void)state;
    for (uint32_t round = 0; round < n_rounds; round++) {
        hand_grammar_t *h = hand_random(&rng, &options);
        bt_grammar_compiler_t c;
        const uint8_t *program = NULL;
        const char *why = "";
        bt_grammar_t *g = NULL;
        size_t bytes = 0;

        bt_grammar_compiler_init(&c);
        assert_int_equal(bt_program_write(&c, &h->grammar, &program, &bytes),
                         BT_OK);
        n_bytes += (uint32_t)bytes;
        assert_int_equal(bt_grammar_load(program, bytes, &why, &g), BT_OK);
        assert_int_equal(g->n_states, h->grammar.n_states);
        assert_int_equal(g->n_edges, h->grammar.n_edges);
        for (uint32_t i = 0; i < 121; i++) { /* up to 4 letters */
            char text[8] = "";
            uint32_t n = 0;

            for (uint32_t rest = i; rest > 0; rest = (rest - 1) / 3) {
                text[n++] = (char)('a' + (rest - 1) % 3);
            }
            n_texts += grammar_has_text(g, text, n);
            assert_int_equal(grammar_has_text(g, text, n),
                             grammar_has_text(&h->grammar, text, n));
        }
        bt_grammar_free(g);
        bt_free(h);
        bt_grammar_compiler_fini(&c);
    }
    assert_true(n_texts > n_rounds);
    assert_true(n_bytes / n_rounds < 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ten_thousand_choices_fit_a_program),
        BT_TEST(all_texts_but_some_words_are_written_by_otherwise),
        BT_TEST(programs_are_read_back),
        BT_TEST(program_over_its_limit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
