/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_prefix.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/status.h"

#define NONE UINT32_MAX

typedef struct node {
    uint32_t parent;    /* NONE: a first span */
    bt_hash128_t space; /* equal to the parent's */
    uint32_t n_children;
    uint32_t bucket_next; /* of a spare one: the next spare */
    uint32_t older, newer;
} node_t;

/* Invariant: in the order oldest .. newest every node comes before its
 * parent, since a node's parent is touched right after the node. */
struct bt_kv_prefix {
    bt_kv_pool_t *pool;
    const bt_kv_groups_t *groups;
    uint32_t tokens_per_block;
    bool has_windows, may_run_out;
    uint64_t seed;
    uint32_t oldest, newest;
    uint32_t spare; /* nodes that are not in use */
    uint32_t mask;  /* n_buckets - 1, a power of two */
    uint32_t n_nodes;
    uint32_t *buckets;
    node_t *nodes;
    uint32_t *blocks; /* of each node, [n_groups] */
    uint32_t *tokens; /* of each node, [tokens_per_block] */
    uint32_t *path;   /* scratch of a match */
};

static void memory_free(bt_kv_prefix_t *index)
{
    bt_free(index->path);
    bt_free(index->tokens);
    bt_free(index->blocks);
    bt_free(index->nodes);
    bt_free(index->buckets);
    bt_free(index);
}

static void forget_nodes(bt_kv_prefix_t *index)
{
    for (uint64_t i = 0; i <= index->mask; i++) {
        index->buckets[i] = NONE;
    }
    for (uint32_t i = 0; i < index->n_nodes; i++) {
        index->nodes[i] =
            (node_t){.bucket_next = (i + 1 < index->n_nodes) ? i + 1 : NONE};
    }
    index->spare = 0;
    index->oldest = index->newest = NONE;
}

bt_status_t bt_kv_prefix_create(bt_kv_pool_t *pool, uint32_t n_blocks,
                                const bt_kv_groups_t *groups, uint64_t seed,
                                bt_kv_prefix_t **index_p)
{
    const uint32_t t = groups->tokens_per_block;
    const uint32_t n_whole = bt_kv_groups_n_whole(groups);
    /* Each node has at least one block, if a group uses full attention;
     * otherwise some are reserved for inner nodes, and they may run out. */
    const uint32_t n_nodes = (n_whole > 0) ? n_blocks : 2 * n_blocks;
    bt_kv_prefix_t *index;
    uint64_t n_buckets = 1;

    if ((n_blocks == 0) || (n_blocks > NONE / 4)) {
        return BT_ERR_INVALID_PARAM;
    }
    index = bt_calloc(1, sizeof(*index));
    if (index == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    while (n_buckets < n_nodes) {
        n_buckets *= 2;
    }
    index->buckets = bt_calloc(n_buckets, sizeof(*index->buckets));
    index->nodes = bt_calloc(n_nodes, sizeof(*index->nodes));
    index->blocks =
        bt_calloc((size_t)n_nodes * groups->n, sizeof(*index->blocks));
    index->tokens = bt_calloc((size_t)n_nodes * t, sizeof(*index->tokens));
    index->path = bt_calloc(n_nodes, sizeof(*index->path));
    if ((index->buckets == NULL) || (index->nodes == NULL) ||
        (index->blocks == NULL) || (index->tokens == NULL) ||
        (index->path == NULL)) {
        memory_free(index);
        return BT_ERR_NO_MEMORY;
    }
    index->pool = pool;
    index->groups = groups;
    index->has_windows = n_whole < groups->n;
    index->may_run_out = n_whole == 0;
    index->tokens_per_block = t;
    index->seed = seed;
    index->mask = (uint32_t)(n_buckets - 1);
    index->n_nodes = n_nodes;
    forget_nodes(index);
    *index_p = index;
    return BT_OK;
}

static uint32_t *blocks_of(const bt_kv_prefix_t *index, uint32_t id)
{
    return index->blocks + (size_t)id * index->groups->n;
}

/* Give a node's references back. @return how many they were */
static uint32_t unkeep(bt_kv_prefix_t *index, uint32_t id)
{
    const uint32_t *blocks = blocks_of(index, id);
    uint32_t n = 0;

    for (uint32_t g = 0; g < index->groups->n; g++) {
        if (blocks[g] != BT_KV_NO_BLOCK) {
            bt_kv_pool_unkeep(index->pool, blocks[g]);
            n++;
        }
    }
    return n;
}

static uint32_t unkeep_all(bt_kv_prefix_t *index)
{
    uint32_t n = 0;

    for (uint32_t id = index->oldest; id != NONE; id = index->nodes[id].newer) {
        n += unkeep(index, id);
    }
    return n;
}

void bt_kv_prefix_destroy(bt_kv_prefix_t *index)
{
    if (index == NULL) {
        return;
    }
    (void)unkeep_all(index);
    memory_free(index);
}

uint32_t bt_kv_prefix_clear(bt_kv_prefix_t *index)
{
    const uint32_t n = unkeep_all(index);

    forget_nodes(index);
    return n;
}

/* ---- where a node is ---- */

static size_t span_bytes(const bt_kv_prefix_t *index)
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
        bt_hash64(tokens, span_bytes(index), index->seed ^ before);

    return &index->buckets[hash & index->mask];
}

/* A parent is in one space, so below the first spans that is compared. */
static bool is_node(const bt_kv_prefix_t *index, uint32_t id,
                    bt_hash128_t space, uint32_t parent, const uint32_t *tokens)
{
    const node_t *node = &index->nodes[id];

    return (node->parent == parent) && bt_hash128_equal(node->space, space) &&
           (memcmp(tokens_of(index, id), tokens, span_bytes(index)) == 0);
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

/* The first span of a group that is needed when n_spans are found. */
static uint32_t first_needed(const bt_kv_groups_t *groups, uint32_t group,
                             uint32_t n_spans, uint64_t n_known)
{
    const uint64_t n = (uint64_t)n_spans * groups->tokens_per_block;

    return bt_kv_group_first_span(&groups->group[group],
                                  (n > n_known) ? n : n_known);
}

/* @return how many spans on the path every group has what it needs of: the
 *     largest such number */
static uint32_t n_found(const bt_kv_prefix_t *index, uint32_t n_path,
                        uint64_t n_known)
{
    const bt_kv_groups_t *groups = index->groups;
    uint32_t run[BT_KV_MAX_GROUPS] = {0}; /* present up to here, without gap */
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_path; i++) {
        const uint32_t *blocks = blocks_of(index, index->path[i]);
        const uint32_t end = i + 1;
        bool whole = true;

        for (uint32_t g = 0; g < groups->n; g++) {
            run[g] = (blocks[g] == BT_KV_NO_BLOCK) ? 0 : run[g] + 1;
            whole = whole &&
                    ((uint64_t)run[g] + first_needed(groups, g, end, n_known) >=
                     end);
        }
        n = whole ? end : n;
    }
    return n;
}

/* Takes references to what the groups need of the first n_spans of the path. */
static void hold(bt_kv_prefix_t *index, uint32_t n_spans, uint64_t n_known,
                 uint32_t *table)
{
    const bt_kv_groups_t *groups = index->groups;

    for (uint32_t g = 0; g < groups->n; g++) {
        const uint32_t first = first_needed(groups, g, n_spans, n_known);

        for (uint32_t i = 0; i < n_spans; i++) {
            uint32_t *id = &table[(size_t)i * groups->n + g];

            *id = BT_KV_NO_BLOCK;
            if (i >= first) {
                *id = blocks_of(index, index->path[i])[g];
                bt_kv_pool_ref(index->pool, *id);
            }
        }
    }
}

uint32_t bt_kv_prefix_match(bt_kv_prefix_t *index, bt_hash128_t space,
                            const uint32_t *tokens, uint32_t max_spans,
                            uint64_t n_known, uint32_t *table)
{
    uint32_t last = NONE;
    uint32_t n_path = 0;
    uint32_t n;

    while (n_path < max_spans) {
        const uint32_t id = find(index, space, last, tokens);

        if (id == NONE) {
            break;
        }
        index->path[n_path++] = id;
        last = id;
        tokens += index->tokens_per_block;
    }
    n = n_found(index, n_path, n_known);
    hold(index, n, n_known, table);
    touch(index, (n == 0) ? NONE : index->path[n - 1]);
    return n;
}

/* A node of these tokens; without blocks yet. NONE: there is none left. */
static uint32_t add(bt_kv_prefix_t *index, bt_hash128_t space, uint32_t parent,
                    const uint32_t *tokens)
{
    uint32_t *bucket = bucket_of(index, space, parent, tokens);
    const uint32_t id = index->spare;
    node_t *node;

    if (id == NONE) {
        BT_ASSERT_ALWAYS(index->may_run_out); /* no more nodes than blocks */
        return NONE;
    }
    node = &index->nodes[id];
    index->spare = node->bucket_next;
    node->parent = parent;
    node->space = space;
    node->n_children = 0;
    node->bucket_next = *bucket;
    *bucket = id;
    memcpy(tokens_of(index, id), tokens, span_bytes(index));
    if (parent != NONE) {
        index->nodes[parent].n_children++;
    }
    order_append(index, id);
    for (uint32_t g = 0; g < index->groups->n; g++) {
        blocks_of(index, id)[g] = BT_KV_NO_BLOCK;
    }
    return id;
}

/* Blocks of the caller of an insert. */
typedef struct rows {
    const uint32_t *table;
    const bt_kv_hold_t *hold;
    uint32_t n_groups;
} rows_t;

static uint32_t block_at(const rows_t *rows, uint32_t span, uint32_t group)
{
    const bt_kv_hold_t *hold = rows->hold;

    if ((hold != NULL) &&
        ((span < hold->first[group]) || (span >= hold->end[group]))) {
        return BT_KV_NO_BLOCK;
    }
    return rows->table[(size_t)span * rows->n_groups + group];
}

static bool has_any(const rows_t *rows, uint32_t span)
{
    for (uint32_t g = 0; g < rows->n_groups; g++) {
        if (block_at(rows, span, g) != BT_KV_NO_BLOCK) {
            return true;
        }
    }
    return false;
}

/* A block of the node's group is the caller's too, or the caller has
 * released it, or it is not needed. */
static bool agrees(const bt_kv_prefix_t *index, uint32_t id, const rows_t *rows,
                   uint32_t span)
{
    const uint32_t *blocks = blocks_of(index, id);

    for (uint32_t g = 0; g < rows->n_groups; g++) {
        const uint32_t block = block_at(rows, span, g);

        if ((blocks[g] != block) && (blocks[g] != BT_KV_NO_BLOCK) &&
            (block != BT_KV_NO_BLOCK) &&
            !(index->has_windows &&
              bt_kv_pool_is_idle(index->pool, blocks[g]))) {
            return false;
        }
    }
    return true;
}

static void fill(bt_kv_prefix_t *index, uint32_t id, const rows_t *rows,
                 uint32_t span)
{
    uint32_t *blocks = blocks_of(index, id);

    for (uint32_t g = 0; g < rows->n_groups; g++) {
        const uint32_t block = block_at(rows, span, g);

        if ((block == BT_KV_NO_BLOCK) || (block == blocks[g])) {
            continue;
        }
        if (blocks[g] != BT_KV_NO_BLOCK) {
            bt_kv_pool_unkeep(index->pool, blocks[g]);
        }
        bt_kv_pool_keep(index->pool, block);
        blocks[g] = block;
    }
}

void bt_kv_prefix_insert(bt_kv_prefix_t *index, bt_hash128_t space,
                         const uint32_t *tokens, uint32_t n_spans,
                         const uint32_t *table, const bt_kv_hold_t *hold)
{
    const rows_t rows = {
        .table = table, .hold = hold, .n_groups = index->groups->n};
    uint32_t last = NONE;

    while ((n_spans > 0) && !has_any(&rows, n_spans - 1)) {
        n_spans--;
    }
    for (uint32_t i = 0; i < n_spans; i++) {
        uint32_t id = find(index, space, last, tokens);

        if (id == NONE) {
            id = add(index, space, last, tokens);
        } else if (!agrees(index, id, &rows, i)) {
            break;
        }
        if (id == NONE) {
            break;
        }
        fill(index, id, &rows, i);
        last = id;
        tokens += index->tokens_per_block;
    }
    touch(index, last);
}

/* @return blocks that are free now */
static uint32_t drop(bt_kv_prefix_t *index, uint32_t id)
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
    node->bucket_next = index->spare;
    index->spare = id;
    return unkeep(index, id);
}

static bool is_idle(const bt_kv_prefix_t *index, uint32_t id)
{
    const uint32_t *blocks = blocks_of(index, id);

    for (uint32_t g = 0; g < index->groups->n; g++) {
        if ((blocks[g] != BT_KV_NO_BLOCK) &&
            !bt_kv_pool_is_idle(index->pool, blocks[g])) {
            return false;
        }
    }
    return true;
}

/* Evicts the blocks of a node that stays which its group can do without.
 * @return number of blocks freed */
static uint32_t strip(bt_kv_prefix_t *index, uint32_t id)
{
    uint32_t *blocks = blocks_of(index, id);
    uint32_t n = 0;

    for (uint32_t g = 0; g < index->groups->n; g++) {
        if (bt_kv_group_is_windowed(&index->groups->group[g]) &&
            (blocks[g] != BT_KV_NO_BLOCK) &&
            bt_kv_pool_is_idle(index->pool, blocks[g])) {
            bt_kv_pool_unkeep(index->pool, blocks[g]);
            blocks[g] = BT_KV_NO_BLOCK;
            n++;
        }
    }
    return n;
}

uint32_t bt_kv_prefix_evict(bt_kv_prefix_t *index, uint32_t n)
{
    uint32_t id = index->oldest;
    uint32_t n_freed = 0;

    /* One pass suffices: a parent comes after the last of its children. */
    while ((id != NONE) && (n_freed < n)) {
        const uint32_t newer = index->nodes[id].newer;

        if ((index->nodes[id].n_children == 0) && is_idle(index, id)) {
            n_freed += drop(index, id);
        } else if (index->has_windows) {
            n_freed += strip(index, id);
        }
        id = newer;
    }
    return n_freed;
}
