/* SPDX-License-Identifier: Apache-2.0 */
/* Responses that continue stored ones. What the model gets is compared with the
 * prompt of the same conversation, given whole. */
#include "common/base/status.h"
#include "tests/unit/router/stored_fixture.h"

/* The prompt of the request that was begun last. */
static void last_prompt(const world_t *w, char text[256])
{
    text_of(w, request(w, n_answered - 1), text);
}

static void post_whole(world_t *w, const char *body)
{
    bt_exchange_t ex;

    respond_as(w, &ex, NULL, body, "zX");
    if (ex.status != 200) {
        fail_msg("%s", ex.out);
    }
}

static void ask(world_t *w, const char *body, char text[256])
{
    post_whole(w, body);
    last_prompt(w, text);
}

static void conversation_equals_the_same_given_whole(void **state)
{
    world_t *w = &world;
    char a[ID_BYTES], b[ID_BYTES], more[256], body[512], chained[256];
    char whole[256];

    (void)state;
    for (int place = 0; place < N_PLACES; place++) {
        open_stored(w, place);
        keep_as(w, NULL, ",\"input\":\"q\",\"instructions\":\"once\"", "yX", a);
        snprintf(more, sizeof(more),
                 ",\"previous_response_id\":\"%s\",\"input\":[{\"role\":"
                 "\"user\",\"content\":\"r\"}]",
                 a);
        keep_as(w, NULL, more, "xX", b);
        snprintf(body, sizeof(body),
                 "{\"previous_response_id\":\"%s\",\"input\":\"s\"}", b);
        ask(w, body, chained);
        ask(w,
            "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},"
            "{\"role\":\"assistant\",\"content\":\"y\"},"
            "{\"role\":\"user\",\"content\":\"r\"},"
            "{\"role\":\"assistant\",\"content\":\"x\"},"
            "{\"role\":\"user\",\"content\":\"s\"}]}",
            whole);
        assert_string_equal(chained, whole);
        assert_non_null(strstr(chained, "user\nq@"));
        /* Instructions are those of this response alone. */
        assert_null(strstr(chained, "once"));
        close_stored(w);
    }
}

static void answer_names_what_it_continues(void **state)
{
    world_t *w = &world;
    char a[ID_BYTES], body[256], part[128];
    bt_exchange_t ex;

    (void)state;
    open_stored(w, IN_MEMORY);
    keep_as(w, NULL, ",\"input\":\"q\"", "yX", a);
    snprintf(body, sizeof(body),
             "{\"previous_response_id\":\"%s\",\"input\":\"s\"}", a);
    respond_as(w, &ex, NULL, body, "zX");
    snprintf(part, sizeof(part), "\"previous_response_id\":\"%s\",", a);
    has(&ex, part);
    has(&ex, "\"store\":false,");
    close_stored(w);
}

/* True when the last two requests have the same prompt, as far as the fixture
 * has it. */
static void same_prompts(const world_t *w)
{
    const sent_t *a = request(w, n_answered - 2);
    const sent_t *b = request(w, n_answered - 1);
    const size_t n = BT_ARRAY_LEN(a->tokens);

    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens,
                        ((a->n_tokens < n) ? a->n_tokens : n) *
                            sizeof(a->tokens[0]));
}

/* Calls in the history and a call in the new input make one message. */
static void calls_join_the_message_before_them(void **state)
{
    static const char call[] =
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\","
        "\"arguments\":\"{}\"}";
    static const char output[] =
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":"
        "\"7\"}";
    world_t *w = &world;
    char a[ID_BYTES], body[1024];

    (void)state;
    open_stored(w, IN_MEMORY);
    keep_as(w, NULL, ",\"input\":\"q\"", "yX", a);
    snprintf(body, sizeof(body),
             "{\"previous_response_id\":\"%s\",\"input\":[%s,%s]}", a, call,
             output);
    post_whole(w, body);
    snprintf(body, sizeof(body),
             "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},"
             "{\"role\":\"assistant\",\"content\":\"y\"},%s,%s]}",
             call, output);
    post_whole(w, body);
    same_prompts(w);
    close_stored(w);
}

static void chain_that_lost_a_response(int place)
{
    world_t *w = &world;
    char a[ID_BYTES], b[ID_BYTES], more[256], body[256], part[512];
    char path[128], file[STORED_PATH_BYTES];
    bt_exchange_t ex;

    open_stored(w, place);
    keep_as(w, NULL, ",\"input\":\"q\"", "yX", a);
    snprintf(more, sizeof(more),
             ",\"previous_response_id\":\"%s\",\"input\":\"r\"", a);
    keep_as(w, NULL, more, "xX", b);
    snprintf(path, sizeof(path), RESPONSES "/%s", a);
    call_as(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
    assert_int_equal(ex.status, 200);
    snprintf(body, sizeof(body),
             "{\"previous_response_id\":\"%s\",\"input\":\"s\"}", b);
    respond_as(w, &ex, NULL, body, "zX");
    assert_int_equal(ex.status, 400);
    snprintf(part, sizeof(part),
             "{\"error\":{\"message\":\"Previous response with id '%s' not "
             "found.\",\"type\":\"invalid_request_error\",\"param\":"
             "\"previous_response_id\",\"code\":"
             "\"previous_response_not_found\"}}",
             a);
    assert_string_equal(ex.out, part);
    /* It can still be read. */
    snprintf(path, sizeof(path), RESPONSES "/%s", b);
    call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
    assert_int_equal(ex.status, 200);
    /* A file that is gone while it is used. */
    keep_as(w, NULL, ",\"input\":\"q\"", "yX", a);
    stored_path(a, file);
    assert_int_equal(unlink(file), 0);
    snprintf(body, sizeof(body),
             "{\"previous_response_id\":\"%s\",\"input\":\"s\"}", a);
    respond_as(w, &ex, NULL, body, "zX");
    assert_int_equal(ex.status, 400);
    has(&ex, "previous_response_not_found");
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    close_stored(w);
}

static void chain_that_lost_a_response_is_refused(void **state)
{
    (void)state;
    chain_that_lost_a_response(ON_DISK);
    chain_that_lost_a_response(SHARED);
}

static void values_are_checked(void **state)
{
    static const struct {
        const char *members;
        const char *part;
    } cases[] = {
        {"\"previous_response_id\":\"resp_1\"",
         "\"code\":\"previous_response_not_found\""},
        {"\"previous_response_id\":\"\"",
         "\"message\":\"Invalid 'previous_response_id': ''. Expected an ID "
         "that begins with 'resp_'.\""},
        {"\"previous_response_id\":\"../lock\"", "\"code\":\"invalid_value\""},
        {"\"previous_response_id\":\"resp_/../../lock\"",
         "\"code\":\"previous_response_not_found\""},
        {"\"previous_response_id\":\"a\\u0000b\"",
         "\"param\":\"previous_response_id\""},
        {"\"previous_response_id\":7", "\"param\":\"previous_response_id\""},
        {"\"previous_response_id\":{}", "\"param\":\"previous_response_id\""},
        {"\"store\":1", "\"param\":\"store\""},
        {"\"store\":\"true\"", "\"param\":\"store\""},
        {"\"conversation\":\"c\"", "\"param\":\"conversation\""},
        {"\"background\":true", "\"param\":\"background\""},
    };
    world_t *w = &world;
    char body[256];

    (void)state;
    open_stored(w, IN_MEMORY);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        snprintf(body, sizeof(body), "{\"input\":\"a\",%s}", cases[i].members);
        refused(w, RESPONSES, body, 400, cases[i].part);
    }
    close_stored(w);
}

/* Errors name the items of the body, not those of the history. */
static void errors_name_items_of_the_body(void **state)
{
    world_t *w = &world;
    char a[ID_BYTES], body[512];

    (void)state;
    open_stored(w, IN_MEMORY);
    keep_as(w, NULL, ",\"input\":\"q\"", "yX", a);
    snprintf(body, sizeof(body),
             "{\"previous_response_id\":\"%s\",\"input\":[{\"role\":\"user\","
             "\"content\":\"r\"},{\"role\":\"king\",\"content\":\"s\"}]}",
             a);
    refused(w, RESPONSES, body, 400, "input[1].role must be");
    close_stored(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(conversation_equals_the_same_given_whole),
        BT_TEST(answer_names_what_it_continues),
        BT_TEST(calls_join_the_message_before_them),
        BT_TEST(chain_that_lost_a_response_is_refused),
        BT_TEST(values_are_checked),
        BT_TEST(errors_name_items_of_the_body),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
