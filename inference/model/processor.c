/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/model.h"

#include <stddef.h>

static void add_biases(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                       float *logits, uint32_t n_vocab)
{
    const bt_sampling_t *sampling = ctx;

    (void)tokens;
    (void)n_tokens;
    for (uint32_t i = 0; i < sampling->n_logit_biases; i++) {
        const bt_logit_bias_t *bias = &sampling->logit_biases[i];

        if (bias->id < n_vocab) {
            logits[bias->id] += bias->bias;
        }
    }
}

bt_logits_processor_t bt_logit_bias_processor(bt_sampling_t *sampling)
{
    return (bt_logits_processor_t){.apply = add_biases, .ctx = sampling};
}

const bt_sampling_t *bt_logit_biases_of(const bt_logits_processor_t *processor)
{
    return (processor->apply == add_biases) ? processor->ctx : NULL;
}
