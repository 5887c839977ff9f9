/* SPDX-License-Identifier: Apache-2.0 */
/** @file drawing.h
 *
 * What a back end draws from a forward call's logits, and scores of them: so
 * rows of logits stay where they are, and ids and a few numbers come to the
 * host.
 *
 *     clear, then add and score while the call is laid out
 *     the call has it as bt_forward_t.drawing
 *     then ids, scored and tops are what came of it
 *
 * What it is told are draws and edits as kernels/draw.h has them: the sampler's
 * own steps and logit biases. The tokens are those of bt_sampler_draw().
 *
 * Threads: the compute thread. Only create takes memory.
 */
#ifndef BT_INFERENCE_MODEL_DRAWING_H
#define BT_INFERENCE_MODEL_DRAWING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/request.h"
#include "kernels/draw.h"

/** Edits of a call's draws, all together; what needs more is for the host. A
 *  history of 32 sequences, each of 2,000 different tokens. */
#define BT_DRAWING_EDITS 65536u

/** The first of a row: its largest logits, in their order (kernels.h, top()).
 */
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
    uint32_t n_top; /**< the most that a scoring asked for */
    uint32_t max_each;
    uint32_t n_vocab;
    uint32_t *places; /* n_vocab: of the draw that is added, which edit an id
                         has, and 1; 0: none, and so between calls */
    /* What the call leaves. */
    uint32_t *ids;       /**< (n_draws) */
    bt_scored_t *scored; /**< (n_scorings); a sum that is no number: see
                              bt_forward_t */
    bt_first_t *tops; /**< (n_scorings) at least n_top; until the next call */
} bt_drawing_t;

/** @param [in] max_each  draws, and as many scorings
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_drawing_create(uint32_t n_vocab, uint32_t max_each,
                                            bt_drawing_t **drawing_p);
void bt_drawing_destroy(bt_drawing_t *drawing); /**< NULL is allowed. */
void bt_drawing_clear(bt_drawing_t *drawing);

/** What a token is drawn by. */
typedef struct bt_drawn_from {
    const bt_sampling_t *sampling;
    bool is_biased;         /**< by the logit biases of it */
    const uint32_t *tokens; /**< before it; the next position is n_tokens */
    uint32_t n_tokens;
    uint32_t n_prompt; /**< of them */
} bt_drawn_from_t;

/** A draw from a logit row of the call; those of one row follow each other.
 *  O(n_tokens) where tokens are penalized.
 *  @return false: there is no room, or it cannot be told; nothing has changed
 */
BT_MUST_CHECK bool bt_drawing_add(bt_drawing_t *drawing, uint32_t logit_row,
                                  const bt_drawn_from_t *from);
/** A score of a row, of the token of the draw added last, or of another, and
 *  the @a n_top best. @return as above */
BT_MUST_CHECK bool bt_drawing_score(bt_drawing_t *drawing,
                                    const bt_scoring_t *scoring,
                                    uint32_t n_top);

/** Take back what was added since there were so many; n_top stays. */
void bt_drawing_cut(bt_drawing_t *drawing, uint32_t n_draws,
                    uint32_t n_scorings);

#endif
