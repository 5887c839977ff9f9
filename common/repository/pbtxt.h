/* SPDX-License-Identifier: Apache-2.0 */
/** @file pbtxt.h
 *
 * Reads protobuf's text format, as config.pbtxt has it, into a tree of fields.
 * It knows no message definitions: a field has a name and fields of its own, or
 * the text of one value.
 *
 *     a: 1  b { c: "x" }  d: [ 2, 3 ]     a "1"
 *                                         b ─ c "x"
 *                                         d "2"
 *                                         d "3"     (a list is its elements)
 *
 * Beside the format itself, a value that the seeds' fill_template would put
 * there, ${name}, is one too, and is marked as not filled in; so is a string
 * that holds one. Not read: extension names, and Any's in brackets.
 *
 * What a file can take is bounded: its bytes, fields and depth.
 *
 * Threads: a tree that is read may be read by any.
 * Source:  "Text Format Language Specification" of Protocol Buffers.
 */
#ifndef BT_COMMON_REPOSITORY_PBTXT_H
#define BT_COMMON_REPOSITORY_PBTXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_PBTXT_MAX_BYTES  (1u << 20)
#define BT_PBTXT_MAX_FIELDS 20000u
#define BT_PBTXT_MAX_DEPTH  16
#define BT_PBTXT_NONE       UINT32_MAX

typedef enum bt_pbtxt_kind {
    BT_PBTXT_MESSAGE,
    BT_PBTXT_STRING, /**< was quoted; escapes are resolved */
    BT_PBTXT_WORD,   /**< a number, true, an enumerator, ${name} */
} bt_pbtxt_kind_t;

typedef struct bt_pbtxt_field {
    const char *name;
    const char *text; /**< "" of a message */
    size_t bytes;     /**< of text, which may hold zero bytes */
    bt_pbtxt_kind_t kind;
    bool unfilled;        /**< text holds ${...} */
    uint32_t line;        /**< from 1 */
    uint32_t first, next; /**< its first field, the next beside it */
} bt_pbtxt_field_t;

typedef struct bt_pbtxt {
    char *arena;              /**< owned: names and texts */
    bt_pbtxt_field_t *fields; /**< owned */
    uint32_t n;
    uint32_t first; /**< of the outermost message; BT_PBTXT_NONE: empty */
} bt_pbtxt_t;

/**
 * @param [in]  text  @a n bytes; nothing of it is kept.
 * @param [out] why   "line 7: ...", when it is not read
 * @retval BT_ERR_BAD_FILE   It is not of this format.
 * @retval BT_ERR_TOO_LARGE  It is beyond the bounds above.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_pbtxt_read(const char *text, size_t n,
                                        bt_pbtxt_t *tree_p, char *why,
                                        size_t why_bytes);
void bt_pbtxt_fini(bt_pbtxt_t *tree); /**< also of a zeroed one */

/** The first field of this name among @a first and those beside it, or NULL. */
const bt_pbtxt_field_t *bt_pbtxt_find(const bt_pbtxt_t *tree, uint32_t first,
                                      const char *name);

/** Walks @a first and those beside it; @a field is a const pointer. */
#define BT_PBTXT_FOR_EACH(field, tree, first_of)                               \
    for (const bt_pbtxt_field_t *field =                                       \
             ((first_of) == BT_PBTXT_NONE) ? NULL : &(tree)->fields[first_of]; \
         field != NULL; field = (field->next == BT_PBTXT_NONE)                 \
                                    ? NULL                                     \
                                    : &(tree)->fields[field->next])

#endif
