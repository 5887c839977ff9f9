/* SPDX-License-Identifier: Apache-2.0 */
/** @file processor.h
 *
 * What changes a sequence's logits before anything is drawn from them: a bias,
 * a mask, a grammar. Processors run in their order on what the model said, and
 * the sampler's own steps (sampler.h) follow: so a banned word stays banned,
 * whatever a processor adds.
 *
 * Threads: the compute thread. No allocation, lock or system call.
 */
#ifndef BT_INFERENCE_MODEL_PROCESSOR_H
#define BT_INFERENCE_MODEL_PROCESSOR_H

#include <stdint.h>

#include "common/wire/request.h"

typedef struct bt_logits_processor {
    /** @param [in]     tokens  Prompt and generated tokens so far, n_tokens.
     *  @param [in,out] logits  n_vocab; -INFINITY: cannot be drawn.
     *  What it does depends on ctx and tokens alone, because a row is looked at
     *  again when drafts before it were wrong. */
    void (*apply)(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                  float *logits, uint32_t n_vocab);
    void *ctx; /**< the owner's */
} bt_logits_processor_t;

/** Adds the logit biases of a request; those of ids that the model does not
 * have do nothing. @param [in] sampling  Outlives the processor. */
bt_logits_processor_t bt_logit_bias_processor(bt_sampling_t *sampling);
/** The request whose biases it adds. @return NULL: it is of another kind */
const bt_sampling_t *bt_logit_biases_of(const bt_logits_processor_t *processor);

#endif
