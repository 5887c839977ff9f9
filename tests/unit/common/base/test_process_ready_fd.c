/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/testsupport.h"

static void name_fd(int fd)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", fd);
    assert_int_equal(setenv("BATON_READY_FD", text, 1), 0);
}

static void ready_fd_lines_reach_the_reader(void **state)
{
    char text[64] = "";
    int ends[2];
    int fd;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    name_fd(ends[1]);
    fd = bt_ready_fd_open();
    assert_int_equal(fd, ends[1]);
    bt_ready_fd_say(&fd, "http 127.0.0.1:80\n");
    bt_ready_fd_say(&fd, "ready\n");
    bt_ready_fd_close(&fd);
    assert_int_equal(fd, -1);
    assert_int_equal(fcntl(ends[1], F_GETFD), -1);
    assert_int_equal(read(ends[0], text, sizeof(text) - 1), 24);
    assert_string_equal(text, "http 127.0.0.1:80\nready\n");
    assert_int_equal(read(ends[0], text, sizeof(text)), 0);
    close(ends[0]);
}

static void without_ready_fd_nothing_is_written(void **state)
{
    int fd;

    (void)state;
    unsetenv("BATON_READY_FD");
    fd = bt_ready_fd_open();
    assert_int_equal(fd, -1);
    bt_ready_fd_say(&fd, "ready\n");
    bt_ready_fd_close(&fd);
    assert_int_equal(setenv("BATON_READY_FD", "", 1), 0);
    assert_int_equal(bt_ready_fd_open(), -1);
}

static void invalid_ready_fd_logs_a_warning(void **state)
{
    static const char *const bad[] = {
        "x", "3x", "-1", "0", "2", "65536", " ", "99999999999999999999"};

    (void)state;
    bt_test_expect_log_lines(sizeof(bad) / sizeof(bad[0]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(setenv("BATON_READY_FD", bad[i], 1), 0);
        assert_int_equal(bt_ready_fd_open(), -1);
    }
}

static void vanished_ready_fd_reader_is_warned_about_once(void **state)
{
    int ends[2];
    int fd;

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    name_fd(ends[1]);
    fd = bt_ready_fd_open();
    bt_test_expect_log_lines(1);
    bt_ready_fd_say(&fd, "http 127.0.0.1:80\n");
    assert_int_equal(fd, -1);
    assert_int_equal(fcntl(ends[1], F_GETFD), -1);
    bt_ready_fd_say(&fd, "ready\n");
    bt_ready_fd_close(&fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ready_fd_lines_reach_the_reader),
        BT_TEST(without_ready_fd_nothing_is_written),
        BT_TEST(invalid_ready_fd_logs_a_warning),
        BT_TEST(vanished_ready_fd_reader_is_warned_about_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
