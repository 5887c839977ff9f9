/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void alternatives_are_those_of_any_branch(void **state)
{
    (void)state;
    HAS("{'anyOf':[{'type':'integer'},{'type':'string','maxLength':1},{'type':'array','maxItems':0}]}",
        "1", "'a'", "[]", NULL, "true", "'ab'", "[1]", "{}");
    HAS("{'anyOf':[{'type':'object','properties':{'a':{'const':1}},'required':['a'],'additionalProperties':false},{'type':'object','properties':{'a':{'const':2},'b':{'const':3}},'required':['a','b'],'additionalProperties':false}]}",
        "{'a':1}", "{'a':2,'b':3}", NULL, "{'a':2}", "{'a':1,'b':3}", "{}");
}

static void one_of_leaves_out_what_two_branches_have(void **state)
{
    (void)state;
    HAS("{'oneOf':[{'type':'integer','maximum':5},{'type':'integer','minimum':3}]}",
        "2", "6", "-1", NULL, "3", "4", "5");
    HAS("{'oneOf':[{'type':'null'},{'type':['null','boolean']}]}", "true",
        "false", NULL, "null");
    HAS("{'oneOf':[{'enum':['a','b']},{'enum':['b','c']},{'enum':['c','d']}]}",
        "'a'", "'d'", NULL, "'b'", "'c'");
    HAS("{'oneOf':[{'enum':[1,2]},{'enum':[2,3]},{'enum':[2]}]}", "1", "3",
        NULL, "2");
    HAS("{'type':'object','properties':{'a':{'const':1},'b':{'const':1}},'additionalProperties':false,'oneOf':[{'required':['a']},{'required':['b']}]}",
        "{'a':1}", "{'b':1}", NULL, "{}", "{'a':1,'b':1}");
    HAS("{'type':'array','items':{'enum':[1,2]},'maxItems':2,'oneOf':[{'minItems':1},{'contains':{'const':1}}]}",
        "[2]", "[2,2]", NULL, "[]", "[1]", "[2,1]");
}

static void one_of_may_be_told_apart_by_what_is_said_beside_it(void **state)
{
    (void)state;
    HAS("{'type':'object','required':['k'],'properties':{'k':{'type':'string'}},'oneOf':[{'properties':{'k':{'const':'a'}}},{'properties':{'k':{'const':'b'},'x':{'const':1}},'required':['x']}]}",
        "{'k':'a'}", "{'k':'b','x':1}", NULL, "{'k':'b'}", "{'k':'c'}", "{}");
}

static void branches_that_cannot_be_told_apart_are_named(void **state)
{
    (void)state;
    REFUSED(
        "{'properties':{'a':{'oneOf':[{'type':'null'},{'type':'array','uniqueItems':true,'maxItems':1},{'type':'array'}]}}}",
        "/properties/a/oneOf: branches 1 and 2 cannot be told apart");
    WRONG("{'oneOf':[true,true]}", "no value satisfies it");
}

static void negations_are_by_type(void **state)
{
    (void)state;
    HAS("{'not':{'type':['string','array','object','number']}}", "null", "true",
        "false", NULL, "1", "''", "[]", "{}");
    HAS("{'not':{'enum':[1,'a',null]},'type':['integer','string','null','boolean'],'maximum':2,'minimum':0,'maxLength':1}",
        "0", "2", "''", "'b'", "true", NULL, "1", "'a'", "null", "3");
    HAS("{'not':{'anyOf':[{'type':'object'},{'type':'array'},{'type':'string'},{'minimum':0}]}}",
        "-1", "-0.5", NULL, "0", "1", "''", "{}", "[]", "true", "null");
    WRONG("{'not':{}}", "no value satisfies it");
    HAS("{'not':false,'type':'null'}", "null", NULL, "1");
}

static void conditions_choose(void **state)
{
    (void)state;
    HAS("{'type':'integer','if':{'minimum':10},'then':{'multipleOf':5},'else':{'minimum':0},'maximum':30}",
        "0", "9", "10", "15", "30", NULL, "-1", "11", "35");
    HAS("{'type':'object','properties':{'k':{'enum':['a','b']},'v':{'enum':[1,2]}},'required':['k','v'],'additionalProperties':false,'if':{'properties':{'k':{'const':'a'}}},'then':{'properties':{'v':{'const':1}}}}",
        "{'k':'a','v':1}", "{'k':'b','v':1}", "{'k':'b','v':2}", NULL,
        "{'k':'a','v':2}", "{'k':'a'}");
    HAS("{'type':'integer','minimum':0,'maximum':3,'if':true,'else':false}",
        "0", "3", NULL, "4");
    HAS("{'type':'integer','minimum':0,'maximum':3,'then':false}", "0", "3",
        NULL, "4");
}

static void what_cannot_be_negated_is_refused_in_every_place(void **state)
{
    (void)state;
    REFUSED("{'if':{'type':'array','uniqueItems':true},'then':{'type':'string'"
            "}}",
            "/if: uniqueItems cannot be negated");
    REFUSED("{'if':true,'then':{'not':{'type':'array','uniqueItems':true}}}",
            "/then/not: uniqueItems cannot be negated");
    REFUSED("{'anyOf':[{'type':'string'},{'not':{'uniqueItems':true}}]}",
            "/anyOf/1/not: uniqueItems cannot be negated");
    /* Unless all arrays are there, or none, by what is said beside it. */
    HAS("{'anyOf':[true,{'not':{'type':'array','uniqueItems':true}}]}", "[]",
        "[1,1]", "1", NULL, "[");
    HAS("{'type':'string','not':{'type':'array','uniqueItems':true}}", "'a'",
        NULL, "[]", "1");
}

static void values_of_every_type(void **state)
{
    (void)state;
    HAS("{'const':{'b':[1,{'c':null}],'a':'x'}}",
        "{'b':[1,{'c':null}],'a':'x'}", NULL, "{'a':'x','b':[1,{'c':null}]}",
        "{}", "{'b':[],'a':'x'}");
    HAS("{'enum':[[],[1],{},{'a':1},null,true]}", "[]", "[1]", "{}", "{'a':1}",
        "null", "true", NULL, "[2]", "{'a':2}", "false", "[1,1]");
    HAS("{'const':{'a':{'b':1}},'properties':{'a':{'properties':{'b':{'type':'integer'}}}}}",
        "{'a':{'b':1}}", NULL, "{'a':{}}");
    WRONG("{'const':{'a':1},'properties':{'a':{'type':'string'}}}",
          "no value satisfies it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(alternatives_are_those_of_any_branch),
        BT_TEST(one_of_leaves_out_what_two_branches_have),
        BT_TEST(one_of_may_be_told_apart_by_what_is_said_beside_it),
        BT_TEST(branches_that_cannot_be_told_apart_are_named),
        BT_TEST(negations_are_by_type),
        BT_TEST(conditions_choose),
        BT_TEST(what_cannot_be_negated_is_refused_in_every_place),
        BT_TEST(values_of_every_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
