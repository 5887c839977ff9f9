/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/words.h"

#include "common/base/alloc.h"
#include "common/base/assert.h"

_Static_assert(sizeof(bt_word_entry_t) == 64, "an entry is a cache line");

#define MIN_SLOTS 16u
#define MIN_SETS  8u
#define WAYS      2u

static uint32_t shift_for(uint64_t n)
{
    return 64u - (uint32_t)__builtin_ctzll(n);
}

bt_status_t bt_word_table_init(bt_word_table_t *table, uint64_t n)
{
    uint64_t n_slots = MIN_SLOTS;

    while (n_slots / 2 < n) {
        n_slots *= 2;
    }
    table->slots = bt_calloc_aligned(n_slots, sizeof(*table->slots));
    if (table->slots == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    table->mask = n_slots - 1;
    table->shift = shift_for(n_slots);
    return BT_OK;
}

void bt_word_table_fini(bt_word_table_t *table)
{
    bt_free(table->slots);
    memset(table, 0, sizeof(*table));
}

void bt_word_table_put(bt_word_table_t *table, const uint8_t *word,
                       size_t bytes, uint32_t id)
{
    uint8_t buf[16] = {0};
    uint64_t low;
    uint64_t high;
    uint64_t i;

    BT_ASSERT((bytes > 0) && (bytes <= BT_WORD_TABLE_BYTES) && (id < 1u << 24));
    memcpy(buf, word, bytes);
    low = bt_word_load(buf);
    high = bt_word_load(buf + 8) | (uint64_t)bytes << 32;
    i = bt_word_home(table, low, high);
    while (table->slots[i].high != 0) {
        i = (i + 1) & table->mask;
    }
    table->slots[i].low = low;
    table->slots[i].high = high | (uint64_t)id << 40;
}

static void make_key(uint64_t key[4], const uint8_t *word, size_t bytes)
{
    for (size_t i = 0; i < 4; i++) {
        key[i] = (bytes <= 8 * i)
                     ? 0
                     : bt_word_cut(bt_word_load(word + 8 * i), bytes - 8 * i);
    }
    key[3] |= (uint64_t)bytes << 56;
}

static bt_word_entry_t *set_of(const bt_word_cache_t *cache,
                               const uint64_t key[4])
{
    uint64_t hash = key[0] * 0x9E3779B97F4A7C15u;

    hash = (hash ^ hash >> 32 ^ key[1]) * 0x9FB21C651E98DF25u;
    hash = (hash ^ hash >> 32 ^ key[2]) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 32 ^ key[3]) * 0x9FB21C651E98DF25u;
    return &cache->entries[(hash >> cache->shift) * WAYS];
}

static bool same_key(const uint64_t a[4], const uint64_t b[4])
{
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0;
}

const bt_word_entry_t *bt_word_cache_get(const bt_word_cache_t *cache,
                                         const uint8_t *word, size_t bytes)
{
    uint64_t key[4];
    const bt_word_entry_t *set;

    make_key(key, word, bytes);
    set = set_of(cache, key);
    for (size_t way = 0; way < WAYS; way++) {
        if (same_key(set[way].key, key)) {
            return &set[way];
        }
    }
    return NULL;
}

void bt_word_cache_put(bt_word_cache_t *cache, const uint8_t *word,
                       size_t bytes, const uint32_t *ids, size_t n)
{
    uint64_t key[4];
    bt_word_entry_t *set;

    BT_ASSERT(n <= BT_WORD_CACHE_IDS);
    make_key(key, word, bytes);
    set = set_of(cache, key);
    set[1] = set[0];
    memcpy(set[0].key, key, sizeof(key));
    set[0].n = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        set[0].ids[i] = ids[i];
    }
}

/* An entry is a cache line. */
static bt_word_entry_t *next_line(void *memory)
{
    const uintptr_t off = (uintptr_t)memory % sizeof(bt_word_entry_t);

    return (bt_word_entry_t *)((char *)memory + sizeof(bt_word_entry_t) - off);
}

bt_status_t bt_word_pool_init(bt_word_pool_t *pool, uint64_t n_words)
{
    uint64_t n_sets = MIN_SETS;

    memset(pool, 0, sizeof(*pool));
    while (n_sets * WAYS < n_words) {
        n_sets *= 2;
    }
    for (size_t i = 0; i < BT_WORD_POOL; i++) {
        bt_word_cache_t *cache = &pool->caches[i];

        /* Zeroed memory that is never written costs nothing: a router with one
         * tokenizing thread pays for one cache. */
        cache->memory = bt_calloc(n_sets * WAYS + 1, sizeof(*cache->entries));
        if (cache->memory == NULL) {
            bt_word_pool_fini(pool);
            return BT_ERR_NO_MEMORY;
        }
        cache->entries = next_line(cache->memory);
        cache->shift = shift_for(n_sets);
    }
    return BT_OK;
}

void bt_word_pool_fini(bt_word_pool_t *pool)
{
    for (size_t i = 0; i < BT_WORD_POOL; i++) {
        bt_free(pool->caches[i].memory);
    }
    memset(pool, 0, sizeof(*pool));
}

bt_word_cache_t *bt_word_pool_take(bt_word_pool_t *pool)
{
    for (uint32_t i = 0; i < BT_WORD_POOL; i++) {
        const uint32_t bit = 1u << i;

        if ((atomic_load_explicit(&pool->taken, memory_order_relaxed) & bit) !=
            0) {
            continue;
        }
        if ((atomic_fetch_or_explicit(&pool->taken, bit, memory_order_acquire) &
             bit) == 0) {
            return &pool->caches[i];
        }
    }
    return NULL;
}

void bt_word_pool_give(bt_word_pool_t *pool, bt_word_cache_t *cache)
{
    if (cache != NULL) {
        atomic_fetch_and_explicit(&pool->taken,
                                  ~(1u << (uint32_t)(cache - pool->caches)),
                                  memory_order_release);
    }
}

void bt_word_pool_clear(bt_word_pool_t *pool)
{
    for (size_t i = 0; i < BT_WORD_POOL; i++) {
        bt_word_cache_t *cache = &pool->caches[i];

        memset(cache->entries, 0,
               ((size_t)WAYS << (64u - cache->shift)) *
                   sizeof(*cache->entries));
        cache->n_table = cache->n_hits = cache->n_merged = cache->n_steps = 0;
    }
}
