/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode.h
 *
 * UTF-8 and the three classes of characters that the pre-tokenizers ask for:
 * letters (\p{L}), numbers (\p{N}) and white space (\s).
 *
 * Threads: pure functions over constant tables.
 * Source:  the Unicode Standard 16.0, chapter 3.9 table 3-7 (well-formed
 *          UTF-8) and D93b (substitution of maximal subparts).
 */
#ifndef BT_COMMON_TOKENIZER_UNICODE_H
#define BT_COMMON_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum bt_unicode_class {
    BT_UNICODE_OTHER = 0,
    BT_UNICODE_LETTER = 1,
    BT_UNICODE_NUMBER = 2,
    BT_UNICODE_SPACE = 3,
} bt_unicode_class_t;

/* unicode_table.c: the classes of 256 code points are one of the pages; past
 * the last page all are BT_UNICODE_OTHER. */
#define BT_UNICODE_N_PAGES 804u
extern const uint8_t bt_unicode_pages[BT_UNICODE_N_PAGES];
extern const uint64_t bt_unicode_classes[][8];

/** Any value; outside Unicode is BT_UNICODE_OTHER. */
static inline bt_unicode_class_t bt_unicode_class(uint32_t cp)
{
    if (cp >> 8 >= BT_UNICODE_N_PAGES) {
        return BT_UNICODE_OTHER;
    }
    return (bt_unicode_class_t)(bt_unicode_classes[bt_unicode_pages[cp >> 8]]
                                                  [cp >> 5 & 7] >>
                                    (cp & 31) * 2 &
                                3);
}

/** @return true when all of @a text is well-formed UTF-8 (no overlong forms,
 *  surrogates, or anything past U+10FFFF). */
bool bt_utf8_valid(const uint8_t *text, size_t bytes);

/**
 * How @a bytes begin.
 *
 * @return  > 0  length of a whole character
 *            0  the bytes are the beginning of one, which needs more
 *          < 0  minus the length of the longest part that no character has
 *               (what one U+FFFD stands for), at least 1
 */
int bt_utf8_scan(const uint8_t *text, size_t bytes);

/** Write @a cp (a Unicode scalar value). @return bytes written, 1 to 4 */
unsigned bt_utf8_encode(uint32_t cp, uint8_t out[4]);

/** Decode one character of text that is known to be valid.
 *  @return its length, 1 to 4 */
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
