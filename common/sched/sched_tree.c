/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_tree.h"

#include "common/base/alloc.h"
#include "common/base/assert.h"

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

static bt_sched_tree_node_t *node_of(bt_list_t *sibling)
{
    return BT_CONTAINER_OF(sibling, bt_sched_tree_node_t, sibling);
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
    bt_list_t *at;
    bt_list_t *next;

    if (node == NULL) {
        return;
    }
    BT_LIST_FOR_EACH(at, next, &node->children)
    {
        node_free(node_of(at));
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
    bt_list_t *at;
    bt_list_t *next;

    BT_LIST_FOR_EACH(at, next, &node->children)
    {
        bt_sched_tree_node_t *child = node_of(at);

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
    bt_list_t *at;
    bt_list_t *next;

    if (!bt_list_empty(&node->items)) {
        bt_sched_tree_item_t *item =
            BT_CONTAINER_OF(node->items.next, bt_sched_tree_item_t, link);

        if (item->cost <= most) {
            return item;
        }
    }
    BT_LIST_FOR_EACH(at, next, &node->fair.backlog)
    {
        bt_sched_tree_item_t *item = find(
            BT_CONTAINER_OF(bt_sched_flow_of(at), bt_sched_tree_node_t, flow),
            most);

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
