/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts against jinja2 with the families' published templates, as
 * tests/golden/make_tokenizer_golden.py rendered them. */
#include "tests/unit/tokenizer/golden.h"

#include "inference/tokenizer/chat.h"

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

static void every_family_renders_as_its_jinja_text(void **state)
{
    const bt_chat_template_t *tmpl = NULL;
    bt_chat_message_t messages[MAX_MESSAGES];
    size_t n_messages = 0;
    size_t n_families = 0;
    size_t n_rendered = 0;
    size_t n_raised = 0;
    golden_lines_t file;
    bt_strbuf_t out;

    (void)state;
    golden_read("golden/tok_chat.txt", &file);
    bt_strbuf_init(&out, 1u << 16);
    for (size_t i = 0; i < file.n; i++) {
        const char *why = NULL;
        char *rest;
        char *text;

        bt_strbuf_reset(&out);
        if ((text = after(file.lines[i], "template ")) != NULL) {
            split(text, &rest);
            tmpl = bt_chat_template_recognise(rest, strlen(rest));
            assert_non_null(tmpl);
            assert_ptr_equal(bt_chat_template_by_name(text), tmpl);
            assert_non_null(strstr(bt_chat_template_names(), text));
            n_families++;
        } else if ((text = after(file.lines[i], "message ")) != NULL) {
            assert_true(n_messages < MAX_MESSAGES);
            split(text, &rest);
            messages[n_messages].role = text;
            messages[n_messages++].content = rest;
        } else if ((text = after(file.lines[i], "renders\t")) != NULL) {
            golden_unescape(text, strlen(text));
            assert_int_equal(
                bt_chat_render(tmpl, messages, n_messages, &out, NULL, &why),
                BT_OK);
            assert_string_equal(out.data, text);
            n_messages = 0;
            n_rendered++;
        } else {
            const bt_status_t status =
                bt_chat_render(tmpl, messages, n_messages, &out, NULL, &why);

            assert_string_equal(file.lines[i], "raises");
            assert_true((status == BT_ERR_INVALID_PARAM) ||
                        (status == BT_ERR_UNSUPPORTED));
            assert_non_null(why);
            assert_int_equal(out.len, 0);
            n_messages = 0;
            n_raised++;
        }
    }
    assert_int_equal(n_families, 15);
    assert_true(n_rendered > 100);
    assert_true(n_raised > 20);
    bt_strbuf_fini(&out);
    golden_free(&file);
}

static void unknown_names_and_templates_are_told(void **state)
{
    /* Phi-4 looks like ChatML and is not. */
    static const char phi4[] = "{{'<|im_start|>user<|im_sep|>' + "
                               "message['content'] + '<|im_end|>'}}";
    static const char other[] = "{{ 'USER: ' + message['content'] }}";
    static const char v3[] = "{{ '[INST] ' + message['content'] + '[/INST]' }}";

    (void)state;
    assert_null(bt_chat_template_by_name("llama"));
    assert_null(bt_chat_template_by_name(""));
    assert_null(bt_chat_template_recognise(phi4, strlen(phi4)));
    assert_null(bt_chat_template_recognise(other, strlen(other)));
    assert_null(bt_chat_template_recognise(v3, strlen(v3)));
    assert_null(bt_chat_template_recognise(NULL, 0));
}

static void bad_conversations_are_refused_and_leave_the_text_alone(void **state)
{
    const bt_chat_template_t *llama2 = bt_chat_template_by_name("llama2");
    const bt_chat_template_t *phi = bt_chat_template_by_name("phi");
    const bt_chat_template_t *gemma = bt_chat_template_by_name("gemma");
    const bt_chat_message_t system_only = {"system", "s"};
    const bt_chat_message_t tool = {"tool", "t"};
    const bt_chat_message_t empty = {"user", NULL};
    const char *why = NULL;
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 64);
    bt_strbuf_puts(&out, "before");
    assert_int_equal(bt_chat_render(phi, &tool, 0, &out, NULL, &why),
                     BT_ERR_INVALID_PARAM);
    assert_string_equal(why, "there are no messages");
    assert_int_equal(bt_chat_render(phi, &empty, 1, &out, NULL, &why),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_chat_render(phi, &tool, 1, &out, NULL, &why),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_chat_render(llama2, &tool, 1, &out, NULL, &why),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_chat_render(llama2, &system_only, 1, &out, NULL, &why),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_chat_render(gemma, &system_only, 1, &out, NULL, &why),
                     BT_ERR_UNSUPPORTED);
    assert_string_equal(out.data, "before");
    bt_strbuf_fini(&out);
}

static void a_full_buffer_is_an_error_and_keeps_what_was_there(void **state)
{
    const bt_chat_template_t *chatml = bt_chat_template_by_name("chatml");
    const bt_chat_message_t user = {"user", "a question of some length"};
    const char *why = NULL;
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 40);
    bt_strbuf_puts(&out, "before");
    assert_int_equal(bt_chat_render(chatml, &user, 1, &out, NULL, &why),
                     BT_ERR_TOO_LARGE);
    assert_string_equal(why, bt_status_str(BT_ERR_TOO_LARGE));
    assert_string_equal(out.data, "before");
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_family_renders_as_its_jinja_text),
        BT_TEST(unknown_names_and_templates_are_told),
        BT_TEST(bad_conversations_are_refused_and_leave_the_text_alone),
        BT_TEST(a_full_buffer_is_an_error_and_keeps_what_was_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
