/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>

#include "common/wire/wire.h"

/* The first thing wrong, or NULL. Written so that a NaN fails every test. */
static const char *first_bias_fault(const bt_sampling_t *s)
{
    if (s->n_logit_biases > BT_MAX_LOGIT_BIASES) {
        return "too many logit biases";
    }
    if ((s->n_logit_biases > 0) && (s->logit_biases == NULL)) {
        return "logit biases are counted but not given";
    }
    for (uint32_t i = 0; i < s->n_logit_biases; i++) {
        if (!(fabsf(s->logit_biases[i].bias) <= BT_MAX_LOGIT_BIAS)) {
            return "a logit bias must be from -100 to 100";
        }
    }
    return NULL;
}

static const char *first_fault(const bt_sampling_t *s)
{
    if (!(s->temperature >= 0.0f) || !isfinite(s->temperature)) {
        return "temperature must be a number and not negative";
    }
    if (!(s->top_p > 0.0f) || !(s->top_p <= 1.0f)) {
        return "top_p must be above 0 and at most 1";
    }
    if (!(s->repetition_penalty > 0.0f) || !isfinite(s->repetition_penalty)) {
        return "repetition_penalty must be above 0";
    }
    if (!isfinite(s->presence_penalty)) {
        return "presence_penalty must be a finite number";
    }
    if (!isfinite(s->frequency_penalty)) {
        return "frequency_penalty must be a finite number";
    }
    if (!(s->min_p >= 0.0f) || !(s->min_p <= 1.0f)) {
        return "min_p must be from 0 to 1";
    }
    if (s->n_end_ids > BT_MAX_END_IDS) {
        return "too many end ids";
    }
    if (s->n_bad_words > BT_MAX_BAD_WORDS) {
        return "too many bad words";
    }
    if ((s->n_bad_words > 0) && (s->bad_words == NULL)) {
        return "bad words are counted but not given";
    }
    for (uint32_t i = 0; i < s->n_bad_words; i++) {
        if ((s->bad_words[i].n == 0) ||
            (s->bad_words[i].n > BT_MAX_BAD_WORD_TOKENS)) {
            return "a bad word is empty or has too many tokens";
        }
    }
    return first_bias_fault(s);
}

bt_status_t bt_sampling_check(const bt_sampling_t *sampling, const char **why_p)
{
    const char *fault = first_fault(sampling);

    if (fault == NULL) {
        return BT_OK;
    }
    *why_p = fault;
    return BT_ERR_INVALID_PARAM;
}
