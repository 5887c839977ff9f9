/* SPDX-License-Identifier: Apache-2.0 */
/** @file json.h
 *
 * JSON writer (RFC 8259) into a string buffer; the only JSON writer of Baton.
 *
 *     bt_json_init(&json, out);
 *     bt_json_object(&json, NULL);          {
 *     bt_json_str(&json, "name", "a");        "name":"a",
 *     bt_json_array(&json, "ids");            "ids":[
 *     bt_json_u64(&json, NULL, 7);              7
 *     bt_json_end_array(&json);               ]
 *     bt_json_end_object(&json);            }
 *
 * Commas are added automatically. A key is NULL for the elements of an array
 * and for the outermost value; a key is written verbatim, so it must need no
 * escapes. The output is always valid UTF-8. Errors stick in the buffer. No
 * printf: an SSE event is written for each token.
 *
 * Threads: a writer belongs to one.
 */
#ifndef BT_COMMON_BASE_JSON_H
#define BT_COMMON_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"

/** JSON writer. */
typedef struct bt_json {
    bt_strbuf_t *out; /**< borrowed */
    bool more;        /**< a value was written before: a comma is due */
    /** Recorder for the items of long arrays, borrowed;
     *  NULL: they are written at once. */
    struct bt_json_slices *slices;
} bt_json_t;

/** Callback that writes item i of an array; the item may be an array or
 *  object itself. */
typedef void (*bt_json_item_t)(bt_json_t *json, const void *a, const void *b,
                               size_t i);

void bt_json_init(bt_json_t *json, bt_strbuf_t *out);

void bt_json_object(bt_json_t *json, const char *key);
void bt_json_end_object(bt_json_t *json);
void bt_json_array(bt_json_t *json, const char *key);
void bt_json_end_array(bt_json_t *json);
/** Writes an array of the items from @a from to @a to - 1, by item(json, a,
 *  b, i), now or, with slices, later. */
void bt_json_array_of(bt_json_t *json, const char *key, size_t from, size_t to,
                      bt_json_item_t item, const void *a, const void *b);

/**
 * Writes a string.
 * @param [in] text  NULL writes null. Bytes that are not UTF-8 become U+FFFD
 *                   each.
 */
void bt_json_str(bt_json_t *json, const char *key, const char *text);
/** Writes a string that may contain zero bytes; NULL writes null, and bytes
 *  that are not UTF-8 become U+FFFD each. */
void bt_json_strn(bt_json_t *json, const char *key, const char *text,
                  size_t bytes);
void bt_json_i64(bt_json_t *json, const char *key, int64_t value);
void bt_json_u64(bt_json_t *json, const char *key, uint64_t value);
/** Writes a double with as few digits as read back to it; infinities and NaN
 *  have no form in JSON and become null. */
void bt_json_double(bt_json_t *json, const char *key, double value);
/** Writes a float with as few digits as read back to it; infinities and NaN
 *  become null. */
void bt_json_float(bt_json_t *json, const char *key, float value);
void bt_json_bool(bt_json_t *json, const char *key, bool value);
void bt_json_null(bt_json_t *json, const char *key);
/** Writes a key that may need escapes; the next value, with a NULL key,
 *  belongs to it. */
void bt_json_key(bt_json_t *json, const char *key, size_t bytes);
/** Writes a value that is JSON already. */
void bt_json_raw(bt_json_t *json, const char *key, const char *text);
/** Writes a value that is JSON already and not zero-terminated. */
void bt_json_rawn(bt_json_t *json, const char *key, const char *text,
                  size_t bytes);

/*
 * JSON whose long arrays are written a slice at a time, so that one document of
 * many megabytes does not block a thread that others wait for:
 *
 *     frame:   {"id":"7","logits":[ ],"end":[ ]}      written at once
 *                                  │        │
 *     series:                    0 … n    0 … m       written by slices
 *
 * A writer calls bt_json_array_of() for an array that may be long. Without
 * slices that writes all items; with slices (bt_json_slices_begin()) it records
 * where the items belong, and bt_json_slices_write() writes them later.
 *
 * Threads: a writer belongs to one at a time.
 */

/** Length in items from which an array is sliced; shorter arrays belong to
 *  the frame. */
#define BT_JSON_SLICED_ITEMS 256u

typedef struct bt_json_series bt_json_series_t;

/** Document that is written in slices. */
typedef struct bt_json_slices {
    bt_strbuf_t frame;        /**< all but the items of the series */
    bt_json_series_t *series; /**< owned, n entries, in the frame's order */
    uint32_t n, cap;
    size_t done;   /**< bytes of the frame that were written */
    size_t at;     /**< series whose items come next */
    size_t n_told; /**< items of that series that were written */
} bt_json_slices_t;

/** Initialises an empty document. Allocates nothing. @param [in] limit_bytes
 *  of the frame */
void bt_json_slices_init(bt_json_slices_t *slices, size_t limit_bytes);
void bt_json_slices_fini(bt_json_slices_t *slices);
/** Makes @a json write into the frame of @a slices, which it borrows. Data
 *  that series point to must stay valid until the last slice is written. */
void bt_json_slices_begin(bt_json_slices_t *slices, bt_json_t *json);
/**
 * Appends about @a max_bytes more of the document. Errors stick in the frame
 * and in @a out, whose status is the document's: a frame without memory gives
 * @a out BT_ERR_NO_MEMORY. Nothing is formatted after an error.
 *
 * @return true while more is to be written; false: the document is complete, or
 *     bt_strbuf_status() of @a out is an error
 */
bool bt_json_slices_write(bt_json_slices_t *slices, size_t max_bytes,
                          bt_strbuf_t *out);

#endif
