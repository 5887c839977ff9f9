/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_slices.h
 *
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
#ifndef BT_COMMON_BASE_JSON_SLICES_H
#define BT_COMMON_BASE_JSON_SLICES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/json.h"
#include "common/base/strbuf.h"

/** Length in items from which an array is sliced; shorter arrays belong to
 *  the frame. */
#define BT_JSON_SLICED_ITEMS 256u

typedef struct bt_json_series bt_json_series_t;

/** Document that is written in slices. */
typedef struct bt_json_slices {
    bt_strbuf_t frame;        /**< all but the items of the series */
    bt_json_series_t *series; /**< owned, n entries, in the frame's order */
    size_t n, cap;
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
