/* SPDX-License-Identifier: Apache-2.0 */
/* How the lines of an input are checked. */
#include "tests/unit/router/batch/batch_fixture.h"

/* Clients see what the check found once it is done: nothing that the other
 * thread has is read. */
static void check_shows_nothing_until_it_is_done(void **state)
{
    world_t *w = &world;

    (void)state;
    for (int i = 0; i < 2; i++) {
        open_world(w, 2);
        begin_unchecked(w, (i == 0) ? "{}\n" : LINE("a", "") LINE("b", ""));
        hold_files(w); /* the check has run; nobody knows yet */
        assert_null(batch(w)->errors);
        assert_int_equal(batch(w)->n_lines, 0);
        assert_int_equal(batch(w)->id_bytes, 0);
        release_files();
        run_one_job(w);
        assert_int_equal(batch(w)->errors != NULL, i == 0);
        assert_int_equal(batch(w)->n_lines, (i == 0) ? 0 : 2);
        assert_int_equal(batch(w)->id_bytes, (i == 0) ? 0 : 2);
        settle(w);
        close_world(w);
        remove_folder();
    }
}

static void check_ends_at_the_last_error_that_is_told(void **state)
{
    static char text[1 << 16];
    world_t *w = &world;
    bt_exchange_t ex;
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "{%d}\n", i);
    }
    open_world(w, 2);
    begin(w, text);
    call(w, &ex, BT_HTTP_GET, batch_path, "");
    has(&ex, "\"status\":\"failed\"");
    assert_int_equal(times(ex.out, "\"code\":\"invalid_json_line\""), 16);
    has(&ex, "\"line\":16}");
    assert_int_equal(batch(w)->next_number, 16);
    close_world(w);
    remove_folder();
}

static void lines_of_one_id_are_told(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 2);
    begin(w, LINE("a", "") LINE("b", "") "\n" LINE("a", ""));
    call(w, &ex, BT_HTTP_GET, batch_path, "");
    has(&ex, "\"status\":\"failed\"");
    has(&ex, "\"code\":\"duplicate_custom_id\"");
    has(&ex, "\"line\":4}");
    close_world(w);
    remove_folder();
}

/* Counts lines until there are so many bytes. */
static uint32_t fill(char *text, size_t bytes)
{
    uint32_t n = 0;
    size_t at = 0;

    while (at < bytes) {
        at += (size_t)snprintf(text + at, 400, LINE("%u", ",\"x\":\"%0200u\""),
                               n, n);
        n++;
    }
    return n;
}

static unsigned n_run;

static void run_other(bt_pool_job_t *job)
{
    (void)job;
    n_run++;
}

/* Other jobs of the thread have their turn after each slice. */
static void long_file_is_checked_in_slices(void **state)
{
    static char text[(4u << 20) + 1000];
    const uint32_t n = fill(text, 4u << 20);
    bt_pool_job_t other = {.run = run_other, .done = holder_done};
    world_t *w = &world;

    (void)state;
    store_limit = 64u << 20;
    open_world(w, 0);
    begin_unchecked(w, text);
    for (unsigned i = 1; i <= 3; i++) {
        bt_pool_post(w->front.pool, &other, BT_POOL_FILES);
        run_one_job(w); /* a slice */
        assert_int_equal(batch(w)->n_lines, 0);
        assert_true(batch(w)->has_job);
        run_one_job(w);
        assert_int_equal(n_run, i);
    }
    drain_pool(w);
    assert_false(batch(w)->status == BT_BATCH_VALIDATING);
    assert_int_equal(batch(w)->n_lines, n);
    close_world(w);
    remove_folder();
    store_limit = 1u << 20;
}

/* A cancel does not wait for the rest of the file. */
static void check_ends_when_the_batch_is_cancelled(void **state)
{
    static char text[(4u << 20) + 1000];
    world_t *w = &world;
    bt_exchange_t ex;
    char path[128];

    (void)state;
    (void)fill(text, 4u << 20);
    store_limit = 64u << 20;
    open_world(w, 2);
    begin_unchecked(w, text);
    snprintf(path, sizeof(path), "%s/cancel", batch_path);
    send_to(w, &ex, BT_HTTP_POST, path, "");
    run_one_job(w);
    assert_false(batch(w)->has_job);
    assert_null(batch(w)->check);
    settle(w);
    shows(w, "\"status\":\"cancelled\"");
    close_world(w);
    remove_folder();
    store_limit = 1u << 20;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(check_shows_nothing_until_it_is_done),
        BT_TEST(check_ends_at_the_last_error_that_is_told),
        BT_TEST(lines_of_one_id_are_told),
        BT_TEST(long_file_is_checked_in_slices),
        BT_TEST(check_ends_when_the_batch_is_cancelled),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
