/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_beam.h
 *
 * Beam search: which of the candidates of a step go on as beams, which ones are
 * finished answers, and when the search is over. Pure: log-probs in, a decision
 * out; whoever owns the beams keeps their tokens and KV.
 *
 *     candidates of a step, a beam and the id behind it each
 *        │ order: sum of log-probs; of equal ones the lower beam, the lower id
 *        ├─ ends with an end id, among the first `width` ──▶ finished answers,
 *        │                                   by sum / length^length_penalty;
 *        │                                   the best `width` are kept
 *        ├─ the first `width` that do not end ─────────────▶ next beams
 *        └─ the others ────────────────────────────────────▶ dropped
 *
 * At the greatest length every candidate ends. The search is over there, or
 * when `width` answers are finished and, by the stopping rule, no beam counts
 * any more:
 *
 *     FULL       at once
 *     HEURISTIC  when the best beam's sum, at its present length, has no better
 *                score than the worst finished answer
 *     NEVER      as HEURISTIC, but at the greatest length where the length
 *                penalty is above 0, since the score can still rise
 *
 * Determinism: sums and scores are doubles, computed by additions,
 * multiplications and divisions in one order, with no function of the C
 * library, so every machine decides alike (invariant I1).
 *
 * Threads: one thread owns a search.
 * Source:  Hugging Face transformers 5, generation/utils.py, _beam_search();
 *          early_stopping is False, True and "never" there, and 0, 1 and any
 *          other number in TensorRT-LLM.
 */
#ifndef BT_COMMON_SCHED_SCHED_BEAM_H
#define BT_COMMON_SCHED_SCHED_BEAM_H

#include <stdbool.h>
#include <stdint.h>

#define BT_SCHED_MAX_BEAMS          64u   /**< beams of one search */
#define BT_SCHED_MAX_LENGTH_PENALTY 16.0f /**< absolute value */

/** Stopping rule of a search. */
typedef enum bt_sched_beam_stop {
    BT_SCHED_BEAM_STOP_HEURISTIC = 0, /**< early_stopping false */
    BT_SCHED_BEAM_STOP_FULL = 1,      /**< early_stopping true */
    BT_SCHED_BEAM_STOP_NEVER = 2,     /**< early_stopping "never" */
} bt_sched_beam_stop_t;

/** Parameters of a search. */
typedef struct bt_sched_beam_params {
    uint32_t width;      /**< beams, to BT_SCHED_MAX_BEAMS; 0: no beam search */
    uint32_t n_returned; /**< best answers returned, 1 to width */
    float length_penalty;    /**< to BT_SCHED_MAX_LENGTH_PENALTY */
    uint32_t early_stopping; /**< bt_sched_beam_stop_t */
} bt_sched_beam_params_t;

/** One continuation of a beam. */
typedef struct bt_sched_beam_candidate {
    double sum;     /**< log-probs of the answer, this token's included */
    double logprob; /**< the model's own for this token */
    uint32_t beam;  /**< beam that it continues */
    uint32_t id;
    bool ends; /**< the id is an end id */
} bt_sched_beam_candidate_t;

/** One finished answer. */
typedef struct bt_sched_beam_answer {
    double score;    /**< sum / length^length_penalty */
    double sum;      /**< log-probs of its tokens */
    uint32_t length; /**< tokens, an end id included */
    uint32_t slot;   /**< where the owner keeps its tokens, below width */
    bool ends;       /**< the last token is an end id */
} bt_sched_beam_answer_t;

/** State of a search. */
typedef struct bt_sched_beams {
    bt_sched_beam_params_t params;
    uint32_t max_new;                /**< greatest length of an answer */
    uint32_t length;                 /**< tokens of each beam */
    uint32_t n;                      /**< beams */
    double sums[BT_SCHED_MAX_BEAMS]; /**< [n] log-probs of each, best first */
    uint32_t n_answers;
    bt_sched_beam_answer_t
        answers[BT_SCHED_MAX_BEAMS]; /**< best first, of equal
                                         ones the older */
} bt_sched_beams_t;

/** Fate of each candidate of a step. */
typedef struct bt_sched_beam_step {
    uint32_t n_next;
    uint32_t next[BT_SCHED_MAX_BEAMS]; /**< [n_next] candidates that are the
                                          next beams */
    uint32_t n_kept;
    /** [n_kept] candidates that are answers, to be stored in order, each into
     *  the slot beside it; the slot may hold an answer that is dropped. */
    uint32_t kept[BT_SCHED_MAX_BEAMS];
    uint32_t slots[BT_SCHED_MAX_BEAMS];
    bool goes_on; /**< there is a next step */
} bt_sched_beam_step_t;

/** Begins a search: one beam, without tokens.
 *  @param [in] params   width at least 1
 *  @param [in] max_new  at least 1 */
void bt_sched_beams_init(bt_sched_beams_t *beams,
                         const bt_sched_beam_params_t *params,
                         uint32_t max_new);

/** Returns how many candidates of each beam, the best ones, are enough for a
 *  step. */
static inline uint32_t
bt_sched_beams_needs(const bt_sched_beam_params_t *params, uint32_t n_end_ids)
{
    return params->width + n_end_ids;
}

/**
 * Decides a step. O(n log n).
 *
 * @param [in,out] candidates  n of them, with finite sums; at least the best
 *     bt_sched_beams_needs() of each beam, or all that it has. They are put in
 *     order. Without any the search is over.
 * @param [out] step_p  indices into the ordered candidates
 */
void bt_sched_beams_step(bt_sched_beams_t *beams,
                         bt_sched_beam_candidate_t *candidates, uint32_t n,
                         bt_sched_beam_step_t *step_p);

/** Returns length^power. With a whole power by multiplications, else within
 *  1e-13 of it; equal bits on every machine.
 *  @param [in] length  1 to 2^22
 *  @param [in] power   -BT_SCHED_MAX_LENGTH_PENALTY to
 * BT_SCHED_MAX_LENGTH_PENALTY */
double bt_sched_beam_power(uint32_t length, double power);

#endif
