/* SPDX-License-Identifier: Apache-2.0 */
/* Subset construction: each state of the result is a set of states of the
 * nondeterministic automaton. Sets hold only states that read a symbol or
 * accept; epsilon edges are followed when a set is made. */
#include "common/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "common/grammar/automaton_priv.h"

/* Sets at most: many more than a minimal automaton may have states, since those
 * of word lists shrink a lot. */
#define MAX_SETS (8u * BT_DFA_MAX_STATES)

typedef struct set {
    uint64_t hash; /* sum over the members, so their order does not matter */
    uint32_t first, n; /* in `members` */
    bool accepts;
} set_t;

typedef struct subset {
    const bt_nfa_t *nfa;
    bt_grammar_compiler_t *c; /* scratch */
    uint32_t accept;
    bt_dfa_draft_t draft;
    set_t *sets; /* by state of the draft */
    uint32_t n_sets, cap_sets;
    uint32_t *members;
    uint32_t n_members, cap_members;
    uint32_t *table; /* set, + 1; 0: free */
    uint32_t table_mask;
    uint32_t *set_of_one; /* set of an edge that leads to this state, + 1 */
    uint32_t *seen;       /* round in which a state was seen last */
    uint32_t round;
    uint32_t *stack;
    bt_nfa_edge_t *edges; /* of the set that is written, by symbol */
    uint32_t n_edges, cap_edges;
    uint32_t *targets; /* of the interval that is written */
    uint32_t *active;  /* edges that read the interval */
    uint32_t cap_targets, cap_active;
} subset_t;

/* ---- sets ---- */

static bool same_members(const subset_t *s, const set_t *a, const set_t *b)
{
    if ((a->hash != b->hash) || (a->n != b->n)) {
        return false;
    }
    /* Members of the set made last were seen in this round. */
    for (uint32_t i = 0; i < a->n; i++) {
        if (s->seen[s->members[a->first + i]] != s->round) {
            return false;
        }
    }
    return true;
}

/* Makes the table four times as large as the number of sets. */
static bool grow_set_table(subset_t *s)
{
    uint32_t n = 64;

    while (n < s->n_sets * 4) {
        n *= 2;
    }
    s->table = bt_grammar_alloc(s->c, n, sizeof(*s->table));
    if (s->table == NULL) {
        return false;
    }
    s->table_mask = n - 1;
    for (uint32_t i = 0; i < s->n_sets; i++) {
        uint32_t slot = (uint32_t)s->sets[i].hash & s->table_mask;

        while (s->table[slot] != 0) {
            slot = (slot + 1) & s->table_mask;
        }
        s->table[slot] = i + 1;
    }
    return true;
}

/* Appends the states that epsilon edges reach from some states, and reads them
 * as a set. False: the compilation has failed. */
static bool close_set(subset_t *s, const uint32_t *from, uint32_t n_from,
                      set_t *set_p)
{
    set_t set = {.first = s->n_members};
    uint32_t n_stack = 0;

    s->round++;
    for (uint32_t i = 0; i < n_from; i++) {
        if (s->seen[from[i]] != s->round) {
            s->seen[from[i]] = s->round;
            s->stack[n_stack++] = from[i];
        }
    }
    while (n_stack > 0) {
        const uint32_t state = s->stack[--n_stack];
        const bt_nfa_state_t *from_state = &s->nfa->states[state];

        if (!bt_grammar_spend(s->c, 1)) {
            return false;
        }
        if ((from_state->edges != 0) || (state == s->accept)) {
            if (!bt_grammar_grow(s->c, &s->members, &s->cap_members,
                                 set.first + set.n + 1, sizeof(*s->members))) {
                return false;
            }
            s->members[set.first + set.n++] = state;
            set.hash += bt_automaton_mix(1, state);
            set.accepts = set.accepts || (state == s->accept);
        }
        for (uint32_t e = from_state->epsilons; e != 0;
             e = s->nfa->edges[e - 1].next) {
            const uint32_t to = s->nfa->edges[e - 1].to;

            if (!bt_grammar_spend(s->c, 1)) {
                return false;
            }
            if (s->seen[to] != s->round) {
                s->seen[to] = s->round;
                s->stack[n_stack++] = to;
            }
        }
    }
    set.hash = bt_automaton_mix(set.hash, set.n);
    *set_p = set;
    return true;
}

/* Returns the set of states that follow some targets, + 1; 0 on failure. */
static uint32_t set_of(subset_t *s, const uint32_t *targets, uint32_t n)
{
    set_t set;
    uint32_t slot;

    if (((s->n_sets * 2 >= s->table_mask) && !grow_set_table(s)) ||
        !close_set(s, targets, n, &set)) {
        return 0;
    }
    slot = (uint32_t)set.hash & s->table_mask;
    while (s->table[slot] != 0) {
        if (same_members(s, &s->sets[s->table[slot] - 1], &set)) {
            return s->table[slot];
        }
        slot = (slot + 1) & s->table_mask;
    }
    if (s->n_sets >= MAX_SETS) {
        bt_grammar_fail(s->c, BT_ERR_TOO_LARGE,
                        "the grammar needs an automaton of too many states");
        return 0;
    }
    if (!bt_grammar_grow(s->c, &s->sets, &s->cap_sets, s->n_sets + 1,
                         sizeof(*s->sets))) {
        return 0;
    }
    s->n_members += set.n;
    s->sets[s->n_sets++] = set;
    s->table[slot] = s->n_sets;
    return s->n_sets;
}

/* ---- edges of a set ---- */

static int compare_edges(const void *a_ptr, const void *b_ptr)
{
    const bt_nfa_edge_t *a = a_ptr, *b = b_ptr;

    return (a->lo > b->lo) - (a->lo < b->lo);
}

static void sort_edges(bt_nfa_edge_t *edges, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        const bt_nfa_edge_t edge = edges[i];
        uint32_t at = i;

        if ((n > 32) && (edges[i - 1].lo > edge.lo)) {
            qsort(edges, n, sizeof(*edges), compare_edges);
            return;
        }
        while ((at > 0) && (edges[at - 1].lo > edge.lo)) {
            edges[at] = edges[at - 1];
            at--;
        }
        edges[at] = edge;
    }
}

/* Lists the edges of a set by symbol. A state has those added last first, and
 * they are mostly added in order. */
static bool gather_edges(subset_t *s, const set_t *set)
{
    s->n_edges = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const uint32_t state = s->members[set->first + i];
        uint32_t lo = s->n_edges, hi;

        for (uint32_t e = s->nfa->states[state].edges; e != 0;
             e = s->nfa->edges[e - 1].next) {
            if (!bt_grammar_spend(s->c, 1) ||
                !bt_grammar_grow(s->c, &s->edges, &s->cap_edges, s->n_edges + 1,
                                 sizeof(*s->edges))) {
                return false;
            }
            s->edges[s->n_edges++] = s->nfa->edges[e - 1];
        }
        for (hi = s->n_edges; lo + 1 < hi; lo++) {
            const bt_nfa_edge_t edge = s->edges[lo];

            s->edges[lo] = s->edges[--hi];
            s->edges[hi] = edge;
        }
    }
    sort_edges(s->edges, s->n_edges);
    return bt_grammar_grow(s->c, &s->active, &s->cap_active, s->n_edges,
                           sizeof(*s->active)) &&
           bt_grammar_grow(s->c, &s->targets, &s->cap_targets, s->n_edges,
                           sizeof(*s->targets));
}

/* Returns the set behind one edge, + 1; 0 on failure. */
static uint32_t set_behind_one(subset_t *s, uint32_t to)
{
    if (s->set_of_one[to] == 0) {
        s->set_of_one[to] = set_of(s, &to, 1);
    }
    return s->set_of_one[to];
}

/* Writes an edge beside which no other one reads its symbols. */
static bool write_edge(subset_t *s, const bt_nfa_edge_t *edge)
{
    const bt_nfa_edge_t copy = *edge;
    const uint32_t to =
        bt_grammar_spend(s->c, 1) ? set_behind_one(s, copy.to) : 0;

    if (to != 0) {
        bt_dfa_draft_edge(&s->draft, copy.lo, copy.hi, to - 1);
    }
    return to != 0;
}

/* Returns the set behind the active edges, + 1; 0 on failure. */
static uint32_t set_behind(subset_t *s, uint32_t n_active)
{
    if (!bt_grammar_spend(s->c, n_active)) {
        return 0;
    }
    for (uint32_t i = 0; i < n_active; i++) {
        s->targets[i] = s->edges[s->active[i]].to;
    }
    if (n_active > 1) {
        return set_of(s, s->targets, n_active);
    }
    return set_behind_one(s, s->targets[0]);
}

/* Writes the edges of a set: one for each interval of symbols that the same
 * edges of the members read. */
static void write_edges(subset_t *s, const set_t *set)
{
    uint32_t next = 0, n_active = 0;
    uint64_t lo = 0;

    if (!gather_edges(s, set)) {
        return;
    }
    while ((n_active > 0) || (next < s->n_edges)) {
        uint64_t hi = UINT64_MAX;
        uint32_t to, n_left = 0;

        if (n_active == 0) {
            lo = s->edges[next].lo;
            if ((next + 1 == s->n_edges) ||
                (s->edges[next].hi < s->edges[next + 1].lo)) {
                if (!write_edge(s, &s->edges[next++])) { /* alone */
                    return;
                }
                continue;
            }
        }
        while ((next < s->n_edges) && (s->edges[next].lo == lo)) {
            s->active[n_active++] = next++;
        }
        if (next < s->n_edges) {
            hi = s->edges[next].lo - 1u;
        }
        for (uint32_t i = 0; i < n_active; i++) {
            const uint32_t last = s->edges[s->active[i]].hi;

            hi = (last < hi) ? last : hi;
        }
        to = set_behind(s, n_active);
        if (to == 0) {
            return;
        }
        bt_dfa_draft_edge(&s->draft, (uint32_t)lo, (uint32_t)hi, to - 1);
        for (uint32_t i = 0; i < n_active; i++) {
            if (s->edges[s->active[i]].hi > hi) {
                s->active[n_left++] = s->active[i];
            }
        }
        n_active = n_left;
        lo = hi + 1;
    }
}

static void write_sets(subset_t *s, uint32_t start)
{
    const uint32_t n = s->nfa->n_states;

    s->set_of_one = bt_grammar_alloc(s->c, n, sizeof(*s->set_of_one));
    s->seen = bt_grammar_alloc(s->c, n, sizeof(*s->seen));
    s->stack = bt_grammar_alloc(s->c, n, sizeof(*s->stack));
    if (!bt_grammar_ok(s->c) || (set_of(s, &start, 1) == 0)) {
        return;
    }
    for (uint32_t i = 0; (i < s->n_sets) && bt_grammar_ok(s->c); i++) {
        const set_t set = s->sets[i];

        if (bt_dfa_draft_state(&s->draft, set.accepts)) {
            write_edges(s, &set);
        }
    }
}

const bt_dfa_t *bt_nfa_to_dfa(const bt_nfa_t *nfa, uint32_t start,
                              uint32_t accept)
{
    bt_grammar_compiler_t scratch;
    const bt_dfa_t *dfa;
    subset_t s;

    if ((nfa == NULL) || !bt_grammar_ok(nfa->c)) {
        return NULL;
    }
    BT_ASSERT((start < nfa->n_states) && (accept < nfa->n_states));
    bt_grammar_scratch_init(&scratch, nfa->c);
    s = (subset_t){
        .nfa = nfa, .c = &scratch, .accept = accept, .draft = {.c = &scratch}};
    write_sets(&s, start);
    dfa = bt_dfa_draft_finish(&s.draft, nfa->c);
    bt_grammar_scratch_fini(&scratch, nfa->c);
    return dfa;
}
