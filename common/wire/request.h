/* SPDX-License-Identifier: Apache-2.0 */
/** @file request.h
 *
 * Parameters of a client's request, in token ids: shared by router, workers and
 * sampler.
 */
#ifndef BT_COMMON_WIRE_REQUEST_H
#define BT_COMMON_WIRE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_MAX_GIVEN_END_IDS   64 /**< end ids given by a client */
#define BT_MAX_END_IDS         80 /**< end ids with the model's own */
#define BT_MAX_BAD_WORDS       64 /**< banned token sequences per request */
#define BT_MAX_BAD_WORD_TOKENS 16 /**< tokens of one banned sequence */
#define BT_MAX_LOGIT_BIASES    1024
#define BT_MAX_LOGIT_BIAS      100.0f /**< absolute value */
#define BT_MAX_TOP_LOGPROBS    20     /**< alternatives of one token */

/* Extra results that a client wants, as bits. All are of the model's own
 * distribution: log softmax of the logits as the model left them, before
 * biases, penalties, temperature and bans. */
#define BT_WANT_LOGPROBS        1u /**< log-prob of each token of the answer */
#define BT_WANT_PROMPT_LOGPROBS 2u /**< prompt log-probs but the first */
#define BT_WANT_LOGITS          4u /**< logits each token is sampled from */
#define BT_WANT_PROMPT_LOGITS   8u /**< logits behind each prompt token */
#define BT_WANT_ANY_LOGPROBS    (BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGPROBS)
#define BT_WANT_ANY_LOGITS      (BT_WANT_LOGITS | BT_WANT_PROMPT_LOGITS)
/** Results that need the prompt's positions computed, so no KV is reused. */
#define BT_WANT_ANY_OF_PROMPT (BT_WANT_PROMPT_LOGPROBS | BT_WANT_PROMPT_LOGITS)

/** Extra results that a request wants. */
typedef struct bt_wants {
    uint32_t what;  /**< BT_WANT_*; 0: nothing */
    uint32_t n_top; /**< best ids with each log-prob, to BT_MAX_TOP_LOGPROBS */
} bt_wants_t;

/** Log-prob of one token, and the model's best alternatives. */
typedef struct bt_score {
    double logprob;
    uint32_t n_top;
    uint32_t top_ids[BT_MAX_TOP_LOGPROBS]; /**< best first */
    double top_logprobs[BT_MAX_TOP_LOGPROBS];
} bt_score_t;

/** Banned token sequence: its last token is never sampled right after the
 *  others. */
typedef struct bt_bad_word {
    uint32_t n;
    uint32_t ids[BT_MAX_BAD_WORD_TOKENS];
} bt_bad_word_t;

/** Bias added to the logit of a token before anything else is done with it. */
typedef struct bt_logit_bias {
    uint32_t id;
    float bias;
} bt_logit_bias_t;

/** Sampling parameters. */
typedef struct bt_sampling {
    float temperature;        /**< >= 0; 0 = greedy */
    uint32_t top_k;           /**< 0 = off; 1 = greedy */
    float top_p;              /**< (0, 1]; 1 = off */
    float repetition_penalty; /**< > 0; 1 = off (over prompt and output) */
    float presence_penalty;   /**< 0 = off (over output) */
    float frequency_penalty;  /**< 0 = off (over output) */
    uint64_t seed;
    uint32_t min_tokens; /**< end ids are not sampled before this many tokens */
    uint32_t n_end_ids;
    uint32_t end_ids[BT_MAX_END_IDS]; /**< sampling one ends the sequence */
    uint32_t n_bad_words;
    const bt_bad_word_t *bad_words; /**< borrowed or owned by the holder */
    uint32_t n_logit_biases;
    const bt_logit_bias_t *logit_biases; /**< borrowed or owned by the holder */
    /** [0, 1]; 0 = off. A token is sampled only if its probability, at this
     *  temperature, is at least this fraction of the best one's; before
     *  top_k and top_p. */
    float min_p;
} bt_sampling_t;

/** Returns greedy sampling, everything else off, no end ids. */
static inline bt_sampling_t bt_sampling_default(void)
{
    const bt_sampling_t s = {.top_p = 1.0f, .repetition_penalty = 1.0f};

    return s;
}

/** Reason why a sequence has ended. */
typedef enum bt_finish {
    BT_FINISH_NONE = 0,   /**< not ended */
    BT_FINISH_STOP = 1,   /**< an end id was sampled (the id is not text) */
    BT_FINISH_LENGTH = 2, /**< max_tokens or the context limit was reached */
    BT_FINISH_CANCELED = 3,
    BT_FINISH_ERROR = 4,
} bt_finish_t;

#endif
