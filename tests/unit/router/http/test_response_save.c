/* SPDX-License-Identifier: Apache-2.0 */
/* A response is stored before its end is sent; what cannot be stored says so.
 */
#include "common/base/status.h"
#include "tests/unit/router/stored_fixture.h"

#define STREAMED "{\"input\":\"Hi\",\"stream\":true,\"store\":true}"

static void get_response(world_t *w, bt_exchange_t *ex, const char *id)
{
    char path[128];

    snprintf(path, sizeof(path), RESPONSES "/%s", id);
    call_as(w, ex, BT_HTTP_GET, NULL, path, NULL);
}

static void stream_ends_once_its_response_is_stored(void **state)
{
    world_t *w = &world;
    char id[ID_BYTES];
    bt_exchange_t ex, kept;
    const char *at;

    (void)state;
    for (int place = 0; place < N_PLACES; place++) {
        open_stored(w, place);
        post(w, &ex, RESPONSES, STREAMED);
        answer(w, 0, "okX", BT_FINISH_STOP);
        if (place != IN_MEMORY) { /* the file is written by the pool */
            assert_int_equal(ex.n_ends, 0);
            assert_null(strstr(ex.out, "response.completed"));
        }
        drain_pool(w);
        assert_int_equal(ex.n_ends, 1);
        id_from(&ex, id);
        get_response(w, &kept, id);
        assert_int_equal(kept.status, 200);
        /* The object is the last event's. */
        at = strstr(ex.out, "event: response.completed\n");
        assert_non_null(at);
        at = strstr(at, "\"response\":");
        assert_non_null(at);
        assert_memory_equal(at + strlen("\"response\":"), kept.out,
                            strlen(kept.out));
        assert_string_equal(at + strlen("\"response\":") + strlen(kept.out),
                            "}\n\n");
        assert_null(strstr(ex.out, "\"store\":false"));
        close_stored(w);
    }
}

static void stream_equals_one_that_is_not_stored(void **state)
{
    static const char *const bodies[] = {
        STREAMED, "{\"input\":\"Hi\",\"stream\":true,\"store\":false}"};
    world_t *w = &world;
    unsigned n_events[2] = {0};
    bt_exchange_t ex;

    (void)state;
    open_stored(w, IN_MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        post(w, &ex, RESPONSES, bodies[i]);
        answer(w, i, "okX", BT_FINISH_STOP);
        drain_pool(w);
        for (const char *at = ex.out; (at = strstr(at, "event: ")) != NULL;
             at++) {
            n_events[i]++;
        }
        has(&ex, "\"output_index\":0,\"content_index\":0,\"text\":\"ok\"");
    }
    assert_int_equal(n_events[0], n_events[1]);
    close_stored(w);
}

static void response_without_room_says_that_it_is_not_stored(void **state)
{
    static const char *const bodies[] = {"{\"input\":\"Hi\",\"store\":true}",
                                         STREAMED};
    world_t *w = &world;
    char id[ID_BYTES];
    bt_exchange_t ex;

    (void)state;
    response_limit = 4096 + 100; /* the input fits, the response does not */
    open_stored(w, IN_MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        post(w, &ex, RESPONSES, bodies[i]);
        answer(w, i, "okX", BT_FINISH_STOP);
        drain_pool(w);
        assert_int_equal(ex.n_ends, 1);
        assert_int_equal(ex.status, 200);
        has(&ex, "\"store\":false");
        has(&ex, "\"status\":\"completed\"");
        id_from(&ex, id);
        get_response(w, &ex, id);
        assert_int_equal(ex.status, 404);
    }
    /* An input that does not fit is refused before it is computed. */
    refused(
        w, RESPONSES,
        "{\"store\":true,\"input\":\"0123456789012345678901234567890123456"
        "789012345678901234567890123456789012345678901234567890123456789\"}",
        413, "--response-store-limit");
    close_stored(w);
}

static void response_that_cannot_be_written_fails(void **state)
{
    static const char *const bodies[] = {"{\"input\":\"Hi\",\"store\":true}",
                                         STREAMED};
    char command[96];
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_stored(w, ON_DISK);
    snprintf(command, sizeof(command), "rm -rf %s/responses", folder);
    assert_int_equal(system(command), 0);
    for (uint32_t i = 0; i < 2; i++) {
        post(w, &ex, RESPONSES, bodies[i]);
        answer(w, i, "okX", BT_FINISH_STOP);
        drain_pool(w);
        assert_int_equal(ex.n_ends, 1);
        has(&ex, "the response cannot be stored");
        assert_null(strstr(ex.out, "response.completed"));
        assert_int_equal(ex.status, (i == 0) ? 503 : 200);
    }
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    close_stored(w);
}

/* Who has not asked for it gets the answer all the same, which says so. */
static void response_that_cannot_be_written_is_answered(void **state)
{
    static const char *const bodies[] = {
        "{\"input\":\"Hi\"}",
        "{\"input\":\"Hi\",\"stream\":true,\"instructions\":"
        "\"{\\\"store\\\":true,\",\"tools\":[{\"type\":\"function\",\"name\":"
        "\"f\",\"parameters\":{\"type\":\"object\",\"x\":{\"store\":true,"
        "\"y\":0}}}]}"};
    char command[96], id[ID_BYTES];
    world_t *w = &world;
    bt_exchange_t ex;
    const char *at;

    (void)state;
    open_stored(w, ON_DISK);
    snprintf(command, sizeof(command), "rm -rf %s/responses", folder);
    assert_int_equal(system(command), 0);
    bt_test_expect_log_lines(2);
    for (uint32_t i = 0; i < 2; i++) {
        post(w, &ex, RESPONSES, bodies[i]);
        drain_pool(w); /* a grammar may be compiled */
        if (ex.n_ends != 0) {
            fail_msg("%s", ex.out);
        }
        answer(w, i, "okX", BT_FINISH_STOP);
        drain_pool(w);
        assert_int_equal(ex.n_ends, 1);
        assert_int_equal(ex.status, 200);
        at = (i == 0) ? ex.out : strstr(ex.out, "event: response.completed\n");
        assert_non_null(at);
        assert_non_null(strstr(at, "\"reasoning\":{\"effort\":null,"
                                   "\"summary\":null},\"store\":false,"
                                   "\"temperature\":"));
        assert_non_null(strstr(at, "\"text\":\"ok\""));
        if (i == 1) {
            assert_non_null(strstr(at, "\"{\\\"store\\\":true,\""));
            assert_non_null(strstr(at, "\"x\":{\"store\":true,\"y\":0}"));
            assert_string_equal(at + strlen(at) - 4, "}}\n\n");
        }
        id_from(&ex, id);
        get_response(w, &ex, id);
        assert_int_equal(ex.status, 404);
    }
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    close_stored(w);
}

static void client_that_leaves_breaks_nothing(void **state)
{
    static const char *const bodies[] = {"{\"input\":\"Hi\",\"store\":true}",
                                         STREAMED};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_stored(w, ON_DISK);
    for (uint32_t i = 0; i < 2; i++) {
        post(w, &ex, RESPONSES, bodies[i]);
        answer(w, i, "okX", BT_FINISH_STOP);
        assert_int_equal(ex.n_ends, 0);
        bt_door_gone(&w->door, &ex);
        drain_pool(w);
        assert_int_equal(responses_on_disk(), i + 1);
    }
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    close_stored(w);
}

static void server_that_stops_answers(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_stored(w, ON_DISK);
    post(w, &ex, RESPONSES, "{\"input\":\"Hi\",\"store\":true}");
    answer(w, 0, "okX", BT_FINISH_STOP);
    close_stored(w);
    assert_int_equal(ex.n_ends, 1);
    assert_true((ex.status == 200) || (ex.status == 503));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(stream_ends_once_its_response_is_stored),
        BT_TEST(stream_equals_one_that_is_not_stored),
        BT_TEST(response_without_room_says_that_it_is_not_stored),
        BT_TEST(response_that_cannot_be_written_fails),
        BT_TEST(response_that_cannot_be_written_is_answered),
        BT_TEST(client_that_leaves_breaks_nothing),
        BT_TEST(server_that_stops_answers),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
