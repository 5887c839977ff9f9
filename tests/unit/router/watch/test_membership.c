/* SPDX-License-Identifier: Apache-2.0 */
/* Who is not among a router's workers, and why. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "router/watch/membership.h"

#define NOW_MS UINT64_C(1700000000000)

static bt_members_t members;
static bt_strbuf_t out;

static void refuse(const char *name, const char *why, bool proven,
                   uint64_t now_ms)
{
    const bt_rejection_t who = {
        .name = name, .address = "", .why = why, .proven = proven};

    bt_members_reject(&members, &who, now_ms);
}

static bool is_decode_1(void *ctx, const char *name)
{
    (void)ctx;
    return strcmp(name, "decode-1") == 0;
}

/* What GET /cluster has of it. */
static const char *written(uint64_t now_ms)
{
    bt_json_t json;

    bt_strbuf_reset(&out);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_members_write(&members, now_ms, is_decode_1, NULL, &json);
    bt_json_end_object(&json);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    return out.data;
}

static uint32_t count(const char *text)
{
    uint32_t n = 0;

    for (const char *at = written(NOW_MS + 100); *at != '\0'; at++) {
        n += (strncmp(at, text, strlen(text)) == 0) ? 1 : 0;
    }
    return n;
}

static int begin(void **state)
{
    members = (bt_members_t){0};
    bt_strbuf_init(&out, 1u << 20);
    return bt_test_setup(state);
}

static int end(void **state)
{
    bt_strbuf_fini(&out);
    return bt_test_teardown(state);
}

static void nobody_is_missed_at_first(void **state)
{
    (void)state;
    assert_string_equal(written(NOW_MS), "{\"missing\":[],\"refused\":[]}");
}

static void a_refused_worker_is_one_line_until_it_joins(void **state)
{
    bt_rejection_t who = {.name = "decode-0",
                          .address = "tcp://10.0.0.3:4000",
                          .why = "another model",
                          .proven = true};

    (void)state;
    bt_members_reject(&members, &who, NOW_MS);
    who.address = ""; /* as it was */
    who.why = "32 tokens per block";
    bt_members_reject(&members, &who, NOW_MS + 2000);
    assert_string_equal(
        written(NOW_MS + 2000),
        "{\"missing\":[],\"refused\":[{\"name\":\"decode-0\",\"address\":"
        "\"tcp://10.0.0.3:4000\",\"why\":\"32 tokens per block\",\"proven\":"
        "true,\"times\":2,\"first_ms\":1700000000000,\"last_ms\":"
        "1700000002000}]}");
    bt_members_join(&members, "decode-00");
    assert_int_equal(count("\"why\""), 1);
    bt_members_join(&members, "decode-0");
    assert_int_equal(count("\"why\""), 0);
}

static void who_is_not_heard_any_more_is_forgotten(void **state)
{
    (void)state;
    refuse("a", "x", true, NOW_MS);
    refuse("a", "x", true, NOW_MS + 1);
    assert_non_null(strstr(written(NOW_MS + 1 + BT_MEMBERS_KEEP_MS), "\"a\""));
    assert_null(strstr(written(NOW_MS + 2 + BT_MEMBERS_KEEP_MS), "\"a\""));
    /* A clock that was set back makes nobody older. */
    assert_non_null(strstr(written(NOW_MS - 5000), "\"a\""));
    refuse("a", "x", true, NOW_MS - 5000);
    assert_non_null(strstr(written(NOW_MS), "\"times\":3"));
    /* It begins anew. */
    refuse("a", "x", true, NOW_MS + BT_MEMBERS_KEEP_MS);
    assert_non_null(
        strstr(written(NOW_MS + BT_MEMBERS_KEEP_MS), "\"times\":1"));
}

static void the_last_one_is_first(void **state)
{
    const char *text;

    (void)state;
    refuse("a", "x", true, NOW_MS + 1);
    refuse("b", "x", true, NOW_MS + 3);
    refuse("c", "x", true, NOW_MS + 2);
    text = written(NOW_MS + 3);
    assert_true(strstr(text, "\"b\"") < strstr(text, "\"c\""));
    assert_true(strstr(text, "\"c\"") < strstr(text, "\"a\""));
}

/* Under however many names they come. */
static void strangers_take_no_place_of_workers_with_the_key(void **state)
{
    char name[32];

    (void)state;
    refuse("decode-0", "another model", true, NOW_MS);
    refuse("decode-0", "another key", false, NOW_MS); /* so it says */
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "stranger-%u", i);
        refuse(name, "another key", false, NOW_MS + 1 + i / 100);
    }
    assert_int_equal(count("\"proven\":false"), BT_MEMBERS_UNPROVEN);
    assert_int_equal(count("another model"), 1);
    /* Where those with the key fill all of it there is no room for others. */
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "worker-%u", i);
        refuse(name, "another model", true, NOW_MS + 20 + i / 10);
    }
    refuse("stranger", "another key", false, NOW_MS + 50);
    assert_int_equal(count("\"proven\":false"), 0);
    assert_int_equal(count("\"proven\":true"), BT_MEMBERS_REJECTIONS);
    assert_int_equal(count("\"worker-99\""), 1);
}

static void what_is_too_long_is_cut_and_stays_one(void **state)
{
    char name[4 * BT_WIRE_MAX_NAME];
    char why[4 * BT_MEMBERS_WHY_BYTES];

    (void)state;
    memset(name, 'n', sizeof(name) - 1);
    memset(why, '\n', sizeof(why) - 1);
    name[sizeof(name) - 1] = why[sizeof(why) - 1] = '\0';
    refuse(name, why, false, NOW_MS);
    refuse(name, why, false, NOW_MS);
    assert_int_equal(count("\"times\":2"), 1);
}

static void an_expected_worker_that_is_not_here_is_missing(void **state)
{
    static bt_admin_process_t processes[] = {
        {.name = "router", .program = BT_ADMIN_PROGRAM_ROUTER},
        {.name = "spare-0", .program = BT_ADMIN_PROGRAM_STANDBY},
        {.name = "decode-1",
         .program = BT_ADMIN_PROGRAM_DECODE,
         .state = BT_ADMIN_PROCESS_READY},
        {.name = "decode-2",
         .program = BT_ADMIN_PROGRAM_DECODE,
         .model = "m",
         .state = BT_ADMIN_PROCESS_STARTING,
         .since_ms = 7},
        {.name = "decode-3",
         .program = BT_ADMIN_PROGRAM_DECODE,
         .model = "m",
         .state = BT_ADMIN_PROCESS_STOPPED},
        {.name = "prefill-4",
         .program = BT_ADMIN_PROGRAM_PREFILL,
         .role = BT_ADMIN_ROLE_BOTH,
         .model = "m",
         .state = BT_ADMIN_PROCESS_STOPPED,
         .why = "ended with exit status 78: no memory"},
    };

    (void)state;
    bt_members_expect(&members, processes,
                      sizeof(processes) / sizeof(processes[0]));
    assert_string_equal(
        written(NOW_MS),
        "{\"missing\":[{\"name\":\"decode-2\",\"model\":\"m\",\"role\":"
        "\"decode\",\"state\":\"starting\",\"since_ms\":7,\"why\":null},"
        "{\"name\":\"prefill-4\",\"model\":\"m\",\"role\":\"both\",\"state\":"
        "\"stopped\",\"since_ms\":0,\"why\":\"ended with exit status 78: no "
        "memory\"}],\"refused\":[]}");
    bt_members_expect(&members, NULL, 0);
    assert_int_equal(count("decode-2"), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nobody_is_missed_at_first),
        TEST(a_refused_worker_is_one_line_until_it_joins),
        TEST(who_is_not_heard_any_more_is_forgotten),
        TEST(the_last_one_is_first),
        TEST(strangers_take_no_place_of_workers_with_the_key),
        TEST(what_is_too_long_is_cut_and_stays_one),
        TEST(an_expected_worker_that_is_not_here_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
