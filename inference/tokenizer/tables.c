/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/tables.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"

#define FIRST_CAP 64u
#define MIN_SLOTS 16u
#define EMPTY     UINT32_MAX

void *bt_array_reserve(void *array, size_t *cap_p, size_t n, size_t size)
{
    size_t cap = (*cap_p == 0) ? FIRST_CAP : *cap_p;
    void *grown;

    if ((n <= *cap_p) && (array != NULL)) {
        return array;
    }
    while (cap < n) {
        cap *= 2;
    }
    grown = bt_realloc_array(array, cap, size);
    if (grown != NULL) {
        *cap_p = cap;
    }
    return grown;
}

/* Ids from … to - 1 begin with the same depth bytes, those of a node. */
typedef struct range {
    uint32_t from, to, depth;
} range_t;

static int compare(const void *a, const void *b)
{
    const bt_trie_text_t *x = a;
    const bt_trie_text_t *y = b;
    const uint32_t n = (x->bytes < y->bytes) ? x->bytes : y->bytes;
    const int order = memcmp(x->text, y->text, n);

    return (order != 0) ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The children of a node, and what of the list is theirs. */
static void add_children(bt_trie_t *trie, range_t *ranges,
                         const bt_trie_text_t *list, uint32_t node)
{
    const uint32_t depth = ranges[node].depth;
    uint32_t i = ranges[node].from;

    trie->nodes[node].id = BT_TRIE_NONE;
    trie->nodes[node].first = trie->n;
    if ((i < ranges[node].to) && (list[i].bytes == depth)) {
        trie->nodes[node].id = list[i++].id;
    }
    while (i < ranges[node].to) {
        const uint8_t byte = list[i].text[depth];
        const uint32_t from = i;

        while ((i < ranges[node].to) && (list[i].text[depth] == byte)) {
            i++;
        }
        ranges[trie->n] = (range_t){from, i, depth + 1};
        trie->nodes[trie->n++].byte = byte;
        trie->nodes[node].n++;
    }
}

bt_status_t bt_trie_init(bt_trie_t *trie, bt_trie_text_t *list, uint32_t n)
{
    range_t *ranges = NULL;
    uint64_t most = 1; /* nodes: the root, and one for each byte */
    bt_status_t status = BT_ERR_NO_MEMORY;

    memset(trie, 0, sizeof(*trie));
    qsort(list, n, sizeof(*list), compare);
    for (uint32_t i = 0; i < n; i++) {
        most += list[i].bytes;
    }
    ranges = bt_calloc(most, sizeof(*ranges));
    trie->nodes = bt_calloc(most, sizeof(*trie->nodes));
    if ((ranges != NULL) && (trie->nodes != NULL)) {
        ranges[0] = (range_t){0, n, 0};
        trie->n = 1;
        for (uint32_t node = 0; node < trie->n; node++) {
            add_children(trie, ranges, list, node);
        }
        status = BT_OK;
    } else {
        bt_trie_fini(trie);
    }
    bt_free(ranges);
    return status;
}

void bt_trie_fini(bt_trie_t *trie)
{
    bt_free(trie->nodes);
    memset(trie, 0, sizeof(*trie));
}

const bt_pair_slot_t bt_pair_none = {0, BT_NO_RANK, 0};

/* Smallest power of two with at least half of the slots free. */
static uint64_t slots_for(uint64_t n)
{
    uint64_t slots = MIN_SLOTS;

    while (slots / 2 < n) {
        slots *= 2;
    }
    return slots;
}

static bt_status_t alloc_slots(bt_pair_table_t *table, uint64_t n_slots)
{
    bt_pair_slot_t *slots = bt_calloc(n_slots, sizeof(*slots));

    uint64_t *filter = bt_calloc(n_slots / 16, sizeof(*filter));

    if ((slots == NULL) || (filter == NULL)) {
        bt_free(slots);
        bt_free(filter);
        return BT_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < n_slots; i++) {
        slots[i].rank = BT_NO_RANK;
    }
    table->slots = slots;
    table->filter = filter;
    table->mask = n_slots - 1;
    table->shift = 64u - (uint32_t)__builtin_ctzll(n_slots);
    return BT_OK;
}

bt_status_t bt_pair_table_init(bt_pair_table_t *table, uint64_t n)
{
    memset(table, 0, sizeof(*table));
    return alloc_slots(table, slots_for(n));
}

void bt_pair_table_fini(bt_pair_table_t *table)
{
    bt_free(table->slots);
    bt_free(table->filter);
    memset(table, 0, sizeof(*table));
}

/* The slot of a key, or the empty one where it belongs; the filter knows the
 * key from now on. */
static bt_pair_slot_t *claim_slot(bt_pair_table_t *table, uint64_t key)
{
    const uint64_t hash = bt_pair_hash(key);
    const uint64_t bit = hash >> (table->shift - 2);
    uint64_t i = hash >> table->shift;

    table->filter[bit / 64] |= (uint64_t)1 << bit % 64;

    while ((table->slots[i].rank != BT_NO_RANK) &&
           (table->slots[i].key != key)) {
        i = (i + 1) & table->mask;
    }
    return &table->slots[i];
}

static bt_status_t grow(bt_pair_table_t *table)
{
    const bt_pair_table_t old = *table;
    const bt_status_t status = alloc_slots(table, (old.mask + 1) * 2);

    if (status != BT_OK) {
        return status;
    }
    for (uint64_t i = 0; i <= old.mask; i++) {
        if (old.slots[i].rank != BT_NO_RANK) {
            *claim_slot(table, old.slots[i].key) = old.slots[i];
        }
    }
    bt_free(old.slots);
    bt_free(old.filter);
    return BT_OK;
}

bt_status_t bt_pair_table_put(bt_pair_table_t *table, uint32_t left,
                              uint32_t right, uint32_t rank, uint32_t merged)
{
    const uint64_t key = (uint64_t)left << 32 | right;
    bt_pair_slot_t *slot;

    if (table->n >= (table->mask + 1) / 2) {
        const bt_status_t status = grow(table);

        if (status != BT_OK) {
            return status;
        }
    }
    slot = claim_slot(table, key);
    if (slot->rank == BT_NO_RANK) {
        table->n++;
    } else if (slot->rank <= rank) {
        return BT_OK;
    }
    slot->key = key;
    slot->rank = rank;
    slot->merged = merged;
    return BT_OK;
}

bt_status_t bt_text_table_init(bt_text_table_t *table,
                               const bt_text_arena_t *arena)
{
    const uint64_t n_slots = slots_for(arena->n);
    uint32_t *ids = bt_calloc(n_slots, sizeof(*ids));

    if (ids == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    memset(ids, 0xFF, n_slots * sizeof(*ids));
    table->ids = ids;
    table->mask = n_slots - 1;
    table->arena = arena;
    return BT_OK;
}

void bt_text_table_fini(bt_text_table_t *table)
{
    bt_free(table->ids);
    memset(table, 0, sizeof(*table));
}

/* Index of the slot that holds the text, or of the empty one for it. */
static uint64_t text_slot(const bt_text_table_t *table, const void *text,
                          size_t bytes)
{
    const bt_text_arena_t *arena = table->arena;
    uint64_t i = bt_hash64(text, bytes, 0) & table->mask;

    while (table->ids[i] != EMPTY) {
        size_t n;
        const uint8_t *own = bt_text_arena_get(arena, table->ids[i], &n);

        if ((n == bytes) && (memcmp(own, text, bytes) == 0)) {
            break;
        }
        i = (i + 1) & table->mask;
    }
    return i;
}

void bt_text_table_put(bt_text_table_t *table, uint32_t id)
{
    size_t n;
    const uint8_t *text = bt_text_arena_get(table->arena, id, &n);
    const uint64_t i = text_slot(table, text, n);

    if (table->ids[i] == EMPTY) {
        table->ids[i] = id;
    }
}

bool bt_text_table_get(const bt_text_table_t *table, const void *text,
                       size_t bytes, uint32_t *id_p)
{
    const uint32_t id = table->ids[text_slot(table, text, bytes)];

    if (id == EMPTY) {
        return false;
    }
    *id_p = id;
    return true;
}

bool bt_text_table_finds(const bt_text_table_t *table, uint32_t id)
{
    size_t n;
    const uint8_t *text = bt_text_arena_get(table->arena, id, &n);

    return table->ids[text_slot(table, text, n)] == id;
}
