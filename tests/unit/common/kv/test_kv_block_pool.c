/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "common/kv/kv_block_pool.h"

#define UNTOUCHED 0xA5A5A5A5u

static void block_acquire_takes_all_or_nothing(void **state)
{
    uint32_t held[3];
    uint32_t more[2] = {UNTOUCHED, UNTOUCHED};
    bt_kv_pool_t *pool = NULL;

    (void)state;
    assert_int_equal(bt_kv_pool_create(4, &pool), BT_OK);
    assert_int_equal(bt_kv_pool_acquire(pool, 3, held), BT_OK);

    assert_int_equal(bt_kv_pool_acquire(pool, 2, more), BT_ERR_NO_BLOCKS);
    assert_int_equal(more[0], UNTOUCHED);
    assert_int_equal(bt_kv_pool_n_free(pool), 1);

    for (size_t i = 0; i < 3; i++) {
        bt_kv_pool_unref(pool, held[i]);
    }
    bt_kv_pool_destroy(pool); /* a leak would warn, and a warning fails us */
}

static void shared_block_is_freed_by_the_last_holder(void **state)
{
    uint32_t id;
    bt_kv_pool_t *pool = NULL;

    (void)state;
    assert_int_equal(bt_kv_pool_create(1, &pool), BT_OK);
    assert_int_equal(bt_kv_pool_acquire(pool, 1, &id), BT_OK);
    bt_kv_pool_ref(pool, id);

    bt_kv_pool_unref(pool, id);
    assert_int_equal(bt_kv_pool_n_free(pool), 0);
    bt_kv_pool_unref(pool, id);
    assert_int_equal(bt_kv_pool_n_free(pool), 1);

    bt_kv_pool_destroy(pool);
}

/* Four blocks. Two of them are windowed and are held by one, two and three at a
 * time, kept and not: whoever takes or gives back one changes what is available
 * by one. */
static void windowed_block_counts_once_for_each_holder(void **state)
{
    uint32_t ids[2];
    bt_kv_pool_t *pool = NULL;

    (void)state;
    assert_int_equal(bt_kv_pool_create(4, &pool), BT_OK);
    assert_int_equal(bt_kv_pool_acquire(pool, 2, ids), BT_OK);
    bt_kv_pool_set_windowed(pool, ids[0]);
    bt_kv_pool_set_windowed(pool, ids[1]);
    assert_int_equal(bt_kv_pool_n_available(pool), 2);
    bt_kv_pool_ref(pool, ids[0]);
    assert_int_equal(bt_kv_pool_n_set_aside(pool), 1);
    assert_int_equal(bt_kv_pool_n_available(pool), 1);
    bt_kv_pool_keep(pool, ids[0]); /* the cache is no holder */
    assert_int_equal(bt_kv_pool_n_available(pool), 1);
    bt_kv_pool_ref(pool, ids[0]);
    assert_int_equal(bt_kv_pool_n_set_aside(pool), 2);
    assert_int_equal(bt_kv_pool_n_available(pool), 0);
    assert_int_equal(bt_kv_pool_n_free(pool), 2);
    for (uint32_t i = 1; i <= 3; i++) {
        bt_kv_pool_unref(pool, ids[0]);
        assert_int_equal(bt_kv_pool_n_available(pool), i);
    }
    assert_int_equal(bt_kv_pool_n_set_aside(pool), 0);
    assert_int_equal(bt_kv_pool_n_windowed(pool), 1);
    assert_int_equal(bt_kv_pool_n_idle(pool), 1);
    bt_kv_pool_ref(pool, ids[0]); /* found again */
    assert_int_equal(bt_kv_pool_n_windowed(pool), 2);
    assert_int_equal(bt_kv_pool_n_available(pool), 2);
    bt_kv_pool_unkeep(pool, ids[0]);
    assert_int_equal(bt_kv_pool_n_available(pool), 2);
    bt_kv_pool_unref(pool, ids[0]);
    bt_kv_pool_unref(pool, ids[1]);
    assert_int_equal(bt_kv_pool_n_available(pool), 4);
    assert_int_equal(bt_kv_pool_n_windowed(pool), 0);
    /* Whoever gets it next may be of another group. */
    assert_int_equal(bt_kv_pool_acquire(pool, 2, ids), BT_OK);
    bt_kv_pool_ref(pool, ids[0]);
    assert_int_equal(bt_kv_pool_n_set_aside(pool), 0);
    bt_kv_pool_unref(pool, ids[0]);
    bt_kv_pool_unref(pool, ids[0]);
    bt_kv_pool_unref(pool, ids[1]);
    bt_kv_pool_destroy(pool);
}

/* Fail the 1st, then the 2nd ... allocation until none is left to fail. */
static void block_pool_create_survives_every_failed_allocation(void **state)
{
    int nth = 0;
    bt_status_t status;
    bt_kv_pool_t *pool = NULL;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_kv_pool_create(8, &pool);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(pool);
        }
    } while (status != BT_OK);

    bt_alloc_fail_at(0);
    assert_int_equal(nth, 6); /* five allocations, then success */
    bt_kv_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(block_acquire_takes_all_or_nothing),
        BT_TEST(shared_block_is_freed_by_the_last_holder),
        BT_TEST(windowed_block_counts_once_for_each_holder),
        BT_TEST(block_pool_create_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
