/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void members_are_counted(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'a':{'const':1},'b':{'const':1},'c':{'const':1}},'additionalProperties':false,'minProperties':2}",
        "{'a':1,'b':1}", "{'a':1,'c':1}", "{'a':1,'b':1,'c':1}", NULL, "{}",
        "{'a':1}");
    HAS("{'type':'object','properties':{'a':{'const':1},'b':{'const':1},'c':{'const':1}},'additionalProperties':false,'maxProperties':1}",
        "{}", "{'a':1}", "{'c':1}", NULL, "{'a':1,'b':1}");
    HAS("{'type':'object','properties':{'a':{'const':1}},'additionalProperties':{'const':2},'minProperties':1,'maxProperties':2}",
        "{'a':1}", "{'b':2}", "{'a':1,'b':2}", "{'b':2,'c':2}", NULL, "{}",
        "{'a':1,'b':2,'c':2}", "{'b':2,'c':2,'d':2}");
    HAS("{'type':'object','properties':{'a':{'const':1}},'additionalProperties':{'const':2},'maxProperties':1}",
        "{}", "{'a':1}", "{'b':2}", NULL, "{'a':1,'b':2}", "{'b':2,'c':2}");
    HAS("{'type':'object','maxProperties':0}", "{}", NULL, "{'a':1}");
}

static void other_members_may_have_one_name_so_one_counts(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'a':{'const':1}},'additionalProperties':{'const':2},'minProperties':2}",
        "{'a':1,'b':2}", "{'a':1,'b':2,'b':2}", NULL, "{'b':2,'b':2}",
        "{'a':1}", "{}");
    REFUSED("{'type':'object','minProperties':2}",
            "/minProperties: above the number of properties and 1");
    REFUSED(
        "{'type':'object','properties':{'a':false,'b':true},'minProperties':3}",
        "/minProperties: above the number");
}

static void different_values_come_once_each(void **state)
{
    (void)state;
    HAS("{'type':'array','items':{'enum':[1,2,'a']},'uniqueItems':true}", "[]",
        "[1]", "['a',2,1]", "[2,'a']", NULL, "[1,1]", "[1,2,1]", "[1,2,'a',1]");
    HAS("{'type':'array','items':{'enum':[1,2,3]},'uniqueItems':true,'minItems':2,'maxItems':2}",
        "[1,2]", "[3,1]", NULL, "[1]", "[1,2,3]", "[2,2]");
    HAS("{'type':'array','items':{'type':['boolean','null']},'uniqueItems':true}",
        "[null,true,false]", "[false]", NULL, "[true,true]");
    HAS("{'type':'array','items':{'enum':[1,1.0,2]},'uniqueItems':true}",
        "[1,2]", NULL, "[1,1]");
    HAS("{'type':'array','items':{'type':'integer','minimum':10,'maximum':30},'uniqueItems':true,'minItems':2}",
        "[10,11]", "[10,20,30]", NULL, "[10,10]", "[10]", "[20,10]");
    HAS("{'type':'array','uniqueItems':true,'maxItems':1}", "[]", "[{}]", NULL,
        "[1,2]");
    HAS("{'type':'array','uniqueItems':true,'prefixItems':[{'type':'string'},{'type':'integer'}],'items':false}",
        "['a',1]", "['a']", NULL, "[1]");
    HAS("{'type':'array','uniqueItems':false,'maxItems':2}", "[1,1]", NULL,
        "[1,1,1]");
    REFUSED("{'type':'array','items':{'type':'string'},'uniqueItems':true}",
            "/uniqueItems: different elements");
    REFUSED("{'type':'array','items':{'enum':[[],{}]},'uniqueItems':true}",
            "/uniqueItems: different elements");
}

static void counts_with_too_many_combinations_are_refused(void **state)
{
    (void)state;
    REFUSED(
        "{'type':'array','contains':{'type':'null'},'minContains':300,'minItems':300}",
        "elements to be counted have more than");
    REFUSED("{'type':'array','contains':{'type':'null'},'maxItems':100000}",
            "elements to be counted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(members_are_counted),
        BT_TEST(other_members_may_have_one_name_so_one_counts),
        BT_TEST(different_values_come_once_each),
        BT_TEST(counts_with_too_many_combinations_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
