/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_disagg.h
 *
 * Where a prompt is computed: away, at a prefill worker, from where its KV
 * travels to the decode worker, or here, at the decode worker, whose batch
 * waits meanwhile. All in microseconds, from what steps and transfers were
 * measured to take (sched_cost.h):
 *
 *     away = context phases before it at the prefill worker
 *          + its own there, of the tokens whose KV is not there
 *          + the transfer of the KV that the decode worker does not have
 *     here = context phases before it at the decode worker
 *          + its own there, of the tokens whose KV is not there
 *          + the steps of the batch, which run between: of an iteration prompts
 *            get what keeps it within the target of inter-token latency
 *            (sched_chunk.h)
 *     loss = its own there x the sequences that generate there when its turn
 *            comes, for each of them waits so long in all
 *
 *     here, if here + loss < away
 *
 * The two times are those until the request generates at the decode worker; a
 * microsecond that it waits weighs as much as one that a sequence of the batch
 * waits. So where the batch is empty the sooner way is taken, and where it is
 * not what the request gains is more than all of the batch lose. The transfer
 * counts as if none of it left while the prompt is computed.
 *
 * A prompt that would wait at the prefill worker until it wants the cores of
 * those that generate (sched_core_donation.h) costs them their time wherever it
 * is computed: here they wait for its chunks, there they sleep for it. Then
 * there is no loss, unless a time between tokens was promised. A context phase
 * here is the shorter way to give that time, and while there are any nobody
 * sleeps.
 *
 * A static batch (sched_batch.h) that runs takes nobody in: away.
 *
 * Away, where a rate that it takes is not known: the worker's own, or at least
 * those of another one of the same model, which the caller puts in its place. A
 * transfer that has not been measured counts as none.
 *
 * A way that is not taken is not measured, so what is thought of it ages: where
 * it was taken last more than BT_SCHED_DISAGG_REST_US before the other, its
 * time counts half for each BT_SCHED_DISAGG_HALF_US beyond. So a way that was
 * slow once, and is forecast to be so for ever, is tried again: one of twice
 * the time after 20 s, one of a hundred times after 77 s. That is done where
 * nothing goes before the prompt and no batch waits for it.
 *
 * No hysteresis: the answer for one prompt is not used for the next, and what
 * has been sent either way counts for that one at once.
 *
 * Threads: pure.
 * Source:  Zhong et al., "DistServe", OSDI 2024, section 2 (what a context
 *          phase beside a batch costs both); Qin et al., "Mooncake", FAST 2025,
 *          section 6.1 (a prompt goes where its first token is forecast to be
 *          soonest, KV that is there counted).
 */
#ifndef BT_COMMON_SCHED_LOCAL_H
#define BT_COMMON_SCHED_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_cost.h"

/** What an iteration of a decode worker takes at most beside prompts, where it
 *  does not say it: the default of `--chunk-itl-ms`. */
#define BT_SCHED_DISAGG_ITL_US 50000u

/** A worker that could compute the prompt. */
typedef struct bt_sched_site {
    bt_sched_rates_t rates; /**< the context phase's of it, or of another */
    uint64_t ahead_us;      /**< context phases that go first */
    uint32_t n_held;        /**< first tokens of the prompt whose KV is there */
} bt_sched_site_t;

typedef struct bt_sched_disagg {
    uint32_t n_tokens;     /**< of the prompt, at least 1 */
    uint32_t chunk_tokens; /**< of an iteration, at least 1 */
    bt_sched_site_t away, here;
    uint64_t transfer_bytes; /**< that would travel; 0: none would */
    /** Of the one who would send them. */
    bt_sched_rates_t transfer_rates;
    /* At the decode worker. */
    bt_sched_rates_t batch_rates;
    uint32_t n_running;      /**< sequences that generate */
    uint32_t n_before;       /**< context phases of here.ahead_us: they will */
    bool is_promised;        /**< some of them have targets between tokens */
    bool is_static;          /**< batches are closed while they run */
    uint32_t context_tokens; /**< of each, in the mean */
} bt_sched_disagg_t;

/** us */
typedef struct bt_sched_disagg_times {
    bool is_known; /**< else the others are 0 */
    uint64_t away_us, here_us, loss_us;
    /** Neither prompts that go before, there, nor a batch: a way that nobody
     *  has tried for long may be tried. */
    bool is_away_free, is_here_free;
} bt_sched_disagg_times_t;

#define BT_SCHED_DISAGG_REST_US 10000000u
#define BT_SCHED_DISAGG_HALF_US 10000000u

bt_sched_disagg_times_t
bt_sched_disagg_forecast(const bt_sched_disagg_t *local);
/**
 * @param [in] away_at_us  when the prefill worker was last sent such a prompt
 * @param [in] here_at_us  ...and the decode worker; any clock, the same of both
 * @return true: both phases at the decode worker
 */
bool bt_sched_disagg_is_local(const bt_sched_disagg_times_t *ways,
                              uint64_t away_at_us, uint64_t here_at_us);

#endif
