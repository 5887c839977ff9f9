/* SPDX-License-Identifier: Apache-2.0 */
/** @file printable.h
 *
 * Sanitises text of a file for a terminal.
 */
#ifndef BT_COMMON_BASE_PRINTABLE_H
#define BT_COMMON_BASE_PRINTABLE_H

#include <stddef.h>
#include <string.h>

#define BT_PRINTABLE_CHARS 72

/** Sanitised text. */
typedef struct bt_printable {
    char text[BT_PRINTABLE_CHARS + 4];
} bt_printable_t;

/** Returns the beginning of @a text, with ? for everything but printable
 *  ASCII. */
static inline bt_printable_t bt_printable(const char *text, size_t len)
{
    const size_t n = (len > BT_PRINTABLE_CHARS) ? BT_PRINTABLE_CHARS : len;
    bt_printable_t out = {.text = ""};

    for (size_t i = 0; i < n; i++) {
        out.text[i] = ((text[i] >= ' ') && (text[i] <= '~')) ? text[i] : '?';
    }
    if (n < len) {
        memcpy(&out.text[n], "...", 4);
    }
    return out;
}

#endif
