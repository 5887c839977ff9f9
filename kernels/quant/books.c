/* SPDX-License-Identifier: Apache-2.0 */
/* Codebooks, and the types whose blocks have indices into them. */
#include "kernels/quant/blocks.h"

/* ggml, "ggml-common.h": kvalues_iq4nl. */
const int8_t bt_book_iq4[BT_QUANT_BOOK] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
};

/* FP4 (e2m1), doubled: Open Compute Project, "OCP Microscaling Formats (MX)",
 * version 1.0, section 5.3.3. */
const int8_t bt_book_fp4[BT_QUANT_BOOK] = {
    0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,
};

const int8_t bt_book_q3_k[BT_QUANT_BOOK] = {-4, -3, -2, -1, 0, 1, 2, 3};

/* (-1, 0 or 1 +- 1/8) * 8. */
const int8_t bt_book_iq1[BT_QUANT_BOOK] = {-9, -7, -1, 1, 7, 9};

/* Meaning of the grids' numbers (ggml, "ggml-common.h"), with both signs. */
const int8_t bt_book_iq2[BT_QUANT_BOOK] = {8, 25, 43, -8, -25, -43};

const int8_t bt_book_iq3_xxs[BT_QUANT_BOOK] = {
    4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62,
};

const int8_t bt_book_iq3_s[BT_QUANT_BOOK] = {
    1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15,
};

/* Reads n bytes: low nibbles are codes 0 .., high nibbles n .. . */
static void read_indices(const int8_t *book, const uint8_t *qs, uint32_t n,
                         int8_t *code)
{
    for (uint32_t i = 0; i < n; i++) {
        code[i] = book[qs[i] & 15];
        code[i + n] = book[qs[i] >> 4];
    }
}

/* d, qs[16]. */
void bt_read_iq4_nl(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    (void)j;
    bt_group_scale(group, bt_read_f16(block));
    read_indices(bt_book_iq4, block + 2, 16, group->code);
}

/* d, the high bit pairs of eight 6-bit scales, their low nibbles, qs[128]. */
void bt_read_iq4_xs(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    const uint32_t low = ((uint32_t)block[4 + j / 2] >> (j % 2 * 4)) & 15u;
    const uint32_t high = ((uint32_t)bt_read_u16(block + 2) >> (2 * j)) & 3u;
    const int scale = (int)(low | high << 4) - 32;

    bt_group_steps(group, bt_read_f16(block), scale);
    read_indices(bt_book_iq4, block + 8 + (size_t)j * 16, 16, group->code);
}

/* A scale of 2^(e - 127), here halved as the codebook is doubled; qs[16]. */
void bt_read_mxfp4(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    (void)j;
    bt_group_scale(group, bt_quant_e8m0_half(block[0]));
    group->step[0] = (int8_t)block[0];
    group->step[1] = group->step[0];
    read_indices(bt_book_fp4, block + 1, 16, group->code);
}

/* Half of an e4m3 number without its sign. The code that e4m3 has for NaN is 0,
 * as ggml has it. */
static float half_e4m3(uint32_t code)
{
    const uint32_t exponent = (code >> 3) & 15u;
    const uint32_t fraction = code & 7u;

    if (code == 0x7f) {
        return 0.0f;
    }
    return (exponent == 0)
               ? (float)fraction * 0x1p-10f
               : bt_f32_from_bits((exponent + 119u) << 23 | fraction << 20);
}

/* Blocks of 64: four scales, then qs[8] of each 16 elements. */
void bt_read_nvfp4(const uint8_t *block, uint32_t j, bt_quant_group_t *group)
{
    for (uint32_t h = 0; h < 2; h++) {
        group->scale[h] = half_e4m3(block[2 * j + h]);
        read_indices(bt_book_fp4, block + 4 + (size_t)(2 * j + h) * 8, 8,
                     group->code + (size_t)h * 16);
    }
}
