/* SPDX-License-Identifier: Apache-2.0 */
/* How batches end. */
#include "tests/unit/router/batch/batch_fixture.h"

static void batch_that_expires_says_so_of_each_line(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", "") LINE("b", "") LINE("c\\n\\u0001", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    batch(w)->object->created_us -= UINT64_C(86400) * 1000000;
    settle(w);
    shows(w, "\"status\":\"expired\"");
    shows(w, "\"request_counts\":{\"total\":3,\"completed\":1,\"failed\":2}");
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    read_file(w, false, &ex);
    has(&ex, "\"custom_id\":\"a\"");
    read_file(w, true, &ex);
    assert_int_equal(times(ex.out, "\n"), 2);
    assert_int_equal(times(ex.out, "\"code\":\"batch_expired\""), 2);
    assert_int_equal(metric(w, "baton_batch_lines_total{result=\"expired\"}"),
                     2);
    has(&ex, "\"custom_id\":\"c\\n\\u0001\",\"response\":null");
    close_world(w);
    reopen(w, 1);
    shows(w, "\"request_counts\":{\"total\":3,\"completed\":1,\"failed\":2}");
    close_world(w);
    remove_folder();
}

/* Cancels the batch; the answer is there once that is kept. */
static void cancel(world_t *w, bt_exchange_t *ex)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/cancel", batch_path);
    send_to(w, ex, BT_HTTP_POST, path, "");
    assert_int_equal(ex->n_ends, 0);
    bt_turn_finish(&w->front.turn);
    assert_int_equal(ex->n_ends, 0);
    drain_pool(w);
    assert_int_equal(ex->n_ends, 1);
    assert_int_equal(ex->status, 200);
    has(ex, "\"status\":\"cancelling\"");
}

static void cancel_holds_for_the_next_process(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex, again;
    char path[128];

    (void)state;
    open_world(w, 2);
    begin(w, LINE("a", "") LINE("b", "") LINE("c", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    cancel(w, &ex);
    close_world(w); /* killed as soon as it was answered */
    reopen(w, 2);
    shows(w, "\"status\":\"cancelling\"");
    snprintf(path, sizeof(path), "%s/cancel", batch_path);
    call(w, &again, BT_HTTP_POST, path, ""); /* is kept: no need to wait */
    assert_int_equal(again.status, 200);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    settle(w);
    shows(w, "\"status\":\"cancelled\"");
    shows(w, "\"request_counts\":{\"total\":3,\"completed\":1,\"failed\":0}");
    close_world(w);
    remove_folder();
}

static void batch_fails_once_that_is_kept(void **state)
{
    world_t *w = &world;
    uint64_t at_s;

    (void)state;
    open_world(w, 2);
    begin_unchecked(w, "{}\n");
    run_one_job(w); /* the line was wrong */
    assert_int_equal(batch(w)->status, BT_BATCH_VALIDATING);
    run_one_job(w);
    assert_int_equal(batch(w)->status, BT_BATCH_FAILED);
    at_s = batch(w)->at_s[BT_BATCH_FAILED];
    close_world(w);
    reopen(w, 2);
    assert_int_equal(batch(w)->status, BT_BATCH_FAILED);
    assert_int_equal(batch(w)->at_s[BT_BATCH_FAILED], at_s);
    shows(w, "\"code\":\"invalid_custom_id\"");
    close_world(w);
    remove_folder();
}

/* Also while that a line is wrong is being kept. */
static void cancel_before_a_failure_is_kept_holds(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    char path[128];

    (void)state;
    open_world(w, 2);
    begin_unchecked(w, "{}\n");
    run_one_job(w);
    snprintf(path, sizeof(path), "%s/cancel", batch_path);
    send_to(w, &ex, BT_HTTP_POST, path, "");
    settle(w);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.status, 200);
    shows(w, "\"status\":\"cancelled\"");
    shows(w, "\"failed_at\":null");
    close_world(w);
    reopen(w, 2);
    shows(w, "\"status\":\"cancelled\"");
    shows(w, "\"failed_at\":null");
    close_world(w);
    remove_folder();
}

/* Also while the lines are checked, and by two clients. */
static void cancel_of_an_unchecked_batch_holds(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex[2];
    char path[128];

    (void)state;
    open_world(w, 2);
    begin_unchecked(w, LINE("a", ""));
    snprintf(path, sizeof(path), "%s/cancel", batch_path);
    for (int i = 0; i < 2; i++) {
        send_to(w, &ex[i], BT_HTTP_POST, path, "");
    }
    drain_pool(w);
    assert_int_equal(ex[0].n_ends + ex[1].n_ends, 0);
    bt_turn_finish(&w->front.turn);
    drain_pool(w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ex[i].n_ends, 1);
        has(&ex[i], "\"status\":\"cancelling\"");
    }
    close_world(w);
    reopen(w, 2);
    settle(w);
    shows(w, "\"status\":\"cancelled\"");
    close_world(w);
    remove_folder();
}

static void cancelled_batch_keeps_its_answers(void **state)
{
    char path[128];
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 2);
    begin(w, LINE("a", "") LINE("b", "") LINE("c", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    snprintf(path, sizeof(path), "%s/cancel", batch_path);
    cancel(w, &ex);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    settle(w);
    shows(w, "\"status\":\"cancelled\"");
    shows(w, "\"error_file_id\":null");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 1);
    call(w, &ex, BT_HTTP_POST, path, "");
    assert_int_equal(ex.status, 400);
    has(&ex, "the batch is cancelled");
    close_world(w);
    remove_folder();
}

static void input_that_is_gone_ends_the_batch(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    char path[96];

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", "") LINE("b", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    snprintf(path, sizeof(path), "/v1/files/%s", input_id);
    call(w, &ex, BT_HTTP_DELETE, path, "");
    assert_int_equal(ex.status, 200);
    close_world(w);
    reopen(w, 1);
    settle(w);
    shows(w, "\"status\":\"failed\"");
    shows(w, "\"code\":\"invalid_input_file\"");
    read_file(w, false, &ex); /* what there was is kept */
    assert_int_equal(times(ex.out, "\n"), 1);
    close_world(w);
    remove_folder();
}

/* Without memory to say why, the batch does not end. */
static void batch_never_fails_without_a_reason(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    char path[96];

    (void)state;
    open_world(w, 0);
    begin(w, LINE("a", ""));
    close_world(w);
    reopen(w, 0);
    snprintf(path, sizeof(path), "/v1/files/%s", input_id);
    call(w, &ex, BT_HTTP_DELETE, path, "");
    assert_int_equal(ex.status, 200);
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        bt_batch_look(batch(w), bt_now_us());
        assert_int_equal(bt_alloc_fail_at(0), 0);
        shows(w, "\"status\":\"in_progress\"");
    }
    batch(w)->wait_until_us = 0;
    settle(w);
    shows(w, "\"status\":\"failed\"");
    shows(w, "\"code\":\"invalid_input_file\"");
    close_world(w);
    remove_folder();
}

static void results_beyond_the_space_end_the_batch(void **state)
{
    world_t *w = &world;
    bt_store_put_t *put;

    (void)state;
    open_world(w, 1); /* 1 MiB in all */
    begin(w, LINE("a", ""));
    assert_int_equal(bt_store_put_begin(w->front.store, BT_STORE_FILE, "",
                                        (1u << 20) - 4 * BT_STORE_OBJECT_BYTES,
                                        bt_unix_us(), &put),
                     BT_OK);
    assert_int_equal(bt_store_charge_journal(w->front.store, batch(w)->object,
                                             BT_STORE_OBJECT_BYTES - 600),
                     BT_OK);
    bt_store_release_journal(w->front.store, batch(w)->object);
    assert_null(bt_store_put_end(put));
    assert_int_equal(
        bt_store_put_begin(w->front.store, BT_STORE_FILE, "",
                           (1u << 20) - 3 * BT_STORE_OBJECT_BYTES - 800,
                           bt_unix_us(), &put),
        BT_OK);
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"status\":\"failed\"");
    shows(w, "\"code\":\"storage_limit\"");
    assert_null(bt_store_put_end(put));
    close_world(w);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(batch_that_expires_says_so_of_each_line),
        BT_TEST(cancel_holds_for_the_next_process),
        BT_TEST(cancel_of_an_unchecked_batch_holds),
        BT_TEST(batch_fails_once_that_is_kept),
        BT_TEST(cancel_before_a_failure_is_kept_holds),
        BT_TEST(cancelled_batch_keeps_its_answers),
        BT_TEST(input_that_is_gone_ends_the_batch),
        BT_TEST(batch_never_fails_without_a_reason),
        BT_TEST(results_beyond_the_space_end_the_batch),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
