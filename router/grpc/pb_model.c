/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/pb.h"

#include <grpc_service.pb-c.h>
#include <stdio.h>
#include <string.h>

typedef Inference__ModelMetadataResponse metadata_t;
typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata_t;
typedef Inference__ModelConfig config_t;
typedef Inference__ModelStatistics statistics_t;

/* Allocates an array of pointers to n new messages, each initialised with
 * INIT. */
#define NEW_LIST(scratch, n, type, INIT)                                       \
    ({                                                                         \
        type **list_ = bt_pb_scratch_take(scratch, (n) + 1u, sizeof(*list_));  \
        type *items_ = bt_pb_scratch_take(scratch, (n) + 1u, sizeof(*items_)); \
                                                                               \
        for (size_t i_ = 0; (items_ != NULL) && (i_ < (n)); i_++) {            \
            items_[i_] = (type)INIT;                                           \
            list_[i_] = &items_[i_];                                           \
        }                                                                      \
        (items_ == NULL) ? NULL : list_;                                       \
    })
#define NEW(scratch, type, INIT)                                    \
    ({                                                              \
        type *item_ = bt_pb_scratch_take(scratch, 1, sizeof(type)); \
                                                                    \
        if (item_ != NULL) {                                        \
            *item_ = (type)INIT;                                    \
        }                                                           \
        item_;                                                      \
    })

static int64_t *take_dims(bt_pb_scratch_t *scratch, const int64_t *dims,
                          uint32_t n, bool batches, size_t *n_p)
{
    const size_t first = batches ? 1 : 0;
    int64_t *shape = bt_pb_scratch_take(scratch, n + first + 1, sizeof(*shape));

    if (shape != NULL) {
        shape[0] = -1;
        memcpy(shape + first, dims, n * sizeof(*dims));
        *n_p = n + first;
    }
    return shape;
}

/* ---- metadata ---- */

static tensor_metadata_t **metadata_of(bt_pb_scratch_t *scratch,
                                       const bt_repo_tensor_t *tensors,
                                       uint32_t n, bool batches)
{
    tensor_metadata_t **list =
        NEW_LIST(scratch, n, tensor_metadata_t,
                 INFERENCE__MODEL_METADATA_RESPONSE__TENSOR_METADATA__INIT);

    for (uint32_t i = 0; (list != NULL) && (i < n); i++) {
        const char *type = tensors[i].type + strlen("TYPE_");

        list[i]->name = bt_pb_text(tensors[i].name);
        list[i]->datatype =
            bt_pb_text((strcmp(type, "STRING") == 0) ? "BYTES" : type);
        list[i]->shape = take_dims(scratch, tensors[i].dims, tensors[i].n_dims,
                                   batches, &list[i]->n_shape);
    }
    return list;
}

ProtobufCMessage *bt_pb_metadata(bt_pb_scratch_t *scratch,
                                 const bt_repo_model_t *model,
                                 const char *version)
{
    const bool batches = model->max_batch_size > 0;
    metadata_t *m =
        NEW(scratch, metadata_t, INFERENCE__MODEL_METADATA_RESPONSE__INIT);
    char **versions = bt_pb_scratch_take(scratch, 1, sizeof(*versions));

    if (versions == NULL) {
        return NULL;
    }
    versions[0] = bt_pb_text(version);
    m->name = bt_pb_text(model->name);
    m->versions = versions;
    m->n_versions = 1;
    m->platform = bt_pb_text((model->platform[0] != '\0') ? model->platform
                                                          : model->backend);
    m->inputs = metadata_of(scratch, model->inputs, model->n_inputs, batches);
    m->n_inputs = model->n_inputs;
    m->outputs =
        metadata_of(scratch, model->outputs, model->n_outputs, batches);
    m->n_outputs = model->n_outputs;
    return scratch->failed ? NULL : &m->base;
}

/* ---- configuration ---- */

static int enum_of(const ProtobufCEnumDescriptor *what, const char *name)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(what, name);

    return (value == NULL) ? 0 : value->value;
}

static Inference__ModelTensorReshape *reshape_of(bt_pb_scratch_t *scratch,
                                                 const bt_repo_tensor_t *t)
{
    Inference__ModelTensorReshape *reshape =
        NEW(scratch, Inference__ModelTensorReshape,
            INFERENCE__MODEL_TENSOR_RESHAPE__INIT);

    if (reshape != NULL) {
        reshape->shape = take_dims(scratch, t->reshape, t->n_reshape, false,
                                   &reshape->n_shape);
    }
    return reshape;
}

static void set_inputs(bt_pb_scratch_t *scratch, const bt_repo_model_t *model,
                       config_t *c)
{
    c->input = NEW_LIST(scratch, model->n_inputs, Inference__ModelInput,
                        INFERENCE__MODEL_INPUT__INIT);
    for (uint32_t i = 0; (c->input != NULL) && (i < model->n_inputs); i++) {
        const bt_repo_tensor_t *from = &model->inputs[i];
        Inference__ModelInput *to = c->input[i];

        to->name = bt_pb_text(from->name);
        to->data_type = (Inference__DataType)enum_of(
            &inference__data_type__descriptor, from->type);
        to->dims =
            take_dims(scratch, from->dims, from->n_dims, false, &to->n_dims);
        to->optional = from->optional;
        to->allow_ragged_batch = from->ragged;
        if (from->has_reshape) {
            to->reshape = reshape_of(scratch, from);
        }
    }
    c->n_input = model->n_inputs;
}

static void set_outputs(bt_pb_scratch_t *scratch, const bt_repo_model_t *model,
                        config_t *c)
{
    c->output = NEW_LIST(scratch, model->n_outputs, Inference__ModelOutput,
                         INFERENCE__MODEL_OUTPUT__INIT);
    for (uint32_t i = 0; (c->output != NULL) && (i < model->n_outputs); i++) {
        const bt_repo_tensor_t *from = &model->outputs[i];
        Inference__ModelOutput *to = c->output[i];

        to->name = bt_pb_text(from->name);
        to->data_type = (Inference__DataType)enum_of(
            &inference__data_type__descriptor, from->type);
        to->dims =
            take_dims(scratch, from->dims, from->n_dims, false, &to->n_dims);
        if (from->has_reshape) {
            to->reshape = reshape_of(scratch, from);
        }
    }
    c->n_output = model->n_outputs;
}

/* dynamic_batching and ensemble_scheduling are alternatives. */
static void set_batching(bt_pb_scratch_t *scratch, const bt_repo_model_t *model,
                         config_t *c)
{
    Inference__ModelDynamicBatching *batching =
        NEW(scratch, Inference__ModelDynamicBatching,
            INFERENCE__MODEL_DYNAMIC_BATCHING__INIT);
    Inference__ModelQueuePolicy *policy =
        NEW(scratch, Inference__ModelQueuePolicy,
            INFERENCE__MODEL_QUEUE_POLICY__INIT);
    int32_t *preferred = bt_pb_scratch_take(scratch, 1, sizeof(*preferred));

    if (preferred == NULL) {
        return;
    }
    if (model->preferred_batch_size > 0) {
        preferred[0] = (int32_t)model->preferred_batch_size;
        batching->preferred_batch_size = preferred;
        batching->n_preferred_batch_size = 1;
    }
    batching->max_queue_delay_microseconds = model->queue_delay_us;
    batching->priority_levels = model->priority_levels;
    batching->default_priority_level = model->default_priority_level;
    policy->max_queue_size = model->max_queue_size;
    batching->default_queue_policy = policy;
    c->scheduling_choice_case =
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    c->dynamic_batching = batching;
}

typedef Inference__ModelEnsembling__Step step_t;
typedef Inference__ModelEnsembling__Step__InputMapEntry input_entry_t;
typedef Inference__ModelEnsembling__Step__OutputMapEntry output_entry_t;

static void set_step(bt_pb_scratch_t *scratch, const bt_repo_step_t *from,
                     step_t *to)
{
    to->model_name = bt_pb_text(from->model);
    to->model_version = from->version;
    to->input_map =
        NEW_LIST(scratch, from->n_inputs, input_entry_t,
                 INFERENCE__MODEL_ENSEMBLING__STEP__INPUT_MAP_ENTRY__INIT);
    to->output_map =
        NEW_LIST(scratch, from->n_outputs, output_entry_t,
                 INFERENCE__MODEL_ENSEMBLING__STEP__OUTPUT_MAP_ENTRY__INIT);
    if (scratch->failed) {
        return;
    }
    for (uint32_t i = 0; i < from->n_inputs; i++) {
        to->input_map[i]->key = bt_pb_text(from->inputs[i].key);
        to->input_map[i]->value = bt_pb_text(from->inputs[i].value);
    }
    for (uint32_t i = 0; i < from->n_outputs; i++) {
        to->output_map[i]->key = bt_pb_text(from->outputs[i].key);
        to->output_map[i]->value = bt_pb_text(from->outputs[i].value);
    }
    to->n_input_map = from->n_inputs;
    to->n_output_map = from->n_outputs;
}

static void set_steps(bt_pb_scratch_t *scratch, const bt_repo_model_t *model,
                      config_t *c)
{
    Inference__ModelEnsembling *ensemble = NEW(
        scratch, Inference__ModelEnsembling, INFERENCE__MODEL_ENSEMBLING__INIT);

    if (ensemble == NULL) {
        return;
    }
    ensemble->step = NEW_LIST(scratch, model->n_steps, step_t,
                              INFERENCE__MODEL_ENSEMBLING__STEP__INIT);
    for (uint32_t i = 0; (ensemble->step != NULL) && (i < model->n_steps);
         i++) {
        set_step(scratch, &model->steps[i], ensemble->step[i]);
    }
    ensemble->n_step = model->n_steps;
    c->scheduling_choice_case =
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
    c->ensemble_scheduling = ensemble;
}

static void set_instance_groups(bt_pb_scratch_t *scratch,
                                const bt_repo_model_t *model, config_t *c)
{
    c->instance_group =
        NEW_LIST(scratch, model->n_instances, Inference__ModelInstanceGroup,
                 INFERENCE__MODEL_INSTANCE_GROUP__INIT);
    for (uint32_t i = 0;
         (c->instance_group != NULL) && (i < model->n_instances); i++) {
        c->instance_group[i]->name = bt_pb_text(model->name);
        c->instance_group[i]->kind =
            (Inference__ModelInstanceGroup__Kind)enum_of(
                &inference__model_instance_group__kind__descriptor,
                model->instances[i].kind);
        c->instance_group[i]->count = (int32_t)model->instances[i].count;
    }
    c->n_instance_group = model->n_instances;
}

static void set_parameters(bt_pb_scratch_t *scratch,
                           const bt_repo_model_t *model, config_t *c)
{
    const uint32_t n = model->n_parameters;
    Inference__ModelParameter **values =
        NEW_LIST(scratch, n, Inference__ModelParameter,
                 INFERENCE__MODEL_PARAMETER__INIT);

    c->parameters =
        NEW_LIST(scratch, n, Inference__ModelConfig__ParametersEntry,
                 INFERENCE__MODEL_CONFIG__PARAMETERS_ENTRY__INIT);
    for (uint32_t i = 0; (c->parameters != NULL) && (i < n); i++) {
        values[i]->string_value = bt_pb_text(model->parameters[i].value);
        c->parameters[i]->key = bt_pb_text(model->parameters[i].key);
        c->parameters[i]->value = values[i];
    }
    c->n_parameters = n;
}

ProtobufCMessage *bt_pb_config(bt_pb_scratch_t *scratch,
                               const bt_repo_model_t *model, bool decoupled)
{
    Inference__ModelConfigResponse *response =
        NEW(scratch, Inference__ModelConfigResponse,
            INFERENCE__MODEL_CONFIG_RESPONSE__INIT);
    config_t *c = NEW(scratch, config_t, INFERENCE__MODEL_CONFIG__INIT);
    Inference__ModelVersionPolicy *policy =
        NEW(scratch, Inference__ModelVersionPolicy,
            INFERENCE__MODEL_VERSION_POLICY__INIT);
    Inference__ModelVersionPolicy__Latest *latest =
        NEW(scratch, Inference__ModelVersionPolicy__Latest,
            INFERENCE__MODEL_VERSION_POLICY__LATEST__INIT);
    Inference__ModelTransactionPolicy *transactions =
        NEW(scratch, Inference__ModelTransactionPolicy,
            INFERENCE__MODEL_TRANSACTION_POLICY__INIT);

    if (scratch->failed) {
        return NULL;
    }
    c->name = bt_pb_text(model->name);
    c->platform = bt_pb_text(model->platform);
    c->backend = bt_pb_text(model->backend);
    c->max_batch_size = (int32_t)model->max_batch_size;
    latest->num_versions = 1;
    policy->policy_choice_case =
        INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST;
    policy->latest = latest;
    c->version_policy = policy;
    transactions->decoupled = decoupled;
    c->model_transaction_policy = transactions;
    set_inputs(scratch, model, c);
    set_outputs(scratch, model, c);
    set_instance_groups(scratch, model, c);
    set_parameters(scratch, model, c);
    if (model->n_steps > 0) {
        set_steps(scratch, model, c);
    } else if (model->has_dynamic_batching) {
        set_batching(scratch, model, c);
    }
    response->config = c;
    return scratch->failed ? NULL : &response->base;
}

/* ---- counts ---- */

static Inference__StatisticDuration *duration_of(bt_pb_scratch_t *scratch,
                                                 bt_duration_t from)
{
    Inference__StatisticDuration *to =
        NEW(scratch, Inference__StatisticDuration,
            INFERENCE__STATISTIC_DURATION__INIT);

    if (to != NULL) {
        to->count = from.count;
        to->ns = from.ns;
    }
    return to;
}

static void set_inference(bt_pb_scratch_t *scratch, const bt_statistics_t *from,
                          statistics_t *to)
{
    const bt_duration_t none = {0, 0};
    Inference__InferStatistics *s = NEW(scratch, Inference__InferStatistics,
                                        INFERENCE__INFER_STATISTICS__INIT);

    if (s == NULL) {
        return;
    }
    s->success = duration_of(scratch, from->success);
    s->fail = duration_of(scratch, from->fail);
    s->queue = duration_of(scratch, from->queue);
    s->compute_input = duration_of(scratch, from->compute_input);
    s->compute_infer = duration_of(scratch, from->compute_infer);
    s->compute_output = duration_of(scratch, from->compute_output);
    s->cache_hit = duration_of(scratch, none);
    s->cache_miss = duration_of(scratch, none);
    to->inference_stats = s;
}

static Inference__StatisticDuration *executed(bt_pb_scratch_t *scratch,
                                              const bt_statistics_t *from,
                                              bt_duration_t time)
{
    time.count = from->execution_count;
    return duration_of(scratch, time);
}

/* Each sequence is one execution with a batch of one. */
static void set_batches(bt_pb_scratch_t *scratch, const bt_statistics_t *from,
                        statistics_t *to)
{
    Inference__InferBatchStatistics **list;

    if (from->execution_count == 0) {
        return;
    }
    list = NEW_LIST(scratch, 1, Inference__InferBatchStatistics,
                    INFERENCE__INFER_BATCH_STATISTICS__INIT);
    if (list == NULL) {
        return;
    }
    list[0]->batch_size = 1;
    list[0]->compute_input = executed(scratch, from, from->compute_input);
    list[0]->compute_infer = executed(scratch, from, from->compute_infer);
    list[0]->compute_output = executed(scratch, from, from->compute_output);
    to->batch_stats = list;
    to->n_batch_stats = 1;
}

typedef Inference__ModelStatistics__ResponseStatsEntry response_entry_t;

static void set_responses(bt_pb_scratch_t *scratch, const bt_statistics_t *from,
                          statistics_t *to)
{
    const bt_duration_t none = {0, 0};
    const uint32_t n = from->n_responses;
    char(*keys)[16] = bt_pb_scratch_take(scratch, n + 1u, sizeof(*keys));
    Inference__InferResponseStatistics **values =
        NEW_LIST(scratch, n, Inference__InferResponseStatistics,
                 INFERENCE__INFER_RESPONSE_STATISTICS__INIT);
    response_entry_t **list =
        NEW_LIST(scratch, n, response_entry_t,
                 INFERENCE__MODEL_STATISTICS__RESPONSE_STATS_ENTRY__INIT);

    for (uint32_t i = 0; (list != NULL) && (i < n); i++) {
        const bt_duration_t sent = {.count = from->responses[i].count, .ns = 0};

        snprintf(keys[i], sizeof(keys[i]), "%u", (unsigned)i);
        values[i]->compute_infer = duration_of(scratch, from->responses[i]);
        values[i]->compute_output = duration_of(scratch, sent);
        values[i]->success = duration_of(scratch, from->responses[i]);
        values[i]->fail = duration_of(scratch, none);
        values[i]->empty_response = duration_of(scratch, none);
        values[i]->cancel = duration_of(scratch, none);
        list[i]->key = keys[i];
        list[i]->value = values[i];
    }
    to->response_stats = list;
    to->n_response_stats = n;
}

ProtobufCMessage *bt_pb_statistics(bt_pb_scratch_t *scratch, const char *name,
                                   const char *version,
                                   const bt_statistics_t *statistics)
{
    statistics_t *s =
        NEW(scratch, statistics_t, INFERENCE__MODEL_STATISTICS__INIT);

    if (s == NULL) {
        return NULL;
    }
    s->name = bt_pb_text(name);
    s->version = bt_pb_text(version);
    s->last_inference = statistics->last_ms;
    s->inference_count = statistics->inference_count;
    s->execution_count = statistics->execution_count;
    set_inference(scratch, statistics, s);
    set_responses(scratch, statistics, s);
    set_batches(scratch, statistics, s);
    return scratch->failed ? NULL : &s->base;
}
