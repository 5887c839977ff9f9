/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void references_lead_to_schemas_of_the_document(void **state)
{
    (void)state;
    HAS("{'$ref':'#/$defs/a','$defs':{'a':{'type':'null'}}}", "null", NULL,
        "1");
    HAS("{'$ref':'#/$defs/a%25b~1c~0d','$defs':{'a%b/c~d':{'type':'null'}}}",
        "null", NULL, "1");
    HAS("{'$ref':'#/allOf/1','allOf':[true,{'type':'null'}]}", "null", NULL,
        "1");
    HAS("{'$ref':'#x','$defs':{'a':{'$anchor':'x','type':'null'}}}", "null",
        NULL, "1");
    HAS("{'$ref':'#y','$defs':{'a':{'$dynamicAnchor':'y','type':'null'}}}",
        "null", NULL, "1");
    HAS("{'$dynamicRef':'#y','$defs':{'a':{'$dynamicAnchor':'y','type':'null'}}}",
        "null", NULL, "1");
    HAS("{'$schema':'http://json-schema.org/draft-07/schema#','allOf':[{'$ref':'#x'}],'definitions':{'a':{'$id':'#x','type':'null'}}}",
        "null", NULL, "1");
}

static void identifiers_are_resolved_as_uris(void **state)
{
    (void)state;
    HAS("{'$id':'http://a/b/c','$ref':'d','$defs':{'x':{'$id':'http://a/b/d','type':'null'}}}",
        "null", NULL, "1");
    HAS("{'$id':'http://a/b/c','$ref':'/d#/$defs/y','$defs':{'x':{'$id':'../d','$defs':{'y':{'type':'null'}}}}}",
        "null", NULL, "1");
    HAS("{'$id':'http://a/b/c','$ref':'http://a/b/c#/$defs/x','$defs':{'x':{'type':'null'}}}",
        "null", NULL, "1");
    HAS("{'$schema':'https://json-schema.org/draft/2020-12/schema','$ref':'x','$defs':{'x':{'$id':'x','$ref':'#/$defs/y','$defs':{'y':{'type':'null'}}},'y':{'type':'string'}}}",
        "null", NULL, "''");
    HAS("{'$id':'urn:a:b','$ref':'urn:a:b#/$defs/x','$defs':{'x':{'type':'null'}}}",
        "null", NULL, "1");
    HAS("{'$schema':'https://json-schema.org/draft/2020-12/schema','$ref':'#/$defs/x','$defs':{'x':{'$id':'http://a/b','$defs':{'z':{'$anchor':'q','type':'null'}},'$ref':'#q'}}}",
        "null", NULL, "1");
}

static void an_identifier_in_a_value_is_none(void **state)
{
    (void)state;
    REFUSED(
        "{'$ref':'http://a/b','$defs':{'x':{'const':{'$id':'http://a/b'}}}}",
        "/$ref: references to other documents");
    WRONG("{'$ref':'#z','$defs':{'x':{'enum':[{'$anchor':'z'}]}}}",
          "/$ref: there is no such schema");
}

static void references_that_lead_nowhere_are_told(void **state)
{
    (void)state;
    WRONG("{'$ref':'#/$defs/a'}", "/$ref: there is no such schema");
    WRONG("{'$ref':'#/allOf/2','allOf':[true]}",
          "/$ref: there is no such schema");
    WRONG("{'$ref':'#/allOf/x','allOf':[true]}",
          "/$ref: there is no such schema");
    WRONG("{'$ref':'#/title','title':'x'}", "/title: must be a schema");
    WRONG("{'$ref':1}", "/$ref: must be a reference");
    REFUSED("{'properties':{'a':{'$ref':'http://x.y/z'}}}",
            "/properties/a/$ref: references to other documents");
    /* $ref prevents a sibling $id from changing the base uri: drafts 6, 7 */
    REFUSED("{'$id':'http://a/b/','allOf':[{'$id':'http://a/c/','$ref':'x'}]}",
            "/allOf/0/$id: beside $ref this needs a $schema");
    REFUSED(
        "{'$dynamicRef':'#y','$defs':{'a':{'$dynamicAnchor':'y'},'b':{'$id':'b','$dynamicAnchor':'y'}},'$dynamicAnchor':'y'}",
        "/$dynamicRef: references that depend on");
}

static void uris_with_any_bytes_end(void **state)
{
    (void)state;
    HAS("{'$id':'http://a\\u0000/..//.././x','type':'null'}", "null", NULL,
        "1");
    REFUSED("{'$id':'a:/..','$ref':'../../..//./b\\u0000/'}",
            "references to other documents");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(references_lead_to_schemas_of_the_document),
        BT_TEST(identifiers_are_resolved_as_uris),
        BT_TEST(an_identifier_in_a_value_is_none),
        BT_TEST(references_that_lead_nowhere_are_told),
        BT_TEST(uris_with_any_bytes_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
