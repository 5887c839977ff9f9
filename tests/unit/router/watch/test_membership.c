/* SPDX-License-Identifier: Apache-2.0 */
/* Rejected and missing workers. */
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

/* Members of GET /v2/cluster. */
static const char *written(uint64_t now_ms)
{
    bt_json_t json;

    bt_strbuf_reset(&out);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_members_write(&members, now_ms, &json);
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

static void empty_membership_has_no_entries(void **state)
{
    (void)state;
    assert_string_equal(written(NOW_MS),
                        "{\"launcher\":null,\"processes\":[],\"refused\":[]}");
}

static void rejected_worker_is_one_entry_until_it_joins(void **state)
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
        "{\"launcher\":null,\"processes\":[],\"refused\":[{\"name\":\"decode-0\",\"address\":"
        "\"tcp://10.0.0.3:4000\",\"why\":\"32 tokens per block\",\"proven\":"
        "true,\"times\":2,\"first_ms\":1700000000000,\"last_ms\":"
        "1700000002000}]}");
    bt_members_join(&members, "decode-00");
    assert_int_equal(count("\"why\""), 1);
    bt_members_join(&members, "decode-0");
    assert_int_equal(count("\"why\""), 0);
}

static void rejection_is_dropped_after_its_time(void **state)
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

static void latest_rejection_is_first(void **state)
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
static void peers_without_the_key_take_no_slot_of_workers_with_it(void **state)
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

static void long_text_is_cut_and_stays_one_entry(void **state)
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

static void worker_is_expected_unless_a_command_stopped_it(void **state)
{
    static bt_admin_model_t models[] = {{.name = "m", .loaded = true}};
    static bt_admin_process_t processes[] = {
        {.name = "router", .program = BT_ADMIN_PROGRAM_ROUTER},
        {.name = "spare-0", .program = BT_ADMIN_PROGRAM_STANDBY},
        {.name = "decode-2",
         .program = BT_ADMIN_PROGRAM_DECODE,
         .state = BT_ADMIN_PROCESS_STARTING},
        {.name = "decode-3",
         .program = BT_ADMIN_PROGRAM_DECODE,
         .state = BT_ADMIN_PROCESS_STOPPED},
        {.name = "prefill-4",
         .program = BT_ADMIN_PROGRAM_PREFILL,
         .state = BT_ADMIN_PROCESS_STOPPED,
         .why = "ended with exit status 78: no memory"},
    };
    static const bool expected[] = {false, false, true, false, true};
    const bt_admin_document_t launcher = {.has_launcher = true,
                                          .launcher = {.pid = 7},
                                          .models = models,
                                          .n_models = 1,
                                          .processes = processes,
                                          .n_processes = 5};

    (void)state;
    assert_false(bt_members_are_known(&members));
    assert_null(bt_members_process(&members, "decode-2"));
    assert_null(bt_members_model(&members, "m"));
    members.launcher = &launcher;
    assert_true(bt_members_are_known(&members));
    for (size_t i = 0; i < 5; i++) {
        assert_ptr_equal(bt_members_process(&members, processes[i].name),
                         &processes[i]);
        assert_int_equal(bt_members_expects(&processes[i]), expected[i]);
    }
    assert_null(bt_members_process(&members, "decode-1"));
    assert_ptr_equal(bt_members_model(&members, "m"), &models[0]);
    assert_null(bt_members_model(&members, "n"));
    assert_int_equal(count("{\"launcher\":{\"pid\":7,"), 1);
    assert_int_equal(count("\"processes\":[{\"name\":\"router\","), 1);
    members.launcher = NULL;
    assert_int_equal(count("decode-2"), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(empty_membership_has_no_entries),
        TEST(rejected_worker_is_one_entry_until_it_joins),
        TEST(rejection_is_dropped_after_its_time),
        TEST(latest_rejection_is_first),
        TEST(peers_without_the_key_take_no_slot_of_workers_with_it),
        TEST(long_text_is_cut_and_stays_one_entry),
        TEST(worker_is_expected_unless_a_command_stopped_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
