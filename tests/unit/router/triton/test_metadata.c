/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata and commands of Triton's clients beside answers, from the route to
 * the last byte. */
#include "tests/unit/router/request_fixture.h"

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/repository/repository.h"
#include "router/triton/metadata.h"

static void get_ok(world_t *w, bt_exchange_t *ex, const char *path)
{
    get(w, ex, path);
    if (ex->status != 200) {
        fail_msg("GET %s: %d %s", path, ex->status, ex->out);
    }
    assert_string_equal(ex->type, "application/json");
    assert_int_equal(ex->n_ends, 1);
}

static void post_ok(world_t *w, const char *path, const char *body,
                    const char *part)
{
    bt_exchange_t ex;

    post(w, &ex, path, body);
    if (ex.status != 200) {
        fail_msg("POST %s: %d %s", path, ex.status, ex.out);
    }
    has(&ex, part);
}

/* The number behind `key` in the entry of `name` of the statistics. */
static unsigned long long stat_of(world_t *w, const char *name, const char *key)
{
    bt_exchange_t ex;
    char path[128];
    const char *at;

    snprintf(path, sizeof(path), "/v2/models/%s/stats", name);
    get_ok(w, &ex, path);
    at = strstr(ex.out, key);
    if (at == NULL) {
        fail_msg("%s is not in %s", key, ex.out);
    }
    return strtoull(at + strlen(key), NULL, 10);
}

#define COUNTED(w, name, n)                                                  \
    do {                                                                     \
        assert_int_equal(stat_of(w, name, "\"inference_count\":"), n);       \
        assert_int_equal(stat_of(w, name, "\"execution_count\":"), n);       \
        assert_int_equal(stat_of(w, name, "\"success\":{\"count\":"), n);    \
        assert_int_equal(stat_of(w, name, "\"queue\":{\"count\":"), n);      \
        assert_int_equal(stat_of(w, name, "\"compute_input\":{\"count\":"),  \
                         n);                                                 \
        assert_int_equal(stat_of(w, name, "\"compute_infer\":{\"count\":"),  \
                         n);                                                 \
        assert_int_equal(stat_of(w, name, "\"compute_output\":{\"count\":"), \
                         n);                                                 \
    } while (0)

static void
a_call_counts_for_its_name_and_for_the_parts_of_a_chain(void **state)
{
    world_t *w = &world;
    bt_exchange_t a, b, c;

    (void)state;
    start(w, true);
    COUNTED(w, "ensemble", 0);
    post(w, &a, GENERATE, "{\"text_input\":\"ab\",\"max_tokens\":2}");
    answer(w, 0, "AB", BT_FINISH_LENGTH);
    assert_int_equal(a.status, 200);
    COUNTED(w, "ensemble", 1);
    COUNTED(w, "preprocessing", 1);
    COUNTED(w, "tensorrt_llm", 1);
    COUNTED(w, "postprocessing", 1);
    COUNTED(w, "tensorrt_llm_bls", 0);
    COUNTED(w, "tiny", 1);
    post(w, &b, "/v2/models/tensorrt_llm_bls/generate",
         "{\"text_input\":\"ab\",\"max_tokens\":2}");
    answer(w, 1, "AB", BT_FINISH_LENGTH);
    post(w, &c, "/v2/models/tiny/generate",
         "{\"text_input\":\"ab\",\"max_tokens\":2}");
    answer(w, 2, "AB", BT_FINISH_LENGTH);
    COUNTED(w, "ensemble", 1);
    COUNTED(w, "tensorrt_llm_bls", 1);
    COUNTED(w, "preprocessing", 2);
    COUNTED(w, "postprocessing", 2);
    COUNTED(w, "tensorrt_llm", 3);
    COUNTED(w, "tiny", 3);
    /* Reads the cells of the metrics page. */
    assert_true(metric(w, "nv_inference_count{model=\"tensorrt_llm\",version="
                          "\"1\"} ") == 3);
    assert_true(metric(w, "nv_inference_request_success{model=\"tensorrt_llm\","
                          "version=\"1\"} ") == 3);
    assert_true(stat_of(w, "ensemble", "\"last_inference\":") >
                1700000000000ull);
    assert_true(stat_of(w, "ensemble", "\"success\":{\"count\":1,\"ns\":") > 0);
    assert_int_equal(stat_of(w, "ensemble", "\"batch_size\":"), 1);
    stop(w);
}

#define BATCH_OF_THREE                                                        \
    "{\"inputs\":[{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":" \
    "[3,1],\"data\":[\"a\",\"b\",\"c\"]}]}"

/* As Triton has it: "if a client sends a single inference request with batch
 * size 64, inference_count will be incremented by 64"; a success is a request.
 */
static void batch_counts_as_one_request_and_n_inferences(void **state)
{
    static const char *const names[] = {"ensemble", "preprocessing",
                                        "tensorrt_llm", "postprocessing"};
    world_t *w = &world;
    bt_exchange_t a, b, c;

    (void)state;
    start(w, true);
    post(w, &a, "/v2/models/ensemble/infer", BATCH_OF_THREE);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(stat_of(w, "ensemble", "\"success\":{\"count\":"), 0);
        answer(w, i, "AB", BT_FINISH_LENGTH);
        ended(w, i);
    }
    assert_int_equal(a.status, 200);
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        assert_int_equal(stat_of(w, names[i], "\"inference_count\":"), 3);
        assert_int_equal(stat_of(w, names[i], "\"execution_count\":"), 3);
        assert_int_equal(stat_of(w, names[i], "\"success\":{\"count\":"), 1);
        assert_int_equal(stat_of(w, names[i], "\"queue\":{\"count\":"), 1);
    }
    /* An answer of two choices is a request, too. */
    post(w, &b, "/v1/completions", "{\"prompt\":\"ab\",\"n\":2}");
    answer(w, 3, "AB", BT_FINISH_LENGTH);
    answer(w, 4, "AB", BT_FINISH_LENGTH);
    assert_int_equal(stat_of(w, "tensorrt_llm", "\"success\":{\"count\":"), 2);
    assert_int_equal(stat_of(w, "tensorrt_llm", "\"inference_count\":"), 5);
    /* One of its rows is done when its client leaves: it failed once. */
    post(w, &c, "/v2/models/ensemble/infer", BATCH_OF_THREE);
    answer(w, 5, "AB", BT_FINISH_LENGTH);
    bt_door_gone(&w->door, &c);
    assert_int_equal(stat_of(w, "ensemble", "\"success\":{\"count\":"), 1);
    assert_int_equal(stat_of(w, "ensemble", "\"fail\":{\"count\":"), 1);
    assert_int_equal(stat_of(w, "ensemble", "\"inference_count\":"), 4);
    assert_int_equal(stat_of(w, "tensorrt_llm", "\"fail\":{\"count\":"), 1);
    stop(w);
}

static void
who_leaves_counts_as_failed_and_a_stream_by_its_responses(void **state)
{
    world_t *w = &world;
    bt_exchange_t a, b;

    (void)state;
    start(w, true);
    post(w, &a, GENERATE, "{\"text_input\":\"ab\",\"max_tokens\":4}");
    bt_door_gone(&w->door, &a);
    assert_int_equal(stat_of(w, "ensemble", "\"fail\":{\"count\":"), 1);
    assert_int_equal(stat_of(w, "tensorrt_llm", "\"fail\":{\"count\":"), 1);
    assert_int_equal(stat_of(w, "postprocessing", "\"success\":{\"count\":"),
                     0);
    ended(w, 0);
    post(w, &b, STREAM, "{\"text_input\":\"ab\",\"max_tokens\":2}");
    answer(w, 1, "AB", BT_FINISH_LENGTH);
    assert_int_equal(stat_of(w, "ensemble",
                             "\"response_stats\":{\"0\":{"
                             "\"compute_infer\":{\"count\":"),
                     1);
    COUNTED(w, "ensemble", 1);
    stop(w);
}

static void model_metadata_lists_all_inputs(void **state)
{
    static const char *const inputs[] = {
        "text_input",  "max_tokens",   "bad_words",
        "stop_words",  "stream",       "exclude_input_in_output",
        "temperature", "random_seed",  "return_log_probs",
        "beam_width",  "lora_task_id", "end_id"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    get_ok(w, &ex, "/v2");
    has(&ex, "{\"name\":\"baton\",\"version\":\"");
    has(&ex, "\"statistics\"");
    has(&ex, "\"model_repository\"");
    get_ok(w, &ex, "/v2/models/ensemble");
    for (size_t i = 0; i < BT_ARRAY_LEN(inputs); i++) {
        char part[64];

        snprintf(part, sizeof(part), "{\"name\":\"%s\",", inputs[i]);
        has(&ex, part);
    }
    has(&ex, "{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":[-1,1]"
             "}");
    get_ok(w, &ex, "/v2/models/ensemble/versions/1/config");
    has(&ex, "{\"name\":\"ensemble\",\"platform\":\"ensemble\",\"backend\":"
             "\"\"");
    has(&ex, "\"ensemble_scheduling\":{\"step\":[{\"model_name\":"
             "\"preprocessing\",\"model_version\":-1,\"input_map\":{\"QUERY\":"
             "\"text_input\"");
    has(&ex, "\"model_transaction_policy\":{\"decoupled\":true}");
    get_ok(w, &ex, "/v2/models/tensorrt_llm/config");
    has(&ex, "\"backend\":\"tensorrtllm\"");
    has(&ex, "\"max_batch_size\":64");
    has(&ex, "\"gpt_model_type\":{\"string_value\":\"inflight_fused_batching\""
             "}");
    has(&ex, "{\"name\":\"input_ids\",\"data_type\":\"TYPE_INT32\"");
    assert_null(strstr(ex.out, "ensemble_scheduling"));
    get_ok(w, &ex, "/v2/models/preprocessing/config");
    has(&ex, "\"decoupled\":false");
    get_ok(w, &ex, "/v2/models/stats");
    has(&ex, "{\"model_stats\":[{\"name\":\"tiny\"");
    has(&ex, "{\"name\":\"tensorrt_llm_bls\"");
    refused(w, "/v2/models/ensemble/config", "", 405, "not allowed");
    get(w, &ex, "/v2/models/other/stats");
    assert_int_equal(ex.status, 404);
    has(&ex, "'other'");
    get(w, &ex, "/v2/models/ensemble/versions/2/stats");
    assert_int_equal(ex.status, 404);
    stop(w);
}

static void repository_index_lists_all_or_ready_models(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    post_ok(w, "/v2/repository/index", "",
            "[{\"name\":\"tiny\",\"version\":\"1\",\"state\":\"READY\","
            "\"reason\":\"\"},{\"name\":\"preprocessing\",");
    w->served->unloaded = true;
    post_ok(w, "/v2/repository/index", "{}",
            "{\"name\":\"ensemble\",\"version\":\"1\",\"state\":"
            "\"UNAVAILABLE\",\"reason\":\"unloaded\"}");
    post(w, &ex, "/v2/repository/index", "{\"ready\":true}");
    assert_string_equal(ex.out, "[]");
    refused(w, "/v2/repository/index", "{\"ready\":3}", 400, "ready");
    refused(w, "/v2/repository/index", "[]", 400, "not a JSON object");
    refused(w, "/v2/repository/models/tiny/load", "", 400,
            "failed to load 'tiny', this router has no launcher");
    refused(w, "/v2/repository/models/tensorrt_llm/unload",
            "{\"parameters\":{\"unload_dependents\":true}}", 400,
            "failed to unload 'tiny', this router has no launcher");
    refused(w, "/v2/repository/models/tiny/load",
            "{\"parameters\":{\"config\":\"{}\"}}", 400, "config: ");
    stop(w);
}

static void
the_logs_level_follows_a_clients_order_and_the_rest_stays(void **state)
{
    const bt_log_level_t before = bt_log_level();
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    w->config.log_level = "info";
    bt_log_set_level(BT_LOG_LEVEL_INFO);
    get_ok(w, &ex, "/v2/logging");
    assert_string_equal(ex.out,
                        "{\"log_file\":\"\",\"log_info\":true,\"log_warning\":"
                        "true,\"log_error\":true,\"log_verbose_level\":0,"
                        "\"log_format\":\"ISO8601\"}");
    post_ok(w, "/v2/logging", "{\"log_verbose_level\":1}",
            "\"log_verbose_level\":1");
    assert_int_equal(bt_log_level(), BT_LOG_LEVEL_DEBUG);
    post_ok(w, "/v2/logging",
            "{\"log_verbose_level\":0,\"log_info\":false,\"log_file\":\"\"}",
            "\"log_info\":false,\"log_warning\":true");
    assert_int_equal(bt_log_level(), BT_LOG_LEVEL_WARN);
    post_ok(w, "/v2/logging", "{\"log_warning\":false}",
            "\"log_warning\":false");
    assert_int_equal(bt_log_level(), BT_LOG_LEVEL_ERROR);
    post_ok(w, "/v2/logging", "{\"log_info\":true,\"log_warning\":true}",
            "\"log_info\":true");
    assert_int_equal(bt_log_level(), BT_LOG_LEVEL_INFO);
    refused(w, "/v2/logging", "{\"log_error\":false}", 400, "log_error");
    refused(w, "/v2/logging", "{\"log_warning\":false}", 400, "log_warning");
    refused(w, "/v2/logging", "{\"log_info\":1}", 400, "log_info");
    refused(w, "/v2/logging", "{\"log_file\":\"/etc/x\"}", 400, "log_file");
    refused(w, "/v2/logging", "{\"log_format\":\"default\"}", 400,
            "log_format");
    refused(w, "/v2/logging", "{\"color\":true}", 400, "color: there is no");
    refused(w, "/v2/logging", "{\"log_info\":{}}", 400, "log_info");
    refused(w, "/v2/logging", "{\"log_info\":true", 400, "body");
    refused(w, "/v2/logging", "{\"log_verbose_level\":-1}", 400,
            "log_verbose_level");
    bt_log_set_level(before);
    stop(w);
}

static void
the_traces_settings_are_told_and_its_level_can_be_changed(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    get_ok(w, &ex, "/v2/models/ensemble/trace/setting");
    assert_string_equal(ex.out,
                        "{\"trace_level\":[\"OFF\"],\"trace_rate\":\"1\","
                        "\"trace_count\":\"-1\",\"log_frequency\":\"0\","
                        "\"trace_file\":\"\",\"trace_mode\":"
                        "\"opentelemetry\"}");
    post_ok(w, "/v2/trace/setting",
            "{\"trace_level\":[\"OFF\"],\"trace_rate\":\"1\",\"trace_count\":"
            "null}",
            "\"OFF\"");
    refused(w, "/v2/trace/setting", "{\"trace_level\":[\"TIMESTAMPS\"]}", 400,
            "--trace-file");
    refused(w, "/v2/trace/setting", "{\"trace_level\":[\"TENSORS\"]}", 400,
            "trace_level");
    post_ok(w, "/v2/trace/setting", /* of equal names the last counts */
            "{\"trace_level\":[\"TENSORS\"],\"trace_level\":[\"OFF\"]}",
            "\"OFF\"");
    refused(w, "/v2/trace/setting", "{\"trace_rate\":\"7\"}", 400,
            "trace_rate");
    refused(w, "/v2/trace/setting", "{\"trace_file\":\"/x\"}", 400,
            "trace_file");
    refused(w, "/v2/trace/setting", "{\"unknown\":\"7\"}", 400, "unknown");
    refused(w, "/v2/models/ensemble/trace/setting",
            "{\"trace_level\":[\"TIMESTAMPS\"]}", 400, "those of the server");
    stop(w);
}

static void shared_memory_is_off_and_sagemaker_routes_answer(void **state)
{
    static const char *const kinds[] = {"system", "cuda"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        char path[128];

        snprintf(path, sizeof(path), "/v2/%ssharedmemory/status", kinds[i]);
        get_ok(w, &ex, path);
        assert_string_equal(ex.out, "[]");
        snprintf(path, sizeof(path), "/v2/%ssharedmemory/region/r/status",
                 kinds[i]);
        get(w, &ex, path);
        assert_int_equal(ex.status, 404);
        snprintf(path, sizeof(path), "/v2/%ssharedmemory/region/r/register",
                 kinds[i]);
        refused(w, path, "{}", 400,
                (i == 0) ? "--shared-memory off" : "r: CUDA shared memory");
        snprintf(path, sizeof(path), "/v2/%ssharedmemory/unregister", kinds[i]);
        post_ok(w, path, "", "");
    }
    get_ok(w, &ex, "/ping");
    refused(w, "/invocations", "{}", 400, "'inputs'");
    /* Vertex AI's, where it has them. */
    snprintf(w->door.vertex_health, sizeof(w->door.vertex_health), "/health-x");
    snprintf(w->door.vertex_predict, sizeof(w->door.vertex_predict),
             "/predict");
    get_ok(w, &ex, "/health-x");
    refused(w, "/predict", "{}", 400, "'inputs'");
    w->front.leaving = true;
    get(w, &ex, "/health-x");
    assert_int_equal(ex.status, 503);
    stop(w);
}

/* ---- with a model repository ---- */

static bt_repository_t *repository_of(uint32_t index, const char *text)
{
    bt_repository_t *repository = bt_calloc(1, sizeof(*repository));
    char why[BT_REPO_WHY_BYTES] = "";

    assert_non_null(repository);
    if (bt_repository_take(repository, index, "c.pbtxt", text, strlen(text),
                           why) != BT_OK) {
        fail_msg("%s", why);
    }
    return repository;
}

static void config_pbtxt_is_reported_and_applied(void **state)
{
    static const char text[] =
        "name: \"tensorrt_llm\" backend: \"tensorrtllm\" max_batch_size: 1\n"
        "model_transaction_policy { decoupled: false }\n"
        "dynamic_batching { preferred_batch_size: [ 4 ] }\n"
        "input { name: \"own \\\"input\\\"\" data_type: TYPE_INT32 dims: [ 1 ] "
        "reshape: { shape: [ ] } allow_ragged_batch: true }\n"
        "parameters { key: \"num_nodes\" value { string_value: \"1\" } }\n";
    bt_repository_t *repository = repository_of(1, text);
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    w->config.repository = repository;
    get_ok(w, &ex, "/v2/models/tensorrt_llm/config");
    has(&ex, "\"max_batch_size\":1,\"input\":[{\"name\":\"own "
             "\\\"input\\\"\",\"data_type\":\"TYPE_INT32\",\"format\":"
             "\"FORMAT_NONE\",\"dims\":[1],\"reshape\":{\"shape\":[]},"
             "\"is_shape_tensor\":false,\"allow_ragged_batch\":true,"
             "\"optional\":false}],\"output\":[{\"name\":\"output_ids\"");
    has(&ex, "\"dynamic_batching\":{\"preferred_batch_size\":[4]");
    has(&ex, "\"parameters\":{\"num_nodes\":{\"string_value\":\"1\"}}");
    has(&ex, "\"model_transaction_policy\":{\"decoupled\":false}");
    get_ok(w, &ex, "/v2/models/tensorrt_llm_bls/config");
    has(&ex, "\"decoupled\":true");
    refused(w, "/v2/models/tensorrt_llm/generate_stream",
            "{\"text_input\":\"a\",\"max_tokens\":2}", 400,
            "Streaming is only supported if model is deployed using decoupled "
            "mode");
    refused(w, "/v2/models/tensorrt_llm/infer",
            "{\"inputs\":[{\"name\":\"input_ids\",\"shape\":[2,1],\"datatype\":"
            "\"INT32\",\"data\":[5,6]},{\"name\":\"request_output_len\","
            "\"shape\":[2,1],\"datatype\":\"INT32\",\"data\":[2,2]}]}",
            400,
            "inference request batch-size must be <= 1 for 'tensorrt_llm'");
    w->config.repository = NULL;
    stop(w);
    bt_repository_destroy(repository);
}

static void
prompts_in_texts_and_whole_texts_in_streams_follow_the_options(void **state)
{
    world_t *w = &world;
    bt_exchange_t a, b, c, d;

    (void)state;
    start(w, true);
    w->config.exclude_input_in_output = false;
    post(w, &a, GENERATE, "{\"text_input\":\"ab\",\"max_tokens\":2}");
    answer(w, 0, "AB", BT_FINISH_LENGTH);
    has(&a, "\"text_output\":\"abAB\"");
    post(w, &b, GENERATE,
         "{\"text_input\":\"ab\",\"max_tokens\":2,"
         "\"exclude_input_in_output\":true}");
    answer(w, 1, "AB", BT_FINISH_LENGTH);
    has(&b, "\"text_output\":\"AB\"");
    w->config.exclude_input_in_output = true;
    w->config.accumulate_tokens = true;
    post(w, &c, "/v2/models/tensorrt_llm_bls/generate_stream",
         "{\"text_input\":\"ab\",\"max_tokens\":3}");
    answer(w, 2, "ABC", BT_FINISH_LENGTH);
    has(&c, "\"text_output\":\"A\"");
    has(&c, "\"text_output\":\"ABC\"");
    assert_null(strstr(c.out, "\"text_output\":\"BC\""));
    post(w, &d, STREAM, "{\"text_input\":\"ab\",\"max_tokens\":3}");
    answer(w, 3, "ABC", BT_FINISH_LENGTH);
    assert_null(strstr(d.out, "\"text_output\":\"ABC\""));
    stop(w);
}

/* ---- requests that wait for others ---- */

static uint32_t hold_us;

static void note_hold(void *ctx, uint32_t us)
{
    (void)ctx;
    hold_us = us;
}

static void requests_within_queue_delay_begin_together(void **state)
{
    world_t *w = &world;
    bt_exchange_t a, b, c;

    (void)state;
    start(w, true);
    w->config.max_queue_delay_us = 300;
    w->front.hold_end = note_hold;
    post(w, &a, GENERATE, "{\"text_input\":\"ab\",\"max_tokens\":2}");
    assert_int_equal(hold_us, 300);
    hold_us = 0;
    post(w, &b, GENERATE, "{\"text_input\":\"cd\",\"max_tokens\":2}");
    post(w, &c, GENERATE, "{\"text_input\":\"ef\",\"max_tokens\":2}");
    assert_int_equal(hold_us, 0); /* the time runs since the first */
    assert_int_equal(w->n_sent, 0);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 3);
    bt_door_gone(&w->door, &b); /* and is held no more */
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 2);
    bt_request_begin_held(&w->front);
    assert_int_equal(count(w, BT_MSG_REQUEST), 4); /* two, to P and D each */
    answer(w, 0, "AB", BT_FINISH_LENGTH);
    answer(w, 1, "CD", BT_FINISH_LENGTH);
    has(&a, "\"text_output\":\"abAB\"");
    has(&c, "\"text_output\":\"efCD\"");
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 0);
    /* Rows that are held when the server stops go with their client. */
    post(w, &a, GENERATE, "{\"text_input\":\"ab\",\"max_tokens\":2}");
    bt_door_gone(&w->door, &a);
    stop(w);
}

static void failed_allocation_answers_error_and_leaks_nothing(void **state)
{
    static const char *const paths[] = {"/v2/models/ensemble/config",
                                        "/v2/models/tensorrt_llm",
                                        "/v2/models/stats"};
    world_t *w = &world;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(paths); i++) {
        bt_exchange_t ex = {0};

        for (int nth = 1; ex.status != 200; nth++) {
            bt_strbuf_fini(&w->door.out);
            bt_strbuf_init(&w->door.out, BT_ANSWER_LIMIT);
            bt_alloc_fail_at(nth);
            get(w, &ex, paths[i]);
            bt_alloc_fail_at(0);
            assert_true((ex.status == 200) || (ex.status == 503));
            assert_in_range(nth, 1, 100);
        }
    }
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_call_counts_for_its_name_and_for_the_parts_of_a_chain),
        BT_TEST(batch_counts_as_one_request_and_n_inferences),
        BT_TEST(who_leaves_counts_as_failed_and_a_stream_by_its_responses),
        BT_TEST(model_metadata_lists_all_inputs),
        BT_TEST(repository_index_lists_all_or_ready_models),
        BT_TEST(the_logs_level_follows_a_clients_order_and_the_rest_stays),
        BT_TEST(the_traces_settings_are_told_and_its_level_can_be_changed),
        BT_TEST(shared_memory_is_off_and_sagemaker_routes_answer),
        BT_TEST(config_pbtxt_is_reported_and_applied),
        BT_TEST(prompts_in_texts_and_whole_texts_in_streams_follow_the_options),
        BT_TEST(requests_within_queue_delay_begin_together),
        BT_TEST(failed_allocation_answers_error_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
