/* SPDX-License-Identifier: Apache-2.0 */
/* The five files of tests/support/model_repository have every field that the
 * backend's own have, in all its versions that had such files, as templates.
 * What is expected of each is written down here by hand. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/repository/repository.h"

#define LLM        1
#define FILE_BYTES 65536

static char why[BT_REPO_WHY_BYTES];

static const char *fixture(void)
{
    return bt_test_path("support/model_repository");
}

static void open_fixture(bt_repository_t **repository_p)
{
    if (bt_repository_read(fixture(), repository_p, why) != BT_OK) {
        fail_msg("%s", why);
    }
}

/* A file of one model, whose name stands before @a text. */
static bt_status_t take(uint32_t index, const char *text,
                        bt_repository_t **repository_p)
{
    char file[FILE_BYTES];

    *repository_p = bt_calloc(1, sizeof(**repository_p));
    assert_non_null(*repository_p);
    snprintf(file, sizeof(file), "name: \"%s\"\n%s", bt_repo_names[index],
             text);
    why[0] = '\0';
    return bt_repository_take(*repository_p, index, "c.pbtxt", file,
                              strlen(file), why);
}

static void refused(uint32_t index, const char *text, const char *want)
{
    bt_repository_t *repository;

    if (take(index, text, &repository) != BT_ERR_INVALID_PARAM) {
        fail_msg("%s was taken (%s)", text, why);
    }
    assert_string_equal(why, want);
    bt_repository_destroy(repository);
}

/* ---- every field ---- */

typedef struct expected {
    const char *model, *key;
    char fate;          /* E effect, N noted, O only these values */
    const char *value;  /* that is taken */
    const char *result; /* E: "option=value" or "" (described); N: the note;
                           O: the note where it is not what is done, or "" */
    const char *bad;    /* a value that is refused, or NULL */
} expected_t;

#define PRE  "preprocessing"
#define POST "postprocessing"
#define TRT  "tensorrt_llm"
#define BLS  "tensorrt_llm_bls"

static const expected_t parameters[] = {
    {PRE, "tokenizer_dir", 'N', "/t", "tokenizer", NULL},
    {PRE, "tokenizer_type", 'N', "auto", "tokenizer", NULL},
    {PRE, "add_special_tokens", 'O', "True", "", "False"},
    {PRE, "multimodal_model_path", 'O', "", "", "/m"},
    {PRE, "visual_model_path", 'O', "", "", "/m"},
    {PRE, "gpt_model_path", 'N', "/e", "tensorrt_llm's", NULL},
    {PRE, "max_num_images", 'N', "1", "images", NULL},
    {POST, "tokenizer_dir", 'N', "/t", "tokenizer", NULL},
    {POST, "tokenizer_type", 'N', "auto", "tokenizer", NULL},
    {POST, "skip_special_tokens", 'O', "true", "", "false"},
    {BLS, "accumulate_tokens", 'E', "true", "accumulate-tokens=yes", "perhaps"},
    {BLS, "tensorrt_llm_model_name", 'O', "tensorrt_llm", "", "other"},
    {BLS, "tensorrt_llm_draft_model_name", 'O', "", "", "draft"},
    {BLS, "multimodal_encoders_name", 'O', "", "", "vision"},
    {TRT, "max_beam_width", 'E', "4", "max-beam-width=4", "many"},
    {TRT, "FORCE_CPU_ONLY_INPUT_TENSORS", 'N', "no", "arrive", NULL},
    {TRT, "gpt_model_type", 'E', "V1", "batching-strategy=V1", "v2"},
    {TRT, "gpt_model_path", 'E', "/m.gguf", "model=/m.gguf", NULL},
    {TRT, "decoupled", 'E', "true", "", "perhaps"},
    {TRT, "schedule_policy", 'E', "MAX_UTILIZATION",
     "scheduler-policy=max_utilization", "fifo"},
    {TRT, "encoder_model_path", 'O', "", "", "/e"},
    {TRT, "max_tokens_in_paged_kv_cache", 'E', "2560", "kv-tokens=2560", "-1"},
    {TRT, "max_attention_window_size", 'O', "", "", "4096"},
    {TRT, "max_kv_cache_length", 'O', "", "", "4096"},
    {TRT, "sink_token_length", 'O', "0", "", "4"},
    {TRT, "batch_scheduler_policy", 'E', "MAX_UTILIZATION",
     "scheduler-policy=max_utilization", "fifo"},
    {TRT, "kv_cache_free_gpu_mem_fraction", 'E', "0.9", "kv-free-percent=90",
     "1.5"},
    {TRT, "cross_kv_cache_fraction", 'O', "", "", "0.5"},
    {TRT, "kv_cache_host_memory_bytes", 'O', "0", "", "1024"},
    {TRT, "kv_cache_onboard_blocks", 'N', "true", "pool", NULL},
    {TRT, "exclude_input_in_output", 'E', "false", "exclude-input-in-output=no",
     "x"},
    {TRT, "cancellation_check_period_ms", 'N', "100", "at once", NULL},
    {TRT, "stats_check_period_ms", 'N', "100", "up to date", NULL},
    {TRT, "iter_stats_max_iterations", 'N', "5", "counted", NULL},
    {TRT, "request_stats_max_iterations", 'N', "5", "counted", NULL},
    {TRT, "enable_kv_cache_reuse", 'E', "false", "prefix-cache=off", "2"},
    {TRT, "normalize_log_probs", 'O', "true", "", "false"},
    {TRT, "enable_chunked_context", 'O', "false", "--chunk-tokens", "x"},
    {TRT, "gather_context_logits", 'N', "true", "whoever asks", NULL},
    {TRT, "gather_generation_logits", 'N', "true", "whoever asks", NULL},
    {TRT, "gather_all_token_logits", 'N', "true", "whoever asks", NULL},
    {TRT, "gpu_device_ids", 'N', "0,1", "--backend", NULL},
    {TRT, "participant_ids", 'N', "0", "join", NULL},
    {TRT, "num_nodes", 'O', "1", "", "2"},
    {TRT, "lora_cache_optimal_adapter_size", 'N', "8", "LoRA", NULL},
    {TRT, "lora_cache_max_adapter_size", 'E', "32", "max-lora-rank=32", "-1"},
    {TRT, "lora_cache_gpu_memory_fraction", 'N', "0.05", "LoRA", NULL},
    {TRT, "lora_cache_host_memory_bytes", 'E', "1024",
     "lora-cache-host-memory=1024", "-1"},
    {TRT, "lora_prefetch_dir", 'E', "/l", "lora-prefetch-dir=/l", NULL},
    {TRT, "decoding_mode", 'O', "beam_search", "searches with beams", "medusa"},
    {TRT, "executor_worker_path", 'N', "/w", "own", NULL},
    {TRT, "worker_path", 'N', "/w", "own", NULL},
    {TRT, "lookahead_window_size", 'O', "", "", "8"},
    {TRT, "lookahead_ngram_size", 'O', "", "", "8"},
    {TRT, "lookahead_verification_set_size", 'O', "", "", "8"},
    {TRT, "medusa_choices", 'O', "", "", "{0}"},
    {TRT, "eagle_choices", 'O', "", "", "{0}"},
    {TRT, "gpu_weights_percent", 'N', "1.0", "--backend", NULL},
    {TRT, "enable_context_fmha_fp32_acc", 'N', "true", "float32", NULL},
    {TRT, "multi_block_mode", 'N', "true", "--backend", NULL},
    {TRT, "cuda_graph_mode", 'N', "true", "--backend", NULL},
    {TRT, "cuda_graph_cache_size", 'N', "0", "--backend", NULL},
    {TRT, "enable_trt_overlap", 'N', "false", "--backend", NULL},
    {TRT, "speculative_decoding_fast_logits", 'O', "0", "speculative", "1"},
    {TRT, "tokenizer_dir", 'N', "/t", "tokenizer", NULL},
    {TRT, "guided_decoding_backend", 'N', "xgrammar", "structured", NULL},
    {TRT, "xgrammar_tokenizer_info_path", 'N', "/x", "structured", NULL},
    {TRT, "max_num_sequences", 'E', "32", "max-batch-size=32", "many"},
};

static const expected_t *expectation(const char *model, const char *key)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(parameters); i++) {
        if ((strcmp(parameters[i].model, model) == 0) &&
            (strcmp(parameters[i].key, key) == 0)) {
            return &parameters[i];
        }
    }
    fail_msg("%s of %s is expected to be nothing", key, model);
    return NULL;
}

static void parameter(char *out, size_t n, const char *key, const char *value)
{
    snprintf(out, n,
             "parameters { key: \"%s\" value: { string_value: \"%s\" } }", key,
             value);
}

static void is_set(const bt_repository_t *repository, const char *want)
{
    for (uint32_t i = 0; i < repository->n_settings; i++) {
        const bt_repo_setting_t *s = &repository->settings[i];
        char got[256];

        snprintf(got, sizeof(got), "%s=%s", s->option,
                 (s->path != NULL) ? s->path : s->value);
        if (strcmp(got, want) == 0) {
            return;
        }
    }
    fail_msg("nothing sets %s", want);
}

static void try_parameter(uint32_t index, const expected_t *e)
{
    bt_repository_t *repository;
    char text[512];

    parameter(text, sizeof(text), e->key, e->value);
    if (take(index, text, &repository) != BT_OK) {
        fail_msg("%s", why);
    }
    if ((e->fate == 'E') && (e->result[0] != '\0')) {
        is_set(repository, e->result);
    } else {
        assert_int_equal(repository->n_settings, 0);
    }
    if ((e->fate != 'E') && (e->result[0] != '\0')) {
        assert_non_null(strstr(repository->notes[index], e->key));
        assert_non_null(strstr(repository->notes[index], e->result));
    } else {
        assert_string_equal(repository->notes[index], "");
    }
    bt_repository_destroy(repository);
    if (e->bad != NULL) {
        parameter(text, sizeof(text), e->key, e->bad);
        assert_int_equal(take(index, text, &repository), BT_ERR_INVALID_PARAM);
        assert_non_null(strstr(why, "c.pbtxt:2: parameters."));
        assert_non_null(strstr(why, e->key));
        bt_repository_destroy(repository);
    }
}

static void every_parameter_has_its_documented_effect(void **state)
{
    bt_repository_t *repository;
    size_t n = 0;

    (void)state;
    open_fixture(&repository);
    for (uint32_t i = 0; i < BT_REPO_N_MODELS; i++) {
        const bt_repo_model_t *model = &repository->models[i];

        assert_true(repository->has[i]);
        for (uint32_t k = 0; k < model->n_parameters; k++) {
            try_parameter(i,
                          expectation(model->name, model->parameters[k].key));
            n++;
        }
    }
    assert_int_equal(n, BT_ARRAY_LEN(parameters));
    bt_repository_destroy(repository);
}

/* The table has no row that the files do not need, and none is missing. */
static void every_parameter_row_is_read_from_config_pbtxt(void **state)
{
    static const char prefix[] = "parameters.";
    size_t n = 0;

    (void)state;
    for (uint32_t i = 0; i < bt_repo_n_fields; i++) {
        const bt_repo_field_t *row = &bt_repo_fields[i];

        if (strncmp(row->path, prefix, strlen(prefix)) == 0) {
            (void)expectation(row->model, row->path + strlen(prefix));
            n++;
        }
        assert_true(row->note[0] != '\0');
    }
    assert_int_equal(n, BT_ARRAY_LEN(parameters));
}

static void template_placeholders_count_as_absent(void **state)
{
    bt_repository_t *repository;
    const bt_repo_model_t *model;

    (void)state;
    open_fixture(&repository);
    assert_int_equal(repository->n_settings, 0);
    model = &repository->models[LLM];
    assert_string_equal(model->backend, "");
    assert_int_equal(model->max_batch_size, BT_REPO_MAX_BATCH_SIZE);
    assert_true(model->decoupled);
    assert_null(bt_repo_parameter(model, "batch_scheduler_policy"));
    assert_string_equal(
        bt_repo_parameter(model, "FORCE_CPU_ONLY_INPUT_TENSORS"), "no");
    assert_non_null(
        strstr(repository->notes[LLM], "max_batch_size (not filled in)"));
    /* input_ids is ragged and optional, input_lengths is reshaped to none. */
    assert_string_equal(model->inputs[0].name, "input_ids");
    assert_true(model->inputs[0].ragged && model->inputs[0].optional);
    assert_string_equal(model->inputs[3].name, "input_lengths");
    assert_true(model->inputs[3].has_reshape);
    assert_int_equal(model->inputs[3].n_reshape, 0);
    bt_repository_destroy(repository);
}

/* ---- the documented quick start ---- */

static const char *const quick_start[][2] = {
    {"triton_max_batch_size", "4"},
    {"preprocessing_instance_count", "3"},
    {"postprocessing_instance_count", "1"},
    {"bls_instance_count", "1"},
    {"tokenizer_dir", "/app/examples/gpt/gpt2"},
    {"triton_backend", "tensorrtllm"},
    {"decoupled_mode", "false"},
    {"engine_dir", "/engines/gpt/fp16/4-gpu"},
    {"max_queue_delay_microseconds", "250"},
    {"batching_strategy", "inflight_fused_batching"},
    {"max_queue_size", "77"},
    {"encoder_input_features_data_type", "TYPE_FP16"},
    {"logits_datatype", "TYPE_FP32"},
};

/* As the backend's own fill_template does: safe_substitute of ${name}. */
static void fill(const char *from, char *to)
{
    while (*from != '\0') {
        bool found = false;

        for (size_t i = 0;
             (i < BT_ARRAY_LEN(quick_start)) && (strncmp(from, "${", 2) == 0);
             i++) {
            const size_t n = strlen(quick_start[i][0]);

            if ((strncmp(from + 2, quick_start[i][0], n) == 0) &&
                (from[2 + n] == '}')) {
                to = stpcpy(to, quick_start[i][1]);
                from += n + 3;
                found = true;
                break;
            }
        }
        if (!found) {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static void write_filled(const char *dir, const char *name)
{
    static char text[FILE_BYTES];
    static char filled[FILE_BYTES];
    char path[512];
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s/config.pbtxt", fixture(), name);
    file = fopen(path, "r");
    assert_non_null(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    fill(text, filled);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%s/config.pbtxt", dir, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(filled, file);
    fclose(file);
}

static void remove_all(const char *dir)
{
    char path[512];

    for (int i = 0; i < BT_REPO_N_MODELS; i++) {
        snprintf(path, sizeof(path), "%s/%s/config.pbtxt", dir,
                 bt_repo_names[i]);
        unlink(path);
        snprintf(path, sizeof(path), "%s/%s", dir, bt_repo_names[i]);
        rmdir(path);
    }
    rmdir(dir);
}

static void documented_repository_quick_start_takes_effect(void **state)
{
    char dir[] = "/tmp/baton-test-repository-XXXXXX";
    bt_repository_t *repository;
    const bt_repo_model_t *model;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < BT_REPO_N_MODELS; i++) {
        write_filled(dir, bt_repo_names[i]);
    }
    if (bt_repository_read(dir, &repository, why) != BT_OK) {
        fail_msg("%s", why);
    }
    is_set(repository, "max-queue-delay-us=250");
    is_set(repository, "max-concurrent-requests=77");
    is_set(repository, "tokenizer-threads=3");
    is_set(repository, "batching-strategy=inflight_fused_batching");
    is_set(repository, "model=/engines/gpt/fp16/4-gpu"); /* who starts looks */
    assert_int_equal(repository->n_settings, 5);
    model = &repository->models[LLM];
    assert_string_equal(model->backend, "tensorrtllm");
    assert_int_equal(model->max_batch_size, 4);
    assert_false(model->decoupled);
    assert_int_equal(model->preferred_batch_size, 4);
    assert_int_equal(model->queue_delay_us, 250);
    assert_int_equal(model->max_queue_size, 77);
    model = &repository->models[3];
    assert_string_equal(model->platform, "ensemble");
    assert_int_equal(model->n_steps, 3);
    assert_string_equal(model->steps[1].model, "tensorrt_llm");
    assert_string_equal(model->steps[0].inputs[0].key, "QUERY");
    assert_string_equal(model->steps[0].inputs[0].value, "text_input");
    assert_string_equal(model->steps[2].outputs[0].value, "text_output");
    bt_repository_destroy(repository);
    remove_all(dir);
}

/* ---- the other fields ---- */

static void instance_groups_and_queues_apply_by_model(void **state)
{
    static const char group[] =
        "instance_group [ { count: 3 kind: KIND_GPU gpus: [ 0, 1 ] } ]";
    static const char *const counts[BT_REPO_N_MODELS] = {
        "tokenizer-threads=3", "decode=3", NULL, NULL, NULL};

    (void)state;
    for (uint32_t i = 0; i < BT_REPO_N_MODELS; i++) {
        bt_repository_t *repository;

        assert_int_equal(take(i, group, &repository), BT_OK);
        assert_non_null(strstr(repository->notes[i], "KIND_GPU"));
        assert_non_null(strstr(repository->notes[i], "instance_group.gpus"));
        assert_int_equal(repository->models[i].instances[0].count, 3);
        if (counts[i] != NULL) {
            is_set(repository, counts[i]);
        } else {
            assert_non_null(
                strstr(repository->notes[i], "instance_group.count"));
        }
        bt_repository_destroy(repository);
    }
}

static void
invalid_repository_field_is_refused_by_file_line_and_name(void **state)
{
    static const struct {
        uint32_t index;
        const char *text, *want;
    } cases[] = {
        {1, "color: 1",
         "c.pbtxt:2: color: model tensorrt_llm has no such field here"},
        {1, "sequence_batching { oldest { } }",
         "c.pbtxt:2: sequence_batching is not served: each request stands "
         "alone; leave it out, dynamic_batching is read"},
        {1, "dynamic_batching { preserve_ordering: true }",
         "c.pbtxt:2: dynamic_batching.preserve_ordering: 'true' is not served: "
         "responses are sent as they are ready, and clients pair them by id; "
         "leave it out (false)"},
        {1, "version_policy { specific { versions: [ 2, 3 ] } }",
         "c.pbtxt:2: version_policy.specific.versions: there is one version, "
         "1: name it, or leave version_policy out"},
        {1, "version_policy { newest { } }",
         "c.pbtxt:2: version_policy.newest: it is none of latest, all and "
         "specific"},
        {1, "name: \"other\"",
         "c.pbtxt:2: name: 'other' stands in the folder of tensorrt_llm"},
        {1, "\nbackend: \"onnxruntime\"",
         "c.pbtxt:3: backend: 'onnxruntime' is not served: Baton computes the "
         "model, whichever is named (tensorrtllm, python)"},
        {1, "platform: \"ensemble\"",
         "c.pbtxt:2: platform: 'ensemble' is not served: Baton computes the "
         "model, whichever is named (tensorrt_llm, tensorrtllm)"},
        {0, "platform: \"onnx\"",
         "c.pbtxt:2: platform: 'onnx' is not served: only an ensemble has one; "
         "see backend"},
        {1, "max_batch_size: -1",
         "c.pbtxt:2: max_batch_size: '-1' is not a whole number from 0 to "
         "65536"},
        {1, "max_batch_size { }",
         "c.pbtxt:2: max_batch_size should be one value"},
        {1, "input: 3", "c.pbtxt:2: input should be { fields }"},
        {1, "input { dims: [ 1 ] }", "c.pbtxt:2: input has no name"},
        {1, "input { name: \"x\" data_type: INT }",
         "c.pbtxt:2: input.data_type: 'INT' is no data type"},
        {1, "input { name: \"x\" dims: [1,1,1,1,1,1,1,1,1] }",
         "c.pbtxt:2: input.dims: more than 8 dims"},
        {1, "input { name: \"x\" shape: [1] }",
         "c.pbtxt:2: input.shape: model tensorrt_llm has no such field here"},
        {1, "model_transaction_policy { decoupled: perhaps }",
         "c.pbtxt:2: model_transaction_policy.decoupled: 'perhaps' is neither "
         "true nor false"},
        {1, "dynamic_batching { priority_levels: 2 }",
         "c.pbtxt:2: dynamic_batching.default_priority_level: 0 is not from 1 "
         "to the 2 of priority_levels"},
        {1, "dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
         "c.pbtxt:2: dynamic_batching.default_priority_level: 3 is not from 1 "
         "to the 2 of priority_levels"},
        {1, "parameters { key: \"nothing\" }",
         "c.pbtxt:2: parameters.nothing: model tensorrt_llm has no such field "
         "here"},
        {1, "parameters { value: { string_value: \"x\" } }",
         "c.pbtxt:2: a parameter has no key"},
        {1, "ensemble_scheduling { }",
         "c.pbtxt:2: ensemble_scheduling: model tensorrt_llm has none"},
        {3, "ensemble_scheduling { step [ { model_name: \"other\" } ] }",
         "c.pbtxt:2: ensemble_scheduling.step.model_name: 'other' is none of "
         "the models that are here"},
        {1, "instance_group { count: 0 }",
         "c.pbtxt:2: instance_group.count: '0' is not a whole number from 1 to "
         "1024"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        refused(cases[i].index, cases[i].text, cases[i].want);
    }
}

static void cloud_stores_and_empty_folders_are_refused_by_name(void **state)
{
    static const char *const stores[] = {"s3://bucket/models", "gs://b/m",
                                         "as://account/container"};
    char dir[] = "/tmp/baton-test-repository-XXXXXX";
    bt_repository_t *repository = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(stores); i++) {
        assert_int_equal(bt_repository_read(stores[i], &repository, why),
                         BT_ERR_UNSUPPORTED);
        assert_non_null(strstr(why, stores[i]));
        assert_non_null(strstr(why, "cloud stores (s3, gs, as) are not read"));
    }
    assert_non_null(mkdtemp(dir));
    assert_int_equal(bt_repository_read(dir, &repository, why),
                     BT_ERR_NOT_FOUND);
    assert_non_null(strstr(why, "there is no config.pbtxt of preprocessing"));
    rmdir(dir);
    assert_int_equal(bt_repository_read("/tmp/none/here", &repository, why),
                     BT_ERR_NOT_FOUND);
    assert_null(repository);
}

static void repository_reader_reports_a_failed_allocation(void **state)
{
    bt_repository_t *repository = NULL;
    int nth = 0;

    (void)state;
    while (repository == NULL) {
        bt_status_t status;

        nth++;
        bt_alloc_fail_at(nth);
        status = bt_repository_read(fixture(), &repository, why);
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) == (repository != NULL));
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_non_null(strstr(why, "out of memory"));
        }
    }
    assert_in_range(nth, 30, 200);
    bt_repository_destroy(repository);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_parameter_has_its_documented_effect),
        BT_TEST(every_parameter_row_is_read_from_config_pbtxt),
        BT_TEST(template_placeholders_count_as_absent),
        BT_TEST(documented_repository_quick_start_takes_effect),
        BT_TEST(instance_groups_and_queues_apply_by_model),
        BT_TEST(invalid_repository_field_is_refused_by_file_line_and_name),
        BT_TEST(cloud_stores_and_empty_folders_are_refused_by_name),
        BT_TEST(repository_reader_reports_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
