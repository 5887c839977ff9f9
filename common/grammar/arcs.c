/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/arcs.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/bounds.h"

static bt_status_t add_arc(bt_grammar_arcs_t *a, bt_grammar_arc_t arc)
{
    if (a->n_arcs == BT_GRAMMAR_MAX_ARCS) {
        return BT_ERR_TOO_LARGE;
    }
    if (!bt_array_grow(&a->arcs, &a->cap_arcs, a->n_arcs + 1,
                       sizeof(bt_grammar_arc_t))) {
        return BT_ERR_NO_MEMORY;
    }
    a->arcs[a->n_arcs++] = arc;
    return BT_OK;
}

/* @param [in,out] seen  [2 * n_states]: the last state with an arc to a state
 *         that counts, or does not */
static bt_status_t add_arcs_of(bt_grammar_arcs_t *a, uint32_t state,
                               uint32_t *seen)
{
    const bt_grammar_state_t *s = &a->grammar->states[state];
    bt_byte_edge_t edges[256];
    const uint32_t n = bt_grammar_byte_edges(a->grammar, state, edges);
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        uint32_t *last = &seen[2 * edges[i].to + (edges[i].counts ? 1 : 0)];

        if (*last != state) {
            *last = state;
            status = add_arc(a, (bt_grammar_arc_t){.from = state,
                                                   .to = edges[i].to,
                                                   .callee = BT_GRAMMAR_NONE,
                                                   .counts = edges[i].counts});
        }
    }
    for (uint32_t i = s->n_byte_edges; (i < s->n_edges) && (status == BT_OK);
         i++) {
        const bt_grammar_edge_t *edge = &a->grammar->edges[s->first_edge + i];
        const bool calls = edge->kind == BT_GRAMMAR_CALLS;

        status =
            add_arc(a, (bt_grammar_arc_t){
                           .from = state,
                           .to = edge->to,
                           .callee = calls ? edge->arg : BT_GRAMMAR_NONE,
                           .counts = edge->counts,
                           .is_tail = bt_grammar_ends(a->grammar, edge->to)});
    }
    return status;
}

static bt_status_t add_arcs(bt_grammar_arcs_t *a)
{
    const uint32_t n_states = a->grammar->n_states;
    BT_CLEANUP(free)
    uint32_t *seen = bt_calloc((size_t)n_states * 2 + 1, sizeof(uint32_t));
    bt_status_t status = BT_OK;

    if (seen == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    memset(seen, 0xff, (size_t)n_states * 2 * sizeof(uint32_t));
    for (uint32_t s = 0; (s < n_states) && (status == BT_OK); s++) {
        status = add_arcs_of(a, s, seen);
        a->out_first[s + 1] = a->n_arcs;
    }
    return status;
}

typedef enum list_key { KEY_TO, KEY_CALLEE, KEY_RULE } list_key_t;

static uint32_t key_of(const bt_grammar_arcs_t *a, list_key_t key, uint32_t i)
{
    return (key == KEY_TO)       ? a->arcs[i].to
           : (key == KEY_CALLEE) ? a->arcs[i].callee
                                 : a->grammar->states[i].rule;
}

/* Sorts the numbers 0 to n - 1 into lists by their keys. */
static bool make_lists(const bt_grammar_arcs_t *a, list_key_t key, uint32_t n,
                       uint32_t n_keys, bt_grammar_lists_t *lists)
{
    lists->first = bt_calloc((size_t)n_keys + 2, sizeof(uint32_t));
    lists->items = bt_calloc((size_t)n + 1, sizeof(uint32_t));
    if ((lists->first == NULL) || (lists->items == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (key_of(a, key, i) != BT_GRAMMAR_NONE) {
            lists->first[key_of(a, key, i) + 2]++;
        }
    }
    for (uint32_t k = 0; k < n_keys; k++) {
        lists->first[k + 2] += lists->first[k + 1];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (key_of(a, key, i) != BT_GRAMMAR_NONE) {
            lists->items[lists->first[key_of(a, key, i) + 1]++] = i;
        }
    }
    return true;
}

bt_status_t bt_grammar_arcs_init(bt_grammar_arcs_t *a,
                                 const bt_grammar_t *grammar)
{
    bt_status_t status;

    *a = (bt_grammar_arcs_t){.grammar = grammar};
    a->out_first = bt_calloc((size_t)grammar->n_states + 1, sizeof(uint32_t));
    if (a->out_first == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = add_arcs(a);
    if (status != BT_OK) {
        return status;
    }
    if (!make_lists(a, KEY_TO, a->n_arcs, grammar->n_states, &a->in) ||
        !make_lists(a, KEY_CALLEE, a->n_arcs, grammar->n_rules, &a->calls) ||
        !make_lists(a, KEY_RULE, grammar->n_states, grammar->n_rules,
                    &a->members)) {
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

void bt_grammar_arcs_fini(bt_grammar_arcs_t *a)
{
    bt_free(a->arcs);
    bt_free(a->out_first);
    bt_free(a->in.first);
    bt_free(a->in.items);
    bt_free(a->calls.first);
    bt_free(a->calls.items);
    bt_free(a->members.first);
    bt_free(a->members.items);
}
