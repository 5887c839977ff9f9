/* SPDX-License-Identifier: Apache-2.0 */
/** @file shown.h  Text of a file as it may be shown on a terminal. */
#ifndef BT_COMMON_BASE_SHOWN_H
#define BT_COMMON_BASE_SHOWN_H

#include <stddef.h>
#include <string.h>

#define BT_SHOWN_CHARS 72

typedef struct bt_shown {
    char text[BT_SHOWN_CHARS + 4];
} bt_shown_t;

/** The beginning of @a text, with ? for what is no printable ASCII. */
static inline bt_shown_t bt_shown(const char *text, size_t len)
{
    const size_t n = (len > BT_SHOWN_CHARS) ? BT_SHOWN_CHARS : len;
    bt_shown_t out = {.text = ""};

    for (size_t i = 0; i < n; i++) {
        out.text[i] = ((text[i] >= ' ') && (text[i] <= '~')) ? text[i] : '?';
    }
    if (n < len) {
        memcpy(&out.text[n], "...", 4);
    }
    return out;
}

#endif
