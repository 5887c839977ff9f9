/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals of a tenant of whom many are refused: held back, and told in the
 * end. The pace itself is tested with sched_pace. */
#include "tests/unit/router/request_fixture.h"

#define ASK "{\"prompt\":\"Hi\",\"max_tokens\":6}"

/* One request has the only place, and many were refused of late. */
static void start_full(world_t *w, bt_exchange_t *running)
{
    start(w, true);
    w->config.max_concurrent_requests = 1;
    post(w, running, COMPLETIONS, ASK);
    assert_int_equal(running->n_ends, 0);
    w->front.tenants.plain->pace.due_us = UINT64_MAX;
}

static void end_full(world_t *w, bt_exchange_t *running)
{
    answer(w, 0, "abcdef", BT_FINISH_LENGTH);
    assert_int_equal(running->status, 200);
    stop(w);
}

static void repeated_429_is_delayed_without_queue_slot(void **state)
{
    static const char *const paths[] = {GENERATE, STREAM, COMPLETIONS, CHAT};
    /* One is so long that its memory is counted. */
    char long_ask[2 * BT_REQUEST_INLINE_BYTES];
    const char *const bodies[] = {
        "{\"text_input\":\"Hi\",\"max_tokens\":6}",
        "{\"text_input\":\"Hi\",\"max_tokens\":6}", long_ask,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"};
    world_t *w = &world;
    bt_exchange_t running, ex[4];
    uint64_t start_us;

    (void)state;
    snprintf(long_ask, sizeof(long_ask), "{\"prompt\":\"%0*d\"}",
             (int)sizeof(long_ask) - 20, 0);
    start_full(w, &running);
    start_us = bt_now_us();
    for (unsigned i = 0; i < 4; i++) {
        post(w, &ex[i], paths[i], bodies[i]);
        assert_int_equal(ex[i].n_ends, 0);
    }
    assert_int_equal(lent_bytes, 0);
    assert_int_equal(w->front.requests.used, 0); /* nor keeps its body */
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
    assert_int_equal(metric(w, "\nbaton_requests_refused_total "), 4);
    bt_frontend_tick(&w->front, start_us);
    bt_frontend_tick(&w->front, start_us + BT_SCHED_REJECT_DELAY_MOST_US - 1);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(ex[i].n_ends, 0);
    }
    bt_frontend_tick(&w->front, bt_now_us() + BT_SCHED_REJECT_DELAY_MOST_US);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(ex[i].n_ends, 1);
        assert_int_equal(ex[i].status, 429);
        assert_non_null(strstr(ex[i].headers, "Retry-After: 1\n"));
        has(&ex[i], "1 requests are in flight and the limit is 1");
    }
    assert_int_equal(metric(w, "\nbaton_requests_refused_total "), 4);
    end_full(w, &running);
}

/* The pool frees the parsed body of a request that is so long, after the end of
 * the request's account. */
static void long_body_with_unknown_field_is_refused(void **state)
{
    char long_ask[2 * BT_REQUEST_INLINE_BYTES];
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    snprintf(long_ask, sizeof(long_ask), "{\"prompt\":\"%0*d\",\"no_field\":1}",
             (int)sizeof(long_ask) - 40, 0);
    start(w, true);
    w->config.unknown_fields = "error";
    for (unsigned i = 0; i < 8; i++) {
        post(w, &ex, COMPLETIONS, long_ask);
        drain_pool(w);
        assert_int_equal(ex.n_ends, 1);
        assert_int_equal(ex.status, 400);
        has(&ex, "no_field");
    }
    assert_int_equal(w->front.requests.used, 0);
    stop(w);
}

static void client_disconnect_cancels_delayed_refusal(void **state)
{
    world_t *w = &world;
    bt_exchange_t running, a, b;

    (void)state;
    start_full(w, &running);
    post(w, &a, COMPLETIONS, ASK);
    post(w, &b, COMPLETIONS, ASK);
    bt_door_gone(&w->door, &a);
    bt_frontend_tick(&w->front, bt_now_us() + BT_SCHED_REJECT_DELAY_MOST_US);
    assert_int_equal(a.n_ends, 0);
    assert_int_equal(b.status, 429);
    end_full(w, &running);
}

static void draining_server_sends_delayed_refusals_at_once(void **state)
{
    world_t *w = &world;
    bt_exchange_t running, ex;

    (void)state;
    start_full(w, &running);
    post(w, &ex, COMPLETIONS, ASK);
    assert_int_equal(ex.n_ends, 0);
    w->front.draining = true;
    bt_frontend_tick(&w->front, 0);
    assert_int_equal(ex.status, 429);
    end_full(w, &running);
}

static void first_429_and_other_errors_are_not_delayed(void **state)
{
    world_t *w = &world;
    bt_exchange_t running, ex;

    (void)state;
    start_full(w, &running);
    w->config.max_concurrent_requests = 8;
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":-1}");
    assert_int_equal(ex.status, 400);
    w->config.max_concurrent_requests = 1;
    w->front.tenants.plain->pace.due_us = 0;
    post(w, &ex, COMPLETIONS, ASK);
    assert_int_equal(ex.status, 429);
    end_full(w, &running);
}

static void delayed_refusal_holds_no_memory(void **state)
{
    world_t *w = &world;
    bt_exchange_t running, ex;
    unsigned n_returned = 0, n_held = 0;

    (void)state;
    start_full(w, &running);
    for (int n = 1; n < 40; n++) {
        bt_alloc_fail_at(n);
        post(w, &ex, COMPLETIONS, ASK);
        bt_alloc_fail_at(0);
        n_returned += (ex.status == 429) ? 1 : 0;
        if (ex.n_ends == 0) {
            n_held++;
            bt_door_gone(&w->door, &ex);
        }
        bt_strbuf_fini(&w->door.out);
        bt_strbuf_init(&w->door.out, BT_ANSWER_LIMIT);
    }
    assert_int_equal(n_returned, 0);
    assert_true(n_held > 0);
    end_full(w, &running);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(repeated_429_is_delayed_without_queue_slot),
        BT_TEST(long_body_with_unknown_field_is_refused),
        BT_TEST(client_disconnect_cancels_delayed_refusal),
        BT_TEST(draining_server_sends_delayed_refusals_at_once),
        BT_TEST(first_429_and_other_errors_are_not_delayed),
        BT_TEST(delayed_refusal_holds_no_memory),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
