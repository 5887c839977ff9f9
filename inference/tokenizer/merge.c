/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/encode.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/task.h"

#define NO_NODE UINT32_MAX

/* The pair of a node is the node and the one after it. */
typedef struct bt_merge_node {
    uint32_t id;
    uint32_t prev;
    uint32_t next;
    uint32_t rank;   /* of the pair; BT_NO_RANK: none, or the node is gone */
    uint32_t merged; /* what the pair becomes */
} node_t;

void bt_merge_fini(bt_merge_work_t *work)
{
    bt_free(work->syms);
    bt_free(work->nodes);
    bt_free(work->heap);
    memset(work, 0, sizeof(*work));
}

bt_status_t bt_merge_reserve(bt_merge_work_t *work, size_t n)
{
    uint32_t *syms =
        bt_array_reserve(work->syms, &work->syms_cap, n, sizeof(*syms));

    if (syms == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    work->syms = syms;
    return BT_OK;
}

/* keys[i]: rank << 32 | i of the pair that begins with symbol i. */
static uint64_t key_of(const bt_pair_slot_t *slot, size_t i, uint32_t *merged)
{
    *merged = slot->merged;
    return (uint64_t)slot->rank << 32 | i;
}

size_t bt_merge_short(const bt_pair_table_t *pairs, uint32_t *syms, size_t n)
{
    uint64_t keys[BT_MERGE_SHORT];
    uint32_t merged[BT_MERGE_SHORT];

    for (size_t i = 0; i + 1 < n; i++) {
        keys[i] = key_of(bt_pair_table_get(pairs, syms[i], syms[i + 1]), i,
                         &merged[i]);
    }
    while (n > 1) {
        uint64_t best = keys[0];
        size_t at;

        for (size_t i = 1; i + 1 < n; i++) {
            best = (keys[i] < best) ? keys[i] : best;
        }
        if (best >> 32 == BT_NO_RANK) {
            break;
        }
        at = (size_t)(best & UINT32_MAX);
        syms[at] = merged[at];
        n--;
        for (size_t i = at + 1; i < n; i++) {
            syms[i] = syms[i + 1];
        }
        for (size_t i = at + 1; i + 1 < n; i++) {
            keys[i] = keys[i + 1] - 1;
            merged[i] = merged[i + 1];
        }
        if (at + 1 < n) {
            keys[at] = key_of(bt_pair_table_get(pairs, syms[at], syms[at + 1]),
                              at, &merged[at]);
        }
        if (at > 0) {
            keys[at - 1] =
                key_of(bt_pair_table_get(pairs, syms[at - 1], syms[at]), at - 1,
                       &merged[at - 1]);
        }
    }
    return n;
}

/* A binary heap of rank << 32 | node, the smallest on top. An entry whose node
 * has another rank by now is stale and is skipped when it comes up. */
typedef struct queue {
    uint64_t *heap;
    size_t n;
    uint64_t n_steps; /* entries moved and pairs looked up */
} queue_t;

static void queue_push(queue_t *queue, uint64_t entry)
{
    uint64_t *heap = queue->heap;
    size_t i = queue->n++;

    while ((i > 0) && (heap[(i - 1) / 2] > entry)) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
        queue->n_steps++;
    }
    heap[i] = entry;
}

static uint64_t queue_pop(queue_t *queue)
{
    uint64_t *heap = queue->heap;
    const uint64_t top = heap[0];
    const size_t n = --queue->n;
    const uint64_t entry = heap[n];
    size_t i = 0;

    for (size_t child = 1; child < n; child = 2 * i + 1) {
        child += (child + 1 < n) && (heap[child + 1] < heap[child]);
        if (heap[child] >= entry) {
            break;
        }
        heap[i] = heap[child];
        i = child;
        queue->n_steps++;
    }
    heap[i] = entry;
    return top;
}

static void rank_and_push(node_t *nodes, uint32_t at,
                          const bt_pair_table_t *pairs, queue_t *queue)
{
    const bt_pair_slot_t *slot;

    queue->n_steps++;
    nodes[at].rank = BT_NO_RANK;
    if (nodes[at].next == NO_NODE) {
        return;
    }
    slot = bt_pair_table_get(pairs, nodes[at].id, nodes[nodes[at].next].id);
    nodes[at].rank = slot->rank;
    nodes[at].merged = slot->merged;
    if (slot->rank != BT_NO_RANK) {
        queue_push(queue, (uint64_t)slot->rank << 32 | at);
    }
}

/* At most n - 1 entries at first and 2 for each of at most n - 1 merges.
 * @return false: the task was canceled */
static bool merge_nodes(node_t *nodes, queue_t *queue, size_t n,
                        const bt_pair_table_t *pairs)
{
    unsigned steps = 0;

    for (uint32_t i = 0; i < n; i++) {
        rank_and_push(nodes, i, pairs, queue);
        if (bt_task_poll_every(&steps)) {
            return false;
        }
    }
    while (queue->n > 0) {
        const uint64_t entry = queue_pop(queue);
        const uint32_t at = (uint32_t)entry;
        const uint32_t prev = nodes[at].prev;
        uint32_t gone;

        if (bt_task_poll_every(&steps)) {
            return false;
        }
        if (nodes[at].rank != (uint32_t)(entry >> 32)) {
            continue;
        }
        gone = nodes[at].next;
        nodes[at].id = nodes[at].merged;
        nodes[at].next = nodes[gone].next;
        nodes[gone].rank = BT_NO_RANK;
        if (nodes[at].next != NO_NODE) {
            nodes[nodes[at].next].prev = at;
        }
        rank_and_push(nodes, at, pairs, queue);
        if (prev != NO_NODE) {
            rank_and_push(nodes, prev, pairs, queue);
        }
    }
    return true;
}

static bt_status_t reserve_nodes(bt_merge_work_t *work, size_t n)
{
    node_t *nodes =
        bt_array_reserve(work->nodes, &work->nodes_cap, n, sizeof(*nodes));
    uint64_t *heap =
        bt_array_reserve(work->heap, &work->heap_cap, 3 * n, sizeof(*heap));

    work->nodes = (nodes != NULL) ? nodes : work->nodes;
    work->heap = (heap != NULL) ? heap : work->heap;
    return ((nodes == NULL) || (heap == NULL)) ? BT_ERR_NO_MEMORY : BT_OK;
}

bt_status_t bt_merge(bt_merge_work_t *work, const bt_pair_table_t *pairs,
                     size_t n, size_t *n_p)
{
    queue_t queue = {0};
    node_t *nodes;
    size_t n_left = 0;
    unsigned steps = 0;
    bt_status_t status;

    BT_ASSERT(n < (size_t)1 << 31);
    if (n <= BT_MERGE_SHORT) {
        *n_p = bt_merge_short(pairs, work->syms, n);
        return BT_OK;
    }
    status = reserve_nodes(work, n);
    if (status != BT_OK) {
        return status;
    }
    nodes = work->nodes;
    for (uint32_t i = 0; i < n; i++) {
        nodes[i].id = work->syms[i];
        nodes[i].prev = (i == 0) ? NO_NODE : i - 1;
        nodes[i].next = (i + 1 == n) ? NO_NODE : i + 1;
        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
    }
    queue.heap = work->heap;
    if (!merge_nodes(nodes, &queue, n, pairs)) {
        return BT_ERR_CANCELED;
    }
    work->n_steps += queue.n_steps;
    for (uint32_t i = 0; i != NO_NODE; i = nodes[i].next) {
        work->syms[n_left++] = nodes[i].id;
        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
    }
    *n_p = n_left;
    return BT_OK;
}
