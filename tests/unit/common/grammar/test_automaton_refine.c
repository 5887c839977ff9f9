/* SPDX-License-Identifier: Apache-2.0 */
/* Minimization, of automata with many equal states in many components. */
#include "common/grammar/automaton.h"
#include "tests/support/testsupport.h"

enum { MAX_STATES = 8, N_LETTERS = 3, MAX_COPIES = 4 };

/* Deterministic automaton; -1: no edge. */
typedef struct table {
    uint32_t n;
    int to[MAX_STATES][N_LETTERS];
    bool accepts[MAX_STATES];
} table_t;

static uint32_t below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static table_t random_table(uint64_t *seed)
{
    table_t table = {.n = 1 + below(seed, MAX_STATES)};
    const uint32_t density = 1 + below(seed, 4);

    for (uint32_t s = 0; s < table.n; s++) {
        table.accepts[s] = below(seed, 3) == 0;
        for (uint32_t i = 0; i < N_LETTERS; i++) {
            table.to[s][i] =
                (below(seed, 4) < density) ? (int)below(seed, table.n) : -1;
        }
    }
    return table;
}

/* Makes the automaton of a table in which each state is there several times,
 * and each edge leads to any of those of its target. */
static const bt_dfa_t *with_copies(bt_grammar_compiler_t *c,
                                   const table_t *table, uint32_t n_copies,
                                   uint64_t *seed)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    uint32_t end;

    for (uint32_t i = 0; i < table->n * n_copies; i++) {
        assert_int_equal(bt_nfa_state(nfa), i);
    }
    end = bt_nfa_state(nfa);
    for (uint32_t i = 0; i < table->n * n_copies; i++) {
        const uint32_t s = i / n_copies;

        for (uint32_t k = 0; k < N_LETTERS; k++) {
            if (table->to[s][k] >= 0) {
                bt_nfa_edge(nfa, i, 'a' + k, 'a' + k,
                            (uint32_t)table->to[s][k] * n_copies +
                                below(seed, n_copies));
            }
        }
        if (table->accepts[s]) {
            bt_nfa_epsilon(nfa, i, end);
        }
    }
    return bt_nfa_to_dfa(nfa, 0, end);
}

/* Number of classes of a table's states that are reached from the first one and
 * reach acceptance, by E. F. Moore's rounds over all pairs. */
static uint32_t classes_of(const table_t *table)
{
    bool differ[MAX_STATES + 1][MAX_STATES + 1] = {0}; /* [n]: no edge */
    bool reached[MAX_STATES + 1] = {true};
    const uint32_t n = table->n;
    uint32_t n_classes = 0;

    for (uint32_t round = 0; round <= 2 * MAX_STATES; round++) {
        for (uint32_t a = 0; a <= n; a++) {
            for (uint32_t b = 0; b <= n; b++) {
                const bool ends_a = (a < n) && table->accepts[a];
                const bool ends_b = (b < n) && table->accepts[b];

                differ[a][b] = differ[a][b] || (ends_a != ends_b);
                for (uint32_t i = 0; i < N_LETTERS; i++) {
                    const int to_a = (a < n) ? table->to[a][i] : -1;
                    const int to_b = (b < n) ? table->to[b][i] : -1;

                    differ[a][b] = differ[a][b] ||
                                   differ[(to_a < 0) ? n : (uint32_t)to_a]
                                         [(to_b < 0) ? n : (uint32_t)to_b];
                }
            }
        }
        for (uint32_t a = 0; a < n; a++) {
            for (uint32_t i = 0; reached[a] && (i < N_LETTERS); i++) {
                if (table->to[a][i] >= 0) {
                    reached[table->to[a][i]] = true;
                }
            }
        }
    }
    for (uint32_t a = 0; a < n; a++) {
        bool is_new = reached[a] && differ[a][n];

        for (uint32_t b = 0; is_new && (b < a); b++) {
            is_new = !reached[b] || differ[a][b];
        }
        n_classes += is_new ? 1 : 0;
    }
    return n_classes;
}

static void copies_of_states_are_one(void **state)
{
    uint64_t seed = 5;
    uint32_t n_large = 0;

    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        const table_t table = random_table(&seed);
        const uint32_t n_copies = 1 + below(&seed, MAX_COPIES);
        bt_grammar_compiler_t c;
        const bt_dfa_t *one, *more;

        bt_grammar_compiler_init(&c);
        one = with_copies(&c, &table, 1, &seed);
        more = with_copies(&c, &table, n_copies, &seed);
        assert_true(bt_grammar_ok(&c));
        if (one->n_states != classes_of(&table)) {
            fail_msg("round %u: %u states, not %u", round, one->n_states,
                     classes_of(&table));
        }
        if (!bt_dfa_equal(one, more)) {
            fail_msg("round %u: %u copies have %u states, not %u", round,
                     n_copies, more->n_states, one->n_states);
        }
        n_large += one->n_states >= 5;
        bt_grammar_compiler_fini(&c);
    }
    assert_true(n_large > 1000);
}

/* A loop whose edges lead to a second one, which is as the first: neither can
 * be told from what lies inside of it alone. */
static void loop_that_leads_to_its_copy_is_that(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;
    bt_nfa_t *nfa;

    (void)state;
    bt_grammar_compiler_init(&c);
    nfa = bt_nfa_create(&c);
    for (uint32_t i = 0; i < 5; i++) {
        (void)bt_nfa_state(nfa);
    }
    bt_nfa_edge(nfa, 0, 'a', 'a', 1);
    bt_nfa_edge(nfa, 1, 'b', 'b', 0);
    bt_nfa_edge(nfa, 0, 'b', 'b', 2); /* as 0 */
    bt_nfa_edge(nfa, 1, 'a', 'a', 3); /* as 1 */
    bt_nfa_edge(nfa, 2, 'a', 'a', 3);
    bt_nfa_edge(nfa, 2, 'b', 'b', 2);
    bt_nfa_edge(nfa, 3, 'a', 'a', 3);
    bt_nfa_edge(nfa, 3, 'b', 'b', 2);
    bt_nfa_epsilon(nfa, 1, 4);
    bt_nfa_epsilon(nfa, 3, 4);
    dfa = bt_nfa_to_dfa(nfa, 0, 4);
    assert_non_null(dfa);
    assert_int_equal(dfa->n_states, 2); /* ends in a, and not */
    bt_grammar_compiler_fini(&c);
}

/* (0|1…)*, of numbers that the modulus divides: all remainders have the same
 * edges, so that they are told apart one by one. The minimal automaton of
 * binary numbers that 2^k * m divides, m odd, has m + k states. */
static void remainders_are_told_apart(void **state)
{
    static const struct {
        uint32_t modulus, n_states;
    } cases[] = {{1, 1},  {3, 3},       {5, 5},    {6, 4},
                 {12, 5}, {1001, 1001}, {4096, 13}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const uint32_t n = cases[i].modulus;
        bt_grammar_compiler_t c;
        bt_nfa_t *nfa;
        const bt_dfa_t *dfa;

        bt_grammar_compiler_init(&c);
        nfa = bt_nfa_create(&c);
        for (uint32_t s = 0; s <= n; s++) {
            (void)bt_nfa_state(nfa);
        }
        for (uint32_t s = 0; s < n; s++) {
            bt_nfa_edge(nfa, s, '0', '0', 2 * s % n);
            bt_nfa_edge(nfa, s, '1', '1', (2 * s + 1) % n);
        }
        bt_nfa_epsilon(nfa, 0, n);
        dfa = bt_nfa_to_dfa(nfa, 0, n);
        assert_non_null(dfa);
        assert_int_equal(dfa->n_states, cases[i].n_states);
        assert_true(c.fuel > BT_GRAMMAR_FUEL / 10 * 9);
        bt_grammar_compiler_fini(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(copies_of_states_are_one),
        BT_TEST(loop_that_leads_to_its_copy_is_that),
        BT_TEST(remainders_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
