/* SPDX-License-Identifier: Apache-2.0 */
/* The messages about scheduling: an ensemble's steps, groups of instances,
 * batching, and policies. */
#include <string.h>

#include "common/repository/take_priv.h"

#define MAX_COUNT 1024

/* ---- an ensemble's steps ---- */

static void take_map(reading_t *r, const bt_pbtxt_field_t *message,
                     bt_repo_pair_t *pair)
{
    const bt_pbtxt_field_t *key, *value;

    if (!bt_take_is_message(r, message)) {
        return;
    }
    key = bt_pbtxt_find(r->tree, message->first, "key");
    value = bt_pbtxt_find(r->tree, message->first, "value");
    if ((key == NULL) || (value == NULL)) {
        bt_take_refuse(r, message, "%s has no key or no value", message->name);
        return;
    }
    *pair = (bt_repo_pair_t){.key = key->text, .value = value->text};
}

static void take_step_field(reading_t *r, const bt_pbtxt_field_t *field,
                            void *to)
{
    bt_repo_step_t *step = to;

    if (strcmp(field->name, "model_name") == 0) {
        step->model = field->text;
    } else if (strcmp(field->name, "model_version") == 0) {
        step->version =
            bt_take_number(r, field, "model_version", -1, INT32_MAX);
    } else if (strcmp(field->name, "input_map") == 0) {
        take_map(r, field, &step->inputs[step->n_inputs++]);
    } else if (strcmp(field->name, "output_map") == 0) {
        take_map(r, field, &step->outputs[step->n_outputs++]);
    } else {
        bt_take_refuse(r, field,
                       "ensemble_scheduling.step.%s: model %s has no such "
                       "field here",
                       field->name, r->name);
    }
}

static void take_step(reading_t *r, const bt_pbtxt_field_t *message, void *to)
{
    bt_repo_model_t *model = to;
    bt_repo_step_t *step = &model->steps[model->n_steps];

    if (strcmp(message->name, "step") != 0) {
        bt_take_refuse(r, message, "ensemble_scheduling.%s: there is only step",
                       message->name);
        return;
    }
    if (!bt_take_is_message(r, message)) {
        return;
    }
    model->n_steps++;
    *step = (bt_repo_step_t){.model = "", .version = -1};
    step->inputs =
        bt_take_list(r, message->first, "input_map", sizeof(*step->inputs));
    step->outputs =
        bt_take_list(r, message->first, "output_map", sizeof(*step->outputs));
    if (r->status != BT_OK) {
        return;
    }
    bt_take_fields(r, message, take_step_field, step);
    if (!bt_repo_is_name(step->model)) {
        bt_take_refuse(r, message,
                       "ensemble_scheduling.step.model_name: '%.64s' is none "
                       "of the models that are here",
                       step->model);
    }
}

void bt_take_steps(reading_t *r, const bt_pbtxt_field_t *message)
{
    bt_repo_model_t *model = r->model;

    if (strcmp(r->name, "ensemble") != 0) {
        bt_take_refuse(r, message, "ensemble_scheduling: model %s has none",
                       r->name);
    } else if (model->steps != NULL) {
        bt_take_refuse(r, message, "ensemble_scheduling is there twice");
    } else if (bt_take_is_message(r, message)) {
        model->steps =
            bt_take_list(r, message->first, "step", sizeof(*model->steps));
        if (model->steps != NULL) {
            bt_take_fields(r, message, take_step, model);
        }
    }
}

/* ---- groups of instances ---- */

static void take_count(reading_t *r, const bt_repo_field_t *row,
                       const bt_pbtxt_field_t *field, const char *path,
                       bt_repo_instances_t *instances)
{
    const int64_t n = bt_take_number(r, field, path, 1, MAX_COUNT);

    instances->count = (uint32_t)n;
    if ((n > 1) && (row->fate == BT_REPO_EFFECT)) {
        bt_take_set_number(r, field, path, row->option, n);
    } else if (n > 1) {
        bt_take_check_row(r, row, field, path);
    }
}

static void take_instances_field(reading_t *r, const bt_pbtxt_field_t *field,
                                 void *to)
{
    bt_repo_instances_t *instances = to;
    const bool is_count = strcmp(field->name, "count") == 0;
    char path[BT_TAKE_PATH_BYTES];
    const bt_repo_field_t *row =
        bt_take_find_row(r, field, "instance_group.", field->name, path);

    if ((row == NULL) || (is_count && !bt_take_is_value(r, field, path)) ||
        bt_take_is_open(r, field, path)) {
        return;
    }
    if (is_count) {
        take_count(r, row, field, path, instances);
    } else if (strcmp(field->name, "kind") == 0) {
        instances->kind = field->text;
        if (strcmp(field->text, "KIND_CPU") != 0) {
            bt_repository_note(r->repository, r->index, field->text, row->note);
        }
    } else {
        bt_take_check_row(r, row, field, path);
    }
}

void bt_take_instances(reading_t *r, const bt_pbtxt_field_t *message)
{
    bt_repo_instances_t *instances =
        &r->model->instances[r->model->n_instances++];

    *instances = (bt_repo_instances_t){.kind = "KIND_CPU", .count = 1};
    bt_take_fields(r, message, take_instances_field, instances);
}

/* ---- batching ---- */

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

static void take_batching_number(reading_t *r, const bt_repo_field_t *row,
                                 const bt_pbtxt_field_t *field,
                                 const char *path, uint32_t *target)
{
    const int64_t n = bt_take_number(r, field, path, 0, UINT32_MAX);

    *target = (uint32_t)n;
    if ((n > 0) && (row->fate == BT_REPO_EFFECT) && (row->option[0] != '\0')) {
        const bool is_flag = strcmp(row->option, "client-priority") == 0;

        bt_take_set_number(r, field, path, row->option, is_flag ? 1 : n);
    } else if (n > 0) {
        bt_take_check_row(r, row, field, path);
    }
}

static void take_queue_field(reading_t *r, const bt_pbtxt_field_t *field,
                             void *prefix)
{
    char path[BT_TAKE_PATH_BYTES];
    const bt_repo_field_t *row;
    uint32_t *target = batching_number(r->model, field->name);

    if (strcmp(field->name, "default_queue_policy") == 0) {
        bt_take_refuse(r, field, "%s%s: there is none", (const char *)prefix,
                       field->name);
        return;
    }
    row = bt_take_find_row(r, field, prefix, field->name, path);
    if (row == NULL) {
        return;
    }
    if (row->fate == BT_REPO_REFUSED) {
        bt_take_check_row(r, row, field, path);
    } else if (!bt_take_is_value(r, field, path) ||
               bt_take_is_open(r, field, path)) {
        return;
    } else if (target == NULL) {
        bt_take_check_row(r, row, field, path);
    } else {
        take_batching_number(r, row, field, path, target);
    }
}

static void take_batching_field(reading_t *r, const bt_pbtxt_field_t *field,
                                void *to)
{
    char prefix[] = "dynamic_batching.";
    char policy_prefix[] = "dynamic_batching.default_queue_policy.";

    (void)to;
    if (strcmp(field->name, "default_queue_policy") == 0) {
        bt_take_fields(r, field, take_queue_field, policy_prefix);
    } else {
        take_queue_field(r, field, prefix);
    }
}

void bt_take_batching(reading_t *r, const bt_pbtxt_field_t *message)
{
    bt_repo_model_t *model = r->model;

    model->has_dynamic_batching = true;
    bt_take_fields(r, message, take_batching_field, NULL);
    if ((model->priority_levels > 0) && /* as Triton has it */
        ((model->default_priority_level == 0) ||
         (model->default_priority_level > model->priority_levels))) {
        bt_take_refuse(r, message,
                       "dynamic_batching.default_priority_level: %u is not "
                       "from 1 to the %u of priority_levels",
                       model->default_priority_level, model->priority_levels);
    }
}

/* ---- policies ---- */

static void take_transaction_field(reading_t *r, const bt_pbtxt_field_t *field,
                                   void *decoupled)
{
    static const char path[] = "model_transaction_policy.decoupled";

    if (strcmp(field->name, "decoupled") != 0) {
        bt_take_refuse(r, field,
                       "model_transaction_policy.%s: there is only decoupled",
                       field->name);
    } else if (bt_take_is_value(r, field, path) &&
               !bt_take_is_open(r, field, path)) {
        *(bool *)decoupled = bt_take_bool(r, field, path);
    }
}

void bt_take_transactions(reading_t *r, const bt_pbtxt_field_t *message)
{
    bt_take_fields(r, message, take_transaction_field, &r->model->decoupled);
}

#define VERSIONS "version_policy.specific.versions"

static void take_version(reading_t *r, const bt_pbtxt_field_t *field,
                         void *has_one)
{
    if (strcmp(field->name, "versions") != 0) {
        bt_take_refuse(r, field,
                       "version_policy.specific.%s: there is only versions",
                       field->name);
    } else if (bt_take_number(r, field, VERSIONS, 1, INT32_MAX) == 1) {
        *(bool *)has_one = true;
    } else {
        bt_repository_note(r->repository, r->index, VERSIONS,
                           "there is one version, 1");
    }
}

static void take_policy(reading_t *r, const bt_pbtxt_field_t *field, void *to)
{
    bool has_one = false;

    (void)to;
    if (!bt_take_is_message(r, field) || (strcmp(field->name, "latest") == 0) ||
        (strcmp(field->name, "all") == 0)) {
        return;
    }
    if (strcmp(field->name, "specific") != 0) {
        bt_take_refuse(r, field,
                       "version_policy.%s: it is none of latest, all and "
                       "specific",
                       field->name);
        return;
    }
    bt_take_fields(r, field, take_version, &has_one);
    if (!has_one) {
        bt_take_refuse(r, field,
                       VERSIONS ": there is one version, 1: name it, or leave "
                                "version_policy out");
    }
}

void bt_take_versions(reading_t *r, const bt_pbtxt_field_t *message)
{
    bt_take_fields(r, message, take_policy, NULL);
}
