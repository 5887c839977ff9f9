/* SPDX-License-Identifier: Apache-2.0 */
/* Which prompt goes first of those that wait for workers, and to which worker:
 * by what it takes there. */
#include "tests/unit/router/core/core_fixture.h"

#define N_CLIENTS 4u

static client_t clients[N_CLIENTS];

/* A letter is a token, which is a millisecond before anybody has measured. */
static const char *const prompts[N_CLIENTS] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                               "bbbb", "cccccccccc", "dd"};

static void submit_all(world_t *w)
{
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        submit(w, &clients[i], prompts[i], 8, NULL);
        w->now += 1; /* us */
    }
}

/* Of the REQUESTs to it, each prompt's first letter. */
static void assert_sent(const world_t *w, const bt_instance_t *to,
                        const char *want)
{
    char letters[MAX_SENT + 1] = "";
    unsigned n = 0;

    for (uint32_t i = 0; i < w->n_sent; i++) {
        if ((w->sent[i].to == to) && (w->sent[i].msg.type == BT_MSG_REQUEST)) {
            letters[n++] = w->sent[i].tokens[0];
        }
    }
    letters[n] = '\0';
    assert_string_equal(letters, want);
}

static void end(world_t *w)
{
    bt_core_end_all(w->core, "the test is over", w->now);
    bt_core_destroy(w->core);
}

static void sent_in_order(bt_sched_order_t order, const char *want)
{
    world_t *w = &world;
    bt_instance_t *p;

    start_in_order(w, 20, order);
    submit_all(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    assert_sent(w, p, want);
    end(w);
}

static void waiting_requests_follow_the_configured_order(void **state)
{
    (void)state;
    sent_in_order(BT_SCHED_FCFS, "abcd");
    sent_in_order(BT_SCHED_SRPT, "dbca");
    sent_in_order(BT_SCHED_DEADLINE, "abcd"); /* all have the server's */
}

static bt_instance_t *join_measured(world_t *w, const char *name,
                                    uint64_t token_ns)
{
    bt_instance_t *worker = join(w, name, BT_ROLE_PREFILL);
    const bt_msg_t stats = {
        .type = BT_MSG_STATS,
        .u.stats = {.max_requests = 4,
                    .rates = {.prefill_token_ns = token_ns}}};

    assert_int_equal(bt_core_message(w->core, worker, &stats, w->now), BT_OK);
    return worker;
}

/* One takes four times as long for a token. Of equal prompts it gets a fifth:
 * the second one at first, for a worker with nothing is the best one. */
static void slow_worker_gets_proportionally_less(void **state)
{
    world_t *w = &world;
    bt_instance_t *quick, *slow;
    client_t many[10];

    (void)state;
    start_in_order(w, 20, BT_SCHED_SRPT);
    quick = join_measured(w, "prefill-0", 1000000);
    slow = join_measured(w, "prefill-1", 4000000);
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    for (unsigned i = 0; i < 10; i++) {
        submit(w, &many[i], "eeeeeeeeee", 8, NULL);
    }
    assert_int_equal(count(w, quick, BT_MSG_REQUEST), 8);
    assert_int_equal(count(w, slow, BT_MSG_REQUEST), 2);
    end(w);
}

/* One that has measured nothing counts as the others do: it is no slower for
 * being new. */
static void new_worker_gets_its_share(void **state)
{
    world_t *w = &world;
    bt_instance_t *old, *fresh;
    client_t many[10];

    (void)state;
    start_in_order(w, 20, BT_SCHED_SRPT);
    old = join_measured(w, "prefill-0", 1000);
    fresh = join(w, "prefill-1", BT_ROLE_PREFILL);
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    for (unsigned i = 0; i < 10; i++) {
        submit(w, &many[i], "eeeeeeeeee", 8, NULL);
    }
    assert_int_equal(count(w, old, BT_MSG_REQUEST), 5);
    assert_int_equal(count(w, fresh, BT_MSG_REQUEST), 5);
    end(w);
}

/* Numbers beyond all reason from a worker neither run over nor count. */
static void implausible_rates_count_as_unmeasured(void **state)
{
    world_t *w = &world;
    bt_instance_t *mad, *sane;
    client_t many[4];

    (void)state;
    start_in_order(w, 20, BT_SCHED_SRPT);
    sane = join_measured(w, "prefill-0", 1000000);
    mad = join_measured(w, "prefill-1", UINT64_MAX);
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    for (unsigned i = 0; i < 4; i++) {
        submit(w, &many[i], "eeeeeeeeee", 8, NULL);
    }
    assert_int_equal(count(w, sane, BT_MSG_REQUEST), 2);
    assert_int_equal(count(w, mad, BT_MSG_REQUEST), 2);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(waiting_requests_follow_the_configured_order),
        BT_TEST(slow_worker_gets_proportionally_less),
        BT_TEST(new_worker_gets_its_share),
        BT_TEST(implausible_rates_count_as_unmeasured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
