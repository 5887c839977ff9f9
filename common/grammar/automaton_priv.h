/* SPDX-License-Identifier: Apache-2.0 */
/** @file automaton_priv.h
 *
 * Parts of automaton.h that its source files share.
 */
#ifndef BT_COMMON_GRAMMAR_AUTOMATON_PRIV_H
#define BT_COMMON_GRAMMAR_AUTOMATON_PRIV_H

#include "common/grammar/automaton.h"

typedef struct bt_nfa_edge {
    uint32_t lo, hi; /* symbols, inclusive; unused in an epsilon edge */
    uint32_t to;
    uint32_t next; /* edge of the same state, + 1; 0: the last one */
} bt_nfa_edge_t;

typedef struct bt_nfa_state {
    uint32_t edges, epsilons; /* first edge, + 1; 0: none */
} bt_nfa_state_t;

struct bt_nfa {
    bt_grammar_compiler_t *c;
    bt_nfa_state_t *states;
    bt_nfa_edge_t *edges;
    uint32_t n_states, n_edges;
    uint32_t cap_states, cap_edges;
};

/* Deterministic automaton as a construction finds it: not minimal, and perhaps
 * with states that cannot reach acceptance. States are written one after the
 * other, each with its edges in ascending order; state 0 is the start, and all
 * states can be reached from it. */
typedef struct bt_dfa_draft {
    bt_grammar_compiler_t *c; /* scratch; its arena has the arrays */
    bt_dfa_edge_t *edges;
    uint32_t *first; /* n_states + 1, when closed */
    bool *accepts;
    uint32_t n_states, n_edges;
    uint32_t cap_first, cap_accepts, cap_edges;
} bt_dfa_draft_t;

/* Begins the next state. False: the compilation has failed. */
bool bt_dfa_draft_state(bt_dfa_draft_t *draft, bool accepts);
/* Adds an edge to the state begun last. Its target may be begun later. */
void bt_dfa_draft_edge(bt_dfa_draft_t *draft, uint32_t lo, uint32_t hi,
                       uint32_t to);
/* Trims, minimizes and numbers breadth first.
 *  @return NULL: draft->c or c has failed */
const bt_dfa_t *bt_dfa_draft_finish(bt_dfa_draft_t *draft,
                                    bt_grammar_compiler_t *c);

/* Strongly connected states of a draft, divided into blocks: members of several
 * blocks are not equal. */
typedef struct bt_component {
    const bt_dfa_draft_t *draft;
    const uint32_t *states; /* n */
    uint32_t n;
    const uint32_t *member; /* by state of the draft: index in `states`;
                               BT_DFA_NONE: it is none of them */
    uint32_t *block;        /* by member */
    uint32_t n_blocks;
} bt_component_t;

/* Divides blocks until members of a block are equal. At first those of a block
 * accept alike and have the same edges to states that are no members.
 *  @param [in] c  Of which the arena has intermediate data.
 *  @return false: c has failed */
bool bt_component_refine(bt_component_t *k, bt_grammar_compiler_t *c);

static inline uint64_t bt_automaton_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */
    return hash ^ (hash >> 29);
}

#endif
