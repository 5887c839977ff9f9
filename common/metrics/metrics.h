/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics.h
 *
 * Histograms, and a writer of Prometheus' text format (version 0.0.4). Values
 * stay where they are measured; the page is written family by family:
 *
 *     bt_metrics_put_family(out, BT_METRIC_GAUGE, "blocks", "KV blocks");
 *     bt_metrics_put_sample(out, "blocks", "state=\"free\"", 17);
 *
 * Threads: a histogram belongs to one.
 * Source:  Prometheus exposition formats, text format 0.0.4.
 */
#ifndef BT_COMMON_METRICS_METRICS_H
#define BT_COMMON_METRICS_METRICS_H

#include <stdint.h>

#include "common/base/text.h"

#define BT_HISTOGRAM_MAX_BOUNDS 24

typedef enum bt_metric_type {
    BT_METRIC_COUNTER,
    BT_METRIC_GAUGE,
    BT_METRIC_HISTOGRAM,
} bt_metric_type_t;

/** Returns "counter", "gauge" or "histogram". */
const char *bt_metric_type_name(bt_metric_type_t type);

/** Histogram: how often a value was at most each bound. */
typedef struct bt_histogram {
    const double *bounds; /**< borrowed; finite and rising, without +Inf */
    uint32_t n_bounds;    /**< at most BT_HISTOGRAM_MAX_BOUNDS */
    double sum;
    /** Counts per bucket, not cumulative; the one after the last bound is
     *  +Inf. */
    uint64_t counts[BT_HISTOGRAM_MAX_BOUNDS + 1];
} bt_histogram_t;

void bt_histogram_init(bt_histogram_t *hist, const double *bounds,
                       uint32_t n_bounds);
/** Counts a value. NaN does nothing. O(bounds). */
void bt_histogram_observe(bt_histogram_t *hist, double value);

/**
 * Writes `# HELP` and `# TYPE` of a family; its samples must follow.
 * @param [in] name  `[a-zA-Z_:][a-zA-Z0-9_:]*`, once per page
 * @param [in] help  one line for people; any text
 */
void bt_metrics_put_family(bt_strbuf_t *out, bt_metric_type_t type,
                           const char *name, const char *help);
/**
 * Writes a sample, one line. Whole numbers are printed without point and
 * exponent, others with the fewest digits that read back equal.
 * @param [in] labels  `k1="v1",k2="v2"`, values escaped, or ""
 */
void bt_metrics_put_sample(bt_strbuf_t *out, const char *name,
                           const char *labels, double value);
/** Writes the lines of one histogram; `le` is the last label. */
void bt_metrics_put_histogram(bt_strbuf_t *out, const char *name,
                              const char *labels, const bt_histogram_t *hist);
/** Appends `key="value"` to labels, after a comma if there are some; the
 *  value is escaped (backslash, quote, newline), and bytes that are not
 *  UTF-8 become U+FFFD. */
void bt_metrics_put_label(bt_strbuf_t *labels, const char *key,
                          const char *value);

#endif
