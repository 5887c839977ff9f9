/* SPDX-License-Identifier: Apache-2.0 */
/* Models that come while others are served: their files are read by the pool,
 * and what was wanted last is what is served. */
#include <poll.h>
#include <semaphore.h>

#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define PATIENCE_MS 60000

static void step(world_t *w)
{
    const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;

    while (!bt_pool_next(w->front.pool)) {
        struct pollfd fd = {.fd = bt_pool_fd(w->front.pool), .events = POLLIN};

        assert_true(bt_now_ms() < end_ms);
        assert_int_not_equal(poll(&fd, 1, PATIENCE_MS), 0);
    }
}

static void want(world_t *w, const char *name, const char *path, bool unloaded)
{
    bt_loads_want(&w->front.loads, name, path, unloaded);
}

static bt_served_t *named(const world_t *w, const char *name)
{
    return bt_registry_named(&w->front.models, name);
}

static void model_is_loaded_on_pool(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    want(w, "other", other_path, false);
    want(w, "other", other_path, false); /* said again */
    assert_true(bt_loads_any(&w->front.loads));
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 1);
    refused(w, COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"other\"}", 404,
            "this is 'tiny'");
    post(w, &ex, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(ex.status, 200);

    step(w);
    assert_false(bt_loads_any(&w->front.loads));
    assert_int_equal(w->front.loads.n_ended, 1);
    assert_non_null(named(w, "other"));
    assert_non_null(named(w, "other")->chat); /* --chat-template */
    send_to(w, &ex, BT_HTTP_GET, "/v1/models", "");
    has(&ex, "\"id\":\"other\"");
    want(w, "other", other_path, false);
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
    stop(w);
}

static void last_requested_model_state_wins(void **state)
{
    world_t *w = &world;

    (void)state;
    start(w, true);
    want(w, "other", other_path, true); /* never loaded */
    assert_false(bt_loads_any(&w->front.loads));
    want(w, "other", other_path, false);
    want(w, "other", other_path, true);
    step(w);
    assert_true(named(w, "other")->unloaded);
    refused(w, COMPLETIONS, "{\"prompt\":\"Hi\",\"model\":\"other\"}", 503,
            "model 'other' is unloaded");
    want(w, "other", other_path, false);
    assert_false(named(w, "other")->unloaded);
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
    want(w, "tiny", model_path, true);
    assert_true(w->served->unloaded);
    stop(w);
}

static void failed_load_is_reported_and_can_be_retried(void **state)
{
    world_t *w = &world;

    (void)state;
    start(w, true);
    bt_test_expect_log_lines(4);
    for (unsigned i = 1; i <= 2; i++) {
        want(w, "none", "/nowhere/at/all.gguf", false);
        step(w);
        assert_int_equal(w->front.loads.n_ended, i);
        assert_null(named(w, "none"));
    }
    want(w, "again", model_path, false); /* the file of tiny */
    step(w);
    assert_null(named(w, "again"));
    assert_false(bt_loads_any(&w->front.loads));
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 1); /* freed there */
    step(w);
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
    bt_alloc_fail_at(1);
    want(w, "other", other_path, false);
    bt_alloc_fail_at(0);
    assert_false(bt_loads_any(&w->front.loads));
    want(w, "other", other_path, false);
    step(w);
    assert_non_null(named(w, "other"));
    stop(w);
}

typedef struct held {
    bt_pool_job_t job;
    sem_t began, gate;
} held_t;

static void hold(bt_pool_job_t *job)
{
    held_t *held = BT_CONTAINER_OF(job, held_t, job);

    sem_post(&held->began);
    sem_wait(&held->gate);
}

static void held_done(bt_pool_job_t *job)
{
    (void)job;
}

/* One is before its turn, one is read, and one was read. */
static void stopping_server_drops_loading_models(void **state)
{
    world_t *w = &world;
    held_t held = {.job = {.run = hold, .done = held_done}};

    (void)state;
    sem_init(&held.began, 0, 0);
    sem_init(&held.gate, 0, 0);
    start(w, true);
    bt_pool_post(w->front.pool, &held.job, BT_POOL_FILES);
    sem_wait(&held.began);
    want(w, "other", other_path, false);
    sem_post(&held.gate);
    stop(w);

    start(w, true);
    want(w, "other", other_path, false);
    while (poll(&(struct pollfd){bt_pool_fd(w->front.pool), POLLIN, 0}, 1,
                PATIENCE_MS) != 1) {
    }
    stop(w);
    sem_destroy(&held.gate);
    sem_destroy(&held.began);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(model_is_loaded_on_pool),
        BT_TEST(last_requested_model_state_wins),
        BT_TEST(failed_load_is_reported_and_can_be_retried),
        BT_TEST(stopping_server_drops_loading_models),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
