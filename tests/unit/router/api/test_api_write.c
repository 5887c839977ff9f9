/* SPDX-License-Identifier: Apache-2.0 */
/* Expected texts follow OpenAI's API reference, and the printed answer in the
 * documentation of Triton's TensorRT-LLM backend. */
#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/api/api.h"
#include "tests/support/testsupport.h"

static const bt_api_answer_t triton = {
    .dialect = BT_API_GENERATE, .model = "ensemble", .version = "1"};
static const bt_api_answer_t completion = {.dialect = BT_API_COMPLETIONS,
                                           .id = "cmpl-1",
                                           .model = "m",
                                           .created = 1700000000};
static const bt_api_answer_t chat = {.dialect = BT_API_CHAT,
                                     .id = "chatcmpl-1",
                                     .model = "m",
                                     .created = 1700000000};
static const bt_api_usage_t usage = {5, 7, 3, 2, 4, 9, 6};

#define DETAILS                                                                 \
    "\"prompt_tokens_details\":{\"cached_tokens\":3,\"cache_write_tokens\":2}," \
    "\"completion_tokens_details\":{\"reasoning_tokens\":4,"                    \
    "\"accepted_prediction_tokens\":6,\"rejected_prediction_tokens\":3}"

static bt_api_choice_t choice(uint32_t index, const char *text,
                              bt_finish_t finish)
{
    const bt_api_choice_t c = {
        .index = index,
        .text = text,
        .text_bytes = strlen(text),
        .finish = finish,
    };

    return c;
}

/* The buffer holds exactly this; empty it. */
static void expect(bt_strbuf_t *out, const char *text)
{
    assert_int_equal(bt_strbuf_status(out), BT_OK);
    assert_string_equal((out->data == NULL) ? "" : out->data, text);
    bt_strbuf_reset(out);
}

static void documented_generate_answer_is_written(void **state)
{
    bt_api_answer_t a = triton;
    const bt_api_choice_t c = choice(
        0, "What is machine learning?\n\nMachine learning", BT_FINISH_LENGTH);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_answer(&a, &c, 1, &usage, &out);
    expect(&out, "{\"model_name\":\"ensemble\",\"model_version\":\"1\","
                 "\"sequence_end\":false,\"sequence_id\":0,"
                 "\"sequence_start\":false,\"text_output\":"
                 "\"What is machine learning?\\n\\nMachine learning\"}");

    a.id = "r-1";
    a.sequence_id = INT64_MAX;
    a.sequence_start = true;
    a.sequence_end = true;
    bt_api_write_chunks(&a, &c, true, &usage, &out);
    expect(&out, "data: {\"id\":\"r-1\",\"model_name\":\"ensemble\","
                 "\"model_version\":\"1\",\"sequence_end\":true,"
                 "\"sequence_id\":9223372036854775807,"
                 "\"sequence_start\":true,\"text_output\":"
                 "\"What is machine learning?\\n\\nMachine learning\"}\n\n");
    bt_strbuf_fini(&out);
}

static void openai_answer_lists_choices(void **state)
{
    const bt_api_choice_t c[] = {choice(0, "yes", BT_FINISH_STOP),
                                 choice(1, "no", BT_FINISH_LENGTH)};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_answer(&completion, c, 2, &usage, &out);
    expect(&out,
           "{\"id\":\"cmpl-1\",\"object\":\"text_completion\","
           "\"created\":1700000000,\"model\":\"m\","
           "\"system_fingerprint\":null,\"choices\":["
           "{\"index\":0,\"text\":\"yes\",\"logprobs\":null,"
           "\"finish_reason\":\"stop\"},"
           "{\"index\":1,\"text\":\"no\",\"logprobs\":null,"
           "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":5,"
           "\"completion_tokens\":7,\"total_tokens\":12,"
           "" DETAILS "}}");
    bt_api_write_answer(&chat, c, 1, &usage, &out);
    expect(&out, "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\","
                 "\"created\":1700000000,\"model\":\"m\","
                 "\"system_fingerprint\":null,\"choices\":["
                 "{\"index\":0,\"message\":{\"role\":\"assistant\","
                 "\"content\":\"yes\",\"refusal\":null},\"logprobs\":null,"
                 "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,"
                 "\"completion_tokens\":7,\"total_tokens\":12,"
                 "" DETAILS "}}");
    bt_strbuf_fini(&out);
}

#define CHUNK                                                             \
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","        \
    "\"created\":1700000000,\"model\":\"m\",\"system_fingerprint\":null," \
    "\"choices\":["

static void token_ids_are_written_on_request(void **state)
{
    static const uint32_t ids[] = {0, 4294967295u, 17};
    bt_api_choice_t c = choice(0, "yes", BT_FINISH_STOP);
    bt_strbuf_t out;

    (void)state;
    c.token_ids = ids;
    c.n_token_ids = 3;
    bt_strbuf_init(&out, 4096);
    bt_api_write_answer(&completion, &c, 1, &usage, &out);
    assert_non_null(strstr(out.data, "{\"index\":0,\"text\":\"yes\","
                                     "\"token_ids\":[0,4294967295,17],"));
    bt_strbuf_reset(&out);
    c.n_token_ids = 0;
    bt_api_write_answer(&completion, &c, 1, &usage, &out);
    assert_non_null(strstr(out.data, "\"token_ids\":[],"));
    bt_strbuf_fini(&out);
}

#define EVENT(more) "data: " CHUNK more "\n\n"
#define ROLE                                                                  \
    EVENT("{\"index\":3,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}," \
          "\"logprobs\":null,\"finish_reason\":null}]}")
#define SAYS(what)                                             \
    EVENT("{\"index\":3,\"delta\":{\"content\":\"" what "\"}," \
          "\"logprobs\":null,\"finish_reason\":null}]}")
#define ENDS(why)                                                              \
    EVENT(                                                                     \
        "{\"index\":3,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"" why \
        "\"}]}")

/* As OpenAI's: the role alone, and an end that says nothing. */
static void chat_stream_begins_with_role(void **state)
{
    const bt_api_choice_t first = choice(3, "Hi", BT_FINISH_NONE);
    const bt_api_choice_t last = choice(3, "", BT_FINISH_STOP);
    const bt_api_choice_t tail = choice(3, "!", BT_FINISH_LENGTH);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_chunks(&chat, &first, true, &usage, &out);
    expect(&out, ROLE SAYS("Hi"));
    bt_api_write_chunks(&chat, &first, false, &usage, &out);
    expect(&out, SAYS("Hi"));
    bt_api_write_chunks(&chat, &last, false, &usage, &out);
    expect(&out, ENDS("stop"));
    bt_api_write_chunks(&chat, &last, true, &usage, &out);
    expect(&out, ROLE ENDS("stop"));
    bt_api_write_chunks(&chat, &tail, false, &usage, &out);
    expect(&out, SAYS("!") ENDS("length"));
    bt_strbuf_fini(&out);
}

static void usage_is_written_on_request(void **state)
{
    const bt_api_choice_t c = choice(0, "a", BT_FINISH_NONE);
    bt_api_answer_t a = chat;
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    a.include_usage = true;
    bt_api_write_chunks(&a, &c, false, &usage, &out);
    expect(&out, "data: " CHUNK "{\"index\":0,\"delta\":{\"content\":\"a\"},"
                 "\"logprobs\":null,\"finish_reason\":null}],"
                 "\"usage\":null}\n\n");
    bt_api_write_usage(&a, &usage, &out);
    expect(&out, CHUNK "],\"usage\":{\"prompt_tokens\":5,"
                       "\"completion_tokens\":7,\"total_tokens\":12,"
                       "" DETAILS "}}");
    a.continuous_usage = true;
    bt_api_write_chunks(&a, &c, false, &usage, &out);
    expect(&out, "data: " CHUNK "{\"index\":0,\"delta\":{\"content\":\"a\"},"
                 "\"logprobs\":null,\"finish_reason\":null}],"
                 "\"usage\":{\"prompt_tokens\":5,"
                 "\"completion_tokens\":7,\"total_tokens\":12,"
                 "" DETAILS "}}\n\n");
    bt_strbuf_fini(&out);
}

static void completion_events_have_text(void **state)
{
    const bt_api_choice_t c = choice(0, "a", BT_FINISH_NONE);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_chunks(&completion, &c, true, NULL, &out);
    expect(&out, "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\","
                 "\"created\":1700000000,\"model\":\"m\","
                 "\"system_fingerprint\":null,\"choices\":["
                 "{\"index\":0,\"text\":\"a\",\"logprobs\":null,"
                 "\"finish_reason\":null}]}\n\n");
    bt_strbuf_fini(&out);
}

/* RFC 8259, 7: which characters must be escaped. */
static void any_text_is_escaped_as_json_string(void **state)
{
    static const char text[] = "\"\\/\b\f\n\r\t\x01\x1f\x7f\0z"
                               "\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80"
                               "\xFF(\xC3)\xED\xA0\x80\xE4\xB8";
    bt_api_choice_t c = {.text = text, .text_bytes = sizeof(text) - 1};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_answer(&triton, &c, 1, &usage, &out);
    assert_string_equal(
        strstr(out.data, "text_output"),
        "text_output\":\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\x7f"
        "\\u0000z\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80"
        "\xEF\xBF\xBD(\xEF\xBF\xBD)\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
        "\xEF\xBF\xBD\xEF\xBF\xBD\"}");
    bt_strbuf_reset(&out);
    c.text = NULL; /* no piece */
    c.text_bytes = 0;
    bt_api_write_answer(&triton, &c, 1, &usage, &out);
    assert_string_equal(strstr(out.data, "text_output"), "text_output\":\"\"}");
    bt_strbuf_fini(&out);
}

static void errors_have_form_of_dialect(void **state)
{
    bt_api_error_t error;
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_error_set(&error, 400, "max_tokens",
                     "max_tokens must be %d \"at least\"", 1);
    bt_api_write_error(BT_API_GENERATE, &error, &out);
    expect(&out, "{\"error\":\"max_tokens must be 1 \\\"at least\\\"\"}");
    bt_api_write_error(BT_API_CHAT, &error, &out);
    expect(&out, "{\"error\":{\"message\":\"max_tokens must be 1 "
                 "\\\"at least\\\"\",\"type\":\"invalid_request_error\","
                 "\"param\":\"max_tokens\",\"code\":null}}");
    /* A path that is not there says nothing about models. */
    bt_api_error_set(&error, 404, NULL, "no route");
    bt_api_write_error(BT_API_COMPLETIONS, &error, &out);
    expect(&out, "{\"error\":{\"message\":\"no route\","
                 "\"type\":\"invalid_request_error\",\"param\":null,"
                 "\"code\":null}}");
    bt_api_error_set(&error, 404, "model", "no model x");
    bt_api_write_error(BT_API_COMPLETIONS, &error, &out);
    expect(&out, "{\"error\":{\"message\":\"no model x\","
                 "\"type\":\"invalid_request_error\",\"param\":\"model\","
                 "\"code\":\"model_not_found\"}}");
    bt_api_write_error(BT_API_GENERATE, &error, &out);
    expect(&out, "{\"error\":\"no model x\"}");
    bt_strbuf_fini(&out);
}

static void long_error_message_is_truncated(void **state)
{
    bt_api_error_t error;
    char text[1024];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    bt_api_error_set(&error, 500, NULL, "%s", text);
    assert_int_equal(strlen(error.message), sizeof(error.message) - 1);
}

#define SAMPLED_BY_FILE                                                     \
    "\"chat_template\":\"chatml\",\"default_sampling\":{\"from\":\"file\"," \
    "\"temperature\":0.6,\"top_p\":0.95,\"top_k\":20,\"min_p\":0.05,"       \
    "\"repetition_penalty\":1.1}"
#define SAMPLED_BY_SERVER                                               \
    "\"chat_template\":null,\"default_sampling\":{\"from\":\"server\"," \
    "\"temperature\":0,\"top_p\":0,\"top_k\":0,\"min_p\":0,"            \
    "\"repetition_penalty\":0}"

static void model_list_is_written(void **state)
{
    const bt_api_model_t models[] = {
        {.name = "m",
         .created = 17,
         .context_tokens = 8192,
         .chat_template = "chatml",
         .sampling = {true, 0.6f, 0.95f, 0.05f, 1.1f, 20}},
        {.name = "n \"", .created = 18, .context_tokens = 64},
    };
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_api_write_models(models, 2, &out);
    expect(
        &out,
        "{\"object\":\"list\",\"data\":[{\"id\":\"m\","
        "\"object\":\"model\",\"created\":17,\"owned_by\":\"baton\","
        "\"root\":\"m\",\"parent\":null,\"max_model_len\":8192," SAMPLED_BY_FILE
        "},"
        "{\"id\":\"n \\\"\",\"object\":\"model\",\"created\":18,"
        "\"owned_by\":\"baton\",\"root\":\"n \\\"\",\"parent\":null,"
        "\"max_model_len\":64," SAMPLED_BY_SERVER "}]}");
    bt_api_write_model(&models[0], &out);
    expect(&out, "{\"id\":\"m\",\"object\":\"model\",\"created\":17,"
                 "\"owned_by\":\"baton\",\"root\":\"m\",\"parent\":null,"
                 "\"max_model_len\":8192," SAMPLED_BY_FILE "}");
    bt_strbuf_fini(&out);
}

/* The opening that is written once is what each piece would write. */
static void piece_is_equal_with_prepared_opening(void **state)
{
    static const bt_api_dialect_t dialects[] = {BT_API_COMPLETIONS,
                                                BT_API_CHAT};
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(dialects); i++) {
        bt_api_answer_t answer = {.dialect = dialects[i],
                                  .id = "cmpl-1",
                                  .model = "a \"model\"",
                                  .created = 77,
                                  .continuous_usage = i == 1};
        const bt_api_choice_t choice = {
            .text = "text", .text_bytes = 4, .finish = BT_FINISH_STOP};
        bt_strbuf_t opening, with, without;

        bt_strbuf_init(&opening, 4096);
        bt_strbuf_init(&with, 4096);
        bt_strbuf_init(&without, 4096);
        bt_api_write_chunks(&answer, &choice, true, &usage, &without);
        bt_api_write_opening(&answer, &opening);
        answer.opening = opening.data;
        answer.opening_bytes = opening.len;
        bt_api_write_chunks(&answer, &choice, true, &usage, &with);
        assert_string_equal(with.data, without.data);
        bt_strbuf_fini(&opening);
        bt_strbuf_fini(&with);
        bt_strbuf_fini(&without);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(documented_generate_answer_is_written),
        BT_TEST(openai_answer_lists_choices),
        BT_TEST(token_ids_are_written_on_request),
        BT_TEST(chat_stream_begins_with_role),
        BT_TEST(usage_is_written_on_request),
        BT_TEST(completion_events_have_text),
        BT_TEST(any_text_is_escaped_as_json_string),
        BT_TEST(errors_have_form_of_dialect),
        BT_TEST(long_error_message_is_truncated),
        BT_TEST(model_list_is_written),
        BT_TEST(piece_is_equal_with_prepared_opening),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
