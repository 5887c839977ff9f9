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

#define YES_OR_NO "{" HI "\"guided_choice\":[\"yes\",\"no\"]}"

/* However short its description is. */
static void unknown_grammar_is_compiled_on_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS, YES_OR_NO);
    assert_int_equal(count(w, BT_MSG_REQUEST), 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
    step(w); /* compiled, and tokenized */
    assert_int_equal(count(w, BT_MSG_REQUEST), 2);
    assert_true(request(w, 0)->grammar_bytes > 8);
    assert_memory_equal(request(w, 0)->grammar, "BTG", 3);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    settle(w);

    post(w, &ex, COMPLETIONS, YES_OR_NO); /* known now */
    assert_int_equal(count(w, BT_MSG_REQUEST), 4);
    assert_int_equal(request(w, 1)->grammar_bytes,
                     request(w, 0)->grammar_bytes);
    answer(w, 1, "no", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);
    settle(w);
    assert_true(metric(w, "baton_grammar_compilations_total{model=\"tiny\","
                          "kind=\"choice\",result=\"ok\"}") == 1);
    assert_true(metric(w, "baton_grammar_cache_hits_total{model=\"tiny\"}") ==
                1);
    stop(w);
}

/* A queue of one job that counts what is put into it. */
typedef struct one_job {
    bt_pool_job_t *job;
    uint32_t n_pushed;
    uint64_t cost_us; /* of the last one */
} one_job_t;

static void one_push(void *ctx, bt_pool_job_t *job)
{
    one_job_t *one = ctx;

    assert_null(one->job);
    one->job = job;
    one->n_pushed++;
    one->cost_us = job->cost_us;
}

static bt_pool_job_t *one_pop(void *ctx, uint64_t most_us)
{
    one_job_t *one = ctx;
    bt_pool_job_t *job = one->job;

    if ((job != NULL) && (job->cost_us > most_us)) {
        return NULL;
    }
    one->job = NULL;
    return job;
}

static void one_remove(void *ctx, bt_pool_job_t *job)
{
    one_job_t *one = ctx;

    assert_ptr_equal(one->job, job);
    one->job = NULL;
}

static void one_ended(void *ctx, bt_pool_job_t *job, uint64_t took_us)
{
    (void)ctx;
    (void)job;
    (void)took_us;
}

static const bt_pool_order_t one_order = {
    .push = one_push, .pop = one_pop, .remove = one_remove, .ended = one_ended};

/* A description of a few bytes takes 50 ms at most, which short work of others
 * does not wait for. */
static void unknown_grammar_is_no_short_work(void **state)
{
    static one_job_t orders[2]; /* short, long */
    world_t *w = &world;
    bt_exchange_t ex;
    char *body;

    (void)state;
    memset(orders, 0, sizeof(orders));
    start(w, true);
    bt_pool_set_order(w->front.pool, BT_POOL_SHORT, &one_order, &orders[0]);
    bt_pool_set_order(w->front.pool, BT_POOL_LONG, &one_order, &orders[1]);
    body = body_of(HI "\"regex\":\"yes|no\"," FILLER, BT_REQUEST_INLINE_BYTES);
    for (uint32_t i = 0; i < 2; i++) { /* the second time it is known */
        post(w, &ex, COMPLETIONS, body);
        step(w); /* parsed */
        assert_int_equal(orders[1].n_pushed, 1);
        step(w); /* tokenized */
        assert_int_equal(orders[0].n_pushed, 1 + 2 * i);
        assert_true(orders[1].cost_us > 1000);
        answer(w, i, "yes", BT_FINISH_LENGTH);
        assert_int_equal(ex.status, 200);
        settle(w);
    }
    bt_free(body);
    stop(w);
}

/* Where they are looked up, tens of kilobytes are compared and copied for each
 * row of a batch. */
static void known_grammar_of_many_bytes_is_looked_up_on_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    bt_strbuf_t body;

    (void)state;
    start(w, true);
    bt_strbuf_init(&body, 65536);
    bt_strbuf_puts(&body,
                   "{\"inputs\":["
                   "{\"name\":\"text_input\",\"datatype\":\"BYTES\","
                   "\"shape\":[1,1],\"data\":[\"Hi\"]},"
                   "{\"name\":\"max_tokens\",\"datatype\":\"INT32\","
                   "\"shape\":[1,1],\"data\":[3]},"
                   "{\"name\":\"guided_decoding_guide_type\",\"datatype\":"
                   "\"BYTES\",\"shape\":[1,1],\"data\":[\"regex\"]},"
                   "{\"name\":\"guided_decoding_guide\",\"datatype\":"
                   "\"BYTES\",\"shape\":[1,1],\"data\":[\"[");
    for (int i = 0; i < 3000; i++) {
        bt_strbuf_append(&body, "x", 1);
    }
    bt_strbuf_puts(&body, "]{3}\"]}]}");
    for (uint32_t i = 0; i < 2; i++) {
        post(w, &ex, "/v2/models/ensemble/infer", body.data);
        step(w); /* parsed */
        assert_int_equal(count(w, BT_MSG_REQUEST), 2 * i);
        step(w); /* compiled, or looked up */
        assert_int_equal(count(w, BT_MSG_REQUEST), 2 * i + 2);
        answer(w, i, "xxx", BT_FINISH_LENGTH);
        assert_int_equal(ex.status, 200);
        settle(w);
    }
    bt_strbuf_fini(&body);
    stop(w);
}

static void grammar_that_is_refused_gets_its_error_from_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (unsigned i = 0; i < 2; i++) {
        post(w, &ex, COMPLETIONS, "{" HI "\"guided_choice\":[]}");
        assert_int_equal(ex.n_ends, i); /* the second time it is known */
        settle(w);
        assert_int_equal(ex.status, 400);
        has(&ex, "guided_choice: choices must be a list of at least one");
    }
    assert_int_equal(w->n_sent, 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    assert_true(metric(w, "baton_grammar_compilations_total{model=\"tiny\","
                          "kind=\"choice\",result=\"refused\"}") == 1);
    stop(w);
}

/* The model's end ids end an answer that cannot go on; they are banned. */
static void ignore_eos_bans_end_ids_beside_a_grammar(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, COMPLETIONS,
         "{" HI "\"ignore_eos\":true,\"guided_choice\":[\"yes\"]}");
    settle(w);
    assert_true(request(w, 0)->sampling.n_end_ids > 0);
    assert_int_equal(request(w, 0)->n_bad_words,
                     request(w, 0)->sampling.n_end_ids);
    for (uint32_t i = 0; (i < request(w, 0)->n_bad_words) && (i < 4); i++) {
        assert_int_equal(request(w, 0)->bad_words[i].n, 1);
        assert_int_equal(request(w, 0)->bad_words[i].ids[0],
                         request(w, 0)->sampling.end_ids[i]);
    }
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    stop(w);
}

/* A worker that says so of a request without a grammar is wrong itself. */
static void
grammar_that_is_too_ambiguous_is_the_client_s_own_error(void **state)
{
    static const char *const bodies[] = {
        YES_OR_NO,
        "{" HI "\"stream\":true,\"guided_choice\":[\"yes\",\"no\"]}",
        "{" HI "\"max_tokens\":3}",
    };
    bt_msg_t msg = {.type = BT_MSG_FAILED,
                    .u.failed = {.status = BT_ERR_AMBIGUOUS,
                                 .text = "decode: too many ways"}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bodies); i++) {
        const bool has_grammar = i < 2;
        world_t *w = &world;
        bt_exchange_t ex;

        start(w, true);
        post(w, &ex, COMPLETIONS, bodies[i]);
        if (has_grammar) {
            step(w); /* compiled */
        }
        msg.u.failed.key = request(w, 0)->key;
        assert_int_equal(bt_core_message(w->core, w->p, &msg, bt_now_us()),
                         BT_OK);
        if (!has_grammar) {
            assert_int_equal(ex.status, 500);
        } else if (i == 0) {
            assert_int_equal(ex.status, 400);
        }
        if (has_grammar) {
            has(&ex, "\"param\":\"guided_choice\"");
            has(&ex,
                "guided_choice: the answer cannot be followed further: its "
                "grammar is ambiguous in more than 64 ways");
            assert_null(strstr(ex.out, "worker"));
        } else {
            has(&ex, "\"param\":null");
        }
        stop(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(unknown_grammar_is_compiled_on_pool),
        BT_TEST(unknown_grammar_is_no_short_work),
        BT_TEST(known_grammar_of_many_bytes_is_looked_up_on_pool),
        BT_TEST(grammar_that_is_refused_gets_its_error_from_pool),
        BT_TEST(ignore_eos_bans_end_ids_beside_a_grammar),
        BT_TEST(grammar_that_is_too_ambiguous_is_the_client_s_own_error),
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
