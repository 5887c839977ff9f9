/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger's record of a generation, once, however it ended. The clock moves
 * 1 ms with each message, so every time is worked out by hand. */
#include "tests/unit/router/core/core_fixture.h"

static void transfer(world_t *w, bt_instance_t *from, bt_req_key_t key,
                     uint64_t base_us)
{
    const bt_msg_t msg = {
        .type = BT_MSG_JOINED,
        .u.joined = {.key = key,
                     .grant_wait_us = base_us,
                     .transfer_us = base_us + 1,
                     .transfer_bytes = base_us + 2,
                     .n_descriptors = (uint32_t)base_us + 3,
                     .queue_us = base_us + 4,
                     .handover_us = base_us + 5},
    };

    say(w, from, &msg);
}

static void ended_with(world_t *w, bt_instance_t *from, bt_req_key_t key,
                       uint64_t decode_us, uint64_t join_us, uint64_t tail_us)
{
    const bt_msg_t msg = {
        .type = BT_MSG_ENDED,
        .u.ended = {.key = key,
                    .decode_us = decode_us,
                    .n_iterations = (decode_us > 0) ? 1 : 0,
                    .join_wait_us = join_us,
                    .transfer_tail_us = tail_us},
    };

    say(w, from, &msg);
}

static void record_waits_for_the_last_messages_of_both_workers(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 20, NULL);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE); /* at 1 ms */
    prefilled(w, p, key);                      /* queued 100 µs */
    transfer(w, d, key, 1000);
    ended_with(w, p, key, 0, 0, 77);
    w->now += 5 * MS;
    tokens(w, d, key, 1, "b", BT_FINISH_NONE); /* at 10 ms: a gap of 9 */
    tokens(w, d, key, 2, "c", BT_FINISH_STOP); /* at 11 ms */
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->n_records, 0);
    assert_int_equal(w->ledger.worker_decode_us, 0); /* not said yet */
    ended_with(w, d, key, 500, 60, 0);
    assert_all_back(w);

    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->n_records, 1);
    assert_int_equal(w->record.finish, BT_FINISH_STOP);
    assert_int_equal(w->record.http_status, 0);
    assert_int_equal(w->record.max_new, 20);
    assert_int_equal(w->record.arrived_us, 1000 * MS);
    assert_string_equal(w->trouble, "");
    assert_int_equal(w->record.n_attempts, 1);
    assert_string_equal(w->attempts[0].prefill, "prefill-0");
    assert_string_equal(w->attempts[0].decode, "decode-0");
    assert_int_equal(w->attempts[0].at_us, 1000 * MS);
    assert_int_equal(w->final.n_transfers, 1);
    assert_int_equal(w->final.grant_wait_us, 1000);
    assert_int_equal(w->final.transfer_us, 1001);
    assert_int_equal(w->final.transfer_bytes, 1002);
    assert_int_equal(w->final.transfer_pieces, 1003);
    assert_int_equal(w->final.decode_queue_us, 1004);
    assert_int_equal(w->final.kv_verify_us, 1005);
    assert_int_equal(w->final.transfer_tail_us, 77);
    assert_int_equal(w->final.join_wait_us, 60);
    assert_int_equal(w->final.worker_decode_us, 500);
    assert_int_equal(w->final.max_gap_us, 9 * MS);
    assert_int_equal(w->final.total_us, 30 + 11 * MS);

    assert_int_equal(w->n_times[BT_TIME_FIRST_TOKEN], 1);
    assert_int_equal(w->times_us[BT_TIME_FIRST_TOKEN], 30 + 1 * MS);
    assert_int_equal(w->n_times[BT_TIME_NEXT_TOKEN], 2);
    assert_int_equal(w->times_us[BT_TIME_NEXT_TOKEN], 10 * MS);
    assert_int_equal(w->n_times[BT_TIME_QUEUE], 1);
    assert_int_equal(w->times_us[BT_TIME_QUEUE], 100);
    assert_int_equal(w->n_times[BT_TIME_JOIN_WAIT], 1);
    assert_int_equal(w->times_us[BT_TIME_JOIN_WAIT], 60);
    assert_int_equal(w->n_times[BT_TIME_TAIL], 1);
    assert_int_equal(w->times_us[BT_TIME_TAIL], 77);
    assert_int_equal(w->n_times[BT_TIME_REQUEST], 1);
    assert_int_equal(w->times_us[BT_TIME_REQUEST], 30 + 11 * MS);
    bt_core_destroy(w->core);
}

static void transfer_after_the_cancel_is_recorded(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    (void)begin(w, &p, &d, &c, 20, NULL);
    key = drive(w, p, d, 2); /* 2 ms: token #1 */
    bt_core_cancel(w->core, c.gen, w->now);
    transfer(w, d, key, 40); /* it crossed the CANCEL */
    ended_with(w, p, key, 0, 0, 0);
    assert_int_equal(w->n_records, 0);
    ended_with(w, d, key, 0, 0, 0);
    assert_all_back(w);
    assert_int_equal(w->n_records, 1);
    assert_int_equal(w->record.finish, BT_FINISH_CANCELED);
    assert_int_equal(w->recorded_transfer_us, 41);
    assert_int_equal(w->transfer_us, 41); /* what the counter got */
    assert_int_equal(w->final.total_us, 30 + 2 * MS);
    assert_int_equal(w->n_times[BT_TIME_REQUEST], 0);
    assert_int_equal(w->n_times[BT_TIME_TAIL], 0);
    assert_int_equal(w->n_times[BT_TIME_JOIN_WAIT], 0); /* it never ran */
    bt_core_destroy(w->core);
}

static void client_leaving_in_any_phase_gives_one_record(void **state)
{
    world_t *w = &world;

    (void)state;
    for (unsigned phase = 0; phase <= 3; phase++) {
        bt_instance_t *p, *d;
        bt_req_key_t key;
        client_t c;

        key = begin_in(w, &p, &d, &c, phase);
        bt_core_cancel(w->core, c.gen, w->now);
        if (phase > 0) {
            ended(w, p, key);
            ended(w, d, key);
        }
        assert_all_back(w);
        assert_int_equal(w->n_records, 1);
        assert_int_equal(w->record.finish, BT_FINISH_CANCELED);
        assert_int_equal(w->record.n_attempts, (phase > 0) ? 1 : 0);
        assert_int_equal(w->recorded_transfer_us, w->transfer_us);
        bt_core_destroy(w->core);
    }
}

static void refused_request_is_recorded_with_its_error(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 20, NULL);
    failed(w, d, key, BT_ERR_NO_BLOCKS, "too many");
    assert_int_equal(c.http_status, 400);
    ended(w, d, key);
    ended(w, p, key);
    assert_all_back(w);
    assert_int_equal(w->n_records, 1);
    assert_int_equal(w->record.finish, BT_FINISH_ERROR);
    assert_int_equal(w->record.http_status, 400);
    assert_string_equal(w->trouble, c.message);
    assert_string_equal(w->trouble,
                        "decode worker decode-0 failed in phase prefill: too "
                        "many");
    assert_int_equal(w->n_times[BT_TIME_FIRST_TOKEN], 0);
    bt_core_destroy(w->core);
}

static void retry_gives_one_record_with_both_attempts(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d0, *d1;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d0, &c, 3, NULL);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    prefilled(w, p, key);
    transfer(w, d0, key, 10);
    ended_with(w, p, key, 0, 0, 5);
    d1 = join(w, "decode-1", BT_ROLE_DECODE); /* now 4 ms */
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d0, "killed", w->now);
    key = key_at(w, d1);
    assert_int_equal(key.attempt, 2);
    tokens(w, p, key, 1, "b", BT_FINISH_NONE);
    prefilled(w, p, key); /* not on the way to token #1 */
    transfer(w, d1, key, 100);
    ended_with(w, p, key, 0, 0, 6);
    tokens(w, d1, key, 2, "c", BT_FINISH_LENGTH);
    ended_with(w, d1, key, 300, 7, 0);
    assert_all_back(w);
    assert_string_equal(c.text, "abc");
    assert_int_equal(w->n_records, 1);
    assert_int_equal(w->record.finish, BT_FINISH_LENGTH);
    assert_int_equal(w->record.n_attempts, 2);
    assert_string_equal(w->attempts[0].decode, "decode-0");
    assert_string_equal(w->attempts[1].decode, "decode-1");
    assert_int_equal(w->attempts[1].at_us, 1004 * MS);
    assert_string_equal(w->trouble, "decode worker decode-0 was lost in phase "
                                    "decode (killed)");
    assert_int_equal(w->final.n_transfers, 2);
    assert_int_equal(w->recorded_transfer_us, 11 + 101);
    assert_int_equal(w->transfer_us, 11 + 101);
    assert_int_equal(w->final.transfer_tail_us, 5 + 6);
    assert_int_equal(w->n_times[BT_TIME_QUEUE], 1);
    bt_core_destroy(w->core);
}

static void shutdown_records_requests_of_silent_workers(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c, runs;

    (void)state;
    (void)begin(w, &p, &d, &c, 20, NULL);
    (void)drive(w, p, d, 3);
    bt_core_cancel(w->core, c.gen, w->now);
    submit(w, &runs, "Two", 20, NULL);
    assert_int_equal(w->n_records, 0);
    bt_core_record_rest(w->core);
    assert_int_equal(w->n_records, 1); /* the other's client waits */
    assert_int_equal(w->n_ledgers, 0);
    assert_int_equal(w->final.total_us, 30 + 4 * MS);
    assert_int_equal(w->final.handover_us, 2 * MS);
    bt_core_record_rest(w->core);
    assert_int_equal(w->n_records, 1);
    bt_core_destroy(w->core);
}

static void local_worker_records_no_hand_over(void **state)
{
    world_t *w = &world;
    bt_instance_t *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    d = join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    submit(w, &c, "The", 2, NULL);
    key = key_at(w, d);
    tokens(w, d, key, 0, "ab", BT_FINISH_LENGTH);
    ended_with(w, d, key, 500, 60, 0);
    assert_all_back(w);
    assert_int_equal(w->n_records, 1);
    assert_string_equal(w->attempts[0].prefill, "");
    assert_string_equal(w->attempts[0].decode, "decode-0");
    assert_int_equal(w->final.worker_decode_us, 500);
    assert_int_equal(w->final.join_wait_us, 0);
    assert_int_equal(w->final.n_transfers, 0);
    assert_int_equal(w->n_times[BT_TIME_JOIN_WAIT], 0);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(record_waits_for_the_last_messages_of_both_workers),
        BT_TEST(transfer_after_the_cancel_is_recorded),
        BT_TEST(client_leaving_in_any_phase_gives_one_record),
        BT_TEST(refused_request_is_recorded_with_its_error),
        BT_TEST(retry_gives_one_record_with_both_attempts),
        BT_TEST(shutdown_records_requests_of_silent_workers),
        BT_TEST(local_worker_records_no_hand_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
