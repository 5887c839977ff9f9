/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of grammars made by hand. */
#include "common/base/alloc.h"
#include "common/grammar/arcs.h"
#include "tests/support/hand_grammar.h"
#include "tests/support/testsupport.h"

static void expect_arc(const bt_grammar_arc_t *arc, uint32_t from, uint32_t to,
                       uint32_t callee, bool counts, bool is_tail)
{
    assert_int_equal(arc->from, from);
    assert_int_equal(arc->to, to);
    assert_int_equal(arc->callee, callee);
    assert_int_equal(arc->counts, counts);
    assert_int_equal(arc->is_tail, is_tail);
}

static void edges_that_lead_alike_are_one_arc(void **state)
{
    hand_grammar_t *h = hand_grammar();
    const uint32_t rule = hand_rule(h, 0, 9);
    const uint32_t other = hand_rule(h, 0, BT_GRAMMAR_NO_LIMIT);
    const uint32_t s = hand_state(h, rule, false);
    const uint32_t t = hand_state(h, rule, false);
    const uint32_t end = hand_state(h, rule, true);
    const uint32_t o = hand_state(h, other, true);
    bt_grammar_arcs_t arcs;

    (void)state;
    hand_bytes(h, s, 'a', 'a', t, false);
    hand_bytes(h, s, 'b', 'b', t, true);
    hand_bytes(h, s, 'c', 'c', t, false);
    hand_token(h, s, 5, t);
    hand_call(h, s, other, t, true);
    hand_call(h, t, other, end, false);
    /* Only b is left of what s reads, as t has a and c itself. */
    hand_otherwise(h, t, s);
    hand_bytes(h, t, 'a', 'a', end, false);
    hand_bytes(h, t, 'c', 'c', end, false);
    assert_int_equal(bt_grammar_arcs_init(&arcs, hand_finish(h)), BT_OK);
    assert_int_equal(arcs.n_arcs, 7);
    expect_arc(&arcs.arcs[0], s, t, BT_GRAMMAR_NONE, false, false);
    expect_arc(&arcs.arcs[1], s, t, BT_GRAMMAR_NONE, true, false);
    expect_arc(&arcs.arcs[2], s, t, other, true, false);
    expect_arc(&arcs.arcs[3], s, t, BT_GRAMMAR_NONE, false, false);
    expect_arc(&arcs.arcs[4], t, end, BT_GRAMMAR_NONE, false, false);
    expect_arc(&arcs.arcs[5], t, t, BT_GRAMMAR_NONE, true, false);
    expect_arc(&arcs.arcs[6], t, end, other, false, true);
    assert_int_equal(arcs.out_first[t], 4);
    assert_int_equal(arcs.out_first[end], 7);
    assert_int_equal(arcs.in.first[end + 1] - arcs.in.first[end], 2);
    assert_int_equal(arcs.in.items[arcs.in.first[end]], 4);
    assert_int_equal(arcs.calls.first[other + 1] - arcs.calls.first[other], 2);
    assert_int_equal(arcs.calls.items[arcs.calls.first[other] + 1], 6);
    assert_int_equal(arcs.members.first[other], 3);
    assert_int_equal(arcs.members.items[3], o);
    bt_grammar_arcs_fini(&arcs);
    bt_free(h);
}

static void every_failed_allocation_is_reported(void **state)
{
    uint64_t rng = 1;
    const hand_random_t options = {.n_rules = 3, .n_states = 4, .n_letters = 2};
    hand_grammar_t *h = hand_random(&rng, &options);
    bt_grammar_arcs_t arcs;
    int nth = 1;

    (void)state;
    for (;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_grammar_arcs_init(&arcs, &h->grammar);
        bt_grammar_arcs_fini(&arcs);
        if (bt_alloc_fail_at(0) > 0) {
            assert_int_equal(status, BT_OK);
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
    }
    assert_true(nth > 8);
    bt_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(edges_that_lead_alike_are_one_arc),
        BT_TEST(every_failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
