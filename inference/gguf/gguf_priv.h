/* SPDX-License-Identifier: Apache-2.0 */
/** @file gguf_priv.h  What the files of inference/gguf share. */
#ifndef BT_INFERENCE_GGUF_GGUF_PRIV_H
#define BT_INFERENCE_GGUF_GGUF_PRIV_H

#include "inference/gguf/gguf.h"

/** One metadata pair. A scalar is an array of one that is not marked so. */
typedef struct bt_gguf_kv {
    bt_gguf_str_t key;
    bool is_array;
    uint32_t type;         /**< of the value, or of each element */
    uint64_t n;            /**< elements; 1 for a scalar */
    const uint8_t *value;  /**< first element, unaligned, in the map */
    uint64_t *str_offsets; /**< owned; arrays of strings: value-relative
                                offset of each one's length field */
} bt_gguf_kv_t;

struct bt_gguf {
    const uint8_t *base;
    size_t bytes;
    void *map;         /**< what munmap() takes, NULL for borrowed memory */
    int fd;            /**< of the map, for bt_gguf_stamp(); -1: none */
    size_t data_start; /**< offset of the tensor data */

    uint64_t n_kvs;
    bt_gguf_kv_t *kvs; /**< ascending by key */

    uint64_t n_tensors;
    bt_gguf_tensor_t *tensors;        /**< in file order */
    const bt_gguf_tensor_t **by_name; /**< ascending by name */
};

/** Bytes of one value of a scalar type; 0 for strings, arrays, unknown. */
size_t bt_gguf_scalar_bytes(uint32_t type);

/** Order of two names: bytewise, the shorter first. */
int bt_gguf_str_compare(bt_gguf_str_t a, bt_gguf_str_t b);

/** Fill a zeroed @a gguf whose base and bytes are set. On failure the caller
 *  frees what there is with bt_gguf_close(). */
BT_MUST_CHECK bt_status_t bt_gguf_parse(bt_gguf_t *gguf, char *why,
                                        size_t why_bytes);

#endif
