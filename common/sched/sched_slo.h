/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_slo.h
 *
 * Forecasts with which the router admits and places requests, in three parts:
 *
 *     latency targets   reject a request that would miss its SLO
 *     disaggregation    compute a prompt at a prefill or at the decode worker
 *     prefix estimate   which prompt prefixes a worker has in its KV cache
 *
 * Latency targets (SLO) of a request: time to first token (TTFT) and mean
 * inter-token latency (ITL). Both are forecast from measured step times
 * (sched_cost.h) before any work is done. A request that cannot be served in
 * time is rejected at once, with the time after which to retry, so that the
 * other requests meet their targets.
 *
 *     TTFT   the request's own prefill, after the longer of: the prefills
 *            queued before it; the time until enough seats are free for it and
 *            the requests before it
 *     ITL    one iteration of the decode worker, with one more sequence
 *
 * A forecast is increased by the recent mean error, and multiplied by the
 * safety factor for promised requests (sched_cost.h). Nothing is rejected until
 * steps have been measured.
 *
 * A worker with an ITL target runs at most as many sequences at a time as meet
 * the target: bt_sched_rates_seats().
 *
 * Threads: pure functions.
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

/** Longest retry time that a rejection gives, in seconds. */
#define BT_SCHED_RETRY_MOST_S 600u

/** Latency targets of a request, in ms. 0: no target. */
typedef struct bt_sched_slo {
    uint32_t ttft_ms; /**< time to first token */
    uint32_t itl_ms;  /**< inter-token latency: mean of the answer */
} bt_sched_slo_t;

/** Returns the targets of the first, and those of the second that it lacks. */
static inline bt_sched_slo_t bt_sched_slo_or(bt_sched_slo_t own,
                                             bt_sched_slo_t other)
{
    return (bt_sched_slo_t){
        .ttft_ms = (own.ttft_ms > 0) ? own.ttft_ms : other.ttft_ms,
        .itl_ms = (own.itl_ms > 0) ? own.itl_ms : other.itl_ms,
    };
}

/** Inputs of the forecast for a request. */
typedef struct bt_sched_forecast {
    uint64_t ahead_us;  /**< prefills queued before the request, at the worker
                             where its prefill ends first, us */
    uint64_t prompt_us; /**< the request's own prefill, us */
    uint32_t n_over;    /**< seats that must become free before the request has
                             one, its own included; 0: one is free */
    uint64_t seat_us;   /**< mean time between two seats becoming free, us */
    uint64_t step_us;   /**< an iteration with the request, us; 0: not measured
                         */
    uint32_t error;     /**< recent mean error of forecasts, in thousandths */
    /** Safety factors of the TTFT and of the ITL forecast, in thousandths
     *  (sched_cost.h); 0 counts as 1000. */
    uint32_t first_factor, between_factor;
} bt_sched_forecast_t;

/** Result of comparing a forecast with the targets. */
typedef enum bt_sched_slo_verdict {
    BT_SCHED_SLO_MET,     /**< both targets would be met */
    BT_SCHED_TTFT_MISSED, /**< time to first token would be too long */
    BT_SCHED_ITL_MISSED,  /**< inter-token latency would be too long */
} bt_sched_slo_verdict_t;

/** Returns the forecast TTFT in us, with mean error and safety factor. */
uint64_t bt_sched_forecast_ttft_us(const bt_sched_forecast_t *outlook);
/** Returns the forecast ITL in us, with mean error and safety factor; 0: not
 *  measured. */
uint64_t bt_sched_forecast_itl_us(const bt_sched_forecast_t *outlook);

/**
 * Compares a forecast with the targets: TTFT first, then ITL.
 * @param [out] retry_s_p  Written only if a target is missed: seconds until it
 *     would be met if no other request came; 1 to BT_SCHED_RETRY_MOST_S.
 */
bt_sched_slo_verdict_t bt_sched_slo_check(const bt_sched_slo_t *target,
                                          const bt_sched_forecast_t *outlook,
                                          uint32_t *retry_s_p);

/**
 * Returns the duration of an iteration that generates for @a n_seqs sequences,
 * each with @a context_tokens tokens in the KV cache.
 * @return us; 0: not measured
 */
uint64_t bt_sched_rates_step_us(const bt_sched_rates_t *rates, uint32_t n_seqs,
                                uint32_t context_tokens);

/**
 * Returns the largest number of sequences whose iteration takes at most
 * @a itl_us, each with @a context_tokens tokens in the KV cache.
 * @return 1 to max_seats; max_seats if nothing was measured
 */
uint32_t bt_sched_rates_seats(const bt_sched_rates_t *rates,
                              uint32_t context_tokens, uint64_t itl_us,
                              uint32_t max_seats);

/*
 * Disaggregation: decides where a prompt is computed.
 *
 *     away   at a prefill worker, which sends the KV to the decode worker
 *     here   at the decode worker itself, whose batch waits meanwhile
 *
 * All terms are in us and come from measured step and transfer times
 * (sched_cost.h):
 *
 *     away = prefills queued before the prompt at the prefill worker
 *          + the prompt's prefill there, without the tokens cached there
 *          + the transfer of the KV that the decode worker does not have
 *     here = prefills queued before the prompt at the decode worker
 *          + the prompt's prefill there, without the tokens cached there
 *          + the iterations of the batch in between: prefill gets the rest of
 *            BT_SCHED_DISAGG_ITL_US after each (sched_chunk.h), or as long as
 *            the iteration if that takes half of it or more
 *     loss = the prompt's prefill at the decode worker x the sequences that
 *            generate there when it begins, because each of them waits for that
 *            time in all
 *
 *     choose here, if here + loss < away
 *
 * Both times end when the request generates at the decode worker. A microsecond
 * of its wait counts as much as a microsecond of a sequence in the batch. So
 * with an empty batch the faster way is taken, and otherwise the request must
 * gain more than the whole batch loses. The transfer counts as if it did not
 * overlap the prefill.
 *
 * Loss is 0 for a prompt that would wait at the prefill worker until it wants
 * the cores of generating workers (sched_pipeline.h), because the batch then
 * loses that time either way: here it waits for the chunks, away it sleeps for
 * the prompt. A prefill here uses that time more directly, and a worker with
 * prefills does not sleep. If an ITL was promised to a sequence of the batch,
 * the loss counts nevertheless.
 *
 * Always away: a static batch that runs (sched_admit.h), because it admits
 * nothing; and a rate that is not known. Where a worker has no rates of its
 * own, the caller substitutes those of another worker of the model. A transfer
 * that has not been measured counts as 0.
 *
 * A way that is not taken is not measured, so its forecast ages. If a way was
 * last taken more than BT_SCHED_DISAGG_REST_US before the other one, its time
 * is halved for each further BT_SCHED_DISAGG_HALF_US. So a way that was slow
 * once is tried again: with twice the time of the other way after 20 s, with a
 * hundred times after 77 s. A forecast ages only while no prefill is queued
 * there and, for here, no batch would wait.
 *
 * No hysteresis: the result for one prompt is not used for the next one, and
 * prompts already sent either way count at once.
 *
 * Threads: pure functions.
 * Source:  Zhong et al., "DistServe", OSDI 2024, section 2 (what a context
 *          phase beside a batch costs both); Qin et al., "Mooncake", FAST 2025,
 *          section 6.1 (a prompt goes where its first token is forecast to be
 *          soonest, KV that is there counted).
 */

/** Assumed longest iteration of a decode worker beside prefill, in us: the
 *  default of `--itl-budget-ms`. Workers do not report theirs. */
#define BT_SCHED_DISAGG_ITL_US 50000u

/** Worker that could compute a prompt. */
typedef struct bt_sched_site {
    bt_sched_rates_t rates; /**< prefill rates of this worker, or of another
                                 worker of the model if it has none */
    uint64_t ahead_us;      /**< prefills queued before the prompt, us */
    uint32_t n_held;        /**< leading tokens of the prompt that are cached */
} bt_sched_site_t;

/** Inputs of the decision for one prompt. */
typedef struct bt_sched_disagg {
    uint32_t n_tokens;          /**< prompt tokens, at least 1 */
    uint32_t chunk_tokens;      /**< tokens of one prefill chunk, at least 1 */
    bt_sched_site_t away, here; /**< prefill worker, decode worker */
    uint64_t transfer_bytes;    /**< KV to transfer if away; 0: none */
    /** Transfer rates of the sending worker. */
    bt_sched_rates_t transfer_rates;
    /* The rest is about the decode worker. */
    bt_sched_rates_t batch_rates; /**< rates of its generation steps */
    uint32_t n_running;           /**< sequences that generate now */
    uint32_t n_before;       /**< prefills in here.ahead_us, which will generate
                                  when the prompt begins */
    bool is_promised;        /**< a sequence of the batch has an ITL target */
    bool is_static;          /**< the batch admits nothing while it runs */
    uint32_t context_tokens; /**< mean context length of a sequence */
} bt_sched_disagg_t;

/** Forecast times of both ways, in us. */
typedef struct bt_sched_disagg_times {
    bool is_known; /**< false: a rate is not known, and the rest is 0 */
    uint64_t away_us, here_us, loss_us;
    /** True while no prefill is queued at the prefill worker; at the decode
     *  worker neither a prefill nor a batch. Then the way may be tried again
     *  after it was not taken for long. */
    bool is_away_free, is_here_free;
} bt_sched_disagg_times_t;

/** Time in us for which the forecast of a way that is not taken stays valid. */
#define BT_SCHED_DISAGG_REST_US 10000000u
/** Further time in us after which such a forecast is halved. */
#define BT_SCHED_DISAGG_HALF_US 10000000u

/** Forecasts the times of both ways for one prompt. */
bt_sched_disagg_times_t
bt_sched_disagg_forecast(const bt_sched_disagg_t *local);
/**
 * Decides whether the decode worker computes the prompt.
 * @param [in] away_at_us  When the prefill worker was last sent a prompt for
 *                         which this decision was made.
 * @param [in] here_at_us  When the decode worker was. Both by one clock, any.
 * @return true: both phases at the decode worker; false: prefill worker
 */
bool bt_sched_disagg_is_local(const bt_sched_disagg_times_t *ways,
                              uint64_t away_at_us, uint64_t here_at_us);

/*
 * Prefix estimate: the router's guess of which prompt prefixes the workers have
 * in their KV caches. For each block that a worker computed or received as
 * ordered by the router, the table has one hash, of the block's tokens and
 * everything before them. A worker may have evicted a block since; and where
 * two hashes use one slot of the table, the later one stays. So the estimate is
 * used for forecasts only.
 *
 *     whose    number of the worker's process: a restarted process has a new
 *              one, so its estimate begins empty
 *     space    cache namespace (bt_msg_request_t.space): tenant, adapter, salt
 *
 * The size is bounded: one table for all workers, and of each prompt only the
 * first BT_SCHED_PREFIX_MAX_BLOCKS blocks.
 *
 * Threads: one thread owns a table.
 */

/** Slots of the table, one hash each. */
#define BT_SCHED_PREFIX_SLOTS 16384u
/** Most blocks of one prompt that are remembered. */
#define BT_SCHED_PREFIX_MAX_BLOCKS (BT_SCHED_PREFIX_SLOTS / 8)

/** Prefix estimate: a hash table of prompt blocks. All zero: empty. */
typedef struct bt_sched_prefix_estimate {
    uint64_t slots[BT_SCHED_PREFIX_SLOTS]; /**< hash of a block; 0: free */
} bt_sched_prefix_estimate_t;

/** Records that a worker has the full blocks of these @a n tokens. */
void bt_sched_prefix_estimate_add(bt_sched_prefix_estimate_t *held,
                                  uint64_t whose, bt_hash128_t space,
                                  const uint32_t *tokens, uint32_t n,
                                  uint32_t tokens_per_block);
/** Returns how many leading tokens a worker probably has: full blocks only. */
uint32_t bt_sched_prefix_estimate_find(const bt_sched_prefix_estimate_t *held,
                                       uint64_t whose, bt_hash128_t space,
                                       const uint32_t *tokens, uint32_t n,
                                       uint32_t tokens_per_block);

#endif
