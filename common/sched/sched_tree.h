/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_tree.h
 *
 * Hierarchical fair queue: chooses the next work item among tenants, within a
 * tenant among addresses, within an address among connections. Each node is a
 * fair queue of its children (sched_fair.h); a connection's items are first
 * come, first served:
 *
 *     root ─┬─ tenant A (weight 2) ─┬─ address 1 ─── connection 7: item item
 *           │                       └─ address 2 ─┬─ connection 8: item
 *           │                                     └─ connection 9: item
 *           └─ tenant B (weight 1) ─── address 3 ─── connection 4: item
 *
 * All addresses of a tenant, and all connections of an address, share what one
 * of them would get.
 *
 * An item is charged its expected cost when it is taken, and the difference to
 * its actual cost when it ends. A caller that interrupts a larger item for
 * small ones asks bt_sched_tree_pop() for items of a small cost only.
 *
 * A node is freed once none of its items waits or runs and it has had no more
 * than its share. If there is no memory for a node its item waits at the
 * parent, before the parent's children.
 *
 * Threads: one owner. Pure.
 * Source:  J. Bennett, H. Zhang, "Hierarchical packet fair queueing
 *          algorithms", SIGCOMM 1996; sched_fair.h for a single level.
 */
#ifndef BT_COMMON_SCHED_TREE_H
#define BT_COMMON_SCHED_TREE_H

#include "common/sched/sched_fair.h"

#define BT_SCHED_TREE_LEVELS 3u

typedef struct bt_sched_tree_node bt_sched_tree_node_t;

/** Path of an item's connection: ids from the root downwards. */
typedef struct bt_sched_tree_path {
    uint64_t ids[BT_SCHED_TREE_LEVELS];
    uint32_t weight; /**< for the first level; other levels are equal */
} bt_sched_tree_path_t;

/** Work item; embedded in the owner's object. */
typedef struct bt_sched_tree_item {
    bt_list_t link;
    bt_sched_tree_node_t *node; /**< NULL: in no tree */
    uint64_t cost;              /**< expected, above 0 */
} bt_sched_tree_item_t;

typedef struct bt_sched_tree {
    bt_sched_tree_node_t *root; /**< owned; NULL until the first item */
    bt_list_t rootless;         /**< items without memory for a root */
    uint32_t n_waiting;
} bt_sched_tree_t;

void bt_sched_tree_init(bt_sched_tree_t *tree);
/** Frees the tree. No item may wait or run any more. */
void bt_sched_tree_fini(bt_sched_tree_t *tree);
/** Queues an item. Never fails. O(children of its nodes). */
void bt_sched_tree_push(bt_sched_tree_t *tree, bt_sched_tree_item_t *item,
                        const bt_sched_tree_path_t *path, uint64_t cost);
/** Takes the next item whose cost is at most @a most: it runs until
 *  bt_sched_tree_end(). @return NULL: there is none */
bt_sched_tree_item_t *bt_sched_tree_pop(bt_sched_tree_t *tree, uint64_t most);
/** Removes a waiting item. */
void bt_sched_tree_remove(bt_sched_tree_t *tree, bt_sched_tree_item_t *item);
/** Records that a running item has ended, with its actual cost. */
void bt_sched_tree_end(bt_sched_tree_t *tree, bt_sched_tree_item_t *item,
                       uint64_t took);

#endif
