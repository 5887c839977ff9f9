/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "router/api/api_priv.h"

static bool is_tail(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

size_t bt_api_utf8_len(const unsigned char *text, size_t bytes)
{
    const unsigned char c = (bytes > 0) ? text[0] : 0xFF;
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    size_t n;

    if (c < 0x80) {
        return 1;
    }
    if ((c >= 0xC2) && (c <= 0xDF)) {
        n = 2;
    } else if ((c & 0xF0) == 0xE0) {
        n = 3;
        low = (c == 0xE0) ? 0xA0 : 0x80;  /* no overlong forms */
        high = (c == 0xED) ? 0x9F : 0xBF; /* no surrogates */
    } else if ((c >= 0xF0) && (c <= 0xF4)) {
        n = 4;
        low = (c == 0xF0) ? 0x90 : 0x80;
        high = (c == 0xF4) ? 0x8F : 0xBF; /* up to U+10FFFF */
    } else {
        return 0;
    }
    if ((bytes < n) || (text[1] < low) || (text[1] > high)) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if (!is_tail(text[i])) {
            return 0;
        }
    }
    return n;
}

static bt_status_t refuse(bt_api_error_t *error_p, const char *what,
                          size_t number, const char *unit)
{
    bt_api_error_set(error_p, 400, "invalid_request_error", NULL,
                     "the body %s %zu%s", what, number, unit);
    return BT_ERR_INVALID_PARAM;
}

bt_status_t bt_api_scan(const char *text, size_t bytes, bt_api_error_t *error_p)
{
    const unsigned char *const s = (const unsigned char *)text;
    uint32_t depth = 0;
    uint32_t n_values = 1;
    bool in_string = false;
    size_t n;

    for (size_t i = 0; i < bytes; i += n) {
        const unsigned char c = s[i];

        n = 1;
        if (c >= 0x80) {
            n = bt_api_utf8_len(s + i, bytes - i);
            if (n == 0) {
                return refuse(error_p, "is not valid UTF-8 at byte", i, "");
            }
        } else if (in_string) {
            if ((c == '\\') && (i + 1 < bytes) && (s[i + 1] < 0x80)) {
                n = 2;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if ((c == '[') || (c == '{')) {
            n_values++;
            if (++depth > BT_API_MAX_DEPTH) {
                return refuse(error_p, "is nested deeper than",
                              BT_API_MAX_DEPTH, " levels");
            }
        } else if ((c == ']') || (c == '}')) {
            depth -= (depth > 0);
        } else if ((c == ',') && (++n_values > BT_API_MAX_VALUES)) {
            return refuse(error_p, "has more than", BT_API_MAX_VALUES,
                          " values");
        }
    }
    return BT_OK;
}
