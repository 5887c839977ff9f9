/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/draft/draft_cache.h"

#include <string.h>

#include "common/base/alloc.h"

#define COMPARED 64u /* tokens at once, while they are equal */

struct bt_draft_cache {
    bt_draft_cache_config_t config;
    size_t block_bytes;
    uint32_t max_slot_blocks;
    void *base;
    bt_draft_slot_t *slots; /* [n_slots] */
    uint32_t *tables;       /* (n_slots, max_slot_blocks) */
    uint32_t *tokens;       /* (n_slots, context_tokens) */
    uint32_t *free_ids;     /* [n_blocks], the first n_free */
    uint32_t n_free;
    uint64_t turn;
};

/* Bytes of each of the arrays of a cache. */
typedef struct sizes {
    size_t block;
    size_t kv, slots, tables, tokens, free_ids;
} sizes_t;

static bt_status_t measure(const bt_draft_cache_config_t *config,
                           sizes_t *sizes, size_t *total_p)
{
    const uint32_t n_table =
        (config->shape.tokens_per_block > 0)
            ? bt_kv_blocks_for(config->context_tokens,
                               config->shape.tokens_per_block)
            : 0;
    size_t total = 0;
    const struct {
        size_t *bytes_p;
        size_t n, of, size;
    } all[] = {
        {&sizes->kv, 1, config->n_blocks, 0},
        {&sizes->slots, 1, config->n_slots, sizeof(bt_draft_slot_t)},
        {&sizes->tables, config->n_slots, n_table, sizeof(uint32_t)},
        {&sizes->tokens, config->n_slots, config->context_tokens,
         sizeof(uint32_t)},
        {&sizes->free_ids, 1, config->n_blocks, sizeof(uint32_t)},
    };
    const bt_status_t status = bt_kv_block_bytes(&config->shape, &sizes->block);

    if (status != BT_OK) {
        return status;
    }
    if ((config->n_slots == 0) || (config->n_blocks == 0) ||
        (config->context_tokens == 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        const size_t size = (all[i].size > 0) ? all[i].size : sizes->block;
        size_t n;

        if (__builtin_mul_overflow(all[i].n, all[i].of, &n) ||
            __builtin_mul_overflow(n, size, all[i].bytes_p) ||
            __builtin_add_overflow(total, *all[i].bytes_p, &total)) {
            return BT_ERR_OVERFLOW;
        }
    }
    *total_p = total;
    return BT_OK;
}

bt_status_t bt_draft_cache_bytes(const bt_draft_cache_config_t *config,
                                 size_t *bytes_p)
{
    sizes_t sizes;

    return measure(config, &sizes, bytes_p);
}

bt_status_t bt_draft_cache_create(const bt_draft_cache_config_t *config,
                                  bt_draft_cache_t **cache_p)
{
    sizes_t sizes;
    size_t total;
    bt_draft_cache_t *cache;
    const bt_status_t status = measure(config, &sizes, &total);

    if (status != BT_OK) {
        return status;
    }
    cache = bt_calloc(1, sizeof(*cache));
    if (cache == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    cache->config = *config;
    cache->block_bytes = sizes.block;
    cache->max_slot_blocks = bt_kv_blocks_for(config->context_tokens,
                                              config->shape.tokens_per_block);
    cache->base = bt_calloc_aligned(config->n_blocks, sizes.block);
    cache->slots = bt_calloc(config->n_slots, sizeof(*cache->slots));
    cache->tables = bt_calloc(1, sizes.tables);
    cache->tokens = bt_calloc(1, sizes.tokens);
    cache->free_ids = bt_calloc(config->n_blocks, sizeof(*cache->free_ids));
    if ((cache->base == NULL) || (cache->slots == NULL) ||
        (cache->tables == NULL) || (cache->tokens == NULL) ||
        (cache->free_ids == NULL)) {
        bt_draft_cache_destroy(cache);
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < config->n_slots; i++) {
        cache->slots[i].blocks =
            cache->tables + (size_t)i * cache->max_slot_blocks;
        cache->slots[i].tokens =
            cache->tokens + (size_t)i * config->context_tokens;
    }
    for (uint32_t i = 0; i < config->n_blocks; i++) {
        cache->free_ids[i] = config->n_blocks - 1 - i; /* 0 is taken first */
    }
    cache->n_free = config->n_blocks;
    *cache_p = cache;
    return BT_OK;
}

void bt_draft_cache_destroy(bt_draft_cache_t *cache)
{
    if (cache != NULL) {
        bt_free(cache->base);
        bt_free(cache->slots);
        bt_free(cache->tables);
        bt_free(cache->tokens);
        bt_free(cache->free_ids);
        bt_free(cache);
    }
}

bt_kv_view_t bt_draft_cache_view(const bt_draft_cache_t *cache)
{
    const bt_kv_shape_t *shape = &cache->config.shape;

    return (bt_kv_view_t){.base = cache->base,
                          .block_bytes = cache->block_bytes,
                          .type = cache->config.type,
                          .n_layers = shape->n_layers,
                          .n_kv_heads = shape->n_kv_heads,
                          .head_dim = shape->head_dim,
                          .tokens_per_block = shape->tokens_per_block};
}

void bt_draft_cache_begin_turn(bt_draft_cache_t *cache)
{
    cache->turn++;
}

static bool is_in_use(const bt_draft_cache_t *cache,
                      const bt_draft_slot_t *slot)
{
    return (slot->owner != NULL) && (slot->turn == cache->turn);
}

/* Returns how many tokens from the first on the slot has lasting K and V for,
 * or knows where it has none, and are those of the sequence. */
static uint32_t count_common(const bt_draft_slot_t *slot, bt_hash128_t space,
                             const uint32_t *tokens, uint32_t n_tokens)
{
    const uint32_t most =
        (slot->lasting_end < n_tokens) ? slot->lasting_end : n_tokens;
    uint32_t n = 0;

    if (!bt_hash128_equal(slot->space, space)) {
        return 0;
    }
    while ((most - n >= COMPARED) &&
           (memcmp(&slot->tokens[n], &tokens[n], COMPARED * sizeof(*tokens)) ==
            0)) {
        n += COMPARED;
    }
    while ((n < most) && (slot->tokens[n] == tokens[n])) {
        n++;
    }
    return n;
}

/* Returns the blocks from the nth one on. */
static void return_blocks(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                          uint32_t n)
{
    while (slot->n_blocks > n) {
        cache->free_ids[cache->n_free++] = slot->blocks[--slot->n_blocks];
    }
}

void bt_draft_cache_truncate(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                             uint32_t end)
{
    if (end < slot->end) {
        slot->end = (end > slot->begin) ? end : slot->begin;
    }
    if (slot->end < slot->lasting_end) {
        slot->lasting_end = slot->end;
    }
    return_blocks(cache, slot,
                  bt_kv_blocks_for(slot->end - slot->begin,
                                   cache->config.shape.tokens_per_block));
}

/* Keeps what the slot has of the sequence. K and V depend on all tokens before
 * them, those before `begin` included. */
static void keep_common(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                        uint32_t n_common, uint32_t n_tokens)
{
    bt_draft_cache_truncate(
        cache, slot, (n_common < n_tokens - 1) ? n_common : n_tokens - 1);
    slot->turn = cache->turn;
}

static bt_draft_slot_t *slot_of(const bt_draft_cache_t *cache,
                                const void *owner)
{
    for (uint32_t i = 0; i < cache->config.n_slots; i++) {
        if (cache->slots[i].owner == owner) {
            return &cache->slots[i];
        }
    }
    return NULL;
}

bt_draft_slot_t *bt_draft_cache_find(bt_draft_cache_t *cache, const void *owner,
                                     bt_hash128_t space, const uint32_t *tokens,
                                     uint32_t n_tokens)
{
    bt_draft_slot_t *slot = slot_of(cache, owner);

    if (slot == NULL) {
        return NULL;
    }
    keep_common(cache, slot, count_common(slot, space, tokens, n_tokens),
                n_tokens);
    if (slot->end == slot->begin) {
        slot->owner = NULL;
        return NULL;
    }
    return slot;
}

/* Finds the slot to take over: that with the most tokens in common, then the
 * least recently used. */
static bt_draft_slot_t *choose(const bt_draft_cache_t *cache,
                               bt_hash128_t space, const uint32_t *tokens,
                               uint32_t n_tokens, uint32_t *n_common_p)
{
    bt_draft_slot_t *best = NULL;
    uint32_t n_best = 0;

    for (uint32_t i = 0; i < cache->config.n_slots; i++) {
        bt_draft_slot_t *slot = &cache->slots[i];
        uint32_t n;

        if (is_in_use(cache, slot)) {
            continue;
        }
        n = count_common(slot, space, tokens, n_tokens);
        n = (n > slot->begin) ? n : 0;
        if ((best == NULL) || (n > n_best) ||
            ((n == n_best) && (slot->turn < best->turn))) {
            best = slot;
            n_best = n;
        }
    }
    *n_common_p = n_best;
    return best;
}

bt_draft_slot_t *bt_draft_cache_take(bt_draft_cache_t *cache, const void *owner,
                                     bt_hash128_t space, const uint32_t *tokens,
                                     uint32_t n_tokens, uint32_t first)
{
    bt_draft_slot_t *slot =
        bt_draft_cache_find(cache, owner, space, tokens, n_tokens);
    uint32_t n_common;

    if (slot == NULL) {
        slot = choose(cache, space, tokens, n_tokens, &n_common);
        if (slot == NULL) {
            return NULL;
        }
        keep_common(cache, slot, n_common, n_tokens);
        slot->owner = owner;
        slot->space = space;
    }
    if (slot->end == slot->begin) {
        slot->begin = slot->end = slot->lasting_end = first;
        memcpy(slot->tokens, tokens, first * sizeof(*tokens));
    }
    return slot;
}

bool bt_draft_cache_can_hold(const bt_draft_cache_t *cache, const void *owner,
                             uint32_t n_positions)
{
    uint32_t n = cache->n_free;

    for (uint32_t i = 0; i < cache->config.n_slots; i++) {
        const bt_draft_slot_t *slot = &cache->slots[i];

        n += ((slot->owner == owner) || !is_in_use(cache, slot))
                 ? slot->n_blocks
                 : 0;
    }
    return (n_positions <= cache->config.context_tokens) &&
           (bt_kv_blocks_for(n_positions,
                             cache->config.shape.tokens_per_block) <= n);
}

/* Takes the blocks of slots that are not in use until so many are free. */
static bool free_blocks(bt_draft_cache_t *cache, const bt_draft_slot_t *mine,
                        uint32_t n)
{
    uint32_t n_idle = 0;

    for (uint32_t i = 0; i < cache->config.n_slots; i++) {
        const bt_draft_slot_t *slot = &cache->slots[i];

        n_idle +=
            (is_in_use(cache, slot) || (slot == mine)) ? 0 : slot->n_blocks;
    }
    if (n > cache->n_free + n_idle) {
        return false;
    }
    while (n > cache->n_free) {
        bt_draft_slot_t *oldest = NULL;

        for (uint32_t i = 0; i < cache->config.n_slots; i++) {
            bt_draft_slot_t *slot = &cache->slots[i];

            if (!is_in_use(cache, slot) && (slot != mine) &&
                (slot->n_blocks > 0) &&
                ((oldest == NULL) || (slot->turn < oldest->turn))) {
                oldest = slot;
            }
        }
        bt_draft_cache_truncate(cache, oldest, oldest->begin);
    }
    return true;
}

bool bt_draft_cache_reserve(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                            uint32_t end)
{
    const uint32_t n = bt_kv_blocks_for(end - slot->begin,
                                        cache->config.shape.tokens_per_block);

    if (end > cache->config.context_tokens) {
        return false;
    }
    if (n <= slot->n_blocks) {
        return true;
    }
    if (!free_blocks(cache, slot, n - slot->n_blocks)) {
        return false;
    }
    while (slot->n_blocks < n) {
        slot->blocks[slot->n_blocks++] = cache->free_ids[--cache->n_free];
    }
    return true;
}

void bt_draft_cache_store(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                          const uint32_t *tokens, uint32_t end, bool last)
{
    BT_ASSERT_ALWAYS(!last || (slot->lasting_end == slot->end));
    BT_ASSERT_ALWAYS(
        (end >= slot->end) && (end <= cache->config.context_tokens) &&
        (end - slot->begin <=
         (size_t)slot->n_blocks * cache->config.shape.tokens_per_block));
    memcpy(&slot->tokens[slot->end], &tokens[slot->end],
           (end - slot->end) * sizeof(*tokens));
    slot->end = end;
    slot->lasting_end = last ? end : slot->lasting_end;
}

uint32_t bt_draft_cache_n_free(const bt_draft_cache_t *cache)
{
    return cache->n_free;
}
