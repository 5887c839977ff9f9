/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's responses, whole and as events. Forms: OpenAI's API reference,
 * "Responses" and "Streaming events"; the order of events is the one of its
 * example of a text response. */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define RESPONSES "/v1/responses"

static void responses_answer_has_object_with_message(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    char text[256];

    (void)state;
    start(w, true);
    post(w, &ex, RESPONSES,
         "{\"model\":\"tiny\",\"input\":\"Hi\",\"instructions\":\"Be\","
         "\"max_output_tokens\":9,\"temperature\":0.5,\"top_p\":0.25}");
    text_of(w, request(w, 0), text);
    assert_string_equal(text, "@<|im_start|>system\nBe@<|im_end|>\n"
                              "@<|im_start|>user\nHi@<|im_end|>\n"
                              "@<|im_start|>assistant\n");
    assert_int_equal(request(w, 0)->max_new, 9);
    answer(w, 0, "yesX", BT_FINISH_STOP);
    assert_int_equal(ex.status, 200);
    has(&ex, "{\"id\":\"resp_");
    has(&ex, "\"object\":\"response\",\"created_at\":");
    has(&ex, "\"status\":\"completed\",\"error\":null,"
             "\"incomplete_details\":null,\"instructions\":\"Be\","
             "\"max_output_tokens\":9,\"model\":\"tiny\",");
    has(&ex, "\"previous_response_id\":null,\"reasoning\":{"
             "\"effort\":null,\"summary\":null},\"store\":false,"
             "\"temperature\":0.5,\"text\":{\"format\":{\"type\":\"text\"}},"
             "\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":0.25,");
    has(&ex, "\"output\":[{\"id\":\"msg_");
    has(&ex, "\"type\":\"message\",\"status\":\"completed\","
             "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
             "\"text\":\"yes\",\"annotations\":[],\"logprobs\":[]}]}]");
    has(&ex, "\"input_tokens_details\":{\"cached_tokens\":0,"
             "\"cache_write_tokens\":0},"
             "\"output_tokens\":4,"
             "\"output_tokens_details\":{\"reasoning_tokens\":0},");

    /* Cut off; of a list of messages with parts. */
    post(w, &ex, RESPONSES,
         "{\"input\":[{\"type\":\"message\",\"role\":\"developer\","
         "\"content\":\"Be\"},{\"role\":\"user\",\"content\":["
         "{\"type\":\"input_text\",\"text\":\"a\"},"
         "{\"type\":\"input_text\",\"text\":\"b\"}]},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
         "\"text\":\"c\"}]},{\"role\":\"user\",\"content\":\"d\"}],"
         "\"store\":false,\"max_output_tokens\":3,\"metadata\":{\"k\":\"v\"}}");
    text_of(w, request(w, 1), text);
    assert_string_equal(text, "@<|im_start|>system\nBe@<|im_end|>\n"
                              "@<|im_start|>user\na\nb@<|im_end|>\n"
                              "@<|im_start|>assistant\nc@<|im_end|>\n"
                              "@<|im_start|>user\nd@<|im_end|>\n"
                              "@<|im_start|>assistant\n");
    answer(w, 1, "abc", BT_FINISH_LENGTH);
    has(&ex, "\"status\":\"incomplete\",\"error\":null,"
             "\"incomplete_details\":{\"reason\":\"max_output_tokens\"},"
             "\"instructions\":null,");
    has(&ex, "\"metadata\":{\"k\":\"v\"},\"output\":[");
    has(&ex, "\"type\":\"message\",\"status\":\"incomplete\"");
    stop(w);
}

static void responses_metadata_is_echoed_within_limits(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    char body[8192], text[2048] = "";

    (void)state;
    start(w, true);
    post(w, &ex, RESPONSES, "{\"input\":\"a\",\"metadata\":null}");
    answer(w, 0, "aX", BT_FINISH_STOP);
    has(&ex, "\"metadata\":{},");
    /* 64 and 512 characters of two bytes. */
    for (int i = 0; i < 512; i++) {
        memcpy(text + 2 * i, "\xc3\xa9", 3);
    }
    snprintf(body, sizeof(body),
             "{\"input\":\"a\",\"metadata\":{\"%.128s\":\"%s\","
             "\"b\\n\":\"\"}}",
             text, text);
    post(w, &ex, RESPONSES, body);
    answer(w, 1, "aX", BT_FINISH_STOP);
    snprintf(body, sizeof(body),
             "\"metadata\":{\"%.128s\":\"%s\",\"b\\n\":\"\"},", text, text);
    has(&ex, body);

    snprintf(body, sizeof(body),
             "{\"input\":\"a\",\"metadata\":{\"%.130s\":\"\"}}", text);
    refused(w, RESPONSES, body, 400, "\"param\":\"metadata\"");
    snprintf(body, sizeof(body),
             "{\"input\":\"a\",\"metadata\":{\"k\":\"%sx\"}}", text);
    refused(w, RESPONSES, body, 400, "\"param\":\"metadata\"");
    refused(w, RESPONSES, "{\"input\":\"a\",\"metadata\":{\"k\":1}}", 400,
            "\"param\":\"metadata\"");
    refused(w, RESPONSES, "{\"input\":\"a\",\"metadata\":[]}", 400,
            "metadata must be an object, got an array");
    snprintf(body, sizeof(body), "{\"input\":\"a\",\"metadata\":{");
    for (int i = 0; i < 17; i++) {
        const size_t n = strlen(body);

        snprintf(body + n, sizeof(body) - n, "%s\"k%d\":\"v\"",
                 (i > 0) ? "," : "", i);
    }
    snprintf(text, sizeof(text), "%s}}", body);
    refused(w, RESPONSES, text, 400, "\"param\":\"metadata\"");
    stop(w);
}

/* The n-th event's name and sequence number. */
static void is_event(const bt_exchange_t *ex, unsigned n, const char *name)
{
    const char *at = ex->out;
    char text[160];

    for (unsigned i = 0; i < n; i++) {
        at = strstr(at, "\n\n");
        assert_non_null(at);
        at += 2;
    }
    snprintf(text, sizeof(text),
             "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u,", name,
             name, n);
    if (strncmp(at, text, strlen(text)) != 0) {
        fail_msg("event %u is no %s: %.100s", n, name, at);
    }
}

static void responses_stream_has_openai_event_order(void **state)
{
    static const char *const names[] = {
        "response.created",           "response.in_progress",
        "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.delta",
        "response.output_text.done",  "response.content_part.done",
        "response.output_item.done",  "response.completed"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post(w, &ex, RESPONSES, "{\"input\":\"Hi\",\"stream\":true}");
    /* Before there is any token. */
    is_event(&ex, 0, names[0]);
    is_event(&ex, 1, names[1]);
    assert_int_equal(ex.n_writes, 1);
    answer(w, 0, "okX", BT_FINISH_STOP);
    assert_string_equal(ex.type, "text/event-stream; charset=utf-8");
    assert_int_equal(ex.n_ends, 1);
    for (unsigned i = 0; i < BT_ARRAY_LEN(names); i++) {
        is_event(&ex, i, names[i]);
    }
    has(&ex, "\"status\":\"in_progress\",\"error\":null");
    has(&ex, "\"output_index\":0,\"content_index\":0,\"delta\":\"k\","
             "\"logprobs\":[]}\n\n");
    has(&ex, "\"content_index\":0,\"text\":\"ok\",\"logprobs\":[]}\n\n");
    has(&ex, "\"part\":{\"type\":\"output_text\",\"text\":\"ok\"");
    has(&ex, "\"usage\":{\"input_tokens\":");
    assert_null(strstr(ex.out, "[DONE]"));
    assert_null(strstr(ex.out, "X"));

    /* At its limit, and when it fails on the way. */
    post(w, &ex, RESPONSES,
         "{\"input\":\"Hi\",\"stream\":true,\"max_output_tokens\":2}");
    answer(w, 1, "ab", BT_FINISH_LENGTH);
    is_event(&ex, 9, "response.incomplete");
    post(w, &ex, RESPONSES, "{\"input\":\"Hi\",\"stream\":true}");
    tokens(w, w->p, 2, 0, "a", BT_FINISH_NONE);
    bt_core_end_all(w->core, "the server stops", bt_now_us());
    is_event(&ex, 5, "error");
    has(&ex, "\"code\":\"server_error\",\"message\":\"the server stops");
    assert_int_equal(ex.n_ends, 1);
    ended(w, 2);
    stop(w);
}

static void responses_client_disconnect_at_first_event_is_safe(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex = {.method = BT_HTTP_POST,
                        .path = RESPONSES,
                        .body = "{\"input\":\"Hi\",\"stream\":true}",
                        .breaks = true,
                        .door = &w->door};

    (void)state;
    start(w, true);
    bt_door_request(&w->door, &ex);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(count(w, BT_MSG_CANCEL), 2);
    ended(w, 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    stop(w);
}

static void responses_reasoning_is_separate_item(void **state)
{
    static const char *const names[] = {
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    };
    static const char said[] = "[THINK]a[b[/THINK]cX";
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    reasoning = "mistral";
    start(w, true);
    post(w, &ex, RESPONSES, "{\"input\":\"Hi\"}");
    answer(w, 0, said, BT_FINISH_STOP);
    has(&ex, "\"output\":[{\"id\":\"rs_");
    has(&ex, "\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],"
             "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"a[b\"}]},"
             "{\"id\":\"msg_");
    has(&ex, "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
             "\"text\":\"c\",");
    /* [THINK]a[b[/THINK]: of a letter each. */
    has(&ex, "\"output_tokens\":20,"
             "\"output_tokens_details\":{\"reasoning_tokens\":18},");

    post(w, &ex, RESPONSES, "{\"input\":\"Hi\",\"stream\":true}");
    answer(w, 1, said, BT_FINISH_STOP);
    for (unsigned i = 0; i < BT_ARRAY_LEN(names); i++) {
        is_event(&ex, i, names[i]);
    }
    has(&ex, "\"output_index\":0,\"item\":{\"id\":\"rs_");
    has(&ex, "\"output_index\":0,\"content_index\":0,\"part\":{\"type\":"
             "\"reasoning_text\",\"text\":\"\"}}\n\n");
    has(&ex, "\"output_index\":0,\"content_index\":0,\"delta\":\"[b\"}\n\n");
    has(&ex, "\"output_index\":0,\"content_index\":0,\"text\":\"a[b\"}\n\n");
    has(&ex, "\"output_index\":1,\"item\":{\"id\":\"msg_");
    has(&ex, "\"output_index\":1,\"content_index\":0,\"delta\":\"c\",");
    has(&ex, "\"output\":[{\"id\":\"rs_");

    /* Cut off while it thinks: there is no message. */
    post(w, &ex, RESPONSES,
         "{\"input\":\"Hi\",\"stream\":true,\"max_output_tokens\":9}");
    answer(w, 2, "[THINK]ab", BT_FINISH_LENGTH);
    is_event(&ex, 6, "response.reasoning_text.done");
    is_event(&ex, 8, "response.output_item.done");
    is_event(&ex, 9, "response.incomplete");
    has(&ex, "\"type\":\"reasoning\",\"status\":\"incomplete\"");
    assert_null(strstr(ex.out, "\"type\":\"message\""));

    /* Given back it is no part of the prompt; and it may be kept as text. */
    post(w, &ex, RESPONSES,
         "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
         "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[]},"
         "{\"role\":\"assistant\",\"content\":\"b\"},"
         "{\"role\":\"user\",\"content\":\"d\"}],"
         "\"separate_reasoning\":false}");
    {
        char text[256];

        text_of(w, request(w, 3), text);
        assert_string_equal(text, "@<|im_start|>user\na@<|im_end|>\n"
                                  "@<|im_start|>assistant\nb@<|im_end|>\n"
                                  "@<|im_start|>user\nd@<|im_end|>\n"
                                  "@<|im_start|>assistant\n");
    }
    answer(w, 3, said, BT_FINISH_STOP);
    has(&ex, "\"text\":\"[THINK]a[b[/THINK]c\"");
    refused(w, RESPONSES, "{\"input\":[{\"type\":\"reasoning\"}]}", 400,
            "input is missing");
    stop(w);
    reasoning = "auto";
}

static void responses_unsupported_fields_are_refused_by_name(void **state)
{
    static const struct {
        const char *options, *param;
    } cases[] = {
        {"\"input\":\"a\",\"store\":true", "store"},
        {"\"input\":\"a\",\"previous_response_id\":\"resp_1\"",
         "previous_response_id"},
        {"\"input\":\"a\",\"conversation\":\"c\"", "conversation"},
        {"\"input\":\"a\",\"background\":true", "background"},
        {"\"input\":\"a\",\"tools\":[{}]", "tools"},
        {"\"input\":\"a\",\"tool_choice\":\"required\"", "tool_choice"},
        {"\"input\":\"a\",\"truncation\":\"auto\"", "truncation"},
        {"\"input\":\"a\",\"include\":[\"x\"]", "include"},
        {"\"input\":\"a\",\"top_logprobs\":2", "top_logprobs"},
        {"\"input\":\"a\",\"text\":{\"format\":{\"type\":\"xml\"}}",
         "text.format.type"},
        {"\"input\":\"a\",\"max_output_tokens\":0", "max_output_tokens"},
        {"\"input\":\"a\",\"max_output_tokens\":9999", "max_output_tokens"},
        {"\"input\":\"\"", "input"},
        {"\"input\":[]", "input"},
        {"\"input\":5", "input"},
        {"\"instructions\":\"x\"", "input"},
        {"\"input\":\"a\",\"instructions\":[]", "instructions"},
        {"\"input\":[{\"type\":\"function_call_output\"}]", "input"},
        {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
         "\"input_image\"}]}]",
         "input"},
    };
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char body[256], part[64];

        snprintf(body, sizeof(body), "{%s}", cases[i].options);
        snprintf(part, sizeof(part), "\"param\":\"%s\"", cases[i].param);
        refused(w, RESPONSES, body, 400, part);
    }
    refused(w, RESPONSES, "{\"input\":\"a\",\"model\":\"x\"}", 404,
            "\"code\":\"model_not_found\"");
    stop(w);
}

static void responses_survive_every_failed_allocation(void **state)
{
    static const char *const bodies[] = {
        "{\"input\":\"Hi\",\"instructions\":\"Be\",\"max_output_tokens\":2}",
        "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
        "\"text\":\"a\"}]}],\"stream\":true,\"max_output_tokens\":2,"
        "\"metadata\":{\"a\":\"b\"}}"};
    world_t *w = &world;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bodies); i++) {
        int nth = 0;
        bt_exchange_t ex;

        do {
            start(w, true);
            bt_alloc_fail_at(++nth);
            post(w, &ex, RESPONSES, bodies[i]);
            bt_alloc_fail_at(0);
            if (ex.n_ends == 0) {
                answer(w, 0, "ab", BT_FINISH_LENGTH);
            }
            assert_int_equal(ex.n_ends, 1);
            assert_true((ex.status == 200) || (ex.status == 503));
            assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
            stop(w);
        } while (ex.status != 200);
        assert_true(nth > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(responses_answer_has_object_with_message),
        BT_TEST(responses_metadata_is_echoed_within_limits),
        BT_TEST(responses_stream_has_openai_event_order),
        BT_TEST(responses_client_disconnect_at_first_event_is_safe),
        BT_TEST(responses_reasoning_is_separate_item),
        BT_TEST(responses_unsupported_fields_are_refused_by_name),
        BT_TEST(responses_survive_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
