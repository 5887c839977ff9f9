/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_slo.h
 *
 * Latency targets (SLO) of a request: time to first token and mean inter-token
 * latency. Both are forecast from measured step times (sched_cost.h) before any
 * work is done; a request that cannot be served in time is rejected at once,
 * with the time after which to retry, so that the others meet their targets.
 *
 *     time to first token   the prefills queued before it, its own, and, if
 *                           all seats are taken, the time until enough are
 *                           free for it and the requests before it
 *     inter-token latency   an iteration of the worker that would generate,
 *                           with one more sequence
 *
 * A forecast includes the recent mean error and the safety factor for promised
 * requests (sched_cost.h). While steps have not been measured nothing
 * is rejected.
 *
 * A worker with an inter-token latency target runs no more sequences at a time
 * than meet it: bt_sched_rates_seats().
 *
 * Threads: pure.
 * Source:  Zhong et al., "DistServe", OSDI 2024 (goodput under targets of TTFT
 *          and TPOT); Qin et al., "Mooncake", FAST 2025, section 7 (early
 *          rejection by prediction).
 */
#ifndef BT_COMMON_SCHED_SCHED_SLO_H
#define BT_COMMON_SCHED_SCHED_SLO_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/sched/sched_cost.h"

/** Upper limit of a retry time, in seconds. */
#define BT_SCHED_RETRY_MOST_S 600u

/** Latency targets of a request. 0: none. */
typedef struct bt_sched_slo {
    uint32_t ttft_ms;
    uint32_t itl_ms; /**< mean of an answer */
} bt_sched_slo_t;

/** Inputs of the forecast for a request. */
typedef struct bt_sched_forecast {
    uint64_t ahead_us;  /**< prefills before it, where they take the least */
    uint64_t prompt_us; /**< the request's own prefill */
    uint32_t n_over;    /**< seats that must become free, its own included;
                             0: one is free */
    uint64_t seat_us;   /**< time between two seats becoming free */
    uint64_t step_us;   /**< an iteration with it; 0: not measured */
    uint32_t error;     /**< recent mean error, thousandths of a forecast */
    /** Safety factors of the forecasts of TTFT and of inter-token latency,
     *  in thousandths (sched_cost.h); 0 counts as 1000. */
    uint32_t first_factor, between_factor;
} bt_sched_forecast_t;

typedef enum bt_sched_slo_verdict {
    BT_SCHED_SLO_MET,
    BT_SCHED_TTFT_MISSED, /**< time to first token */
    BT_SCHED_ITL_MISSED,  /**< inter-token latency */
} bt_sched_slo_verdict_t;

/** Return the forecast TTFT and inter-token latency in us, with mean error
 *  and safety factor. */
uint64_t bt_sched_forecast_ttft_us(const bt_sched_forecast_t *outlook);
uint64_t bt_sched_forecast_itl_us(const bt_sched_forecast_t *outlook);

/**
 * Compares a forecast with the targets.
 * @param [out] retry_s_p  Set only if a target is missed: seconds until it
 *     would be met if no other request came; at least 1.
 */
bt_sched_slo_verdict_t bt_sched_slo_check(const bt_sched_slo_t *target,
                                          const bt_sched_forecast_t *outlook,
                                          uint32_t *retry_s_p);

/**
 * Returns the time of an iteration of n sequences, each with @a context_tokens
 * tokens in its cache.
 * @return us; 0: not measured there
 */
uint64_t bt_sched_rates_step_us(const bt_sched_rates_t *rates, uint32_t n_seqs,
                                uint32_t context_tokens);

/**
 * Returns the most sequences whose iteration takes at most itl_us.
 * @return 1 to max_seats; max_seats if nothing was measured
 */
uint32_t bt_sched_rates_seats(const bt_sched_rates_t *rates,
                              uint32_t context_tokens, uint64_t itl_us,
                              uint32_t max_seats);

/*
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
 * generating workers (sched_pipeline.h) costs the batch its time wherever
 * it is computed: here the batch waits for its chunks, there the batch sleeps
 * for it. Then the loss is 0, unless an inter-token latency was promised. A
 * prefill here spends that time more directly, and a worker with prefills does
 * not sleep.
 *
 * A running static batch (sched_admit.h) admits nothing: away.
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

/*
 * Estimate of which prompt prefixes workers have the KV of, from what was sent
 * to them: hashes of the blocks that they computed or received, each with
 * everything before it. A worker may have evicted a block since, and if two
 * hashes collide in the table the later one stays. Used for forecasts only.
 *
 *     whose    number of the worker's process; its entries end with the process
 *     space    bt_msg_request_t.space: tenant, adapter, salt
 *
 * Bounded: one table for all workers, and of each prompt the first
 * BT_SCHED_PREFIX_MAX_BLOCKS blocks.
 *
 * Threads: one thread owns a table.
 */

#define BT_SCHED_PREFIX_SLOTS      16384u
#define BT_SCHED_PREFIX_MAX_BLOCKS (BT_SCHED_PREFIX_SLOTS / 8)

/** Hash table of prompt blocks. All zero: empty. */
typedef struct bt_sched_prefix_estimate {
    uint64_t slots[BT_SCHED_PREFIX_SLOTS]; /**< 0: free */
} bt_sched_prefix_estimate_t;

/** Records that a worker has the whole blocks of these tokens. */
void bt_sched_prefix_estimate_add(bt_sched_prefix_estimate_t *held,
                                  uint64_t whose, bt_hash128_t space,
                                  const uint32_t *tokens, uint32_t n,
                                  uint32_t tokens_per_block);
/** Returns how many of the first tokens a worker has: whole blocks. */
uint32_t bt_sched_prefix_estimate_find(const bt_sched_prefix_estimate_t *held,
                                       uint64_t whose, bt_hash128_t space,
                                       const uint32_t *tokens, uint32_t n,
                                       uint32_t tokens_per_block);

#endif
