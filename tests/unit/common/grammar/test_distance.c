/* SPDX-License-Identifier: Apache-2.0 */
/* How far frames are from the ends of their rules, beside a search of all
 * frames. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/compile.h"
#include "common/grammar/distance.h"
#include "tests/support/draw.h"
#include "tests/support/grammar_oracle.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"

#define NO_LIMIT BT_GRAMMAR_NO_LIMIT
#define NONE     BT_DISTANCE_NONE

typedef struct world {
    hand_grammar_t *h;
    bt_grammar_bounds_t *bounds;
    bt_grammar_distances_t *d;
} world_t;

static world_t open_world(hand_grammar_t *h)
{
    world_t w = {.h = h};

    assert_int_equal(bt_grammar_bounds_create(hand_finish(h), &w.bounds),
                     BT_OK);
    assert_int_equal(
        bt_grammar_distances_create(w.bounds, BT_DISTANCE_EXACT, &w.d), BT_OK);
    return w;
}

static void close_world(world_t *w)
{
    bt_grammar_distances_destroy(w->d);
    bt_grammar_bounds_destroy(w->bounds);
    bt_free(w->h);
}

/* value: abc, or [ value ], or { value , value } */
static void distance_is_that_of_the_shortest_way(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t value = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, value, false);
    const uint32_t list = hand_state(h, value, false);
    const uint32_t list_end = hand_state(h, value, false);
    const uint32_t first = hand_state(h, value, false);
    const uint32_t comma = hand_state(h, value, false);
    const uint32_t second = hand_state(h, value, false);
    const uint32_t pair_end = hand_state(h, value, false);
    const uint32_t end = hand_state(h, value, true);
    world_t w;

    (void)state;
    hand_text(h, start, "abc", end);
    hand_bytes(h, start, '[', '[', list, false);
    hand_call(h, list, value, list_end, false);
    hand_bytes(h, list_end, ']', ']', end, false);
    hand_bytes(h, start, '{', '{', first, false);
    hand_call(h, first, value, comma, false);
    hand_bytes(h, comma, ',', ',', second, false);
    hand_call(h, second, value, pair_end, false);
    hand_bytes(h, pair_end, '}', '}', end, false);
    w = open_world(h);
    assert_int_equal(bt_grammar_distance(w.d, start, 0, 0), 3);
    assert_int_equal(bt_grammar_distance(w.d, list, 0, 1), 4);
    assert_int_equal(bt_grammar_distance(w.d, list, 0, 0), NONE);
    assert_int_equal(bt_grammar_distance(w.d, first, 0, 9), 3 + 1 + 3 + 1);
    assert_int_equal(bt_grammar_distance(w.d, end, 0, 0), 0);
    close_world(&w);
}

static void distance_of_a_token_is_one(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    world_t w;

    (void)state;
    hand_text(h, start, "abcd", end);
    hand_token(h, start, 7, end);
    w = open_world(h);
    assert_int_equal(bt_grammar_distance(w.d, start, 0, 0), 1);
    close_world(&w);
}

/* Items xx, of which min to max are counted, then an end. */
static world_t items(uint32_t min, uint32_t max, uint32_t *start_p)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, min, max);
    const uint32_t start = hand_state(h, rule, true);
    const uint32_t inside = hand_state(h, rule, false);

    hand_bytes(h, start, 'x', 'x', inside, true);
    hand_bytes(h, inside, 'x', 'x', start, false);
    *start_p = start;
    return open_world(h);
}

static void missing_counts_are_in_the_distance(void **state)
{
    uint32_t start;
    world_t w = items(3, 5, &start);

    (void)state;
    assert_int_equal(bt_grammar_distance(w.d, start, 0, 0), 6);
    assert_int_equal(bt_grammar_distance(w.d, start, 2, 0), 2);
    assert_int_equal(bt_grammar_distance(w.d, start + 1, 1, 0), 1 + 4);
    assert_int_equal(bt_grammar_distance(w.d, start, 3, 0), 0);
    assert_int_equal(bt_grammar_distance(w.d, start, 5, 0), 0);
    close_world(&w);
    w = items(1000000, NO_LIMIT, &start);
    assert_int_equal(bt_grammar_distance(w.d, start, 0, 0), 2000000);
    assert_int_equal(bt_grammar_distance(w.d, start + 1, 10, 0),
                     1 + 2 * 999990);
    close_world(&w);
    w = items(4294967294u, NO_LIMIT, &start); /* over what is kept */
    assert_int_equal(bt_grammar_distance(w.d, start, 0, 0), NONE);
    close_world(&w);
}

/* a b xxxxx with two counts, a b c with three. */
static void more_counts_than_are_missing_may_be_nearer(void **state)
{
    (void)state;
    for (uint32_t bounded = 0; bounded < 2; bounded++) {
        hand_grammar_t *h = hand_grammar();
        const uint32_t rule = hand_rule(h, 2, (bounded == 1) ? 2 : NO_LIMIT);
        const uint32_t start = hand_state(h, rule, bounded == 0);
        const uint32_t one = hand_state(h, rule, false);
        const uint32_t two = hand_state(h, rule, false);
        const uint32_t end = hand_state(h, rule, true);
        world_t w;

        hand_bytes(h, start, 'a', 'a', one, true);
        hand_bytes(h, one, 'b', 'b', two, true);
        hand_bytes(h, two, 'c', 'c', end, true);
        hand_text(h, two, "xxxxx", end);
        w = open_world(h);
        assert_int_equal(bt_grammar_distance(w.d, start, 0, 0),
                         (bounded == 1) ? 1 + 1 + 5 : 1 + 1 + 1);
        close_world(&w);
    }
}

static void rule_without_text_has_no_distance(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t start = hand_state(h, rule, false);
    world_t w;

    (void)state;
    hand_bytes(h, start, 'a', 'a', start, false);
    w = open_world(h);
    assert_int_equal(bt_grammar_distance(w.d, start, 0, 255), NONE);
    close_world(&w);
}

/*
 * Random grammars
 */

#define MAX_HEIGHT 5u

/* Fewest bytes, by frames above, state and count; as oracle_t.can_end. */
typedef struct search {
    const oracle_t *o;
    uint32_t bytes[MAX_HEIGHT + 1][ORACLE_MAX_STATES][ORACLE_MAX_COUNT];
} search_t;

static uint32_t next_count(const bt_grammar_rule_t *rule, uint32_t count)
{
    return ((rule->max == NO_LIMIT) && (count >= rule->min)) ? rule->min
                                                             : count + 1;
}

/* Bytes from a frame along an edge to the end; NONE: not along it.
 * @param [in] of  Distances to take. */
static uint32_t along(const search_t *s, uint32_t h, uint32_t state,
                      uint32_t count, uint32_t to, bool counts, uint32_t callee)
{
    const bt_grammar_t *g = s->o->grammar;
    const bt_grammar_rule_t *rule = &g->rules[g->states[state].rule];
    const uint32_t next = counts ? next_count(rule, count) : count;
    uint32_t bytes = 1;

    if ((next > rule->max) || (next >= s->o->n_counts)) {
        return NONE;
    }
    if (callee != BT_GRAMMAR_NONE) {
        const uint32_t frames = bt_grammar_ends(g, to) ? 0 : 1;

        if (h < frames) {
            return NONE;
        }
        bytes = s->bytes[h - frames][g->rules[callee].start][0];
    }
    if ((bytes == NONE) || (s->bytes[h][to][next] == NONE)) {
        return NONE;
    }
    return bytes + s->bytes[h][to][next];
}

static uint32_t best_along(const search_t *s, uint32_t h, uint32_t state,
                           uint32_t count)
{
    const bt_grammar_t *g = s->o->grammar;
    const bt_grammar_state_t *st = &g->states[state];
    bt_byte_edge_t edges[256];
    const uint32_t n = bt_grammar_byte_edges(g, state, edges);
    uint32_t best = NONE;

    if (st->accepts && (count >= g->rules[st->rule].min) &&
        (count <= g->rules[st->rule].max)) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bytes = along(s, h, state, count, edges[i].to,
                                     edges[i].counts, BT_GRAMMAR_NONE);

        best = (bytes < best) ? bytes : best;
    }
    for (uint32_t k = st->n_byte_edges; k < st->n_edges; k++) {
        const bt_grammar_edge_t *edge = &g->edges[st->first_edge + k];
        const uint32_t bytes = along(
            s, h, state, count, edge->to, edge->counts,
            (edge->kind == BT_GRAMMAR_CALLS) ? edge->arg : BT_GRAMMAR_NONE);

        best = (bytes < best) ? bytes : best;
    }
    return best;
}

/* Lowers distances until nothing changes. */
static void search_all(search_t *s)
{
    memset(s->bytes, 0xff, sizeof(s->bytes));
    for (uint32_t h = 0; h <= MAX_HEIGHT; h++) {
        bool changed = true;

        while (changed) {
            changed = false;
            for (uint32_t i = s->o->grammar->n_states; i > 0; i--) {
                for (uint32_t c = s->o->n_counts; c > 0; c--) {
                    const uint32_t best = best_along(s, h, i - 1, c - 1);

                    if (best < s->bytes[h][i - 1][c - 1]) {
                        s->bytes[h][i - 1][c - 1] = best;
                        changed = true;
                    }
                }
            }
        }
    }
}

/* Puts the distances that are tested where those of the search were. */
static void take_distances(search_t *s, const bt_grammar_distances_t *d)
{
    for (uint32_t h = 0; h <= MAX_HEIGHT; h++) {
        for (uint32_t i = 0; i < s->o->grammar->n_states; i++) {
            for (uint32_t c = 0; c < s->o->n_counts; c++) {
                s->bytes[h][i][c] = bt_grammar_distance(d, i, c, h);
            }
        }
    }
}

static void compare(search_t *s, const bt_grammar_distances_t *d,
                    uint64_t *n_equal_p, uint64_t *n_more_p)
{
    for (uint32_t h = 0; h <= MAX_HEIGHT; h++) {
        for (uint32_t i = 0; i < s->o->grammar->n_states; i++) {
            const bt_grammar_rule_t *rule =
                &s->o->grammar->rules[s->o->grammar->states[i].rule];
            const bool bounded = (rule->min > 0) || (rule->max != NO_LIMIT);

            for (uint32_t c = 0; c < s->o->n_counts; c++) {
                const uint32_t got = bt_grammar_distance(d, i, c, h);

                assert_true(got >= s->bytes[h][i][c]);
                assert_true((got == 0) == (s->bytes[h][i][c] == 0));
                if (!bounded && (h == MAX_HEIGHT) &&
                    (d->shortest[i].height <= h)) {
                    assert_int_equal(got, d->shortest[i].bytes);
                }
                *n_equal_p += (got == s->bytes[h][i][c]) ? 1 : 0;
                *n_more_p += (got != s->bytes[h][i][c]) ? 1 : 0;
            }
        }
    }
}

/* From each frame some edge leads nearer: by its byte, or by what it calls and
 * then needs behind the call. */
static void check_steps(search_t *s, const bt_grammar_distances_t *d)
{
    take_distances(s, d);
    for (uint32_t h = 0; h <= MAX_HEIGHT; h++) {
        for (uint32_t i = 0; i < s->o->grammar->n_states; i++) {
            for (uint32_t c = 0; c < s->o->n_counts; c++) {
                const uint32_t got = s->bytes[h][i][c];

                if ((got != 0) && (got != NONE)) {
                    assert_true(best_along(s, h, i, c) <= got);
                }
            }
        }
    }
}

static void distances_of_random_grammars_can_be_kept(void **state)
{
    static search_t s;
    uint64_t rng = 11;
    uint64_t n_equal = 0;
    uint64_t n_more = 0;
    uint32_t n_rules = 0;

    (void)state;
    for (uint32_t round = 0; round < 1500; round++) {
        const hand_random_t options = {
            .n_rules = 4,
            .n_states = 5,
            .n_letters = 3,
            .max_count = (round % 3 == 0) ? 0 : 5 + round % 20,
            .n_token_ids = round % 2};
        hand_grammar_t *h = hand_random(&rng, &options);
        bt_grammar_bounds_t *bounds = NULL;
        bt_grammar_distances_t *d = NULL;
        oracle_t *o;

        if (bt_grammar_bounds_create(&h->grammar, &bounds) == BT_OK) {
            o = oracle_create(&h->grammar, MAX_HEIGHT);
            s.o = o;
            assert_int_equal(
                bt_grammar_distances_create(
                    bounds, (round % 2 == 0) ? 1 : BT_DISTANCE_EXACT, &d),
                BT_OK);
            search_all(&s);
            compare(&s, d, &n_equal, &n_more);
            check_steps(&s, d);
            n_rules += h->grammar.n_rules;
            bt_free(o);
        }
        bt_grammar_distances_destroy(d);
        bt_grammar_bounds_destroy(bounds);
        bt_free(h);
    }
    print_message("%lu equal, %lu more, %u rules\n", (unsigned long)n_equal,
                  (unsigned long)n_more, n_rules);
    assert_true(n_rules > 2000);
    assert_true(n_equal > 50 * n_more);
}

static void shortest_text_of_a_program_is_known(void **state)
{
    static const struct {
        bt_grammar_kind_t kind;
        const char *text;
        uint32_t shortest;
    } cases[] = {
        {BT_GRAMMAR_REGEX, "a*", 0},
        {BT_GRAMMAR_REGEX, "[a-z]{30,}", 30},
        {BT_GRAMMAR_CHOICE, "[\"yes\",\"no\"]", 2},
        {BT_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":[\"a\"],\"additionalProperties\":false}",
         7}, /* {"a":0} */
        {BT_GRAMMAR_STRUCTURAL_TAG,
         "{\"format\":{\"type\":\"sequence\",\"elements\":[{\"type\":"
         "\"token\",\"token\":7},{\"type\":\"const_string\",\"value\":"
         "\"ab\"}]}}",
         3},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const bt_grammar_source_t source = {.kind = cases[i].kind,
                                            .text = cases[i].text,
                                            .bytes = strlen(cases[i].text)};
        char why[BT_GRAMMAR_WHY_BYTES] = "";
        uint8_t *program = NULL;
        size_t bytes = 0;
        uint32_t shortest = 99;

        if (bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)) !=
            BT_OK) {
            fail_msg("%s", why);
        }
        assert_int_equal(bt_grammar_shortest(program, bytes, &shortest), BT_OK);
        assert_int_equal(shortest, cases[i].shortest);
        assert_int_equal(bt_grammar_shortest(program, 3, &shortest),
                         BT_ERR_BAD_MESSAGE);
        bt_free(program);
    }
}

static void every_failed_allocation_is_reported(void **state)
{
    uint32_t start;
    world_t w = items(3, 5, &start);
    bt_grammar_distances_t *d = NULL;
    int nth = 1;

    (void)state;
    for (;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_grammar_distances_create(w.bounds, 1, &d);
        if (bt_alloc_fail_at(0) > 0) {
            assert_int_equal(status, BT_OK);
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
        assert_null(d);
    }
    assert_true(nth > 10);
    bt_grammar_distances_destroy(d);
    bt_grammar_distances_destroy(NULL);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(distance_is_that_of_the_shortest_way),
        BT_TEST(distance_of_a_token_is_one),
        BT_TEST(missing_counts_are_in_the_distance),
        BT_TEST(more_counts_than_are_missing_may_be_nearer),
        BT_TEST(rule_without_text_has_no_distance),
        BT_TEST(distances_of_random_grammars_can_be_kept),
        BT_TEST(shortest_text_of_a_program_is_known),
        BT_TEST(every_failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
