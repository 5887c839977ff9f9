/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/stops.h"

#include <string.h>

#include "common/base/alloc.h"

bt_status_t bt_stops_init(bt_stops_t *stops, const char *const *words,
                          uint32_t n)
{
    bt_stops_t made = {0};

    if (n > BT_STOPS_MAX) {
        return BT_ERR_INVALID_PARAM;
    }
    /* Held text is shorter than the longest word, plus one token's text. */
    bt_strbuf_init(&made.held, SIZE_MAX / 4);
    for (uint32_t i = 0; i < n; i++) {
        const size_t bytes = strlen(words[i]);

        if ((bytes == 0) || (bytes > BT_STOPS_MAX_BYTES)) {
            bt_stops_fini(&made);
            return BT_ERR_INVALID_PARAM;
        }
        made.words[i] = bt_strdup(words[i]);
        if (made.words[i] == NULL) {
            bt_stops_fini(&made);
            return BT_ERR_NO_MEMORY;
        }
        made.bytes[i] = (uint16_t)bytes;
        made.n = i + 1;
    }
    *stops = made;
    return BT_OK;
}

void bt_stops_fini(bt_stops_t *stops)
{
    for (uint32_t i = 0; i < stops->n; i++) {
        bt_free(stops->words[i]);
    }
    stops->n = 0;
    bt_strbuf_fini(&stops->held);
}

/* Finds the longest word that ends at @a end.
 * @return its index; stops->n: none */
static uint32_t word_ending_at(const bt_stops_t *stops, size_t end)
{
    uint32_t found = stops->n;
    size_t longest = 0;

    for (uint32_t i = 0; i < stops->n; i++) {
        const size_t bytes = stops->bytes[i];

        if ((bytes <= end) && (bytes > longest) &&
            (memcmp(stops->held.data + end - bytes, stops->words[i], bytes) ==
             0)) {
            longest = bytes;
            found = i;
        }
    }
    return found;
}

/* Bytes of the longest tail that is the beginning of a stop word. */
static size_t tail_to_hold(const bt_stops_t *stops)
{
    const size_t len = stops->held.len;
    size_t longest = 0;

    for (uint32_t i = 0; i < stops->n; i++) {
        size_t most = (size_t)stops->bytes[i] - 1;

        if (most > len) {
            most = len;
        }
        for (size_t n = most; n > longest; n--) {
            if (memcmp(stops->held.data + len - n, stops->words[i], n) == 0) {
                longest = n;
            }
        }
    }
    return longest;
}

bool bt_stops_push(bt_stops_t *stops, const char *text, size_t bytes,
                   bt_strbuf_t *out)
{
    const size_t before = stops->held.len;
    size_t certain;

    if (stops->n == 0) {
        bt_strbuf_append(out, text, bytes);
        return false;
    }
    if (bytes == 0) {
        return false;
    }
    bt_strbuf_append(&stops->held, text, bytes);
    if (bt_strbuf_status(&stops->held) != BT_OK) {
        out->status = stops->held.status;
        return false;
    }
    for (size_t end = before + 1; end <= stops->held.len; end++) {
        const uint32_t word = word_ending_at(stops, end);

        if (word < stops->n) {
            bt_strbuf_append(out, stops->held.data,
                             stops->keeps ? end : end - stops->bytes[word]);
            stops->met = stops->words[word];
            bt_strbuf_reset(&stops->held);
            return true;
        }
    }
    certain = stops->held.len - tail_to_hold(stops);
    bt_strbuf_append(out, stops->held.data, certain);
    bt_strbuf_consume(&stops->held, certain);
    return false;
}

void bt_stops_finish(bt_stops_t *stops, bt_strbuf_t *out)
{
    if (stops->held.len > 0) {
        bt_strbuf_append(out, stops->held.data, stops->held.len);
        bt_strbuf_reset(&stops->held);
    }
}
