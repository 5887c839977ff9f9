/* SPDX-License-Identifier: Apache-2.0 */
/** @file tables.h
 *
 * Trie over the bytes of token texts: the children of a node are adjacent, in
 * the order of their bytes.
 *
 * Threads: any number of readers once made.
 */
#ifndef BT_INFERENCE_TOKENIZER_TABLES_H
#define BT_INFERENCE_TOKENIZER_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Reserves space for @a n elements of an owned array, whose capacity grows to
 * a power of two.
 *  @return the array, which may have moved; NULL: no memory, and the array is
 *          unchanged */
void *bt_array_reserve(void *array, size_t *cap_p, size_t n, size_t size);

#define BT_TRIE_NONE UINT32_MAX

typedef struct bt_trie_node {
    uint32_t id;    /**< id of the token that ends here, or BT_TRIE_NONE */
    uint32_t first; /**< index of the first child */
    uint16_t n;     /**< number of children */
    uint8_t byte;   /**< byte that leads here */
} bt_trie_node_t;

typedef struct bt_trie {
    bt_trie_node_t *nodes; /**< owned; 0 is the root */
    uint32_t n;
} bt_trie_t;

typedef struct bt_trie_text {
    const uint8_t *text;
    uint32_t bytes; /**< not 0 */
    uint32_t id;
} bt_trie_text_t;

/** Builds a trie.
 *  @param [in,out] list  different texts; is sorted
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_trie_init(bt_trie_t *trie, bt_trie_text_t *list,
                                       uint32_t n);
void bt_trie_fini(bt_trie_t *trie);

/** Finds a child by its byte. @return a child, or BT_TRIE_NONE */
static inline uint32_t bt_trie_child(const bt_trie_t *trie, uint32_t node,
                                     uint8_t byte)
{
    uint32_t low = trie->nodes[node].first;
    uint32_t n = trie->nodes[node].n;

    while (n > 1) {
        const uint32_t half = n / 2;

        if (trie->nodes[low + half].byte <= byte) {
            low += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return ((n == 1) && (trie->nodes[low].byte == byte)) ? low : BT_TRIE_NONE;
}

/*
 * The two flat open-addressing hash tables of a tokenizer.
 *
 *     pairs   (left id, right id)  →  (rank, merged id); lower rank first
 *     texts   bytes of a token     →  its id
 *
 * Most pairs that are looked up are in no vocabulary: a filter of 4 bits per
 * slot, small enough for a near cache, rejects 9 of 10.
 *
 * Threads: any number of readers once filled.
 */

#define BT_NO_RANK UINT32_MAX

typedef struct bt_pair_slot {
    uint64_t key; /**< left << 32 | right */
    uint32_t rank;
    uint32_t merged;
} bt_pair_slot_t;

typedef struct bt_pair_table {
    bt_pair_slot_t *slots; /**< owned; an empty one has rank BT_NO_RANK */
    uint64_t *filter;      /**< owned; bit bt_pair_hash() >> (shift - 2) */
    uint32_t shift;        /**< 64 - log2 of the number of slots */
    uint64_t mask;         /**< number of slots - 1 */
    uint64_t n;
} bt_pair_table_t;

/** Entry of a pair that is not in the table: rank BT_NO_RANK. */
extern const bt_pair_slot_t bt_pair_none;

/** Allocates space for @a n pairs; the table grows automatically.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_pair_table_init(bt_pair_table_t *table,
                                             uint64_t n);
void bt_pair_table_fini(bt_pair_table_t *table);

/** Adds a pair. Of two entries for one pair the lower rank stays.
 *  @param [in] rank  Not BT_NO_RANK.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_pair_table_put(bt_pair_table_t *table,
                                            uint32_t left, uint32_t right,
                                            uint32_t rank, uint32_t merged);

static inline uint64_t bt_pair_hash(uint64_t key)
{
    /* Both halves must reach the upper bits, which choose the slot. */
    return (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
}

/** Finds a pair. @return the slot of the pair, or one with rank BT_NO_RANK */
static inline const bt_pair_slot_t *
bt_pair_table_get(const bt_pair_table_t *table, uint32_t left, uint32_t right)
{
    const uint64_t key = (uint64_t)left << 32 | right;
    const uint64_t hash = bt_pair_hash(key);
    const uint64_t bit = hash >> (table->shift - 2);
    uint64_t i = hash >> table->shift;

    if ((table->filter[bit / 64] >> bit % 64 & 1) == 0) {
        return &bt_pair_none;
    }
    while ((table->slots[i].rank != BT_NO_RANK) &&
           (table->slots[i].key != key)) {
        i = (i + 1) & table->mask;
    }
    return &table->slots[i];
}

/** Set of byte pairs that are adjacent in some token made by merging. Where two
 *  adjacent bytes of a text are not in the set, no merge ever crosses: the
 *  parts on both sides can be merged separately, which gives equal tokens. Bit
 *  (a, b) is bit b % 64 of word 4 * a + b / 64. */
typedef struct bt_joins {
    uint64_t bits[256 * 4];
} bt_joins_t;

static inline bool bt_joins_get(const bt_joins_t *joins, uint8_t a, uint8_t b)
{
    return (joins->bits[(a << 2) + (b >> 6)] >> (b & 63) & 1) != 0;
}

static inline void bt_joins_put(bt_joins_t *joins, uint8_t a, uint8_t b)
{
    joins->bits[(a << 2) + (b >> 6)] |= (uint64_t)1 << (b & 63);
}

/** Storage of the texts of all ids: id i has bytes offsets[i] …
 *  offsets[i+1]. */
typedef struct bt_text_arena {
    uint8_t *bytes;    /**< owned */
    uint32_t *offsets; /**< owned; n + 1 of them */
    uint32_t n;
} bt_text_arena_t;

static inline const uint8_t *bt_text_arena_get(const bt_text_arena_t *arena,
                                               uint32_t id, size_t *n_p)
{
    *n_p = arena->offsets[id + 1] - arena->offsets[id];
    return arena->bytes + arena->offsets[id];
}

typedef struct bt_text_table {
    uint32_t *ids; /**< owned; UINT32_MAX is empty */
    uint64_t mask;
    const bt_text_arena_t *arena; /**< borrowed */
} bt_text_table_t;

/** Allocates an empty table for all ids of @a arena.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_text_table_init(bt_text_table_t *table,
                                             const bt_text_arena_t *arena);
void bt_text_table_fini(bt_text_table_t *table);

/** Adds an id, at most once each; of equal texts the first id stays. */
void bt_text_table_put(bt_text_table_t *table, uint32_t id);

/** Finds a text. @return true and the id */
bool bt_text_table_get(const bt_text_table_t *table, const void *text,
                       size_t bytes, uint32_t *id_p);

/** Returns whether the text of an id is found as that id: false for one that
 *  was not added, and where another id has the text. */
bool bt_text_table_finds(const bt_text_table_t *table, uint32_t id);

#endif
