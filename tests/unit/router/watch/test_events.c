/* SPDX-License-Identifier: Apache-2.0 */
/* Events with ids: which of them a reader gets who comes back. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "router/watch/events.h"

static bt_events_t events;

static void add(uint32_t n)
{
    bt_event_t event = {.kind = BT_EVENT_WORKER_LOST, .unix_ms = 5};

    for (uint32_t i = 0; i < n; i++) {
        snprintf(event.text, sizeof(event.text), "event %u", i);
        bt_events_add(&events, &event);
    }
}

static int begin(void **state)
{
    (void)state;
    events = (bt_events_t){.life = 0xbeef};
    return 0;
}

static void reader_continues_after_the_id_it_saw(void **state)
{
    char id[BT_EVENT_ID_BYTES];

    (void)state;
    add(10);
    bt_events_print_id(&events, 7, id);
    assert_string_equal(id, "0000beef-7");
    assert_int_equal(bt_events_after(&events, id), 8);
    assert_int_equal(bt_events_after(&events, "0000beef-10"), 11); /* none */
    assert_int_equal(bt_events_after(&events, "0000beef-0"), 1);
}

static void invalid_or_foreign_id_starts_at_the_oldest(void **state)
{
    static const char *const wrong[] = {"",
                                        "0000beef",
                                        "0000beef-",
                                        "0000beef-x",
                                        "0000beef-+",
                                        "0000dead-7",
                                        "0000beef-11",
                                        "0000beef--1",
                                        "7",
                                        "0000beef-7 ",
                                        "0000beef-99999999999999999999999999"};

    (void)state;
    add(10);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(bt_events_after(&events, wrong[i]), 1);
    }
}

static void oldest_events_are_overwritten(void **state)
{
    (void)state;
    assert_int_equal(bt_events_oldest(&events), 1); /* and there is none */
    add(BT_EVENTS_KEPT);
    assert_int_equal(bt_events_oldest(&events), 1);
    add(2);
    assert_int_equal(bt_events_oldest(&events), 3);
    assert_int_equal(bt_events_at(&events, 3)->n, 3);
    assert_string_equal(bt_events_at(&events, 258)->text, "event 1");
    assert_int_equal(bt_events_after(&events, "0000beef-1"), 3);
}

static void event_is_written_with_nulls_for_absent_parts(void **state)
{
    bt_event_t event = {.kind = BT_EVENT_REQUEST_RERUN,
                        .unix_ms = 17,
                        .request = 12,
                        .worker = "w\"1",
                        .text = "why"};
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_json_init(&json, &out);
    bt_events_add(&events, &event);
    bt_events_write_one(&events, bt_events_at(&events, 1), &json);
    assert_string_equal(
        out.data, "{\"id\":\"0000beef-1\",\"unix_ms\":17,"
                  "\"kind\":\"request_rerun\",\"model\":null,"
                  "\"worker\":\"w\\\"1\",\"request\":\"12\",\"text\":\"why\"}");
    bt_strbuf_fini(&out);
}

static void every_kind_has_its_own_name(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < BT_EVENT_N_KINDS; i++) {
        assert_non_null(bt_event_kind_name((bt_event_kind_t)i));
        for (uint32_t k = 0; k < i; k++) {
            assert_string_not_equal(bt_event_kind_name((bt_event_kind_t)i),
                                    bt_event_kind_name((bt_event_kind_t)k));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup(f, begin)
        TEST(reader_continues_after_the_id_it_saw),
        TEST(invalid_or_foreign_id_starts_at_the_oldest),
        TEST(oldest_events_are_overwritten),
        TEST(event_is_written_with_nulls_for_absent_parts),
        TEST(every_kind_has_its_own_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
