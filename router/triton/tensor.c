/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

#define LENGTH_BYTES sizeof(uint32_t) /* before an element of BYTES */

typedef enum kind { BOOLEAN, UNSIGNED, SIGNED, REAL, STRING } kind_t;

static const struct dtype {
    const char *name, *config_name;
    size_t bytes;
    kind_t kind;
} dtypes[BT_N_DTYPES] = {
    [BT_DTYPE_BOOL] = {"BOOL", "TYPE_BOOL", 1, BOOLEAN},
    [BT_DTYPE_UINT8] = {"UINT8", "TYPE_UINT8", 1, UNSIGNED},
    [BT_DTYPE_UINT16] = {"UINT16", "TYPE_UINT16", 2, UNSIGNED},
    [BT_DTYPE_UINT32] = {"UINT32", "TYPE_UINT32", 4, UNSIGNED},
    [BT_DTYPE_UINT64] = {"UINT64", "TYPE_UINT64", 8, UNSIGNED},
    [BT_DTYPE_INT8] = {"INT8", "TYPE_INT8", 1, SIGNED},
    [BT_DTYPE_INT16] = {"INT16", "TYPE_INT16", 2, SIGNED},
    [BT_DTYPE_INT32] = {"INT32", "TYPE_INT32", 4, SIGNED},
    [BT_DTYPE_INT64] = {"INT64", "TYPE_INT64", 8, SIGNED},
    [BT_DTYPE_FP16] = {"FP16", "TYPE_FP16", 2, REAL},
    [BT_DTYPE_FP32] = {"FP32", "TYPE_FP32", 4, REAL},
    [BT_DTYPE_FP64] = {"FP64", "TYPE_FP64", 8, REAL},
    [BT_DTYPE_BF16] = {"BF16", "TYPE_BF16", 2, REAL},
    [BT_DTYPE_BYTES] = {"BYTES", "TYPE_STRING", 0, STRING},
};

const char *bt_dtype_name(bt_dtype_t dtype)
{
    return dtypes[dtype].name;
}

const char *bt_dtype_config_name(bt_dtype_t dtype)
{
    return dtypes[dtype].config_name;
}

bool bt_dtype_find(const char *name, size_t bytes, bt_dtype_t *dtype_p)
{
    for (int i = 0; i < BT_N_DTYPES; i++) {
        if ((strlen(dtypes[i].name) == bytes) &&
            (memcmp(dtypes[i].name, name, bytes) == 0)) {
            *dtype_p = (bt_dtype_t)i;
            return true;
        }
    }
    return false;
}

size_t bt_dtype_bytes(bt_dtype_t dtype)
{
    return dtypes[dtype].bytes;
}

bool bt_dtype_is_integer(bt_dtype_t dtype)
{
    return (dtypes[dtype].kind == UNSIGNED) || (dtypes[dtype].kind == SIGNED);
}

bool bt_dtype_is_float(bt_dtype_t dtype)
{
    return dtypes[dtype].kind == REAL;
}

/* ---- checks ---- */

bt_status_t bt_tensor_count(const uint64_t *dims, uint32_t n_dims,
                            uint64_t *count_p)
{
    uint64_t count = 1;
    uint64_t most = 1; /* of the dims but zeros, which must be sane too */

    for (uint32_t i = 0; i < n_dims; i++) {
        const uint64_t dim = (dims[i] > 0) ? dims[i] : 1;

        if (__builtin_mul_overflow(most, dim, &most) ||
            (most > (uint64_t)SIZE_MAX / 16)) {
            return BT_ERR_OVERFLOW;
        }
        count *= dims[i];
    }
    *count_p = count;
    return BT_OK;
}

uint64_t bt_tensor_elements(const bt_tensor_t *tensor)
{
    uint64_t count = 0;

    if (bt_tensor_count(tensor->dims, tensor->n_dims, &count) != BT_OK) {
        BT_ASSERT(false);
    }
    return count;
}

static bt_status_t check_strings(const bt_tensor_t *tensor, uint64_t count,
                                 char why[BT_TENSOR_WHY_BYTES])
{
    const char *text;
    size_t bytes;
    size_t at = 0;
    uint64_t n = 0;

    /* Each element has at least its length field: the loop is bounded by the
     * data. */
    while (bt_tensor_next_bytes(tensor, &at, &text, &bytes)) {
        n++;
    }
    if (at != tensor->bytes) {
        snprintf(why, BT_TENSOR_WHY_BYTES,
                 "has an element of BYTES that goes beyond its %zu bytes of "
                 "data",
                 tensor->bytes);
        return BT_ERR_INVALID_PARAM;
    }
    if (n != count) {
        snprintf(why, BT_TENSOR_WHY_BYTES,
                 "has %" PRIu64
                 " elements of BYTES in its data, but its shape says "
                 "%" PRIu64,
                 n, count);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_tensor_check(const bt_tensor_t *tensor,
                            char why[BT_TENSOR_WHY_BYTES])
{
    const size_t size = bt_dtype_bytes(tensor->dtype);
    uint64_t count = 0;

    if (bt_tensor_count(tensor->dims, tensor->n_dims, &count) != BT_OK) {
        snprintf(why, BT_TENSOR_WHY_BYTES, "has a shape that is too large");
        return BT_ERR_INVALID_PARAM;
    }
    if (size == 0) {
        return check_strings(tensor, count, why);
    }
    if (tensor->bytes != count * size) {
        snprintf(
            why, BT_TENSOR_WHY_BYTES,
            "has %zu bytes of data, but its shape and datatype say %" PRIu64,
            tensor->bytes, (count * size));
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

void bt_tensor_fini(bt_tensor_t *tensor)
{
    if ((tensor->give_up != NULL) && (tensor->owned != NULL)) {
        tensor->give_up(tensor->owned);
    } else {
        bt_free(tensor->owned);
    }
    tensor->owned = NULL;
    tensor->give_up = NULL;
    tensor->data = NULL;
    tensor->bytes = 0;
}

/* ---- reading ---- */

/* The host is little-endian, as the raw form is: checked by the build. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "raw tensors are read as they lie");

/* Returns the bits of element i, right-aligned. */
static uint64_t bits_of(const bt_tensor_t *tensor, uint64_t i)
{
    const size_t size = bt_dtype_bytes(tensor->dtype);
    uint64_t bits = 0;

    memcpy(&bits, (const char *)tensor->data + i * size, size);
    return bits;
}

static double half_to_double(uint16_t bits)
{
    const int sign = (bits >> 15) & 1;
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    double value;

    if (exponent == 31) {
        value = (fraction == 0) ? INFINITY : NAN;
    } else if (exponent == 0) {
        value = ldexp(fraction, -24);
    } else {
        value = ldexp(fraction + 1024, exponent - 25);
    }
    return (sign != 0) ? -value : value;
}

static double float_to_double(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static double real_of(const bt_tensor_t *tensor, uint64_t i)
{
    const uint64_t bits = bits_of(tensor, i);
    double value;

    switch (tensor->dtype) {
    case BT_DTYPE_FP16:
        return half_to_double((uint16_t)bits);
    case BT_DTYPE_BF16:
        return float_to_double((uint32_t)bits << 16);
    case BT_DTYPE_FP32:
        return float_to_double((uint32_t)bits);
    default:
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
}

static int64_t extend_sign(uint64_t bits, size_t bytes)
{
    const unsigned unused = (unsigned)(64 - 8 * bytes);

    return (int64_t)(bits << unused) >> unused;
}

static bt_status_t whole_number(double real, int64_t *value_p)
{
    if (!isfinite(real) || (real != floor(real))) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((real < -0x1p63) || (real >= 0x1p63)) {
        return BT_ERR_OVERFLOW;
    }
    *value_p = (int64_t)real;
    return BT_OK;
}

bt_status_t bt_tensor_i64(const bt_tensor_t *tensor, uint64_t i,
                          int64_t *value_p)
{
    const struct dtype *dtype = &dtypes[tensor->dtype];
    uint64_t bits;

    switch (dtype->kind) {
    case STRING:
        return BT_ERR_INVALID_PARAM;
    case REAL:
        return whole_number(real_of(tensor, i), value_p);
    case BOOLEAN:
        *value_p = (bits_of(tensor, i) != 0) ? 1 : 0;
        return BT_OK;
    case SIGNED:
        *value_p = extend_sign(bits_of(tensor, i), dtype->bytes);
        return BT_OK;
    default:
        bits = bits_of(tensor, i);
        if (bits > (uint64_t)INT64_MAX) {
            return BT_ERR_OVERFLOW;
        }
        *value_p = (int64_t)bits;
        return BT_OK;
    }
}

bt_status_t bt_tensor_u64(const bt_tensor_t *tensor, uint64_t i,
                          uint64_t *value_p)
{
    int64_t value = 0;
    bt_status_t status;

    if ((tensor->dtype == BT_DTYPE_UINT64) ||
        (tensor->dtype == BT_DTYPE_INT64)) {
        *value_p = bits_of(tensor, i);
        return BT_OK;
    }
    status = bt_tensor_i64(tensor, i, &value);
    if (status == BT_OK) {
        *value_p = (uint64_t)value;
    }
    return status;
}

bt_status_t bt_tensor_f64(const bt_tensor_t *tensor, uint64_t i,
                          double *value_p)
{
    int64_t value = 0;
    bt_status_t status;

    if (bt_dtype_is_float(tensor->dtype)) {
        *value_p = real_of(tensor, i);
        return BT_OK;
    }
    if (tensor->dtype == BT_DTYPE_UINT64) {
        *value_p = (double)bits_of(tensor, i);
        return BT_OK;
    }
    status = bt_tensor_i64(tensor, i, &value);
    if (status == BT_OK) {
        *value_p = (double)value;
    }
    return status;
}

bt_status_t bt_tensor_bool(const bt_tensor_t *tensor, uint64_t i, bool *value_p)
{
    if ((tensor->dtype != BT_DTYPE_BOOL) &&
        !bt_dtype_is_integer(tensor->dtype)) {
        return BT_ERR_INVALID_PARAM;
    }
    *value_p = bits_of(tensor, i) != 0;
    return BT_OK;
}

bool bt_tensor_next_bytes(const bt_tensor_t *tensor, size_t *offset,
                          const char **text_p, size_t *bytes_p)
{
    const size_t rest = tensor->bytes - *offset;
    const char *at;
    uint32_t bytes;

    if (rest < LENGTH_BYTES) {
        return false;
    }
    at = (const char *)tensor->data + *offset;
    memcpy(&bytes, at, LENGTH_BYTES);
    if (bytes > rest - LENGTH_BYTES) {
        return false;
    }
    *text_p = at + LENGTH_BYTES;
    *bytes_p = bytes;
    *offset += LENGTH_BYTES + bytes;
    return true;
}

/* ---- making ---- */

/* Makes a tensor without data. @param [out] count_p  its elements */
static bt_status_t begin(const char *name, bt_dtype_t dtype,
                         const uint64_t *dims, uint32_t n_dims,
                         bt_tensor_t *tensor_p, uint64_t *count_p)
{
    bt_tensor_t tensor = {.dtype = dtype, .n_dims = n_dims};

    BT_ASSERT((n_dims <= BT_TENSOR_MAX_DIMS) &&
              (strlen(name) < BT_TENSOR_NAME_BYTES));
    snprintf(tensor.name, sizeof(tensor.name), "%s", name);
    memcpy(tensor.dims, dims, n_dims * sizeof(*dims));
    *tensor_p = tensor;
    return bt_tensor_count(dims, n_dims, count_p);
}

bt_status_t bt_tensor_make(const char *name, bt_dtype_t dtype,
                           const uint64_t *dims, uint32_t n_dims, size_t bytes,
                           bt_tensor_t *tensor_p)
{
    bt_tensor_t made;
    uint64_t count = 0;
    const bt_status_t status = begin(name, dtype, dims, n_dims, &made, &count);

    if (status != BT_OK) {
        return status;
    }
    made.bytes = (dtype == BT_DTYPE_BYTES)
                     ? bytes
                     : (size_t)count * bt_dtype_bytes(dtype);
    made.owned = bt_calloc(made.bytes + 1, 1);
    if (made.owned == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    made.data = made.owned;
    *tensor_p = made;
    return BT_OK;
}

bt_status_t bt_tensor_hold(const char *name, bt_dtype_t dtype,
                           const uint64_t *dims, uint32_t n_dims,
                           const void *data, void *owned,
                           void (*give_up)(void *owned), bt_tensor_t *tensor_p)
{
    bt_tensor_t held;
    uint64_t count = 0;
    const bt_status_t status = begin(name, dtype, dims, n_dims, &held, &count);

    BT_ASSERT(bt_dtype_bytes(dtype) > 0);
    if (status != BT_OK) {
        return status;
    }
    held.bytes = (size_t)count * bt_dtype_bytes(dtype);
    held.data = (held.bytes > 0) ? data : NULL;
    held.owned = owned;
    held.give_up = give_up;
    *tensor_p = held;
    return BT_OK;
}

uint8_t *bt_tensor_put_bytes(uint8_t *at, const char *text, size_t bytes)
{
    const uint32_t length = (uint32_t)bytes;

    BT_ASSERT(bytes <= UINT32_MAX);
    memcpy(at, &length, LENGTH_BYTES);
    if (bytes > 0) {
        memcpy(at + LENGTH_BYTES, text, bytes);
    }
    return at + LENGTH_BYTES + bytes;
}
