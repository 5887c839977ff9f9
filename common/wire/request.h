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

#define BT_MAX_GIVEN_END_IDS   64   /**< end ids given by a client */
#define BT_MAX_END_IDS         80   /**< end ids with the model's own */
#define BT_MAX_BAD_WORDS       64   /**< banned token sequences per request */
#define BT_MAX_BAD_WORD_TOKENS 16   /**< tokens of one banned sequence */
#define BT_MAX_LOGIT_BIASES    1024 /**< biases given by their ids */
#define BT_MAX_DENSE_BIASES    (1u << 19) /**< biases of a whole vocabulary */
#define BT_MAX_LOGIT_BIAS      100.0f     /**< absolute value */
#define BT_MAX_TOP_LOGPROBS    20         /**< alternatives of one token */

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

#define BT_MAX_NGRAM 1024 /**< no_repeat_ngram_size */

/** No token: ids are below the vocabulary size. */
#define BT_NO_TOKEN UINT32_MAX

/**
 * Options of the logits processors (inference/model/processors.h). All zeros:
 * off.
 *
 * `ids` holds four lists, one behind the other: the allowed tokens, the
 * sequence breakers of DRY, and the tokens that open and close the thinking
 * part.
 */
typedef struct bt_processor_options {
    uint32_t no_repeat_ngram_size; /**< n-grams of prompt and output occur once;
                                        0 = off */
    /** Last tokens of the prompt that the presence and the frequency penalty
     *  count like the output's. */
    uint32_t n_penalized_prompt;
    float top_p_decay;       /**< (0, 1): factor of top_p per token; 0 = off */
    float top_p_min;         /**< least top_p of the decay */
    uint32_t top_p_reset_id; /**< restores top_p; BT_NO_TOKEN: none */
    float top_n_sigma;       /**< > 0: standard deviations; 0 = off */
    float typical_p;         /**< (0, 1); 0 = off */
    float xtc_probability;   /**< (0, 1]; 0 = off */
    float xtc_threshold;     /**< [0, 0.5] with xtc_probability */
    float dry_multiplier;    /**< 0 = off */
    float dry_base;          /**< >= 1 with dry_multiplier */
    uint32_t dry_allowed_length;
    uint32_t dry_last_n;      /**< tokens that DRY looks at */
    uint32_t thinking_budget; /**< tokens, with n_think_close; else unused */
    uint32_t is_thinking;     /**< 1: the prompt opens the thinking part */
    uint32_t n_allowed_ids;   /**< 0: all are allowed */
    uint32_t n_dry_breakers;
    uint32_t n_think_open;
    uint32_t n_think_close; /**< 0: thinking_budget is off */
    uint32_t n_ids;         /**< sum of the four */
    const uint32_t *ids;    /**< borrowed or owned by the holder */
} bt_processor_options_t;

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
    bt_processor_options_t processors;
} bt_sampling_t;

/** True when a worker must know bt_processor_options_t to draw the right
 *  tokens. */
static inline bool bt_sampling_has_processors(const bt_sampling_t *sampling)
{
    const bt_processor_options_t *const o = &sampling->processors;

    return (o->no_repeat_ngram_size > 0) || (o->n_penalized_prompt > 0) ||
           (o->top_p_decay > 0.0f) || (o->top_n_sigma > 0.0f) ||
           (o->typical_p > 0.0f) || (o->xtc_probability > 0.0f) ||
           (o->dry_multiplier > 0.0f) || (o->n_ids > 0) ||
           (sampling->n_logit_biases > BT_MAX_LOGIT_BIASES);
}

/** Returns greedy sampling, everything else off, no end ids. */
static inline bt_sampling_t bt_sampling_default(void)
{
    const bt_sampling_t s = {.top_p = 1.0f, .repetition_penalty = 1.0f};

    return s;
}

#define BT_MAX_REPEATED_PATTERN 1024 /**< tokens of a repeated pattern */

/** Ends a generation whose output ends with a pattern, min_pattern to
 *  max_pattern tokens long, min_count times in a row; a max_pattern of 0: off.
 *  Source: vLLM, RepetitionDetectionParams. */
typedef struct bt_repetition {
    uint32_t min_pattern, max_pattern, min_count;
} bt_repetition_t;

/** Reason why a sequence has ended. */
typedef enum bt_finish {
    BT_FINISH_NONE = 0,   /**< not ended */
    BT_FINISH_STOP = 1,   /**< an end id was sampled (the id is not text) */
    BT_FINISH_LENGTH = 2, /**< max_tokens or the context limit was reached */
    BT_FINISH_CANCELED = 3,
    BT_FINISH_ERROR = 4,
    BT_FINISH_REPETITION = 5, /**< repetition_detection; of the router alone */
} bt_finish_t;

#endif
