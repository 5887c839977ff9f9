/* SPDX-License-Identifier: Apache-2.0 */
/* How much is sent to workers ahead of what they have begun, and that the rest
 * waits in its order. Workers have 4 seats. */
#include "tests/unit/router/core/core_fixture.h"

#define WINDOW   (2 * 4 + BT_SCHED_AHEAD)
#define N_MORE   10u
#define N_CLIENT (WINDOW + N_MORE)
#define PAST_MS  (WAIT_MS + 100) /* past it nobody waits for workers */

static client_t clients[N_CLIENT];

static void submit_all(world_t *w)
{
    for (unsigned i = 0; i < N_CLIENT; i++) {
        submit(w, &clients[i], "The", 8, NULL);
    }
}

/* As the event loop has it. */
static void let_pass(world_t *w)
{
    for (unsigned ms = 0; ms < PAST_MS; ms += 50) {
        w->now += 50 * MS;
        bt_core_tick(w->core, w->now);
    }
}

/* The n-th REQUEST to it, from 0. */
static bt_req_key_t sent_key(const world_t *w, const bt_instance_t *to,
                             unsigned n)
{
    for (uint32_t i = 0; i < w->n_sent; i++) {
        const sent_t *s = &w->sent[i];

        if ((s->to == to) && (s->msg.type == BT_MSG_REQUEST) && (n-- == 0)) {
            return s->msg.u.request.key;
        }
    }
    fail_msg("no such request");
    return (bt_req_key_t){0};
}

static void prompts_above_the_send_limit_wait_in_the_router(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start(w, N_CLIENT + 1);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit_all(w);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), WINDOW);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), WINDOW);
    assert_int_equal(n_waiting(w), N_MORE);
    assert_true(bt_table_ready(bt_core_table(w->core)));

    /* However long it takes: there are workers. */
    let_pass(w);
    assert_int_equal(n_waiting(w), N_MORE);
    for (unsigned i = 0; i < N_CLIENT; i++) {
        assert_int_equal(clients[i].n_ends, 0);
    }

    /* One that ends makes room at once, where both have some. */
    ended(w, p, sent_key(w, p, 0));
    assert_int_equal(count(w, p, BT_MSG_REQUEST), WINDOW);
    ended(w, d, sent_key(w, p, 0));
    assert_int_equal(n_waiting(w), N_MORE);
    bt_core_end_all(w->core, "the test is over", w->now);
    bt_core_destroy(w->core);
}

static void highest_priority_is_sent_first_from_the_queue(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t urgent;
    bt_req_key_t key;

    (void)state;
    start(w, N_CLIENT + 1);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit_all(w);
    submit_with(w, &urgent, "Now", 8, NULL, 3);
    assert_int_equal(n_waiting(w), N_MORE + 1);
    key = sent_key(w, p, 0);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    tokens(w, d, key, 1, "b", BT_FINISH_LENGTH);
    ended(w, p, key);
    ended(w, d, key);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), WINDOW + 1);
    assert_string_equal(last(w, d, BT_MSG_REQUEST)->tokens, "Now");
    bt_core_end_all(w->core, "the test is over", w->now);
    bt_core_destroy(w->core);
}

static void worker_behind_gets_nothing_until_caught_up(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start(w, N_CLIENT);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    bt_core_worker_behind(w->core, d, true, w->now);
    submit(w, &clients[0], "The", 8, NULL);
    submit(w, &clients[1], "The", 1, NULL); /* needs the other one alone */
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    let_pass(w);
    assert_int_equal(clients[0].n_ends, 0);
    bt_core_worker_behind(w->core, d, false, w->now);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 2);
    bt_core_end_all(w->core, "the test is over", w->now);
    bt_core_destroy(w->core);
}

/* Their only worker comes back: it is sent no more than others are. */
static void many_waiting_requests_are_sent_in_bounded_turns(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start(w, N_CLIENT);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    submit_all(w);
    assert_int_equal(n_waiting(w), N_CLIENT);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), WINDOW);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), WINDOW);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    assert_int_equal(n_waiting(w), N_CLIENT);
    for (unsigned i = 0; i < WINDOW; i++) { /* that it lets go of them */
        ended(w, p, sent_key(w, p, i));
    }
    d = join(w, "decode-1", BT_ROLE_DECODE);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), WINDOW);
    bt_core_end_all(w->core, "the test is over", w->now);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(prompts_above_the_send_limit_wait_in_the_router),
        BT_TEST(highest_priority_is_sent_first_from_the_queue),
        BT_TEST(worker_behind_gets_nothing_until_caught_up),
        BT_TEST(many_waiting_requests_are_sent_in_bounded_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
