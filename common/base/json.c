/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/json.h"

#include <math.h>
#include <string.h>

#include "common/base/decimal_text.h"
#include "common/base/utf8.h"

#define PUT(out, literal) \
    bt_strbuf_append((out), (literal), sizeof(literal) - 1)

void bt_json_init(bt_json_t *json, bt_strbuf_t *out)
{
    json->out = out;
    json->more = false;
    json->slices = NULL;
}

/* Writes comma and key before a value. */
static void begin(bt_json_t *json, const char *key)
{
    if (json->more) {
        PUT(json->out, ",");
    }
    json->more = true;
    if (key != NULL) {
        PUT(json->out, "\"");
        bt_strbuf_append(json->out, key, strlen(key));
        PUT(json->out, "\":");
    }
}

void bt_json_object(bt_json_t *json, const char *key)
{
    begin(json, key);
    PUT(json->out, "{");
    json->more = false;
}

void bt_json_end_object(bt_json_t *json)
{
    PUT(json->out, "}");
    json->more = true;
}

void bt_json_array(bt_json_t *json, const char *key)
{
    begin(json, key);
    PUT(json->out, "[");
    json->more = false;
}

void bt_json_end_array(bt_json_t *json)
{
    PUT(json->out, "]");
    json->more = true;
}

/* Character that needs an escape. */
static void put_escape(bt_strbuf_t *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    size_t n = 2;

    switch (c) {
    case '"':
    case '\\':
        text[1] = (char)c;
        break;
    case '\n':
        text[1] = 'n';
        break;
    case '\r':
        text[1] = 'r';
        break;
    case '\t':
        text[1] = 't';
        break;
    default:
        n = sizeof(text);
        break;
    }
    bt_strbuf_append(out, text, n);
}

void bt_json_strn(bt_json_t *json, const char *key, const char *text,
                  size_t bytes)
{
    const unsigned char *const s = (const unsigned char *)text;
    bt_strbuf_t *out = json->out;
    size_t done = 0;
    size_t i = 0;

    begin(json, key);
    PUT(out, "\"");
    while (i < bytes) {
        const unsigned char c = s[i];

        if ((c >= 0x20) && (c < 0x80) && (c != '"') && (c != '\\')) {
            i++;
            continue;
        }
        if (c >= 0x80) {
            const int n = bt_utf8_scan(s + i, bytes - i);

            if (n > 0) {
                i += (size_t)n;
                continue;
            }
        }
        bt_strbuf_append(out, text + done, i - done);
        if (c >= 0x80) {
            PUT(out, "\xEF\xBF\xBD");
        } else {
            put_escape(out, c);
        }
        done = ++i;
    }
    if (done < bytes) {
        bt_strbuf_append(out, text + done, bytes - done);
    }
    PUT(out, "\"");
}

void bt_json_key(bt_json_t *json, const char *key, size_t bytes)
{
    bt_json_strn(json, NULL, key, bytes);
    PUT(json->out, ":");
    json->more = false;
}

void bt_json_str(bt_json_t *json, const char *key, const char *text)
{
    if (text == NULL) {
        bt_json_null(json, key);
    } else {
        bt_json_strn(json, key, text, strlen(text));
    }
}

void bt_json_u64(bt_json_t *json, const char *key, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);

    begin(json, key);
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    bt_strbuf_append(json->out, digits + at, sizeof(digits) - at);
}

void bt_json_i64(bt_json_t *json, const char *key, int64_t value)
{
    if (value >= 0) {
        bt_json_u64(json, key, (uint64_t)value);
        return;
    }
    begin(json, key);
    PUT(json->out, "-");
    json->more = false;
    bt_json_u64(json, NULL, 0 - (uint64_t)value);
}

void bt_json_double(bt_json_t *json, const char *key, double value)
{
    char text[BT_DECIMAL_TEXT_BYTES];

    if (!isfinite(value)) {
        bt_json_null(json, key);
        return;
    }
    (void)bt_double_text(value, text);
    bt_json_raw(json, key, text);
}

void bt_json_float(bt_json_t *json, const char *key, float value)
{
    char text[BT_DECIMAL_TEXT_BYTES];

    if (!isfinite(value)) {
        bt_json_null(json, key);
        return;
    }
    (void)bt_float_text(value, text);
    bt_json_raw(json, key, text);
}

void bt_json_bool(bt_json_t *json, const char *key, bool value)
{
    bt_json_raw(json, key, value ? "true" : "false");
}

void bt_json_null(bt_json_t *json, const char *key)
{
    bt_json_raw(json, key, "null");
}

void bt_json_raw(bt_json_t *json, const char *key, const char *text)
{
    bt_json_rawn(json, key, text, strlen(text));
}

void bt_json_rawn(bt_json_t *json, const char *key, const char *text,
                  size_t bytes)
{
    begin(json, key);
    bt_strbuf_append(json->out, text, bytes);
}
