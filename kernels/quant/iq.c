/* SPDX-License-Identifier: Apache-2.0 */
/* The IQ types of 1 to 3 bits: blocks of 256, whose codes are points of a grid
 * (grids.h) with signs, or in IQ1 with an offset. */
#include "kernels/quant/blocks.h"
#include "kernels/quant/grids.h"

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
