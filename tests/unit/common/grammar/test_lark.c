/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of Lark's grammars. In grammars and texts ' stands for ". Texts
 * are by hand, from Lark's "Grammar Reference" and grammars/common.lark. */
#include "common/grammar/lark.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

#define K BT_GRAMMAR_LARK

#define LARK(grammar, ...) HAS_OF(K, grammar, __VA_ARGS__)

static void refused(const char *grammar, const char *part)
{
    schema_check_refused(K, grammar, BT_ERR_UNSUPPORTED, part);
}

static void wrong(const char *grammar, const char *part)
{
    schema_check_refused(K, grammar, BT_ERR_INVALID_PARAM, part);
}

static void statements_end_with_their_lines(void **state)
{
    (void)state;
    LARK("start: a b\n     | 'c'\n\n  // a comment\n  | 'd' # another\n"
         "a: 'x'\nb: 'y' \\\n  'z'\n",
         "xyz", "c", "d", NULL, "", "x", "xy", "xyzc");
    LARK("start: ('a'\n 'b')", "ab", NULL, "a");
    LARK("\n\n  start :  A ? \n\nA:'a'", "", "a", NULL, "aa");
    LARK("start:\n | 'a'", "", "a", NULL, "b");
    LARK("start: '//' '#'\r\n", "//#", NULL, "");
    wrong("start: 'a'\n  'b'", "line 2: the name of a rule or terminal");
    wrong("start 'a'", "line 1: a : is expected");
    wrong("start: 'a')\n", "line 1: a parenthesis has no beginning");
    wrong("\nstart: 'a' -> b c", "line 2: the end of the line is expected");
    wrong("start: 'a'\nstart: 'b'", "line 2: start is defined twice");
    wrong("start: 'a'\n\nb: c", "line 3: rule c is not defined");
    wrong("a: 'a'", "there is no rule start");
    wrong("", "there is no rule start");
    wrong("Start: 'a'", "line 1: a name has lower-case letters");
    wrong("_: 'a'", "line 1: the name of a rule or terminal");
    wrong("%import common", "line 1: a . or (");
    wrong("%foo", "line 1: a directive is not known");
    wrong("start: start", "no text is in the grammar");
}

static void what_shapes_trees_has_no_effect_on_texts(void **state)
{
    (void)state;
    LARK("?start.2: _a -> first\n | b -> second\n_a: 'a'\n!b: B\n"
         "?!c: 'c'\nB.-10: 'b'\n",
         "a", "b", NULL, "c", "");
}

static void imports_are_terminals_of_common(void **state)
{
    (void)state;
    LARK("start: INT\n%import common.INT", "0", "007", NULL, "", "-1", "1.0");
    LARK("start: N ',' W\n%import common.NUMBER -> N\n%import common.WORD -> W",
         "1,a", "1.,Ab", ".5e-3,z", "1.5E+10,z", NULL, ".,a", "1e,a", "-1,a",
         "1,a1");
    LARK("start: SIGNED_INT '/' SIGNED_NUMBER\n"
         "%import common (SIGNED_INT, SIGNED_NUMBER)",
         "+1/-1.5", "1/1", NULL, "--1/1");
    LARK("start: FLOAT\n%import common.FLOAT", "1.", "1e5", ".5", NULL, "1");
    LARK("start: CNAME '=' HEXDIGIT\n%import common (CNAME,\n HEXDIGIT)",
         "_a1=F", NULL, "1a=F", "a=g");
    LARK("start: ESCAPED_STRING\n%import common.ESCAPED_STRING", "''", "'a'",
         "'\\''", "'\\\\'", NULL, "'", "'\\'", "'a'b'", "'\n'");
    LARK("start: C_COMMENT NEWLINE\n%import common (C_COMMENT, NEWLINE)",
         "/**/\n", "/* x ** y\n*/\r\n\n", NULL, "/* */ */\n", "/*/\n", "/**/");
    refused("start: A\n%import python.A",
            "line 2: an import of a module other");
    refused("start: A\n%import .a.A", "line 2: an import of a module other");
    refused("%import commonx.A", "line 1: an import of a module other");
    refused("start: A\n%import common.AB -> A", "line 2: common.AB is not");
    wrong("start: a\n%import common.INT -> a",
          "line 2: a terminal has the name");
    wrong("%import common (INT", "line 1: a list of imports has no )");
    wrong("INT: 'a'\n%import common.INT", "line 2: INT is defined twice");
}

static void ignored_terminals_stand_behind_terminals(void **state)
{
    (void)state;
    LARK("start: a ',' A\na: 'x' /y/\nA: 'p' 'q'\n%ignore ' '\n%ignore C\n"
         "C: '#' /[a-z]/ ';'",
         "xy,pq", "x y , pq", "x#a;  #b;y,pq #c; ", NULL, " xy,pq", "xy,p q",
         "xy,pq#", "x\ny,pq");
    LARK("start: 'a'~2 %json {'const': 1} 'b'\n%ignore /[ \\n]+/", "aa1b",
         "a  a\n1  \n b ", NULL, " aa1b", "a a1c");
    LARK("// %ignore is not here\nstart: 'a' 'b'", "ab", NULL, "a b");
    wrong("start: 'a'\n%ignore start", "line 2: a terminal has a rule in it");
    wrong("start: 'a'\n%ignore ' ' )",
          "line 2: a parenthesis has no beginning");
}

static void schemas_are_held(void **state)
{
    (void)state;
    LARK("start: 'call ' %json {\n  'type': 'object',\n  'properties': {'}': "
         "{'enum': ['{', 1]}},\n  'additionalProperties': false\n} '!'\n",
         "call {}!", "call {'}':'{'}!", "call {'}':1}!", NULL, "call {'}':2}!",
         "call !");
    LARK("start: %json {'enum': [1, 2]} | a\na: 'x' %json{'enum': [3]}", "1",
         "x3", NULL, "3", "x1");
    refused("start: 'a'\n  | %json {'x': 1, '$ref': 'http://a.b/c'}",
            "line 2: ");
    refused("A: %json {}", "line 1: %json in a terminal is not supported");
    wrong("start: %json {'type': 'thing'}", "line 1: /type: ");
    wrong("start: %json {'type'}", "line 1: the schema of %json is not JSON");
    wrong("start: %json 5", "line 1: a schema in braces is expected");
    wrong("start: %json {'a'", "line 1: a schema in braces is expected");
    wrong("start: %json {'const': '\\ud800'}", "half of a surrogate pair");
}

static void what_is_not_held_is_refused_by_name(void **state)
{
    static const struct {
        const char *grammar, *part;
    } cases[] = {
        {"a{x}: x", "line 1: a template is not supported"},
        {"start: a{B}", "line 1: a template is not supported"},
        {"start[capture]: 'a'", "line 1: an attribute of a rule is not"},
        {"start: 'a'\n%declare B", "line 2: %declare is not supported"},
        {"%override a: 'b'", "line 1: %override is not supported"},
        {"%extend a: 'b'", "line 1: %extend is not supported"},
        {"%llguidance {'x': 1}", "line 1: an option of %llguidance is not"},
        {"start: <|end|>", "line 1: a special token is not supported"},
        {"start: @other", "line 1: a grammar by its name is not supported"},
        {"start: %lark {}", "line 1: a directive other than %json"},
        {"start: A\nA: 'b' & /c/", "line 2: an intersection or negation"},
        {"start: /a(?=b)/", "line 1: regex, byte 1: look-ahead"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        refused(cases[i].grammar, cases[i].part);
    }
    LARK("%llguidance { }\nstart: 'a'", "a", NULL, "");
}

static void every_failed_allocation_is_told(void **state)
{
    static const char text[] =
        "start: a | B -> c\na: a \"x\"i | \"a\"..\"c\" %json {\"const\": 1}\n"
        "B: /[^x]/i\n%ignore WS\n%import common.WS";
    const bt_grammar_source_t source = {
        .kind = K, .text = text, .bytes = strlen(text)};
    int n = 1;
    bool failed = true;

    (void)state;
    while (failed) {
        char why[BT_GRAMMAR_WHY_BYTES];
        uint8_t *program = NULL;
        size_t bytes;
        bt_status_t status;

        bt_alloc_fail_at(n++);
        status =
            bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));
        failed = bt_alloc_fail_at(0) == 0;
        assert_int_equal(status, failed ? BT_ERR_NO_MEMORY : BT_OK);
        bt_free(program);
    }
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(statements_end_with_their_lines),
        BT_TEST(what_shapes_trees_has_no_effect_on_texts),
        BT_TEST(imports_are_terminals_of_common),
        BT_TEST(ignored_terminals_stand_behind_terminals),
        BT_TEST(schemas_are_held),
        BT_TEST(what_is_not_held_is_refused_by_name),
        BT_TEST(every_failed_allocation_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
