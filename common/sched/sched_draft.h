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
    BT_DRAFT_MODEL,      /**< draws of a smaller model */
    BT_DRAFT_GRAMMAR,    /**< text that the answer's grammar leaves no choice
                              about */
    BT_DRAFT_N_SOURCES,
} bt_draft_source_t;

/** Number of classes of match lengths: 1-2, 3-4, 5-8, 9-16, 17 and more. Drafts
 *  of a model are in five classes of their probability, see
 *  bt_sched_draft_match(); those of a grammar in BT_SCHED_DRAFT_LONGER … _ONLY.
 */
#define BT_SCHED_DRAFT_CLASSES 5u

/* Match lengths whose classes drafts of a grammar are counted in. */
#define BT_SCHED_DRAFT_LONGER 1u  /**< a longer token may take its place */
#define BT_SCHED_DRAFT_FIRST  3u  /**< behind a token that the model drew */
#define BT_SCHED_DRAFT_INNER  5u  /**< behind another such draft */
#define BT_SCHED_DRAFT_ONLY   17u /**< no other token is allowed */

/** Fraction of right drafts, forgetting. */
typedef struct bt_sched_acceptance_count {
    float n_right, n;
} bt_sched_acceptance_count_t;

/** Acceptance of all sequences. All zero at first. */
typedef struct bt_sched_acceptance {
    bt_sched_acceptance_count_t counts[BT_DRAFT_N_SOURCES]
                                      [BT_SCHED_DRAFT_CLASSES];
    bt_sched_acceptance_count_t model; /**< drafts of a model, all classes */
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

/** Returns the match length whose class a model's draft of this probability is
 *  counted in: below 0.5, 0.7, 0.9, 0.98, and up to 1. */
uint8_t bt_sched_draft_match(float probability);
/** Returns the probability that the next draft of a model is right, before the
 *  model has drawn it. */
float bt_sched_acceptance_model(const bt_sched_acceptance_t *all,
                                const bt_sched_acceptance_seq_t *seq);
/** Returns the most drafts that a model makes of a sequence by what is known of
 *  it: as many as a trial, and one more for each that was right lately. So a
 *  model whose drafts are wrong is found out by few of them. */
uint32_t bt_sched_acceptance_most(const bt_sched_acceptance_t *all);

/** Drafts that a sequence offers, and how many are taken. */
typedef struct bt_sched_draft_offer {
    uint32_t n;             /**< drafts offered */
    uint32_t n_matched;     /**< tokens matched before the first */
    const uint8_t *matches; /**< [n] n_matched of each draft, of a model's and
                                 a grammar's; NULL: they grow from one to the
                                 next */
    bt_draft_source_t source;
    bt_sched_acceptance_seq_t *seq;
    uint32_t n_taken;         /**< result of bt_sched_draft_take() */
    float survival, expected; /* of the controller: next draft's, all taken */
} bt_sched_draft_offer_t;

/** Returns how many drafts of an offer are expected to be right, if all are
 *  verified. */
float bt_sched_draft_expected(const bt_sched_acceptance_t *all,
                              const bt_sched_draft_offer_t *offer);

/** Iteration that drafts may be added to. */
typedef struct bt_sched_draft_step {
    uint32_t n_seqs;     /**< generating sequences, one row each */
    uint32_t max_drafts; /**< most drafts of all sequences */
    double fixed_us;     /**< time that does not depend on the rows: chunks, and
                              reads of K and V */
    double spent_us;     /**< time that rounds and catch-up of a draft model
                              took before it */
    double row_us;       /**< guess for one more row; beside chunks its cost */
    double read_us;      /**< time for reading K and V of one sequence, the mean
                              of all; of a round of a draft model */
    bool has_chunks;     /**< row times do not apply: row_us does */
    double most_us;      /**< the iteration must not take longer, with spent_us,
                              if it does not without drafts and spent_us; 0: no
                              bound */
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

/*
 * Rounds of a draft model. Before the iteration the draft model computes one
 * row of each of some sequences and draws their next draft, round by round:
 *
 *     round 1 ─▶ round 2 ─▶ … ─▶ iteration that verifies the drafts
 *     a b c      a c             a a a b c c c
 *
 * Rounds cost time whether or not their drafts are right. They begin where the
 * number of rounds with the best goodput beats what drafts without a model
 * give. A sequence takes part in another round while its next draft is expected
 * to give more tokens per time than that goodput, so chains of likely drafts
 * become longer and unlikely ones end.
 *
 * Neither the time of a round nor the acceptance is measured while no rounds
 * are made, so they are tried now and then, where step->most_us leaves time:
 * for the first ones that of a whole iteration, later as much as was learned.
 *
 * A draft model with a KV cache of its own may lack K and V of a sequence. Few
 * rows are computed with the sequence's first round. A sequence that *lags*, by
 * more, takes part in no round until it has caught up (sched_catch_up.h). That
 * is done where rounds would pay if no sequence lagged, and for one sequence
 * where a trial finds none to try them with. While it is done, rounds of others
 * may slow it, for its own drafts later; else it is one that gains nothing.
 */

/** Iterations between two trials, at most. A trial takes two rounds. */
#define BT_SCHED_TRIAL_MOST 1024u

/** Which lagging sequences are to catch up. */
typedef enum bt_sched_catch_up_of {
    BT_SCHED_CATCH_UP_NONE,
    BT_SCHED_CATCH_UP_ONE, /**< any one of them, for a trial */
    BT_SCHED_CATCH_UP_ALL,
} bt_sched_catch_up_of_t;

/** Cost of rounds, and when to try them. All zero at first. */
typedef struct bt_sched_rounds {
    bt_sched_row_times_t times; /**< time of a round, by rows */
    uint32_t n_made;            /**< rounds so far, saturating */
    uint32_t n_idle;  /**< iterations that could have had rounds since the last
                           ones that had */
    uint32_t n_waits; /**< iterations until the next trial */
    /** Result of bt_sched_rounds_begin(): which lagging sequences are to catch
     *  up. */
    bt_sched_catch_up_of_t catch_up;
} bt_sched_rounds_t;

/** Drafts of one sequence by the model. */
typedef struct bt_sched_chain {
    uint32_t most;    /**< most drafts */
    float acceptance; /**< bt_sched_acceptance_model() */
    uint32_t n;       /**< drafts so far */
    float survival;   /**< probability that all of them are right; 1 at first */
    double expected;  /**< number of them that are expected to be right */
    bool ended;       /**< takes part in no further round */
    uint32_t n_more_rows; /**< rows of its next round beside that of the draft
                           */
    bool lags; /**< takes part in no round of this iteration; `expected` is that
                    of its other drafts */
    bool left_out; /**< lags, and does not catch up even if all are to: it
                        would not gain by it, or there is no room */
} bt_sched_chain_t;

/** Sequences of the iteration that the model makes no drafts for. */
typedef struct bt_sched_beside {
    uint32_t n_drafts; /**< their drafts */
    double expected;   /**< drafts expected to be right */
    double least;      /**< least number of expected tokens of one of them;
                            infinity: there is none */
    double goodput;    /**< expected tokens per us without rounds */
    double spent_us;   /**< time of the iteration's rounds so far */
} bt_sched_beside_t;

/** Records the offers that keep the drafts taken. @param n  number of offers
 *  @param n_seqs  sequences beside, with and without drafts */
bt_sched_beside_t
bt_sched_beside_of(const bt_sched_draft_offer_t *const *offers, uint32_t n,
                   uint32_t n_seqs);
/** Returns the time of the iteration with what bt_sched_draft_take() took of
 *  the offers, in us; 0: nothing was measured yet. */
double bt_sched_draft_us(const bt_sched_row_times_t *times,
                         const bt_sched_draft_step_t *step,
                         const bt_sched_draft_offer_t *offers, uint32_t n);
/** Returns the expected tokens per us with what bt_sched_draft_take() took. */
double bt_sched_draft_goodput(const bt_sched_row_times_t *times,
                              const bt_sched_draft_step_t *step,
                              const bt_sched_draft_offer_t *offers, uint32_t n);

/**
 * Decides whether rounds begin.
 * @param [in,out] rounds  counts iterations without; catch_up is set
 * @param [in]     chains  [n] sequences that the model would draft for, and
 *         those that lag
 * @return expected tokens per us of the best number of rounds, for
 *         bt_sched_rounds_go_on(); 0: no rounds; BT_SCHED_ROUNDS_TRIAL
 */
double bt_sched_rounds_begin(const bt_sched_row_times_t *times,
                             bt_sched_rounds_t *rounds,
                             const bt_sched_draft_step_t *step,
                             const bt_sched_beside_t *beside,
                             const bt_sched_chain_t *chains, uint32_t n);
#define BT_SCHED_ROUNDS_TRIAL (-1.0)

/**
 * Decides which sequences take part in the next round; sets `ended` of the
 * others. Another round and the iteration keep within step->most_us, and slow
 * no sequence that gains nothing by it by more than a twentieth
 * (BT_SCHED_DRAFT_SLOWER); trials keep only within step->most_us.
 * @param [in] goodput  of bt_sched_rounds_begin()
 * @return number of sequences; 0: the rounds are over
 */
uint32_t bt_sched_rounds_go_on(const bt_sched_row_times_t *times,
                               const bt_sched_rounds_t *rounds,
                               const bt_sched_draft_step_t *step,
                               const bt_sched_beside_t *beside, double goodput,
                               bt_sched_chain_t *chains, uint32_t n);

/** Learns the time of a round without the time for reading K and V.
 *  @param n_rows    rows of all its sequences
 *  @param is_trial  earlier measurements are out of date */
void bt_sched_rounds_learn(bt_sched_rounds_t *rounds, uint32_t n_rows,
                           double us, bool is_trial);

#endif
