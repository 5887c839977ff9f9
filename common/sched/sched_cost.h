/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_cost.h
 *
 * How long a step takes here: learned from steps that were measured, a line
 * for each kind of work.
 *
 *     context     step + a x tokens + b x pairs + c x reads + d x sequences
 *                 an iteration with chunks of prompts, and perhaps sequences
 *                 that generate
 *     generation  step + d x sequences + c x reads
 *                 an iteration without chunks
 *     transfer    start + a x bytes
 *
 * A pair is a token and a position that it attends to: n tokens from position p
 * on make n x p + n (n + 1) / 2 of them. A read is a position whose K and V an
 * iteration reads, once for a chunk or a sequence: p + n of them.
 *
 * A Kalman filter of the factors, which drift, by the relative error: a memory
 * of some 100 steps, less while all of them are slower than predicted. No
 * factor is ever below 0. A step that took much longer or shorter than all
 * others counts no more than one at the edge of what is usual: a machine that
 * was busy with something else teaches nothing, and one that stays slower is
 * believed after a while. What is not seen for long keeps what was last known
 * of it, but less surely: where no step of a kind was measured for more than
 * BT_SCHED_COST_REST_US the next one may say that the machine is another by
 * now. All factors are then moved together by what it took, and a step that was
 * quicker than predicted is believed however much quicker it was. So one slow
 * measurement before a rest does not outlast a few after it. Until a kind has
 * been measured its line is a guess, of a millisecond for a token.
 *
 * A generation's line is of the worker's own cores: what was computed on lent
 * ones is added as if it had not been, for they go back to their owner when he
 * has work, and what a sequence was promised must hold then. A context phase's
 * line is of whatever it had: its core comes back to it with the next prompt.
 *
 * Threads: pure; whoever has one owns it.
 * Source:  L. Ljung, "System Identification", 2nd ed., section 11.2 (recursive
 *          least squares; the filter is its form for factors that drift); P.
 * Huber, "Robust Estimation of a Location Parameter", 1964 (the clipped
 * residual).
 */
#ifndef BT_COMMON_SCHED_COST_H
#define BT_COMMON_SCHED_COST_H

#include <stdbool.h>
#include <stdint.h>

#define BT_SCHED_COST_TERMS 5u
/** Steps that are no further apart follow each other: nothing ages between. */
#define BT_SCHED_COST_REST_US 500000u

typedef enum bt_sched_cost_kind {
    BT_SCHED_COST_CONTEXT,
    BT_SCHED_COST_GENERATION,
    BT_SCHED_COST_TRANSFER,
    BT_SCHED_N_COSTS,
} bt_sched_cost_kind_t;

/** What an iteration computes. */
typedef struct bt_sched_step {
    uint32_t n_tokens; /**< of chunks */
    uint64_t pairs;    /**< of those */
    uint32_t n_seqs;   /**< in their generation phase */
    uint64_t reads;    /**< of both */
    /** Of one that was measured: what its worker's own threads would have taken
     *  for what was computed on lent cores. 0: nothing was. */
    uint64_t lent_ns;
    /** Of one that was measured: when it ended. 0: right after the last one. */
    uint64_t at_us;
} bt_sched_step_t;

/** One line. */
typedef struct bt_sched_fit {
    uint64_t n;                          /**< measured so far */
    double factors[BT_SCHED_COST_TERMS]; /**< in ms, of scale */
    double cov[BT_SCHED_COST_TERMS][BT_SCHED_COST_TERMS];
    double scale;                      /**< of all factors */
    double usual[BT_SCHED_COST_TERMS]; /**< means of the terms */
    /** Of late predictions, relative: means of the error and of its size. */
    double bias, error;
    uint64_t at_us; /**< end of the last one that was measured; 0: not known */
} bt_sched_fit_t;

typedef struct bt_sched_cost {
    bt_sched_fit_t fits[BT_SCHED_N_COSTS];
} bt_sched_cost_t;

/** The lines in whole numbers, to be sent and shown. All are 0 where a kind has
 *  not been measured. */
typedef struct bt_sched_rates {
    uint64_t prefill_step_ns;
    uint64_t prefill_token_ns;
    uint64_t prefill_kilopair_ns; /**< of 1,024 pairs */
    uint64_t prefill_kiloread_ns; /**< of 1,024 reads */
    uint64_t decode_step_ns;
    uint64_t decode_seq_ns;
    uint64_t decode_kiloread_ns;
    uint64_t transfer_start_ns;
    uint64_t transfer_mib_ns;
    /** Mean error of late predictions, in thousandths of the time. */
    uint64_t prefill_error, decode_error, transfer_error;
} bt_sched_rates_t;

void bt_sched_cost_init(bt_sched_cost_t *cost);

/** Pairs of n tokens from a position on. */
static inline uint64_t bt_sched_pairs(uint32_t from, uint32_t n)
{
    return (uint64_t)n * from + (uint64_t)n * ((uint64_t)n + 1) / 2;
}

/** An iteration took so long. One of no tokens and no sequences, or of no time,
 *  or of more than there can be, teaches nothing. */
void bt_sched_cost_learn(bt_sched_cost_t *cost, const bt_sched_step_t *step,
                         uint64_t ns);
/** @param [in] at_us  when it ended; 0: right after the last one */
void bt_sched_cost_learn_transfer(bt_sched_cost_t *cost, uint64_t bytes,
                                  uint64_t ns, uint64_t at_us);

/** @return us, at least 1. */
double bt_sched_cost_step_us(const bt_sched_cost_t *cost,
                             const bt_sched_step_t *step);
double bt_sched_cost_transfer_us(const bt_sched_cost_t *cost, uint64_t bytes);

/** Of a chunk at @a position: what it costs whatever its length, and one token
 *  more of it. us. */
double bt_sched_cost_fixed_us(const bt_sched_cost_t *cost, uint32_t position);
double bt_sched_cost_token_us(const bt_sched_cost_t *cost, uint32_t position);

/** Of the tokens from .. to-1 of a prompt that is computed alone, in chunks of
 *  that size. @return us; 0 of no tokens */
uint64_t bt_sched_cost_prompt_us(const bt_sched_cost_t *cost, uint32_t from,
                                 uint32_t to, uint32_t chunk_tokens);

bt_sched_rates_t bt_sched_cost_rates(const bt_sched_cost_t *cost);

/** The chunks of another process, where it does not say them: a guess, for what
 *  iterations cost by themselves. */
#define BT_SCHED_RATES_CHUNK 256u

/** The same of what another process sends: its context phase alone. Rates
 *  beyond all reason count as none. @return us; 0: not measured there */
uint64_t bt_sched_rates_prompt_us(const bt_sched_rates_t *rates,
                                  uint32_t n_tokens, uint32_t chunk_tokens);
/** ...of the tokens from .. to-1 of a prompt. */
uint64_t bt_sched_rates_rest_us(const bt_sched_rates_t *rates, uint32_t from,
                                uint32_t to, uint32_t chunk_tokens);
/** @return us; 0 where transfers have not been measured, and of no bytes */
uint64_t bt_sched_rates_transfer_us(const bt_sched_rates_t *rates,
                                    uint64_t bytes);

#endif
