/* SPDX-License-Identifier: Apache-2.0 */
/** @file drawing.h
 *
 * Draws from a forward call's logits, and their scores, executed by the back
 * end: rows of logits stay there, and only ids and a few numbers are copied to
 * the host.
 *
 *     clear, then add and score while the call is prepared
 *     the call takes it as bt_forward_t.drawing
 *     then ids, scored and tops are the results
 *
 * Draws and edits are those of kernels/draw.h: the sampler's own steps and
 * logit biases. The tokens are those of bt_sampler_draw().
 *
 * Threads: the compute thread. Only create allocates memory.
 */
#ifndef BT_INFERENCE_MODEL_DRAWING_H
#define BT_INFERENCE_MODEL_DRAWING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/request.h"
#include "kernels/draw.h"

/** Most edits of all draws of a call; beyond that the host draws. Enough for
 *  the histories of 32 sequences, each of 2,000 different tokens. */
#define BT_DRAWING_EDITS 65536u

/** First candidates of a row: its largest logits, in their order (kernels.h,
 *  top()). */
typedef struct bt_first {
    const uint32_t *ids;
    const float *logits;
    uint32_t n;
} bt_first_t;

typedef struct bt_drawing {
    bt_draw_t *draws; /**< (max_each) */
    bt_draw_edit_t *edits;
    bt_scoring_t *scorings; /**< (max_each) */
    uint32_t n_draws;
    uint32_t n_edits;
    uint32_t n_scorings;
    uint32_t n_top; /**< most candidates that a scoring asked for */
    uint32_t max_each;
    uint32_t n_vocab;
    uint32_t *slots; /* n_vocab: index + 1 of the edit of each id in the
                         draw that is being added; 0: none, and between calls */
    /* Results of the call. */
    uint32_t *ids;       /**< (n_draws) */
    bt_scored_t *scored; /**< (n_scorings); a sum that is not a number: see
                              bt_forward_t */
    bt_first_t *tops;    /**< (n_scorings) at least n_top; valid until the next
                              call */
} bt_drawing_t;

/** Creates a drawing.
 *  @param [in] max_each  most draws, and most scorings
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_drawing_create(uint32_t n_vocab, uint32_t max_each,
                                            bt_drawing_t **drawing_p);
void bt_drawing_destroy(bt_drawing_t *drawing); /**< NULL is allowed. */
void bt_drawing_clear(bt_drawing_t *drawing);

/** Parameters and history of one draw. */
typedef struct bt_drawn_from {
    const bt_sampling_t *sampling;
    bool is_biased;         /**< add the logit biases of sampling */
    const uint32_t *tokens; /**< tokens before the drawn one; its position is
                                 n_tokens */
    uint32_t n_tokens;
    uint32_t n_prompt; /**< tokens of the prompt, part of n_tokens */
} bt_drawn_from_t;

/** Adds a draw from a logit row of the call; draws from one row must be added
 *  consecutively. O(n_tokens) where tokens are penalized.
 *  @return false: there is no space, or the back end cannot express it; nothing
 *          has changed */
BT_MUST_CHECK bool bt_drawing_add(bt_drawing_t *drawing, uint32_t logit_row,
                                  const bt_drawn_from_t *from);
/** Adds a scoring of a row, for the token of the draw added last or for another
 *  token, and its @a n_top best.
 *  @return false: there is no space, or the back end cannot express it; nothing
 *          has changed */
BT_MUST_CHECK bool bt_drawing_score(bt_drawing_t *drawing,
                                    const bt_scoring_t *scoring,
                                    uint32_t n_top);

/** Removes the draws and scorings added beyond these counts; n_top stays. */
void bt_drawing_cut(bt_drawing_t *drawing, uint32_t n_draws,
                    uint32_t n_scorings);

#endif
