/* SPDX-License-Identifier: Apache-2.0 */
/** @file processor.h
 *
 * Logits processors, which change a sequence's logits before a token is drawn:
 * a bias, a mask, a grammar. Processors run in their order on the model's
 * logits, and the sampler's own steps (sampler.h) follow: so a banned word
 * stays banned, whatever a processor adds.
 *
 * Threads: the compute thread. No allocation, lock or system call.
 */
#ifndef BT_INFERENCE_MODEL_PROCESSOR_H
#define BT_INFERENCE_MODEL_PROCESSOR_H

#include <stdint.h>

#include "common/wire/request.h"

typedef struct bt_logits_processor {
    /** Applies the processor to one row of logits.
     *  @param [in]     tokens  Prompt and generated tokens so far, n_tokens.
     *  @param [in,out] logits  n_vocab; -INFINITY: cannot be drawn. The result
     *          must depend on ctx and tokens alone, because a row is processed
     *          again when drafts before it were wrong. */
    void (*apply)(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                  float *logits, uint32_t n_vocab);
    void *ctx; /**< owner's context */
} bt_logits_processor_t;

/** Returns a processor that adds the logit biases of a request; ids that the
 *  model does not have are ignored.
 *  @param [in] sampling  Outlives the processor. */
bt_logits_processor_t bt_logit_bias_processor(bt_sampling_t *sampling);
/** Returns the request whose biases the processor adds.
 *  @return NULL: it is of another kind */
const bt_sampling_t *bt_logit_biases_of(const bt_logits_processor_t *processor);

#endif
