/* SPDX-License-Identifier: Apache-2.0 */
/* One file, message by message. */
#include <stdio.h>
#include <string.h>

#include "common/repository/take_priv.h"

#define MAX_BATCH_SIZE 65536

static const char *const types[] = {
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64",
    "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",  "TYPE_INT64",  "TYPE_FP16",
    "TYPE_FP32", "TYPE_FP64",  "TYPE_BF16",   "TYPE_STRING"};

/* ---- messages ---- */

static void take_type(reading_t *r, const bt_pbtxt_field_t *field,
                      const char *path, const char **type_p)
{
    if (bt_take_is_open(r, field, path)) {
        return;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        if (strcmp(field->text, types[i]) == 0) {
            *type_p = types[i];
            return;
        }
    }
    bt_take_refuse(r, field, "%s: '%.64s' is no data type", path, field->text);
}

static void take_dim(reading_t *r, const bt_pbtxt_field_t *field,
                     const char *path, int64_t dims[], uint32_t *n)
{
    if (*n == BT_REPO_MAX_DIMS) {
        bt_take_refuse(r, field, "%s: more than %d dims", path,
                       BT_REPO_MAX_DIMS);
    } else {
        dims[(*n)++] = bt_take_number(r, field, path, -1, INT32_MAX);
    }
}

static void take_reshape_field(reading_t *r, const bt_pbtxt_field_t *field,
                               void *to)
{
    bt_repo_tensor_t *tensor = to;

    if (strcmp(field->name, "shape") != 0) {
        bt_take_refuse(r, field, "reshape.%s: there is only shape",
                       field->name);
        return;
    }
    take_dim(r, field, "reshape.shape", tensor->reshape, &tensor->n_reshape);
}

typedef struct named_tensor {
    const char *prefix; /* "input." or "output." */
    bt_repo_tensor_t *tensor;
} named_tensor_t;

static void take_tensor_field(reading_t *r, const bt_pbtxt_field_t *field,
                              void *to)
{
    const named_tensor_t *named = to;
    bt_repo_tensor_t *tensor = named->tensor;
    const bt_repo_field_t *row;
    char path[BT_TAKE_PATH_BYTES];

    if (strcmp(field->name, "reshape") == 0) {
        tensor->has_reshape = true;
        bt_take_fields(r, field, take_reshape_field, tensor);
        return;
    }
    row = bt_take_find_row(r, field, named->prefix, field->name, path);
    if ((row == NULL) || !bt_take_is_value(r, field, path)) {
        return;
    }
    if (strcmp(field->name, "name") == 0) {
        tensor->name = field->text;
    } else if (strcmp(field->name, "data_type") == 0) {
        take_type(r, field, path, &tensor->type);
    } else if (strcmp(field->name, "dims") == 0) {
        take_dim(r, field, path, tensor->dims, &tensor->n_dims);
    } else if (strcmp(field->name, "optional") == 0) {
        tensor->optional = bt_take_bool(r, field, path);
    } else if (strcmp(field->name, "allow_ragged_batch") == 0) {
        tensor->ragged = bt_take_bool(r, field, path);
    } else {
        bt_take_check_row(r, row, field, path);
    }
}

static void take_tensor(reading_t *r, const bt_pbtxt_field_t *message)
{
    bt_repo_model_t *model = r->model;
    const bool is_input = strcmp(message->name, "input") == 0;
    bt_repo_tensor_t *tensor = is_input ? &model->inputs[model->n_inputs++]
                                        : &model->outputs[model->n_outputs++];
    named_tensor_t named = {.prefix = is_input ? "input." : "output.",
                            .tensor = tensor};

    /* A placeholder left open is a type of logits, or of features that no
     * client sends here. */
    *tensor = (bt_repo_tensor_t){.name = "", .type = "TYPE_FP32"};
    bt_take_fields(r, message, take_tensor_field, &named);
    if (tensor->name[0] == '\0') {
        bt_take_refuse(r, message, "%s has no name", message->name);
    }
}

static void take_parameter(reading_t *r, const bt_pbtxt_field_t *message)
{
    const bt_pbtxt_field_t *key, *value;
    bt_repo_pair_t *pair = &r->model->parameters[r->model->n_parameters];
    char path[BT_TAKE_PATH_BYTES];
    const bt_repo_field_t *row;

    if (!bt_take_is_message(r, message)) {
        return;
    }
    key = bt_pbtxt_find(r->tree, message->first, "key");
    value = bt_pbtxt_find(r->tree, message->first, "value");
    if ((key == NULL) || (key->kind == BT_PBTXT_MESSAGE)) {
        bt_take_refuse(r, message, "a parameter has no key");
        return;
    }
    if (value != NULL) {
        value = bt_pbtxt_find(r->tree, value->first, "string_value");
    }
    row = bt_take_find_row(r, key, "parameters.", key->text, path);
    if (row == NULL) {
        return;
    }
    *pair = (bt_repo_pair_t){.key = key->text, .value = ""};
    if (value != NULL) {
        pair->value = value->text;
    }
    r->model->n_parameters++;
    if ((value == NULL) || (value->bytes == 0) ||
        bt_take_is_open(r, value, path)) {
        return;
    }
    if (strcmp(key->text, "decoupled") == 0) {
        r->model->decoupled = bt_take_bool(r, value, path);
        return;
    }
    bt_take_check_row(r, row, value, path);
    if (row->fate == BT_REPO_EFFECT) {
        bt_take_effect(r, row, value, path);
    }
}

/* ---- the whole file ---- */

static void take_batch_size(reading_t *r, const bt_pbtxt_field_t *field)
{
    int64_t n = bt_take_number(r, field, field->name, 0, MAX_BATCH_SIZE);

    if (n > BT_REPO_MAX_BATCH_SIZE) {
        bt_repository_note(r->repository, r->index, field->name,
                           "the most that one request may have is less");
        n = BT_REPO_MAX_BATCH_SIZE;
    }
    r->model->max_batch_size = (uint32_t)n;
}

static void take_word(reading_t *r, const bt_pbtxt_field_t *field)
{
    bt_repo_model_t *model = r->model;
    char path[BT_TAKE_PATH_BYTES];
    const bt_repo_field_t *row =
        bt_take_find_row(r, field, "", field->name, path);

    if (row == NULL) {
        return;
    }
    if ((row->fate == BT_REPO_NOTED) || (row->fate == BT_REPO_REFUSED)) {
        bt_take_check_row(r, row, field, path);
        return;
    }
    if (!bt_take_is_value(r, field, path) || bt_take_is_open(r, field, path) ||
        ((field->bytes == 0) && (row->fate == BT_REPO_ONLY))) {
        return;
    }
    bt_take_check_row(r, row, field, path);
    if (strcmp(path, "backend") == 0) {
        model->backend = field->text;
    } else if (strcmp(path, "platform") == 0) {
        model->platform = field->text;
    } else if (strcmp(path, "max_batch_size") == 0) {
        take_batch_size(r, field);
    } else if (strcmp(field->text, r->name) != 0) {
        bt_take_refuse(r, field, "name: '%.64s' stands in the folder of %s",
                       field->text, r->name);
    }
}

static void take_field(reading_t *r, const bt_pbtxt_field_t *field)
{
    static const struct {
        const char *name;
        void (*take)(reading_t *r, const bt_pbtxt_field_t *message);
    } messages[] = {
        {"input", take_tensor},
        {"output", take_tensor},
        {"parameters", take_parameter},
        {"instance_group", bt_take_instances},
        {"dynamic_batching", bt_take_batching},
        {"model_transaction_policy", bt_take_transactions},
        {"version_policy", bt_take_versions},
        {"ensemble_scheduling", bt_take_steps},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(messages); i++) {
        if (strcmp(field->name, messages[i].name) == 0) {
            messages[i].take(r, field);
            return;
        }
    }
    take_word(r, field);
}

static void take_all(reading_t *r)
{
    const uint32_t first = r->tree->first;
    bt_repo_model_t *m = r->model;

    m->inputs = bt_take_list(r, first, "input", sizeof(*m->inputs));
    m->outputs = bt_take_list(r, first, "output", sizeof(*m->outputs));
    m->parameters =
        bt_take_list(r, first, "parameters", sizeof(*m->parameters));
    m->instances =
        bt_take_list(r, first, "instance_group", sizeof(*m->instances));
    BT_PBTXT_FOR_EACH(field, r->tree, first)
    {
        if (r->status != BT_OK) {
            return;
        }
        take_field(r, field);
    }
}

bt_status_t bt_repository_take(bt_repository_t *repository, uint32_t index,
                               const char *path, const char *text, size_t n,
                               char why[BT_REPO_WHY_BYTES])
{
    bt_pbtxt_t *tree = &repository->trees[index];
    bt_repo_model_t *model = &repository->models[index];
    reading_t r = {
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
    take_all(&r);
    if (r.status == BT_ERR_NO_MEMORY) {
        snprintf(why, BT_REPO_WHY_BYTES, "%.400s: out of memory", path);
    }
    return r.status;
}
