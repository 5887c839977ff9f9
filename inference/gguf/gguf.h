/* SPDX-License-Identifier: Apache-2.0 */
/** @file gguf.h
 *
 * Reader of memory-mapped GGUF v3 files.
 *
 *     magic "GGUF" | version u32 | n_tensors u64 | n_kv u64
 *     n_kv × { key string, type u32, value }
 *     n_tensors × { name string, n_dims u32, dims u64[], type u32, offset u64 }
 *     padding to general.alignment | tensor data
 *
 * A model may be split into several such files, NAME-00001-of-00003.gguf and so
 * on, each with some of the tensors and the keys split.no (from 0), split.count
 * and split.tensors.count (of all); the first has the metadata. They are opened
 * together, whichever is named, and appear as one model.
 *
 * Every count, size and offset is checked against the file at open; afterwards
 * nothing that this module returns can reach outside the map. All returned
 * pointers are borrowed from the open file. Models of other formats are read
 * through this interface: their readers assemble one (gguf_meta.h), and
 * inference/hf opens any.
 *
 * Threads: immutable after open; any number of readers.
 * Source: the GGUF specification (ggml project, docs/gguf.md).
 */
#ifndef BT_INFERENCE_GGUF_GGUF_H
#define BT_INFERENCE_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/status.h"

#define BT_GGUF_MAX_DIMS  4
#define BT_GGUF_MAX_PARTS 256u /**< files of a model */

typedef struct bt_gguf bt_gguf_t;

typedef struct bt_gguf_str {
    const char *data; /**< not zero-terminated */
    size_t len;       /**< bytes */
} bt_gguf_str_t;

static inline bool bt_gguf_str_is(bt_gguf_str_t str, const char *text)
{
    return (strlen(text) == str.len) && (memcmp(text, str.data, str.len) == 0);
}

/** Writes all bytes of a tensor that is not stored in GGUF's form. */
typedef bt_status_t (*bt_gguf_make_fn)(const void *recipe, void *out);

/** Types of metadata values, as numbered by the format. */
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

/** Type of a tensor of whole numbers, which is no matrix of a model. */
#define BT_GGUF_TENSOR_I64 27u

/** Metadata pair as stored in the file. */
typedef struct bt_gguf_pair {
    bt_gguf_str_t key;
    bool is_array;
    uint32_t type;     /**< type of the value, or of each element: never
                            ARRAY */
    uint64_t n;        /**< number of elements; 1 for a scalar */
    const void *value; /**< the first element, unaligned; a string is its length
                            (u64) and its bytes */
    size_t bytes;      /**< bytes of all elements */
} bt_gguf_pair_t;

typedef struct bt_gguf_tensor {
    bt_gguf_str_t name;
    uint32_t n_dims;
    uint64_t dims[BT_GGUF_MAX_DIMS]; /**< dims[0] is contiguous; rest 1 */
    uint32_t type;                   /**< ggml_type number, known and checked */
    const void *data;     /**< NULL: bt_gguf_tensor_copy() makes it */
    size_t bytes;         /**< bytes of the data, whether stored or made */
    bt_gguf_make_fn make; /**< when data is NULL */
    const void *recipe;   /**< argument of make() */
    /** Tensor of equal values as codes of a type that GGUF lacks
     *  (BT_KTYPE_E4M3), for back ends that read such codes from memory. NULL:
     *  none. */
    const struct bt_gguf_tensor *codes;
} bt_gguf_tensor_t;

/**
 * Maps and checks a file, and its other parts where it is one of several.
 *
 * @param [out] why  On failure: a sentence that names the reason (which key,
 *         tensor or size), for the user. On success: "".
 * @retval BT_OK
 * @retval BT_ERR_NOT_FOUND    No such file, or one of several is missing.
 * @retval BT_ERR_IO           Cannot be read or mapped.
 * @retval BT_ERR_BAD_FILE     Not GGUF, truncated, or inconsistent; files that
 *         are not the parts of one model.
 * @retval BT_ERR_UNSUPPORTED  Version, tensor type (named) or an array of
 *         arrays: not supported.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_gguf_open(const char *path, char *why,
                                       size_t why_bytes, bt_gguf_t **gguf_p);

/** Opens a GGUF file in memory (borrowed until close). */
BT_MUST_CHECK bt_status_t bt_gguf_open_memory(const void *data, size_t bytes,
                                              char *why, size_t why_bytes,
                                              bt_gguf_t **gguf_p);
/** Bytes in memory. */
typedef struct bt_gguf_span {
    const void *data;
    size_t bytes;
} bt_gguf_span_t;

/** Opens a model of @a n parts in memory, in their order. */
BT_MUST_CHECK bt_status_t bt_gguf_open_memory_parts(const bt_gguf_span_t *parts,
                                                    uint32_t n, char *why,
                                                    size_t why_bytes,
                                                    bt_gguf_t **gguf_p);
void bt_gguf_close(bt_gguf_t *gguf); /**< NULL is allowed. */

/* Metadata.
 * @retval BT_ERR_NOT_FOUND  no such key
 * @retval BT_ERR_BAD_FILE   the key has another type */
BT_MUST_CHECK bt_status_t bt_gguf_get_u64(const bt_gguf_t *gguf,
                                          const char *key, uint64_t *value_p);
/** Reads an integer of any type whose value fits. */
BT_MUST_CHECK bt_status_t bt_gguf_get_u32(const bt_gguf_t *gguf,
                                          const char *key, uint32_t *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_get_f32(const bt_gguf_t *gguf,
                                          const char *key, float *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_get_bool(const bt_gguf_t *gguf,
                                           const char *key, bool *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_get_str(const bt_gguf_t *gguf,
                                          const char *key,
                                          bt_gguf_str_t *value_p);

/** Returns the length of an array. Elements are read by index (checked; out of
 *  range is BT_ERR_INVALID_PARAM). Element access is O(1), strings too. */
BT_MUST_CHECK bt_status_t bt_gguf_array_len(const bt_gguf_t *gguf,
                                            const char *key, uint64_t *n_p);
BT_MUST_CHECK bt_status_t bt_gguf_array_str(const bt_gguf_t *gguf,
                                            const char *key, uint64_t i,
                                            bt_gguf_str_t *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_array_i64(const bt_gguf_t *gguf,
                                            const char *key, uint64_t i,
                                            int64_t *value_p);
/** Reads an element of an array of truth values, or of whole numbers, of which
 *  all but 0 are true. */
BT_MUST_CHECK bt_status_t bt_gguf_array_bool(const bt_gguf_t *gguf,
                                             const char *key, uint64_t i,
                                             bool *value_p);
BT_MUST_CHECK bt_status_t bt_gguf_array_f64(const bt_gguf_t *gguf,
                                            const char *key, uint64_t i,
                                            double *value_p);

/**
 * Returns the number of token ids that the file's tokenizer has: ids are below
 * it. A model's matrices may have more rows, up to a round number; those rows
 * are untrained and must not be computed. Some files list such a row as a token
 * of type UNUSED: those at the end of the list do not count, unless the file
 * refers to one (as the end of a text, say).
 *
 * @param [out] n_p  at least 1, unless the list is empty
 * @retval BT_ERR_NOT_FOUND  The file lists no tokens.
 * @retval BT_ERR_BAD_FILE   tokenizer.ggml.tokens is no array.
 */
BT_MUST_CHECK bt_status_t bt_gguf_n_vocab(const bt_gguf_t *gguf, uint64_t *n_p);

/** Looks up a key. @return whether it exists, of whatever type */
bool bt_gguf_has(const bt_gguf_t *gguf, const char *key);

/** Returns the number of metadata pairs; bt_gguf_pair_at() copies them. */
uint64_t bt_gguf_n_pairs(const bt_gguf_t *gguf);
/** Returns a metadata pair; pairs are ascending by key.
 *  @param i  below bt_gguf_n_pairs() */
bt_gguf_pair_t bt_gguf_pair_at(const bt_gguf_t *gguf, uint64_t i);

uint64_t bt_gguf_n_tensors(const bt_gguf_t *gguf);
const bt_gguf_tensor_t *bt_gguf_tensor_at(const bt_gguf_t *gguf, uint64_t i);
/** Finds a tensor by name. @return NULL when there is no such tensor */
const bt_gguf_tensor_t *bt_gguf_tensor(const bt_gguf_t *gguf, const char *name);

/** Writes a tensor's bytes to @a out, which has a capacity of tensor->bytes.
 *  @retval BT_ERR_NO_MEMORY  making the tensor needs scratch memory */
BT_MUST_CHECK bt_status_t bt_gguf_tensor_copy(const bt_gguf_tensor_t *tensor,
                                              void *out);

/** Returns the bytes of the whole file, or of all files of a model. */
size_t bt_gguf_bytes(const bt_gguf_t *gguf);

/** Computes the identity of the model: hash of metadata, tensor table, file
 *  size and samples of every tensor's data, of all parts. Equal on all hosts
 *  for equal files; reads little. */
bt_hash128_t bt_gguf_identity(const bt_gguf_t *gguf);

/** Computes XXH3-128 of every byte of the file, or of all files; reads all of
 *  it. */
bt_hash128_t bt_gguf_content(const bt_gguf_t *gguf);

/** True when @a path is one of the files that hold the model's tensor data.
 *  @param [in] path  The file may be missing; links are followed. */
bool bt_gguf_reads_from(const bt_gguf_t *gguf, const char *path);

/** File system state of the open file: of several files a number that combines
 *  their inodes, the sum of their bytes, the latest times. */
typedef struct bt_gguf_stamp {
    uint64_t inode;
    uint64_t bytes;
    int64_t mtime_ns; /**< ns since 1970 */
    int64_t ctime_ns;
} bt_gguf_stamp_t;

/** Reads the current stamp. A file that was written to has another stamp than
 *  before, unless that was within one tick of the system's clock (at most 10
 *  ms).
 *  @retval BT_ERR_NOT_FOUND  The model is in memory, not a file.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_gguf_stamp(const bt_gguf_t *gguf,
                                        bt_gguf_stamp_t *stamp_p);

/** Returns elements and bytes of one quantization block of a tensor type; types
 *  without blocks have one element. Only the types that Baton runs.
 *  @retval BT_ERR_UNSUPPORTED  Another type; bt_gguf_type_name() names it. */
BT_MUST_CHECK bt_status_t bt_gguf_type_block(uint32_t type, uint32_t *n_elems_p,
                                             uint32_t *n_bytes_p);
/** Returns the name of any ggml_type, "unknown" for numbers that have none. */
const char *bt_gguf_type_name(uint32_t type);

#endif
