/* SPDX-License-Identifier: Apache-2.0 */
/* Which names a client may use. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/status.h"
#include "router/net/hosts.h"

static bt_hosts_t hosts_of(const char *allowed)
{
    bt_hosts_t hosts = {.allowed = allowed};

    bt_hosts_add_own(&hosts, "node17");
    bt_hosts_add_own(&hosts, "baton.cluster.example");
    return hosts;
}

static bool passes(const bt_hosts_t *hosts, const char *host,
                   const char *origin)
{
    const char *why = bt_hosts_check(hosts, host);

    if ((why == NULL) && (origin != NULL)) {
        why = bt_hosts_check_origin(hosts, origin, host);
    }
    /* The error names the option that helps. */
    assert_true((why == NULL) || (strstr(why, "--allowed-hosts") != NULL));
    return why == NULL;
}

static void own_names_are_accepted(void **state)
{
    static const char *const good[] = {
        "127.0.0.1",    "127.0.0.1:8000",  "10.1.2.3:8000",
        "[::1]:8000",   "[2001:db8::1]",   "localhost",
        "LocalHost:80", "localhost.:8000", "x.localhost:8000",
        "node17:8000",  "NODE17",          "baton.cluster.example.:8000",
    };
    const bt_hosts_t hosts = hosts_of("");

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        assert_true(passes(&hosts, good[i], NULL));
    }
    assert_true(passes(&hosts, NULL, NULL)); /* HTTP/1.0 */
}

static void other_names_are_refused(void **state)
{
    static const char *const bad[] = {
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "notlocalhost",
        ".localhost",
        "127.0.0.1.evil.example",
        "node17.evil.example",
        "127.0.0.1@evil",
        "[evil]",
        "[::1",
        "localhost:80x",
        "",
        ":8000",
        "localhost localhost",
        "0x7f000001",
        "cluster.example",
        "::1",
    };
    const bt_hosts_t hosts = hosts_of("");

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        if (passes(&hosts, bad[i], NULL)) {
            fail_msg("\"%s\" passed", bad[i]);
        }
    }
}

static void origins_of_other_pages_are_refused(void **state)
{
    const bt_hosts_t hosts = hosts_of("");

    (void)state;
    assert_true(passes(&hosts, "localhost:8000", "http://localhost:3000"));
    assert_true(passes(&hosts, "127.0.0.1:8000", "http://127.0.0.1:8000"));
    assert_true(passes(&hosts, "localhost", "https://[::1]:3000"));
    assert_true(passes(&hosts, "localhost", "http://127.8.8.8"));
    assert_true(passes(&hosts, "10.0.0.1:8000", "http://10.0.0.1:8000"));
    assert_true(passes(&hosts, "10.0.0.1", "http://node17"));
    /* An address of anybody's. */
    assert_false(passes(&hosts, "127.0.0.1:8000", "http://203.0.113.5"));
    assert_false(passes(&hosts, "127.0.0.1:8000", "http://[2001:db8::5]"));
    assert_false(passes(&hosts, "127.0.0.1", "https://evil.example"));
    assert_false(passes(&hosts, "127.0.0.1", "null"));
    assert_false(passes(&hosts, "127.0.0.1", ""));
    assert_false(passes(&hosts, "127.0.0.1", "http://"));
    assert_false(passes(&hosts, "127.0.0.1",
                        "http://localhost\r\nOrigin: https://evil.example"));
    assert_false(
        passes(&hosts, "127.0.0.1", "http://localhost https://evil.example"));
    assert_false(passes(&hosts, "127.0.0.1", "moz-extension://abc"));
    assert_false(passes(&hosts, NULL, "https://evil.example"));
}

static void allowed_hosts_option_adds_names(void **state)
{
    const bt_hosts_t hosts =
        hosts_of("api.example.com, *.corp.example,203.0.113.5,abc");
    const bt_hosts_t any = hosts_of("x,*");

    (void)state;
    assert_true(passes(&hosts, "API.example.com:443", NULL));
    assert_true(passes(&hosts, "api.example.com", "https://api.example.com"));
    assert_true(passes(&hosts, "a.corp.example", NULL));
    assert_true(passes(&hosts, "a.b.corp.example", "https://c.corp.example"));
    assert_true(passes(&hosts, "127.0.0.1", "http://203.0.113.5"));
    assert_true(passes(&hosts, "127.0.0.1", "moz-extension://abc"));
    assert_false(passes(&hosts, "corp.example", NULL));
    assert_false(passes(&hosts, "evilcorp.example", NULL));
    assert_false(passes(&hosts, "xapi.example.com", NULL));
    assert_false(passes(&hosts, "api.example", NULL));
    assert_false(passes(&hosts, "127.0.0.1", "http://203.0.113.6"));
    assert_true(passes(&any, "evil.example", "null"));
}

static void unmatchable_entries_are_invalid(void **state)
{
    static const char *const bad[] = {"http://a", "a,b:80", "a*",  "*.",
                                      "[::1]",    "*.*",    "*a,b"};
    char why[BT_HOSTS_NAME_BYTES];

    (void)state;
    assert_true(bt_hosts_are_valid("", why));
    assert_true(bt_hosts_are_valid("*", why));
    assert_true(bt_hosts_are_valid("a, *.b.c ,10.0.0.1,::1,", why));
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_false(bt_hosts_are_valid(bad[i], why));
    }
    assert_false(bt_hosts_are_valid("a,b:80", why));
    assert_string_equal(why, "b:80");
}

static void machine_name_is_accepted(void **state)
{
    char name[256] = "";
    bt_hosts_t hosts;

    (void)state;
    assert_int_equal(gethostname(name, sizeof(name) - 1), 0);
    bt_hosts_init(&hosts, "");
    assert_true(passes(&hosts, name, NULL));
    name[strcspn(name, ".")] = '\0';
    assert_true(passes(&hosts, name, NULL));
    assert_false(passes(&hosts, "node17", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(own_names_are_accepted),
        BT_TEST(other_names_are_refused),
        BT_TEST(origins_of_other_pages_are_refused),
        BT_TEST(allowed_hosts_option_adds_names),
        BT_TEST(unmatchable_entries_are_invalid),
        BT_TEST(machine_name_is_accepted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
