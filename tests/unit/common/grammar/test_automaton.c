/* SPDX-License-Identifier: Apache-2.0 */
/* Automata by hand-worked cases, and against simulations that know nothing of
 * sets of states: random automata are run with the whole set of their states on
 * every short text. */
#include "common/grammar/automaton.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/testsupport.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static uint32_t below(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(next_random(seed) % n);
}

static bool accepts(const bt_dfa_t *dfa, const char *text)
{
    return bt_dfa_accepts(dfa, text, strlen(text));
}

/* What automaton.h says of every automaton. */
static void assert_well_formed(const bt_dfa_t *dfa)
{
    uint32_t n_seen = 1;

    for (uint32_t s = 0; s < dfa->n_states; s++) {
        assert_true(s < n_seen); /* breadth first */
        for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
            const bt_dfa_edge_t *edge = &dfa->edges[e];

            assert_true(edge->lo <= edge->hi);
            assert_true(edge->to <= n_seen);
            n_seen += edge->to == n_seen;
            if (e > dfa->first[s]) {
                assert_true(edge[-1].hi < edge->lo);
                assert_true((edge[-1].to != edge->to) ||
                            (edge[-1].hi + 1 < edge->lo));
            }
        }
    }
    assert_true((dfa->n_states == 0) || (n_seen == dfa->n_states));
}

/* ---- hand-worked ---- */

static void literal_is_a_chain(void **state)
{
    static const char *const texts[] = {"abc"};
    static const size_t lens[] = {3};
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    dfa = bt_dfa_of_texts(&c, texts, lens, 1);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_int_equal(dfa->n_states, 4);
    assert_int_equal(dfa->first[4], 3);
    assert_true(accepts(dfa, "abc"));
    assert_false(accepts(dfa, "ab"));
    assert_false(accepts(dfa, "abcd"));
    assert_false(accepts(dfa, ""));
    assert_int_equal(bt_dfa_next(dfa, 0, 'a'), 1);
    assert_int_equal(bt_dfa_next(dfa, 0, 'b'), BT_DFA_NONE);
    assert_int_equal(bt_dfa_next(dfa, 3, 'a'), BT_DFA_NONE);
    bt_grammar_compiler_fini(&c);
}

/* (a|b)*abb: four states, as in Aho, Sethi, Ullman, "Compilers", figure 3.36.
 */
static void textbook_example_has_four_states(void **state)
{
    static const uint32_t next[4][2] = {{1, 0}, {1, 2}, {1, 3}, {1, 0}};
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;
    uint32_t s[4];
    bt_nfa_t *nfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    nfa = bt_nfa_create(&c);
    for (uint32_t i = 0; i < 4; i++) {
        s[i] = bt_nfa_state(nfa);
    }
    bt_nfa_edge(nfa, s[0], 'a', 'b', s[0]);
    bt_nfa_edge(nfa, s[0], 'a', 'a', s[1]);
    bt_nfa_edge(nfa, s[1], 'b', 'b', s[2]);
    bt_nfa_edge(nfa, s[2], 'b', 'b', s[3]);
    dfa = bt_nfa_to_dfa(nfa, s[0], s[3]);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_int_equal(dfa->n_states, 4);
    /* Breadth first: a leads to 1, "ab" to 2, "abb" to 3. */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(bt_dfa_next(dfa, i, 'a'), next[i][0]);
        assert_int_equal(bt_dfa_next(dfa, i, 'b'), next[i][1]);
        assert_int_equal(dfa->accepts[i], i == 3);
    }
    bt_grammar_compiler_fini(&c);
}

static void neighbouring_ranges_with_one_target_are_merged(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;
    uint32_t s[4];
    bt_nfa_t *nfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    nfa = bt_nfa_create(&c);
    for (uint32_t i = 0; i < 4; i++) {
        s[i] = bt_nfa_state(nfa);
    }
    /* Two states that are equal, so that a, b-c and d-f are one range. */
    bt_nfa_edge(nfa, s[0], 'd', 'f', s[1]);
    bt_nfa_edge(nfa, s[0], 'a', 'a', s[1]);
    bt_nfa_edge(nfa, s[0], 'b', 'c', s[2]);
    bt_nfa_edge(nfa, s[1], 'x', 'x', s[3]);
    bt_nfa_edge(nfa, s[2], 'x', 'x', s[3]);
    dfa = bt_nfa_to_dfa(nfa, s[0], s[3]);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_int_equal(dfa->n_states, 3);
    assert_int_equal(dfa->first[1], 1);
    assert_int_equal(dfa->edges[0].lo, 'a');
    assert_int_equal(dfa->edges[0].hi, 'f');
    bt_grammar_compiler_fini(&c);
}

static void symbols_above_bytes_are_ranges(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;
    bt_nfa_t *nfa;
    uint32_t a, b;

    (void)state;
    bt_grammar_compiler_init(&c);
    nfa = bt_nfa_create(&c);
    a = bt_nfa_state(nfa);
    b = bt_nfa_state(nfa);
    bt_nfa_edge(nfa, a, 0, UINT32_MAX, a);
    bt_nfa_edge(nfa, a, 300, 4000000000u, b);
    bt_nfa_edge(nfa, b, UINT32_MAX, UINT32_MAX, b);
    dfa = bt_nfa_to_dfa(nfa, a, b);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_int_equal(dfa->n_states, 2);
    assert_int_equal(dfa->first[1], 3);
    assert_int_equal(dfa->edges[0].hi, 299);
    assert_int_equal(dfa->edges[1].hi, 4000000000u);
    assert_int_equal(dfa->edges[2].hi, UINT32_MAX);
    assert_int_equal(dfa->first[2], 7);
    assert_int_equal(bt_dfa_next(dfa, 1, UINT32_MAX), 1);
    assert_int_equal(bt_dfa_next(dfa, 1, UINT32_MAX - 1), 0);
    assert_true(c.fuel > BT_GRAMMAR_FUEL - 200);
    bt_grammar_compiler_fini(&c);
}

static void language_without_texts_has_no_state(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *none, *any, *some;
    const char *const texts[] = {"x"};
    const size_t lens[] = {1};
    bt_nfa_t *nfa;
    uint32_t a, b;

    (void)state;
    bt_grammar_compiler_init(&c);
    nfa = bt_nfa_create(&c);
    a = bt_nfa_state(nfa);
    b = bt_nfa_state(nfa);
    bt_nfa_edge(nfa, a, 'a', 'z', a);
    none = bt_nfa_to_dfa(nfa, a, b);
    assert_non_null(none);
    assert_true(bt_dfa_is_empty(none));
    assert_false(accepts(none, ""));
    assert_true(bt_dfa_equal(none, bt_dfa_of_texts(&c, NULL, NULL, 0)));
    any = bt_dfa_any_text(&c);
    some = bt_dfa_of_texts(&c, texts, lens, 1);
    assert_true(
        bt_dfa_equal(none, bt_dfa_combine(&c, BT_DFA_MINUS, some, any)));
    assert_true(bt_dfa_equal(none, bt_dfa_combine(&c, BT_DFA_AND, none, any)));
    assert_true(bt_dfa_equal(some, bt_dfa_combine(&c, BT_DFA_OR, none, some)));
    assert_true(
        bt_dfa_equal(some, bt_dfa_combine(&c, BT_DFA_MINUS, some, none)));
    assert_true(
        bt_dfa_equal(none, bt_dfa_combine(&c, BT_DFA_MINUS, none, some)));
    assert_false(bt_dfa_equal(none, some));
    assert_true(bt_grammar_ok(&c));
    bt_grammar_compiler_fini(&c);
}

static void include_copies_between_two_states(void **state)
{
    static const char *const texts[] = {"ab", "", "abab"};
    static const size_t lens[] = {2, 0, 4};
    bt_grammar_compiler_t c;
    const bt_dfa_t *words, *dfa;
    bt_nfa_t *nfa;
    uint32_t a, b;

    (void)state;
    bt_grammar_compiler_init(&c);
    words = bt_dfa_of_texts(&c, texts, lens, 3);
    nfa = bt_nfa_create(&c);
    a = bt_nfa_state(nfa);
    b = bt_nfa_state(nfa);
    bt_nfa_include(nfa, a, words, b);
    bt_nfa_edge(nfa, b, 'x', 'x', a);
    dfa = bt_nfa_to_dfa(nfa, a, b);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_true(accepts(dfa, ""));
    assert_true(accepts(dfa, "ab"));
    assert_true(accepts(dfa, "abxxabab"));
    assert_false(accepts(dfa, "ababab"));
    assert_false(accepts(dfa, "abxa"));
    bt_grammar_compiler_fini(&c);
}

/* ---- texts ---- */

static void word_list_is_the_least_automaton(void **state)
{
    /* tap, taps, top, tops: t, then a or o alike, p, s: 5 states. */
    static const char *const texts[] = {"tops", "tap", "top", "taps", "tap"};
    static const size_t lens[] = {4, 3, 3, 4, 3};
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    dfa = bt_dfa_of_texts(&c, texts, lens, 5);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_int_equal(dfa->n_states, 5);
    assert_int_equal(dfa->first[5], 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(bt_dfa_accepts(dfa, texts[i], lens[i]));
    }
    assert_false(accepts(dfa, "tp"));
    assert_false(accepts(dfa, "to"));
    bt_grammar_compiler_fini(&c);
}

static void texts_may_hold_any_byte(void **state)
{
    static const char *const texts[] = {"\xff\x00z", "\x00", "", "\x80"};
    static const size_t lens[] = {3, 1, 0, 1};
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    dfa = bt_dfa_of_texts(&c, texts, lens, 4);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(bt_dfa_accepts(dfa, texts[i], lens[i]));
    }
    assert_false(bt_dfa_accepts(dfa, "\xff\x00", 2));
    bt_grammar_compiler_fini(&c);
}

/* Ten thousand words: within a tenth of the budget, and the same automaton as
 * by subset construction of the words. */
static void ten_thousand_words_take_a_part_of_the_budget(void **state)
{
    enum { N_WORDS = 10000 };
    static char bytes[N_WORDS][8];
    static const char *texts[N_WORDS];
    static size_t lens[N_WORDS];
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa, *by_sets;
    uint64_t seed = 7;
    uint32_t start, end;
    bt_nfa_t *nfa;

    (void)state;
    for (uint32_t i = 0; i < N_WORDS; i++) {
        lens[i] = 2 + below(&seed, 5);
        for (uint32_t j = 0; j < lens[i]; j++) {
            bytes[i][j] = (char)('a' + below(&seed, 26));
        }
        texts[i] = bytes[i];
    }
    bt_grammar_compiler_init(&c);
    dfa = bt_dfa_of_texts(&c, texts, lens, N_WORDS);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_true(BT_GRAMMAR_FUEL - c.fuel < BT_GRAMMAR_FUEL / 10);
    c.fuel = BT_GRAMMAR_FUEL;
    nfa = bt_nfa_create(&c);
    start = bt_nfa_state(nfa);
    end = bt_nfa_state(nfa);
    for (uint32_t i = 0; i < N_WORDS; i++) {
        uint32_t from = start;

        for (uint32_t j = 0; j < lens[i]; j++) {
            const uint32_t to = (j + 1 == lens[i]) ? end : bt_nfa_state(nfa);

            bt_nfa_edge(nfa, from, (uint8_t)texts[i][j], (uint8_t)texts[i][j],
                        to);
            from = to;
        }
    }
    by_sets = bt_nfa_to_dfa(nfa, start, end);
    assert_non_null(by_sets);
    assert_true(bt_dfa_equal(dfa, by_sets));
    bt_grammar_compiler_fini(&c);
}

/* ---- UTF-8 ---- */

static size_t spell(uint32_t code_point, char out[4])
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xC0 | code_point >> 6);
        out[1] = (char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        out[0] = (char)(0xE0 | code_point >> 12);
        out[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code_point >> 18);
    out[1] = (char)(0x80 | (code_point >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code_point >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code_point & 0x3F));
    return 4;
}

static const bt_dfa_t *code_points(bt_grammar_compiler_t *c, uint32_t lo,
                                   uint32_t hi)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t a = bt_nfa_state(nfa), b = bt_nfa_state(nfa);

    bt_nfa_code_points(nfa, a, lo, hi, b);
    return bt_nfa_to_dfa(nfa, a, b);
}

static const uint32_t borders[] = {
    0,       1,       0x7E,    0x7F,     0x80,     0x81,    0xBF,    0xC0,
    0x7FE,   0x7FF,   0x800,   0x801,    0xFFF,    0x1000,  0xD7FE,  0xD7FF,
    0xD800,  0xDFFF,  0xE000,  0xE001,   0xFFFE,   0xFFFF,  0x10000, 0x10001,
    0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFE, 0x10FFFF};

static void ranges_between_borders_hold_their_code_points(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(borders); i++) {
        for (size_t j = i; j < BT_ARRAY_LEN(borders); j++) {
            bt_grammar_compiler_t c;
            const bt_dfa_t *dfa;

            bt_grammar_compiler_init(&c);
            dfa = code_points(&c, borders[i], borders[j]);
            assert_non_null(dfa);
            assert_well_formed(dfa);
            for (size_t k = 0; k < BT_ARRAY_LEN(borders); k++) {
                const bool surrogate =
                    (borders[k] >= 0xD800) && (borders[k] <= 0xDFFF);
                char text[4];
                const size_t n = spell(borders[k], text);

                assert_int_equal(bt_dfa_accepts(dfa, text, n),
                                 (k >= i) && (k <= j) && !surrogate);
            }
            bt_grammar_compiler_fini(&c);
        }
    }
}

static void every_code_point_is_in_its_range_alone(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    dfa = code_points(&c, 0x7A5, 0x2F123);
    assert_non_null(dfa);
    for (uint32_t p = 0; p <= 0x10FFFF; p++) {
        char text[4];
        const size_t n = spell(p, text);
        const bool inside =
            (p >= 0x7A5) && (p <= 0x2F123) && ((p < 0xD800) || (p > 0xDFFF));

        if (bt_dfa_accepts(dfa, text, n) != inside) {
            fail_msg("U+%X", p);
        }
    }
    bt_grammar_compiler_fini(&c);
}

/* Table 3-7 of the Unicode standard: well-formed byte sequences. */
static void any_text_is_well_formed_utf8(void **state)
{
    static const char *const good[] = {
        "",
        "a",
        "\x7f",
        "\xc2\x80",
        "\xdf\xbf",
        "\xe0\xa0\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xef\xbf\xbf",
        "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf",
        "a\xc3\xa9z\xe2\x82\xac",
    };
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xc2",
        "\xc2\x7f",
        "\xc2\xc0",
        "\xe0\x9f\xbf",
        "\xe0\xa0",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "a\xe2\x82",
    };
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    dfa = bt_dfa_any_text(&c);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        assert_true(accepts(dfa, good[i]));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_false(accepts(dfa, bad[i]));
    }
    assert_true(bt_dfa_accepts(dfa, "\0", 1));
    /* Start; one, two or three bytes left; after E0, ED, F0 and F4. */
    assert_int_equal(dfa->n_states, 8);
    bt_grammar_compiler_fini(&c);
}

/* ---- random automata ---- */

enum { MAX_STATES = 7, N_LETTERS = 3, MAX_LENGTH = 6 };

/* Automaton as bits of states: what the code under test is compared with. */
typedef struct model {
    uint32_t n;
    uint32_t edges[MAX_STATES][N_LETTERS]; /* states that follow */
    uint32_t epsilons[MAX_STATES];
} model_t;

static uint32_t model_closure(const model_t *model, uint32_t set)
{
    uint32_t before;

    do {
        before = set;
        for (uint32_t s = 0; s < model->n; s++) {
            set |= (before >> s & 1) ? model->epsilons[s] : 0;
        }
    } while (set != before);
    return set;
}

static bool model_accepts(const model_t *model, const char *text, uint32_t n)
{
    uint32_t set = model_closure(model, 1);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = 0;

        for (uint32_t s = 0; s < model->n; s++) {
            next |= (set >> s & 1) ? model->edges[s][text[i] - 'a'] : 0;
        }
        set = model_closure(model, next);
    }
    return set >> (model->n - 1) & 1;
}

/* Makes a random automaton, and its model. State 0 is the start, the last one
 * accepts. */
static const bt_dfa_t *random_automaton(bt_grammar_compiler_t *c,
                                        uint64_t *seed, model_t *model)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t n_edges = 1 + below(seed, 14);

    *model = (model_t){.n = 1 + below(seed, MAX_STATES)};
    for (uint32_t s = 0; s < model->n; s++) {
        assert_int_equal(bt_nfa_state(nfa), s);
    }
    for (uint32_t i = 0; i < n_edges; i++) {
        const uint32_t from = below(seed, model->n);
        const uint32_t to = below(seed, model->n);
        const uint32_t lo = below(seed, N_LETTERS + 1);
        const uint32_t hi = lo + below(seed, N_LETTERS);

        if (lo == N_LETTERS) {
            bt_nfa_epsilon(nfa, from, to);
            model->epsilons[from] |= 1u << to;
            continue;
        }
        bt_nfa_edge(nfa, from, 'a' + lo, 'a' + hi, to);
        for (uint32_t letter = lo; (letter <= hi) && (letter < N_LETTERS);
             letter++) {
            model->edges[from][letter] |= 1u << to;
        }
    }
    return bt_nfa_to_dfa(nfa, 0, model->n - 1);
}

/* Calls a function with every text of up to MAX_LENGTH letters. */
#define FOR_EACH_TEXT(text, n)                             \
    for (uint32_t n = 0; n <= MAX_LENGTH; n++)             \
        for (uint32_t i_text = 0, n_texts = text_count(n); \
             (i_text < n_texts) && write_text(i_text, n, text); i_text++)

static uint32_t text_count(uint32_t n)
{
    return (n == 0) ? 1 : N_LETTERS * text_count(n - 1);
}

static bool write_text(uint32_t i, uint32_t n, char *text)
{
    for (uint32_t j = 0; j < n; j++) {
        text[j] = (char)('a' + i % N_LETTERS);
        i /= N_LETTERS;
    }
    return true;
}

/* States of the minimal automaton by Moore's rounds: states differ when one
 * accepts, or when they differ after a letter. Letters a to e, so that ranges
 * beyond the model's letters count. */
static uint32_t moore_states(const bt_dfa_t *dfa)
{
    enum { CAP = 256, WIDTH = 5 };
    uint32_t class[CAP + 1], next[CAP + 1]; /* [n]: stopped */
    const uint32_t n = dfa->n_states;
    uint32_t n_classes = 0, n_before;

    assert_true(n <= CAP);
    for (uint32_t s = 0; s <= n; s++) {
        class[s] = (s < n) && dfa->accepts[s];
    }
    do {
        n_before = n_classes;
        n_classes = 0;
        for (uint32_t s = 0; s <= n; s++) {
            next[s] = n_classes;
            for (uint32_t t = 0; t < s; t++) {
                bool same = class[s] == class[t];

                for (uint32_t i = 0; same && (i < WIDTH); i++) {
                    const uint32_t a =
                        (s < n) ? bt_dfa_next(dfa, s, 'a' + i) : BT_DFA_NONE;
                    const uint32_t b =
                        (t < n) ? bt_dfa_next(dfa, t, 'a' + i) : BT_DFA_NONE;

                    same = class[(a == BT_DFA_NONE) ? n : a] ==
                           class[(b == BT_DFA_NONE) ? n : b];
                }
                if (same) {
                    next[s] = next[t];
                    break;
                }
            }
            n_classes += next[s] == n_classes;
        }
        memcpy(class, next, sizeof(class));
    } while (n_classes != n_before);
    return n_classes - 1; /* without the one that has stopped */
}

static void random_automata_accept_what_their_models_do(void **state)
{
    uint64_t seed = 1;
    uint32_t n_nonempty = 0;

    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        bt_grammar_compiler_t c;
        char text[MAX_LENGTH];
        const bt_dfa_t *dfa;
        model_t model;

        bt_grammar_compiler_init(&c);
        dfa = random_automaton(&c, &seed, &model);
        assert_non_null(dfa);
        assert_well_formed(dfa);
        if (!bt_dfa_is_empty(dfa)) {
            assert_int_equal(moore_states(dfa), dfa->n_states);
            n_nonempty++;
        }
        FOR_EACH_TEXT(text, n)
        {
            if (bt_dfa_accepts(dfa, text, n) !=
                model_accepts(&model, text, n)) {
                fail_msg("round %u text %.*s", round, (int)n, text);
            }
        }
        bt_grammar_compiler_fini(&c);
    }
    assert_true(n_nonempty > 1000);
}

static void combinations_accept_by_their_operation(void **state)
{
    uint64_t seed = 2;

    (void)state;
    for (uint32_t round = 0; round < 800; round++) {
        bt_grammar_compiler_t c;
        const bt_dfa_t *a, *b, *both, *either, *only;
        char text[MAX_LENGTH];
        model_t models[2];

        bt_grammar_compiler_init(&c);
        a = random_automaton(&c, &seed, &models[0]);
        b = random_automaton(&c, &seed, &models[1]);
        both = bt_dfa_combine(&c, BT_DFA_AND, a, b);
        either = bt_dfa_combine(&c, BT_DFA_OR, a, b);
        only = bt_dfa_combine(&c, BT_DFA_MINUS, a, b);
        assert_true(bt_grammar_ok(&c));
        assert_well_formed(both);
        assert_well_formed(either);
        assert_well_formed(only);
        FOR_EACH_TEXT(text, n)
        {
            const bool in_a = model_accepts(&models[0], text, n);
            const bool in_b = model_accepts(&models[1], text, n);

            assert_int_equal(bt_dfa_accepts(both, text, n), in_a && in_b);
            assert_int_equal(bt_dfa_accepts(either, text, n), in_a || in_b);
            assert_int_equal(bt_dfa_accepts(only, text, n), in_a && !in_b);
        }
        /* (a and b) or (a without b) is a, field by field. */
        assert_true(bt_dfa_equal(a, bt_dfa_combine(&c, BT_DFA_OR, both, only)));
        assert_true(bt_dfa_equal(either, bt_dfa_combine(&c, BT_DFA_OR, b, a)));
        bt_grammar_compiler_fini(&c);
    }
}

static void equal_languages_are_equal_automata(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfas[2];

    (void)state;
    bt_grammar_compiler_init(&c);
    /* (a|b)*, and (a*b*)* with more states. */
    for (uint32_t i = 0; i < 2; i++) {
        bt_nfa_t *nfa = bt_nfa_create(&c);
        const uint32_t s = bt_nfa_state(nfa), t = bt_nfa_state(nfa);
        const uint32_t u = bt_nfa_state(nfa);

        if (i == 0) {
            bt_nfa_edge(nfa, s, 'a', 'b', s);
            bt_nfa_epsilon(nfa, s, u);
        } else {
            bt_nfa_edge(nfa, s, 'a', 'a', s);
            bt_nfa_epsilon(nfa, s, t);
            bt_nfa_edge(nfa, t, 'b', 'b', t);
            bt_nfa_epsilon(nfa, t, s);
            bt_nfa_epsilon(nfa, t, u);
        }
        dfas[i] = bt_nfa_to_dfa(nfa, s, u);
    }
    assert_true(bt_grammar_ok(&c));
    assert_int_equal(dfas[0]->n_states, 1);
    assert_true(bt_dfa_equal(dfas[0], dfas[1]));
    bt_grammar_compiler_fini(&c);
}

/* ---- limits ---- */

/* (a|b)*a(a|b){n}: 2^(n + 1) states. */
static const bt_dfa_t *exponential(bt_grammar_compiler_t *c, uint32_t n)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t start = bt_nfa_state(nfa);
    uint32_t s = bt_nfa_state(nfa);

    bt_nfa_edge(nfa, start, 'a', 'b', start);
    bt_nfa_edge(nfa, start, 'a', 'a', s);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t to = bt_nfa_state(nfa);

        bt_nfa_edge(nfa, s, 'a', 'b', to);
        s = to;
    }
    return bt_nfa_to_dfa(nfa, start, s);
}

static void exponential_automaton_is_too_large(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    dfa = exponential(&c, 8);
    assert_non_null(dfa);
    assert_int_equal(dfa->n_states, 512);
    assert_null(exponential(&c, 20));
    assert_int_equal(c.status, BT_ERR_TOO_LARGE);
    /* From now on nothing is done. */
    assert_null(bt_nfa_create(&c));
    assert_int_equal(bt_nfa_state(NULL), 0);
    assert_null(bt_dfa_any_text(&c));
    assert_null(bt_dfa_combine(&c, BT_DFA_OR, NULL, NULL));
    assert_null(bt_dfa_of_texts(&c, NULL, NULL, 0));
    bt_grammar_compiler_fini(&c);
}

static void long_chain_in_a_cycle_takes_a_part_of_the_budget(void **state)
{
    enum { N = 20000 };
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;
    uint32_t s, start;
    bt_nfa_t *nfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    nfa = bt_nfa_create(&c);
    start = s = bt_nfa_state(nfa);
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t to = bt_nfa_state(nfa);

        bt_nfa_edge(nfa, s, 'a', 'a', to);
        s = to;
    }
    bt_nfa_edge(nfa, s, 0, 255, s);
    dfa = bt_nfa_to_dfa(nfa, start, s);
    assert_non_null(dfa);
    assert_well_formed(dfa);
    assert_int_equal(dfa->n_states, N + 1);
    assert_true(BT_GRAMMAR_FUEL - c.fuel < BT_GRAMMAR_FUEL / 4);
    bt_grammar_compiler_fini(&c);
}

/* One more state than there may be: a text of 32,768 letters. */
static void automaton_over_the_limit_is_refused(void **state)
{
    static char text[BT_DFA_MAX_STATES];
    const char *const texts[] = {text};
    size_t len = sizeof(text) - 1;
    bt_grammar_compiler_t c;

    (void)state;
    memset(text, 'a', sizeof(text));
    bt_grammar_compiler_init(&c);
    assert_non_null(bt_dfa_of_texts(&c, texts, &len, 1));
    len++;
    assert_null(bt_dfa_of_texts(&c, texts, &len, 1));
    assert_int_equal(c.status, BT_ERR_TOO_LARGE);
    assert_non_null(strstr(c.why, "32769 states"));
    bt_grammar_compiler_fini(&c);
}

/* What the tests of failures compile. */
static const bt_dfa_t *compile_all(bt_grammar_compiler_t *c)
{
    static const char *const texts[] = {"one", "two", "three"};
    static const size_t lens[] = {3, 3, 5};
    const bt_dfa_t *words = bt_dfa_of_texts(c, texts, lens, 3);
    const bt_dfa_t *many = exponential(c, 9);
    const bt_dfa_t *any = bt_dfa_any_text(c);
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t a = bt_nfa_state(nfa), b = bt_nfa_state(nfa);

    bt_nfa_include(nfa, a, words, b);
    bt_nfa_include(nfa, b, many, a);
    return bt_dfa_combine(c, BT_DFA_MINUS, any, bt_nfa_to_dfa(nfa, a, b));
}

static void every_failed_allocation_is_told(void **state)
{
    uint32_t n_failures = 0;

    (void)state;
    for (int n = 1;; n++) {
        bt_grammar_compiler_t c;
        const bt_dfa_t *dfa;
        bool failed;

        bt_grammar_compiler_init(&c);
        bt_alloc_fail_at(n);
        dfa = compile_all(&c);
        failed = bt_alloc_fail_at(0) == 0;
        assert_int_equal(c.status, failed ? BT_ERR_NO_MEMORY : BT_OK);
        assert_true((dfa == NULL) == failed);
        bt_grammar_compiler_fini(&c);
        if (!failed) {
            break;
        }
        n_failures++;
    }
    assert_true(n_failures > 10);
}

static void every_budget_is_kept(void **state)
{
    bt_grammar_compiler_t c;
    uint64_t need;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_non_null(compile_all(&c));
    need = BT_GRAMMAR_FUEL - c.fuel;
    bt_grammar_compiler_fini(&c);
    for (uint64_t fuel = 0; fuel < need; fuel += 1 + fuel / 40) {
        bt_grammar_compiler_init(&c);
        c.fuel = fuel;
        assert_null(compile_all(&c));
        assert_int_equal(c.status, BT_ERR_TOO_LARGE);
        bt_grammar_compiler_fini(&c);
    }
    bt_grammar_compiler_init(&c);
    c.fuel = need;
    assert_non_null(compile_all(&c));
    assert_true(c.fuel == 0);
    bt_grammar_compiler_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(literal_is_a_chain),
        BT_TEST(textbook_example_has_four_states),
        BT_TEST(neighbouring_ranges_with_one_target_are_merged),
        BT_TEST(symbols_above_bytes_are_ranges),
        BT_TEST(language_without_texts_has_no_state),
        BT_TEST(include_copies_between_two_states),
        BT_TEST(word_list_is_the_least_automaton),
        BT_TEST(texts_may_hold_any_byte),
        BT_TEST(ten_thousand_words_take_a_part_of_the_budget),
        BT_TEST(ranges_between_borders_hold_their_code_points),
        BT_TEST(every_code_point_is_in_its_range_alone),
        BT_TEST(any_text_is_well_formed_utf8),
        BT_TEST(random_automata_accept_what_their_models_do),
        BT_TEST(combinations_accept_by_their_operation),
        BT_TEST(equal_languages_are_equal_automata),
        BT_TEST(exponential_automaton_is_too_large),
        BT_TEST(long_chain_in_a_cycle_takes_a_part_of_the_budget),
        BT_TEST(automaton_over_the_limit_is_refused),
        BT_TEST(every_failed_allocation_is_told),
        BT_TEST(every_budget_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
