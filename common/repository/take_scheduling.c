/* SPDX-License-Identifier: Apache-2.0 */
/* The messages about scheduling: an ensemble's steps, groups of instances,
 * batching, and policies. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/repository/take_priv.h"

#define FIELD_BYTES 256
#define MAX_COUNT   1024

/* ---- an ensemble's steps ---- */

static bt_status_t take_map(const reading_t *r, const bt_pbtxt_field_t *message,
                            bt_repo_pair_t *pair)
{
    const bt_pbtxt_field_t *key, *value;
    const bt_status_t status = bt_take_is_message(r, message);

    if (status != BT_OK) {
        return status;
    }
    key = bt_pbtxt_find(r->tree, message->first, "key");
    value = bt_pbtxt_find(r->tree, message->first, "value");
    if ((key == NULL) || (value == NULL)) {
        return bt_take_refuse(r, message, "%s has no key or no value",
                              message->name);
    }
    *pair = (bt_repo_pair_t){.key = key->text, .value = value->text};
    return BT_OK;
}

static bt_status_t take_step_field(const reading_t *r,
                                   const bt_pbtxt_field_t *field, void *to)
{
    bt_repo_step_t *step = to;

    if (strcmp(field->name, "model_name") == 0) {
        step->model = field->text;
        return BT_OK;
    }
    if (strcmp(field->name, "model_version") == 0) {
        return bt_take_number(r, field, "model_version", -1, INT32_MAX,
                              &step->version);
    }
    if (strcmp(field->name, "input_map") == 0) {
        return take_map(r, field, &step->inputs[step->n_inputs++]);
    }
    if (strcmp(field->name, "output_map") == 0) {
        return take_map(r, field, &step->outputs[step->n_outputs++]);
    }
    return bt_take_refuse(r, field,
                          "ensemble_scheduling.step.%s: model %s has no such "
                          "field here",
                          field->name, r->name);
}

static bt_status_t take_step(const reading_t *r,
                             const bt_pbtxt_field_t *message, void *to)
{
    bt_repo_model_t *model = to;
    bt_repo_step_t *step = &model->steps[model->n_steps++];
    bt_status_t status = bt_take_is_message(r, message);

    if (strcmp(message->name, "step") != 0) {
        return bt_take_refuse(r, message,
                              "ensemble_scheduling.%s: there is only step",
                              message->name);
    }
    if (status != BT_OK) {
        return status;
    }
    *step = (bt_repo_step_t){.model = "", .version = -1};
    step->inputs = bt_calloc(
        (size_t)bt_take_count(r->tree, message->first, "input_map") + 1,
        sizeof(*step->inputs));
    step->outputs = bt_calloc(
        (size_t)bt_take_count(r->tree, message->first, "output_map") + 1,
        sizeof(*step->outputs));
    if ((step->inputs == NULL) || (step->outputs == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    status = bt_take_fields(r, message, take_step_field, step);
    if (status != BT_OK) {
        return status;
    }
    for (int i = 0; i < BT_REPO_N_MODELS; i++) {
        if (strcmp(step->model, bt_repo_names[i]) == 0) {
            return BT_OK;
        }
    }
    return bt_take_refuse(
        r, message,
        "ensemble_scheduling.step.model_name: '%.64s' is none of the "
        "models that are here",
        step->model);
}

bt_status_t bt_take_steps(const reading_t *r, const bt_pbtxt_field_t *message)
{
    bt_repo_model_t *model = r->model;
    const bt_status_t status = bt_take_is_message(r, message);

    if (status != BT_OK) {
        return status;
    }
    if (model->steps != NULL) {
        return bt_take_refuse(r, message, "ensemble_scheduling is there twice");
    }
    model->steps =
        bt_calloc((size_t)bt_take_count(r->tree, message->first, "step") + 2,
                  sizeof(*model->steps));
    if (model->steps == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    return bt_take_fields(r, message, take_step, model);
}

/* ---- the other messages ---- */

static bt_status_t take_instances_field(const reading_t *r,
                                        const bt_pbtxt_field_t *field, void *to)
{
    bt_repo_instances_t *instances = to;
    char path[FIELD_BYTES];
    const bt_repo_field_t *row;
    int64_t n = 0;
    bt_status_t status;

    snprintf(path, sizeof(path), "instance_group.%.100s", field->name);
    row = bt_take_find_row(r, field, path);
    if ((row == NULL) || ((strcmp(field->name, "count") == 0) &&
                          (bt_take_is_value(r, field, path) != BT_OK))) {
        return BT_ERR_INVALID_PARAM;
    }
    if (bt_take_is_open(r, field, path)) {
        return BT_OK;
    }
    if (strcmp(field->name, "kind") == 0) {
        instances->kind = field->text;
        if (strcmp(field->text, "KIND_CPU") != 0) {
            bt_repository_note(r->repository, r->index, field->text, row->note);
        }
        return BT_OK;
    }
    if (strcmp(field->name, "count") != 0) {
        return bt_take_check_row(r, row, field, path);
    }
    status = bt_take_number(r, field, path, 1, MAX_COUNT, &n);
    if (status != BT_OK) {
        return status;
    }
    instances->count = (uint32_t)n;
    if ((row->fate == BT_REPO_EFFECT) && (n > 1)) {
        return bt_take_set_number(r, field, path, row->option, n);
    }
    return (n > 1) ? bt_take_check_row(r, row, field, path) : BT_OK;
}

bt_status_t bt_take_instances(const reading_t *r,
                              const bt_pbtxt_field_t *message)
{
    bt_repo_instances_t *instances =
        &r->model->instances[r->model->n_instances++];

    *instances = (bt_repo_instances_t){.kind = "KIND_CPU", .count = 1};
    return bt_take_fields(r, message, take_instances_field, instances);
}

/* @return NULL: not one of the model's */
static uint32_t *batching_number(bt_repo_model_t *model, const char *name)
{
    const struct {
        const char *name;
        uint32_t *target;
    } numbers[] = {
        {"preferred_batch_size", &model->preferred_batch_size},
        {"max_queue_delay_microseconds", &model->queue_delay_us},
        {"priority_levels", &model->priority_levels},
        {"default_priority_level", &model->default_priority_level},
        {"max_queue_size", &model->max_queue_size},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(numbers); i++) {
        if (strcmp(numbers[i].name, name) == 0) {
            return numbers[i].target;
        }
    }
    return NULL;
}

static bt_status_t take_batching_field(const reading_t *r, const char *prefix,
                                       const bt_pbtxt_field_t *field)
{
    char path[FIELD_BYTES];
    const bt_repo_field_t *row;
    uint32_t *target;
    int64_t n = 0;
    bt_status_t status;

    snprintf(path, sizeof(path), "%s.%.100s", prefix, field->name);
    row = bt_take_find_row(r, field, path);
    if (row == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    if (row->fate == BT_REPO_REFUSED) {
        return bt_take_check_row(r, row, field, path);
    }
    if (bt_take_is_value(r, field, path) != BT_OK) {
        return BT_ERR_INVALID_PARAM;
    }
    if (bt_take_is_open(r, field, path)) {
        return BT_OK;
    }
    target = batching_number(r->model, field->name);
    if (target == NULL) {
        return bt_take_check_row(r, row, field, path);
    }
    status = bt_take_number(r, field, path, 0, UINT32_MAX, &n);
    if (status != BT_OK) {
        return status;
    }
    *target = (uint32_t)n;
    if ((row->fate == BT_REPO_EFFECT) && (row->option[0] != '\0') && (n > 0)) {
        const bool is_flag = strcmp(row->option, "client-priority") == 0;

        return bt_take_set_number(r, field, path, row->option, is_flag ? 1 : n);
    }
    return (n > 0) ? bt_take_check_row(r, row, field, path) : BT_OK;
}

/* As Triton has it. */
static bt_status_t check_priorities(const reading_t *r,
                                    const bt_pbtxt_field_t *message)
{
    const uint32_t levels = r->model->priority_levels;
    const uint32_t by_default = r->model->default_priority_level;

    if ((levels > 0) && ((by_default == 0) || (by_default > levels))) {
        return bt_take_refuse(r, message,
                              "dynamic_batching.default_priority_level: %u is "
                              "not from 1 to the %u of priority_levels",
                              by_default, levels);
    }
    return BT_OK;
}

bt_status_t bt_take_batching(const reading_t *r, const char *prefix,
                             const bt_pbtxt_field_t *message)
{
    bt_status_t status = bt_take_is_message(r, message);

    r->model->has_dynamic_batching = true;
    if (status != BT_OK) {
        return status;
    }
    BT_PBTXT_FOR_EACH(field, r->tree, message->first)
    {
        if (strcmp(field->name, "default_queue_policy") == 0) {
            if (strchr(prefix, '.') != NULL) {
                return bt_take_refuse(r, field, "%s.%s: there is none", prefix,
                                      field->name);
            }
            status = bt_take_batching(
                r, "dynamic_batching.default_queue_policy", field);
        } else {
            status = take_batching_field(r, prefix, field);
        }
        if (status != BT_OK) {
            return status;
        }
    }
    return (strchr(prefix, '.') == NULL) ? check_priorities(r, message) : BT_OK;
}

static bt_status_t take_transaction_field(const reading_t *r,
                                          const bt_pbtxt_field_t *field,
                                          void *to)
{
    static const char path[] = "model_transaction_policy.decoupled";

    if ((strcmp(field->name, "decoupled") != 0) ||
        (bt_take_is_value(r, field, path) != BT_OK)) {
        return bt_take_refuse(r, field,
                              "model_transaction_policy.%s: there is only "
                              "decoupled",
                              field->name);
    }
    return bt_take_is_open(r, field, path) ? BT_OK
                                           : bt_take_bool(r, field, path, to);
}

bt_status_t bt_take_transactions(const reading_t *r,
                                 const bt_pbtxt_field_t *message)
{
    return bt_take_fields(r, message, take_transaction_field,
                          &r->model->decoupled);
}

/* ---- versions ---- */

#define VERSIONS "version_policy.specific.versions"

static bt_status_t take_version(const reading_t *r,
                                const bt_pbtxt_field_t *field, void *has_one)
{
    int64_t version = 0;
    bt_status_t status;

    if (strcmp(field->name, "versions") != 0) {
        return bt_take_refuse(r, field,
                              "version_policy.specific.%s: there is only "
                              "versions",
                              field->name);
    }
    status = bt_take_number(r, field, VERSIONS, 1, INT32_MAX, &version);
    if ((status == BT_OK) && (version == 1)) {
        *(bool *)has_one = true;
    } else if (status == BT_OK) {
        bt_repository_note(r->repository, r->index, VERSIONS,
                           "there is one version, 1");
    }
    return status;
}

static bt_status_t take_policy(const reading_t *r,
                               const bt_pbtxt_field_t *field, void *to)
{
    bt_status_t status = bt_take_is_message(r, field);
    bool has_one = false;

    (void)to;
    if ((status != BT_OK) || (strcmp(field->name, "latest") == 0) ||
        (strcmp(field->name, "all") == 0)) {
        return status;
    }
    if (strcmp(field->name, "specific") != 0) {
        return bt_take_refuse(r, field,
                              "version_policy.%s: it is none of latest, all "
                              "and specific",
                              field->name);
    }
    status = bt_take_fields(r, field, take_version, &has_one);
    if ((status == BT_OK) && !has_one) {
        return bt_take_refuse(r, field,
                              VERSIONS ": there is one version, 1: name it, or "
                                       "leave version_policy out");
    }
    return status;
}

bt_status_t bt_take_versions(const reading_t *r,
                             const bt_pbtxt_field_t *message)
{
    return bt_take_fields(r, message, take_policy, NULL);
}
