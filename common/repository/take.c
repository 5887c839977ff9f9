/* SPDX-License-Identifier: Apache-2.0 */
/* One file, message by message. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/repository/take_priv.h"

#define FIELD_BYTES    256
#define MAX_BATCH_SIZE 65536

static const char *const types[] = {
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64",
    "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",  "TYPE_INT64",  "TYPE_FP16",
    "TYPE_FP32", "TYPE_FP64",  "TYPE_BF16",   "TYPE_STRING"};

/* ---- messages ---- */

static bt_status_t take_type(const reading_t *r, const bt_pbtxt_field_t *field,
                             const char *path, const char **type_p)
{
    if (bt_take_is_open(r, field, path)) {
        return BT_OK;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        if (strcmp(field->text, types[i]) == 0) {
            *type_p = types[i];
            return BT_OK;
        }
    }
    return bt_take_refuse(r, field, "%s: '%.64s' is no data type", path,
                          field->text);
}

static bt_status_t take_dim(const reading_t *r, const bt_pbtxt_field_t *field,
                            const char *path, int64_t dims[], uint32_t *n)
{
    if (*n == BT_REPO_MAX_DIMS) {
        return bt_take_refuse(r, field, "%s: more than %d dims", path,
                              BT_REPO_MAX_DIMS);
    }
    return bt_take_number(r, field, path, -1, INT32_MAX, &dims[(*n)++]);
}

static bt_status_t take_reshape_field(const reading_t *r,
                                      const bt_pbtxt_field_t *field, void *to)
{
    bt_repo_tensor_t *tensor = to;

    if (strcmp(field->name, "shape") != 0) {
        return bt_take_refuse(r, field, "reshape.%s: there is only shape",
                              field->name);
    }
    return take_dim(r, field, "reshape.shape", tensor->reshape,
                    &tensor->n_reshape);
}

typedef struct named_tensor {
    const char *list; /* "input" or "output" */
    bt_repo_tensor_t *tensor;
} named_tensor_t;

static bt_status_t take_tensor_field(const reading_t *r,
                                     const bt_pbtxt_field_t *field, void *to)
{
    const named_tensor_t *named = to;
    bt_repo_tensor_t *tensor = named->tensor;
    const bt_repo_field_t *row;
    char path[FIELD_BYTES];

    if (strcmp(field->name, "reshape") == 0) {
        tensor->has_reshape = true;
        return bt_take_fields(r, field, take_reshape_field, tensor);
    }
    snprintf(path, sizeof(path), "%s.%.100s", named->list, field->name);
    row = bt_take_find_row(r, field, path);
    if ((row == NULL) || (bt_take_is_value(r, field, path) != BT_OK)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (strcmp(field->name, "name") == 0) {
        tensor->name = field->text;
        return BT_OK;
    }
    if (strcmp(field->name, "data_type") == 0) {
        return take_type(r, field, path, &tensor->type);
    }
    if (strcmp(field->name, "dims") == 0) {
        return take_dim(r, field, path, tensor->dims, &tensor->n_dims);
    }
    if (strcmp(field->name, "optional") == 0) {
        return bt_take_bool(r, field, path, &tensor->optional);
    }
    if (strcmp(field->name, "allow_ragged_batch") == 0) {
        return bt_take_bool(r, field, path, &tensor->ragged);
    }
    return bt_take_check_row(r, row, field, path);
}

static bt_status_t take_tensor(const reading_t *r, const char *list,
                               const bt_pbtxt_field_t *message,
                               bt_repo_tensor_t *tensor)
{
    named_tensor_t named = {.list = list, .tensor = tensor};
    bt_status_t status;

    /* A placeholder left open is a type of logits, or of features that no
     * client sends here. */
    *tensor = (bt_repo_tensor_t){.name = "", .type = "TYPE_FP32"};
    status = bt_take_fields(r, message, take_tensor_field, &named);
    if ((status == BT_OK) && (tensor->name[0] == '\0')) {
        return bt_take_refuse(r, message, "%s has no name", list);
    }
    return status;
}

static bt_status_t take_parameter(const reading_t *r,
                                  const bt_pbtxt_field_t *message)
{
    const bt_pbtxt_field_t *key, *value;
    bt_repo_pair_t *pair = &r->model->parameters[r->model->n_parameters];
    char path[FIELD_BYTES];
    const bt_repo_field_t *row;
    bt_status_t status = bt_take_is_message(r, message);

    if (status != BT_OK) {
        return status;
    }
    key = bt_pbtxt_find(r->tree, message->first, "key");
    value = bt_pbtxt_find(r->tree, message->first, "value");
    if ((key == NULL) || (key->kind == BT_PBTXT_MESSAGE)) {
        return bt_take_refuse(r, message, "a parameter has no key");
    }
    if (value != NULL) {
        value = bt_pbtxt_find(r->tree, value->first, "string_value");
    }
    snprintf(path, sizeof(path), "parameters.%.100s", key->text);
    row = bt_take_find_row(r, key, path);
    if (row == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    *pair = (bt_repo_pair_t){.key = key->text, .value = ""};
    if (value != NULL) {
        pair->value = value->text;
    }
    r->model->n_parameters++;
    if ((value == NULL) || (value->bytes == 0) ||
        bt_take_is_open(r, value, path)) {
        return BT_OK;
    }
    if (strcmp(key->text, "decoupled") == 0) {
        return bt_take_bool(r, value, path, &r->model->decoupled);
    }
    status = bt_take_check_row(r, row, value, path);
    return ((status == BT_OK) && (row->fate == BT_REPO_EFFECT))
               ? bt_take_effect(r, row, value, path)
               : status;
}

/* ---- the whole file ---- */

static bt_status_t take_word(const reading_t *r, const bt_pbtxt_field_t *field)
{
    bt_repo_model_t *model = r->model;
    const bt_repo_field_t *row = bt_take_find_row(r, field, field->name);
    int64_t n = 0;
    bt_status_t status;

    if (row == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((row->fate == BT_REPO_NOTED) || (row->fate == BT_REPO_REFUSED)) {
        return bt_take_check_row(r, row, field, field->name);
    }
    if (bt_take_is_value(r, field, field->name) != BT_OK) {
        return BT_ERR_INVALID_PARAM;
    }
    if (bt_take_is_open(r, field, field->name) ||
        ((field->bytes == 0) && (row->fate == BT_REPO_ONLY))) {
        return BT_OK;
    }
    status = bt_take_check_row(r, row, field, field->name);
    if (status != BT_OK) {
        return status;
    }
    if (strcmp(field->name, "backend") == 0) {
        model->backend = field->text;
    } else if (strcmp(field->name, "platform") == 0) {
        model->platform = field->text;
    } else if (strcmp(field->name, "max_batch_size") == 0) {
        status = bt_take_number(r, field, field->name, 0, MAX_BATCH_SIZE, &n);
        if (n > BT_REPO_MAX_BATCH_SIZE) {
            bt_repository_note(r->repository, r->index, field->name,
                               "the most that one request may have is less");
            n = BT_REPO_MAX_BATCH_SIZE;
        }
        model->max_batch_size = (uint32_t)n;
    } else if (strcmp(field->text, r->name) != 0) {
        return bt_take_refuse(r, field,
                              "name: '%.64s' stands in the folder of %s",
                              field->text, r->name);
    }
    return status;
}

static bt_status_t take_field(const reading_t *r, const bt_pbtxt_field_t *field)
{
    bt_repo_model_t *model = r->model;
    const char *name = field->name;

    if (strcmp(name, "input") == 0) {
        return take_tensor(r, name, field, &model->inputs[model->n_inputs++]);
    }
    if (strcmp(name, "output") == 0) {
        return take_tensor(r, name, field, &model->outputs[model->n_outputs++]);
    }
    if (strcmp(name, "parameters") == 0) {
        return take_parameter(r, field);
    }
    if (strcmp(name, "instance_group") == 0) {
        return bt_take_instances(r, field);
    }
    if (strcmp(name, "dynamic_batching") == 0) {
        return bt_take_batching(r, name, field);
    }
    if (strcmp(name, "model_transaction_policy") == 0) {
        return bt_take_transactions(r, field);
    }
    if (strcmp(name, "version_policy") == 0) {
        return bt_take_versions(r, field);
    }
    if (strcmp(name, "ensemble_scheduling") == 0) {
        return (strcmp(r->name, "ensemble") == 0)
                   ? bt_take_steps(r, field)
                   : bt_take_refuse(r, field,
                                    "ensemble_scheduling: model %s has none",
                                    r->name);
    }
    return take_word(r, field);
}

/* Allocates the lists, of which each element is a field. */
static bt_status_t make_lists(const bt_pbtxt_t *tree, bt_repo_model_t *model)
{
    model->inputs =
        bt_calloc((size_t)bt_take_count(tree, tree->first, "input") + 1,
                  sizeof(*model->inputs));
    model->outputs =
        bt_calloc((size_t)bt_take_count(tree, tree->first, "output") + 1,
                  sizeof(*model->outputs));
    model->parameters =
        bt_calloc((size_t)bt_take_count(tree, tree->first, "parameters") + 1,
                  sizeof(*model->parameters));
    model->instances = bt_calloc(
        (size_t)bt_take_count(tree, tree->first, "instance_group") + 1,
        sizeof(*model->instances));
    return ((model->inputs != NULL) && (model->outputs != NULL) &&
            (model->parameters != NULL) && (model->instances != NULL))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

static bt_status_t take_all(const reading_t *r)
{
    bt_status_t status = make_lists(r->tree, r->model);

    BT_PBTXT_FOR_EACH(field, r->tree, r->tree->first)
    {
        if (status != BT_OK) {
            break;
        }
        status = take_field(r, field);
    }
    return status;
}

bt_status_t bt_repository_take(bt_repository_t *repository, uint32_t index,
                               const char *path, const char *text, size_t n,
                               char why[BT_REPO_WHY_BYTES])
{
    bt_pbtxt_t *tree = &repository->trees[index];
    bt_repo_model_t *model = &repository->models[index];
    const reading_t r = {
        .repository = repository,
        .tree = tree,
        .model = model,
        .name = bt_repo_names[index],
        .path = path,
        .index = index,
        .why = why,
    };
    char line[512];
    bt_status_t status = bt_pbtxt_read(text, n, tree, line, sizeof(line));

    if (status != BT_OK) {
        snprintf(why, BT_REPO_WHY_BYTES, "%.400s: %s", path, line);
        return status;
    }
    *model = (bt_repo_model_t){
        .name = r.name,
        .platform = "",
        .backend = "",
        /* Default where a template leaves them open. */
        .max_batch_size = BT_REPO_MAX_BATCH_SIZE,
        .decoupled = true,
    };
    repository->has[index] = true;
    status = take_all(&r);
    if (status == BT_ERR_NO_MEMORY) {
        snprintf(why, BT_REPO_WHY_BYTES, "%.400s: out of memory", path);
    }
    return status;
}
