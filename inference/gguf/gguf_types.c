/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "common/base/assert.h"
#include "inference/gguf/gguf_priv.h"

typedef struct type_info {
    const char *name;
    uint16_t n_elems; /* 0: known by name only */
    uint16_t n_bytes;
} type_info_t;

/* Source: the GGUF specification's ggml_type list and the block layouts of
 * ggml-common.h. A Q4_1 block, for example, is two f16 and 32 half bytes. */
static const type_info_t types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},
    [2] = {"Q4_0", 32, 18},      [3] = {"Q4_1", 32, 20},
    [4] = {"Q4_2", 0, 0},        [5] = {"Q4_3", 0, 0},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 0, 0},
    [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 0, 0},
    [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 0, 0},         [25] = {"I16", 0, 0},
    [26] = {"I32", 0, 0},        [27] = {"I64", 0, 0},
    [28] = {"F64", 0, 0},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [31] = {"Q4_0_4_4", 0, 0},
    [32] = {"Q4_0_4_8", 0, 0},   [33] = {"Q4_0_8_8", 0, 0},
    [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},
    [36] = {"IQ4_NL_4_4", 0, 0}, [37] = {"IQ4_NL_4_8", 0, 0},
    [38] = {"IQ4_NL_8_8", 0, 0}, [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},    [41] = {"Q1_0", 0, 0},
};

bt_status_t bt_gguf_type_block(uint32_t type, uint32_t *n_elems_p,
                               uint32_t *n_bytes_p)
{
    if ((type >= BT_ARRAY_LEN(types)) || (types[type].n_elems == 0)) {
        return BT_ERR_UNSUPPORTED;
    }
    *n_elems_p = types[type].n_elems;
    *n_bytes_p = types[type].n_bytes;
    return BT_OK;
}

const char *bt_gguf_type_name(uint32_t type)
{
    return (type < BT_ARRAY_LEN(types)) ? types[type].name : "unknown";
}

size_t bt_gguf_scalar_bytes(uint32_t type)
{
    switch (type) {
    case BT_GGUF_U8:
    case BT_GGUF_I8:
    case BT_GGUF_BOOL:
        return 1;
    case BT_GGUF_U16:
    case BT_GGUF_I16:
        return 2;
    case BT_GGUF_U32:
    case BT_GGUF_I32:
    case BT_GGUF_F32:
        return 4;
    case BT_GGUF_U64:
    case BT_GGUF_I64:
    case BT_GGUF_F64:
        return 8;
    default:
        return 0;
    }
}
