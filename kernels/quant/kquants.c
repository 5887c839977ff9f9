/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/quant/blocks.h"

#include <string.h>

#include "kernels/quant/grids.h"

/* The K types: blocks of 256, eight groups, whose scales and minima are small
 * integers times an f16 of the block. */

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

/* Blocks of 32: an f16 scale, in the types "_1" an f16 minimum behind it, in
 * those of 5 bits the fifth bits, then the codes. */

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

/* The ternary types: blocks of 256 codes -1, 0, 1 followed by one scale. */

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

/* The IQ types of 1 to 3 bits: blocks of 256, whose codes are points of a grid
 * (grids.h) with signs, or in IQ1 with an offset. */

/* A scale that is stored as s is s and a half, times two. */
static int odd(uint32_t s)
{
    return (int)(2 * s + 1);
}

/* Seven of eight signs are stored: the number of minus signs is even. */
static uint32_t eight_signs(uint32_t seven)
{
    return seven | (uint32_t)(__builtin_popcount(seven) & 1) << 7;
}

/* Codes of point i of a grid of 8 numbers of 2 bits; bit k of signs: minus. */
static void read_point8(const uint64_t *grid, uint32_t i, uint32_t signs,
                        int8_t *code)
{
    const uint32_t point = bt_grid_point(grid, i);

    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t index = (point >> (2 * k)) & 3u;

        code[k] = bt_book_iq2[index + 3 * ((signs >> k) & 1u)];
    }
}

/* Codes of point i of a grid of 4 numbers of 4 bits; the codebook has the
 * magnitudes first. */
static void read_point4(const uint64_t *grid, const int8_t *book, uint32_t i,
                        uint32_t signs, int8_t *code)
{
    const uint32_t point = bt_grid_point(grid, i);

    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t index = (point >> (4 * k)) & 7u;

        code[k] = book[index + 8 * ((signs >> k) & 1u)];
    }
}

/* d; of each group four bytes of indices and 32 bits: 4 * 7 signs, scale. */
void bt_read_iq2_xxs(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *at = block + 2 + (size_t)j * 8;
    const uint32_t rest = bt_read_u32(at + 4);

    bt_group_steps(group, bt_read_f16(block) * 0.125f, odd(rest >> 28));
    for (uint32_t l = 0; l < 4; l++) {
        read_point8(bt_grid_iq2_xxs, at[l],
                    eight_signs((rest >> (7 * l)) & 127u),
                    group->code + (size_t)l * 8);
    }
}

/* A nibble of scale for each half. */
static void read_scales2(const uint8_t *block, uint32_t nibbles,
                         bt_quant_group_t *group)
{
    for (uint32_t h = 0; h < 2; h++) {
        bt_group_step(group, h, bt_read_f16(block) * 0.125f,
                      odd((nibbles >> (4 * h)) & 15u));
    }
}

/* d, 32 pairs of 9 bits of index and 7 signs, 8 bytes of scales. */
void bt_read_iq2_xs(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    read_scales2(block, block[66 + j], group);
    for (uint32_t l = 0; l < 4; l++) {
        const uint32_t pair = bt_read_u16(block + 2 + (size_t)(4 * j + l) * 2);

        read_point8(bt_grid_iq2_xs, pair & 511u, eight_signs(pair >> 9),
                    group->code + (size_t)l * 8);
    }
}

/* d, 32 bytes of indices, 32 of signs, 8 of two more bits for each index, 8 of
 * scales. */
void bt_read_iq2_s(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *qs = block + 2 + (size_t)j * 4;

    read_scales2(block, block[74 + j], group);
    for (uint32_t l = 0; l < 4; l++) {
        const uint32_t high = ((uint32_t)block[66 + j] >> (2 * l)) & 3u;

        read_point8(bt_grid_iq2_s, qs[l] | high << 8, qs[32 + l],
                    group->code + (size_t)l * 8);
    }
}

/* d, 64 bytes of indices, of each group 32 bits: 4 * 7 signs, scale. */
void bt_read_iq3_xxs(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *qs = block + 2 + (size_t)j * 8;
    const uint32_t rest = bt_read_u32(block + 66 + (size_t)j * 4);

    bt_group_steps(group, bt_read_f16(block) * 0.25f, odd(rest >> 28));
    for (uint32_t l = 0; l < 8; l++) {
        const uint32_t signs = eight_signs((rest >> (l / 2 * 7)) & 127u);

        read_point4(bt_grid_iq3_xxs, bt_book_iq3_xxs, qs[l],
                    signs >> (l % 2 * 4), group->code + (size_t)l * 4);
    }
}

/* d, 64 bytes of indices, 8 of one more bit for each, 32 of signs, 4 of scales.
 */
void bt_read_iq3_s(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *qs = block + 2 + (size_t)j * 8;
    const uint8_t *signs = block + 74 + (size_t)j * 4;
    const uint32_t scale = ((uint32_t)block[106 + j / 2] >> (j % 2 * 4)) & 15u;

    bt_group_steps(group, bt_read_f16(block), odd(scale));
    for (uint32_t l = 0; l < 8; l++) {
        const uint32_t high = ((uint32_t)block[66 + j] >> l) & 1u;

        read_point4(bt_grid_iq3_s, bt_book_iq3_s, qs[l] | high << 8,
                    (uint32_t)signs[l / 2] >> (l % 2 * 4),
                    group->code + (size_t)l * 4);
    }
}

/* Codes of point i, whose numbers are -1, 0, 1 and an eighth more or less. */
static void read_point1(uint32_t i, bool less, int8_t *code)
{
    const uint32_t point = bt_grid_point(bt_grid_iq1, i);

    for (uint32_t k = 0; k < 8; k++) {
        const int number = (int)((point >> (2 * k)) & 3u) - 1;

        code[k] = (int8_t)(8 * number + (less ? -1 : 1));
    }
}

/* d, 32 bytes of indices, of each group 16 bits: 4 * 3 more bits of index, 3 of
 * scale, 1 of the offset's sign. */
void bt_read_iq1_s(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *qs = block + 2 + (size_t)j * 4;
    const uint32_t qh = bt_read_u16(block + 34 + (size_t)j * 2);

    bt_group_steps(group, bt_read_f16(block) * 0.125f, odd((qh >> 12) & 7u));
    for (uint32_t l = 0; l < 4; l++) {
        read_point1(qs[l] | ((qh >> (3 * l)) & 7u) << 8, (qh >> 15) != 0,
                    group->code + (size_t)l * 8);
    }
}

/* 32 bytes of indices; of each a nibble: 3 more bits, 1 of the offset's sign;
 * 4 * 16 bits: four scales of 3 bits, a nibble of d. */
void bt_read_iq1_m(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint8_t *scales = block + 48;
    uint32_t d = 0;

    for (uint32_t i = 0; i < 4; i++) {
        d |= ((uint32_t)bt_read_u16(scales + (size_t)i * 2) >> 12) << (4 * i);
    }
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t i = 2 * j + h;
        const uint32_t four = bt_read_u16(scales + (size_t)(i / 4) * 2);

        bt_group_step(group, h, bt_f16_to_f32((uint16_t)d) * 0.125f,
                      odd((four >> (i % 4 * 3)) & 7u));
    }
    for (uint32_t l = 0; l < 4; l++) {
        const uint32_t i = 4 * j + l;
        const uint32_t high = (uint32_t)block[32 + i / 2] >> (i % 2 * 4);

        read_point1(block[i] | (high & 7u) << 8, (high & 8u) != 0,
                    group->code + (size_t)l * 8);
    }
}
