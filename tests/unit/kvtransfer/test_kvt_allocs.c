/* SPDX-License-Identifier: Apache-2.0 */
/* A transfer takes no memory once there were some like it. */
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/pair.h"

#define N_EXTENTS 8u
#define N_WARM    8u
#define N_COUNTED 24u
#define SLOT      8192u

static track_t *region_open(pair_t *pair, track_t *t)
{
    const uint64_t id = 1 + (uint64_t)(t - pair->tracks);

    t->n_extents = N_EXTENTS;
    for (uint32_t i = 0; i < N_EXTENTS; i++) { /* scattered */
        t->extents[i].offset = 2 * i * SLOT;
        t->extents[i].bytes = SLOT;
    }
    t->bytes = N_EXTENTS * SLOT;
    t->source = pair->source + id % 64;
    t->from = t->source;
    assert_int_equal(bt_kvt_region_open(pair->receiver, id, 1, PAIR_SENDER,
                                        t->extents, N_EXTENTS, t, t->desc,
                                        BT_KVT_DESC_BYTES(N_EXTENTS),
                                        &t->desc_bytes, &t->region),
                     BT_OK);
    return t;
}

static void transfer(pair_t *pair, track_t *t)
{
    region_open(pair, t);
    assert_int_equal(pair_prep(pair, t), BT_OK);
    for (uint32_t i = 0; i < N_EXTENTS; i++) {
        assert_int_equal(pair_post(t, i * SLOT, SLOT), BT_OK);
    }
    assert_int_equal(bt_kvt_finish(t->xfer, "", 0), BT_OK);
    PAIR_UNTIL(pair, t->closed && (t->xfer == NULL));
    assert_int_equal(t->done, 1);
}

/* The very next allocation would fail. */
static void transfers_take_no_memory(const pair_kind_t *kind)
{
    pair_t pair;

    if (BT_KVT_MAX_SPARE == 0) {
        skip(); /* a sanitizer build keeps none */
    }
    pair_open(&pair, kind, 1u << 20);
    pair.reuses = true;
    pair_import(&pair);
    for (uint32_t i = 0; i < N_WARM + N_COUNTED; i++) {
        pair.tracks[i].desc = bt_calloc(1, BT_KVT_DESC_BYTES(N_EXTENTS));
        assert_non_null(pair.tracks[i].desc);
    }
    pair.n_tracks = N_WARM + N_COUNTED;
    for (uint32_t i = 0; i < N_WARM; i++) {
        transfer(&pair, &pair.tracks[i]);
    }
    bt_alloc_fail_at(1);
    for (uint32_t i = N_WARM; i < N_WARM + N_COUNTED; i++) {
        transfer(&pair, &pair.tracks[i]);
    }
    bt_alloc_fail_at(0);
    pair_assert_empty(&pair);
    pair_close(&pair);
}

static void transfers_allocate_nothing_ucx_shm(void **state)
{
    (void)state;
    transfers_take_no_memory(&pair_kinds[PAIR_UCX_SHM]);
}

static void transfers_allocate_nothing_ucx_network(void **state)
{
    (void)state;
    transfers_take_no_memory(&pair_kinds[PAIR_UCX_NETWORK]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(transfers_allocate_nothing_ucx_shm),
        BT_TEST(transfers_allocate_nothing_ucx_network),
    };

    bt_log_init("test_kvt_allocs", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
