/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/batches: what the routes refuse, and lists. */
#include "tests/unit/router/batch/batch_fixture.h"

static void server_without_folder_names_the_option(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (int i = 0; i < 4; i++) {
        static const char *const paths[] = {
            BATCHES, BATCHES, BATCHES "/batch_x", BATCHES "/batch_x/cancel"};

        call(w, &ex, ((i % 2) == 0) ? BT_HTTP_GET : BT_HTTP_POST, paths[i],
             "{}");
        assert_int_equal(ex.status, 501);
        has(&ex, "--store DIR");
    }
    stop(w);
}

static void unknown_batch_and_file_are_404(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 1);
    call(w, &ex, BT_HTTP_GET, BATCHES "/batch_x", "");
    assert_int_equal(ex.status, 404);
    has(&ex, "no such batch: batch_x");
    call(w, &ex, BT_HTTP_POST, BATCHES "/batch_x/cancel", "");
    assert_int_equal(ex.status, 404);
    call(w, &ex, BT_HTTP_POST, BATCHES,
         "{\"input_file_id\":\"file-x\",\"endpoint\":\"/v1/completions\","
         "\"completion_window\":\"24h\"}");
    assert_int_equal(ex.status, 404);
    has(&ex, "\"param\":\"input_file_id\"");
    call(w, &ex, BT_HTTP_POST, BATCHES, "{\"endpoint\":1}");
    assert_int_equal(ex.status, 400);
    has(&ex, "\"param\":\"endpoint\"");
    close_world(w);
    remove_folder();
}

static void list_is_cut_into_pages(void **state)
{
    char ids[3][64], text[256], path[128];
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 1);
    for (int i = 0; i < 3; i++) {
        begin(w, ""); /* they fail: an empty file */
        memcpy(ids[i], batch_id, sizeof(ids[i]));
    }
    for (int i = 0; i < 4; i++) {
        static const char *const queries[] = {"limit=2", "after=", "limit=0",
                                              "order=asc"};

        memset(&ex, 0, sizeof(ex));
        ex.method = BT_HTTP_GET;
        ex.path = BATCHES;
        snprintf(path, sizeof(path), "%s%s", queries[i],
                 (i == 1) ? ids[1] : "");
        ex.query = path;
        ex.body = "";
        ex.door = &w->door;
        bt_door_request(&w->door, &ex);
        assert_int_equal(ex.status, (i < 2) ? 200 : 400);
        if (i < 2) {
            snprintf(
                text, sizeof(text),
                "],\"first_id\":\"%s\",\"last_id\":\"%s\",\"has_more\":%s}",
                (i == 0) ? ids[2] : ids[0], (i == 0) ? ids[1] : ids[0],
                (i == 0) ? "true" : "false");
            has(&ex, text);
            assert_int_equal(times(ex.out, "\"status\":\"failed\""), 2 - i);
            assert_int_equal(times(ex.out, "\"code\":\"empty_file\""), 2 - i);
        }
    }
    close_world(w);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(server_without_folder_names_the_option),
        BT_TEST(unknown_batch_and_file_are_404),
        BT_TEST(list_is_cut_into_pages),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
