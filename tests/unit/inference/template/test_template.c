/* SPDX-License-Identifier: Apache-2.0 */
/* Expected values: jinja2 3.1.6 with the environment of transformers
 * (tests/clients/reference_jinja.py), which tests/clients/test_templates.py
 * compares with at length. */
#include "tests/unit/inference/template/rendering.h"

static void text_and_values_are_printed_as_python_does(void **state)
{
    (void)state;
    expect("a{{ 1 }}b{{ 'x' }}", "{}", "a1bx");
    expect("{{ [1, 'a', none, true, 2.5, {'k': (1,)}] }}", "{}",
           "[1, 'a', None, True, 2.5, {'k': (1,)}]");
    expect("{{ 1e16 }} {{ 0.1 }} {{ 1e-5 }} {{ 3.0 }} {{ 7 / 2 }}", "{}",
           "1e+16 0.1 1e-05 3.0 3.5");
    expect("{{ [\"it's\", 'q\"q'] }}", "{}", "[\"it's\", 'q\"q']");
    expect("{{ missing }}|{{ x.y }}", "{\"x\":{}}", "|");
}

static void white_space_control_equals_transformers(void **state)
{
    (void)state;
    expect("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "{}", "a\n  b\nc");
    expect("a\n  {%+ if true %}\nb{% endif +%}\nc", "{}", "a\n  b\nc");
    expect("a  {%- if true -%}  b  {%- endif -%}  c", "{}", "abc");
    expect("{{ 1 }}\n{# note #}\n{{- 2 }}", "{}", "1\n2");
    expect("{% raw %}{{ x }}{% endraw %}\ny", "{}", "{{ x }}y");
}

static void loop_variables_equal_jinja2(void **state)
{
    (void)state;
    expect("{% for i in l %}{{ loop.index }}{{ loop.index0 }}"
           "{{ loop.revindex }}{{ loop.first }}{{ loop.last }} {% endfor %}",
           "{\"l\":[5,6]}", "102TrueFalse 211FalseTrue ");
    expect("{% for i in l if i > 1 %}{{ i }}/{{ loop.length }} {% else %}none"
           "{% endfor %}",
           "{\"l\":[1,2,3]}", "2/2 3/2 ");
    expect("{% for i in [] %}{% else %}none{% endfor %}", "{}", "none");
    expect("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
           "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
           "{}", "02");
    expect("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
           "{\"d\":{\"b\":1,\"a\":2}}", "b=1;a=2;");
    expect("{% for n in t recursive %}{{ n.v }}({{ loop(n.c) }}){% endfor %}",
           "{\"t\":[{\"v\":1,\"c\":[{\"v\":2,\"c\":[]}]}]}", "1(2())");
    expect("{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}",
           "{\"l\":[5]}", "1");
    expect("{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = i %}"
           "{% endfor %}{{ ns.x }}",
           "{\"l\":[5]}", "5");
}

static void macros_have_defaults_names_and_callers(void **state)
{
    (void)state;
    expect("{% macro f(a, b=a ~ '!') %}<{{ a }}{{ b }}>{% endmacro %}"
           "{{ f('x') }}{{ f(b=1, a=2) }}",
           "{}", "<xx!><21>");
    expect("{% macro f(a) %}{{ a }}:{{ caller(2) }}{% endmacro %}"
           "{% call(n) f(1) %}n={{ n }}{% endcall %}",
           "{}", "1:n=2");
    expect("{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}"
           "{{ f(1, k=2) }}",
           "{}", "(1,){'k': 2}");
    expect("{% set x %}a{{ 1 }}{% endset %}{{ x ~ x }}", "{}", "a1a1");
    expect("{% filter upper %}a{% endfilter %}{% with y = 2 %}{{ y }}"
           "{% endwith %}{{ y }}",
           "{}", "A2");
    expect("{% generation %}{% set q = 1 %}g{% endgeneration %}{{ q }}", "{}",
           "g");
}

static void tools_are_written_as_json_with_keys_in_their_order(void **state)
{
    (void)state;
    expect("{{ t | tojson }}", "{\"t\":{\"b\":[1,2.0,null],\"a\":\"é\\n<\"}}",
           "{\"b\": [1, 2.0, null], \"a\": \"é\\n<\"}");
    expect("{{ t | tojson(indent=2) }}", "{\"t\":{\"b\":[],\"a\":[1]}}",
           "{\n  \"b\": [],\n  \"a\": [\n    1\n  ]\n}");
    expect("{{ 'é😀' | tojson(ensure_ascii=true) }}", "{}",
           "\"\\u00e9\\ud83d\\ude00\"");
}

static void template_clock_is_injected(void **state)
{
    /* date -u -d @86400000 */
    rendered_t r =
        rendering("{{ strftime_now('%d %b %Y') }}", "{}", NULL, 86400000);

    (void)state;
    assert_int_equal(r.status, BT_OK);
    assert_string_equal(r.out.data, "27 Sep 1972");
    rendering_end(&r);
}

static void template_errors_name_the_line_and_the_name(void **state)
{
    (void)state;
    expect_why("a\nb{% if %}", "{}", false, BT_ERR_UNSUPPORTED,
               "line 2: an expression is expected, not '%}'");
    expect_why("{% for i in x %}", "{}", false, BT_ERR_UNSUPPORTED,
               "line 1: 'endfor' is missing");
    expect_why("\n{{ x | nothing }}", "{}", false, BT_ERR_UNSUPPORTED,
               "line 2: filter 'nothing' is not known");
    expect_why("{% include 'a' %}", "{}", false, BT_ERR_UNSUPPORTED,
               "line 1: tag 'include' is not known, or closes none");
    expect_why("{{ 'a", "{}", false, BT_ERR_UNSUPPORTED,
               "line 1: a string does not end");
    expect_why("{% break %}", "{}", false, BT_ERR_UNSUPPORTED,
               "line 1: break and continue need a loop around");
    expect_why("\n\n{{ x.y.z }}", "{\"x\":{}}", true, BT_ERR_INVALID_PARAM,
               "line 3: there is no attribute or element 'y'");
    expect_why("{{ q + 1 }}", "{}", true, BT_ERR_INVALID_PARAM,
               "line 1: 'q' is undefined");
    expect_why("{{ raise_exception('no ' ~ 1) }}", "{}", true,
               BT_ERR_INVALID_PARAM, "no 1");
    expect_why("{{ l.append(1) }}", "{\"l\":[]}", true, BT_ERR_INVALID_PARAM,
               "line 1: 'append' would change a value, which templates may "
               "not");
}

static void template_variables_that_are_not_json_are_refused(void **state)
{
    static const char *const bad[] = {
        "",        "{",   "{\"a\"}", "{\"a\":}",   "[1,]",    "{\"a\":01}",
        "\"\\q\"", "nul", "1 2",     "{\"a\":1e}", "\"a\n\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        rendered_t r = rendering("x", bad[i], NULL, 0);

        assert_int_equal(r.status, BT_ERR_INVALID_PARAM);
        assert_non_null(strstr(r.why, "not valid JSON: "));
        rendering_end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(text_and_values_are_printed_as_python_does),
        BT_TEST(white_space_control_equals_transformers),
        BT_TEST(loop_variables_equal_jinja2),
        BT_TEST(macros_have_defaults_names_and_callers),
        BT_TEST(tools_are_written_as_json_with_keys_in_their_order),
        BT_TEST(template_clock_is_injected),
        BT_TEST(template_errors_name_the_line_and_the_name),
        BT_TEST(template_variables_that_are_not_json_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
