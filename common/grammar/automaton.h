/* SPDX-License-Identifier: Apache-2.0 */
/** @file automaton.h
 *
 * Finite automata of a compilation. Symbols are bytes, 0 to 255, and numbers
 * above that their user gives a meaning, such as calls of rules.
 *
 *     bt_nfa_t ── determinize, trim, minimize ──▶ bt_dfa_t
 *                                                   │  and, or, minus
 *                                                   ▼
 *                                                 bt_dfa_t
 *
 * A bt_dfa_t is minimal, has no state from which acceptance cannot be reached,
 * and its states are numbered breadth first: two automata accept the same
 * language when they are equal, field by field. The empty language has no
 * state.
 *
 * All objects live in the compiler's arena. After a failure (compiler.h) each
 * function returns NULL, 0 or false.
 *
 * Source: A. Valmari, P. Lehtinen, "Efficient minimization of DFAs with partial
 * transition functions", STACS 2008.
 */
#ifndef BT_COMMON_GRAMMAR_AUTOMATON_H
#define BT_COMMON_GRAMMAR_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/grammar/compiler.h"

#define BT_DFA_MAX_STATES 32768u
#define BT_DFA_NONE       UINT32_MAX /**< no state */

typedef struct bt_nfa bt_nfa_t;

typedef struct bt_dfa_edge {
    uint32_t lo, hi; /**< symbols, inclusive */
    uint32_t to;     /**< state */
} bt_dfa_edge_t;

/** Deterministic automaton. State 0 is the start. Edges of state s are
 *  edges[first[s]] to edges[first[s + 1] - 1], ascending and disjoint;
 *  neighbours with one target are one edge. */
typedef struct bt_dfa {
    uint32_t n_states;     /**< 0: the empty language */
    const uint32_t *first; /**< n_states + 1 */
    const bt_dfa_edge_t *edges;
    const bool *accepts; /**< n_states */
} bt_dfa_t;

bt_nfa_t *bt_nfa_create(bt_grammar_compiler_t *c);
/** Adds a state. */
uint32_t bt_nfa_state(bt_nfa_t *nfa);
/** Adds an edge for the symbols lo to hi, inclusive. */
void bt_nfa_edge(bt_nfa_t *nfa, uint32_t from, uint32_t lo, uint32_t hi,
                 uint32_t to);
void bt_nfa_epsilon(bt_nfa_t *nfa, uint32_t from, uint32_t to);
/** Adds edges that read the UTF-8 of one code point of lo to hi, inclusive.
 *  Surrogates, U+D800 to U+DFFF, are left out. */
void bt_nfa_code_points(bt_nfa_t *nfa, uint32_t from, uint32_t lo, uint32_t hi,
                        uint32_t to);
/** Adds a copy of an automaton between two states. */
void bt_nfa_include(bt_nfa_t *nfa, uint32_t from, const bt_dfa_t *dfa,
                    uint32_t to);

/** Determinizes, trims and minimizes.
 *  BT_ERR_TOO_LARGE: over BT_DFA_MAX_STATES, or over the budget. */
const bt_dfa_t *bt_nfa_to_dfa(const bt_nfa_t *nfa, uint32_t start,
                              uint32_t accept);

typedef enum bt_dfa_op { BT_DFA_AND, BT_DFA_OR, BT_DFA_MINUS } bt_dfa_op_t;

/** Combines the languages of two automata. */
const bt_dfa_t *bt_dfa_combine(bt_grammar_compiler_t *c, bt_dfa_op_t op,
                               const bt_dfa_t *a, const bt_dfa_t *b);
/** Copies an automaton into the arena of a compilation. */
const bt_dfa_t *bt_dfa_copy(bt_grammar_compiler_t *c, const bt_dfa_t *from);
/** Returns an automaton of every valid UTF-8 text, the empty one included.
 *  Lone surrogates and overlong forms are not valid. */
const bt_dfa_t *bt_dfa_any_text(bt_grammar_compiler_t *c);
/** Returns an automaton of n texts. Duplicates are allowed. */
const bt_dfa_t *bt_dfa_of_texts(bt_grammar_compiler_t *c,
                                const char *const *texts, const size_t *lens,
                                uint32_t n);

static inline bool bt_dfa_is_empty(const bt_dfa_t *dfa)
{
    return dfa->n_states == 0;
}

/** True when both accept the same language. */
bool bt_dfa_equal(const bt_dfa_t *a, const bt_dfa_t *b);
/** Returns the state after a symbol, or BT_DFA_NONE. O(log edges). */
uint32_t bt_dfa_next(const bt_dfa_t *dfa, uint32_t state, uint32_t symbol);
bool bt_dfa_accepts(const bt_dfa_t *dfa, const void *bytes, size_t n);

#endif
