/* SPDX-License-Identifier: Apache-2.0 */
/* Whole answers that the pool writes: the same bytes, and nothing is left
 * behind by whoever does not wait for them. */
#include <poll.h>

#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define PATIENCE_MS 60000
#define THREE                                                 \
    "{\"prompt\":\"Hi\",\"n\":3,\"max_tokens\":3,\"seed\":5," \
    "\"return_token_ids\":true}"
#define SCORED                                                \
    "{\"prompt\":\"Hi\",\"n\":2,\"max_tokens\":3,\"seed\":5," \
    "\"logprobs\":3}"
#define ECHO                                                            \
    "{\"id\":\"my \\\"id\\\"\",\"text_input\":\"Hi\",\"max_tokens\":3," \
    "\"sequence_id\":7}"

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

/* Asked for, and computed by the workers. */
static void ask(world_t *w, bt_exchange_t *ex, const char *path,
                const char *body, uint32_t n)
{
    w->n_sent = 0;
    post(w, ex, path, body);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ex->n_ends, 0);
        answer(w, i, "y\"s", BT_FINISH_LENGTH);
    }
}

/* But for what differs from call to call. */
static const char *from_choices(const bt_exchange_t *ex)
{
    const char *at = strstr(ex->out, "\"choices\"");

    return (at != NULL) ? at : ex->out;
}

static void pool_writes_same_bytes_as_loop(void **state)
{
    static const struct {
        const char *path, *body;
        uint32_t n;
    } calls[] = {
        {COMPLETIONS, THREE, 3}, {GENERATE, ECHO, 1}, {COMPLETIONS, SCORED, 2}};
    world_t *w = &world;
    bt_exchange_t here, there;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(calls); i++) {
        w->door.inline_bytes = SIZE_MAX;
        ask(w, &here, calls[i].path, calls[i].body, calls[i].n);
        assert_int_equal(here.n_ends, 1);
        assert_int_equal(here.status, 200);
        assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);

        w->door.inline_bytes = 0;
        ask(w, &there, calls[i].path, calls[i].body, calls[i].n);
        assert_int_equal(there.n_ends, 0);
        assert_int_equal(bt_pool_n_jobs(w->front.pool), 1);
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
        step(w);
        assert_int_equal(there.n_ends, 1);
        assert_int_equal(there.status, 200);
        assert_string_equal(there.type, here.type);
        assert_string_equal(from_choices(&there), from_choices(&here));
        has(&there, (i != 1) ? "\"model\":\"tiny\"" : "\"id\":\"my \\\"id\\\"");
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    }
    stop(w);
}

static void client_disconnect_during_write_frees_everything(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    w->door.inline_bytes = 0;
    ask(w, &ex, COMPLETIONS, THREE, 3);
    bt_door_gone(&w->door, &ex);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
    step(w);
    assert_int_equal(ex.n_ends, 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);

    ask(w, &ex, COMPLETIONS, THREE, 3);
    bt_door_gone(&w->door, &ex);
    stop(w);
}

/* The answer was finished before. */
static void stopping_server_still_sends_answer(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    w->door.inline_bytes = 0;
    ask(w, &ex, COMPLETIONS, THREE, 3);
    bt_pool_stop(w->front.pool);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"index\":2");
    ask(w, &ex, COMPLETIONS, THREE, 3);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"index\":2");
    stop(w);
}

/* ---- slices ---- */

#define N_FLOATS ((size_t)64 * 4096) /* some 3 MB of JSON */

static bool is_done;

static void note_done(bt_pool_job_t *job)
{
    (void)job;
    is_done = true;
}

static void do_nothing(bt_pool_job_t *job)
{
    (void)job;
}

/* An answer with the logits of its prompt, for the visit of a call that runs.
 */
static void begin_long_answer(world_t *w, bt_exchange_t *ex,
                              bt_gen_rows_t *rows)
{
    static const bt_api_answer_t whole = {
        .dialect = BT_API_GENERATE, .id = "i", .model = "m", .version = "1"};
    static const bt_api_usage_t usage;
    static bt_api_choice_t choice;
    bt_http_request_t *r;

    choice =
        (bt_api_choice_t){.text = "", .finish = BT_FINISH_LENGTH, .rows = rows};
    post(w, ex, COMPLETIONS, THREE);
    ex->is_long = true;
    r = ex->user;
    bt_request_close(&r->base);
    assert_true(bt_answer_begin(r, &whole, &choice, 1, &usage));
}

static void long_answer_is_written_in_slices_between_jobs(void **state)
{
    bt_gen_rows_t rows = {.wants = {.what = BT_WANT_PROMPT_LOGITS},
                          .n_prompt = 64,
                          .n_vocab = 4096};
    bt_pool_job_t other = {.run = do_nothing, .done = note_done};
    world_t *w = &world;
    bt_exchange_t ex;
    size_t n_steps = 0;

    (void)state;
    rows.context_logits = bt_calloc(N_FLOATS, sizeof(float));
    assert_non_null(rows.context_logits);
    for (size_t i = 0; i < N_FLOATS; i++) {
        rows.context_logits[i] = (float)i / 7.0f;
    }
    start(w, true);
    begin_long_answer(w, &ex, &rows);
    bt_pool_post(w->front.pool, &other, BT_POOL_LONG);
    is_done = false;
    while (!is_done) {
        step(w);
        n_steps++;
    }
    /* Behind at most one slice and its own end. */
    assert_true(n_steps <= 3);
    assert_int_equal(ex.n_ends, 0);
    while (ex.n_ends == 0) {
        step(w);
        n_steps++;
    }
    assert_int_equal(ex.status, 200);
    assert_true(n_steps > 5);
    assert_true(ex.out_bytes > 8 * N_FLOATS);

    /* A client that leaves ends it at the next slice. */
    begin_long_answer(w, &ex, &rows);
    bt_door_gone(&w->door, &ex);
    step(w);
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
    assert_int_equal(w->front.n_answers, 0);

    /* A server that stops writes the rest at once. */
    begin_long_answer(w, &ex, &rows);
    step(w);
    bt_pool_stop(w->front.pool);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.status, 200);
    stop(w);
    bt_free(rows.context_logits);
}

static void answer_without_memory_gets_503(void **state)
{
    static const bt_api_choice_t choice = {.text = "yes", .text_bytes = 3};
    static const bt_api_answer_t whole = {.id = "i", .model = "m"};
    static const bt_api_usage_t usage;
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    bt_http_request_t *r;

    post(w, &ex, COMPLETIONS, THREE);
    r = ex.user;
    bt_alloc_fail_at(1);
    assert_false(bt_answer_begin(r, &whole, &choice, 1, &usage));
    bt_alloc_fail_at(0);
    assert_null(r->answer);
    assert_int_equal(w->front.n_answers, 0);
    bt_door_gone(&w->door, &ex);
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pool_writes_same_bytes_as_loop),
        BT_TEST(client_disconnect_during_write_frees_everything),
        BT_TEST(stopping_server_still_sends_answer),
        BT_TEST(long_answer_is_written_in_slices_between_jobs),
        BT_TEST(answer_without_memory_gets_503),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
