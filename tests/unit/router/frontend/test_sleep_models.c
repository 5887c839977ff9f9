/* SPDX-License-Identifier: Apache-2.0 */
/* Sleep of the workers of several models, and who is told of it. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

typedef struct asker {
    bt_router_sleep_waiter_t waiter;
    int status; /* -1: not told */
} asker_t;

static void tell(void *ctx, const bt_sleep_result_t *result)
{
    asker_t *asker = ctx;

    assert_int_equal(asker->status, -1);
    asker->status = result->error.http_status;
}

static void reset(asker_t *asker)
{
    *asker = (asker_t){.waiter = {.done = tell, .ctx = asker}, .status = -1};
}

static void begin(world_t *w, asker_t *asker)
{
    bt_api_error_t error = {0};

    reset(asker);
    assert_int_equal(bt_router_sleep_begin(&w->front, true, &asker->waiter,
                                           bt_now_us(), &error),
                     BT_OK);
}

static void model_that_comes_meanwhile_sleeps_too(void **state)
{
    world_t *w = &world;
    asker_t a, b, c;
    bt_core_t *other;

    (void)state;
    start(w, false); /* without workers */
    begin(w, &a);
    begin(w, &b);
    bt_router_sleep_forget(&b.waiter);
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(a.status, 0);
    assert_int_equal(b.status, -1);
    assert_true(bt_router_sleep_is_begun(&w->front));

    bt_loads_want(&w->front.loads, "other", other_path, false);
    drain_pool(w);
    other = bt_registry_named(&w->front.models, "other")->core;
    assert_true(bt_core_sleep(other)->is_asleep);
    assert_true(bt_core_holds(other));
    begin(w, &a);
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(a.status, 0);

    reset(&c);
    bt_router_sleep_end(&w->front, &c.waiter, bt_now_us());
    assert_false(bt_core_holds(other));
    assert_false(bt_core_holds(w->core));
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(c.status, -1); /* no worker serves */
    assert_false(bt_router_sleep_is_begun(&w->front));
    bt_router_sleep_forget(&c.waiter);
    stop(w);
}

static void who_waits_for_the_opposite_is_told(void **state)
{
    world_t *w = &world;
    asker_t a, b;

    (void)state;
    start(w, true);
    w->p->hello.flags |= BT_HELLO_SLEEPS;
    w->d->hello.flags |= BT_HELLO_SLEEPS;
    begin(w, &a);
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(a.status, -1); /* they have not come back yet */
    reset(&b);
    bt_router_sleep_end(&w->front, &b.waiter, bt_now_us());
    assert_int_equal(a.status, 409);
    begin(w, &a);
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(b.status, 409);
    bt_router_sleep_forget(&a.waiter);
    stop(w);
}

static void wake_waits_for_the_models_that_have_workers(void **state)
{
    world_t *w = &world;
    asker_t a;

    (void)state;
    start(w, true);
    bt_loads_want(&w->front.loads, "other", other_path, false);
    drain_pool(w);
    reset(&a);
    bt_router_sleep_end(&w->front, &a.waiter, bt_now_us());
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(a.status, -1); /* those of the other model may come */
    bt_frontend_tick(&w->front, bt_now_us() + BT_SLEEP_MISSING_US + 1000000);
    assert_int_equal(a.status, 0);
    stop(w);
}

static void number_is_larger_than_all_before(void **state)
{
    world_t *w = &world;
    asker_t a;

    (void)state;
    start(w, false);
    bt_core_set_sleep(w->core, UINT64_MAX / 2, bt_now_us());
    reset(&a);
    bt_router_sleep_end(&w->front, &a.waiter, bt_now_us());
    assert_int_equal(bt_core_sleep(w->core)->order, UINT64_MAX / 2 + 1);
    bt_router_sleep_forget(&a.waiter);
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(model_that_comes_meanwhile_sleeps_too),
        BT_TEST(who_waits_for_the_opposite_is_told),
        BT_TEST(wake_waits_for_the_models_that_have_workers),
        BT_TEST(number_is_larger_than_all_before),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
