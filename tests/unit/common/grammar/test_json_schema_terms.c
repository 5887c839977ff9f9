/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void recursive_schemas_are_rules(void **state)
{
    (void)state;
    HAS("{'type':'array','items':{'$ref':'#'}}", "[]", "[[],[[]]]", NULL, "[1]",
        "[[]");
    HAS("{'$ref':'#/$defs/n','$defs':{'n':{'type':'object','properties':{'v':{'type':'integer'},'n':{'$ref':'#/$defs/n'}},'additionalProperties':false}}}",
        "{}", "{'v':1}", "{'n':{'n':{'v':2}}}", NULL, "{'n':1}",
        "{'n':{'v':'x'}}");
    HAS("{'anyOf':[{'type':'integer'},{'type':'array','items':{'$ref':'#'},'maxItems':1}]}",
        "1", "[1]", "[[1]]", "[]", NULL, "[1,1]", "['']");
}

static void recursion_within_a_conjunction_is_a_conjunction(void **state)
{
    (void)state;
    HAS("{'$ref':'#/$defs/n','$defs':{'n':{'type':'array','items':{'allOf':[{'$ref':'#/$defs/n'},{'maxItems':1}]}}}}",
        "[]", "[[],[[]]]", "[[[[]]]]", NULL, "[[[],[]]]", "[1]");
}

static void a_schema_that_applies_itself_to_one_value_is_refused(void **state)
{
    (void)state;
    REFUSED("{'$ref':'#'}", "the schema applies itself to one value");
    REFUSED("{'allOf':[{'$ref':'#'}]}",
            "the schema applies itself to one value");
    REFUSED(
        "{'$ref':'#/$defs/a','$defs':{'a':{'anyOf':[{'$ref':'#/$defs/b'}]},'b':{'not':{'$ref':'#/$defs/a'}}}}",
        "the schema applies itself to one value");
}

static void recursion_without_end_has_no_value(void **state)
{
    (void)state;
    WRONG("{'type':'object','required':['a'],'properties':{'a':{'$ref':'#'}}}",
          "no text is in the grammar");
    HAS("{'type':'object','properties':{'a':{'$ref':'#/$defs/x'}},'additionalProperties':false,'$defs':{'x':{'type':'array','minItems':1,'items':{'$ref':'#/$defs/x'}}}}",
        "{}", NULL, "{'a':[]}");
}

static void a_schema_and_its_negation_have_no_value(void **state)
{
    (void)state;
    WRONG(
        "{'type':'object','properties':{'a':{'$ref':'#/$defs/x'}},'not':{'properties':{'a':{'$ref':'#/$defs/x'}}},'$defs':{'x':{'type':'array','uniqueItems':true}}}",
        "no value satisfies it");
}

static void recursive_branches_are_told_apart(void **state)
{
    (void)state;
    HAS("{'oneOf':[{'type':'integer'},{'type':'object','properties':{'l':{'$ref':'#'},'o':{'const':'x'}},'required':['l','o'],'additionalProperties':false},{'type':'object','properties':{'l':{'$ref':'#'},'o':{'const':'y'}},'required':['l','o'],'additionalProperties':false}]}",
        "1", "{'l':1,'o':'x'}", "{'l':{'l':2,'o':'y'},'o':'x'}", NULL, "{}",
        "{'l':1,'o':'z'}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(recursive_schemas_are_rules),
        BT_TEST(recursion_within_a_conjunction_is_a_conjunction),
        BT_TEST(a_schema_that_applies_itself_to_one_value_is_refused),
        BT_TEST(recursion_without_end_has_no_value),
        BT_TEST(a_schema_and_its_negation_have_no_value),
        BT_TEST(recursive_branches_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
