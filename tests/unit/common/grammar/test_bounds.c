/* SPDX-License-Identifier: Apache-2.0 */
/* From which frames a rule can still end, beside a search of all frames. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/bounds.h"
#include "tests/support/draw.h"
#include "tests/support/grammar_oracle.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"

#define NO_LIMIT BT_GRAMMAR_NO_LIMIT

static bt_grammar_bounds_t *bounds_of(hand_grammar_t *h)
{
    bt_grammar_bounds_t *bounds = NULL;

    assert_int_equal(bt_grammar_bounds_create(hand_finish(h), &bounds), BT_OK);
    return bounds;
}

static void done(hand_grammar_t *h, bt_grammar_bounds_t *bounds)
{
    bt_grammar_bounds_destroy(bounds);
    bt_free(h);
}

static void rule_with_bounds_ends_within_them(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 2, 5);
    const uint32_t s = hand_state(h, rule, true);
    bt_grammar_bounds_t *b;

    (void)state;
    hand_bytes(h, s, 'a', 'z', s, true);
    b = bounds_of(h);
    assert_int_equal(b->states[s].counts.least, 0);
    assert_int_equal(b->states[s].counts.most, NO_LIMIT);
    assert_true(bt_grammar_can_end(b, s, 0, 0));
    assert_true(bt_grammar_can_end(b, s, 5, 0));
    assert_false(bt_grammar_can_end(b, s, 6, 0));
    done(h, b);
}

/* a counts, then b and the end: at b no count can be added any more. */
static void end_behind_the_loop_needs_the_count_before(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 2, 4294967294u);
    const uint32_t s = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    bt_grammar_bounds_t *b;

    (void)state;
    hand_bytes(h, s, 'a', 'a', s, true);
    hand_bytes(h, s, 'b', 'b', end, false);
    b = bounds_of(h);
    assert_int_equal(b->states[end].counts.most, 0);
    assert_false(bt_grammar_can_end(b, end, 1, 9));
    assert_true(bt_grammar_can_end(b, end, 2, 9));
    assert_true(bt_grammar_can_end(b, s, 1, 9));
    assert_true(bt_grammar_can_end(b, s, 4294967294u, 9));
    assert_false(bt_grammar_can_end(b, s, 4294967295u, 9));
    done(h, b);
}

static void pairs_of_counting_edges_are_refused(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 2, 5);
    const uint32_t s = hand_state(h, rule, true);
    const uint32_t odd = hand_state(h, rule, false);
    bt_grammar_bounds_t *b = NULL;

    (void)state;
    hand_bytes(h, s, 'a', 'a', odd, true);
    hand_bytes(h, odd, 'a', 'a', s, true);
    assert_int_equal(bt_grammar_bounds_create(hand_finish(h), &b),
                     BT_ERR_UNSUPPORTED);
    assert_null(b);
    /* With a way of one there is no gap. */
    hand_bytes(h, odd, 'b', 'b', s, false);
    b = bounds_of(h);
    assert_true(bt_grammar_can_end(b, odd, 1, 0));
    done(h, b);
}

/* value: digit, or [ value ], or { two to three values } */
static void calls_need_frames_above(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t value = hand_rule(h, 0, NO_LIMIT);
    const uint32_t some = hand_rule(h, 2, 3);
    const uint32_t start = hand_state(h, value, false);
    const uint32_t in_list = hand_state(h, value, false);
    const uint32_t list_end = hand_state(h, value, false);
    const uint32_t in_some = hand_state(h, value, false);
    const uint32_t end = hand_state(h, value, true);
    const uint32_t first = hand_state(h, some, false);
    const uint32_t more = hand_state(h, some, true);
    bt_grammar_bounds_t *b;

    (void)state;
    hand_bytes(h, start, '0', '9', end, false);
    hand_bytes(h, start, '[', '[', in_list, false);
    hand_call(h, in_list, value, list_end, false);
    hand_bytes(h, list_end, ']', ']', end, false);
    hand_bytes(h, start, '{', '{', in_some, false);
    hand_call(h, in_some, some, list_end, false);
    hand_call(h, first, value, more, true);
    hand_call(h, more, value, more, true);
    b = bounds_of(h);
    assert_int_equal(b->rules[value].height, 0);
    assert_int_equal(b->rules[some].height, 1);
    assert_int_equal(b->states[start].height, 0);
    assert_int_equal(b->states[list_end].height, 0);
    assert_int_equal(b->states[in_list].height, 1);
    assert_int_equal(b->states[in_some].height, 2);
    /* Without frames above, the second count cannot be had. */
    assert_true(bt_grammar_can_end(b, more, 2, 0));
    assert_false(bt_grammar_can_end(b, more, 1, 0));
    assert_true(bt_grammar_can_end(b, more, 1, 1));
    assert_false(bt_grammar_can_end(b, first, 0, 0));
    assert_true(bt_grammar_can_end(b, first, 0, 1));
    done(h, b);
}

/* A rule that ends with a call of the next one needs no frame for it. */
static void tail_calls_need_no_frames_above(void **state)
{
    hand_grammar_t *h = hand_grammar();
    uint32_t starts[20];
    bt_grammar_bounds_t *b;

    (void)state;
    for (uint32_t r = 0; r < BT_ARRAY_LEN(starts); r++) {
        const bool bounded = r % 3 == 1;
        const uint32_t rule =
            hand_rule(h, bounded ? 1 : 0, bounded ? 2 : NO_LIMIT);

        starts[r] = hand_state(h, rule, false);
    }
    for (uint32_t r = 0; r < BT_ARRAY_LEN(starts); r++) {
        const uint32_t end = hand_state(h, r, true);

        if (r + 1 < BT_ARRAY_LEN(starts)) {
            hand_call(h, starts[r], r + 1, end, true);
        } else {
            hand_bytes(h, starts[r], 'a', 'a', end, true);
        }
        if (r == 10) { /* the other end of this rule may be followed */
            hand_bytes(h, end, 'b', 'b', end, false);
        }
    }
    b = bounds_of(h);
    for (uint32_t r = 0; r < BT_ARRAY_LEN(starts); r++) {
        assert_int_equal(b->rules[r].height, (r <= 10) ? 1 : 0);
        assert_false((r <= 10) && bt_grammar_can_end(b, starts[r], 0, 0));
        assert_true(bt_grammar_can_end(b, starts[r], 0, (r <= 10) ? 1 : 0));
    }
    done(h, b);
}

static void rule_without_text_never_ends(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t root = hand_rule(h, 0, NO_LIMIT);
    const uint32_t forever = hand_rule(h, 0, NO_LIMIT);
    const uint32_t never = hand_rule(h, 3, 3);
    const uint32_t s = hand_state(h, root, false);
    const uint32_t end = hand_state(h, root, true);
    const uint32_t t = hand_state(h, forever, false);
    const uint32_t u = hand_state(h, never, false);
    const uint32_t u_end = hand_state(h, never, true);
    bt_grammar_bounds_t *b;

    (void)state;
    hand_call(h, s, forever, end, false);
    hand_call(h, s, never, end, false);
    hand_bytes(h, t, 'a', 'a', t, false);
    hand_bytes(h, u, 'a', 'a', u_end, true);
    b = bounds_of(h);
    assert_int_equal(b->rules[forever].height, BT_GRAMMAR_NONE);
    assert_int_equal(b->rules[never].height, BT_GRAMMAR_NONE);
    assert_int_equal(b->rules[root].height, BT_GRAMMAR_NONE);
    assert_false(bt_grammar_can_end(b, s, 0, 255));
    assert_false(bt_grammar_can_end(b, u, 0, 255));
    assert_true(bt_grammar_can_end(b, u_end, 3, 0));
    done(h, b);
}

static void byte_edges_have_those_of_otherwise_between_them(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, NO_LIMIT);
    const uint32_t base = hand_state(h, rule, true);
    const uint32_t s = hand_state(h, rule, true);
    bt_byte_edge_t edges[256];
    uint32_t n;
    /* first, last, state */
    const uint32_t want[][3] = {
        {0x00, 0x1f, base}, {0x20, 0x20, s},  {0x21, 0x60, base}, {'a', 'a', s},
        {'b', 'c', s},      {'d', 'm', base}, {'n', 0xfe, s}};

    (void)state;
    hand_bytes(h, base, 0x00, 'm', base, false);
    hand_bytes(h, base, 'n', 'n', base, false);
    hand_bytes(h, s, 0x20, 0x20, s, true);
    hand_bytes(h, s, 'a', 'a', s, false);
    hand_bytes(h, s, 'b', 'c', s, false);
    hand_bytes(h, s, 'n', 0xfe, s, false);
    hand_otherwise(h, s, base);
    n = bt_grammar_byte_edges(hand_finish(h), s, edges);
    assert_int_equal(n, BT_ARRAY_LEN(want));
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(edges[i].lo, want[i][0]);
        assert_int_equal(edges[i].hi, want[i][1]);
        assert_int_equal(edges[i].to, want[i][2]);
        assert_true(edges[i].counts == (i == 1));
    }
    bt_free(h);
}

/*
 * Random grammars
 */

#define MAX_HEIGHT 6u

static void compare(const oracle_t *o, const bt_grammar_bounds_t *b, bool exact,
                    uint64_t *n_compared_p)
{
    for (uint32_t h = 0; h <= MAX_HEIGHT; h++) {
        for (uint32_t s = 0; s < o->grammar->n_states; s++) {
            const bt_grammar_rule_t *rule =
                &o->grammar->rules[o->grammar->states[s].rule];
            const uint32_t top = (rule->max == NO_LIMIT) ? rule->min : 12;

            for (uint32_t c = 0; c <= top; c++) {
                const bool got = bt_grammar_can_end(b, s, c, h);

                if (exact) {
                    assert_true(got == o->can_end[h][s][c]);
                } else {
                    assert_true(!got || o->can_end[h][s][c]);
                }
                (*n_compared_p)++;
            }
        }
    }
}

static void bounds_are_those_of_a_search(void **state)
{
    const hand_random_t options = {
        .n_rules = 4, .n_states = 6, .n_letters = 2, .max_count = 5};
    uint64_t rng = 7;
    uint64_t n_compared = 0;
    uint32_t n_refused = 0;
    uint32_t n_too_much = 0;
    uint32_t n_exact = 0;

    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        hand_grammar_t *h = hand_random(&rng, &options);
        bt_grammar_bounds_t *b = NULL;
        bool gaps_below = false;
        oracle_t *o = oracle_create(&h->grammar, MAX_HEIGHT);
        bt_status_t status;

        for (uint32_t k = 0; k <= MAX_HEIGHT; k++) {
            gaps_below = gaps_below || oracle_has_gaps(o, k);
        }
        status = bt_grammar_bounds_create(&h->grammar, &b);
        if (status == BT_ERR_UNSUPPORTED) {
            n_refused++;
            n_too_much += gaps_below ? 0 : 1;
        } else {
            assert_int_equal(status, BT_OK);
            assert_false(oracle_has_gaps(o, MAX_HEIGHT));
            compare(o, b, !gaps_below, &n_compared);
            n_exact += gaps_below ? 0 : 1;
        }
        bt_free(o);
        done(h, b);
    }
    assert_true(n_refused > 100);
    /* A gap may be closed only by calls that it keeps from being possible. */
    assert_true(n_too_much < 5);
    assert_true(n_exact > 1000);
    assert_true(n_compared > 500000);
}

static void every_failed_allocation_is_reported(void **state)
{
    const hand_random_t options = {
        .n_rules = 4, .n_states = 6, .n_letters = 2, .max_count = 5};
    uint64_t rng = 5;
    hand_grammar_t *h = hand_random(&rng, &options);
    bt_grammar_bounds_t *b = NULL;
    int nth = 1;

    (void)state;
    for (;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_grammar_bounds_create(&h->grammar, &b);
        if (bt_alloc_fail_at(0) > 0) {
            assert_int_equal(status, BT_OK);
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
        assert_null(b);
    }
    assert_true(nth > 20);
    done(h, b);
    bt_grammar_bounds_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(rule_with_bounds_ends_within_them),
        BT_TEST(end_behind_the_loop_needs_the_count_before),
        BT_TEST(pairs_of_counting_edges_are_refused),
        BT_TEST(calls_need_frames_above),
        BT_TEST(tail_calls_need_no_frames_above),
        BT_TEST(rule_without_text_never_ends),
        BT_TEST(byte_edges_have_those_of_otherwise_between_them),
        BT_TEST(bounds_are_those_of_a_search),
        BT_TEST(every_failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
