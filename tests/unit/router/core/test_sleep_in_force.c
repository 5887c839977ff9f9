/* SPDX-License-Identifier: Apache-2.0 */
/* Sleep of the workers: which order is in force, and who follows it. */
#include "tests/unit/router/core/core_fixture.h"

#define RETRY_MS 10000u

static bt_instance_t *join_as(world_t *w, const char *name, bt_role_t role,
                              uint32_t flags, uint64_t order)
{
    static const uint8_t kvt[] = {9, 9};
    static const bt_wire_rank_t rank = {
        .block_bytes = 4096, .kvt = kvt, .kvt_bytes = sizeof(kvt)};
    bt_msg_hello_t hello = {
        .protocol = BT_WIRE_PROTOCOL,
        .role = (uint32_t)role,
        .instance = w->next_instance++,
        .model = {.lo = 1, .hi = 2},
        .tokens_per_block = 16,
        .context_tokens = 100,
        .max_batch = 4,
        .n_blocks = 10,
        .flags = flags | BT_HELLO_CACHE_RESET,
        .ranks = &rank,
        .n_ranks = 1,
        .tp = 1,
        .pp = 1,
        .layout = {.lo = 3, .hi = 4},
        .sleep_order = order,
    };
    bt_instance_t *worker = NULL;
    char why[BT_TABLE_WHY_BYTES];

    snprintf(hello.name, sizeof(hello.name), "%s", name);
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, w, w->now, why, &worker), BT_OK);
    return worker;
}

static bt_instance_t *join_awake(world_t *w, const char *name, bt_role_t role)
{
    return join_as(w, name, role, BT_HELLO_SLEEPS, 0);
}

static bt_instance_t *join_asleep(world_t *w, const char *name, bt_role_t role,
                                  uint64_t order)
{
    return join_as(w, name, role, BT_HELLO_SLEEPS | BT_HELLO_ASLEEP, order);
}

static void tick_after(world_t *w, uint64_t ms)
{
    w->now += ms * MS;
    bt_core_tick(w->core, w->now);
}

static void check_ordered(const world_t *w, const bt_instance_t *worker,
                          uint64_t order, uint32_t sleeps)
{
    const sent_t *s = last(w, worker, BT_MSG_SLEEP);

    assert_non_null(s);
    assert_int_equal(s->msg.u.sleep.order, order);
    assert_int_equal(s->msg.u.sleep.sleeps, sleeps);
}

static void workers_sleep_and_wake_and_requests_wait(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *p2, *d2;
    bt_msg_t stats = {
        .type = BT_MSG_STATS,
        .u.stats = {.roles = BT_ROLE_DECODE, .duty = BT_ADMIN_STATE_ON}};
    client_t c;

    (void)state;
    start(w, 10);
    p = join_awake(w, "prefill-0", BT_ROLE_PREFILL);
    d = join_awake(w, "decode-0", BT_ROLE_DECODE);
    bt_core_set_sleep(w->core, 5, w->now);
    assert_int_equal(bt_core_sleep(w->core)->n_told, 2);
    check_ordered(w, p, 5, 1);
    check_ordered(w, d, 5, 1);
    submit(w, &c, "The", 8, NULL);
    say(w, d, &stats); /* sent before it had the order */
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);

    bt_core_worker_down(w->core, p, "it sleeps", w->now);
    bt_core_worker_down(w->core, d, "it sleeps", w->now);
    w->n_sent = 0; /* others may have their addresses */
    p = join_asleep(w, "prefill-0", BT_ROLE_PREFILL, 5);
    d = join_asleep(w, "decode-0", BT_ROLE_DECODE, 5);
    assert_int_equal(count(w, p, BT_MSG_SLEEP), 0);
    assert_int_equal(count(w, p, BT_MSG_PEER), 0); /* no KV goes there */
    say(w, d, &stats);
    tick_after(w, 30000);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    assert_int_equal(c.n_ends, 0); /* not for want of workers */

    bt_core_set_sleep(w->core, 6, w->now);
    check_ordered(w, p, 6, 0);
    check_ordered(w, d, 6, 0);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    p2 = join_as(w, "prefill-1", BT_ROLE_PREFILL, BT_HELLO_SLEEPS, 6);
    d2 = join_as(w, "decode-1", BT_ROLE_DECODE, BT_HELLO_SLEEPS, 6);
    assert_int_equal(count(w, p2, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, p2, BT_MSG_PEER), 1);
    assert_int_equal(last(w, p2, BT_MSG_PEER)->msg.u.peer.instance,
                     d2->hello.instance);
    bt_core_destroy(w->core);
}

static void larger_order_of_another_router_counts(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start(w, 10);
    p = join_awake(w, "prefill-0", BT_ROLE_PREFILL);
    d = join_asleep(w, "decode-0", BT_ROLE_DECODE, 5);
    assert_true(bt_core_sleep(w->core)->is_asleep);
    assert_true(bt_core_holds(w->core));
    check_ordered(w, p, 5, 1);

    (void)join_as(w, "decode-1", BT_ROLE_DECODE, BT_HELLO_SLEEPS, 8);
    assert_false(bt_core_sleep(w->core)->is_asleep);
    assert_false(bt_core_holds(w->core));
    check_ordered(w, d, 8, 0);
    d = join_asleep(w, "decode-2", BT_ROLE_DECODE, 7); /* it has missed that */
    check_ordered(w, d, 8, 0);
    bt_core_destroy(w->core);
}

static void worker_that_could_not_be_woken_is_told_again(void **state)
{
    world_t *w = &world;
    bt_instance_t *d, *old;

    (void)state;
    start(w, 10);
    d = join_asleep(w, "decode-0", BT_ROLE_DECODE, 5);
    bt_core_set_sleep(w->core, 6, w->now);
    assert_int_equal(count(w, d, BT_MSG_SLEEP), 1);
    bt_core_worker_down(w->core, d, "it wakes", w->now);
    w->n_sent = 0;
    bt_test_expect_log_lines(2);
    d = join_asleep(w, "decode-0", BT_ROLE_DECODE, 6);
    assert_int_equal(count(w, d, BT_MSG_SLEEP), 0);
    assert_int_not_equal(d->failed_us, 0);
    tick_after(w, RETRY_MS - 1);
    assert_int_equal(count(w, d, BT_MSG_SLEEP), 0);
    tick_after(w, 1);
    check_ordered(w, d, 6, 0);
    tick_after(w, RETRY_MS); /* until it is back */
    assert_int_equal(count(w, d, BT_MSG_SLEEP), 1);
    d->failed_us = w->now;
    bt_core_set_sleep(w->core, 8, w->now); /* at once */
    check_ordered(w, d, 8, 0);
    assert_int_equal(d->failed_us, 0);

    old = join_as(w, "decode-1", BT_ROLE_DECODE, 0, 0);
    bt_core_set_sleep(w->core, 9, w->now); /* it cannot: a line */
    assert_int_equal(count(w, old, BT_MSG_SLEEP), 0);
    bt_core_destroy(w->core);
}

static void router_that_is_restarted_learns_what_was_ordered(void **state)
{
    world_t *w = &world;
    bt_instance_t *d;

    (void)state;
    start(w, 10);
    bt_test_expect_log_lines(1);
    d = join_asleep(w, "decode-0", BT_ROLE_DECODE, 6); /* it could not wake */
    assert_int_not_equal(d->failed_us, 0);
    assert_false(bt_core_sleep(w->core)->is_asleep);
    assert_false(bt_core_holds(w->core));
    d = join_as(w, "decode-1", BT_ROLE_DECODE, BT_HELLO_SLEEPS, 8);
    assert_int_equal(bt_core_sleep(w->core)->order, 8);
    assert_int_equal(count(w, d, BT_MSG_SLEEP), 0);
    assert_false(d->is_away);
    bt_core_destroy(w->core);
}

static void say_duty(world_t *w, bt_instance_t *worker, bt_admin_state_t duty)
{
    bt_msg_t stats = {
        .type = BT_MSG_STATS,
        .u.stats = {.roles = BT_ROLE_DECODE, .duty = (uint32_t)duty}};

    say(w, worker, &stats);
}

/* Jobs of another router may keep it from sleeping for long. */
static void order_that_is_not_carried_out_yet_is_withdrawn(void **state)
{
    world_t *w = &world;
    bt_instance_t *d;

    (void)state;
    start(w, 10);
    d = join_awake(w, "decode-0", BT_ROLE_DECODE);
    bt_core_set_sleep(w->core, 5, w->now);
    say_duty(w, d, BT_ADMIN_STATE_ON); /* sent before it had the order */
    assert_false(bt_core_sleep_is_obeyed(w->core, d));
    bt_core_set_sleep(w->core, 6, w->now);
    check_ordered(w, d, 6, 0);
    say_duty(w, d, BT_ADMIN_STATE_OFF);
    assert_false(bt_core_sleep_is_obeyed(w->core, d));
    assert_int_equal(d->sched.health, BT_SCHED_DRAINING);
    say_duty(w, d, BT_ADMIN_STATE_ON);
    assert_true(bt_core_sleep_is_obeyed(w->core, d));
    assert_int_equal(d->sched.health, BT_SCHED_UP);

    bt_core_set_sleep(w->core, 7, w->now); /* has it: comes as a sleeper */
    bt_core_set_sleep(w->core, 8, w->now);
    bt_core_worker_down(w->core, d, "it sleeps", w->now);
    d = join_asleep(w, "decode-0", BT_ROLE_DECODE, 7);
    check_ordered(w, d, 8, 0);

    bt_core_set_sleep(w->core, 9, w->now); /* and the other way round */
    check_ordered(w, d, 9, 1);
    assert_false(bt_core_sleep_is_obeyed(w->core, d));
    say_duty(w, d, BT_ADMIN_STATE_OFF);
    assert_true(bt_core_sleep_is_obeyed(w->core, d));
    assert_true(d->is_away);
    bt_core_destroy(w->core);
}

static void workers_on_their_way_are_expected_once(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start(w, 10);
    p = join_awake(w, "prefill-0", BT_ROLE_PREFILL);
    d = join_awake(w, "decode-0", BT_ROLE_DECODE);
    bt_core_set_sleep(w->core, 5, w->now);
    bt_core_worker_down(w->core, p, "it sleeps", w->now);
    bt_core_worker_down(w->core, d, "it sleeps", w->now);
    bt_core_set_sleep(w->core, 6, w->now);
    assert_int_equal(bt_core_sleep(w->core)->n_told, 2);
    p = join_asleep(w, "prefill-0", BT_ROLE_PREFILL, 5);
    assert_false(bt_core_sleep_is_obeyed(w->core, p));
    assert_int_equal(bt_core_sleep(w->core)->n_between, 1);
    bt_core_worker_down(w->core, p, "it wakes", w->now);
    p = join_as(w, "prefill-0", BT_ROLE_PREFILL, BT_HELLO_SLEEPS, 6);
    assert_true(bt_core_sleep_is_obeyed(w->core, p));
    assert_int_equal(bt_core_sleep(w->core)->n_told, 2);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, p, "it is killed", w->now);
    assert_int_equal(bt_core_sleep(w->core)->n_between, 1); /* the other one */

    tick_after(w, BT_SLEEP_WAKE_US / 1000 - 1);
    assert_int_equal(bt_core_sleep(w->core)->n_between, 1);
    tick_after(w, 1);
    assert_int_equal(bt_core_sleep(w->core)->n_between, 0);
    bt_core_set_sleep(w->core, 8, w->now);
    assert_int_equal(bt_core_sleep(w->core)->n_told, 0);
    (void)join_awake(w, "decode-0", BT_ROLE_DECODE);
    assert_int_equal(bt_core_sleep(w->core)->n_told, 1);
    bt_core_destroy(w->core);
}

static void caches_are_reset_where_there_are_some(void **state)
{
    world_t *w = &world;
    bt_instance_t *d, *asleep, *old;
    bt_msg_t msg = {.type = BT_MSG_CACHE_IS_EMPTY,
                    .u.cache_is_empty = {.number = 3, .n_blocks = 9}};

    (void)state;
    start(w, 10);
    d = join_awake(w, "decode-0", BT_ROLE_DECODE);
    assert_true(bt_core_reset_cache(w->core, d, 3));
    assert_int_equal(last(w, d, BT_MSG_CACHE_RESET)->msg.u.cache_reset.number,
                     3);
    assert_int_equal(d->emptied.number, 0);
    say(w, d, &msg);
    assert_int_equal(d->emptied.n_blocks, 9);
    assert_int_equal(d->n_forgot, 1);

    asleep = join_asleep(w, "decode-1", BT_ROLE_DECODE, 5);
    assert_true(bt_core_reset_cache(w->core, asleep, 4));
    assert_int_equal(asleep->emptied.number, 4);
    assert_int_equal(count(w, asleep, BT_MSG_CACHE_RESET), 0);
    old = join_awake(w, "decode-2", BT_ROLE_DECODE);
    old->hello.flags = 0;
    assert_false(bt_core_reset_cache(w->core, old, 5));
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(workers_sleep_and_wake_and_requests_wait),
        BT_TEST(larger_order_of_another_router_counts),
        BT_TEST(worker_that_could_not_be_woken_is_told_again),
        BT_TEST(router_that_is_restarted_learns_what_was_ordered),
        BT_TEST(order_that_is_not_carried_out_yet_is_withdrawn),
        BT_TEST(workers_on_their_way_are_expected_once),
        BT_TEST(caches_are_reset_where_there_are_some),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
