/* SPDX-License-Identifier: Apache-2.0 */
/** @file sampler_steps.h
 *
 * Changes that a draw makes to logits first, for the sampler and for draws on a
 * back end (drawing.h); within this folder.
 */
#ifndef BT_INFERENCE_MODEL_SAMPLER_STEPS_H
#define BT_INFERENCE_MODEL_SAMPLER_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/request.h"

/** True when there is any penalty. */
static inline bool bt_sampler_penalizes(const bt_sampling_t *params)
{
    return (params->repetition_penalty != 1.0f) ||
           (params->presence_penalty != 0.0f) ||
           (params->frequency_penalty != 0.0f);
}

/** Calls @a ban for each token that cannot be drawn now, perhaps twice: tokens
 *  that complete bad words, and end tokens that come too early. */
void bt_sampler_bans(const bt_sampling_t *params, uint32_t n_vocab,
                     const uint32_t *history, uint32_t n_history,
                     uint32_t n_prompt, void (*ban)(void *ctx, uint32_t id),
                     void *ctx);

#endif
