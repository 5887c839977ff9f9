/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_block_pool.h"

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"

/* Invariants: refs[id] == 0 exactly when id is in free_ids[0 .. n_free - 1];
 * n_idle counts the kept ids with refs[id] == 1; n_windowed counts the
 * windowed ids that have holders, n_set_aside is the sum of their holders - 1.
 */
struct bt_kv_pool {
    uint32_t n_blocks;
    uint32_t n_free;
    uint32_t *free_ids; /* a stack; the top is free_ids[n_free - 1] */
    uint32_t n_idle;
    uint32_t n_set_aside;
    uint32_t n_windowed;
    uint32_t *refs;
    bool *kept;
    bool *windowed;
};

bt_status_t bt_kv_pool_create(uint32_t n_blocks, bt_kv_pool_t **pool_p)
{
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_kv_pool_t *pool;

    if (n_blocks == 0) {
        return BT_ERR_INVALID_PARAM;
    }

    pool = bt_calloc(1, sizeof(*pool));
    if (pool == NULL) {
        goto err;
    }

    pool->free_ids = bt_calloc(n_blocks, sizeof(*pool->free_ids));
    if (pool->free_ids == NULL) {
        goto err_pool;
    }

    pool->refs = bt_calloc(n_blocks, sizeof(*pool->refs));
    if (pool->refs == NULL) {
        goto err_free_ids;
    }

    pool->kept = bt_calloc(n_blocks, sizeof(*pool->kept));
    if (pool->kept == NULL) {
        goto err_refs;
    }

    pool->windowed = bt_calloc(n_blocks, sizeof(*pool->windowed));
    if (pool->windowed == NULL) {
        goto err_kept;
    }

    /* Highest id at the bottom, so ids come out 0, 1, 2 ... and a trace of a
     * failing run can be compared with a trace of a good one. */
    for (uint32_t i = 0; i < n_blocks; i++) {
        pool->free_ids[i] = n_blocks - 1 - i;
    }
    pool->n_blocks = n_blocks;
    pool->n_free = n_blocks;

    *pool_p = pool;
    return BT_OK;

err_kept:
    bt_free(pool->kept);
err_refs:
    bt_free(pool->refs);
err_free_ids:
    bt_free(pool->free_ids);
err_pool:
    bt_free(pool);
err:
    return status;
}

void bt_kv_pool_destroy(bt_kv_pool_t *pool)
{
    if (pool == NULL) {
        return;
    }
    if (pool->n_free != pool->n_blocks) {
        BT_LOG_WARN("kv pool destroyed with %u of %u blocks held",
                    pool->n_blocks - pool->n_free, pool->n_blocks);
    }

    bt_free(pool->windowed);
    bt_free(pool->kept);
    bt_free(pool->refs);
    bt_free(pool->free_ids);
    bt_free(pool);
}

bt_status_t bt_kv_pool_acquire(bt_kv_pool_t *pool, uint32_t n, uint32_t *ids)
{
    if (n > pool->n_free) {
        return BT_ERR_NO_BLOCKS;
    }

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = pool->free_ids[--pool->n_free];

        BT_ASSERT(pool->refs[id] == 0);
        pool->refs[id] = 1;
        ids[i] = id;
    }
    return BT_OK;
}

/* Holders; one of a kept block's references is the cache's. */
static uint32_t n_holders(const bt_kv_pool_t *pool, uint32_t id)
{
    return pool->refs[id] - (pool->kept[id] ? 1 : 0);
}

static void ref(bt_kv_pool_t *pool, uint32_t id)
{
    BT_ASSERT_ALWAYS((id < pool->n_blocks) && (pool->refs[id] > 0) &&
                     (pool->refs[id] < UINT32_MAX));
    if (bt_kv_pool_is_idle(pool, id)) {
        pool->n_idle--;
    }
    pool->refs[id]++;
}

void bt_kv_pool_ref(bt_kv_pool_t *pool, uint32_t id)
{
    ref(pool, id);
    if (pool->windowed[id]) {
        if (n_holders(pool, id) > 1) {
            pool->n_set_aside++;
        } else {
            pool->n_windowed++;
        }
    }
}

static void unref(bt_kv_pool_t *pool, uint32_t id)
{
    if (--pool->refs[id] == 0) {
        /* Kept blocks are freed by bt_kv_pool_unkeep() only. */
        BT_ASSERT_ALWAYS(!pool->kept[id]);
        pool->windowed[id] = false;
        pool->free_ids[pool->n_free++] = id;
    }
    if (bt_kv_pool_is_idle(pool, id)) {
        pool->n_idle++;
    }
}

void bt_kv_pool_unref(bt_kv_pool_t *pool, uint32_t id)
{
    /* Checked in release builds too: freeing a block twice hands one tenant's
     * KV cache to another, which is worse than stopping the worker. */
    BT_ASSERT_ALWAYS((id < pool->n_blocks) && (pool->refs[id] > 0));
    if (pool->windowed[id]) {
        uint32_t *count =
            (n_holders(pool, id) > 1) ? &pool->n_set_aside : &pool->n_windowed;

        BT_ASSERT_ALWAYS(*count > 0);
        --*count;
    }
    unref(pool, id);
}

void bt_kv_pool_set_windowed(bt_kv_pool_t *pool, uint32_t id)
{
    BT_ASSERT_ALWAYS((id < pool->n_blocks) && (pool->refs[id] == 1) &&
                     !pool->kept[id]);
    pool->windowed[id] = true;
    pool->n_windowed++;
}

uint32_t bt_kv_pool_n_windowed(const bt_kv_pool_t *pool)
{
    return pool->n_windowed;
}

uint32_t bt_kv_pool_n_set_aside(const bt_kv_pool_t *pool)
{
    return pool->n_set_aside;
}

uint32_t bt_kv_pool_n_free(const bt_kv_pool_t *pool)
{
    return pool->n_free;
}

void bt_kv_pool_keep(bt_kv_pool_t *pool, uint32_t id)
{
    ref(pool, id);
    BT_ASSERT_ALWAYS(!pool->kept[id]);
    pool->kept[id] = true;
}

void bt_kv_pool_unkeep(bt_kv_pool_t *pool, uint32_t id)
{
    BT_ASSERT_ALWAYS((id < pool->n_blocks) && pool->kept[id]);
    if (bt_kv_pool_is_idle(pool, id)) {
        pool->n_idle--;
    }
    pool->kept[id] = false;
    unref(pool, id);
}

bool bt_kv_pool_is_idle(const bt_kv_pool_t *pool, uint32_t id)
{
    return pool->kept[id] && (pool->refs[id] == 1);
}

uint32_t bt_kv_pool_n_idle(const bt_kv_pool_t *pool)
{
    return pool->n_idle;
}
