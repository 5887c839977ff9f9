/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/accept.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#define SPACE " \t"

/* Reads "0.5", "1", "1.000". @return thousandths; the maximum for an invalid
 * weight */
static uint32_t read_weight(const char *text, size_t n)
{
    uint32_t weight;
    uint32_t unit = 100;

    if ((n == 0) || ((text[0] != '0') && (text[0] != '1')) ||
        ((n > 1) && (text[1] != '.')) || (n > 5)) {
        return BT_ACCEPT_MOST;
    }
    weight = (uint32_t)(text[0] - '0') * BT_ACCEPT_MOST;
    for (size_t i = 2; i < n; i++) {
        if ((text[i] < '0') || (text[i] > '9')) {
            return BT_ACCEPT_MOST;
        }
        weight += (uint32_t)(text[i] - '0') * unit;
        unit /= 10;
    }
    return (weight < BT_ACCEPT_MOST) ? weight : BT_ACCEPT_MOST;
}

/* Finds the weight among the parameters ";a=b;q=0.5" of one range. */
static uint32_t find_weight(const char *at, const char *end)
{
    while ((at < end) && (*at == ';')) {
        size_t n;

        at++;
        at += strspn(at, SPACE);
        n = strcspn(at, ";,");
        if ((n >= 2) && (strncasecmp(at, "q=", 2) == 0)) {
            return read_weight(at + 2, strcspn(at + 2, ";, \t"));
        }
        at += n;
    }
    return BT_ACCEPT_MOST;
}

uint32_t bt_accept_weight(const char *accept, const char *type)
{
    const size_t n_type = strlen(type);
    const char *at = accept;

    while ((at != NULL) && (*at != '\0')) {
        const char *end;

        at += strspn(at, "," SPACE);
        end = at + strcspn(at, ",");
        if (strncasecmp(at, type, n_type) == 0) {
            const char *const rest = at + n_type + strspn(at + n_type, SPACE);

            if ((rest >= end) || (*rest == ';')) {
                return find_weight(rest, end);
            }
        }
        at = end;
    }
    return 0;
}

bool bt_accept_has_coding(const char *accept_encoding, const char *coding)
{
    const size_t n = strlen(coding);
    const char *list = accept_encoding;

    while (list != NULL) {
        const char *q;

        list += strspn(list, SPACE ",");
        if ((strncasecmp(list, coding, n) == 0) &&
            (strchr(SPACE ",;", list[n]) != NULL)) { /* the end, too */
            q = list + n + strspn(list + n, SPACE ";");
            return !((strncasecmp(q, "q=0", 3) == 0) &&
                     (strspn(q + 3, ".0") == strcspn(q + 3, SPACE ",")));
        }
        list = strchr(list, ',');
    }
    return false;
}

bool bt_accept_wants_html(const char *accept)
{
    const uint32_t html = bt_accept_weight(accept, "text/html");

    return (html > 0) && (html >= bt_accept_weight(accept, "application/json"));
}
