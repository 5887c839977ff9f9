/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a batch, as JSON: its parameters, and its state. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

static const char *const names[BT_BATCH_N_STATUSES] = {
    [BT_BATCH_VALIDATING] = "validating",
    [BT_BATCH_IN_PROGRESS] = "in_progress",
    [BT_BATCH_FINALIZING] = "finalizing",
    [BT_BATCH_CANCELLING] = "cancelling",
    [BT_BATCH_COMPLETED] = "completed",
    [BT_BATCH_EXPIRED] = "expired",
    [BT_BATCH_FAILED] = "failed",
    [BT_BATCH_CANCELLED] = "cancelled",
};

/* Names of the times in the API. */
static const char *const times[BT_BATCH_N_STATUSES] = {
    [BT_BATCH_IN_PROGRESS] = "in_progress_at",
    [BT_BATCH_FINALIZING] = "finalizing_at",
    [BT_BATCH_CANCELLING] = "cancelling_at",
    [BT_BATCH_COMPLETED] = "completed_at",
    [BT_BATCH_EXPIRED] = "expired_at",
    [BT_BATCH_FAILED] = "failed_at",
    [BT_BATCH_CANCELLED] = "cancelled_at",
};

static const bt_batch_endpoint_t endpoints[] = {
    {"/v1/chat/completions", BT_API_CHAT},
    {"/v1/completions", BT_API_COMPLETIONS},
    {"/v1/responses", BT_API_RESPONSES},
};

const char *bt_batch_status_name(bt_batch_status_t status)
{
    return names[status];
}

const bt_batch_endpoint_t *bt_batch_endpoint(const char *path)
{
    return BT_FIND_NAMED(endpoints, BT_ARRAY_LEN(endpoints), path, path);
}

bool bt_batch_is_endpoint(const char *path)
{
    return bt_batch_endpoint(path) != NULL;
}

/* ---- parameters ---- */

void bt_batch_write_params(const bt_batch_params_t *params, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "input_file_id", params->input_id);
    bt_json_str(&json, "endpoint", params->endpoint);
    bt_json_u64(&json, "output_life_s", params->output_life_s);
    if (params->metadata != NULL) {
        bt_json_raw(&json, "metadata", params->metadata);
    }
    bt_json_end_object(&json);
}

/* Copies a text of at most size - 1 bytes. */
static bool copy_text(const bt_json_node_t *node, char *text, size_t size)
{
    if (!bt_json_is_kind(node, BT_JSON_STRING) || (node->len >= size)) {
        return false;
    }
    memcpy(text, node->text, node->len);
    text[node->len] = '\0';
    return true;
}

/* Copies JSON. @return false: no memory */
static bool copy_json(const bt_json_node_t *node, char **text_p)
{
    if (node != NULL) {
        bt_free(*text_p);
        *text_p = bt_memdup(node->text, node->len);
    }
    return (node == NULL) || (*text_p != NULL);
}

bt_status_t bt_batch_read_params(const char *text, size_t bytes,
                                 bt_batch_t *batch)
{
    bt_json_doc_t *doc = NULL;
    char why[BT_BATCH_WHY_BYTES], path[64];
    bt_status_t status = bt_json_doc_parse(text, bytes, why, sizeof(why), &doc);
    const bt_json_node_t *root, *metadata;

    if (status != BT_OK) {
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_CORRUPT;
    }
    root = bt_json_doc_root(doc);
    metadata = bt_json_get(doc, root, "metadata");
    if (!copy_text(bt_json_get(doc, root, "input_file_id"), batch->input_id,
                   sizeof(batch->input_id)) ||
        !copy_text(bt_json_get(doc, root, "endpoint"), path, sizeof(path)) ||
        !bt_json_as_u64(bt_json_get(doc, root, "output_life_s"),
                        &batch->output_life_s) ||
        ((batch->endpoint = bt_batch_endpoint(path)) == NULL)) {
        status = BT_ERR_CORRUPT;
    } else if (!copy_json(metadata, &batch->metadata)) {
        status = BT_ERR_NO_MEMORY;
    }
    bt_json_doc_free(doc);
    return status;
}

/* ---- state ---- */

static void put_counts(const bt_batch_t *batch, bt_json_t *json)
{
    bt_json_object(json, "request_counts");
    bt_json_u64(json, "total", batch->n_lines);
    bt_json_u64(json, "completed", batch->n_ok);
    bt_json_u64(json, "failed", batch->n_failed);
    bt_json_end_object(json);
}

void bt_batch_write_state(const bt_batch_t *batch, bt_batch_status_t status,
                          bt_strbuf_t *out)
{
    bt_json_t json;

    bt_strbuf_reset(out);
    bt_strbuf_append(out, "S", 1);
    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_u64(&json, "status", status);
    bt_json_u64(&json, "ending", batch->ending);
    bt_json_array(&json, "at");
    for (size_t i = 0; i < BT_BATCH_N_STATUSES; i++) {
        bt_json_u64(&json, NULL,
                    ((i == status) && (batch->at_s[i] == 0)) ? bt_batch_now_s()
                                                             : batch->at_s[i]);
    }
    bt_json_end_array(&json);
    put_counts(batch, &json);
    bt_json_u64(&json, "id_bytes", batch->id_bytes);
    bt_json_str(&json, "output_file_id", batch->output_id);
    bt_json_str(&json, "error_file_id", batch->error_id);
    if (batch->errors != NULL) {
        bt_json_raw(&json, "errors", batch->errors);
    }
    bt_json_end_object(&json);
}

static bool read_counts(const bt_json_doc_t *doc, const bt_json_node_t *node,
                        bt_batch_t *batch)
{
    uint64_t n[3];

    if (!bt_json_as_u64(bt_json_get(doc, node, "total"), &n[0]) ||
        !bt_json_as_u64(bt_json_get(doc, node, "completed"), &n[1]) ||
        !bt_json_as_u64(bt_json_get(doc, node, "failed"), &n[2]) ||
        (n[0] > BT_BATCH_MAX_LINES) || (n[1] > n[0]) || (n[2] > n[0])) {
        return false;
    }
    batch->n_lines = (uint32_t)n[0];
    batch->n_ok = (uint32_t)n[1];
    batch->n_failed = (uint32_t)n[2];
    return true;
}

static bool read_times(const bt_json_doc_t *doc, const bt_json_node_t *list,
                       bt_batch_t *batch)
{
    const bt_json_node_t *node;

    if (bt_json_size(list, BT_JSON_ARRAY) != BT_BATCH_N_STATUSES) {
        return false;
    }
    node = bt_json_first(list);
    for (size_t i = 0; i < BT_BATCH_N_STATUSES; i++) {
        if (!bt_json_as_u64(node, &batch->at_s[i])) {
            return false;
        }
        node = bt_json_next(doc, node);
    }
    return true;
}

bt_status_t bt_batch_read_state(const char *text, size_t bytes,
                                bt_batch_t *batch)
{
    bt_json_doc_t *doc = NULL;
    char why[BT_BATCH_WHY_BYTES];
    bt_status_t status = bt_json_doc_parse(text, bytes, why, sizeof(why), &doc);
    const bt_json_node_t *root;
    uint64_t now, ending;

    if (status != BT_OK) {
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_CORRUPT;
    }
    root = bt_json_doc_root(doc);
    if (!bt_json_as_u64(bt_json_get(doc, root, "status"), &now) ||
        !bt_json_as_u64(bt_json_get(doc, root, "ending"), &ending) ||
        (now >= BT_BATCH_N_STATUSES) || (ending >= BT_BATCH_N_STATUSES) ||
        !bt_json_as_u64(bt_json_get(doc, root, "id_bytes"), &batch->id_bytes) ||
        !read_times(doc, bt_json_get(doc, root, "at"), batch) ||
        !read_counts(doc, bt_json_get(doc, root, "request_counts"), batch) ||
        !copy_text(bt_json_get(doc, root, "output_file_id"), batch->output_id,
                   sizeof(batch->output_id)) ||
        !copy_text(bt_json_get(doc, root, "error_file_id"), batch->error_id,
                   sizeof(batch->error_id))) {
        status = BT_ERR_CORRUPT;
    } else if (!copy_json(bt_json_get(doc, root, "errors"), &batch->errors)) {
        status = BT_ERR_NO_MEMORY;
    } else {
        batch->status = (bt_batch_status_t)now;
        batch->ending = (bt_batch_status_t)ending;
    }
    bt_json_doc_free(doc);
    return status;
}

/* ---- the API ---- */

static void put_id(bt_json_t *json, const char *key, const char *id,
                   bool is_set)
{
    bt_json_str(json, key, (is_set && (id[0] != '\0')) ? id : NULL);
}

void bt_batch_write(const bt_batch_t *batch, bt_json_t *json)
{
    const uint64_t created_s = batch->object->created_us / 1000000;
    const bool has_files = bt_batch_has_ended(batch);

    bt_json_object(json, NULL);
    bt_json_str(json, "id", batch->object->id);
    bt_json_str(json, "object", "batch");
    bt_json_str(json, "endpoint", batch->endpoint->path);
    if (batch->errors != NULL) {
        bt_json_object(json, "errors");
        bt_json_str(json, "object", "list");
        bt_json_raw(json, "data", batch->errors);
        bt_json_end_object(json);
    } else {
        bt_json_null(json, "errors");
    }
    bt_json_str(json, "input_file_id", batch->input_id);
    bt_json_str(json, "completion_window", "24h");
    bt_json_str(json, "status", names[batch->status]);
    put_id(json, "output_file_id", batch->output_id, has_files);
    put_id(json, "error_file_id", batch->error_id, has_files);
    bt_json_u64(json, "created_at", created_s);
    bt_json_u64(json, "expires_at", created_s + BT_BATCH_LIFE_S);
    for (size_t i = 0; i < BT_BATCH_N_STATUSES; i++) {
        /* The time of an end may be there before it is kept. */
        if ((times[i] != NULL) && (batch->at_s[i] > 0) &&
            ((i < BT_BATCH_COMPLETED) || (i == batch->status))) {
            bt_json_u64(json, times[i], batch->at_s[i]);
        } else if (times[i] != NULL) {
            bt_json_null(json, times[i]);
        }
    }
    put_counts(batch, json);
    if (batch->metadata != NULL) {
        bt_json_raw(json, "metadata", batch->metadata);
    } else {
        bt_json_null(json, "metadata");
    }
    bt_json_end_object(json);
}
