/* SPDX-License-Identifier: Apache-2.0 */
/* Weighted fair queueing. BATON_TEST_EVENTS=N that many random events,
 * 1,000,000 otherwise. */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "common/sched/sched_fair.h"

#define UNIT BT_SCHED_FAIR_UNIT

static bt_sched_flow_t *first(const bt_sched_fair_t *fair)
{
    return bt_list_empty(&fair->backlog) ? NULL
                                         : bt_sched_flow_of(fair->backlog.next);
}

static void least_served_tenant_by_weight_is_next(void **state)
{
    bt_sched_flow_t a, b;
    bt_sched_fair_t fair;
    char order[10] = "";

    (void)state;
    bt_sched_fair_init(&fair);
    bt_sched_flow_init(&a, 2);
    bt_sched_flow_init(&b, 1);
    assert_null(first(&fair));
    bt_sched_fair_wait(&fair, &a);
    bt_sched_fair_wait(&fair, &b);
    /* By hand, times of a and b: 0 0, 5 0, 5 10, 10 10, 10 20, 15 20, 20 20,
     * 20 30, 25 30; of two equal ones the one that stood there. */
    for (unsigned i = 0; i < 9; i++) {
        bt_sched_flow_t *flow = first(&fair);

        order[i] = (flow == &a) ? 'a' : 'b';
        bt_sched_fair_charge(&fair, flow, 10);
    }
    assert_string_equal(order, "ababaabaa");
}

static void idle_tenant_accumulates_no_credit(void **state)
{
    bt_sched_flow_t a, b;
    bt_sched_fair_t fair;

    (void)state;
    bt_sched_fair_init(&fair);
    bt_sched_flow_init(&a, 1);
    bt_sched_flow_init(&b, 1);
    bt_sched_fair_wait(&fair, &a);
    for (unsigned i = 0; i < 100; i++) {
        bt_sched_fair_charge(&fair, &a, 10);
    }
    bt_sched_fair_wait(&fair, &b);
    assert_ptr_equal(first(&fair), &b);
    assert_int_equal(b.time, 990 * UNIT); /* that of the last served */
    bt_sched_fair_charge(&fair, &b, 10);
    /* Nor has it when it goes and comes with a debt: that stays. */
    bt_sched_fair_charge(&fair, &b, 500);
    bt_sched_fair_rest(&fair, &b);
    assert_false(bt_sched_fair_is_even(&fair, &b));
    bt_sched_fair_wait(&fair, &b);
    assert_int_equal(b.time, 1500 * UNIT);
    assert_ptr_equal(first(&fair), &a);
}

/* Ten of a flow are behind a server's door: who comes stands beside the oldest
 * that is not done, but never before what it has had. */
static void new_tenant_starts_at_the_oldest_tenants_share(void **state)
{
    bt_sched_flow_t a, b;
    bt_sched_fair_t fair;

    (void)state;
    bt_sched_fair_init(&fair);
    bt_sched_flow_init(&a, 1);
    bt_sched_flow_init(&b, 1);
    bt_sched_fair_wait(&fair, &a);
    for (unsigned i = 0; i < 10; i++) {
        bt_sched_fair_charge(&fair, &a, 10);
    }
    bt_sched_fair_wait_since(&fair, &b, 70 * UNIT);
    assert_int_equal(b.time, 70 * UNIT);
    bt_sched_fair_rest(&fair, &b);
    bt_sched_fair_wait_since(&fair, &b, 20 * UNIT);
    assert_int_equal(b.time, 70 * UNIT);
    bt_sched_fair_rest(&fair, &b);
    bt_sched_fair_wait_since(&fair, &b, 5000 * UNIT); /* it is of later */
    assert_int_equal(b.time, 90 * UNIT);
    bt_sched_fair_add(&fair, &b, 25); /* more than was thought */
    assert_int_equal(b.time, 115 * UNIT);
    assert_ptr_equal(first(&fair), &a);
}

static void unused_charge_is_returned(void **state)
{
    bt_sched_flow_t a, b;
    bt_sched_fair_t fair;

    (void)state;
    bt_sched_fair_init(&fair);
    bt_sched_flow_init(&a, 4);
    bt_sched_flow_init(&b, 4);
    bt_sched_fair_wait(&fair, &a);
    bt_sched_fair_wait(&fair, &b);
    bt_sched_fair_charge(&fair, &a, 1000);
    bt_sched_fair_charge(&fair, &b, 100);
    assert_ptr_equal(first(&fair), &b);
    bt_sched_fair_refund(&fair, &a, 960);
    assert_ptr_equal(first(&fair), &a);
    assert_int_equal(a.time, 10 * UNIT);
    bt_sched_fair_refund(&fair, &a, UINT64_MAX); /* never below nothing */
    assert_int_equal(a.time, 0);
}

static void tenant_held_by_its_own_limit_accumulates_no_credit(void **state)
{
    bt_sched_flow_t a, b;
    bt_sched_fair_t fair;

    (void)state;
    bt_sched_fair_init(&fair);
    bt_sched_flow_init(&a, 1);
    bt_sched_flow_init(&b, 1);
    bt_sched_fair_wait(&fair, &a);
    bt_sched_fair_wait(&fair, &b);
    for (unsigned i = 0; i < 50; i++) { /* a may not */
        bt_sched_fair_charge(&fair, &b, 10);
        bt_sched_fair_passed(&fair, &a);
    }
    assert_int_equal(a.time, 490 * UNIT);
    assert_ptr_equal(first(&fair), &a);
}

static void shares_count_only_waiting_tenants(void **state)
{
    bt_sched_flow_t a, b, c;
    bt_sched_fair_t fair;

    (void)state;
    bt_sched_fair_init(&fair);
    bt_sched_flow_init(&a, 3);
    bt_sched_flow_init(&b, 1);
    bt_sched_flow_init(&c, 5000);
    assert_int_equal(c.weight, BT_SCHED_FAIR_MAX_WEIGHT);
    bt_sched_fair_wait(&fair, &a);
    bt_sched_fair_wait(&fair, &a);
    assert_int_equal(bt_sched_fair_share(&fair, &a, 1024), 1024);
    bt_sched_fair_wait(&fair, &b);
    assert_int_equal(bt_sched_fair_share(&fair, &a, 1024), 768);
    assert_int_equal(bt_sched_fair_share(&fair, &b, 1024), 256);
    assert_int_equal(bt_sched_fair_share(&fair, &b, 3), 1);
    bt_sched_fair_set_weight(&fair, &b, 3);
    assert_int_equal(bt_sched_fair_share(&fair, &b, 1024), 512);
    bt_sched_fair_rest(&fair, &a);
    bt_sched_fair_rest(&fair, &a);
    assert_int_equal(bt_sched_fair_share(&fair, &b, 1024), 1024);
}

static void fair_share_times_do_not_overflow(void **state)
{
    bt_sched_fair_t fair;
    bt_sched_flow_t a;

    (void)state;
    bt_sched_fair_init(&fair);
    bt_sched_flow_init(&a, 1);
    bt_sched_fair_wait(&fair, &a);
    bt_sched_fair_charge(&fair, &a, UINT64_MAX);
    bt_sched_fair_charge(&fair, &a, UINT64_MAX);
    assert_int_equal(a.time, UINT64_MAX);
}

/* ---- a million events ---- */

#define N_FLOWS  12u
#define MAX_WORK 200u /* of a request */
#define WINDOW   10000u
#define MAX_NEED (2 * N_FLOWS) /* requests that others may have in between */

typedef struct life {
    bt_sched_fair_t fair;
    bt_sched_flow_t flows[N_FLOWS];
    uint64_t queued[N_FLOWS]; /* requests that wait */
    uint64_t rng;
    /* Since the set of those that wait changed last: what each had. */
    uint64_t work[N_FLOWS], all;
    uint64_t n_windows;
    uint64_t behind[N_FLOWS]; /* work of others, by weights, since its turn */
} life_t;

static uint32_t below(life_t *l, uint32_t n)
{
    l->rng =
        l->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(l->rng >> 33) % n;
}

static void changed(life_t *l)
{
    memset(l->work, 0, sizeof(l->work));
    l->all = 0;
}

static void arrive(life_t *l, uint32_t i, uint64_t n)
{
    if (l->queued[i] == 0) {
        changed(l);
        l->behind[i] = 0;
    }
    l->queued[i] += n;
    bt_sched_fair_wait(&l->fair, &l->flows[i]);
}

/* Over 10,000 tokens among the same flows each had its share, to 5 % of all. */
static void check_window(life_t *l)
{
    uint64_t weights = 0;

    for (uint32_t i = 0; i < N_FLOWS; i++) {
        weights += (l->queued[i] > 0) ? l->flows[i].weight : 0;
    }
    for (uint32_t i = 0; i < N_FLOWS; i++) {
        const double share = (l->queued[i] > 0)
                                 ? (double)l->flows[i].weight / (double)weights
                                 : 0;
        const double had = (double)l->work[i] / (double)l->all;

        assert_true((had - share < 0.05) && (share - had < 0.05));
    }
    l->n_windows++;
    changed(l);
}

static void serve(life_t *l)
{
    bt_sched_flow_t *flow = first(&l->fair);
    const uint32_t work = 1 + below(l, MAX_WORK);
    uint32_t i;

    if (flow == NULL) { /* then nobody waits: work is conserved */
        for (i = 0; i < N_FLOWS; i++) {
            assert_int_equal(l->queued[i], 0);
        }
        return;
    }
    i = (uint32_t)(flow - l->flows);
    assert_true(l->queued[i] > 0);
    bt_sched_fair_charge(&l->fair, flow, work);
    l->work[i] += work;
    l->all += work;
    l->behind[i] = 0;
    for (uint32_t k = 0; k < N_FLOWS; k++) {
        if ((k != i) && (l->queued[k] > 0)) {
            /* Nobody waits for more than a request of each other flow, beside
             * what its own last one cost, all by their weights. */
            l->behind[k] += (uint64_t)work * l->flows[k].weight;
            assert_true(l->behind[k] <=
                        (uint64_t)MAX_WORK *
                            (N_FLOWS * l->flows[k].weight + 40 * N_FLOWS));
        }
    }
    if (--l->queued[i] == 0) {
        bt_sched_fair_rest(&l->fair, flow);
        changed(l);
    } else if (l->all >= WINDOW) {
        check_window(l);
    }
}

static void million_events_keep_every_share(void **state)
{
    const char *text = getenv("BATON_TEST_EVENTS");
    const uint64_t n_events =
        (text != NULL) ? strtoull(text, NULL, 10) : 1000000;
    static life_t l;

    (void)state;
    l.rng = 12345;
    bt_sched_fair_init(&l.fair);
    for (uint32_t i = 0; i < N_FLOWS; i++) {
        bt_sched_flow_init(&l.flows[i], 1 + below(&l, 40));
    }
    for (uint64_t n = 0; n < n_events; n++) {
        const uint32_t dice = below(&l, 1000);
        const uint32_t i = below(&l, N_FLOWS);

        if (dice < 2) { /* one floods */
            arrive(&l, i, 2000);
        } else if (dice < 3) { /* one leaves, with all it has */
            if (l.queued[i] > 0) {
                l.queued[i] = 0;
                bt_sched_fair_rest(&l.fair, &l.flows[i]);
                changed(&l);
            }
        } else if (dice < 40) {
            arrive(&l, i, 1 + below(&l, 4));
        } else {
            serve(&l);
        }
    }
    assert_true((text != NULL) || (l.n_windows > 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(least_served_tenant_by_weight_is_next),
        BT_TEST(idle_tenant_accumulates_no_credit),
        BT_TEST(new_tenant_starts_at_the_oldest_tenants_share),
        BT_TEST(unused_charge_is_returned),
        BT_TEST(tenant_held_by_its_own_limit_accumulates_no_credit),
        BT_TEST(shares_count_only_waiting_tenants),
        BT_TEST(fair_share_times_do_not_overflow),
        BT_TEST(million_events_keep_every_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
