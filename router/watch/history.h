/* SPDX-License-Identifier: Apache-2.0 */
/** @file history.h
 *
 * The last 15 minutes in steps of 5 seconds, of each model and of all of them:
 *
 *     events ─▶ series: the step under way ── tick ──▶ ring of points
 *                 counts, two sketches                   180 of each series
 *
 * An event costs a few increments, whatever else happens; percentiles are made
 * when a step ends. Memory is 36 KiB for each model. All series have the same
 * steps: one that came later has empty points before.
 *
 * Pure: the time comes in. Threads: one owns it; a copy may be written on
 * another.
 */
#ifndef BT_ROUTER_WATCH_HISTORY_H
#define BT_ROUTER_WATCH_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "router/observe/ledger.h"
#include "router/watch/sketch.h"

#define BT_HISTORY_STEP_MS 5000u
#define BT_HISTORY_POINTS  180u
#define BT_HISTORY_RANKS   3u         /**< percentiles: 50, 90, 99 */
#define BT_HISTORY_NONE    UINT32_MAX /**< of a percentile of nothing */

typedef struct bt_history_point {
    uint32_t begun, ended, failed, canceled, refused, reruns;
    uint32_t waiting, running; /**< the highest */
    uint32_t ttft_targets, ttft_met, itl_targets, itl_met;
    uint32_t ttft_us[BT_HISTORY_RANKS], itl_us[BT_HISTORY_RANKS];
    uint64_t in_tokens, out_tokens;
} bt_history_point_t;

typedef struct bt_series {
    bt_list_t link;                               /**< in bt_history_t.models */
    char name[BT_CONFIG_MODEL_NAME_BYTES];        /**< "": of all */
    bt_history_point_t now;                       /**< the step under way */
    bt_sketch_t ttft, itl;                        /**< the same */
    bt_history_point_t points[BT_HISTORY_POINTS]; /**< a ring */
} bt_series_t;

typedef struct bt_history {
    bt_list_t models;
    bt_series_t all; /**< what is of no model here; the sums at a step's end */
    uint64_t end_us; /**< of the step under way */
    uint64_t n_points;                   /**< that ended, ever */
    uint64_t unix_ms[BT_HISTORY_POINTS]; /**< their ends; a ring */
} bt_history_t;

BT_MUST_CHECK bt_status_t bt_history_create(uint64_t now_us,
                                            bt_history_t **history_p);
void bt_history_destroy(bt_history_t *history); /**< NULL is allowed */
/** The series of a model, made when it is asked for first; it stays.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_history_series(bt_history_t *history,
                                            const char *name,
                                            bt_series_t **series_p);
/** Ends the steps that are over; call every 50 ms or so.
 *  @param unix_ms  the time of day now */
void bt_history_tick(bt_history_t *history, uint64_t now_us, uint64_t unix_ms);
/** For another thread to write. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_history_copy(const bt_history_t *history,
                                          bt_history_t **copy_p);
/** Append its fields: step_ms, unix_ms and series.
 *  @param n_latest  points; fewer where there are not so many */
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
    bt_sketch_add(&series->ttft, us);
}

static inline void bt_series_next_token(bt_series_t *series, uint64_t us)
{
    series->now.out_tokens++;
    bt_sketch_add(&series->itl, us);
}

/** A generation is over, however it ended. */
void bt_series_ledger(bt_series_t *series, const bt_ledger_t *ledger);
static inline void bt_series_rerun(bt_series_t *series)
{
    series->now.reruns++;
}
/** A request was turned away. @param series  that of all: of no model */
static inline void bt_series_refused(bt_series_t *series)
{
    series->now.refused++;
}
/** As it is now; of all it is the sum. */
void bt_series_levels(bt_series_t *series, uint32_t waiting, uint32_t running);

#endif
