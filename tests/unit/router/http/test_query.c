/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "router/http/query.h"

static bt_query_t query;

static void next_is(const char *name, const char *value)
{
    assert_int_equal(bt_query_next(&query), BT_OK);
    assert_string_equal(query.name, name);
    assert_string_equal(query.value, value);
}

static void query_fields_are_decoded_in_order(void **state)
{
    (void)state;
    bt_query_init(&query, "&a=1&&b=x%20y+z&c&%64=%3D%26&=v&e=f=g");
    next_is("a", "1");
    next_is("b", "x y z");
    next_is("c", "");
    next_is("d", "=&");
    next_is("", "v");
    next_is("e", "f=g");
    assert_int_equal(bt_query_next(&query), BT_ERR_NOT_FOUND);
    assert_int_equal(bt_query_next(&query), BT_ERR_NOT_FOUND);
}

static void empty_query_has_no_fields(void **state)
{
    (void)state;
    bt_query_init(&query, "");
    assert_int_equal(bt_query_next(&query), BT_ERR_NOT_FOUND);
    bt_query_init(&query, "&&&");
    assert_int_equal(bt_query_next(&query), BT_ERR_NOT_FOUND);
}

static void invalid_escapes_are_refused(void **state)
{
    static const char *const wrong[] = {"a=%",   "a=%1",  "a=%1&b=2", "a=%g1",
                                        "a=%1g", "a=%00", "%=1"};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        bt_query_init(&query, wrong[i]);
        assert_int_equal(bt_query_next(&query), BT_ERR_INVALID_PARAM);
    }
}

static void fields_over_limit_are_refused(void **state)
{
    char text[BT_QUERY_BYTES + 8];

    (void)state;
    memset(text, 'x', sizeof(text));
    memcpy(text, "a=", 2);
    text[BT_QUERY_BYTES + 1] = '\0'; /* a value of 255 bytes */
    bt_query_init(&query, text);
    assert_int_equal(bt_query_next(&query), BT_OK);
    assert_int_equal(strlen(query.value), BT_QUERY_BYTES - 1);
    text[BT_QUERY_BYTES + 1] = 'x';
    text[BT_QUERY_BYTES + 2] = '\0';
    bt_query_init(&query, text);
    assert_int_equal(bt_query_next(&query), BT_ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(query_fields_are_decoded_in_order),
        BT_TEST(empty_query_has_no_fields),
        BT_TEST(invalid_escapes_are_refused),
        BT_TEST(fields_over_limit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
