/* SPDX-License-Identifier: Apache-2.0 */
/** @file ahead.h  A call that begins while the device is at the one before, and
 *  takes tokens that the host does not know yet; within this folder.
 *
 *     host      start A ─ start B ─ finish A ─ start C ─ finish B …
 *     device            A ─────────────▶ B ─────────────▶ C
 *                       │ ids ──▶ B's tokens, where B wants them
 *                       └ ids ──▶ the host (returns.h)
 *
 * Of a call of which only ids are wanted, drawn or the best of each row,
 * nothing else has to cross, and the next one can begin behind it. One whose
 * logits or scores are wanted has to be finished first: they lie where the next
 * one's will.
 */
#ifndef BT_INFERENCE_MODEL_AHEAD_H
#define BT_INFERENCE_MODEL_AHEAD_H

#include "inference/model/model.h"

#define BT_AHEAD_MAX 2u /**< calls that are started, and not finished */

typedef struct bt_ahead {
    bt_returns_t returns; /**< a slot for each; user NULL: calls end at once */
    uint32_t first, n;    /**< started, from the oldest on */
    bool only_ids[BT_AHEAD_MAX];
    uint32_t n_ids[BT_AHEAD_MAX];
    const uint32_t *ids; /**< back end: of the call that was started last */
} bt_ahead_t;

/** Host memory that bt_ahead_open() takes on this back end. */
size_t bt_ahead_bytes(const bt_backend_t *be, const bt_model_config_t *config);
/** Where the model's back end can (bt_model_chains()), else nothing.
 *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_ahead_open(bt_model_t *model);
void bt_ahead_close(bt_model_t *model);

/** May this call begin, behind what is started? */
bool bt_ahead_fits(const bt_model_t *model, const bt_forward_t *fwd);

/** bt_model_start() and bt_model_finish() of a model that chains. */
BT_MUST_CHECK bt_status_t bt_ahead_start(bt_model_t *model,
                                         const bt_forward_t *fwd);
BT_MUST_CHECK bt_status_t bt_ahead_finish(bt_model_t *model,
                                          const bt_forward_t *fwd);

#endif
