/* SPDX-License-Identifier: Apache-2.0 */
/* Triton's metadata of server and models, as JSON. */
#include <stdio.h>
#include <string.h>

#include "router/http/routes_priv.h"

void bt_route_server(bt_http_request_t *r)
{
    const char *extensions[BT_DESCRIBE_MAX_EXTENSIONS];
    const size_t n = bt_describe_extensions(r->door->front, extensions);
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "name", BT_DESCRIBE_SERVER_NAME);
    bt_json_str(&json, "version", bt_config_version());
    bt_json_array(&json, "extensions");
    for (size_t i = 0; i < n; i++) {
        bt_json_str(&json, NULL, extensions[i]);
    }
    bt_json_end_array(&json);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

/* ---- a model ---- */

/* @return false: memory was short, and the error was sent */
static bool describe(bt_http_request_t *r, bt_model_view_t *view)
{
    if (bt_describe_model(r->door->front, r->base.model, view) == BT_OK) {
        return true;
    }
    bt_http_request_fail_for_memory(r);
    return false;
}

static void write_dims(bt_json_t *json, const int64_t *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_json_i64(json, NULL, dims[i]);
    }
}

/* Metadata has the protocol's data types, and the batch as the first dim. */
static void write_tensors(bt_json_t *json, const char *key, bool batches,
                          const bt_repo_tensor_t *tensors, uint32_t n)
{
    bt_json_array(json, key);
    for (uint32_t i = 0; i < n; i++) {
        const char *type = tensors[i].type + strlen("TYPE_");

        bt_json_object(json, NULL);
        bt_json_str(json, "name", tensors[i].name);
        bt_json_str(json, "datatype",
                    (strcmp(type, "STRING") == 0) ? "BYTES" : type);
        bt_json_array(json, "shape");
        if (batches) {
            bt_json_i64(json, NULL, -1);
        }
        write_dims(json, tensors[i].dims, tensors[i].n_dims);
        bt_json_end_array(json);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

void bt_route_model(bt_http_request_t *r)
{
    const bt_repo_model_t *model;
    bt_model_view_t view;
    bt_json_t json;
    bool batches;

    if (!describe(r, &view)) {
        return;
    }
    model = &view.model;
    batches = model->max_batch_size > 0;
    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "name", model->name);
    bt_json_array(&json, "versions");
    bt_json_str(&json, NULL, r->served->version);
    bt_json_end_array(&json);
    bt_json_str(&json, "platform",
                (model->platform[0] != '\0') ? model->platform
                                             : model->backend);
    write_tensors(&json, "inputs", batches, model->inputs, model->n_inputs);
    write_tensors(&json, "outputs", batches, model->outputs, model->n_outputs);
    bt_json_end_object(&json);
    bt_repo_model_fini(&view.own);
    bt_http_request_respond_json(r);
}

/* ---- its configuration ---- */

static void write_config_tensor(bt_json_t *json, const bt_repo_tensor_t *tensor,
                                bool is_input)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", tensor->name);
    bt_json_str(json, "data_type", tensor->type);
    if (is_input) {
        bt_json_str(json, "format", "FORMAT_NONE");
    }
    bt_json_array(json, "dims");
    write_dims(json, tensor->dims, tensor->n_dims);
    bt_json_end_array(json);
    if (tensor->has_reshape) {
        bt_json_object(json, "reshape");
        bt_json_array(json, "shape");
        write_dims(json, tensor->reshape, tensor->n_reshape);
        bt_json_end_array(json);
        bt_json_end_object(json);
    }
    if (is_input) {
        bt_json_bool(json, "is_shape_tensor", false);
        bt_json_bool(json, "allow_ragged_batch", tensor->ragged);
        bt_json_bool(json, "optional", tensor->optional);
    } else {
        bt_json_str(json, "label_filename", "");
        bt_json_bool(json, "is_shape_tensor", false);
    }
    bt_json_end_object(json);
}

static void write_config_tensors(bt_json_t *json, const bt_repo_model_t *model)
{
    bt_json_array(json, "input");
    for (uint32_t i = 0; i < model->n_inputs; i++) {
        write_config_tensor(json, &model->inputs[i], true);
    }
    bt_json_end_array(json);
    bt_json_array(json, "output");
    for (uint32_t i = 0; i < model->n_outputs; i++) {
        write_config_tensor(json, &model->outputs[i], false);
    }
    bt_json_end_array(json);
}

/* Keys of a JSON object come from a file, so they go through the escapes of a
 * string; a writer's key may not need any. */
static void write_pair(bt_json_t *json, bt_strbuf_t *key, const char *name)
{
    bt_json_t inner;

    bt_strbuf_reset(key);
    bt_json_init(&inner, key);
    bt_json_str(&inner, NULL, name);
    if ((bt_strbuf_status(key) != BT_OK) || (key->len < 2)) {
        json->out->status = BT_ERR_NO_MEMORY;
        return;
    }
    key->data[key->len - 1] = '\0'; /* without the quotes */
}

#define KEY_BYTES (64u << 10)

/* @param is_nested  each value is an object, {"string_value": "…"} */
static void write_map(bt_json_t *json, const char *name, bool is_nested,
                      const bt_repo_pair_t *pairs, uint32_t n)
{
    bt_strbuf_t key;

    bt_strbuf_init(&key, KEY_BYTES);
    bt_json_object(json, name);
    for (uint32_t i = 0; i < n; i++) {
        write_pair(json, &key, pairs[i].key);
        if (bt_strbuf_status(json->out) != BT_OK) {
            break;
        }
        if (is_nested) {
            bt_json_object(json, key.data + 1);
            bt_json_str(json, "string_value", pairs[i].value);
            bt_json_end_object(json);
        } else {
            bt_json_str(json, key.data + 1, pairs[i].value);
        }
    }
    bt_json_end_object(json);
    bt_strbuf_fini(&key);
}

static void write_steps(bt_json_t *json, const bt_repo_model_t *model)
{
    bt_json_object(json, "ensemble_scheduling");
    bt_json_array(json, "step");
    for (uint32_t i = 0; i < model->n_steps; i++) {
        const bt_repo_step_t *step = &model->steps[i];

        bt_json_object(json, NULL);
        bt_json_str(json, "model_name", step->model);
        bt_json_i64(json, "model_version", step->version);
        write_map(json, "input_map", false, step->inputs, step->n_inputs);
        write_map(json, "output_map", false, step->outputs, step->n_outputs);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

static void write_batching(bt_json_t *json, const bt_repo_model_t *model)
{
    bt_json_object(json, "dynamic_batching");
    bt_json_array(json, "preferred_batch_size");
    if (model->preferred_batch_size > 0) {
        bt_json_u64(json, NULL, model->preferred_batch_size);
    }
    bt_json_end_array(json);
    bt_json_u64(json, "max_queue_delay_microseconds", model->queue_delay_us);
    bt_json_bool(json, "preserve_ordering", false);
    if (model->priority_levels > 0) {
        bt_json_u64(json, "priority_levels", model->priority_levels);
        bt_json_u64(json, "default_priority_level",
                    model->default_priority_level);
    }
    bt_json_object(json, "default_queue_policy");
    bt_json_u64(json, "max_queue_size", model->max_queue_size);
    bt_json_end_object(json);
    bt_json_end_object(json);
}

static void write_instances(bt_json_t *json, const bt_repo_model_t *model)
{
    bt_json_array(json, "instance_group");
    for (uint32_t i = 0; i < model->n_instances; i++) {
        bt_json_object(json, NULL);
        bt_json_str(json, "name", model->name);
        bt_json_str(json, "kind", model->instances[i].kind);
        bt_json_u64(json, "count", model->instances[i].count);
        bt_json_raw(json, "gpus", "[]");
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

static void write_config(bt_json_t *json, const bt_repo_model_t *model,
                         bool decoupled)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", model->name);
    bt_json_str(json, "platform", model->platform);
    bt_json_str(json, "backend", model->backend);
    bt_json_object(json, "version_policy");
    bt_json_object(json, "latest");
    bt_json_u64(json, "num_versions", 1);
    bt_json_end_object(json);
    bt_json_end_object(json);
    bt_json_u64(json, "max_batch_size", model->max_batch_size);
    write_config_tensors(json, model);
    if (model->has_dynamic_batching) {
        write_batching(json, model);
    }
    write_instances(json, model);
    write_map(json, "parameters", true, model->parameters, model->n_parameters);
    if (model->n_steps > 0) {
        write_steps(json, model);
    }
    bt_json_object(json, "model_transaction_policy");
    bt_json_bool(json, "decoupled", decoupled);
    bt_json_end_object(json);
    bt_json_end_object(json);
}

void bt_route_config(bt_http_request_t *r)
{
    bt_model_view_t view;
    bt_json_t json;

    if (!describe(r, &view)) {
        return;
    }
    bt_http_request_begin_json(r, &json);
    write_config(&json, &view.model,
                 bt_describe_is_decoupled(r->door->front, r->base.model));
    bt_repo_model_fini(&view.own);
    bt_http_request_respond_json(r);
}

/* ---- statistics ---- */

static void write_duration(bt_json_t *json, const char *key, bt_duration_t d)
{
    bt_json_object(json, key);
    bt_json_u64(json, "count", d.count);
    bt_json_u64(json, "ns", d.ns);
    bt_json_end_object(json);
}

static void write_executed(bt_json_t *json, const char *key,
                           const bt_statistics_t *s, bt_duration_t d)
{
    d.count = s->execution_count;
    write_duration(json, key, d);
}

/* Each sequence is an execution of its own, a batch of one. */
static void write_batches(bt_json_t *json, const bt_statistics_t *s)
{
    bt_json_array(json, "batch_stats");
    if (s->execution_count > 0) {
        bt_json_object(json, NULL);
        bt_json_u64(json, "batch_size", 1);
        write_executed(json, "compute_input", s, s->compute_input);
        write_executed(json, "compute_infer", s, s->compute_infer);
        write_executed(json, "compute_output", s, s->compute_output);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

static void write_responses(bt_json_t *json, const bt_statistics_t *s)
{
    static const bt_duration_t none = {0, 0};

    bt_json_object(json, "response_stats");
    for (uint32_t i = 0; i < s->n_responses; i++) {
        char key[16];

        snprintf(key, sizeof(key), "%u", (unsigned)i);
        bt_json_object(json, key);
        write_duration(json, "compute_infer", s->responses[i]);
        write_duration(
            json, "compute_output",
            (bt_duration_t){.count = s->responses[i].count, .ns = 0});
        write_duration(json, "success", s->responses[i]);
        write_duration(json, "fail", none);
        write_duration(json, "empty_response", none);
        write_duration(json, "cancel", none);
        bt_json_end_object(json);
    }
    bt_json_end_object(json);
}

static void write_statistics(bt_json_t *json, const bt_described_t *described,
                             const bt_frontend_t *front)
{
    static const bt_duration_t none = {0, 0};
    bt_statistics_t s;

    bt_describe_statistics(front, described->served, described->name, &s);
    bt_json_object(json, NULL);
    bt_json_str(json, "name", described->name);
    bt_json_str(json, "version", described->served->version);
    bt_json_u64(json, "last_inference", s.last_ms);
    bt_json_u64(json, "inference_count", s.inference_count);
    bt_json_u64(json, "execution_count", s.execution_count);
    bt_json_object(json, "inference_stats");
    write_duration(json, "success", s.success);
    write_duration(json, "fail", s.fail);
    write_duration(json, "queue", s.queue);
    write_duration(json, "compute_input", s.compute_input);
    write_duration(json, "compute_infer", s.compute_infer);
    write_duration(json, "compute_output", s.compute_output);
    write_duration(json, "cache_hit", none);
    write_duration(json, "cache_miss", none);
    bt_json_end_object(json);
    write_responses(json, &s);
    write_batches(json, &s);
    bt_json_raw(json, "memory_usage", "[]");
    bt_json_end_object(json);
}

static void respond_statistics(bt_http_request_t *r, const bt_described_t *list,
                               size_t n)
{
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_array(&json, "model_stats");
    for (size_t i = 0; i < n; i++) {
        write_statistics(&json, &list[i], r->door->front);
    }
    bt_json_end_array(&json);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

void bt_route_stats(bt_http_request_t *r)
{
    const bt_described_t one = {r->base.model, r->served};

    respond_statistics(r, &one, 1);
}

void bt_route_all_stats(bt_http_request_t *r)
{
    bt_described_t list[BT_DOOR_MAX_MODELS];

    respond_statistics(
        r, list, bt_describe_names(r->door->front, list, BT_DOOR_MAX_MODELS));
}
