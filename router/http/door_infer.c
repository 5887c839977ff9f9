/* SPDX-License-Identifier: Apache-2.0 */
/* `infer` over HTTP: tensors in JSON, or raw after it; compressed if the client
 * accepts that. */
#include <stdio.h>
#include <string.h>

#include "router/http/answer.h"
#include "router/http/door_priv.h"
#include "router/triton/infer_json.h"

static void on_finish(bt_request_t *request, const bt_infer_response_t *whole)
{
    bt_answer_tensors(bt_http_of(request), whole);
}

static const bt_infer_ops_t infer_ops = {
    .piece = NULL, /* there is no stream here */
    .finish = on_finish,
};

/* Returns the length of the JSON part: from a header of its own, or in the
 * content type, as with SageMaker and Vertex AI; NULL: absent. */
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

/* @return false if it is no number of bytes. */
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

static void begin_infer(bt_http_request_t *r, bt_strbuf_t *body)
{
    char client[BT_HTTP_CLIENT_BYTES] = "";
    bt_infer_http_t http;
    const bt_infer_source_t source = {
        .ops = &infer_ops,
        .peer = client,
        .parse = bt_infer_parse_json,
        .parse_ctx = &http,
        .parse_ctx_bytes = sizeof(http),
    };
    if (!read_length(find_length(r->ex), &http)) {
        bt_strbuf_fini(body);
        bt_http_request_error(r, 400, NULL,
                              BT_INFER_LENGTH_HEADER " is no number of bytes");
        return;
    }
    bt_exchange_client(r->ex, client);
    bt_infer_begin(&r->base, &source, body);
}

void bt_http_request_infer(bt_http_request_t *r)
{
    bt_http_request_take_body(r, begin_infer);
}
