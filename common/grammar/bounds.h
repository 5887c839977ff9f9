/* SPDX-License-Identifier: Apache-2.0 */
/** @file bounds.h
 *
 * From which frames of a grammar (grammar.h) the rule can still end.
 *
 * A frame (state, count) with up to h frames above it can end when some way to
 * the end of its rule has k counting edges with min <= count + k <= max, and
 * calls only rules that can end with up to h - 1 frames above theirs, or h for
 * a tail call. Where the k of all ways are a range without gaps, or the rule
 * has a least or a most count alone, two numbers of a state answer it:
 *
 *     count + least <= max  and  count + most >= min
 *
 * and a third one, the height from which they hold. A rule with both bounds and
 * gaps, such as pairs of counting edges, is refused.
 *
 * Matchers enter only frames that can end, so whatever they have read is the
 * beginning of a text.
 *
 * Threads: immutable.
 */
#ifndef BT_COMMON_GRAMMAR_BOUNDS_H
#define BT_COMMON_GRAMMAR_BOUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/grammar/grammar.h"

/** Ranges of one state's counting edges. */
typedef struct bt_count_range {
    uint32_t least; /**< BT_GRAMMAR_NONE: the rule cannot end */
    uint32_t most;  /**< BT_GRAMMAR_NO_LIMIT */
} bt_count_range_t;

typedef struct bt_state_bounds {
    bt_count_range_t counts; /**< with `height` frames above, or more */
    uint32_t height;
    uint32_t at; /**< index of the state in its rule, for lower heights */
} bt_state_bounds_t;

/** Ranges that a rule with bounds has at some height below those of its
 *  states. */
typedef struct bt_bounds_level {
    uint32_t height;
    bt_count_range_t *counts; /**< by bt_state_bounds_t.at */
} bt_bounds_level_t;

typedef struct bt_rule_bounds {
    uint32_t height; /**< frames above its own that the rule needs;
                          BT_GRAMMAR_NONE: it has no text */
    uint32_t n_levels;
    bt_bounds_level_t *levels; /**< ascending */
} bt_rule_bounds_t;

typedef struct bt_grammar_bounds {
    const bt_grammar_t *grammar;
    bt_state_bounds_t *states;
    bt_rule_bounds_t *rules;
    bt_arena_t arena; /**< memory of levels */
} bt_grammar_bounds_t;

/**
 * Computes the bounds of a grammar's states.
 *
 * @param [in]  grammar  Borrowed, outlives the bounds.
 * @retval BT_ERR_UNSUPPORTED  A rule counts with gaps.
 * @retval BT_ERR_TOO_LARGE    Over a limit of work.
 * @retval BT_ERR_NO_MEMORY
 * Cost: linear in the grammar, and for each rule with bounds as often as the
 * heights of its calls differ.
 */
BT_MUST_CHECK bt_status_t bt_grammar_bounds_create(
    const bt_grammar_t *grammar, bt_grammar_bounds_t **bounds_p);
void bt_grammar_bounds_destroy(bt_grammar_bounds_t *bounds); /**< or NULL */

/** Returns the ranges of a state with up to @a height frames above. */
bt_count_range_t bt_grammar_bounds_at(const bt_grammar_bounds_t *bounds,
                                      uint32_t state, uint32_t height);

/** True when the rule of a frame can end with up to @a height frames above. */
static inline bool bt_grammar_can_end(const bt_grammar_bounds_t *bounds,
                                      uint32_t state, uint32_t count,
                                      uint32_t height)
{
    const bt_state_bounds_t *s = &bounds->states[state];
    const bt_grammar_rule_t *rule =
        &bounds->grammar->rules[bounds->grammar->states[state].rule];
    const bt_count_range_t counts =
        (height >= s->height) ? s->counts
                              : bt_grammar_bounds_at(bounds, state, height);

    return (counts.least != BT_GRAMMAR_NONE) &&
           ((rule->max == BT_GRAMMAR_NO_LIMIT) ||
            ((uint64_t)count + counts.least <= rule->max)) &&
           ((counts.most == BT_GRAMMAR_NO_LIMIT) ||
            ((uint64_t)count + counts.most >= rule->min));
}

/** True when the rule ends at a state and nothing can follow. A call with such
 * a state behind it is a tail call: its frame takes the place of its caller's,
 *  so right recursion takes no depth. */
static inline bool bt_grammar_ends(const bt_grammar_t *grammar, uint32_t state)
{
    const bt_grammar_state_t *s = &grammar->states[state];

    return s->accepts && (s->n_edges == 0) && (s->otherwise == BT_GRAMMAR_NONE);
}

/** A byte edge of a state, or a part of one of its `otherwise`. */
typedef struct bt_byte_edge {
    uint8_t lo, hi;
    bool counts;
    uint32_t to;
} bt_byte_edge_t;

/** Writes the byte edges of a state with those of its `otherwise`, ascending
 *  and disjoint.
 *  @return their number, at most 256 */
uint32_t bt_grammar_byte_edges(const bt_grammar_t *grammar, uint32_t state,
                               bt_byte_edge_t edges[256]);

#endif
