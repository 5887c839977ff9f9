/* SPDX-License-Identifier: Apache-2.0 */
/** @file list.h
 *
 * Intrusive doubly linked ring. The head is a link that belongs to no element;
 * an empty list is a head that points to itself.
 */
#ifndef BT_COMMON_BASE_LIST_H
#define BT_COMMON_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
