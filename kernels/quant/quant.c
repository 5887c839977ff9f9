/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/quant/quant.h"

#include <string.h>

#include "common/base/status.h"
#include "kernels/half.h"
#include "kernels/quant/blocks.h"

typedef struct ktype_info {
    uint32_t type;
    uint16_t n_elems;
    uint16_t n_bytes;
    const char *name;
    bt_block_reader_t *read; /* NULL: no blocks */
    const int8_t *book;
} ktype_info_t;

#define K(name) BT_KTYPE_##name

static const ktype_info_t ktypes[] = {
    {K(F32), 1, 4, "F32", NULL, NULL},
    {K(F16), 1, 2, "F16", NULL, NULL},
    {K(BF16), 1, 2, "BF16", NULL, NULL},
    {K(Q4_0), 32, 18, "Q4_0", bt_read_q4_0, NULL},
    {K(Q4_1), 32, 20, "Q4_1", bt_read_q4_1, NULL},
    {K(Q5_0), 32, 22, "Q5_0", bt_read_q5_0, NULL},
    {K(Q5_1), 32, 24, "Q5_1", bt_read_q5_1, NULL},
    {K(Q8_0), 32, 34, "Q8_0", bt_read_q8_0, NULL},
    {K(Q2_K), 256, 84, "Q2_K", bt_read_q2_k, NULL},
    {K(Q3_K), 256, 110, "Q3_K", bt_read_q3_k, bt_book_q3_k},
    {K(Q4_K), 256, 144, "Q4_K", bt_read_q4_k, NULL},
    {K(Q5_K), 256, 176, "Q5_K", bt_read_q5_k, NULL},
    {K(Q6_K), 256, 210, "Q6_K", bt_read_q6_k, NULL},
    {K(IQ1_S), 256, 50, "IQ1_S", bt_read_iq1_s, bt_book_iq1},
    {K(IQ1_M), 256, 56, "IQ1_M", bt_read_iq1_m, bt_book_iq1},
    {K(IQ2_XXS), 256, 66, "IQ2_XXS", bt_read_iq2_xxs, bt_book_iq2},
    {K(IQ2_XS), 256, 74, "IQ2_XS", bt_read_iq2_xs, bt_book_iq2},
    {K(IQ2_S), 256, 82, "IQ2_S", bt_read_iq2_s, bt_book_iq2},
    {K(IQ3_XXS), 256, 98, "IQ3_XXS", bt_read_iq3_xxs, bt_book_iq3_xxs},
    {K(IQ3_S), 256, 110, "IQ3_S", bt_read_iq3_s, bt_book_iq3_s},
    {K(IQ4_NL), 32, 18, "IQ4_NL", bt_read_iq4_nl, bt_book_iq4},
    {K(IQ4_XS), 256, 136, "IQ4_XS", bt_read_iq4_xs, bt_book_iq4},
    {K(TQ1_0), 256, 54, "TQ1_0", bt_read_tq1_0, NULL},
    {K(TQ2_0), 256, 66, "TQ2_0", bt_read_tq2_0, NULL},
    {K(MXFP4), 32, 17, "MXFP4", bt_read_mxfp4, bt_book_fp4},
    {K(NVFP4), 64, 36, "NVFP4", bt_read_nvfp4, bt_book_fp4},
    {K(E4M3), BT_E4M3_BLOCK, BT_E4M3_BLOCK + 4, "E4M3", NULL, NULL},
    {K(E4M3_BF16), BT_E4M3_BLOCK, BT_E4M3_BLOCK + 4, "E4M3_BF16", NULL, NULL},
};

#undef K

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

bool bt_ktype_is_dense(uint32_t type)
{
    const ktype_info_t *info = ktype_find(type);

    return (info != NULL) && (info->read == NULL);
}

const char *bt_ktype_name(uint32_t type)
{
    const ktype_info_t *info = ktype_find(type);

    return (info == NULL) ? "unknown" : info->name;
}

void bt_quant_group_read(bt_ktype_t type, const uint8_t *row, size_t index,
                         bt_quant_group_t *group)
{
    const ktype_info_t *info = ktype_find(type);
    uint32_t per_block;

    BT_ASSERT_ALWAYS((info != NULL) && (info->read != NULL));
    per_block = info->n_elems / BT_QUANT_GROUP;
    bt_group_min(group, -0.0f);
    info->read(row + index / per_block * info->n_bytes,
               (uint32_t)(index % per_block), group);
}

const int8_t *bt_quant_book(bt_ktype_t type)
{
    const ktype_info_t *info = ktype_find(type);

    return (info == NULL) ? NULL : info->book;
}

static void dequantize_dense(bt_ktype_t type, const uint8_t *data, size_t n,
                             float *out)
{
    switch (type) {
    case BT_KTYPE_F16:
        for (size_t i = 0; i < n; i++) {
            out[i] = bt_f16_to_f32(bt_read_u16(data + 2 * i));
        }
        break;
    case BT_KTYPE_BF16:
        for (size_t i = 0; i < n; i++) {
            out[i] = bt_bf16_to_f32(bt_read_u16(data + 2 * i));
        }
        break;
    case BT_KTYPE_E4M3:
    case BT_KTYPE_E4M3_BF16:
        for (size_t i = 0; i < n; i++) {
            const uint8_t *block =
                data + i / BT_E4M3_BLOCK * (BT_E4M3_BLOCK + 4);

            out[i] = bt_e4m3_weight(block[4 + i % BT_E4M3_BLOCK]) *
                     bt_f32_from_bits(bt_read_u32(block));
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
    if (info->read == NULL) {
        dequantize_dense(type, data, n, out);
        return BT_OK;
    }
    for (size_t k = 0; k < n; k++) {
        size_t i = k % BT_QUANT_GROUP;

        if (i == 0) {
            bt_quant_group_read(type, data, k / BT_QUANT_GROUP, &group);
        }
        out[k] = group.scale[i / 16] * (float)group.code[i] + group.min[i / 16];
    }
    return BT_OK;
}
