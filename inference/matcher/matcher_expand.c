/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "inference/matcher/matcher_priv.h"

static uint32_t add_count(const bt_grammar_rule_t *rule, uint32_t count)
{
    return ((rule->max == BT_GRAMMAR_NO_LIMIT) && (count >= rule->min))
               ? rule->min
               : count + 1;
}

/* True when a frame that becomes (state, count) at a depth can still end. */
static bool can_end(const bt_matcher_t *m, uint32_t state, uint32_t count,
                    uint32_t depth)
{
    return (depth <= m->max_depth) &&
           bt_grammar_can_end(m->bounds, state, count, m->max_depth - depth);
}

static uint32_t count_behind(const bt_matcher_t *m, const bt_stack_node_t *top,
                             bool counts)
{
    return counts ? add_count(
                        &m->grammar->rules[m->grammar->states[top->state].rule],
                        top->count)
                  : top->count;
}

bool bt_matcher_follow(bt_matcher_t *m, uint32_t node, uint32_t to, bool counts,
                       uint32_t *next_p)
{
    const bt_stack_node_t *top = &m->nodes[node];
    const uint32_t count = count_behind(m, top, counts);

    *next_p = BT_NODE_NONE;
    if (!can_end(m, to, count, top->depth)) {
        return true;
    }
    *next_p =
        m->ends[to] ? top->below : bt_matcher_node(m, to, count, top->below);
    return *next_p != BT_NODE_NONE;
}

/* Returns the origin of what is behind an edge, or the end, of a frame.
 * @param [in] stays  The frame is there still. */
static bt_origin_t origin_behind(const bt_stack_node_t *top, bool stays)
{
    const uint32_t kept = top->origin / 2u;

    if (top->depth > kept + 1) {
        return top->origin;
    }
    if (top->depth > kept) {
        return (bt_origin_t)(stays ? top->origin : 2 * kept);
    }
    return (bt_origin_t)(2 * (kept - 1) + (stays ? 1u : 0u));
}

static void add_frame(bt_matcher_t *m, uint32_t node, bt_origin_t origin)
{
    if (m->nodes[node].mark == m->mark) {
        m->mixed = m->mixed || (m->nodes[node].origin != origin);
        return;
    }
    m->nodes[node].mark = m->mark;
    m->nodes[node].origin = origin;
    if (m->n_frames == BT_MATCHER_MAX_FRAMES) {
        m->overflow = true;
        return;
    }
    m->frames[m->n_frames++] = node;
}

/* Adds the frame of a rule that an edge of a frame calls. */
static bool call(bt_matcher_t *m, uint32_t node, const bt_grammar_edge_t *edge)
{
    const bt_stack_node_t top = m->nodes[node];
    const uint32_t count = count_behind(m, &top, edge->counts);
    const uint32_t start = m->grammar->rules[edge->arg].start;
    const uint32_t depth = top.depth + (m->ends[edge->to] ? 0u : 1u);
    uint32_t below = top.below;

    if (!can_end(m, edge->to, count, top.depth) ||
        !can_end(m, start, 0, depth)) {
        return true;
    }
    if (!m->ends[edge->to]) {
        below = bt_matcher_node(m, edge->to, count, top.below);
    }
    node =
        (below == BT_NODE_NONE) ? below : bt_matcher_node(m, start, 0, below);
    if (node == BT_NODE_NONE) {
        return false;
    }
    add_frame(m, node, origin_behind(&top, !m->ends[edge->to]));
    return true;
}

bool bt_matcher_close(bt_matcher_t *m, const uint32_t *nodes, uint32_t n)
{
    m->mark++;
    if (m->mark == 0) { /* no mark of another time may look like this one */
        for (uint32_t i = 0; i < m->n_nodes; i++) {
            m->nodes[i].mark = 0;
        }
        m->mark = 1;
    }
    m->n_frames = 0;
    m->work = 0;
    m->overflow = false;
    m->mixed = n != 1;
    for (uint32_t i = 0; i < n; i++) {
        add_frame(m, nodes[i], (bt_origin_t)(2 * m->nodes[nodes[i]].depth));
    }
    for (uint32_t i = 0; (i < m->n_frames) && !m->overflow; i++) {
        const bt_stack_node_t *top = &m->nodes[m->frames[i]];
        const bt_grammar_state_t *state;
        const bt_grammar_rule_t *rule;

        if (m->frames[i] == BT_NODE_EMPTY) {
            continue;
        }
        state = &m->grammar->states[top->state];
        rule = &m->grammar->rules[state->rule];
        m->work += 1u + state->n_edges - state->n_byte_edges;
        m->overflow = m->overflow || (m->work > BT_MATCHER_MAX_WORK);
        if (state->accepts && (top->count >= rule->min) &&
            (top->count <= rule->max)) {
            add_frame(m, top->below, origin_behind(top, false));
        }
        for (uint32_t k = state->n_byte_edges; k < state->n_edges; k++) {
            const bt_grammar_edge_t *edge =
                &m->grammar->edges[state->first_edge + k];

            if ((edge->kind == BT_GRAMMAR_CALLS) &&
                !call(m, m->frames[i], edge)) {
                return false;
            }
        }
    }
    return true;
}

/* Adds a stack to those behind the classes first to last. */
static void add_target(bt_matcher_t *m, uint32_t first, uint32_t last,
                       uint32_t node, bt_origin_t origin)
{
    for (uint32_t c = first; c <= last; c++) {
        uint16_t n = m->n_targets[c];

        m->work += 1u + n;

        if (n == 0) {
            m->target[c] = node;
            m->target_origin[c] = origin;
            m->n_targets[c] = 1;
            continue;
        }
        if (n == 1) {
            if (m->target[c] == node) {
                m->mixed = m->mixed || (m->target_origin[c] != origin);
                continue;
            }
            m->targets[c][0] = m->target[c];
        }
        for (uint16_t i = 0; i < n; i++) {
            if (m->targets[c][i] == node) {
                m->mixed = true;
                n = BT_MATCHER_MAX_SET + 1;
            }
        }
        if (n <= BT_MATCHER_MAX_SET) {
            m->targets[c][n] = node;
            m->n_targets[c]++;
        }
    }
}

static bool add_targets_of(bt_matcher_t *m, uint32_t node, bool *takes_p)
{
    const bt_grammar_state_t *state;
    bt_byte_edge_t edges[256];
    uint32_t n;

    if (node == BT_NODE_EMPTY) {
        return true;
    }
    state = &m->grammar->states[m->nodes[node].state];
    n = bt_grammar_byte_edges(m->grammar, m->nodes[node].state, edges);
    m->work += n + state->n_edges;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next;

        if (!bt_matcher_follow(m, node, edges[i].to, edges[i].counts, &next)) {
            return false;
        }
        if (next != BT_NODE_NONE) {
            add_target(m, m->class_of[edges[i].lo], m->class_of[edges[i].hi],
                       next,
                       origin_behind(&m->nodes[node], !m->ends[edges[i].to]));
        }
    }
    for (uint32_t k = state->n_byte_edges; k < state->n_edges; k++) {
        *takes_p = *takes_p || (m->grammar->edges[state->first_edge + k].kind ==
                                BT_GRAMMAR_TAKES);
    }
    return true;
}

/* States behind the classes, from their stacks. @return false: full */
static bool write_row(bt_matcher_t *m, uint32_t *row)
{
    uint32_t last_node = BT_NODE_NONE;
    uint32_t last_state = BT_MATCHER_DEAD;

    for (uint32_t c = 1; c <= m->n_classes; c++) {
        const uint32_t n = m->n_targets[c];

        if (n == 0) {
            row[c] = BT_MATCHER_DEAD;
        } else if (n > 1) {
            row[c] = bt_matcher_set(m, m->targets[c], n);
        } else {
            if (m->target[c] != last_node) {
                last_node = m->target[c];
                last_state = bt_matcher_set(m, &m->target[c], 1);
            }
            row[c] = last_state;
        }
        if (row[c] == BT_NODE_NONE) {
            return false;
        }
    }
    return true;
}

/* Origins of the stacks behind the classes of one stack. */
static void write_origins(const bt_matcher_t *m, uint32_t node,
                          uint8_t *origins)
{
    const uint32_t depth = m->nodes[node].depth;

    memset(origins, 0, m->n_classes + 1);
    for (uint32_t c = 1; !m->mixed && (c <= m->n_classes); c++) {
        const uint32_t changed = depth - m->target_origin[c] / 2u;

        if ((m->n_targets[c] == 1) && (changed <= UINT8_MAX / 2)) {
            origins[c] = (uint8_t)(changed << 1 | (m->target_origin[c] & 1u));
        }
    }
}

bool bt_matcher_expand(bt_matcher_t *m, uint32_t state)
{
    uint32_t n;
    const uint32_t *nodes = bt_matcher_members(m, state, &n);
    bool takes = false;
    uint32_t at;

    if ((m->n_rows == m->cap_rows) || !bt_matcher_close(m, nodes, n)) {
        return false;
    }
    if (m->overflow) {
        m->sets[state].flags |= BT_SET_OVERFLOW | BT_SET_EXPANDED;
        return true;
    }
    memset(m->n_targets, 0, (m->n_classes + 1) * sizeof(m->n_targets[0]));
    for (uint32_t i = 0; i < m->n_frames; i++) {
        if (!add_targets_of(m, m->frames[i], &takes)) {
            return false;
        }
        if (m->work > BT_MATCHER_MAX_WORK) {
            m->sets[state].flags |= BT_SET_OVERFLOW | BT_SET_EXPANDED;
            return true;
        }
    }
    at = (m->n_rows + 1) * m->row_size;
    if (!write_row(m, &m->rows[at])) {
        return false;
    }
    m->rows[at] = m->n_frames;
    m->rows[at + m->n_classes + 1] = m->work + m->n_classes + 2;
    if (m->counts) {
        write_origins(m, nodes[0], (uint8_t *)&m->rows[at + m->n_classes + 2]);
    }
    m->row_of[state] = (bt_row_ref_t){.at = at};
    m->n_rows++;
    m->sets[state].flags |= BT_SET_EXPANDED;
    if (takes) {
        m->sets[state].flags |= BT_SET_TAKES;
    }
    return true;
}

bool bt_matcher_ready(bt_matcher_t *m, uint32_t *state_p)
{
    if (*state_p <= BT_MATCHER_FAILED) {
        return false;
    }
    if (!bt_matcher_is_expanded(m, *state_p) &&
        !bt_matcher_expand(m, *state_p)) {
        *state_p = bt_matcher_rebase(m, *state_p);
        if ((*state_p == BT_MATCHER_FAILED) ||
            !bt_matcher_expand(m, *state_p)) {
            *state_p = BT_MATCHER_FAILED;
        }
    }
    if ((*state_p != BT_MATCHER_FAILED) &&
        ((m->sets[*state_p].flags & BT_SET_OVERFLOW) != 0)) {
        *state_p = BT_MATCHER_FAILED;
    }
    return *state_p != BT_MATCHER_FAILED;
}
