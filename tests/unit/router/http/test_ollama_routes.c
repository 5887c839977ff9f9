/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's routes over one door: answers as lines of JSON, what models are, and
 * what clients may not do. Source: Ollama's API reference and the types of its
 * Python package, 0.6.3. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

static void streams_are_lines_without_comments(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start(w, true);
    post(w, &ex, "/api/generate",
         "{\"prompt\":\"Hi\",\"raw\":true,\"options\":{\"num_predict\":9}}");
    assert_true(ex.streams);
    assert_string_equal(ex.type, "application/x-ndjson");
    bt_door_keep_alive(&w->door, UINT64_MAX / 2);
    assert_int_equal(ex.out_bytes, 0);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    assert_int_equal(ex.n_ends, 1);
    has(&ex, "{\"model\":");
    has(&ex, "\"done\":false}\n{");
    has(&ex, "\"response\":\"\",\"done\":true,\"done_reason\":\"length\"");
    has(&ex, "\"eval_count\":3,");
    assert_int_equal(ex.out[ex.out_bytes - 1], '\n');
    stop(w);
}

static void stream_that_fails_ends_with_an_error_line(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start(w, true);
    post(w, &ex, "/api/generate", "{\"prompt\":\"Hi\",\"raw\":true}");
    assert_true(ex.streams);
    bt_request_fail_for_memory(&((bt_http_request_t *)ex.user)->base);
    assert_int_equal(ex.n_ends, 1);
    has(&ex, "{\"error\":\"");
    assert_int_equal(ex.out[ex.out_bytes - 1], '\n');
    stop(w);
}

static void whole_answers_are_objects(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start(w, true);
    post(w, &ex, "/api/generate",
         "{\"prompt\":\"Hi\",\"raw\":true,\"stream\":false,\"options\":{"
         "\"num_predict\":3}}");
    answer(w, 0, "yes", BT_FINISH_STOP);
    assert_false(ex.streams);
    assert_string_equal(ex.type, "application/json");
    has(&ex, "\"response\":\"ye\",\"done\":true,\"done_reason\":\"stop\"");
    stop(w);
}

static void models_are_loaded_without_workers(void **state)
{
    static const char *const paths[] = {"/api/chat", "/api/generate"};
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(paths); i++) {
        post(w, &ex, paths[i], "{\"model\":\"ensemble\"}");
        assert_int_equal(ex.status, 200);
        assert_false(ex.streams);
        has(&ex, "\"done\":true,\"done_reason\":\"load\"}");
        refused(w, paths[i], "{\"model\":\"nobody\"}", 404, "nobody");
    }
    assert_int_equal(count(w, BT_MSG_REQUEST), 0);
    stop(w);
}

static void answers_without_a_bound_have_room_in_the_context(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start(w, true);
    post(w, &ex, "/api/generate", "{\"prompt\":\"Hi\",\"raw\":true}");
    assert_int_equal(w->sent[0].type, BT_MSG_REQUEST);
    assert_true(w->sent[0].max_new > BT_DEFAULT_MAX_TOKENS);
    bt_door_gone(&w->door, &ex);
    stop(w);
}

static void models_are_listed_and_shown(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;
    char body[256];

    (void)state;
    start(w, true);
    get(w, &ex, "/api/tags");
    assert_int_equal(ex.status, 200);
    has(&ex, "{\"models\":[{\"name\":\"");
    has(&ex,
        "\"format\":\"gguf\",\"family\":\"llama\",\"families\":[\"llama\"]");
    has(&ex, "\"modified_at\":\"");
    get(w, &ex, "/api/ps");
    has(&ex, "\"context_length\":");
    get(w, &ex, "/api/version");
    has(&ex, "{\"version\":\"");
    snprintf(body, sizeof(body), "{\"model\":\"%s:latest\"}", w->served->name);
    post(w, &ex, "/api/show", body);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"model_info\":{\"general.parameter_count\":");
    has(&ex, "\"general.architecture\":\"llama\"");
    has(&ex, "\"capabilities\":[\"completion\"");
    snprintf(body, sizeof(body), "{\"name\":\"%s\"}", w->served->name);
    post(w, &ex, "/api/show", body); /* the older member */
    assert_int_equal(ex.status, 200);
    w->served->unloaded = true;
    get(w, &ex, "/api/tags");
    assert_string_equal(ex.out, "{\"models\":[]}");
    w->served->unloaded = false;
    stop(w);
}

static void models_without_workers_do_not_run(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start(w, false);
    get(w, &ex, "/api/ps");
    assert_string_equal(ex.out, "{\"models\":[]}");
    stop(w);
}

static void bad_names_are_refused(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *part;
    } cases[] = {
        {"", 400, "not valid JSON"},
        {"{", 400, "not valid JSON"},
        {"[]", 400, "model must be a string"},
        {"{\"model\":5}", 400, "model must be a string"},
        {"{\"model\":\"\"}", 400, "model must be a string"},
        {"{\"model\":\"nobody\"}", 404, "nobody"},
        {"{\"model\":\":latest\"}", 404, ":latest"},
    };
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        refused(w, "/api/show", cases[i].body, cases[i].status, cases[i].part);
    }
    stop(w);
}

static void models_are_not_managed(void **state)
{
    static const char *const paths[] = {"/api/pull", "/api/push", "/api/create",
                                        "/api/copy", "/api/blobs/sha256:00"};
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(paths); i++) {
        refused(w, paths[i], "{}", 501, "models cannot be pulled");
    }
    send_to(w, &ex, BT_HTTP_DELETE, "/api/delete", "{}");
    assert_int_equal(ex.status, 501);
    has(&ex, "or deleted here");
    post(w, &ex, "/api/delete", "{}");
    assert_int_equal(ex.status, 405);
    assert_non_null(strstr(ex.headers, "Allow: DELETE\n"));
    refused(w, "/api/embed", "{}", 501, "no embeddings yet");
    refused(w, "/api/embeddings", "{}", 501, "no embeddings yet");
    refused(w, "/api/other", "{}", 404, "{\"error\":\"");
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(streams_are_lines_without_comments),
        BT_TEST(stream_that_fails_ends_with_an_error_line),
        BT_TEST(whole_answers_are_objects),
        BT_TEST(models_are_loaded_without_workers),
        BT_TEST(answers_without_a_bound_have_room_in_the_context),
        BT_TEST(models_are_listed_and_shown),
        BT_TEST(models_without_workers_do_not_run),
        BT_TEST(bad_names_are_refused),
        BT_TEST(models_are_not_managed),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
