/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "inference/matcher/matcher_priv.h"

#define MIN_TABLE 256u /* slots of an empty hash table */

static uint64_t mix(uint64_t h)
{
    /* Finalizer of MurmurHash3 (A. Appleby). */
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
}

static uint64_t hash_node(uint32_t state, uint32_t count, uint32_t below)
{
    return mix(((uint64_t)state << 32 | below) ^
               (uint64_t)count * 0x9e3779b97f4a7c15ull);
}

static uint64_t hash_members(const uint32_t *nodes, uint32_t n)
{
    uint64_t h = n;

    for (uint32_t i = 0; i < n; i++) {
        h = mix(h ^ nodes[i]);
    }
    return h;
}

static uint64_t hash_of(const bt_matcher_t *m, const bt_id_table_t *table,
                        uint32_t id)
{
    if (table == &m->node_table) {
        const bt_stack_node_t *node = &m->nodes[id];

        return hash_node(node->state, node->count, node->below);
    }
    return hash_members(&m->members[m->sets[id].first], m->sets[id].n);
}

static void put(bt_id_table_t *table, uint64_t hash, uint32_t id)
{
    uint32_t at = (uint32_t)hash & (table->size - 1);

    while (table->slots[at] != 0) {
        at = (at + 1) & (table->size - 1);
    }
    table->slots[at] = id;
}

/* Adds the newest of n entries. The table stays at most half full while it can
 * grow, and always has free slots: cap is above the most entries. */
static void add_id(bt_matcher_t *m, bt_id_table_t *table, uint64_t hash,
                   uint32_t id, uint32_t n)
{
    if ((n > table->size / 2) && (table->size < table->cap)) {
        table->size =
            (table->size * 4 < table->cap) ? table->size * 4 : table->cap;
        memset(table->slots, 0, table->size * sizeof(uint32_t));
        for (uint32_t i = 1; i < id; i++) {
            /* Sets of one stack are found by their node. */
            if ((table == &m->node_table) ||
                ((i > BT_MATCHER_FAILED) && (m->sets[i].n > 1))) {
                put(table, hash_of(m, table, i), i);
            }
        }
    }
    put(table, hash, id);
}

void bt_matcher_reset(bt_matcher_t *m)
{
    bt_id_table_t *tables[] = {&m->node_table, &m->set_table};

    for (uint32_t i = 0; i < BT_ARRAY_LEN(tables); i++) {
        tables[i]->size =
            (MIN_TABLE < tables[i]->cap) ? MIN_TABLE : tables[i]->cap;
        memset(tables[i]->slots, 0, tables[i]->size * sizeof(uint32_t));
    }
    memset(m->slots, 0, m->n_slots * sizeof(m->slots[0]));
    m->nodes[BT_NODE_EMPTY] = (bt_stack_node_t){
        .state = BT_GRAMMAR_NONE, .below = BT_NODE_NONE, .bytes = 1};
    memset(m->sets, 0, (BT_MATCHER_FAILED + 1) * sizeof(m->sets[0]));
    memset(m->row_of, 0, (BT_MATCHER_FAILED + 1) * sizeof(m->row_of[0]));
    memset(m->rows, 0, m->row_size * sizeof(m->rows[0]));
    m->n_nodes = 1;
    m->n_sets = BT_MATCHER_FAILED + 1;
    m->n_members = 0;
    m->n_rows = 0;
    m->hand = 0;
    m->start = 0;
    m->epoch++;
}

uint32_t bt_matcher_node(bt_matcher_t *m, uint32_t state, uint32_t count,
                         uint32_t below)
{
    const uint64_t hash = hash_node(state, count, below);
    const uint32_t last = m->node_table.size - 1;
    uint32_t id;

    for (uint32_t at = (uint32_t)hash & last;
         (id = m->node_table.slots[at]) != 0; at = (at + 1) & last) {
        const bt_stack_node_t *node = &m->nodes[id];

        if ((node->state == state) && (node->count == count) &&
            (node->below == below)) {
            return id;
        }
    }
    if (m->n_nodes == m->cap_nodes) {
        return BT_NODE_NONE;
    }
    id = m->n_nodes++;
    m->nodes[id] =
        (bt_stack_node_t){.state = state,
                          .count = count,
                          .below = below,
                          .depth = (uint16_t)(m->nodes[below].depth + 1)};
    add_id(m, &m->node_table, hash, id, m->n_nodes);
    return id;
}

/* Set of one stack. */
static uint32_t single(bt_matcher_t *m, uint32_t node)
{
    if (m->nodes[node].set == 0) {
        if (m->n_sets == m->cap_sets) {
            return BT_NODE_NONE;
        }
        m->sets[m->n_sets] = (bt_stack_set_t){.first = node, .n = 1};
        m->row_of[m->n_sets] = (bt_row_ref_t){0};
        m->nodes[node].set = m->n_sets++;
    }
    return m->nodes[node].set;
}

static uint32_t sort_nodes(uint32_t *nodes, uint32_t n)
{
    uint32_t n_kept = 0;

    for (uint32_t i = 1; i < n; i++) {
        const uint32_t node = nodes[i];
        uint32_t k = i;

        for (; (k > 0) && (nodes[k - 1] > node); k--) {
            nodes[k] = nodes[k - 1];
        }
        nodes[k] = node;
    }
    for (uint32_t i = 0; i < n; i++) {
        if ((i == 0) || (nodes[i] != nodes[i - 1])) {
            nodes[n_kept++] = nodes[i];
        }
    }
    return n_kept;
}

uint32_t bt_matcher_set(bt_matcher_t *m, uint32_t *nodes, uint32_t n)
{
    const uint32_t last = m->set_table.size - 1;
    uint64_t hash;
    uint32_t id;

    n = sort_nodes(nodes, n);
    if (n <= 1) {
        return (n == 0) ? BT_MATCHER_DEAD : single(m, nodes[0]);
    }
    if (n > BT_MATCHER_MAX_SET) {
        return BT_MATCHER_FAILED;
    }
    hash = hash_members(nodes, n);
    for (uint32_t at = (uint32_t)hash & last;
         (id = m->set_table.slots[at]) != 0; at = (at + 1) & last) {
        if ((m->sets[id].n == n) &&
            (memcmp(&m->members[m->sets[id].first], nodes,
                    n * sizeof(nodes[0])) == 0)) {
            return id;
        }
    }
    if ((m->n_sets == m->cap_sets) || (n > m->cap_members - m->n_members)) {
        return BT_NODE_NONE;
    }
    id = m->n_sets++;
    m->sets[id] = (bt_stack_set_t){.first = m->n_members, .n = (uint16_t)n};
    m->row_of[id] = (bt_row_ref_t){0};
    memcpy(&m->members[m->n_members], nodes, n * sizeof(nodes[0]));
    m->n_members += n;
    add_id(m, &m->set_table, hash, id, m->n_sets);
    return id;
}

const uint32_t *bt_matcher_members(const bt_matcher_t *m, uint32_t state,
                                   uint32_t *n_p)
{
    const bt_stack_set_t *set = &m->sets[state];

    *n_p = set->n;
    return (set->n == 1) ? &set->first : &m->members[set->first];
}

/*
 * One state in empty tables
 */

static void save(bt_matcher_t *m, uint32_t state)
{
    const uint32_t *nodes = bt_matcher_members(m, state, &m->saved.n);
    bt_saved_frame_t *frames = m->saved.frames;

    for (uint32_t i = 0; i < m->saved.n; i++) {
        const uint32_t depth = m->nodes[nodes[i]].depth;
        uint32_t node = nodes[i];

        m->saved.depths[i] = depth;
        for (uint32_t d = depth; d > 0; d--) {
            frames[d - 1] = (bt_saved_frame_t){.state = m->nodes[node].state,
                                               .count = m->nodes[node].count};
            node = m->nodes[node].below;
        }
        frames += depth;
    }
}

uint32_t bt_matcher_rebase(bt_matcher_t *m, uint32_t state)
{
    const bt_saved_frame_t *frames = m->saved.frames;
    uint32_t nodes[BT_MATCHER_MAX_SET];
    uint32_t set;

    m->stats.resets++;
    if (state <= BT_MATCHER_FAILED) {
        bt_matcher_reset(m);
        return state;
    }
    save(m, state);
    bt_matcher_reset(m);
    for (uint32_t i = 0; i < m->saved.n; i++) {
        nodes[i] = BT_NODE_EMPTY;
        for (uint32_t d = 0; d < m->saved.depths[i]; d++) {
            nodes[i] =
                bt_matcher_node(m, frames[d].state, frames[d].count, nodes[i]);
            if (nodes[i] == BT_NODE_NONE) {
                return BT_MATCHER_FAILED;
            }
        }
        frames += m->saved.depths[i];
    }
    set = bt_matcher_set(m, nodes, m->saved.n);
    return (set == BT_NODE_NONE) ? BT_MATCHER_FAILED : set;
}

/*
 * Canonical states
 */

static uint32_t clamp_count(const bt_matcher_t *m, uint32_t state,
                            uint32_t count)
{
    const uint32_t r = m->grammar->states[state].rule;
    const bt_grammar_rule_t *rule = &m->grammar->rules[r];
    const bt_rule_clamp_t *clamp = &m->clamps[r];

    if (count <= clamp->low) {
        return (uint32_t)clamp->low;
    }
    return ((count >= rule->min) && (count <= clamp->high)) ? rule->min : count;
}

static uint32_t canonical_node(bt_matcher_t *m, uint32_t node)
{
    uint32_t path[BT_GRAMMAR_MAX_DEPTH];
    uint32_t n = 0;
    uint32_t below;

    while ((node != BT_NODE_EMPTY) && (m->nodes[node].canonical == 0)) {
        path[n++] = node;
        node = m->nodes[node].below;
    }
    below = (node == BT_NODE_EMPTY) ? node : m->nodes[node].canonical;
    while (n > 0) {
        const bt_stack_node_t top = m->nodes[path[--n]];

        below = bt_matcher_node(m, top.state,
                                clamp_count(m, top.state, top.count), below);
        if (below == BT_NODE_NONE) {
            return BT_NODE_NONE;
        }
        m->nodes[path[n]].canonical = below;
    }
    return below;
}

uint32_t bt_matcher_canonical(bt_matcher_t *m, uint32_t state)
{
    uint32_t nodes[BT_MATCHER_MAX_SET];
    const uint32_t *members;
    uint32_t n;
    uint32_t set;

    if (m->sets[state].canonical != 0) {
        return m->sets[state].canonical;
    }
    members = bt_matcher_members(m, state, &n);
    for (uint32_t i = 0; i < n; i++) {
        nodes[i] = canonical_node(m, members[i]);
        if (nodes[i] == BT_NODE_NONE) {
            return BT_NODE_NONE;
        }
    }
    set = bt_matcher_set(m, nodes, n);
    if (set != BT_NODE_NONE) {
        m->sets[state].canonical = set;
    }
    return set;
}
