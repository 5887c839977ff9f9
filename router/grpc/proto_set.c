/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/reflection.h"

#include <stdint.h>
#include <string.h>

/* Fields of google/protobuf/descriptor.proto. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_IMPORT = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    ANY_NAME = 1, /* message, enumeration, service, method */
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    SERVICE_METHOD = 2,
};

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static uint64_t varint(bt_proto_span_t *in)
{
    uint64_t value = 0;

    for (unsigned shift = 0; (in->bytes > 0) && (shift < 64); shift += 7) {
        const unsigned char c = in->data[0];

        in->data++;
        in->bytes--;
        value |= (uint64_t)(c & 0x7f) << shift;
        if ((c & 0x80) == 0) {
            break;
        }
    }
    return value;
}

static void skip(bt_proto_span_t *in, size_t n)
{
    n = (n < in->bytes) ? n : in->bytes;
    in->data += n;
    in->bytes -= n;
}

/* Reads the next field that has bytes. @return its number, 0: none is left */
static uint64_t next_field(bt_proto_span_t *in, bt_proto_span_t *value)
{
    while (in->bytes > 0) {
        const uint64_t tag = varint(in);

        switch (tag & 7) {
        case WIRE_VARINT:
            (void)varint(in);
            break;
        case WIRE_64:
            skip(in, 8);
            break;
        case WIRE_32:
            skip(in, 4);
            break;
        case WIRE_BYTES: {
            const uint64_t n = varint(in);

            value->data = in->data;
            value->bytes = (n < in->bytes) ? (size_t)n : in->bytes;
            skip(in, value->bytes);
            return tag >> 3;
        }
        default:
            in->bytes = 0;
            break;
        }
    }
    return 0;
}

/* Finds the i-th field of this number. */
static bool field(bt_proto_span_t in, uint64_t number, size_t i,
                  bt_proto_span_t *value_p)
{
    bt_proto_span_t value;
    uint64_t found;

    while ((found = next_field(&in, &value)) != 0) {
        if ((found == number) && (i-- == 0)) {
            *value_p = value;
            return true;
        }
    }
    return false;
}

static bool is_text(bt_proto_span_t span, const char *text)
{
    return (strlen(text) == span.bytes) &&
           (memcmp(span.data, text, span.bytes) == 0);
}

bool bt_proto_file(size_t i, bt_proto_span_t *file_p)
{
    const bt_proto_span_t set = {bt_proto_set, bt_proto_set_bytes};

    return field(set, SET_FILE, i, file_p);
}

bool bt_proto_file_named(const char *name, bt_proto_span_t *file_p)
{
    bt_proto_span_t file;
    bt_proto_span_t value;

    for (size_t i = 0; bt_proto_file(i, &file); i++) {
        if (field(file, FILE_NAME, 0, &value) && is_text(value, name)) {
            *file_p = file;
            return true;
        }
    }
    return false;
}

/* Strips "name" or "name." from a symbol. @return the remainder, "" if none;
 * NULL: another name */
static const char *after(const char *symbol, bt_proto_span_t name)
{
    if (strncmp(symbol, (const char *)name.data, name.bytes) != 0) {
        return NULL;
    }
    symbol += name.bytes;
    if (*symbol == '\0') {
        return symbol;
    }
    return ((symbol[0] == '.') && (symbol[1] != '\0')) ? symbol + 1 : NULL;
}

/* True when the symbol is one of the fields `number` of `in`, or within one.
 * Two levels identify a file: no other file has its package and its first
 * name. */
static bool has(bt_proto_span_t in, uint64_t number, uint64_t inner1,
                uint64_t inner2, const char *symbol)
{
    bt_proto_span_t item;
    bt_proto_span_t name;

    for (size_t i = 0; field(in, number, i, &item); i++) {
        const char *rest;

        if (!field(item, ANY_NAME, 0, &name)) {
            continue;
        }
        rest = after(symbol, name);
        if (rest == NULL) {
            continue;
        }
        if (*rest == '\0') {
            return true;
        }
        if (((inner1 != 0) && has(item, inner1, inner1, inner2, rest)) ||
            ((inner2 != 0) && has(item, inner2, 0, 0, rest))) {
            return true;
        }
    }
    return false;
}

bool bt_proto_file_of(const char *symbol, bt_proto_span_t *file_p)
{
    bt_proto_span_t file;
    bt_proto_span_t package;

    for (size_t i = 0; bt_proto_file(i, &file); i++) {
        const char *rest;

        if (!field(file, FILE_PACKAGE, 0, &package)) {
            continue;
        }
        rest = after(symbol, package);
        if ((rest == NULL) || (*rest == '\0')) {
            continue;
        }
        if (has(file, FILE_MESSAGE, MESSAGE_NESTED, MESSAGE_ENUM, rest) ||
            has(file, FILE_ENUM, 0, 0, rest) ||
            has(file, FILE_SERVICE, SERVICE_METHOD, 0, rest)) {
            *file_p = file;
            return true;
        }
    }
    return false;
}

bool bt_proto_import(bt_proto_span_t file, size_t i, bt_proto_span_t *name_p)
{
    return field(file, FILE_IMPORT, i, name_p);
}
