/* SPDX-License-Identifier: Apache-2.0 */
/* What kvt.h promises of data that arrives, on every transport and path: the
 * scripted one and UCX, shared memory and network over the loopback
 * interface. */
#include <poll.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/each_kind.h"
#include "tests/unit/kvtransfer/fds.h"

/* 16 tokens of 30 layers of 3 heads of 64 f16: 30 * 2 * 3 * 16 * 64 * 2 B. */
#define BLOCK_BYTES 368640u
#define SLEEP_MS    50000 /* whoever is not woken by then is not woken */

static bool is_staged(const pair_kind_t *kind)
{
    return kind->staged_sender || kind->staged_receiver;
}

static void scattered_blocks_arrive_whole(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 48 * BLOCK_BYTES);
    pair_import(&pair);
    assert_string_equal(bt_kvt_peer_path(pair.peer), kind->peer_path);
    t = pair_region(&pair, 7, PAIR_SENDER, 0, BLOCK_BYTES, 2 * BLOCK_BYTES, 24);
    prep(&pair, t);
    for (uint32_t i = 0; i < 24; i += 3) { /* three blocks in a piece */
        post(t, i * BLOCK_BYTES, 3 * BLOCK_BYTES);
    }
    finish(t, "token 42");
    PAIR_UNTIL(&pair, over(t));

    assert_int_equal(t->done, 1);
    assert_int_equal(t->closed, 1);
    assert_int_equal(t->xfer_status, BT_OK);
    assert_string_equal(t->note, "token 42");
    /* A slot holds less than a block. */
    assert_int_equal(t->result.n_descriptors,
                     (is_staged(kind) && !kind->shares) ? 48 : 24);
    assert_true(t->result.elapsed_us > 0);
    assert_string_equal(bt_kvt_peer_path(pair.peer), kind->peer_path);
    assert_int_equal(counters(pair.sender).bytes_sent, 24 * BLOCK_BYTES);
    assert_int_equal(counters(pair.receiver).bytes_received, 24 * BLOCK_BYTES);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(scattered_blocks_arrive_whole)

/* Of 8 KiB each, into 96 runs with as large gaps, all posted before any moves,
 * to a receiver that reads records of n_runs runs. @return records */
static uint32_t move_small_pieces(const pair_kind_t *kind, uint32_t n_runs,
                                  uint64_t stride)
{
    pair_t pair;
    uint32_t n;
    track_t *t;

    pair_open(&pair, kind, MIB * 2);
    pair_import(&pair);
    t = pair_region(&pair, 7, PAIR_SENDER, 0, 8192, stride, 96);
    prep(&pair, t);
    t->xfer->link->max_record_runs = n_runs;
    for (uint64_t at = 0; at < 96 * 8192; at += 8192) {
        post(t, at, 8192);
    }
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_int_equal(t->xfer_status, BT_OK);
    assert_int_equal(counters(pair.sender).bytes_sent, 96 * 8192);
    n = t->result.n_descriptors;
    pair_assert_empty(&pair);
    pair_close(&pair);
    return n;
}

/* 256 KiB are 32 of them. From and to a device, and over the network, each
 * goes alone; from device to device what lies in one piece goes as one. */
static void small_pieces_are_one_record(const pair_kind_t *kind)
{
    const bool joins =
        (strcmp(kind->peer_path, "shm") == 0) && !is_staged(kind);

    assert_int_equal(move_small_pieces(kind, 64, 16384), joins ? 3 : 96);
    assert_int_equal(move_small_pieces(kind, 16, 16384), joins ? 6 : 96);
    assert_int_equal(move_small_pieces(kind, 1, 16384), 96);
    assert_int_equal(move_small_pieces(kind, 1, 8192), kind->shares ? 1
                                                       : joins      ? 3
                                                                    : 96);
}
EACH_KIND(small_pieces_are_one_record)

static void pieces_of_any_size_arrive(const pair_kind_t *kind)
{
    static const uint64_t sizes[] = {
        1,     2,     3,      63,      64,  65,      4095,    4096,    8191,
        65536, 65537, 262144, MIB - 1, MIB, MIB + 1, 3 * MIB, 8 * MIB, 1};
    uint64_t total = 0;
    uint64_t at = 0;
    pair_t pair;
    track_t *t;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        total += sizes[i];
    }
    pair_open(&pair, kind, 20 * MIB);
    pair_import(&pair);
    t = pair_region(&pair, 1, PAIR_SENDER, 13, total, 0, 1);
    prep(&pair, t);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        post(t, at, sizes[i]);
        at += sizes[i];
        (void)pair_pump(&pair);
    }
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_int_equal(t->result.note_bytes, 0);
    assert_int_equal(t->xfer_status, BT_OK);
    pair_close(&pair);
}
EACH_KIND(pieces_of_any_size_arrive)

static void a_thousand_regions_leave_nothing(const pair_kind_t *kind)
{
    pair_t pair;
    unsigned fds;

    pair_open(&pair, kind, MIB);
    pair.reuses = true;
    pair_import(&pair);
    fds = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        track_t *t = pair_region(&pair, 1 + i, PAIR_SENDER, (i % 8) * 65536,
                                 512, 1024, 16);

        prep(&pair, t);
        post(t, 0, t->bytes);
        if (i % 10 == 3) {
            bt_kvt_cancel(t->xfer);
        } else if (i % 10 == 7) {
            t->closing = true;
            bt_kvt_region_close(t->region);
        } else {
            finish(t, "x");
        }
        if (i % 8 == 7) {
            PAIR_UNTIL(&pair, over(t));
            for (uint32_t k = i - 7; k < i; k++) {
                PAIR_UNTIL(&pair, over(&pair.tracks[k]));
            }
        }
        if (i == 100) {
            fds = n_open_fds();
        }
    }
    PAIR_UNTIL(&pair, counters(pair.receiver).regions_open == 0);
    assert_int_equal(n_open_fds(), fds);
    pair_assert_empty(&pair);
    for (uint32_t i = 0; i < 1000; i++) {
        const track_t *t = &pair.tracks[i];

        assert_int_equal(t->closed, 1);
        assert_int_equal(t->xfer_done, 1);
        assert_int_equal(t->xfer_status, (i % 10 == 3)   ? BT_ERR_CANCELED
                                         : (i % 10 == 7) ? BT_ERR_STALE
                                                         : BT_OK);
    }
    pair_close(&pair);
}
EACH_KIND(a_thousand_regions_leave_nothing)

static void both_may_send_at_once(const pair_kind_t *kind)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_extent_t extent = {.offset = 4 * MIB, .bytes = 2 * MIB};
    uint8_t desc[BT_KVT_DESC_BYTES(1)];
    bt_kvt_region_t *region = NULL;
    bt_kvt_peer_t *back = NULL;
    bt_kvt_xfer_t *xfer = NULL;
    bt_kvt_event_t event;
    size_t bytes = 0;
    int region_done = 0;
    int xfer_done = 0;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    assert_int_equal(bt_kvt_export(pair.sender, blob, sizeof(blob), &bytes),
                     BT_OK);
    pair_at(&pair, PAIR_RECEIVER);
    assert_int_equal(bt_kvt_import(pair.receiver, blob, bytes, NULL, &back),
                     BT_OK);
    t = pair_region(&pair, 2, PAIR_SENDER, 0, MIB, MIB, 3);
    prep(&pair, t);
    assert_int_equal(bt_kvt_region_open(pair.sender, 9, 4, PAIR_RECEIVER,
                                        &extent, 1, NULL, desc, sizeof(desc),
                                        &bytes, &region),
                     BT_OK);
    assert_int_equal(bt_kvt_prep(back, desc, bytes, NULL, &xfer), BT_OK);
    post(t, 0, t->bytes);
    assert_int_equal(bt_kvt_post(xfer,
                                 kind->staged_receiver
                                     ? pair.receiver_device.address +
                                           source_at(kind, pair.pool_bytes)
                                     : pair.source,
                                 0, 2 * MIB),
                     BT_OK);
    assert_int_equal(bt_kvt_finish(xfer, NULL, 0), BT_OK);
    finish(t, "");

    for (int i = 0; (i < 2000000) && (!region_done || !xfer_done || !over(t));
         i++) {
        pair.now_ms++;
        pair.now_ms = pair_clock_ms(&pair);
        pair_at(&pair, PAIR_SENDER);
        (void)bt_kvt_progress(pair.sender, pair.now_ms, PAIR_BUDGET);
        pair_at(&pair, PAIR_RECEIVER);
        (void)bt_kvt_progress(pair.receiver, pair.now_ms, PAIR_BUDGET);
        while (bt_kvt_poll(pair.sender, &event)) {
            if (event.region != NULL) {
                assert_int_equal(event.status, BT_OK);
                region_done += event.type == BT_KVT_REGION_DONE;
            } else {
                pair_sender_event(&pair, &event);
            }
        }
        while (bt_kvt_poll(pair.receiver, &event)) {
            if (event.xfer != NULL) {
                assert_int_equal(event.status, BT_OK);
                bt_kvt_release(event.xfer);
                xfer_done++;
            } else {
                pair_receiver_event(&pair, &event);
            }
        }
    }
    assert_int_equal(region_done, 1);
    assert_int_equal(xfer_done, 1);
    assert_int_equal(t->done, 1);
    assert_memory_equal(pair_pool(&pair, PAIR_SENDER) + 4 * MIB, pair.source,
                        2 * MIB);
    bt_kvt_region_close(region);
    bt_kvt_peer_release(back);
    pair_close(&pair);
}
EACH_KIND(both_may_send_at_once)

static void progress_keeps_to_its_budget(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;
    uint64_t before = 0;
    bt_kvt_event_t event;

    pair_open(&pair, kind, 16 * MIB);
    pair_import(&pair);
    t = pair_region(&pair, 2, PAIR_SENDER, 0, 12 * MIB, 0, 1);
    prep(&pair, t);
    post(t, 0, t->bytes);
    for (int i = 0; (i < 1000000) && (before < t->bytes); i++) {
        uint64_t now;

        pair.now_ms++;
        pair.now_ms = pair_clock_ms(&pair);
        pair_at(&pair, PAIR_RECEIVER);
        (void)bt_kvt_progress(pair.receiver, pair.now_ms, 1);
        pair_at(&pair, PAIR_SENDER);
        (void)bt_kvt_progress(pair.sender, pair.now_ms, 1);
        now = counters(pair.sender).bytes_sent;
        assert_true(now - before <= BT_KVT_MAX_RECORD_BYTES);
        before = now;
        while (bt_kvt_poll(pair.sender, &event)) {
            assert_int_equal(event.type, BT_KVT_PEER_UP);
        }
    }
    assert_int_equal(before, t->bytes);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    pair_close(&pair);
}
EACH_KIND(progress_keeps_to_its_budget)

/** Sleep as a worker does: until the descriptor says something. */
static void sleeping_on_the_descriptor_misses_nothing(const pair_kind_t *kind)
{
    const uint64_t start_ms = bt_now_ms();
    unsigned slept = 0;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    t = pair_region(&pair, 2, PAIR_SENDER, 0, MIB, 2 * MIB, 4);
    prep(&pair, t);
    post(t, 0, t->bytes);
    finish(t, "");
    while (!over(t)) {
        struct pollfd fds[2] = {
            {.fd = bt_kvt_fd(pair.sender), .events = POLLIN},
            {.fd = bt_kvt_fd(pair.receiver), .events = POLLIN}};

        assert_true(bt_now_ms() - start_ms < 2 * SLEEP_MS);
        if (!pair_pump(&pair) && !over(t) &&
            (bt_kvt_arm(pair.sender) == BT_OK) &&
            (bt_kvt_arm(pair.receiver) == BT_OK)) {
            /* No ticks meanwhile: keepalive would hide a missed wake-up. */
            assert_int_not_equal(poll(fds, 2, SLEEP_MS), 0);
            slept++;
        }
    }
    assert_int_equal(t->done, 1);
    assert_true((slept > 0) || (kind->transport == &bt_kvt_transport_mem));
    pair_close(&pair);
}
EACH_KIND(sleeping_on_the_descriptor_misses_nothing)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST_EACH(scattered_blocks_arrive_whole),
        TEST_EACH(small_pieces_are_one_record),
        TEST_EACH(pieces_of_any_size_arrive),
        TEST_EACH(a_thousand_regions_leave_nothing),
        TEST_EACH(both_may_send_at_once),
        TEST_EACH(progress_keeps_to_its_budget),
        TEST_EACH(sleeping_on_the_descriptor_misses_nothing),
    };

    bt_log_init("test_kvt_contract", BT_LOG_LEVEL_ERROR);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
