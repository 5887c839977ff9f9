/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/utf8.h"
#include "router/frontend/api_priv.h"

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
            const int len = bt_utf8_scan(s + i, bytes - i);

            if (len <= 0) {
                return refuse(error_p, "is not valid UTF-8 at byte", i, "");
            }
            n = (size_t)len;
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
