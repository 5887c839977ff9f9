/* SPDX-License-Identifier: Apache-2.0 */
/* A fault at every step of a busy scenario, for every kind of fault, over both
 * paths of the scripted transport. */
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/pair.h"

#define N_TRACKS   6
#define POOL_BYTES (256u << 10)
#define LEASE_MS   4000u  /* then the owners give up on what is open */
#define END_MS     12000u /* by then everything must have ended */

static void act(pair_t *pair, track_t *t, uint32_t i, uint64_t round)
{
    const uint64_t piece = t->bytes / 8;

    if ((t->xfer == NULL) || t->xfer_done) {
        return;
    }
    /* Piece by piece over the rounds, out of order, then the end. */
    if ((round >= 5) && (round < 13)) {
        const uint64_t n = (round - 5) ^ 1;
        const bt_status_t status =
            bt_kvt_post(t->xfer, t->from + n * piece, n * piece, piece);

        assert_true((status == BT_OK) || (status == BT_ERR_CANCELED) ||
                    (status == BT_ERR_PEER_LOST));
    } else if (round == 13) {
        (void)!bt_kvt_finish(t->xfer, "note", 4);
    }
    if ((i == 3) && (round == 10)) {
        bt_kvt_cancel(t->xfer);
    }
    (void)pair;
}

static void regions_open(pair_t *pair, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        /* 8 extents of 512 B, every second slot */
        track_t *t = pair_region(pair, 100 + i, (i == 2) ? 0 : PAIR_SENDER,
                                 i * 16384, 512, 1024, 8);

        (void)!pair_prep(pair, t); /* may be too late already */
    }
}

static void owners_give_up(pair_t *pair)
{
    for (uint32_t i = 0; i < pair->n_tracks; i++) {
        track_t *t = &pair->tracks[i];

        if ((t->xfer != NULL) && !t->xfer_done) {
            bt_kvt_cancel(t->xfer);
        }
        if ((t->region != NULL) && !t->closing) {
            t->closing = true;
            bt_kvt_region_close(t->region);
        }
    }
}

static bool something_stuck(const pair_t *pair)
{
    for (uint32_t i = 0; i < pair->n_tracks; i++) {
        if (pair->tracks[i].stuck && !pair->tracks[i].closed) {
            return true;
        }
    }
    return false;
}

/** @return steps of the run */
static uint32_t scenario(const pair_kind_t *kind, uint32_t step,
                         bt_kvt_mem_fault_t fault)
{
    pair_t pair;
    uint64_t start_ms;
    uint32_t steps;
    bool killed = false;

    pair_open(&pair, kind, POOL_BYTES);
    bt_kvt_mem_net_fault(pair.net, step, fault);
    start_ms = pair.now_ms;
    pair_import(&pair);
    regions_open(&pair, 0, 2); /* before the hello is through */

    for (uint64_t round = 0; pair.now_ms - start_ms < END_MS; round++) {
        if (round == 4) {
            regions_open(&pair, 2, N_TRACKS);
        }
        for (uint32_t i = 0; i < pair.n_tracks; i++) {
            act(&pair, &pair.tracks[i], i, round);
        }
        if ((round == 9) && (pair.tracks[4].region != NULL) &&
            !pair.tracks[4].closing) {
            pair.tracks[4].closing = true; /* revoked half-way */
            bt_kvt_region_close(pair.tracks[4].region);
        }
        if (pair.now_ms - start_ms == LEASE_MS) {
            owners_give_up(&pair);
        }
        if (something_stuck(&pair) && !killed) {
            killed = true; /* as the launcher does */
            bt_kvt_mem_net_kill(pair.net, PAIR_SENDER);
        }
        (void)pair_pump(&pair);
    }
    steps = bt_kvt_mem_net_steps(pair.net);

    for (uint32_t i = 0; i < pair.n_tracks; i++) {
        const track_t *t = &pair.tracks[i];

        if (!bt_kvt_mem_net_is_dead(pair.net, PAIR_RECEIVER)) {
            assert_int_equal(t->closed, 1);
        }
        if (!bt_kvt_mem_net_is_dead(pair.net, PAIR_SENDER)) {
            assert_null(t->xfer);
        }
        if (fault == BT_KVT_MEM_NONE) {
            assert_int_equal(t->done, (i == 3) || (i == 4) ? 0 : 1);
            assert_int_equal(t->xfer_status, (i == 3)   ? BT_ERR_CANCELED
                                             : (i == 4) ? BT_ERR_STALE
                                                        : BT_OK);
        }
    }
    if (!bt_kvt_mem_net_is_dead(pair.net, PAIR_RECEIVER) &&
        !bt_kvt_mem_net_is_dead(pair.net, PAIR_SENDER)) {
        pair_assert_empty(&pair);
    }
    pair_close(&pair);
    return steps;
}

static void all_faults(const pair_kind_t *kind)
{
    const uint32_t n_steps = scenario(kind, 0, BT_KVT_MEM_NONE);
    const uint32_t stride = bt_test_stride(3);

    assert_in_range(n_steps, kind->shares ? 16 : 41, 399);
    for (int fault = BT_KVT_MEM_LOSE; fault < BT_KVT_MEM_N_FAULTS; fault++) {
        const unsigned long warned = bt_log_count(BT_LOG_LEVEL_WARN);

        for (uint32_t step = 1 + (uint32_t)fault % stride; step <= n_steps;
             step += stride) {
            (void)scenario(kind, step, (bt_kvt_mem_fault_t)fault);
        }
        if (fault != BT_KVT_MEM_CORRUPT) {
            assert_int_equal(bt_log_count(BT_LOG_LEVEL_WARN), warned);
        } else {
            /* each altered message is named in the log */
            bt_test_expect_log_lines(bt_log_count(BT_LOG_LEVEL_WARN) - warned);
        }
    }
}

static void
a_fault_at_any_step_over_shared_memory_ends_everything_once(void **state)
{
    (void)state;
    all_faults(&pair_kinds[PAIR_MEM_SHM]);
}

static void
a_fault_at_any_step_over_the_network_ends_everything_once(void **state)
{
    (void)state;
    all_faults(&pair_kinds[PAIR_MEM_NETWORK]);
}

/* Two slots each way, so that pieces wait for them; copies end late and in any
 * order. */
static void all_faults_staged(const pair_kind_t *kind)
{
    pair_n_slots = 2;
    all_faults(kind);
    pair_n_slots = 0;
}

static void
a_fault_at_any_step_between_staged_pools_ends_everything_once(void **state)
{
    (void)state;
    all_faults_staged(&pair_kinds[PAIR_MEM_STAGED]);
}

static void
a_fault_at_any_step_from_a_staged_into_a_shared_pool_ends_everything_once(
    void **state)
{
    (void)state;
    all_faults_staged(&pair_kinds[PAIR_MEM_STAGED_SHM]);
}

static void
a_fault_at_any_step_from_device_to_device_ends_everything_once(void **state)
{
    (void)state;
    all_faults_staged(&pair_kinds[PAIR_MEM_SHARED]);
}

static void
a_fault_at_any_step_into_a_staged_pool_ends_everything_once(void **state)
{
    (void)state;
    all_faults_staged(&pair_kinds[PAIR_MEM_HOST_STAGED]);
}

/* Both processes of a machine that was suspended for an hour, in the middle of
 * a transfer: neither has heard of the other, neither is to blame. */
static void own_stall_does_not_count_as_peer_silence(void **state)
{
    pair_t pair;
    track_t *t;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_NETWORK], POOL_BYTES);
    pair_import(&pair);
    t = pair_region(&pair, 1, PAIR_SENDER, 0, 512, 1024, 8);
    assert_int_equal(pair_prep(&pair, t), BT_OK);
    assert_int_equal(pair_post(t, 0, 1024), BT_OK);
    for (int i = 0; i < 20; i++) {
        (void)pair_pump(&pair);
    }
    pair.now_ms += 3600000;
    for (int i = 0; i < 50; i++) {
        (void)pair_pump(&pair);
    }
    assert_int_equal(t->closed, 0);
    assert_int_equal(pair_post(t, 1024, t->bytes - 1024), BT_OK);
    assert_int_equal(bt_kvt_finish(t->xfer, "token", 5), BT_OK);
    PAIR_UNTIL(&pair, t->done);
    pair_close(&pair);
}

static void peer_death_frees_blocks_in_quarantine(void **state)
{
    bt_kvt_counters_t c;
    pair_t pair;
    track_t *t;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_SHM], POOL_BYTES);
    pair_import(&pair);
    t = pair_region(&pair, 1, PAIR_SENDER, 0, 512, 1024, 8);
    assert_int_equal(pair_prep(&pair, t), BT_OK);
    assert_int_equal(pair_post(t, 0, 1024), BT_OK);
    PAIR_UNTIL(&pair, t->region->state == BT_KVT_REGION_IS_DIRECT);
    bt_kvt_link_lost(bt_kvt_link_find(pair.receiver, PAIR_SENDER), false,
                     "a test");
    for (int i = 0; i < 50; i++) {
        (void)pair_pump(&pair);
    }
    bt_kvt_counters(pair.receiver, &c);
    assert_int_equal(c.regions_quarantined, 1);
    assert_int_equal(t->closed, 0);

    bt_kvt_mem_net_kill(pair.net, PAIR_SENDER);
    for (int i = 0; i < 5; i++) {
        (void)pair_pump(&pair);
    }
    assert_int_equal(t->closed, 1);
    assert_int_equal(t->region_status, BT_ERR_PEER_LOST);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_fault_at_any_step_over_shared_memory_ends_everything_once),
        BT_TEST(a_fault_at_any_step_over_the_network_ends_everything_once),
        BT_TEST(a_fault_at_any_step_between_staged_pools_ends_everything_once),
        BT_TEST(
            a_fault_at_any_step_from_a_staged_into_a_shared_pool_ends_everything_once),
        BT_TEST(a_fault_at_any_step_from_device_to_device_ends_everything_once),
        BT_TEST(a_fault_at_any_step_into_a_staged_pool_ends_everything_once),
        BT_TEST(own_stall_does_not_count_as_peer_silence),
        BT_TEST(peer_death_frees_blocks_in_quarantine),
    };

    bt_log_init("test_kvt_faults", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
