/* SPDX-License-Identifier: Apache-2.0 */
/** @file grammar.h
 *
 * Compiled grammars: what the tokens of an answer may spell.
 *
 *     JSON schema │ regex │ choice │ EBNF  ── compile ──▶ program (bytes)
 *                                             router         │ REQUEST
 *                                                            ▼
 *                                            worker:  bt_grammar_load() ──▶
 *                                                     matcher, token masks
 *
 * A grammar is a recursive transition network over bytes: rules, each a
 * deterministic automaton whose edges read a byte, call a rule, or take one
 * token by its id. Rule 0 is the root.
 *
 *     rule 0 "object"   (0) ─ '{' ─▶ (1) ─ call 1 ─▶ (2) ─ '}' ─▶ ((3))
 *     rule 1 "letters"  (4) ─ a…z, counts ─▶ ((4))      min 1, max 8
 *
 * A matcher's position is a stack of frames (state, count). Edges that count
 * add 1 to the count of their frame; a rule may end only with a count from its
 * min to its max. So a repetition of up to 2^32 - 2 takes no more states than
 * one of two. Which frames can still end is in bounds.h.
 *
 * A rule but the root reads at least one byte or token, nothing calls the root,
 * and no rule calls itself before it has read a byte. Compilers write only such
 * programs, and the loader refuses all others: programs come from a peer.
 *
 * Program. Numbers are LEB128 without sign. States have the order of their
 * rules, and each rule begins with its start; `number` counts from there.
 *
 *     "BTG" version  n_rules n_states  rule … state …
 *     rule   n_states  min  max + 1, or 0: no limit
 *     state  head   bit 0: accepts   bit 1: has `otherwise`
 *                   bits 2 …: n_edges + 1, or 0: literal
 *       otherwise   number of the state
 *       literal     n byte … : n states, each of which reads one byte and goes
 *                   to a new state; the head is of all
 *       edge        below 0x80: reads this byte; from 0x80 on, + 4 if it
 *                   counts, one of
 *                   0 byte    1 lo hi    2 rule    3 token id, further ids
 *         to        0: a new state   1: as the edge before   2 …: number + 2
 *
 * Byte edges come first, ascending. A new state is the next one that is read:
 * trees of words are written depth first, without any number. So where a state
 * has several edges to new states, all that the first one leads to is read
 * before the second one's.
 *
 * Threads: a loaded grammar is immutable.
 */
#ifndef BT_COMMON_GRAMMAR_GRAMMAR_H
#define BT_COMMON_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_GRAMMAR_VERSION    1u
#define BT_GRAMMAR_MAX_BYTES  65536u /**< largest program */
#define BT_GRAMMAR_MAX_RULES  8192u
#define BT_GRAMMAR_MAX_STATES 65536u
/** Most ways in which an answer is followed at a time (matcher.h). */
#define BT_GRAMMAR_MAX_WAYS  64u
#define BT_GRAMMAR_MAX_DEPTH 255u /**< frames of a stack */
#define BT_GRAMMAR_NONE      UINT32_MAX
#define BT_GRAMMAR_NO_LIMIT  UINT32_MAX /**< bt_grammar_rule_t.max */

typedef enum bt_grammar_edge_kind {
    BT_GRAMMAR_READS, /**< a byte of lo to hi */
    BT_GRAMMAR_CALLS, /**< rule `arg` */
    BT_GRAMMAR_TAKES, /**< one token of `arg` to `last`, whatever its bytes;
                           never one that ends the answer */
} bt_grammar_edge_kind_t;

typedef struct bt_grammar_edge {
    uint8_t kind; /**< bt_grammar_edge_kind_t */
    uint8_t lo, hi;
    bool counts;
    uint32_t arg;
    uint32_t last; /**< token */
    uint32_t to;   /**< state of the same rule */
} bt_grammar_edge_t;

/** State of a rule. Its byte edges come first, ascending and disjoint. */
typedef struct bt_grammar_state {
    uint32_t first_edge;
    uint16_t n_edges;
    uint16_t n_byte_edges;
    bool accepts;       /**< the rule may end here */
    uint32_t otherwise; /**< state whose byte edges apply to bytes that have
                             none here; BT_GRAMMAR_NONE */
    uint32_t rule;
} bt_grammar_state_t;

typedef struct bt_grammar_rule {
    uint32_t start;
    uint32_t min, max; /**< bounds of the count where the rule ends */
} bt_grammar_rule_t;

typedef struct bt_grammar {
    uint32_t n_rules, n_states, n_edges;
    bt_grammar_rule_t *rules;
    bt_grammar_state_t *states;
    bt_grammar_edge_t *edges;
} bt_grammar_t;

/**
 * Loads a program.
 *
 * @param [in]  program  Borrowed for the call.
 * @param [out] why_p    On failure a constant sentence.
 * @retval BT_ERR_BAD_MESSAGE  Malformed, or against a rule above.
 * @retval BT_ERR_UNSUPPORTED  Of another version.
 * @retval BT_ERR_TOO_LARGE    Over a limit above.
 * @retval BT_ERR_NO_MEMORY
 * Cost: linear in the program.
 */
BT_MUST_CHECK bt_status_t bt_grammar_load(const void *program, size_t bytes,
                                          const char **why_p,
                                          bt_grammar_t **grammar_p);
void bt_grammar_free(bt_grammar_t *grammar); /**< NULL is allowed. */

/** Returns the byte edge of a state, with its `otherwise`, for a byte; NULL:
 *  none. */
const bt_grammar_edge_t *bt_grammar_read(const bt_grammar_t *grammar,
                                         uint32_t state, uint8_t byte);

#endif
