/* SPDX-License-Identifier: Apache-2.0 */
/* All policies at once, in one world (world.h), through random events: requests
 * come, of several tenants and levels, are canceled, get their messages in any
 * order, are paused and begin again; workers die and come back, are silent,
 * change their roles, borrow cores and lose them in the middle of a step. Under
 * every order of prompts and both policies of blocks. After each event no block
 * is lost or held twice, nobody is overtaken beyond its bound, budgets and
 * shares are kept, somebody gets on; and every request ends once.
 *
 * BATON_TEST_SEED=N    only this life
 * BATON_TEST_EVENTS=N  that many, 1,000,000 otherwise */
#include "tests/support/testsupport.h"

#include <stdlib.h>

#include "common/base/status.h"
#include "tests/unit/common/sched/world.h"

#define N_EVENTS 15000u  /* of a life */
#define N_DRAIN  200000u /* after which nobody can still be waiting */

static w_node_t *first_step(void)
{
    w_node_t *first = NULL;

    for (uint32_t i = 0; i < w.n_nodes; i++) {
        w_node_t *node = &w.nodes[i];

        if (node->alive && node->steps &&
            ((first == NULL) || (node->step_until_us < first->step_until_us))) {
            first = node;
        }
    }
    return first;
}

static bool end_a_step(void)
{
    w_node_t *node = first_step();

    if (node == NULL) {
        return false;
    }
    if (node->step_until_us > w.now_us) {
        w.now_us = node->step_until_us;
    }
    w_node_end_step(node);
    return true;
}

static void random_roles(w_node_t *node)
{
    static const uint32_t all[] = {BT_SCHED_PREFILL, BT_SCHED_DECODE,
                                   BT_SCHED_PREFILL | BT_SCHED_DECODE,
                                   BT_SCHED_DECODE | BT_SCHED_LOCAL};

    w_roles(node, all[w_below(BT_ARRAY_LEN(all))]);
    w.n_roles++;
}

/* A fraction of the events. */
static void random_trouble(void)
{
    w_node_t *node = &w.nodes[w_below(w.n_nodes)];
    const uint32_t what = w_below(w.floods ? 1000 : 200);

    if (!node->alive) {
        if (what < 100) {
            w_join(node);
        }
    } else if (what < 1) {
        w_die(node);
    } else if (what < 4) {
        random_roles(node);
    } else if (what < 8) {
        node->sched.health = (bt_sched_health_t)w_below(BT_SCHED_N_HEALTHS);
    } else if (what < 20) {
        node->sched.health = BT_SCHED_UP;
    } else if (what < 120) {
        w_node_lend(node, 40 + w_below(160));
    }
}

static void random_event(uint32_t load)
{
    const uint32_t what = w_below(100);
    w_req_t *req = &w.reqs[w_below(W_REQS)];

    w.now_us += w_below(2000);
    if (what < load) {
        w_arrive(w_below(W_TENANTS));
    } else if (what < load + 1) {
        if (req->live && (!w.floods || (w_below(8) == 0))) {
            w_cancel(req);
        }
    } else if (what < load + 7) {
        random_trouble();
    } else if (what < 60) {
        if (!w_deliver()) {
            (void)end_a_step();
        }
    } else {
        (void)end_a_step();
    }
    for (uint32_t i = 0; w.floods && (i < W_TENANTS); i++) {
        while (w.tenants[i].n_queued < 3) {
            const uint32_t n = w.n_live;

            w_arrive(i);
            if (w.n_live == n) {
                break; /* no room for more */
            }
        }
    }
}

static void tick(void)
{
    w_dispatch();
    for (uint32_t i = 0; i < w.n_nodes; i++) {
        if (w.nodes[i].alive) {
            w_node_tick(&w.nodes[i]);
        }
    }
    w.n_events++;
    w_check();
}

/* Nothing new comes, everybody is there: all must end. */
static void drain(uint32_t seed)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w.n_nodes; i++) {
        if (!w.nodes[i].alive) {
            w_join(&w.nodes[i]);
        }
        w.nodes[i].sched.health = BT_SCHED_UP;
    }
    w_roles(&w.nodes[0], BT_SCHED_PREFILL | BT_SCHED_DECODE);
    for (;;) {
        if ((w_below(2) == 0) ? (!w_deliver() && !end_a_step())
                              : (!end_a_step() && !w_deliver())) {
            if (w.n_live == 0) {
                break;
            }
            w.now_us += 1000000; /* patience ends */
        }
        tick();
        if (n++ > N_DRAIN) {
            fail_msg("seed %u: %u requests wait for ever", seed, w.n_live);
        }
    }
    w_check_empty();
    for (uint32_t i = 0; i < w.n_nodes; i++) {
        w_node_close(&w.nodes[i]);
    }
}

static void one_life(uint32_t seed)
{
    uint32_t load;

    w_open(seed);
    load = 2 + w_below(12);
    for (uint32_t i = 0; i < N_EVENTS; i++) {
        random_event(load);
        tick();
    }
    drain(seed);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return (text == NULL) ? otherwise : strtoull(text, NULL, 10);
}

static void say(uint32_t from, uint32_t to)
{
    print_message("seeds %u to %u, %lu events: %lu requests done, %lu failed, "
                  "%lu canceled, %lu run again, %lu overtaken; %lu steps, ",
                  from, to, (unsigned long)w.n_events, (unsigned long)w.n_done,
                  (unsigned long)w.n_failed, (unsigned long)w.n_canceled,
                  (unsigned long)w.n_reruns, (unsigned long)w.n_passed_over,
                  (unsigned long)w.n_steps);
    print_message("%lu deaths, %lu roles, %lu lendings, %lu pauses, %lu begun "
                  "again, %lu sat out, %lu dropped, %lu taken back, %lu shared "
                  "beginnings, %lu windows of shares, %lu passes inside\n",
                  (unsigned long)w.n_deaths, (unsigned long)w.n_roles,
                  (unsigned long)w.n_lent, (unsigned long)w.n_pauses,
                  (unsigned long)w.n_resumes, (unsigned long)w.n_sat_out,
                  (unsigned long)w.n_drops, (unsigned long)w.n_taken_back,
                  (unsigned long)w.n_shared, (unsigned long)w.n_windows,
                  (unsigned long)w.n_inside);
}

static void million_events_of_every_kind_keep_all_invariants(void **state)
{
    const uint32_t only = (uint32_t)number_of("BATON_TEST_SEED", 0);
    const uint64_t n_wanted = number_of("BATON_TEST_EVENTS", 1000000);
    uint32_t seed = (only != 0) ? only : 1;

    (void)state;
    do {
        if (getenv("BATON_TEST_VERBOSE") != NULL) {
            print_message("seed %u\n", seed);
        }
        one_life(seed++);
    } while ((only == 0) && (w.n_events < n_wanted));
    say((only != 0) ? only : 1, seed - 1);
    if ((only == 0) && (n_wanted >= 1000000)) { /* all of it was there */
        assert_true(w.n_done > 10 * w.n_failed);
        assert_true((w.n_deaths > 50) && (w.n_roles > 50) &&
                    (w.n_lent > 1000) && (w.n_pauses > 100) &&
                    (w.n_drops > 100) && (w.n_shared > 300) &&
                    (w.n_canceled > 1000) && (w.n_passed_over > 1000) &&
                    (w.n_windows > 300));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(million_events_of_every_kind_keep_all_invariants),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
