/* SPDX-License-Identifier: Apache-2.0 */
#include "router/api/perf_metrics.h"

#include <string.h>

#define VALUE(name, expression)                   \
    static double name(const bt_gen_perf_t *perf) \
    {                                             \
        return (double)(expression);              \
    }

VALUE(new_blocks, perf->n_blocks - perf->n_reused_blocks)
VALUE(reused_blocks, perf->n_reused_blocks)
VALUE(total_blocks, perf->n_blocks)
VALUE(arrival, perf->arrival_us * 1000)
VALUE(first_scheduled, perf->first_scheduled_us * 1000)
VALUE(first_token, perf->first_token_us * 1000)
VALUE(last_token, perf->last_token_us * 1000)
VALUE(acceptance,
      (perf->n_drafted > 0) ? (double)perf->n_accepted / perf->n_drafted : 0.0)
VALUE(accepted, perf->n_accepted)
VALUE(drafted, perf->n_drafted)
VALUE(n_input, perf->n_prompt)
VALUE(n_output, perf->n_output)

const bt_perf_metric_t bt_perf_metrics[BT_N_PERF_METRICS] = {
    {"kv_cache_alloc_new_blocks", BT_WANT_KV_REUSE, BT_PERF_INT32, new_blocks},
    {"kv_cache_reused_blocks", BT_WANT_KV_REUSE, BT_PERF_INT32, reused_blocks},
    {"kv_cache_alloc_total_blocks", BT_WANT_KV_REUSE, BT_PERF_INT32,
     total_blocks},
    {"arrival_time_ns", BT_WANT_PERF_METRICS, BT_PERF_INT64, arrival},
    {"first_scheduled_time_ns", BT_WANT_PERF_METRICS, BT_PERF_INT64,
     first_scheduled},
    {"first_token_time_ns", BT_WANT_PERF_METRICS, BT_PERF_INT64, first_token},
    {"last_token_time_ns", BT_WANT_PERF_METRICS, BT_PERF_INT64, last_token},
    {"acceptance_rate", BT_WANT_PERF_METRICS, BT_PERF_FP32, acceptance},
    {"total_accepted_draft_tokens", BT_WANT_PERF_METRICS, BT_PERF_INT32,
     accepted},
    {"total_draft_tokens", BT_WANT_PERF_METRICS, BT_PERF_INT32, drafted},
    {"num_input_tokens", BT_WANT_N_INPUT, BT_PERF_INT32, n_input},
    {"num_output_tokens", BT_WANT_N_OUTPUT, BT_PERF_INT32, n_output},
};

const bt_perf_metric_t *bt_perf_metric_named(const char *name)
{
    for (unsigned i = 0; i < BT_N_PERF_METRICS; i++) {
        if (strcmp(bt_perf_metrics[i].name, name) == 0) {
            return &bt_perf_metrics[i];
        }
    }
    return NULL;
}
