/* SPDX-License-Identifier: Apache-2.0 */
/** @file hmap.h
 *
 * Intrusive hash map with a fixed number of buckets. The map owns nothing: an
 * object is in it by a bt_list_t of its own, and the buckets are the caller's
 * array. The map allocates nothing, so insert and remove cannot fail.
 *
 *     buckets[hash & (n - 1)] ──▶ ring of links, the oldest first
 *
 * The caller defines keys, their hash and their equality: the hash must be good
 * in its low bits, and the comparison sees every object of the bucket. The
 * number of buckets should be near the largest number of objects: then a
 * look-up is O(1). Not thread safe.
 */
#ifndef BT_COMMON_BASE_HMAP_H
#define BT_COMMON_BASE_HMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/assert.h"
#include "common/base/list.h"

/** Hash map. */
typedef struct bt_hmap {
    bt_list_t *buckets; /**< borrowed */
    uint64_t mask;      /**< number of buckets - 1 */
} bt_hmap_t;

/** Callback: true when the object that contains @a link has this key. */
typedef bool (*bt_hmap_same_fn)(bt_list_t *link, const void *key);

/**
 * Initialises an empty map.
 * @param [in] buckets    Borrowed until the map is no longer used, which must
 *                        not be copied meanwhile.
 * @param [in] n_buckets  A power of two.
 */
static inline void bt_hmap_init(bt_hmap_t *map, bt_list_t *buckets,
                                size_t n_buckets)
{
    BT_ASSERT((n_buckets > 0) && ((n_buckets & (n_buckets - 1)) == 0));
    for (size_t i = 0; i < n_buckets; i++) {
        bt_list_init(&buckets[i]);
    }
    map->buckets = buckets;
    map->mask = n_buckets - 1;
}

/** Inserts @a link, until bt_list_remove(link). Duplicate keys are not
 *  detected: bt_hmap_find() then returns the older. */
static inline void bt_hmap_insert(bt_hmap_t *map, uint64_t hash,
                                  bt_list_t *link)
{
    bt_list_push_back(&map->buckets[hash & map->mask], link);
}

/** Returns the link of the object with this key, NULL when there is none. */
static inline bt_list_t *bt_hmap_find(const bt_hmap_t *map, uint64_t hash,
                                      bt_hmap_same_fn same, const void *key)
{
    const bt_list_t *head = &map->buckets[hash & map->mask];

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        if (same(pos, key)) {
            return pos;
        }
    }
    return NULL;
}

/** Iterates over the buckets as lists @a head, for BT_LIST_FOR_EACH over all
 *  objects. */
#define BT_HMAP_FOR_EACH_BUCKET(head, map)                                \
    for ((head) = (map)->buckets; (head) <= (map)->buckets + (map)->mask; \
         (head)++)

#endif
