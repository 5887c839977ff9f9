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

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(lines_become_requests_and_answers_lines),
        BT_TEST(lines_in_flight_are_bounded),
        BT_TEST(refusal_of_a_busy_server_is_tried_again),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
