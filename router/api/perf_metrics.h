/* SPDX-License-Identifier: Apache-2.0 */
/** @file perf_metrics.h
 *
 * Numbers about a request under the names of TensorRT-LLM's backend:
 * return_perf_metrics and its like.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_API_PERF_METRICS_H
#define BT_ROUTER_API_PERF_METRICS_H

#include <stdint.h>

#include "router/core/core.h"

/* Bits of bt_wants_t.what that the router answers alone. */
#define BT_WANT_PERF_METRICS 0x10000u /**< return_perf_metrics */
#define BT_WANT_KV_REUSE     0x20000u /**< return_kv_cache_reuse_stats */
#define BT_WANT_N_INPUT      0x40000u /**< return_num_input_tokens */
#define BT_WANT_N_OUTPUT     0x80000u /**< return_num_output_tokens */
#define BT_WANT_ANY_PERF     0xF0000u

/** One of the numbers. */
typedef struct bt_perf_metric {
    const char *name; /**< name of the output */
    uint32_t want;    /**< BT_WANT_* that asks for it */
    enum { BT_PERF_INT32, BT_PERF_INT64, BT_PERF_FP32 } type;
    /** Value; a double has all integers up to 2^53, nanoseconds of 104 days. */
    double (*value)(const bt_gen_perf_t *perf);
} bt_perf_metric_t;

#define BT_N_PERF_METRICS 12
extern const bt_perf_metric_t bt_perf_metrics[BT_N_PERF_METRICS];

/** Returns the metric with the name of an output, or NULL. */
const bt_perf_metric_t *bt_perf_metric_named(const char *name);

#endif
