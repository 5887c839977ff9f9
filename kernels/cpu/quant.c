/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/quant.h"

#include <string.h>

#include "common/base/assert.h"
#include "kernels/cpu/half.h"

typedef struct ktype_info {
    uint32_t type;
    uint16_t n_elems;
    uint16_t n_bytes;
    const char *name;
} ktype_info_t;

static const ktype_info_t ktypes[] = {
    {BT_KTYPE_F32, 1, 4, "F32"},       {BT_KTYPE_F16, 1, 2, "F16"},
    {BT_KTYPE_BF16, 1, 2, "BF16"},     {BT_KTYPE_Q4_0, 32, 18, "Q4_0"},
    {BT_KTYPE_Q4_1, 32, 20, "Q4_1"},   {BT_KTYPE_Q5_0, 32, 22, "Q5_0"},
    {BT_KTYPE_Q5_1, 32, 24, "Q5_1"},   {BT_KTYPE_Q8_0, 32, 34, "Q8_0"},
    {BT_KTYPE_Q4_K, 256, 144, "Q4_K"}, {BT_KTYPE_Q5_K, 256, 176, "Q5_K"},
    {BT_KTYPE_Q6_K, 256, 210, "Q6_K"},
};

static const ktype_info_t *ktype_find(uint32_t type)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(ktypes); i++) {
        if (ktypes[i].type == type) {
            return &ktypes[i];
        }
    }
    return NULL;
}

bt_status_t bt_ktype_block(uint32_t type, uint32_t *n_elems_p,
                           uint32_t *n_bytes_p)
{
    const ktype_info_t *info = ktype_find(type);

    if (info == NULL) {
        return BT_ERR_UNSUPPORTED;
    }
    *n_elems_p = info->n_elems;
    *n_bytes_p = info->n_bytes;
    return BT_OK;
}

const char *bt_ktype_name(uint32_t type)
{
    const ktype_info_t *info = ktype_find(type);

    return (info == NULL) ? "unknown" : info->name;
}

static uint16_t read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (p[1] << 8));
}

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | ((uint32_t)p[1] << 8) | ((uint32_t)p[2] << 16) |
           ((uint32_t)p[3] << 24);
}

/* Low nibbles are elements 0..15, high nibbles 16..31. @a high holds the
 * fifth bit of element i at its bit i, @a bias is subtracted. */
static void read_nibbles(const uint8_t *qs, uint32_t high, int bias,
                         int8_t *code)
{
    for (uint32_t i = 0; i < 16; i++) {
        int low_bit = (int)((high >> i) & 1u) << 4;
        int high_bit = (int)((high >> (i + 16)) & 1u) << 4;

        code[i] = (int8_t)(((qs[i] & 15) | low_bit) - bias);
        code[i + 16] = (int8_t)(((qs[i] >> 4) | high_bit) - bias);
    }
}

static void read_simple(bt_ktype_t type, const uint8_t *b,
                        bt_quant_group_t *group)
{
    group->scale_f16 = read_u16(b);
    group->scale[0] = bt_f16_to_f32(group->scale_f16);
    group->scale[1] = group->scale[0];
    switch (type) {
    case BT_KTYPE_Q4_0:
        read_nibbles(b + 2, 0, 8, group->code);
        break;
    case BT_KTYPE_Q4_1:
        group->min_f16 = read_u16(b + 2);
        read_nibbles(b + 4, 0, 0, group->code);
        break;
    case BT_KTYPE_Q5_0:
        read_nibbles(b + 6, read_u32(b + 2), 16, group->code);
        break;
    case BT_KTYPE_Q5_1:
        group->min_f16 = read_u16(b + 2);
        read_nibbles(b + 8, read_u32(b + 4), 0, group->code);
        break;
    default: /* Q8_0 */
        memcpy(group->code, b + 2, BT_QUANT_GROUP);
        break;
    }
    if ((type == BT_KTYPE_Q4_1) || (type == BT_KTYPE_Q5_1)) {
        group->min = bt_f16_to_f32(group->min_f16);
    }
}

/* Q4_K and Q5_K: eight groups a block; the 6-bit scale and minimum of group j
 * are packed in 12 bytes, the last four of them split in high and low parts. */
static void read_k45(bt_ktype_t type, const uint8_t *b, uint32_t j,
                     bt_quant_group_t *group)
{
    const uint8_t *packed = b + 4;
    const uint8_t *high = b + 16; /* Q5_K only */
    const uint8_t *qs = (type == BT_KTYPE_Q5_K) ? b + 48 : b + 16;
    uint32_t shift = (j & 1u) * 4u;
    uint32_t scale;
    uint32_t min;

    if (j < 4) {
        scale = packed[j] & 63u;
        min = packed[j + 4] & 63u;
    } else {
        scale = (packed[j + 4] & 15u) | ((uint32_t)(packed[j - 4] >> 6) << 4);
        min =
            ((uint32_t)packed[j + 4] >> 4) | ((uint32_t)(packed[j] >> 6) << 4);
    }
    group->scale[0] = bt_f16_to_f32(read_u16(b)) * (float)scale;
    group->scale[1] = group->scale[0];
    group->min = -(bt_f16_to_f32(read_u16(b + 2)) * (float)min);

    qs += (size_t)(j / 2) * 32;
    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        uint32_t code = (uint32_t)(qs[i] >> shift) & 15u;

        if (type == BT_KTYPE_Q5_K) {
            code |= ((uint32_t)(high[i] >> j) & 1u) << 4;
        }
        group->code[i] = (int8_t)code;
    }
}

/* Q6_K: two halves of 128 elements, each four groups that share bytes: group
 * g of a half takes nibble g / 2 of ql[32 * (g % 2)] and bit pair g of qh. */
static void read_k6(const uint8_t *b, uint32_t j, bt_quant_group_t *group)
{
    uint32_t half = j / 4;
    uint32_t g = j % 4;
    const uint8_t *ql = b + (size_t)half * 64 + (size_t)(g & 1u) * 32;
    const uint8_t *qh = b + 128 + (size_t)half * 32;
    const uint8_t *scales = b + 192 + (size_t)half * 8 + (size_t)g * 2;
    float d = bt_f16_to_f32(read_u16(b + 208));

    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        int low = (ql[i] >> ((g / 2) * 4)) & 15;
        int high = (qh[i] >> (g * 2)) & 3;

        group->code[i] = (int8_t)((low | (high << 4)) - 32);
    }
    for (uint32_t i = 0; i < 2; i++) {
        group->scale[i] = d * (float)(int8_t)scales[i];
    }
}

void bt_quant_group_read(bt_ktype_t type, const uint8_t *row, size_t index,
                         bt_quant_group_t *group)
{
    const ktype_info_t *info = ktype_find(type);
    uint32_t per_block;
    const uint8_t *block;

    BT_ASSERT_ALWAYS((info != NULL) && (info->n_elems > 1));
    per_block = info->n_elems / BT_QUANT_GROUP;
    block = row + index / per_block * info->n_bytes;
    group->min = -0.0f;
    group->scale_f16 = 0;
    group->min_f16 = 0;
    if (per_block == 1) {
        read_simple(type, block, group);
    } else if (type == BT_KTYPE_Q6_K) {
        read_k6(block, (uint32_t)(index % per_block), group);
    } else {
        read_k45(type, block, (uint32_t)(index % per_block), group);
    }
}

static void dequantize_dense(bt_ktype_t type, const uint8_t *data, size_t n,
                             float *out)
{
    switch (type) {
    case BT_KTYPE_F16:
        for (size_t i = 0; i < n; i++) {
            out[i] = bt_f16_to_f32(read_u16(data + 2 * i));
        }
        break;
    case BT_KTYPE_BF16:
        for (size_t i = 0; i < n; i++) {
            out[i] = bt_bf16_to_f32(read_u16(data + 2 * i));
        }
        break;
    default: /* F32 */
        if (n > 0) {
            memcpy(out, data, n * sizeof(*out));
        }
        break;
    }
}

bt_status_t bt_dequantize(bt_ktype_t type, const void *data, size_t n,
                          float *out)
{
    const ktype_info_t *info = ktype_find(type);
    bt_quant_group_t group;

    if ((info == NULL) || (n % info->n_elems != 0)) {
        return BT_ERR_UNSUPPORTED;
    }
    if (info->n_elems == 1) {
        dequantize_dense(type, data, n, out);
        return BT_OK;
    }
    for (size_t k = 0; k < n; k++) {
        size_t i = k % BT_QUANT_GROUP;

        if (i == 0) {
            bt_quant_group_read(type, data, k / BT_QUANT_GROUP, &group);
        }
        out[k] = group.scale[i / 16] * (float)group.code[i] + group.min;
    }
    return BT_OK;
}
