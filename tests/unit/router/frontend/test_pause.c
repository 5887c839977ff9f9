/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing by an operator: who is told when. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

typedef struct asker {
    bt_router_pause_waiter_t waiter;
    int told; /* 0: not; 1: paused; -1: ended before */
} asker_t;

static void tell(void *ctx, bool is_paused)
{
    asker_t *asker = ctx;

    assert_int_equal(asker->told, 0);
    asker->told = is_paused ? 1 : -1;
}

static void begin_pause(world_t *w, asker_t *asker)
{
    *asker = (asker_t){.waiter = {.done = tell, .ctx = asker}};
    bt_router_pause_begin(&w->front, false, &asker->waiter, bt_now_us());
}

static void idle_router_is_paused_at_next_tick(void **state)
{
    world_t *w = &world;
    asker_t a, b, c;

    (void)state;
    start(w, true);
    assert_false(bt_router_pause_is_complete(&w->front));
    begin_pause(w, &a);
    begin_pause(w, &b);
    begin_pause(w, &c);
    bt_router_pause_forget(&c.waiter);
    assert_true(bt_router_pause_is_complete(&w->front));
    bt_router_pause_tick(&w->front);
    assert_int_equal(a.told, 1);
    assert_int_equal(b.told, 1);
    assert_int_equal(c.told, 0);
    begin_pause(w, &a); /* once more: it is paused already */
    bt_router_pause_end(&w->front, bt_now_us());
    assert_int_equal(a.told, -1);
    bt_router_pause_end(&w->front, bt_now_us());
    assert_false(bt_core_holds(w->core));
    stop(w);
}

static void model_that_comes_meanwhile_is_paused_too(void **state)
{
    world_t *w = &world;
    asker_t a;

    (void)state;
    start(w, true);
    begin_pause(w, &a);
    bt_loads_want(&w->front.loads, "other", other_path, false);
    drain_pool(w);
    assert_true(
        bt_core_holds(bt_registry_named(&w->front.models, "other")->core));
    bt_router_pause_end(&w->front, bt_now_us());
    assert_false(
        bt_core_holds(bt_registry_named(&w->front.models, "other")->core));
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(idle_router_is_paused_at_next_tick),
        BT_TEST(model_that_comes_meanwhile_is_paused_too),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
