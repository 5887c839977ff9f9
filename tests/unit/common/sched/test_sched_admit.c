/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_admit.h"

#define N 8u

static bt_sched_admit_t admit;
static bt_sched_claim_t claims[N];

/* 100 blocks, 8 seats, half of the blocks for KV without a grant. */
static void begin(void)
{
    bt_sched_admit_init(&admit, 100, 8, 50);
}

/* Claims come a millisecond after one another. */
static bt_sched_claim_t *add(uint32_t i, bt_list_t *queue, bt_sched_want_t want,
                             uint32_t n_blocks)
{
    bt_sched_turn_init(&claims[i].turn, 0, 1000u * i);
    claims[i].want = want;
    claims[i].n_blocks = n_blocks;
    bt_sched_queue_insert(queue, &claims[i].turn);
    return &claims[i];
}

static bool fits(bt_sched_want_t want, uint32_t n_blocks, uint32_t more_seats)
{
    const bt_sched_claim_t claim = {
        .want = want, .n_blocks = n_blocks, .more_seats = more_seats};

    return bt_sched_admit_fits(&admit, &claim);
}

static void take_out(bt_sched_claim_t *claim)
{
    bt_list_remove(&claim->turn.link);
}

static void no_claim_is_admitted_without_a_seat(void **state)
{
    bt_sched_claim_t *a;

    (void)state;
    begin();
    assert_null(bt_sched_admit_next(&admit, 8));
    a = add(0, &admit.granted, BT_SCHED_CONTEXT, 10);
    assert_null(bt_sched_admit_next(&admit, 0));
    assert_ptr_equal(bt_sched_admit_next(&admit, 1), a);
}

/* Nobody overtakes the first that wants 30 blocks: not the smaller one behind
 * it, and not one without a grant. */
static void granted_prompt_is_not_overtaken(void **state)
{
    bt_sched_claim_t *a, *b, *c;

    (void)state;
    begin();
    c = add(0, &admit.ungranted, BT_SCHED_CONTEXT, 5);
    a = add(1, &admit.granted, BT_SCHED_CONTEXT, 30);
    b = add(2, &admit.granted, BT_SCHED_CONTEXT, 5);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), a);
    assert_int_equal(bt_sched_admit_judge(&admit, a, 30, 29), BT_SCHED_WAIT);
    /* A block of it is known, and held by somebody else. */
    assert_int_equal(bt_sched_admit_judge(&admit, a, 29, 29), BT_SCHED_BEGIN);
    take_out(a);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), b);
    take_out(b);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), c);
}

static void newest_waiting_prompt_releases_its_blocks(void **state)
{
    bt_sched_claim_t *a, *b, *want, *ungranted;

    (void)state;
    begin();
    assert_null(bt_sched_admit_victim(&admit));
    b = add(1, &admit.waiting, BT_SCHED_CONTEXT, 20); /* complete first */
    a = add(0, &admit.waiting, BT_SCHED_CONTEXT, 20);
    want = add(2, &admit.granted, BT_SCHED_CONTEXT, 30);
    ungranted = add(3, &admit.ungranted, BT_SCHED_CONTEXT, 5);
    assert_int_equal(bt_sched_admit_judge(&admit, want, 30, 0), BT_SCHED_DROP);
    assert_ptr_equal(bt_sched_admit_victim(&admit), b); /* the younger one */
    take_out(b);
    assert_int_equal(bt_sched_admit_judge(&admit, want, 30, 20), BT_SCHED_DROP);
    assert_ptr_equal(bt_sched_admit_victim(&admit), a);
    take_out(a);
    assert_int_equal(bt_sched_admit_judge(&admit, want, 30, 20), BT_SCHED_WAIT);
    /* For one without a grant nobody makes room. */
    take_out(want);
    bt_sched_queue_insert(&admit.waiting, &a->turn);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), ungranted);
    assert_int_equal(bt_sched_admit_judge(&admit, ungranted, 5, 4),
                     BT_SCHED_WAIT);
}

/* 50 of 100 blocks: 20 + 30 fit, 20 + 31 do not, 60 only alone. */
static void ungranted_kv_stays_within_its_share(void **state)
{
    bt_sched_claim_t *a, *b;

    (void)state;
    begin();
    a = add(0, &admit.ungranted, BT_SCHED_CONTEXT, 20);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), a);
    take_out(a);
    bt_sched_admit_hold_waiting(&admit, a);
    b = add(1, &admit.ungranted, BT_SCHED_CONTEXT, 30);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), b);
    b->n_blocks = 31;
    assert_null(bt_sched_admit_next(&admit, 8));
    b->n_blocks = 60;
    assert_null(bt_sched_admit_next(&admit, 8));
    bt_sched_admit_free_waiting(&admit, a); /* its grant came */
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), b);
}

static void single_role_reserves_nothing_from_leases(void **state)
{
    bt_sched_claim_t *a, *b;

    (void)state;
    begin();
    a = add(0, &admit.leases, BT_SCHED_LEASE, 60);
    take_out(a);
    bt_sched_admit_hold_lease(&admit, a);
    b = add(1, &admit.leases, BT_SCHED_LEASE, 40);
    assert_ptr_equal(bt_sched_admit_next(&admit, 7), b);
    assert_int_equal(bt_sched_admit_judge(&admit, b, 40, 40), BT_SCHED_BEGIN);
}

/* Both roles, prompts of up to 30 blocks: leases leave 30, and half of the
 * seats. */
static void leases_leave_blocks_for_prefill(void **state)
{
    bt_sched_claim_t *a, *b, *context;

    (void)state;
    begin();
    bt_sched_admit_reserve(&admit, 30);
    a = add(0, &admit.leases, BT_SCHED_LEASE, 50);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), a);
    take_out(a);
    bt_sched_admit_hold_lease(&admit, a);
    b = add(1, &admit.leases, BT_SCHED_LEASE, 20);
    assert_ptr_equal(bt_sched_admit_next(&admit, 7), b);
    b->n_blocks = 21;
    assert_null(bt_sched_admit_next(&admit, 7));
    b->want = BT_SCHED_BOTH_PHASES; /* depends on nobody */
    assert_ptr_equal(bt_sched_admit_next(&admit, 7), b);
    b->want = BT_SCHED_LEASE;

    /* It holds up nobody but leases, with or without a grant. */
    context = add(2, &admit.granted, BT_SCHED_CONTEXT, 30);
    assert_ptr_equal(bt_sched_admit_next(&admit, 7), context);
    take_out(context);
    context = add(2, &admit.ungranted, BT_SCHED_CONTEXT, 30);
    assert_ptr_equal(bt_sched_admit_next(&admit, 7), context);
    take_out(context);
    bt_sched_admit_free_lease(&admit, a); /* its KV came: it runs */
    assert_ptr_equal(bt_sched_admit_next(&admit, 7), b);

    /* The last seat that is not kept: 4 of 8 are leased. */
    claims[7].n_blocks = 1;
    for (uint32_t i = 0; i < 3; i++) {
        bt_sched_admit_hold_lease(&admit, &claims[7]);
    }
    assert_ptr_equal(bt_sched_admit_next(&admit, 5), b);
    bt_sched_admit_hold_lease(&admit, &claims[7]);
    assert_null(bt_sched_admit_next(&admit, 4));
    bt_sched_admit_reserve(&admit, 0); /* one role again */
    assert_ptr_equal(bt_sched_admit_next(&admit, 1), b);
}

/* It waits for other workers, who may wait for it: one lease has to go. */
static void prefill_larger_than_its_reserve_is_reported_stuck(void **state)
{
    bt_sched_claim_t *lease, *context, *local;

    (void)state;
    begin();
    lease = add(0, &admit.leases, BT_SCHED_LEASE, 70);
    take_out(lease);
    bt_sched_admit_hold_lease(&admit, lease);
    context = add(2, &admit.ungranted, BT_SCHED_CONTEXT, 31);
    assert_false(bt_sched_admit_is_stuck(&admit)); /* nobody waits for it */
    take_out(context);
    context = add(2, &admit.granted, BT_SCHED_CONTEXT, 31);
    assert_true(bt_sched_admit_is_stuck(&admit));
    context->n_blocks = 30;
    assert_false(bt_sched_admit_is_stuck(&admit));
    /* One before it that has no room holds it up, one after it does not. */
    local = add(1, &admit.leases, BT_SCHED_BOTH_PHASES, 31);
    assert_true(bt_sched_admit_is_stuck(&admit));
    take_out(local);
    local = add(3, &admit.leases, BT_SCHED_BOTH_PHASES, 31);
    assert_false(bt_sched_admit_is_stuck(&admit));
    bt_sched_admit_init(&admit, 100, 1, 50); /* the only seat */
    lease->n_blocks = 10;
    bt_sched_admit_hold_lease(&admit, lease);
    (void)add(2, &admit.granted, BT_SCHED_CONTEXT, 10);
    assert_true(bt_sched_admit_is_stuck(&admit));
    bt_sched_admit_free_lease(&admit, lease);
    assert_false(bt_sched_admit_is_stuck(&admit));
}

static void at_most_half_of_the_blocks_is_reserved_for_prefill(void **state)
{
    (void)state;
    begin();
    bt_sched_admit_reserve(&admit, 1000);
    assert_int_equal(admit.context_blocks, 50);
    bt_sched_admit_init(&admit, 100, 1, 50);
    bt_sched_admit_reserve(&admit, 30);
    assert_int_equal(admit.context_seats, 0); /* there is one only */
}

/* Three more seats and 30 more blocks: all or none, and nobody overtakes. */
static void choices_are_admitted_together(void **state)
{
    bt_sched_claim_t *a, *b;

    (void)state;
    begin();
    a = add(0, &admit.leases, BT_SCHED_LEASE, 10);
    a->more_seats = 3;
    a->more_blocks = 30;
    b = add(1, &admit.leases, BT_SCHED_LEASE, 1);
    assert_null(bt_sched_admit_next(&admit, 3));
    assert_ptr_equal(bt_sched_admit_next(&admit, 4), a);
    assert_int_equal(bt_sched_admit_judge(&admit, a, 40, 39), BT_SCHED_WAIT);
    assert_int_equal(bt_sched_admit_judge(&admit, a, 40, 40), BT_SCHED_BEGIN);
    bt_sched_admit_shrink(&admit, a, 10); /* one is over while it waits */
    assert_int_equal(admit.leased_blocks, 0);
    take_out(a);
    bt_sched_admit_hold_lease(&admit, a);
    assert_int_equal(admit.leased_blocks, 30);
    assert_int_equal(admit.leased_seats, 3);
    bt_sched_admit_shrink(&admit, a, 10); /* ...and one now */
    assert_int_equal(admit.leased_blocks, 20);
    assert_int_equal(admit.leased_seats, 2);
    bt_sched_admit_free_lease(&admit, a);
    assert_int_equal(admit.leased_blocks, 0);
    assert_int_equal(admit.leased_seats, 0);
    assert_ptr_equal(bt_sched_admit_next(&admit, 1), b);
}

/* 8 seats, 100 blocks. With both roles half of the seats are for each, so that
 * a granted group finds its own (I4). */
static void choices_fit_only_when_all_have_seats_and_blocks(void **state)
{
    (void)state;
    begin();
    assert_true(fits(BT_SCHED_CONTEXT, 10, 7));
    assert_false(fits(BT_SCHED_CONTEXT, 10, 8));
    assert_true(fits(BT_SCHED_LEASE, 10, 7));
    assert_false(fits(BT_SCHED_BOTH_PHASES, 10, 8));
    bt_sched_admit_reserve(&admit, 30);
    assert_int_equal(admit.context_seats, 4);
    assert_true(fits(BT_SCHED_CONTEXT, 10, 3));
    assert_false(fits(BT_SCHED_CONTEXT, 10, 4));
    assert_true(fits(BT_SCHED_LEASE, 10, 3));
    assert_false(fits(BT_SCHED_LEASE, 10, 4));
    assert_true(fits(BT_SCHED_BOTH_PHASES, 10, 7));
}

/* One order for both kinds, and each makes waiting KV go. */
static void prefill_and_leases_are_admitted_by_age(void **state)
{
    bt_sched_claim_t *lease, *context;

    (void)state;
    begin();
    bt_sched_admit_reserve(&admit, 30);
    lease = add(0, &admit.leases, BT_SCHED_LEASE, 10);
    context = add(1, &admit.granted, BT_SCHED_CONTEXT, 10);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), lease);
    (void)add(2, &admit.waiting, BT_SCHED_CONTEXT, 10);
    assert_int_equal(bt_sched_admit_judge(&admit, lease, 10, 9), BT_SCHED_DROP);
    take_out(lease);
    lease = add(3, &admit.leases, BT_SCHED_LEASE, 10);
    assert_ptr_equal(bt_sched_admit_next(&admit, 8), context);
    assert_ptr_not_equal(bt_sched_admit_next(&admit, 8), lease);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(no_claim_is_admitted_without_a_seat),
        BT_TEST(granted_prompt_is_not_overtaken),
        BT_TEST(newest_waiting_prompt_releases_its_blocks),
        BT_TEST(ungranted_kv_stays_within_its_share),
        BT_TEST(single_role_reserves_nothing_from_leases),
        BT_TEST(leases_leave_blocks_for_prefill),
        BT_TEST(prefill_larger_than_its_reserve_is_reported_stuck),
        BT_TEST(at_most_half_of_the_blocks_is_reserved_for_prefill),
        BT_TEST(choices_are_admitted_together),
        BT_TEST(choices_fit_only_when_all_have_seats_and_blocks),
        BT_TEST(prefill_and_leases_are_admitted_by_age),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
