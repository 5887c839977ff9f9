/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/core/core.h"
#include "router/observe/router_metrics.h"

static void no_send(void *ctx, bt_instance_t *worker, const bt_msg_t *msg)
{
    (void)ctx;
    (void)worker;
    (void)msg;
}

static bt_core_t *make_core(void)
{
    const bt_core_config_t config = {
        .model = {.lo = 1, .hi = 2},
        .max_queue = 4,
        .request_timeout_ms = 1000,
    };
    const bt_core_ops_t ops = {.send = no_send};
    bt_core_t *core = NULL;

    assert_int_equal(bt_core_create(&config, &ops, &core), BT_OK);
    return core;
}

static void render(bt_router_metrics_t *m, bt_core_t *core, bt_strbuf_t *out)
{
    bt_metrics_view_t view = {
        .n_connections = 3, .n_open_fds = 7, .unix_s = 1700074049};

    bt_strbuf_init(out, 1u << 20);
    assert_int_equal(bt_core_view(core, &view), BT_OK);
    bt_router_metrics_render(m, &view, out);
    bt_core_view_fini(&view);
    assert_int_equal(bt_strbuf_status(out), BT_OK);
}

static void has_line(const bt_strbuf_t *out, const char *line)
{
    const size_t n = strlen(line);
    const char *at = out->data;

    while ((at = strstr(at, line)) != NULL) {
        if (((at == out->data) || (at[-1] == '\n')) && (at[n] == '\n')) {
            return;
        }
        at++;
    }
    fail_msg("no line %s", line);
}

/* The sample of the TensorRT-LLM backend's documentation ("Triton metrics"),
 * line for line, with the values that these workers give. */
static void every_line_of_the_documented_sample_is_there(void **state)
{
    static const char *const lines[] = {
        "# HELP nv_trt_llm_request_metrics TRT LLM request metrics",
        "# TYPE nv_trt_llm_request_metrics gauge",
        "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
        "\"context\",version=\"1\"} 1",
        "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
        "\"scheduled\",version=\"1\"} 5",
        "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
        "\"max\",version=\"1\"} 512",
        "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
        "\"active\",version=\"1\"} 6",
        "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
        "\"waiting\",version=\"1\"} 2",
        "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
        "\"generation\",version=\"1\"} 4",
        "# HELP nv_trt_llm_runtime_memory_metrics TRT LLM runtime memory "
        "metrics",
        "# TYPE nv_trt_llm_runtime_memory_metrics gauge",
        "nv_trt_llm_runtime_memory_metrics{memory_type=\"pinned\",model="
        "\"tensorrt_llm\",version=\"1\"} 0",
        "nv_trt_llm_runtime_memory_metrics{memory_type=\"gpu\",model="
        "\"tensorrt_llm\",version=\"1\"} 1610236",
        "nv_trt_llm_runtime_memory_metrics{memory_type=\"cpu\",model="
        "\"tensorrt_llm\",version=\"1\"} 3000",
        "# HELP nv_trt_llm_kv_cache_block_metrics TRT LLM KV cache block "
        "metrics",
        "# TYPE nv_trt_llm_kv_cache_block_metrics gauge",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\","
        "model=\"tensorrt_llm\",version=\"1\"} 64",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model="
        "\"tensorrt_llm\",version=\"1\"} 25",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"free\",model="
        "\"tensorrt_llm\",version=\"1\"} 175",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model="
        "\"tensorrt_llm\",version=\"1\"} 200",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"reused\","
        "model=\"tensorrt_llm\",version=\"1\"} 0",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\","
        "model=\"tensorrt_llm\",version=\"1\"} 0.125",
        "# HELP nv_trt_llm_inflight_batcher_metrics TRT LLM "
        "inflight_batcher-specific metrics",
        "# TYPE nv_trt_llm_inflight_batcher_metrics gauge",
        "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="
        "\"micro_batch_id\",model=\"tensorrt_llm\",version=\"1\"} 0",
        "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="
        "\"generation_requests\",model=\"tensorrt_llm\",version=\"1\"} 4",
        "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="
        "\"total_context_tokens\",model=\"tensorrt_llm\",version=\"1\"} 384",
        "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="
        "\"paused_requests\",model=\"tensorrt_llm\",version=\"1\"} 0",
        "# HELP nv_trt_llm_v1_metrics TRT LLM v1-specific metrics",
        "# TYPE nv_trt_llm_v1_metrics gauge",
        "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric="
        "\"total_generation_tokens\",version=\"1\"} 4",
        "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric="
        "\"empty_generation_slots\",version=\"1\"} 506",
        "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric="
        "\"total_context_tokens\",version=\"1\"} 384",
        "# HELP nv_trt_llm_general_metrics General TRT LLM metrics",
        "# TYPE nv_trt_llm_general_metrics gauge",
        "nv_trt_llm_general_metrics{general_type=\"iteration_counter\",model="
        "\"tensorrt_llm\",version=\"1\"} 130",
        "nv_trt_llm_general_metrics{general_type=\"timestamp\",model="
        "\"tensorrt_llm\",version=\"1\"} 1700074049",
        "# HELP nv_trt_llm_disaggregated_serving_metrics TRT LLM disaggregated "
        "serving metrics",
        "# TYPE nv_trt_llm_disaggregated_serving_metrics counter",
        "nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type="
        "\"kv_cache_transfer_ms\",model=\"tensorrt_llm\",version=\"1\"} 4",
        "nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type="
        "\"request_count\",model=\"tensorrt_llm\",version=\"1\"} 1",
        "nv_llm_input_token_len_bucket{model=\"tensorrt_llm\","
        "response_metric_type=\"total_input_tokens\",version=\"1\",le=\"10\"} "
        "0",
        "nv_llm_input_token_len_bucket{model=\"tensorrt_llm\","
        "response_metric_type=\"total_input_tokens\",version=\"1\",le=\"50\"} "
        "1",
        "nv_llm_output_token_len_bucket{model=\"tensorrt_llm\","
        "response_metric_type=\"total_output_tokens\",version=\"1\",le=\"1000\""
        "} 0",
        "nv_llm_output_token_len_bucket{model=\"tensorrt_llm\","
        "response_metric_type=\"total_output_tokens\",version=\"1\",le=\"+Inf\""
        "} 1",
        "nv_llm_output_token_len_sum{model=\"tensorrt_llm\","
        "response_metric_type=\"total_output_tokens\",version=\"1\"} 1500",
        "# TYPE nv_inference_request_success counter",
        "nv_inference_request_success{model=\"tensorrt_llm\",version=\"1\"} 1",
        "# HELP nv_inference_request_failure Number of failed inference "
        "requests, all batch sizes",
        "nv_inference_request_failure{model=\"tensorrt_llm\",version=\"1\"} 1",
        "nv_inference_count{model=\"tensorrt_llm\",version=\"1\"} 1",
        "nv_inference_exec_count{model=\"tensorrt_llm\",version=\"1\"} 130",
        "# HELP nv_inference_request_duration_us Cumulative inference request "
        "duration in microseconds (includes cached requests)",
        "nv_inference_request_duration_us{model=\"tensorrt_llm\",version=\"1\"}"
        " 1000",
        "nv_inference_queue_duration_us{model=\"tensorrt_llm\",version=\"1\"} "
        "70",
        "nv_inference_compute_input_duration_us{model=\"tensorrt_llm\","
        "version=\"1\"} 30",
        "nv_inference_compute_infer_duration_us{model=\"tensorrt_llm\","
        "version=\"1\"} 900",
        "nv_inference_compute_output_duration_us{model=\"tensorrt_llm\","
        "version=\"1\"} 11",
        "# TYPE nv_inference_pending_request_count gauge",
        "nv_inference_pending_request_count{model=\"tensorrt_llm\",version="
        "\"1\"} 1",
        "baton_workers{role=\"prefill\",state=\"up\"} 1",
        "baton_workers{role=\"decode\",state=\"suspect\"} 1",
        "baton_workers{role=\"decode\",state=\"up\"} 0",
        "baton_leases{role=\"decode\"} 2",
        "baton_quarantined_blocks{role=\"decode\"} 9",
        "baton_kv_bytes{direction=\"received\"} 4096",
        "baton_kv_transfer_ms_count 2",
        "baton_open_fds{role=\"router\"} 7",
        "baton_open_fds{role=\"decode\"} 31",
        "baton_http_connections 3",
        "# TYPE baton_time_to_first_token_seconds histogram",
        "baton_time_to_first_token_seconds_bucket{le=\"0.025\"} 0",
        "baton_time_to_first_token_seconds_bucket{le=\"0.05\"} 1",
        "baton_time_to_first_token_seconds_sum 0.03",
        "baton_inter_token_latency_seconds_bucket{le=\"0.0001\"} 1",
        "baton_inter_token_latency_seconds_bucket{le=\"0.0025\"} 1",
        "baton_inter_token_latency_seconds_bucket{le=\"0.005\"} 2",
        "baton_queue_seconds_bucket{le=\"60\"} 0",
        "baton_queue_seconds_bucket{le=\"+Inf\"} 1",
        "baton_request_duration_seconds_sum 2",
        "baton_kv_grant_wait_seconds_sum 0.0006",
        "baton_kv_transfer_data_seconds_sum 0.004",
        "baton_kv_transfer_data_seconds_count 2",
        "baton_kv_transfer_tail_seconds_bucket{le=\"0.001\"} 1",
        "baton_kv_handover_seconds_bucket{le=\"0.0005\"} 2",
        "baton_kv_handover_seconds_bucket{le=\"0.00025\"} 0",
        "baton_kv_join_wait_seconds_bucket{le=\"0.001\"} 1",
        "baton_kv_transfers_total 2",
        "baton_kv_transfer_bytes_total 20",
        "baton_kv_transfer_descriptors_total 8",
        "baton_trace_lines_lost_total 3",
    };
    static const bt_msg_stats_t nothing;
    const bt_msg_stats_t prefill = {
        .active_requests = 3,
        .max_requests = 64,
        .scheduled_requests = 1,
        .context_requests = 1,
        .waiting_requests = 1,
        .blocks_max = 100,
        .blocks_free = 90,
        .blocks_used = 10,
        .iteration_counter = 30,
        .total_context_tokens = 384,
        .memory_cpu_bytes = 1000,
    };
    const bt_msg_stats_t decode = {
        .active_requests = 6,
        .max_requests = 512,
        .scheduled_requests = 4,
        .generation_requests = 4,
        .waiting_requests = 1,
        .blocks_max = 100,
        .blocks_free = 85,
        .blocks_used = 15,
        .iteration_counter = 100,
        .memory_cpu_bytes = 2000,
        .memory_gpu_bytes = 1610236,
        .leases = 2,
        .quarantined_blocks = 9,
        .open_fds = 31,
        .kv_bytes_received = 4096,
    };
    const bt_ledger_t ledger = {.parse_us = 10,
                                .tokenize_us = 20,
                                .wait_us = 30,
                                .prefill_queue_us = 40,
                                .total_us = 1000,
                                .n_attempts = 1,
                                .ok = true};
    bt_msg_joined_t transfer = {.grant_wait_us = 300,
                                .transfer_us = 1500,
                                .transfer_bytes = 10,
                                .n_descriptors = 4,
                                .handover_us = 400};
    bt_msg_hello_t hello = {.role = BT_ROLE_PREFILL,
                            .tokens_per_block = 64,
                            .max_batch = 1,
                            .n_blocks = 1};
    bt_core_t *core = make_core();
    bt_router_metrics_t *m = NULL;
    bt_instance_t *p = NULL, *d = NULL;
    bt_strbuf_t out;

    (void)state;
    assert_int_equal(bt_router_metrics_create(&m), BT_OK);
    assert_int_equal(bt_table_add(bt_core_table(core), &hello, &p), BT_OK);
    hello.role = BT_ROLE_DECODE;
    assert_int_equal(bt_table_add(bt_core_table(core), &hello, &d), BT_OK);
    bt_router_metrics_stats(m, &nothing, &prefill);
    bt_router_metrics_stats(m, &nothing, &decode);
    bt_router_metrics_stats(m, &decode, &decode); /* nothing new */
    p->stats = prefill;
    d->stats = decode;
    d->state = BT_INSTANCE_SUSPECT;
    bt_router_metrics_transfer(m, &transfer, true);
    transfer.transfer_us = 2500;
    bt_router_metrics_transfer(m, &transfer, false); /* its re-run */
    bt_router_metrics_time(m, BT_TIME_FIRST_TOKEN, 30000);
    bt_router_metrics_time(m, BT_TIME_NEXT_TOKEN, 2600);
    bt_router_metrics_time(m, BT_TIME_NEXT_TOKEN, 100); /* on a bound */
    bt_router_metrics_time(m, BT_TIME_QUEUE, 61000000);
    bt_router_metrics_time(m, BT_TIME_JOIN_WAIT, 700);
    bt_router_metrics_time(m, BT_TIME_TAIL, 900);
    bt_router_metrics_time(m, BT_TIME_REQUEST, 2000000);
    bt_router_metrics_trace_lost(m, 3);
    bt_router_metrics_end(m, true, 48, 1500);
    bt_router_metrics_end(m, false, 0, 0);
    bt_router_metrics_output(m, 11);
    bt_router_metrics_ledger(m, &ledger);

    render(m, core, &out);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        has_line(&out, lines[i]);
    }
    bt_strbuf_fini(&out);
    bt_router_metrics_destroy(m);
    bt_core_destroy(core);
}

static void line_is(bt_router_metrics_t *m, bt_core_t *core, const char *line)
{
    bt_strbuf_t out;

    render(m, core, &out);
    has_line(&out, line);
    bt_strbuf_fini(&out);
}

static void
only_what_the_server_could_not_do_is_a_failed_inference(void **state)
{
    static const struct {
        int http_status;
        const char *refused, *failed;
    } steps[] = {
        {400, "baton_requests_refused 1", "0"},
        {404, "baton_requests_refused 2", "0"},
        {413, "baton_requests_refused 3", "0"},
        {429, "baton_requests_refused 4", "1"},
        {503, "baton_requests_refused 5", "2"},
    };
    bt_core_t *core = make_core();
    bt_router_metrics_t *m = NULL;

    (void)state;
    assert_int_equal(bt_router_metrics_create(&m), BT_OK);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        char line[128];

        bt_router_metrics_refused(m, steps[i].http_status);
        line_is(m, core, steps[i].refused);
        snprintf(line, sizeof(line),
                 "nv_inference_request_failure{model=\"tensorrt_llm\","
                 "version=\"1\"} %s",
                 steps[i].failed);
        line_is(m, core, line);
    }
    bt_router_metrics_destroy(m);
    bt_core_destroy(core);
}

#define PENDING \
    "nv_inference_pending_request_count{model=\"tensorrt_llm\",version=\"1\"} "
#define EMPTY                                                          \
    "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric=" \
    "\"empty_generation_slots\",version=\"1\"} "

static void a_request_that_waits_for_its_kv_is_not_pending(void **state)
{
    bt_msg_hello_t hello = {.role = BT_ROLE_DECODE,
                            .tokens_per_block = 16,
                            .max_batch = 1,
                            .n_blocks = 1};
    bt_core_t *core = make_core();
    bt_router_metrics_t *m = NULL;
    bt_instance_t *p = NULL, *d = NULL;

    (void)state;
    assert_int_equal(bt_router_metrics_create(&m), BT_OK);
    line_is(m, core, PENDING "0");
    /* Alone it runs the context phase too: what waits there is not begun. */
    assert_int_equal(bt_table_add(bt_core_table(core), &hello, &d), BT_OK);
    d->stats.waiting_requests = 5;
    d->stats.max_requests = 4;
    d->stats.active_requests = 6; /* more than seats: no slot is below zero */
    line_is(m, core, PENDING "5");
    line_is(m, core, EMPTY "0");
    hello.role = BT_ROLE_PREFILL;
    assert_int_equal(bt_table_add(bt_core_table(core), &hello, &p), BT_OK);
    line_is(m, core, PENDING "0");
    p->stats.waiting_requests = 2;
    line_is(m, core, PENDING "2");
    bt_router_metrics_destroy(m);
    bt_core_destroy(core);
}

static void a_failed_allocation_makes_no_metrics(void **state)
{
    bt_router_metrics_t *m = NULL;

    (void)state;
    for (int nth = 1; nth <= 100; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_router_metrics_create(&m), BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_null(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_line_of_the_documented_sample_is_there),
        BT_TEST(only_what_the_server_could_not_do_is_a_failed_inference),
        BT_TEST(a_request_that_waits_for_its_kv_is_not_pending),
        BT_TEST(a_failed_allocation_makes_no_metrics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
