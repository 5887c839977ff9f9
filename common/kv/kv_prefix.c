/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_prefix.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/hash.h"

#define NONE UINT32_MAX

/* A node is its block: nodes[id]. */
typedef struct node {
    uint32_t parent;    /* NONE: a first block */
    bt_hash128_t space; /* the same as the parent's */
    uint32_t n_children;
    uint32_t bucket_next;
    uint32_t older, newer;
    bool used;
} node_t;

/* Invariant: in the order oldest .. newest every node comes before its parent,
 * since whoever touches a node touches its parent right after it. */
struct bt_kv_prefix {
    bt_kv_pool_t *pool;
    uint32_t n_blocks;
    uint32_t tokens_per_block;
    uint64_t seed;
    uint32_t oldest, newest;
    uint32_t mask; /* n_buckets - 1, a power of two */
    uint32_t *buckets;
    node_t *nodes;
    uint32_t *tokens; /* of each block, [n_blocks][tokens_per_block] */
};

bt_status_t bt_kv_prefix_create(bt_kv_pool_t *pool, uint32_t n_blocks,
                                uint32_t tokens_per_block, uint64_t seed,
                                bt_kv_prefix_t **index_p)
{
    bt_kv_prefix_t *index;
    uint64_t n_buckets = 1;

    if ((n_blocks == 0) || (n_blocks > NONE / 2) || (tokens_per_block == 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    index = bt_calloc(1, sizeof(*index));
    if (index == NULL) {
        goto err;
    }
    while (n_buckets < n_blocks) {
        n_buckets *= 2;
    }
    index->buckets = bt_calloc(n_buckets, sizeof(*index->buckets));
    if (index->buckets == NULL) {
        goto err_index;
    }
    index->nodes = bt_calloc(n_blocks, sizeof(*index->nodes));
    if (index->nodes == NULL) {
        goto err_buckets;
    }
    index->tokens =
        bt_calloc((size_t)n_blocks * tokens_per_block, sizeof(*index->tokens));
    if (index->tokens == NULL) {
        goto err_nodes;
    }
    for (uint64_t i = 0; i < n_buckets; i++) {
        index->buckets[i] = NONE;
    }
    index->pool = pool;
    index->n_blocks = n_blocks;
    index->tokens_per_block = tokens_per_block;
    index->seed = seed;
    index->oldest = index->newest = NONE;
    index->mask = (uint32_t)(n_buckets - 1);
    *index_p = index;
    return BT_OK;

err_nodes:
    bt_free(index->nodes);
err_buckets:
    bt_free(index->buckets);
err_index:
    bt_free(index);
err:
    return BT_ERR_NO_MEMORY;
}

void bt_kv_prefix_destroy(bt_kv_prefix_t *index)
{
    if (index == NULL) {
        return;
    }
    for (uint32_t id = index->oldest; id != NONE; id = index->nodes[id].newer) {
        bt_kv_pool_unkeep(index->pool, id);
    }
    bt_free(index->tokens);
    bt_free(index->nodes);
    bt_free(index->buckets);
    bt_free(index);
}

/* ---- where a node is ---- */

static size_t block_bytes(const bt_kv_prefix_t *index)
{
    return index->tokens_per_block * sizeof(*index->tokens);
}

static uint32_t *tokens_of(const bt_kv_prefix_t *index, uint32_t id)
{
    return index->tokens + (size_t)id * index->tokens_per_block;
}

static uint32_t *bucket_of(const bt_kv_prefix_t *index, bt_hash128_t space,
                           uint32_t parent, const uint32_t *tokens)
{
    const uint64_t before = (parent == NONE)
                                ? bt_hash64(&space, sizeof(space), index->seed)
                                : 0x9E3779B97F4A7C15u * ((uint64_t)parent + 1);
    const uint64_t hash =
        bt_hash64(tokens, block_bytes(index), index->seed ^ before);

    return &index->buckets[hash & index->mask];
}

/* A parent is in one space, so below the first blocks that is compared. */
static bool is_node(const bt_kv_prefix_t *index, uint32_t id,
                    bt_hash128_t space, uint32_t parent, const uint32_t *tokens)
{
    const node_t *node = &index->nodes[id];

    return (node->parent == parent) && (node->space.lo == space.lo) &&
           (node->space.hi == space.hi) &&
           (memcmp(tokens_of(index, id), tokens, block_bytes(index)) == 0);
}

static uint32_t find(const bt_kv_prefix_t *index, bt_hash128_t space,
                     uint32_t parent, const uint32_t *tokens)
{
    uint32_t id = *bucket_of(index, space, parent, tokens);

    while ((id != NONE) && !is_node(index, id, space, parent, tokens)) {
        id = index->nodes[id].bucket_next;
    }
    return id;
}

/* ---- order of use ---- */

static void order_remove(bt_kv_prefix_t *index, uint32_t id)
{
    const node_t *node = &index->nodes[id];

    if (node->older == NONE) {
        index->oldest = node->newer;
    } else {
        index->nodes[node->older].newer = node->newer;
    }
    if (node->newer == NONE) {
        index->newest = node->older;
    } else {
        index->nodes[node->newer].older = node->older;
    }
}

static void order_append(bt_kv_prefix_t *index, uint32_t id)
{
    node_t *node = &index->nodes[id];

    node->newer = NONE;
    node->older = index->newest;
    if (index->newest == NONE) {
        index->oldest = id;
    } else {
        index->nodes[index->newest].newer = id;
    }
    index->newest = id;
}

/* This node and all before it are used now. */
static void touch(bt_kv_prefix_t *index, uint32_t id)
{
    for (; id != NONE; id = index->nodes[id].parent) {
        order_remove(index, id);
        order_append(index, id);
    }
}

/* ---- */

uint32_t bt_kv_prefix_match(bt_kv_prefix_t *index, bt_hash128_t space,
                            const uint32_t *tokens, uint32_t max_blocks,
                            uint32_t *ids)
{
    uint32_t last = NONE;
    uint32_t n = 0;

    while (n < max_blocks) {
        const uint32_t id = find(index, space, last, tokens);

        if (id == NONE) {
            break;
        }
        bt_kv_pool_ref(index->pool, id);
        ids[n++] = id;
        last = id;
        tokens += index->tokens_per_block;
    }
    touch(index, last);
    return n;
}

static void add(bt_kv_prefix_t *index, bt_hash128_t space, uint32_t parent,
                const uint32_t *tokens, uint32_t id)
{
    uint32_t *bucket = bucket_of(index, space, parent, tokens);
    node_t *node = &index->nodes[id];

    BT_ASSERT_ALWAYS((id < index->n_blocks) && !node->used);
    bt_kv_pool_keep(index->pool, id);
    node->used = true;
    node->parent = parent;
    node->space = space;
    node->n_children = 0;
    node->bucket_next = *bucket;
    *bucket = id;
    memcpy(tokens_of(index, id), tokens, block_bytes(index));
    if (parent != NONE) {
        index->nodes[parent].n_children++;
    }
    order_append(index, id);
}

void bt_kv_prefix_insert(bt_kv_prefix_t *index, bt_hash128_t space,
                         const uint32_t *tokens, uint32_t n_blocks,
                         const uint32_t *ids)
{
    uint32_t last = NONE;

    for (uint32_t i = 0; i < n_blocks; i++) {
        const uint32_t known = find(index, space, last, tokens);

        if (known == NONE) {
            add(index, space, last, tokens, ids[i]);
        } else if (known != ids[i]) {
            break;
        }
        last = ids[i];
        tokens += index->tokens_per_block;
    }
    touch(index, last);
}

static void drop(bt_kv_prefix_t *index, uint32_t id)
{
    node_t *node = &index->nodes[id];
    uint32_t *link =
        bucket_of(index, node->space, node->parent, tokens_of(index, id));

    while (*link != id) {
        link = &index->nodes[*link].bucket_next;
    }
    *link = node->bucket_next;
    if (node->parent != NONE) {
        index->nodes[node->parent].n_children--;
    }
    order_remove(index, id);
    node->used = false;
    bt_kv_pool_unkeep(index->pool, id);
}

uint32_t bt_kv_prefix_evict(bt_kv_prefix_t *index, uint32_t n)
{
    uint32_t id = index->oldest;
    uint32_t n_freed = 0;

    /* One way through: a parent comes after the last of its children. */
    while ((id != NONE) && (n_freed < n)) {
        const uint32_t newer = index->nodes[id].newer;

        if ((index->nodes[id].n_children == 0) &&
            bt_kv_pool_is_idle(index->pool, id)) {
            drop(index, id);
            n_freed++;
        }
        id = newer;
    }
    return n_freed;
}
