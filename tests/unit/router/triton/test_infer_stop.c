/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tensors that end early, since their client says so by their id. */
#include "tests/unit/router/triton/infer_fixture.h"

#define STOP_7 \
    "{\"id\":\"7\",\"inputs\":[" T("stop", "BOOL", "[1,1]", "[true]") "]}"

static void stop_request_ends_running_request(void **state)
{
    world_t *w = &world;
    stream_t s = {0};
    stream_t stopping = {0};

    (void)state;
    start(w, true);
    begin(w, &s, "tensorrt_llm", "a",
          "{\"id\":\"7\",\"inputs\":[" T("input_ids", "INT32", "[1,1]",
                                         "[5]") "]}");
    tokens(w, w->p, 0, 0, "!", BT_FINISH_NONE);
    begin(w, &stopping, "tensorrt_llm", "b", STOP_7); /* somebody else */
    assert_int_equal(stopping.n_finished, 1);
    assert_int_equal(s.n_finished, 0);
    begin(w, &stopping, "tensorrt_llm", "a", STOP_7);
    assert_int_equal(stopping.n_finished, 1);
    assert_non_null(strstr(stopping.last, "\"outputs\":[]"));
    assert_int_equal(s.n_finished, 1);
    assert_non_null(strstr(s.last, "\"data\":[5,3]"));
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    assert_int_equal(count(w, BT_MSG_CANCEL), 2);
    assert_true(metric(w, "nv_inference_request_success{model=\"tensorrt_llm\""
                          ",version=\"1\"} ") == 1);

    /* There is none any more; a stream ends by a piece without text. */
    begin(w, &stopping, "tensorrt_llm", "a", STOP_7);
    assert_int_equal(stopping.n_finished, 1);
    begin(w, &s, "ensemble", "a",
          "{\"id\":\"7\",\"inputs\":[" T(
              "text_input", "BYTES", "[1,1]",
              "[\"A\"]") "," T("stream", "BOOL", "[1]", "[true]") "]}");
    tokens(w, w->p, 1, 0, "x", BT_FINISH_NONE);
    begin(w, &stopping, "tensorrt_llm", "a", STOP_7);
    assert_string_equal(s.text, "0:x;0:;");
    assert_int_equal(s.n_final, 1);
    assert_int_equal(s.n_finished, 1);
    stop(w);
}

static void ignore_hold(void *ctx, uint32_t us)
{
    (void)ctx;
    (void)us;
}

static void row_stopped_before_running_is_empty(void **state)
{
    world_t *w = &world;
    stream_t s = {0};
    stream_t stopping = {0};

    (void)state;
    start(w, true);
    w->config.max_queue_delay_us = 300;
    w->front.hold_end = ignore_hold;
    begin(w, &s, "ensemble", "a",
          "{\"id\":\"7\",\"inputs\":[" T("text_input", "BYTES", "[2,1]",
                                         "[\"A\",\"B\"]") "]}");
    assert_int_equal(w->front.n_held, 2);
    begin(w, &stopping, "ensemble", "a", STOP_7);
    assert_int_equal(stopping.n_finished, 1);
    assert_string_equal(s.text, "0:;1:;");
    assert_int_equal(s.n_ends_of_rows, 2);
    assert_int_equal(s.n_finished, 1);
    assert_int_equal(w->front.n_held, 0);
    assert_int_equal(lent_bytes, 0);
    stop(w);
}

/* The client of both reads no more, which is found when the first is told. */
static stream_t *leaves_too;

static void leave_both(bt_request_t *request, const bt_infer_response_t *whole)
{
    on_finish(request, whole);
    leave_early(leaves_too);
}

static void
a_stop_whose_client_leaves_at_the_end_of_the_other_is_dropped(void **state)
{
    static const bt_infer_ops_t ops = {on_piece, leave_both};
    world_t *w = &world;
    stream_t s = {0};
    stream_t stopping = {0};

    (void)state;
    start(w, true);
    infer_ops = &ops;
    begin(w, &s, "tensorrt_llm", "a",
          "{\"id\":\"7\",\"inputs\":[" T("input_ids", "INT32", "[1,1]",
                                         "[5]") "]}");
    infer_ops = &default_ops;
    leaves_too = &stopping;
    begin(w, &stopping, "tensorrt_llm", "a", STOP_7);
    assert_int_equal(s.n_finished, 1);
    assert_int_equal(stopping.n_finished, 0);
    assert_null(stopping.request);
    assert_int_equal(lent_bytes, 0);
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_request_ends_running_request),
        cmocka_unit_test(row_stopped_before_running_is_empty),
        cmocka_unit_test(
            a_stop_whose_client_leaves_at_the_end_of_the_other_is_dropped),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
