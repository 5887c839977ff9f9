/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void strings_have_all_escapes_and_no_lone_surrogates(void **state)
{
    (void)state;
    HAS("{'type':'string'}", "''", "'a'", "'\\n\\t\\\\\\/'",
        "'\\u00e9\\uD83D\\uDE00'", "'é😀'", NULL, "'", "'a", "'\n'", "'\\x'",
        "'\\ud83d'", "'\\ude00\\ud83d'", "'\\ud83dx'", "'a'b'");
}

static void lengths_count_code_points_of_any_spelling(void **state)
{
    (void)state;
    HAS("{'type':'string','minLength':2,'maxLength':3}", "'ab'", "'abc'",
        "'é😀'", "'\\u0041\\ud83d\\ude00'", "'\\n\\n\\n'", NULL, "''", "'a'",
        "'abcd'", "'😀'", "'\\ud83d\\ude00'", "'\\u0041'");
    HAS("{'type':'string','maxLength':100000}", "''", "'abc'", NULL, "1");
    HAS("{'type':'string','minLength':1000000}", NULL, "''", "'abc'");
}

static void patterns_match_anywhere_and_have_one_spelling(void **state)
{
    (void)state;
    HAS("{'type':'string','pattern':'b+'}", "'b'", "'abc'", "'abb\\n'", "'éb'",
        NULL, "''", "'a'", "'\\u0062'", "'b\\u00e9'");
    HAS("{'type':'string','pattern':'^a.c$'}", "'abc'", "'aéc'", "'a\\\"c'",
        NULL, "'ac'", "'abcd'", "'xabc'");
    HAS("{'type':'string','pattern':'^[a-c]+$','minLength':2,'maxLength':3}",
        "'ab'", "'abc'", NULL, "'a'", "'abca'", "'xy'");
    HAS("{'type':'string','pattern':'^(ab)*$','maxLength':5}", "''", "'ab'",
        "'abab'", NULL, "'a'", "'ababab'");
    HAS("{'type':'string','pattern':'^[a-z]+$','maxLength':4000}", "'abc'",
        NULL, "''", "'a1'");
}

static void texts_of_an_enum_are_those_of_its_schema(void **state)
{
    (void)state;
    HAS("{'enum':['a','ab','é','x\\ty'],'minLength':2}", "'ab'", "'x\\ty'",
        NULL, "'a'", "'é'", "'x\\u0009y'");
    HAS("{'enum':['a','b','ac'],'pattern':'^a'}", "'a'", "'ac'", NULL, "'b'");
    HAS("{'type':'string','not':{'enum':['a','b']},'maxLength':1}", "''", "'c'",
        "'é'", NULL, "'a'", "'b'", "'cc'");
}

static void negated_lengths_and_patterns(void **state)
{
    (void)state;
    HAS("{'type':'string','not':{'minLength':2}}", "''", "'a'", NULL, "'ab'");
    HAS("{'type':'string','not':{'minLength':2,'maxLength':3}}", "'a'",
        "'abcd'", "''", NULL, "'ab'", "'abc'");
    HAS("{'type':'string','not':{'pattern':'x'},'maxLength':2}", "'ab'", "''",
        NULL, "'x'", "'ax'", "'abc'");
    HAS("{'type':'string','oneOf':[{'maxLength':3},{'minLength':2}]}", "'a'",
        "'abcd'", NULL, "'ab'", "'abc'");
}

static void what_is_wrong_is_told_with_its_pointer(void **state)
{
    (void)state;
    WRONG("{'minLength':-1}", "/minLength: must be a whole number");
    WRONG("{'maxLength':1.5}", "/maxLength: must be a whole number");
    HAS("{'type':'string','maxLength':1.0}", "'a'", NULL, "'ab'");
    WRONG("{'pattern':1}", "/pattern: must be a string");
    WRONG("{'properties':{'a':{'pattern':'('}}}",
          "/properties/a/pattern: regex, byte");
    REFUSED("{'pattern':'(?=a)'}", "/pattern: regex, byte");
    WRONG("{'type':'string','pattern':'a','const':'b'}",
          "no value satisfies it");
    WRONG("{'type':'string','minLength':3,'maxLength':2}",
          "no value satisfies it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(strings_have_all_escapes_and_no_lone_surrogates),
        BT_TEST(lengths_count_code_points_of_any_spelling),
        BT_TEST(patterns_match_anywhere_and_have_one_spelling),
        BT_TEST(texts_of_an_enum_are_those_of_its_schema),
        BT_TEST(negated_lengths_and_patterns),
        BT_TEST(what_is_wrong_is_told_with_its_pointer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
