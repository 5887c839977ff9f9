/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_fair.h
 *
 * Weighted fair queueing among tenants, in units of work. Each tenant is a
 * *flow* with a virtual time, which rises by work / weight as the flow is
 * served; the backlogged flow with the smallest time is next:
 *
 *     flow   virtual time
 *     A  ████████████▌          charge(A, 8) at weight 2 ─▶ + 4
 *     B  ███████▌  ◀── next
 *     C  ─ no backlog ─         wait(C): from the current time, not from before
 *
 * So over any interval in which both are backlogged, the work of two flows,
 * each by its weight, differs by no more than a largest request of either:
 *
 *     | W_a / w_a - W_b / w_b |  <=  L_a / w_a + L_b / w_b
 *
 * and no flow waits for more than one request of each other flow, by weights. A
 * flow that was idle has no claim on what others received meanwhile, and
 * neither has one that its own limit kept from being served:
 * bt_sched_fair_passed().
 *
 * Work is charged when it begins, by its estimate (sched_cost.h), and
 * corrected when it ends: unused work is refunded, extra work is charged. The
 * order of requests within a flow is the owner's (sched_queue.h), because a
 * request is charged when it leaves the queue, not when it enters.
 *
 * Threads: one thread owns it. Pure.
 * Source:  P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queuing", SIGCOMM 1996;
 *          Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI
 *          2024 (the virtual token counter); W. Jin, J. Chase, J. Kaur,
 *          "Interposed Proportional Sharing", SIGMETRICS 2004 (min-SFQ(D):
 *          bt_sched_fair_wait_since()).
 */
#ifndef BT_COMMON_SCHED_SCHED_FAIR_H
#define BT_COMMON_SCHED_SCHED_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"

#define BT_SCHED_FAIR_MAX_WEIGHT 1000u

/** Flow of one tenant; embedded in the owner's object. */
typedef struct bt_sched_flow {
    bt_list_t link; /**< in fair->backlog while the flow is backlogged */
    uint32_t weight;
    uint64_t time; /**< virtual time, BT_SCHED_FAIR_UNIT for a unit of work */
} bt_sched_flow_t;

/** Virtual time of a unit of work at weight 1. Weights divide it with little
 *  loss; a million units a second (microseconds of one worker, or tokens)
 *  take nine years to pass 64 bits. */
#define BT_SCHED_FAIR_UNIT 65536u

/** Fair queue of flows. */
typedef struct bt_sched_fair {
    bt_list_t backlog; /**< flows by virtual time, the next one first */
    uint64_t weights;  /**< sum over the backlog */
    uint64_t now;      /**< virtual time of the flow that was served last */
} bt_sched_fair_t;

void bt_sched_fair_init(bt_sched_fair_t *fair);
/**
 * Initialises a flow without backlog.
 * @param [in] weight  clamped to 1 .. BT_SCHED_FAIR_MAX_WEIGHT
 */
void bt_sched_flow_init(bt_sched_flow_t *flow, uint32_t weight);
/** Changes a flow's weight, from its next charge on. */
void bt_sched_fair_set_weight(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint32_t weight);
/** Marks a flow as backlogged (wait) or not (rest). No effect if it is so
 *  already. */
void bt_sched_fair_wait(bt_sched_fair_t *fair, bt_sched_flow_t *flow);
/**
 * Marks a flow as backlogged where served work is queued once more, at a
 * server. @a oldest is the virtual time at which the oldest unfinished request
 * there was sent: a flow that returns starts at that time, not behind
 * everything sent since.
 */
void bt_sched_fair_wait_since(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint64_t oldest);
void bt_sched_fair_rest(bt_sched_fair_t *fair, bt_sched_flow_t *flow);
/** Charges a flow for work that is served. O(backlogged flows) at most. */
void bt_sched_fair_charge(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work);
/** Refunds work that was charged and not done. */
void bt_sched_fair_refund(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work);
/** Charges work that was done beyond what was charged. */
void bt_sched_fair_add(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                       uint64_t work);
/** Records that a flow was next and its own limit kept it from being served,
 *  while others were: the flow has no claim on that service. */
void bt_sched_fair_passed(bt_sched_fair_t *fair, bt_sched_flow_t *flow);
/** True when the flow can be freed. False while the flow is backlogged or
 *  has had more than its share. */
bool bt_sched_fair_is_even(const bt_sched_fair_t *fair,
                           const bt_sched_flow_t *flow);
/** Returns a flow's share of @a total, rounded up, by the weights of the
 *  backlogged flows and its own. */
uint64_t bt_sched_fair_share(const bt_sched_fair_t *fair,
                             const bt_sched_flow_t *flow, uint64_t total);

static inline bt_sched_flow_t *bt_sched_flow_of(bt_list_t *link)
{
    return BT_CONTAINER_OF(link, bt_sched_flow_t, link);
}

/*
 * Hierarchical fair queue: chooses the next work item among tenants, within a
 * tenant among addresses, within an address among connections. Each node is a
 * fair queue of its children; a connection's items are first
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
 *          algorithms", SIGCOMM 1996.
 */

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
