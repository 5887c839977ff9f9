/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/sampler_steps.h"

#include <string.h>

/* Returns the last token of a bad word whose other tokens precede; else
 * UINT32_MAX. */
static uint32_t banned_by(const bt_bad_word_t *word, const uint32_t *history,
                          uint32_t n_history)
{
    if ((word->n == 0) || (word->n - 1 > n_history)) {
        return UINT32_MAX;
    }
    if ((word->n > 1) && (memcmp(&history[n_history - (word->n - 1)], word->ids,
                                 (word->n - 1) * sizeof(*history)) != 0)) {
        return UINT32_MAX;
    }
    return word->ids[word->n - 1];
}

void bt_sampler_bans(const bt_sampling_t *params, uint32_t n_vocab,
                     const uint32_t *history, uint32_t n_history,
                     uint32_t n_prompt, void (*ban)(void *ctx, uint32_t id),
                     void *ctx)
{
    for (uint32_t i = 0; i < params->n_bad_words; i++) {
        const uint32_t id =
            banned_by(&params->bad_words[i], history, n_history);

        if (id < n_vocab) {
            ban(ctx, id);
        }
    }
    if (n_history - n_prompt < params->min_tokens) {
        for (uint32_t i = 0; i < params->n_end_ids; i++) {
            if (params->end_ids[i] < n_vocab) {
                ban(ctx, params->end_ids[i]);
            }
        }
    }
}
