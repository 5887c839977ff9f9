/* SPDX-License-Identifier: Apache-2.0 */
/** @file processors.h
 *
 * Logits processors of a request (bt_processor_options_t): changes of a row of
 * logits, or of the weights of its candidates, that depend on the request and
 * on the tokens before alone, so a row that is drawn again gives the same
 * token.
 *
 * Order of a draw, with the steps of kernels/draw.h; a step that is off changes
 * nothing:
 *
 *     logit bias
 *     thinking budget: a forced token ends the draw here
 *     repetition, presence and frequency penalty
 *     DRY
 *     allowed tokens: those of the grammar, then those of the request
 *     bans: no_repeat_ngram_size, bad words, min_tokens
 *     temperature 0 or top_k 1: the most probable token
 *     temperature, min_p, top_n_sigma, top_k, typical_p, top_p with its decay,
 *     XTC, and the draw
 *
 * A step that would remove all candidates keeps one. With a grammar that is one
 * of its tokens: the most probable one before the request's allowed tokens and
 * bans, and a token that the thinking budget forces has to be one.
 *
 * Threads: the compute thread. No allocation, lock or system call; O(vocabulary
 * + history).
 */
#ifndef BT_INFERENCE_MODEL_PROCESSORS_H
#define BT_INFERENCE_MODEL_PROCESSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/request.h"
#include "inference/model/logits.h"

/** Tokens that may be drawn, as bits: id % 64 of word id / 64. NULL: all. */
typedef const uint64_t *bt_token_mask_t;

static inline bool bt_token_mask_has(bt_token_mask_t mask, uint32_t id)
{
    return (mask == NULL) || (((mask[id / 64] >> (id % 64)) & 1u) != 0);
}

/** Most tokens of a mask that are drawn from without the others. */
#define BT_TOKEN_MASK_FEW 256u

/** Lists the tokens of a mask, in ascending order.
 *  @param mask  not NULL; bits from n_vocab on are ignored
 *  @param most  longest list
 *  @return their number; 0: there are more, or none, and @a ids is unchanged */
uint32_t bt_token_mask_list(bt_token_mask_t mask, uint32_t n_vocab,
                            uint32_t most, uint32_t *ids);

/** Tokens before a draw. */
typedef struct bt_history {
    const uint32_t *tokens; /**< prompt and output so far */
    uint32_t n;
    uint32_t n_prompt; /**< tokens of the client's prompt, part of n */
} bt_history_t;

/**
 * Returns the token that the thinking budget forces, or BT_NO_TOKEN.
 *
 * The thinking part begins at the prompt's end where the prompt opens it, else
 * behind the opening mark with which the output begins. Once it has as many
 * tokens as the budget, the tokens of the closing mark are forced one after the
 * other; a closing mark that came before ends it.
 */
uint32_t bt_processors_forced(const bt_processor_options_t *options,
                              const bt_history_t *history);

/**
 * Returns top_p of the next draw: with each token of the output it is
 * multiplied by top_p_decay, down to top_p_min; top_p_reset_id restores it.
 * Source: TensorRT-LLM, samplingTopPKernels.cu, computeToppDecay.
 */
float bt_processors_top_p(const bt_sampling_t *sampling,
                          const bt_history_t *history);

/** Calls @a ban for each token that would complete an n-gram that occurred
 *  before; perhaps more than once for one token. O(history).
 *  Source: Hugging Face transformers, NoRepeatNGramLogitsProcessor. */
void bt_processors_ban_ngrams(const bt_processor_options_t *options,
                              uint32_t n_vocab, const bt_history_t *history,
                              void (*ban)(void *ctx, uint32_t id), void *ctx);

/**
 * DRY: subtracts multiplier * base^(length - allowed_length) from the logit of
 * each token that would continue a repeated sequence of `length` tokens, at
 * least allowed_length; the longest one counts. A sequence contains no breaker.
 * Source: p-e-w, "DRY: a modern repetition penalty", as llama.cpp has it.
 *
 * @param [in,out] logits   n_vocab
 * @param [in]     lengths  scratch, n_lengths; earlier tokens are not looked at
 * @param [in]     counts   scratch, n_vocab; all zero, and again on return
 */
void bt_processors_dry(const bt_processor_options_t *options, float *logits,
                       uint32_t n_vocab, const bt_history_t *history,
                       uint32_t *lengths, uint32_t n_lengths, uint32_t *counts);

/** Sets the logits of all tokens but the allowed ones to -INFINITY.
 *  @param [in] counts  scratch, n_vocab; all zero, and again on return */
void bt_processors_allow(const bt_processor_options_t *options, float *logits,
                         uint32_t n_vocab, uint32_t *counts);

/** Sets the logits of all tokens that a mask lacks to -INFINITY. */
void bt_processors_mask(bt_token_mask_t mask, float *logits, uint32_t n_vocab);

/** Returns the lowest id that a mask has, or without a mask the lowest allowed
 *  one: it is drawn where no candidate is left. 0: there is none. */
uint32_t bt_processors_fallback(const bt_processor_options_t *options,
                                bt_token_mask_t mask, uint32_t n_vocab);

/** True when weights of candidates are filtered beyond top_k, top_p and min_p.
 */
static inline bool bt_processors_filter(const bt_processor_options_t *options)
{
    return (options->top_n_sigma > 0.0f) || (options->typical_p > 0.0f) ||
           (options->xtc_probability > 0.0f);
}

/*
 * Filters. Weights are those of kernels/draw.h by id, 0 for a token that is
 * out; each returns the sum of those it keeps.
 */

/** Keeps logits of at least best - top_n_sigma * standard deviation of the
 *  finite logits (of all, not of a sample; in double, by ascending id).
 *  Source: Tang et al., "Top-n sigma: not all logits are you need". */
uint64_t bt_processors_top_n_sigma(float top_n_sigma, const float *logits,
                                   uint32_t n_vocab, uint64_t *weights);

/** Keeps the tokens whose information is closest to the expected one, as many
 *  as reach typical_p of the sum, at least 1. -ln(p) of a token minus the
 *  entropy is the mean of x minus its own x, x = (logit - best) / temperature;
 *  the difference is compared as a float.
 *  Source: Meister et al., "Locally typical sampling".
 *  @param [in] list  scratch, n_vocab */
uint64_t bt_processors_typical(float typical_p, const float *logits, float best,
                               double temperature, uint32_t n_vocab,
                               uint64_t *weights, uint64_t mass,
                               bt_candidate_t *list);

/** XTC: where at least two tokens have a share of the sum of at least the
 *  threshold, removes all of those but the last in order, with the probability
 *  of the request: its random number is the second one of (seed, position).
 *  Source: p-e-w, "Exclude Top Choices". */
uint64_t bt_processors_xtc(const bt_processor_options_t *options, uint64_t seed,
                           uint32_t position, const float *logits,
                           uint32_t n_vocab, uint64_t *weights, uint64_t mass);

#endif
