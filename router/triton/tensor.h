/* SPDX-License-Identifier: Apache-2.0 */
/** @file tensor.h
 *
 * Tensors as Triton's clients send and get them, in their raw form: elements
 * one after the other, row-major, little-endian.
 *
 *     INT32 [2, 2]     01 00 00 00  02 00 00 00  03 00 00 00  04 00 00 00
 *     BYTES [2]        03 00 00 00  'a' 'b' 'c'   00 00 00 00
 *                      (length, u32) (bytes)      (an empty one)
 *
 * All that comes from outside is checked by bt_tensor_check() once; the readers
 * take only what has passed it.
 *
 * Threads: pure functions.
 * Source:  KServe's protocol v2, extension "binary tensor data".
 */
#ifndef BT_ROUTER_TRITON_TENSOR_H
#define BT_ROUTER_TRITON_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_TENSOR_MAX_DIMS   8
#define BT_TENSOR_NAME_BYTES 128

typedef enum bt_dtype {
    BT_DTYPE_BOOL, /**< one byte, 0 or not */
    BT_DTYPE_UINT8,
    BT_DTYPE_UINT16,
    BT_DTYPE_UINT32,
    BT_DTYPE_UINT64,
    BT_DTYPE_INT8,
    BT_DTYPE_INT16,
    BT_DTYPE_INT32,
    BT_DTYPE_INT64,
    BT_DTYPE_FP16,
    BT_DTYPE_FP32,
    BT_DTYPE_FP64,
    BT_DTYPE_BF16,
    BT_DTYPE_BYTES,
    BT_N_DTYPES,
} bt_dtype_t;

typedef struct bt_tensor {
    char name[BT_TENSOR_NAME_BYTES];
    bt_dtype_t dtype;
    uint32_t n_dims;
    uint64_t dims[BT_TENSOR_MAX_DIMS];
    const void *data; /**< raw form, of any alignment; NULL when bytes is 0 */
    size_t bytes;
    void *owned; /**< memory that goes with it; NULL: data is borrowed */
    void (*give_up)(void *owned); /**< how; NULL: bt_free() */
} bt_tensor_t;

/** "INT32", "BYTES" … as the protocol writes them. */
const char *bt_dtype_name(bt_dtype_t dtype);
/** "TYPE_INT32", "TYPE_STRING" … as a model's configuration writes them. */
const char *bt_dtype_config_name(bt_dtype_t dtype);
/** @return false for a name that is none of them */
bool bt_dtype_find(const char *name, size_t bytes, bt_dtype_t *dtype_p);
/** Bytes of an element; 0 of BYTES, whose elements differ. */
size_t bt_dtype_bytes(bt_dtype_t dtype);
/** BOOL is none of the two. */
bool bt_dtype_is_integer(bt_dtype_t dtype);
bool bt_dtype_is_float(bt_dtype_t dtype);

/** Elements of a tensor of these dims; 1 of none.
 *  @retval BT_ERR_OVERFLOW  they are no number of bytes that could be held */
BT_MUST_CHECK bt_status_t bt_tensor_count(const uint64_t *dims, uint32_t n_dims,
                                          uint64_t *count_p);
/** The elements of one that has passed bt_tensor_check(). */
uint64_t bt_tensor_elements(const bt_tensor_t *tensor);

#define BT_TENSOR_WHY_BYTES 256
/** Is the data what dtype and dims say?
 *  @param [out] why  otherwise: a phrase, "has 12 bytes of data, but its shape
 *                    and datatype say 16"
 *  @retval BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_tensor_check(const bt_tensor_t *tensor,
                                          char why[BT_TENSOR_WHY_BYTES]);
/** Free what it owns. Also of a zeroed one. */
void bt_tensor_fini(bt_tensor_t *tensor);

/* ---- reading: of one that was checked; i is below its elements ---- */

/** An integer, or BOOL as 0 and 1; floats that are whole count.
 *  @retval BT_ERR_INVALID_PARAM  no number, or one with a fraction
 *  @retval BT_ERR_OVERFLOW       beyond int64_t */
BT_MUST_CHECK bt_status_t bt_tensor_i64(const bt_tensor_t *tensor, uint64_t i,
                                        int64_t *value_p);
/** The bits of a UINT64 or INT64; else as bt_tensor_i64(). */
BT_MUST_CHECK bt_status_t bt_tensor_u64(const bt_tensor_t *tensor, uint64_t i,
                                        uint64_t *value_p);
/** Any number; @retval BT_ERR_INVALID_PARAM  BYTES */
BT_MUST_CHECK bt_status_t bt_tensor_f64(const bt_tensor_t *tensor, uint64_t i,
                                        double *value_p);
/** @retval BT_ERR_INVALID_PARAM  neither BOOL nor an integer */
BT_MUST_CHECK bt_status_t bt_tensor_bool(const bt_tensor_t *tensor, uint64_t i,
                                         bool *value_p);

/** Walks the elements of BYTES: begin with *offset 0.
 *  @param [out] text_p  borrowed from the tensor, not terminated
 *  @return false: there is no more */
bool bt_tensor_next_bytes(const bt_tensor_t *tensor, size_t *offset,
                          const char **text_p, size_t *bytes_p);

/* ---- making ---- */

/** A tensor with data of its own, zeroed: fill it through @a owned.
 *  @param bytes  of BYTES; of the others they follow from dims
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_OVERFLOW */
BT_MUST_CHECK bt_status_t bt_tensor_make(const char *name, bt_dtype_t dtype,
                                         const uint64_t *dims, uint32_t n_dims,
                                         size_t bytes, bt_tensor_t *tensor_p);
/** A tensor of data that somebody else made, of which it holds a part.
 *  @param owned    given up when it is freed; the caller's where it fails
 *  @retval BT_ERR_OVERFLOW */
BT_MUST_CHECK bt_status_t bt_tensor_hold(const char *name, bt_dtype_t dtype,
                                         const uint64_t *dims, uint32_t n_dims,
                                         const void *data, void *owned,
                                         void (*give_up)(void *owned),
                                         bt_tensor_t *tensor_p);
/** Append one element to raw BYTES that are being made at @a at.
 *  @return where the next one goes */
uint8_t *bt_tensor_put_bytes(uint8_t *at, const char *text, size_t bytes);

#endif
