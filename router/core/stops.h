/* SPDX-License-Identifier: Apache-2.0 */
/** @file stops.h
 *
 * Matches stop words against a growing text. Of the words that appear, the one
 * that is complete first wins, so the result does not depend on how the text
 * was cut into tokens. Text that may still become the beginning of a stop word
 * is held back:
 *
 *     emitted ………… | held: longest tail that begins a stop word |
 *
 * Works on bytes, not characters: a UTF-8 stop word can only match at
 * characters.
 * Threads: none of these functions lock.
 */
#ifndef BT_ROUTER_CORE_STOPS_H
#define BT_ROUTER_CORE_STOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

#define BT_STOPS_MAX       64
#define BT_STOPS_MAX_BYTES 1024 /**< maximum bytes of one stop word */

/** Zero-initialise for "no stop words". */
typedef struct bt_stops {
    char *words[BT_STOPS_MAX]; /**< owned, none is empty */
    uint16_t bytes[BT_STOPS_MAX];
    uint32_t n;
    bool keeps;      /**< a matched word stays in the text */
    const char *met; /**< the word that was complete; NULL: none */
    bt_strbuf_t held;
} bt_stops_t;

/** Initializes the matcher with copies of the words.
 *  @retval BT_ERR_INVALID_PARAM  too many, too long or empty
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_stops_init(bt_stops_t *stops,
                                        const char *const *words, uint32_t n);
void bt_stops_fini(bt_stops_t *stops);

/**
 * Takes new text and appends the text that is now final to @a out.
 *
 * O(bytes × words × length of a word). A failed allocation sticks in @a out.
 *
 * @return true when a stop word is complete: @a out has the text before the
 *   word (including the word if `keeps`), and no more text follows.
 */
bool bt_stops_push(bt_stops_t *stops, const char *text, size_t bytes,
                   bt_strbuf_t *out);

/** Appends the text that was held back; call at the end of the text. */
void bt_stops_finish(bt_stops_t *stops, bt_strbuf_t *out);

#endif
