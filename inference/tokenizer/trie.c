/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

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

/* Most nodes that there can be: one for each byte, and the root. */
static uint64_t most_nodes(const bt_trie_text_t *list, uint32_t n)
{
    uint64_t sum = 1;

    for (uint32_t i = 0; i < n; i++) {
        sum += list[i].bytes;
    }
    return sum;
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
    uint64_t most;
    bt_status_t status = BT_ERR_NO_MEMORY;

    memset(trie, 0, sizeof(*trie));
    qsort(list, n, sizeof(*list), compare);
    most = most_nodes(list, n);
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
