/* SPDX-License-Identifier: Apache-2.0 */
/** @file orders_priv.h
 *
 * Words of a line; private to this module.
 */
#ifndef BT_COMMON_ADMIN_ADMIN_PRIV_H
#define BT_COMMON_ADMIN_ADMIN_PRIV_H

#include "common/admin/admin.h"

#define BT_ADMIN_WORDS 24 /**< most words of a line */

/** Line split into words. */
typedef struct bt_admin_words {
    char text[BT_ADMIN_LINE_BYTES]; /**< decoded, a zero after each word */
    const char *words[BT_ADMIN_WORDS];
    uint32_t n_words;
} bt_admin_words_t;

/**
 * Splits a line at single spaces and decodes its words.
 * @retval BT_ERR_BAD_MESSAGE  An empty word, a bad %XX or a byte that had to be
 *                             encoded, too many words, too long.
 */
BT_MUST_CHECK bt_status_t bt_admin_split(const char *line, size_t n,
                                         bt_admin_words_t *words);

/**
 * Decodes @a n bytes, spaces included, into @a out.
 * @retval BT_ERR_BAD_MESSAGE
 */
BT_MUST_CHECK bt_status_t bt_admin_decode(const char *text, size_t n, char *out,
                                          size_t bytes);

/** Appends text as (a part of) a word, encoded. */
void bt_admin_encode(const char *text, bool keep_spaces, bt_strbuf_t *out);

/** Parses a whole number without sign. @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_admin_number(const char *text, uint64_t *out_p);

/** Copies a text with its zero. @return false: does not fit, out is
 *  unchanged. */
bool bt_admin_copy(const char *text, char *out, size_t bytes);

#endif
