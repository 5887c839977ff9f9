/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/walltime.h"

/* Standard error, while a line is logged. */
typedef struct capture {
    int saved, pipe[2];
    char text[16384];
} capture_t;

static void begin(capture_t *c)
{
    assert_int_equal(pipe(c->pipe), 0);
    assert_int_equal(fcntl(c->pipe[0], F_SETFL, O_NONBLOCK), 0);
    c->saved = dup(STDERR_FILENO);
    assert_int_equal(dup2(c->pipe[1], STDERR_FILENO), STDERR_FILENO);
}

static void end(capture_t *c)
{
    const ssize_t n = read(c->pipe[0], c->text, sizeof(c->text) - 1);

    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    close(c->pipe[0]);
    close(c->pipe[1]);
    c->text[(n > 0) ? n : 0] = '\0';
}

/* By `date -u -d @SECONDS +%FT%T`. */
static void a_time_has_milliseconds_and_its_zone(void **state)
{
    char text[BT_WALLTIME_BYTES];

    (void)state;
    bt_walltime_print(1700074049007, text);
    assert_string_equal(text, "2023-11-15T18:47:29.007+00:00");
    bt_walltime_print(951782399999, text);
    assert_string_equal(text, "2000-02-28T23:59:59.999+00:00");
    bt_walltime_print(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000+00:00");
}

/* `2026-11-22T14:03:07.123+00:00` where each digit is a 0. */
static void assert_time(const char *text)
{
    static const char shape[] = "0000-00-00T00:00:00.000+00:00";

    for (size_t i = 0; i < sizeof(shape) - 1; i++) {
        if (shape[i] == '0') {
            assert_in_range(text[i], '0', '9');
        } else {
            assert_int_equal(text[i], shape[i]);
        }
    }
}

static void a_line_of_text_has_time_level_and_name(void **state)
{
    capture_t c;

    (void)state;
    bt_test_expect_log_lines(1);
    bt_log_init("decode-0", BT_LOG_LEVEL_INFO);
    assert_int_equal(bt_log_format("text"), 0);
    begin(&c);
    errno = ENOSPC;
    BT_LOG_WARN("request %d: %m", 42);
    assert_int_equal(errno, ENOSPC);
    BT_LOG_DEBUG("below the level");
    end(&c);
    assert_time(c.text);
    assert_string_equal(
        c.text + 29, " warn  decode-0: request 42: No space left on device\n");
}

/* Escapes by hand after RFC 8259. */
static void
a_line_of_json_is_one_object_whatever_the_message_holds(void **state)
{
    char want[256];
    capture_t c;

    (void)state;
    bt_test_expect_log_lines(1);
    bt_log_init("decode-0", BT_LOG_LEVEL_INFO);
    assert_int_equal(bt_log_format("json"), 0);
    begin(&c);
    bt_alloc_fail_at(1); /* nothing is allocated */
    BT_LOG_ERROR("a \"quote\", a\nline, \x01 and \xff");
    bt_alloc_fail_at(0);
    end(&c);
    assert_int_equal(bt_log_format("text"), 0);
    assert_memory_equal(c.text, "{\"time\":\"", 9);
    assert_time(c.text + 9);
    snprintf(want, sizeof(want),
             "\",\"level\":\"error\",\"name\":\"decode-0\",\"pid\":%d,"
             "\"message\":\"a \\\"quote\\\", a\\nline, \\u0001 and "
             "\xef\xbf\xbd\"}\n",
             (int)getpid());
    assert_string_equal(c.text + 38, want);
}

static void the_longest_message_is_still_one_whole_object(void **state)
{
    char worst[4096];
    capture_t c;
    size_t n;

    (void)state;
    bt_test_expect_log_lines(1);
    memset(worst, '\x01', sizeof(worst) - 1);
    worst[sizeof(worst) - 1] = '\0';
    bt_log_init(worst, BT_LOG_LEVEL_INFO);
    assert_int_equal(bt_log_format("json"), 0);
    begin(&c);
    BT_LOG_ERROR("%s", worst);
    end(&c);
    assert_int_equal(bt_log_format("text"), 0);
    bt_log_init("test_log", BT_LOG_LEVEL_INFO);
    n = strlen(c.text);
    assert_true(n > 6000);
    assert_string_equal(c.text + n - 9, "\\u0001\"}\n");
    assert_ptr_equal(strchr(c.text, '\n'), c.text + n - 1);
}

static void a_line_is_copied_where_it_is_wanted(void **state)
{
    char copy[256] = "";
    int wanted[2];
    capture_t c;

    (void)state;
    bt_test_expect_log_lines(2);
    bt_log_init("baton", BT_LOG_LEVEL_INFO);
    assert_int_equal(pipe(wanted), 0);
    bt_log_copy_to(wanted[1]);
    begin(&c);
    BT_LOG_WARN("here and there");
    bt_log_copy_to(-1);
    end(&c);
    begin(&c);
    BT_LOG_WARN("here only");
    end(&c);
    close(wanted[1]);
    assert_true(read(wanted[0], copy, sizeof(copy) - 1) > 29);
    assert_string_equal(copy + 29, " warn  baton: here and there\n");
    close(wanted[0]);
}

static void a_format_that_is_unknown_is_refused(void **state)
{
    (void)state;
    assert_int_equal(bt_log_format("xml"), -1);
    assert_int_equal(bt_log_format(""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_time_has_milliseconds_and_its_zone),
        BT_TEST(a_line_of_text_has_time_level_and_name),
        BT_TEST(a_line_of_json_is_one_object_whatever_the_message_holds),
        BT_TEST(the_longest_message_is_still_one_whole_object),
        BT_TEST(a_line_is_copied_where_it_is_wanted),
        BT_TEST(a_format_that_is_unknown_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
