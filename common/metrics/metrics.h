/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics.h
 *
 * Counters, gauges and histograms in Prometheus text form (version 0.0.4).
 * A family holds its series; a series owns its labels, so a value can never
 * stand at another's label.
 *
 * Threads: one thread owns a registry.
 * Source:  Prometheus exposition formats, text format 0.0.4.
 */
#ifndef BT_COMMON_METRICS_METRICS_H
#define BT_COMMON_METRICS_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

typedef struct bt_metrics bt_metrics_t;
typedef struct bt_metric_family bt_metric_family_t;
typedef struct bt_metric bt_metric_t; /**< one series; lives with registry */

typedef enum bt_metric_type {
    BT_METRIC_COUNTER,
    BT_METRIC_GAUGE,
    BT_METRIC_HISTOGRAM,
} bt_metric_type_t;

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_metrics_create(bt_metrics_t **metrics_p);

/** Ends every family and series too. NULL is allowed. */
void bt_metrics_destroy(bt_metrics_t *metrics);

/**
 * Add a family. Everything is copied.
 *
 * @param [in]  name       `[a-zA-Z_:][a-zA-Z0-9_:]*`
 * @param [in]  help       One line for people; any text.
 * @param [in]  buckets    Histograms only: finite, rising upper bounds without
 *                         +Inf; may be NULL when n_buckets is 0.
 * @param [out] family_p   Lives as long as the registry.
 * @retval BT_ERR_INVALID_PARAM  A bad name or bad buckets.
 * @retval BT_ERR_EXISTS         The name is taken.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_metrics_family(bt_metrics_t *metrics,
                                            bt_metric_type_t type,
                                            const char *name, const char *help,
                                            const double *buckets,
                                            uint32_t n_buckets,
                                            bt_metric_family_t **family_p);

/**
 * Add a series, with the value 0.
 *
 * @param [in]  labels    `k1="v1",k2="v2"`, in wanted order and escaped
 *                        (bt_metrics_escape), or "". For histograms `le` is put
 *                        last. Copied.
 * @param [out] metric_p  Lives as long as the registry.
 * @retval BT_ERR_INVALID_PARAM  Not of that form, or an own `le`.
 * @retval BT_ERR_EXISTS         The family has the same text already.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_metrics_series(bt_metric_family_t *family,
                                            const char *labels,
                                            bt_metric_t **metric_p);

/** Gauges only. */
void bt_metric_set(bt_metric_t *metric, double value);

/** Gauges and counters. A counter never falls: for it anything but a finite
 *  value >= 0 does nothing. */
void bt_metric_add(bt_metric_t *metric, double value);

/** Histograms only; NaN does nothing. O(buckets). */
void bt_metric_observe(bt_metric_t *metric, double value);

/** @return the value; of a histogram, the sum of what was observed. */
double bt_metric_value(const bt_metric_t *metric);

/** @return how many values a histogram observed; 0 for other types. */
uint64_t bt_metric_count(const bt_metric_t *metric);

/** Append all families in order of creation, `# HELP` and `# TYPE` each, and
 *  their series in order of creation. Whole numbers are printed without point
 *  and exponent, others with the fewest digits that read back equal. */
void bt_metrics_render(const bt_metrics_t *metrics, bt_strbuf_t *out);

/** Escape a label value (backslash, quote, newline). */
void bt_metrics_escape(const char *value, bt_strbuf_t *out);

#endif
