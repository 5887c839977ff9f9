/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_doc.h
 *
 * JSON parser (RFC 8259) for whole documents: files of models, configurations
 * of a few KiB and vocabularies of many MiB, strictly; and the bodies of
 * clients' requests.
 *
 *     {"a":[1,"x"],"b":null}       one list of nodes, in the order of the text
 *
 *     0 object n=2 next=6 │ 1 "a" │ 2 array n=2 next=5 │ 3 1 │ 4 "x" │ 5 "b" …
 *
 * A member of an object is its key, a string, followed by its value. `next`
 * skips a value with all that is in it. Numbers, arrays and objects keep their
 * text, so that unused parts can be copied verbatim. Text that is not UTF-8 and
 * nesting beyond BT_JSON_DOC_DEPTH are refused.
 *
 * In a file keys are unique: an object with a duplicate key is refused, because
 * readers would disagree on its meaning; so are lone surrogates and numbers of
 * over 64 bytes. A client's text may be any JSON: of equal keys the last
 * counts, half of a surrogate pair becomes U+FFFD, and numbers have any length.
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

#define BT_JSON_DOC_DEPTH   64         /**< nesting of arrays and objects */
#define BT_JSON_DOC_BYTES   (1u << 30) /**< longest text */
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

/** Value of a document. */
typedef struct bt_json_node {
    const char *text; /**< string: decoded, may contain zero bytes; number,
                           array or object: verbatim. Not zero-terminated */
    uint32_t len;     /**< bytes of text */
    uint32_t n;       /**< elements, or members; for a key: bt_json_counts() */
    uint32_t next;    /**< index of the node after this value */
    uint8_t kind;     /**< bt_json_kind_t */
} bt_json_node_t;

/**
 * Parses a file's text.
 *
 * @param [in]  text   Borrowed until the document is freed.
 * @param [out] why    On failure: a sentence with the byte offset, for the
 *                     user; the caller adds the file's name.
 * @retval BT_ERR_BAD_FILE   Not JSON, or refused by the rules for files.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_json_doc_parse(const char *text, size_t bytes,
                                            char *why, size_t why_bytes,
                                            bt_json_doc_t **doc_p);
void bt_json_doc_free(bt_json_doc_t *doc); /**< NULL is allowed. */

/** Error of a text: its cause and position. */
typedef struct bt_json_fault {
    char what[BT_JSON_FAULT_BYTES];
    size_t at;       /**< byte offset */
    char member[64]; /**< the root's member that contains it, printable; "":
                          none or unknown */
} bt_json_fault_t;

/**
 * Parses a client's text.
 *
 * @param [in]  text        Borrowed until the document is freed.
 * @param [in]  max_values  Above 0; UINT32_MAX: any number.
 * @param [out] fault_p     Written on failure.
 * @retval BT_ERR_BAD_FILE   Not JSON.
 * @retval BT_ERR_TOO_LARGE  JSON with more values, or nested deeper.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_json_doc_parse_client(const char *text,
                                                   size_t bytes,
                                                   uint32_t max_values,
                                                   bt_json_fault_t *fault_p,
                                                   bt_json_doc_t **doc_p);

/** Returns the offset of the first escape that is half of a surrogate pair, and
 *  became U+FFFD; SIZE_MAX: there is none. */
size_t bt_json_doc_half(const bt_json_doc_t *doc);
const bt_json_node_t *bt_json_doc_root(const bt_json_doc_t *doc);

/** Returns the first element, or first key, of an array or object that is
 *  not empty. */
static inline const bt_json_node_t *bt_json_first(const bt_json_node_t *node)
{
    return node + 1;
}

/** Returns the node after a value of an array, or after a key's value. */
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

/** Returns the elements of an array, or members of an object; 0: not of this
 *  kind, or empty. */
static inline uint32_t bt_json_size(const bt_json_node_t *node,
                                    bt_json_kind_t kind)
{
    return bt_json_is_kind(node, kind) ? node->n : 0;
}

/** True when a key counts: no later key of its object is equal. */
static inline bool bt_json_counts(const bt_json_node_t *key)
{
    return key->n == 0;
}

/**
 * Returns the value of a member; for objects of few members.
 * @return NULL: @a node is NULL or no object, or has no such member
 */
const bt_json_node_t *bt_json_get(const bt_json_doc_t *doc,
                                  const bt_json_node_t *node, const char *key);

/** True when a node is a string of these bytes. False for NULL. */
bool bt_json_is(const bt_json_node_t *node, const char *text);

/** True when a number is written with a fraction or an exponent: 0.5, 1.0, 1e3.
 */
bool bt_json_is_fraction(const bt_json_node_t *number);

/** Whole number of any size. */
typedef struct bt_json_whole {
    bool negative;
    bool fits;          /**< magnitude is below 2^64 */
    uint64_t magnitude; /**< magnitude modulo 2^64 */
} bt_json_whole_t;

/**
 * Reads a whole number. 4, 4.0 and 40e-1 are whole.
 * @return false: no number (NULL included), or one with a fraction
 */
bool bt_json_as_whole(const bt_json_node_t *node, bt_json_whole_t *whole_p);
/** Read a whole number of the type's range. @return false: no whole number
 *  (NULL included), or out of range */
bool bt_json_as_u64(const bt_json_node_t *node, uint64_t *value_p);
bool bt_json_as_i64(const bt_json_node_t *node, int64_t *value_p);
/** Reads a number. @return false: no number, or beyond the range of a double */
bool bt_json_as_double(const bt_json_node_t *node, double *value_p);

#endif
