/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager hears, at a socket of the test's own. The protocol is
 * that of sd_notify(3). */
#include "tests/support/testsupport.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launcher/notify.h"

#define T0_MS 1000000u

/* A manager, and what it heard last. */
typedef struct manager {
    char dir[64];
    char path[96];
    int fd;
    char heard[1024];
    bt_notify_t notify;
} manager_t;

static void listen_at(manager_t *m, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                              strlen(name) + ((name[0] == '@') ? 0 : 1));

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
    if (name[0] == '@') {
        address.sun_path[0] = '\0';
    }
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(m->fd >= 0);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&address, n), 0);
}

static void setup(manager_t *m)
{
    memset(m, 0, sizeof(*m));
    snprintf(m->dir, sizeof(m->dir), "/tmp/bt-notify-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    snprintf(m->path, sizeof(m->path), "%s/notify", m->dir);
    listen_at(m, m->path);
    assert_int_equal(setenv("NOTIFY_SOCKET", m->path, 1), 0);
    assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
    assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
}

static void teardown(manager_t *m)
{
    bt_notify_close(&m->notify);
    close(m->fd);
    unlink(m->path);
    rmdir(m->dir);
}

/* The next datagram, "" where there is none. */
static const char *hear(manager_t *m)
{
    const ssize_t n = recv(m->fd, m->heard, sizeof(m->heard) - 1, 0);

    m->heard[(n < 0) ? 0 : n] = '\0';
    return m->heard;
}

static bt_notify_state_t serving(void)
{
    return (bt_notify_state_t){.is_ready = true,
                               .stop_ms = 40000,
                               .n_routers = 1,
                               .n_serving = 1,
                               .status = "serves"};
}

static void ready_and_stopping_are_said_once(void **test_state)
{
    bt_notify_state_t state = {.n_routers = 1, .status = "starts"};
    manager_t m;

    (void)test_state;
    setup(&m);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    bt_notify_tell(&m.notify, &state, T0_MS);
    assert_string_equal(hear(&m), "STATUS=starts\n");
    bt_notify_tell(&m.notify, &state, T0_MS + 1);
    assert_string_equal(hear(&m), "");
    state = serving();
    bt_notify_tell(&m.notify, &state, T0_MS + 2);
    assert_string_equal(hear(&m), "READY=1\nSTATUS=serves\n");
    state.n_serving = 0;
    state.status = "not now";
    bt_notify_tell(&m.notify, &state, T0_MS + 3);
    assert_string_equal(hear(&m), "STATUS=not now\n");
    state.is_stopping = true;
    bt_notify_tell(&m.notify, &state, T0_MS + 4);
    assert_string_equal(hear(&m), "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000\n");
    bt_notify_tell(&m.notify, &state, T0_MS + 5);
    assert_string_equal(hear(&m), "");
    assert_true(bt_notify_due_ms(&m.notify) == UINT64_MAX);
    teardown(&m);
}

static void a_name_may_be_abstract(void **test_state)
{
    char name[64];
    bt_notify_state_t state = serving();
    manager_t m;

    (void)test_state;
    setup(&m);
    close(m.fd);
    snprintf(name, sizeof(name), "@bt-notify-%d", (int)getpid());
    listen_at(&m, name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    bt_notify_tell(&m.notify, &state, T0_MS);
    assert_string_equal(hear(&m), "READY=1\nSTATUS=serves\n");
    teardown(&m);
}

static void children_hear_of_no_manager(void **test_state)
{
    char pid[32];
    manager_t m;

    (void)test_state;
    setup(&m);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_int_equal(setenv("WATCHDOG_USEC", "30000000", 1), 0);
    assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    assert_int_equal(m.notify.beat_every_ms, 10000);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
    teardown(&m);
}

static void heartbeats_come_three_times_in_the_time(void **test_state)
{
    bt_notify_state_t state = serving();
    manager_t m;

    (void)test_state;
    setup(&m);
    assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    bt_notify_tell(&m.notify, &state, T0_MS);
    assert_string_equal(hear(&m), "READY=1\nSTATUS=serves\nWATCHDOG=1\n");
    assert_true(bt_notify_due_ms(&m.notify) == T0_MS + 1000);
    bt_notify_tell(&m.notify, &state, T0_MS + 999);
    assert_string_equal(hear(&m), "");
    bt_notify_tell(&m.notify, &state, T0_MS + 1000);
    assert_string_equal(hear(&m), "WATCHDOG=1\n");
    assert_true(bt_notify_due_ms(&m.notify) == T0_MS + 2000);
    teardown(&m);
}

/* While a router is started again nobody else can do better, so it goes on;
 * where that leads to nothing for two minutes it ends. */
static void heartbeats_end_where_nobody_can_be_served(void **test_state)
{
    bt_notify_state_t state = serving();
    uint64_t now_ms = T0_MS;
    manager_t m;

    (void)test_state;
    setup(&m);
    assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    bt_notify_tell(&m.notify, &state, now_ms);
    assert_string_not_equal(hear(&m), "");
    state.n_serving = 0;
    for (; now_ms < T0_MS + 120000; now_ms = bt_notify_due_ms(&m.notify)) {
        bt_notify_tell(&m.notify, &state, now_ms);
        assert_string_equal(hear(&m), (now_ms == T0_MS) ? "" : "WATCHDOG=1\n");
    }
    for (uint32_t i = 0; i < 10; i++) {
        bt_notify_tell(&m.notify, &state, now_ms);
        assert_string_equal(hear(&m), "");
        assert_true(bt_notify_due_ms(&m.notify) > now_ms); /* no haste */
        now_ms = bt_notify_due_ms(&m.notify);
    }
    state.n_serving = 1;
    bt_notify_tell(&m.notify, &state, now_ms);
    assert_string_equal(hear(&m), "WATCHDOG=1\n");

    /* Stopped by a command: that is meant. */
    state.n_routers = state.n_serving = 0;
    for (uint32_t i = 0; i < 200; i++) {
        now_ms = bt_notify_due_ms(&m.notify);
        bt_notify_tell(&m.notify, &state, now_ms);
        assert_string_equal(hear(&m), "WATCHDOG=1\n");
    }
    teardown(&m);
}

static void what_there_was_no_room_for_is_said_later(void **test_state)
{
    bt_notify_state_t state = serving();
    char status[32];
    uint32_t n = 0;
    manager_t m;

    (void)test_state;
    setup(&m);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    state.status = status;
    state.is_ready = false;
    while (bt_notify_due_ms(&m.notify) == UINT64_MAX) { /* all was sent */
        snprintf(status, sizeof(status), "line %u", n++);
        assert_true(n < 100000);
        bt_notify_tell(&m.notify, &state, T0_MS);
    }
    state = serving();
    bt_notify_tell(&m.notify, &state, T0_MS + 50); /* too soon */
    while (hear(&m)[0] != '\0') {
        assert_null(strstr(m.heard, "READY"));
    }
    bt_notify_tell(&m.notify, &state, bt_notify_due_ms(&m.notify));
    assert_string_equal(hear(&m), "READY=1\nSTATUS=serves\n");
    assert_true(bt_notify_due_ms(&m.notify) == UINT64_MAX);
    teardown(&m);
}

/* Else the launcher would look again and again, without a pause. */
static void what_is_as_it_was_said_is_not_due(void **test_state)
{
    bt_notify_state_t state = serving();
    char status[32];
    uint32_t n = 0;
    manager_t m;

    (void)test_state;
    setup(&m);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    state.status = status;
    while (bt_notify_due_ms(&m.notify) == UINT64_MAX) {
        snprintf(status, sizeof(status), "line %u", n++);
        assert_true(n < 100000);
        bt_notify_tell(&m.notify, &state, T0_MS);
    }
    snprintf(status, sizeof(status), "line %u", n - 2); /* the last that went */
    bt_notify_tell(&m.notify, &state, bt_notify_due_ms(&m.notify));
    assert_true(bt_notify_due_ms(&m.notify) == UINT64_MAX);
    teardown(&m);
}

static void a_manager_that_is_gone_is_said_once(void **test_state)
{
    bt_notify_state_t state = serving();
    manager_t m;

    (void)test_state;
    setup(&m);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    unlink(m.path);
    bt_test_expect_log_lines(1);
    bt_notify_tell(&m.notify, &state, T0_MS);
    bt_notify_tell(&m.notify, &state, bt_notify_due_ms(&m.notify));
    close(m.fd);
    listen_at(&m, m.path); /* it was started anew */
    bt_notify_tell(&m.notify, &state, bt_notify_due_ms(&m.notify));
    assert_string_equal(hear(&m), "READY=1\nSTATUS=serves\n");
    teardown(&m);
}

static void without_a_manager_nothing_is_due(void **test_state)
{
    bt_notify_state_t state = serving();
    bt_notify_t notify;

    (void)test_state;
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
    assert_int_equal(bt_notify_open(&notify), BT_OK);
    bt_notify_tell(&notify, &state, T0_MS);
    assert_true(bt_notify_due_ms(&notify) == UINT64_MAX);
    assert_null(getenv("WATCHDOG_USEC"));
    bt_notify_close(&notify);
}

static void a_watchdog_of_somebody_else_is_not_ours(void **test_state)
{
    manager_t m;

    (void)test_state;
    setup(&m);
    assert_int_equal(setenv("WATCHDOG_USEC", "3000000", 1), 0);
    assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0);
    assert_int_equal(bt_notify_open(&m.notify), BT_OK);
    assert_int_equal(m.notify.beat_every_ms, 0);
    teardown(&m);
}

static void what_cannot_be_understood_is_named(void **test_state)
{
    static const char *const bad[][3] = {
        {"relative", NULL, NULL}, {"@", NULL, NULL},
        {"/x", "soon", NULL},     {"/x", "-1", NULL},
        {"/x", "2999", NULL},     {"/x", "99999999999999999999999", NULL},
        {"/x", "3000000", "me"},  {"/x", "3000000", "0"},
    };
    char long_path[200];
    bt_notify_t notify;

    (void)test_state;
    bt_test_expect_log_lines(sizeof(bad) / sizeof(bad[0]) + 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", bad[i][0], 1), 0);
        if (bad[i][1] != NULL) {
            assert_int_equal(setenv("WATCHDOG_USEC", bad[i][1], 1), 0);
        }
        if (bad[i][2] != NULL) {
            assert_int_equal(setenv("WATCHDOG_PID", bad[i][2], 1), 0);
        }
        assert_int_equal(bt_notify_open(&notify), BT_ERR_INVALID_PARAM);
        bt_notify_close(&notify);
    }
    memset(long_path, 'a', sizeof(long_path));
    long_path[0] = '/';
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(setenv("NOTIFY_SOCKET", long_path, 1), 0);
    assert_int_equal(bt_notify_open(&notify), BT_ERR_INVALID_PARAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ready_and_stopping_are_said_once),
        BT_TEST(a_name_may_be_abstract),
        BT_TEST(children_hear_of_no_manager),
        BT_TEST(heartbeats_come_three_times_in_the_time),
        BT_TEST(heartbeats_end_where_nobody_can_be_served),
        BT_TEST(what_there_was_no_room_for_is_said_later),
        BT_TEST(what_is_as_it_was_said_is_not_due),
        BT_TEST(a_manager_that_is_gone_is_said_once),
        BT_TEST(without_a_manager_nothing_is_due),
        BT_TEST(a_watchdog_of_somebody_else_is_not_ours),
        BT_TEST(what_cannot_be_understood_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
