/* SPDX-License-Identifier: Apache-2.0 */
/** @file ahead.h
 *
 * Overlapped calls: a call begins while the device executes the previous one,
 * and takes tokens that the host does not know yet; within this folder.
 *
 *     host      start A ─ start B ─ finish A ─ start C ─ finish B …
 *     device            A ─────────────▶ B ─────────────▶ C
 *                       │ ids ──▶ B's tokens, where B wants them
 *                       └ ids ──▶ the host (returns.h)
 *
 * Where a call needs only ids, drawn or the best of each row, nothing else is
 * copied to the host, and the next call can begin behind it. A call whose
 * logits or scores are needed has to be finished first: the next one overwrites
 * them.
 */
#ifndef BT_INFERENCE_MODEL_AHEAD_H
#define BT_INFERENCE_MODEL_AHEAD_H

#include "inference/model/model.h"

#define BT_AHEAD_MAX 2u /**< most calls that are started, and not finished */

typedef struct bt_ahead {
    bt_returns_t returns; /**< one slot per call; user NULL: no overlap */
    uint32_t first, n;    /**< started calls, from the oldest on */
    bool only_ids[BT_AHEAD_MAX];
    uint32_t n_ids[BT_AHEAD_MAX];
    const uint32_t *ids; /**< back end: ids of the call that was started last */
} bt_ahead_t;

/** Returns the host memory in bytes that bt_ahead_open() takes on this back
 *  end. */
size_t bt_ahead_bytes(const bt_backend_t *be, const bt_model_config_t *config);
/** Prepares overlapped calls where the model's back end supports them
 *  (bt_model_chains()), else does nothing.
 *  @retval BT_ERR_NO_MEMORY
 *  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_ahead_open(bt_model_t *model);
void bt_ahead_close(bt_model_t *model);

/** True when this call may begin behind the started ones. */
bool bt_ahead_fits(const bt_model_t *model, const bt_forward_t *fwd);

/** Starts a call: bt_model_start() of a model that chains. bt_ahead_finish() is
 *  its bt_model_finish(). */
BT_MUST_CHECK bt_status_t bt_ahead_start(bt_model_t *model,
                                         const bt_forward_t *fwd);
BT_MUST_CHECK bt_status_t bt_ahead_finish(bt_model_t *model,
                                          const bt_forward_t *fwd);

#endif
