/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "tests/unit/router/observe/metrics_fixture.h"

#define GOLDEN_BYTES 65536

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

/* After play(). */
static void assert_page_has(const char *const *lines, size_t n)
{
    world_t w;
    bt_strbuf_t out;

    begin(&w);
    play(&w);
    render(&w, &out);
    for (size_t i = 0; i < n; i++) {
        has_line(&out, lines[i]);
    }
    bt_strbuf_fini(&out);
    bt_router_metrics_destroy(w.m);
}

/* The sample of the TensorRT-LLM backend's documentation ("Triton metrics"),
 * line for line, with the values that these workers give. */
static void documented_sample_lines_are_present(void **state)
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
        "nv_inference_exec_count{model=\"tensorrt_llm\",version=\"1\"} 1",
        "# HELP nv_inference_request_duration_us Cumulative inference request "
        "duration in microseconds (includes cached requests)",
        "nv_inference_request_duration_us{model=\"tensorrt_llm\",version=\"1\"}"
        " 1011",
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
    };

    (void)state;
    assert_page_has(lines, BT_ARRAY_LEN(lines));
}

/* By hand, from play(). */
static void own_families_have_labels_and_values(void **state)
{
#define P0 "{worker=\"p-0\",role=\"prefill\",model=\"tiny\""
#define D0 "{worker=\"d-0\",role=\"decode\",model=\"tiny\""
#define OF "{model=\"tiny\"}"
#define LE "{model=\"tiny\",le="
    static const char *const lines[] = {
        "baton_workers{model=\"tiny\",role=\"prefill\",state=\"up\"} 1",
        "baton_workers{model=\"tiny\",role=\"decode\",state=\"suspect\"} 1",
        "baton_workers{model=\"tiny\",role=\"decode\",state=\"up\"} 0",
        "baton_worker_up" P0 "} 1",
        "baton_worker_up" D0 "} 0",
        "baton_worker_seats" D0 "} 512",
        "baton_worker_active_requests" D0 "} 6",
        "baton_worker_queued_requests" P0 "} 1",
        "baton_worker_waiting_for_kv_requests" D0 "} 2",
        "baton_worker_batch_requests" P0 ",phase=\"prefill\"} 1",
        "baton_worker_batch_requests" D0 ",phase=\"decode\"} 4",
        "baton_worker_batch_prefill_tokens" P0 "} 384",
        "# TYPE baton_worker_iterations_total counter",
        "baton_worker_iterations_total" P0 "} 30",
        "baton_worker_iterations_total" D0 "} 100",
        "baton_kv_blocks" P0 ",state=\"used\"} 10",
        "baton_kv_blocks" P0 ",state=\"free\"} 90",
        "baton_kv_blocks" P0 ",state=\"quarantined\"} 0",
        "baton_kv_blocks" D0 ",state=\"used\"} 6",
        "baton_kv_blocks" D0 ",state=\"free\"} 82",
        "baton_kv_blocks" D0 ",state=\"cached\"} 3",
        "baton_worker_prompt_tokens_total" D0 "} 5",
        "baton_worker_prompt_tokens_reused_total" D0 "} 48",
        "baton_worker_generation_tokens_total" D0 "} 77",
        "baton_worker_cpu_seconds_total" D0 "} 2.5",
        "baton_worker_resident_memory_bytes" D0 "} 8192",
        "baton_worker_start_time_seconds" D0 "} 1700000000",
        "baton_kv_blocks" D0 ",state=\"quarantined\"} 9",
        "baton_kv_leases" D0 "} 2",
        "baton_kv_window_blocks" D0 "} 5",
        "baton_kv_blocks_window_evicted_total" D0 "} 420",
        "baton_worker_memory_bytes" D0 ",memory=\"gpu\"} 1610236",
        "baton_worker_kv_staged_bytes_total" D0 "} 65536",
        "baton_worker_kv_device_bytes_total" D0 "} 131072",
        "baton_worker_kv_stage_waits_total" D0 "} 21",
        "baton_kv_unauthenticated_messages_total" D0 "} 6",
        "baton_worker_log_lines_dropped_total" D0 "} 8",
        "baton_worker_borrowed_core_tasks_total" D0 "} 900",
        "baton_worker_borrowed_core_cpu_seconds_total" D0 "} 1.5",
        "baton_worker_borrowed_core_task_retries_total" D0 "} 4",
        "baton_worker_donated_seconds_total" D0 "} 2.25",
        "baton_worker_overlapped_iterations_total" D0 "} 77",
        "baton_worker_preemptions_total" D0 "} 14",
        "baton_worker_preemption_resumes_total" D0 "} 13",
        "baton_worker_recomputed_tokens_total" D0 "} 1200",
        "baton_worker_open_fds" D0 "} 31",
        "baton_kv_bytes_total{model=\"tiny\",direction=\"received\"} 4096",
        "baton_http_connections 3",
        "baton_requests_refused_total" OF " 0",
        "baton_requests_refused_total 0",
#define LOST "baton_attempt_failures_total{model=\"tiny\",reason="
        LOST "\"lease_expired\"} 1",
        LOST "\"transfer\"} 2",
        LOST "\"refused\"} 3",
        LOST "\"worker_lost\"} 4",
        LOST "\"deadline\"} 5",
        LOST "\"other\"} 6",
        "baton_prompt_tokens_total" OF " 48",
        "baton_prompt_tokens_cached_total" OF " 32",
        "baton_generation_tokens_total" OF " 3",
        "# TYPE baton_time_to_first_token_seconds histogram",
        "baton_time_to_first_token_seconds_bucket" LE "\"0.025\"} 0",
        "baton_time_to_first_token_seconds_bucket" LE "\"0.05\"} 1",
        "baton_time_to_first_token_seconds_sum" OF " 0.03",
        "baton_inter_token_latency_seconds_bucket" LE "\"0.0001\"} 1",
        "baton_inter_token_latency_seconds_bucket" LE "\"0.0025\"} 1",
        "baton_inter_token_latency_seconds_bucket" LE "\"0.005\"} 2",
        "baton_queue_seconds_bucket" LE "\"60\"} 0",
        "baton_queue_seconds_bucket" LE "\"+Inf\"} 1",
        "baton_request_duration_seconds_sum" OF " 2",
        "baton_kv_grant_wait_seconds_sum" OF " 0.0006",
        "baton_kv_transfer_seconds_sum" OF " 0.004",
        "baton_kv_transfer_seconds_count" OF " 2",
        "baton_kv_transfer_tail_seconds_bucket" LE "\"0.001\"} 1",
        "baton_kv_verify_seconds_bucket" LE "\"0.0005\"} 2",
        "baton_kv_verify_seconds_bucket" LE "\"0.00025\"} 0",
        "baton_kv_join_wait_seconds_bucket" LE "\"0.001\"} 1",
        "baton_kv_transfers_total" OF " 2",
        "baton_kv_transfer_bytes_total" OF " 20",
        "baton_kv_transfer_descriptors_total" OF " 8",
        "baton_trace_lines_dropped_total 3",
        "baton_access_log_lines_dropped_total 4",
        "baton_log_lines_dropped_total 5",
        "baton_event_loop_delay_seconds_bucket{le=\"0.0001\"} 1",
        "baton_event_loop_delay_seconds_bucket{le=\"0.05\"} 2",
        "baton_event_loop_delay_seconds_sum 0.03",
        "process_cpu_seconds_total 1.5",
        "process_resident_memory_bytes 4096",
        "process_open_fds 7",
        "process_max_fds 1024",
    };

    (void)state;
    assert_page_has(lines, BT_ARRAY_LEN(lines));
}

/* What the seeds print of a model of static batches. */
static void static_batches_export_the_v1_family(void **state)
{
    static const char *const lines[] = {
        "# HELP nv_trt_llm_v1_metrics TRT LLM v1-specific metrics",
        "# TYPE nv_trt_llm_v1_metrics gauge",
        "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric="
        "\"total_generation_tokens\",version=\"1\"} 4",
        "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric="
        "\"empty_generation_slots\",version=\"1\"} 506",
        "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric="
        "\"total_context_tokens\",version=\"1\"} 384",
    };
    bt_strbuf_t out;
    world_t w;

    (void)state;
    begin(&w);
    play(&w);
    render(&w, &out);
    assert_null(strstr(out.data, "nv_trt_llm_v1_metrics"));
    bt_strbuf_fini(&out);
    bt_router_metrics_v1(w.m, true);
    render(&w, &out);
    for (size_t i = 0; i < BT_ARRAY_LEN(lines); i++) {
        has_line(&out, lines[i]);
    }
    assert_null(strstr(out.data, "nv_trt_llm_inflight_batcher_metrics"));
    bt_strbuf_fini(&out);
    bt_router_metrics_destroy(w.m);
}

/* tests/golden/metrics_seeds.txt is what version 0.1 printed after play(), less
 * the family of static batches, and with executions counted by sequences. */
static void nv_families_are_byte_identical_to_the_sample(void **state)
{
    char want[GOLDEN_BYTES];
    FILE *file = fopen(bt_test_path("golden/metrics_seeds.txt"), "r");
    world_t w;
    bt_strbuf_t out;
    size_t n;

    (void)state;
    assert_non_null(file);
    n = fread(want, 1, sizeof(want), file);
    fclose(file);
    assert_in_range(n, 1, sizeof(want) - 1);
    begin(&w);
    play(&w);
    render(&w, &out);
    assert_memory_equal(out.data, want, n);
    assert_null(strstr(out.data + n, "nv_"));
    bt_strbuf_fini(&out);
    bt_router_metrics_destroy(w.m);
}

static void line_is(world_t *w, const char *line)
{
    bt_strbuf_t out;

    render(w, &out);
    has_line(&out, line);
    bt_strbuf_fini(&out);
}

static void no_line(world_t *w, const char *part)
{
    bt_strbuf_t out;

    render(w, &out);
    if (strstr(out.data, part) != NULL) {
        fail_msg("%s is there", part);
    }
    bt_strbuf_fini(&out);
}

static void only_server_errors_count_as_failed_inference(void **state)
{
    static const struct {
        int http_status;
        const char *failed;
    } steps[] = {{400, "0"}, {404, "0"}, {413, "0"}, {429, "1"}, {503, "2"}};
    world_t w;

    (void)state;
    begin(&w);
    for (size_t i = 0; i < BT_ARRAY_LEN(steps); i++) {
        char line[128];

        bt_router_metrics_refused(w.m, w.mm, steps[i].http_status);
        snprintf(line, sizeof(line),
                 "baton_requests_refused_total{model=\"tiny\"} %zu", i + 1);
        line_is(&w, line);
        snprintf(line, sizeof(line),
                 "nv_inference_request_failure{model=\"tensorrt_llm\","
                 "version=\"1\"} %s",
                 steps[i].failed);
        line_is(&w, line);
    }
    /* Who names no model that is here belongs to none. */
    bt_router_metrics_refused(w.m, NULL, 404);
    line_is(&w, "baton_requests_refused_total 1");
    line_is(&w, "baton_requests_refused_total{model=\"tiny\"} 5");
    bt_router_metrics_destroy(w.m);
}

static void token_counters_rise_during_generation(void **state)
{
    world_t w;

    (void)state;
    begin(&w);
    bt_router_metrics_prompt(w.mm, 17);
    line_is(&w, "baton_prompt_tokens_total{model=\"tiny\"} 17");
    bt_router_metrics_time(w.mm, BT_TIME_FIRST_TOKEN, 1000);
    line_is(&w, "baton_generation_tokens_total{model=\"tiny\"} 1");
    bt_router_metrics_time(w.mm, BT_TIME_NEXT_TOKEN, 1000);
    line_is(&w, "baton_generation_tokens_total{model=\"tiny\"} 2");
    bt_router_metrics_time(w.mm, BT_TIME_QUEUE, 1000); /* none */
    line_is(&w, "baton_generation_tokens_total{model=\"tiny\"} 2");
    bt_router_metrics_destroy(w.m);
}

static void exchanges_are_counted_by_route_method_and_code(void **state)
{
    char route[] = "/health"; /* not the same literal */
    world_t w;

    (void)state;
    begin(&w);
    no_line(&w, "baton_http_requests_total");
    bt_router_metrics_http(w.m, "/health", "GET", 200);
    bt_router_metrics_http(w.m, "/v1/completions", "POST", 200);
    bt_router_metrics_http(w.m, route, "GET", 200);
    bt_router_metrics_http(w.m, "/health", "GET", 503);
    line_is(&w, "baton_http_requests_total{route=\"/health\",method=\"GET\","
                "code=\"200\"} 2");
    line_is(&w, "baton_http_requests_total{route=\"/health\",method=\"GET\","
                "code=\"503\"} 1");
    line_is(&w, "baton_http_requests_total{route=\"/v1/completions\",method="
                "\"POST\",code=\"200\"} 1");
    bt_router_metrics_destroy(w.m);
}

static void each_model_has_its_own_series(void **state)
{
    bt_model_metrics_t *again = NULL, *other = NULL;
    bt_metrics_view_t views[2];
    world_t w;
    bt_strbuf_t out;

    (void)state;
    begin(&w);
    play(&w);
    assert_int_equal(bt_router_metrics_model(w.m, "b\"x", &other), BT_OK);
    assert_int_equal(bt_router_metrics_model(w.m, "tiny", &again), BT_OK);
    assert_ptr_equal(again, w.mm);
    bt_router_metrics_end(other, 7, 9);
    bt_router_metrics_request(other, true);
    bt_router_metrics_refused(w.m, other, 400);
    views[0] = w.view;
    views[1] = (bt_metrics_view_t){.model = other, .n_in_flight = 5};
    bt_strbuf_init(&out, 1u << 20);
    render_views(w.m, views, 2, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    has_line(&out, "nv_inference_count{model=\"tensorrt_llm\",version=\"1\"} "
                   "1");
    has_line(&out, "nv_inference_count{model=\"b\\\"x\",version=\"1\"} 1");
    has_line(&out, "nv_llm_output_token_len_sum{model=\"b\\\"x\","
                   "response_metric_type=\"total_output_tokens\",version="
                   "\"1\"} 9");
    has_line(&out, "baton_requests_in_flight{model=\"tiny\"} 0");
    has_line(&out, "baton_requests_in_flight{model=\"b\\\"x\"} 5");
    bt_strbuf_fini(&out);

    /* One that is not served now keeps its counters and has no gauges. */
    line_is(&w, "nv_inference_count{model=\"b\\\"x\",version=\"1\"} 1");
    no_line(&w, "baton_requests_in_flight{model=\"b");
    bt_router_metrics_destroy(w.m);
}

static void model_named_tensorrt_llm_is_separate_from_the_first(void **state)
{
    bt_model_metrics_t *other = NULL;
    world_t w;

    (void)state;
    begin(&w);
    assert_int_equal(bt_router_metrics_model(w.m, "tensorrt_llm", &other),
                     BT_OK);
    bt_router_metrics_end(w.mm, 1, 1);
    bt_router_metrics_request(w.mm, true);
    line_is(&w, "nv_inference_count{model=\"tensorrt_llm\",version=\"1\"} 0");
    line_is(&w, "nv_inference_count{model=\"tiny\",version=\"1\"} 1");
    bt_router_metrics_destroy(w.m);
}

/* As it says by its latest STATS; what it said in its hello is its first. */
static void worker_row_has_its_current_role(void **state)
{
    bt_metrics_worker_t *worker;
    world_t w;

    (void)state;
    begin(&w);
    worker = add_worker(&w, BT_ROLE_DECODE, "w");
    line_is(&w, "baton_workers{model=\"tiny\",role=\"decode\",state=\"up\"} 1");
    w.stats[0].roles = BT_ROLES_BOTH;
    w.stats[0].leases = 3;
    line_is(&w, "baton_workers{model=\"tiny\",role=\"both\",state=\"up\"} 1");
    line_is(&w, "baton_workers{model=\"tiny\",role=\"decode\",state=\"up\"} 0");
    line_is(&w, "baton_worker_up{worker=\"w\",role=\"both\",model=\"tiny\"} 1");
    line_is(&w, "baton_kv_leases{worker=\"w\",role=\"both\",model=\"tiny\"} 3");
    w.stats[0].roles = BT_ROLE_PREFILL | 4u; /* what is newer is not read */
    line_is(&w, "baton_worker_up{worker=\"w\",role=\"prefill\",model=\"tiny\"} "
                "1");
    worker->stats = NULL;
    line_is(&w,
            "baton_worker_up{worker=\"w\",role=\"decode\",model=\"tiny\"} 1");
    bt_router_metrics_destroy(w.m);
}

static void unknown_values_are_omitted_with_their_labels(void **state)
{
    world_t w;

    (void)state;
    begin(&w);
    add_worker(&w, BT_ROLE_DECODE, "new")->stats = NULL; /* no STATS yet */
    w.hellos[0].max_batch = 8;
    line_is(&w, "baton_worker_up{worker=\"new\",role=\"decode\",model="
                "\"tiny\"} 1");
    line_is(&w, "baton_worker_seats{worker=\"new\",role=\"decode\",model="
                "\"tiny\"} 8");
    no_line(&w, "\nbaton_kv_blocks");
    no_line(&w, "baton_worker_iterations_total");
    no_line(&w, "process_virtual_memory_bytes");
    no_line(&w, "baton_expected_workers");
    no_line(&w, "\nbaton_kv_leases{");

    (void)add_worker(&w, BT_ROLE_PREFILL, "older"); /* has no start_unix_s */
    line_is(&w, "baton_kv_blocks{worker=\"older\",role=\"prefill\",model="
                "\"tiny\",state=\"free\"} 0");
    no_line(&w, "state=\"cached\"");
    no_line(&w, "baton_worker_cpu_seconds_total");
    bt_router_metrics_destroy(w.m);
}

static void workers_of_one_name_are_distinguished(void **state)
{
    world_t w;

    (void)state;
    begin(&w);
    (void)add_worker(&w, BT_ROLE_DECODE, "same");
    (void)add_worker(&w, BT_ROLE_PREFILL, "a");
    (void)add_worker(&w, BT_ROLE_DECODE, "same");
    (void)add_worker(&w, BT_ROLE_DECODE, "");
    w.stats[0].leases = 1;
    w.stats[1].leases = 2;
    w.stats[2].leases = 3;
    w.stats[3].leases = 4;
    line_is(&w, "baton_kv_leases{worker=\"a\",role=\"prefill\",model="
                "\"tiny\"} 2");
    line_is(&w, "baton_kv_leases{worker=\"same#0000000000000010\",role="
                "\"decode\",model=\"tiny\"} 1");
    line_is(&w, "baton_kv_leases{worker=\"same#0000000000000012\",role="
                "\"decode\",model=\"tiny\"} 3");
    line_is(&w, "baton_kv_leases{worker=\"#0000000000000013\",role="
                "\"decode\",model=\"tiny\"} 4");
    bt_router_metrics_destroy(w.m);
}

static void launcher_report_replaces_the_previous_one(void **state)
{
    const bt_metrics_expected_t expected[] = {{"tiny", BT_ROLE_PREFILL, 1},
                                              {"tiny", BT_ROLE_DECODE, 2}};
    const bt_metrics_restarts_t restarts[] = {{"decode-0", 3}};
    bt_metrics_fleet_t fleet = {expected, 2, restarts, 1};
    world_t w;

    (void)state;
    begin(&w);
    assert_int_equal(bt_metrics_fleet(w.m, &fleet), BT_OK);
    line_is(&w, "baton_expected_workers{role=\"prefill\",model=\"tiny\"} 1");
    line_is(&w, "baton_expected_workers{role=\"decode\",model=\"tiny\"} 2");
    line_is(&w, "baton_worker_restarts_total{worker=\"decode-0\"} 3");
    fleet.n_expected = 1;
    for (int nth = 1; nth <= 3; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_metrics_fleet(w.m, &fleet), BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
    }
    line_is(&w, "baton_expected_workers{role=\"decode\",model=\"tiny\"} 2");
    assert_int_equal(bt_metrics_fleet(w.m, &fleet), BT_OK);
    no_line(&w, "baton_expected_workers{role=\"decode\"");
    bt_router_metrics_destroy(w.m);
}

static void process_values_are_plausible(void **state)
{
    bt_metrics_process_t now = {0};

    (void)state;
    bt_metrics_process_read(&now);
    assert_true(now.cells[BT_PC_CPU_S] > 0 && now.cells[BT_PC_CPU_S] < 1000);
    assert_true(now.cells[BT_PC_RESIDENT] > 100e3);
    assert_true(now.cells[BT_PC_VIRTUAL] > now.cells[BT_PC_RESIDENT]);
    assert_true(now.cells[BT_PC_OPEN_FDS] >= 3 &&
                now.cells[BT_PC_OPEN_FDS] < now.cells[BT_PC_MAX_FDS]);
    assert_true(now.unix_s > 1.7e9);
}

/* Against /proc as another reader has it. */
static void cpu_metrics_are_read_where_enabled(void **state)
{
    bt_metrics_cpu_t cpu = {0};
    bt_metrics_process_t now = {.cpu = &cpu};
    const double pages = (double)sysconf(_SC_PHYS_PAGES);

    (void)state;
    bt_metrics_process_read(&now);
    assert_true(now.cells[BT_PC_CPU_USE] > 0 && now.cells[BT_PC_CPU_USE] <= 1);
    assert_true(now.cells[BT_PC_CPU_TOTAL_BYTES] ==
                pages * (double)sysconf(_SC_PAGESIZE));
    assert_true(now.cells[BT_PC_CPU_USED_BYTES] > 0 &&
                now.cells[BT_PC_CPU_USED_BYTES] <
                    now.cells[BT_PC_CPU_TOTAL_BYTES]);
    assert_true(cpu.busy > 0 && cpu.busy < cpu.all);
    bt_metrics_process_read(&now);
    assert_true(now.cells[BT_PC_CPU_USE] >= 0 && now.cells[BT_PC_CPU_USE] <= 1);
}

/* What no series says is in the statistics all the same. */
static void statistics_equal_the_page_and_names_have_no_series(void **state)
{
    const bt_ledger_t good = {.parse_us = 10,
                              .tokenize_us = 20,
                              .queue_us = 30,
                              .prefill_queue_us = 40,
                              .total_us = 1000,
                              .ok = true};
    const bt_ledger_t bad = {.total_us = 7};
    bt_model_metrics_t *mm, *again;
    bt_statistics_t s;
    bt_strbuf_t out;
    world_t w;

    (void)state;
    begin(&w);
    assert_int_equal(bt_router_metrics_name(w.m, "ensemble", true, &mm), BT_OK);
    assert_int_equal(bt_router_metrics_name(w.m, "ensemble", true, &again),
                     BT_OK);
    assert_ptr_equal(mm, again);
    bt_router_metrics_statistics(mm, &s);
    assert_int_equal(s.success.count + s.fail.count + s.last_ms, 0);
    bt_router_metrics_end(mm, 5, 6);
    bt_router_metrics_request(mm, true);
    bt_router_metrics_ledger(mm, &good);
    bt_router_metrics_output(mm, 3);
    bt_router_metrics_request(mm, false);
    bt_router_metrics_ledger(mm, &bad);
    bt_router_metrics_response(mm, 0, 50);
    bt_router_metrics_response(mm, 0, 60);
    bt_router_metrics_response(mm, 1, 5);
    bt_router_metrics_response(mm, BT_STATISTICS_RESPONSES, 5);
    bt_router_metrics_statistics(mm, &s);
    assert_int_equal(s.inference_count, 1);
    assert_int_equal(s.execution_count, 1);
    assert_int_equal(s.success.count, 1);
    assert_int_equal(s.success.ns, 1003000); /* the four others' sum */
    assert_int_equal(s.fail.count, 1);
    assert_int_equal(s.fail.ns, 7000);
    assert_int_equal(s.queue.count, 1);
    assert_int_equal(s.queue.ns, 70000);
    assert_int_equal(s.compute_input.ns, 30000);
    assert_int_equal(s.compute_infer.ns, 900000);
    assert_int_equal(s.compute_output.ns, 3000);
    assert_int_equal(s.n_responses, 2);
    assert_int_equal(s.responses[0].count, 2);
    assert_int_equal(s.responses[0].ns, 110000);
    assert_true(s.last_ms > UINT64_C(1700000000000));
    assert_int_equal(bt_router_metrics_name(w.m, "unlisted", false, &mm),
                     BT_OK);
    render(&w, &out);
    assert_non_null(strstr(out.data, "\nnv_inference_request_duration_us{model="
                                     "\"ensemble\",version=\"1\"} 1003\n"));
    assert_null(strstr(out.data, "unlisted"));
    assert_null(strstr(out.data, "request_metrics{model=\"ensemble"));
    bt_strbuf_fini(&out);
    bt_router_metrics_destroy(w.m);
}

#define PENDING \
    "nv_inference_pending_request_count{model=\"tensorrt_llm\",version=\"1\"} "
#define EMPTY                                                          \
    "nv_trt_llm_v1_metrics{model=\"tensorrt_llm\",v1_specific_metric=" \
    "\"empty_generation_slots\",version=\"1\"} "

static void request_waiting_at_a_decode_worker_is_not_pending(void **state)
{
    world_t w;

    (void)state;
    begin(&w);
    bt_router_metrics_v1(w.m, true);
    line_is(&w, PENDING "0");
    /* Alone it runs the context phase too: what waits there is not begun. */
    (void)add_worker(&w, BT_ROLE_DECODE, "d-0");
    w.stats[0].waiting_requests = 5;
    w.stats[0].max_requests = 4;
    w.stats[0].active_requests = 6; /* more than seats: no slot below zero */
    line_is(&w, PENDING "5");
    line_is(&w, EMPTY "0");
    (void)add_worker(&w, BT_ROLE_PREFILL, "p-0");
    line_is(&w, PENDING "0");
    w.stats[1].waiting_requests = 2;
    line_is(&w, PENDING "2");
    bt_router_metrics_destroy(w.m);
}

/* As for a page that is written later, on another thread. */
static void snapshot_keeps_the_values_of_its_time(void **state)
{
    const bt_metrics_restarts_t restarts[] = {{.worker = "p-0", .n = 5}};
    bt_metrics_fleet_t told = {.restarts = restarts, .n_restarts = 1};
    bt_metrics_snapshot_t *snapshot;
    bt_model_metrics_t *other;
    bt_strbuf_t now, later;
    world_t w;

    (void)state;
    begin(&w);
    play(&w);
    assert_int_equal(bt_metrics_fleet(w.m, &told), BT_OK);
    bt_router_metrics_http(w.m, "/metrics", "GET", 200);
    render(&w, &now);
    assert_int_equal(bt_metrics_snapshot_create(w.m, &w.view, 1, &snapshot),
                     BT_OK);
    /* All that can change does. */
    told.n_restarts = 0;
    assert_int_equal(bt_metrics_fleet(w.m, &told), BT_OK);
    bt_router_metrics_http(w.m, "/metrics", "GET", 200);
    bt_router_metrics_http(w.m, "/health", "GET", 200);
    bt_router_metrics_refused(w.m, NULL, 404);
    bt_router_metrics_tick(w.m, 5);
    bt_router_metrics_add(w.m, BT_PC_TRACE_LOST, 1);
    assert_int_equal(bt_router_metrics_model(w.m, "late", &other), BT_OK);
    bt_router_metrics_end(w.mm, 1, 1);
    bt_router_metrics_request(w.mm, true);
    memset(w.hellos, 0, sizeof(w.hellos));
    memset(w.stats, 0, sizeof(w.stats));
    memset(w.workers, 0, sizeof(w.workers));
    bt_strbuf_init(&later, 1u << 20);
    bt_metrics_snapshot_render(snapshot, &process, &later);
    bt_metrics_snapshot_destroy(snapshot);
    assert_int_equal(bt_strbuf_status(&later), BT_OK);
    assert_string_equal(later.data, now.data);
    bt_strbuf_fini(&later);
    bt_strbuf_fini(&now);
    bt_router_metrics_destroy(w.m);
}

/* 16 models, 64 workers. @return CPU time of the thread */
static uint64_t cost_of(const bt_router_metrics_t *m,
                        const bt_metrics_view_t *views, bool whole_page,
                        size_t *bytes_p)
{
    const uint64_t start_ns = bt_thread_cpu_ns();
    bt_metrics_snapshot_t *snapshot;
    bt_strbuf_t out;

    bt_strbuf_init(&out, 64u << 20);
    assert_int_equal(bt_metrics_snapshot_create(m, views, 16, &snapshot),
                     BT_OK);
    if (whole_page) {
        bt_metrics_snapshot_render(snapshot, &process, &out);
        *bytes_p = out.len;
    }
    bt_metrics_snapshot_destroy(snapshot);
    bt_strbuf_fini(&out);
    return bt_thread_cpu_ns() - start_ns;
}

/* It is what the event loop does of a page. */
static void snapshot_costs_a_fraction_of_rendering(void **state)
{
    uint64_t copy_ns = UINT64_MAX, page_ns = UINT64_MAX;
    bt_metrics_view_t views[16];
    size_t bytes = 0;
    world_t w;

    (void)state;
    begin(&w);
    play(&w);
    w.hellos[2] = w.hellos[0];
    w.hellos[3] = w.hellos[1];
    for (uint32_t i = 0; i < 4; i++) {
        w.stats[i] = w.stats[1];
        w.workers[i] = (bt_metrics_worker_t){&w.hellos[i], &w.stats[i], 0};
    }
    for (uint32_t i = 0; i < 16; i++) {
        char name[16];

        snprintf(name, sizeof(name), "model-%u", i);
        views[i] = (bt_metrics_view_t){.workers = w.workers, .n_workers = 4};
        assert_int_equal(bt_router_metrics_model(w.m, name, &views[i].model),
                         BT_OK);
    }
    for (int i = 0; i < 5; i++) { /* the best of some: others use the machine */
        const uint64_t a = cost_of(w.m, views, false, &bytes);
        const uint64_t b = cost_of(w.m, views, true, &bytes);

        copy_ns = (a < copy_ns) ? a : copy_ns;
        page_ns = (b < page_ns) ? b : page_ns;
    }
    print_message("64 workers of 16 models: a page of %zu bytes takes %llu us, "
                  "its snapshot %llu us\n",
                  bytes, (unsigned long long)page_ns / 1000,
                  (unsigned long long)copy_ns / 1000);
    assert_true(copy_ns < page_ns / 10);
    bt_router_metrics_destroy(w.m);
}

/* Prometheus reads a page whole or not at all. */
static void page_without_memory_is_an_error(void **state)
{
    bool failed = true;
    world_t w;

    (void)state;
    begin(&w);
    play(&w);
    for (int nth = 1; failed; nth++) {
        bt_metrics_snapshot_t *snapshot = NULL;
        bt_strbuf_t out;

        bt_strbuf_init(&out, 1u << 20);
        bt_alloc_fail_at(nth);
        failed =
            bt_metrics_snapshot_create(w.m, &w.view, 1, &snapshot) != BT_OK;
        assert_int_equal(failed, snapshot == NULL);
        if (!failed) {
            bt_metrics_snapshot_render(snapshot, &process, &out);
            failed = bt_strbuf_status(&out) != BT_OK;
        }
        bt_alloc_fail_at(0);
        bt_metrics_snapshot_destroy(snapshot);
        bt_strbuf_fini(&out);
        assert_in_range(nth, 1, 100);
    }
    bt_router_metrics_destroy(w.m);
}

static void failed_allocation_makes_no_metrics(void **state)
{
    bt_model_metrics_t *mm = NULL;
    bt_router_metrics_t *m = NULL;

    (void)state;
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_router_metrics_create(&m), BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_null(m);
    }
    assert_int_equal(bt_router_metrics_create(&m), BT_OK);
    for (int nth = 1; nth <= 3; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_router_metrics_model(m, "a", &mm),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_null(mm);
    }
    assert_int_equal(bt_router_metrics_model(m, "a", &mm), BT_OK);
    bt_router_metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(documented_sample_lines_are_present),
        BT_TEST(own_families_have_labels_and_values),
        BT_TEST(nv_families_are_byte_identical_to_the_sample),
        BT_TEST(static_batches_export_the_v1_family),
        BT_TEST(cpu_metrics_are_read_where_enabled),
        BT_TEST(statistics_equal_the_page_and_names_have_no_series),
        BT_TEST(only_server_errors_count_as_failed_inference),
        BT_TEST(token_counters_rise_during_generation),
        BT_TEST(exchanges_are_counted_by_route_method_and_code),
        BT_TEST(each_model_has_its_own_series),
        BT_TEST(model_named_tensorrt_llm_is_separate_from_the_first),
        BT_TEST(worker_row_has_its_current_role),
        BT_TEST(unknown_values_are_omitted_with_their_labels),
        BT_TEST(workers_of_one_name_are_distinguished),
        BT_TEST(launcher_report_replaces_the_previous_one),
        BT_TEST(process_values_are_plausible),
        BT_TEST(request_waiting_at_a_decode_worker_is_not_pending),
        BT_TEST(snapshot_keeps_the_values_of_its_time),
        BT_TEST(snapshot_costs_a_fraction_of_rendering),
        BT_TEST(page_without_memory_is_an_error),
        BT_TEST(failed_allocation_makes_no_metrics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
