/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /v1/batches: each field has an effect, or is refused by its
 * name. */
#include <string.h>

#include "common/base/json_doc.h"
#include "router/batch/batch.h"

#define MAX_PAIRS      16u /* of metadata, as OpenAI has it */
#define MAX_KEY        64u
#define MAX_VALUE      512u
#define METADATA_BYTES ((size_t)128 << 10)
#define MAX_VALUES     1000u /* of a body */

static bt_status_t read_text(const bt_json_node_t *node, const char *name,
                             char *text, size_t size, bt_api_error_t *error)
{
    if (!bt_json_is_kind(node, BT_JSON_STRING) || (node->len >= size) ||
        (memchr(node->text, '\0', node->len) != NULL)) {
        return bt_api_error_invalid(error, name,
                                    "%s must be a text of less than %zu bytes",
                                    name, size);
    }
    memcpy(text, node->text, node->len);
    text[node->len] = '\0';
    return BT_OK;
}

static bt_status_t read_metadata(const bt_json_doc_t *doc,
                                 const bt_json_node_t *node,
                                 bt_batch_fields_t *fields,
                                 bt_api_error_t *error)
{
    const bt_json_node_t *key;
    bt_json_t json;

    if (bt_json_is_kind(node, BT_JSON_NULL)) {
        return BT_OK;
    }
    if (!bt_json_is_kind(node, BT_JSON_OBJECT) || (node->n > MAX_PAIRS)) {
        return bt_api_error_invalid(error, "metadata",
                                    "metadata must be an object of at most 16 "
                                    "texts");
    }
    bt_json_init(&json, &fields->metadata);
    bt_json_object(&json, NULL);
    key = (node->n > 0) ? bt_json_first(node) : NULL;
    for (uint32_t i = 0; i < node->n; i++) {
        const bt_json_node_t *value = key + 1;

        if (!bt_json_is_kind(value, BT_JSON_STRING) || (key->len > MAX_KEY) ||
            (value->len > MAX_VALUE)) {
            return bt_api_error_invalid(
                error, "metadata",
                "metadata must have texts of at most 512 bytes, with names of "
                "at most 64");
        }
        if (bt_json_counts(key)) {
            bt_json_key(&json, key->text, key->len);
            bt_json_strn(&json, NULL, value->text, value->len);
        }
        key = bt_json_next(doc, value);
    }
    bt_json_end_object(&json);
    return (bt_strbuf_status(&fields->metadata) == BT_OK)
               ? BT_OK
               : bt_api_error_no_memory(error);
}

static bt_status_t read_life(const bt_json_doc_t *doc,
                             const bt_json_node_t *node,
                             bt_batch_fields_t *fields, bt_api_error_t *error)
{
    if (bt_json_is_kind(node, BT_JSON_NULL)) {
        return BT_OK;
    }
    if ((bt_json_size(node, BT_JSON_OBJECT) != 2) ||
        !bt_json_is(bt_json_get(doc, node, "anchor"), "created_at") ||
        !bt_json_as_u64(bt_json_get(doc, node, "seconds"), &fields->life_s) ||
        (fields->life_s < BT_STORE_LEAST_LIFE_S) ||
        (fields->life_s > BT_STORE_MOST_LIFE_S)) {
        return bt_api_error_invalid(error, "output_expires_after",
                                    "output_expires_after must have the anchor "
                                    "created_at and seconds from 3600 to "
                                    "2592000");
    }
    return BT_OK;
}

static bt_status_t read_field(const bt_json_doc_t *doc,
                              const bt_json_node_t *key,
                              bt_batch_fields_t *fields, bt_api_error_t *error)
{
    const bt_json_node_t *value = key + 1;

    if (bt_json_is(key, "input_file_id")) {
        return read_text(value, "input_file_id", fields->input_id,
                         sizeof(fields->input_id), error);
    }
    if (bt_json_is(key, "endpoint")) {
        return read_text(value, "endpoint", fields->endpoint,
                         sizeof(fields->endpoint), error);
    }
    if (bt_json_is(key, "completion_window")) {
        fields->has_time = bt_json_is(value, "24h");
        return fields->has_time
                   ? BT_OK
                   : bt_api_error_invalid(error, "completion_window",
                                          "completion_window must be 24h");
    }
    if (bt_json_is(key, "metadata")) {
        return read_metadata(doc, value, fields, error);
    }
    if (bt_json_is(key, "output_expires_after")) {
        return read_life(doc, value, fields, error);
    }
    return bt_api_error_invalid(
        error, NULL,
        "%.*s is no field of a batch: these are input_file_id, endpoint, "
        "completion_window, metadata and output_expires_after",
        (int)((key->len < 64) ? key->len : 64), key->text);
}

static bt_status_t read_fields(const char *text, size_t bytes,
                               bt_batch_fields_t *fields, bt_api_error_t *error)
{
    const bt_json_node_t *root, *key;
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_status_t status =
        bt_json_doc_parse_client(text, bytes, MAX_VALUES, &fault, &doc);

    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(error);
    }
    if (status != BT_OK) {
        return BT_API_INVALID(error, "the body is not JSON: %s at byte %zu",
                              fault.what, fault.at);
    }
    root = bt_json_doc_root(doc);
    if (!bt_json_is_kind(root, BT_JSON_OBJECT)) {
        status = BT_API_INVALID(error, "the body is no JSON object");
    }
    key = (bt_json_size(root, BT_JSON_OBJECT) > 0) ? bt_json_first(root) : NULL;
    for (uint32_t i = 0; (status == BT_OK) && (i < root->n); i++) {
        if (bt_json_counts(key)) {
            status = read_field(doc, key, fields, error);
        }
        key = bt_json_next(doc, key + 1);
    }
    bt_json_doc_free(doc);
    return status;
}

static bt_status_t check_fields(const bt_batch_fields_t *fields,
                                bt_api_error_t *error)
{
    if (fields->input_id[0] == '\0') {
        return bt_api_error_invalid(error, "input_file_id",
                                    "input_file_id is missing");
    }
    if (!fields->has_time) {
        return bt_api_error_invalid(error, "completion_window",
                                    "completion_window is missing: 24h");
    }
    if (!bt_batch_is_endpoint(fields->endpoint)) {
        return bt_api_error_invalid(
            error, "endpoint",
            "endpoint must be /v1/chat/completions, /v1/completions or "
            "/v1/responses");
    }
    return BT_OK;
}

bt_status_t bt_batch_fields_read(const char *text, size_t bytes,
                                 bt_batch_fields_t *fields,
                                 bt_api_error_t *error_p)
{
    bt_status_t status;

    *fields = (bt_batch_fields_t){.has_time = false};
    bt_strbuf_init(&fields->metadata, METADATA_BYTES);
    status = read_fields(text, bytes, fields, error_p);
    return (status == BT_OK) ? check_fields(fields, error_p) : status;
}

void bt_batch_fields_fini(bt_batch_fields_t *fields)
{
    bt_strbuf_fini(&fields->metadata);
}
