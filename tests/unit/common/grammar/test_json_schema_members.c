/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include <stdio.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void members_come_in_the_order_of_properties(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'b':{'const':1},'a':{'const':2}},'additionalProperties':false}",
        "{}", "{'b':1}", "{'a':2}", "{'b':1,'a':2}", NULL, "{'a':2,'b':1}",
        "{'a':1}", "{'b':1,}", "{,'a':2}", "{'b':1'a':2}", "{'b':1,'b':1}");
    HAS("{'type':'object','properties':{'a':{'const':1},'b':{'const':2},'c':{'const':3}},'required':['b'],'additionalProperties':false}",
        "{'b':2}", "{'a':1,'b':2}", "{'b':2,'c':3}", "{'a':1,'b':2,'c':3}",
        NULL, "{}", "{'a':1}", "{'a':1,'c':3}", "{'c':3}");
    HAS("{'type':'object','required':['z','y'],'properties':{'a':{'const':1}},'additionalProperties':{'const':0}}",
        "{'z':0,'y':0}", "{'a':1,'z':0,'y':0}", "{'z':0,'y':0,'b':0}", NULL,
        "{'y':0,'z':0}", "{'z':0}", "{'z':1,'y':0}");
}

static void other_members_have_other_names(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'a':{'const':1}},'additionalProperties':{'const':2}}",
        "{}", "{'a':1}", "{'b':2}", "{'a':1,'b':2,'c':2}", "{'':2}", "{'aa':2}",
        NULL, "{'a':2}", "{'b':1}", "{'b':2,'a':1}", "{'\\u0061':2}");
    HAS("{'type':'object','properties':{'a':{'const':1}}}",
        "{'a':1,'x':[true,{}]}", "{'b':null}", NULL, "{'a':2}", "{'x':}");
    HAS("{'type':'object','properties':{'x\\ty':{'const':1}},'additionalProperties':false}",
        "{'x\\ty':1}", NULL, "{'x\\u0009y':1}");
}

static void patterns_of_names_apply_beside_properties(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'ab':{'type':'integer'}},'patternProperties':{'^a':{'maximum':5},'b$':{'minimum':3}},'additionalProperties':false}",
        "{'ab':3}", "{'ab':5}", "{'a':'x'}", "{'xb':3}", "{'ab':4,'ac':1}",
        NULL, "{'ab':2}", "{'ab':6}", "{'ab':'x'}", "{'a':6}", "{'b':2}",
        "{'c':1}");
    HAS("{'type':'object','patternProperties':{'^x':false},'additionalProperties':{'const':1}}",
        "{}", "{'a':1}", NULL, "{'x':1}", "{'xa':1}");
}

static void names_are_restricted_by_a_schema(void **state)
{
    (void)state;
    HAS("{'type':'object','propertyNames':{'enum':['a','b']},'additionalProperties':{'const':1}}",
        "{}", "{'a':1}", "{'b':1,'a':1}", NULL, "{'c':1}");
    HAS("{'type':'object','propertyNames':{'maxLength':2},'additionalProperties':{'const':1}}",
        "{'ab':1}", NULL, "{'abc':1}");
    HAS("{'type':'object','propertyNames':{'pattern':'^a'},'properties':{'b':{'const':1}},'additionalProperties':{'const':1}}",
        "{'a':1}", NULL, "{'b':1}");
    HAS("{'type':'object','propertyNames':false}", "{}", NULL, "{'a':1}");
    WRONG("{'type':'object','propertyNames':{'pattern':'^a'},'required':['b']}",
          "no value satisfies it");
}

static void dependencies_ask_for_more_where_a_member_is(void **state)
{
    (void)state;
    HAS("{'type':'object','properties':{'a':{'const':1},'b':{'const':1}},'additionalProperties':false,'dependentRequired':{'a':['b']}}",
        "{}", "{'b':1}", "{'a':1,'b':1}", NULL, "{'a':1}");
    HAS("{'type':'object','properties':{'a':{'const':1},'b':{'enum':[1,2]}},'additionalProperties':false,'dependentSchemas':{'a':{'properties':{'b':{'const':2}}}}}",
        "{'b':1}", "{'a':1,'b':2}", "{'a':1}", NULL, "{'a':1,'b':1}");
    HAS("{'properties':{'a':{'const':1},'b':{'const':1}},'additionalProperties':false,'dependencies':{'a':['b'],'b':{'minProperties':1}},'type':'object'}",
        "{}", "{'b':1}", "{'a':1,'b':1}", NULL, "{'a':1}");
    HAS("{'dependentRequired':{'a':['b']},'type':'integer'}", "1", NULL, "{}");
}

static void
unevaluated_properties_are_those_that_nothing_beside_has_said(void **state)
{
    (void)state;
    HAS("{'type':'object','allOf':[{'properties':{'a':{'const':1}}}],'properties':{'b':{'const':2}},'unevaluatedProperties':false}",
        "{}", "{'a':1,'b':2}", NULL, "{'c':1}", "{'a':2}");
    HAS("{'type':'object','oneOf':[{'properties':{'a':{'const':1}},'required':['a']},{'properties':{'b':{'const':1}},'required':['b']}],'unevaluatedProperties':false}",
        "{'a':1}", "{'b':1}", NULL, "{}", "{'a':1,'b':1}", "{'a':1,'c':1}");
    HAS("{'type':'object','$ref':'#/$defs/x','$defs':{'x':{'properties':{'a':{'const':1}}}},'unevaluatedProperties':{'const':7}}",
        "{'a':1}", "{'b':7}", NULL, "{'b':1}", "{'a':7}");
    HAS("{'type':'object','additionalProperties':{'const':1},'unevaluatedProperties':false}",
        "{'a':1}", NULL, "{'a':2}");
}

static void what_is_wrong_is_told_with_its_pointer(void **state)
{
    (void)state;
    WRONG("{'properties':[]}", "/properties: must be an object of schemas");
    WRONG("{'properties':{'a/b~':1}}", "/properties/a~1b~0: must be a schema");
    WRONG("{'required':'a'}", "/required: must be a list of names");
    WRONG("{'required':[1]}", "/required/0: must be a name");
    WRONG("{'dependencies':[]}", "/dependencies: must be an object");
    WRONG("{'dependentSchemas':{'a':1}}",
          "/dependentSchemas/a: must be a schema");
    WRONG("{'patternProperties':{'(':true}}",
          "/patternProperties/(: regex, byte");
    WRONG("{'minProperties':-1}", "/minProperties: must be a whole number");
}

/* Each name is compared with those before it, so their number is bounded by
 * the budget. */
static void too_many_required_names_are_refused(void **state)
{
    static char text[BT_GRAMMAR_TEXT_BYTES];
    int n = snprintf(text, sizeof(text), "{'type':'object','required':['n'");

    (void)state;
    for (int i = 0; i < 9000; i++) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, ",'%x'", i);
    }
    snprintf(text + n, sizeof(text) - (size_t)n, "]}");
    schema_check_refused(BT_GRAMMAR_JSON_SCHEMA, text, BT_ERR_TOO_LARGE,
                         "too many steps");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(members_come_in_the_order_of_properties),
        BT_TEST(other_members_have_other_names),
        BT_TEST(patterns_of_names_apply_beside_properties),
        BT_TEST(names_are_restricted_by_a_schema),
        BT_TEST(dependencies_ask_for_more_where_a_member_is),
        BT_TEST(unevaluated_properties_are_those_that_nothing_beside_has_said),
        BT_TEST(what_is_wrong_is_told_with_its_pointer),
        BT_TEST(too_many_required_names_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
