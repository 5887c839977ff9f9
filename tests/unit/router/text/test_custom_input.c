/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of custom tools' calls. Expected texts are those of Python's
 * json.loads(); what it refuses is worked by hand. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/status.h"
#include "router/text/custom_input.h"

/* Reads arguments in pieces of `step` bytes. */
static void read_by(const char *arguments, size_t step, bt_strbuf_t *out)
{
    const size_t n = strlen(arguments);
    bt_custom_input_t input = {0};

    for (size_t at = step; at < n; at += step) {
        bt_custom_input_read(&input, arguments, at, false, out);
    }
    bt_custom_input_read(&input, arguments, n, true, out);
    assert_int_equal(bt_strbuf_status(out), BT_OK);
}

static void check(const char *arguments, const char *text)
{
    for (size_t step = 1; step <= strlen(arguments) + 1; step++) {
        bt_strbuf_t out;

        bt_strbuf_init(&out, 4096);
        read_by(arguments, step, &out);
        assert_int_equal(out.len, strlen(text));
        assert_memory_equal(out.data != NULL ? out.data : "", text, out.len);
        bt_strbuf_fini(&out);
    }
}

static void input_is_the_text_of_its_json_string(void **state)
{
    (void)state;
    check("{\"input\": \"a\\nb\"}", "a\nb");
    check(" {\n\"input\" : \"\\\"\\\\\\/\\b\\f\\n\\r\\t\" , ",
          "\"\\/\b\f\n\r\t");
    check("{\"input\":\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00z\"}",
          "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
    check("{\"input\": \"\xe2\x98\x80 {}\"}", "\xe2\x98\x80 {}");
    check("{\"input\": \"\"}", "");
}

static void input_that_is_cut_is_the_text_so_far(void **state)
{
    (void)state;
    check("{\"input\": \"a", "a");
    check("{\"input\": ", "");
    check("{\"inp", "");
    check("", "");
    check("{\"input\": \"a\\", "a\xef\xbf\xbd");
    check("{\"input\": \"a\\u00", "a\xef\xbf\xbdu00");
    check("{\"input\": \"a\\ud83d", "a\xef\xbf\xbd");
    check("{\"input\": \"a\\ud83d\\u", "a\xef\xbf\xbd\xef\xbf\xbdu");
}

static void what_is_no_escape_is_replaced(void **state)
{
    (void)state;
    check("{\"input\": \"\\x\"}", "\xef\xbf\xbdx");
    check("{\"input\": \"\\u12g4\"}", "\xef\xbf\xbdu12g4");
    check("{\"input\": \"\\ude00\\ud83dx\"}", "\xef\xbf\xbd\xef\xbf\xbdx");
    check("{\"input\": \"\\ud83d\\ud83d\\ude00\"}",
          "\xef\xbf\xbd\xf0\x9f\x98\x80");
}

static void arguments_of_another_form_are_the_text(void **state)
{
    (void)state;
    check("{\"text\": \"a\\nb\"}", "{\"text\": \"a\\nb\"}");
    check("{ \"inputs\": 1}", "{ \"inputs\": 1}");
    check("{\"input\": 5}", "{\"input\": 5}");
    check("[1]", "[1]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(input_is_the_text_of_its_json_string),
        BT_TEST(input_that_is_cut_is_the_text_so_far),
        BT_TEST(what_is_no_escape_is_replaced),
        BT_TEST(arguments_of_another_form_are_the_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
