/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the Harmony format. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/status.h"
#include "router/text/harmony_parser.h"

#define CH "<|channel|>"
#define M  "<|message|>"
#define S  "<|start|>assistant"
#define C  " <|constrain|>json"

typedef struct sample {
    const char *text, *thought, *content;
    const char *calls; /* "name arguments;" of each */
    const char *how;   /* "no tools", "one call", "kept reasoning": of the
                          request; "is cut": the last call */
} sample_t;

/* Expected values by hand, from "OpenAI harmony response format" and the
 * drawing in harmony_parser.h. */
static const sample_t samples[] = {
    {CH "analysis" M "2+2 is 4.<|end|>" S CH "final" M "4<|return|>",
     "2+2 is 4.", "4", "", ""},
    {CH "final" M "4", "", "4", "", ""},
    {"", "", "", "", ""},
    {CH "analysis" M "a<|end|>" S CH "commentary to=functions.f" C M
        "{\"x\": 1}<|call|>",
     "a", "", "f {\"x\": 1};", ""},
    /* The recipient in the role's place, in front of the channel. */
    {CH "analysis" M "a<|end|>" S " to=functions.f" CH "commentary json" M
        "{\"x\": 1}",
     "a", "", "f {\"x\": 1};", ""},
    {" to=functions.f" CH "commentary" C M "{}", "", "", "f {};", ""},
    /* A preamble is content, and so is the answer behind it. */
    {CH "commentary" M "I look.<|end|>" S CH "commentary to=functions.f" M
        "{}<|call|>" S CH "final" M "Done.",
     "", "I look.\nDone.", "f {};", ""},
    {CH "analysis" M "a<|end|>" S CH "analysis" M "b<|end|>" S CH "final" M "c",
     "a\nb", "c", "", ""},
    /* Several calls, the second without the prefix. */
    {CH "commentary to=functions.f" M "{\"a\":[1,\"}\"]}<|call|>" S CH
        "commentary to=g" M " {} <|call|>",
     "", "", "f {\"a\":[1,\"}\"]};g {};", ""},
    {CH "commentary to=functions.f" M "{}<|call|>" S CH
        "commentary to=functions.g" M "{}",
     "", "", "f {};", "one call"},
    /* Tools of the model's own, and calls nobody asked for. */
    {CH "analysis to=browser.search code" M "{\"q\": 1}<|call|>" S CH "final" M
        "x",
     "{\"q\": 1}", "x", "", ""},
    {CH "commentary to=functions.f" M "{}", "{}", "", "", "no tools"},
    {CH "commentary to=functions.a$b" M "{}", "{}", "", "", ""},
    /* Cut: within a call, a header, a mark. */
    {CH "commentary to=functions.f" M "{\"x\": ", "", "", "f {\"x\": ;",
     "is cut"},
    {CH "commentary to=functions.f" M, "", "", "f ;", "is cut"},
    {CH "commentary to=functions.f" M "<|call|>", "", "", "f ;", ""},
    {CH "analysis" M "a<|end|>" S CH "fin", "a", "", "", ""},
    {CH "final" M "a<|en", "", "a<|en", "", ""},
    {"<|chan", "", "<|chan", "", ""},
    /* Arguments that are no JSON stay as they are. */
    {CH "commentary to=functions.f" M "print(1)\n2<|call|>", "", "",
     "f print(1)\n2;", ""},
    {CH "commentary to=functions.f" M "{]} x<|call|>", "", "", "f {]} x;", ""},
    /* Without an end, without a header, between messages. */
    {CH "analysis" M "a" CH "final" M "b", "a", "b", "", ""},
    {CH "analysis" M "a" S CH "final" M "b<|return|>", "a", "b", "", ""},
    {"plain < text <|x|>", "", "plain < text <|x|>", "", ""},
    {"  plain", "", "  plain", "", ""},
    {"to=x", "", "to=x", "", ""},
    {M "b", "", "b", "", ""},
    {CH "analysis" M "a<|end|>\n" S CH "final" M "b", "a", "b", "", ""},
    {CH "analysis<|end|>" S CH "final" M "b", "", "b", "", ""},
    {CH "analysis" M "a<|end|>b", "a", "b", "", ""},
    /* A turn of another role that the model invents. */
    {CH "final" M "a<|end|><|start|>user" M "b<|end|>" S CH "final" M "c", "",
     "a\nc", "", ""},
    {CH "analysis" M "a<|end|>" S CH "final" M "b", "", "a\nb", "",
     "kept reasoning"},
    /* Reasoning between a preamble and the answer. */
    {CH "analysis" M "a<|end|>" S CH "commentary" M "I look.<|end|>" S CH
        "analysis" M "b<|end|>" S CH "final" M "c",
     "a\nb", "I look.\nc", "", ""},
    {CH "analysis" M "a<|end|>" S CH "commentary" M "I look.<|end|>" S CH
        "analysis" M "b<|end|>" S CH "final" M "c",
     "a", "I look.\nc", "", "reasoning first"},
    /* Marks in the strings of arguments are text; others cut them. */
    {CH "commentary to=functions.f" M "{\"x\": \"s.split('<|end|>')\"}<|call|>",
     "", "", "f {\"x\": \"s.split('<|end|>')\"};", ""},
    {CH "commentary to=functions.f" M "{\"x\": 1<|end|>" S CH "final" M "c", "",
     "c", "f {\"x\": 1;", "is cut"},
    {CH "commentary to=functions.f" M "{\"x\": <b>}<|end|>", "", "",
     "f {\"x\": <b>};", ""},
    {CH "commentary to=functions.f" M "{\"x\": <|en", "", "", "f {\"x\": <|en;",
     ""},
    /* Text like a header, white space at the end, a prompt's own header. */
    {" to=5 is the setting.", "", " to=5 is the setting.", "", ""},
    {CH "final" M "hi<|end|>\n", "", "hi", "", ""},
    {" \n", "", " \n", "", ""},
    {" to=5 is it.<|return|>", "", " to=5 is it.", "", "continued"},
    {CH "final" M "\xe6\x97\xa5", "", "\xe6\x97\xa5", "", ""},
};

typedef struct reading {
    bt_harmony_t harmony;
    bt_strbuf_t thought, content;
    bt_tools_t tools;
} reading_t;

static bool is(const sample_t *sample, const char *how)
{
    return strcmp(sample->how, how) == 0;
}

static void reading_init(reading_t *r, const sample_t *sample)
{
    static const char names[] = "f\0g";
    const bt_harmony_spec_t how = {
        .keeps_reasoning = is(sample, "kept reasoning"),
        .reasoning_first = is(sample, "reasoning first"),
        .is_continued = is(sample, "continued")};
    const bt_tools_spec_t spec = {
        .format =
            is(sample, "no tools") ? NULL : bt_tool_format_named("harmony"),
        .names = names,
        .names_bytes = sizeof(names),
        .max_calls = is(sample, "one call") ? 1 : 0};

    bt_harmony_init(&r->harmony, &how);
    bt_tools_init(&r->tools, &spec);
    bt_strbuf_init(&r->thought, 4096);
    bt_strbuf_init(&r->content, 4096);
}

static void reading_fini(reading_t *r)
{
    bt_harmony_fini(&r->harmony);
    bt_tools_fini(&r->tools);
    bt_strbuf_fini(&r->thought);
    bt_strbuf_fini(&r->content);
}

static void push(reading_t *r, const char *text, size_t n, bool last)
{
    bt_harmony_push(&r->harmony, text, n, last, &r->thought, &r->content,
                    &r->tools);
}

static const char *text_of(const bt_strbuf_t *buf)
{
    return (buf->len > 0) ? buf->data : "";
}

static void expect(const reading_t *r, const sample_t *sample, size_t a,
                   size_t b)
{
    bt_strbuf_t calls;

    bt_strbuf_init(&calls, 4096);
    for (uint32_t i = 0; i < r->tools.n_calls; i++) {
        bt_strbuf_puts(&calls, r->tools.calls[i].name);
        bt_strbuf_puts(&calls, " ");
        bt_strbuf_puts(&calls, text_of(&r->tools.calls[i].arguments));
        bt_strbuf_puts(&calls, ";");
    }
    if ((strcmp(text_of(&r->thought), sample->thought) != 0) ||
        (strcmp(text_of(&r->content), sample->content) != 0) ||
        (strcmp(text_of(&calls), sample->calls) != 0) ||
        (bt_tools_is_cut(&r->tools) != is(sample, "is cut"))) {
        fail_msg("\"%s\" cut at %zu and %zu: thought \"%s\", content \"%s\", "
                 "calls \"%s\"%s",
                 sample->text, a, b, text_of(&r->thought), text_of(&r->content),
                 text_of(&calls), bt_tools_is_cut(&r->tools) ? ", cut" : "");
    }
    bt_strbuf_fini(&calls);
}

static void any_split_gives_same_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(samples); i++) {
        const char *text = samples[i].text;
        const size_t n = strlen(text);

        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                reading_t r;

                reading_init(&r, &samples[i]);
                push(&r, text, a, false);
                push(&r, text + a, b - a, false);
                push(&r, text + b, n - b, true);
                expect(&r, &samples[i], a, b);
                reading_fini(&r);
            }
        }
    }
}

static void push_more(reading_t *r, const char *text)
{
    push(r, text, strlen(text), false);
}

static void text_and_arguments_are_emitted_as_they_arrive(void **state)
{
    const sample_t sample = {.how = ""};
    reading_t r;

    (void)state;
    reading_init(&r, &sample);
    push_more(&r, CH "analysis" M "ab <|");
    assert_string_equal(r.thought.data, "ab ");
    assert_true(bt_harmony_is_thinking(&r.harmony));
    push_more(&r, "x");
    assert_string_equal(r.thought.data, "ab <|x");
    push_more(&r, "<|end|>" S);
    assert_false(bt_harmony_is_thinking(&r.harmony));
    push_more(&r, CH "commentary to=functions.f" M "{\"x\": \"l");
    assert_int_equal(r.tools.n_calls, 1);
    assert_string_equal(r.tools.calls[0].arguments.data, "{\"x\": \"l");
    push_more(&r, "\"}<|call|>" S CH "final" M "z");
    assert_string_equal(r.content.data, "z");
    reading_fini(&r);
}

/* A header of up to 1,024 bytes, in one piece and in single bytes. */
static void header_that_is_too_long_is_content(void **state)
{
    char text[2048];
    const sample_t sample = {.how = ""};

    (void)state;
    for (size_t n = 1020; n < 1028; n++) {
        reading_t whole, bytes;
        size_t end;

        memcpy(text, CH, 11);
        memset(text + 11, 'c', n - 11);
        memcpy(text + n, M "z", 12);
        end = n + 12;
        reading_init(&whole, &sample);
        reading_init(&bytes, &sample);
        push(&whole, text, end, true);
        for (size_t i = 0; i < end; i++) {
            push(&bytes, text + i, 1, i + 1 == end);
        }
        assert_int_equal(whole.content.len, (n > 1024) ? end : 1);
        assert_int_equal(bytes.content.len, whole.content.len);
        assert_memory_equal(bytes.content.data, whole.content.data,
                            whole.content.len);
        reading_fini(&whole);
        reading_fini(&bytes);
    }
}

static void templates_of_the_format_are_detected(void **state)
{
    static const char harmony[] =
        "{{- \"<|start|>assistant<|channel|>final<|message|>\" }}";
    static const char other[] = "{{ '<|start|>user<|message|>' }}";

    (void)state;
    assert_true(bt_harmony_is_in(harmony, strlen(harmony)));
    assert_false(bt_harmony_is_in(other, strlen(other)));
    assert_false(bt_harmony_is_in(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(any_split_gives_same_messages),
        BT_TEST(text_and_arguments_are_emitted_as_they_arrive),
        BT_TEST(header_that_is_too_long_is_content),
        BT_TEST(templates_of_the_format_are_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
