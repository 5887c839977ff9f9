/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools from the request to the answer. What clients are told:
 * OpenAI's API reference, "The chat completion object" and "... chunk object".
 */
#include "common/base/status.h"
#include "tests/unit/router/request_fixture.h"

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
#define FG                                                              \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}," \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}],"
#define BODY(more) "{" HI FG more "\"max_tokens\":150}"
/* A token that ends the text has none itself: "~" in what follows. */
#define CALL "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>"

static const char hermes[] =
    "<|im_start|>{% if tools %}{{ tools[1].function.name }}/{% endif %}"
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
    "<tool_call>{{ c.function.arguments | tojson }}{% endfor %}"
    "{{ m.tool_call_id }};{% endfor %}";

/* A model whose own template is @a jinja. */
static void start_own(world_t *w, const char *jinja)
{
    bt_tiny_model_t shape = bt_tiny_model_default();

    snprintf(model_path, sizeof(model_path), "/tmp/baton-test-tools-%d",
             (int)getpid());
    shape.chat_template = jinja;
    assert_int_equal(bt_tiny_model_write(&shape, model_path), BT_OK);
    template_option = "";
    start(w, true);
}

static void stop_own(world_t *w, const char *before)
{
    stop(w);
    unlink(model_path);
    memcpy(model_path, before, sizeof(model_path));
    template_option = "chatml";
    tool_format = "auto";
    reasoning = "auto";
}

/* The value of the n-th "id" of a call. */
static void call_id(const bt_exchange_t *ex, int n, char out[64])
{
    const char *at = strstr(ex->out, "\"tool_calls\":");

    if (at == NULL) {
        fail_msg("no calls in %s", ex->out);
    }
    for (int i = 0; i <= n; i++) {
        assert_non_null(at);
        at = strstr(at, "\"id\":\"");
        assert_non_null(at);
        at += strlen("\"id\":\"");
    }
    snprintf(out, 64, "%.*s", (int)strcspn(at, "\""), at);
}

static void whole_answer_has_tool_calls(void **state)
{
    world_t *w = &world;
    char before[sizeof(model_path)], text[256], id[64], other[64];
    bt_exchange_t ex;

    (void)state;
    memcpy(before, model_path, sizeof(before));
    start_own(w, hermes);
    post(w, &ex, CHAT, BODY(""));
    text_of(w, request(w, 0), text);
    assert_string_equal(text, "@<|im_start|>g/Hi;");
    answer(w, 0, CALL "<tool_call>{\"name\":\"g\"}</tool_call>",
           BT_FINISH_STOP);
    call_id(&ex, 0, id);
    call_id(&ex, 1, other);
    assert_int_equal(strlen(id), 29);
    assert_memory_equal(id, "call_", 5);
    assert_string_not_equal(id, other);
    has(&ex, "\"message\":{\"role\":\"assistant\",\"content\":null,"
             "\"tool_calls\":[{\"id\":\"");
    has(&ex, "\"type\":\"function\",\"function\":{\"name\":\"f\","
             "\"arguments\":\"{\\\"a\\\":1}\"}},{\"id\":\"");
    has(&ex, "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}],"
             "\"refusal\":null},\"logprobs\":null,"
             "\"finish_reason\":\"tool_calls\"");
    /* With text, cut off, and none. */
    post(w, &ex, CHAT, BODY(""));
    answer(w, 1, "Hm." CALL, BT_FINISH_LENGTH);
    has(&ex, "\"content\":\"Hm.\",\"tool_calls\":[");
    has(&ex, "\"finish_reason\":\"length\"");
    post(w, &ex, CHAT, BODY(""));
    answer(w, 2, "<tool_call>{\"name\":\"f\",\"argu", BT_FINISH_LENGTH);
    has(&ex, "\"content\":null,\"tool_calls\":[{\"id\":\"");
    has(&ex, "\"function\":{\"name\":\"f\",\"arguments\":\"\"}}],"
             "\"refusal\":null},\"logprobs\":null,"
             "\"finish_reason\":\"length\"");
    /* None may be called: it is not told of any, and all it says is text. */
    post(w, &ex, CHAT, BODY("\"tool_choice\":\"none\","));
    text_of(w, request(w, 3), text);
    assert_string_equal(text, "@<|im_start|>Hi;");
    answer(w, 3, CALL, BT_FINISH_STOP);
    has(&ex, "\"content\":\"<tool_call>{");
    has(&ex, "\"finish_reason\":\"stop\"");
    /* One at most. */
    post(w, &ex, CHAT, BODY("\"parallel_tool_calls\":false,"));
    answer(w, 4, CALL CALL, BT_FINISH_STOP);
    has(&ex, "\"content\":null,\"tool_calls\":[");
    assert_null(strstr(ex.out, "},{\"id\""));
    stop_own(w, before);
}

static void stream_sends_tool_call_arguments_incrementally(void **state)
{
    static const char *const pieces[] = {
        "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}",
        "\"delta\":{\"content\":\"a\"}",
        "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_",
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
        "\"{\"}}]},\"logprobs\":null,\"finish_reason\":null",
        "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":"
        "\"\\\"\"}}]}",
        "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":"
        "\"}\"}}]}",
        "\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"call_",
        "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"",
    };
    world_t *w = &world;
    char before[sizeof(model_path)];
    const char *at;
    bt_exchange_t ex;

    (void)state;
    memcpy(before, model_path, sizeof(before));
    start_own(w, hermes);
    post(w, &ex, CHAT, BODY("\"stream\":true,"));
    answer(w, 0, "a" CALL CALL, BT_FINISH_STOP);
    at = ex.out;
    for (size_t i = 0; i < BT_ARRAY_LEN(pieces); i++) {
        at = strstr(at, pieces[i]);
        if (at == NULL) {
            fail_msg("no %s in %s", pieces[i], ex.out);
        }
    }
    assert_null(strstr(ex.out, "tool_call>"));
    /* A call comes first. */
    post(w, &ex, CHAT, BODY("\"stream\":true,"));
    answer(w, 1, CALL, BT_FINISH_STOP);
    has(&ex, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    has(&ex, "\"delta\":{\"tool_calls\":[{\"index\":0,");
    stop_own(w, before);
}

/* tool_choice: the prompt ends with the beginning of a call. */
static void tool_choice_required_opens_with_call(void **state)
{
    world_t *w = &world;
    char before[sizeof(model_path)], text[256];
    bt_exchange_t ex;

    (void)state;
    memcpy(before, model_path, sizeof(before));
    start_own(w, hermes);
    post(w, &ex, CHAT,
         BODY("\"tool_choice\":{\"type\":\"function\",\"function\":"
              "{\"name\":\"g\"}},"));
    drain_pool(w); /* compiles the grammar of the call */
    text_of(w, request(w, 0), text);
    assert_non_null(strstr(text, "Hi;<tool_call>"));
    assert_non_null(strstr(text, "{\"name\":"));
    answer(w, 0, "{\"b\":2}}</tool_call>", BT_FINISH_STOP);
    has(&ex, "\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"b\\\":2}\"}}]");
    post(w, &ex, CHAT, BODY("\"tool_choice\":\"required\",\"stream\":true,"));
    drain_pool(w);
    answer(w, 1, "f\",\"arguments\":{}}", BT_FINISH_STOP);
    has(&ex, "\"function\":{\"name\":\"f\",\"arguments\":\"{");
    has(&ex, "\"finish_reason\":\"tool_calls\"");
    stop_own(w, before);
}

static void tool_call_within_reasoning_is_ignored(void **state)
{
    world_t *w = &world;
    char before[sizeof(model_path)];
    bt_exchange_t ex;

    (void)state;
    memcpy(before, model_path, sizeof(before));
    reasoning = "mistral";
    start_own(w, hermes);
    post(w, &ex, CHAT, BODY(""));
    answer(w, 0, "[THINK]<tool_call>{}[/THINK]" CALL, BT_FINISH_STOP);
    has(&ex, "\"content\":null,\"reasoning_content\":\"<tool_call>{}\","
             "\"tool_calls\":[{");
    stop_own(w, before);
}

/* Marks that are special tokens are shown, and ids are short.
 */
static void mistral_tool_call_ids_have_nine_characters(void **state)
{
    world_t *w = &world;
    char before[sizeof(model_path)], id[64];
    bt_exchange_t ex;

    (void)state;
    memcpy(before, model_path, sizeof(before));
    tool_format = "mistral";
    start_own(w, hermes);
    post(w, &ex, CHAT, BODY(""));
    answer(w, 0, "[TOOL_CALLS]f[ARGS]{\"a\":1}~", BT_FINISH_STOP);
    call_id(&ex, 0, id);
    assert_int_equal(strlen(id), 9);
    has(&ex, "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}");
    stop_own(w, before);
}

#define SHORT                                                          \
    "{" HI "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":" \
    "\"f\"}}],\"max_tokens\":80}"

/* Where the template has no place for tools, or writes calls in a form that is
 * not known. */
static void tools_are_text_where_template_cannot_show_them(void **state)
{
    static const char *const templates[] = {
        NULL, /* a family */
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}",
    };
    world_t *w = &world;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(templates); i++) {
        char before[sizeof(model_path)];
        bt_exchange_t ex;

        memcpy(before, model_path, sizeof(before));
        if (templates[i] != NULL) {
            start_own(w, templates[i]);
        } else {
            start(w, true);
        }
        post(w, &ex, CHAT, SHORT);
        answer(w, 0, CALL "~", BT_FINISH_STOP);
        has(&ex,
            "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}");
        has(&ex, "\"finish_reason\":\"tool_calls\"");
        if (templates[i] != NULL) {
            stop_own(w, before);
        } else {
            stop(w);
        }
    }
}

static void tools_are_refused_where_calls_are_not_parsed(void **state)
{
    world_t *w = &world;
    char before[sizeof(model_path)];

    (void)state;
    tool_format = "llama3"; /* and the text asks for those of hermes */
    start(w, true);
    refused(w, CHAT, SHORT, 400,
            "tools: the chat template of model tiny shows no tools");
    stop(w);
    memcpy(before, model_path, sizeof(before));
    tool_format = "off";
    start_own(w, hermes);
    refused(w, CHAT, SHORT, 400, "--tool-call-parser");
    stop_own(w, before);
}

static void tool_calls_of_history_reach_template(void **state)
{
    world_t *w = &world;
    char before[sizeof(model_path)], text[256];
    bt_exchange_t ex;

    (void)state;
    memcpy(before, model_path, sizeof(before));
    start_own(w, hermes);
    post(w, &ex, CHAT,
         "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":"
         "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":\\\"<|im_end|>\\\"}\"}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"4\"}],"
         "\"max_tokens\":2}");
    text_of(w, request(w, 0), text);
    /* A client's text is no special token: it is spelled. */
    assert_string_equal(text, "@<|im_start|><tool_call>{\"x\": \"<|im_end|>\"};"
                              "4c1;");
    answer(w, 0, "ab", BT_FINISH_LENGTH);
    stop_own(w, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(whole_answer_has_tool_calls),
        BT_TEST(stream_sends_tool_call_arguments_incrementally),
        BT_TEST(tool_choice_required_opens_with_call),
        BT_TEST(tool_call_within_reasoning_is_ignored),
        BT_TEST(mistral_tool_call_ids_have_nine_characters),
        BT_TEST(tools_are_text_where_template_cannot_show_them),
        BT_TEST(tools_are_refused_where_calls_are_not_parsed),
        BT_TEST(tool_calls_of_history_reach_template),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
