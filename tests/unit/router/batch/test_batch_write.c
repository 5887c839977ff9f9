/* SPDX-License-Identifier: Apache-2.0 */
/* The files of results, a slice at a time. */
#include "tests/unit/router/batch/batch_fixture.h"

#define N_LINES 3000u

static unsigned n_run;

static void run_other(bt_pool_job_t *job)
{
    (void)job;
    n_run++;
}

/* Begins a batch of long lines, which are answered at once if the body is too
 * large. */
static void begin_long(world_t *w, unsigned body_chars)
{
    static char text[N_LINES * 1500];
    size_t n = 0;

    for (unsigned i = 0; i < N_LINES; i++) {
        n += (size_t)snprintf(
            text + n, sizeof(text) - n,
            "{\"custom_id\":\"%0500u\",\"method\":\"POST\","
            "\"url\":\"/v1/completions\",\"body\":{\"x\":\"%0*u"
            "\"}}\n",
            i, (int)body_chars, 7u);
    }
    assert_true(n < sizeof(text));
    store_limit = 64u << 20;
    open_world(w, 1);
    w->config.max_body_bytes = 400;
    begin(w, text);
    while (batch(w)->status == BT_BATCH_VALIDATING) {
        settle(w);
    }
}

/* Counts the slices in which the files are written. */
static unsigned count_slices(world_t *w)
{
    bt_pool_job_t other = {.run = run_other, .done = holder_done};
    unsigned n = 0;

    while (batch(w)->status != BT_BATCH_FINALIZING) {
        drain_pool(w);
        bt_turn_finish(&w->front.turn);
    }
    drain_pool(w);
    while (!batch(w)->has_job) {
        bt_batches_tick(w->door.batches, bt_now_us());
    }
    n_run = 0;
    while (batch(w)->has_job) {
        bt_pool_post(w->front.pool, &other, BT_POOL_FILES);
        run_one_job(w);
        n++;
        run_one_job(w);
        assert_int_equal(n_run, n);
    }
    settle(w);
    return n;
}

static uint64_t bytes_of(world_t *w, const char *id)
{
    const bt_stored_t *object =
        bt_store_find(w->front.store, BT_STORE_FILE, "", id);

    assert_non_null(object);
    return object->bytes;
}

static void long_results_are_written_in_slices(void **state)
{
    world_t *w = &world;
    unsigned n;

    (void)state;
    begin_long(w, 500);
    n = count_slices(w);
    assert_int_equal(batch(w)->status, BT_BATCH_COMPLETED);
    assert_int_equal(batch(w)->n_failed, N_LINES);
    assert_true(n >= 3);
    assert_int_equal(n, bytes_of(w, batch(w)->error_id) / BT_BATCH_SLICE_BYTES +
                            1);
    close_world(w);
    remove_folder();
    store_limit = 1u << 20;
}

static void lines_that_expire_are_written_in_slices(void **state)
{
    world_t *w = &world;

    (void)state;
    begin_long(w, 300);
    w->config.batch_lines_in_flight = 0;
    batch(w)->object->created_us -= UINT64_C(86400) * 1000000;
    assert_true(count_slices(w) >= 3);
    assert_int_equal(batch(w)->status, BT_BATCH_EXPIRED);
    assert_int_equal(batch(w)->n_failed, N_LINES);
    assert_true(bytes_of(w, batch(w)->error_id) > N_LINES * 600u);
    close_world(w);
    remove_folder();
    store_limit = 1u << 20;
}

/* As if it had never begun. */
static void server_that_stops_between_slices_writes_again(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    begin_long(w, 500);
    while (batch(w)->status != BT_BATCH_FINALIZING) {
        drain_pool(w);
        bt_turn_finish(&w->front.turn);
    }
    drain_pool(w);
    while (!batch(w)->has_job) {
        bt_batches_tick(w->door.batches, bt_now_us());
    }
    run_one_job(w);
    assert_true(batch(w)->has_job);
    close_world(w);
    reopen(w, 1);
    while (!bt_batch_has_ended(batch(w))) {
        settle(w);
    }
    assert_int_equal(batch(w)->status, BT_BATCH_COMPLETED);
    assert_int_equal(batch(w)->n_failed, N_LINES);
    call(w, &ex, BT_HTTP_GET, "/v1/files", "");
    assert_int_equal(times(ex.out, "\"id\":\"file-"), 2); /* and the input */
    close_world(w);
    remove_folder();
    store_limit = 1u << 20;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(long_results_are_written_in_slices),
        BT_TEST(lines_that_expire_are_written_in_slices),
        BT_TEST(server_that_stops_between_slices_writes_again),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
