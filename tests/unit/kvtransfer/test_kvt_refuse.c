/* SPDX-License-Identifier: Apache-2.0 */
/* What kvt.h promises to refuse, on every transport and path. */
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/before_check.h"
#include "tests/unit/kvtransfer/each_kind.h"

static void another_generation_is_refused(const pair_kind_t *kind)
{
    pair_t pair;
    bt_kvt_desc_t desc = {0};
    track_t *t, *wrong;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
    wrong = pair_region(&pair, 6, PAIR_SENDER, 4096, 4096, 8192, 8);
    /* The descriptor of 6 altered to generation 2: its region is not that. */
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
    assert_int_equal(counters(pair.receiver).regions_open, 1);

    wrong->closing = true;
    bt_kvt_region_close(wrong->region);
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
    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
    prep(&pair, t);
    post(t, 0, 1000);
    post(t, 1001, t->bytes - 1001); /* byte 1000 is missing */
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 0);
    assert_int_equal(t->region_status, BT_ERR_BAD_MESSAGE);
    assert_int_equal(t->xfer_status, BT_ERR_BAD_MESSAGE);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(a_hole_is_refused)

/* Found by fuzzing: an empty one ended the process. */
static void pieces_empty_or_outside_are_discarded(const pair_kind_t *kind)
{
    static const uint64_t ranges[][2] = {
        {0, 0},          {4096, 0},       {8192, 0},    {UINT64_MAX, 0},
        {4095, 2},       {8191, 2},       {8192, 1},    {0, 8193},
        {1, UINT64_MAX}, {UINT64_MAX, 1}, {0, 1u << 31}};
    uint8_t header[BT_KVT_PIECE_BYTES];
    bt_kvt_region_t *region = NULL;
    bt_kvt_piece_t taken;
    bt_kvt_desc_t desc = {0};
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, MIB);
    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 2);
    assert_int_equal(bt_kvt_desc_decode(t->desc, t->desc_bytes, &desc), BT_OK);
    for (size_t i = 0; i < BT_ARRAY_LEN(ranges); i++) {
        bt_kvt_piece_t piece = {.from = PAIR_SENDER,
                                .lease = desc.lease,
                                .offset = ranges[i][0],
                                .bytes = ranges[i][1]};

        memcpy(piece.secret, desc.secret, sizeof(piece.secret));
        bt_kvt_piece_encode(&piece, header);
        assert_null(bt_kvt_region_take(pair.receiver, header, sizeof(header),
                                       piece.bytes, &taken, &region));
        assert_int_equal(counters(pair.receiver).stale_discarded, i + 1);
    }
    assert_null(region);
    bt_free(desc.extents);
    t->closing = true;
    bt_kvt_region_close(t->region);
    PAIR_UNTIL(&pair, t->closed);
    pair_close(&pair);
}
EACH_KIND(pieces_empty_or_outside_are_discarded)

/* Every bit of the secret counts, and guesses are written nowhere. */
static void pieces_without_the_secret_are_counted(const pair_kind_t *kind)
{
    uint8_t header[BT_KVT_PIECE_BYTES];
    bt_kvt_region_t *region = NULL;
    bt_kvt_piece_t piece = {.from = PAIR_SENDER, .bytes = 4096};
    bt_kvt_piece_t taken;
    bt_kvt_desc_t desc = {0};
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 2);
    assert_int_equal(bt_kvt_desc_decode(t->desc, t->desc_bytes, &desc), BT_OK);
    piece.lease = desc.lease;
    for (size_t bit = 0; bit < 8 * sizeof(piece.secret); bit++) {
        memcpy(piece.secret, desc.secret, sizeof(piece.secret));
        piece.secret[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        bt_kvt_piece_encode(&piece, header);
        assert_null(bt_kvt_region_take(pair.receiver, header, sizeof(header),
                                       piece.bytes, &taken, &region));
        assert_int_equal(counters(pair.receiver).foreign_pieces, bit + 1);
    }
    assert_int_equal(counters(pair.receiver).stale_discarded, 0);
    bt_free(desc.extents);

    prep(&pair, t); /* nothing was taken of the region meanwhile */
    post(t, 0, t->bytes);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    pair_close(&pair);
}
EACH_KIND(pieces_without_the_secret_are_counted)

static void regions_have_secrets_of_their_own(const pair_kind_t *kind)
{
    bt_kvt_desc_t a = {0};
    bt_kvt_desc_t b = {0};
    pair_t pair;
    track_t *t, *u;

    pair_open(&pair, kind, MIB);
    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 2);
    u = pair_region(&pair, 6, PAIR_SENDER, 65536, 4096, 8192, 2);
    assert_int_equal(bt_kvt_desc_decode(t->desc, t->desc_bytes, &a), BT_OK);
    assert_int_equal(bt_kvt_desc_decode(u->desc, u->desc_bytes, &b), BT_OK);
    assert_memory_not_equal(a.secret, b.secret, sizeof(a.secret));
    bt_free(a.extents);
    bt_free(b.extents);
    t->closing = true;
    u->closing = true;
    pair_close(&pair);
}
EACH_KIND(regions_have_secrets_of_their_own)

static void posts_outside_or_twice_are_refused(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
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
        before_check_set(pair.receiver, flip_byte, &left);
        pair.receiver_device.see_checked = flip_byte;
        pair.receiver_device.see_user = &left;
        t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 8);
        prep(&pair, t);
        post(t, 0, t->bytes);
        finish(t, "");
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 0);
        assert_int_equal(t->region_status, BT_ERR_CORRUPT);
        assert_int_equal(t->xfer_status, BT_ERR_CORRUPT);
        assert_int_equal(counters(pair.receiver).checksum_failures, 1);
        pair_assert_empty(&pair);
        before_check_set(NULL, NULL, NULL);
        pair_close(&pair);
    }
}
EACH_KIND(a_flipped_bit_is_refused)

static void a_descriptor_serves_once(const pair_kind_t *kind)
{
    const bool direct = strcmp(kind->peer_path, "network") != 0;
    bt_kvt_xfer_t *again = NULL;
    pair_t pair;
    track_t *t, *revoked, *first;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    first = pair_region(&pair, 1, PAIR_SENDER, 65536, 4096, 8192, 1);
    prep(&pair, first);
    post(first, 0, 4096);
    finish(first, "");
    PAIR_UNTIL(&pair, over(first)); /* both know each other now */

    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 2);
    revoked = pair_region(&pair, 6, PAIR_SENDER, 32768, 4096, 8192, 2);
    prep(&pair, t);
    assert_int_equal(
        bt_kvt_prep(pair.peer, t->desc, t->desc_bytes, NULL, &again),
        BT_ERR_EXISTS);
    post(t, 0, t->bytes);
    finish(t, "");
    revoked->closing = true;
    bt_kvt_region_close(revoked->region); /* before its prep */
    PAIR_UNTIL(&pair, over(t) && revoked->closed);

    if (direct) {
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

static void a_region_is_for_the_named_sender_only(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *other, *any;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    other = pair_region(&pair, 1, 999, 0, 4096, 8192, 2);
    any = pair_region(&pair, 2, 0, 65536, 4096, 8192, 2);
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
    bt_kvt_region_close(other->region);
    PAIR_UNTIL(&pair, other->closed);
    pair_close(&pair);
}
EACH_KIND(a_region_is_for_the_named_sender_only)

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
    t = pair_region(&pair, 5, PAIR_SENDER, 0, 4096, 8192, 2);
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

static bt_status_t try_region(pair_t *pair, uint64_t id,
                              const bt_kvt_extent_t *extents, uint32_t n,
                              size_t cap)
{
    static uint8_t desc[4096];
    bt_kvt_region_t *region = NULL;
    size_t bytes = 0;

    return bt_kvt_region_open(pair->receiver, id, 1, PAIR_SENDER, extents, n,
                              NULL, desc, cap, &bytes, &region);
}

static void impossible_regions_are_refused(const pair_kind_t *kind)
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
    assert_int_equal(try_region(&pair, 1, &outside, 1, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_region(&pair, 1, &wraps, 1, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_region(&pair, 1, &empty, 1, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_region(&pair, 1, twice, 2, 4096),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(try_region(&pair, 1, good, 0, 4096), BT_ERR_INVALID_PARAM);
    assert_int_equal(try_region(&pair, 1, good, 2, 64), BT_ERR_TOO_LARGE);
    assert_int_equal(counters(pair.receiver).regions_open, 0);
    assert_int_equal(try_region(&pair, 1, good, 2, BT_KVT_DESC_BYTES(2)),
                     BT_OK);
    assert_int_equal(try_region(&pair, 1, good, 2, 4096), BT_ERR_EXISTS);
    assert_int_equal(counters(pair.receiver).regions_open, 1);
    pair_close(&pair);
}
EACH_KIND(impossible_regions_are_refused)

/** Everything that makes something, with its n-th allocation failing.
 *  @param [out] reached_p  whether there were so many
 *  @return whether all was made */
static bool try_with_failing_alloc(const pair_kind_t *kind, int nth,
                                   bool *reached_p)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    pair_t pair = {.kind = kind, .pool_bytes = MIB};
    bt_kvt_extent_t extents[3] = {{0, 4096}, {8192, 4096}, {16384, 4096}};
    uint8_t desc[BT_KVT_DESC_BYTES(3)];
    bt_kvt_t *a = NULL;
    bt_kvt_t *b = NULL;
    bt_kvt_region_t *region = NULL;
    bt_kvt_peer_t *peer = NULL;
    bt_kvt_xfer_t *xfer = NULL;
    size_t bytes = 0;
    bt_status_t status;

    assert_int_equal(bt_kvt_mem_net_create(&pair.net), BT_OK);
    pair_devices_open(&pair, kind, pair.pool_bytes);
    bt_alloc_fail_at(nth);
    status = pair_kvt_open(&pair, PAIR_RECEIVER, &b);
    if (status != BT_OK) {
        goto out;
    }
    status = pair_kvt_open(&pair, PAIR_SENDER, &a);
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
    status = bt_kvt_region_open(b, 1, 1, PAIR_SENDER, extents, 3, NULL, desc,
                                sizeof(desc), &bytes, &region);
    if (status != BT_OK) {
        assert_int_equal(counters(b).regions_open, 0);
        goto out;
    }
    status = bt_kvt_prep(peer, desc, bytes, NULL, &xfer);
    if (status != BT_OK) {
        assert_int_equal(counters(a).xfers_open, 0);
        goto out;
    }
    status = bt_kvt_post(xfer, &pair, 0, 512);
out:
    *reached_p = bt_alloc_fail_at(0) <= 0;
    assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    bt_kvt_close(a);
    bt_kvt_close(b);
    host_enter(HOST_OWN);
    bt_kvt_mem_net_destroy(pair.net);
    pair_devices_close(&pair);
    return status == BT_OK;
}

static void a_failing_allocation_is_a_status(const pair_kind_t *kind)
{
    const bool ucx = kind->transport == &bt_kvt_transport_ucx;
    bool reached = true, whole = false;
    int n_failed = 0;

    if (ucx && (kind->staged_sender != kind->staged_receiver ||
                (kind->path != BT_KVT_PATH_SHM && !kind->staged_sender))) {
        return; /* allocates what other kinds do, 100 ms for each of them */
    }
    /* Memory for slots is named in the log. */
    bt_test_expect_log_lines((kind->staged_sender ? 1u : 0u) +
                             (kind->staged_receiver ? 1u : 0u));
    /* Some failures lose the link later and are no status here. */
    for (int nth = 1; reached; nth++) {
        whole = try_with_failing_alloc(kind, nth, &reached);
        n_failed += whole ? 0 : 1;
    }
    assert_true(whole); /* that one had no failure */
    assert_true(n_failed > 10);
}
EACH_KIND(a_failing_allocation_is_a_status)

static void bad_kvt_options_are_refused(void **state)
{
    const bt_kvt_config_t good = {.transport = &bt_kvt_transport_ucx,
                                  .path = BT_KVT_PATH_NETWORK,
                                  .pool_bytes = 4096,
                                  .instance = 1,
                                  .keepalive_ms = 100,
                                  .dead_ms = 1000,
                                  .quarantine_ms = 1000};
    bt_kvt_config_t config = good;
    bt_kvt_t *kvt = NULL;

    (void)state;
    bt_test_expect_log_lines(1);
    config.transport = NULL;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
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

static void pool_over_shared_memory_uses_the_network(void **state)
{
    bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
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
        TEST_EACH(another_generation_is_refused),
        TEST_EACH(a_hole_is_refused),
        TEST_EACH(pieces_empty_or_outside_are_discarded),
        TEST_EACH(pieces_without_the_secret_are_counted),
        TEST_EACH(regions_have_secrets_of_their_own),
        TEST_EACH(posts_outside_or_twice_are_refused),
        TEST_EACH(a_flipped_bit_is_refused),
        TEST_EACH(a_descriptor_serves_once),
        TEST_EACH(a_region_is_for_the_named_sender_only),
        TEST_EACH(malformed_blobs_and_descriptors_are_refused),
        TEST_EACH(impossible_regions_are_refused),
        TEST_EACH(a_failing_allocation_is_a_status),
        BT_TEST(bad_kvt_options_are_refused),
        BT_TEST(pool_over_shared_memory_uses_the_network),
    };

    bt_log_init("test_kvt_refuse", BT_LOG_LEVEL_ERROR);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
