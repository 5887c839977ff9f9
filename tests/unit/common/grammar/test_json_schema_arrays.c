/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void elements_have_their_schemas_and_their_number(void **state)
{
    (void)state;
    HAS("{'type':'array','items':{'type':'integer'}}", "[]", "[1]", "[1,2,3]",
        NULL, "[", "[1,]", "[,1]", "['a']", "[1 ,2]", "[true]");
    HAS("{'type':'array','items':{'type':'boolean'},'minItems':2,'maxItems':3}",
        "[true,false]", "[true,true,true]", NULL, "[]", "[true]",
        "[true,true,true,true]");
    HAS("{'type':'array','prefixItems':[{'type':'integer'},{'type':'string'}],'items':false}",
        "[]", "[1]", "[1,'a']", NULL, "['a']", "[1,2]", "[1,'a',3]");
    HAS("{'type':'array','prefixItems':[{'type':'integer'}],'items':{'type':'null'},'minItems':1}",
        "[1]", "[1,null,null]", NULL, "[]", "[null]", "[1,2]");
    HAS("{'type':'array','prefixItems':[{'type':'integer'}],'maxItems':2}",
        "[1,'x']", "[1,[]]", "[]", NULL, "[1,2,3]");
    HAS("{'type':'array','maxItems':0}", "[]", NULL, "[1]");
    HAS("{'type':'array','items':{'type':'null'},'minItems':1000,'maxItems':100000}",
        NULL, "[]", "[null]");
}

static void lists_of_schemas_are_those_of_older_drafts(void **state)
{
    (void)state;
    HAS("{'type':'array','items':[{'type':'integer'}],'additionalItems':{'type':'null'}}",
        "[]", "[1,null]", NULL, "[null]", "[1,1]");
    HAS("{'type':'array','items':[{'type':'integer'}],'additionalItems':false}",
        "[]", "[1]", NULL, "[1,1]");
    HAS("{'type':'array','items':{'type':'null'},'additionalItems':false}",
        "[null,null]", NULL, "[1]");
}

static void all_of_two_arrays(void **state)
{
    (void)state;
    HAS("{'type':'array','allOf':[{'prefixItems':[{'minimum':2}]},{'items':{'type':'integer','maximum':3},'minItems':1}]}",
        "[2]", "[3,0]", NULL, "[1]", "[4]", "[3,4]", "[]");
    WRONG(
        "{'type':'array','allOf':[{'items':{'type':'null'},'minItems':1},{'items':{'type':'string'}}]}",
        "no value satisfies it");
}

static void contains_counts_elements(void **state)
{
    (void)state;
    HAS("{'type':'array','items':{'type':['integer','null']},'contains':{'type':'null'}}",
        "[null]", "[1,null]", "[null,2,null]", NULL, "[]", "[1]");
    HAS("{'type':'array','items':{'type':['integer','null']},'contains':{'type':'null'},'minContains':2,'maxContains':2}",
        "[null,null]", "[null,1,null]", NULL, "[null]", "[null,null,null]",
        "[1]");
    HAS("{'type':'array','items':{'type':['integer','null']},'contains':{'type':'null'},'minContains':0,'maxContains':1,'maxItems':2}",
        "[]", "[1]", "[null,1]", "[1,2]", NULL, "[null,null]", "[1,1,1]");
    HAS("{'type':'array','items':{'enum':[1,2,3]},'allOf':[{'contains':{'const':1}},{'contains':{'const':2}}],'maxItems':3}",
        "[1,2]", "[2,3,1]", NULL, "[1]", "[1,3]", "[3,3,3]", "[1,2,3,3]");
    HAS("{'type':'array','items':{'type':'boolean'},'contains':true,'maxItems':1}",
        "[true]", NULL, "[]", "[true,true]");
    WRONG(
        "{'type':'array','items':{'type':'null'},'contains':{'type':'string'}}",
        "no value satisfies it");
    WRONG("{'type':'array','contains':false}", "no value satisfies it");
}

static void negated_arrays(void **state)
{
    (void)state;
    HAS("{'type':'array','items':{'type':'null'},'not':{'minItems':2}}", "[]",
        "[null]", NULL, "[null,null]");
    HAS("{'type':'array','items':{'enum':[1,2]},'not':{'items':{'const':1}}}",
        "[2]", "[1,2]", NULL, "[]", "[1]", "[1,1]");
    HAS("{'type':'array','items':{'enum':[1,2]},'not':{'prefixItems':[{'const':1}]}}",
        "[2]", "[2,1]", NULL, "[]", "[1]", "[1,2]");
    HAS("{'type':'array','items':{'enum':[1,2]},'not':{'contains':{'const':1}}}",
        "[]", "[2]", "[2,2]", NULL, "[1]", "[2,1]");
    HAS("{'type':'array','items':{'enum':[1,2]},'not':{'const':[1]},'maxItems':1}",
        "[]", "[2]", NULL, "[1]");
    REFUSED("{'type':'array','not':{'uniqueItems':true}}",
            "uniqueItems cannot be negated");
}

static void
unevaluated_items_are_those_that_nothing_beside_has_said(void **state)
{
    (void)state;
    HAS("{'type':'array','prefixItems':[{'type':'integer'}],'unevaluatedItems':false}",
        "[]", "[1]", NULL, "[1,1]");
    HAS("{'type':'array','allOf':[{'prefixItems':[true]},{'prefixItems':[true,{'type':'null'}]}],'unevaluatedItems':{'type':'integer'}}",
        "[null,null,3]", "[1]", NULL, "[1,1]", "[1,null,null]");
    HAS("{'type':'array','items':{'type':'null'},'unevaluatedItems':false}",
        "[null]", NULL, "[1]");
    HAS("{'type':'array','anyOf':[{'prefixItems':[{'const':1}]},{'prefixItems':[{'const':2},{'const':3}]}],'unevaluatedItems':false}",
        "[1]", "[2,3]", NULL, "[1,3]", "[2,3,4]");
    REFUSED("{'contains':{'const':1},'unevaluatedItems':false}",
            "/unevaluatedItems: beside contains");
}

static void what_is_wrong_is_told_with_its_pointer(void **state)
{
    (void)state;
    WRONG("{'items':1}", "/items: must be a schema");
    WRONG("{'prefixItems':{}}", "/prefixItems: must be a list");
    WRONG("{'prefixItems':[1]}", "/prefixItems/0: must be a schema");
    WRONG("{'minItems':'1'}", "/minItems: must be a whole number");
    WRONG("{'uniqueItems':1}", "/uniqueItems: must be true or false");
    WRONG("{'type':'array','minItems':2,'maxItems':1}",
          "no value satisfies it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(elements_have_their_schemas_and_their_number),
        BT_TEST(lists_of_schemas_are_those_of_older_drafts),
        BT_TEST(all_of_two_arrays),
        BT_TEST(contains_counts_elements),
        BT_TEST(negated_arrays),
        BT_TEST(unevaluated_items_are_those_that_nothing_beside_has_said),
        BT_TEST(what_is_wrong_is_told_with_its_pointer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
