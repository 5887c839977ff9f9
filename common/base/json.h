/* SPDX-License-Identifier: Apache-2.0 */
/** @file json.h
 *
 * Writes JSON (RFC 8259) into a string buffer; the only JSON writer of Baton.
 *
 *     bt_json_init(&json, out);
 *     bt_json_object(&json, NULL);          {
 *     bt_json_str(&json, "name", "a");        "name":"a",
 *     bt_json_array(&json, "ids");            "ids":[
 *     bt_json_u64(&json, NULL, 7);              7
 *     bt_json_end_array(&json);               ]
 *     bt_json_end_object(&json);            }
 *
 * Commas come by themselves. A key is NULL for the elements of an array and for
 * the outermost value; a key is written as it stands, so it must need no
 * escapes. What is written is always valid UTF-8. Errors stick in the buffer.
 * No printf: an answer's event is written for each token.
 *
 * Threads: a writer belongs to one.
 */
#ifndef BT_COMMON_BASE_JSON_H
#define BT_COMMON_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/strbuf.h"

typedef struct bt_json {
    bt_strbuf_t *out; /**< borrowed */
    bool more;        /**< a value stands before: a comma is due */
    /** Where the items of long arrays are recorded (json_slices.h), borrowed;
     *  NULL: they are written at once. */
    struct bt_json_slices *slices;
} bt_json_t;

/** Writes item i of an array, which may be an array or object itself. */
typedef void (*bt_json_item_t)(bt_json_t *json, const void *a, const void *b,
                               size_t i);

void bt_json_init(bt_json_t *json, bt_strbuf_t *out);

void bt_json_object(bt_json_t *json, const char *key);
void bt_json_end_object(bt_json_t *json);
void bt_json_array(bt_json_t *json, const char *key);
void bt_json_end_array(bt_json_t *json);
/** An array of the items from @a from to @a to - 1, written by item(json, a, b,
 *  i) now or, with slices, later. */
void bt_json_array_of(bt_json_t *json, const char *key, size_t from, size_t to,
                      bt_json_item_t item, const void *a, const void *b);

/** @param [in] text  NULL writes null. Bytes that are not UTF-8 become U+FFFD
 *                    each. */
void bt_json_str(bt_json_t *json, const char *key, const char *text);
/** The same for text that may hold zero bytes. */
void bt_json_strn(bt_json_t *json, const char *key, const char *text,
                  size_t bytes);
void bt_json_i64(bt_json_t *json, const char *key, int64_t value);
void bt_json_u64(bt_json_t *json, const char *key, uint64_t value);
/** With as few digits as give the same double again; what is not finite has no
 *  form in JSON and becomes null. */
void bt_json_double(bt_json_t *json, const char *key, double value);
/** The same of a float. */
void bt_json_float(bt_json_t *json, const char *key, float value);
void bt_json_bool(bt_json_t *json, const char *key, bool value);
void bt_json_null(bt_json_t *json, const char *key);
/** A key that may need escapes; the next value, with a NULL key, is its own. */
void bt_json_key(bt_json_t *json, const char *key, size_t bytes);
/** A value that is JSON already. */
void bt_json_raw(bt_json_t *json, const char *key, const char *text);
/** bt_json_raw() of a text that is not zero-terminated. */
void bt_json_rawn(bt_json_t *json, const char *key, const char *text,
                  size_t bytes);

#endif
