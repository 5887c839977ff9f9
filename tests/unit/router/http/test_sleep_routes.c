/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's paths of sleep and of the prefix cache. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

static void ask(world_t *w, bt_exchange_t *ex, const char *path,
                const char *query)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_POST;
    ex->path = path;
    ex->body = "";
    ex->query = query;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
}

static void tick(world_t *w)
{
    bt_frontend_tick(&w->front, bt_now_us());
}

static void is_sleeping(world_t *w, const char *text)
{
    bt_exchange_t ex;

    get(w, &ex, "/is_sleeping");
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.out, text);
}

static void start_with(world_t *w)
{
    start(w, true);
    w->p->hello.flags |= BT_HELLO_SLEEPS | BT_HELLO_CACHE_RESET;
    w->d->hello.flags |= BT_HELLO_SLEEPS | BT_HELLO_CACHE_RESET;
}

/* A worker goes, to carry out an order. @return what it says of itself */
static bt_msg_hello_t leave(world_t *w, bt_instance_t *worker)
{
    const bt_msg_hello_t hello = worker->hello;

    bt_core_worker_down(w->core, worker, "it does", bt_now_us());
    return hello;
}

/* It comes back as another instance. */
static void come(world_t *w, bt_msg_hello_t hello, uint64_t order,
                 bool is_asleep, bt_instance_t **worker_p)
{
    static const uint8_t kvt[] = {9, 9};
    static const bt_wire_rank_t rank = {
        .block_bytes = 4096, .kvt = kvt, .kvt_bytes = sizeof(kvt)};
    char why[BT_TABLE_WHY_BYTES];

    hello.sleep_order = order;
    hello.flags = is_asleep ? hello.flags | BT_HELLO_ASLEEP
                            : hello.flags & ~BT_HELLO_ASLEEP;
    hello.instance += 100;
    hello.ranks = &rank;
    hello.n_ranks = 1;
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, NULL, bt_now_us(), why, worker_p),
        BT_OK);
}

/* A worker carries out the order in force. */
static void follow(world_t *w, bt_instance_t **worker_p, bool is_asleep)
{
    const uint64_t order = bt_core_sleep(w->core)->order;

    come(w, leave(w, *worker_p), order, is_asleep, worker_p);
}

static void sleep_is_answered_when_all_workers_sleep(void **state)
{
    static bt_exchange_t first, second, put, twice, wake, update;
    world_t *w = &world;

    (void)state;
    start_with(w);
    w->config.allow_weight_updates = "/weights";
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    is_sleeping(w, "{\"is_sleeping\":false}");
    ask(w, &put, "/sleep", "level=1&mode=wait");
    is_sleeping(w, "{\"is_sleeping\":true}");
    tick(w);
    assert_int_equal(count(w, BT_MSG_SLEEP), 0);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    tick(w);
    assert_int_equal(count(w, BT_MSG_SLEEP), 2);
    assert_int_equal(put.n_ends, 0);
    post(w, &second, COMPLETIONS, "{\"prompt\":\"Ho\",\"max_tokens\":3}");
    follow(w, &w->p, true);
    tick(w);
    assert_int_equal(put.n_ends, 0);
    follow(w, &w->d, true);
    tick(w);
    assert_int_equal(put.status, 200);
    assert_string_equal(put.out, "{\"status\":\"sleeping\",\"num_workers\":2,"
                                 "\"num_missing_workers\":0}");
    ask(w, &twice, "/sleep", "");
    tick(w);
    assert_int_equal(twice.status, 200);
    post(w, &update, "/update_weights_from_disk",
         "{\"model_path\":\"1.gguf\",\"weight_version\":\"step-1\"}");
    assert_int_equal(update.status, 409);
    has(&update, "wake them by POST /wake_up first");

    ask(w, &wake, "/wake_up", "tags=weights&tags=kv_cache");
    tick(w);
    assert_int_equal(wake.n_ends, 0);
    w->n_sent = 0;
    follow(w, &w->p, false);
    follow(w, &w->d, false);
    tick(w);
    assert_int_equal(wake.status, 200);
    has(&wake, "{\"status\":\"awake\",\"num_workers\":2,");
    answer(w, 0, "now", BT_FINISH_LENGTH);
    assert_int_equal(second.status, 200);
    is_sleeping(w, "{\"is_sleeping\":false}");
    stop(w);
}

static void requests_are_aborted_by_default(void **state)
{
    static bt_exchange_t first, put, left, wake;
    world_t *w = &world;

    (void)state;
    start_with(w);
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    ask(w, &put, "/sleep", "");
    assert_int_equal(first.status, 503);
    has(&first, "aborted by POST /sleep");
    ask(w, &left, "/sleep", "");
    bt_door_gone(&w->door, &left);
    ask(w, &wake, "/wake_up", "");
    assert_int_equal(put.status, 409);
    has(&put, "woken before all workers slept");
    tick(w);
    assert_int_equal(wake.status, 200);
    assert_int_equal(left.n_ends, 0);
    assert_false(bt_core_holds(w->core));
    ended(w, 0);
    stop(w);
}

static void worker_that_could_not_be_woken_is_named(void **state)
{
    static bt_exchange_t put, wake;
    world_t *w = &world;

    (void)state;
    start_with(w);
    ask(w, &put, "/sleep", "");
    tick(w);
    follow(w, &w->p, true);
    follow(w, &w->d, true);
    tick(w);
    ask(w, &wake, "/wake_up", "");
    follow(w, &w->p, false);
    bt_test_expect_log_lines(1);
    follow(w, &w->d, true);
    tick(w);
    assert_int_equal(wake.status, 503);
    has(&wake, "1 of 2 workers are awake: worker decode-0 could not be woken");
    ask(w, &wake, "/wake_up", ""); /* it is told at once */
    tick(w);
    assert_int_equal(wake.n_ends, 0);
    follow(w, &w->d, false);
    tick(w);
    assert_int_equal(wake.status, 200);
    stop(w);
}

static void workers_that_fall_asleep_are_waited_for_by_a_wake(void **state)
{
    static bt_exchange_t put, wake;
    world_t *w = &world;
    bt_msg_hello_t p, d;
    uint64_t order;

    (void)state;
    start_with(w);
    ask(w, &put, "/sleep", "");
    tick(w);
    order = bt_core_sleep(w->core)->order;
    p = leave(w, w->p);
    d = leave(w, w->d);
    ask(w, &wake, "/wake_up", "");
    tick(w);
    assert_int_equal(put.status, 409);
    assert_int_equal(wake.n_ends, 0);
    w->n_sent = 0;
    come(w, p, order, true, &w->p);
    tick(w);
    come(w, d, order, true, &w->d);
    tick(w);
    assert_int_equal(count(w, BT_MSG_SLEEP), 2);
    assert_int_equal(wake.n_ends, 0);
    follow(w, &w->p, false);
    tick(w);
    assert_int_equal(wake.n_ends, 0);
    follow(w, &w->d, false);
    tick(w);
    assert_int_equal(wake.status, 200);
    has(&wake, "\"num_workers\":2,\"num_missing_workers\":0");
    stop(w);
}

static void workers_that_load_are_waited_for_by_a_sleep(void **state)
{
    static bt_exchange_t put, wake, again;
    world_t *w = &world;
    bt_msg_hello_t p, d;
    uint64_t order;

    (void)state;
    start_with(w);
    ask(w, &put, "/sleep", "");
    tick(w);
    follow(w, &w->p, true);
    follow(w, &w->d, true);
    ask(w, &wake, "/wake_up", "");
    order = bt_core_sleep(w->core)->order;
    p = leave(w, w->p);
    d = leave(w, w->d);
    ask(w, &again, "/sleep", "");
    tick(w);
    assert_int_equal(wake.status, 409);
    assert_int_equal(again.n_ends, 0);
    come(w, p, order, false, &w->p);
    tick(w);
    assert_int_equal(again.n_ends, 0);
    follow(w, &w->p, true);
    tick(w);
    assert_int_equal(again.n_ends, 0);
    come(w, d, order, false, &w->d);
    follow(w, &w->d, true);
    tick(w);
    assert_int_equal(again.status, 200);
    has(&again, "\"num_workers\":2,\"num_missing_workers\":0");

    /* One that is lost on its way is missing, a minute later. */
    ask(w, &wake, "/wake_up", "");
    (void)leave(w, w->d);
    ask(w, &again, "/sleep", "");
    tick(w);
    assert_int_equal(again.n_ends, 0);
    bt_frontend_tick(&w->front, bt_now_us() + BT_SLEEP_MISSING_US + 1000000);
    assert_int_equal(again.n_ends, 0); /* the other one is to withdraw */
    follow(w, &w->p, true);
    bt_frontend_tick(&w->front, bt_now_us() + BT_SLEEP_MISSING_US + 1000000);
    has(&again, "\"num_workers\":1,\"num_missing_workers\":1");
    stop(w);
}

static void wake_of_a_restarted_router_is_for_workers_that_link_later(void **s)
{
    static bt_exchange_t wake;
    world_t *w = &world;
    bt_msg_hello_t p, d;

    (void)s;
    start_with(w);
    bt_test_expect_log_lines(4); /* each goes twice, without an order */
    p = leave(w, w->p);          /* it has no workers, like a new process */
    d = leave(w, w->d);
    ask(w, &wake, "/wake_up", "");
    bt_frontend_tick(&w->front, bt_now_us() + BT_SLEEP_MISSING_US + 1000000);
    assert_int_equal(wake.n_ends, 0);
    come(w, p, 1001, true, &w->p); /* of years ago */
    is_sleeping(w, "{\"is_sleeping\":false}");
    come(w, d, 1001, true, &w->d);
    assert_int_equal(count(w, BT_MSG_SLEEP), 2);
    tick(w);
    assert_int_equal(wake.n_ends, 0);
    follow(w, &w->p, false);
    follow(w, &w->d, false);
    tick(w);
    assert_int_equal(wake.status, 200);
    has(&wake, "\"num_workers\":2,\"num_missing_workers\":0");

    (void)leave(w, w->p);
    (void)leave(w, w->d);
    ask(w, &wake, "/wake_up", "");
    bt_frontend_tick(&w->front, bt_now_us() + BT_SLEEP_WAKE_US + 1000000);
    assert_int_equal(wake.status, 503);
    has(&wake, "no workers have come back");
    stop(w);
}

static void say_duty(world_t *w, bt_instance_t *worker, bt_admin_state_t duty)
{
    bt_msg_t msg = {
        .type = BT_MSG_STATS,
        .u.stats = {.roles = worker->roles, .duty = (uint32_t)duty}};

    assert_int_equal(bt_core_message(w->core, worker, &msg, bt_now_us()),
                     BT_OK);
}

static void wake_reaches_workers_that_have_not_slept_yet(void **state)
{
    static bt_exchange_t put, wake;
    world_t *w = &world;
    uint64_t order;

    (void)state;
    start_with(w);
    ask(w, &put, "/sleep", "");
    tick(w);
    order = bt_core_sleep(w->core)->order;
    w->n_sent = 0;
    ask(w, &wake, "/wake_up", "");
    assert_int_equal(count(w, BT_MSG_SLEEP), 2);
    tick(w);
    assert_int_equal(wake.n_ends, 0);
    say_duty(w, w->p, BT_ADMIN_STATE_ON); /* it has withdrawn the first */
    tick(w);
    assert_int_equal(wake.n_ends, 0);
    come(w, leave(w, w->d), order, true, &w->d); /* it was too late there */
    follow(w, &w->d, false);
    tick(w);
    assert_int_equal(wake.status, 200);
    has(&wake, "\"num_workers\":2,\"num_missing_workers\":0");
    stop(w);
}

static void requests_wait_for_workers_that_wake_for_nobody(void **state)
{
    static bt_exchange_t put, wake, held;
    world_t *w = &world;
    bt_msg_hello_t p;

    (void)state;
    start_with(w);
    ask(w, &put, "/sleep", "");
    tick(w);
    follow(w, &w->p, true);
    follow(w, &w->d, true);
    post(w, &held, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    ask(w, &wake, "/wake_up", "");
    p = leave(w, w->p);
    bt_door_gone(&w->door, &wake);
    bt_frontend_tick(&w->front,
                     bt_now_us() + 2000ull * w->config.worker_wait_ms);
    assert_int_equal(held.n_ends, 0);
    w->n_sent = 0;
    come(w, p, bt_core_sleep(w->core)->order, false, &w->p);
    follow(w, &w->d, false);
    answer(w, 0, "now", BT_FINISH_LENGTH);
    assert_int_equal(held.status, 200);
    stop(w);
}

static void sleep_of_another_router_is_enough(void **state)
{
    static bt_exchange_t put, wake, first;
    world_t *w = &world;
    bt_msg_hello_t p, d;

    (void)state;
    start_with(w);
    bt_test_expect_log_lines(2); /* they go without an order from here */
    p = leave(w, w->p);
    d = leave(w, w->d);
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    come(w, p, 1001, true, &w->p);
    come(w, d, 1001, true, &w->d);
    is_sleeping(w, "{\"is_sleeping\":true}");
    ask(w, &put, "/sleep", "mode=wait");
    tick(w);
    tick(w);
    assert_int_equal(put.status, 200);
    has(&put, "\"num_workers\":2,\"num_missing_workers\":0");
    assert_int_equal(first.n_ends, 0);
    ask(w, &wake, "/wake_up", "");
    w->n_sent = 0;
    follow(w, &w->p, false);
    follow(w, &w->d, false);
    answer(w, 0, "now", BT_FINISH_LENGTH);
    assert_int_equal(first.status, 200);
    tick(w);
    assert_int_equal(wake.status, 200);
    stop(w);
}

static void
worker_that_wakes_without_the_weights_in_force_is_named(void **state)
{
    static bt_exchange_t wake;
    world_t *w = &world;

    (void)state;
    start_with(w);
    w->d->is_stale = true;
    w->d->sched.health = BT_SCHED_DRAINING;
    ask(w, &wake, "/wake_up", "");
    tick(w);
    assert_int_equal(wake.n_ends, 0); /* it may load them */
    w->d->refused_us = bt_now_us();
    tick(w);
    assert_int_equal(wake.status, 503);
    has(&wake, "worker decode-0 cannot load the weights in force");
    stop(w);
}

static void empty(world_t *w, bt_instance_t *worker, uint32_t n_blocks)
{
    bt_msg_t msg = {.type = BT_MSG_CACHE_IS_EMPTY,
                    .u.cache_is_empty = {.number = worker->asked_reset,
                                         .n_blocks = n_blocks}};

    assert_int_equal(bt_core_message(w->core, worker, &msg, bt_now_us()),
                     BT_OK);
}

static void reset_is_answered_when_all_caches_are_empty(void **state)
{
    static bt_exchange_t reset, again;
    world_t *w = &world;

    (void)state;
    start_with(w);
    ask(w, &reset, "/reset_prefix_cache", "reset_external=true");
    assert_int_equal(count(w, BT_MSG_CACHE_RESET), 2);
    empty(w, w->p, 3);
    tick(w);
    assert_int_equal(reset.n_ends, 0);
    empty(w, w->d, 4);
    tick(w);
    assert_string_equal(
        reset.out, "{\"status\":\"reset\",\"num_workers\":2,\"num_blocks\":7}");

    ask(w, &again, "/reset_prefix_cache", "");
    empty(w, w->p, 0);
    bt_frontend_tick(&w->front, bt_now_us() + BT_CACHE_RESET_US + 1);
    assert_int_equal(again.status, 504);
    has(&again, "worker decode-0 has not answered in time");
    w->d->hello.flags &= ~BT_HELLO_CACHE_RESET;
    ask(w, &again, "/reset_prefix_cache", "");
    assert_int_equal(again.status, 409);
    has(&again, "decode-0 cannot empty its prefix cache");
    w->d->hello.flags &= ~BT_HELLO_SLEEPS;
    ask(w, &again, "/sleep", "");
    assert_int_equal(again.status, 409);
    has(&again, "decode-0 cannot sleep");
    is_sleeping(w, "{\"is_sleeping\":false}");
    stop(w);
}

static void unknown_options_are_refused_by_name(void **state)
{
    static const char *const asked[][3] = {
        {"/sleep", "level=2", "level 2, which forgets the weights"},
        {"/sleep", "level=0", "level: 1"},
        {"/sleep", "mode=keep", "keep is not supported"},
        {"/sleep", "force=1", "force"},
        {"/sleep", "level=%zz", "malformed"},
        {"/wake_up", "tags=weights", "name both, or none"},
        {"/wake_up", "tags=kv_cache", "name both, or none"},
        {"/wake_up", "tags=scratch", "weights and kv_cache"},
        {"/wake_up", "level=1", "level"},
        {"/reset_prefix_cache", "reset_running_requests=true",
         "keep their KV blocks"},
        {"/reset_prefix_cache", "reset_external=1", "true or false"},
        {"/reset_prefix_cache", "all=1", "all"},
    };
    world_t *w = &world;

    (void)state;
    start_with(w);
    for (size_t i = 0; i < BT_ARRAY_LEN(asked); i++) {
        bt_exchange_t ex;

        ask(w, &ex, asked[i][0], asked[i][1]);
        assert_int_equal(ex.status, 400);
        has(&ex, asked[i][2]);
        is_sleeping(w, "{\"is_sleeping\":false}");
    }
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(sleep_is_answered_when_all_workers_sleep),
        BT_TEST(requests_are_aborted_by_default),
        BT_TEST(worker_that_could_not_be_woken_is_named),
        BT_TEST(workers_that_fall_asleep_are_waited_for_by_a_wake),
        BT_TEST(wake_reaches_workers_that_have_not_slept_yet),
        BT_TEST(requests_wait_for_workers_that_wake_for_nobody),
        BT_TEST(sleep_of_another_router_is_enough),
        BT_TEST(worker_that_wakes_without_the_weights_in_force_is_named),
        BT_TEST(workers_that_load_are_waited_for_by_a_sleep),
        BT_TEST(wake_of_a_restarted_router_is_for_workers_that_link_later),
        BT_TEST(reset_is_answered_when_all_caches_are_empty),
        BT_TEST(unknown_options_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
