/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void all_of_two_objects_has_what_both_say_of_a_name(void **state)
{
    (void)state;
    HAS("{'type':'object','allOf':[{'properties':{'a':{'type':'integer'}}},{'properties':{'a':{'minimum':5}},'required':['a'],'additionalProperties':false}]}",
        "{'a':5}", NULL, "{}", "{'a':4}", "{'a':'x'}", "{'a':5,'b':1}");
    HAS("{'type':'object','allOf':[{'additionalProperties':{'type':'integer'}},{'properties':{'a':{'maximum':5}},'maxProperties':1}]}",
        "{}", "{'a':5}", "{'b':9}", NULL, "{'a':6}", "{'a':true}",
        "{'b':true}");
    HAS("{'type':'object','allOf':[{'patternProperties':{'^a':{'type':'integer'}},'additionalProperties':false},{'patternProperties':{'b$':{'minimum':5}}}],'maxProperties':1}",
        "{'a':1}", "{'ab':5}", "{}", NULL, "{'ab':4}", "{'b':5}", "{'a':true}");
}

static void negated_objects(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'a':{'enum':[1,2]}},'additionalProperties':false,'not':{'required':['a']}}",
        "{}", NULL, "{'a':1}");
    HAS("{'type':'object','properties':{'a':{'enum':[1,2]}},'additionalProperties':false,'not':{'properties':{'a':{'const':1}}}}",
        "{'a':2}", NULL, "{}", "{'a':1}");
    HAS("{'type':'object','properties':{'a':{'enum':[1,2]},'b':{'const':1}},'not':{'properties':{'a':true},'additionalProperties':false},'maxProperties':2}",
        "{'b':1}", "{'a':1,'b':1}", "{'x':1}", NULL, "{}", "{'a':1}");
    HAS("{'type':'object','additionalProperties':{'enum':[1,2]},'not':{'additionalProperties':{'const':1}},'maxProperties':2}",
        "{'x':2}", "{'x':1,'y':2}", NULL, "{}", "{'x':1}");
    HAS("{'type':'object','properties':{'a':true},'not':{'minProperties':1}}",
        "{}", NULL, "{'a':1}", "{'b':1}");
    HAS("{'type':'object','properties':{'a':{'const':1}},'additionalProperties':false,'not':{'maxProperties':0}}",
        "{'a':1}", NULL, "{}");
    HAS("{'type':'object','properties':{'a':{'const':1}},'additionalProperties':false,'not':{'not':{'required':['a']}}}",
        "{'a':1}", NULL, "{}");
    HAS("{'not':{'const':{'a':1}},'type':'object','properties':{'a':{'enum':[1,2]}},'additionalProperties':false}",
        "{}", "{'a':2}", NULL, "{'a':1}");
    HAS("{'not':{'not':{'patternProperties':{'^x':false}}},'type':'object','additionalProperties':{'const':1},'maxProperties':1}",
        "{}", "{'a':1}", NULL, "{'x':1}");
}

/* A reader takes the last one of equal names. */
static void a_member_that_must_differ_is_the_last_of_its_kind(void **state)
{
    (void)state;
    HAS("{'type':'object','additionalProperties':{'enum':[1,2]},'not':{'additionalProperties':{'const':1}}}",
        "{'x':1,'x':2}", NULL, "{'x':2,'x':1}");
}

/* Both conditions fall on one member that is neither. */
static void a_member_that_must_differ_from_two_values_is_neither(void **state)
{
    (void)state;
    HAS("{'type':'object','allOf':[{'not':{'additionalProperties':{'const':1}}},{'not':{'additionalProperties':{'const':2}}}]}",
        "{'a':3}", "{'a':1,'b':3}", NULL, "{}", "{'a':1}", "{'a':2,'b':2}");
}

static void objects_without_a_value_are_found(void **state)
{
    (void)state;
    WRONG("{'type':'object','required':['a'],'properties':{'a':false}}",
          "no value satisfies it");
    WRONG("{'type':'object','required':['a','b'],'maxProperties':1}",
          "no value satisfies it");
    WRONG(
        "{'type':'object','required':['a'],'allOf':[{'properties':{'a':{'type':'null'}}},{'properties':{'a':{'type':'string'}}}]}",
        "no value satisfies it");
    WRONG("{'type':'object','minProperties':1,'additionalProperties':false}",
          "no value satisfies it");
    WRONG("{'type':'object','minProperties':2,'maxProperties':1}",
          "no value satisfies it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(all_of_two_objects_has_what_both_say_of_a_name),
        BT_TEST(negated_objects),
        BT_TEST(a_member_that_must_differ_is_the_last_of_its_kind),
        BT_TEST(a_member_that_must_differ_from_two_values_is_neither),
        BT_TEST(objects_without_a_value_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
