/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

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
static void timestamp_has_milliseconds_and_zone(void **state)
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

static void text_log_line_has_time_level_and_name(void **state)
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

static void longest_log_message_is_one_whole_json_object(void **state)
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

static void copy_line(void *fd, const char *line, size_t bytes)
{
    assert_int_equal(write(*(const int *)fd, line, bytes), bytes);
}

static void log_line_is_copied_to_the_registered_callback(void **state)
{
    char copy[256] = "";
    int wanted[2];
    capture_t c;

    (void)state;
    bt_test_expect_log_lines(2);
    bt_log_init("baton", BT_LOG_LEVEL_INFO);
    assert_int_equal(pipe(wanted), 0);
    bt_log_copy_to(copy_line, &wanted[1]);
    begin(&c);
    BT_LOG_WARN("here and there");
    bt_log_copy_to(NULL, NULL);
    end(&c);
    begin(&c);
    BT_LOG_WARN("here only");
    end(&c);
    close(wanted[1]);
    assert_true(read(wanted[0], copy, sizeof(copy) - 1) > 29);
    assert_string_equal(copy + 29, " warn  baton: here and there\n");
    close(wanted[0]);
}

/* A child with a log that was started, whose standard error is a pipe.
 * @return descriptor to read it by */
static int start_child(void (*run)(void), pid_t *pid_p)
{
    int ends[2];

    fflush(stdout);
    assert_int_equal(pipe(ends), 0);
    *pid_p = fork();
    assert_true(*pid_p >= 0);
    if (*pid_p == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        bt_log_init("child", BT_LOG_LEVEL_DEBUG);
        if (bt_log_start() != BT_OK) {
            _exit(2);
        }
        run();
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

/* Everything it writes until it ends. */
static void read_child(int fd, pid_t pid, char *text, size_t bytes)
{
    size_t len = 0;
    int status;
    ssize_t n;

    while ((n = read(fd, text + len, bytes - 1 - len)) > 0) {
        len += (size_t)n;
    }
    text[len] = '\0';
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;

    for (; (text = strstr(text, what)) != NULL; text++) {
        n++;
    }
    return n;
}

static void log_much_of_a_kind(void)
{
    for (unsigned i = 0; i < 1000; i++) {
        BT_LOG_WARN("request %u refused", i);
    }
    BT_LOG_INFO("another kind");
    for (unsigned i = 0; i < 100; i++) {
        BT_LOG_DEBUG("detail %u", i);
    }
    bt_log_flush();
}

static void repeated_log_lines_are_limited_and_counted(void **state)
{
    static char text[1u << 20];
    const char *at;
    unsigned n_more = 0;
    pid_t pid;
    int fd;

    (void)state;
    fd = start_child(log_much_of_a_kind, &pid);
    read_child(fd, pid, text, sizeof(text));
    assert_int_equal(count(text, " info  child: another kind\n"), 1);
    assert_int_equal(count(text, " debug child: detail "), 100);
    assert_in_range(count(text, " warn  child: request "), 20, 999);
    for (at = text; (at = strstr(at, " more like \"request %u refused\"\n"));
         at++) {
        const char *number = at;

        while (number[-1] != ' ') {
            number--;
        }
        n_more += (unsigned)strtoul(number, NULL, 10);
    }
    assert_int_equal(count(text, " warn  child: request ") + n_more, 1000);
}

static int begun[2];

/* More than a pipe and the log's room take. */
static void log_what_nobody_reads(void)
{
    for (unsigned i = 0; i < 20000; i++) {
        BT_LOG_DEBUG("detail %05u of what nobody reads", i);
    }
    (void)!write(begun[1], "x", bt_log_dropped() > 0 ? 1 : 0);
    for (unsigned i = 0; i < 100; i++) {
        bt_log_flush(); /* half a second each, until it is read */
    }
}

static void unread_log_lines_are_dropped_and_counted(void **state)
{
    static const char told[] =
        " log lines were dropped here: nobody read them\"}\n";
    static char text[4u << 20];
    const char *at;
    unsigned long n = 0;
    char one;
    pid_t pid;
    int fd;

    (void)state;
    assert_int_equal(pipe(begun), 0);
    assert_int_equal(bt_log_format("json"), 0);
    fd = start_child(log_what_nobody_reads, &pid);
    assert_int_equal(bt_log_format("text"), 0);
    close(begun[1]);
    assert_int_equal(read(begun[0], &one, 1), 1); /* it came so far */
    close(begun[0]);
    read_child(fd, pid, text, sizeof(text));
    for (at = text; (at = strstr(at, told)) != NULL; at++) {
        const char *number = at;

        while (number[-1] != '"') {
            number--;
        }
        assert_memory_equal(number - 11, "\"message\":\"", 11);
        n += strtoul(number, NULL, 10);
    }
    assert_true(n > 0);
    assert_int_equal(count(text, "of what nobody reads") + n, 20000);
}

static void unknown_log_format_is_refused(void **state)
{
    (void)state;
    assert_int_equal(bt_log_format("xml"), -1);
    assert_int_equal(bt_log_format(""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(timestamp_has_milliseconds_and_zone),
        BT_TEST(text_log_line_has_time_level_and_name),
        BT_TEST(a_line_of_json_is_one_object_whatever_the_message_holds),
        BT_TEST(longest_log_message_is_one_whole_json_object),
        BT_TEST(log_line_is_copied_to_the_registered_callback),
        BT_TEST(repeated_log_lines_are_limited_and_counted),
        BT_TEST(unread_log_lines_are_dropped_and_counted),
        BT_TEST(unknown_log_format_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
