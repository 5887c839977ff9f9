/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch is after its process was killed. */
#include "tests/unit/router/batch/batch_fixture.h"

/* What is in the journal is not asked again; what is not, is. */
static void restarted_server_runs_lines_without_answer_only(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 8);
    begin(w, LINE("a", "") LINE("b", "") LINE("c", ""));
    answer(w, 1, "One.", BT_FINISH_STOP);
    settle(w);
    answer(w, 0, "Lost", BT_FINISH_STOP); /* not written when it is killed */
    close_world(w);
    reopen(w, 8);
    shows(w, "\"status\":\"in_progress\"");
    shows(w, "\"completed\":1,");
    settle(w);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 2);
    answer(w, 0, "Two.", BT_FINISH_STOP);
    answer(w, 1, "Tri.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"status\":\"completed\"");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 3);
    for (const char *id = "abc"; *id != '\0'; id++) {
        const char part[] = {'_', 'i', 'd', '"', ':', '"', *id, '"', '\0'};

        assert_int_equal(times(ex.out, part), 1);
    }
    has(&ex, "\"text\":\"One\"");
    assert_null(strstr(ex.out, "Los"));
    close_world(w);
    remove_folder();
}

/* Open descriptors of files in the store. */
static unsigned n_open(void)
{
    char name[64], path[256];
    unsigned n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        ssize_t len;

        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        len = readlink(name, path, sizeof(path) - 1);
        if (len > 0) {
            path[len] = '\0';
            n += ((strstr(path, folder) != NULL) &&
                  ((strstr(path, "/file-") != NULL) ||
                   (strstr(path, "/batch_") != NULL)))
                     ? 1
                     : 0;
        }
    }
    return n;
}

static void wait_idle(world_t *w)
{
    bt_batches_tick(w->door.batches, bt_now_us() + BT_BATCH_IDLE_US);
    drain_pool(w);
}

/* Its files are opened again where they were. */
static void waiting_batch_holds_no_files(void **state)
{
    static char text[8 * BT_STORE_CHUNK_BYTES];
    const unsigned n_lines = 3 * BT_BATCH_AHEAD;
    world_t *w = &world;
    bt_exchange_t ex;
    size_t at = 0;

    (void)state;
    for (unsigned i = 0; i < n_lines; i++) {
        at +=
            (size_t)snprintf(text + at, sizeof(text) - at,
                             "{\"custom_id\":\"line%u\",\"method\":\"POST\","
                             "\"url\":\"/v1/completions\",\"body\":{\"model\":"
                             "\"tiny\",\"prompt\":\"Hi\",\"max_tokens\":4}}"
                             "%*s\n",
                             i, 3000, "");
    }
    assert_true(at < sizeof(text));
    store_limit = 4u << 20;
    open_world(w, 0);
    begin(w, text);
    assert_int_equal(batch(w)->n_ready, BT_BATCH_AHEAD);
    assert_true(n_open() > 0);
    wait_idle(w);
    assert_int_equal(n_open(), 0);
    close_world(w);
    reopen(w, 0); /* nor does it after a restart */
    assert_int_equal(n_open(), 0);
    settle(w);
    wait_idle(w);
    assert_int_equal(n_open(), 0);
    for (unsigned i = 0; i < n_lines; i++) {
        w->config.batch_lines_in_flight = 1;
        settle(w);
        w->config.batch_lines_in_flight = 0;
        assert_int_equal(batch(w)->n_running, 1);
        wait_idle(w); /* not while a line runs */
        answer(w, 0, "Yes.", BT_FINISH_STOP);
        w->n_sent = 0;
        settle(w);
        wait_idle(w);
        assert_int_equal(n_open(), 0);
    }
    shows(w, "\"status\":\"completed\"");
    shows(w, "\"request_counts\":{\"total\":96,\"completed\":96,\"failed\":0}");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), n_lines);
    close_world(w);
    remove_folder();
}

/* What was read to its end is closed at once. */
static void input_is_closed_once_it_is_read(void **state)
{
    world_t *w = &world;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", "") LINE("b", ""));
    assert_int_equal(batch(w)->n_running, 1);
    assert_true(batch(w)->is_read);
    assert_int_equal(n_open(), 1); /* the journal */
    close_world(w);
    remove_folder();
}

static void each_step_of_the_end_survives_a_kill(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    bt_turn_finish(&w->front.turn);
    drain_pool(w); /* the answer is in the journal */
    bt_turn_finish(&w->front.turn);
    bt_turn_finish(&w->front.turn);
    assert_int_equal(batch(w)->status, BT_BATCH_FINALIZING);
    close_world(w); /* the files may be there, the last state is not */
    reopen(w, 1);
    settle(w);
    shows(w, "\"status\":\"completed\"");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 1);
    call(w, &ex, BT_HTTP_GET, "/v1/files", "");
    assert_int_equal(times(ex.out, "\"id\":\"file-"), 2); /* and the input */
    close_world(w);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(restarted_server_runs_lines_without_answer_only),
        BT_TEST(waiting_batch_holds_no_files),
        BT_TEST(input_is_closed_once_it_is_read),
        BT_TEST(each_step_of_the_end_survives_a_kill),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
