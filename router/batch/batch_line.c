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

static bool is_custom_id(const bt_json_node_t *id)
{
    return bt_json_is_kind(id, BT_JSON_STRING) && (id->len > 0) &&
           (id->len <= BT_BATCH_ID_CHARS) &&
           (memchr(id->text, '\0', id->len) == NULL);
}

static bt_status_t check_line(const bt_json_doc_t *doc,
                              const bt_json_node_t *root,
                              const bt_batch_endpoint_t *endpoint,
                              bt_batch_fault_t *f)
{
    const bt_json_node_t *id = bt_json_get(doc, root, "custom_id");
    const bt_json_node_t *body = bt_json_get(doc, root, "body");
    const bt_json_node_t *stream;

    if (!is_custom_id(id)) {
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

/* ---- lines that are too large ---- */

/* Position in a line that may be cut off anywhere. */
typedef struct scan {
    const char *at, *end;
} scan_t;

static void skip_space(scan_t *s)
{
    while ((s->at < s->end) && (*s->at != '\0') &&
           (strchr(" \t\r\n", *s->at) != NULL)) {
        s->at++;
    }
}

static bool take(scan_t *s, char c)
{
    skip_space(s);
    if ((s->at < s->end) && (*s->at == c)) {
        s->at++;
        return true;
    }
    return false;
}

/* Skips a string behind its first quote. @return false: it is cut */
static bool skip_string(scan_t *s)
{
    while (s->at < s->end) {
        const char c = *s->at++;

        if (c == '"') {
            return true;
        }
        s->at += ((c == '\\') && (s->at < s->end)) ? 1 : 0;
    }
    return false;
}

/* Skips a member's value, up to the comma or brace behind it. @return false: it
 * is cut */
static bool skip_value(scan_t *s)
{
    size_t depth = 0;

    while (s->at < s->end) {
        const char c = *s->at;

        if ((depth == 0) && ((c == ',') || (c == '}'))) {
            return true;
        }
        s->at++;
        if (c == '"') {
            if (!skip_string(s)) {
                return false;
            }
        } else if ((c == '{') || (c == '[')) {
            depth++;
        } else if ((c == '}') || (c == ']')) {
            depth -= (depth > 0) ? 1 : 0;
        }
    }
    return false;
}

/* Decodes a text with its quotes. @return false: it is no custom_id */
static bool read_id(const char *text, size_t bytes,
                    char custom_id[BT_BATCH_ID_CHARS + 1])
{
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *node;
    bt_json_fault_t why;
    bool is_id = false;

    if (bt_json_doc_parse_client(text, bytes, 1, &why, &doc) != BT_OK) {
        return false;
    }
    node = bt_json_doc_root(doc);
    if (is_custom_id(node)) {
        memcpy(custom_id, node->text, node->len);
        custom_id[node->len] = '\0';
        is_id = true;
    }
    bt_json_doc_free(doc);
    return is_id;
}

/* Finds the custom_id in a line, or in its beginning. */
static bool find_id(const bt_batch_text_t *line,
                    char custom_id[BT_BATCH_ID_CHARS + 1])
{
    static const char name[] = "custom_id\"";
    scan_t s = {line->text, line->text + line->bytes};
    bool has_id = false, is_more = take(&s, '{');

    while (is_more && take(&s, '"')) {
        const char *key = s.at, *value;
        bool is_id;

        if (!skip_string(&s)) {
            break;
        }
        is_id = ((size_t)(s.at - key) == sizeof(name) - 1) &&
                (memcmp(key, name, sizeof(name) - 1) == 0);
        if (!take(&s, ':')) {
            break;
        }
        skip_space(&s);
        value = s.at;
        if (!skip_value(&s)) {
            break;
        }
        if (is_id) { /* of equal keys the last one counts */
            has_id = read_id(value, (size_t)(s.at - value), custom_id);
        }
        is_more = take(&s, ',');
    }
    return has_id;
}

static bt_status_t refuse_large(const bt_batch_text_t *line, const char *why,
                                char custom_id[BT_BATCH_ID_CHARS + 1],
                                bt_batch_fault_t *f)
{
    if (find_id(line, custom_id)) {
        f->refusal = why;
        return BT_ERR_TOO_LARGE;
    }
    return fault(f, "invalid_custom_id", "custom_id",
                 "the line is too large, and has no custom_id in its part that "
                 "can be read");
}

#define TOO_LONG "the body of the line is longer than --max-body-bytes"
#define TOO_MANY                                                                \
    "the line is too large: a body may have 1048576 values, and a line may be " \
    "nested 64 deep"
_Static_assert((BT_API_MAX_VALUES == 1048576) && (BT_JSON_DOC_DEPTH == 64),
               "TOO_MANY says so");

/* Values of a line without those of its body. */
#define AROUND_VALUES 4

bt_status_t bt_batch_line_parse(const bt_batch_text_t *line,
                                const bt_batch_endpoint_t *endpoint,
                                size_t most,
                                char custom_id[BT_BATCH_ID_CHARS + 1],
                                bt_strbuf_t *body, bt_batch_fault_t *fault_p)
{
    const bt_json_node_t *root, *node;
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t why;
    bt_status_t status;

    if (line->is_cut) {
        return refuse_large(line, TOO_LONG, custom_id, fault_p);
    }
    status = bt_json_doc_parse_client(
        line->text, line->bytes, BT_API_MAX_VALUES + AROUND_VALUES, &why, &doc);
    if (status == BT_ERR_TOO_LARGE) {
        return refuse_large(line, TOO_MANY, custom_id, fault_p);
    }
    if (status == BT_ERR_NO_MEMORY) {
        return status;
    }
    if (status != BT_OK) {
        return fault(fault_p, "invalid_json_line", NULL,
                     "the line is not JSON");
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
        node = bt_json_get(doc, root, "body");
        if (node->len > most) {
            fault_p->refusal = TOO_LONG;
            status = BT_ERR_TOO_LARGE;
        } else if (body != NULL) {
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
    char id[48] = "batch_req_";

    bt_key_random_hex(16, id + strlen(id));
    bt_json_object(json, NULL);
    bt_json_str(json, "id", id);
    bt_json_str(json, "custom_id", custom_id);
}

#define END "},\"error\":null}\n" /* of a record, behind the answer */

bt_status_t bt_batch_result_begin(const bt_batch_line_t *line,
                                  const char *request_id, int http_status,
                                  bt_batch_result_t **result_p)
{
    bt_batch_result_t *result = bt_calloc(1, sizeof(*result));
    char head[BT_BATCH_RESULT_HEAD] = {'R'};
    bt_status_t status;
    bt_json_t json;

    if (result == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&result->link);
    result->index = line->index;
    result->ok = http_status == 200;
    for (size_t i = 0; i < 4; i++) {
        head[1 + i] = (char)(uint8_t)(line->index >> (8 * i));
    }
    head[5] = result->ok ? 1 : 0;
    bt_strbuf_init(&result->record, 65536);
    bt_strbuf_append(&result->record, head, sizeof(head));
    bt_json_init(&json, &result->record);
    begin_line(&json, line->custom_id);
    bt_json_object(&json, "response");
    bt_json_i64(&json, "status_code", http_status);
    bt_json_str(&json, "request_id", request_id);
    bt_json_rawn(&json, "body", "", 0); /* it follows */
    result->record.limit = result->record.len + BT_ANSWER_LIMIT + sizeof(END);
    if ((status = bt_strbuf_status(&result->record)) != BT_OK) {
        bt_batch_result_free(result);
        return status;
    }
    *result_p = result;
    return BT_OK;
}

bt_status_t bt_batch_result_end(bt_batch_result_t *result)
{
    bt_strbuf_append(&result->record, END, sizeof(END) - 1);
    return bt_strbuf_status(&result->record);
}

bt_status_t bt_batch_result_answer(const bt_batch_line_t *line,
                                   const char *request_id, int http_status,
                                   const char *answer, size_t answer_bytes,
                                   bt_batch_result_t **result_p)
{
    bt_batch_result_t *result = NULL;
    bt_status_t status =
        bt_batch_result_begin(line, request_id, http_status, &result);

    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_append(&result->record, answer, answer_bytes);
    if ((status = bt_batch_result_end(result)) != BT_OK) {
        bt_batch_result_free(result);
        return status;
    }
    *result_p = result;
    return BT_OK;
}

bool bt_batch_read_result(const void *data, size_t bytes, uint32_t *index_p,
                          bool *ok_p)
{
    const uint8_t *at = data;

    if ((bytes <= BT_BATCH_RESULT_HEAD) || (at[0] != 'R') || (at[5] > 1)) {
        return false;
    }
    *index_p = (uint32_t)at[1] | (uint32_t)at[2] << 8 | (uint32_t)at[3] << 16 |
               (uint32_t)at[4] << 24;
    *ok_p = at[5] == 1;
    return *index_p < BT_BATCH_MAX_LINES;
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
