/* SPDX-License-Identifier: Apache-2.0 */
/* A core that holds: what comes waits, what was there goes on. */
#include "tests/unit/router/core/core_fixture.h"

static void later_requests_wait_earlier_ones_run_to_their_ends(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key;
    client_t before, after;

    (void)state;
    key = begin(w, &p, &d, &before, 8, NULL);
    bt_core_hold(w->core, BT_CORE_HOLD_PAUSE);
    bt_core_hold(w->core, BT_CORE_HOLD_PAUSE);
    submit(w, &after, "B", 8, NULL);
    assert_true(bt_core_holds(w->core));
    assert_int_equal(bt_core_n_held(w->core), 1);
    assert_int_equal(bt_core_n_begun(w->core), 1);

    /* A retry of the earlier one is sent. */
    d2 = join(w, "decode-1", BT_ROLE_DECODE);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 1);
    key = key_at(w, d2);
    assert_int_equal(key.attempt, 2);
    tokens(w, p, key, 0, "x", BT_FINISH_NONE);
    joined(w, d2, key, 1);
    tokens(w, d2, key, 1, "yz", BT_FINISH_STOP);
    assert_int_equal(before.n_ends, 1);
    assert_int_equal(before.http_status, 200);
    assert_int_equal(bt_core_n_begun(w->core), 0);

    /* The later one outwaits the time that others wait for workers. */
    w->now += 4 * (uint64_t)WAIT_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(after.n_ends, 0);
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 1);
    bt_core_release(w->core, BT_CORE_HOLD_PAUSE, w->now);
    assert_false(bt_core_holds(w->core));
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 2);
    assert_int_equal(bt_core_n_held(w->core), 0);
    bt_core_release(w->core, BT_CORE_HOLD_PAUSE, w->now);
    bt_core_destroy(w->core);
}

static void hold_lasts_while_there_is_a_reason(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c;

    (void)state;
    start_pair(w, &p, &d);
    bt_core_hold(w->core, BT_CORE_HOLD_PAUSE);
    bt_core_hold(w->core, BT_CORE_HOLD_WEIGHTS);
    submit(w, &c, "A", 8, NULL);
    bt_core_release(w->core, BT_CORE_HOLD_WEIGHTS, w->now);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 0);
    bt_core_release(w->core, BT_CORE_HOLD_PAUSE, w->now);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 1);
    bt_core_destroy(w->core);
}

static void end_of_begun_ones_leaves_held_ones(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t before, after;

    (void)state;
    (void)begin(w, &p, &d, &before, 8, NULL);
    bt_core_hold(w->core, BT_CORE_HOLD_PAUSE);
    submit(w, &after, "B", 8, NULL);
    bt_core_end_begun(w->core, "aborted", w->now);
    assert_int_equal(before.n_ends, 1);
    assert_int_equal(before.http_status, 503);
    assert_non_null(strstr(before.message, "aborted"));
    assert_int_equal(after.n_ends, 0);
    assert_int_equal(bt_core_n_begun(w->core), 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 1);

    /* One that its client gives up, and one whose deadline passes. */
    bt_core_cancel(w->core, after.gen, w->now);
    assert_int_equal(bt_core_n_held(w->core), 0);
    submit(w, &after, "C", 8, NULL);
    w->now += (uint64_t)DEADLINE_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(after.n_ends, 1);
    assert_int_equal(after.http_status, 504);
    assert_int_equal(bt_core_n_held(w->core), 0);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(later_requests_wait_earlier_ones_run_to_their_ends),
        BT_TEST(hold_lasts_while_there_is_a_reason),
        BT_TEST(end_of_begun_ones_leaves_held_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
