/* SPDX-License-Identifier: Apache-2.0 */
/* Staged pools when somebody stops or a copy fails: nobody is told, and nobody
 * gets bytes back, before the device is done with them; slots are free again
 * whatever happens. */
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_ucx_priv.h"
#include "tests/unit/kvtransfer/stage.h"

/* ---- nobody is told before the device is done ---- */

static void region_completes_after_its_last_device_copy(void **state)
{
    static const uint32_t numbers[] = {PAIR_MEM_STAGED, PAIR_MEM_HOST_STAGED};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        pair_t pair;
        track_t *t;

        open_with(&pair, numbers[i], 2 * MIB, 0);
        pair.receiver_device.withheld = true;
        t = begin(&pair, 1, 0, MIB);
        finish(t, "");
        rounds(&pair, ROUNDS);
        assert_int_equal(pair.receiver_device.n_under_way, MIB / SLOT);
        assert_int_equal(t->done + t->failed + t->xfer_done, 0);
        pair.receiver_device.withheld = false;
        PAIR_UNTIL(&pair, over(t));
        assert_int_equal(t->done, 1);
        pair_close(&pair);
    }
}

static void running_copy_keeps_a_revoked_region_quarantined(void **state)
{
    static const uint32_t numbers[] = {PAIR_MEM_HOST_STAGED,
                                       PAIR_UCX_HOST_STAGED};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        pair_t pair;
        track_t *t;

        open_with(&pair, numbers[i], 2 * MIB, 0);
        pair.receiver_device.withheld = true;
        t = begin(&pair, 1, 0, MIB);
        PAIR_UNTIL(&pair, pair.receiver_device.n_under_way == MIB / SLOT);
        close_region(t);
        assert_int_equal(counters(pair.receiver).regions_quarantined, 1);
        PAIR_UNTIL(&pair, t->xfer == NULL);
        assert_int_equal(t->xfer_status, BT_ERR_STALE);
        rounds(&pair, ROUNDS);
        assert_int_equal(t->closed, 0);
        pair.receiver_device.withheld = false;
        PAIR_UNTIL(&pair, t->closed);
        pair_assert_empty(&pair);
        pair_close(&pair); /* canaries: nothing was written after CLOSED */
    }
}

static void unresponsive_device_is_named_in_the_log(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_HOST_STAGED, 2 * MIB, 0);
    pair.receiver_device.withheld = true;
    t = begin(&pair, 1, 0, SLOT);
    PAIR_UNTIL(&pair, pair.receiver_device.n_under_way == 1);
    close_region(t);
    bt_test_expect_log_lines(1);
    rounds(&pair, 2500); /* quarantine_ms is 2000 */
    assert_int_equal(t->closed + t->stuck, 0);
    pair.receiver_device.withheld = false;
    PAIR_UNTIL(&pair, t->closed);
    pair_close(&pair);
}

static void region_of_a_dead_sender_waits_only_for_the_own_device(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_STAGED, 2 * MIB, 0);
    pair.receiver_device.withheld = true;
    t = begin(&pair, 1, 0, MIB);
    PAIR_UNTIL(&pair, pair.receiver_device.n_under_way > 1);
    bt_kvt_mem_net_kill(pair.net, PAIR_SENDER);
    PAIR_UNTIL(&pair, t->failed);
    assert_int_equal(t->region_status, BT_ERR_PEER_LOST);
    rounds(&pair, ROUNDS);
    assert_int_equal(t->closed, 0);
    pair.receiver_device.withheld = false;
    PAIR_UNTIL(&pair, t->closed);
    assert_int_equal(counters(pair.receiver).stage_slots, 0);
    pair_close(&pair);
}

static void cancelled_source_is_held_until_the_device_copy_ends(void **state)
{
    static const uint32_t numbers[] = {PAIR_MEM_STAGED, PAIR_MEM_STAGED_SHM,
                                       PAIR_UCX_STAGED};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        pair_t pair;
        track_t *t;

        open_with(&pair, numbers[i], 2 * MIB, 0);
        pair.sender_device.withheld = true;
        t = begin(&pair, 1, 0, MIB);
        PAIR_UNTIL(&pair, pair.sender_device.n_under_way == MIB / SLOT);
        bt_kvt_cancel(t->xfer);
        PAIR_UNTIL(&pair, t->closed);
        assert_int_equal(t->region_status, BT_ERR_CANCELED);
        rounds(&pair, ROUNDS);
        assert_int_equal(t->xfer_done, 0);
        assert_int_equal(counters(pair.sender).stage_slots, MIB / SLOT);
        pair.sender_device.withheld = false;
        PAIR_UNTIL(&pair, t->xfer_done);
        assert_int_equal(t->xfer_status, BT_ERR_CANCELED);
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

static void lost_receiver_frees_its_slots(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    open_with(&pair, PAIR_MEM_STAGED, 8 * MIB, 4);
    t = begin(&pair, 1, 0, 7 * MIB);
    PAIR_UNTIL(&pair, counters(pair.sender).bytes_sent > MIB);
    bt_kvt_mem_net_kill(pair.net, PAIR_RECEIVER);
    PAIR_UNTIL(&pair, t->xfer_done);
    assert_int_equal(t->xfer_status, BT_ERR_PEER_LOST);
    assert_int_equal(counters(pair.sender).stage_slots, 0);
    pair_close(&pair);
}

static void close_waits_for_running_copies(void **state)
{
    static const uint32_t numbers[] = {PAIR_MEM_STAGED, PAIR_UCX_STAGED};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        pair_t pair;

        open_with(&pair, numbers[i], 8 * MIB, 4);
        (void)begin(&pair, 1, 0, 4 * MIB);
        PAIR_UNTIL(&pair, counters(pair.receiver).bytes_staged > 0);
        pair.sender_device.withheld = true;
        pair.receiver_device.withheld = true;
        (void)begin(&pair, 2, 4 * MIB, 4 * MIB);
        PAIR_UNTIL(&pair, pair.sender_device.n_under_way > 0);
        pair_close(&pair); /* fake_close() counts */
    }
}

/* ---- copies that fail ---- */

/** @return true when the transfer was whole: fewer copies than @a nth */
static bool with_failing_copy(uint32_t number, bool at_sender, bool refuses,
                              uint32_t nth)
{
    fake_device_t *d;
    pair_t pair;
    track_t *t;
    bool whole;

    open_with(&pair, number, 8 * MIB, 3);
    d = at_sender ? &pair.sender_device : &pair.receiver_device;
    d->refuses = refuses;
    d->fail_at = nth;
    t = begin(&pair, 1, 0, 2 * MIB);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    whole = t->done == 1;
    if (!whole) {
        assert_int_equal(t->xfer_status, BT_ERR_DEVICE);
        assert_int_equal(t->region_status,
                         at_sender ? BT_ERR_CANCELED : BT_ERR_DEVICE);
    }
    assert_int_equal(whole, d->n_begun < nth);
    pair_assert_empty(&pair);

    d->fail_at = 0;
    t = begin(&pair, 2, 4 * MIB, 2 * MIB); /* and the next is as ever */
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    pair_assert_empty(&pair);
    pair_close(&pair);
    return whole;
}

static void failed_copy_ends_only_its_transfer(void **state)
{
    static const struct {
        uint32_t number;
        bool at_sender;
    } cases[] = {{PAIR_MEM_STAGED, true},     {PAIR_MEM_STAGED, false},
                 {PAIR_MEM_STAGED_SHM, true}, {PAIR_MEM_HOST_STAGED, false},
                 {PAIR_UCX_STAGED, true},     {PAIR_UCX_STAGED, false},
                 {PAIR_UCX_STAGED_SHM, true}, {PAIR_UCX_HOST_STAGED, false}};
    const uint32_t n_copies = 2 * MIB / SLOT;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        /* Over UCX, where a pair takes long to open: the first two, one in
         * between and the last. */
        const bool ucx =
            pair_kinds[cases[i].number].transport == &bt_kvt_transport_ucx;

        for (uint32_t refuses = 0; refuses < 2; refuses++) {
            for (uint32_t nth = 1; nth <= n_copies + 1; nth++) {
                if (!ucx || (nth <= 2) || (nth >= n_copies) ||
                    (nth == n_copies / 2)) {
                    assert_int_equal(with_failing_copy(cases[i].number,
                                                       cases[i].at_sender,
                                                       refuses != 0, nth),
                                     nth > n_copies);
                }
            }
        }
    }
}

/* ---- rendezvous, as over RDMA ---- */

/* Also pieces that need not. */
static void send_by_rendezvous(const bt_kvt_t *sender)
{
    ucx_t *ucx = sender->transport;

    ucx->eager_bytes = 0;
}

static void rendezvous_waits_for_a_free_slot(void **state)
{
    track_t *t[3];
    pair_t pair;

    (void)state;
    open_with(&pair, PAIR_UCX_HOST_STAGED, 12 * MIB, 2);
    send_by_rendezvous(pair.sender);
    for (uint32_t k = 0; k < 3; k++) {
        t[k] = begin(&pair, 1 + k, k * 4 * MIB, 4 * MIB);
        finish(t[k], "");
    }
    for (uint32_t k = 0; k < 3; k++) {
        PAIR_UNTIL(&pair, over(t[k]));
        assert_int_equal(t[k]->done, 1);
    }
    assert_true(counters(pair.receiver).stage_waits > 0);
    assert_int_equal(pair.receiver_device.bytes_copied, 12 * MIB);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

typedef enum rendezvous_end {
    SENDER_CLOSES,
    RECEIVER_CLOSES,
    REGION_CLOSES,
    SENDER_CANCELS,
    RENDEZVOUS_N_ENDS
} rendezvous_end_t;

static void waiting_rendezvous_ends_with_its_peer(void **state)
{
    (void)state;
    for (rendezvous_end_t end = SENDER_CLOSES; end < RENDEZVOUS_N_ENDS; end++) {
        pair_t pair;
        track_t *t;

        open_with(&pair, PAIR_UCX_HOST_STAGED, 12 * MIB, 1);
        send_by_rendezvous(pair.sender);
        pair.receiver_device.withheld = true;
        t = begin(&pair, 1, 0, 11 * MIB);
        PAIR_UNTIL(&pair, (pair.receiver_device.n_under_way == 1) &&
                              (counters(pair.receiver).stage_waits > 0));
        switch (end) {
        case SENDER_CLOSES:
            bt_kvt_close(pair.sender);
            pair.sender = NULL;
            break;
        case RECEIVER_CLOSES:
            bt_kvt_close(pair.receiver);
            pair.receiver = NULL;
            PAIR_UNTIL(&pair, t->xfer_done);
            break;
        case REGION_CLOSES:
            close_region(t);
            break;
        default:
            bt_kvt_cancel(t->xfer);
            break;
        }
        if (pair.receiver != NULL) {
            rounds(&pair, ROUNDS);
            assert_int_equal(t->closed, 0);
            pair.receiver_device.withheld = false;
            PAIR_UNTIL(&pair, t->closed);
        }
        if (pair.sender != NULL) {
            PAIR_UNTIL(&pair, t->xfer_done);
        }
        pair_assert_empty(&pair);
        pair_close(&pair);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(region_completes_after_its_last_device_copy),
        BT_TEST(running_copy_keeps_a_revoked_region_quarantined),
        BT_TEST(unresponsive_device_is_named_in_the_log),
        BT_TEST(region_of_a_dead_sender_waits_only_for_the_own_device),
        BT_TEST(cancelled_source_is_held_until_the_device_copy_ends),
        BT_TEST(lost_receiver_frees_its_slots),
        BT_TEST(close_waits_for_running_copies),
        BT_TEST(failed_copy_ends_only_its_transfer),
        BT_TEST(rendezvous_waits_for_a_free_slot),
        BT_TEST(waiting_rendezvous_ends_with_its_peer),
    };

    bt_log_init("test_kvt_stage_end", BT_LOG_LEVEL_ERROR);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
