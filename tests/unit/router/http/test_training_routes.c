/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's paths of training loops. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

static void pause_at(world_t *w, bt_exchange_t *ex, const char *query)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_POST;
    ex->path = "/pause";
    ex->body = "";
    ex->query = query;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
}

static void is_paused(world_t *w, const char *text)
{
    bt_exchange_t ex;

    get(w, &ex, "/is_paused");
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.out, text);
}

static void pause_waits_for_running_requests(void **state)
{
    static bt_exchange_t first, second, pause, resume;
    world_t *w = &world;

    (void)state;
    start(w, true);
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    is_paused(w, "{\"is_paused\":false}");
    pause_at(w, &pause, "mode=wait&clear_cache=false");
    post(w, &second, COMPLETIONS, "{\"prompt\":\"Ho\",\"max_tokens\":3}");
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(pause.n_ends, 0);
    is_paused(w, "{\"is_paused\":true}");
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(first.status, 200);
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(pause.status, 200);
    assert_string_equal(pause.out, "{\"status\":\"paused\"}");
    assert_int_equal(second.n_ends, 0);
    assert_int_equal(count(w, BT_MSG_REQUEST), 2);

    post(w, &resume, "/resume", "");
    assert_string_equal(resume.out, "{\"status\":\"resumed\"}");
    answer(w, 1, "now", BT_FINISH_LENGTH);
    assert_int_equal(second.status, 200);
    is_paused(w, "{\"is_paused\":false}");
    post(w, &resume, "/resume", "");
    assert_int_equal(resume.status, 200);
    stop(w);
}

static void pause_aborts_by_default(void **state)
{
    static bt_exchange_t first, pause;
    world_t *w = &world;

    (void)state;
    start(w, true);
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    pause_at(w, &pause, "");
    assert_int_equal(first.status, 503);
    has(&first, "aborted by POST /pause");
    bt_frontend_tick(&w->front, bt_now_us());
    assert_int_equal(pause.status, 200);
    ended(w, 0);
    stop(w);
}

static void pause_that_ends_early_or_is_left_is_forgotten(void **state)
{
    static bt_exchange_t first, pause, left, resume;
    world_t *w = &world;

    (void)state;
    start(w, true);
    post(w, &first, COMPLETIONS, "{\"prompt\":\"Hi\",\"max_tokens\":3}");
    pause_at(w, &left, "mode=wait");
    pause_at(w, &pause, "mode=wait");
    bt_door_gone(&w->door, &left);
    post(w, &resume, "/resume", "");
    assert_int_equal(pause.status, 409);
    has(&pause, "resumed before");
    assert_int_equal(left.n_ends, 0);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    stop(w);
}

static void unknown_options_are_refused_by_name(void **state)
{
    static const char *const queries[][2] = {
        {"mode=keep", "keep is not supported"},
        {"mode=", "abort or wait"},
        {"clear_cache=true", "clear_cache"},
        {"force=1", "force"},
        {"mode=%zz", "malformed"},
    };
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(queries); i++) {
        bt_exchange_t ex;

        pause_at(w, &ex, queries[i][0]);
        assert_int_equal(ex.status, 400);
        has(&ex, queries[i][1]);
        is_paused(w, "{\"is_paused\":false}");
    }
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pause_waits_for_running_requests),
        BT_TEST(pause_aborts_by_default),
        BT_TEST(pause_that_ends_early_or_is_left_is_forgotten),
        BT_TEST(unknown_options_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
