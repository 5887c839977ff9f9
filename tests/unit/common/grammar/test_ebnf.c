/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/compile.h"
#include "tests/support/grammar_text.h"
#include "tests/support/testsupport.h"

static char why[BT_GRAMMAR_WHY_BYTES];

static bt_grammar_t *compile(const char *text, bt_status_t want)
{
    const bt_grammar_source_t source = {
        .kind = BT_GRAMMAR_EBNF, .text = text, .bytes = strlen(text)};
    bt_grammar_t *g = NULL;
    uint8_t *program = NULL;
    size_t bytes = 0;
    const char *fault;
    bt_status_t status;

    why[0] = '\0';
    status = bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));
    if (status != want) {
        print_message("%s\n%s\n", text, why);
    }
    assert_int_equal(status, want);
    if (status == BT_OK) {
        assert_int_equal(bt_grammar_load(program, bytes, &fault, &g), BT_OK);
        bt_free(program);
    }
    return g;
}

/* Each text behind the first NULL is not in the grammar. */
static void check(const char *grammar, const char *const *texts)
{
    bt_grammar_t *g = compile(grammar, BT_OK);
    bool is_member = true;

    for (; (*texts != NULL) || is_member; texts++) {
        if (*texts == NULL) {
            is_member = false;
            continue;
        }
        if (grammar_has_text(g, *texts, strlen(*texts)) != is_member) {
            fail_msg("\"%s\" of %s", *texts, grammar);
        }
    }
    bt_grammar_free(g);
}

#define CHECK(grammar, ...) \
    check(grammar, (const char *const[]){__VA_ARGS__, NULL})

static void grammars_have_their_texts_and_no_others(void **state)
{
    (void)state;
    CHECK("root ::= \"a\" | \"b\" \"c\"", "a", "bc", NULL, "", "b", "ab",
          "abc");
    CHECK("root ::= [a-cx]+ [^a-z]?", "a", "abx", "ax9", "c\xC3\xA9", NULL, "",
          "9", "d", "a99");
    CHECK("root ::= (\"x\" \"y\"){2,3} \"z\"*", "xyxy", "xyxyxyzz", NULL, "xy",
          "xyxyxyxy");
    CHECK("root ::= \"a\"{,2} \"b\"{2,} \"c\"{3}", "bbccc", "aabbbccc", NULL,
          "aaabbccc", "bccc", "bbcccc");
    CHECK("root ::= \"\\x41\\u00e9\\U0001F600\\n\\\"\\\\\"",
          "A\xC3\xA9\xF0\x9F\x98\x80\n\"\\", NULL, "A");
    CHECK("root ::= [\\]\\-\\^\\\\]{4}", "]-^\\", NULL, "]-^a");
    CHECK("root ::= . .", "ab", "\xE2\x82\xAC.", NULL, "a", "abc", "\xE2\x82");
    CHECK("# a list\nroot ::= item (\", \" item)* # items\n"
          "item ::= \"a\"\n  | \"b\"\n",
          "a", "a, b", "b, b, a", NULL, "", "a,b", "a, ");
    CHECK("root ::= \"(\" root \")\" | \"\"", "", "()", "((()))", NULL, "(",
          "())", ")(");
}

/* Written from JSON's own description, RFC 8259. */
static void json_is_read(void **state)
{
    (void)state;
    CHECK(
        "root ::= value\n"
        "value ::= object | array | string | number | \"true\" | \"null\"\n"
        "object ::= \"{\" (pair (\",\" pair)*)? \"}\"\n"
        "pair ::= string \":\" value\n"
        "array ::= \"[\" (value (\",\" value)*)? \"]\"\n"
        "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\/bfnrt] | "
        "\"\\\\u\" [0-9a-fA-F]{4})* \"\\\"\"\n"
        "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [-+]? "
        "[0-9]+)?\n",
        "{}", "[]", "{\"a\":[1,-2.5e+3,null],\"b\\n\\u00e9\":{\"c\":\"\"}}",
        "[[[[true]]]]", "0", NULL, "", "{", "{\"a\"}", "01", "1.", "\"\n\"",
        "[1,]", "\"\\x\"", "nul");
}

static void large_repetitions_are_counted(void **state)
{
    bt_grammar_t *g = compile("root ::= \"<\" [a-z]{3,1000000} \">\"", BT_OK);

    (void)state;
    assert_true(g->n_states < 20);
    assert_true(grammar_has_text(g, "<abc>", 5));
    assert_true(grammar_has_text(g, "<abcdefghijkl>", 14));
    assert_false(grammar_has_text(g, "<ab>", 4));
    bt_grammar_free(g);
}

static void tokens_are_edges_of_their_own(void **state)
{
    bt_grammar_t *g = compile("root ::= <[17]> \"a\"", BT_OK);
    uint32_t n = 0;

    (void)state;
    for (uint32_t e = 0; e < g->n_edges; e++) {
        n += (g->edges[e].kind == BT_GRAMMAR_TAKES) && (g->edges[e].arg == 17);
    }
    assert_int_equal(n, 1);
    bt_grammar_free(g);
}

static void faults_are_refused_with_their_line(void **state)
{
    static const struct {
        const char *text, *why;
        bt_status_t status;
    } cases[] = {
        {"", "there is no rule root", BT_ERR_INVALID_PARAM},
        {"a ::= \"x\"", "there is no rule root", BT_ERR_INVALID_PARAM},
        {"root ::= b\n", "line 1: rule b is not defined", BT_ERR_INVALID_PARAM},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule root is defined twice",
         BT_ERR_INVALID_PARAM},
        {"root ::= \"a", "line 1: a literal has no end", BT_ERR_INVALID_PARAM},
        {"root ::= [a", "line 1: a class has no end", BT_ERR_INVALID_PARAM},
        {"root ::= [b-a]",
         "line 1: a range of characters is the wrong way round",
         BT_ERR_INVALID_PARAM},
        {"root ::=\n\n(\"a\"", "line 3: a parenthesis has no end",
         BT_ERR_INVALID_PARAM},
        {"root ::= \"a\")", "line 1: a parenthesis has no beginning",
         BT_ERR_INVALID_PARAM},
        {"root ::= \"a\"{2", "line 1: a repetition has no end",
         BT_ERR_INVALID_PARAM},
        {"root ::= \"\\q\"", "line 1: an escape is not known",
         BT_ERR_INVALID_PARAM},
        {"root ::= \"\\ud800\"", "line 1: an escape is no character of Unicode",
         BT_ERR_INVALID_PARAM},
        {"root = \"a\"", "line 1: ::= is expected", BT_ERR_INVALID_PARAM},
        {"root ::= <think>", "line 1: a token by its text is not supported",
         BT_ERR_UNSUPPORTED},
        {"root ::= !<[1]>", "line 1: a negated token is not supported",
         BT_ERR_UNSUPPORTED},
        {"root ::= \"a\" (?=\"b\")", "line 1: look-ahead is not supported",
         BT_ERR_UNSUPPORTED},
        {"root ::= root \"a\" | \"b\"",
         "rule root begins with itself (left recursion)", BT_ERR_UNSUPPORTED},
        {"root ::= \"a\" root", "no text is in the grammar",
         BT_ERR_INVALID_PARAM},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_null(compile(cases[i].text, cases[i].status));
        assert_string_equal(why, cases[i].why);
    }
}

static void sixty_thousand_parentheses_are_refused(void **state)
{
    static char text[60010] = "root ::= ";

    (void)state;
    memset(text + 9, '(', 60000);
    assert_null(compile(text, BT_ERR_TOO_LARGE));
    assert_string_equal(why, "line 1: parentheses are nested deeper than 200");
}

static void repetitions_of_repetitions_are_refused_or_small(void **state)
{
    bt_grammar_t *g =
        compile("root ::= (((([a-b]{1000}){1000}){1000}){1000}){1000}", BT_OK);

    (void)state;
    assert_true(g->n_states < 200);
    bt_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(grammars_have_their_texts_and_no_others),
        BT_TEST(json_is_read),
        BT_TEST(large_repetitions_are_counted),
        BT_TEST(tokens_are_edges_of_their_own),
        BT_TEST(faults_are_refused_with_their_line),
        BT_TEST(sixty_thousand_parentheses_are_refused),
        BT_TEST(repetitions_of_repetitions_are_refused_or_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
