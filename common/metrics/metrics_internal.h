/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics_internal.h
 *
 * What the registry and its renderer share.
 *
 *     registry ──families──▶ family ──series──▶ metric (labels, value, counts)
 */
#ifndef BT_COMMON_METRICS_METRICS_INTERNAL_H
#define BT_COMMON_METRICS_METRICS_INTERNAL_H

#include "common/base/list.h"
#include "common/metrics/metrics.h"

struct bt_metrics {
    bt_list_t families;
};

struct bt_metric_family {
    bt_list_t link;
    bt_list_t series;
    bt_metric_type_t type;
    char *name;      /* owned */
    char *help;      /* owned, not yet escaped */
    double *buckets; /* owned; NULL when there are none */
    uint32_t n_buckets;
};

struct bt_metric {
    bt_list_t link;
    const bt_metric_family_t *family;
    char *labels;     /* owned, escaped, without braces */
    double value;     /* histograms: the sum */
    uint64_t *counts; /* owned; per bucket, not cumulative; the last is +Inf */
};

#endif
