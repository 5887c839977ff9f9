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

BT_MUST_CHECK bt_status_t bt_metrics_create(bt_metrics_t **metrics_p);
void bt_metrics_destroy(bt_metrics_t *metrics);

/** @a buckets: ascending upper bounds without +Inf, for histograms only. */
BT_MUST_CHECK bt_status_t bt_metrics_family(bt_metrics_t *metrics,
                                            bt_metric_type_t type,
                                            const char *name, const char *help,
                                            const double *buckets,
                                            uint32_t n_buckets,
                                            bt_metric_family_t **family_p);

/** Add a series. @a labels: `k1="v1",k2="v2"`, already in wanted order and
 *  escaped (bt_metrics_escape). For histograms `le` is put last.
 *  @retval BT_ERR_EXISTS */
BT_MUST_CHECK bt_status_t bt_metrics_series(bt_metric_family_t *family,
                                            const char *labels,
                                            bt_metric_t **metric_p);
void bt_metric_set(bt_metric_t *metric, double value);     /**< gauge */
void bt_metric_add(bt_metric_t *metric, double value);     /**< both; counters
                                                 only by value >= 0 */
void bt_metric_observe(bt_metric_t *metric, double value); /**< histogram */
double bt_metric_value(const bt_metric_t *metric); /**< histogram: the sum */

/** Append all families in order of creation, `# HELP` and `# TYPE` each. */
void bt_metrics_render(const bt_metrics_t *metrics, bt_strbuf_t *out);
/** Escape a label value (backslash, quote, newline). */
void bt_metrics_escape(const char *value, bt_strbuf_t *out);

#endif
