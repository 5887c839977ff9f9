/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void types(void **state)
{
    (void)state;
    HAS("{'type':'null'}", "null", NULL, "true", "0", "''");
    HAS("{'type':['boolean','integer']}", "true", "false", "3", NULL, "null",
        "3.5");
    HAS("{'type':['integer','number'],'maximum':1,'minimum':0}", "0", "0.5",
        "1", NULL, "2");
    HAS("true", "null", "1", "'a'", "[1,{}]", "{'a':{'b':[]}}", NULL, "", "{",
        "[1,]", "nul");
    HAS("{}", "null", "{}", NULL, "");
    WRONG("{'type':'float'}", "/type: is no type of JSON");
    WRONG("{'type':['null',1]}", "/type/1: is no type of JSON");
    WRONG("false", "the schema: no value satisfies it");
    WRONG("1", "the schema: must be a schema");
    WRONG("{'type':[]}", "no value satisfies it");
    WRONG("{'enum':[]}", "no value satisfies it");
    WRONG("{'enum':1}", "/enum: must be a list of values");
}

static void combinations_are_lists_of_schemas(void **state)
{
    (void)state;
    WRONG("{'allOf':[]}", "/allOf: must be a list of at least one schema");
    WRONG("{'anyOf':{}}", "/anyOf: must be a list");
    WRONG("{'oneOf':[{},1]}", "/oneOf/1: must be a schema");
    WRONG("{'not':[]}", "/not: must be a schema");
    WRONG("{'if':1}", "/if: must be a schema");
}

static void annotations_say_nothing(void **state)
{
    (void)state;
    HAS("{'type':'null','title':'t','description':'d','default':1,'examples':[1],'deprecated':true,'readOnly':true,'$comment':'c','contentMediaType':'a/b','contentEncoding':'base64','contentSchema':{'type':'integer'}}",
        "null", NULL, "1");
}

static void keywords_that_are_not_known_are_refused_unless_lenient(void **state)
{
    (void)state;
    REFUSED("{'properties':{'a':{'nullable':true}}}",
            "/properties/a/nullable: this keyword is not known");
}

static void a_draft_knows_its_keywords(void **state)
{
    (void)state;
    REFUSED("{'$schema':'http://json-schema.org/draft-04/schema#','const':1}",
            "/const: this keyword is not known");
    REFUSED(
        "{'$schema':'http://json-schema.org/draft-07/schema#','prefixItems':[]}",
        "/prefixItems: this keyword is not known");
    REFUSED("{'$schema':'http://json-schema.org/draft-03/schema#'}",
            "/$schema: draft 3 is not supported");
    HAS("{'$schema':'http://json-schema.org/draft-07/schema#','$ref':'#/definitions/a','maximum':0,'definitions':{'a':{'const':1}}}",
        "1", NULL, "0");
    HAS("{'$ref':'#/$defs/a','maximum':0,'$defs':{'a':{'enum':[0,1]}}}", "0",
        NULL, "1");
}

static void of_equal_keys_the_last_one_counts(void **state)
{
    (void)state;
    HAS("{'type':'null','type':'integer','maximum':5,'maximum':3}", "3", NULL,
        "4", "null");
    HAS("{'type':'object','properties':{'a':{'const':1},'a':{'const':2}},'additionalProperties':false}",
        "{'a':2}", NULL, "{'a':1}");
}

static void members_come_in_the_order_of_the_text(void **state)
{
    (void)state;
    HAS("{'$ref':'#/$defs/x','properties':{'b':{'const':1}},'required':['a','b'],'$defs':{'x':{'properties':{'a':{'const':1}},'additionalProperties':{'const':1}}},'type':'object','maxProperties':2}",
        "{'a':1,'b':1}", NULL, "{'b':1,'a':1}");
    HAS("{'properties':{'b':{'const':1}},'$ref':'#/$defs/x','required':['a','b'],'$defs':{'x':{'properties':{'a':{'const':1}},'additionalProperties':{'const':1}}},'type':'object','maxProperties':2}",
        "{'b':1,'a':1}", NULL, "{'a':1,'b':1}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(types),
        BT_TEST(combinations_are_lists_of_schemas),
        BT_TEST(annotations_say_nothing),
        BT_TEST(keywords_that_are_not_known_are_refused_unless_lenient),
        BT_TEST(a_draft_knows_its_keywords),
        BT_TEST(of_equal_keys_the_last_one_counts),
        BT_TEST(members_come_in_the_order_of_the_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
