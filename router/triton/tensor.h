/* SPDX-License-Identifier: Apache-2.0 */
/** @file tensor.h
 *
 * Tensors as Triton's clients send and receive them, in raw form: elements one
 * after the other, row-major, little-endian.
 *
 *     INT32 [2, 2]     01 00 00 00  02 00 00 00  03 00 00 00  04 00 00 00
 *     BYTES [2]        03 00 00 00  'a' 'b' 'c'   00 00 00 00
 *                      (length, u32) (bytes)      (an empty one)
 *
 * bt_tensor_check() validates each tensor from outside once; the read
 * functions accept only validated tensors.
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
    BT_DTYPE_BOOL, /**< one byte, 0 = false */
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
    const void *data; /**< raw form, any alignment; NULL when bytes is 0 */
    size_t bytes;
    void *owned; /**< memory owned by the tensor; NULL: data is borrowed */
    void (*give_up)(void *owned); /**< destructor of owned; NULL: bt_free() */
} bt_tensor_t;

/** Returns the protocol's name of a datatype: "INT32", "BYTES" … */
const char *bt_dtype_name(bt_dtype_t dtype);
/** Returns the name of a datatype in a model's configuration: "TYPE_INT32",
 *  "TYPE_STRING" … */
const char *bt_dtype_config_name(bt_dtype_t dtype);
/** Finds a datatype by the protocol's name.
 *  @return false for an unknown name */
bool bt_dtype_find(const char *name, size_t bytes, bt_dtype_t *dtype_p);
/** Returns the bytes of an element; 0 for BYTES, whose elements have different
 *  sizes. */
size_t bt_dtype_bytes(bt_dtype_t dtype);
/** True for integer datatypes. BOOL is neither integer nor float. */
bool bt_dtype_is_integer(bt_dtype_t dtype);
bool bt_dtype_is_float(bt_dtype_t dtype);

/** Computes the number of elements of a tensor with these dims; 1 without
 *  dims.
 *  @retval BT_ERR_OVERFLOW  the tensor's bytes do not fit the address space */
BT_MUST_CHECK bt_status_t bt_tensor_count(const uint64_t *dims, uint32_t n_dims,
                                          uint64_t *count_p);
/** Returns the number of elements of a tensor that has passed
 *  bt_tensor_check(). */
uint64_t bt_tensor_elements(const bt_tensor_t *tensor);

#define BT_TENSOR_WHY_BYTES 256
/** Checks that the data matches dtype and dims.
 *  @param [out] why  on failure: a phrase, "has 12 bytes of data, but its
 *                    shape and datatype say 16"
 *  @retval BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_tensor_check(const bt_tensor_t *tensor,
                                          char why[BT_TENSOR_WHY_BYTES]);
/** Frees the memory that a tensor owns. A zeroed tensor is allowed. */
void bt_tensor_fini(bt_tensor_t *tensor);

/* ---- reading a checked tensor; i is below the number of elements ---- */

/** Reads an integer, a BOOL as 0 or 1, or a float without a fraction.
 *  @retval BT_ERR_INVALID_PARAM  no number, or a number with a fraction
 *  @retval BT_ERR_OVERFLOW       beyond int64_t */
BT_MUST_CHECK bt_status_t bt_tensor_i64(const bt_tensor_t *tensor, uint64_t i,
                                        int64_t *value_p);
/** Reads the bits of a UINT64 or INT64; other datatypes as bt_tensor_i64(). */
BT_MUST_CHECK bt_status_t bt_tensor_u64(const bt_tensor_t *tensor, uint64_t i,
                                        uint64_t *value_p);
/** Reads any number.
 *  @retval BT_ERR_INVALID_PARAM  the datatype is BYTES */
BT_MUST_CHECK bt_status_t bt_tensor_f64(const bt_tensor_t *tensor, uint64_t i,
                                        double *value_p);
/** Reads a BOOL, or an integer as a boolean.
 *  @retval BT_ERR_INVALID_PARAM  neither BOOL nor an integer */
BT_MUST_CHECK bt_status_t bt_tensor_bool(const bt_tensor_t *tensor, uint64_t i,
                                         bool *value_p);

/** Iterates over the elements of a BYTES tensor: begin with *offset 0.
 *  @param [out] text_p  borrowed from the tensor, not terminated
 *  @return false: there are no more elements */
bool bt_tensor_next_bytes(const bt_tensor_t *tensor, size_t *offset,
                          const char **text_p, size_t *bytes_p);

/* ---- making ---- */

/** Makes a tensor with its own zeroed data: fill it through @a owned.
 *  @param bytes  size of a BYTES tensor; other sizes follow from dims
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_OVERFLOW */
BT_MUST_CHECK bt_status_t bt_tensor_make(const char *name, bt_dtype_t dtype,
                                         const uint64_t *dims, uint32_t n_dims,
                                         size_t bytes, bt_tensor_t *tensor_p);
/** Makes a tensor that refers to existing data, which @a owned keeps alive.
 *  @param owned    passed to give_up when the tensor is freed; stays the
 *                  caller's on failure
 *  @retval BT_ERR_OVERFLOW */
BT_MUST_CHECK bt_status_t bt_tensor_hold(const char *name, bt_dtype_t dtype,
                                         const uint64_t *dims, uint32_t n_dims,
                                         const void *data, void *owned,
                                         void (*give_up)(void *owned),
                                         bt_tensor_t *tensor_p);
/** Writes one element of a raw BYTES tensor at @a at.
 *  @return position of the next element */
uint8_t *bt_tensor_put_bytes(uint8_t *at, const char *text, size_t bytes);

#endif
