/* SPDX-License-Identifier: Apache-2.0 */
/* Strings and regular expressions of Lark's grammars. In grammars and texts '
 * stands for ". Texts are by hand; what patterns match is what Python's re and
 * Rust's regex agree on. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

#define K BT_GRAMMAR_LARK

#define LARK(grammar, ...) HAS_OF(K, grammar, __VA_ARGS__)

static void refused(const char *grammar, const char *part)
{
    schema_check_refused(K, grammar, BT_ERR_UNSUPPORTED, part);
}

static void wrong(const char *grammar, const char *part)
{
    schema_check_refused(K, grammar, BT_ERR_INVALID_PARAM, part);
}

static void strings_have_escapes(void **state)
{
    (void)state;
    LARK("start: 'a\\n\\t\\r\\f\\\\\\''", "a\n\t\r\f\\'", NULL, "a", "an");
    LARK("start: '\\x41\\u00e9\\U0001F600'", "A\xC3\xA9\xF0\x9F\x98\x80", NULL,
         "A");
    LARK("start: '' 'a'", "a", NULL, "");
    refused("start: '\\d'", "line 1: this escape of a string is not supported");
    refused("start: '\\b'", "line 1: this escape of a string is not supported");
    wrong("start: 'a", "line 1: a string has no end");
    wrong("start: 'a\n'", "line 1: a string has no end");
    wrong("start: '\\x4'", "line 1: an escape has too few hexadecimal digits");
    wrong("start: '\\ud800'", "line 1: an escape is no character of Unicode");
    wrong("start: '\xFF'", "line 1: the text is not UTF-8");
    wrong("start: 'a'k", "line 1: a string has a flag other than i");
}

static void case_of_ascii_is_ignored(void **state)
{
    (void)state;
    LARK("start: 'aB-[1'i", "ab-[1", "AB-[1", "Ab-[1", NULL, "ab-{1", "ab");
    refused("start: '\xC3\xA9'i", "line 1: a character beyond ASCII");
    LARK("start: /[a-c]x|k/i", "aX", "CX", "K", NULL, "dx", "\xE2\x84\xAA");
    LARK("start: /[^a-ks]/i", "l", "\xC3\xA9", "L", NULL, "a", "K", "S",
         "\xE2\x84\xAA", "\xC5\xBF", "\xC4\xB0", "\xC4\xB1");
    LARK("start: /[^\\s]/i", "a", NULL, " ");
    refused("start: /\xC3\xA9/i", "line 1: regex, byte 2: a character beyond");
    refused("start: /[a-\xC3\xA9]/i", "a character beyond ASCII");
    refused("start: /\\p{Lu}/i", "a property beside flag i");
}

static void ranges_are_characters(void **state)
{
    (void)state;
    LARK("start: 'a'..'c' ' ' A\nA: '\xC3\xA0' .. '\xC3\xA9'", "a \xC3\xA9",
         "c \xC3\xA0", NULL, "d \xC3\xA0", "a \xC3\xAA");
    wrong("start: 'c'..'a'", "line 1: a range of characters is the wrong way");
    wrong("start: 'ab'..'c'", "line 1: a range of characters has an end that");
    wrong("start: ''..'c'", "line 1: a range of characters has an end that");
    wrong("start: 'a'..'c'i", "line 1: a range of characters has an end that");
    wrong("start: 'a'..b", "line 1: a range of characters has no end");
}

static void patterns_are_what_readers_agree_on(void **state)
{
    (void)state;
    LARK("start: /a\\/b/", "a/b", NULL, "a\\/b");
    LARK("start: /a.c/", "abc", "a\rc",
         "a\xE2\x80\xA8"
         "c",
         NULL, "a\nc");
    LARK("start: /a.c/s", "abc", "a\nc", NULL, "ac");
    LARK("start: /a/mu /[xyz]b/x", "axb", NULL, "ab");
    /* U+0661 is a digit for Python and Rust, U+001C a space for Python. */
    LARK("start: /\\d|\\D\\D/", "1", "ab", "\xC3\xA9x", NULL, "\xD9\xA1",
         "\xD9\xA1x", "1x");
    LARK("start: /[^\\d]/", "a", NULL, "1", "\xD9\xA1");
    LARK("start: /\\s|\\S\\S/", " ", "\n", "ab", "\xC3\xA9.", NULL, "\xC2\xA0",
         "a ", "\xC2\xA0.", "\x1C.");
    LARK("start: /\\w|\\W\\W/", "a", "_", ".-", NULL, "\xC3\xA9", "\xC3\xA9.",
         ".a");
    LARK("start: /[\\W]|[^\\W]x/", ".", "ax", NULL, "a", "\xC3\xA9",
         "\xC3\xA9x");
    refused("start: /a+?/", "line 1: regex, byte 3: lazy quantifiers");
    refused("start: /^a/", "line 1: regex, byte 0: ^ and $ in a terminal");
    refused("start: /a$/m", "line 1: regex, byte 1: ^ and $ in a terminal");
    refused("start: /a\\z/", "^ and $ in a terminal");
    refused("start: /a b/x", "line 1: white space or # in a regular");
    refused("start: /a#b/x", "line 1: white space or # in a regular");
    refused("start: /a/l", "line 1: flag l of a regular expression");
    wrong("start: /a/q", "line 1: a regular expression has a flag that");
    wrong("\nstart: /a", "line 2: a regular expression has no / at its end");
    wrong("start: /a\nb/", "line 1: a regular expression has no / at its end");
    wrong("start: /(/", "line 1: regex, byte 0: ( has no )");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(strings_have_escapes),
        BT_TEST(case_of_ascii_is_ignored),
        BT_TEST(ranges_are_characters),
        BT_TEST(patterns_are_what_readers_agree_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
