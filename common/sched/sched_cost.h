/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_cost.h
 *
 * Estimates that age. A forecast decides what is admitted, and only admitted
 * requests are measured: a wrong estimate that rejects everything would never
 * be corrected. Two remedies, for every learned estimate in this folder:
 *
 *     ageing   an estimate that has not been measured for a while weighs
 *              less, so that the next measurement weighs more
 *     probe    a request that would be rejected is admitted anyway, when
 *              nothing is queued before it, no other probe is in flight and
 *              the last one ended at least BT_SCHED_PROBE_EVERY_US ago
 *
 *     due ──sent──▶ out ──back──▶ resting ── BT_SCHED_PROBE_EVERY_US ──▶ due
 *
 * A probe ends with its first token, or when it ends without one.
 *
 * Threads: pure; no clock of its own.
 * Source:  R. S. Sutton, A. G. Barto, "Reinforcement Learning", 2nd ed., 2.5
 *          (weights of a nonstationary mean), 2.7 (untried actions are tried
 *          again); M. Nygard, "Release It!", 2nd ed., 5.2 (a circuit breaker
 *          that is half open lets one call through).
 */
#ifndef BT_COMMON_SCHED_SCHED_COST_H
#define BT_COMMON_SCHED_SCHED_COST_H

#include <stdbool.h>
#include <stdint.h>

/** Time from the end of one probe to the next. */
#define BT_SCHED_PROBE_EVERY_US 1000000u

/** State of the probes of one estimate. All zero at first: one is due. */
typedef struct bt_sched_probe {
    bool is_out;
    uint64_t rests_until_us;
} bt_sched_probe_t;

/** Returns the fraction of its weight that a measurement keeps: half at the
 *  age half_us, a quarter at twice that. @return 1 to 0 */
double bt_sched_age_left(uint64_t age_us, uint64_t half_us);

/**
 * Returns the weight of the newest sample in a moving mean.
 * @param [in] share   weight when samples are dense
 * @param [in] age_us  time since the previous sample
 * @return share, or the weight that older samples have lost by age, if larger
 */
double bt_sched_age_share(double share, uint64_t age_us, uint64_t half_us);

/** Returns the time from @a earlier_us to @a now_us; 0 if negative, or if @a
 *  earlier_us is 0 (never). */
static inline uint64_t bt_sched_age_us(uint64_t earlier_us, uint64_t now_us)
{
    return ((earlier_us > 0) && (now_us > earlier_us)) ? now_us - earlier_us
                                                       : 0;
}

/** True when a probe may be sent now. */
bool bt_sched_probe_is_due(const bt_sched_probe_t *probe, uint64_t now_us);
/** Records that a probe is in flight: no other is due until it ends. */
void bt_sched_probe_sent(bt_sched_probe_t *probe);
/** Records the end of a probe, or that an ordinary request was just
 *  measured: the next probe is due BT_SCHED_PROBE_EVERY_US later. */
void bt_sched_probe_back(bt_sched_probe_t *probe, uint64_t now_us);

/*
 * Cost model of a worker: step times, learned from measured steps as one linear
 * model for each kind of work.
 *
 *     context     step + a x tokens + b x pairs + c x reads + d x sequences
 *                 an iteration with prompt chunks, and perhaps generating
 *                 sequences
 *     generation  step + d x sequences + c x reads
 *                 an iteration without chunks
 *     transfer    start + a x bytes
 *
 * A pair is a token and a position that it attends to: n tokens from position p
 * on make n x p + n (n + 1) / 2 pairs. A read is a position whose K and V an
 * iteration reads, once for a chunk or a sequence: p + n reads.
 *
 * A Kalman filter estimates the factors, which drift, from the relative error:
 * a memory of some 100 steps, less while all steps are slower than predicted.
 * No factor is ever below 0. A step that took much longer or shorter than all
 * others counts as one at the edge of the usual range: a machine that was busy
 * with other work teaches nothing, and one that stays slower is believed after
 * a while. A term that is not seen for long keeps its last value with less
 * certainty: when no step of a kind was measured for more than
 * BT_SCHED_COST_REST_US, the next one may show that the machine has changed.
 * All factors then scale together by its time, and a step that was faster than
 * predicted is believed however much faster. So one slow measurement before a
 * rest does not outlast a few after it. Until a kind has been measured its
 * model is a guess, of a millisecond for a token.
 *
 * The generation model is of the worker's own cores: what was computed on
 * borrowed cores is added as if it had run on its own, because the cores return
 * to their owner when it has work, and latency promised to a sequence must hold
 * then. The context model is of whatever cores the prefill had: its core
 * returns to it with the next prompt.
 *
 * Threads: pure; the holder owns it.
 * Source:  L. Ljung, "System Identification", 2nd ed., section 11.2 (recursive
 *          least squares; the filter is its form for factors that drift);
 *          P. Huber, "Robust Estimation of a Location Parameter", 1964 (the
 *          clipped residual).
 */

#define BT_SCHED_COST_TERMS 5u
/** Longest gap between consecutive steps: nothing ages within it. */
#define BT_SCHED_COST_REST_US 500000u

typedef enum bt_sched_cost_kind {
    BT_SCHED_COST_CONTEXT,
    BT_SCHED_COST_GENERATION,
    BT_SCHED_COST_TRANSFER,
    BT_SCHED_N_COSTS,
} bt_sched_cost_kind_t;

/** Work of one iteration. */
typedef struct bt_sched_step {
    uint32_t n_tokens; /**< tokens of chunks */
    uint64_t pairs;    /**< pairs of the chunks' tokens */
    uint32_t n_seqs;   /**< generating sequences */
    uint32_t n_drafts; /**< their rows beyond one each: drafts */
    uint64_t reads;    /**< reads of chunks and sequences */
    /** Time that the worker's own threads would have taken for what was
     *  computed on borrowed cores, in a measured step. 0: nothing was. */
    uint64_t lent_ns;
    /** Time at which a measured step ended. 0: right after the last one. */
    uint64_t at_us;
} bt_sched_step_t;

/** Linear model of one kind of work. */
typedef struct bt_sched_fit {
    uint64_t n;                          /**< steps measured so far */
    double factors[BT_SCHED_COST_TERMS]; /**< in ms, relative to scale */
    double cov[BT_SCHED_COST_TERMS][BT_SCHED_COST_TERMS];
    double scale;                      /**< common scale of all factors */
    double usual[BT_SCHED_COST_TERMS]; /**< means of the terms */
    /** Relative errors of recent predictions: signed mean, and mean size. */
    double bias, error;
    uint64_t at_us; /**< end of the last measured step; 0: not known */
} bt_sched_fit_t;

typedef struct bt_sched_cost {
    bt_sched_fit_t fits[BT_SCHED_N_COSTS];
} bt_sched_cost_t;

/** Rates of the models in whole numbers, to be sent and shown. All are 0 for
 *  a kind that has not been measured. */
typedef struct bt_sched_rates {
    uint64_t prefill_step_ns;
    uint64_t prefill_token_ns;
    uint64_t prefill_kilopair_ns; /**< for 1,024 pairs */
    uint64_t prefill_kiloread_ns; /**< for 1,024 reads */
    uint64_t decode_step_ns;
    uint64_t decode_seq_ns;
    uint64_t decode_kiloread_ns;
    uint64_t transfer_start_ns;
    uint64_t transfer_mib_ns;
    /** Mean error of recent predictions, in thousandths of the time. */
    uint64_t prefill_error, decode_error, transfer_error;
} bt_sched_rates_t;

void bt_sched_cost_init(bt_sched_cost_t *cost);

/** Returns the pairs of n tokens from a position on. */
static inline uint64_t bt_sched_pairs(uint32_t from, uint32_t n)
{
    return (uint64_t)n * from + (uint64_t)n * ((uint64_t)n + 1) / 2;
}

/** Learns from an iteration that took @a ns. Ignores one of no tokens and no
 *  sequences, of no time, or of impossible values. */
void bt_sched_cost_learn(bt_sched_cost_t *cost, const bt_sched_step_t *step,
                         uint64_t ns);
/**
 * Learns from a transfer.
 * @param [in] at_us  when the transfer ended; 0: right after the last one
 */
void bt_sched_cost_learn_transfer(bt_sched_cost_t *cost, uint64_t bytes,
                                  uint64_t ns, uint64_t at_us);

/** Predicts the time of an iteration or a transfer. @return us, at least 1. */
double bt_sched_cost_step_us(const bt_sched_cost_t *cost,
                             const bt_sched_step_t *step);
double bt_sched_cost_transfer_us(const bt_sched_cost_t *cost, uint64_t bytes);

/** Returns, in us, the fixed cost of a chunk at @a position, and the cost of
 *  one more token in it. */
double bt_sched_cost_fixed_us(const bt_sched_cost_t *cost, uint32_t position);
double bt_sched_cost_token_us(const bt_sched_cost_t *cost, uint32_t position);

/**
 * Returns the time to compute tokens from .. to-1 of a prompt alone, in chunks
 * of @a chunk_tokens.
 * @return us; 0 for no tokens
 */
uint64_t bt_sched_cost_prompt_us(const bt_sched_cost_t *cost, uint32_t from,
                                 uint32_t to, uint32_t chunk_tokens);

/** Returns, in us, the cost of one more row in an iteration without chunks, and
 *  of reading the K and V of @a n positions in it. */
double bt_sched_cost_row_us(const bt_sched_cost_t *cost);
double bt_sched_cost_reads_us(const bt_sched_cost_t *cost, double n);

bt_sched_rates_t bt_sched_cost_rates(const bt_sched_cost_t *cost);

/** Chunk size assumed for another process that does not report its own: a
 *  guess, for the fixed cost of iterations. */
#define BT_SCHED_RATES_CHUNK 256u

/**
 * Returns the time of a prompt's prefill alone, by rates that another process
 * sent. Implausible rates count as none.
 * @return us; 0: not measured there
 */
uint64_t bt_sched_rates_prompt_us(const bt_sched_rates_t *rates,
                                  uint32_t n_tokens, uint32_t chunk_tokens);
/** Returns the prefill time of tokens from .. to-1 of a prompt, by rates
 *  that another process sent. @return us; 0: not measured there */
uint64_t bt_sched_rates_rest_us(const bt_sched_rates_t *rates, uint32_t from,
                                uint32_t to, uint32_t chunk_tokens);
/**
 * Returns the time of a KV transfer, by rates that another process sent.
 * @return us; 0 when transfers have not been measured, or for no bytes
 */
uint64_t bt_sched_rates_transfer_us(const bt_sched_rates_t *rates,
                                    uint64_t bytes);

/*
 * Safety factor for latency forecasts: how much longer than forecast a promised
 * request takes at worst, such that one of BT_SCHED_SAFETY_FACTOR_ONE_OF takes
 * longer still. A mean error does not show that: whether a promise holds
 * depends on everything that happens afterwards, such as cores that others want
 * back and prompts that overtake.
 *
 * A broken promise raises the factor, at most to the value that would have kept
 * it; a kept one lowers it a little, so that after overload it is low again
 * within some hundred requests. If nothing is promised for more than
 * BT_SCHED_SAFETY_FACTOR_REST_US the factor decays to 1, with the half-life
 * BT_SCHED_SAFETY_FACTOR_HALF_US: an old overload says little about the
 * present.
 *
 * A probe (above) is promised nothing. If it would have kept its promise
 * it moves the factor a quarter of the way to its own ratio: while the factor
 * rejects other requests there are no hundred to learn from.
 *
 * Threads: pure; the holder owns it.
 * Source:  Robbins, Monro, "A Stochastic Approximation Method", 1951 (of a
 *          quantile).
 */

#define BT_SCHED_SAFETY_FACTOR_ONE_OF 200u
/** Upper limit, in thousandths; beyond it nothing would be promised:
 *  requests take twice as long as forecast. */
#define BT_SCHED_SAFETY_FACTOR_MOST 2000u

#define BT_SCHED_SAFETY_FACTOR_REST_US 10000000u
#define BT_SCHED_SAFETY_FACTOR_HALF_US 30000000u
/** Learned safety factor. */

typedef struct bt_sched_safety_factor {
    double factor;
    double least;   /**< lower limit of the factor */
    uint64_t at_us; /**< when it was last learned; 0: never */
} bt_sched_safety_factor_t;

/**
 * Initialises the factor to 1.
 * @param [in] least  lower limit in thousandths, at most 1000
 */
void bt_sched_safety_factor_init(bt_sched_safety_factor_t *margin,
                                 uint32_t least);
/** Learns from a promised request: its forecast, without the factor, and its
 *  actual time. A forecast of 0 teaches nothing. */
void bt_sched_safety_factor_learn(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us);
/** Learns from a probe: its forecast, without the factor, and its actual
 *  time. A forecast of 0 teaches nothing. */
void bt_sched_safety_factor_probe(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us);
/** Returns the factor in thousandths, for bt_sched_forecast_t.first_factor
 *  and .between_factor. */
uint32_t bt_sched_safety_factor_now(const bt_sched_safety_factor_t *margin,
                                    uint64_t now_us);

/*
 * Cost of a request for fair queueing (sched_fair.h): microseconds of workers,
 * from their measured step times (above).
 *
 *     prompt      its chunks, tokens and pairs, less those of its cached part
 *     each token  a part of an iteration with the mean number of generating
 *                 sequences, and its reads
 *
 * So a token of a long context costs more than one of a short one, a generated
 * token more than a prompt token, and no factor is configured by hand. Until
 * workers have measured both phases each token costs 1.
 *
 * Costs change over time. A charge made at one time and corrected at another is
 * corrected in proportion: bt_sched_token_cost_settled().
 *
 * Threads: pure; the holder owns it.
 * Source:  Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI
 *          2024, section 3 (service as a cost function of both phases).
 */

/** Token counts that a request is charged for. */
typedef struct bt_sched_charge {
    uint32_t n_cached; /**< cached tokens of the prompt: cost nothing; up to
                            n_prompt */
    uint32_t n_prompt;
    uint32_t n_context; /**< tokens before the generated ones; n_prompt, or
                             more if another worker computes the prompt */
    uint32_t n_new;
} bt_sched_charge_t;

/** Learned cost of tokens. */
typedef struct bt_sched_token_cost {
    bt_sched_rates_t rates; /**< latest rates of each phase */
    double n_seqs;          /**< mean of an iteration; 0: none was seen */
} bt_sched_token_cost_t;

/** Initialises the costs to 1 for each token. */
void bt_sched_token_cost_init(bt_sched_token_cost_t *price);
/**
 * Learns a worker's measured rates; a phase that it has not measured is
 * ignored.
 * @param [in] n_seqs  sequences that generate there now
 */
void bt_sched_token_cost_learn(bt_sched_token_cost_t *price,
                               const bt_sched_rates_t *rates, uint32_t n_seqs);
/** Returns the cost of a request. @return at least 1 */
uint64_t bt_sched_token_cost_of(const bt_sched_token_cost_t *price,
                                const bt_sched_charge_t *piece);
/**
 * Returns what a request should have been charged, given its charge, its
 * estimated tokens and its actual tokens.
 * @return at least 1
 */
uint64_t bt_sched_token_cost_settled(const bt_sched_token_cost_t *price,
                                     uint64_t charged,
                                     const bt_sched_charge_t *thought,
                                     const bt_sched_charge_t *was);

#endif
