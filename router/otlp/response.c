/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/response.h"

#include <stdio.h>
#include <string.h>

#include "common/base/json_doc.h"

bt_otlp_verdict_t bt_otlp_judge(int http_status)
{
    if ((http_status >= 200) && (http_status < 300)) {
        return BT_OTLP_ACCEPTED;
    }
    switch (http_status) {
    case 429:
    case 502:
    case 503:
    case 504:
        return BT_OTLP_RETRY;
    default:
        return BT_OTLP_REJECTED;
    }
}

uint64_t bt_otlp_backoff_ms(const bt_otlp_backoff_t *backoff, uint32_t n_failed,
                            uint64_t retry_after_ms, uint32_t random)
{
    uint64_t ms = backoff->first_ms;

    for (uint32_t i = 1; (i < n_failed) && (ms < backoff->max_ms); i++) {
        ms *= 2;
    }
    ms = (ms < backoff->max_ms) ? ms : backoff->max_ms;
    ms = ms / 2 + (uint64_t)random % (ms - ms / 2 + 1);
    return (retry_after_ms > ms) ? retry_after_ms : ms;
}

static bool read_count(const bt_json_node_t *node, uint64_t *n_p)
{
    char digits[24];
    unsigned long long n;

    if (bt_json_as_u64(node, n_p)) {
        return true;
    }
    /* proto3's JSON encodes 64-bit numbers as strings. */
    if ((node == NULL) || (node->kind != BT_JSON_STRING) || (node->len == 0) ||
        (node->len > 19)) {
        return false;
    }
    memcpy(digits, node->text, node->len);
    digits[node->len] = '\0';
    if ((strspn(digits, "0123456789") != node->len) ||
        (sscanf(digits, "%19llu", &n) != 1)) {
        return false;
    }
    *n_p = n;
    return true;
}

static void read_message(const bt_json_node_t *node, bt_otlp_result_t *result)
{
    if ((node != NULL) && (node->kind == BT_JSON_STRING)) {
        result->message = bt_printable(node->text, node->len);
    }
}

void bt_otlp_parse_body(const char *body, size_t bytes,
                        bt_otlp_result_t *result)
{
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root, *partial;
    char why[128];

    *result = (bt_otlp_result_t){0};
    if ((bytes == 0) ||
        (bt_json_doc_parse(body, bytes, why, sizeof(why), &doc) != BT_OK)) {
        return;
    }
    root = bt_json_doc_root(doc);
    partial = bt_json_get(doc, root, "partialSuccess");
    if (partial != NULL) {
        if (!read_count(bt_json_get(doc, partial, "rejectedSpans"),
                        &result->n_rejected)) {
            result->n_rejected = 0;
        }
        read_message(bt_json_get(doc, partial, "errorMessage"), result);
        result->is_partial =
            (result->n_rejected > 0) || (result->message.text[0] != '\0');
    } else {
        read_message(bt_json_get(doc, root, "message"), result);
    }
    bt_json_doc_free(doc);
}
