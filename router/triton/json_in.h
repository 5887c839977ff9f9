/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_in.h
 *
 * Private to router/triton: a pull parser that reads JSON value by value in
 * place, so that a tensor of a million numbers becomes raw data without an
 * object for each number.
 *
 *     {"shape": [1, 2], …}
 *      └ next key ┘ └ next element … ┘
 *
 * A reader is positioned before a value, or inside an object or array. The
 * first error is sticky: all later calls do nothing, and `why` has the reason.
 *
 * Threads: pure functions.
 * Source:  RFC 8259.
 */
#ifndef BT_ROUTER_TRITON_JSON_IN_H
#define BT_ROUTER_TRITON_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"

#define BT_JSON_IN_MAX_DEPTH 64

typedef enum bt_json_in_kind {
    BT_JSON_IN_NONE, /**< end of the text, or an error */
    BT_JSON_IN_OBJECT,
    BT_JSON_IN_ARRAY,
    BT_JSON_IN_STRING,
    BT_JSON_IN_NUMBER,
    BT_JSON_IN_BOOL,
    BT_JSON_IN_NULL,
} bt_json_in_kind_t;

typedef struct bt_json_in {
    const char *text;
    size_t at, bytes;
    uint32_t depth;
    const char *why; /**< error, static; NULL: none */
} bt_json_in_t;

/** Number as written: an integer if written as one and in range. */
typedef struct bt_json_number {
    bool is_integer; /**< the value is magnitude and negative */
    bool negative;
    uint64_t magnitude;
    double real; /**< value of an integer or a fraction; infinite if beyond a
                    double */
    const char *text; /**< as written; not zero-terminated */
    size_t bytes;
} bt_json_number_t;

/** Starts reading a text. A byte order mark at the beginning is skipped. */
void bt_json_in_init(bt_json_in_t *in, const char *text, size_t bytes);
/** Returns the kind of the next value without consuming the value. */
bt_json_in_kind_t bt_json_in_peek(bt_json_in_t *in);
/** Consumes a whole value of any kind. */
void bt_json_in_skip(bt_json_in_t *in);
/** Checks that only white space follows. */
void bt_json_in_end(bt_json_in_t *in);

/** Enters an object or array. */
void bt_json_in_enter(bt_json_in_t *in, bt_json_in_kind_t kind);
/** Inside an array: true when another value follows. False leaves the array.
 *  @param [in,out] first  true at the beginning */
bool bt_json_in_next(bt_json_in_t *in, bool *first);
/** Inside an object: reads the next key; its value must be read next. False
 *  leaves the object.
 *  @param [in,out] first  true at the beginning
 *  @param [out] key  emptied before */
bool bt_json_in_key(bt_json_in_t *in, bool *first, bt_strbuf_t *key);

/** Appends a string's text, decoded as UTF-8; an unpaired surrogate becomes
 *  U+FFFD. */
void bt_json_in_string(bt_json_in_t *in, bt_strbuf_t *out);
void bt_json_in_number(bt_json_in_t *in, bt_json_number_t *number);
bool bt_json_in_bool(bt_json_in_t *in);

#endif
