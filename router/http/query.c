/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/query.h"

#include <string.h>

#include "common/base/text.h"

void bt_query_init(bt_query_t *query, const char *text)
{
    *query = (bt_query_t){.at = text};
}

static bt_status_t decode(const char *from, const char *end,
                          char out[BT_QUERY_BYTES])
{
    size_t n = 0;

    while (from < end) {
        char c = *from++;

        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            const int high = (end - from >= 2) ? bt_hex_digit(from[0]) : -1;
            const int low = (high >= 0) ? bt_hex_digit(from[1]) : -1;

            if ((low < 0) || ((high | low) == 0)) {
                return BT_ERR_INVALID_PARAM;
            }
            c = (char)((high << 4) | low);
            from += 2;
        }
        if (n == BT_QUERY_BYTES - 1) {
            return BT_ERR_TOO_LARGE;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return BT_OK;
}

bt_status_t bt_query_next(bt_query_t *query)
{
    const char *at = query->at;
    const char *end, *equals;
    bt_status_t status;

    at += strspn(at, "&");
    if (*at == '\0') {
        query->at = at;
        return BT_ERR_NOT_FOUND;
    }
    end = at + strcspn(at, "&");
    equals = memchr(at, '=', (size_t)(end - at));
    query->at = end;
    status = decode(at, (equals != NULL) ? equals : end, query->name);
    if (status == BT_OK) {
        status = decode((equals != NULL) ? equals + 1 : end, end, query->value);
    }
    return status;
}
