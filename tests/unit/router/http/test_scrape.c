/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of metrics are written by the pool: who asks gets one that is no older
 * than the question, and whoever leaves meanwhile leaves nothing behind. */
#include <poll.h>
#include <semaphore.h>

#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define PATIENCE_MS 60000
#define N_THREADS   2

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

/* Each turn answers one reader at least, and as many as it has time for. */
static void step_until_answered(world_t *w, const bt_exchange_t *ex)
{
    while (ex->n_ends == 0) {
        step(w);
    }
}

static void ask(world_t *w, bt_exchange_t *ex)
{
    send_to(w, ex, BT_HTTP_GET, "/metrics", "");
}

/* @param [in] n  how many pages this one says were asked for before */
static void is_page(const bt_exchange_t *ex, unsigned n)
{
    static const char kind[] = "baton_http_requests_total{route=\"/metrics\","
                               "method=\"GET\",code=\"200\"}";
    char line[sizeof(kind) + 16];

    assert_int_equal(ex->n_ends, 1);
    assert_int_equal(ex->status, 200);
    assert_string_equal(ex->type, "text/plain; version=0.0.4; charset=utf-8");
    has(ex, "# HELP ");
    has(ex, "baton_http_connections 3\n");
    has(ex, "process_open_fds ");
    snprintf(line, sizeof(line), "%s %u\n", kind, n);
    if (n > 0) {
        has(ex, line);
    } else {
        assert_null(strstr(ex->out, kind));
    }
}

static void is_refused(const bt_exchange_t *ex, const char *why)
{
    assert_int_equal(ex->n_ends, 1);
    assert_int_equal(ex->status, 503);
    has(ex, why);
    assert_non_null(strstr(ex->headers, "Retry-After: 1"));
}

static void metrics_page_is_written_on_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (unsigned i = 0; i < 3; i++) {
        ask(w, &ex);
        assert_int_equal(ex.n_ends, 0);
        assert_int_equal(bt_pool_n_jobs(w->front.pool), 1);
        step(w);
        is_page(&ex, i);
        assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
    }
    stop(w);
}

/* Events before a request are in its page, and those who waited have
 * one page in common. */
static void request_during_write_gets_next_page(void **state)
{
    static bt_exchange_t many[20];
    world_t *w = &world;
    bt_exchange_t first, last;

    (void)state;
    start(w, true);
    ask(w, &first);
    for (unsigned i = 0; i < BT_ARRAY_LEN(many); i++) {
        ask(w, &many[i]);
        assert_int_equal(bt_pool_n_jobs(w->front.pool), 1);
    }
    step(w);
    is_page(&first, 0);
    ask(w, &last);
    step_until_answered(w, &many[BT_ARRAY_LEN(many) - 1]);
    assert_int_equal(last.n_ends, 0);
    for (unsigned i = 0; i < BT_ARRAY_LEN(many); i++) {
        is_page(&many[i], 1);
    }
    step(w);
    is_page(&last, 21);
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
    stop(w);
}

static void client_disconnect_during_write_frees_everything(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex[4];

    (void)state;
    start(w, true);
    for (unsigned i = 0; i < 4; i++) {
        ask(w, &ex[i]); /* the first has a page under way */
    }
    bt_door_gone(&w->door, &ex[0]);
    bt_door_gone(&w->door, &ex[2]);
    step(w);
    assert_int_equal(ex[1].n_ends, 0);
    step_until_answered(w, &ex[3]);
    is_page(&ex[1], 0);
    is_page(&ex[3], 0);
    has(&ex[1], "method=\"GET\",code=\"499\"} 2\n");
    assert_int_equal(ex[0].n_ends + ex[2].n_ends, 0);
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);

    ask(w, &ex[0]);
    bt_door_gone(&w->door, &ex[0]); /* nobody reads it */
    stop(w);
}

/* ---- the pool is busy, or stops ---- */

typedef struct held {
    bt_pool_job_t job;
    sem_t *began, *gate;
} held_t;

static void hold(bt_pool_job_t *job)
{
    const held_t *held = BT_CONTAINER_OF(job, held_t, job);

    sem_post(held->began);
    sem_wait(held->gate);
}

static void held_done(bt_pool_job_t *job)
{
    (void)job;
}

static void stopping_server_refuses_waiting_scrapes(void **state)
{
    static held_t held[N_THREADS];
    world_t *w = &world;
    bt_exchange_t ex[3];
    sem_t began, gate;

    (void)state;
    sem_init(&began, 0, 0);
    sem_init(&gate, 0, 0);
    start(w, true);
    for (unsigned i = 0; i < N_THREADS; i++) {
        held[i] = (held_t){{.run = hold, .done = held_done}, &began, &gate};
        bt_pool_post(w->front.pool, &held[i].job,
                     (i == 0) ? BT_POOL_LONG : BT_POOL_SHORT);
        sem_wait(&began);
    }
    ask(w, &ex[0]);
    ask(w, &ex[1]);
    for (unsigned i = 0; i < N_THREADS; i++) {
        sem_post(&gate);
    }
    bt_pool_stop(w->front.pool);
    /* A thread may have written it before it saw the end. */
    if (ex[0].status == 200) {
        is_page(&ex[0], 0);
    } else {
        is_refused(&ex[0], "the server is stopping");
    }
    is_refused(&ex[1], "the server is stopping");
    ask(w, &ex[2]);
    is_refused(&ex[2], "the server is stopping");
    stop(w);
    sem_destroy(&gate);
    sem_destroy(&began);
}

static void scrapes_without_memory_get_503(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex, next;
    int nth = 1;

    (void)state;
    start(w, true);
    for (; nth < 100; nth++) {
        bt_alloc_fail_at(nth);
        ask(w, &ex);
        if (ex.n_ends == 0) {
            break; /* with the pool, which allocates too */
        }
        is_refused(&ex, "out of memory");
        assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
    }
    bt_alloc_fail_at(0);
    assert_in_range(nth, 5, 20);
    step(w);
    assert_int_equal(ex.n_ends, 1);

    /* Requests that wait for the next page get the error, too. */
    ask(w, &ex);
    ask(w, &next);
    while (bt_pool_n_jobs(w->front.pool) > 0) {
        struct pollfd fd = {.fd = bt_pool_fd(w->front.pool), .events = POLLIN};

        assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
        bt_alloc_fail_at((ex.n_ends == 0) ? 1 : 0);
        (void)bt_pool_next(w->front.pool);
        bt_alloc_fail_at(0);
    }
    assert_int_equal(ex.status, 200);
    is_refused(&next, "out of memory");
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(metrics_page_is_written_on_pool),
        BT_TEST(request_during_write_gets_next_page),
        BT_TEST(client_disconnect_during_write_frees_everything),
        BT_TEST(stopping_server_refuses_waiting_scrapes),
        BT_TEST(scrapes_without_memory_get_503),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
