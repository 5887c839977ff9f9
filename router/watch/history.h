/* SPDX-License-Identifier: Apache-2.0 */
/** @file history.h
 *
 * Time series of the last 15 minutes in steps of 5 seconds, for each model and
 * for all models together:
 *
 *     events ─▶ series: the current step ──── tick ──▶ ring of points
 *                 counts, two histograms                  180 of each series
 *
 * An event costs a few increments; percentiles are computed when a step ends.
 * Memory is 36 KiB for each model. All series have equal steps: a series that
 * was created later begins with empty points.
 *
 * Pure: the caller passes the time. Threads: one owns it; a copy may be
 * written on another.
 */
#ifndef BT_ROUTER_WATCH_HISTORY_H
#define BT_ROUTER_WATCH_HISTORY_H

#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "router/observe/record.h"

#define BT_HISTORY_STEP_MS 5000u
#define BT_HISTORY_POINTS  180u
#define BT_HISTORY_RANKS   3u         /**< percentiles: 50, 90, 99 */
#define BT_HISTORY_NONE    UINT32_MAX /**< percentile without values */

#define BT_HISTOGRAM_CELLS 512u

/** Latency histogram for percentiles, with a relative error of at most 3.2 %:
 *  the width of a cell is a sixteenth of a power of two. Below 16 us a cell is
 *  a microsecond.
 *
 *      us     0 … 15 | 16 17 … 31 | 32 34 … 62 | 64 68 … | … | 9.5 h and more
 *      cell   0 … 15 | 16  …   31 | 32  …   47 | 48   …  | … | 511
 */
typedef struct bt_latency_histogram {
    uint64_t n;
    uint32_t cells[BT_HISTOGRAM_CELLS];
} bt_latency_histogram_t;

/** Adds a value; O(1), called once for each token. */
static inline void bt_latency_histogram_add(bt_latency_histogram_t *histogram,
                                            uint64_t us)
{
    uint32_t cell = (uint32_t)us;

    if (us >= 16) {
        const uint32_t power = 63 - (uint32_t)__builtin_clzll(us);

        cell = (power - 3) * 16 + ((uint32_t)(us >> (power - 4)) & 15u);
        cell = (cell < BT_HISTOGRAM_CELLS) ? cell : BT_HISTOGRAM_CELLS - 1;
    }
    histogram->cells[cell]++;
    histogram->n++;
}

void bt_latency_histogram_merge(bt_latency_histogram_t *into,
                                const bt_latency_histogram_t *from);
/** Returns the value of a percentile: the middle of its cell.
 *  @param percent  above 0, at most 100
 *  @return 0 for an empty histogram */
uint64_t
bt_latency_histogram_percentile(const bt_latency_histogram_t *histogram,
                                uint32_t percent);

typedef struct bt_history_point {
    uint32_t begun, ended, failed, canceled, refused, reruns;
    uint32_t waiting, running; /**< highest in the step */
    uint32_t ttft_targets, ttft_met, itl_targets, itl_met;
    uint32_t ttft_us[BT_HISTORY_RANKS], itl_us[BT_HISTORY_RANKS];
    uint64_t in_tokens, out_tokens;
} bt_history_point_t;

typedef struct bt_series {
    bt_list_t link;                        /**< in bt_history_t.models */
    char name[BT_CONFIG_MODEL_NAME_BYTES]; /**< "": all models */
    bt_history_point_t now;                /**< the current step */
    bt_latency_histogram_t ttft, itl;      /**< times in the current step */
    bt_history_point_t points[BT_HISTORY_POINTS]; /**< a ring */
} bt_series_t;

typedef struct bt_history {
    bt_list_t models;
    bt_series_t all;   /**< events without a model; totals at a step's end */
    uint64_t end_us;   /**< end of the current step */
    uint64_t n_points; /**< steps that have ended */
    uint64_t unix_ms[BT_HISTORY_POINTS]; /**< end of each step; a ring */
} bt_history_t;

BT_MUST_CHECK bt_status_t bt_history_create(uint64_t now_us,
                                            bt_history_t **history_p);
void bt_history_destroy(bt_history_t *history); /**< NULL is allowed */
/** Returns the series of a model, created on first use; the series is never
 *  removed.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_history_series(bt_history_t *history,
                                            const char *name,
                                            bt_series_t **series_p);
/** Ends the steps that are over; call every 50 ms or so.
 *  @param unix_ms  current time of day */
void bt_history_tick(bt_history_t *history, uint64_t now_us, uint64_t unix_ms);
/** Copies the history, so that another thread may write it.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_history_copy(const bt_history_t *history,
                                          bt_history_t **copy_p);
/** Writes the history as the fields step_ms, unix_ms and series.
 *  @param n_latest  number of latest points; fewer if fewer exist */
void bt_history_write(const bt_history_t *history, uint64_t n_latest,
                      bt_json_t *json);

/* ---- events of a model ---- */

static inline void bt_series_begun(bt_series_t *series, uint32_t n_prompt)
{
    series->now.begun++;
    series->now.in_tokens += n_prompt;
}

static inline void bt_series_first_token(bt_series_t *series, uint64_t us)
{
    series->now.out_tokens++;
    bt_latency_histogram_add(&series->ttft, us);
}

static inline void bt_series_next_token(bt_series_t *series, uint64_t us)
{
    series->now.out_tokens++;
    bt_latency_histogram_add(&series->itl, us);
}

/** Counts a generation that is over, with any result. */
void bt_series_ledger(bt_series_t *series, const bt_ledger_t *ledger);
static inline void bt_series_rerun(bt_series_t *series)
{
    series->now.reruns++;
}
/** Counts a request that was rejected.
 *  @param series  the series of all models if the request named no model */
static inline void bt_series_refused(bt_series_t *series)
{
    series->now.refused++;
}
/** Records the current numbers of waiting and running requests. The series of
 *  all models is the sum. */
void bt_series_levels(bt_series_t *series, uint32_t waiting, uint32_t running);

#endif
