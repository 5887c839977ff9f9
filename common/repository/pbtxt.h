/* SPDX-License-Identifier: Apache-2.0 */
/** @file pbtxt.h
 *
 * Parser of protobuf's text format, for config.pbtxt, into a tree of fields.
 * The parser knows no message definitions: a field has a name and either fields
 * of its own or the text of one value.
 *
 *     a: 1  b { c: "x" }  d: [ 2, 3 ]     a "1"
 *                                         b ─ c "x"
 *                                         d "2"
 *                                         d "3"     (a list is its elements)
 *
 * In addition to the format, a placeholder of fill_template, ${name}, is
 * accepted as a value, and marked as unfilled; so is a string that contains
 * one. Not supported: extension names, and Any's in brackets.
 *
 * Bounded are a file's bytes, fields and depth.
 *
 * Threads: a parsed tree may be read by any.
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

/** Field of a message. */
typedef struct bt_pbtxt_field {
    const char *name;
    const char *text; /**< "" for a message */
    size_t bytes;     /**< bytes of text, which may contain zero bytes */
    bt_pbtxt_kind_t kind;
    bool unfilled;        /**< text holds ${...} */
    uint32_t line;        /**< from 1 */
    uint32_t first, next; /**< first field in it, next field beside it */
} bt_pbtxt_field_t;

/** Parsed file. */
typedef struct bt_pbtxt {
    char *arena;              /**< owned: names and texts */
    bt_pbtxt_field_t *fields; /**< owned */
    uint32_t n;
    uint32_t first; /**< first field of the outermost message; BT_PBTXT_NONE:
                         empty */
} bt_pbtxt_t;

/**
 * Parses a text.
 * @param [in]  text  @a n bytes; not referenced afterwards.
 * @param [out] why   on failure: "line 7: ..."
 * @retval BT_ERR_BAD_FILE   Not of this format.
 * @retval BT_ERR_TOO_LARGE  Exceeds a bound.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_pbtxt_read(const char *text, size_t n,
                                        bt_pbtxt_t *tree_p, char *why,
                                        size_t why_bytes);
void bt_pbtxt_fini(bt_pbtxt_t *tree); /**< also of a zeroed tree */

/** Returns the first field with this name among @a first and those beside
 *  it, or NULL. */
const bt_pbtxt_field_t *bt_pbtxt_find(const bt_pbtxt_t *tree, uint32_t first,
                                      const char *name);

/** Iterates over @a first_of and the fields beside it; @a field is a const
 *  pointer. */
#define BT_PBTXT_FOR_EACH(field, tree, first_of)                               \
    for (const bt_pbtxt_field_t *field =                                       \
             ((first_of) == BT_PBTXT_NONE) ? NULL : &(tree)->fields[first_of]; \
         field != NULL; field = (field->next == BT_PBTXT_NONE)                 \
                                    ? NULL                                     \
                                    : &(tree)->fields[field->next])

#endif
