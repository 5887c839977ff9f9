/* SPDX-License-Identifier: Apache-2.0 */
/** @file grammar_oracle.h
 *
 * Oracle of grammars, for tests: it searches all frames that can end, and keeps
 * lists of whole stacks, which read one byte after the other. It has no tables,
 * ranges or short cuts. For small grammars with small counts.
 */
#ifndef BT_TESTS_SUPPORT_GRAMMAR_ORACLE_H
#define BT_TESTS_SUPPORT_GRAMMAR_ORACLE_H

#include "common/grammar/grammar.h"

#define ORACLE_MAX_HEIGHT 12u
#define ORACLE_MAX_STATES 256u
#define ORACLE_MAX_COUNT  64u
#define ORACLE_MAX_STACKS 2048u

typedef struct oracle_stack {
    uint8_t n;
    uint16_t states[ORACLE_MAX_HEIGHT + 1];
    uint16_t counts[ORACLE_MAX_HEIGHT + 1];
} oracle_stack_t;

/** Stacks of the same text, all different. */
typedef struct oracle_set {
    uint32_t n;
    bool overflow; /**< there are more */
    oracle_stack_t stacks[ORACLE_MAX_STACKS];
} oracle_set_t;

typedef struct oracle {
    const bt_grammar_t *grammar;
    uint32_t max_depth;
    uint32_t n_counts; /**< counts that are told apart */
    /** by frames above, state and count; counts of rules without limit stay at
     *  their min */
    bool can_end[ORACLE_MAX_HEIGHT + 1][ORACLE_MAX_STATES][ORACLE_MAX_COUNT];
    oracle_set_t seen; /**< scratch */
} oracle_t;

/** Searches which frames can end.
 *  @param [in] max_depth  Frames of a stack, up to ORACLE_MAX_HEIGHT.
 *  @return for bt_free() */
oracle_t *oracle_create(const bt_grammar_t *grammar, uint32_t max_depth);
/** True when, with calls of rules that end with fewer than @a height frames,
 *  the counts from some state of a rule with two bounds to its end have gaps.
 */
bool oracle_has_gaps(const oracle_t *o, uint32_t height);

/** Copies the stacks that a set has. */
void oracle_copy(const oracle_set_t *set, oracle_set_t *copy);
void oracle_start(oracle_t *o, oracle_set_t *set);
/** Reads a byte. @param [out] next  Not @a set. */
void oracle_read(oracle_t *o, const oracle_set_t *set, uint8_t byte,
                 oracle_set_t *next);
/** Takes a token by its id. */
void oracle_take(oracle_t *o, const oracle_set_t *set, uint32_t id,
                 oracle_set_t *next);
/** Returns the stacks of which all frames can end. */
uint32_t oracle_n_live(const oracle_t *o, const oracle_set_t *set);
bool oracle_accepts(oracle_t *o, const oracle_set_t *set);

#endif
