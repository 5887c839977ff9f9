/* SPDX-License-Identifier: Apache-2.0 */
/** @file gguf_priv.h
 *
 * Shared by the files of inference/gguf.
 */
#ifndef BT_INFERENCE_GGUF_GGUF_PRIV_H
#define BT_INFERENCE_GGUF_GGUF_PRIV_H

#include "inference/gguf/gguf_meta.h"

/** One metadata pair. A scalar is stored as an array of one, with is_array
 *  unset. */
typedef struct bt_gguf_kv {
    bt_gguf_str_t key;
    bool is_array;
    uint32_t type;         /**< type of the value, or of each element */
    uint64_t n;            /**< elements; 1 for a scalar */
    const uint8_t *value;  /**< first element, unaligned, in the map */
    uint64_t *str_offsets; /**< owned; arrays of strings: value-relative
                                offset of each string's length field */
} bt_gguf_kv_t;

struct bt_gguf {
    const uint8_t *base;
    size_t bytes;
    void *map;         /**< argument of munmap(), NULL for borrowed memory */
    int fd;            /**< file descriptor of the map, for bt_gguf_stamp();
                            -1: none */
    size_t data_start; /**< offset of the tensor data */

    uint64_t n_kvs;
    bt_gguf_kv_t *kvs; /**< ascending by key */

    uint64_t n_tensors;
    uint64_t n_own;                   /**< tensors in this file, which come
                                           first */
    bt_gguf_tensor_t *tensors;        /**< in file order, part after part */
    const bt_gguf_tensor_t **by_name; /**< ascending by name */

    struct bt_gguf **more; /**< owned: the parts after this first one */
    uint32_t n_more;
    /* For an assembled model (gguf_meta.h): base has the metadata alone,
     * bytes count the files too. */
    const bt_gguf_file_t *files; /**< NULL: one file, or memory */
    uint32_t n_files;
    const bt_gguf_span_t *spans;
    uint64_t n_spans;
    const struct bt_gguf *made_of; /**< bt_gguf_parts_t.made_of */
    void *owner;
    void (*free_owner)(void *owner);
};

/** Split keys of a file; one without such keys is part 0 of 1. */
typedef struct bt_gguf_split {
    uint32_t no; /**< number of this part, from 0 */
    uint32_t count;
    uint64_t n_tensors; /**< tensors of all parts */
} bt_gguf_split_t;

/** Returns the bytes of one value of a scalar type; 0 for strings, arrays,
 *  unknown types. */
size_t bt_gguf_scalar_bytes(uint32_t type);

/** Compares two names bytewise, the shorter first. */
int bt_gguf_str_compare(bt_gguf_str_t a, bt_gguf_str_t b);

/** Sorts by_name, which has every tensor once.
 *  @retval BT_ERR_BAD_FILE  Two tensors have one name. */
BT_MUST_CHECK bt_status_t bt_gguf_index_names(bt_gguf_t *gguf, char *why,
                                              size_t why_bytes);

/** Mixes @a n bytes into a hash: the hash of (hash so far, hash of the
 *  bytes). */
void bt_gguf_chain(bt_hash128_t *hash, const void *data, size_t n);

/** Mixes samples of @a n bytes into a hash, as bt_gguf_chain() does with
 *  all. */
void bt_gguf_chain_samples(bt_hash128_t *hash, const void *data, size_t n);

/** Mixes in all parts of an assembled model but the bulk of its data. */
void bt_gguf_chain_head(const bt_gguf_t *gguf, bt_hash128_t *hash);

/* For an assembled model. */
bt_hash128_t bt_gguf_files_identity(const bt_gguf_t *gguf);
bt_hash128_t bt_gguf_files_content(const bt_gguf_t *gguf);

/** Reads the split keys.
 *  @retval BT_ERR_BAD_FILE  The keys are no numbers, or no valid part
 *          numbers. */
BT_MUST_CHECK bt_status_t bt_gguf_split_read(const bt_gguf_t *gguf, char *why,
                                             size_t why_bytes,
                                             bt_gguf_split_t *split_p);
/** Returns the length of the beginning of @a path that the names of all parts
 *  share.
 *  @retval BT_ERR_BAD_FILE  The path does not end as the name of this part
 *          must. */
BT_MUST_CHECK bt_status_t bt_gguf_split_stem(const char *path,
                                             const bt_gguf_split_t *split,
                                             char *why, size_t why_bytes,
                                             size_t *stem_p);
/** Writes the path of part @a i (from 0) of @a n.
 *  @retval BT_ERR_INVALID_PARAM  too long */
BT_MUST_CHECK bt_status_t bt_gguf_split_path(const char *path, size_t stem,
                                             uint32_t i, uint32_t n, char *out,
                                             size_t out_bytes);
/** Joins parts[0 .. n - 1] to one model, which becomes parts[0]: it owns the
 *  others, whose entries are NULL then. On failure all are unchanged, but for
 *  the order of parts[0]'s tensors, and each must be closed.
 *  @retval BT_ERR_BAD_FILE  One is missing, belongs to another model or has
 *          another part number.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_gguf_split_join(bt_gguf_t **parts, uint32_t n,
                                             char *why, size_t why_bytes);

/** Parses a zeroed @a gguf whose base and bytes are set. On failure the caller
 *  frees it with bt_gguf_close(). */
BT_MUST_CHECK bt_status_t bt_gguf_parse(bt_gguf_t *gguf, char *why,
                                        size_t why_bytes);

#endif
