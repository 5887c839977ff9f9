/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_fair.h"

#include "common/base/alloc.h"
#include "common/base/status.h"

void bt_sched_fair_init(bt_sched_fair_t *fair)
{
    bt_list_init(&fair->backlog);
    fair->weights = 0;
    fair->now = 0;
}

static uint32_t cut_weight(uint32_t weight)
{
    if (weight < 1) {
        return 1;
    }
    return (weight < BT_SCHED_FAIR_MAX_WEIGHT) ? weight
                                               : BT_SCHED_FAIR_MAX_WEIGHT;
}

void bt_sched_flow_init(bt_sched_flow_t *flow, uint32_t weight)
{
    bt_list_init(&flow->link);
    flow->weight = cut_weight(weight);
    flow->time = 0;
}

void bt_sched_fair_set_weight(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint32_t weight)
{
    const uint32_t cut = cut_weight(weight);

    if (!bt_list_empty(&flow->link)) {
        fair->weights += cut;
        fair->weights -= flow->weight;
    }
    flow->weight = cut;
}

/* Inserts a flow behind those with an equal time. Searches from the back,
 * where a served flow usually belongs. */
static void insert(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    bt_list_t *before = &fair->backlog;

    while ((before->prev != &fair->backlog) &&
           (flow->time < bt_sched_flow_of(before->prev)->time)) {
        before = before->prev;
    }
    bt_list_push_back(before, &flow->link); /* in front of `before` */
}

static void move(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    if (!bt_list_empty(&flow->link)) {
        bt_list_remove(&flow->link);
        insert(fair, flow);
    }
}

void bt_sched_fair_wait(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    bt_sched_fair_wait_since(fair, flow, UINT64_MAX);
}

void bt_sched_fair_wait_since(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                              uint64_t oldest)
{
    const uint64_t from = (oldest < fair->now) ? oldest : fair->now;

    if (bt_list_empty(&flow->link)) {
        if (flow->time < from) {
            flow->time = from;
        }
        fair->weights += flow->weight;
        insert(fair, flow);
    }
}

void bt_sched_fair_rest(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    if (!bt_list_empty(&flow->link)) {
        bt_list_remove(&flow->link);
        fair->weights -= flow->weight;
    }
}

static uint64_t price_of(const bt_sched_flow_t *flow, uint64_t work)
{
    uint64_t scaled;

    if (__builtin_mul_overflow(work, BT_SCHED_FAIR_UNIT, &scaled)) {
        scaled = UINT64_MAX;
    }
    return scaled / flow->weight;
}

void bt_sched_fair_charge(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work)
{
    if (flow->time > fair->now) {
        fair->now = flow->time;
    }
    bt_sched_fair_add(fair, flow, (work > 0) ? work : 1);
}

void bt_sched_fair_add(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                       uint64_t work)
{
    if (__builtin_add_overflow(flow->time, price_of(flow, work), &flow->time)) {
        flow->time = UINT64_MAX;
    }
    move(fair, flow);
}

void bt_sched_fair_refund(bt_sched_fair_t *fair, bt_sched_flow_t *flow,
                          uint64_t work)
{
    const uint64_t price = price_of(flow, work);

    flow->time -= (price < flow->time) ? price : flow->time;
    move(fair, flow);
}

void bt_sched_fair_passed(bt_sched_fair_t *fair, bt_sched_flow_t *flow)
{
    if (flow->time < fair->now) {
        flow->time = fair->now;
        move(fair, flow);
    }
}

bool bt_sched_fair_is_even(const bt_sched_fair_t *fair,
                           const bt_sched_flow_t *flow)
{
    return bt_list_empty(&flow->link) && (flow->time <= fair->now);
}

uint64_t bt_sched_fair_share(const bt_sched_fair_t *fair,
                             const bt_sched_flow_t *flow, uint64_t total)
{
    const uint64_t all =
        fair->weights + (bt_list_empty(&flow->link) ? flow->weight : 0);

    return (total * flow->weight + all - 1) / all;
}

struct bt_sched_tree_node {
    bt_sched_flow_t flow;         /* among the parent's children */
    bt_sched_tree_node_t *parent; /* NULL: the root */
    uint64_t id;
    bt_list_t sibling;  /* in parent->children */
    bt_list_t children; /* all children, idle ones too */
    bt_sched_fair_t fair;
    bt_list_t items;    /* that wait here */
    uint32_t n_waiting; /* items, of the children too */
    uint32_t n_running;
};

void bt_sched_tree_init(bt_sched_tree_t *tree)
{
    *tree = (bt_sched_tree_t){0};
    bt_list_init(&tree->rootless);
}

static bt_sched_tree_node_t *node_new(bt_sched_tree_node_t *parent, uint64_t id,
                                      uint32_t weight)
{
    bt_sched_tree_node_t *node = bt_calloc(1, sizeof(*node));

    if (node == NULL) {
        return NULL;
    }
    bt_sched_flow_init(&node->flow, weight);
    node->parent = parent;
    node->id = id;
    bt_list_init(&node->sibling);
    bt_list_init(&node->children);
    bt_sched_fair_init(&node->fair);
    bt_list_init(&node->items);
    if (parent != NULL) {
        bt_list_push_back(&parent->children, &node->sibling);
    }
    return node;
}

static bool is_idle(const bt_sched_tree_node_t *node)
{
    return (node->n_waiting == 0) && (node->n_running == 0);
}

/* Frees a node with all its children, of which none is busy. At most three
 * deep. */
static void node_free(bt_sched_tree_node_t *node)
{
    if (node == NULL) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_sched_tree_node_t, child, &node->children,
                           sibling) {
        node_free(child);
    }
    bt_list_remove(&node->sibling);
    bt_free(node);
}

void bt_sched_tree_fini(bt_sched_tree_t *tree)
{
    BT_ASSERT((tree->root == NULL) || is_idle(tree->root));
    node_free(tree->root);
    tree->root = NULL;
}

/* Returns the child with this id; frees idle ones in passing. @return NULL:
 * there is none, and no memory for one */
static bt_sched_tree_node_t *child_of(bt_sched_tree_node_t *node, uint64_t id,
                                      uint32_t weight)
{
    bt_sched_tree_node_t *found = NULL;

    BT_LIST_FOR_EACH_ENTRY(bt_sched_tree_node_t, child, &node->children,
                           sibling) {
        if (child->id == id) {
            found = child;
        } else if (is_idle(child) &&
                   bt_sched_fair_is_even(&node->fair, &child->flow)) {
            node_free(child);
        }
    }
    if (found == NULL) {
        return node_new(node, id, weight);
    }
    if (found->flow.weight != weight) {
        bt_sched_fair_set_weight(&node->fair, &found->flow, weight);
    }
    return found;
}

void bt_sched_tree_push(bt_sched_tree_t *tree, bt_sched_tree_item_t *item,
                        const bt_sched_tree_path_t *path, uint64_t cost)
{
    bt_sched_tree_node_t *node;

    if (tree->root == NULL) {
        tree->root = node_new(NULL, 0, 1);
    }
    node = tree->root;
    item->cost = (cost > 0) ? cost : 1;
    item->node = node;
    tree->n_waiting++;
    if (node == NULL) {
        bt_list_push_back(&tree->rootless, &item->link);
        return;
    }
    for (uint32_t i = 0; i < BT_SCHED_TREE_LEVELS; i++) {
        bt_sched_tree_node_t *child =
            child_of(node, path->ids[i], (i == 0) ? path->weight : 1);

        if (child == NULL) {
            break;
        }
        node = child;
    }
    item->node = node;
    bt_list_push_back(&node->items, &item->link);
    for (; node != NULL; node = node->parent) {
        node->n_waiting++;
        if (node->parent != NULL) {
            bt_sched_fair_wait(&node->parent->fair, &node->flow);
        }
    }
}

/* It waits no more, whether it runs or not. */
static void leave(bt_sched_tree_t *tree, bt_sched_tree_item_t *item)
{
    tree->n_waiting--;
    bt_list_remove(&item->link);
    for (bt_sched_tree_node_t *node = item->node; node != NULL;
         node = node->parent) {
        node->n_waiting--;
        if ((node->n_waiting == 0) && (node->parent != NULL)) {
            bt_sched_fair_rest(&node->parent->fair, &node->flow);
        }
    }
}

/* First item of a node itself, or of its children in their order. */
static bt_sched_tree_item_t *find(bt_sched_tree_node_t *node, uint64_t most)
{
    if (!bt_list_empty(&node->items)) {
        bt_sched_tree_item_t *item =
            BT_CONTAINER_OF(node->items.next, bt_sched_tree_item_t, link);

        if (item->cost <= most) {
            return item;
        }
    }
    BT_LIST_FOR_EACH_ENTRY(bt_sched_flow_t, flow, &node->fair.backlog, link) {
        bt_sched_tree_item_t *item =
            find(BT_CONTAINER_OF(flow, bt_sched_tree_node_t, flow), most);

        if (item != NULL) {
            return item;
        }
    }
    return NULL;
}

static void run(bt_sched_tree_t *tree, bt_sched_tree_item_t *item)
{
    for (bt_sched_tree_node_t *node = item->node; node != NULL;
         node = node->parent) {
        node->n_running++;
        if (node->parent != NULL) {
            bt_sched_fair_charge(&node->parent->fair, &node->flow, item->cost);
        }
    }
    leave(tree, item);
}

bt_sched_tree_item_t *bt_sched_tree_pop(bt_sched_tree_t *tree, uint64_t most)
{
    bt_sched_tree_item_t *item = NULL;

    if (!bt_list_empty(&tree->rootless)) {
        item = BT_CONTAINER_OF(tree->rootless.next, bt_sched_tree_item_t, link);
        item = (item->cost <= most) ? item : NULL;
    }
    if ((item == NULL) && (tree->root != NULL)) {
        item = find(tree->root, most);
    }
    if (item != NULL) {
        run(tree, item);
    }
    return item;
}

/* Frees all nodes, and their shares, once no item waits or runs. */
static void forget_all(bt_sched_tree_t *tree)
{
    if ((tree->root != NULL) && is_idle(tree->root)) {
        node_free(tree->root);
        tree->root = NULL;
    }
}

void bt_sched_tree_remove(bt_sched_tree_t *tree, bt_sched_tree_item_t *item)
{
    leave(tree, item);
    item->node = NULL;
    forget_all(tree);
}

void bt_sched_tree_end(bt_sched_tree_t *tree, bt_sched_tree_item_t *item,
                       uint64_t took)
{
    for (bt_sched_tree_node_t *node = item->node; node != NULL;
         node = node->parent) {
        node->n_running--;
        if (node->parent == NULL) {
            continue;
        }
        if (took < item->cost) {
            bt_sched_fair_refund(&node->parent->fair, &node->flow,
                                 item->cost - took);
        } else {
            bt_sched_fair_add(&node->parent->fair, &node->flow,
                              took - item->cost);
        }
    }
    item->node = NULL;
    forget_all(tree);
}
