/* SPDX-License-Identifier: Apache-2.0 */
/** @file safetensors.h
 *
 * Parser of one safetensors file in memory:
 *
 *     n u64 | n bytes of JSON | data
 *     JSON: { "NAME": {"dtype","shape":[],"data_offsets":[begin,end]}, …,
 *             "__metadata__": {"KEY":"VALUE"} }
 *
 * The parser checks that every size and offset lies in the file, that a
 * tensor's size is what dtype and shape call for, and that the tensors cover
 * the data without holes and overlaps, as the format demands.
 *
 * Threads: immutable after the parse; any number of readers.
 * Source: github.com/huggingface/safetensors, README "Format".
 */
#ifndef BT_INFERENCE_HF_SAFETENSORS_H
#define BT_INFERENCE_HF_SAFETENSORS_H

#include "common/base/json_doc.h"
#include "inference/gguf/gguf.h"

#define BT_ST_MAX_DIMS 8
#define BT_ST_HEADER_BYTES \
    100000000u /**< as the format's own reader bounds it */

typedef enum bt_st_dtype {
    BT_ST_BOOL,
    BT_ST_U8,
    BT_ST_I8,
    BT_ST_F8_E5M2,
    BT_ST_F8_E4M3,
    BT_ST_F8_E8M0,
    BT_ST_I16,
    BT_ST_U16,
    BT_ST_F16,
    BT_ST_BF16,
    BT_ST_I32,
    BT_ST_U32,
    BT_ST_F32,
    BT_ST_F64,
    BT_ST_I64,
    BT_ST_U64,
} bt_st_dtype_t;

typedef struct bt_st_tensor {
    bt_gguf_str_t name;
    bt_st_dtype_t dtype;
    uint32_t n_dims;
    uint64_t dims[BT_ST_MAX_DIMS]; /**< dims[n_dims - 1] is contiguous */
    uint64_t n_elems;              /**< 0 is possible */
    const uint8_t *data;           /**< unaligned */
    size_t bytes;
} bt_st_tensor_t;

typedef struct bt_safetensors {
    bt_json_doc_t *doc; /**< holds the names */
    bt_st_tensor_t *tensors;
    uint32_t n;
} bt_safetensors_t;

/**
 * Parses a file.
 *
 * @param [in]  base  Borrowed until bt_safetensors_fini().
 * @param [out] why   On failure: a sentence with the tensor's name; the caller
 *         adds the file's name.
 * @retval BT_ERR_BAD_FILE
 * @retval BT_ERR_UNSUPPORTED  A dtype or a number of dimensions, named.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_safetensors_parse(const void *base, size_t bytes,
                                               char *why, size_t why_bytes,
                                               bt_safetensors_t *st_p);
void bt_safetensors_fini(bt_safetensors_t *st); /**< Zeroed is allowed. */

const char *bt_st_dtype_name(bt_st_dtype_t dtype);
uint32_t bt_st_dtype_bytes(bt_st_dtype_t dtype);

#endif
