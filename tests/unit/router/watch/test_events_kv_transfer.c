/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-overs for who looks on, and how many he was too late for. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/text.h"
#include "router/watch/events.h"

static bt_kv_transfer_log_t handovers;
static bt_strbuf_t out;

static void add(bt_handover_phase_t phase, uint64_t request)
{
    const bt_handover_t one = {.phase = phase,
                               .unix_ms = 9,
                               .request = request,
                               .model = "m",
                               .from = "p",
                               .to = "d",
                               .bytes = 4096,
                               .length_us = 1500};

    bt_kv_transfer_log_add(&handovers, &one);
}

static const char *write_after(uint64_t n_seen)
{
    bt_json_t json;

    bt_strbuf_reset(&out);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_kv_transfer_log_write(&handovers, n_seen, &json);
    bt_json_end_object(&json);
    return out.data;
}

static void bytes_and_length_are_of_an_ended_transfer(void **state)
{
    (void)state;
    add(BT_HANDOVER_BEGUN, 1);
    add(BT_HANDOVER_ENDED, 1);
    add(BT_HANDOVER_GIVEN_UP, 2);
    assert_string_equal(
        write_after(0),
        "{\"left_out\":0,\"list\":["
        "{\"unix_ms\":9,\"phase\":\"begun\",\"request\":\"1\",\"model\":\"m\","
        "\"from\":\"p\",\"to\":\"d\",\"bytes\":null,\"length_ms\":null},"
        "{\"unix_ms\":9,\"phase\":\"ended\",\"request\":\"1\",\"model\":\"m\","
        "\"from\":\"p\",\"to\":\"d\",\"bytes\":4096,\"length_ms\":1.5},"
        "{\"unix_ms\":9,\"phase\":\"failed\",\"request\":\"2\",\"model\":\"m\","
        "\"from\":\"p\",\"to\":\"d\",\"bytes\":null,\"length_ms\":null}]}");
    assert_string_equal(write_after(3), "{\"left_out\":0,\"list\":[]}");
}

static void overwritten_transfers_are_counted(void **state)
{
    (void)state;
    handovers = (bt_kv_transfer_log_t){0};
    for (uint64_t i = 0; i < BT_HANDOVERS_KEPT + 5; i++) {
        add(BT_HANDOVER_BEGUN, 100 + i);
    }
    assert_non_null(strstr(write_after(2),
                           "{\"left_out\":3,\"list\":[{\"unix_ms\":9,"
                           "\"phase\":\"begun\",\"request\":\"105\""));
    assert_non_null(strstr(write_after(68),
                           "{\"left_out\":0,\"list\":["
                           "{\"unix_ms\":9,\"phase\":\"begun\","
                           "\"request\":\"168\""));
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(bytes_and_length_are_of_an_ended_transfer),
        BT_TEST(overwritten_transfers_are_counted),
    };

    bt_strbuf_init(&out, 1u << 20);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
