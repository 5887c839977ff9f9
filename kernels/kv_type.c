/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/assert.h"
#include "kernels/kernels.h"

static const bt_kv_type_info_t kv_types[] = {
    [BT_KV_F16] = {"f16", 2, 0},
    [BT_KV_BF16] = {"bf16", 2, 0},
    [BT_KV_INT8] = {"int8", 1, 4},
    [BT_KV_FP8] = {"fp8", 1, 4},
};

const bt_kv_type_info_t *bt_kv_type_info(uint32_t type)
{
    return (type < BT_ARRAY_LEN(kv_types)) ? &kv_types[type] : NULL;
}

bt_status_t bt_kv_type_parse(const char *name, bt_kv_type_t *type_p)
{
    for (uint32_t i = 0; i < BT_ARRAY_LEN(kv_types); i++) {
        if (strcmp(kv_types[i].name, name) == 0) {
            *type_p = (bt_kv_type_t)i;
            return BT_OK;
        }
    }
    return BT_ERR_NOT_FOUND;
}
