/* SPDX-License-Identifier: Apache-2.0 */
/** @file distance.h
 *
 * How many bytes the frames of a grammar (grammar.h) need until their rules
 * end. A token that is taken by its id is as good as a byte.
 *
 *     "name": "…  needs  "}  : 2 bytes
 *
 * Distances can be kept: from a frame at distance d > 0, some byte leads to
 * frames with a distance of d - 1 or less together. So an answer that never
 * goes further from its end than it has tokens left, and that has a token for
 * each byte, can always be ended.
 *
 * They are the fewest bytes, but in rules with bounds: there, where the
 * shortest ways have too few counts or too many, ways with as many as are
 * missing count, and of very many each is taken to need as much as the most
 * expensive one. Where the greatest depth is near, only ways that fit below it
 * count; there may be none.
 *
 * Threads: immutable.
 */
#ifndef BT_COMMON_GRAMMAR_DISTANCE_H
#define BT_COMMON_GRAMMAR_DISTANCE_H

#include <stdint.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/grammar/bounds.h"

#define BT_DISTANCE_NONE  UINT32_MAX
#define BT_DISTANCE_EXACT 4096u /**< ways with exact counts of a rule */

/** A way from a state to the end of its rule. */
typedef struct bt_way {
    uint32_t bytes;  /**< BT_DISTANCE_NONE: no way */
    uint32_t counts; /**< counting edges */
    uint32_t height; /**< frames above */
} bt_way_t;

/** Ways of a rule with a min. Members are its states, by
 *  bt_state_bounds_t.at. */
typedef struct bt_rule_ways {
    uint32_t n_members;
    uint32_t n_exact;    /**< 0: the rule has no min */
    bt_way_t *exact;     /**< [n_exact][n_members]: ways with so many counts, or
                              at least as many where the rule has no max */
    bt_way_t *count;     /**< [n_members]: ways to the next count, behind which
                              there is no end of counts */
    bt_way_t most_count; /**< the longest of them */
    bt_way_t most_exact; /**< the longest with n_exact - 1 counts, behind one */
} bt_rule_ways_t;

typedef struct bt_grammar_distances {
    const bt_grammar_t *grammar;
    const bt_grammar_bounds_t *bounds;
    bt_way_t *shortest; /**< by state */
    bt_way_t *fewest;   /**< by state: with the fewest counts */
    bt_rule_ways_t *rules;
    bt_arena_t arena;
} bt_grammar_distances_t;

/**
 * Computes the distances of a grammar.
 *
 * @param [in]  bounds  Borrowed with its grammar, outlives the distances.
 * @param [in]  n_exact  Ways with exact counts to keep for a rule, about; more
 *         counts than they have are taken as the most expensive ones. Usually
 *         BT_DISTANCE_EXACT.
 * @retval BT_ERR_TOO_LARGE  Over a limit of work.
 * @retval BT_ERR_NO_MEMORY
 * Cost: O(n log n) in the grammar, as often as rules call each other in turn.
 */
BT_MUST_CHECK bt_status_t
bt_grammar_distances_create(const bt_grammar_bounds_t *bounds, uint32_t n_exact,
                            bt_grammar_distances_t **distances_p);
void bt_grammar_distances_destroy(bt_grammar_distances_t *distances);

/** Returns the distance of a frame with up to @a height frames above;
 *  BT_DISTANCE_NONE: none is known. */
uint32_t bt_grammar_distance(const bt_grammar_distances_t *distances,
                             uint32_t state, uint32_t count, uint32_t height);

/** Returns how many bytes, or tokens by their ids, the shortest text of a
 *  program needs.
 *  @retval any of bt_grammar_load(), bt_grammar_bounds_create(),
 *          bt_grammar_distances_create()
 *  @retval BT_ERR_TOO_LARGE  No distance is known. */
BT_MUST_CHECK bt_status_t bt_grammar_shortest(const uint8_t *program,
                                              size_t bytes, uint32_t *n_p);

#endif
