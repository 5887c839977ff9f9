/* SPDX-License-Identifier: Apache-2.0 */
/** @file custom_input.h
 *
 * Reads the text that a model passes to a custom tool. Chat templates know only
 * functions, so that such a tool has one parameter, and a call of it is
 *
 *     {"input": "*** Begin Patch\n…"}
 *
 *            brace, key, colon, quote        quote
 *     HEAD ──────────────────────────▶ TEXT ───────▶ END
 *       └── anything else ──▶ RAW: the arguments are the text
 *
 * Pieces may split the arguments anywhere without changing the text. A
 * backslash that begins no escape of JSON, and half of a surrogate pair, is
 * U+FFFD.
 *
 * Threads: one for each object.
 */
#ifndef BT_ROUTER_TEXT_CUSTOM_INPUT_H
#define BT_ROUTER_TEXT_CUSTOM_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"

#define BT_CUSTOM_INPUT_NAME "input" /**< the parameter */

typedef enum bt_custom_input_state {
    BT_CUSTOM_INPUT_HEAD,
    BT_CUSTOM_INPUT_TEXT,
    BT_CUSTOM_INPUT_END,
    BT_CUSTOM_INPUT_RAW,
} bt_custom_input_state_t;

/** Reader of one call. Zeroed: at the beginning. */
typedef struct bt_custom_input {
    bt_custom_input_state_t state;
    uint32_t n_head; /**< HEAD: signs of {"input":" that were read */
    size_t at;       /**< bytes that were read */
} bt_custom_input_t;

/** Appends the new text.
 *  @param [in] arguments  all so far, from the beginning
 *  @param [in] last       there are no more */
void bt_custom_input_read(bt_custom_input_t *input, const char *arguments,
                          size_t bytes, bool last, bt_strbuf_t *out);

#endif
