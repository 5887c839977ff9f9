/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/grammar_oracle.h"

#include <string.h>

#include "common/base/alloc.h"

#define NO_LIMIT BT_GRAMMAR_NO_LIMIT

static const bt_grammar_rule_t *rule_of(const oracle_t *o, uint32_t state)
{
    return &o->grammar->rules[o->grammar->states[state].rule];
}

static uint32_t add_count(const bt_grammar_rule_t *rule, uint32_t count)
{
    return ((rule->max == NO_LIMIT) && (count >= rule->min)) ? rule->min
                                                             : count + 1;
}

static bool ends_here(const oracle_t *o, uint32_t state, uint32_t count)
{
    return o->grammar->states[state].accepts &&
           (count >= rule_of(o, state)->min) &&
           (count <= rule_of(o, state)->max);
}

/* Edge k of a state with those of its `otherwise` behind its own. */
static const bt_grammar_edge_t *edge_of(const bt_grammar_t *g, uint32_t state,
                                        uint32_t k)
{
    const bt_grammar_state_t *s = &g->states[state];

    if (k < s->n_edges) {
        return &g->edges[s->first_edge + k];
    }
    k -= s->n_edges;
    if ((s->otherwise != BT_GRAMMAR_NONE) &&
        (k < g->states[s->otherwise].n_byte_edges)) {
        return &g->edges[g->states[s->otherwise].first_edge + k];
    }
    return NULL;
}

static bool has_own_edge(const bt_grammar_t *g, uint32_t state, uint32_t byte)
{
    for (uint32_t i = 0; i < g->states[state].n_byte_edges; i++) {
        const bt_grammar_edge_t *e = &g->edges[g->states[state].first_edge + i];

        if ((byte >= e->lo) && (byte <= e->hi)) {
            return true;
        }
    }
    return false;
}

/* True when edge k of a state reads some byte: one of its `otherwise` only
 * those that the state has no edge for. */
static bool reads_any(const bt_grammar_t *g, uint32_t state, uint32_t k,
                      const bt_grammar_edge_t *edge)
{
    for (uint32_t byte = edge->lo; byte <= edge->hi; byte++) {
        if ((k < g->states[state].n_edges) || !has_own_edge(g, state, byte)) {
            return true;
        }
    }
    return false;
}

/* True when an edge is no call, or calls a rule that can end with few enough
 * frames above: its own takes one, unless nothing follows the call. */
static bool may_call(const oracle_t *o, const bt_grammar_edge_t *edge,
                     uint32_t h)
{
    const bt_grammar_state_t *to = &o->grammar->states[edge->to];
    const bool is_tail =
        to->accepts && (to->n_edges == 0) && (to->otherwise == BT_GRAMMAR_NONE);
    const uint32_t frames = is_tail ? 0 : 1;

    return (edge->kind != BT_GRAMMAR_CALLS) ||
           ((h >= frames) &&
            o->can_end[h - frames][o->grammar->rules[edge->arg].start][0]);
}

static bool leads_to_the_end(const oracle_t *o, uint32_t h, uint32_t state,
                             uint32_t count)
{
    const bt_grammar_t *g = o->grammar;
    const bt_grammar_rule_t *rule = rule_of(o, state);
    const bt_grammar_edge_t *edge;

    if (ends_here(o, state, count)) {
        return true;
    }
    for (uint32_t k = 0; (edge = edge_of(g, state, k)) != NULL; k++) {
        const uint32_t next = edge->counts ? add_count(rule, count) : count;

        if ((next <= rule->max) && (next < o->n_counts) &&
            o->can_end[h][edge->to][next] && may_call(o, edge, h) &&
            ((edge->kind != BT_GRAMMAR_READS) ||
             reads_any(g, state, k, edge))) {
            return true;
        }
    }
    return false;
}

oracle_t *oracle_create(const bt_grammar_t *grammar, uint32_t max_depth)
{
    oracle_t *o = bt_calloc(1, sizeof(*o));

    BT_ASSERT_ALWAYS((o != NULL) && (max_depth <= ORACLE_MAX_HEIGHT) &&
                     (grammar->n_states <= ORACLE_MAX_STATES));
    o->grammar = grammar;
    o->max_depth = max_depth;
    for (uint32_t r = 0; r < grammar->n_rules; r++) {
        const bt_grammar_rule_t *rule = &grammar->rules[r];
        const uint32_t top = (rule->max == NO_LIMIT) ? rule->min : rule->max;

        BT_ASSERT_ALWAYS(top + 16 < ORACLE_MAX_COUNT);
        o->n_counts = (top + 16 > o->n_counts) ? top + 16 : o->n_counts;
    }
    for (uint32_t h = 0; h <= max_depth; h++) {
        bool changed = true;

        while (changed) {
            changed = false;
            for (uint32_t s = grammar->n_states; s > 0; s--) {
                for (uint32_t c = o->n_counts; c > 0; c--) {
                    if (!o->can_end[h][s - 1][c - 1] &&
                        leads_to_the_end(o, h, s - 1, c - 1)) {
                        o->can_end[h][s - 1][c - 1] = true;
                        changed = true;
                    }
                }
            }
        }
    }
    return o;
}

/* Counts that lead from each state to the end of its rule, whatever its bounds
 * are. */
static void find_counts(const oracle_t *o, uint32_t height,
                        bool counts[ORACLE_MAX_STATES][ORACLE_MAX_COUNT])
{
    const bt_grammar_t *g = o->grammar;
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t s = 0; s < g->n_states; s++) {
            const bt_grammar_edge_t *edge;

            if (g->states[s].accepts && !counts[s][0]) {
                counts[s][0] = changed = true;
            }
            for (uint32_t k = 0; (edge = edge_of(g, s, k)) != NULL; k++) {
                const uint32_t add = edge->counts ? 1 : 0;

                if (!may_call(o, edge, height) ||
                    ((edge->kind == BT_GRAMMAR_READS) &&
                     !reads_any(g, s, k, edge))) {
                    continue;
                }
                for (uint32_t c = 0; c + add < o->n_counts; c++) {
                    if (counts[edge->to][c] && !counts[s][c + add]) {
                        counts[s][c + add] = changed = true;
                    }
                }
            }
        }
    }
}

bool oracle_has_gaps(const oracle_t *o, uint32_t height)
{
    static bool counts[ORACLE_MAX_STATES][ORACLE_MAX_COUNT];

    memset(counts, 0, sizeof(counts));
    find_counts(o, height, counts);
    for (uint32_t s = 0; s < o->grammar->n_states; s++) {
        uint32_t last = ORACLE_MAX_COUNT;

        if ((rule_of(o, s)->min == 0) || (rule_of(o, s)->max == NO_LIMIT)) {
            continue; /* one bound alone needs no range */
        }
        for (uint32_t c = 0; c < o->n_counts; c++) {
            if (counts[s][c] && (last != ORACLE_MAX_COUNT) && (last + 1 != c)) {
                return true;
            }
            last = counts[s][c] ? c : last;
        }
    }
    return false;
}

/*
 * Stacks
 */

/* Leaves out frames whose rule ends at once. @return false: it cannot end */
static bool normalize(const oracle_t *o, oracle_stack_t *stack)
{
    while (stack->n > 0) {
        const uint32_t state = stack->states[stack->n - 1];
        const bt_grammar_state_t *s = &o->grammar->states[state];

        if (!s->accepts || (s->n_edges > 0) ||
            (s->otherwise != BT_GRAMMAR_NONE)) {
            break;
        }
        if (!ends_here(o, state, stack->counts[stack->n - 1])) {
            return false;
        }
        stack->n--;
    }
    return true;
}

static void add(oracle_set_t *set, const oracle_stack_t *stack)
{
    for (uint32_t i = 0; i < set->n; i++) {
        const oracle_stack_t *s = &set->stacks[i];

        if ((s->n == stack->n) &&
            (memcmp(s->states, stack->states, stack->n * sizeof(uint16_t)) ==
             0) &&
            (memcmp(s->counts, stack->counts, stack->n * sizeof(uint16_t)) ==
             0)) {
            return;
        }
    }
    if (set->n == ORACLE_MAX_STACKS) {
        set->overflow = true;
        return;
    }
    set->stacks[set->n++] = *stack;
}

/* Moves the top frame along an edge. @return false: over its max */
static bool move_top(const oracle_t *o, oracle_stack_t *stack,
                     const bt_grammar_edge_t *edge)
{
    const uint32_t top = stack->n - 1u;
    const bt_grammar_rule_t *rule = rule_of(o, edge->to);
    const uint32_t count =
        edge->counts ? add_count(rule, stack->counts[top]) : stack->counts[top];

    if ((count > rule->max) || (count >= o->n_counts)) {
        return false;
    }
    stack->states[top] = (uint16_t)edge->to;
    stack->counts[top] = (uint16_t)count;
    return true;
}

static void call(const oracle_t *o, oracle_stack_t stack,
                 const bt_grammar_edge_t *edge, oracle_set_t *set)
{
    if (move_top(o, &stack, edge) && normalize(o, &stack) &&
        (stack.n < o->max_depth)) {
        stack.states[stack.n] = (uint16_t)o->grammar->rules[edge->arg].start;
        stack.counts[stack.n++] = 0;
        add(set, &stack);
    }
}

/* All stacks that a set is without reading anything. */
static void close_set(oracle_t *o, const oracle_set_t *set)
{
    oracle_set_t *seen = &o->seen;

    seen->n = 0;
    seen->overflow = set->overflow;
    for (uint32_t i = 0; i < set->n; i++) {
        add(seen, &set->stacks[i]);
    }
    for (uint32_t i = 0; i < seen->n; i++) {
        oracle_stack_t stack = seen->stacks[i];
        const bt_grammar_edge_t *edge;
        uint32_t state;

        if (stack.n == 0) {
            continue;
        }
        state = stack.states[stack.n - 1];
        for (uint32_t k = 0; (edge = edge_of(o->grammar, state, k)) != NULL;
             k++) {
            if (edge->kind == BT_GRAMMAR_CALLS) {
                call(o, stack, edge, seen);
            }
        }
        if (ends_here(o, state, stack.counts[stack.n - 1])) {
            stack.n--;
            add(seen, &stack);
        }
    }
}

void oracle_copy(const oracle_set_t *set, oracle_set_t *copy)
{
    copy->n = set->n;
    copy->overflow = set->overflow;
    memcpy(copy->stacks, set->stacks, set->n * sizeof(set->stacks[0]));
}

void oracle_start(oracle_t *o, oracle_set_t *set)
{
    oracle_stack_t stack = {.n = 1};

    stack.states[0] = (uint16_t)o->grammar->rules[0].start;
    set->n = 0;
    set->overflow = false;
    if (normalize(o, &stack)) {
        add(set, &stack);
    }
}

static void follow(oracle_t *o, const oracle_set_t *set,
                   bt_grammar_edge_kind_t kind, uint32_t arg,
                   oracle_set_t *next)
{
    close_set(o, set);
    next->n = 0;
    next->overflow = o->seen.overflow;
    for (uint32_t i = 0; i < o->seen.n; i++) {
        const oracle_stack_t *stack = &o->seen.stacks[i];
        const bt_grammar_edge_t *edge;
        uint32_t state;

        if (stack->n == 0) {
            continue;
        }
        state = stack->states[stack->n - 1];
        for (uint32_t k = 0; (edge = edge_of(o->grammar, state, k)) != NULL;
             k++) {
            oracle_stack_t moved = *stack;
            const bool fits =
                (kind == BT_GRAMMAR_TAKES)
                    ? (arg >= edge->arg) && (arg <= edge->last)
                    : (arg >= edge->lo) && (arg <= edge->hi) &&
                          ((k < o->grammar->states[state].n_edges) ||
                           !has_own_edge(o->grammar, state, arg));

            if ((edge->kind == kind) && fits && move_top(o, &moved, edge) &&
                normalize(o, &moved)) {
                add(next, &moved);
            }
        }
    }
}

void oracle_read(oracle_t *o, const oracle_set_t *set, uint8_t byte,
                 oracle_set_t *next)
{
    follow(o, set, BT_GRAMMAR_READS, byte, next);
}

void oracle_take(oracle_t *o, const oracle_set_t *set, uint32_t id,
                 oracle_set_t *next)
{
    follow(o, set, BT_GRAMMAR_TAKES, id, next);
}

uint32_t oracle_n_live(const oracle_t *o, const oracle_set_t *set)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->n; i++) {
        const oracle_stack_t *stack = &set->stacks[i];
        bool live = true;

        for (uint32_t d = 0; d < stack->n; d++) {
            live = live && o->can_end[o->max_depth - d - 1][stack->states[d]]
                                     [stack->counts[d]];
        }
        n += live ? 1 : 0;
    }
    return n;
}

bool oracle_accepts(oracle_t *o, const oracle_set_t *set)
{
    close_set(o, set);
    for (uint32_t i = 0; i < o->seen.n; i++) {
        if (o->seen.stacks[i].n == 0) {
            return true;
        }
    }
    return false;
}
