/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_layout.h"

#include "common/base/status.h"

bt_status_t bt_kv_block_bytes(const bt_kv_shape_t *shape, size_t *bytes_p)
{
    const size_t dims[] = {2 /* key and value */, shape->n_layers,
                           shape->n_kv_heads, shape->tokens_per_block};
    size_t vectors = 1;
    size_t vector_bytes;
    size_t bytes;

    if ((shape->elem_bytes != 1) && (shape->elem_bytes != 2) &&
        (shape->elem_bytes != 4)) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((shape->scale_bytes != 0) && (shape->scale_bytes != 2) &&
        (shape->scale_bytes != 4)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (shape->head_dim == 0) {
        return BT_ERR_INVALID_PARAM;
    }

    for (size_t i = 0; i < BT_ARRAY_LEN(dims); i++) {
        if (dims[i] == 0) {
            return BT_ERR_INVALID_PARAM;
        }
        if (__builtin_mul_overflow(vectors, dims[i], &vectors)) {
            return BT_ERR_OVERFLOW;
        }
    }
    /* Two 32-bit numbers and 4: no overflow in 64 bits. */
    vector_bytes =
        (size_t)shape->head_dim * shape->elem_bytes + shape->scale_bytes;
    if (__builtin_mul_overflow(vectors, vector_bytes, &bytes)) {
        return BT_ERR_OVERFLOW;
    }

    *bytes_p = bytes;
    return BT_OK;
}

bt_hash128_t bt_kv_layout_identity(const bt_kv_shape_t *shape, uint32_t kv_type,
                                   uint32_t order)
{
    const uint32_t fields[] = {
        order,
        kv_type,
        shape->n_layers,
        shape->n_kv_heads,
        shape->tokens_per_block,
        shape->head_dim,
        shape->elem_bytes,
        shape->scale_bytes,
    };

    return bt_hash128(fields, sizeof(fields), 0);
}
