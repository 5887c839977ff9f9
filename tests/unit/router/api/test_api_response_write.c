/* SPDX-License-Identifier: Apache-2.0 */
/* Items and events of responses. Forms: OpenAI's API reference, "Responses" and
 * "Streaming events". */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/api/api.h"

/* name, namespace, bare name, type, format of each */
#define SPECIAL "c\0\0c\0custom\0\0n.f\0n\0f\0function\0"

static const bt_api_answer_t answer = {.dialect = BT_API_RESPONSES,
                                       .id = "resp_1",
                                       .model = "m",
                                       .created = 1700000000,
                                       .special = SPECIAL,
                                       .special_bytes = sizeof(SPECIAL)};
static const bt_api_usage_t usage = {.prompt_tokens = 5,
                                     .completion_tokens = 7};

/* An answer whose text and calls come in pieces. */
typedef struct growing {
    const char *text, *thought;
    bt_tool_call_t calls[3];
    char names[3][8];
    const char *arguments[3];
    uint32_t n_calls;
} growing_t;

static bt_api_choice_t whole_of(growing_t *g, bt_finish_t finish)
{
    for (uint32_t i = 0; i < g->n_calls; i++) {
        g->calls[i].name = g->names[i];
        bt_strbuf_init(&g->calls[i].arguments, 4096);
        bt_strbuf_puts(&g->calls[i].arguments, g->arguments[i]);
    }
    return (bt_api_choice_t){.text = g->text,
                             .text_bytes = strlen(g->text),
                             .thought = g->thought,
                             .thought_bytes = strlen(g->thought),
                             .calls = g->calls,
                             .n_calls = g->n_calls,
                             .finish = finish};
}

static void free_calls(growing_t *g)
{
    for (uint32_t i = 0; i < g->n_calls; i++) {
        bt_strbuf_fini(&g->calls[i].arguments);
    }
}

static void holds(const bt_strbuf_t *out, const char *text)
{
    if (strstr(out->data, text) == NULL) {
        fail_msg("no %s in %s", text, out->data);
    }
}

#define MESSAGE(id, text)                                               \
    "{\"id\":\"" id "\",\"type\":\"message\",\"status\":\"completed\"," \
    "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","    \
    "\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}]}"

static void items_stand_in_the_order_of_the_text(void **state)
{
    growing_t g = {
        .text = "one two",
        .thought = "t",
        .calls = {{.text_before = 4}, {.text_before = 4}, {.text_before = 7}},
        .names = {"f", "n.f", "c"},
        .arguments = {"{\"a\": 1}", "{}", "{\"input\": \"x\\ny\"}"},
        .n_calls = 3};
    bt_api_choice_t c = whole_of(&g, BT_FINISH_STOP);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 65536);
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    holds(&out, "\"output\":[{\"id\":\"rs_1\",\"type\":\"reasoning\","
                "\"status\":\"completed\",");
    holds(&out,
          "}," MESSAGE(
              "msg_1",
              "one ") ",{\"id\":\"fc_1_0\",\"type\":"
                      "\"function_call\",\"status\":\"completed\",\"call_id\":"
                      "\"call_");
    holds(&out, "\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"},"
                "{\"id\":\"fc_1_1\",\"type\":\"function_call\",");
    holds(
        &out,
        "\",\"name\":\"f\",\"namespace\":\"n\",\"arguments\":\"{}\"}," MESSAGE(
            "msg_1_1",
            "two") ",{\"id\":\"ctc_1_2\",\"type\":\"custom_tool_call\",");
    holds(&out, "\",\"name\":\"c\",\"input\":\"x\\ny\"}],\"usage\":{");
    holds(&out, "\"tool_choice\":\"auto\",\"tools\":[],");
    bt_strbuf_reset(&out);
    c.is_cut_call = true;
    bt_api_write_answer(&answer, &c, 1, &usage, &out);
    holds(&out, "\"ctc_1_2\",\"type\":\"custom_tool_call\",\"status\":"
                "\"incomplete\"");
    holds(&out, "\"fc_1_1\",\"type\":\"function_call\",\"status\":"
                "\"completed\"");
    bt_strbuf_fini(&out);
    free_calls(&g);
}

static void every_finish_has_its_status(void **state)
{
    static const struct {
        bt_finish_t finish;
        const char *status, *details, *last;
    } cases[] = {
        {BT_FINISH_STOP, "completed", "null", "response.completed"},
        {BT_FINISH_LENGTH, "incomplete", "{\"reason\":\"max_output_tokens\"}",
         "response.incomplete"},
        {BT_FINISH_REPETITION, "incomplete", "{\"reason\":\"repetition\"}",
         "response.incomplete"},
        {BT_FINISH_CANCELED, "incomplete", "null", "response.incomplete"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        growing_t g = {.text = "a", .thought = ""};
        bt_api_choice_t c = whole_of(&g, cases[i].finish);
        bt_api_events_t events = {0};
        char text[256];
        bt_strbuf_t out;

        c.whole = c.text;
        c.whole_bytes = c.text_bytes;
        c.whole_thought = "";
        bt_strbuf_init(&out, 65536);
        bt_api_write_answer(&answer, &c, 1, &usage, &out);
        snprintf(text, sizeof(text),
                 "\"status\":\"%s\",\"error\":null,\"incomplete_details\":%s,",
                 cases[i].status, cases[i].details);
        holds(&out, text);
        snprintf(text, sizeof(text), "\"type\":\"message\",\"status\":\"%s\"",
                 cases[i].status);
        holds(&out, text);
        bt_strbuf_reset(&out);
        bt_api_write_events(&answer, &c, &usage, &events, &out);
        snprintf(text, sizeof(text), "event: %s\n", cases[i].last);
        holds(&out, text);
        bt_strbuf_fini(&out);
    }
}

/* Writes the types of all events, and their deltas. */
static void summarize(const char *events, bt_strbuf_t *types,
                      bt_strbuf_t *deltas)
{
    const char *at = events;

    bt_strbuf_reset(types);
    bt_strbuf_reset(deltas);
    while ((at = strstr(at, "event: response.")) != NULL) {
        const char *end = strchr(at, '\n');
        const char *delta = strstr(end, "\"delta\":\"");
        const char *next = strstr(end, "\n\n");

        at += strlen("event: response.");
        bt_strbuf_append(types, at, (size_t)(end - at));
        bt_strbuf_puts(types, " ");
        if ((delta != NULL) && (delta < next)) {
            delta += strlen("\"delta\":\"");
            bt_strbuf_append(deltas, delta, strcspn(delta, "\""));
            bt_strbuf_puts(deltas, "|");
        }
    }
}

static void events_of_calls_follow_one_another(void **state)
{
    growing_t g = {.text = "one two",
                   .thought = "",
                   .calls = {{.text_before = 4}, {.text_before = 7}},
                   .names = {"f", "c"},
                   .arguments = {"{}", "{\"input\": \"x\\ny\"}"},
                   .n_calls = 2};
    bt_api_choice_t c = whole_of(&g, BT_FINISH_NONE);
    bt_api_choice_t piece = c;
    bt_api_events_t events = {0};
    bt_strbuf_t out, types, deltas;

    (void)state;
    bt_strbuf_init(&out, 1 << 20);
    bt_strbuf_init(&types, 4096);
    bt_strbuf_init(&deltas, 4096);
    piece.whole_thought = "";
    /* "one " and half of the first call */
    piece.whole = piece.text = "one ";
    piece.whole_bytes = piece.text_bytes = 4;
    piece.n_calls = 1;
    g.calls[0].arguments.len = 1;
    bt_api_write_events(&answer, &piece, &usage, &events, &out);
    summarize(out.data, &types, &deltas);
    assert_string_equal(
        types.data, "created in_progress output_item.added content_part.added "
                    "output_text.delta output_text.done content_part.done "
                    "output_item.done output_item.added "
                    "function_call_arguments.delta ");
    assert_string_equal(deltas.data, "one |{|");
    bt_strbuf_reset(&out);
    /* its rest, text, and the beginning of the second one */
    g.calls[0].arguments.len = 2;
    g.calls[1].arguments.len = 12;
    piece.whole = c.text;
    piece.whole_bytes = 7;
    piece.text = c.text + 4;
    piece.text_bytes = 3;
    piece.n_calls = 2;
    piece.n_calls_sent = 1;
    piece.args_sent = 1;
    bt_api_write_events(&answer, &piece, &usage, &events, &out);
    summarize(out.data, &types, &deltas);
    assert_string_equal(
        types.data,
        "function_call_arguments.delta function_call_arguments.done "
        "output_item.done output_item.added content_part.added "
        "output_text.delta output_text.done content_part.done "
        "output_item.done output_item.added custom_tool_call_input.delta ");
    assert_string_equal(deltas.data, "}|two|x|");
    holds(&out, "\"output_index\":3,\"item\":{\"id\":\"ctc_1_1\"");
    holds(&out, "\"item_id\":\"fc_1_0\",\"output_index\":1,\"name\":\"f\","
                "\"arguments\":\"{}\"}");
    bt_strbuf_reset(&out);
    /* the end */
    g.calls[1].arguments.len = strlen(g.arguments[1]);
    piece.text_bytes = 0;
    piece.n_calls_sent = 2;
    piece.args_sent = 12;
    piece.finish = BT_FINISH_STOP;
    bt_api_write_events(&answer, &piece, &usage, &events, &out);
    summarize(out.data, &types, &deltas);
    assert_string_equal(types.data,
                        "custom_tool_call_input.delta "
                        "custom_tool_call_input.done output_item.done "
                        "completed ");
    holds(&out, "\"delta\":\"\\ny\"");
    holds(&out, "\"item_id\":\"ctc_1_1\",\"output_index\":3,\"input\":"
                "\"x\\ny\"}");
    holds(&out, MESSAGE("msg_1", "one "));
    holds(&out, MESSAGE("msg_1_1", "two"));
    bt_strbuf_fini(&types);
    bt_strbuf_fini(&deltas);
    bt_strbuf_fini(&out);
    free_calls(&g);
}

/* max_tokens cut the input within an escape: deltas are what .done has. */
static void deltas_of_a_cut_input_are_all_of_it(void **state)
{
    growing_t g = {.text = "",
                   .thought = "",
                   .names = {"c"},
                   .arguments = {"{\"input\": \"x\\u00"},
                   .n_calls = 1};
    bt_api_choice_t piece = whole_of(&g, BT_FINISH_LENGTH);
    bt_api_events_t events = {0};
    bt_strbuf_t out, types, deltas;

    (void)state;
    bt_strbuf_init(&out, 1 << 20);
    bt_strbuf_init(&types, 4096);
    bt_strbuf_init(&deltas, 4096);
    piece.whole = piece.whole_thought = "";
    piece.is_cut_call = true;
    bt_api_write_events(&answer, &piece, &usage, &events, &out);
    summarize(out.data, &types, &deltas);
    assert_string_equal(deltas.data, "x|\xEF\xBF\xBDu00|");
    holds(&out, "\"input\":\"x\xEF\xBF\xBDu00\"}");
    bt_strbuf_fini(&types);
    bt_strbuf_fini(&deltas);
    bt_strbuf_fini(&out);
    free_calls(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(items_stand_in_the_order_of_the_text),
        BT_TEST(every_finish_has_its_status),
        BT_TEST(events_of_calls_follow_one_another),
        BT_TEST(deltas_of_a_cut_input_are_all_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
