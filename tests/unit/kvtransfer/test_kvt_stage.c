/* SPDX-License-Identifier: Apache-2.0 */
/* Pools in device memory that is staged: what holds beyond the contract, which
 * runs over such pools too (each_kind.h). Copies are those of fake_device.h:
 * they end late, in any order, or when a test lets them. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_core.h"
#include "kvtransfer/kvt_stage.h"
#include "tests/unit/kvtransfer/stage.h"

/* ---- the pipeline ---- */

static void staged_transfer_moves_every_byte_through_slots(void **state)
{
    static const uint32_t numbers[] = {
        PAIR_MEM_STAGED, PAIR_MEM_STAGED_SHM, PAIR_MEM_HOST_STAGED,
        PAIR_UCX_STAGED, PAIR_UCX_STAGED_SHM, PAIR_UCX_HOST_STAGED};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        const pair_kind_t *kind = &pair_kinds[numbers[i]];
        const uint64_t bytes = 6 * MIB + 12345;
        pair_t pair;
        track_t *t;

        open_with(&pair, numbers[i], 8 * MIB, 0);
        t = begin(&pair, 1, 777, bytes);
        finish(t, "token");
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 1);
        assert_int_equal(pair.sender->config.memory, kind->staged_sender
                                                         ? BT_KVT_MEMORY_STAGED
                                                         : BT_KVT_MEMORY_HOST);
        assert_int_equal(counters(pair.sender).bytes_staged,
                         kind->staged_sender ? bytes : 0);
        assert_int_equal(counters(pair.receiver).bytes_staged,
                         kind->staged_receiver ? bytes : 0);
        assert_int_equal(pair.sender_device.bytes_copied,
                         kind->staged_sender ? bytes : 0);
        assert_int_equal(pair.receiver_device.bytes_copied,
                         kind->staged_receiver ? bytes : 0);
        /* Each piece once: none is read back, none is copied twice. */
        assert_int_equal(pair.receiver_device.n_to_host, 0);
        assert_int_equal(pair.sender_device.n_to_device, 0);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

static void device_copies_overlap_with_sending(void **state)
{
    uint64_t sent = 0;
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_STAGED_SHM, 8 * MIB, 8);
    t = begin(&pair, 1, 0, 4 * MIB);
    while (sent < 2 * MIB) {
        (void)pair_pump(&pair);
        sent = counters(pair.sender).bytes_sent;
        if ((sent > 0) && (sent < 2 * MIB)) {
            assert_true(pair.sender_device.n_under_way > 0);
        }
    }
    assert_true(pair.sender_device.most_under_way >= 3);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    pair_close(&pair);
}

static void transfers_without_a_slot_wait_and_are_counted(void **state)
{
    static const uint32_t numbers[] = {PAIR_MEM_STAGED, PAIR_MEM_HOST_STAGED,
                                       PAIR_UCX_STAGED, PAIR_UCX_HOST_STAGED,
                                       PAIR_UCX_STAGED_SHM};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        const pair_kind_t *kind = &pair_kinds[numbers[i]];
        track_t *t[6];
        pair_t pair;

        open_with(&pair, numbers[i], 12 * MIB, 1);
        pair.receiver_device.max_questions = 20;
        for (uint32_t k = 0; k < 6; k++) {
            t[k] = begin(&pair, 1 + k, k * 2 * MIB, 2 * MIB - k);
            finish(t[k], "");
        }
        for (uint32_t k = 0; k < 6; k++) {
            PAIR_UNTIL(&pair, over(t[k]));
            assert_int_equal(t[k]->done, 1);
        }
        assert_true(pair.sender_device.most_under_way <= 1);
        assert_true(pair.receiver_device.most_under_way <= 1);
        if (kind->staged_sender) {
            assert_true(counters(pair.sender).stage_waits > 6);
        }
        if (kind->staged_receiver && !kind->staged_sender) {
            assert_true(counters(pair.receiver).stage_waits > 0);
        }
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

#define N_SMALL 256u

/** Pieces of 4 KiB, of which one segment of TCP holds many. */
static track_t *begin_small(pair_t *pair, uint64_t id)
{
    track_t *t = pair_region(pair, id, PAIR_SENDER, 0, 4096, 8192, N_SMALL);

    prep(pair, t);
    post(t, 0, t->bytes);
    finish(t, "");
    return t;
}

static void received_segment_is_held_until_slots_are_free(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_UCX_HOST_STAGED, 4 * MIB, 2);
    t = begin_small(&pair, 1);
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_int_equal(pair.receiver_device.n_to_device, N_SMALL);
    assert_int_equal(pair.receiver_device.most_under_way, 2);
    assert_true(counters(pair.receiver).stage_most_held > 3 * 4096);

    /* What is held is what UCX had read, not all that the sender has. */
    pair.reuses = true;
    pair.receiver_device.withheld = true;
    t = begin(&pair, 3, 0, 3 * MIB);
    finish(t, "");
    PAIR_UNTIL(&pair, pair.receiver_device.n_under_way == 2);
    rounds(&pair, ROUNDS);
    assert_true(counters(pair.receiver).stage_most_held < MIB);
    pair.receiver_device.withheld = false;
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);

    /* Held when its region closes: thrown away, and that is all. */
    pair.receiver_device.withheld = true;
    t = begin_small(&pair, 2);
    PAIR_UNTIL(&pair, pair.receiver_device.n_under_way == 2);
    close_region(t);
    rounds(&pair, ROUNDS);
    assert_int_equal(t->closed, 0);
    pair.receiver_device.withheld = false;
    PAIR_UNTIL(&pair, t->closed && (t->xfer == NULL));
    assert_int_equal(pair.receiver_device.n_to_device,
                     N_SMALL + 3 * MIB / SLOT + 2);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

static void failed_allocation_while_staging_ends_the_transfer(void **state)
{
    uint32_t n_short = 0;

    (void)state;
    for (int nth = 1; nth <= 24; nth++) {
        pair_t pair;
        track_t *t;

        open_with(&pair, PAIR_UCX_HOST_STAGED, 4 * MIB, 2);
        PAIR_UNTIL(&pair, bt_kvt_link_find(pair.sender, PAIR_RECEIVER)->state ==
                              BT_KVT_LINK_IS_OPEN);
        t = begin_small(&pair, 1);
        bt_alloc_fail_at(nth);
        PAIR_UNTIL(&pair, over(t));
        bt_alloc_fail_at(0);
        n_short += t->region_status == BT_ERR_NO_MEMORY;
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
    assert_true(n_short >= 2);
}

/* ---- who waits for whom ---- */

#define N_FLOWS 5

/* A region at one of two processes and the transfer of the other into it. */
typedef struct flow {
    bt_kvt_region_t *region;
    bt_kvt_xfer_t *xfer;
    int done, closed, xfer_done;
} flow_t;

static void flow_event(const bt_kvt_event_t *event)
{
    flow_t *f = event->user;

    assert_int_equal(event->status, BT_OK);
    switch (event->type) {
    case BT_KVT_REGION_DONE:
        f->done++;
        bt_kvt_region_close(event->region);
        break;
    case BT_KVT_REGION_CLOSED:
        f->closed++;
        break;
    case BT_KVT_XFER_DONE:
        f->xfer_done++;
        bt_kvt_release(event->xfer);
        break;
    case BT_KVT_PEER_UP:
        break;
    default:
        fail_msg("event %d", (int)event->type);
    }
}

static void flow_begin(flow_t *f, uint64_t id, bt_kvt_t *to,
                       bt_kvt_peer_t *peer, uint64_t sender, uint64_t first,
                       uint64_t bytes, const void *from)
{
    const bt_kvt_extent_t extent = {.offset = first, .bytes = bytes};
    uint8_t desc[BT_KVT_DESC_BYTES(1)];
    size_t n = 0;

    assert_int_equal(bt_kvt_region_open(to, id, 1, sender, &extent, 1, f, desc,
                                        sizeof(desc), &n, &f->region),
                     BT_OK);
    assert_int_equal(bt_kvt_prep(peer, desc, n, f, &f->xfer), BT_OK);
    assert_int_equal(bt_kvt_post(f->xfer, from, 0, bytes), BT_OK);
    assert_int_equal(bt_kvt_finish(f->xfer, NULL, 0), BT_OK);
}

/* Each has one slot a way and waits for the other to take what it sends. */
static void crossing_transfers_do_not_wait_for_each_other(uint32_t number)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    const uint64_t bytes = MIB + 77;
    static flow_t there[N_FLOWS], back[N_FLOWS];
    bt_kvt_peer_t *peer_back = NULL;
    bt_kvt_event_t event;
    uint32_t n_over = 0;
    uint64_t start_ms;
    size_t n = 0;
    pair_t pair;

    memset(there, 0, sizeof(there));
    memset(back, 0, sizeof(back));
    open_with(&pair, number, 16 * MIB, 1);
    assert_int_equal(bt_kvt_export(pair.sender, blob, sizeof(blob), &n), BT_OK);
    assert_int_equal(bt_kvt_import(pair.receiver, blob, n, NULL, &peer_back),
                     BT_OK);
    for (uint32_t i = 0; i < N_FLOWS; i++) {
        flow_begin(&there[i], 1 + i, pair.receiver, pair.peer, PAIR_SENDER,
                   i * 2 * MIB, bytes,
                   pair.sender_device.address + 16 * MIB + i);
        flow_begin(&back[i], 1 + i, pair.sender, peer_back, PAIR_RECEIVER,
                   i * 2 * MIB, bytes,
                   pair.receiver_device.address + 16 * MIB + 9 + i);
    }
    start_ms = pair_clock_ms(&pair);
    while (n_over < 2 * N_FLOWS) {
        assert_true(pair_clock_ms(&pair) - start_ms < 20000);
        pair.now_ms++;
        pair.now_ms = pair_clock_ms(&pair);
        (void)bt_kvt_progress(pair.sender, pair.now_ms, PAIR_BUDGET);
        (void)bt_kvt_progress(pair.receiver, pair.now_ms, PAIR_BUDGET);
        while (bt_kvt_poll(pair.sender, &event) ||
               bt_kvt_poll(pair.receiver, &event)) {
            flow_event(&event);
        }
        n_over = 0;
        for (uint32_t i = 0; i < N_FLOWS; i++) {
            n_over += there[i].closed && there[i].xfer_done;
            n_over += back[i].closed && back[i].xfer_done;
        }
    }
    for (uint32_t i = 0; i < N_FLOWS; i++) {
        assert_memory_equal(pair_pool(&pair, PAIR_RECEIVER) + i * 2 * MIB,
                            pair.source + i, bytes);
        assert_memory_equal(pair_pool(&pair, PAIR_SENDER) + i * 2 * MIB,
                            pair.source + 9 + i, bytes);
    }
    pair_assert_empty(&pair);
    bt_kvt_peer_release(peer_back);
    pair_close(&pair);
}

static void crossing_transfers_with_one_slot_complete_in_process(void **state)
{
    (void)state;
    crossing_transfers_do_not_wait_for_each_other(PAIR_MEM_STAGED);
}

static void crossing_transfers_with_one_slot_complete_over_tcp(void **state)
{
    (void)state;
    crossing_transfers_do_not_wait_for_each_other(PAIR_UCX_STAGED);
}

static void stalled_peer_does_not_take_all_slots(void **state)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_peer_t *other_peer = NULL;
    bt_kvt_t *other = NULL;
    bt_kvt_event_t event;
    bt_kvt_config_t config;
    flow_t f = {0};
    size_t n = 0;
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_STAGED, 8 * MIB, 4);
    config = pair_config(&pair, PAIR_RECEIVER);
    config.instance = 33;
    config.memory = BT_KVT_MEMORY_HOST;
    assert_int_equal(bt_kvt_open(&config, &other), BT_OK);
    assert_int_equal(bt_kvt_export(other, blob, sizeof(blob), &n), BT_OK);
    assert_int_equal(bt_kvt_import(pair.sender, blob, n, &pair, &other_peer),
                     BT_OK);
    rounds(&pair, 20);
    t = begin(&pair, 1, 0, 6 * MIB);
    bt_kvt_mem_net_stop(pair.net, PAIR_RECEIVER, true);
    rounds(&pair, 20);
    /* A link may hold no more than are free: 2 of 4. */
    assert_int_equal(counters(pair.sender).stage_slots, 2);

    flow_begin(&f, 7, other, other_peer, PAIR_SENDER, 0, 4 * MIB,
               pair.from + 99);
    for (int i = 0; !f.closed || !f.xfer_done; i++) {
        assert_true(i < 500); /* of its 1000 ms until it counts as lost */
        pair.now_ms++;
        (void)bt_kvt_progress(pair.sender, pair.now_ms, PAIR_BUDGET);
        (void)bt_kvt_progress(other, pair.now_ms, PAIR_BUDGET);
        while (bt_kvt_poll(pair.sender, &event) || bt_kvt_poll(other, &event)) {
            flow_event(&event);
        }
    }
    assert_memory_equal(bt_kvt_pool(other), pair.source + 99, 4 * MIB);
    bt_kvt_close(other);
    bt_kvt_mem_net_stop(pair.net, PAIR_RECEIVER, false);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

static void transfers_to_one_peer_share_slots_in_turn(void **state)
{
    track_t *t[3];
    pair_t pair;

    (void)state;
    open_with(&pair, PAIR_MEM_STAGED, 24 * MIB, 6);
    pair.sender_device.max_questions = 1;
    pair.receiver_device.max_questions = 1;
    rounds(&pair, 20);
    for (uint32_t i = 0; i < 3; i++) {
        t[i] = begin(&pair, 1 + i, i * 8 * MIB, (i == 2) ? MIB : 8 * MIB);
        (void)pair_pump(&pair);
    }
    PAIR_UNTIL(&pair, t[2]->xfer->bytes_moved == MIB);
    /* As much of each, and what the first had before the others came. */
    assert_true(t[0]->xfer->bytes_moved <= MIB + 4 * SLOT);
    assert_true(t[1]->xfer->bytes_moved <= MIB + SLOT);
    assert_true(t[1]->xfer->bytes_moved >= MIB - SLOT);
    for (uint32_t i = 0; i < 3; i++) {
        finish(t[i], "");
    }
    PAIR_UNTIL(&pair, over(t[0]) && over(t[1]) && over(t[2]));
    pair_assert_empty(&pair);
    pair_close(&pair);
}

/* ---- what others may try ---- */

static void piece_over_the_slot_size_is_refused(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_HOST_STAGED, 4 * MIB, 0);
    PAIR_UNTIL(&pair, bt_kvt_link_find(pair.sender, PAIR_RECEIVER)->state ==
                          BT_KVT_LINK_IS_OPEN);
    /* One that does not heed our export. */
    bt_kvt_link_find(pair.sender, PAIR_RECEIVER)->max_record_bytes = SLOT + 1;
    t = begin(&pair, 1, 0, 2 * MIB);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->region_status, BT_ERR_BAD_MESSAGE);
    assert_int_equal(t->xfer_status, BT_ERR_BAD_MESSAGE);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

static void staged_record_of_several_pieces_is_refused(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_UCX_HOST_STAGED, 4 * MIB, 0);
    bt_kvt_link_find(pair.sender, PAIR_RECEIVER)->max_record_bytes = MIB;
    t = begin(&pair, 1, 0, 2 * MIB);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->region_status, BT_ERR_BAD_MESSAGE);
    assert_int_equal(t->xfer_status, BT_ERR_BAD_MESSAGE);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

static void direct_write_into_a_staged_pool_is_refused(void **state)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT], hello[BT_KVT_MAX_MSG];
    bt_kvt_msg_t msg = {.type = BT_KVT_MSG_HELLO,
                        .from = PAIR_SENDER,
                        .to = PAIR_RECEIVER,
                        .nonce = 1,
                        .direct = true};
    const bt_kvt_link_t *link;
    size_t n = 0;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_HOST_STAGED], MIB);
    assert_int_equal(bt_kvt_export(pair.sender, blob, sizeof(blob), &n), BT_OK);
    msg.export.data = blob;
    msg.export.bytes = (uint32_t)n;
    assert_int_equal(bt_kvt_msg_encode(&msg, pair.receiver->config.key, hello,
                                       sizeof(hello), &n),
                     BT_OK);
    link = bt_kvt_take_message(pair.receiver, NULL, hello, n);
    assert_non_null(link);
    assert_int_equal(link->remote, BT_KVT_REMOTE_SENDS);
    pair_close(&pair);
}

/* ---- options ---- */

static void impossible_stage_options_are_refused(void **state)
{
    bt_kvt_config_t good, config;
    bt_copier_t copier;
    bt_kvt_t *kvt = NULL;
    fake_device_t d;

    (void)state;
    fake_open(&d, MIB, 1);
    good = (bt_kvt_config_t){
        .transport = &bt_kvt_transport_ucx,
        .pool_bytes = MIB,
        .memory = BT_KVT_MEMORY_STAGED,
        .device = {.pool = d.address, .copier = &copier, .n_slots = 32},
        .instance = 1,
        .keepalive_ms = 100,
        .dead_ms = 1000,
        .quarantine_ms = 1000};
    copier = d.copier;
    config = good;
    config.device.copier = NULL;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.device.pool = NULL;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.device.n_slots = BT_KVT_STAGE_MAX_SLOTS + 1;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.device.n_slots = 33; /* 64 tickets */
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    copier.query = NULL;
    assert_int_equal(bt_kvt_open(&good, &kvt), BT_ERR_INVALID_PARAM);
    copier = d.copier;
    config = good;
    config.path = BT_KVT_PATH_SHM;
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_UNSUPPORTED);
    assert_null(kvt);
    assert_int_equal(bt_kvt_open(&good, &kvt), BT_OK);
    assert_int_equal(d.n_allocs, 1);
    bt_kvt_close(kvt);
    fake_close(&d);
}

static bt_status_t no_sync_copy(void *user, void *to, const void *from,
                                size_t n)
{
    (void)user;
    (void)to;
    (void)from;
    fail_msg("%zu bytes were copied past the slots", n);
    return BT_ERR_DEVICE;
}

/* The memory here is that of no CUDA device, so no UCX can register it. */
static void falls_back(const pair_t *pair, uint64_t instance, bt_kvt_t **kvt_p)
{
    bt_kvt_config_t config = pair_config(pair, instance);

    bt_kvt_close(*kvt_p);
    *kvt_p = NULL;
    config.memory = BT_KVT_MEMORY_DEVICE;
    config.device.read = no_sync_copy;
    config.device.write = no_sync_copy;
    assert_int_equal(bt_kvt_open(&config, kvt_p), BT_OK);
    assert_int_equal((*kvt_p)->config.memory, BT_KVT_MEMORY_STAGED);
}

static void device_memory_unknown_to_ucx_is_staged(void **state)
{
    static const uint32_t numbers[] = {PAIR_UCX_STAGED_SHM, PAIR_UCX_STAGED,
                                       PAIR_UCX_HOST_STAGED,
                                       PAIR_UCX_STAGED_NETWORK};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        const pair_kind_t *kind = &pair_kinds[numbers[i]];
        pair_t pair;
        track_t *t;

        pair_open(&pair, kind, 4 * MIB);
        if (kind->staged_sender) {
            falls_back(&pair, PAIR_SENDER, &pair.sender);
        }
        if (kind->staged_receiver) {
            falls_back(&pair, PAIR_RECEIVER, &pair.receiver);
        } else {
            assert_int_equal(pair.receiver->config.memory, BT_KVT_MEMORY_HOST);
        }
        pair_import(&pair);
        assert_string_equal(bt_kvt_peer_path(pair.peer), kind->peer_path);
        t = begin(&pair, 1, 0, 3 * MIB);
        finish(t, "");
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 1);
        pair_close(&pair);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(staged_transfer_moves_every_byte_through_slots),
        BT_TEST(device_copies_overlap_with_sending),
        BT_TEST(transfers_without_a_slot_wait_and_are_counted),
        BT_TEST(received_segment_is_held_until_slots_are_free),
        BT_TEST(failed_allocation_while_staging_ends_the_transfer),
        BT_TEST(crossing_transfers_with_one_slot_complete_in_process),
        BT_TEST(crossing_transfers_with_one_slot_complete_over_tcp),
        BT_TEST(stalled_peer_does_not_take_all_slots),
        BT_TEST(transfers_to_one_peer_share_slots_in_turn),
        BT_TEST(piece_over_the_slot_size_is_refused),
        BT_TEST(staged_record_of_several_pieces_is_refused),
        BT_TEST(direct_write_into_a_staged_pool_is_refused),
        BT_TEST(impossible_stage_options_are_refused),
        BT_TEST(device_memory_unknown_to_ucx_is_staged),
    };

    bt_log_init("test_kvt_stage", BT_LOG_LEVEL_ERROR);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
