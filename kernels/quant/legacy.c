/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of 32: an f16 scale, in the types "_1" an f16 minimum behind it, in
 * those of 5 bits the fifth bits, then the codes. */
#include <string.h>

#include "kernels/quant/blocks.h"

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

void bt_read_q4_0(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    (void)j;
    bt_group_scale(group, bt_read_f16(block));
    read_nibbles(block + 2, 0, 8, group->code);
}

void bt_read_q4_1(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    (void)j;
    bt_group_scale(group, bt_read_f16(block));
    bt_group_min(group, bt_read_f16(block + 2));
    read_nibbles(block + 4, 0, 0, group->code);
}

void bt_read_q5_0(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    (void)j;
    bt_group_scale(group, bt_read_f16(block));
    read_nibbles(block + 6, bt_read_u32(block + 2), 16, group->code);
}

void bt_read_q5_1(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    (void)j;
    bt_group_scale(group, bt_read_f16(block));
    bt_group_min(group, bt_read_f16(block + 2));
    read_nibbles(block + 8, bt_read_u32(block + 4), 0, group->code);
}

void bt_read_q8_0(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    (void)j;
    bt_group_scale(group, bt_read_f16(block));
    memcpy(group->code, block + 2, BT_QUANT_GROUP);
}
