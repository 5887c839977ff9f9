/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_in.h
 *
 * Private to router/triton: JSON read value by value where it lies, so that a
 * tensor of a million numbers becomes raw data without an object for each.
 *
 *     {"shape": [1, 2], …}
 *      └ next key ┘ └ next element … ┘
 *
 * A reader is in the text before a value, or inside an object or array. The
 * first fault stays: all calls after it do nothing, and `why` says what it was.
 *
 * Threads: pure functions.
 * Source:  RFC 8259.
 */
#ifndef BT_ROUTER_TRITON_JSON_IN_H
#define BT_ROUTER_TRITON_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/strbuf.h"

#define BT_JSON_IN_MAX_DEPTH 64

typedef enum bt_json_in_kind {
    BT_JSON_IN_NONE, /**< the end, or a fault */
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
    const char *why; /**< static; NULL: no fault */
} bt_json_in_t;

/** A number as it stands: an integer where it is written as one and fits. */
typedef struct bt_json_number {
    bool is_integer; /**< magnitude and negative are it */
    bool negative;
    uint64_t magnitude;
    double real;      /**< of either; infinite beyond what a double holds */
    const char *text; /**< as it is written; not zero-terminated */
    size_t bytes;
} bt_json_number_t;

/** A byte order mark in front is skipped. */
void bt_json_in_init(bt_json_in_t *in, const char *text, size_t bytes);
/** What the next value is; nothing is taken. */
bt_json_in_kind_t bt_json_in_peek(bt_json_in_t *in);
/** Take a whole value, whatever it is. */
void bt_json_in_skip(bt_json_in_t *in);
/** Only blanks may follow. */
void bt_json_in_end(bt_json_in_t *in);

/** Enter an object or array. */
void bt_json_in_enter(bt_json_in_t *in, bt_json_in_kind_t kind);
/** Inside an array: is there another value? Else the array is left.
 *  @param [in,out] first  true at the beginning */
bool bt_json_in_next(bt_json_in_t *in, bool *first);
/** Inside an object: the next key, after which its value is due. Else the
 *  object is left. @param [out] key  emptied before */
bool bt_json_in_key(bt_json_in_t *in, bool *first, bt_strbuf_t *key);

/** Append a string's text, decoded: UTF-8; half of a pair is U+FFFD. */
void bt_json_in_string(bt_json_in_t *in, bt_strbuf_t *out);
void bt_json_in_number(bt_json_in_t *in, bt_json_number_t *number);
bool bt_json_in_bool(bt_json_in_t *in);

#endif
