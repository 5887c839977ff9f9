/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/history.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/watch/watch.h"

#define STEP_US (BT_HISTORY_STEP_MS * UINT64_C(1000))

static const uint32_t ranks[BT_HISTORY_RANKS] = {50, 90, 99};

/* ---- histograms ---- */

void bt_latency_histogram_merge(bt_latency_histogram_t *into,
                                const bt_latency_histogram_t *from)
{
    if (from->n == 0) {
        return;
    }
    for (uint32_t i = 0; i < BT_HISTOGRAM_CELLS; i++) {
        into->cells[i] += from->cells[i];
    }
    into->n += from->n;
}

static uint64_t middle_of(uint32_t cell)
{
    if (cell < 16) {
        return cell;
    }
    const uint32_t shift = cell / 16 - 1;
    const uint64_t low = (uint64_t)(16 + cell % 16) << shift;

    return low + (((UINT64_C(1) << shift) - 1) / 2);
}

uint64_t
bt_latency_histogram_percentile(const bt_latency_histogram_t *histogram,
                                uint32_t percent)
{
    /* Nearest rank: the smallest value with at least that many values at or
     * below. */
    const uint64_t rank = (histogram->n * percent + 99) / 100;
    uint64_t below = 0;

    for (uint32_t i = 0; i < BT_HISTOGRAM_CELLS; i++) {
        below += histogram->cells[i];
        if ((below >= rank) && (rank > 0)) {
            return middle_of(i);
        }
    }
    return 0;
}

/* ---- creation and destruction ---- */

bt_status_t bt_history_create(uint64_t now_us, bt_history_t **history_p)
{
    bt_history_t *history = bt_calloc(1, sizeof(*history));

    if (history == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&history->models);
    history->end_us = now_us + STEP_US;
    *history_p = history;
    return BT_OK;
}

void bt_history_destroy(bt_history_t *history)
{
    if (history == NULL) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_series_t, series, &history->models, link) {
        bt_free(series);
    }
    bt_free(history);
}

bt_status_t bt_history_series(bt_history_t *history, const char *name,
                              bt_series_t **series_p)
{
    bt_series_t *made;

    BT_LIST_FOR_EACH_ENTRY(bt_series_t, series, &history->models, link) {
        if (strcmp(series->name, name) == 0) {
            *series_p = series;
            return BT_OK;
        }
    }
    made = bt_calloc(1, sizeof(*made));
    if (made == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    snprintf(made->name, sizeof(made->name), "%s", name);
    for (uint32_t i = 0; i < BT_HISTORY_POINTS; i++) {
        for (uint32_t k = 0; k < BT_HISTORY_RANKS; k++) {
            made->points[i].ttft_us[k] = BT_HISTORY_NONE;
            made->points[i].itl_us[k] = BT_HISTORY_NONE;
        }
    }
    bt_list_push_back(&history->models, &made->link);
    *series_p = made;
    return BT_OK;
}

bt_status_t bt_history_copy(const bt_history_t *history, bt_history_t **copy_p)
{
    bt_history_t *copy = bt_memdup(history, sizeof(*history));

    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&copy->models);
    BT_LIST_FOR_EACH_ENTRY(bt_series_t, series, &history->models, link) {
        bt_series_t *twin = bt_memdup(series, sizeof(*series));

        if (twin == NULL) {
            bt_history_destroy(copy);
            return BT_ERR_NO_MEMORY;
        }
        bt_list_push_back(&copy->models, &twin->link);
    }
    *copy_p = copy;
    return BT_OK;
}

/* ---- events ---- */

void bt_series_ledger(bt_series_t *series, const bt_ledger_t *ledger)
{
    const bt_slo_attainment_t a = bt_slo_attainment_of(ledger);
    bt_history_point_t *now = &series->now;

    now->ended += ledger->ok ? 1 : 0;
    now->canceled += ledger->canceled ? 1 : 0;
    now->failed += (!ledger->ok && !ledger->canceled) ? 1 : 0;
    now->ttft_targets += a.has_ttft ? 1 : 0;
    now->ttft_met += (a.has_ttft && a.met_ttft) ? 1 : 0;
    now->itl_targets += a.has_itl ? 1 : 0;
    now->itl_met += (a.has_itl && a.met_itl) ? 1 : 0;
}

void bt_series_levels(bt_series_t *series, uint32_t waiting, uint32_t running)
{
    bt_history_point_t *now = &series->now;

    now->waiting = (waiting > now->waiting) ? waiting : now->waiting;
    now->running = (running > now->running) ? running : now->running;
}

/* ---- steps ---- */

static void percentiles(const bt_latency_histogram_t *histogram,
                        uint32_t us[BT_HISTORY_RANKS])
{
    for (uint32_t i = 0; i < BT_HISTORY_RANKS; i++) {
        const uint64_t value =
            bt_latency_histogram_percentile(histogram, ranks[i]);

        us[i] = (histogram->n == 0)          ? BT_HISTORY_NONE
                : (value >= BT_HISTORY_NONE) ? BT_HISTORY_NONE - 1
                                             : (uint32_t)value;
    }
}

static void add_up(bt_series_t *all, const bt_series_t *series)
{
    const bt_history_point_t *from = &series->now;
    bt_history_point_t *into = &all->now;

    into->begun += from->begun;
    into->ended += from->ended;
    into->failed += from->failed;
    into->canceled += from->canceled;
    into->refused += from->refused;
    into->reruns += from->reruns;
    into->ttft_targets += from->ttft_targets;
    into->ttft_met += from->ttft_met;
    into->itl_targets += from->itl_targets;
    into->itl_met += from->itl_met;
    into->in_tokens += from->in_tokens;
    into->out_tokens += from->out_tokens;
    bt_latency_histogram_merge(&all->ttft, &series->ttft);
    bt_latency_histogram_merge(&all->itl, &series->itl);
}

static void end_step(bt_series_t *series, uint64_t at)
{
    percentiles(&series->ttft, series->now.ttft_us);
    percentiles(&series->itl, series->now.itl_us);
    series->points[at] = series->now;
    series->now = (bt_history_point_t){0};
    series->ttft = (bt_latency_histogram_t){0};
    series->itl = (bt_latency_histogram_t){0};
}

void bt_history_tick(bt_history_t *history, uint64_t now_us, uint64_t unix_ms)
{
    /* After a stall longer than the ring, only the last steps are kept. */
    if (now_us >= history->end_us + BT_HISTORY_POINTS * STEP_US) {
        history->end_us += (now_us - history->end_us) / STEP_US * STEP_US;
    }
    while (now_us >= history->end_us) {
        const uint64_t at = history->n_points % BT_HISTORY_POINTS;

        BT_LIST_FOR_EACH_ENTRY(bt_series_t, series, &history->models, link) {
            add_up(&history->all, series);
            end_step(series, at);
        }
        end_step(&history->all, at);
        history->unix_ms[at] = unix_ms - (now_us - history->end_us) / 1000;
        history->n_points++;
        history->end_us += STEP_US;
    }
}

/* ---- JSON ---- */

typedef enum kind { COUNT, TOKENS, RANKS } kind_t;

typedef struct column {
    const char *name;
    kind_t kind;
    size_t offset; /* in bt_history_point_t */
} column_t;

#define COLUMN(name, kind, field)                       \
    {                                                   \
        name, kind, offsetof(bt_history_point_t, field) \
    }

static const column_t columns[] = {
    COLUMN("begun", COUNT, begun),
    COLUMN("ended", COUNT, ended),
    COLUMN("failed", COUNT, failed),
    COLUMN("canceled", COUNT, canceled),
    COLUMN("refused", COUNT, refused),
    COLUMN("rerun", COUNT, reruns),
    COLUMN("in_tokens", TOKENS, in_tokens),
    COLUMN("out_tokens", TOKENS, out_tokens),
    COLUMN("ttft_p50_ms", RANKS, ttft_us[0]),
    COLUMN("ttft_p90_ms", RANKS, ttft_us[1]),
    COLUMN("ttft_p99_ms", RANKS, ttft_us[2]),
    COLUMN("itl_p50_ms", RANKS, itl_us[0]),
    COLUMN("itl_p90_ms", RANKS, itl_us[1]),
    COLUMN("itl_p99_ms", RANKS, itl_us[2]),
    COLUMN("waiting", COUNT, waiting),
    COLUMN("running", COUNT, running),
    COLUMN("ttft_targets", COUNT, ttft_targets),
    COLUMN("ttft_met", COUNT, ttft_met),
    COLUMN("itl_targets", COUNT, itl_targets),
    COLUMN("itl_met", COUNT, itl_met),
};

static void write_value(const bt_history_point_t *point, const column_t *column,
                        bt_json_t *json)
{
    const char *at = (const char *)point + column->offset;
    uint32_t small;
    uint64_t large;

    if (column->kind == TOKENS) {
        memcpy(&large, at, sizeof(large));
        bt_json_u64(json, NULL, large);
        return;
    }
    memcpy(&small, at, sizeof(small));
    if (column->kind == COUNT) {
        bt_json_u64(json, NULL, small);
    } else if (small == BT_HISTORY_NONE) {
        bt_json_null(json, NULL);
    } else {
        bt_write_ms(json, NULL, small);
    }
}

static void write_series(const bt_history_t *history, const bt_series_t *series,
                         uint64_t first, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "model", (series->name[0] != '\0') ? series->name : NULL);
    for (size_t i = 0; i < BT_ARRAY_LEN(columns); i++) {
        bt_json_array(json, columns[i].name);
        for (uint64_t n = first; n < history->n_points; n++) {
            write_value(&series->points[n % BT_HISTORY_POINTS], &columns[i],
                        json);
        }
        bt_json_end_array(json);
    }
    bt_json_end_object(json);
}

void bt_history_write(const bt_history_t *history, uint64_t n_latest,
                      bt_json_t *json)
{
    uint64_t n = history->n_points;
    uint64_t first;

    n = (n < BT_HISTORY_POINTS) ? n : BT_HISTORY_POINTS;
    n = (n < n_latest) ? n : n_latest;
    first = history->n_points - n;
    bt_json_u64(json, "step_ms", BT_HISTORY_STEP_MS);
    bt_json_array(json, "unix_ms");
    for (uint64_t i = first; i < history->n_points; i++) {
        bt_json_u64(json, NULL, history->unix_ms[i % BT_HISTORY_POINTS]);
    }
    bt_json_end_array(json);
    bt_json_array(json, "series");
    write_series(history, &history->all, first, json);
    BT_LIST_FOR_EACH_ENTRY(bt_series_t, series, &history->models, link) {
        write_series(history, series, first, json);
    }
    bt_json_end_array(json);
}
