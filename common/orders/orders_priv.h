/* SPDX-License-Identifier: Apache-2.0 */
/** @file orders_priv.h  Words of a line; inside this module only. */
#ifndef BT_COMMON_ORDERS_ORDERS_PRIV_H
#define BT_COMMON_ORDERS_ORDERS_PRIV_H

#include "common/orders/orders.h"

#define BT_ORDERS_WORDS 24 /**< most words of a line */

/** A line taken apart. */
typedef struct bt_orders_words {
    char text[BT_ORDERS_LINE_BYTES]; /**< decoded, a zero after each word */
    const char *words[BT_ORDERS_WORDS];
    uint32_t n_words;
} bt_orders_words_t;

/** Split at single spaces and decode.
 *  @retval BT_ERR_BAD_MESSAGE  An empty word, a bad %XX or a byte that had to
 *                              be written so, too many words, too long. */
BT_MUST_CHECK bt_status_t bt_orders_split(const char *line, size_t n,
                                          bt_orders_words_t *words);

/** Decode @a n bytes, spaces included, into @a out.
 *  @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_orders_decode(const char *text, size_t n,
                                           char *out, size_t bytes);

/** Append text as (a part of) a word. */
void bt_orders_encode(const char *text, bool keep_spaces, bt_strbuf_t *out);

/** A whole number without sign. @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_orders_number(const char *text, uint64_t *out_p);

/** Copy with its zero. @return false: does not fit, out is unchanged. */
bool bt_orders_copy(const char *text, char *out, size_t bytes);

#endif
