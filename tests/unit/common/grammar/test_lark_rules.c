/* SPDX-License-Identifier: Apache-2.0 */
/* Alternatives and items of Lark's grammars. In grammars and texts ' stands for
 * ". Texts are by hand, from Lark's "Grammar Reference". */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

#define K BT_GRAMMAR_LARK

#define LARK(grammar, ...) HAS_OF(K, grammar, __VA_ARGS__)

static void wrong(const char *grammar, const char *part)
{
    schema_check_refused(K, grammar, BT_ERR_INVALID_PARAM, part);
}

static void operators_are_those_of_lark_and_llguidance(void **state)
{
    (void)state;
    LARK("start: 'a'? 'b'* 'c'+", "c", "abbcc", NULL, "", "ab", "aac");
    LARK("start: ['a' | 'b'] ('c' 'd')~2", "cdcd", "acdcd", "bcdcd", NULL,
         "abcdcd", "cd", "cdcdcd");
    LARK("start: 'a'~2..3 'b' ~ 0 .. 1", "aa", "aaab", NULL, "a", "aaaa",
         "aabb");
    LARK("start: 'a'{2} 'b'{1,} 'c'{,2} 'd'{ 1 , 2 }", "aabd", "aabbccdd", NULL,
         "abd", "aad", "aabcccd");
    LARK("start: a{2}\na: 'a'", "aa", NULL, "a");
    LARK("start: A~3\nA: 'a'~2", "aaaaaa", NULL, "aa");
    wrong("start: 'a'~", "line 1: a number is expected");
    wrong("start: 'a'~3..2", "line 1: a repetition has its least number");
    wrong("start: 'a'{2", "line 1: a repetition has no end");
    wrong("start: 'a'~4294967295", "line 1: a number is too large");
    wrong("start: 'a'+*", "line 1: an operator follows an operator");
    wrong("start: * 'a'", "line 1: the name of a rule");
    wrong("start: ('a'", "line 1: a ( has no )");
    wrong("start: ['a')", "line 1: a [ has no ]");
}

static void alternatives_may_repeat_their_rule_at_the_left(void **state)
{
    (void)state;
    LARK("?start: sum\n?sum: product | sum '+' product -> add\n | sum '-' "
         "product\n?product: atom | product '*' atom\natom: /[0-9]/ | '(' sum "
         "')'",
         "1", "1+2*3-4", "(1-2)*3", "((1))", NULL, "", "1+", "+1", "1--2",
         "(1");
    LARK("start: start start | 'a'", "a", "aaa", NULL, "", "b");
    LARK("start: start | 'a'", "a", NULL, "aa");
    LARK("start: 'a' | 'x' ('b' | start)", "a", "xa", "xxb", NULL, "x");
    schema_check_refused(K, "start: 'a' | ('b' | start) 'c'",
                         BT_ERR_UNSUPPORTED, "left recursion");
    schema_check_refused(K, "start: start? 'a'", BT_ERR_UNSUPPORTED, "start");
    schema_check_refused(K, "start: a 'x' | 'y'\na: start 'z' | 'w'",
                         BT_ERR_UNSUPPORTED, "left recursion");
}

static void recursion_within_a_rule_is_held(void **state)
{
    (void)state;
    LARK("start: '[' [start (',' start)*] ']'", "[]", "[[],[[]]]", NULL, "[",
         "[,]", "[[]");
}

static void aliases_stand_behind_alternatives(void **state)
{
    (void)state;
    LARK("start: 'a' ->x\n | -> y\n | 'b'->z", "", "a", "b", NULL, "x");
    wrong("start: ('a' -> b)", "line 1: an alias stands behind");
    wrong("start: A\nA: 'a' -> b", "line 2: an alias stands behind");
    wrong("start: 'a' ->", "line 1: an alias has no name");
}

static void terminals_have_no_rules(void **state)
{
    (void)state;
    wrong("start: A\nA: 'a' b\nb: 'c'", "line 2: a terminal has a rule in it");
    LARK("start: A\nA: B ('b' | B)\nB: 'c'", "cb", "cc", NULL, "c");
}

static void nesting_has_a_limit(void **state)
{
    char grammar[700];

    (void)state;
    for (uint32_t depth = 200; depth <= 201; depth++) {
        size_t n = strlen("start: ");

        memcpy(grammar, "start: ", n);
        memset(grammar + n, '(', depth);
        n += depth;
        grammar[n++] = 'b';
        memset(grammar + n, ')', depth);
        n += depth;
        memcpy(grammar + n, "\nb: 'b'", sizeof("\nb: 'b'"));
        if (depth == 200) {
            LARK(grammar, "b", NULL, "");
        } else {
            schema_check_refused(K, grammar, BT_ERR_TOO_LARGE,
                                 "line 1: parentheses are nested deeper than");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(operators_are_those_of_lark_and_llguidance),
        BT_TEST(alternatives_may_repeat_their_rule_at_the_left),
        BT_TEST(recursion_within_a_rule_is_held),
        BT_TEST(aliases_stand_behind_alternatives),
        BT_TEST(terminals_have_no_rules),
        BT_TEST(nesting_has_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
