/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_block_pool.h"

#include <string.h>

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
    bt_kv_pool_t *pool;

    if (n_blocks == 0) {
        return BT_ERR_INVALID_PARAM;
    }
    pool = bt_calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    pool->free_ids = bt_calloc(n_blocks, sizeof(*pool->free_ids));
    pool->refs = bt_calloc(n_blocks, sizeof(*pool->refs));
    pool->kept = bt_calloc(n_blocks, sizeof(*pool->kept));
    pool->windowed = bt_calloc(n_blocks, sizeof(*pool->windowed));
    if ((pool->free_ids == NULL) || (pool->refs == NULL) ||
        (pool->kept == NULL) || (pool->windowed == NULL)) {
        bt_kv_pool_destroy(pool);
        return BT_ERR_NO_MEMORY;
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

bt_status_t bt_kv_fork(bt_kv_pool_t *pool, const uint32_t *ids,
                       uint32_t n_tokens, uint32_t tokens_per_block,
                       uint32_t n_blocks, uint32_t *fork_ids,
                       bt_kv_copy_t *copy_p)
{
    const uint32_t n_shared = bt_kv_fork_n_shared(n_tokens, tokens_per_block);
    bt_status_t status;

    BT_ASSERT_ALWAYS(bt_kv_blocks_for(n_tokens, tokens_per_block) <= n_blocks);
    status = bt_kv_pool_acquire(pool, n_blocks - n_shared, fork_ids + n_shared);
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n_shared; i++) {
        bt_kv_pool_ref(pool, ids[i]);
        fork_ids[i] = ids[i];
    }
    *copy_p = (bt_kv_copy_t){0, 0};
    if (n_tokens % tokens_per_block != 0) {
        *copy_p = (bt_kv_copy_t){ids[n_shared], fork_ids[n_shared]};
    }
    return BT_OK;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return (a < b) ? a : b;
}

/* Most spans of a windowed group. */
static uint32_t most_of(const bt_kv_group_t *group, const bt_kv_reach_t *reach)
{
    return least(reach->n_most,
                 bt_kv_group_most_spans(group, reach->ahead_tokens));
}

uint64_t bt_kv_reach_blocks(const bt_kv_groups_t *groups,
                            const bt_kv_reach_t *reach)
{
    uint64_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_group_t *group = &groups->group[g];

        n += bt_kv_group_is_windowed(group) ? most_of(group, reach)
                                            : reach->n_spans;
    }
    return n;
}

uint32_t bt_kv_hold_blocks(const bt_kv_groups_t *groups,
                           const bt_kv_hold_t *hold)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        n += hold->end[g] - hold->first[g];
    }
    return n;
}

/* A window that lies wholly behind the held range begins there, empty. */
static void begin_at(bt_kv_hold_t *hold, uint32_t group, uint32_t first)
{
    hold->first[group] = first;
    if (hold->end[group] < first) {
        hold->end[group] = first;
    }
}

void bt_kv_hold_found(const bt_kv_groups_t *groups, bt_kv_hold_t *hold,
                      uint32_t n_spans, uint64_t n_known)
{
    const uint64_t n_found = (uint64_t)n_spans * groups->tokens_per_block;

    for (uint32_t g = 0; g < groups->n; g++) {
        hold->end[g] = n_spans;
        begin_at(hold, g,
                 bt_kv_group_first_span(&groups->group[g], (n_found > n_known)
                                                               ? n_found
                                                               : n_known));
    }
}

bool bt_kv_hold_passes(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold,
                       uint64_t n_tokens)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        if (bt_kv_group_first_span(&groups->group[g], n_tokens) >
            hold->first[g]) {
            return true;
        }
    }
    return false;
}

uint32_t bt_kv_hold_pass(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                         bt_kv_hold_t *hold, const uint32_t *table,
                         uint64_t n_tokens)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        const uint32_t first =
            bt_kv_group_first_span(&groups->group[g], n_tokens);

        for (uint32_t i = hold->first[g]; i < least(first, hold->end[g]); i++) {
            bt_kv_pool_unref(pool, table[(size_t)i * groups->n + g]);
            n++;
        }
        if (first > hold->first[g]) {
            begin_at(hold, g, first);
        }
    }
    return n;
}

/* End of the held range with this reach: not before the current end, because
 * blocks acquired ahead stay even if fewer are needed than before. */
static uint32_t end_of(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold,
                       const bt_kv_reach_t *reach, uint32_t g)
{
    const bt_kv_group_t *group = &groups->group[g];
    uint32_t end = reach->n_spans;

    if (bt_kv_group_is_windowed(group)) {
        end = least(hold->first[g] + most_of(group, reach), reach->n_most);
    }
    return (end > hold->end[g]) ? end : hold->end[g];
}

uint32_t bt_kv_hold_lacks(const bt_kv_groups_t *groups,
                          const bt_kv_hold_t *hold, const bt_kv_reach_t *reach)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        n += end_of(groups, hold, reach, g) - hold->end[g];
    }
    return n;
}

void bt_kv_hold_fill(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                     bt_kv_hold_t *hold, const bt_kv_reach_t *reach,
                     const uint32_t *ids, uint32_t *table)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        const bool windowed = bt_kv_group_is_windowed(&groups->group[g]);
        const uint32_t end = end_of(groups, hold, reach, g);

        BT_ASSERT(end <= reach->n_most);
        for (; hold->end[g] < end; hold->end[g]++) {
            table[(size_t)hold->end[g] * groups->n + g] = *ids;
            if (windowed) {
                bt_kv_pool_set_windowed(pool, *ids);
            }
            ids++;
        }
    }
}

void bt_kv_hold_return(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                       bt_kv_hold_t *hold, const uint32_t *table)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        for (uint32_t i = hold->first[g]; i < hold->end[g]; i++) {
            bt_kv_pool_unref(pool, table[(size_t)i * groups->n + g]);
        }
    }
    memset(hold, 0, sizeof(*hold));
}

uint32_t bt_kv_hold_end(const bt_kv_groups_t *groups, const bt_kv_hold_t *hold)
{
    uint32_t end = hold->end[0];

    for (uint32_t g = 1; g < groups->n; g++) {
        end = least(end, hold->end[g]);
    }
    return end;
}
