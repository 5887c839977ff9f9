/* SPDX-License-Identifier: Apache-2.0 */
/* From device to device (kvt_stage.h): what holds beyond the contract, which
 * runs over such pools too (each_kind.h). Nobody is told that nothing is
 * written any more while a copy runs; bytes are proven where they lie; whoever
 * cannot share stages, and says why. */
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"
#include "tests/unit/kvtransfer/stage.h"

static const uint32_t shared[] = {PAIR_MEM_SHARED, PAIR_UCX_SHARED};

static void shared_device_transfer_touches_no_host_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(shared); i++) {
        const uint64_t bytes = 6 * MIB + 12345;
        pair_t pair;
        track_t *t;

        open_with(&pair, shared[i], 8 * MIB, 0);
        assert_string_equal(bt_kvt_peer_path(pair.peer), "fake_ipc");
        t = begin(&pair, 1, 777, bytes);
        finish(t, "token");
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 1);
        assert_int_equal(counters(pair.sender).bytes_shared, bytes);
        assert_int_equal(counters(pair.sender).bytes_staged, 0);
        assert_int_equal(counters(pair.receiver).bytes_staged, 0);
        assert_int_equal(pair.sender_device.n_to_host, 0);
        assert_int_equal(pair.receiver_device.n_to_host, 0);
        /* The probe of each, which is its own. */
        assert_int_equal(pair.sender_device.n_to_device, 1);
        assert_int_equal(pair.receiver_device.n_to_device, 1);
        /* Records of 1 MiB, each written once and checked once. */
        assert_int_equal(pair.sender_device.n_between, 7);
        assert_int_equal(pair.receiver_device.n_hashes, 7);
        assert_int_equal(t->result.n_descriptors, 7);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

/* ---- nobody is told before the device is done ---- */

/** A pair in the middle of a transfer whose copies do not end. */
static track_t *begin_withheld(pair_t *pair, uint32_t kind, uint64_t bytes)
{
    track_t *t;

    open_with(pair, kind, 8 * MIB, 0);
    PAIR_UNTIL(pair, bt_kvt_link_find(pair->sender, PAIR_RECEIVER)->state ==
                         BT_KVT_LINK_IS_OPEN);
    pair->sender_device.withheld = true;
    t = begin(pair, 1, 0, bytes);
    PAIR_UNTIL(pair, pair->sender_device.n_under_way > 1);
    return t;
}

static void revoked_region_waits_for_the_senders_copies(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(shared); i++) {
        pair_t pair;
        track_t *t;

        t = begin_withheld(&pair, shared[i], 5 * MIB);
        close_region(t);
        rounds(&pair, 4 * ROUNDS); /* REVOKE is said again meanwhile */
        assert_int_equal(t->closed, 0);
        assert_int_equal(t->xfer_done, 0);
        assert_int_equal(counters(pair.receiver).regions_quarantined, 1);
        pair.sender_device.withheld = false;
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->closed, 1);
        assert_int_equal(t->xfer_status, BT_ERR_STALE);
        assert_int_equal(pair.sender_device.n_under_way, 0);
        pair_assert_empty(&pair);
        pair_close(&pair); /* canaries: nothing was written after CLOSED */
    }
}

static void
a_sender_that_gives_up_says_so_when_its_copies_have_ended(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(shared); i++) {
        pair_t pair;
        track_t *t;

        t = begin_withheld(&pair, shared[i], 5 * MIB);
        bt_kvt_cancel(t->xfer);
        rounds(&pair, ROUNDS);
        assert_int_equal(t->failed + t->closed + t->xfer_done, 0);
        pair.sender_device.withheld = false;
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->region_status, BT_ERR_CANCELED);
        assert_int_equal(t->xfer_status, BT_ERR_CANCELED);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

/* Also one that was given up before. */
static void closing_region_handles_both_confirmations(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    t = begin_withheld(&pair, PAIR_MEM_SHARED, 3 * MIB);
    bt_kvt_cancel(t->xfer);
    close_region(t);
    rounds(&pair, ROUNDS);
    assert_int_equal(t->closed, 0);
    pair.sender_device.withheld = false;
    PAIR_UNTIL(&pair, over(t));
    pair_assert_empty(&pair);
    pair_close(&pair);
}

static const bt_kvt_transport_t *real_ops;
static const fake_device_t *device_of_sender;

static bt_status_t send_when_nothing_is_written(bt_kvt_link_t *link,
                                                const void *msg, size_t bytes)
{
    assert_int_equal(device_of_sender->n_under_way, 0);
    return real_ops->send(link, msg, bytes);
}

static void closing_sender_ends_its_copies_first(void **state)
{
    bt_kvt_transport_t ops;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(shared); i++) {
        pair_t pair;
        track_t *t;

        open_with(&pair, shared[i], 8 * MIB, 0);
        pair.sender_device.max_questions = 50;
        t = begin(&pair, 1, 0, 5 * MIB);
        PAIR_UNTIL(&pair, pair.sender_device.n_under_way > 1);
        real_ops = pair.sender->ops;
        device_of_sender = &pair.sender_device;
        ops = *real_ops;
        ops.send = send_when_nothing_is_written; /* BYE */
        pair.sender->ops = &ops;
        bt_kvt_close(pair.sender);
        pair.sender = NULL;
        assert_int_equal(pair.receiver_device.n_openers, 0);
        PAIR_UNTIL(&pair, t->closed);
        assert_int_equal(t->region_status, BT_ERR_PEER_LOST);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

static void dead_receiver_leaves_nothing_open(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_SHARED, 8 * MIB, 0);
    pair.sender_device.max_questions = 50;
    t = begin(&pair, 1, 0, 7 * MIB);
    PAIR_UNTIL(&pair, pair.sender_device.n_under_way > 1);
    assert_int_equal(pair.sender_device.n_opened, 1);
    bt_kvt_mem_net_kill(pair.net, PAIR_RECEIVER);
    PAIR_UNTIL(&pair, t->xfer_done);
    assert_int_equal(t->xfer_status, BT_ERR_PEER_LOST);
    assert_int_equal(pair.peers_lost, 1);
    assert_int_equal(pair.sender_device.n_under_way, 0);
    assert_int_equal(pair.sender_device.n_opened, 0);
    assert_int_equal(counters(pair.sender).stage_slots, 0);
    pair_close(&pair);
}

static void dead_sender_frees_its_regions(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_SHARED, 8 * MIB, 0);
    pair.receiver_device.withheld = true; /* a check is under way, too */
    t = begin(&pair, 1, 0, 7 * MIB);
    PAIR_UNTIL(&pair, pair.receiver_device.n_under_way > 0);
    bt_kvt_mem_net_kill(pair.net, PAIR_SENDER);
    PAIR_UNTIL(&pair, t->failed);
    assert_int_equal(t->region_status, BT_ERR_PEER_LOST);
    rounds(&pair, ROUNDS);
    assert_int_equal(t->closed, 0); /* the own device still reads it */
    pair.receiver_device.withheld = false;
    PAIR_UNTIL(&pair, t->closed);
    assert_int_equal(counters(pair.receiver).stage_slots, 0);
    pair_close(&pair);
}

/* ---- what is proven ---- */

static void flip_one(void *user, uint8_t *bytes, size_t n)
{
    uint32_t *left = user;

    if (--*left == 0) {
        bytes[n / 3] ^= 1;
    }
}

static void wrong_byte_in_the_pool_fails_verification(void **state)
{
    (void)state;
    for (uint32_t at = 1; at <= 3; at++) {
        for (int there = 0; there < 2; there++) {
            uint32_t left = at;
            pair_t pair;
            track_t *t;

            open_with(&pair, PAIR_MEM_SHARED, 4 * MIB, 0);
            pair.sender_device.see_copied = (there == 0) ? flip_one : NULL;
            pair.sender_device.see_user = &left;
            pair.receiver_device.see_checked = (there == 1) ? flip_one : NULL;
            pair.receiver_device.see_user = &left;
            t = begin(&pair, 1, 0, 3 * MIB);
            finish(t, "");
            PAIR_UNTIL(&pair, over(t));
            assert_int_equal(t->region_status, BT_ERR_CORRUPT);
            assert_int_equal(t->xfer_status, BT_ERR_CORRUPT);
            assert_int_equal(counters(pair.receiver).checksum_failures, 1);
            pair_assert_empty(&pair);
            pair_close(&pair);
        }
    }
}

/* Each copy and each check, at once or later. */
static void failed_device_ends_the_transfer(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        for (uint32_t nth = 1; nth <= 4; nth++) {
            fake_device_t *d;
            pair_t pair;
            track_t *t;

            open_with(&pair, PAIR_MEM_SHARED, 4 * MIB, 2);
            d = (way < 2) ? &pair.sender_device : &pair.receiver_device;
            d->refuses = way % 2 == 1;
            d->fail_at = d->n_begun + nth;
            t = begin(&pair, 1, 0, 4 * MIB - 64);
            finish(t, "");
            PAIR_UNTIL(&pair, over(t));
            assert_int_equal(t->xfer_status, BT_ERR_DEVICE);
            assert_int_equal(t->region_status,
                             (way < 2) ? BT_ERR_CANCELED : BT_ERR_DEVICE);
            pair_assert_empty(&pair);
            pair_close(&pair);
        }
    }
}

/* Bounds of what a receiver takes from a sender's manifest. */
static void share_record_of_several_pieces_is_refused(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_SHARED, 4 * MIB, 0);
    t = pair_region(&pair, 1, PAIR_SENDER, 0, 4096, 8192, 2);
    prep(&pair, t);
    /* As if the sender took the second extent to lie behind the first one. */
    t->xfer->map.runs[0].bytes = 8192;
    t->xfer->map.n_runs = 1;
    post(t, 0, 8192);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->region_status, BT_ERR_BAD_MESSAGE);
    pair_assert_empty(&pair);
    pair.reuses = true; /* what it wrote between is nobody's */
    pair_close(&pair);
}

static void one_slot_serves_all_regions(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(shared); i++) {
        track_t *t[6];
        pair_t pair;

        open_with(&pair, shared[i], 12 * MIB, 1);
        pair.receiver_device.max_questions = 20;
        for (uint32_t k = 0; k < 6; k++) {
            t[k] = begin(&pair, 1 + k, k * 2 * MIB, 2 * MIB - k);
            finish(t[k], "");
        }
        for (uint32_t k = 0; k < 6; k++) {
            PAIR_UNTIL(&pair, over(t[k]));
            assert_int_equal(t[k]->done, 1);
        }
        assert_int_equal(pair.sender_device.most_under_way, 1);
        assert_int_equal(pair.receiver_device.most_under_way, 1);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

/* ---- who cannot share stages ---- */

typedef enum lack {
    LACK_NONE,
    LACK_SHARE,    /* the receiver's device refuses */
    LACK_OPEN,     /* the sender's does */
    LACK_PROBE,    /* what is found is not what was said */
    LACK_PLACE,    /* it is said to be elsewhere */
    LACK_SPARE,    /* there is no room for a probe */
    LACK_TICKET,   /* the sender has none to spare */
    LACK_WAY,      /* the sender's device opens nothing */
    LACK_HOST,     /* it is another host */
    LACK_OLD_PEER, /* the receiver is of an older build */
    LACK_WISH,     /* the network is demanded */
    N_LACKS
} lack_t;

/** The export of a build before this one, which said nothing of sharing. */
static void export_shorten(uint8_t *blob, size_t *bytes_p)
{
    bt_kvt_export_info_t info;
    const uint32_t less = 4 + BT_COPIER_HANDLE_BYTES;
    const uint8_t *old = blob;
    uint32_t fixed = 0;
    uint32_t total;
    uint64_t sum;

    assert_int_equal(bt_kvt_export_decode(blob, *bytes_p, &info), BT_OK);
    memcpy(&fixed, old + 12, sizeof(fixed));
    memmove(blob + 16 + fixed - less, blob + 16 + fixed, *bytes_p - 16 - fixed);
    fixed -= less;
    memcpy(blob + 12, &fixed, sizeof(fixed));
    *bytes_p -= less;
    total = (uint32_t)*bytes_p;
    memcpy(blob + 8, &total, sizeof(total));
    sum = bt_hash64(blob, *bytes_p - 8, 0);
    memcpy(blob + *bytes_p - 8, &sum, sizeof(sum));
    assert_int_equal(bt_kvt_export_decode(blob, *bytes_p, &info), BT_OK);
    assert_int_equal(info.shared, 0);
}

/** Its probe is said to be beyond all that the device has. */
static void export_misplace(uint8_t *blob, size_t *bytes_p)
{
    static uint8_t old[BT_KVT_MAX_EXPORT];
    bt_kvt_export_info_t info;

    memcpy(old, blob, *bytes_p);
    assert_int_equal(bt_kvt_export_decode(old, *bytes_p, &info), BT_OK);
    info.probe_offset += 1ull << 40;
    assert_int_equal(
        bt_kvt_export_encode(&info, blob, BT_KVT_MAX_EXPORT, bytes_p), BT_OK);
}

/** A pair whose ends are closed, to be opened by other configurations. */
static void open_anew(pair_t *pair)
{
    pair_open(pair, &pair_kinds[PAIR_MEM_SHARED], 4 * MIB);
    bt_kvt_close(pair->sender);
    bt_kvt_close(pair->receiver);
    bt_kvt_mem_net_destroy(pair->net);
    assert_int_equal(bt_kvt_mem_net_create(&pair->net), BT_OK);
}

static void open_lacking(pair_t *pair, lack_t lack)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_config_t configs[2];
    size_t bytes = 0;

    open_anew(pair);
    configs[0] = pair_config(pair, PAIR_SENDER);
    configs[1] = pair_config(pair, PAIR_RECEIVER);
    pair->receiver_device.refuses_to_share =
        (lack == LACK_SHARE) ? "it is cut in parts" : NULL;
    pair->sender_device.refuses_to_open =
        (lack == LACK_OPEN) ? "no way there" : NULL;
    configs[1].device.spare_bytes = (lack == LACK_SPARE) ? 8 : 4096;
    pair->sender_device.copier.n_tickets -= (lack == LACK_TICKET) ? 33 : 0;
    if (lack == LACK_WAY) {
        pair->sender_device.copier.share_name = NULL;
    }
    configs[0].path =
        (lack == LACK_WISH) ? BT_KVT_PATH_NETWORK : BT_KVT_PATH_AUTO;
    assert_int_equal(bt_kvt_open(&configs[0], &pair->sender), BT_OK);
    assert_int_equal(bt_kvt_open(&configs[1], &pair->receiver), BT_OK);
    if (lack == LACK_HOST) {
        pair->sender->host.boot_id[0]++;
    }
    if (lack == LACK_PROBE) {
        pair->receiver_device.bytes[pair->pool_bytes + 5] ^= 4;
    }
    assert_int_equal(bt_kvt_export(pair->receiver, blob, sizeof(blob), &bytes),
                     BT_OK);
    if (lack == LACK_OLD_PEER) {
        export_shorten(blob, &bytes);
    }
    if (lack == LACK_PLACE) {
        export_misplace(blob, &bytes);
    }
    assert_int_equal(
        bt_kvt_import(pair->sender, blob, bytes, pair, &pair->peer), BT_OK);
}

static void peer_that_cannot_share_memory_is_staged(void **state)
{
    (void)state;
    for (lack_t lack = LACK_NONE; lack < N_LACKS; lack++) {
        const bool shares = lack == LACK_NONE;
        const unsigned long told = bt_log_count(BT_LOG_LEVEL_INFO);
        pair_t pair;
        track_t *t;

        bt_log_set_level(BT_LOG_LEVEL_INFO);
        open_lacking(&pair, lack);
        /* One line with the reason at the sender; where the receiver's device
         * refuses, one there, too; none where it was the wish. */
        assert_int_equal(bt_log_count(BT_LOG_LEVEL_INFO) - told,
                         (shares || (lack == LACK_WISH)) ? 0
                         : (lack == LACK_SHARE)          ? 2
                                                         : 1);
        bt_log_set_level(BT_LOG_LEVEL_WARN);
        assert_string_equal(bt_kvt_peer_path(pair.peer),
                            shares ? "fake_ipc" : "network");
        assert_int_equal(pair.sender_device.n_opened, shares ? 1 : 0);
        t = begin(&pair, 1, 0, 3 * MIB);
        finish(t, "");
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 1);
        assert_int_equal(counters(pair.sender).bytes_shared,
                         shares ? 3 * MIB : 0);
        assert_int_equal(counters(pair.receiver).bytes_staged,
                         shares ? 0 : 3 * MIB);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

/* A receiver that cannot watch the sender's process lets nobody write. */
static bt_status_t watch_nobody(bt_kvt_link_t *link,
                                const bt_kvt_export_info_t *info)
{
    (void)link;
    (void)info;
    return BT_ERR_UNSUPPORTED;
}

static void refusing_receiver_gets_staged_data(void **state)
{
    bt_kvt_transport_t ops;
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_SHARED, 4 * MIB, 0);
    ops = *pair.receiver->ops;
    ops.watch = watch_nobody;
    pair.receiver->ops = &ops;
    t = begin(&pair, 1, 0, 3 * MIB); /* posted before that is known */
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_string_equal(bt_kvt_peer_path(pair.peer), "network");
    assert_int_equal(counters(pair.receiver).bytes_staged, 3 * MIB);
    assert_int_equal(pair.sender_device.n_opened, 0);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

/* As a process that is started again has it: another instance, another pool. */
static void restarted_receiver_replaces_the_old_mapping(void **state)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_peer_t *old;
    bt_kvt_config_t config;
    size_t bytes = 0;
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_SHARED, 4 * MIB, 0);
    t = begin(&pair, 1, 0, 2 * MIB);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    old = pair.peer;
    config = pair_config(&pair, 33);
    bt_kvt_close(pair.receiver);
    pair.receiver = NULL;
    PAIR_UNTIL(&pair, pair.peers_lost == 1);
    assert_int_equal(pair.sender_device.n_opened, 0);
    pair.receiver_device.life += 1000; /* its memory is another one */
    assert_int_equal(bt_kvt_open(&config, &pair.receiver), BT_OK);
    assert_int_equal(bt_kvt_export(pair.receiver, blob, sizeof(blob), &bytes),
                     BT_OK);
    assert_int_equal(bt_kvt_import(pair.sender, blob, bytes, &pair, &pair.peer),
                     BT_OK);
    bt_kvt_peer_release(old);
    assert_int_equal(pair.sender_device.n_opened, 1);
    pair.reuses = true;
    t = begin(&pair, 2, 0, 2 * MIB);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

/* ---- a transport that reaches the pool itself ---- */

static void open_over_the_network(pair_t *pair, bool takes)
{
    bt_kvt_config_t configs[2];

    open_anew(pair);
    bt_kvt_mem_net_takes_devices(pair->net, takes);
    for (int i = 0; i < 2; i++) {
        configs[i] = pair_config(pair, (i == 0) ? PAIR_SENDER : PAIR_RECEIVER);
        configs[i].path = BT_KVT_PATH_NETWORK;
        configs[i].memory = BT_KVT_MEMORY_DEVICE;
    }
    assert_int_equal(bt_kvt_open(&configs[0], &pair->sender), BT_OK);
    assert_int_equal(bt_kvt_open(&configs[1], &pair->receiver), BT_OK);
    pair_import(pair);
}

/* As a worker asks for it where nothing but the network is wanted: by a UCX
 * that knows the memory, or by slots. */
static void pool_unreachable_by_network_is_staged(void **state)
{
    (void)state;
    for (int takes = 0; takes < 2; takes++) {
        pair_t pair;
        track_t *t;

        open_over_the_network(&pair, takes == 1);
        assert_int_equal(pair.sender->config.memory,
                         (takes == 1) ? BT_KVT_MEMORY_DEVICE
                                      : BT_KVT_MEMORY_STAGED);
        assert_string_equal(bt_kvt_peer_path(pair.peer), "network");
        t = begin(&pair, 1, 5, 3 * MIB - 9);
        finish(t, "");
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 1);
        assert_int_equal(counters(pair.receiver).bytes_staged,
                         (takes == 1) ? 0 : 3 * MIB - 9);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

/* Its own copies fail, each once: at either end somebody is told. */
static void failed_peer_copy_ends_the_transfer(void **state)
{
    uint32_t n_failed = 0;

    (void)state;
    for (int end = 0; end < 2; end++) {
        for (uint32_t nth = 1; nth <= 6; nth++) {
            fake_device_t *d;
            pair_t pair;
            track_t *t;

            open_over_the_network(&pair, true);
            d = (end == 0) ? &pair.sender_device : &pair.receiver_device;
            d->refuses = nth % 2 == 0;
            d->fail_at = d->n_begun + nth;
            t = begin(&pair, 1, 0, 3 * MIB);
            finish(t, "");
            for (int i = 0; (i < 4000) && (t->xfer != NULL); i++) {
                (void)pair_pump(&pair);
            }
            n_failed += t->done == 0;
            assert_int_not_equal(t->region_status, BT_ERR_CORRUPT);
            if (t->region != NULL) {
                close_region(t);
            }
            PAIR_UNTIL(&pair, over(t));
            pair_close(&pair);
        }
    }
    assert_int_equal(n_failed, 12);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(shared_device_transfer_touches_no_host_memory),
        BT_TEST(revoked_region_waits_for_the_senders_copies),
        BT_TEST(a_sender_that_gives_up_says_so_when_its_copies_have_ended),
        BT_TEST(closing_region_handles_both_confirmations),
        BT_TEST(closing_sender_ends_its_copies_first),
        BT_TEST(dead_receiver_leaves_nothing_open),
        BT_TEST(dead_sender_frees_its_regions),
        BT_TEST(wrong_byte_in_the_pool_fails_verification),
        BT_TEST(failed_device_ends_the_transfer),
        BT_TEST(share_record_of_several_pieces_is_refused),
        BT_TEST(one_slot_serves_all_regions),
        BT_TEST(peer_that_cannot_share_memory_is_staged),
        BT_TEST(refusing_receiver_gets_staged_data),
        BT_TEST(restarted_receiver_replaces_the_old_mapping),
        BT_TEST(pool_unreachable_by_network_is_staged),
        BT_TEST(failed_peer_copy_ends_the_transfer),
    };

    bt_log_init("test_kvt_share", BT_LOG_LEVEL_WARN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
