/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/json_slices.h"

#include <stdint.h>

#include "common/base/alloc.h"

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

static bool reserve(bt_json_slices_t *slices)
{
    const size_t cap = (slices->cap > 0) ? 2 * slices->cap : 8;
    bt_json_series_t *series;

    if (slices->n < slices->cap) {
        return true;
    }
    series = bt_realloc_array(slices->series, cap, sizeof(*series));
    if (series == NULL) {
        return false;
    }
    slices->series = series;
    slices->cap = cap;
    return true;
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
    if ((slices != NULL) && (n >= BT_JSON_SLICED_ITEMS) && reserve(slices)) {
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

/* Of the frame, up to there. */
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
