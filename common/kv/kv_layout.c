/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_layout.h"

#include "common/base/assert.h"

bt_status_t bt_kv_block_bytes(const bt_kv_shape_t *shape, size_t *bytes_p)
{
    const size_t dims[] = {2 /* key and value */, shape->n_layers,
                           shape->n_kv_heads,     shape->tokens_per_block,
                           shape->head_dim,       shape->elem_bytes};
    size_t bytes = 1;

    if ((shape->elem_bytes != 1) && (shape->elem_bytes != 2) &&
        (shape->elem_bytes != 4)) {
        return BT_ERR_INVALID_PARAM;
    }

    for (size_t i = 0; i < BT_ARRAY_LEN(dims); i++) {
        if (dims[i] == 0) {
            return BT_ERR_INVALID_PARAM;
        }
        if (__builtin_mul_overflow(bytes, dims[i], &bytes)) {
            return BT_ERR_OVERFLOW;
        }
    }

    *bytes_p = bytes;
    return BT_OK;
}

bt_hash128_t bt_kv_layout_identity(const bt_kv_shape_t *shape, uint32_t kv_type)
{
    /* The first number is the version of the order of dimensions. */
    const uint32_t fields[] = {
        1,
        kv_type,
        shape->n_layers,
        shape->n_kv_heads,
        shape->tokens_per_block,
        shape->head_dim,
        shape->elem_bytes,
    };

    return bt_hash128(fields, sizeof(fields), 0);
}

uint32_t bt_kv_run_length(const uint32_t *ids, uint32_t first, uint32_t n)
{
    uint32_t end = first + 1;

    while ((end < n) && (ids[end] == ids[end - 1] + 1)) {
        end++;
    }
    return end - first;
}
