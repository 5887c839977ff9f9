/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts against jinja2 with the families' published templates, as
 * tests/golden/make_tokenizer_golden.py rendered them: by the families, and by
 * the interpreter from the templates' texts. */
#include "tests/unit/inference/tokenizer/golden.h"

#include "common/base/json.h"
#include "inference/template/chat.h"

#define MAX_MESSAGES 8

/* "word REST" or "word\tREST" → REST, NULL when the line is another. */
static char *after(char *line, const char *word)
{
    const size_t n = strlen(word);

    return (strncmp(line, word, n) == 0) ? line + n : NULL;
}

static void split(char *text, char **rest_p)
{
    char *tab = strchr(text, '\t');

    assert_non_null(tab);
    *tab = '\0';
    *rest_p = tab + 1;
    golden_unescape(*rest_p, strlen(*rest_p));
}

/* As make_tokenizer_golden.py has them. */
static bt_chat_tokens_t tokens_of(const char *family)
{
    static const struct {
        const char *name, *bos, *eos;
    } rows[] = {
        {"llama3.1", "<|begin_of_text|>", "<|eot_id|>"},
        {"llama3", "<|begin_of_text|>", "<|eot_id|>"},
        {"gemma", "<bos>", "<eos>"},
        {"phi", "<s>", "<|endoftext|>"},
        {"llama2", "<s>", "</s>"},
        {"mistral", "<s>", "</s>"},
        {"zephyr", "<s>", "</s>"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strncmp(family, rows[i].name, strlen(rows[i].name)) == 0) {
            return (bt_chat_tokens_t){.bos = rows[i].bos, .eos = rows[i].eos};
        }
    }
    return (bt_chat_tokens_t){.bos = "", .eos = ""};
}

static const bt_chat_template_t *family(const char *name)
{
    const bt_chat_template_t *tmpl = NULL;

    assert_int_equal(bt_chat_template_of_family(name, &tmpl), BT_OK);
    return tmpl;
}

typedef struct pair {
    const bt_chat_template_t *family, *own;
    char name[32];
} pair_t;

static void begin_family(pair_t *pair, char *name, const char *jinja)
{
    const bt_chat_source_t source = {
        .jinja = jinja, .bytes = strlen(jinja), .tokens = tokens_of(name)};
    char why[BT_CHAT_WHY_BYTES];

    bt_chat_template_free(pair->own);
    bt_chat_template_free(pair->family);
    snprintf(pair->name, sizeof(pair->name), "%s", name);
    pair->family = family(name);
    assert_non_null(strstr(bt_chat_family_names(), name));
    if (bt_chat_template_read(&source, why, sizeof(why), &pair->own) != BT_OK) {
        fail_msg("%s: %s", name, why);
    }
}

/* Messages as JSON. */
typedef struct message {
    const char *role, *content;
} message_t;

static const char *json_of(const message_t *messages, size_t n)
{
    static bt_strbuf_t text;
    bt_json_t json;

    bt_strbuf_fini(&text);
    bt_strbuf_init(&text, 1u << 20);
    bt_json_init(&json, &text);
    bt_json_array(&json, NULL);
    for (size_t i = 0; i < n; i++) {
        bt_json_object(&json, NULL);
        bt_json_str(&json, "role", messages[i].role);
        bt_json_str(&json, "content", messages[i].content);
        bt_json_end_object(&json);
    }
    bt_json_end_array(&json);
    assert_int_equal(bt_strbuf_status(&text), BT_OK);
    return text.data;
}

#define ONE_USER "[{\"role\":\"user\",\"content\":\"a\"}]"

static void both_render(const pair_t *pair, const bt_chat_request_t *request,
                        const char *expected)
{
    const bt_chat_template_t *const all[] = {pair->family, pair->own};
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t out;

    bt_strbuf_init(&out, 1u << 16);
    for (int i = 0; i < 2; i++) {
        bt_strbuf_reset(&out);
        if (bt_chat_render(all[i], request, &out, NULL, why, sizeof(why)) !=
            BT_OK) {
            fail_msg("%s: %s", pair->name, why);
        }
        assert_string_equal(out.data, expected);
    }
    bt_strbuf_fini(&out);
}

/* Where jinja2 raises, or where a family refuses what its text would drop. */
static void family_refuses(const pair_t *pair, const bt_chat_request_t *request)
{
    char why[BT_CHAT_WHY_BYTES] = "";
    bt_status_t status;
    bt_strbuf_t out;

    bt_strbuf_init(&out, 1u << 16);
    status =
        bt_chat_render(pair->family, request, &out, NULL, why, sizeof(why));
    assert_true((status == BT_ERR_INVALID_PARAM) ||
                (status == BT_ERR_UNSUPPORTED));
    assert_true(why[0] != '\0');
    assert_int_equal(out.len, 0);
    bt_strbuf_fini(&out);
}

static void every_family_renders_as_its_jinja_text(void **state)
{
    message_t messages[MAX_MESSAGES] = {{.role = NULL}};
    bt_chat_request_t request = {.now_s = 1721952000}; /* 26 Jul 2024 */
    size_t n_messages = 0;
    pair_t pair = {.own = NULL};
    size_t n_families = 0;
    size_t n_rendered = 0;
    size_t n_raised = 0;
    golden_lines_t file;

    (void)state;
    golden_read("golden/tok_chat.txt", &file);
    for (size_t i = 0; i < file.n; i++) {
        char *rest;
        char *text;

        if ((text = after(file.lines[i], "template ")) != NULL) {
            split(text, &rest);
            begin_family(&pair, text, rest);
            n_families++;
        } else if ((text = after(file.lines[i], "message ")) != NULL) {
            assert_true(n_messages < MAX_MESSAGES);
            split(text, &rest);
            messages[n_messages].role = text;
            messages[n_messages++].content = rest;
        } else if ((text = after(file.lines[i], "renders\t")) != NULL) {
            golden_unescape(text, strlen(text));
            request.messages_json = json_of(messages, n_messages);
            both_render(&pair, &request, text);
            n_messages = 0;
            n_rendered++;
        } else {
            assert_string_equal(file.lines[i], "raises");
            request.messages_json = json_of(messages, n_messages);
            family_refuses(&pair, &request);
            n_messages = 0;
            n_raised++;
        }
    }
    assert_int_equal(n_families, 15);
    assert_true(n_rendered > 100);
    assert_true(n_raised > 20);
    bt_chat_template_free(pair.own);
    bt_chat_template_free(pair.family);
    golden_free(&file);
}

static void unknown_families_and_bad_templates_are_refused(void **state)
{
    static const char bad[] = "{% for m in messages %}\n{{ m.content }\n";
    const bt_chat_source_t source = {.jinja = bad, .bytes = strlen(bad)};
    const bt_chat_source_t for_tools = {
        .jinja = "", .tools_jinja = bad, .tools_bytes = strlen(bad)};
    const bt_chat_template_t *tmpl = NULL;
    char why[BT_CHAT_WHY_BYTES];

    (void)state;
    assert_int_equal(bt_chat_template_of_family("llama", &tmpl),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(bt_chat_template_of_family("", &tmpl), BT_ERR_NOT_FOUND);
    assert_int_equal(bt_chat_template_read(&source, why, sizeof(why), &tmpl),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_chat_template_read(&for_tools, why, sizeof(why), &tmpl),
                     BT_ERR_UNSUPPORTED);
    assert_null(tmpl);
    assert_non_null(strstr(why, "line 2: "));
}

static const bt_chat_template_t *own(const char *jinja, const char *tools_jinja)
{
    const bt_chat_source_t source = {
        .jinja = jinja,
        .bytes = strlen(jinja),
        .tools_jinja = tools_jinja,
        .tools_bytes = (tools_jinja != NULL) ? strlen(tools_jinja) : 0,
        .tokens = {.bos = "<s>", .eos = "</s>"}};
    const bt_chat_template_t *tmpl = NULL;
    char why[BT_CHAT_WHY_BYTES];

    assert_int_equal(bt_chat_template_read(&source, why, sizeof(why), &tmpl),
                     BT_OK);
    return tmpl;
}

static void own_template_gets_every_variable_of_a_request(void **state)
{
    const bt_chat_request_t request = {
        .messages_json = "[{\"role\":\"user\",\"content\":[{\"text\":\"b\"}]}]",
        .tools_json = "[{\"name\":\"f\"}]",
        .documents_json = "[1]",
        .kwargs_json = "{\"thinking\":false,\"messages\":1}",
        .no_generation_prompt = true,
    };
    const bt_chat_request_t plain = {.messages_json = ONE_USER};
    const bt_chat_template_t *tmpl =
        own("{{ bos_token }}{{ messages[0].content }}{{ tools }}{{ documents }}"
            "{{ thinking }}{{ add_generation_prompt }}{{ eos_token }}"
            "{{ pad_token is defined }}",
            NULL);
    const bt_chat_template_t *chatml = family("chatml");
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    assert_int_equal(
        bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)), BT_OK);
    assert_string_equal(out.data, "<s>b[{'name': 'f'}][1]FalseFalse</s>False");
    bt_strbuf_reset(&out);
    assert_int_equal(bt_chat_render(tmpl, &plain, &out, NULL, why, sizeof(why)),
                     BT_OK);
    assert_string_equal(out.data, "<s>aNoneNoneTrue</s>False");
    bt_strbuf_reset(&out);
    assert_int_equal(
        bt_chat_render(chatml, &request, &out, NULL, why, sizeof(why)),
        BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "tools need the model's own chat template"));
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
    bt_chat_template_free(chatml);
}

static void family_without_generation_prompt_opens_no_answer(void **state)
{
    static const struct {
        const char *family, *text;
    } rows[] = {
        {"chatml", "<|im_start|>user\na<|im_end|>\n"},
        {"llama3", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>"
                   "\n\na<|eot_id|>"},
        {"gemma", "<bos><start_of_turn>user\na<end_of_turn>\n"},
        {"zephyr", "<|user|>\na</s>\n"},
        {"mistral", "<s>[INST] a [/INST]"},
    };
    const bt_chat_request_t request = {.messages_json = ONE_USER,
                                       .no_generation_prompt = true};
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bt_chat_template_t *tmpl = family(rows[i].family);

        bt_strbuf_reset(&out);
        assert_int_equal(
            bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)),
            BT_OK);
        assert_string_equal(out.data, rows[i].text);
        assert_string_equal(bt_chat_template_name(tmpl), rows[i].family);
        bt_chat_template_free(tmpl);
    }
    bt_strbuf_fini(&out);
}

static void requests_with_tools_use_the_tool_template(void **state)
{
    bt_chat_request_t request = {.messages_json = ONE_USER};
    const bt_chat_template_t *tmpl = own("plain", "with {{ tools | length }}");
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    assert_int_equal(
        bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)), BT_OK);
    request.tools_json = "[1, 2]";
    assert_int_equal(
        bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)), BT_OK);
    assert_string_equal(out.data, "plainwith 2");
    assert_string_equal(bt_chat_template_name(tmpl), "own");
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
}

static void tool_calls_and_results_are_rendered(void **state)
{
    const bt_chat_request_t request = {
        .messages_json =
            "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
            "\"function\":{\"arguments\":{\"a\":[1.5]}}}]},"
            "{\"role\":\"tool\",\"content\":\"4\",\"name\":\"f\","
            "\"tool_call_id\":\"c1\"}]"};
    const bt_chat_template_t *tmpl =
        own("{% for m in messages %}{{ m.tool_calls is defined }}/"
            "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}"
            "{% endfor %}{{ m.name }}{{ m.tool_call_id }}{{ m.content }} "
            "{% endfor %}",
            NULL);
    const bt_chat_template_t *chatml = family("chatml");
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    assert_int_equal(
        bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)), BT_OK);
    /* As jinja2 renders it. */
    assert_string_equal(out.data, "True/{\"a\": [1.5]} False/fc14 ");
    assert_int_equal(
        bt_chat_render(chatml, &request, &out, NULL, why, sizeof(why)),
        BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, "tools need the model's own chat template"));
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
    bt_chat_template_free(chatml);
}

typedef struct shown {
    const char *jinja, *messages, *text, *unused;
} shown_t;

#define LOOP "{% for m in messages %}"
#define END  "{% endfor %}"
#define PARTS                                                              \
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}," \
    "{\"type\":\"text\",\"text\":\"y\",\"more\":1}]}]"
#define CALLS "\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\"}}]"

/* Each text as jinja2 has it for messages that are as the table of chat_priv.h
 * says. */
static void messages_take_the_form_that_the_template_can_render(void **state)
{
    static const shown_t rows[] = {
        /* parts: joined, as they are, and of a string */
        {LOOP "{{ m.content }}" END, PARTS, "x\ny",
         "messages[0].content[1].more"},
        {LOOP "{% for p in m.content %}<{{ p.text }}>" END END, PARTS, "<x><y>",
         "messages[0].content[1].more"},
        {LOOP "{% for p in m.content %}<{{ p.text }}>" END END, ONE_USER, "<a>",
         ""},
        {LOOP "{% if m.content is string %}{{ m.content }}{% else %}"
              "{% for p in m.content %}<{{ p.text }}>" END "{% endif %}" END,
         ONE_USER, "a", ""},
        {LOOP "<{{ m.content[0].text }}>" END, PARTS, "<x\ny>",
         "messages[0].content[1].more"},
        {LOOP "{{ m.content | string }}{{ m.content[0].text }}" END, ONE_USER,
         "a", ""},
        /* null: known, raises, is printed */
        {LOOP "{% if m.content is none %}call{% else %}{{ m.content }}"
              "{% endif %}" END,
         "[{\"role\":\"assistant\",\"content\":null," CALLS "}]", "call",
         "messages[0].tool_calls"},
        {LOOP "{{ '<' + m.content + '>' }}" END,
         "[{\"role\":\"assistant\",\"content\":null," CALLS "}]", "<>",
         "messages[0].tool_calls"},
        {LOOP "<{{ m.content }}>" END,
         "[{\"role\":\"assistant\",\"content\":null}]", "<>", ""},
        /* roles and thoughts */
        {LOOP "{{ m.role }}" END, "[{\"role\":\"developer\",\"content\":\"\"}]",
         "system", ""},
        {"{# developer #}" LOOP "{{ m.role }}" END,
         "[{\"role\":\"developer\",\"content\":\"\"}]", "developer", ""},
        {LOOP "{{ m.reasoning_content }}{{ m.content }}" END,
         "[{\"role\":\"assistant\",\"content\":\"b\",\"reasoning\":\"a\"}]",
         "ab", ""},
        {LOOP "{{ m.reasoning }}{{ m.content }}" END,
         "[{\"role\":\"assistant\",\"content\":\"b\","
         "\"reasoning_content\":\"a\"}]",
         "ab", ""},
        {LOOP "{{ m.thinking }}{{ m.content }}" END,
         "[{\"role\":\"assistant\",\"content\":\"b\","
         "\"reasoning_content\":\"a\"}]",
         "ab", ""},
        {LOOP "{{ m.thinking }}{{ m.tool_calls | length }}" END,
         "[{\"role\":\"assistant\",\"content\":null,"
         "\"reasoning\":\"a\"," CALLS "}]",
         "a1", "messages[0].tool_calls[0].function"},
        /* gpt-oss' raises where a message with calls has both */
        {LOOP "{{ m.thinking is defined }}{{ m.tool_calls | length }}"
              "{{ m.content }}" END,
         "[{\"role\":\"assistant\",\"content\":\"b\","
         "\"reasoning\":\"a\"," CALLS "}]",
         "False1b",
         "messages[0].reasoning\nmessages[0].tool_calls[0].function"},
        {LOOP "{{ m.content }}" END,
         "[{\"role\":\"user\",\"content\":\"b\",\"name\":\"n\","
         "\"reasoning_content\":\"a\",\"x\":null,\"refusal\":null}]",
         "b", "messages[0].name\nmessages[0].reasoning_content"},
    };
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t out;
    bt_strbuf_t unused;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_strbuf_init(&unused, 4096);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bt_chat_template_t *tmpl = own(rows[i].jinja, NULL);
        const bt_chat_request_t request = {.messages_json = rows[i].messages,
                                           .unused = &unused};

        bt_strbuf_reset(&out);
        bt_strbuf_reset(&unused);
        assert_int_equal(
            bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)),
            BT_OK);
        assert_string_equal((out.len > 0) ? out.data : "", rows[i].text);
        bt_strbuf_puts(&unused, "");
        if (rows[i].unused[0] == '\0') {
            assert_int_equal(unused.len, 0);
        } else {
            unused.data[unused.len - 1] = '\0';
            assert_string_equal(unused.data, rows[i].unused);
        }
        bt_chat_template_free(tmpl);
    }
    bt_strbuf_fini(&unused);
    bt_strbuf_fini(&out);
}

static void raise_exception_text_reaches_the_client(void **state)
{
    const bt_chat_request_t request = {
        .messages_json = "[{\"role\":\"tool\",\"content\":\"a\"}]"};
    const bt_chat_template_t *tmpl =
        own("{{ raise_exception('no ' + messages[0].role) }}", NULL);
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_strbuf_puts(&out, "before");
    assert_int_equal(
        bt_chat_render(tmpl, &request, &out, NULL, why, sizeof(why)),
        BT_ERR_INVALID_PARAM);
    assert_string_equal(why, "no tool");
    assert_string_equal(out.data, "before");
    bt_strbuf_fini(&out);
    bt_chat_template_free(tmpl);
}

static char heard[BT_CHAT_WHY_BYTES];

static bt_status_t render_one(const bt_chat_template_t *tmpl,
                              const message_t *message, size_t n,
                              bt_strbuf_t *out)
{
    const bt_chat_request_t request = {.messages_json = json_of(message, n)};

    return bt_chat_render(tmpl, &request, out, NULL, heard, sizeof(heard));
}

static void bad_conversations_are_refused_and_leave_the_text_alone(void **state)
{
    const bt_chat_template_t *llama2 = family("llama2");
    const bt_chat_template_t *phi = family("phi");
    const bt_chat_template_t *gemma = family("gemma");
    const message_t system_only = {.role = "system", .content = "s"};
    const message_t tool = {.role = "tool", .content = "t"};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 64);
    bt_strbuf_puts(&out, "before");
    assert_int_equal(render_one(phi, &tool, 0, &out), BT_ERR_INVALID_PARAM);
    assert_string_equal(heard, "there are no messages");
    assert_int_equal(render_one(phi, &tool, 1, &out), BT_ERR_INVALID_PARAM);
    assert_int_equal(render_one(llama2, &tool, 1, &out), BT_ERR_INVALID_PARAM);
    assert_int_equal(render_one(llama2, &system_only, 1, &out),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(render_one(gemma, &system_only, 1, &out),
                     BT_ERR_INVALID_PARAM);
    assert_string_equal(out.data, "before");
    bt_strbuf_fini(&out);
    bt_chat_template_free(llama2);
    bt_chat_template_free(phi);
    bt_chat_template_free(gemma);
}

static void full_buffer_is_an_error_and_keeps_earlier_text(void **state)
{
    const bt_chat_template_t *chatml = family("chatml");
    const message_t user = {.role = "user",
                            .content = "a question of some length"};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 40);
    bt_strbuf_puts(&out, "before");
    assert_int_equal(render_one(chatml, &user, 1, &out), BT_ERR_TOO_LARGE);
    assert_string_equal(heard, bt_status_str(BT_ERR_TOO_LARGE));
    assert_string_equal(out.data, "before");
    bt_strbuf_fini(&out);
    bt_chat_template_free(chatml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_family_renders_as_its_jinja_text),
        BT_TEST(unknown_families_and_bad_templates_are_refused),
        BT_TEST(own_template_gets_every_variable_of_a_request),
        BT_TEST(family_without_generation_prompt_opens_no_answer),
        BT_TEST(requests_with_tools_use_the_tool_template),
        BT_TEST(tool_calls_and_results_are_rendered),
        BT_TEST(messages_take_the_form_that_the_template_can_render),
        BT_TEST(raise_exception_text_reaches_the_client),
        BT_TEST(bad_conversations_are_refused_and_leave_the_text_alone),
        BT_TEST(full_buffer_is_an_error_and_keeps_earlier_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
