/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed answers before their first token: when the head goes out, what keeps
 * its status, and comments while nothing else is sent. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define KEEPALIVE_S 15
#define SECOND_US   1000000u
#define RESPONSES   "/v1/responses"

/* A stream of each dialect. */
static const struct {
    const char *path, *body;
} asks[] = {
    {STREAM, "{\"text_input\":\"Hi\",\"max_tokens\":6}"},
    {COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":6,\"stream\":true}"},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
           "\"max_tokens\":6,\"stream\":true}"},
    {RESPONSES, "{\"input\":\"Hi\",\"max_output_tokens\":6,\"stream\":true}"},
};
#define N_ASKS BT_ARRAY_LEN(asks)

static void begin(world_t *w, bool with_workers)
{
    start(w, with_workers);
    w->config.sse_keepalive_s = KEEPALIVE_S;
}

/* Their links are full: what comes waits in the router. */
static void set_full(world_t *w, bool full)
{
    w->p->sched.is_behind = full;
    w->d->sched.is_behind = full;
}

/* Ticks until then, as busy workers have to be seen all the time. */
static void tick_for(world_t *w, uint64_t from_us, uint32_t to_s)
{
    for (uint32_t k = 0; k <= 2 * to_s; k++) {
        bt_frontend_tick(&w->front, from_us + (uint64_t)k * SECOND_US / 2);
    }
}

static void has_a_head(const bt_exchange_t *ex)
{
    assert_int_equal(ex->status, 200);
    assert_true(ex->streams);
    assert_string_equal(ex->type, "text/event-stream; charset=utf-8");
    assert_non_null(strstr(ex->headers, "Cache-Control: no-cache\n"));
    assert_non_null(strstr(ex->headers, "X-Accel-Buffering: no\n"));
}

static void stream_head_is_sent_when_request_is_placed(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    begin(w, true);
    for (uint32_t i = 0; i < N_ASKS; i++) {
        post(w, &ex, asks[i].path, asks[i].body);
        has_a_head(&ex);
        if (strcmp(asks[i].path, RESPONSES) == 0) {
            has(&ex, "response.created");
        } else {
            assert_int_equal(ex.out_bytes, 0);
        }
        answer(w, i, "abcdef", BT_FINISH_LENGTH);
        assert_int_equal(ex.n_ends, 1);
        assert_null(strstr(ex.out, "keep-alive"));
        assert_true(bt_list_empty(&w->door.streams));
    }
    /* An answer that is whole has its head when it is there. */
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":6}");
    assert_int_equal(ex.status, 0);
    answer(w, N_ASKS, "abcdef", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    stop(w);
}

static void
what_waits_in_the_router_has_its_head_when_it_is_placed(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex[N_ASKS];

    (void)state;
    begin(w, true);
    set_full(w, true);
    for (uint32_t i = 0; i < N_ASKS; i++) {
        post(w, &ex[i], asks[i].path, asks[i].body);
    }
    bt_frontend_turn(&w->front);
    for (uint32_t i = 0; i < N_ASKS; i++) {
        assert_int_equal(ex[i].status, 0);
    }
    set_full(w, false);
    bt_frontend_tick(&w->front, bt_now_us());
    bt_frontend_turn(&w->front);
    for (uint32_t i = 0; i < N_ASKS; i++) {
        has_a_head(&ex[i]);
        answer(w, i, "abcdef", BT_FINISH_LENGTH);
        assert_int_equal(ex[i].n_ends, 1);
        if (strcmp(asks[i].path, RESPONSES) == 0) {
            assert_ptr_equal(strstr(ex[i].out, "event: "),
                             strstr(ex[i].out, "event: response.created"));
        }
    }
    stop(w);
}

/* Those who would try again elsewhere need the status. */
static void stream_without_workers_gets_error_status(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    uint64_t now_us;

    (void)state;
    begin(w, false);
    w->config.sse_keepalive_s = 1;
    for (uint32_t i = 0; i < N_ASKS; i++) {
        now_us = bt_now_us(); /* it comes then, or later */
        post(w, &ex, asks[i].path, asks[i].body);
        bt_frontend_tick(&w->front, now_us + SECOND_US / 2);
        bt_frontend_turn(&w->front);
        assert_int_equal(ex.status, 0);
        bt_frontend_tick(&w->front, bt_now_us() + 2 * SECOND_US);
        assert_int_equal(ex.status, 503);
        assert_string_equal(ex.type, "application/json");
        assert_non_null(strstr(ex.headers, "Retry-After: 1\n"));
        has(&ex, "no prefill and decode worker came");
    }
    assert_true(bt_list_empty(&w->front.waiting));
    stop(w);
}

static void
stream_waiting_for_busy_workers_sends_head_at_keepalive(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex, left;
    uint64_t now_us;

    (void)state;
    begin(w, true);
    set_full(w, true);
    post(w, &left, COMPLETIONS, asks[1].body);
    post(w, &ex, COMPLETIONS, asks[1].body);
    bt_door_gone(&w->door, &left);
    now_us = bt_now_us();
    tick_for(w, now_us, KEEPALIVE_S - 1);
    assert_int_equal(ex.status, 0);
    tick_for(w, now_us + (KEEPALIVE_S - 1) * SECOND_US, 1);
    has_a_head(&ex);
    assert_int_equal(left.status, 0);
    bt_door_keep_alive(&w->door, now_us + 2 * KEEPALIVE_S * SECOND_US);
    assert_string_equal(ex.out, ": keep-alive\n\n");
    /* The row is placed later, and begins once. */
    set_full(w, false);
    bt_frontend_tick(&w->front, now_us + KEEPALIVE_S * SECOND_US);
    bt_frontend_turn(&w->front);
    assert_int_equal(ex.n_writes, 1);
    answer(w, 0, "abcdef", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_ends, 1);
    has(&ex, "data: [DONE]");

    /* Where there are to be no comments it waits without a head. */
    w->config.sse_keepalive_s = 0;
    set_full(w, true);
    post(w, &ex, COMPLETIONS, asks[1].body);
    tick_for(w, bt_now_us(), 50);
    assert_int_equal(ex.status, 0);
    bt_door_gone(&w->door, &ex);
    stop(w);
}

static void
a_silent_stream_gets_a_comment_and_one_that_speaks_none(void **state)
{
    world_t *w = &world;
    bt_exchange_t silent, speaks;
    uint64_t now_us;

    (void)state;
    begin(w, true);
    now_us = bt_now_us(); /* they come then, or later */
    post(w, &silent, STREAM, asks[0].body);
    post(w, &speaks, STREAM, asks[0].body);
    bt_door_keep_alive(&w->door, now_us + (KEEPALIVE_S - 1) * SECOND_US);
    assert_int_equal(silent.out_bytes, 0);
    usleep(2000);
    now_us = bt_now_us(); /* one speaks then, or later; the other did before */
    tokens(w, w->p, 1, 0, "a", BT_FINISH_NONE);
    bt_door_keep_alive(&w->door, now_us - 1000 + KEEPALIVE_S * SECOND_US);
    assert_string_equal(silent.out, ": keep-alive\n\n");
    assert_null(strstr(speaks.out, "keep-alive"));
    /* Between tokens, too; and the events are what they would be. */
    bt_door_keep_alive(&w->door, bt_now_us() + KEEPALIVE_S * SECOND_US);
    assert_non_null(strstr(speaks.out, "}\n\n: keep-alive\n\n"));
    tokens(w, w->d, 1, 1, "b", BT_FINISH_LENGTH);
    assert_non_null(strstr(speaks.out, "\n\n: keep-alive\n\ndata: {"));
    assert_int_equal(speaks.n_ends, 1);

    /* A write finds that the client is gone. */
    silent.breaks = true;
    bt_door_keep_alive(&w->door, bt_now_us() + 3 * KEEPALIVE_S * SECOND_US);
    assert_int_equal(silent.n_ends, 1);
    assert_true(bt_list_empty(&w->door.streams));
    ended(w, 0);
    ended(w, 1);
    stop(w);
}

static void keepalive_comment_depends_on_user_agent(void **state)
{
    static const struct {
        const char *agent, *comment;
    } clients[] = {
        {NULL, ": keep-alive\n\n"},
        {"OpenAI/Python 3.54.0", ": keep-alive\n\n"},
        {"curl/7.88.1", ": keep-alive\n\n"},
        {"OpenAI/Go 3.1.0", ": keep-alive\n"},
        {"libcurl-agent/1.0", ""},
    };
    world_t *w = &world;

    (void)state;
    begin(w, true);
    for (uint32_t i = 0; i < BT_ARRAY_LEN(clients); i++) {
        bt_exchange_t ex = {.method = BT_HTTP_POST,
                            .path = COMPLETIONS,
                            .body = asks[1].body,
                            .agent = clients[i].agent,
                            .door = &w->door};

        bt_door_request(&w->door, &ex);
        has_a_head(&ex);
        bt_door_keep_alive(&w->door, bt_now_us() + KEEPALIVE_S * SECOND_US);
        assert_string_equal(ex.out, clients[i].comment);
        answer(w, i, "abcdef", BT_FINISH_LENGTH);
        assert_int_equal(ex.n_ends, 1);
    }
    stop(w);
}

static void failure_before_first_token_is_sent_as_event(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    begin(w, true);
    for (uint32_t i = 0; i < N_ASKS; i++) {
        post(w, &ex, asks[i].path, asks[i].body);
        bt_core_end_all(w->core, "the server is stopping", bt_now_us());
        has_a_head(&ex);
        assert_int_equal(ex.n_ends, 1);
        has(&ex, "the server is stopping");
        assert_non_null(strstr(ex.out, "data: {"));
        ended(w, i);
    }
    stop(w);
}

/* Nothing of a call of several prompts goes out before all are taken: the n-th
 * allocation fails, for each n. */
static void partly_refused_request_gets_error_status(void **state)
{
    world_t *w = &world;
    unsigned n_in_part = 0;

    (void)state;
    begin(w, true);
    for (int nth = 1; nth < 90; nth++) {
        unsigned n_placed;
        bt_exchange_t ex;

        w->n_sent = 0;
        bt_alloc_fail_at(nth);
        post(w, &ex, COMPLETIONS,
             "{\"prompt\":[\"A\",\"B\"],\"max_tokens\":6,\"stream\":true}");
        bt_alloc_fail_at(0);
        bt_frontend_turn(&w->front);
        n_placed = count(w, BT_MSG_REQUEST) / 2;
        if (ex.n_ends == 0) {
            has_a_head(&ex);
            bt_door_gone(&w->door, &ex);
        } else {
            assert_true(ex.status >= 400);
            assert_string_equal(ex.type, "application/json");
            n_in_part += (n_placed == 1) ? 1 : 0;
        }
        for (uint32_t i = 0; i < n_placed; i++) {
            ended(w, i);
        }
        assert_int_equal(bt_core_n_legs(w->core), 0);
        assert_true(bt_list_empty(&w->front.placed));
        assert_true(bt_list_empty(&w->front.waiting));
    }
    assert_true(n_in_part > 0);
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(stream_head_is_sent_when_request_is_placed),
        BT_TEST(what_waits_in_the_router_has_its_head_when_it_is_placed),
        BT_TEST(stream_without_workers_gets_error_status),
        BT_TEST(stream_waiting_for_busy_workers_sends_head_at_keepalive),
        BT_TEST(a_silent_stream_gets_a_comment_and_one_that_speaks_none),
        BT_TEST(keepalive_comment_depends_on_user_agent),
        BT_TEST(failure_before_first_token_is_sent_as_event),
        BT_TEST(partly_refused_request_gets_error_status),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
