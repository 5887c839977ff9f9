/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/answer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/json_doc.h"

#define STATUS_LINE_BYTES 12u /* "HTTP/1.1 200" */

/* Framing of a body. */
typedef struct framing {
    bool chunked;
    bool has_length;
    bool bad;
    uint64_t length;
} framing_t;

typedef struct field {
    const char *name, *value;
    size_t n_name, n_value;
} field_t;

/* ---- header ---- */

/* Returns the bytes of a header with its empty line, or 0. */
static size_t head_bytes(const char *data, size_t n)
{
    const char *end = memmem(data, n, "\r\n\r\n", 4);

    return (end != NULL) ? (size_t)(end - data) + 4 : 0;
}

/* Returns the status, or 0 if invalid. */
static int read_status(const char *data, size_t n)
{
    int status = 0;

    if ((n < STATUS_LINE_BYTES) || (memcmp(data, "HTTP/1.", 7) != 0) ||
        ((data[7] != '0') && (data[7] != '1')) || (data[8] != ' ')) {
        return 0;
    }
    for (size_t i = 9; i < STATUS_LINE_BYTES; i++) {
        if ((data[i] < '0') || (data[i] > '9')) {
            return 0;
        }
        status = status * 10 + (data[i] - '0');
    }
    return ((status >= 100) && (status < 600)) ? status : 0;
}

/* Reads the next field of a header. @return false: there is none, or it is
 * malformed */
static bool next_field(const char **at_p, const char *end, field_t *field)
{
    const char *line = *at_p;
    const char *stop = memmem(line, (size_t)(end - line), "\r\n", 2);
    const char *colon;

    if ((stop == NULL) || (stop == line)) {
        return false;
    }
    *at_p = stop + 2;
    colon = memchr(line, ':', (size_t)(stop - line));
    if (colon == NULL) {
        *field = (field_t){.name = line, .value = stop};
        return true; /* a field that is not used */
    }
    field->name = line;
    field->n_name = (size_t)(colon - line);
    colon++;
    while ((colon < stop) && ((*colon == ' ') || (*colon == '\t'))) {
        colon++;
    }
    while ((stop > colon) && ((stop[-1] == ' ') || (stop[-1] == '\t'))) {
        stop--;
    }
    field->value = colon;
    field->n_value = (size_t)(stop - colon);
    return true;
}

static bool is_named(const field_t *field, const char *name)
{
    return (field->n_name == strlen(name)) &&
           (strncasecmp(field->name, name, field->n_name) == 0);
}

static bool is_value(const field_t *field, const char *value)
{
    return (field->n_value == strlen(value)) &&
           (strncasecmp(field->value, value, field->n_value) == 0);
}

static void take_length(const field_t *field, framing_t *framing)
{
    uint64_t length = 0;

    if ((field->n_value == 0) || (field->n_value > 18) || framing->has_length) {
        framing->bad = true;
        return;
    }
    for (size_t i = 0; i < field->n_value; i++) {
        if ((field->value[i] < '0') || (field->value[i] > '9')) {
            framing->bad = true;
            return;
        }
        length = length * 10 + (uint64_t)(field->value[i] - '0');
    }
    framing->has_length = true;
    framing->length = length;
}

static void read_fields(const char *data, size_t n, bt_otlp_answer_t *answer,
                        framing_t *framing)
{
    const char *const end = data + n;
    const char *at = memmem(data, n, "\r\n", 2);
    field_t field = {0};

    answer->keeps = data[7] == '1';
    if (at == NULL) {
        return;
    }
    at += 2;
    while (next_field(&at, end, &field)) {
        if (is_named(&field, "Content-Length")) {
            take_length(&field, framing);
        } else if (is_named(&field, "Transfer-Encoding")) {
            framing->chunked = is_value(&field, "chunked");
            framing->bad = framing->bad || !framing->chunked;
        } else if (is_named(&field, "Connection")) {
            answer->keeps = answer->keeps && !is_value(&field, "close");
        } else if (is_named(&field, "Retry-After") &&
                   (field.n_value < sizeof(answer->retry_after))) {
            memcpy(answer->retry_after, field.value, field.n_value);
            answer->retry_after[field.n_value] = '\0';
        }
    }
}

/* ---- chunks ---- */

/* Reads the digits of a chunk's size. @return false: there are none, or too
 * many */
static bool read_size(const char *line, size_t n, size_t *size_p)
{
    static const char digits[] = "0123456789abcdef";
    size_t size = 0, i = 0;

    for (; i < n; i++) {
        const char low = (char)(line[i] | 0x20);
        const char *digit = memchr(digits, low, 16);

        if (digit == NULL) {
            break;
        }
        if (i == 8) {
            return false;
        }
        size = size * 16 + (size_t)(digit - digits);
    }
    *size_p = size;
    /* An extension or white space may follow. */
    return (i > 0) && ((i == n) || (strchr("; \t", line[i]) != NULL));
}

/* Reads a chunked body. @param [in,out] data  with `join`, the chunks are
 * joined in place @param [out] n_body_p  bytes of the body */
static bt_otlp_reading_t read_chunks(char *data, size_t n, bool join,
                                     size_t *n_body_p)
{
    size_t at = 0, to = 0;

    for (;;) {
        const char *end = memmem(data + at, n - at, "\r\n", 2);
        size_t size = 0;

        if (end == NULL) {
            return (n - at > 256) ? BT_OTLP_GARBAGE : BT_OTLP_MORE;
        }
        if (!read_size(data + at, (size_t)(end - data) - at, &size)) {
            return BT_OTLP_GARBAGE;
        }
        at = (size_t)(end - data) + 2;
        if (size == 0) {
            /* Trailers, or the empty line. */
            *n_body_p = to;
            return ((n - at >= 2) && (memcmp(data + at, "\r\n", 2) == 0)) ||
                           (memmem(data + at, n - at, "\r\n\r\n", 4) != NULL)
                       ? BT_OTLP_WHOLE
                       : BT_OTLP_MORE;
        }
        if (n - at < size + 2) {
            return BT_OTLP_MORE;
        }
        if (memcmp(data + at + size, "\r\n", 2) != 0) {
            return BT_OTLP_GARBAGE;
        }
        if (join) {
            memmove(data + to, data + at, size);
        }
        to += size;
        at += size + 2;
    }
}

/* ---- all of it ---- */

static bt_otlp_reading_t read_body(char *data, size_t n, bool ended,
                                   const framing_t *framing,
                                   bt_otlp_answer_t *answer)
{
    bt_otlp_reading_t reading = BT_OTLP_WHOLE;
    size_t n_body = 0;

    if ((answer->http_status == 204) || (answer->http_status == 304)) {
        n_body = 0;
    } else if (framing->bad) {
        answer->keeps = false; /* the status counts, the body does not */
    } else if (framing->chunked) {
        reading = read_chunks(data, n, false, &n_body);
        if (reading == BT_OTLP_WHOLE) {
            reading = read_chunks(data, n, true, &n_body);
        } else if (reading == BT_OTLP_GARBAGE) {
            answer->keeps = false;
            reading = BT_OTLP_WHOLE;
            n_body = 0;
        }
    } else if (framing->has_length) {
        reading = (n >= framing->length) ? BT_OTLP_WHOLE : BT_OTLP_MORE;
        n_body = (reading == BT_OTLP_WHOLE) ? (size_t)framing->length : 0;
    } else {
        answer->keeps = false;
        reading = ended ? BT_OTLP_WHOLE : BT_OTLP_MORE;
        n_body = n;
    }
    if (reading == BT_OTLP_WHOLE) {
        answer->body = data;
        answer->body_bytes = n_body;
    }
    return reading;
}

bt_otlp_reading_t bt_otlp_answer_read(char *data, size_t bytes, bool ended,
                                      bt_otlp_answer_t *answer)
{
    size_t at = 0;

    *answer = (bt_otlp_answer_t){0};
    for (;;) {
        const size_t n_head = head_bytes(data + at, bytes - at);
        const size_t n_start = (bytes - at < 7) ? bytes - at : 7;
        framing_t framing = {0};
        int status;

        if (memcmp(data + at, "HTTP/1.", n_start) != 0) {
            return BT_OTLP_GARBAGE;
        }
        if (n_head == 0) {
            return BT_OTLP_MORE;
        }
        status = read_status(data + at, n_head);
        if (status == 0) {
            return BT_OTLP_GARBAGE;
        }
        if (status < 200) { /* "100 Continue": the answer follows */
            at += n_head;
            continue;
        }
        read_fields(data + at, n_head, answer, &framing);
        answer->http_status = status;
        at += n_head;
        return read_body(data + at, bytes - at, ended, &framing, answer);
    }
}

/* ---- what it says ---- */

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

static void read_message(const bt_json_node_t *node, bt_otlp_told_t *told)
{
    if ((node != NULL) && (node->kind == BT_JSON_STRING)) {
        told->message = bt_printable(node->text, node->len);
    }
}

void bt_otlp_answer_tell(const bt_otlp_answer_t *answer, bt_otlp_told_t *told)
{
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root, *partial;
    char why[128];

    *told = (bt_otlp_told_t){0};
    if ((answer->body_bytes == 0) ||
        (bt_json_doc_parse(answer->body, answer->body_bytes, why, sizeof(why),
                           &doc) != BT_OK)) {
        return;
    }
    root = bt_json_doc_root(doc);
    partial = bt_json_get(doc, root, "partialSuccess");
    if (partial != NULL) {
        if (!read_count(bt_json_get(doc, partial, "rejectedSpans"),
                        &told->n_rejected)) {
            told->n_rejected = 0;
        }
        read_message(bt_json_get(doc, partial, "errorMessage"), told);
        told->is_partial =
            (told->n_rejected > 0) || (told->message.text[0] != '\0');
    } else {
        read_message(bt_json_get(doc, root, "message"), told);
    }
    bt_json_doc_free(doc);
}
