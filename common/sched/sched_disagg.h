/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_disagg.h
 *
 * Decides where a prompt is computed: away, at a prefill worker that sends its
 * KV to the decode worker, or here, at the decode worker, whose batch waits
 * meanwhile. All in microseconds, from measured step and transfer times
 * (sched_cost.h):
 *
 *     away = prefills queued before it at the prefill worker
 *          + its own prefill there, of the tokens whose KV is not there
 *          + the transfer of the KV that the decode worker does not have
 *     here = prefills queued before it at the decode worker
 *          + its own prefill there, of the tokens whose KV is not there
 *          + the batch steps in between: prompts get the part of an
 *            iteration that keeps it within the inter-token latency target
 *            (sched_chunk.h)
 *     loss = its own prefill there x the sequences that generate there when
 *            it begins, because each of them waits for that time in all
 *
 *     here, if here + loss < away
 *
 * Both times end when the request generates at the decode worker; a microsecond
 * of its wait weighs as much as one of a sequence in the batch. So with an
 * empty batch the faster way is taken, and otherwise the request must gain more
 * than the whole batch loses. The transfer counts as if it did not overlap the
 * prefill.
 *
 * A prompt that would wait at the prefill worker until it wants the cores of
 * generating workers (sched_core_donation.h) costs the batch its time wherever
 * it is computed: here the batch waits for its chunks, there the batch sleeps
 * for it. Then the loss is 0, unless an inter-token latency was promised. A
 * prefill here spends that time more directly, and a worker with prefills does
 * not sleep.
 *
 * A running static batch (sched_batch.h) admits nothing: away.
 *
 * Away, if a needed rate is unknown: the worker's own, or at least that of
 * another worker of the model, which the caller substitutes. A transfer that
 * has not been measured counts as 0.
 *
 * A way that is not taken is not measured, so its forecast ages: if it was last
 * taken more than BT_SCHED_DISAGG_REST_US before the other, its time halves for
 * each further BT_SCHED_DISAGG_HALF_US. So a way that was slow once, and is
 * still forecast as slow, is tried again: one of twice the time after 20 s, one
 * of a hundred times after 77 s. That applies only while no prefill is queued
 * there and no batch would wait.
 *
 * No hysteresis: the result for one prompt is not used for the next, and
 * prompts already sent either way count at once.
 *
 * Threads: pure.
 * Source:  Zhong et al., "DistServe", OSDI 2024, section 2 (what a context
 *          phase beside a batch costs both); Qin et al., "Mooncake", FAST 2025,
 *          section 6.1 (a prompt goes where its first token is forecast to be
 *          soonest, KV that is there counted).
 */
#ifndef BT_COMMON_SCHED_DISAGG_H
#define BT_COMMON_SCHED_DISAGG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_cost.h"

/** Assumed maximum time of a decode worker's iteration beside prompts, if
 *  the worker does not report its own: the default of `--itl-budget-ms`. */
#define BT_SCHED_DISAGG_ITL_US 50000u

/** Worker that could compute the prompt. */
typedef struct bt_sched_site {
    bt_sched_rates_t rates; /**< prefill rates of this worker, or of another */
    uint64_t ahead_us;      /**< time of the prefills queued before it */
    uint32_t n_held;        /**< first tokens of the prompt whose KV is there */
} bt_sched_site_t;

/** Inputs of the decision for one prompt. */
typedef struct bt_sched_disagg {
    uint32_t n_tokens;     /**< prompt tokens, at least 1 */
    uint32_t chunk_tokens; /**< chunk of an iteration, at least 1 */
    bt_sched_site_t away, here;
    uint64_t transfer_bytes; /**< KV to be transferred; 0: none */
    /** Transfer rates of the sending worker. */
    bt_sched_rates_t transfer_rates;
    /* At the decode worker. */
    bt_sched_rates_t batch_rates;
    uint32_t n_running;      /**< generating sequences */
    uint32_t n_before;       /**< prefills in here.ahead_us, which will
                                  generate */
    bool is_promised;        /**< some of them have inter-token latency
                                  targets */
    bool is_static;          /**< batches are closed while they run */
    uint32_t context_tokens; /**< mean context length of a sequence */
} bt_sched_disagg_t;

/** Forecast times, in us. */
typedef struct bt_sched_disagg_times {
    bool is_known; /**< else the others are 0 */
    uint64_t away_us, here_us, loss_us;
    /** No queued prefill there and no batch: a way that has not been taken
     *  for long may be tried. */
    bool is_away_free, is_here_free;
} bt_sched_disagg_times_t;

#define BT_SCHED_DISAGG_REST_US 10000000u
#define BT_SCHED_DISAGG_HALF_US 10000000u

/** Forecasts the times of both ways. */
bt_sched_disagg_times_t
bt_sched_disagg_forecast(const bt_sched_disagg_t *local);
/**
 * Decides between the two ways.
 * @param [in] away_at_us  when the prefill worker was last sent such a prompt
 * @param [in] here_at_us  when the decode worker was; both by one clock, any
 * @return true: both phases at the decode worker
 */
bool bt_sched_disagg_is_local(const bt_sched_disagg_times_t *ways,
                              uint64_t away_at_us, uint64_t here_at_us);

#endif
