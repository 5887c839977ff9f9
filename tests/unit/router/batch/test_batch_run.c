/* SPDX-License-Identifier: Apache-2.0 */
/* Lines as requests. */
#include "tests/unit/router/batch/batch_fixture.h"

static void lines_become_requests_and_answers_lines(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 4);
    begin(w, LINE("a", "") LINE("b", ",\"temperature\":-1") LINE("c", ""));
    shows(w, "\"status\":\"in_progress\"");
    assert_int_equal(request(w, 0)->priority, 0);
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    answer(w, 1, "No.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"status\":\"completed\"");
    shows(w, "\"request_counts\":{\"total\":3,\"completed\":2,\"failed\":1}");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 2);
    assert_int_equal(times(ex.out, "\"custom_id\":\"a\""), 1);
    assert_int_equal(times(ex.out, "\"custom_id\":\"c\""), 1);
    has(&ex, "\"status_code\":200");
    has(&ex, "\"text\":\"Yes\"");
    read_file(w, true, &ex);
    assert_int_equal(times(ex.out, "\n"), 1);
    has(&ex, "\"custom_id\":\"b\",\"response\":{\"status_code\":400,");
    has(&ex, "\"param\":\"temperature\"");
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    close_world(w);
    /* Also for the next process. */
    reopen(w, 4);
    shows(w, "\"status\":\"completed\"");
    shows(w, "\"request_counts\":{\"total\":3,\"completed\":2,\"failed\":1}");
    read_file(w, true, &ex);
    close_world(w);
    remove_folder();
}

static void lines_in_flight_are_bounded(void **state)
{
    world_t *w = &world;

    (void)state;
    open_world(w, 2);
    begin(w, LINE("a", "") LINE("b", "") LINE("c", ""));
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 2);
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 2);
    shows(w, "\"completed\":1,");
    close_world(w);
    remove_folder();
}

static void refusal_of_a_busy_server_is_tried_again(void **state)
{
    world_t *w = &world;
    bt_batch_t *b;

    (void)state;
    open_world(w, 4);
    w->config.max_concurrent_requests = 1;
    begin(w, LINE("a", "") LINE("b", ""));
    b = batch(w);
    assert_int_equal(b->n_running, 1);
    assert_int_equal(b->n_ready, 1);
    assert_true(b->wait_until_us > bt_now_us());
    assert_int_equal(metric(w, "baton_batch_lines_total{result=\"retried\"}"),
                     1);
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    assert_int_equal(b->n_running, 0); /* a second must pass */
    b->wait_until_us = 0;
    settle(w);
    assert_int_equal(b->n_running, 1);
    answer(w, 1, "Yes.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"request_counts\":{\"total\":2,\"completed\":2,\"failed\":0}");
    close_world(w);
    remove_folder();
}

/* Begins the line of the batch again. */
static void try_again(world_t *w)
{
    batch(w)->wait_until_us = 0;
    w->n_sent = 0;
    settle(w);
    assert_int_equal(batch(w)->n_running, 1);
}

static void refused_with(world_t *w, const char *status)
{
    bt_exchange_t ex;

    settle(w);
    shows(w, "\"status\":\"completed\"");
    shows(w, "\"request_counts\":{\"total\":1,\"completed\":0,\"failed\":1}");
    read_file(w, true, &ex);
    has(&ex, status);
    assert_int_equal(metric(w, "baton_batch_lines_total{result=\"retried\"}"),
                     2);
}

/* A line cannot keep workers busy for a day. */
static void line_that_is_never_done_in_time_fails(void **state)
{
    world_t *w = &world;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", ""));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(batch(w)->n_running, 1);
        assert_int_equal(count(w, BT_MSG_REQUEST), 2);
        bt_core_tick(w->core, bt_now_us() + 60000000);
        settle(w);
        if (i < 2) {
            shows(w, "\"status\":\"in_progress\"");
            ended(w, 0);
            try_again(w);
        }
    }
    refused_with(w, "\"response\":{\"status_code\":504,");
    close_world(w);
    remove_folder();
}

/* Nor can it end all of them, one after the other. */
static void line_whose_workers_are_lost_fails(void **state)
{
    world_t *w = &world;
    char name[32];

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", ""));
    bt_test_expect_log_lines(9);
    for (int i = 1; i <= 9; i++) {
        snprintf(name, sizeof(name), "decode-%d", i);
        bt_core_worker_down(w->core, w->d, "killed", bt_now_us());
        w_join(w, name, BT_ROLE_DECODE, &w->d);
        settle(w);
        if ((i == 3) || (i == 6)) {
            shows(w, "\"status\":\"in_progress\"");
            try_again(w);
        }
    }
    refused_with(w, "\"response\":{\"status_code\":503,");
    close_world(w);
    remove_folder();
}

/* What no worker had is tried again however often. */
static void tries_without_workers_do_not_count(void **state)
{
    world_t *w = &world;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", ""));
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, w->d, "killed", bt_now_us());
    for (int i = 0; i < 5; i++) {
        assert_int_equal(batch(w)->n_running, 1);
        bt_core_tick(w->core,
                     bt_now_us() + ((i % 2 == 0) ? 1000000 : 60000000));
        settle(w);
        shows(w, "\"status\":\"in_progress\"");
        try_again(w);
    }
    w_join(w, "decode-1", BT_ROLE_DECODE, &w->d);
    settle(w);
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"request_counts\":{\"total\":1,\"completed\":1,\"failed\":0}");
    close_world(w);
    remove_folder();
}

/* ---- long answers ---- */

/* A batch of one line, whose answer is with the pool. */
static void begin_written(world_t *w)
{
    open_world(w, 1);
    w->door.batches->inline_bytes = 0;
    begin(w, LINE("a", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    assert_int_equal(bt_pool_n_jobs(w->front.pool), 1);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    assert_int_equal(batch(w)->n_running, 1);
    assert_true(bt_list_empty(&batch(w)->results));
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
}

/* The event loop is free for others meanwhile. */
static void long_answer_is_written_by_the_pool(void **state)
{
    static char texts[2][8192];
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    for (int i = 0; i < 2; i++) {
        if (i == 0) {
            begin_written(w);
        } else {
            open_world(w, 1);
            begin(w, LINE("a", ""));
            answer(w, 0, "Yes.", BT_FINISH_STOP);
            assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
        }
        settle(w);
        shows(w, "\"status\":\"completed\"");
        read_file(w, false, &ex);
        snprintf(texts[i], sizeof(texts[i]), "%s",
                 strstr(ex.out, "\"object\":\"text_completion\""));
        assert_int_equal(times(ex.out, "\n"), 1);
        has(&ex, "\"custom_id\":\"a\",\"response\":{\"status_code\":200,");
        assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
        assert_int_equal(w->front.answers.used, 0);
        close_world(w);
        remove_folder();
    }
    *strstr(texts[0], "\"created\"") = *strstr(texts[1], "\"created\"") = 0;
    assert_string_equal(texts[0], texts[1]);
}

static void cancel_during_write_drops_the_answer(void **state)
{
    char path[128];
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    begin_written(w);
    snprintf(path, sizeof(path), "%s/cancel", batch_path);
    send_to(w, &ex, BT_HTTP_POST, path, "");
    assert_int_equal(batch(w)->n_running, 0);
    settle(w);
    shows(w, "\"status\":\"cancelled\"");
    shows(w, "\"request_counts\":{\"total\":1,\"completed\":0,\"failed\":0}");
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    assert_int_equal(w->front.answers.used, 0);
    close_world(w);
    remove_folder();
}

/* Whether or not the pool has begun with it; the line runs again. */
static void stop_during_write_loses_no_line(void **state)
{
    world_t *w = &world;

    (void)state;
    begin_written(w);
    close_world(w);
    reopen(w, 1);
    settle(w);
    shows(w, "\"request_counts\":{\"total\":1,\"completed\":0,\"failed\":0}");
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"request_counts\":{\"total\":1,\"completed\":1,\"failed\":0}");
    /* The batches are gone before the pool. */
    close_world(w);
    remove_folder();
    begin_written(w);
    bt_batches_destroy(w->door.batches);
    w->door.batches = NULL;
    close_world(w);
    remove_folder();
}

/* An answer that the budget cannot hold now is made again; one that it never
 * holds is refused. */
static void answer_without_memory_is_made_again_or_refused(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    for (int i = 0; i < 2; i++) {
        open_world(w, 1);
        w->door.batches->inline_bytes = 0;
        begin(w, LINE("a", ""));
        w->front.answers.limit = (i == 0) ? (1u << 20) : 1024;
        bt_budget_take(&w->front.answers, (i == 0) ? (1u << 20) : 0);
        answer(w, 0, "Yes.", BT_FINISH_STOP);
        settle(w);
        assert_int_equal(
            metric(w, "baton_batch_lines_total{result=\"retried\"}"), 1 - i);
        if (i == 0) {
            shows(w, "\"status\":\"in_progress\"");
            bt_budget_give(&w->front.answers, 1u << 20);
        } else {
            shows(w, "\"status\":\"completed\"");
            read_file(w, true, &ex);
            has(&ex, "\"response\":{\"status_code\":413,");
        }
        close_world(w);
        remove_folder();
    }
}

/* Also those that are tried again and given up; their texts are not in it. */
static void each_try_of_a_line_is_counted_and_logged(void **state)
{
    char path[] = "/tmp/baton-test-access-XXXXXX", text[8192], want[256];
    const int fd = mkstemp(path);
    world_t *w = &world;
    ssize_t n;

    (void)state;
    assert_true(fd >= 0);
    access_path = path;
    open_world(w, 2);
    begin(w, LINE("secret-a", "") LINE("b", ",\"temperature\":-1") LINE("c", "")
                 LINE("d", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    assert_int_equal(batch(w)->n_running, 2);
    assert_int_equal(metric(w, "baton_batch_lines_total{result=\"completed\"}"),
                     1);
    assert_int_equal(metric(w, "baton_batch_lines_total{result=\"failed\"}"),
                     1);
    close_world(w); /* the others are given up */
    access_path = "";
    n = read(fd, text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_int_equal(times(text, " method=BATCH "), 4);
    snprintf(want, sizeof(want),
             " client=- method=BATCH route=/v1/completions path=%s status=200 "
             "model=tiny prompt=2 output=4 ",
             batch_path);
    assert_int_equal(times(text, want), 1);
    assert_int_equal(times(text, " finish=stop "), 1);
    assert_int_equal(times(text, " status=400 "), 1);
    assert_int_equal(times(text, " status=499 "), 2);
    assert_null(strstr(text, "secret-a"));
    assert_null(strstr(text, "Yes"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(close(fd), 0);
    remove_folder();
}

/* Of its body, or of all that is around it; others run. */
static void line_that_is_too_large_is_answered_400(void **state)
{
    static char text[20000];
    world_t *w = &world;
    bt_exchange_t ex;
    int n;

    (void)state;
    open_world(w, 4);
    w->config.max_body_bytes = 1000;
    n = snprintf(text, sizeof(text),
                 "%s{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/"
                 "completions\",\"body\":{\"prompt\":\"%0*d\"}}\n"
                 "{\"custom_id\":\"c\",\"x\":\"%0*d\"}\n",
                 LINE("a", ""), 1000, 7, 10000, 7);
    assert_true(n < (int)sizeof(text));
    begin(w, text);
    shows(w, "\"status\":\"in_progress\"");
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 1);
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"status\":\"completed\"");
    shows(w, "\"request_counts\":{\"total\":3,\"completed\":1,\"failed\":2}");
    read_file(w, true, &ex);
    assert_int_equal(times(ex.out, "\n"), 2);
    has(&ex, "\"custom_id\":\"b\",\"response\":{\"status_code\":400,");
    has(&ex, "\"custom_id\":\"c\",\"response\":{\"status_code\":400,");
    assert_int_equal(times(ex.out, "--max-body-bytes"), 2);
    close_world(w);
    remove_folder();
}

static void batches_are_counted_by_status(void **state)
{
    double cells[BT_PC_N] = {[BT_PC_BATCHES_FAILED] = 7};
    world_t *w = &world;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    begin(w, LINE("b", ""));
    bt_batches_count(w->door.batches, cells);
    for (int i = BT_PC_BATCHES; i < BT_PC_BATCHES_END; i++) {
        const bool is_one =
            (i == BT_PC_BATCHES_IN_PROGRESS) || (i == BT_PC_BATCHES_COMPLETED);

        assert_int_equal(cells[i], is_one ? 1 : 0);
    }
    close_world(w);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(lines_become_requests_and_answers_lines),
        BT_TEST(lines_in_flight_are_bounded),
        BT_TEST(refusal_of_a_busy_server_is_tried_again),
        BT_TEST(line_that_is_never_done_in_time_fails),
        BT_TEST(line_whose_workers_are_lost_fails),
        BT_TEST(tries_without_workers_do_not_count),
        BT_TEST(long_answer_is_written_by_the_pool),
        BT_TEST(cancel_during_write_drops_the_answer),
        BT_TEST(stop_during_write_loses_no_line),
        BT_TEST(answer_without_memory_is_made_again_or_refused),
        BT_TEST(each_try_of_a_line_is_counted_and_logged),
        BT_TEST(line_that_is_too_large_is_answered_400),
        BT_TEST(batches_are_counted_by_status),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
