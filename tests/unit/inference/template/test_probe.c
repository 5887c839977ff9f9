/* SPDX-License-Identifier: Apache-2.0 */
/* Which message forms a template shows. Each row is seen by reading its
 * template; tests/clients/served_templates.py finds the same with jinja2 for
 * the templates of tests/clients/templates. */
#include "tests/support/testsupport.h"

#include "inference/template/chat_priv.h"

#define PLAIN \
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"

static bt_chat_template_t *own(const char *jinja, bt_chat_content_t content)
{
    const bt_chat_source_t source = {
        .jinja = jinja, .bytes = strlen(jinja), .content = content};
    const bt_chat_template_t *tmpl = NULL;
    char why[BT_CHAT_WHY_BYTES] = "";

    if (bt_chat_template_read(&source, why, sizeof(why), &tmpl) != BT_OK) {
        fail_msg("%s: %s", jinja, why);
    }
    return (bt_chat_template_t *)(uintptr_t)tmpl;
}

static bt_tmpl_forms_t forms_of(const char *jinja)
{
    bt_chat_template_t *const tmpl = own(jinja, BT_CHAT_CONTENT_AUTO);
    const bt_tmpl_forms_t forms = tmpl->forms;

    bt_chat_template_free(tmpl);
    return forms;
}

static void contents_are_of_the_forms_that_show(void **state)
{
    static const struct {
        const char *jinja;
        bool strings;
        bt_tmpl_parts_t parts;
    } rows[] = {
        {PLAIN, true, BT_PARTS_NONE}, /* a list as Python prints it */
        {"{% for m in messages %}{{ m.content[0].text }}{% endfor %}", false,
         BT_PARTS_ONE},
        {"{% for m in messages %}{% for p in m.content %}{{ p.text }}"
         "{% endfor %}{% endfor %}",
         false, BT_PARTS_ALL},
        {"{% for m in messages %}{% if m.content is string %}{{ m.content }}"
         "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
         "{% endfor %}",
         true, BT_PARTS_ALL},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const bt_tmpl_forms_t forms = forms_of(rows[i].jinja);

        assert_int_equal(forms.strings[BT_ROLE_USER], rows[i].strings);
        assert_int_equal(forms.parts[BT_ROLE_USER], rows[i].parts);
    }
}

static void option_decides_the_form_of_contents(void **state)
{
    bt_chat_template_t *tmpl = own(PLAIN, BT_CHAT_CONTENT_OPENAI);

    (void)state;
    assert_false(tmpl->forms.strings[BT_ROLE_USER]);
    assert_int_equal(tmpl->forms.parts[BT_ROLE_USER], BT_PARTS_ALL);
    bt_chat_template_free(tmpl);
    tmpl = own(PLAIN, BT_CHAT_CONTENT_STRING);
    assert_true(tmpl->forms.strings[BT_ROLE_USER]);
    bt_chat_template_free(tmpl);
}

static void null_is_left_where_it_renders_as_empty(void **state)
{
    (void)state;
    assert_false(forms_of(PLAIN).null_alone); /* None */
    assert_true(forms_of("{% for m in messages %}{{ m.content or '' }}"
                         "{% endfor %}")
                    .null_alone);
    assert_false(forms_of("{% for m in messages %}{{ m.content + '' }}"
                          "{% endfor %}")
                     .null_calls);
}

static void tools_are_found_in_what_the_template_renders(void **state)
{
    static const struct {
        const char *jinja;
        bool shows;
    } rows[] = {
        {PLAIN, false},
        {PLAIN "{{ tools | tojson }}", true},
        {PLAIN "{% for t in tools %}{{ t.function.name | title }}"
               "{% endfor %}",
         true},
        {"{% if messages[0].role == 'system' %}{{ tools }}{% endif %}", true},
        {PLAIN "{% if tools %}There are tools.{% endif %}", false},
        {PLAIN "{% if 'tools' in messages[0] %}{{ messages[0].tools }}"
               "{% endif %}",
         false},
        {PLAIN "{% if tools %}{{ raise_exception('no tools') }}{% endif %}",
         false},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        bt_chat_template_t *const tmpl =
            own(rows[i].jinja, BT_CHAT_CONTENT_AUTO);

        assert_int_equal(tmpl->forms.tools, rows[i].shows);
        assert_int_equal(bt_chat_template_shows_tools(tmpl), rows[i].shows);
        bt_chat_template_free(tmpl);
    }
}

static void system_messages_are_found_where_they_show(void **state)
{
    (void)state;
    assert_true(forms_of(PLAIN).system);
    assert_false(forms_of("{% for m in messages if m.role != 'system' %}"
                          "{{ m.content }}{% endfor %}")
                     .system);
    assert_false(forms_of("{% if messages[0].role == 'system' %}"
                          "{{ raise_exception('') }}{% endif %}" PLAIN)
                     .system);
}

static void history_shows_with_both_calls_and_results(void **state)
{
    (void)state;
    assert_false(forms_of(PLAIN).history); /* results alone */
    assert_true(forms_of(PLAIN "{% for m in messages %}"
                               "{{ m.tool_calls | tojson if m.tool_calls }}"
                               "{% endfor %}")
                    .history);
    assert_false(forms_of("{% for m in messages if m.role != 'tool' %}"
                          "{{ m.tool_calls | tojson if m.tool_calls }}"
                          "{% endfor %}")
                     .history);
}

static void roles_in_turns_are_found_by_what_raises(void **state)
{
    static const char turns[] =
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 "
        "== 0) %}{{ raise_exception('turns') }}{% endif %}{% endfor %}" PLAIN;

    (void)state;
    assert_false(forms_of(PLAIN).alternates);
    assert_true(forms_of(turns).alternates);
}

static void families_take_strings_and_show_no_tools(void **state)
{
    static const struct {
        const char *name;
        bool system, alternates;
    } rows[] = {
        {"chatml", true, false}, {"llama3.1", true, false},
        {"llama2", true, true},  {"gemma", false, true},
        {"gemma3", true, true},  {"mistral", false, true},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const bt_chat_template_t *tmpl = NULL;

        assert_int_equal(bt_chat_template_of_family(rows[i].name, &tmpl),
                         BT_OK);
        assert_true(tmpl->forms.strings[BT_ROLE_TOOL]);
        assert_int_equal(tmpl->forms.parts[BT_ROLE_USER], BT_PARTS_NONE);
        assert_false(tmpl->forms.tools || tmpl->forms.history);
        assert_false(tmpl->forms.null_alone || tmpl->forms.null_calls);
        assert_int_equal(tmpl->forms.system, rows[i].system);
        assert_int_equal(tmpl->forms.alternates, rows[i].alternates);
        bt_chat_template_free(tmpl);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_are_of_the_forms_that_show),
        cmocka_unit_test(option_decides_the_form_of_contents),
        cmocka_unit_test(null_is_left_where_it_renders_as_empty),
        cmocka_unit_test(tools_are_found_in_what_the_template_renders),
        cmocka_unit_test(system_messages_are_found_where_they_show),
        cmocka_unit_test(history_shows_with_both_calls_and_results),
        cmocka_unit_test(roles_in_turns_are_found_by_what_raises),
        cmocka_unit_test(families_take_strings_and_show_no_tools),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
