/* SPDX-License-Identifier: Apache-2.0 */
/* A line of a batch's input, and of its output. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/text.h"
#include "common/crypt/key.h"
#include "router/batch/batch_priv.h"

static bt_status_t fault(bt_batch_fault_t *f, const char *code,
                         const char *param, const char *why)
{
    snprintf(f->code, sizeof(f->code), "%s", code);
    f->param = param;
    snprintf(f->why, sizeof(f->why), "%s", why);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_members(const bt_json_doc_t *doc,
                                 const bt_json_node_t *root,
                                 bt_batch_fault_t *f)
{
    static const char *const names[] = {"custom_id", "method", "url", "body"};
    const bt_json_node_t *key = bt_json_first(root);

    for (uint32_t i = 0; i < root->n; i++) {
        bool is_known = false;

        for (size_t k = 0; k < BT_ARRAY_LEN(names); k++) {
            is_known = is_known || bt_json_is(key, names[k]);
        }
        if (!is_known) {
            (void)fault(f, "unknown_parameter", NULL, "");
            snprintf(f->why, sizeof(f->why),
                     "%.*s is no member of a line: these are custom_id, "
                     "method, url and body",
                     (int)((key->len < 64) ? key->len : 64), key->text);
            return BT_ERR_INVALID_PARAM;
        }
        key = bt_json_next(doc, key + 1);
    }
    return BT_OK;
}

static bt_status_t check_line(const bt_json_doc_t *doc,
                              const bt_json_node_t *root,
                              const bt_batch_endpoint_t *endpoint,
                              bt_batch_fault_t *f)
{
    const bt_json_node_t *id = bt_json_get(doc, root, "custom_id");
    const bt_json_node_t *body = bt_json_get(doc, root, "body");
    const bt_json_node_t *stream;

    if (!bt_json_is_kind(id, BT_JSON_STRING) || (id->len == 0) ||
        (id->len > BT_BATCH_ID_CHARS) ||
        (memchr(id->text, '\0', id->len) != NULL)) {
        return fault(f, "invalid_custom_id", "custom_id",
                     "custom_id must be a text of 1 to 512 bytes");
    }
    if (!bt_json_is(bt_json_get(doc, root, "method"), "POST")) {
        return fault(f, "invalid_method", "method", "method must be POST");
    }
    if (!bt_json_is(bt_json_get(doc, root, "url"), endpoint->path)) {
        return fault(f, "mismatched_endpoint", "url",
                     "url must be the endpoint of the batch");
    }
    if (!bt_json_is_kind(body, BT_JSON_OBJECT)) {
        return fault(f, "invalid_body", "body", "body must be an object");
    }
    stream = bt_json_get(doc, body, "stream");
    if ((stream != NULL) && !bt_json_is_kind(stream, BT_JSON_NULL) &&
        !bt_json_is_kind(stream, BT_JSON_FALSE)) {
        return fault(f, "invalid_body", "body.stream",
                     "stream must be false: a line has one answer");
    }
    return check_members(doc, root, f);
}

bt_status_t bt_batch_line_parse(const char *text, size_t bytes,
                                const bt_batch_endpoint_t *endpoint,
                                char custom_id[BT_BATCH_ID_CHARS + 1],
                                bt_strbuf_t *body, bt_batch_fault_t *fault_p)
{
    const bt_json_node_t *root, *node;
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t why;
    bt_status_t status =
        bt_json_doc_parse_client(text, bytes, UINT32_MAX, &why, &doc);

    if (status == BT_ERR_NO_MEMORY) {
        return status;
    }
    if (status != BT_OK) {
        return fault(fault_p, "invalid_json_line", NULL,
                     "the line is not JSON, or nested too deep");
    }
    root = bt_json_doc_root(doc);
    status = bt_json_is_kind(root, BT_JSON_OBJECT)
                 ? check_line(doc, root, endpoint, fault_p)
                 : fault(fault_p, "invalid_json_line", NULL,
                         "the line is no object");
    if (status == BT_OK) {
        node = bt_json_get(doc, root, "custom_id");
        memcpy(custom_id, node->text, node->len);
        custom_id[node->len] = '\0';
        if (body != NULL) {
            node = bt_json_get(doc, root, "body");
            bt_strbuf_append(body, node->text, node->len);
            status = bt_strbuf_status(body);
        }
    }
    bt_json_doc_free(doc);
    return status;
}

/* ---- results ---- */

static void begin_line(bt_json_t *json, const char *custom_id)
{
    static const char digits[] = "0123456789abcdef";
    char id[48] = "batch_req_";
    uint8_t random[16];
    size_t n = strlen(id);

    bt_key_random(random, sizeof(random));
    for (size_t i = 0; i < sizeof(random); i++) {
        id[n++] = digits[random[i] >> 4];
        id[n++] = digits[random[i] & 15];
    }
    id[n] = '\0';
    bt_json_object(json, NULL);
    bt_json_str(json, "id", id);
    bt_json_str(json, "custom_id", custom_id);
}

bt_batch_result_t *bt_batch_result_answer(const bt_batch_line_t *line,
                                          const char *request_id,
                                          int http_status, const char *answer,
                                          size_t answer_bytes)
{
    bt_batch_result_t *result = bt_calloc(1, sizeof(*result));
    char head[BT_BATCH_RESULT_HEAD] = {'R'};
    bt_json_t json;

    if (result == NULL) {
        return NULL;
    }
    bt_list_init(&result->link);
    result->index = line->index;
    result->ok = http_status == 200;
    for (size_t i = 0; i < 4; i++) {
        head[1 + i] = (char)(uint8_t)(line->index >> (8 * i));
    }
    head[5] = result->ok ? 1 : 0;
    bt_strbuf_init(&result->record, BT_ANSWER_LIMIT + 65536);
    bt_strbuf_append(&result->record, head, sizeof(head));
    bt_json_init(&json, &result->record);
    begin_line(&json, line->custom_id);
    bt_json_object(&json, "response");
    bt_json_i64(&json, "status_code", http_status);
    bt_json_str(&json, "request_id", request_id);
    bt_json_rawn(&json, "body", answer, answer_bytes);
    bt_json_end_object(&json);
    bt_json_null(&json, "error");
    bt_json_end_object(&json);
    bt_strbuf_append(&result->record, "\n", 1);
    if (bt_strbuf_status(&result->record) != BT_OK) {
        bt_batch_result_free(result);
        return NULL;
    }
    return result;
}

void bt_batch_write_unanswered(const char *custom_id, const char *code,
                               const char *why, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    begin_line(&json, custom_id);
    bt_json_null(&json, "response");
    bt_json_object(&json, "error");
    bt_json_str(&json, "code", code);
    bt_json_str(&json, "message", why);
    bt_json_end_object(&json);
    bt_json_end_object(&json);
    bt_strbuf_append(out, "\n", 1);
}
