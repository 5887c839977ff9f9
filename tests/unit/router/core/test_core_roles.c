/* SPDX-License-Identifier: Apache-2.0 */
/* Workers whose role changes: who is told of whom, and what they are given. */
#include "tests/unit/router/core/core_fixture.h"

static void says(world_t *w, bt_instance_t *worker, uint32_t roles)
{
    const bt_msg_t msg = {.type = BT_MSG_STATS, .u.stats = {.roles = roles}};

    say(w, worker, &msg);
}

static uint32_t kind_at(const world_t *w, const bt_instance_t *worker)
{
    return last(w, worker, BT_MSG_REQUEST)->msg.u.request.kind;
}

static void reported_role_is_used_at_once(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b, c;

    (void)state;
    start_pair(w, &p, &d);
    says(w, p, BT_ROLE_PREFILL);
    says(w, d, BT_ROLE_DECODE);
    assert_int_equal(count(w, p, BT_MSG_PEER), 1);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.sends, 0);
    assert_int_equal(count(w, d, BT_MSG_PEER), 1);
    assert_int_equal(last(w, d, BT_MSG_PEER)->msg.u.peer.sends, 1);
    submit(w, &a, "A", 8, NULL);
    assert_int_equal(kind_at(w, p), BT_REQUEST_PREFILL);
    assert_int_equal(kind_at(w, d), BT_REQUEST_GENERATE);

    /* They change places: each hears of the other before it is asked. */
    says(w, d, BT_ROLES_BOTH);
    assert_int_equal(count(w, d, BT_MSG_PEER), 1); /* p receives nothing */
    says(w, p, BT_ROLE_DECODE);
    assert_int_equal(last(w, d, BT_MSG_PEER)->msg.u.peer.instance,
                     p->hello.instance);
    assert_int_equal(last(w, d, BT_MSG_PEER)->msg.u.peer.sends, 0);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.sends, 1);
    says(w, d, BT_ROLE_PREFILL);
    assert_int_equal(count(w, d, BT_MSG_PEER), 2);
    assert_int_equal(count(w, p, BT_MSG_PEER), 2);
    submit(w, &b, "B", 8, NULL);
    assert_int_equal(kind_at(w, d), BT_REQUEST_PREFILL);
    assert_int_equal(kind_at(w, p), BT_REQUEST_GENERATE);

    /* A role that comes back is known; all that is under way goes on. */
    says(w, d, BT_ROLE_DECODE);
    says(w, p, BT_ROLES_BOTH);
    assert_int_equal(count(w, d, BT_MSG_PEER), 2);
    assert_int_equal(count(w, p, BT_MSG_PEER), 2);
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0);

    /* One of both is told alone. */
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    submit(w, &c, "C", 8, NULL);
    assert_int_equal(kind_at(w, p), BT_REQUEST_LOCAL);
    /* Who might have sent to d learns that it is gone. */
    assert_int_equal(count(w, p, BT_MSG_PEER_GONE), 1);
    bt_core_destroy(w->core);
}

static void waiting_requests_start_when_a_role_appears(void **state)
{
    world_t *w = &world;
    bt_instance_t *d;
    client_t c;

    (void)state;
    start(w, 10);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    says(w, d, BT_ROLE_DECODE);
    submit(w, &c, "A", 8, NULL);
    assert_int_equal(n_waiting(w), 1);
    says(w, d, BT_ROLES_BOTH);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(kind_at(w, d), BT_REQUEST_LOCAL);
    bt_core_destroy(w->core);
}

/* By name, until it has come true, and only to one that understands. */
static void role_order_reaches_the_named_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start_pair(w, &p, &d); /* "prefill-0" and "decode-0" */
    bt_core_order_role(w->core, "prefill-0", BT_ROLES_BOTH);
    assert_int_equal(count(w, p, BT_MSG_ROLE), 0); /* an older build's */
    says(w, p, BT_ROLE_PREFILL);
    says(w, d, BT_ROLE_DECODE);
    bt_core_order_role(w->core, "prefill-0", BT_ROLE_PREFILL);
    bt_core_order_role(w->core, "prefill", BT_ROLES_BOTH);
    assert_int_equal(count(w, p, BT_MSG_ROLE), 0);
    bt_core_order_role(w->core, "prefill-0", BT_ROLES_BOTH);
    bt_core_order_role(w->core, "prefill-0", BT_ROLES_BOTH);
    assert_int_equal(count(w, p, BT_MSG_ROLE), 2);
    assert_int_equal(last(w, p, BT_MSG_ROLE)->msg.u.role.roles, BT_ROLES_BOTH);
    says(w, p, BT_ROLES_BOTH);
    bt_core_order_role(w->core, "prefill-0", BT_ROLES_BOTH);
    assert_int_equal(count(w, p, BT_MSG_ROLE), 2);
    assert_int_equal(count(w, d, BT_MSG_ROLE), 0);
    bt_core_destroy(w->core);
}

/* Bits of a later build, and a STATS of an older one in between. */
static void unknown_role_changes_nothing(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start_pair(w, &p, &d);
    says(w, d, BT_ROLES_BOTH | 0xF0u);
    assert_int_equal(d->roles, BT_ROLES_BOTH);
    says(w, d, 0);
    says(w, d, 0xF0u);
    assert_int_equal(d->roles, BT_ROLES_BOTH);
    bt_core_destroy(w->core);
}

static void says_duty(world_t *w, bt_instance_t *worker, bt_admin_state_t duty)
{
    const bt_msg_t msg = {
        .type = BT_MSG_STATS,
        .u.stats = {.roles = worker->roles, .duty = (uint32_t)duty}};

    say(w, worker, &msg);
}

/* Each router hears of it from the worker, whoever gave the order. */
static void draining_worker_gets_nothing_until_in_service(void **state)
{
    const bt_msg_t drain = {.type = BT_MSG_DRAIN};
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b, c;

    (void)state;
    start_pair(w, &p, &d);
    says_duty(w, p, BT_ADMIN_STATE_ON);
    says_duty(w, d, BT_ADMIN_STATE_ON);
    submit(w, &a, "A", 8, NULL);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    say(w, d, &drain);
    says_duty(w, d, BT_ADMIN_STATE_OFF);
    /* What it has goes on, what is new waits. */
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0);
    submit(w, &b, "B", 8, NULL);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    assert_int_equal(n_waiting(w), 1);
    says_duty(w, d, BT_ADMIN_STATE_ON);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 2);

    /* Nor does silence make it one that takes requests. */
    says_duty(w, d, BT_ADMIN_STATE_OFF);
    bt_core_worker_suspect(w->core, d, true, w->now);
    bt_core_worker_suspect(w->core, d, false, w->now);
    says_duty(w, d, BT_ADMIN_STATE_END);
    says_duty(w, d, BT_ADMIN_STATE_AS_IT_IS);
    submit(w, &c, "C", 8, NULL);
    assert_int_equal(n_waiting(w), 1);
    bt_core_destroy(w->core);
}

static void operator_order_fails_for_workers_without_support(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start_pair(w, &p, &d);
    says(w, p, BT_ROLE_PREFILL); /* of a build that knows no duty */
    assert_int_equal(bt_core_order_worker(w->core, p, 0, BT_ADMIN_STATE_OFF),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_core_order_worker(w->core, d, BT_ROLES_BOTH,
                                          BT_ADMIN_STATE_AS_IT_IS),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(count(w, p, BT_MSG_ROLE) + count(w, d, BT_MSG_ROLE), 0);
    says_duty(w, d, BT_ADMIN_STATE_ON);
    assert_int_equal(bt_core_order_worker(w->core, d, 0, BT_ADMIN_STATE_END),
                     BT_OK);
    assert_int_equal(last(w, d, BT_MSG_ROLE)->msg.u.role.roles, 0);
    assert_int_equal(last(w, d, BT_MSG_ROLE)->msg.u.role.duty,
                     BT_ADMIN_STATE_END);
    assert_false(d->is_launched);
    bt_core_order_role(w->core, "decode-0", BT_ROLE_DECODE);
    assert_true(d->is_launched);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(reported_role_is_used_at_once),
        BT_TEST(waiting_requests_start_when_a_role_appears),
        BT_TEST(role_order_reaches_the_named_worker),
        BT_TEST(unknown_role_changes_nothing),
        BT_TEST(draining_worker_gets_nothing_until_in_service),
        BT_TEST(operator_order_fails_for_workers_without_support),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
