/* SPDX-License-Identifier: Apache-2.0 */
/* The K types: blocks of 256, eight groups, whose scales and minima are small
 * integers times an f16 of the block. */
#include "kernels/quant/blocks.h"

/* Bit pairs of group j: two halves of 128 elements, each four groups that share
 * 32 bytes. */
static uint32_t bit_pair(const uint8_t *qs, uint32_t j, uint32_t i)
{
    return ((uint32_t)qs[j / 4 * 32 + i] >> (j % 4 * 2)) & 3u;
}

/* scales[16], a nibble of scale and one of minimum each; qs[64]; d; dmin. */
void bt_read_q2_k(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *scales = block + (size_t)j * 2;
    const float d = bt_read_f16(block + 80);
    const float dmin = bt_read_f16(block + 82);

    for (uint32_t h = 0; h < 2; h++) {
        bt_group_step(group, h, d, scales[h] & 15);
        bt_group_min_step(group, h, -dmin, scales[h] >> 4);
    }
    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        group->code[i] = (int8_t)bit_pair(block + 16, j, i);
    }
}

/* hmask[32], whose bit j is missing where group j's code is 4 less; qs[64]; 16
 * scales of 6 bits in 12 bytes, nibbles first; d. */
void bt_read_q3_k(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *packed = block + 96;
    const float d = bt_read_f16(block + 108);

    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t i = 2 * j + h;
        const uint32_t low = ((uint32_t)packed[i % 8] >> (i / 8 * 4)) & 15u;
        const uint32_t high = ((uint32_t)packed[8 + i % 4] >> (i / 4 * 2)) & 3u;

        bt_group_step(group, h, d, (int)(low | high << 4) - 32);
    }
    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        const int less = (((block[i] >> j) & 1) == 0) ? 4 : 0;

        group->code[i] = (int8_t)((int)bit_pair(block + 32, j, i) - less);
    }
}

/* The 6-bit scale and minimum of group j are packed in 12 bytes, the last four
 * of them split in high and low parts. */
static void read_scale_min(const uint8_t *b, uint32_t j,
                           bt_quant_group_t *group)
{
    const uint8_t *packed = b + 4;
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
    for (uint32_t h = 0; h < 2; h++) {
        bt_group_step(group, h, bt_read_f16(b), (int)scale);
        bt_group_min_step(group, h, -bt_read_f16(b + 2), (int)min);
    }
}

/* d, dmin, 12 bytes of scales and minima, qs[128]. */
void bt_read_q4_k(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *qs = block + 16 + (size_t)(j / 2) * 32;

    read_scale_min(block, j, group);
    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        group->code[i] = (int8_t)((qs[i] >> (j % 2 * 4)) & 15);
    }
}

/* d, dmin, 12 bytes of scales and minima, the fifth bits high[32], qs[128]. */
void bt_read_q5_k(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *high = block + 16;
    const uint8_t *qs = block + 48 + (size_t)(j / 2) * 32;

    read_scale_min(block, j, group);
    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        const int code = (qs[i] >> (j % 2 * 4)) & 15;

        group->code[i] = (int8_t)(code | ((high[i] >> j) & 1) << 4);
    }
}

/* Two halves of 128 elements, each four groups that share bytes: group g of a
 * half takes nibble g / 2 of ql[32 * (g % 2)] and bit pair g of qh. */
void bt_read_q6_k(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint32_t g = j % 4;
    const uint8_t *ql = block + (size_t)(j / 4) * 64 + (size_t)(g & 1u) * 32;
    const uint8_t *scales = block + 192 + (size_t)j * 2;
    const float d = bt_read_f16(block + 208);

    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        const int low = (ql[i] >> ((g / 2) * 4)) & 15;
        const int high = (int)bit_pair(block + 128, j, i);

        group->code[i] = (int8_t)((low | (high << 4)) - 32);
    }
    for (uint32_t h = 0; h < 2; h++) {
        bt_group_step(group, h, d, (int8_t)scales[h]);
    }
}
