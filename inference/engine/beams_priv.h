/* SPDX-License-Identifier: Apache-2.0 */
/** @file beams_priv.h
 *
 * State of the beams of a sequence: beams.c makes it, and beams_steps.c, on the
 * compute thread, searches in it.
 */
#ifndef BT_INFERENCE_ENGINE_BEAMS_PRIV_H
#define BT_INFERENCE_ENGINE_BEAMS_PRIV_H

#include "inference/engine/beams.h"
#include "inference/model/logits.h"

/** Tokens and KV of one beam. */
typedef struct bt_beam_seat {
    uint32_t *tokens;  /**< n_tokens + max_new; the prompt first */
    double *logprobs;  /**< max_new */
    uint32_t *blocks;  /**< n_spans: block table */
    uint32_t *numbers; /**< n_spans: of those blocks, from n_shared on, their
                          number among the blocks that beams take */
} bt_beam_seat_t;

/** Beams, their tables and scratch. */
struct bt_beams {
    bt_beams_config_t config; /**< without tokens */
    bt_sched_beams_t search;
    bool has_begun;
    uint32_t n_spans;    /**< spans in the table of a beam */
    uint32_t n_shared;   /**< whole blocks of the prompt */
    uint32_t n_own;      /**< blocks that beams take */
    const uint32_t *own; /**< [n_own] their ids, in the sequence's table */
    uint32_t n_free;
    uint32_t *free; /**< [n_own] numbers of the free ones, the next one last */
    uint32_t *n_refs;      /**< [n_own] beams that hold a block */
    bt_beam_seat_t *seats; /**< [width] */
    uint32_t *seat_of;  /**< [width] seat of each beam; then of those without */
    uint32_t *moved_to; /**< [width] scratch: seat_of after a step */
    uint32_t *answer_ids;                  /**< (width, max_new) by slot */
    double *answer_logprobs;               /**< (width, max_new) by slot */
    bt_sched_beam_candidate_t *candidates; /**< [width * needs] */
    bt_candidate_t *list;                  /**< [needs] scratch */
};

/** Returns how many candidates of each beam a step needs. */
uint32_t bt_beams_needs(const bt_beams_t *beams);

#endif
