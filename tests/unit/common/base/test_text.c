/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"

static void strbuf_over_its_limit_reports_too_large(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    bt_strbuf_init(&buf, 10);
    bt_strbuf_puts(&buf, "12345");
    bt_strbuf_printf(&buf, "%d", 678);
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    assert_string_equal(buf.data, "12345678");

    bt_strbuf_puts(&buf, "xyz"); /* 11 bytes */
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_TOO_LARGE);
    assert_int_equal(buf.len, 8);
    bt_strbuf_puts(&buf, "x"); /* would fit, but the error sticks */
    assert_int_equal(buf.len, 8);

    bt_strbuf_reset(&buf);
    bt_strbuf_puts(&buf, "abcdef");
    bt_strbuf_consume(&buf, 2);
    assert_string_equal(buf.data, "cdef");
    bt_strbuf_consume(&buf, 100);
    assert_string_equal(buf.data, "");
    bt_strbuf_fini(&buf);
}

static void strbuf_reserves_exactly_the_requested_bytes(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    bt_strbuf_init(&buf, 5000);
    bt_strbuf_reserve(&buf, 5000);
    assert_int_equal(buf.cap, 5001); /* and the zero byte */
    assert_string_equal(buf.data, "");
    for (int i = 0; i < 500; i++) {
        bt_strbuf_puts(&buf, "ten bytes.");
    }
    assert_int_equal(buf.cap, 5001);
    assert_int_equal(buf.len, 5000);
    bt_strbuf_reserve(&buf, 100); /* it is there already */
    assert_int_equal(buf.cap, 5001);
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    bt_strbuf_reserve(&buf, 5001);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_TOO_LARGE);
    bt_strbuf_fini(&buf);

    bt_strbuf_init(&buf, 5000);
    bt_alloc_fail_at(1);
    bt_strbuf_reserve(&buf, 5000);
    bt_alloc_fail_at(0);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_NO_MEMORY);
    assert_null(buf.data);
    bt_strbuf_fini(&buf);
}

static void strbuf_reports_a_failed_allocation(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    bt_strbuf_init(&buf, 100);
    bt_alloc_fail_at(1);
    bt_strbuf_puts(&buf, "a");
    bt_alloc_fail_at(0);
    assert_int_equal(bt_strbuf_status(&buf), BT_ERR_NO_MEMORY);
    bt_strbuf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(strbuf_over_its_limit_reports_too_large),
        BT_TEST(strbuf_reserves_exactly_the_requested_bytes),
        BT_TEST(strbuf_reports_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
