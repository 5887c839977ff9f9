/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_cost.h
 *
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
#ifndef BT_COMMON_SCHED_COST_H
#define BT_COMMON_SCHED_COST_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
