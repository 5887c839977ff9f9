/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/framing.h"

#include <string.h>
#include <strings.h>

#define TIMEOUT_DIGITS 8

/* ---- codes ---- */

typedef struct code_row {
    int http;
    bt_grpc_code_t grpc;
} code_row_t;

/* The first row of a code maps it back to a status. */
static const code_row_t codes[] = {
    {200, BT_GRPC_OK},
    {400, BT_GRPC_INVALID_ARGUMENT},
    {401, BT_GRPC_UNAUTHENTICATED},
    {403, BT_GRPC_PERMISSION_DENIED},
    {404, BT_GRPC_NOT_FOUND},
    {501, BT_GRPC_UNIMPLEMENTED},
    {405, BT_GRPC_UNIMPLEMENTED},
    {408, BT_GRPC_DEADLINE_EXCEEDED},
    {504, BT_GRPC_DEADLINE_EXCEEDED},
    {409, BT_GRPC_ALREADY_EXISTS},
    {412, BT_GRPC_FAILED_PRECONDITION},
    {429, BT_GRPC_RESOURCE_EXHAUSTED},
    {413, BT_GRPC_RESOURCE_EXHAUSTED},
    {415, BT_GRPC_INVALID_ARGUMENT},
    {422, BT_GRPC_INVALID_ARGUMENT},
    {499, BT_GRPC_CANCELLED},
    {500, BT_GRPC_INTERNAL},
    {503, BT_GRPC_UNAVAILABLE},
    {502, BT_GRPC_UNAVAILABLE},
};

bt_grpc_code_t bt_grpc_code_of_http(int status)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(codes); i++) {
        if (codes[i].http == status) {
            return codes[i].grpc;
        }
    }
    return (status >= 500)   ? BT_GRPC_INTERNAL
           : (status >= 400) ? BT_GRPC_INVALID_ARGUMENT
                             : BT_GRPC_UNKNOWN;
}

int bt_grpc_http_of_code(bt_grpc_code_t code)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(codes); i++) {
        if (codes[i].grpc == code) {
            return codes[i].http;
        }
    }
    return 500;
}

/* ---- messages ---- */

static bt_status_t begin_message(bt_grpc_reader_t *reader)
{
    const uint8_t *p = reader->prefix;

    if (p[0] > 1) {
        return BT_ERR_BAD_MESSAGE;
    }
    reader->compressed = (p[0] == 1);
    reader->length = ((uint32_t)p[1] << 24) | ((uint32_t)p[2] << 16) |
                     ((uint32_t)p[3] << 8) | p[4];
    if (reader->length > reader->limit) {
        return BT_ERR_TOO_LARGE;
    }
    bt_strbuf_init(&reader->body, reader->length);
    return BT_OK;
}

bt_status_t bt_grpc_reader_feed(bt_grpc_reader_t *reader, const void *data,
                                size_t bytes, size_t *used_p)
{
    const uint8_t *from = data;
    bt_strbuf_t *body = &reader->body;
    size_t used = 0;
    size_t n;

    if (reader->n_prefix < BT_GRPC_PREFIX_BYTES) {
        n = BT_GRPC_PREFIX_BYTES - reader->n_prefix;
        n = (n < bytes) ? n : bytes;
        memcpy(reader->prefix + reader->n_prefix, from, n);
        reader->n_prefix += n;
        used = n;
        if (reader->n_prefix < BT_GRPC_PREFIX_BYTES) {
            *used_p = used;
            return BT_INPROGRESS;
        }
        const bt_status_t status = begin_message(reader);

        if (status != BT_OK) {
            return status;
        }
    }
    n = reader->length - body->len;
    n = (n < bytes - used) ? n : bytes - used;
    /* The last doubling is limited to the announced length. */
    if ((body->len + n >= body->cap) && (reader->length / 2 < body->cap)) {
        bt_strbuf_reserve(body, reader->length);
    }
    bt_strbuf_append(body, from + used, n);
    if (bt_strbuf_status(body) != BT_OK) {
        return BT_ERR_NO_MEMORY;
    }
    *used_p = used + n;
    return (body->len == reader->length) ? BT_OK : BT_INPROGRESS;
}

bool bt_grpc_reader_take(bt_grpc_reader_t *reader, bt_strbuf_t *body_p)
{
    *body_p = reader->body;
    bt_strbuf_init(&reader->body, 0);
    reader->n_prefix = 0;
    return reader->compressed;
}

bool bt_grpc_reader_is_busy(const bt_grpc_reader_t *reader)
{
    return reader->n_prefix > 0;
}

void bt_grpc_reader_fini(bt_grpc_reader_t *reader)
{
    bt_strbuf_fini(&reader->body);
}

void bt_grpc_prefix_write(uint8_t prefix[BT_GRPC_PREFIX_BYTES], bool compressed,
                          uint32_t bytes)
{
    prefix[0] = compressed ? 1 : 0;
    prefix[1] = (uint8_t)(bytes >> 24);
    prefix[2] = (uint8_t)(bytes >> 16);
    prefix[3] = (uint8_t)(bytes >> 8);
    prefix[4] = (uint8_t)bytes;
}

/* ---- texts ---- */

/* @return 0: no unit */
static uint64_t unit_ns(char unit)
{
    static const char units[] = "HMSmun";
    static const uint64_t ns[] = {UINT64_C(3600000000000),
                                  UINT64_C(60000000000),
                                  1000000000,
                                  1000000,
                                  1000,
                                  1};
    const char *found = (unit != '\0') ? strchr(units, unit) : NULL;

    return (found != NULL) ? ns[found - units] : 0;
}

bt_status_t bt_grpc_timeout_parse(const char *text, uint64_t *us_p)
{
    uint64_t value = 0;
    uint64_t unit;
    size_t n = 0;

    while ((text[n] >= '0') && (text[n] <= '9') && (n < TIMEOUT_DIGITS)) {
        value = value * 10 + (uint64_t)(text[n] - '0');
        n++;
    }
    unit = unit_ns(text[n]);
    if ((n == 0) || (unit == 0) || (text[n + 1] != '\0')) {
        return BT_ERR_INVALID_PARAM;
    }
    /* 99999999 hours in nanoseconds do not fit. */
    *us_p = (unit >= 1000) ? value * (unit / 1000) : (value + 999) / 1000;
    return BT_OK;
}

void bt_grpc_message_encode(const char *text, size_t most, bt_strbuf_t *out)
{
    static const char hex[] = "0123456789ABCDEF";
    const size_t end = out->len + most;

    for (const char *p = text; *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        const bool plain = (c >= 0x20) && (c <= 0x7e) && (c != '%');
        const char coded[] = {'%', hex[c >> 4], hex[c & 15]};

        if (out->len + (plain ? 1 : sizeof(coded)) > end) {
            return;
        }
        if (plain) {
            bt_strbuf_append(out, p, 1);
        } else {
            bt_strbuf_append(out, coded, sizeof(coded));
        }
    }
}

bool bt_grpc_is_content_type(const char *text)
{
    static const char type[] = "application/grpc";
    const size_t n = sizeof(type) - 1;

    if (strncasecmp(text, type, n) != 0) {
        return false;
    }
    text += n;
    if (strncasecmp(text, "+proto", 6) == 0) {
        text += 6;
    }
    return (*text == '\0') || (*text == ';') || (*text == ' ');
}

bool bt_grpc_accepts_gzip(const char *list)
{
    while (*list != '\0') {
        size_t n;

        list += strspn(list, ", \t");
        n = strcspn(list, ", \t;");
        if ((n == 4) && (strncasecmp(list, "gzip", 4) == 0)) {
            return true;
        }
        list += strcspn(list, ",");
    }
    return false;
}
