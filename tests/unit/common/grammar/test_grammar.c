/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/grammar.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/bounds.h"
#include "common/grammar/builder.h"
#include "tests/support/testsupport.h"

static uint64_t rng = 88172645463325252u;

static uint32_t below(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}

/* By hand, from the description in grammar.h: rule 0 is `"` call 1 `"`; rule 1
 * reads 2 to 5 letters a to z, each of which counts. */
static const uint8_t quoted[] = {
    'B', 'T',  'G', 1,   2, 5, /* rules, states */
    4,   0,    0,              /* rule 0: states, min, no limit */
    1,   2,    6,              /* rule 1: min 2, max 5 */
    0,   1,    '"',            /* state 0 */
    8,   0x82, 1,   0,         /* state 1: one edge: call 1, to a new state */
    0,   1,    '"',            /* state 2 */
    5,                         /* state 3 accepts: no edge */
    9,   0x85, 'a', 'z', 2, /* state 4 accepts: a range that counts, to itself
                             */
};

/*      0 ─ b ─▶ 1 ─ a ─▶ 2 ─ t ─▶ ((3))     depth first: what b leads to is
 *      0 ─ c ─▶ 4 ─ a ─▶ 2                  read before what c leads to
 *      0 ─ d ─▶ 4
 *      0 ─ é's first byte ─▶ 5 ─ second ─▶ ((3))
 *      4 ─ tokens 7 to 9 ─▶ ((3)) */
static const uint8_t tree[] = {
    'B', 'T',  'G',  1,    1, 6,                     /* rules, states */
    6,   0,    0,                                    /* rule 0 */
    20,  'b',  0,    'c',  0, 'd', 1, 0x80, 0xC3, 0, /* state 0 */
    0,   2,    'a',  't',                            /* states 1 and 2 */
    5,                                               /* state 3 */
    12,  'a',  4,    0x83, 7, 2,   5,                /* state 4 */
    8,   0x80, 0xA9, 5,                              /* state 5 */
};

/* All words of small letters but "no", "noa" and so on. */
static const uint8_t words[] = {
    'B', 'T',  'G', 1,   1,   4,   4,
    0,   0,    3,   3,   1,   'n', /* state 0, otherwise state 3 */
    11,  3,    'o', 0,             /* state 1, otherwise state 3 */
    14,  3,    'a', 5,   'b', 1,   /* state 2: does not end */
    9,   0x81, 'a', 'z', 5,        /* state 3 */
};

static bt_grammar_t *loaded(const uint8_t *program, size_t bytes)
{
    const char *why = "";
    bt_grammar_t *g = NULL;

    if (bt_grammar_load(program, bytes, &why, &g) != BT_OK) {
        print_message("not loaded: %s\n", why);
    }
    assert_non_null(g);
    return g;
}

static void program_by_hand_is_loaded(void **state)
{
    bt_grammar_t *g = loaded(quoted, sizeof(quoted));

    (void)state;
    assert_int_equal(g->n_rules, 2);
    assert_int_equal(g->n_states, 5);
    assert_int_equal(g->n_edges, 4);
    assert_int_equal(g->rules[0].max, BT_GRAMMAR_NO_LIMIT);
    assert_int_equal(g->rules[1].start, 4);
    assert_int_equal(g->rules[1].min, 2);
    assert_int_equal(g->rules[1].max, 5);
    assert_int_equal(g->states[1].n_byte_edges, 0);
    assert_int_equal(g->edges[g->states[1].first_edge].kind, BT_GRAMMAR_CALLS);
    assert_int_equal(g->edges[g->states[1].first_edge].to, 2);
    assert_int_equal(g->states[3].rule, 0);
    assert_int_equal(g->states[4].rule, 1);
    assert_true(bt_grammar_read(g, 4, 'q')->counts);
    assert_int_equal(bt_grammar_read(g, 4, 'q')->to, 4);
    assert_null(bt_grammar_read(g, 4, 'Q'));
    assert_true(g->states[3].accepts);
    bt_grammar_free(g);
}

static void new_states_are_read_depth_first(void **state)
{
    bt_grammar_t *g = loaded(tree, sizeof(tree));
    const bt_grammar_edge_t *tokens = &g->edges[g->states[4].first_edge + 1];

    (void)state;
    assert_int_equal(bt_grammar_read(g, 0, 'b')->to, 1);
    assert_int_equal(bt_grammar_read(g, 0, 'c')->to, 4);
    assert_int_equal(bt_grammar_read(g, 0, 'd')->to, 4);
    assert_int_equal(bt_grammar_read(g, 0, 0xC3)->to, 5);
    assert_int_equal(bt_grammar_read(g, 1, 'a')->to, 2);
    assert_int_equal(bt_grammar_read(g, 2, 't')->to, 3);
    assert_int_equal(bt_grammar_read(g, 4, 'a')->to, 2);
    assert_int_equal(bt_grammar_read(g, 5, 0xA9)->to, 3);
    assert_int_equal(tokens->kind, BT_GRAMMAR_TAKES);
    assert_int_equal(tokens->arg, 7);
    assert_int_equal(tokens->last, 9);
    assert_int_equal(tokens->to, 3);
    assert_int_equal(g->states[4].n_byte_edges, 1);
    assert_int_equal(g->states[4].n_edges, 2);
    bt_grammar_free(g);
}

static void literal_falls_back_to_its_otherwise(void **state)
{
    bt_grammar_t *g = loaded(words, sizeof(words));

    (void)state;
    assert_int_equal(bt_grammar_read(g, 0, 'n')->to, 1);
    assert_int_equal(bt_grammar_read(g, 0, 'm')->to, 3);
    assert_int_equal(bt_grammar_read(g, 1, 'o')->to, 2);
    assert_int_equal(bt_grammar_read(g, 1, 'n')->to, 3);
    assert_null(bt_grammar_read(g, 1, 'N'));
    assert_true(g->states[0].accepts && g->states[1].accepts);
    assert_false(g->states[2].accepts);
    bt_grammar_free(g);
}

static void faults_are_refused_by_name(void **state)
{
    static const struct {
        uint32_t at;
        uint8_t byte;
        const char *why;
    } faults[] = {
        {0, 'b', "no program of a grammar"},
        {3, 2, "the program is of another version"},
        {4, 0, "the program has no rule"},
        {6, 6, "a number is out of range"},
        {6, 0, "a rule has no state"},
        {6, 3, "states are of no rule"},
        {10, 7, "a rule's min is above its max"},
        {10, 0, "a rule has the empty text"},
        {13, 0, "a literal is empty"},
        {13, 5, "a number is out of range"},
        {16, 0x88, "an edge is of no kind"},
        {17, 0, "the root is called"},
        {17, 2, "a number is out of range"},
        {18, 1, "an edge has none before it"},
        {18, 6, "a number is out of range"},
        {25, 'z' + 1, "a range of bytes is empty"},
        {27, 3, "a number is out of range"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(faults); i++) {
        uint8_t program[sizeof(quoted)];
        const char *why = "";
        bt_grammar_t *g = NULL;

        memcpy(program, quoted, sizeof(quoted));
        program[faults[i].at] = faults[i].byte;
        assert_int_not_equal(
            bt_grammar_load(program, sizeof(program), &why, &g), BT_OK);
        if (strcmp(why, faults[i].why) != 0) {
            fail_msg("byte %u as %u: %s", faults[i].at, faults[i].byte, why);
        }
        assert_null(g);
    }
}

/* One rule of a few states, with the head of a program in front. */
#define PROGRAM(n_states, ...)                                     \
    {                                                              \
        'B', 'T', 'G', 1, 1, n_states, n_states, 0, 0, __VA_ARGS__ \
    }

static void bad_states_are_refused_by_name(void **state)
{
    static const struct {
        uint8_t program[24];
        size_t n;
        const char *why;
    } cases[] = {
        /* b before a; a twice; a byte behind a token */
        {PROGRAM(1, 13, 'b', 2, 'a', 2), 14,
         "bytes of a state are not in order"},
        {PROGRAM(1, 13, 'a', 2, 'a', 2), 14,
         "bytes of a state are not in order"},
        {PROGRAM(1, 13, 0x83, 1, 0, 2, 'a', 2), 16,
         "bytes of a state are not in order"},
        /* state 0 falls back to 1, which falls back to 0 */
        {PROGRAM(2, 6, 1, 6, 0), 13, "an otherwise has one itself"},
        {PROGRAM(1, 6, 0), 11, "an otherwise has one itself"},
        {PROGRAM(1, 6, 1), 11, "a number is out of range"},
        /* 2^17 edges; tokens up to 2^32 */
        {PROGRAM(1, 0x84, 0x80, 0x20), 12, "a state has too many edges"},
        {PROGRAM(1, 9, 0x83, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 2), 17,
         "a number is out of range"},
        {PROGRAM(1, 9, 0x83, 2, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 2), 17,
         "a number is out of range"},
        {PROGRAM(1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1), 15,
         "a number is too long"},
        {PROGRAM(1, 5, 0), 11, "bytes are left behind the program"},
        {PROGRAM(1, 9), 10, "the program is cut"},
        {PROGRAM(1, 0, 1, 'a'), 12, "an edge leads nowhere"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const char *why = "";
        bt_grammar_t *g = NULL;

        assert_int_equal(
            bt_grammar_load(cases[i].program, cases[i].n, &why, &g),
            BT_ERR_BAD_MESSAGE);
        if (strcmp(why, cases[i].why) != 0) {
            fail_msg("case %zu: %s", i, why);
        }
    }
}

static void left_recursion_is_refused(void **state)
{
    /* Rule 1 calls rule 2, which calls rule 1. */
    static const uint8_t program[] = {'B', 'T',  'G', 1, 3, 6, 2,    0, 0, 2,
                                      0,   0,    2,   0, 0, 8, 0x82, 1, 0, 5,
                                      8,   0x82, 2,   0, 5, 8, 0x82, 1, 0, 5};
    const char *why;
    bt_grammar_t *g;

    (void)state;
    assert_int_equal(bt_grammar_load(program, sizeof(program), &why, &g),
                     BT_ERR_BAD_MESSAGE);
    assert_string_equal(why, "a rule begins with itself");
}

static void program_over_a_limit_is_refused(void **state)
{
    static uint8_t program[BT_GRAMMAR_MAX_BYTES + 1];
    const char *why;
    bt_grammar_t *g;

    (void)state;
    assert_int_equal(bt_grammar_load(program, sizeof(program), &why, &g),
                     BT_ERR_TOO_LARGE);
    assert_string_equal(why, "the program is too large");
}

static size_t put(uint8_t *at, uint32_t number)
{
    size_t n = 0;

    for (; number >= 0x80; number >>= 7) {
        at[n++] = (uint8_t)(number | 0x80);
    }
    at[n++] = (uint8_t)number;
    return n;
}

/* Many edges of one state wait for new states, which come in their order. */
static void new_states_of_one_state_come_in_its_order(void **state)
{
    static uint8_t program[BT_GRAMMAR_MAX_BYTES];
    const uint32_t n = 8192;
    size_t bytes = 5;
    bt_grammar_t *g;

    (void)state;
    memcpy(program, "BTG\1\1", 5);
    bytes += put(program + bytes, n + 1);
    bytes += put(program + bytes, n + 1);
    bytes += put(program + bytes, 0);
    bytes += put(program + bytes, 0);
    bytes += put(program + bytes, (n + 1) << 2);
    for (uint32_t i = 0; i < n; i++) {
        program[bytes++] = 0x83;
        bytes += put(program + bytes, i);
        program[bytes++] = 0;
        program[bytes++] = 0;
    }
    memset(program + bytes, 5, n);
    bytes += n;
    g = loaded(program, bytes);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(g->edges[i].arg, i);
        assert_int_equal(g->edges[i].to, i + 1);
    }
    bt_grammar_free(g);
}

/* Each number of a loaded grammar is in range. */
static void look_at(const bt_grammar_t *g)
{
    for (uint32_t s = 0; s < g->n_states; s++) {
        const bt_grammar_state_t *const state = &g->states[s];

        assert_true(state->first_edge + state->n_edges <= g->n_edges);
        assert_true(state->rule < g->n_rules);
        for (uint32_t byte = 0; byte < 256; byte++) {
            const bt_grammar_edge_t *edge =
                bt_grammar_read(g, s, (uint8_t)byte);

            assert_true((edge == NULL) ||
                        (g->states[edge->to].rule == state->rule));
        }
        for (uint32_t e = 0; e < state->n_edges; e++) {
            const bt_grammar_edge_t *const edge =
                &g->edges[state->first_edge + e];

            assert_true((edge->kind == BT_GRAMMAR_READS) ==
                        (e < state->n_byte_edges));
            assert_true(g->states[edge->to].rule == state->rule);
            assert_true((edge->kind != BT_GRAMMAR_CALLS) ||
                        ((edge->arg > 0) && (edge->arg < g->n_rules)));
        }
    }
}

/* Whatever bytes come, they are refused or give a grammar whose bounds can be
 * computed: a peer may be hostile. */
static void altered_programs_never_break_the_loader(void **state)
{
    static const struct {
        const uint8_t *program;
        size_t n;
    } bases[] = {
        {quoted, sizeof(quoted)}, {tree, sizeof(tree)}, {words, sizeof(words)}};
    uint32_t n_loaded = 0;

    (void)state;
    for (uint32_t round = 0; round < 90000; round++) {
        const uint8_t *base = bases[round % BT_ARRAY_LEN(bases)].program;
        uint8_t program[80];
        size_t n = bases[round % BT_ARRAY_LEN(bases)].n;
        const char *why;
        bt_grammar_t *g;
        bt_grammar_bounds_t *bounds;

        memcpy(program, base, n);
        for (uint32_t k = 1 + below(4); k > 0; k--) {
            const uint32_t at = below((uint32_t)n);

            switch (below(4)) {
            case 0:
                program[at] = (uint8_t)below(256);
                break;
            case 1:
                program[at] ^= (uint8_t)(1u << below(8));
                break;
            case 2:
                n = (n > 6) ? n - 1 - below(3) : n;
                break;
            default:
                if (n < sizeof(program)) {
                    memmove(program + at + 1, program + at, n - at);
                    program[at] = (uint8_t)below(16);
                    n++;
                }
                break;
            }
        }
        if (bt_grammar_load(program, n, &why, &g) == BT_OK) {
            n_loaded++;
            look_at(g);
            if (bt_grammar_bounds_create(g, &bounds) == BT_OK) {
                bt_grammar_bounds_destroy(bounds);
            }
            bt_grammar_free(g);
        } else {
            assert_non_null(why);
        }
    }
    assert_true(n_loaded > 500);
}

static void each_failed_allocation_is_a_status(void **state)
{
    bool failed = true;

    (void)state;
    for (int nth = 1; failed; nth++) {
        const char *why;
        bt_grammar_t *g = NULL;
        bt_status_t status;

        (void)bt_alloc_fail_at(nth);
        status = bt_grammar_load(quoted, sizeof(quoted), &why, &g);
        failed = bt_alloc_fail_at(0) == 0;
        assert_int_equal(status, failed ? BT_ERR_NO_MEMORY : BT_OK);
        bt_grammar_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(program_by_hand_is_loaded),
        BT_TEST(new_states_are_read_depth_first),
        BT_TEST(literal_falls_back_to_its_otherwise),
        BT_TEST(new_states_of_one_state_come_in_its_order),
        BT_TEST(faults_are_refused_by_name),
        BT_TEST(bad_states_are_refused_by_name),
        BT_TEST(program_over_a_limit_is_refused),
        BT_TEST(left_recursion_is_refused),
        BT_TEST(altered_programs_never_break_the_loader),
        BT_TEST(each_failed_allocation_is_a_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
