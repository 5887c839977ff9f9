/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_draft.h
 *
 * Controller of speculative decoding: how many draft tokens of which sequences
 * are verified in the next iteration. A draft costs one row of the iteration
 * and saves a whole step when it is right, so two things are learned:
 *
 *     row times    time of an iteration of r rows. It grows in steps, by the
 *                  tiles of the kernels, so a table holds it and no line
 *     acceptance   how often a draft is right, by its source and by how many
 *                  tokens before it matched
 *
 * The controller takes drafts by falling probability and stops at the number
 * with the most expected tokens per time:
 *
 *     (sequences + sum of probabilities of n drafts) / time(rows + n)
 *
 * No sequence may get slower by more than 1 / BT_SCHED_DRAFT_SLOWER: the
 * expected time for a token of each one, with or without drafts, is bounded by
 * that of an iteration without drafts. Where that excludes the most likely
 * drafts, drafts in equal shares are tried.
 *
 * Acceptance is learned from every proposal, verified or not: the token that is
 * drawn is compared with what was proposed for its position. So a drafter that
 * is off needs no trial iterations.
 *
 * The controller decides times and never tokens (I1).
 *
 * Threads: pure; the holder owns the state.
 * Source:  Y. Leviathan et al., "Fast Inference from Transformers via
 *          Speculative Decoding", ICML 2023 (expected tokens of a chain);
 *          X. Liu et al., "Optimizing Speculative Decoding for Serving Large
 *          Language Models Using Goodput", arXiv 2406.14066 (length by
 * goodput).
 */
#ifndef BT_COMMON_SCHED_SCHED_DRAFT_H
#define BT_COMMON_SCHED_SCHED_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

/** Iterations of more rows are estimated from the largest one in the table. */
#define BT_SCHED_ROW_TIMES 192u

/** Measured time of iterations without chunks, by number of rows. All zero at
 *  first. */
typedef struct bt_sched_row_times {
    struct {
        float us;          /**< estimate; 0: not measured */
        uint32_t at_step;  /**< step that measured it last */
        uint32_t n_firsts; /**< times that it was measured anew */
    } rows[BT_SCHED_ROW_TIMES + 1];
    uint32_t n_steps; /**< measured so far */
    uint32_t most;    /**< most rows measured */
} bt_sched_row_times_t;

/** Learns that an iteration of @a n_rows rows took @a us, without the time for
 *  reading K and V. Ignores 0 rows, too many rows, and times that are not
 *  above 0. */
void bt_sched_row_times_learn(bt_sched_row_times_t *times, uint32_t n_rows,
                              double us);
/**
 * Returns the time of an iteration of @a n_rows rows.
 * @param [in] row_us  guess for one more row where none is measured above
 * @return us; 0: nothing was measured yet
 */
double bt_sched_row_times_us(const bt_sched_row_times_t *times, uint32_t n_rows,
                             double row_us);

/** Where drafts come from. */
typedef enum bt_draft_source {
    BT_DRAFT_NGRAM,      /**< earlier text of the prompt or the answer */
    BT_DRAFT_PREDICTION, /**< text that the client gave as a prediction */
    BT_DRAFT_CORPUS,     /**< answers to earlier requests */
    BT_DRAFT_N_SOURCES,
} bt_draft_source_t;

/** Number of classes of match lengths: 1-2, 3-4, 5-8, 9-16, 17 and more. */
#define BT_SCHED_DRAFT_CLASSES 5u

/** Fraction of right drafts, forgetting. */
typedef struct bt_sched_acceptance_count {
    float n_right, n;
} bt_sched_acceptance_count_t;

/** Acceptance of all sequences. All zero at first. */
typedef struct bt_sched_acceptance {
    bt_sched_acceptance_count_t counts[BT_DRAFT_N_SOURCES]
                                      [BT_SCHED_DRAFT_CLASSES];
} bt_sched_acceptance_t;

/** Acceptance of one sequence relative to all. All zero at first. */
typedef struct bt_sched_acceptance_seq {
    float n_right;    /**< drafts that were right */
    float n_expected; /**< drafts that were expected to be right */
} bt_sched_acceptance_seq_t;

/**
 * Returns the probability that a draft is right when all before it are.
 * @param [in] n_matched  tokens before it that equal those before its origin,
 *         drafts before it included
 * @return above 0 and below 1
 */
float bt_sched_acceptance_of(const bt_sched_acceptance_t *all,
                             const bt_sched_acceptance_seq_t *seq,
                             bt_draft_source_t source, uint32_t n_matched);
/** Learns whether a draft was right; all before it were. */
void bt_sched_acceptance_learn(bt_sched_acceptance_t *all,
                               bt_sched_acceptance_seq_t *seq,
                               bt_draft_source_t source, uint32_t n_matched,
                               bool is_right);

/** Drafts that a sequence offers, and how many are taken. */
typedef struct bt_sched_draft_offer {
    uint32_t n;         /**< drafts offered */
    uint32_t n_matched; /**< tokens matched before the first */
    bt_draft_source_t source;
    bt_sched_acceptance_seq_t *seq;
    uint32_t n_taken;         /**< result of bt_sched_draft_take() */
    float survival, expected; /* of the controller: next draft's, all taken */
} bt_sched_draft_offer_t;

/** Iteration that drafts may be added to. */
typedef struct bt_sched_draft_step {
    uint32_t n_seqs;     /**< generating sequences, one row each */
    uint32_t max_drafts; /**< most drafts of all sequences */
    double fixed_us;     /**< time that does not depend on the rows: chunks, and
                              reads of K and V */
    double row_us;       /**< guess for one more row; beside chunks its cost */
    bool has_chunks;     /**< row times do not apply: row_us does */
    double most_us;      /**< the iteration must not take longer, if it does
                              not without drafts; 0: no bound */
} bt_sched_draft_step_t;

/** Drafts slow no sequence by more than this part: 20 stands for 1 / 20. */
#define BT_SCHED_DRAFT_SLOWER 20u

/**
 * Decides how many drafts of each offer are verified.
 * @param [in,out] offers  [n] offers; n_taken is the result
 * @return drafts taken of all
 */
uint32_t bt_sched_draft_take(const bt_sched_row_times_t *times,
                             const bt_sched_acceptance_t *all,
                             const bt_sched_draft_step_t *step,
                             bt_sched_draft_offer_t *offers, uint32_t n);

#endif
