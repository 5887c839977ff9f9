/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rendezvous/rendezvous.h"

#define DEADLINE_MS 60000

static char dir[64];
static bt_rendezvous_list_t list;

static void make_dir(void)
{
    snprintf(dir, sizeof(dir), "/tmp/baton-rendezvous-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void put(const char *name, const char *text, size_t n)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void take_away(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

static void router_is_listed_from_publish_to_withdraw(void **state)
{
    bt_rendezvous_t a = {0}, b = {0}, again = {0};

    (void)state;
    make_dir();
    assert_int_equal(bt_rendezvous_scan(dir, &list), BT_OK);
    assert_int_equal(list.n, 0);
    assert_int_equal(bt_rendezvous_publish(dir, "tcp://10.0.0.2:7000", &a),
                     BT_OK);
    assert_int_equal(bt_rendezvous_publish(dir, "ipc:///run/r.ipc", &b), BT_OK);
    /* It was killed, and is back: the same file. */
    assert_int_equal(bt_rendezvous_publish(dir, "tcp://10.0.0.2:7000", &again),
                     BT_OK);
    assert_int_equal(bt_rendezvous_scan(dir, &list), BT_OK);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.urls[0], "ipc:///run/r.ipc");
    assert_string_equal(list.urls[1], "tcp://10.0.0.2:7000");
    bt_rendezvous_withdraw(&b);
    bt_rendezvous_withdraw(&b);
    bt_rendezvous_withdraw(&again);
    assert_int_equal(bt_rendezvous_scan(dir, &list), BT_OK);
    assert_int_equal(list.n, 0);
    assert_int_equal(list.n_passed, 0);
    /* Nothing else is left behind. */
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(bt_rendezvous_publish(dir, "tcp://10.0.0.2:7000", &a),
                     BT_ERR_IO);
    assert_int_equal(bt_rendezvous_scan(dir, &list), BT_ERR_IO);
}

static void unreachable_router_addresses_are_refused(void **state)
{
    static const char *const good[] = {"tcp://h:1", "tcp://[fe80::1]:7000",
                                       "ipc:///a", "tcp://10.0.0.0:7000",
                                       "ipc:///a b,\xc3\xa9"};
    static const char *const bad[] = {"",
                                      "tcp://0.0.0.0:7000",
                                      "tcp://[::]:7000",
                                      "tcp://*:7000",
                                      "tcp://h:0",
                                      "tcp://h",
                                      "tcp://:1",
                                      "http://h:1",
                                      "tcp://h:1 ",
                                      "tcp://h:1\n",
                                      "tcp://\xc3\xa9:1",
                                      "ipc:///a\tb",
                                      "ipc://a",
                                      "tcp://h:"};
    char longest[BT_RENDEZVOUS_URL_BYTES + 1];
    bt_rendezvous_t place = {0};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        assert_true(bt_rendezvous_is_url(good[i]));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_false(bt_rendezvous_is_url(bad[i]));
        assert_int_equal(bt_rendezvous_publish("/tmp", bad[i], &place),
                         BT_ERR_INVALID_PARAM);
    }
    memset(longest, 'a', sizeof(longest));
    memcpy(longest, "ipc:///", 7);
    longest[BT_RENDEZVOUS_URL_BYTES] = '\0';
    assert_false(bt_rendezvous_is_url(longest));
    longest[BT_RENDEZVOUS_URL_BYTES - 1] = '\0';
    assert_true(bt_rendezvous_is_url(longest));
}

/* Whoever else writes into the directory. */
static void foreign_files_in_the_join_directory_are_ignored(void **state)
{
    char path[128];
    char name[32];

    (void)state;
    make_dir();
    put("good.router", "tcp://h:1\n", 10);
    put("other", "tcp://h:2\n", 10);
    put(".hidden.router", "tcp://h:3\n", 10);
    put("empty.router", "", 0);
    put("cut.router", "tcp://h:4", 9);
    put("zero.router", "tcp://h\0:5\n", 11);
    put("two.router", "tcp://h:6\ntcp://h:7\n", 20);
    snprintf(path, sizeof(path), "%s/pipe.router", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/link.router", dir);
    assert_int_equal(symlink("good.router", path), 0);
    snprintf(path, sizeof(path), "%s/dir.router", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bt_rendezvous_scan(dir, &list), BT_OK);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.urls[0], "tcp://h:1");
    assert_int_equal(list.n_passed, 7);
    for (int i = 0; i < BT_RENDEZVOUS_MAX; i++) {
        snprintf(name, sizeof(name), "%d.router", i);
        put(name, "tcp://h:9\n", 10);
    }
    assert_int_equal(bt_rendezvous_scan(dir, &list), BT_OK);
    assert_int_equal(list.n, BT_RENDEZVOUS_MAX);
    assert_int_equal(list.n_passed, 8);
    snprintf(path, sizeof(path), "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

static void await_list(bt_rendezvous_watch_t *watch, uint32_t n)
{
    const uint64_t end_ms = bt_now_ms() + DEADLINE_MS;

    do {
        (void)bt_rendezvous_watch_take(watch, &list);
        assert_true(bt_now_ms() < end_ms);
        (void)poll(NULL, 0, 5);
    } while (list.n != n);
}

static void join_directory_watch_reports_changes(void **state)
{
    bt_rendezvous_watch_t *watch = NULL;

    (void)state;
    make_dir();
    list.n = UINT32_MAX;
    put("a.router", "tcp://h:1\n", 10);
    assert_int_equal(bt_rendezvous_watch_open(dir, &watch), BT_OK);
    await_list(watch, 1);
    assert_false(bt_rendezvous_watch_take(watch, &list));
    put("b.router", "tcp://h:2\n", 10);
    await_list(watch, 2);
    take_away("a.router");
    await_list(watch, 1);
    assert_string_equal(list.urls[0], "tcp://h:2");
    bt_rendezvous_watch_close(watch);
    bt_rendezvous_watch_close(NULL);
    take_away("b.router");
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(router_is_listed_from_publish_to_withdraw),
        BT_TEST(unreachable_router_addresses_are_refused),
        BT_TEST(foreign_files_in_the_join_directory_are_ignored),
        BT_TEST(join_directory_watch_reports_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
