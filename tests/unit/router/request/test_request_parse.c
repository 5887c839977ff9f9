/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose bodies are too large for the event loop: what takes long is done
 * by the pool, and whoever leaves meanwhile leaves nothing behind. */
#include <poll.h>

#include "common/base/status.h"
#include "router/request/request.h"
#include "tests/unit/router/request_fixture.h"

#define PATIENCE_MS 60000
#define HI          "\"prompt\":\"Hi\","
#define FILLER      "\"unknown\":"

/* `{FIELDS"xxx…"}`, with so many x. Freed by the caller. */
static char *body_of(const char *fields, size_t bytes)
{
    bt_strbuf_t body;

    bt_strbuf_init(&body, bytes + 1024);
    bt_strbuf_printf(&body, "{%s\"", fields);
    for (size_t i = 0; i < bytes; i++) {
        bt_strbuf_append(&body, "x", 1);
    }
    bt_strbuf_puts(&body, "\"}");
    assert_int_equal(bt_strbuf_status(&body), BT_OK);
    return body.data;
}

/* As the event loop does. */
static void step(world_t *w)
{
    const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;

    while (!bt_pool_next(w->front.pool)) {
        struct pollfd fd = {.fd = bt_pool_fd(w->front.pool), .events = POLLIN};

        assert_true(bt_now_ms() < end_ms);
        assert_int_not_equal(poll(&fd, 1, PATIENCE_MS), 0);
    }
}

/* Until the pool has nothing more to do: it frees memory, too. */
static void settle(world_t *w)
{
    while (bt_pool_n_jobs(w->front.pool) > 0) {
        step(w);
    }
}

static void large_body_is_parsed_on_pool(void **state)
{
    const size_t sizes[] = {BT_REQUEST_INLINE_BYTES, BT_WORK_LONG_BYTES,
                            BT_WORK_BACKGROUND_BYTES};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (uint32_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        char *body = body_of(HI "\"max_tokens\":3," FILLER, sizes[i]);

        post(w, &ex, COMPLETIONS, body);
        assert_int_equal(count(w, BT_MSG_REQUEST), 2 * i);
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
        step(w); /* parsed */
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
        step(w); /* tokenized */
        assert_int_equal(bt_core_n_in_flight(w->core), 1);
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
        assert_int_equal(request(w, i)->n_tokens, 2);
        assert_int_equal(request(w, i)->tokens[0], id_of('H'));
        answer(w, i, "yes", BT_FINISH_LENGTH);
        assert_int_equal(ex.status, 200);
        has(&ex, "\"text\":\"yes\"");
        settle(w);
        bt_free(body);
    }
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    stop(w);
}

static void invalid_large_body_gets_its_error(void **state)
{
    static const struct {
        const char *fields, *part;
        int status;
        unsigned n_steps;
    } cases[] = {
        {"\"prompt\":7," FILLER, "prompt must be a string", 400, 1},
        {HI "\"model\":\"other\"," FILLER, "not served here", 404, 1},
        {HI "\"n\":9,\"best_of\":9," FILLER, "limit is 8", 429, 1},
        {HI "\"max_tokens\":9999," FILLER, "context length is 512 tokens", 400,
         2},
    };
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char *body = body_of(cases[i].fields, BT_REQUEST_INLINE_BYTES);
        bt_exchange_t ex;

        post(w, &ex, COMPLETIONS, body);
        for (unsigned k = 0; k < cases[i].n_steps; k++) {
            assert_int_equal(ex.n_ends, 0);
            step(w);
        }
        settle(w);
        assert_int_equal(ex.status, cases[i].status);
        has(&ex, cases[i].part);
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
        bt_free(body);
    }
    assert_int_equal(w->n_sent, 0);
    stop(w);
}

/* The text has four times as many tokens as there may be, or 16,000 times. */
static void tokenizing_stops_at_context_limit(void **state)
{
    const size_t sizes[] = {4 * (size_t)CONTEXT, (size_t)8 << 20};
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        char *body = body_of("\"prompt\":", sizes[i]);
        bt_exchange_t ex;

        post(w, &ex, COMPLETIONS, body);
        while (ex.n_ends == 0) {
            step(w);
        }
        assert_int_equal(ex.status, 400);
        has(&ex, (i == 0)
                     ? "However, you requested 2048 tokens in the prompt."
                     : "you requested more than 2048 tokens in the prompt.");
        has(&ex, "\"code\":\"context_length_exceeded\"");
        bt_free(body);
    }
    stop(w);
}

static void client_disconnect_during_parse_frees_everything(void **state)
{
    char *body = body_of(HI FILLER, BT_REQUEST_INLINE_BYTES);
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (unsigned after = 0; after < 2; after++) {
        post(w, &ex, COMPLETIONS, body);
        for (unsigned i = 0; i < after; i++) {
            step(w);
        }
        bt_door_gone(&w->door, &ex);
        settle(w);
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    }
    assert_int_equal(w->n_sent, 0);
    assert_int_equal(ex.n_ends, 0);
    bt_free(body);
    stop(w);
}

/* max_queue is 8. */
static void arriving_requests_hold_queue_slots(void **state)
{
    char *body = body_of(HI FILLER, BT_REQUEST_INLINE_BYTES);
    world_t *w = &world;
    bt_exchange_t ex[9];

    (void)state;
    start(w, true);
    for (unsigned i = 0; i < 9; i++) {
        post(w, &ex[i], COMPLETIONS, body);
    }
    assert_int_equal(ex[8].status, 429);
    has(&ex[8], "8 requests are in flight");
    while (bt_core_n_in_flight(w->core) < 8) {
        step(w);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(ex[i].n_ends, 0);
    }
    for (unsigned i = 0; i < 8; i++) { /* in which order they became requests */
        answer(w, i, "yes", BT_FINISH_LENGTH);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(ex[i].status, 200);
    }
    bt_free(body);
    stop(w);
}

static void stopping_server_refuses_arriving_requests(void **state)
{
    char *body = body_of(HI FILLER, BT_WORK_LONG_BYTES);
    world_t *w = &world;
    bt_exchange_t ex[4], late;

    (void)state;
    start(w, true);
    for (unsigned i = 0; i < 4; i++) {
        post(w, &ex[i], COMPLETIONS, body);
    }
    w->front.draining = true;
    post(w, &late, COMPLETIONS, body);
    assert_int_equal(late.status, 503);
    bt_pool_stop(w->front.pool);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(ex[i].status, 503);
        has(&ex[i], "the server is stopping");
    }
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    bt_free(body);
    stop(w);
}

/* Request, row and input; without memory for an account it is not counted. */
static void request_without_memory_gets_503(void **state)
{
    char *body = body_of(HI FILLER, BT_REQUEST_INLINE_BYTES);
    unsigned n_refused = 0;
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (int nth = 1; nth < 8; nth++) {
        bt_alloc_fail_at(nth);
        post(w, &ex, COMPLETIONS, body);
        bt_alloc_fail_at(0);
        if (ex.n_ends > 0) {
            n_refused++;
            assert_int_equal(ex.status, 503);
        } else { /* with the pool, which allocates too */
            bt_door_gone(&w->door, &ex);
        }
        settle(w);
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    }
    assert_int_equal(n_refused, 3);
    bt_free(body);
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(large_body_is_parsed_on_pool),
        BT_TEST(invalid_large_body_gets_its_error),
        BT_TEST(tokenizing_stops_at_context_limit),
        BT_TEST(client_disconnect_during_parse_frees_everything),
        BT_TEST(arriving_requests_hold_queue_slots),
        BT_TEST(stopping_server_refuses_arriving_requests),
        BT_TEST(request_without_memory_gets_503),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
