/* SPDX-License-Identifier: Apache-2.0 */
/* One bit of anything that is transferred is flipped, at random and thousands
 * of times: it must be refused each time, and no region may be reported done
 * with it.
 *
 *   export, descriptor   on their way by the control plane
 *   message, manifest    on their way, either way; a manifest is a PART
 *   header, data         of a piece on its way; through shared memory the data
 *                        is in place then
 *   landed               in the receiver's memory, after it came whole and
 *                        before it is verified
 *
 * Flips are made between the protocol and its transport, so that they are the
 * same for all transports.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/support/draw.h"
#include "tests/unit/kvtransfer/before_check.h"
#include "tests/unit/kvtransfer/each_kind.h"

#define N_EXTENTS 8u
#define SEED      20260904u

/* More than 10,000, most where they are quick. */
static const uint32_t n_flips[PAIR_N_KINDS] = {
    [PAIR_MEM_SHM] = 4200,        [PAIR_MEM_NETWORK] = 4200,
    [PAIR_UCX_SHM] = 800,         [PAIR_UCX_NETWORK] = 800,
    [PAIR_UCX_HOSTS] = 400,       [PAIR_MEM_STAGED] = 400,
    [PAIR_MEM_STAGED_SHM] = 400,  [PAIR_MEM_HOST_STAGED] = 400,
    [PAIR_UCX_STAGED] = 120,      [PAIR_UCX_STAGED_SHM] = 120,
    [PAIR_UCX_HOST_STAGED] = 120, [PAIR_UCX_STAGED_NETWORK] = 120,
    [PAIR_MEM_SHARED] = 400,      [PAIR_UCX_SHARED] = 120,
};

typedef enum target {
    FLIP_DATA,
    FLIP_LANDED,
    FLIP_MANIFEST,
    FLIP_HEADER, /* network only */
    FLIP_MESSAGE,
    FLIP_DESC,
    FLIP_EXPORT,
    FLIP_N
} target_t;

static const char *const target_names[FLIP_N] = {
    "data",    "landed data", "manifest", "piece header",
    "message", "descriptor",  "export"};
/* Of each 20; without pieces their headers' share is data. */
static const uint32_t shares[FLIP_N] = {6, 4, 4, 2, 2, 1, 1};

/* What the sides say to each other depends on how it ends. */
typedef enum life { LIFE_WHOLE, LIFE_REVOKED, LIFE_CANCELLED, LIFE_N } life_t;

static struct {
    uint64_t random;
    bool armed;
    target_t target;
    uint32_t left;   /* of this target until it is flipped */
    uint32_t n_seen; /* messages */
    bool flipped;
    const bt_kvt_transport_t *real;
    bt_kvt_transport_t ops;
    uint8_t copy[BT_KVT_MAX_RECORD_BYTES]; /* of data on its way */
    uint8_t message[BT_KVT_MAX_MSG];
} flip;

static struct {
    uint32_t n_flips, n_refused;
} total;

static uint64_t draw(uint64_t n)
{
    return draw_below(&flip.random, n);
}

static void flip_bit(uint8_t *bytes, size_t n)
{
    bytes[draw(n)] ^= (uint8_t)(1u << draw(8));
    flip.armed = false;
    flip.flipped = true;
}

static bool hit(target_t target)
{
    return flip.armed && (flip.target == target) && (--flip.left == 0);
}

/* ---- between the protocol and the transport ---- */

static bt_status_t send_flipped(bt_kvt_link_t *link, const void *msg,
                                size_t bytes)
{
    bt_kvt_msg_t decoded;
    target_t target;

    assert_int_equal(bt_kvt_msg_decode(msg, bytes, &decoded), BT_OK);
    target = (decoded.type == BT_KVT_MSG_PART) ? FLIP_MANIFEST : FLIP_MESSAGE;
    flip.n_seen += (target == FLIP_MESSAGE) ? 1 : 0;
    if (!hit(target)) {
        return flip.real->send(link, msg, bytes);
    }
    memcpy(flip.message, msg, bytes);
    flip_bit(flip.message, bytes);
    return flip.real->send(link, flip.message, bytes);
}

static bt_status_t data_flipped(bt_kvt_xfer_t *xfer,
                                const uint8_t header[BT_KVT_PIECE_BYTES],
                                const void *src, size_t bytes,
                                bt_kvt_slot_t *slot)
{
    uint8_t other[BT_KVT_PIECE_BYTES];

    if (hit(FLIP_HEADER)) {
        memcpy(other, header, sizeof(other));
        flip_bit(other, sizeof(other));
        return flip.real->send_data(xfer, other, src, bytes, slot);
    }
    if (hit(FLIP_DATA)) {
        /* The transfer is over before the next flip, so the copy lives. */
        memcpy(flip.copy, src, bytes);
        flip_bit(flip.copy, bytes);
        src = flip.copy;
    }
    return flip.real->send_data(xfer, header, src, bytes, slot);
}

static uint64_t copy_flipped(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                             uint32_t n_pieces, uint64_t seed)
{
    const uint64_t hash = flip.real->copy(link, pieces, n_pieces, seed);

    for (uint32_t i = 0; i < n_pieces; i++) { /* one of them after all */
        if (hit(FLIP_DATA)) {
            flip_bit(pieces[i].dst, pieces[i].n);
        }
    }
    return hash;
}

static void landed_flipped(void *user, uint8_t *bytes, size_t n)
{
    (void)user;
    if (hit(FLIP_LANDED)) {
        flip_bit(bytes, n);
    }
}

static void copied_flipped(void *user, uint8_t *bytes, size_t n)
{
    (void)user;
    if (hit(FLIP_DATA)) {
        flip_bit(bytes, n);
    }
}

/* ---- one region ---- */

static void flips_open(pair_t *pair, const pair_kind_t *kind)
{
    pair_open(pair, kind,
              (kind->transport == &bt_kvt_transport_mem) ? 16384 : 2 * MIB);
    pair->reuses = true;
    flip.real = pair->sender->ops;
    flip.ops = *flip.real;
    flip.ops.send = send_flipped;
    flip.ops.send_data = data_flipped;
    flip.ops.copy = copy_flipped;
    pair->sender->ops = &flip.ops;
    pair->receiver->ops = &flip.ops;
    before_check_set(pair->receiver, landed_flipped, NULL);
    pair->receiver_device.see_checked = landed_flipped;
    pair->sender_device.see_copied = copied_flipped;
}

static void flips_close(pair_t *pair)
{
    if (pair->peer != NULL) {
        bt_kvt_peer_release(pair->peer);
    }
    pair_assert_empty(pair);
    before_check_set(NULL, NULL, NULL);
    pair_close(pair);
}

static void give_up(pair_t *pair, track_t *t)
{
    if (t->xfer != NULL) {
        bt_kvt_cancel(t->xfer);
    }
    if ((t->region != NULL) && !t->closing) {
        t->closing = true;
        bt_kvt_region_close(t->region);
    }
    PAIR_UNTIL(pair, over(t));
}

/** How often what @a target is was refused so far; messages are named in the
 *  log. */
static uint64_t n_refused(const pair_t *pair, target_t target)
{
    switch (target) {
    case FLIP_MANIFEST:
    case FLIP_MESSAGE:
        return bt_log_count(BT_LOG_LEVEL_WARN);
    case FLIP_HEADER:
        return counters(pair->receiver).stale_discarded;
    default:
        return counters(pair->receiver).checksum_failures;
    }
}

/** Whether a flip in it ends its region and transfer as corrupt. */
static bool ends_corrupt(target_t target)
{
    return (target == FLIP_DATA) || (target == FLIP_LANDED);
}

/** A region's life; the flip may come in it. */
static void live(pair_t *pair, track_t *t, life_t life)
{
    const uint64_t before = n_refused(pair, flip.target);
    const uint64_t start_ms = pair_clock_ms(pair);

    post(t, 0, t->bytes);
    if (life == LIFE_WHOLE) {
        finish(t, "token 42");
    } else if (life == LIFE_REVOKED) {
        (void)pair_pump(pair);
        t->closing = true;
        bt_kvt_region_close(t->region);
    } else {
        (void)pair_pump(pair);
        bt_kvt_cancel(t->xfer);
    }
    while ((flip.flipped || !over(t)) &&
           (n_refused(pair, flip.target) == before)) {
        (void)pair_pump(pair);
        if (pair_clock_ms(pair) - start_ms > pair_patience_ms(pair)) {
            fail_msg("%s: a flip in a %s went unseen", pair->kind->name,
                     target_names[flip.target]);
        }
    }
    if (flip.flipped && ends_corrupt(flip.target)) {
        PAIR_UNTIL(pair, over(t)); /* however long the refusal takes */
    }
    /* What was dropped is missing for ever, or is said again. */
    for (int i = 0; (i < 20) && !over(t); i++) {
        (void)pair_pump(pair);
    }
    give_up(pair, t);
}

static track_t *region(pair_t *pair)
{
    const bool large =
        (pair->kind->transport == &bt_kvt_transport_ucx) && (draw(4) == 0);
    const uint32_t bytes = large ? 65536 : 512;

    return pair_region(pair, 1 + pair->n_tracks, PAIR_SENDER, 0, bytes,
                       2 * bytes, N_EXTENTS);
}

/** @return messages other than manifests in a new pair's region */
static uint32_t messages_of(const pair_kind_t *kind, life_t life)
{
    pair_t pair;
    track_t *t;

    flip.armed = false;
    flip.flipped = false;
    flip.target = FLIP_DATA;
    flip.n_seen = 0;
    flips_open(&pair, kind);
    t = region(&pair); /* before they know each other: BEGIN, too */
    pair_import(&pair);
    prep(&pair, t);
    live(&pair, t, life);
    assert_true((life != LIFE_WHOLE) || (t->done == 1));
    flips_close(&pair);
    return flip.n_seen;
}

static target_t target_draw(const pair_kind_t *kind)
{
    uint64_t at = draw(20);
    target_t target = FLIP_DATA;

    while (at >= shares[target]) {
        at -= shares[target++];
    }
    return ((target == FLIP_HEADER) &&
            (strcmp(kind->peer_path, "network") != 0))
               ? FLIP_DATA
               : target;
}

static void export_flipped(const pair_t *pair)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_peer_t *peer = NULL;
    size_t bytes = 0;

    assert_int_equal(bt_kvt_export(pair->receiver, blob, sizeof(blob), &bytes),
                     BT_OK);
    flip_bit(blob, bytes);
    assert_int_equal(bt_kvt_import(pair->sender, blob, bytes, NULL, &peer),
                     BT_ERR_BAD_MESSAGE);
}

static void desc_flipped(pair_t *pair, track_t *t)
{
    flip_bit(t->desc, t->desc_bytes);
    assert_int_equal(pair_prep(pair, t), BT_ERR_BAD_MESSAGE);
    give_up(pair, t);
}

/** One flip in @a pair, whose peer may be new. @return false: it did not come
 *  to it, the region was through before */
static bool one_flip(pair_t *pair, target_t target, uint32_t n_messages)
{
    const life_t life =
        (target == FLIP_MESSAGE) ? (life_t)draw(LIFE_N) : LIFE_WHOLE;
    uint64_t before;
    track_t *t;

    flip.flipped = false;
    flip.target = target;
    if (target == FLIP_EXPORT) {
        export_flipped(pair);
        return true;
    }
    t = region(pair);
    if (target == FLIP_DESC) {
        if (pair->peer == NULL) {
            pair_import(pair);
        }
        desc_flipped(pair, t);
        return true;
    }

    flip.left = 1 + (uint32_t)draw((target == FLIP_MANIFEST)  ? 1
                                   : (target == FLIP_MESSAGE) ? n_messages
                                                              : N_EXTENTS);
    flip.armed = true;
    before = n_refused(pair, target);
    if (pair->peer == NULL) {
        pair_import(pair);
    }
    prep(pair, t);
    live(pair, t, life);
    if (!flip.flipped) {
        flip.armed = false;
        return false;
    }
    if (ends_corrupt(target)) {
        assert_int_equal(n_refused(pair, target), before + 1);
    } else {
        /* A starved link is given up and made anew; what was under way is
         * refused as well. */
        assert_true(n_refused(pair, target) > before);
    }
    assert_true((target == FLIP_MESSAGE) || (t->done == 0));
    if (ends_corrupt(target)) {
        assert_int_equal(t->region_status, BT_ERR_CORRUPT);
        assert_int_equal(t->xfer_status, BT_ERR_CORRUPT);
    }
    return true;
}

static void a_flipped_bit_is_never_taken(const pair_kind_t *kind)
{
    const uint32_t n = n_flips[kind - pair_kinds];
    const unsigned long warned = bt_log_count(BT_LOG_LEVEL_WARN);
    /* To make a pair of UCX costs more than a region. */
    const uint32_t per_pair =
        (kind->transport == &bt_kvt_transport_mem) ? 1 : 40;
    uint32_t by_target[FLIP_N] = {0};
    uint32_t n_messages = 0;
    uint32_t done = 0;

    flip.random = SEED;
    for (life_t life = LIFE_WHOLE; life < LIFE_N; life++) {
        const uint32_t seen = messages_of(kind, life);

        n_messages = (seen > n_messages) ? seen : n_messages;
    }
    total.n_flips += n;
    while (done < n) {
        pair_t pair;

        flips_open(&pair, kind);
        for (uint32_t i = 0; (i < per_pair) && (done < n); i++) {
            const target_t target = target_draw(kind);

            if (one_flip(&pair, target, n_messages)) {
                by_target[target]++;
                done++;
            }
        }
        flips_close(&pair);
    }
    total.n_refused += done;
    printf("%s: %u flips, %u refused, 0 decoded:", kind->name, n, done);
    for (target_t target = 0; target < FLIP_N; target++) {
        printf(" %s %u", target_names[target], by_target[target]);
        assert_true((by_target[target] > 0) || (target == FLIP_HEADER));
    }
    printf(" (seed %u)\n", SEED);
    /* Each altered message and piece is named in the log at most once. */
    assert_true(bt_log_count(BT_LOG_LEVEL_WARN) - warned <= n);
    bt_test_expect_log_lines(bt_log_count(BT_LOG_LEVEL_WARN) - warned);
}
EACH_KIND(a_flipped_bit_is_never_taken)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST_EACH(a_flipped_bit_is_never_taken),
    };

    int n_failed;

    bt_log_init("test_kvt_flips", BT_LOG_LEVEL_ERROR);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%u flips, %u refused\n", total.n_flips, total.n_refused);
    return n_failed;
}
