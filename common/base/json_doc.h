/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_doc.h
 *
 * Reads JSON (RFC 8259) whole: files of models, configurations of a few KiB and
 * vocabularies of many MiB, strictly; and the bodies of clients' requests.
 *
 *     {"a":[1,"x"],"b":null}       one list of nodes, in the order of the text
 *
 *     0 object n=2 next=6 │ 1 "a" │ 2 array n=2 next=5 │ 3 1 │ 4 "x" │ 5 "b" …
 *
 * A member of an object is its key, a string, and its value behind it. `next`
 * skips a value with all that is in it. Numbers, arrays and objects keep their
 * text, so that what nobody computes with stays as it was written. Text that is
 * not UTF-8 and nesting beyond BT_JSON_DOC_DEPTH are refused.
 *
 * Of a file keys are unique: an object that has one twice is refused, for
 * readers would differ in what it says; so are lone surrogates and numbers of
 * over 64 bytes. Of a client's text all that is JSON is read: of equal keys the
 * last counts, half of a surrogate pair is U+FFFD, and numbers have any length.
 *
 * Threads: immutable after the parse; any number of readers.
 * Cost: linear; 24 bytes for each value, some 150 MB/s.
 */
#ifndef BT_COMMON_BASE_JSON_DOC_H
#define BT_COMMON_BASE_JSON_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_JSON_DOC_DEPTH   64         /**< arrays and objects in each other */
#define BT_JSON_DOC_BYTES   (1u << 30) /**< of a text, at most */
#define BT_JSON_FAULT_BYTES 128

typedef struct bt_json_doc bt_json_doc_t;

typedef enum bt_json_kind {
    BT_JSON_NULL,
    BT_JSON_FALSE,
    BT_JSON_TRUE,
    BT_JSON_NUMBER,
    BT_JSON_STRING,
    BT_JSON_ARRAY,
    BT_JSON_OBJECT,
} bt_json_kind_t;

typedef struct bt_json_node {
    const char *text; /**< of a string: decoded, zero bytes may be in it; of a
                           number, array or object: as it stands. Not
                           zero-terminated */
    uint32_t len;     /**< bytes of text */
    uint32_t n;       /**< elements, or members; of a key: bt_json_counts() */
    uint32_t next;    /**< index of the node behind this value */
    uint8_t kind;     /**< bt_json_kind_t */
} bt_json_node_t;

/**
 * @param [in]  text   Borrowed until the document is freed.
 * @param [out] why    On failure: a sentence with the byte where it is, for the
 *                     user; the file's name is the caller's to say.
 * @retval BT_ERR_BAD_FILE   Not JSON, or refused as above.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_json_doc_parse(const char *text, size_t bytes,
                                            char *why, size_t why_bytes,
                                            bt_json_doc_t **doc_p);
void bt_json_doc_free(bt_json_doc_t *doc); /**< NULL is allowed. */

/** An error of a text: its cause and place. */
typedef struct bt_json_fault {
    char what[BT_JSON_FAULT_BYTES];
    size_t at;       /**< byte */
    char member[64]; /**< the root's member that it is in, printable; "": none
                          or not known */
} bt_json_fault_t;

/**
 * Reads a client's text.
 *
 * @param [in]  text        Borrowed until the document is freed.
 * @param [in]  max_values  Above 0.
 * @param [out] fault_p     Written on failure.
 * @retval BT_ERR_BAD_FILE   Not JSON.
 * @retval BT_ERR_TOO_LARGE  JSON of more values, or nested deeper.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_json_doc_parse_client(const char *text,
                                                   size_t bytes,
                                                   uint32_t max_values,
                                                   bt_json_fault_t *fault_p,
                                                   bt_json_doc_t **doc_p);

const bt_json_node_t *bt_json_doc_root(const bt_json_doc_t *doc);

/** First element, or first key, of an array or object that is not empty. */
static inline const bt_json_node_t *bt_json_first(const bt_json_node_t *node)
{
    return node + 1;
}

/** What stands behind a value of an array, and behind a key's value. */
const bt_json_node_t *bt_json_next(const bt_json_doc_t *doc,
                                   const bt_json_node_t *node);

static inline bool bt_json_is_kind(const bt_json_node_t *node,
                                   bt_json_kind_t kind)
{
    return (node != NULL) && (node->kind == (uint8_t)kind);
}

static inline bool bt_json_is_bool(const bt_json_node_t *node)
{
    return bt_json_is_kind(node, BT_JSON_TRUE) ||
           bt_json_is_kind(node, BT_JSON_FALSE);
}

/** Elements of an array, or members of an object; 0: it is none, or empty. */
static inline uint32_t bt_json_size(const bt_json_node_t *node,
                                    bt_json_kind_t kind)
{
    return bt_json_is_kind(node, kind) ? node->n : 0;
}

/** Of a key: no later one of its object is equal. */
static inline bool bt_json_counts(const bt_json_node_t *key)
{
    return key->n == 0;
}

/** The value of a member; for objects of few members.
 *  @return NULL: @a node is NULL or no object, or has no such member */
const bt_json_node_t *bt_json_get(const bt_json_doc_t *doc,
                                  const bt_json_node_t *node, const char *key);

/** Is it a string of these bytes? NULL is none. */
bool bt_json_is(const bt_json_node_t *node, const char *text);

/** A whole number of any size. */
typedef struct bt_json_whole {
    bool negative;
    bool fits;          /**< its size is below 2^64 */
    uint64_t magnitude; /**< its size modulo 2^64 */
} bt_json_whole_t;

/** @return false: no number (NULL included), or one with a fraction. 4, 4.0 and
 *  40e-1 are whole. */
bool bt_json_as_whole(const bt_json_node_t *node, bt_json_whole_t *whole_p);
/** @return false: as above, or not of the range. */
bool bt_json_as_u64(const bt_json_node_t *node, uint64_t *value_p);
bool bt_json_as_i64(const bt_json_node_t *node, int64_t *value_p);
/** @return false: no number, or beyond what a double holds. */
bool bt_json_as_double(const bt_json_node_t *node, double *value_p);

#endif
