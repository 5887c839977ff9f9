/* SPDX-License-Identifier: Apache-2.0 */
/* What kvt.h promises, on every transport and path: the scripted one and UCX,
 * shared memory and network over the loopback interface. */
#include <dirent.h>
#include <poll.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/pair.h"

#define MIB (1024u * 1024u)

/* One test function per case and kind. */
#define EACH_KIND(name)                          \
    static void name##_mem_shm(void **state)     \
    {                                            \
        (void)state;                             \
        name(&pair_kinds[0]);                    \
    }                                            \
    static void name##_mem_network(void **state) \
    {                                            \
        (void)state;                             \
        name(&pair_kinds[1]);                    \
    }                                            \
    static void name##_ucx_shm(void **state)     \
    {                                            \
        (void)state;                             \
        name(&pair_kinds[2]);                    \
    }                                            \
    static void name##_ucx_network(void **state) \
    {                                            \
        (void)state;                             \
        name(&pair_kinds[3]);                    \
    }
#define TEST_EACH(name)                                   \
    BT_TEST(name##_mem_shm), BT_TEST(name##_mem_network), \
        BT_TEST(name##_ucx_shm), BT_TEST(name##_ucx_network)

static void prep(pair_t *pair, track_t *t)
{
    assert_int_equal(pair_prep(pair, t), BT_OK);
    assert_int_equal(bt_kvt_xfer_window_bytes(t->xfer), t->bytes);
}

static void post(track_t *t, uint64_t offset, uint64_t bytes)
{
    assert_int_equal(pair_post(t, offset, bytes), BT_OK);
}

static void finish(track_t *t, const char *note)
{
    assert_int_equal(bt_kvt_finish(t->xfer, note, strlen(note)), BT_OK);
}

static bool over(const track_t *t)
{
    return (t->xfer == NULL) && (t->window == NULL);
}

static bt_kvt_counters_t counters(const bt_kvt_t *kvt)
{
    bt_kvt_counters_t c;

    bt_kvt_counters(kvt, &c);
    return c;
}

/* 16 tokens of 30 layers of 3 heads of 64 f16: 30 * 2 * 3 * 16 * 64 * 2 B. */
#define BLOCK_BYTES 368640u

static void scattered_blocks_arrive_whole(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 48 * BLOCK_BYTES);
    pair_import(&pair);
    assert_string_equal(bt_kvt_peer_path(pair.peer), kind->peer_path);
    t = pair_window(&pair, 7, PAIR_SENDER, 0, BLOCK_BYTES, 2 * BLOCK_BYTES, 24);
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
    assert_int_equal(t->result.n_descriptors, 24);
    assert_true(t->result.elapsed_us > 0);
    assert_string_equal(bt_kvt_peer_path(pair.peer), kind->peer_path);
    assert_int_equal(counters(pair.sender).bytes_sent, 24 * BLOCK_BYTES);
    assert_int_equal(counters(pair.receiver).bytes_received, 24 * BLOCK_BYTES);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(scattered_blocks_arrive_whole)

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
    t = pair_window(&pair, 1, PAIR_SENDER, 13, total, 0, 1);
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

static void another_generation_is_refused(const pair_kind_t *kind)
{
    pair_t pair;
    bt_kvt_desc_t desc;
    track_t *t, *wrong;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    t = pair_window(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
    wrong = pair_window(&pair, 6, PAIR_SENDER, 4096, 4096, 8192, 8);
    /* The descriptor of 6 altered to generation 2: its window is not that. */
    assert_int_equal(bt_kvt_desc_decode(wrong->desc, wrong->desc_bytes, &desc),
                     BT_OK);
    desc.lease.generation = 2;
    assert_int_equal(bt_kvt_desc_encode(&desc, wrong->desc,
                                        BT_KVT_DESC_BYTES(8),
                                        &wrong->desc_bytes),
                     BT_OK);
    bt_free(desc.extents);

    prep(&pair, t);
    prep(&pair, wrong);
    post(wrong, 0, wrong->bytes);
    post(t, 0, t->bytes);
    finish(wrong, "");
    finish(t, "");
    PAIR_UNTIL(&pair, over(t) && (wrong->xfer == NULL));
    assert_int_equal(t->done, 1);
    assert_int_equal(wrong->xfer_status, BT_ERR_STALE);
    assert_int_equal(wrong->done + wrong->failed, 0);
    assert_int_equal(counters(pair.receiver).windows_open, 1);

    wrong->closing = true;
    bt_kvt_window_close(wrong->window);
    PAIR_UNTIL(&pair, wrong->closed);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(another_generation_is_refused)

static void a_hole_is_refused(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    t = pair_window(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
    prep(&pair, t);
    post(t, 0, 1000);
    post(t, 1001, t->bytes - 1001); /* byte 1000 is missing */
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 0);
    assert_int_equal(t->window_status, BT_ERR_BAD_MESSAGE);
    assert_int_equal(t->xfer_status, BT_ERR_BAD_MESSAGE);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(a_hole_is_refused)

static void posts_outside_or_twice_are_refused(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    t = pair_window(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
    prep(&pair, t);
    post(t, 4096, 8192);
    assert_int_equal(pair_post(t, 4096, 8192), BT_ERR_INVALID_PARAM);
    assert_int_equal(pair_post(t, 4095, 2), BT_ERR_INVALID_PARAM);
    assert_int_equal(pair_post(t, 12287, 1), BT_ERR_INVALID_PARAM);
    assert_int_equal(pair_post(t, 0, 0), BT_ERR_INVALID_PARAM);
    assert_int_equal(pair_post(t, 0, t->bytes + 1), BT_ERR_INVALID_PARAM);
    assert_int_equal(pair_post(t, t->bytes, 1), BT_ERR_INVALID_PARAM);
    assert_int_equal(pair_post(t, UINT64_MAX, 2), BT_ERR_INVALID_PARAM);
    post(t, 0, 4096);
    post(t, 12288, t->bytes - 12288);
    assert_int_equal(bt_kvt_finish(t->xfer, t->source, BT_KVT_MAX_NOTE + 1),
                     BT_ERR_TOO_LARGE);
    assert_int_equal(bt_kvt_finish(t->xfer, t->source, BT_KVT_MAX_NOTE), BT_OK);
    assert_int_equal(bt_kvt_finish(t->xfer, "", 0), BT_ERR_INVALID_PARAM);
    assert_int_equal(pair_post(t, 0, 1), BT_ERR_INVALID_PARAM);
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_int_equal(t->result.note_bytes, BT_KVT_MAX_NOTE);
    pair_close(&pair);
}
EACH_KIND(posts_outside_or_twice_are_refused)

static void flip_byte(void *user, uint8_t *bytes, size_t n)
{
    int *left = user;

    if (--*left == 0) {
        bytes[n - 1] ^= 1;
    }
}

static void a_flipped_bit_is_refused(const pair_kind_t *kind)
{
    for (int at = 1; at <= 8; at++) {
        pair_t pair;
        track_t *t;
        int left = at;

        pair_open(&pair, kind, MIB);
        pair_import(&pair);
        bt_kvt_test_verify_hook(pair.receiver, flip_byte, &left);
        t = pair_window(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
        prep(&pair, t);
        post(t, 0, t->bytes);
        finish(t, "");
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 0);
        assert_int_equal(t->window_status, BT_ERR_CORRUPT);
        assert_int_equal(t->xfer_status, BT_ERR_CORRUPT);
        assert_int_equal(counters(pair.receiver).checksum_failures, 1);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}
EACH_KIND(a_flipped_bit_is_refused)

#define MOMENTS 40

static void cancel_at_any_moment_ends_both_sides(const pair_kind_t *kind)
{
    pair_t pair;
    int canceled = 0;

    pair_open(&pair, kind, 8 * MIB);
    pair.reuses = true;
    pair_import(&pair);
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        track_t *t = pair_window(&pair, 100 + moment, PAIR_SENDER, 0, 524288,
                                 1048576, 8);

        prep(&pair, t);
        for (uint32_t i = 0; i <= moment; i++) {
            if ((i < 8) && (t->xfer != NULL)) {
                post(t, i * 524288, 524288);
            }
            if ((i == 8) && (t->xfer != NULL)) {
                finish(t, "");
            }
            (void)pair_pump(&pair);
        }
        if (t->xfer != NULL) {
            bt_kvt_cancel(t->xfer);
        }
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done + t->failed, 1);
        if (t->xfer_status == BT_ERR_CANCELED) {
            assert_true(t->done || (t->window_status == BT_ERR_CANCELED));
            canceled++;
        } else {
            assert_int_equal(t->xfer_status, BT_OK);
            assert_int_equal(t->done, 1);
        }
    }
    assert_true(canceled >= 8);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(cancel_at_any_moment_ends_both_sides)

static void revoke_at_any_moment_frees_the_bytes(const pair_kind_t *kind)
{
    pair_t pair;
    int revoked = 0;

    pair_open(&pair, kind, MOMENTS * 1048576);
    pair_import(&pair);
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        track_t *t = pair_window(&pair, 100 + moment, PAIR_SENDER,
                                 moment * 1048576, 65536, 131072, 8);

        prep(&pair, t);
        for (uint32_t i = 0; i <= moment; i++) {
            if ((i < 8) && (t->xfer != NULL)) {
                post(t, i * 65536, 65536);
            }
            if ((i == 8) && (t->xfer != NULL)) {
                finish(t, "");
            }
            (void)pair_pump(&pair);
        }
        if ((t->window != NULL) && !t->closing) {
            t->closing = true;
            bt_kvt_window_close(t->window);
        }
        PAIR_UNTIL(&pair, t->closed);
        /* One that was never finished must not wait for ever. */
        PAIR_UNTIL(&pair, t->xfer == NULL);
        if (t->done == 0) {
            assert_int_equal(t->xfer_status, BT_ERR_STALE);
            revoked++;
        }
    }
    assert_true(revoked >= 8);
    pair_assert_empty(&pair);
    pair_close(&pair); /* canaries: nobody wrote after CLOSED */
}
EACH_KIND(revoke_at_any_moment_frees_the_bytes)

static void a_descriptor_serves_once(const pair_kind_t *kind)
{
    const bool shm = strcmp(kind->peer_path, "shm") == 0;
    bt_kvt_xfer_t *again = NULL;
    pair_t pair;
    track_t *t, *revoked, *first;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    first = pair_window(&pair, 1, PAIR_SENDER, 65536, 4096, 8192, 1);
    prep(&pair, first);
    post(first, 0, 4096);
    finish(first, "");
    PAIR_UNTIL(&pair, over(first)); /* both know each other now */

    t = pair_window(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 2);
    revoked = pair_window(&pair, 6, PAIR_SENDER, 32768, 4096, 8192, 2);
    prep(&pair, t);
    assert_int_equal(
        bt_kvt_prep(pair.peer, t->desc, t->desc_bytes, NULL, &again),
        BT_ERR_EXISTS);
    post(t, 0, t->bytes);
    finish(t, "");
    revoked->closing = true;
    bt_kvt_window_close(revoked->window); /* before its prep */
    PAIR_UNTIL(&pair, over(t) && revoked->closed);

    if (shm) {
        /* By direct writing nobody could stop it: so it must not begin. */
        assert_int_equal(
            bt_kvt_prep(pair.peer, t->desc, t->desc_bytes, NULL, &again),
            BT_ERR_STALE);
        assert_int_equal(pair_prep(&pair, revoked), BT_ERR_STALE);
    } else {
        prep(&pair, revoked);
        post(revoked, 0, revoked->bytes);
        finish(revoked, "");
        PAIR_UNTIL(&pair, revoked->xfer == NULL);
        assert_int_equal(revoked->xfer_status, BT_ERR_STALE);
        assert_true(counters(pair.receiver).stale_discarded >= 2);
    }
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(a_descriptor_serves_once)

static void a_window_is_for_the_named_sender_only(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *other, *any;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    other = pair_window(&pair, 1, 999, 0, 4096, 8192, 2);
    any = pair_window(&pair, 2, 0, 65536, 4096, 8192, 2);
    prep(&pair, other);
    prep(&pair, any);
    post(other, 0, other->bytes);
    post(any, 0, any->bytes);
    finish(other, "");
    finish(any, "");
    PAIR_UNTIL(&pair, over(any) && (other->xfer == NULL));
    assert_int_equal(any->done, 1);
    assert_int_equal(other->xfer_status, BT_ERR_STALE);
    assert_int_equal(other->done + other->failed, 0);
    other->closing = true;
    bt_kvt_window_close(other->window);
    PAIR_UNTIL(&pair, other->closed);
    pair_close(&pair);
}
EACH_KIND(a_window_is_for_the_named_sender_only)

static void a_sender_that_closes_fails_its_windows(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t, *finished;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    finished = pair_window(&pair, 1, PAIR_SENDER, 0, 4096, 4096, 1);
    finished->keep_open = true;
    prep(&pair, finished);
    post(finished, 0, 4096);
    finish(finished, "");
    PAIR_UNTIL(&pair, finished->done && (finished->xfer == NULL));

    t = pair_window(&pair, 2, PAIR_SENDER, MIB, MIB, 2 * MIB, 3);
    prep(&pair, t);
    post(t, 0, 2 * MIB);
    (void)pair_pump(&pair);
    bt_kvt_close(pair.sender);
    pair.sender = NULL;
    PAIR_UNTIL(&pair, t->closed);
    assert_int_equal(t->window_status, BT_ERR_PEER_LOST);
    assert_int_equal(finished->done, 1); /* proven is proven */
    assert_int_equal(finished->failed, 0);
    finished->closing = true;
    bt_kvt_window_close(finished->window);
    PAIR_UNTIL(&pair, finished->closed);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(a_sender_that_closes_fails_its_windows)

static void a_receiver_that_closes_fails_the_transfers(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    t = pair_window(&pair, 2, PAIR_SENDER, MIB, MIB, 2 * MIB, 3);
    prep(&pair, t);
    post(t, 0, 2 * MIB);
    (void)pair_pump(&pair);
    (void)pair_pump(&pair);
    bt_kvt_close(pair.receiver);
    pair.receiver = NULL;
    PAIR_UNTIL(&pair, (t->xfer == NULL) && (pair.peers_lost == 1));
    assert_int_equal(t->xfer_status, BT_ERR_PEER_LOST);
    assert_int_equal(pair_prep(&pair, t), BT_ERR_PEER_LOST);
    bt_kvt_peer_release(pair.peer);
    assert_int_equal(counters(pair.sender).peers, 0);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(a_receiver_that_closes_fails_the_transfers)

static void releasing_a_peer_cancels_its_transfers(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    t = pair_window(&pair, 2, PAIR_SENDER, MIB, MIB, 2 * MIB, 3);
    prep(&pair, t);
    post(t, 0, 2 * MIB);
    for (int i = 0; i < 20; i++) {
        (void)pair_pump(&pair);
    }
    bt_kvt_peer_release(pair.peer);
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->xfer_status, BT_ERR_CANCELED);
    assert_int_equal(t->window_status, BT_ERR_CANCELED);

    pair_import(&pair); /* and again, over the same link */
    t = pair_window(&pair, 3, PAIR_SENDER, 0, 4096, 4096, 1);
    prep(&pair, t);
    post(t, 0, 4096);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_int_equal(pair.peers_lost, 0);
    pair_close(&pair);
}
EACH_KIND(releasing_a_peer_cancels_its_transfers)

static unsigned n_open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

static void a_thousand_windows_leave_nothing(const pair_kind_t *kind)
{
    pair_t pair;
    unsigned fds;

    pair_open(&pair, kind, MIB);
    pair.reuses = true;
    pair_import(&pair);
    fds = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        track_t *t = pair_window(&pair, 1 + i, PAIR_SENDER, (i % 8) * 65536,
                                 512, 1024, 16);

        prep(&pair, t);
        post(t, 0, t->bytes);
        if (i % 10 == 3) {
            bt_kvt_cancel(t->xfer);
        } else if (i % 10 == 7) {
            t->closing = true;
            bt_kvt_window_close(t->window);
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
    PAIR_UNTIL(&pair, counters(pair.receiver).windows_open == 0);
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
EACH_KIND(a_thousand_windows_leave_nothing)

static void both_may_send_at_once(const pair_kind_t *kind)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_extent_t extent = {.offset = 4 * MIB, .bytes = 2 * MIB};
    uint8_t desc[BT_KVT_DESC_BYTES(1)];
    bt_kvt_window_t *window = NULL;
    bt_kvt_peer_t *back = NULL;
    bt_kvt_xfer_t *xfer = NULL;
    bt_kvt_event_t event;
    size_t bytes = 0;
    int window_done = 0;
    int xfer_done = 0;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    assert_int_equal(bt_kvt_export(pair.sender, blob, sizeof(blob), &bytes),
                     BT_OK);
    assert_int_equal(bt_kvt_import(pair.receiver, blob, bytes, NULL, &back),
                     BT_OK);
    t = pair_window(&pair, 2, PAIR_SENDER, 0, MIB, MIB, 3);
    prep(&pair, t);
    assert_int_equal(bt_kvt_window_open(pair.sender, 9, 4, PAIR_RECEIVER,
                                        &extent, 1, NULL, desc, sizeof(desc),
                                        &bytes, &window),
                     BT_OK);
    assert_int_equal(bt_kvt_prep(back, desc, bytes, NULL, &xfer), BT_OK);
    post(t, 0, t->bytes);
    assert_int_equal(bt_kvt_post(xfer, pair.source, 0, 2 * MIB), BT_OK);
    assert_int_equal(bt_kvt_finish(xfer, NULL, 0), BT_OK);
    finish(t, "");

    for (int i = 0; (i < 2000000) && (!window_done || !xfer_done || !over(t));
         i++) {
        pair.now_ms++;
        pair.now_ms = pair_clock_ms(&pair);
        (void)bt_kvt_progress(pair.sender, pair.now_ms, PAIR_BUDGET);
        (void)bt_kvt_progress(pair.receiver, pair.now_ms, PAIR_BUDGET);
        while (bt_kvt_poll(pair.sender, &event)) {
            if (event.window != NULL) {
                assert_int_equal(event.status, BT_OK);
                window_done += event.type == BT_KVT_WINDOW_DONE;
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
    assert_int_equal(window_done, 1);
    assert_int_equal(xfer_done, 1);
    assert_int_equal(t->done, 1);
    assert_memory_equal((uint8_t *)bt_kvt_pool(pair.sender) + 4 * MIB,
                        pair.source, 2 * MIB);
    bt_kvt_window_close(window);
    bt_kvt_peer_release(back);
    pair_close(&pair);
}
EACH_KIND(both_may_send_at_once)

static void malformed_blobs_and_descriptors_are_refused(const pair_kind_t *kind)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_xfer_t *xfer = NULL;
    bt_kvt_peer_t *peer = NULL;
    size_t bytes = 0;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    assert_int_equal(bt_kvt_export(pair.receiver, blob, sizeof(blob), &bytes),
                     BT_OK);
    for (size_t n = 0; n < bytes; n++) {
        assert_int_equal(bt_kvt_import(pair.sender, blob, n, NULL, &peer),
                         BT_ERR_BAD_MESSAGE);
        blob[n] ^= 1;
        assert_int_equal(bt_kvt_import(pair.sender, blob, bytes, NULL, &peer),
                         BT_ERR_BAD_MESSAGE);
        blob[n] ^= 1;
    }
    t = pair_window(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 2);
    for (size_t n = 0; n < t->desc_bytes; n++) {
        assert_int_equal(bt_kvt_prep(pair.peer, t->desc, n, NULL, &xfer),
                         BT_ERR_BAD_MESSAGE);
        t->desc[n] ^= 1;
        assert_int_equal(
            bt_kvt_prep(pair.peer, t->desc, t->desc_bytes, NULL, &xfer),
            BT_ERR_BAD_MESSAGE);
        t->desc[n] ^= 1;
    }
    /* Itself is nobody to connect to. */
    assert_int_equal(bt_kvt_export(pair.sender, blob, sizeof(blob), &bytes),
                     BT_OK);
    assert_int_equal(bt_kvt_import(pair.sender, blob, bytes, NULL, &peer),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_kvt_export(pair.sender, blob, bytes - 1, &bytes),
                     BT_ERR_TOO_LARGE);
    pair_close(&pair);
}
EACH_KIND(malformed_blobs_and_descriptors_are_refused)

static bt_status_t try_window(pair_t *pair, uint64_t id,
                              const bt_kvt_extent_t *extents, uint32_t n,
                              size_t cap)
{
    static uint8_t desc[4096];
    bt_kvt_window_t *window = NULL;
    size_t bytes = 0;

    return bt_kvt_window_open(pair->receiver, id, 1, PAIR_SENDER, extents, n,
                              NULL, desc, cap, &bytes, &window);
}

static void impossible_windows_are_refused(const pair_kind_t *kind)
{
    const bt_kvt_extent_t outside = {.offset = MIB - 1, .bytes = 2};
    const bt_kvt_extent_t wraps = {.offset = UINT64_MAX, .bytes = 2};
    const bt_kvt_extent_t empty = {.offset = 5, .bytes = 0};
    const bt_kvt_extent_t twice[] = {{.offset = 4096, .bytes = 4096},
                                     {.offset = 0, .bytes = 4097}};
    const bt_kvt_extent_t good[] = {{.offset = 4096, .bytes = 4096},
                                    {.offset = 0, .bytes = 4096}};
    pair_t pair;

    pair_open(&pair, kind, MIB);
    assert_int_equal(try_window(&pair, 1, &outside, 1, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_window(&pair, 1, &wraps, 1, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_window(&pair, 1, &empty, 1, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_window(&pair, 1, twice, 2, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_window(&pair, 1, good, 0, 4096), BT_ERR_INVALID_PARAM);
    assert_int_equal(try_window(&pair, 1, good, 2, 64), BT_ERR_TOO_LARGE);
    assert_int_equal(counters(pair.receiver).windows_open, 0);
    assert_int_equal(try_window(&pair, 1, good, 2, BT_KVT_DESC_BYTES(2)),
                     BT_OK);
    assert_int_equal(try_window(&pair, 1, good, 2, 4096), BT_ERR_EXISTS);
    assert_int_equal(counters(pair.receiver).windows_open, 1);
    pair_close(&pair);
}
EACH_KIND(impossible_windows_are_refused)

static void progress_keeps_to_its_budget(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;
    uint64_t before = 0;
    bt_kvt_event_t event;

    pair_open(&pair, kind, 16 * MIB);
    pair_import(&pair);
    t = pair_window(&pair, 2, PAIR_SENDER, 0, 12 * MIB, 0, 1);
    prep(&pair, t);
    post(t, 0, t->bytes);
    for (int i = 0; (i < 1000000) && (before < t->bytes); i++) {
        uint64_t now;

        pair.now_ms++;
        pair.now_ms = pair_clock_ms(&pair);
        (void)bt_kvt_progress(pair.receiver, pair.now_ms, 1);
        (void)bt_kvt_progress(pair.sender, pair.now_ms, 1);
        now = counters(pair.sender).bytes_sent;
        assert_true(now - before <= BT_KVT_MAX_RECORD_BYTES);
        before = now;
        assert_false(bt_kvt_poll(pair.sender, &event));
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
    t = pair_window(&pair, 2, PAIR_SENDER, 0, MIB, 2 * MIB, 4);
    prep(&pair, t);
    post(t, 0, t->bytes);
    finish(t, "");
    while (!over(t)) {
        struct pollfd fds[2] = {
            {.fd = bt_kvt_fd(pair.sender), .events = POLLIN},
            {.fd = bt_kvt_fd(pair.receiver), .events = POLLIN}};

        assert_true(bt_now_ms() - start_ms < 10000);
        if (!pair_pump(&pair) && !over(t) &&
            (bt_kvt_arm(pair.sender) == BT_OK) &&
            (bt_kvt_arm(pair.receiver) == BT_OK)) {
            /* No ticks meanwhile: keepalive would hide a missed wake-up. */
            assert_int_not_equal(poll(fds, 2, 3000), 0);
            slept++;
        }
    }
    assert_int_equal(t->done, 1);
    assert_true((slept > 0) || (strcmp(kind->transport, "mem") == 0));
    pair_close(&pair);
}
EACH_KIND(sleeping_on_the_descriptor_misses_nothing)

/** Everything that makes something, with its n-th allocation failing. */
static bool try_with_failing_alloc(const pair_kind_t *kind, int nth)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    pair_t pair = {.kind = kind, .pool_bytes = MIB};
    bt_kvt_extent_t extents[3] = {{0, 4096}, {8192, 4096}, {16384, 4096}};
    uint8_t desc[BT_KVT_DESC_BYTES(3)];
    bt_kvt_t *a = NULL;
    bt_kvt_t *b = NULL;
    bt_kvt_window_t *window = NULL;
    bt_kvt_peer_t *peer = NULL;
    bt_kvt_xfer_t *xfer = NULL;
    bt_kvt_config_t config;
    size_t bytes = 0;
    bt_status_t status;

    assert_int_equal(bt_kvt_mem_net_create(&pair.net), BT_OK);
    config = pair_config(&pair, PAIR_RECEIVER);
    bt_alloc_fail_at(nth);
    status = bt_kvt_open(&config, &b);
    if (status != BT_OK) {
        goto out;
    }
    config = pair_config(&pair, PAIR_SENDER);
    status = bt_kvt_open(&config, &a);
    if (status != BT_OK) {
        goto out;
    }
    status = bt_kvt_export(b, blob, sizeof(blob), &bytes);
    if (status == BT_OK) {
        status = bt_kvt_import(a, blob, bytes, NULL, &peer);
    }
    if (status != BT_OK) {
        goto out;
    }
    status = bt_kvt_window_open(b, 1, 1, PAIR_SENDER, extents, 3, NULL, desc,
                                sizeof(desc), &bytes, &window);
    if (status != BT_OK) {
        assert_int_equal(counters(b).windows_open, 0);
        goto out;
    }
    status = bt_kvt_prep(peer, desc, bytes, NULL, &xfer);
    if (status != BT_OK) {
        assert_int_equal(counters(a).xfers_open, 0);
        goto out;
    }
    status = bt_kvt_post(xfer, &pair, 0, 512);
out:
    bt_alloc_fail_at(0);
    assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    bt_kvt_close(a);
    bt_kvt_close(b);
    bt_kvt_mem_net_destroy(pair.net);
    return status == BT_OK;
}

static void a_failing_allocation_is_a_status(const pair_kind_t *kind)
{
    int n_failed = 0;

    /* Some failures lose the link later and are no status here. */
    for (int nth = 1; nth <= 60; nth++) {
        n_failed += try_with_failing_alloc(kind, nth) ? 0 : 1;
    }
    assert_true(n_failed > 10);
    assert_true(try_with_failing_alloc(kind, 60));
}
EACH_KIND(a_failing_allocation_is_a_status)

static void bad_options_are_refused(void **state)
{
    const bt_kvt_config_t good = {.transport = "ucx",
                                  .path = BT_KVT_PATH_NETWORK,
                                  .pool_bytes = 4096,
                                  .instance = 1,
                                  .keepalive_ms = 100,
                                  .dead_ms = 1000,
                                  .quarantine_ms = 1000};
    bt_kvt_config_t config = good;
    bt_kvt_t *kvt = NULL;

    (void)state;
    bt_test_expect_log_lines(2);
    config.transport = "carrier pigeon";
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_UNSUPPORTED);
    config = good;
    config.net_device = "nosuchdevice0";
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_UNSUPPORTED);
    config = good;
    config.instance = 0;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.pool_bytes = 0;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.dead_ms = 100;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    assert_null(kvt);
    bt_kvt_close(NULL);
}

static void a_pool_too_large_for_shared_memory_uses_the_network(void **state)
{
    bt_kvt_config_t config = {.transport = "ucx",
                              .path = BT_KVT_PATH_SHM,
                              .pool_bytes = (size_t)1 << 44,
                              .instance = 1,
                              .keepalive_ms = 100,
                              .dead_ms = 1000,
                              .quarantine_ms = 1000};
    bt_kvt_t *kvt = NULL;

    (void)state;
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_NO_MEMORY);
    assert_null(kvt);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST_EACH(scattered_blocks_arrive_whole),
        TEST_EACH(pieces_of_any_size_arrive),
        TEST_EACH(another_generation_is_refused),
        TEST_EACH(a_hole_is_refused),
        TEST_EACH(posts_outside_or_twice_are_refused),
        TEST_EACH(a_flipped_bit_is_refused),
        TEST_EACH(cancel_at_any_moment_ends_both_sides),
        TEST_EACH(revoke_at_any_moment_frees_the_bytes),
        TEST_EACH(a_descriptor_serves_once),
        TEST_EACH(a_window_is_for_the_named_sender_only),
        TEST_EACH(a_sender_that_closes_fails_its_windows),
        TEST_EACH(a_receiver_that_closes_fails_the_transfers),
        TEST_EACH(releasing_a_peer_cancels_its_transfers),
        TEST_EACH(a_thousand_windows_leave_nothing),
        TEST_EACH(both_may_send_at_once),
        TEST_EACH(malformed_blobs_and_descriptors_are_refused),
        TEST_EACH(impossible_windows_are_refused),
        TEST_EACH(progress_keeps_to_its_budget),
        TEST_EACH(sleeping_on_the_descriptor_misses_nothing),
        TEST_EACH(a_failing_allocation_is_a_status),
        BT_TEST(bad_options_are_refused),
        BT_TEST(a_pool_too_large_for_shared_memory_uses_the_network),
    };

    bt_log_init("test_kvt_contract", BT_LOG_LEVEL_ERROR);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
