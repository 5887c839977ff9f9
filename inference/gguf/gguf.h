/* SPDX-License-Identifier: Apache-2.0 */
/** @file gguf.h
 *
 * Read-only, memory-mapped GGUF v3 file.
 *
 *     magic "GGUF" | version u32 | n_tensors u64 | n_kv u64
 *     n_kv × { key string, type u32, value }
 *     n_tensors × { name string, n_dims u32, dims u64[], type u32, offset u64 }
 *     padding to general.alignment | tensor data
 *
 * A model may be in several such files, NAME-00001-of-00003.gguf and so on,
 * each with some of the tensors and the keys split.no (from 0), split.count and
 * split.tensors.count (of all); the first has the metadata. They are opened
 * together, whichever is named, and are one model here.
 *
 * Every count, size and offset is checked against the file before use, at
 * open; afterwards nothing that this module returns can reach outside the map.
 * All returned pointers are borrowed from the open file.
 * Models of other formats are read through the same functions: their readers
 * put one together (gguf_assemble.h), and inference/modelfile opens any.
 * Threads: immutable after open; any number of readers.
 * Source:  the GGUF specification (ggml project, docs/gguf.md).
 */
#ifndef BT_INFERENCE_GGUF_GGUF_H
#define BT_INFERENCE_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

#define BT_GGUF_MAX_DIMS  4
#define BT_GGUF_MAX_PARTS 256u /**< files of a model */

typedef struct bt_gguf bt_gguf_t;

typedef struct bt_gguf_str {
    const char *data; /**< not zero-terminated */
    size_t len;       /**< bytes */
} bt_gguf_str_t;

/** Writes all bytes of a tensor that is not stored as GGUF would. */
typedef bt_status_t (*bt_gguf_make_fn)(const void *recipe, void *out);

/** Types of metadata values, as the format numbers them. */
enum {
    BT_GGUF_U8 = 0,
    BT_GGUF_I8 = 1,
    BT_GGUF_U16 = 2,
    BT_GGUF_I16 = 3,
    BT_GGUF_U32 = 4,
    BT_GGUF_I32 = 5,
    BT_GGUF_F32 = 6,
    BT_GGUF_BOOL = 7,
    BT_GGUF_STRING = 8,
    BT_GGUF_ARRAY = 9,
    BT_GGUF_U64 = 10,
    BT_GGUF_I64 = 11,
    BT_GGUF_F64 = 12,
};

/** A metadata pair as it is in the file. */
typedef struct bt_gguf_pair {
    bt_gguf_str_t key;
    bool is_array;
    uint32_t type;     /**< of the value, or of each element: never ARRAY */
    uint64_t n;        /**< elements; 1 for a scalar */
    const void *value; /**< the first element, unaligned; a string is its length
                            (u64) and its bytes */
    size_t bytes;      /**< of all elements */
} bt_gguf_pair_t;

typedef struct bt_gguf_tensor {
    bt_gguf_str_t name;
    uint32_t n_dims;
    uint64_t dims[BT_GGUF_MAX_DIMS]; /**< dims[0] is contiguous; rest 1 */
    uint32_t type;                   /**< ggml_type number, known and checked */
    const void *data;     /**< NULL: bt_gguf_tensor_copy() makes it */
    size_t bytes;         /**< of the data, made or not */
    bt_gguf_make_fn make; /**< when data is NULL */
    const void *recipe;   /**< what make() is given */
    /** The same values as codes of a type that GGUF lacks (BT_KTYPE_E4M3), for
     *  back ends that read those from memory. NULL: there are none */
    const struct bt_gguf_tensor *codes;
} bt_gguf_tensor_t;

/**
 * Map and check a file, and where it is one of several those beside it.
 *
 * @param [out] why       On failure: a sentence that names the reason (which
 *                        key, tensor or size), for the user. On success: "".
 * @retval BT_OK
 * @retval BT_ERR_NOT_FOUND    No such file, or one of several is missing.
 * @retval BT_ERR_IO           Cannot be read or mapped.
 * @retval BT_ERR_BAD_FILE     Not GGUF, truncated, or inconsistent; files that
 *                             are not the parts of one model.
 * @retval BT_ERR_UNSUPPORTED  Version, tensor type (named) or an array of
 *                             arrays: not supported.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_gguf_open(const char *path, char *why,
                                       size_t why_bytes, bt_gguf_t **gguf_p);

/** The same over bytes in memory (borrowed until close). */
BT_MUST_CHECK bt_status_t bt_gguf_open_memory(const void *data, size_t bytes,
                                              char *why, size_t why_bytes,
                                              bt_gguf_t **gguf_p);
typedef struct bt_gguf_bytes {
    const void *data;
    size_t bytes;
} bt_gguf_bytes_t;

/** The same of a model in @a n parts, in their order. */
BT_MUST_CHECK bt_status_t
bt_gguf_open_memory_parts(const bt_gguf_bytes_t *parts, uint32_t n, char *why,
                          size_t why_bytes, bt_gguf_t **gguf_p);
void bt_gguf_close(bt_gguf_t *gguf); /**< NULL is allowed. */

/* Metadata. @retval BT_ERR_NOT_FOUND  no such key
 *           @retval BT_ERR_BAD_FILE   the key has another type */
BT_MUST_CHECK bt_status_t bt_gguf_get_u64(const bt_gguf_t *gguf,
                                          const char *key, uint64_t *value_p);
/** Any integer type that fits. */
BT_MUST_CHECK bt_status_t bt_gguf_get_u32(const bt_gguf_t *gguf,
                                          const char *key, uint32_t *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_get_f32(const bt_gguf_t *gguf,
                                          const char *key, float *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_get_bool(const bt_gguf_t *gguf,
                                           const char *key, bool *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_get_str(const bt_gguf_t *gguf,
                                          const char *key,
                                          bt_gguf_str_t *value_p);

/** Arrays: length, then elements by index (checked; out of range is
 *  BT_ERR_INVALID_PARAM). Element access is O(1), strings too. */
BT_MUST_CHECK bt_status_t bt_gguf_array_len(const bt_gguf_t *gguf,
                                            const char *key, uint64_t *n_p);
BT_MUST_CHECK bt_status_t bt_gguf_array_str(const bt_gguf_t *gguf,
                                            const char *key, uint64_t i,
                                            bt_gguf_str_t *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_array_i64(const bt_gguf_t *gguf,
                                            const char *key, uint64_t i,
                                            int64_t *value_p);
/** Of truth values, or of whole numbers, of which all but 0 are true. */
BT_MUST_CHECK bt_status_t bt_gguf_array_bool(const bt_gguf_t *gguf,
                                             const char *key, uint64_t i,
                                             bool *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_array_f32(const bt_gguf_t *gguf,
                                            const char *key, uint64_t i,
                                            float *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_array_f64(const bt_gguf_t *gguf,
                                            const char *key, uint64_t i,
                                            double *value_p);

/**
 * Token ids that the file's tokenizer has: 0 to one less. A model's matrices
 * may have more rows, up to a round number; nobody was taught what these say,
 * and they are not to be computed. Some files list such a row as a token of
 * type UNUSED: those at the end of the list do not count, unless the file names
 * one (as the end of a text, say).
 *
 * @param [out] n_p  at least 1, unless the list is empty
 * @retval BT_ERR_NOT_FOUND  The file lists no tokens.
 * @retval BT_ERR_BAD_FILE   tokenizer.ggml.tokens is no array.
 */
BT_MUST_CHECK bt_status_t bt_gguf_n_vocab(const bt_gguf_t *gguf, uint64_t *n_p);

/** @return whether there is such a key, of whatever type. */
bool bt_gguf_has(const bt_gguf_t *gguf, const char *key);

/** All pairs, ascending by key, for who copies them. */
uint64_t bt_gguf_n_pairs(const bt_gguf_t *gguf);
/** @param i  below bt_gguf_n_pairs() */
bt_gguf_pair_t bt_gguf_pair_at(const bt_gguf_t *gguf, uint64_t i);

uint64_t bt_gguf_n_tensors(const bt_gguf_t *gguf);
const bt_gguf_tensor_t *bt_gguf_tensor_at(const bt_gguf_t *gguf, uint64_t i);
/** @return NULL when there is no such tensor. */
const bt_gguf_tensor_t *bt_gguf_tensor(const bt_gguf_t *gguf, const char *name);

/** Write a tensor's bytes to @a out, which has room for tensor->bytes of them.
 *  @retval BT_ERR_NO_MEMORY  what is made needs scratch */
BT_MUST_CHECK bt_status_t bt_gguf_tensor_copy(const bt_gguf_tensor_t *tensor,
                                              void *out);

/** Bytes of the whole file, or of all files of a model. */
size_t bt_gguf_bytes(const bt_gguf_t *gguf);

/** Identity of the model: metadata, tensor table, file size and samples of
 *  every tensor's data, of all parts. Equal on all hosts for equal files;
 *  reads little. */
bt_hash128_t bt_gguf_identity(const bt_gguf_t *gguf);

/** XXH3-128 of every byte of the file, or of all files; reads all of it. */
bt_hash128_t bt_gguf_content(const bt_gguf_t *gguf);

/** Is it one of the files that the model's numbers are in?
 *  @param [in] path  Of what need not be there; links are followed. */
bool bt_gguf_reads_from(const bt_gguf_t *gguf, const char *path);

/** What the file system says of the open file now. Of several files: a number
 *  for what it says of each, the bytes of all, the latest times. */
typedef struct bt_gguf_stamp {
    uint64_t inode;
    uint64_t bytes;
    int64_t mtime_ns; /**< since 1970 */
    int64_t ctime_ns;
} bt_gguf_stamp_t;

/** A file that was written to has another stamp than before, unless that was
 *  within one tick of the system's clock (at most 10 ms).
 *  @retval BT_ERR_NOT_FOUND  It is memory, not a file.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_gguf_stamp(const bt_gguf_t *gguf,
                                        bt_gguf_stamp_t *stamp_p);

/** Elements and bytes of one quantization block of a tensor type; types
 *  without blocks have one element. Only the types that Baton runs.
 *  @retval BT_ERR_UNSUPPORTED  Another type; bt_gguf_type_name() names it. */
BT_MUST_CHECK bt_status_t bt_gguf_type_block(uint32_t type, uint32_t *n_elems_p,
                                             uint32_t *n_bytes_p);
/** Name of any ggml_type, "unknown" for numbers that have none. */
const char *bt_gguf_type_name(uint32_t type);

#endif
