/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines of a process. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "launcher/logs.h"

static void check_cause(const char *output, const char *want)
{
    bt_stderr_tail_t *tail = bt_calloc(1, sizeof(*tail));
    char cause[BT_STDERR_TAIL_BYTES];

    assert_non_null(tail);
    bt_stderr_tail_add(tail, output, strlen(output));
    bt_stderr_tail_finish(tail);
    bt_stderr_tail_cause(tail, cause);
    assert_string_equal(cause, want);
    bt_free(tail);
}

static void cause_is_the_last_error_in_the_tail(void **state)
{
    (void)state;
    check_cause("2026-11-22T14:03:07.123+00:00 info  decode-0: loading\n"
                "2026-11-22T14:03:07.124+00:00 error decode-0: first\n"
                "2026-11-22T14:03:07.125+00:00 error decode-0: model m: 3 MiB "
                "are missing\n"
                "2026-11-22T14:03:07.126+00:00 info  decode-0: ended\n",
                "model m: 3 MiB are missing");
    check_cause("{\"time\":\"t\",\"level\":\"error\",\"name\":\"router\","
                "\"pid\":1,\"message\":\"no \\\"a\\\\b\\\" here\"}\n"
                "{\"time\":\"t\",\"level\":\"info\",\"name\":\"router\","
                "\"pid\":1,\"message\":\"ended\"}\n",
                "no \"a\\b\" here");
    /* Of a library or a shell: whatever came last, but no empty line. */
    check_cause("Fatal: it hurts\n\n", "Fatal: it hurts");
    check_cause("", "");
}

static void tail_keeps_the_last_twenty_lines(void **state)
{
    bt_stderr_tail_t *tail = bt_calloc(1, sizeof(*tail));
    char line[32];

    (void)state;
    assert_non_null(tail);
    bt_stderr_tail_reset(tail);
    assert_null(bt_stderr_tail_line(tail, 0));
    for (int i = 0; i < 33; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        bt_stderr_tail_add(tail, line, 3); /* in two pieces */
        bt_stderr_tail_add(tail, line + 3, strlen(line) - 3);
    }
    assert_string_equal(bt_stderr_tail_line(tail, 0), "line 13");
    assert_string_equal(bt_stderr_tail_line(tail, 19), "line 32");
    assert_null(bt_stderr_tail_line(tail, 20));

    /* An open line takes the oldest one's place at once. */
    bt_stderr_tail_add(tail, "half", 4);
    assert_string_equal(bt_stderr_tail_line(tail, 0), "line 14");
    assert_string_equal(bt_stderr_tail_line(tail, 18), "line 32");
    assert_null(bt_stderr_tail_line(tail, 19));
    bt_stderr_tail_finish(tail);
    bt_stderr_tail_finish(tail);
    assert_string_equal(bt_stderr_tail_line(tail, 19), "half");
    bt_stderr_tail_add(tail, "\n\n", 2);
    assert_string_equal(bt_stderr_tail_line(tail, 17), "half");
    assert_string_equal(bt_stderr_tail_line(tail, 19), "");
    bt_free(tail);
}

static void a_long_line_of_the_tail_is_cut(void **state)
{
    bt_stderr_tail_t *tail = bt_calloc(1, sizeof(*tail));

    (void)state;
    assert_non_null(tail);
    for (int i = 0; i < 5000; i++) {
        bt_stderr_tail_add(tail, "x", 1);
    }
    bt_stderr_tail_add(tail, "\nshort\n", 7);
    assert_int_equal(strlen(bt_stderr_tail_line(tail, 0)),
                     BT_STDERR_TAIL_BYTES - 1);
    assert_string_equal(bt_stderr_tail_line(tail, 1), "short");
    bt_free(tail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(cause_is_the_last_error_in_the_tail),
        BT_TEST(tail_keeps_the_last_twenty_lines),
        BT_TEST(a_long_line_of_the_tail_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
