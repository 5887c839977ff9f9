/* SPDX-License-Identifier: Apache-2.0 */
/* How far states are from the end of a text. */
#include "common/base/alloc.h"
#include "inference/matcher/matcher_priv.h"

#define MAX_BYTES (1u << 30) /* of a stack; beyond it there is no distance */

/* Between bounds a count matters to a distance only where the counts of the
 * shortest way, or of the way with the fewest, would be too many. */
static void find_alike_far(bt_matcher_t *m)
{
    const bt_grammar_t *g = m->grammar;
    const int64_t reach = (int64_t)m->trie->max_bytes + 2;

    for (uint32_t r = 0; r < g->n_rules; r++) {
        m->alike_far[r] = 0; /* most counts of such a way, first */
    }
    for (uint32_t s = 0; s < g->n_states; s++) {
        const bt_way_t *ways[] = {&m->distances->shortest[s],
                                  &m->distances->fewest[s]};
        int64_t *most = &m->alike_far[g->states[s].rule];

        for (uint32_t i = 0; i < BT_ARRAY_LEN(ways); i++) {
            if ((ways[i]->bytes != BT_DISTANCE_NONE) &&
                (ways[i]->counts > *most)) {
                *most = ways[i]->counts;
            }
        }
    }
    for (uint32_t r = 0; r < g->n_rules; r++) {
        m->alike_far[r] = (int64_t)g->rules[r].max - reach - m->alike_far[r];
    }
}

bool bt_matcher_is_alike_far(const bt_matcher_t *m, uint32_t state,
                             uint32_t canonical)
{
    uint32_t node = m->sets[state].first;
    uint32_t other = m->sets[canonical].first;

    if (state == canonical) {
        return true;
    }
    if ((m->sets[state].n != 1) || (m->sets[canonical].n != 1)) {
        return false;
    }
    while (node != other) {
        const bt_stack_node_t *top = &m->nodes[node];
        const uint32_t r = m->grammar->states[top->state].rule;

        if ((top->count != m->nodes[other].count) &&
            ((top->count < m->grammar->rules[r].min) ||
             (top->count > m->alike_far[r]))) {
            return false;
        }
        node = top->below;
        other = m->nodes[other].below;
    }
    return true;
}

bt_status_t bt_matcher_know_distances(bt_matcher_t *m)
{
    const size_t n_states = m->grammar->n_states;
    bt_status_t status;

    if (m->distances != NULL) {
        return BT_OK;
    }
    if (m->near_mask == NULL) { /* else a second try */
        m->near_mask = bt_calloc(m->mask_words, sizeof(uint64_t));
        m->plain_near = bt_calloc(n_states, sizeof(uint32_t));
        m->plain_far = bt_calloc(n_states, sizeof(uint32_t));
        m->plain_ways = bt_calloc(m->grammar->n_rules, sizeof(uint32_t));
        m->alike_far = bt_calloc(m->grammar->n_rules, sizeof(int64_t));
    }
    if ((m->near_mask == NULL) || (m->plain_near == NULL) ||
        (m->plain_far == NULL) || (m->plain_ways == NULL) ||
        (m->alike_far == NULL)) {
        status = BT_ERR_NO_MEMORY;
        goto err_free;
    }
    status = bt_grammar_distances_create(m->bounds, BT_DISTANCE_EXACT,
                                         &m->distances);
    if (status != BT_OK) {
        goto err_free;
    }
    bt_matcher_find_plain_distances(m);
    find_alike_far(m);
    /* Masks that are kept do not say how far their tokens lead. */
    (void)bt_matcher_rebase(m, BT_MATCHER_DEAD);
    return BT_OK;

err_free:
    bt_free(m->near_mask);
    bt_free(m->plain_near);
    bt_free(m->plain_far);
    bt_free(m->plain_ways);
    bt_free(m->alike_far);
    m->near_mask = NULL;
    m->alike_far = NULL;
    m->plain_near = m->plain_far = m->plain_ways = NULL;
    return status;
}

uint32_t bt_matcher_node_bytes(bt_matcher_t *m, uint32_t node)
{
    uint32_t path[BT_GRAMMAR_MAX_DEPTH];
    uint32_t n = 0;
    uint32_t bytes;

    while (m->nodes[node].bytes == 0) {
        path[n++] = node;
        node = m->nodes[node].below;
    }
    bytes = m->nodes[node].bytes - 1;
    while (n > 0) {
        bt_stack_node_t *top = &m->nodes[path[--n]];
        const uint32_t own = bt_grammar_distance(
            m->distances, top->state, top->count, m->max_depth - top->depth);

        bytes = ((own == BT_DISTANCE_NONE) || (bytes == BT_MATCHER_FAR) ||
                 (own + bytes > MAX_BYTES))
                    ? BT_MATCHER_FAR
                    : own + bytes;
        top->bytes = bytes + 1;
    }
    return bytes;
}

uint32_t bt_matcher_find_bytes(bt_matcher_t *m, uint32_t state)
{
    uint32_t n;
    const uint32_t *nodes = bt_matcher_members(m, state, &n);
    uint32_t least = BT_MATCHER_FAR;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bytes = bt_matcher_node_bytes(m, nodes[i]);

        least = (bytes < least) ? bytes : least;
    }
    m->sets[state].bytes = least + 1;
    return least;
}

uint32_t bt_matcher_min_bytes(bt_matcher_t *m, uint32_t state)
{
    uint32_t bytes;

    BT_ASSERT(m->distances != NULL);
    if ((m->distances == NULL) || (state <= BT_MATCHER_FAILED)) {
        return BT_DISTANCE_NONE;
    }
    bytes = bt_matcher_set_bytes(m, state);
    return (bytes == BT_MATCHER_FAR) ? BT_DISTANCE_NONE : bytes;
}
