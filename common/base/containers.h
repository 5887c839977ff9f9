/* SPDX-License-Identifier: Apache-2.0 */
/** @file containers.h
 *
 * Containers: list, hash map, and a ring between two threads.
 */
#ifndef BT_COMMON_BASE_CONTAINERS_H
#define BT_COMMON_BASE_CONTAINERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/status.h"

/*
 * Intrusive doubly linked ring. The head is a link that belongs to no element;
 * an empty list is a head that points to itself.
 */

/** Link of an element, or head of a list. */
typedef struct bt_list {
    struct bt_list *next;
    struct bt_list *prev;
} bt_list_t;

#define BT_CONTAINER_OF(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/** Iterates over a list. Safe against removal of @a pos; @a tmp is a second
 *  cursor. */
#define BT_LIST_FOR_EACH(pos, tmp, head)                             \
    for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head); \
         (pos) = (tmp), (tmp) = (pos)->next)

static inline void bt_list_init(bt_list_t *head)
{
    head->next = head;
    head->prev = head;
}

static inline bool bt_list_empty(const bt_list_t *head)
{
    return head->next == head;
}

static inline void bt_list_push_back(bt_list_t *head, bt_list_t *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

/** Removes an element. Afterwards @a link is an empty list, so removing it
 *  twice is harmless. */
static inline void bt_list_remove(bt_list_t *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    bt_list_init(link);
}

/*
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

/*
 * Bounded lock-free queue of pointers from one producer thread to one consumer
 * thread, with a file descriptor that wakes a sleeping consumer.
 *
 *     producer: push ── tail →  [ | | |x|x|x| | ]  → head ── consumer: pop
 *
 * A consumer that wants to sleep calls bt_ring_sleep_prepare(); if that returns
 * "empty", it may wait for bt_ring_fd() to become readable. A producer makes a
 * system call only when the consumer has announced that it sleeps.
 */

typedef struct bt_ring bt_ring_t;

/**
 * Creates an empty ring.
 * @param [in]  n_slots  Power of two, at least 2.
 * @retval BT_ERR_INVALID_PARAM  n_slots is not a power of two.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_IO  No event descriptor is left.
 */
BT_MUST_CHECK bt_status_t bt_ring_create(uint32_t n_slots, bt_ring_t **ring_p);

/** Frees the ring. Remaining elements stay the owner's. NULL is allowed. */
void bt_ring_destroy(bt_ring_t *ring);

/** Producer: appends an item. @retval BT_ERR_BUSY  Full; nothing was taken. */
BT_MUST_CHECK bt_status_t bt_ring_push(bt_ring_t *ring, void *item);

/** Consumer: takes the oldest item. @return NULL when empty. */
void *bt_ring_pop(bt_ring_t *ring);

/** Consumer: turns wake-ups on. @return true when the ring is empty and
 *  wake-ups are on. */
bool bt_ring_sleep_prepare(bt_ring_t *ring);

/** Consumer, after waking: turns wake-ups off and drains the descriptor. */
void bt_ring_sleep_done(bt_ring_t *ring);

/** Consumer: blocks until the ring is not empty, or @a timeout_ms passed (-1
 *  = no limit). For threads that wait for nothing else. */
void bt_ring_wait(bt_ring_t *ring, int timeout_ms);
/** Consumer: blocks until the ring is not empty, or @a timeout_us passed. */
void bt_ring_wait_us(bt_ring_t *ring, uint64_t timeout_us);

int bt_ring_fd(const bt_ring_t *ring);

/** Iterates over the elements of a list: @a pos is a new pointer to @a type, in
 *  which @a member is the link. Safe against removal of @a pos. */
#define BT_LIST_FOR_EACH_ENTRY(type, pos, head, member)                      \
    for (type *pos = BT_CONTAINER_OF((head)->next, type, member),            \
              *pos##_next = BT_CONTAINER_OF(pos->member.next, type, member); \
         &pos->member != (head); pos = pos##_next,                           \
              pos##_next = BT_CONTAINER_OF(pos->member.next, type, member))

/** Finds the first of the @a n elements of an array whose text @a member equals
 *  @a text: a pointer to it, or NULL. */
#define BT_FIND_NAMED(array, n, member, text)                             \
    ({                                                                    \
        size_t i_ = 0;                                                    \
                                                                          \
        while ((i_ < (n)) && (strcmp((array)[i_].member, (text)) != 0)) { \
            i_++;                                                         \
        }                                                                 \
        (i_ < (n)) ? &(array)[i_] : NULL;                                 \
    })

#endif
