/* SPDX-License-Identifier: Apache-2.0 */
/* The ternary types: blocks of 256 codes -1, 0, 1 followed by one scale. */
#include "kernels/quant/blocks.h"

/* Base 3, five codes a byte: bytes 0 .. 31 have elements 0 .. 159, byte i those
 * i, i + 32, …; bytes 32 .. 47 likewise 160 .. 239, bytes 48 .. 51, with four,
 * the rest. A byte is ceil(number * 256 / 243), the first element its highest
 * digit. */
static int8_t trit(const uint8_t *block, uint32_t i)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    const uint32_t first = (i < 160) ? 0 : (i < 240) ? 160 : 240;
    const uint32_t n = (i < 160) ? 32 : (i < 240) ? 16 : 4;
    const uint32_t at = (i < 160) ? 0 : (i < 240) ? 32 : 48;
    const uint8_t byte = block[at + (i - first) % n];
    const uint8_t shifted = (uint8_t)(byte * powers[(i - first) / n]);

    return (int8_t)((shifted * 3 >> 8) - 1);
}

void bt_read_tq1_0(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    bt_group_scale(group, bt_read_f16(block + 52));
    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        group->code[i] = trit(block, j * BT_QUANT_GROUP + i);
    }
}

/* Bit pairs, in the order of Q2_K; the fourth code is 2. */
void bt_read_tq2_0(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *qs = block + (size_t)(j / 4) * 32;

    bt_group_scale(group, bt_read_f16(block + 64));
    for (uint32_t i = 0; i < BT_QUANT_GROUP; i++) {
        group->code[i] = (int8_t)(((qs[i] >> (j % 4 * 2)) & 3) - 1);
    }
}
