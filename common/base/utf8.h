/* SPDX-License-Identifier: Apache-2.0 */
/** @file utf8.h
 *
 * UTF-8, checked and unchecked.
 *
 * Source: The Unicode Standard 15, table 3-7, and section 3.9 on U+FFFD.
 */
#ifndef BT_COMMON_BASE_UTF8_H
#define BT_COMMON_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** True when all of @a text is well-formed UTF-8 (no overlong forms,
 *  surrogates, or anything past U+10FFFF). */
bool bt_utf8_valid(const uint8_t *text, size_t bytes);

/**
 * Classifies the beginning of @a bytes.
 *
 * @return  > 0  length of a whole character
 *            0  the beginning of a character, which needs more bytes
 *          < 0  minus the length of the longest ill-formed part (for which one
 *               U+FFFD stands), at least 1
 */
int bt_utf8_scan(const uint8_t *text, size_t bytes);

/** Encodes @a cp (a Unicode scalar value). @return bytes written, 1 to 4 */
unsigned bt_utf8_encode(uint32_t cp, uint8_t out[4]);

/**
 * Decodes one character of text that is known to be valid.
 * @return its length, 1 to 4
 */
static inline unsigned bt_utf8_decode(const uint8_t *p, uint32_t *cp)
{
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    if (p[0] < 0xE0) {
        *cp = (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
        return 2;
    }
    if (p[0] < 0xF0) {
        *cp = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
        return 3;
    }
    *cp = (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 |
          (p[3] & 0x3Fu);
    return 4;
}

#endif
