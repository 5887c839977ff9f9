/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode.h
 *
 * The three character classes of the pre-tokenizers: letters (\p{L}), numbers
 * (\p{N}) and white space (\s).
 *
 * Threads: pure functions over constant tables.
 * Source: the Unicode Standard 16.0; make_unicode_table.py makes the tables.
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_H
#define BT_INFERENCE_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"

typedef enum bt_unicode_class {
    BT_UNICODE_OTHER = 0,
    BT_UNICODE_LETTER = 1,
    BT_UNICODE_NUMBER = 2,
    BT_UNICODE_SPACE = 3,
} bt_unicode_class_t;

/* unicode_table.c: 256 code points share a page of classes; past the last page
 * all are BT_UNICODE_OTHER. */
#define BT_UNICODE_N_PAGES 804u
extern const uint8_t bt_unicode_pages[BT_UNICODE_N_PAGES];
extern const uint64_t bt_unicode_classes[][8];

/** Returns the class of any value; BT_UNICODE_OTHER outside Unicode. */
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

#endif
