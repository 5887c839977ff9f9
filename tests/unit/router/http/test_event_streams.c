/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of the cluster's events: what each is sent, and that one which takes
 * nothing costs nobody else anything. The clock is the test's. */
#include "router/frontend/watching.h"
#include "tests/unit/router/request_fixture.h"

#define SECOND UINT64_C(1000000)

static uint64_t now_us;

static int begin(void **state)
{
    (void)state;
    start(&world, true);
    now_us = bt_now_us();
    return 0;
}

static int end(void **state)
{
    (void)state;
    stop(&world);
    return 0;
}

static void watch(bt_exchange_t *ex, const char *last_event_id)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_GET;
    ex->path = "/v2/cluster/events";
    ex->door = &world.door;
    ex->last_event_id = last_event_id;
    bt_door_request(&world.door, ex);
}

static void pass(uint64_t us)
{
    now_us += us;
    bt_watchers_tick(&world.door.watchers, now_us);
}

/* Forgets what the reader was sent so far. */
static void forget(bt_exchange_t *ex)
{
    ex->out_bytes = 0;
    ex->out[0] = '\0';
    ex->n_writes = 0;
}

static void leave(bt_exchange_t *ex)
{
    ex->n_ends++;
    bt_door_gone(&world.door, ex);
}

static unsigned n_of(const bt_exchange_t *ex, const char *part)
{
    unsigned n = 0;

    for (const char *at = strstr(ex->out, part); at != NULL;
         at = strstr(at + 1, part)) {
        n++;
    }
    return n;
}

static void lose_decode_worker(void)
{
    bt_core_worker_down(world.core, world.d, "it was killed", bt_now_us());
    world.d = NULL;
}

static void reader_gets_state_at_once_and_every_second(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    watch(&ex, NULL);
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.type, "text/event-stream; charset=utf-8");
    assert_non_null(strstr(ex.headers, "Cache-Control: no-store\n"));
    assert_int_equal(strncmp(ex.out, "retry: 2000\n\n", 13), 0);
    assert_int_equal(n_of(&ex, "event: state\ndata: {\"now_unix_ms\":"), 1);
    has(&ex, "\"name\":\"prefill-0\"");
    has(&ex, "\"watchers\":1,\"max_watchers\":2}");
    has(&ex, "\"name\":\"default\",\"weight\":1");
    assert_null(strstr(ex.out, "event: event\n")); /* none of the past */
    pass(0);
    forget(&ex);
    pass(SECOND - 1);
    assert_int_equal(ex.n_writes, 0);
    pass(1);
    assert_int_equal(n_of(&ex, "event: state\n"), 1);
    leave(&ex);
    assert_int_equal(world.door.watchers.n, 0);
}

static void event_is_sent_with_id_at_next_tick(void **state)
{
    static bt_exchange_t ex;
    char line[64];

    (void)state;
    watch(&ex, NULL);
    pass(0);
    forget(&ex);
    lose_decode_worker();
    pass(1000);
    snprintf(line, sizeof(line), "event: event\nid: %08x-5\ndata: {\"id\":\"",
             world.front.watch->events.life);
    assert_int_equal(strncmp(ex.out, line, strlen(line)), 0);
    has(&ex, "\"kind\":\"worker_lost\",\"model\":\"tiny\","
             "\"worker\":\"decode-0\",\"request\":null,"
             "\"text\":\"worker decode-0 is gone: it was killed\"}\n\n");
    forget(&ex);
    pass(1000);
    assert_int_equal(ex.n_writes, 0);
    leave(&ex);
}

static void last_event_id_resumes_missed_events(void **state)
{
    static bt_exchange_t ex;
    char id[32];

    (void)state;
    lose_decode_worker();
    /* Two joined, so model and router are ready: those it has seen. */
    snprintf(id, sizeof(id), "%08x-4", world.front.watch->events.life);
    watch(&ex, id);
    assert_int_equal(n_of(&ex, "event: event\n"), 3);
    has(&ex, "\"kind\":\"worker_lost\"");
    has(&ex, "\"kind\":\"model_not_ready\"");
    has(&ex, "\"kind\":\"router_not_ready\"");
    leave(&ex);
    watch(&ex, "another router's");
    assert_int_equal(n_of(&ex, "event: event\n"), 7);
    leave(&ex);
}

static void worker_reconnect_within_tick_still_gives_both_events(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    watch(&ex, NULL);
    forget(&ex);
    lose_decode_worker();
    w_join(&world, "decode-0", BT_ROLE_DECODE, &world.d);
    pass(1000);
    assert_int_equal(n_of(&ex, "\"kind\":\"model_not_ready\""), 1);
    assert_int_equal(n_of(&ex, "\"kind\":\"model_ready\""), 1);
    assert_int_equal(n_of(&ex, "\"kind\":\"router_ready\""), 1);
    leave(&ex);
}

static void slow_reader_skips_states_but_no_event(void **state)
{
    static bt_exchange_t slow, quick;

    (void)state;
    watch(&slow, NULL);
    watch(&quick, NULL);
    pass(0);
    forget(&slow);
    forget(&quick);
    slow.unsent = 100;
    lose_decode_worker();
    for (int i = 0; i < 5; i++) {
        pass(SECOND);
    }
    assert_int_equal(slow.n_writes, 0);
    assert_int_equal(n_of(&quick, "event: state\n"), 5);
    assert_int_equal(n_of(&quick, "worker_lost"), 1);
    slow.unsent = 0; /* it has taken all of it */
    pass(SECOND);
    assert_int_equal(n_of(&slow, "event: state\n"), 1);
    assert_int_equal(n_of(&slow, "worker_lost"), 1);
    leave(&slow);
    leave(&quick);
}

static void reader_stalled_for_10_s_is_disconnected(void **state)
{
    static bt_exchange_t stopped, drips, quick;

    (void)state;
    world.config.max_event_streams = 3;
    watch(&stopped, NULL);
    watch(&drips, NULL);
    watch(&quick, NULL);
    pass(0);
    stopped.unsent = 100;
    drips.unsent = 100;
    for (int i = 0; i < 11; i++) {
        drips.unsent--;
        pass(SECOND - 1);
    }
    assert_int_equal(stopped.n_ends, 1);
    assert_int_equal(drips.n_ends, 0);
    assert_int_equal(quick.n_ends, 0);
    assert_int_equal(world.door.watchers.n, 2);
    leave(&drips);
    leave(&quick);
}

static void readers_over_max_event_streams_are_refused(void **state)
{
    static bt_exchange_t ex[3];

    (void)state;
    watch(&ex[0], NULL);
    watch(&ex[1], NULL);
    watch(&ex[2], NULL);
    assert_int_equal(ex[2].status, 503);
    assert_non_null(strstr(ex[2].headers, "Retry-After: 1\n"));
    has(&ex[2], "2 read these events already");
    leave(&ex[0]);
    watch(&ex[2], NULL);
    assert_int_equal(ex[2].status, 200);
    leave(&ex[1]);
    leave(&ex[2]);
    world.config.max_event_streams = 0;
    watch(&ex[0], NULL);
    assert_int_equal(ex[0].status, 403);
    has(&ex[0], "--max-event-streams 0");
}

static void reader_disconnect_during_tick_keeps_others(void **state)
{
    static bt_exchange_t breaks, other;

    (void)state;
    watch(&breaks, NULL);
    watch(&other, NULL);
    pass(0);
    breaks.breaks = true;
    pass(SECOND);
    assert_int_equal(breaks.n_ends, 1);
    assert_int_equal(world.door.watchers.n, 1);
    forget(&other);
    pass(SECOND);
    assert_int_equal(n_of(&other, "event: state\n"), 1);
    leave(&other);
    /* At its first word already. */
    watch(&breaks, NULL);
    breaks.breaks = true;
    pass(SECOND);
    assert_int_equal(world.door.watchers.n, 0);
}

static void event_streams_end_when_router_drains(void **state)
{
    static bt_exchange_t ex, late;

    (void)state;
    watch(&ex, NULL);
    pass(0);
    forget(&ex);
    world.front.leaving = true;
    bt_watching_tick(&world.front, now_us + SECOND);
    pass(1000);
    has(&ex, "router_leaving");
    world.front.draining = true;
    pass(1000);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(world.door.watchers.n, 0);
    watch(&late, NULL);
    assert_int_equal(late.status, 503);
    has(&late, "stopping");
}

static void history_point_is_sent_when_complete(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    watch(&ex, NULL);
    pass(0);
    bt_series_begun(world.served->series, 42);
    bt_history_tick(world.front.watch->history,
                    world.front.watch->history->end_us, 1700000000000);
    pass(1000);
    assert_int_equal(n_of(&ex, "event: point\ndata: {\"step_ms\":5000,"
                               "\"unix_ms\":[1700000000000],\"series\":["),
                     1);
    assert_int_equal(n_of(&ex, "\"in_tokens\":[42]"), 2);
    forget(&ex);
    pass(1000);
    assert_null(strstr(ex.out, "event: point"));
    leave(&ex);
}

static void handover_is_sent_at_begin_and_end(void **state)
{
    static bt_exchange_t ex, client;
    bt_msg_t grant = {.type = BT_MSG_GRANT};
    bt_msg_t joined = {
        .type = BT_MSG_JOINED,
        .u.joined = {.transfer_us = 1500,
                     .transfer_bytes = 4096,
                     .n_descriptors = 1},
    };

    (void)state;
    watch(&ex, NULL);
    post(&world, &client, "/v1/completions",
         "{\"prompt\":\"abc\",\"max_tokens\":3}");
    grant.u.grant.key = request(&world, 0)->key;
    joined.u.joined.key = grant.u.grant.key;
    assert_int_equal(bt_core_message(world.core, world.d, &grant, bt_now_us()),
                     BT_OK);
    pass(SECOND);
    has(&ex, "event: handover\ndata: {\"left_out\":0,\"list\":[{\"unix_ms\":");
    has(&ex, "\"phase\":\"begun\",\"request\":\"1\",\"model\":\"tiny\","
             "\"from\":\"prefill-0\",\"to\":\"decode-0\",\"bytes\":null,");
    forget(&ex);
    assert_int_equal(bt_core_message(world.core, world.d, &joined, bt_now_us()),
                     BT_OK);
    pass(SECOND);
    has(&ex, "\"phase\":\"ended\",\"request\":\"1\"");
    has(&ex, "\"bytes\":4096,\"length_ms\":1.5}]}\n\n");
    forget(&ex);
    answer(&world, 0, "xyz", BT_FINISH_LENGTH);
    pass(SECOND);
    assert_null(strstr(ex.out, "handover\ndata")); /* it ended already */
    leave(&ex);
}

static void abandoned_handover_is_reported_failed(void **state)
{
    static bt_exchange_t ex, client;
    bt_msg_t grant = {.type = BT_MSG_GRANT};

    (void)state;
    watch(&ex, NULL);
    post(&world, &client, "/v1/completions",
         "{\"prompt\":\"abc\",\"max_tokens\":3}");
    grant.u.grant.key = request(&world, 0)->key;
    assert_int_equal(bt_core_message(world.core, world.d, &grant, bt_now_us()),
                     BT_OK);
    leave(&client);
    pass(SECOND);
    has(&ex, "\"phase\":\"begun\"");
    has(&ex, "\"phase\":\"failed\"");
    leave(&ex);
}

static void readers_skip_state_that_finds_no_memory(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    watch(&ex, NULL);
    forget(&ex);
    bt_test_expect_log_lines(1);
    bt_alloc_fail_at(1);
    pass(0); /* the first that is written for all */
    bt_alloc_fail_at(0);
    assert_int_equal(ex.n_writes, 0);
    pass(SECOND);
    assert_int_equal(n_of(&ex, "event: state\ndata: {"), 1);
    has(&ex, "\"refused\":0}]}\n\n");
    leave(&ex);
}

static void head_request_gets_no_event_stream(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    send_to(&world, &ex, BT_HTTP_HEAD, "/v2/cluster/events", "");
    assert_int_equal(ex.status, 200);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(world.door.watchers.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
        TEST(reader_gets_state_at_once_and_every_second),
        TEST(event_is_sent_with_id_at_next_tick),
        TEST(last_event_id_resumes_missed_events),
        TEST(worker_reconnect_within_tick_still_gives_both_events),
        TEST(slow_reader_skips_states_but_no_event),
        TEST(reader_stalled_for_10_s_is_disconnected),
        TEST(readers_over_max_event_streams_are_refused),
        TEST(reader_disconnect_during_tick_keeps_others),
        TEST(event_streams_end_when_router_drains),
        TEST(history_point_is_sent_when_complete),
        TEST(handover_is_sent_at_begin_and_end),
        TEST(abandoned_handover_is_reported_failed),
        TEST(readers_skip_state_that_finds_no_memory),
        TEST(head_request_gets_no_event_stream),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
