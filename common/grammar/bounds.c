/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/bounds.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/arcs.h"

#define MAX_WORK (1u << 24) /* arcs looked at for rules with bounds */

typedef struct analysis {
    const bt_grammar_t *grammar;
    bt_grammar_bounds_t *bounds;
    bt_grammar_arcs_t graph;
    uint32_t *reached;  /* height of states whose rule has no bounds */
    uint32_t *resolved; /* rules in the order of their heights */
    uint32_t n_resolved;
    uint32_t height; /* of the ranges that are computed */
    uint64_t work;
    bool *gaps;      /* by rule: those of the last ranges */
    bool *is_dirty;  /* by rule: its ranges have to be computed */
    uint32_t *dirty; /* these rules */
    uint32_t n_dirty;

    /* by state, of the rule whose ranges are computed */
    bt_count_range_t *ranges;
    uint32_t *queues[2]; /* 2 * n_states each */

    /* strongly connected components */
    uint32_t *index, *low, *component;
    uint32_t *stack, *path, *path_arc;
    uint32_t n_index, n_stack, n_components;
    bool without_counts; /* components of arcs that do not count */
    bt_count_range_t *parts;
    bool has_gap;
} analysis_t;

static bool has_bounds(const bt_grammar_rule_t *rule)
{
    return (rule->min > 0) || (rule->max != BT_GRAMMAR_NO_LIMIT);
}

uint32_t bt_grammar_byte_edges(const bt_grammar_t *grammar, uint32_t state,
                               bt_byte_edge_t edges[256])
{
    const bt_grammar_state_t *s = &grammar->states[state];
    const bt_grammar_edge_t *own = &grammar->edges[s->first_edge];
    const bt_grammar_edge_t *base = NULL;
    uint32_t n_base = 0;
    uint32_t at = 0; /* first byte that is not looked at yet */
    uint32_t k = 0;
    uint32_t n = 0;

    if (s->otherwise != BT_GRAMMAR_NONE) {
        base = &grammar->edges[grammar->states[s->otherwise].first_edge];
        n_base = grammar->states[s->otherwise].n_byte_edges;
    }
    for (uint32_t i = 0; i <= s->n_byte_edges; i++) {
        const uint32_t end = (i < s->n_byte_edges) ? own[i].lo : 256;

        for (; (k < n_base) && (base[k].lo < end); k++) {
            const uint32_t lo = (base[k].lo < at) ? at : base[k].lo;
            const uint32_t hi = (base[k].hi < end) ? base[k].hi : end - 1;

            if (lo <= hi) {
                edges[n++] = (bt_byte_edge_t){.lo = (uint8_t)lo,
                                              .hi = (uint8_t)hi,
                                              .counts = base[k].counts,
                                              .to = base[k].to};
            }
            if (base[k].hi >= end) {
                break;
            }
        }
        if (i < s->n_byte_edges) {
            edges[n++] = (bt_byte_edge_t){.lo = own[i].lo,
                                          .hi = own[i].hi,
                                          .counts = own[i].counts,
                                          .to = own[i].to};
            at = own[i].hi + 1u;
        }
    }
    return n;
}

static bool is_usable(const analysis_t *a, const bt_grammar_arc_t *arc)
{
    return (arc->callee == BT_GRAMMAR_NONE) ||
           ((uint64_t)a->bounds->rules[arc->callee].height +
                (arc->is_tail ? 0 : 1) <=
            a->height);
}

static void resolve_rule(analysis_t *a, uint32_t rule)
{
    a->bounds->rules[rule].height = a->height;
    a->resolved[a->n_resolved++] = rule;
}

/*
 * Ranges of one rule with bounds, at one height
 */

/* Fewest counting edges, from the ends backwards. */
static void find_least(analysis_t *a, uint32_t rule)
{
    const uint32_t *members =
        &a->graph.members.items[a->graph.members.first[rule]];
    const uint32_t n =
        a->graph.members.first[rule + 1] - a->graph.members.first[rule];
    uint32_t *now = a->queues[0];
    uint32_t *next = a->queues[1];
    uint32_t n_now = 0;

    for (uint32_t i = 0; i < n; i++) {
        const bool accepts = a->grammar->states[members[i]].accepts;

        a->ranges[members[i]].least = accepts ? 0 : BT_GRAMMAR_NONE;
        if (accepts) {
            now[n_now++] = members[i];
        }
    }
    for (uint32_t d = 0; n_now > 0; d++) {
        uint32_t *done = now;
        uint32_t n_next = 0;

        for (uint32_t i = 0; i < n_now; i++) {
            const uint32_t to = now[i];

            if (a->ranges[to].least != d) {
                continue;
            }
            for (uint32_t k = a->graph.in.first[to];
                 k < a->graph.in.first[to + 1]; k++) {
                const bt_grammar_arc_t *arc =
                    &a->graph.arcs[a->graph.in.items[k]];

                a->work++;
                if (is_usable(a, arc) &&
                    (d + (arc->counts ? 1 : 0) < a->ranges[arc->from].least)) {
                    a->ranges[arc->from].least = d + (arc->counts ? 1 : 0);
                    if (arc->counts) {
                        next[n_next++] = arc->from;
                    } else {
                        now[n_now++] = arc->from;
                    }
                }
            }
        }
        now = next;
        next = done;
        n_now = n_next;
    }
}

static bool is_followed(const analysis_t *a, const bt_grammar_arc_t *arc)
{
    return is_usable(a, arc) && (a->ranges[arc->to].least != BT_GRAMMAR_NONE);
}

static uint32_t plus(uint32_t most, bool counts)
{
    return (most == BT_GRAMMAR_NO_LIMIT) ? most : most + (counts ? 1 : 0);
}

/* Most counting edges of a component's states: all components behind it are
 * done. */
static void find_most(analysis_t *a, const uint32_t *states, uint32_t n)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = a->graph.out_first[states[i]];
             k < a->graph.out_first[states[i] + 1]; k++) {
            const bt_grammar_arc_t *arc = &a->graph.arcs[k];
            const bool inside =
                a->component[arc->to] == a->component[states[i]];
            const uint32_t here =
                inside ? (arc->counts ? BT_GRAMMAR_NO_LIMIT : 0)
                       : plus(a->ranges[arc->to].most, arc->counts);

            if (is_followed(a, arc) && (here > most)) {
                most = here;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        a->ranges[states[i]].most = most;
    }
}

static int compare_ranges(const void *x_p, const void *y_p)
{
    const bt_count_range_t *x = x_p;
    const bt_count_range_t *y = y_p;

    return (x->least > y->least) - (x->least < y->least);
}

/* Says whether the counts of a component's states, which do not count among
 * each other, are a range: those behind its other arcs are ranges. By induction
 * over the count then all counts of all ranges can be had. */
static void find_gaps(analysis_t *a, const uint32_t *states, uint32_t n)
{
    uint32_t n_parts = 0;
    uint64_t end = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (a->grammar->states[states[i]].accepts) {
            a->parts[n_parts++] = (bt_count_range_t){0, 0};
        }
        for (uint32_t k = a->graph.out_first[states[i]];
             k < a->graph.out_first[states[i] + 1]; k++) {
            const bt_grammar_arc_t *arc = &a->graph.arcs[k];
            const bool inside =
                a->component[arc->to] == a->component[states[i]];

            if (is_followed(a, arc) && (arc->counts || !inside)) {
                a->parts[n_parts++] = (bt_count_range_t){
                    .least = plus(a->ranges[arc->to].least, arc->counts),
                    .most = plus(a->ranges[arc->to].most, arc->counts),
                };
            }
        }
    }
    qsort(a->parts, n_parts, sizeof(a->parts[0]), compare_ranges);
    for (uint32_t i = 0; i < n_parts; i++) {
        if ((i > 0) && (a->parts[i].least > end)) {
            a->has_gap = true;
        }
        if (a->parts[i].most == BT_GRAMMAR_NO_LIMIT) {
            end = UINT64_MAX;
        } else if (a->parts[i].most >= end) {
            end = (uint64_t)a->parts[i].most + 1;
        }
    }
}

static void end_component(analysis_t *a, uint32_t state)
{
    uint32_t n = 0;

    a->n_components++;
    do {
        n++;
        a->component[a->stack[a->n_stack - n]] = a->n_components;
    } while (a->stack[a->n_stack - n] != state);
    a->n_stack -= n;
    if (a->without_counts) {
        find_gaps(a, &a->stack[a->n_stack], n);
    } else {
        find_most(a, &a->stack[a->n_stack], n);
    }
}

static void enter(analysis_t *a, uint32_t state, uint32_t depth)
{
    a->index[state] = a->low[state] = ++a->n_index;
    a->component[state] = 0;
    a->stack[a->n_stack++] = state;
    a->path[depth] = state;
    a->path_arc[depth] = a->graph.out_first[state];
}

/* Components that can be reached from a state, those behind it first.
 * R. Tarjan, "Depth-first search and linear graph algorithms", 1972. */
static void walk_components(analysis_t *a, uint32_t root)
{
    uint32_t depth = 0;

    enter(a, root, depth);
    for (;;) {
        const uint32_t state = a->path[depth];

        if (a->path_arc[depth] < a->graph.out_first[state + 1]) {
            const bt_grammar_arc_t *arc = &a->graph.arcs[a->path_arc[depth]++];

            a->work++;
            if (!is_followed(a, arc) || (a->without_counts && arc->counts)) {
                continue;
            }
            if (a->index[arc->to] == 0) {
                enter(a, arc->to, ++depth);
            } else if ((a->component[arc->to] == 0) &&
                       (a->index[arc->to] < a->low[state])) {
                a->low[state] = a->index[arc->to];
            }
            continue;
        }
        if (a->low[state] == a->index[state]) {
            end_component(a, state);
        }
        if (depth == 0) {
            break;
        }
        depth--;
        if (a->low[state] < a->low[a->path[depth]]) {
            a->low[a->path[depth]] = a->low[state];
        }
    }
}

static void walk_rule(analysis_t *a, uint32_t rule, bool without_counts)
{
    const uint32_t begin = a->graph.members.first[rule];
    const uint32_t end = a->graph.members.first[rule + 1];

    a->without_counts = without_counts;
    a->n_index = a->n_stack = a->n_components = 0;
    for (uint32_t i = begin; i < end; i++) {
        a->index[a->graph.members.items[i]] = 0;
    }
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t state = a->graph.members.items[i];

        if ((a->ranges[state].least != BT_GRAMMAR_NONE) &&
            (a->index[state] == 0)) {
            walk_components(a, state);
        }
    }
}

static bool is_as_before(const analysis_t *a, uint32_t rule)
{
    const bt_rule_bounds_t *bounds = &a->bounds->rules[rule];
    const bt_bounds_level_t *last = &bounds->levels[bounds->n_levels - 1];

    for (uint32_t i = a->graph.members.first[rule];
         i < a->graph.members.first[rule + 1]; i++) {
        const uint32_t s = a->graph.members.items[i];
        const bt_count_range_t *now = &a->ranges[s];
        const bt_count_range_t *before = &last->counts[a->bounds->states[s].at];

        if ((now->least != before->least) || (now->most != before->most)) {
            return false;
        }
    }
    return true;
}

static bt_status_t add_level(analysis_t *a, uint32_t rule)
{
    bt_rule_bounds_t *bounds = &a->bounds->rules[rule];
    const uint32_t n =
        a->graph.members.first[rule + 1] - a->graph.members.first[rule];
    bt_bounds_level_t *levels = bt_arena_alloc(
        &a->bounds->arena, ((size_t)bounds->n_levels + 1) * sizeof(levels[0]));
    bt_count_range_t *counts =
        bt_arena_alloc(&a->bounds->arena, (size_t)n * sizeof(counts[0]));

    if ((levels == NULL) || (counts == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    if (bounds->n_levels > 0) {
        memcpy(levels, bounds->levels, bounds->n_levels * sizeof(levels[0]));
    }
    for (uint32_t i = a->graph.members.first[rule];
         i < a->graph.members.first[rule + 1]; i++) {
        const uint32_t s = a->graph.members.items[i];

        counts[a->bounds->states[s].at] = a->ranges[s];
    }
    bounds->levels = levels;
    /* Rules of this height may have been found since. */
    if ((bounds->n_levels == 0) ||
        (levels[bounds->n_levels - 1].height != a->height)) {
        bounds->n_levels++;
    }
    levels[bounds->n_levels - 1] =
        (bt_bounds_level_t){.height = a->height, .counts = counts};
    return BT_OK;
}

static bt_status_t find_ranges(analysis_t *a, uint32_t rule)
{
    const bt_grammar_rule_t *r = &a->grammar->rules[rule];
    bt_rule_bounds_t *bounds = &a->bounds->rules[rule];
    bt_status_t status;

    for (uint32_t i = a->graph.members.first[rule];
         i < a->graph.members.first[rule + 1]; i++) {
        a->ranges[a->graph.members.items[i]].most = 0;
    }
    find_least(a, rule);
    walk_rule(a, rule, false);
    a->has_gap = false;
    walk_rule(a, rule, true);
    /* With one bound alone the least or the most count answers. */
    a->has_gap = a->has_gap && (r->min > 0) && (r->max != BT_GRAMMAR_NO_LIMIT);
    a->work += a->graph.members.first[rule + 1] - a->graph.members.first[rule];
    if (a->work > MAX_WORK) {
        return BT_ERR_TOO_LARGE;
    }
    /* A lower height is then taken as if no call was higher. */
    a->gaps[rule] = a->has_gap;
    if (a->has_gap || ((bounds->n_levels > 0) && is_as_before(a, rule))) {
        return BT_OK;
    }
    status = add_level(a, rule);
    if (status != BT_OK) {
        return status;
    }
    if ((bounds->height == BT_GRAMMAR_NONE) &&
        (a->ranges[r->start].least <= r->max) &&
        (a->ranges[r->start].least != BT_GRAMMAR_NONE) &&
        (a->ranges[r->start].most >= r->min)) {
        resolve_rule(a, rule);
    }
    return BT_OK;
}

/*
 * Heights
 */

static void reach(analysis_t *a, uint32_t state, uint32_t *n_queue_p)
{
    const uint32_t rule = a->grammar->states[state].rule;

    if (a->reached[state] != BT_GRAMMAR_NONE) {
        return;
    }
    a->reached[state] = a->height;
    a->queues[0][(*n_queue_p)++] = state;
    if (a->grammar->rules[rule].start == state) {
        resolve_rule(a, rule);
    }
}

static void mark_dirty(analysis_t *a, uint32_t rule)
{
    if (!a->is_dirty[rule]) {
        a->is_dirty[rule] = true;
        a->dirty[a->n_dirty++] = rule;
    }
}

/* What can end, or must be looked at, as a rule can be called now. */
static void wake_callers(analysis_t *a, uint32_t rule, bool tails,
                         uint32_t *n_queue_p)
{
    for (uint32_t k = a->graph.calls.first[rule];
         k < a->graph.calls.first[rule + 1]; k++) {
        const bt_grammar_arc_t *arc = &a->graph.arcs[a->graph.calls.items[k]];
        const uint32_t caller = a->grammar->states[arc->from].rule;

        if (arc->is_tail != tails) {
            continue;
        }
        if (has_bounds(&a->grammar->rules[caller])) {
            mark_dirty(a, caller);
        } else if (a->reached[arc->to] != BT_GRAMMAR_NONE) {
            reach(a, arc->from, n_queue_p);
        }
    }
}

/* States without bounds that reach those of the queue. */
static void reach_back(analysis_t *a, uint32_t n_queue)
{
    for (uint32_t i = 0; i < n_queue; i++) {
        const uint32_t to = a->queues[0][i];

        for (uint32_t k = a->graph.in.first[to]; k < a->graph.in.first[to + 1];
             k++) {
            const bt_grammar_arc_t *arc = &a->graph.arcs[a->graph.in.items[k]];

            if (is_usable(a, arc)) {
                reach(a, arc->from, &n_queue);
            }
        }
    }
}

/* What can end without calls. */
static void reach_ends(analysis_t *a, uint32_t *n_queue_p)
{
    for (uint32_t s = 0; s < a->grammar->n_states; s++) {
        const bt_grammar_state_t *state = &a->grammar->states[s];

        if (state->accepts && !has_bounds(&a->grammar->rules[state->rule])) {
            reach(a, s, n_queue_p);
        }
    }
    for (uint32_t r = 0; r < a->grammar->n_rules; r++) {
        if (has_bounds(&a->grammar->rules[r])) {
            mark_dirty(a, r);
        }
    }
}

static bt_status_t find_bounds(analysis_t *a)
{
    uint32_t below = 0; /* first rule of the height below */

    for (a->height = 0; a->height <= BT_GRAMMAR_MAX_DEPTH; a->height++) {
        const uint32_t here = a->n_resolved; /* first rule of this height */
        uint32_t next = here;
        uint32_t n_queue = 0;

        if (a->height == 0) {
            reach_ends(a, &n_queue);
        } else if (below == here) {
            break;
        }
        for (; below < here; below++) {
            wake_callers(a, a->resolved[below], false, &n_queue);
        }
        while ((n_queue > 0) || (a->n_dirty > 0)) {
            reach_back(a, n_queue);
            n_queue = 0;
            while (a->n_dirty > 0) {
                const uint32_t rule = a->dirty[--a->n_dirty];
                bt_status_t status;

                a->is_dirty[rule] = false;
                status = find_ranges(a, rule);
                if (status != BT_OK) {
                    return status;
                }
            }
            for (; next < a->n_resolved; next++) {
                wake_callers(a, a->resolved[next], true, &n_queue);
            }
        }
    }
    return BT_OK;
}

static bt_status_t write_bounds(analysis_t *a)
{
    const bt_grammar_t *grammar = a->grammar;

    for (uint32_t r = 0; r < grammar->n_rules; r++) {
        if (has_bounds(&grammar->rules[r]) && a->gaps[r]) {
            return BT_ERR_UNSUPPORTED;
        }
    }
    for (uint32_t s = 0; s < grammar->n_states; s++) {
        const bt_rule_bounds_t *rule =
            &a->bounds->rules[grammar->states[s].rule];
        bt_state_bounds_t *state = &a->bounds->states[s];

        if (rule->n_levels > 0) {
            const bt_bounds_level_t *top = &rule->levels[rule->n_levels - 1];

            state->counts = top->counts[state->at];
            state->height = top->height;
        } else if (a->reached[s] != BT_GRAMMAR_NONE) {
            state->counts = (bt_count_range_t){0, BT_GRAMMAR_NO_LIMIT};
            state->height = a->reached[s];
        } else {
            state->counts = (bt_count_range_t){BT_GRAMMAR_NONE, 0};
        }
    }
    return BT_OK;
}

static bt_status_t alloc_analysis(analysis_t *a)
{
    const size_t n = (size_t)a->grammar->n_states + 1;
    const size_t n_rules = (size_t)a->grammar->n_rules + 1;
    uint32_t **const by_state[] = {&a->reached,   &a->index, &a->low,
                                   &a->component, &a->stack, &a->path,
                                   &a->path_arc};

    for (size_t i = 0; i < BT_ARRAY_LEN(by_state); i++) {
        *by_state[i] = bt_calloc(n, sizeof(uint32_t));
        if (*by_state[i] == NULL) {
            return BT_ERR_NO_MEMORY;
        }
    }
    a->queues[0] = bt_calloc(2 * n, sizeof(uint32_t));
    a->queues[1] = bt_calloc(2 * n, sizeof(uint32_t));
    a->ranges = bt_calloc(n, sizeof(bt_count_range_t));
    a->resolved = bt_calloc(n_rules, sizeof(uint32_t));
    a->gaps = bt_calloc(n_rules, sizeof(bool));
    a->is_dirty = bt_calloc(n_rules, sizeof(bool));
    a->dirty = bt_calloc(n_rules, sizeof(uint32_t));
    if ((a->queues[0] == NULL) || (a->queues[1] == NULL) ||
        (a->ranges == NULL) || (a->resolved == NULL) || (a->gaps == NULL) ||
        (a->is_dirty == NULL) || (a->dirty == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    memset(a->reached, 0xff, n * sizeof(uint32_t));
    return BT_OK;
}

static void free_analysis(analysis_t *a)
{
    uint32_t *const arrays[] = {a->reached,   a->index,     a->low,
                                a->component, a->stack,     a->path,
                                a->path_arc,  a->queues[0], a->queues[1],
                                a->resolved,  a->dirty};

    for (size_t i = 0; i < BT_ARRAY_LEN(arrays); i++) {
        bt_free(arrays[i]);
    }
    bt_grammar_arcs_fini(&a->graph);
    bt_free(a->ranges);
    bt_free(a->gaps);
    bt_free(a->is_dirty);
    bt_free(a->parts);
}

static bt_status_t analyze(analysis_t *a)
{
    const bt_grammar_t *grammar = a->grammar;
    bt_status_t status = alloc_analysis(a);

    if (status == BT_OK) {
        status = bt_grammar_arcs_init(&a->graph, grammar);
    }
    if (status != BT_OK) {
        return status;
    }
    a->parts = bt_calloc((size_t)a->graph.n_arcs + grammar->n_states + 1,
                         sizeof(bt_count_range_t));
    if (a->parts == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t r = 0; r < grammar->n_rules; r++) {
        a->bounds->rules[r].height = BT_GRAMMAR_NONE;
        for (uint32_t i = a->graph.members.first[r];
             i < a->graph.members.first[r + 1]; i++) {
            a->bounds->states[a->graph.members.items[i]].at =
                i - a->graph.members.first[r];
        }
    }
    status = find_bounds(a);
    return (status == BT_OK) ? write_bounds(a) : status;
}

bt_status_t bt_grammar_bounds_create(const bt_grammar_t *grammar,
                                     bt_grammar_bounds_t **bounds_p)
{
    analysis_t a = {.grammar = grammar};
    bt_grammar_bounds_t *bounds = bt_calloc(1, sizeof(*bounds));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (bounds == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bounds->grammar = grammar;
    bounds->states = bt_calloc(grammar->n_states, sizeof(bounds->states[0]));
    bounds->rules = bt_calloc(grammar->n_rules, sizeof(bounds->rules[0]));
    if ((bounds->states == NULL) || (bounds->rules == NULL)) {
        goto err_destroy;
    }
    a.bounds = bounds;
    status = analyze(&a);
    free_analysis(&a);
    if (status != BT_OK) {
        goto err_destroy;
    }
    *bounds_p = bounds;
    return BT_OK;

err_destroy:
    bt_grammar_bounds_destroy(bounds);
    return status;
}

void bt_grammar_bounds_destroy(bt_grammar_bounds_t *bounds)
{
    if (bounds == NULL) {
        return;
    }
    bt_arena_fini(&bounds->arena);
    bt_free(bounds->states);
    bt_free(bounds->rules);
    bt_free(bounds);
}

bt_count_range_t bt_grammar_bounds_at(const bt_grammar_bounds_t *bounds,
                                      uint32_t state, uint32_t height)
{
    const bt_state_bounds_t *s = &bounds->states[state];
    const bt_rule_bounds_t *rule =
        &bounds->rules[bounds->grammar->states[state].rule];

    if (height >= s->height) {
        return s->counts;
    }
    for (uint32_t i = rule->n_levels; i > 0; i--) {
        if (height >= rule->levels[i - 1].height) {
            return rule->levels[i - 1].counts[s->at];
        }
    }
    return (bt_count_range_t){BT_GRAMMAR_NONE, 0};
}
