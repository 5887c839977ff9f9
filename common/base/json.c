/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/json.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/decimal.h"
#include "common/base/text.h"

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

static void open_value(bt_json_t *json, const char *key, const char *bracket)
{
    begin(json, key);
    bt_strbuf_append(json->out, bracket, 1);
    json->more = false;
}

static void close_value(bt_json_t *json, const char *bracket)
{
    bt_strbuf_append(json->out, bracket, 1);
    json->more = true;
}

void bt_json_object(bt_json_t *json, const char *key)
{
    open_value(json, key, "{");
}

void bt_json_end_object(bt_json_t *json)
{
    close_value(json, "}");
}

void bt_json_array(bt_json_t *json, const char *key)
{
    open_value(json, key, "[");
}

void bt_json_end_array(bt_json_t *json)
{
    close_value(json, "]");
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
    begin(json, key);
    bt_strbuf_put_u64(json->out, value);
}

void bt_json_i64(bt_json_t *json, const char *key, int64_t value)
{
    if (value >= 0) {
        bt_json_u64(json, key, (uint64_t)value);
        return;
    }
    begin(json, key);
    PUT(json->out, "-");
    bt_strbuf_put_u64(json->out, 0 - (uint64_t)value);
}

void bt_json_double(bt_json_t *json, const char *key, double value)
{
    char text[BT_DECIMAL_TEXT_BYTES] = "null";

    if (isfinite(value)) {
        (void)bt_double_text(value, text);
    }
    bt_json_raw(json, key, text);
}

void bt_json_float(bt_json_t *json, const char *key, float value)
{
    char text[BT_DECIMAL_TEXT_BYTES] = "null";

    if (isfinite(value)) {
        (void)bt_float_text(value, text);
    }
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

struct bt_json_series {
    size_t at; /* bytes of the frame before the items */
    bt_json_item_t item;
    const void *a, *b;
    size_t from, to;
};

void bt_json_slices_init(bt_json_slices_t *slices, size_t limit_bytes)
{
    *slices = (bt_json_slices_t){0};
    bt_strbuf_init(&slices->frame, limit_bytes);
}

void bt_json_slices_fini(bt_json_slices_t *slices)
{
    bt_strbuf_fini(&slices->frame);
    bt_free(slices->series);
    slices->series = NULL;
    slices->n = slices->cap = 0;
}

void bt_json_slices_begin(bt_json_slices_t *slices, bt_json_t *json)
{
    bt_json_init(json, &slices->frame);
    json->slices = slices;
}

/* True when the output accepts more. Nothing is formatted in vain. */
static bool goes_on(const bt_strbuf_t *out)
{
    return out->status == BT_OK;
}

void bt_json_array_of(bt_json_t *json, const char *key, size_t from, size_t to,
                      bt_json_item_t item, const void *a, const void *b)
{
    bt_json_slices_t *slices = json->slices;
    const size_t n = (to > from) ? to - from : 0;

    bt_json_array(json, key);
    /* Without memory for the series all belongs to the frame. */
    if ((slices != NULL) && (n >= BT_JSON_SLICED_ITEMS) &&
        bt_array_grow(&slices->series, &slices->cap, slices->n + 1,
                      sizeof(*slices->series))) {
        slices->series[slices->n++] = (bt_json_series_t){
            .at = json->out->len,
            .item = item,
            .a = a,
            .b = b,
            .from = from,
            .to = to,
        };
    } else {
        for (size_t i = from; (i < to) && goes_on(json->out); i++) {
            item(json, a, b, i);
        }
    }
    bt_json_end_array(json);
}

/* Appends the frame up to there. */
static void write_frame(bt_json_slices_t *slices, size_t to, bt_strbuf_t *out)
{
    if (to > slices->done) {
        bt_strbuf_append(out, slices->frame.data + slices->done,
                         to - slices->done);
        slices->done = to;
    }
}

bool bt_json_slices_write(bt_json_slices_t *slices, size_t max_bytes,
                          bt_strbuf_t *out)
{
    const size_t end =
        (max_bytes < SIZE_MAX - out->len) ? out->len + max_bytes : SIZE_MAX;

    if (slices->frame.status != BT_OK) {
        out->status =
            (out->status == BT_OK) ? slices->frame.status : out->status;
        return false;
    }
    while ((slices->at < slices->n) && goes_on(out) && (out->len < end)) {
        const bt_json_series_t *series = &slices->series[slices->at];
        bt_json_t json;
        size_t i = series->from + slices->n_told;

        write_frame(slices, series->at, out);
        bt_json_init(&json, out);
        json.more = slices->n_told > 0;
        for (; (i < series->to) && goes_on(out) && (out->len < end); i++) {
            series->item(&json, series->a, series->b, i);
        }
        slices->n_told = i - series->from;
        if (i == series->to) {
            slices->at++;
            slices->n_told = 0;
        }
    }
    if (!goes_on(out)) {
        return false;
    }
    if (slices->at < slices->n) {
        return true;
    }
    write_frame(slices, slices->frame.len, out);
    return false;
}
