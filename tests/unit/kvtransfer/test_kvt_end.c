/* SPDX-License-Identifier: Apache-2.0 */
/* What kvt.h promises when somebody stops before the end, on every transport
 * and path. */
#include "common/base/log.h"
#include "tests/unit/kvtransfer/each_kind.h"

#define MOMENTS 40

static void cancel_at_any_moment_ends_both_sides(const pair_kind_t *kind)
{
    pair_t pair;
    int canceled = 0;

    pair_open(&pair, kind, 8 * MIB);
    pair.reuses = true;
    pair_import(&pair);
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        track_t *t = pair_region(&pair, 100 + moment, PAIR_SENDER, 0, 524288,
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
            assert_true(t->done || (t->region_status == BT_ERR_CANCELED));
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
        track_t *t = pair_region(&pair, 100 + moment, PAIR_SENDER,
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
        if ((t->region != NULL) && !t->closing) {
            t->closing = true;
            bt_kvt_region_close(t->region);
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

static void a_sender_that_closes_fails_its_regions(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t, *finished;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    finished = pair_region(&pair, 1, PAIR_SENDER, 0, 4096, 4096, 1);
    finished->keep_open = true;
    prep(&pair, finished);
    post(finished, 0, 4096);
    finish(finished, "");
    PAIR_UNTIL(&pair, finished->done && (finished->xfer == NULL));

    t = pair_region(&pair, 2, PAIR_SENDER, MIB, MIB, 2 * MIB, 3);
    prep(&pair, t);
    post(t, 0, 2 * MIB);
    (void)pair_pump(&pair);
    bt_kvt_close(pair.sender);
    pair.sender = NULL;
    PAIR_UNTIL(&pair, t->closed);
    assert_int_equal(t->region_status, BT_ERR_PEER_LOST);
    assert_int_equal(finished->done, 1); /* proven is proven */
    assert_int_equal(finished->failed, 0);
    finished->closing = true;
    bt_kvt_region_close(finished->region);
    PAIR_UNTIL(&pair, finished->closed);
    pair_assert_empty(&pair);
    pair_close(&pair);
}
EACH_KIND(a_sender_that_closes_fails_its_regions)

static void a_receiver_that_closes_fails_the_transfers(const pair_kind_t *kind)
{
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 8 * MIB);
    pair_import(&pair);
    t = pair_region(&pair, 2, PAIR_SENDER, MIB, MIB, 2 * MIB, 3);
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
    t = pair_region(&pair, 2, PAIR_SENDER, MIB, MIB, 2 * MIB, 3);
    prep(&pair, t);
    post(t, 0, 2 * MIB);
    for (int i = 0; i < 20; i++) {
        (void)pair_pump(&pair);
    }
    bt_kvt_peer_release(pair.peer);
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->xfer_status, BT_ERR_CANCELED);
    assert_int_equal(t->region_status, BT_ERR_CANCELED);

    pair_import(&pair); /* and again, over the same link */
    t = pair_region(&pair, 3, PAIR_SENDER, 0, 4096, 4096, 1);
    prep(&pair, t);
    post(t, 0, 4096);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_int_equal(pair.peers_lost, 0);
    pair_close(&pair);
}
EACH_KIND(releasing_a_peer_cancels_its_transfers)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST_EACH(cancel_at_any_moment_ends_both_sides),
        TEST_EACH(revoke_at_any_moment_frees_the_bytes),
        TEST_EACH(a_sender_that_closes_fails_its_regions),
        TEST_EACH(a_receiver_that_closes_fails_the_transfers),
        TEST_EACH(releasing_a_peer_cancels_its_transfers),
    };

    bt_log_init("test_kvt_end", BT_LOG_LEVEL_ERROR);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
