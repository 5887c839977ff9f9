/* SPDX-License-Identifier: Apache-2.0 */
/** @file words.h
 *
 * Lookup of a word's tokens without merging.
 *
 *     table   words of 1 … 12 bytes that become one token: most words of
 *             most texts. Made at load, read by all threads, never changed.
 *     cache   words and parts of words of up to 31 bytes and their up to 7
 *             tokens, as seen. One thread at a time owns a cache. Two words
 *             per set; a new one replaces the older one.
 *
 * Words are compared completely, so that no choice of words gives wrong tokens;
 * at worst they share a set, and are merged each time.
 *
 * Threads: as stated for each type; a bt_word_pool_t gives caches to threads
 *         without waiting.
 */
#ifndef BT_INFERENCE_TOKENIZER_WORDS_H
#define BT_INFERENCE_TOKENIZER_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/status.h"

#define BT_WORD_TABLE_BYTES 12u /**< longest word in the table */
#define BT_WORD_CACHE_BYTES 31u /**< longest word in a cache */
#define BT_WORD_CACHE_IDS   7u
#define BT_WORD_POOL        4u /**< number of caches of a tokenizer */

/** Bytes that must be readable from a word's start: the word lies before other
 *  data or in a buffer of that size. */
#define BT_WORD_SLACK 32u

typedef struct bt_word_slot {
    uint64_t low;  /**< bytes 0 … 7, the first lowest */
    uint64_t high; /**< bytes 8 … 11 | length << 32 | id << 40; 0 is empty */
} bt_word_slot_t;

typedef struct bt_word_table {
    bt_word_slot_t *slots; /**< owned */
    uint64_t mask;
    uint32_t shift;
} bt_word_table_t;

/** Allocates an empty table for @a n words. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_word_table_init(bt_word_table_t *table,
                                             uint64_t n);
void bt_word_table_fini(bt_word_table_t *table);

/** Adds a word that is not in the table yet, at most n.
 *  @param [in] id  Below 2^24. */
void bt_word_table_put(bt_word_table_t *table, const uint8_t *word,
                       size_t bytes, uint32_t id);

static inline uint64_t bt_word_load(const uint8_t *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof(word));
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/** Returns the first @a bytes bytes of @a word; all for 8 and more. */
static inline uint64_t bt_word_cut(uint64_t word, size_t bytes)
{
    return (bytes >= 8) ? word : word & (((uint64_t)1 << 8 * bytes) - 1);
}

static inline uint64_t bt_word_home(const bt_word_table_t *table, uint64_t low,
                                    uint64_t high)
{
    return ((low ^ high * 0x9FB21C651E98DF25u) * 0x9E3779B97F4A7C15u) >>
           table->shift;
}

/**
 * Finds a word.
 *
 * @param [in] word   16 bytes from here must be readable.
 * @param [in] bytes  1 … BT_WORD_TABLE_BYTES.
 * @return id, or UINT32_MAX where the word is not one token
 */
static inline uint32_t bt_word_table_get(const bt_word_table_t *table,
                                         const uint8_t *word, size_t bytes)
{
    const uint64_t low = bt_word_cut(bt_word_load(word), bytes);
    const uint64_t rest =
        (bytes <= 8) ? 0 : bt_word_cut(bt_word_load(word + 8), bytes - 8);
    const uint64_t high = rest | (uint64_t)bytes << 32;
    uint64_t i = bt_word_home(table, low, high);

    while (table->slots[i].high != 0) {
        const bt_word_slot_t *slot = &table->slots[i];

        if ((slot->low == low) && ((slot->high ^ high) << 24 == 0)) {
            return (uint32_t)(slot->high >> 40);
        }
        i = (i + 1) & table->mask;
    }
    return UINT32_MAX;
}

/** Cache entry of one cache line; key[3] has the length in its top byte, 0 is
 *  empty. */
typedef struct bt_word_entry {
    uint64_t key[4];
    uint32_t n;
    uint32_t ids[BT_WORD_CACHE_IDS];
} bt_word_entry_t;

typedef struct bt_word_cache {
    void *memory;             /**< owned */
    bt_word_entry_t *entries; /**< within memory; two to a set, the newer
                                   first */
    uint32_t shift;           /**< 64 - log2 of the number of sets */
    uint64_t n_table;         /**< lookups found in the table */
    uint64_t n_hits;          /**< lookups found in the cache */
    uint64_t n_merged;        /**< lookups found in neither */
    uint64_t n_steps;         /**< steps of merging long words found in
                                   neither */
} bt_word_cache_t;

/** Finds a word.
 *  @param [in] word   BT_WORD_SLACK bytes from here must be readable.
 *  @param [in] bytes  1 … BT_WORD_CACHE_BYTES.
 *  @return the word's entry, or NULL */
const bt_word_entry_t *bt_word_cache_get(const bt_word_cache_t *cache,
                                         const uint8_t *word, size_t bytes);
/** Adds a word that bt_word_cache_get() did not find.
 *  @param [in] n  At most BT_WORD_CACHE_IDS. */
void bt_word_cache_put(bt_word_cache_t *cache, const uint8_t *word,
                       size_t bytes, const uint32_t *ids, size_t n);

/** Caches of a tokenizer. A thread takes a free one, and returns it to its
 *  slot; when all are taken it works without. */
typedef struct bt_word_pool {
    bt_word_cache_t caches[BT_WORD_POOL];
    _Atomic uint32_t taken; /**< bit i: some thread owns cache i */
} bt_word_pool_t;

/** Allocates the caches.
 *  @param [in] n_words  Words of each cache, rounded up to a power of two.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_word_pool_init(bt_word_pool_t *pool,
                                            uint64_t n_words);
void bt_word_pool_fini(bt_word_pool_t *pool);

/** Takes a free cache.
 *  @return a cache that is the caller's until bt_word_pool_give(), or NULL */
bt_word_cache_t *bt_word_pool_take(bt_word_pool_t *pool);
/** Returns a cache to the pool.
 *  @param [in] cache  May be NULL. */
void bt_word_pool_give(bt_word_pool_t *pool, bt_word_cache_t *cache);

/** Clears all words and counts. The pool must not be in use meanwhile. */
void bt_word_pool_clear(bt_word_pool_t *pool);

#endif
