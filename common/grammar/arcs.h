/* SPDX-License-Identifier: Apache-2.0 */
/** @file arcs.h
 *
 * A grammar (grammar.h) as graphs of its rules' states, for analyses of them
 * (bounds.h, distance.h).
 *
 *     (0) ─ a…z ─▶ (0)                 arc 0 ─▶ 0
 *     (0) ─ 0…9, counts ─▶ (1)         arc 0 ─▶ 1, counts
 *     (1) ─ call 7 ─▶ ((2))            arc 1 ─▶ 2, calls 7, is a tail call
 *
 * Byte edges of a state that lead to one state and count alike are one arc,
 * those of its `otherwise` too. A token that is taken by its id is an arc like
 * a byte's.
 */
#ifndef BT_COMMON_GRAMMAR_ARCS_H
#define BT_COMMON_GRAMMAR_ARCS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/grammar/grammar.h"

#define BT_GRAMMAR_MAX_ARCS (1u << 20)

typedef struct bt_grammar_arc {
    uint32_t from, to;
    uint32_t callee; /**< rule, or BT_GRAMMAR_NONE */
    bool counts;
    bool is_tail; /**< nothing can follow the call (bt_grammar_ends()) */
} bt_grammar_arc_t;

/** Lists of numbers, one for each key: items[first[key]] to
 *  items[first[key + 1] - 1]. */
typedef struct bt_grammar_lists {
    uint32_t *first;
    uint32_t *items;
} bt_grammar_lists_t;

typedef struct bt_grammar_arcs {
    const bt_grammar_t *grammar;
    bt_grammar_arc_t *arcs; /**< by `from` */
    uint32_t n_arcs, cap_arcs;
    uint32_t *out_first;        /**< n_states + 1; arcs of a state */
    bt_grammar_lists_t in;      /**< arcs by `to` */
    bt_grammar_lists_t calls;   /**< arcs by `callee` */
    bt_grammar_lists_t members; /**< states by their rule */
} bt_grammar_arcs_t;

/** Makes the arcs of a grammar, which outlives them.
 *  @param [out] arcs  For bt_grammar_arcs_fini(), whatever the status.
 *  @retval BT_ERR_TOO_LARGE  over BT_GRAMMAR_MAX_ARCS
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_grammar_arcs_init(bt_grammar_arcs_t *arcs,
                                               const bt_grammar_t *grammar);
void bt_grammar_arcs_fini(bt_grammar_arcs_t *arcs);

#endif
