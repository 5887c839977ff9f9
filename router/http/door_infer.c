/* SPDX-License-Identifier: Apache-2.0 */
/* `infer` over HTTP: tensors in JSON, or raw behind it. */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "router/http/door_priv.h"
#include "router/triton/infer_json.h"

#define RAW_TYPE "application/octet-stream"

static bt_visit_t *visit_of(bt_infer_reply_t *reply)
{
    return BT_CONTAINER_OF(reply, bt_visit_t, infer);
}

/* For the access log. */
static void note_facts(bt_visit_t *visit)
{
    visit->reply.facts = visit->infer.facts;
}

static void on_finish(bt_infer_reply_t *reply, const bt_infer_response_t *whole)
{
    bt_visit_t *visit = visit_of(reply);
    bt_strbuf_t *out = &visit->door->out;
    size_t json_bytes = 0;
    char length[32];

    note_facts(visit);
    bt_strbuf_reset(out);
    bt_infer_write_json(whole, out, &json_bytes);
    if (bt_strbuf_status(out) != BT_OK) {
        bt_visit_fail_for_memory(visit);
        return;
    }
    if (json_bytes > 0) {
        snprintf(length, sizeof(length), "%zu", json_bytes);
        bt_exchange_add_header(visit->ex, BT_INFER_LENGTH_HEADER, length);
    }
    bt_visit_respond(visit, 200, (json_bytes > 0) ? RAW_TYPE : BT_JSON_TYPE,
                     out->data, out->len);
}

static void on_error(bt_infer_reply_t *reply, const bt_api_error_t *error)
{
    bt_visit_t *visit = visit_of(reply);

    note_facts(visit);
    bt_visit_fail(visit, error);
}

static const bt_infer_reply_ops_t reply_ops = {
    .piece = NULL, /* there is no stream here */
    .finish = on_finish,
    .error = on_error,
};

/* Where the JSON's length stands: in a header of its own, or with the content's
 * type, as SageMaker and Vertex AI have it; NULL: nowhere. */
static const char *find_length(const bt_exchange_t *ex)
{
    static const char key[] = "json-header-size=";
    const char *text = bt_exchange_header(ex, BT_INFER_LENGTH_HEADER);

    if (text == NULL) {
        const char *type = bt_exchange_header(ex, "Content-Type");

        text = (type != NULL) ? strstr(type, key) : NULL;
        text = (text != NULL) ? text + strlen(key) : NULL;
    }
    return text;
}

/* @return false for what is no number of bytes. */
static bool read_length(const char *text, bt_infer_http_t *http)
{
    uint64_t bytes = 0;

    *http = (bt_infer_http_t){.has_json_bytes = text != NULL};
    if (text == NULL) {
        return true;
    }
    for (; (*text >= '0') && (*text <= '9'); text++) {
        if (__builtin_mul_overflow(bytes, 10, &bytes) ||
            __builtin_add_overflow(bytes, (uint64_t)(*text - '0'), &bytes)) {
            return false;
        }
    }
    http->json_bytes = bytes;
    return *text == '\0';
}

void bt_visit_infer(bt_visit_t *visit, const char *model, const char *version)
{
    char client[BT_HTTP_CLIENT_BYTES] = "";
    bt_infer_http_t http;
    bt_strbuf_t body;
    bt_infer_source_t source = {
        .model = model,
        .version = version,
        .client = client,
        .traceparent = bt_exchange_header(visit->ex, "traceparent"),
        .parse = bt_infer_parse_json,
        .parse_ctx = &http,
        .parse_ctx_bytes = sizeof(http),
        .body_freed = bt_door_body_freed,
        .ctx = visit->door,
    };
    bt_api_error_t error = {0};

    if (!read_length(find_length(visit->ex), &http)) {
        bt_api_error_set(&error, 400, "invalid_request_error", NULL,
                         BT_INFER_LENGTH_HEADER " is no number of bytes");
        bt_visit_fail(visit, &error);
        return;
    }
    bt_exchange_client(visit->ex, client);
    source.body_bytes = bt_exchange_take_body(visit->ex, &body);
    visit->infer.ops = &reply_ops;
    bt_infer_begin(visit->door->front, &visit->infer, &source, &body);
}

void bt_visit_infer_gone(bt_visit_t *visit)
{
    bt_infer_gone(visit->infer.call);
    note_facts(visit);
}
